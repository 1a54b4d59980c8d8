"""Does the kernel, or the reward, depend on the step? A test on a few episodes.

Steps are divided into G groups of equal length. Under the hypothesis that kernel and rewards are stationary, the next
state at a visit to (s,a) has the same law in every group. With ``C[g,s,a,s']`` the transitions in group g, and dots
for sums, the likelihood ratio against a kernel for each group is (Anderson and Goodman, *Statistical inference about
Markov chains*, 1957)

    ``2 sum_{g,s,a,s'} C[g,s,a,s'] log( C[g,s,a,s'] C[.,s,a,.] / (C[g,s,a,.] C[.,s,a,s']) )``.

Its chi-square law holds for many visits to every pair. Here there are few, so it is compared with its law when the
next states of each pair are permuted among its visits. Rewards are permuted within each (s,a,s'), and compared by the
sum of squares between groups. Given the states, the second test is exact. The first is not quite, because when a
state is visited depends on earlier next states of the same episode. In simulations on six chains false alarms were up
to 0.087 where 0.05 was asked for, and up to 0.027 where 0.01 was. Each of the two tests has half of the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray

Codes = npt.NDArray[np.int64]

RESAMPLES = 399
GROUPS = 4
ROUNDING = 1e-9


class Transitions(NamedTuple):
    """Episodes as columns, one row a step."""

    step: Codes
    state: Codes
    action: Codes
    following: Codes
    reward: FloatArray

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, float]]) -> Transitions:
        """From rows of (step, state, action, next state, reward)."""
        table = np.array(rows, dtype=np.float64)
        step, state, action, following = table[:, :4].T.astype(np.int64)
        return cls(step, state, action, following, table[:, 4])


@dataclass(frozen=True)
class StepDependence:
    """The outcome: p-values of the two tests, and the false-alarm rate that was allowed to both together."""

    kernel: float
    rewards: float
    false_alarms: float

    @property
    def found(self) -> bool:
        """Whether something depends on the step, as far as the episodes show."""
        return min(self.kernel, self.rewards) <= self.false_alarms / 2


def check_step_dependence(
    seen: Transitions, horizon: int, *, false_alarms: float = 0.01, seed: int = 0
) -> StepDependence:
    """Test the hypothesis that kernel and rewards are the same at every step.

    Args:
        seen: transitions of independent episodes; how actions were chosen does not matter.
        horizon: H.
        false_alarms: the probability, about, of finding a dependence where there is none.
        seed: of the permutations.
    """
    rng = np.random.default_rng(seed)
    group = seen.step * min(GROUPS, horizon) // horizon
    pair = _codes(seen.state, seen.action)
    move = _codes(pair, seen.following)

    def of_moves(moves: Codes) -> float:
        """The likelihood ratio, less what permuting within pairs does not change."""
        counts = np.bincount(moves * GROUPS + group)
        counts = counts[counts > 0]
        return float(counts @ np.log(counts))

    means = np.bincount(move, seen.reward) / np.bincount(move)
    centred = (seen.reward - means[move]) / (float(np.ptp(seen.reward)) or 1.0)
    cell = _codes(move, group)
    number = np.bincount(cell)

    def of_rewards(rewards: FloatArray) -> float:
        """The sum of squares between groups."""
        return float((np.bincount(cell, rewards) ** 2 / number).sum())

    return StepDependence(
        _permuted(of_moves, move, pair, rng), _permuted(of_rewards, centred, move, rng), false_alarms
    )


def _codes(*columns: Codes) -> Codes:
    """One number for each row, the same for equal rows."""
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _permuted(
    statistic: Callable[[Any], float], values: npt.NDArray[Any], within: Codes, rng: np.random.Generator
) -> float:
    """The p-value of a statistic, large if the hypothesis is wrong, by permuting values within classes."""
    observed, order = statistic(values), np.argsort(within, kind="stable")
    as_large, shuffled = 0, np.empty_like(values)
    for _ in range(RESAMPLES):
        shuffled[order] = values[np.lexsort((rng.random(len(values)), within))]
        as_large += statistic(shuffled) >= observed - ROUNDING
    return (1 + as_large) / (1 + RESAMPLES)
