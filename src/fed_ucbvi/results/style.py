"""The colour of each algorithm, and how names are written."""

from __future__ import annotations

from fed_ucbvi.charts.colours import (
    BLACK,
    BLUE,
    BROWN,
    GREEN,
    INDIGO,
    OLIVE,
    ORANGE,
    PURPLE,
    SKY_BLUE,
    VERMILLION,
    WINE,
)

COLOURS: dict[str, str] = {
    "fed-ucbvi": BLUE,
    "ucbvi": OLIVE,
    "concurrent-ucbvi": GREEN,
    "byzan-ucbvi": INDIGO,
    "fedq-hoeffding": ORANGE,
    "fedq-bernstein": VERMILLION,
    "fedq-early-settled-lowcost": WINE,
    "fedq-advantage": PURPLE,
    "concurrent-ucb-advantage": SKY_BLUE,
    "ucb-advantage": BROWN,
}
"""The colour of each algorithm, by its name; one that is not here is drawn in black."""

LABELS: dict[str, str] = {
    "fed-ucbvi": "Fed-UCBVI",
    "ucbvi": "UCBVI",
    "concurrent-ucbvi": "Concurrent UCBVI",
    "byzan-ucbvi": "Byzan-UCBVI",
    "gridworld": "GridWorld",
    "gymnasium": "Gymnasium",
    "synthetic": "synthetic MDP",
    "riverswim": "RiverSwim",
    "chain": "chain",
    "deepsea": "DeepSea",
    "sixarms": "SixArms",
    "nroom": "NRoom",
    "hard-instance": "hard instance",
    "two-state-chain": "two-state chain",
    "garnet": "Garnet MDP",
    "fedq-hoeffding": "FedQ-Hoeffding",
    "fedq-bernstein": "FedQ-Bernstein",
    "fedq-early-settled-lowcost": "FedQ-EarlySettled-LowCost",
    "fedq-advantage": "FedQ-Advantage",
    "concurrent-ucb-advantage": "Concurrent UCB-Advantage",
    "ucb-advantage": "UCB-Advantage",
}
"""How names are written in pictures; one that is not here is written as it is."""


def colour_of(algorithm: str) -> str:
    """The colour of an algorithm.

    >>> colour_of("fed-ucbvi") == BLUE
    True
    """
    return COLOURS.get(algorithm, BLACK)


def label_of(name: str) -> str:
    """How the name of an algorithm or environment is written.

    >>> label_of("fed-ucbvi")
    'Fed-UCBVI'
    """
    return LABELS.get(name, name)
