"""Made-up runs, as analyses see them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fed_ucbvi.core.bracket import Bracket
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper.traces import Trace
from fed_ucbvi.results.about import About

T = 1000


def trace(
    algorithm: str,
    agents: int,
    eps_p: float,
    regret: float,
    rounds: int,
    *,
    seed: int = 0,
    fired: int = 0,
    curve: Callable[[FloatArray], FloatArray] | None = None,
) -> Trace:
    """A run that ends with this regret after this many rounds; its regret grows like a root unless said."""
    points = np.linspace(0, T, 101)
    shape = np.sqrt(points / T) if curve is None else curve(points / T)
    about = About(
        algorithm, {"delta": 0.05}, ("local", "global"), {"name": "gridworld"}, None, agents, 8, 4, 10, T, eps_p, 0.0,
        seed, "auto", {}, (), 4.0, Bracket(4.0, 4.0), {},
    )  # fmt: skip
    return Trace(
        about,
        regret,
        rounds,
        8,
        8,
        {"global": fired},
        points,
        regret * shape,
        rounds * points / T,
        points,
        f"{regret}",
    )


def several(algorithm: str, regrets: list[float], *, rounds: int = 9, eps_p: float = 0.0) -> list[Trace]:
    """A replicates with one run for each regret, seeds from 0 on."""
    return [trace(algorithm, 20, eps_p, regret, rounds, seed=seed) for seed, regret in enumerate(regrets)]
