"""Compiled functions of several algorithms: greedy choice, first policy and values, variances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.fields import TupleT, new_tables
from fed_ucbvi.core.compiling import compiled, embedded
from fed_ucbvi.core.parameters import Help
from fed_ucbvi.core.sampling.philox import SERVER, philox, unit_interval
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Setting

Choice = Literal["first", "random"]
"""Of an initial policy, and among actions of equal value."""
InitialPolicy = Annotated[Choice, Help("random, drawn from the run's seed, or first, action 0 everywhere.")]
TieBreaking = Annotated[
    Choice, Help("among actions of equal Q use the first or a random one, drawn from the run's seed.")
]
"""Parameters of several algorithms, with their help texts."""

ROUNDING = 1e-14
"""A variance below this share of the second moment is rounding error and counts as zero."""


class Ties(NamedTuple):
    """Choice of an action among equals: the first, or one drawn from the run's seed."""

    random: bool
    seed: np.uint64

    @classmethod
    def of(cls, setting: Setting, choice: Choice) -> Ties:
        return cls(choice == "random", np.uint64(setting.seed))


@embedded
def choose_action(Q: FloatArray, random_ties: bool, seed: np.uint64, update: int, cell: int) -> int:
    """A maximiser of ``Q[A]``: the first, or one drawn from (seed, number of the update, step and state)."""
    A = Q.shape[0]

    # The first maximiser, and the number of maximisers.
    best = 0
    equal = 1
    for a in range(1, A):
        if Q[a] > Q[best]:
            best = a
            equal = 1
        elif Q[a] == Q[best]:
            equal += 1
    if not random_ties or equal == 1:
        return best
    word, _, _, _ = philox(np.uint64(cell), np.uint64(update), SERVER, np.uint64(0), seed, np.uint64(0))

    # The maximiser that was drawn.
    skip = int(unit_interval(word) * equal)
    for a in range(best, A):
        if Q[a] == Q[best]:
            if skip == 0:
                return a
            skip -= 1
    return best


@embedded
def act_greedily(
    h: int, s: int, Q: FloatArray, policy: IndexArray, V: FloatArray, ties: Ties, update: int, most: float
) -> None:
    """``policy_h(s) = argmax_a Q_h(s,a)`` and ``V_h(s) = min(most, max_a Q_h(s,a))``."""
    best = choose_action(Q[h, s], ties.random, ties.seed, update, h * policy.shape[1] + s)
    policy[h, s] = best
    V[h, s] = min(most, Q[h, s, best])


@compiled
def randomise(seed: np.uint64, actions: int, policy: IndexArray) -> None:
    """Fill ``policy[H,S]`` with actions drawn from the seed, all being equal."""
    H, S = policy.shape
    equal = np.zeros(actions)
    for h in range(H):
        for s in range(S):
            policy[h, s] = choose_action(equal, True, seed, 0, h * S + s)


def first_policy(setting: Setting, choice: Choice) -> IndexArray:
    """The policy of the first round: a ``random`` action or the ``first``, for each (h,s)."""
    policy = np.zeros((setting.horizon, setting.states), dtype=np.int32)
    if choice == "random":
        randomise(np.uint64(setting.seed), setting.actions, policy)
    return policy


def first_estimates(kind: type[TupleT], setting: Setting, choice: Choice, *, remaining: bool = False) -> TupleT:
    """Estimates before the first round: no counts, the first policy, and the largest possible values.

    Q and V are H, or the number of ``remaining`` steps; V is 0 after the last step.
    """
    known = new_tables(kind, setting, policy=first_policy(setting, choice))
    H = setting.horizon
    known.V[:H] = (H - np.arange(H))[:, None] if remaining else H
    known.Q[:] = known.V[:H, :, None]
    return known


def at_actions(policy: PolicyArray) -> tuple[Any, ...]:
    """The index of a policy's actions in a table by (h,s,a); everything, if it has sets of actions."""
    H, S = policy.shape[:2]
    return (*np.ogrid[:H, :S], policy) if policy.ndim == 2 else ()


@compiled
def at_policy(policy: IndexArray, table: CountArray) -> CountArray:
    """A table by (h,s,a) at ``(h, s, pi_h(s))``, ``[H,S]``."""
    H, S = policy.shape
    out = np.empty((H, S), dtype=table.dtype)
    for h in range(H):
        for s in range(S):
            out[h, s] = table[h, s, policy[h, s]]
    return out


@compiled
def variance_of(mean: float, second: float) -> float:
    """``second - mean^2``, and zero where that is rounding error or, from false reports, negative."""
    variance = second - mean * mean
    return variance if variance > ROUNDING * abs(second) else 0.0
