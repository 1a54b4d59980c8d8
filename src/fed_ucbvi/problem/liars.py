"""Agents that lie. Lying is a property of the federation, so it works with every algorithm.

A liar plays like every other agent, but it requests synchronisations as it likes and replaces its row of every
report. It knows the honest agents' reports before it sends its own (the strongest adversary). Attacks change the
values (``float64``) and the counts (``int64``) of a report. Arrays of other types (states visited, requests made) are
left as they are.

``collude`` and ``mimic`` aim at a wrong ranking. They look along the last axis of a report: the actions, where an
algorithm reports on all of them, and otherwise the states. Entries that the honest agents find better than average
are made worse, and the others better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_choice, check_integer, check_number
from fed_ucbvi.core.indexing import UNREACHABLE
from fed_ucbvi.core.types import CountArray, FloatArray

ATTACKS: dict[str, str] = {
    "random": "values uniform on [0, H], drawn anew for every report",
    "flip": "values with the sign changed",
    "inflate": "values replaced by H",
    "collude": "all report the honest mean, moved by just less than a confidence interval to the wrong ranking",
    "mimic": "all repeat the honest report that misleads most, entry by entry; no test can tell them apart",
    "counts": "counts a thousand times too large, visits claimed where there were none",
    "silent": "never asks for synchronisation and reports no visits",
    "spam": "asks for synchronisation after every episode, until the server stops listening",
}
"""Attacks of liars, by name."""

FALSE_COUNT_FACTOR = 1000
MAX_FALSE = 2**53
"""The sum of all false counts for one entry stays below this, so that sums are exact."""


@dataclass(frozen=True)
class Liars:
    """The agents that lie, and their attack."""

    agents: tuple[int, ...]
    attack: str
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("attack", self.attack, ATTACKS)

    def tamper_budgets(self, budgets: CountArray) -> None:
        """Change, in place, when liars request a synchronisation; ``budgets`` is ``(M, H, S)``.

        The server ignores an agent whose budgets are all unreachable; such an agent cannot spam.
        """
        if self.attack == "silent":
            budgets[list(self.agents)] = UNREACHABLE
        elif self.attack == "spam":
            for i in self.agents:
                if budgets[i].min() < UNREACHABLE:
                    budgets[i] = 1

    def tamper_report(
        self,
        round_number: int,
        horizon: int,
        report: tuple[npt.NDArray[Any], ...],
        exchange: int,
    ) -> None:
        """Replace the liars' rows of a report, in place; arrays have a leading agent axis."""
        rows = list(self.agents)
        values = [array for array in report if array.dtype == np.float64]
        counts = [array for array in report if array.dtype == np.int64]
        if self.attack in ("collude", "mimic") and values:
            self._mislead(values, counts, horizon)
        rng = np.random.default_rng([self.seed, round_number, exchange])
        for array in values:
            if self.attack == "random":
                array[rows] = rng.uniform(0.0, horizon, array[rows].shape)
            elif self.attack == "flip":
                array[rows] *= -1.0
            elif self.attack == "inflate":
                array[rows] = horizon
        most = MAX_FALSE // max(1, len(rows)) // FALSE_COUNT_FACTOR
        for array in counts:
            if self.attack == "counts":
                array[rows] = np.minimum(array[rows] + 1, most) * FALSE_COUNT_FACTOR
            elif self.attack == "silent":
                array[rows] = 0

    def _mislead(self, values: list[FloatArray], counts: list[CountArray], horizon: int) -> None:
        """``collude`` and ``mimic``, for the arrays that have the shape of the last array of values.

        With n the honest counts (1 where a report has none) and mu the honest mean of a value, weighted by n:
        ``collude`` reports ``mu -+ 0.99 H sqrt(2 ln(2 M) / max n)`` and ``max n`` as its count; ``mimic`` the row
        of the honest agent with the largest ``-+ n (x - mu)``. The sign is that of the module's text.
        """
        shape = values[-1].shape
        values = [array for array in values if array.shape == shape]
        counts = [array for array in counts if array.shape == shape]
        liars = np.isin(np.arange(shape[0]), self.agents)
        if counts:
            n = counts[0][~liars]
        else:
            n = np.ones(values[-1][~liars].shape, dtype=np.int64)
        if self.attack == "collude":
            width = 0.99 * horizon * math.sqrt(2.0 * math.log(2.0 * shape[0]))
            most = n.max(axis=0)
            for array in values:
                mean, sign = _honest_mean(array[~liars], n)
                array[liars] = mean + sign * width / np.sqrt(np.maximum(most, 1))
            for count in counts:
                count[liars] = count[~liars].max(axis=0)
            return
        honest_values = values[-1][~liars]
        mean, sign = _honest_mean(honest_values, n)
        worst_agent = np.argmax(sign * n * (honest_values - mean), axis=0)[None]
        for array in values:
            array[liars] = np.take_along_axis(array[~liars], worst_agent, axis=0)
        for count in counts:
            count[liars] = np.take_along_axis(count[~liars], worst_agent, axis=0)


def _honest_mean(x: FloatArray, n: CountArray) -> tuple[FloatArray, FloatArray]:
    """The mean over agents, weighted by n, and the sign of a misleading shift: down where it is above average."""
    mean = (n * x).sum(axis=0) / np.maximum(n.sum(axis=0), 1)
    centre = mean.mean(axis=-1, keepdims=True) if mean.ndim else mean
    sign = np.where(mean > centre, -1.0, 1.0)
    return mean, sign


def choose_liars(agents: int, fraction: float, attack: str, seed: int) -> Liars:
    """``round(fraction * agents)`` liars, chosen at random from the seed; at least one agent must stay honest."""
    check_number("the fraction of liars", fraction, at_least=0)
    number = round(fraction * agents)
    if number >= agents:
        largest = (agents - 0.5) / agents
        raise InputError(
            f"{number} liars among {agents} agents leave nobody honest; use a fraction below {largest:.3g}."
        )
    check_integer("seed of the liars", seed)
    chosen = np.random.default_rng([seed, agents]).permutation(agents)[:number]
    return Liars(agents=tuple(sorted(chosen.tolist())), attack=attack, seed=seed)
