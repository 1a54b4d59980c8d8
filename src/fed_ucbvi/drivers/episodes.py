"""The episodes driver: trajectory by trajectory, compiled.

The random number of step h in episode t of agent i is word ``(h + 1) mod 4`` of Philox block
``(h + 1) // 4`` for key (seed, i) and episode t (word 0 of block 0 draws the initial state). A result therefore never
depends on how the work was cut up, and an agent that ran ahead is rolled back by replaying.

A round begins on one core, with all agents in step. If it lasts, threads take over: each plays its agents ahead, all
until they ask or a chunk of episodes ends, and agents that went past the earliest ask take back what they played
after it. Chunks double, so little is played in vain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fed_ucbvi._compile import compiled, compiled_parallel, prange, threads
from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.algorithms.base import Touched
from fed_ucbvi.drivers.base import Fleet, Stop, drop_untouched, stopped, touch
from fed_ucbvi.sampling.philox import EPISODES, philox, unit_interval

STEPS_PER_CALL = 1 << 24
"""Compiled calls are cut here, so that Ctrl-C and the progress bar get a turn."""
STEPS_BEFORE_THREADS = 1 << 18
"""A round with more steps than this (about five milliseconds) is worth waking the other cores for."""


Sizes = tuple[int, int, int, int, int, bool]
"""H, S, A, K, the steps of the kernel's table, and whether transitions are pooled."""


