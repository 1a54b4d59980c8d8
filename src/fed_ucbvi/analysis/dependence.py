"""Do kernel or rewards depend on the step, or on the agent? Two tests on a few episodes.

**On the step.** Steps are divided into G groups of equal length. Under the hypothesis that kernel and rewards are
stationary, the next state at a visit to (s,a) has the same law in every group. With ``C[g,s,a,s']`` the transitions
in group g, and dots for sums, the likelihood ratio against a kernel for each group is (Anderson and Goodman,
*Statistical inference about Markov chains*, 1957)

    ``2 sum_{g,s,a,s'} C[g,s,a,s'] log( C[g,s,a,s'] C[.,s,a,.] / (C[g,s,a,.] C[.,s,a,s']) )``.

Its chi-square law holds for many visits to every pair. Here there are few, so it is compared with its law when the
next states of each pair are permuted among its visits. Rewards are permuted within each (s,a,s'), and compared by the
sum of squares between groups. Given the states, the second test is exact. The first is not quite, because when a
state is visited depends on earlier next states of the same episode. In simulations on six chains false alarms were up
to 0.087 where 0.05 was asked for, and up to 0.027 where 0.01 was.

**On the agent.** The same for rewards, with agents for groups, and for next states the likelihood ratio of how often
each (s,a,s') occurs. That is not the ratio given (s,a): agents whose kernels differ come to different states, and
where a pair is one agent's alone, nothing given the pair can tell. If agents are alike, and begin and choose actions
alike, their episodes can be exchanged, whatever depends on the step. So whole episodes are permuted among agents, and
both tests are exact.

Of either kind each of the two tests has half of the false-alarm rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
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
class Dependence:
    """The outcome: p-values of the two tests, and the false-alarm rate that was allowed to both together."""

    kernel: float
    rewards: float
    false_alarms: float

    @property
    def found(self) -> bool:
        """Whether kernel or rewards depend on it, as far as the episodes show."""
        return min(self.kernel, self.rewards) <= self.false_alarms / 2

    def __str__(self) -> str:
        return f"p = {self.kernel:.3g} for the next state and {self.rewards:.3g} for the reward"


def check_step_dependence(
    seen: Transitions, horizon: int, *, false_alarms: float = 0.01, seed: int = 0
) -> Dependence:
    """Test the hypothesis that kernel and rewards are the same at every step.

    Transitions are those of independent episodes; how actions were chosen does not matter. A dependence is found
    where there is none with probability ``false_alarms``, about.
    """
    rng = np.random.default_rng(seed)
    group = seen.step * min(GROUPS, horizon) // horizon
    pair, move, centred = _coded(seen)
    of_moves = partial(_entries, groups=group)  # the rest of the ratio does not change by permuting within pairs
    of_rewards = partial(_between, move=move, groups=group)
    return Dependence(
        _p_value(of_moves(move), (of_moves(_shuffled(move, pair, rng)) for _ in range(RESAMPLES))),
        _p_value(of_rewards(centred), (of_rewards(_shuffled(centred, move, rng)) for _ in range(RESAMPLES))),
        false_alarms,
    )


def check_agent_dependence(seen: Sequence[Transitions], *, false_alarms: float = 0.01, seed: int = 0) -> Dependence:
    """Test the hypothesis that kernel and rewards are the same for all agents.

    Each agent's transitions are those of whole episodes, with actions chosen by one rule for all. A difference is
    found where there is none with probability ``false_alarms`` at most.
    """
    rng = np.random.default_rng(seed)
    together = Transitions(*(np.concatenate(columns) for columns in zip(*seen, strict=True)))
    episode = np.cumsum(together.step == 0) - 1
    owner = np.repeat(np.arange(len(seen)), [int((one.step == 0).sum()) for one in seen])
    _, move, centred = _coded(together)

    def statistics(owner: Codes) -> tuple[float, float]:
        agent = owner[episode]
        return _entries(move, agent), _between(centred, move, agent)

    observed = statistics(owner)
    permuted = [statistics(rng.permutation(owner)) for _ in range(RESAMPLES)]
    kernel, rewards = (_p_value(*pair) for pair in zip(observed, zip(*permuted, strict=True), strict=True))
    return Dependence(kernel, rewards, false_alarms)


def _coded(seen: Transitions) -> tuple[Codes, Codes, FloatArray]:
    """Pairs and moves by number, and rewards as shares of their range, less the mean of the move."""
    pair = _codes(seen.state, seen.action)
    move = _codes(pair, seen.following)
    means = np.bincount(move, seen.reward) / np.bincount(move)
    return pair, move, (seen.reward - means[move]) / (float(np.ptp(seen.reward)) or 1.0)


def _entries(codes: Codes, groups: Codes) -> float:
    """``sum C log C`` over codes and groups."""
    counts = np.bincount(codes * (groups.max() + 1) + groups)
    counts = counts[counts > 0]
    return float(counts @ np.log(counts))


def _between(rewards: FloatArray, move: Codes, groups: Codes) -> float:
    """The sum of squares of centred rewards between groups, move by move."""
    cell = move * (groups.max() + 1) + groups
    return float((np.bincount(cell, rewards) ** 2 / np.maximum(np.bincount(cell), 1)).sum())


def _codes(*columns: Codes) -> Codes:
    """One number for each row, the same for equal rows."""
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _shuffled(values: npt.NDArray[Any], within: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
    shuffled = np.empty_like(values)
    shuffled[np.argsort(within, kind="stable")] = values[np.lexsort((rng.random(len(values)), within))]
    return shuffled


def _p_value(observed: float, permuted: Iterable[float]) -> float:
    """The p-value of a statistic that is large if the hypothesis is wrong."""
    return (1 + sum(one >= observed - ROUNDING for one in permuted)) / (1 + RESAMPLES)
