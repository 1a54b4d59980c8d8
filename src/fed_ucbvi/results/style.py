"""The label, colour and marker of algorithms and environments in figures."""

from __future__ import annotations

from collections.abc import Sequence

from fed_ucbvi.algorithms import ALGORITHMS, known_class
from fed_ucbvi.core.colours import Marker, distinct_colours
from fed_ucbvi.environments import environment_label


def different_colours(wanted: Sequence[str]) -> list[str]:
    """A different colour for each entry; an empty one gets a colour that no algorithm of this package has."""
    return distinct_colours(wanted, avoid=(kind.colour for kind in ALGORITHMS.values()))


def colour_of(algorithm: str) -> str:
    """The colour of an algorithm that is drawn beside none without a colour of its own."""
    return different_colours([own_colour(algorithm)])[0]


def own_colour(algorithm: str) -> str:
    """The colour that an algorithm gives itself; empty if none, or if its class is not at hand.

    >>> own_colour("fed-ucbvi"), own_colour("something new")
    ('#0072B2', '')
    """
    kind = known_class(algorithm)
    return "" if kind is None else kind.colour


def marker_of(algorithm: str) -> Marker:
    """The marker of an algorithm's points, by its recorded name."""
    kind = known_class(algorithm)
    return "none" if kind is None else kind.marker


def label_of(name: str) -> str:
    """The label of an algorithm or environment; its name if it has no label.

    >>> label_of("fed-ucbvi"), label_of("deep_sea"), label_of("something new")
    ('Fed-UCBVI', 'DeepSea', 'something new')
    """
    kind = known_class(name)
    return environment_label(name) if kind is None else kind.label