class EpisodesDriver:
    """Plays every trajectory. Exact, and the reference for the other drivers."""

    name = "episodes"

    def __init__(self, fleet: Fleet, cores: int | None = None) -> None:
        self.fleet = fleet
        self.transitions, self.visits = fleet.transitions, fleet.visits
        _, steps, S, A, K = fleet.probabilities.shape
        self._sizes = (fleet.horizon, S, A, K, steps, fleet.pooled)
        self._tables = (
            fleet.successors.reshape(-1),
            cumulative(fleet.probabilities).reshape(-1),
            cumulative(fleet.initial).reshape(-1),
        )
        self._counts = (fleet.transitions.reshape(-1), fleet.visits.reshape(-1), fleet.touched)
        self._cores = min(threads() if cores is None else cores, len(fleet.visits))
        self._who = (np.uint64(fleet.seed), len(fleet.visits), fleet.first_agent)
        per_episode = len(fleet.visits) * fleet.horizon
        self._alone = max(1, (STEPS_PER_CALL if self._cores == 1 else STEPS_BEFORE_THREADS) // per_episode)
        self._largest = max(1, STEPS_PER_CALL // per_episode)

    def clear(self) -> None:
        """Empty the buffers."""
        self.fleet.clear()

    def collect(self, policy: IndexArray, budgets: CountArray, first: int, most: int) -> Stop:
        """Play until someone asks; see :class:`~fed_ucbvi.drivers.base.Driver`."""
        self.fleet.clear()
        return stopped(self.fleet, budgets, self.extend(policy, budgets, first, most)[0])

    def extend(self, policy: IndexArray, budgets: CountArray, first: int, most: int) -> tuple[int, bool]:
        """Go on with the round whose counts are in the buffers; the number of episodes, and whether anyone asked."""
        played, chunk, asked = 0, self._alone, False
        while played < most and not asked:
            ahead = self._cores > 1 and played >= self._alone
            done, asked = self._play(policy, budgets, first + played, min(chunk, most - played), ahead)
            played += done
            if ahead:
                chunk = min(2 * chunk, self._largest)
        return played, asked

    def rewind(self, policy: IndexArray, budgets: CountArray, first: int, count: int) -> None:
        """Take the ``count`` episodes from number ``first`` on out of the buffers again, by replaying them."""
        _take_back(*self._arguments(policy, budgets, first, count))

    def _play(self, policy: IndexArray, budgets: CountArray, first: int, most: int, ahead: bool) -> tuple[int, bool]:
        if ahead:
            return _play_ahead(*self._arguments(policy, budgets, first, most, self._cores))
        return _play_together(*self._arguments(policy, budgets, first, most))

    def _arguments(
        self, policy: IndexArray, budgets: CountArray, first: int, most: int, *more: int
    ) -> tuple[Any, ...]:
        return (
            *self._tables,
            policy.reshape(-1),
            budgets.reshape(-1),
            self._sizes,
            *self._who,
            first,
            most,
            *self._counts,
            *more,
        )


def cumulative(probabilities: FloatArray) -> FloatArray:
    """Distribution functions along the last axis, exactly 1 from the last possible outcome on."""
    table = np.cumsum(probabilities, axis=-1)
    remaining = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    after = np.concatenate([remaining[..., 1:], np.zeros_like(remaining[..., :1])], axis=-1)
    return np.ascontiguousarray(np.where(after <= 0.0, 1.0, np.minimum(table, 1.0)))


@compiled
def _pick(distribution: FloatArray, row: np.uint64, K: int, u: float) -> np.uint64:
    """The first of the K slots from ``row`` on whose distribution function exceeds ``u``."""
    if K <= 8:
        slot = np.uint64(0)
        for k in range(K - 1):
            slot += np.uint64(u >= distribution[row + np.uint64(k)])
        return slot
    low, high = 0, K - 1
    while low < high:
        middle = (low + high) // 2
        if u >= distribution[row + np.uint64(middle)]:
            low = middle + 1
        else:
            high = middle
    return np.uint64(low)


@compiled
def _play_episode(
    successors: IndexArray,
    cumulative_kernel: FloatArray,
    cumulative_initial: FloatArray,
    policy: IndexArray,
    budgets: CountArray,
    sizes: Sizes,
    seed: np.uint64,
    i: int,
    agent: int,
    episode: int,
    sign: int,
    transitions: CountArray,
    visits: CountArray,
    touched: Touched,
) -> bool:
    """Add one episode of the fleet's i-th agent to its counts (``sign`` -1: take it back); did it reach a budget?

    All arrays are flat and all indices unsigned, which spares the checks for negative ones.
    """
    H, S, A, K, steps, pooled = sizes
    us, ua, uk, ui, zero = np.uint64(S), np.uint64(A), np.uint64(K), np.uint64(i), np.uint64(0)
    layer = us * ua * uk
    own = ui * layer * np.uint64(steps)
    base = ui * us * np.uint64(H)
    counted = zero if pooled else base
    if steps == 1:
        layer = zero
    table, place_of_step = zero, zero
    key, t = np.uint64(agent), np.uint64(episode)
    w0, w1, w2, w3 = philox(t, zero, EPISODES, zero, seed, key)
    s = _pick(cumulative_initial, ui * us, S, unit_interval(w0))
    asked = False
    for h in range(H):
        position = (h + 1) & 3
        if position == 0:
            w0, w1, w2, w3 = philox(t, np.uint64((h + 1) >> 2), EPISODES, zero, seed, key)
            word = w0
        elif position == 1:
            word = w1
        elif position == 2:
            word = w2
        else:
            word = w3
        row = table + (s * ua + np.uint64(policy[place_of_step + s])) * uk
        slot = _pick(cumulative_kernel, own + row, K, unit_interval(word))
        place = base + place_of_step + s
        transitions[(counted + place_of_step + s) * uk + slot] += sign
        before = visits[place]
        seen = before + sign
        visits[place] = seen
        if before == 0:
            touch(i, np.int64(place_of_step + s), touched)
        asked |= seen >= budgets[place]
        s = np.uint64(successors[row + slot])
        place_of_step += us
        table += layer
    return asked


@compiled
def _play_together(
    successors: IndexArray,
    cumulative_kernel: FloatArray,
    cumulative_initial: FloatArray,
    policy: IndexArray,
    budgets: CountArray,
    sizes: Sizes,
    seed: np.uint64,
    agents: int,
    first_agent: int,
    first: int,
    most: int,
    transitions: CountArray,
    visits: CountArray,
    touched: Touched,
) -> tuple[int, bool]:
    """All agents in step, episode by episode; ``(episodes played, did anyone ask)``."""
    for played in range(most):
        asked = False
        for i in range(agents):
            asked |= _play_episode(
                successors,
                cumulative_kernel,
                cumulative_initial,
                policy,
                budgets,
                sizes,
                seed,
                i,
                first_agent + i,
                first + played,
                1,
                transitions,
                visits,
                touched,
            )
        if asked:
            return played + 1, True
    return most, False


@compiled
def _take_back(
    successors: IndexArray,
    cumulative_kernel: FloatArray,
    cumulative_initial: FloatArray,
    policy: IndexArray,
    budgets: CountArray,
    sizes: Sizes,
    seed: np.uint64,
    agents: int,
    first_agent: int,
    first: int,
    most: int,
    transitions: CountArray,
    visits: CountArray,
    touched: Touched,
) -> None:
    """Undo :func:`_play_together`: the same episodes with the sign changed."""
    for played in range(most):
        for i in range(agents):
            _play_episode(
                successors,
                cumulative_kernel,
                cumulative_initial,
                policy,
                budgets,
                sizes,
                seed,
                i,
                first_agent + i,
                first + played,
                -1,
                transitions,
                visits,
                touched,
            )
    for i in range(agents):
        drop_untouched(i, visits.reshape((agents, -1)), touched)


@compiled_parallel
def _play_ahead(
    successors: IndexArray,
    cumulative_kernel: FloatArray,
    cumulative_initial: FloatArray,
    policy: IndexArray,
    budgets: CountArray,
    sizes: Sizes,
    seed: np.uint64,
    agents: int,
    first_agent: int,
    first: int,
    most: int,
    transitions: CountArray,
    visits: CountArray,
    touched: Touched,
    cores: int,
) -> tuple[int, bool]:
    """Like :func:`_play_together`, with the agents dealt out to threads, each playing ahead of the others.

    Threads never share a table: where transitions are pooled, each has one of its own, added up at the end.
    """
    pooled = sizes[5]
    parts = np.zeros((cores if pooled else 1, len(transitions) if pooled else 1), dtype=np.int64)
    reached = np.full(agents, most, dtype=np.int64)
    asked = np.zeros(agents, dtype=np.bool_)
    for core in prange(cores):
        table = parts[core] if pooled else transitions
        for i in range(agents * core // cores, agents * (core + 1) // cores):
            for played in range(most):
                if _play_episode(
                    successors,
                    cumulative_kernel,
                    cumulative_initial,
                    policy,
                    budgets,
                    sizes,
                    seed,
                    i,
                    first_agent + i,
                    first + played,
                    1,
                    table,
                    visits,
                    touched,
                ):
                    asked[i] = True
                    reached[i] = played + 1
                    break
    length = reached.min()
    for core in prange(cores):
        table = parts[core] if pooled else transitions
        for i in range(agents * core // cores, agents * (core + 1) // cores):
            for played in range(length, reached[i]):
                _play_episode(
                    successors,
                    cumulative_kernel,
                    cumulative_initial,
                    policy,
                    budgets,
                    sizes,
                    seed,
                    i,
                    first_agent + i,
                    first + played,
                    -1,
                    table,
                    visits,
                    touched,
                )
            drop_untouched(i, visits.reshape((agents, -1)), touched)
    if pooled:
        for core in range(cores):
            transitions += parts[core]
    return int(length), bool(asked.any())
