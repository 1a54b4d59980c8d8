"""One step of a trajectory, written once and compiled twice: for processors and for GPUs.

The random number of step h in episode t of agent i is word ``(h + 1) mod 4`` of Philox block
``(h + 1) // 4`` for key (seed, i) and episode t (word 0 of block 0 draws the initial state). Where the policy has a
set of actions, word ``h mod 4`` of block ``h // 4`` of the same key, for another purpose, draws one of them. A result
therefore never depends on how the work was divided, nor on the machine that did it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.sampling.philox import EPISODES, TIES, philox, unit_interval
from fed_ucbvi.core.types import FloatArray, IndexArray

Words = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
"""A block of the random generator."""
Next = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
"""What a step gives: the cell that is visited (see :class:`~fed_ucbvi.algorithms.base.Counting`); the same with the
action, that is, the number of (h,s,a), or of (s,a) over all steps; the slot of the successor; and the next state."""
ZERO = np.uint64(0)


class Sizes(NamedTuple):
    """H, S, A and K, whether the kernel depends on the step, whether visits are counted over all steps, the seed."""

    horizon: int
    states: int
    actions: int
    slots: int
    by_step: bool
    stationary: bool
    seed: np.uint64


class Trajectory(NamedTuple):
    """The functions of one target; see :func:`trajectory_for`."""

    pick: Callable[..., np.uint64]
    step: Callable[..., Next]
    step_of_sets: Callable[..., Next]


@compiled
def word_at(position: int, w0: np.uint64, w1: np.uint64, w2: np.uint64, w3: np.uint64) -> np.uint64:
    """Word ``position mod 4`` of a block."""
    position &= 3
    return w0 if position == 0 else (w1 if position == 1 else (w2 if position == 2 else w3))


@compiled
def choose_tied(seed: np.uint64, agent: np.uint64, episode: np.uint64, h: int, ties: int) -> int:
    """Which of the set's actions agent plays at step h of an episode: word ``h mod 4`` of block ``h // 4``."""
    w0, w1, w2, w3 = philox(episode, np.uint64(h >> 2), TIES, ZERO, seed, agent)
    return int(unit_interval(word_at(h, w0, w1, w2, w3)) * ties)


@compiled
def block_of(position: int, seed: np.uint64, agent: np.uint64, episode: np.uint64) -> Words:
    """The block in which word number ``position`` of an episode is."""
    return philox(episode, np.uint64(position >> 2), EPISODES, ZERO, seed, agent)


def trajectory_for(jit: Callable[[Any], Any]) -> Trajectory:
    """The functions below, compiled by ``jit``.

    Tables are flat. A distribution function begins at entry ``first``, and its entries are ``stride`` apart, so that
    tables may have the agent as their first axis or as their last one. Indices are unsigned, which spares the checks
    for negative ones.
    """

    @jit
    def pick(distribution: FloatArray, first: np.uint64, stride: np.uint64, K: int, u: float) -> np.uint64:
        """The first of K slots whose distribution function exceeds ``u``."""
        if K <= 8:
            slot = np.uint64(0)
            for k in range(K - 1):
                slot += np.uint64(u >= distribution[first + np.uint64(k) * stride])
            return slot
        low, high = 0, K - 1
        while low < high:
            middle = (low + high) // 2
            if u >= distribution[first + np.uint64(middle) * stride]:
                low = middle + 1
            else:
                high = middle
        return np.uint64(low)

    @jit
    def step(
        h: int,
        s: np.uint64,
        t: np.uint64,
        key: np.uint64,
        word: np.uint64,
        sizes: Sizes,
        policy: IndexArray,
        successors: IndexArray,
        kernel: FloatArray,
        first: np.uint64,
        stride: np.uint64,
    ) -> Next:
        """Step h of episode t from state s, by the actions ``policy (H S,)``."""
        actions, slots = np.uint64(sizes.actions), np.uint64(sizes.slots)
        cell = np.uint64(h) * np.uint64(sizes.states) + s
        a = np.uint64(policy[cell])
        row = ((cell if sizes.by_step else s) * actions + a) * slots
        slot = pick(kernel, first + row * stride, stride, sizes.slots, unit_interval(np.uint64(word)))
        return cell, cell * actions + a, slot, np.uint64(successors[row + slot])

    @jit
    def step_of_sets(
        h: int,
        s: np.uint64,
        t: np.uint64,
        key: np.uint64,
        word: np.uint64,
        sizes: Sizes,
        policy: IndexArray,
        ties: IndexArray,
        successors: IndexArray,
        kernel: FloatArray,
        first: np.uint64,
        stride: np.uint64,
    ) -> Next:
        """The same by one of the first ``ties (H S,)`` actions of the lists ``policy (H S, A)``."""
        actions, slots = np.uint64(sizes.actions), np.uint64(sizes.slots)
        here = np.uint64(h) * np.uint64(sizes.states) + s
        number, chosen = ties[here], np.uint64(0)
        if number > 1:
            chosen = np.uint64(choose_tied(sizes.seed, key, t, h, number))
        a = np.uint64(policy[here, chosen])
        cell = (s if sizes.stationary else here) * actions + a
        row = ((here if sizes.by_step else s) * actions + a) * slots
        slot = pick(kernel, first + row * stride, stride, sizes.slots, unit_interval(np.uint64(word)))
        return cell, cell, slot, np.uint64(successors[row + slot])

    return Trajectory(pick, step, step_of_sets)
