"""Agents that lie: a property of a federation, whatever the algorithm.

A liar plays like everyone else but may ask, or not ask, for synchronisation as it pleases, and replaces its row of
every report. It knows the honest agents' reports before it sends its own (the strongest adversary). Attacks act on
what every report is made of: real numbers (values) and 64-bit integers (counts).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi._types import CountArray
from fed_ucbvi.errors import InputError, check_choice, check_integer, check_number

ATTACKS: dict[str, str] = {
    "random": "values uniform on [0, H]",
    "flip": "values with the sign changed",
    "inflate": "values replaced by H",
    "collude": "all report the honest mean plus a shift just inside an honest confidence interval",
    "counts": "counts a thousand times too large",
    "silent": "never asks for synchronisation and reports no visits",
    "spam": "asks for synchronisation after every episode",
}
"""What liars may do."""

NEVER = np.iinfo(np.int64).max
FALSE_COUNT_FACTOR = 1000


@dataclass(frozen=True)
class Liars:
    """Which agents lie, and how."""

    agents: tuple[int, ...]
    attack: str
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("attack", self.attack, ATTACKS)

    def tamper_budgets(self, budgets: CountArray) -> None:
        """Change when liars ask, in place; ``budgets`` is ``(M, H, S)``."""
        if self.attack == "silent":
            budgets[list(self.agents)] = NEVER
        elif self.attack == "spam":
            budgets[list(self.agents)] = 1

    def tamper_report(
        self, report: tuple[npt.NDArray[Any], ...], horizon: int, round_number: int, exchange: int
    ) -> None:
        """Replace the liars' rows of a report, in place; arrays have a leading agent axis."""
        rows = list(self.agents)
        values = [array for array in report if array.dtype == np.float64]
        counts = [array for array in report if array.dtype == np.int64]
        if self.attack == "random":
            rng = np.random.default_rng([self.seed, round_number, exchange])
            for array in values:
                array[rows] = rng.uniform(0.0, horizon, array[rows].shape)
        elif self.attack == "flip":
            for array in values:
                array[rows] = -array[rows]
        elif self.attack == "inflate":
            for array in values:
                array[rows] = float(horizon)
        elif self.attack == "counts":
            for array in counts:
                array[rows] = (array[rows] + 1) * FALSE_COUNT_FACTOR
        elif self.attack == "silent":
            for array in counts:
                array[rows] = 0
        elif self.attack == "collude" and counts:
            self._collude(values, counts[0], horizon)

    def _collude(self, values: list[npt.NDArray[Any]], counts: npt.NDArray[Any], horizon: int) -> None:
        """The honest mean plus ``0.99 H sqrt(2 ln(2 M) / n)``, with n, the largest honest count, as one's own."""
        M = len(counts)
        liars = np.isin(np.arange(M), self.agents)
        honest: CountArray = counts[~liars].astype(np.int64)
        most, total = honest.max(axis=0), honest.sum(axis=0)
        shift = 0.99 * horizon * math.sqrt(2.0 * math.log(2.0 * M)) / np.sqrt(np.maximum(most, 1))
        for array in values:
            if array.shape == counts.shape:
                mean = (honest * array[~liars]).sum(axis=0) / np.maximum(total, 1)
                array[liars] = mean + shift
        counts[liars] = most


def choose_liars(agents: int, fraction: float, attack: str, seed: int) -> Liars:
    """``round(fraction * agents)`` liars, chosen at random from the seed; at least one agent must stay honest."""
    check_number("the fraction of liars", fraction, at_least=0)
    number = round(fraction * agents)
    if number >= agents:
        raise InputError(
            f"{number} liars among {agents} agents leave nobody honest; take a fraction below "
            f"{(agents - 0.5) / agents:.3g}."
        )
    check_integer("seed of the liars", seed)
    chosen = np.random.default_rng([seed, agents]).permutation(agents)[:number]
    return Liars(tuple(sorted(int(i) for i in chosen)), attack, seed)
