"""The episodes driver: trajectory by trajectory, compiled.

The random number of step h in episode t of agent i is word ``(h + 1) mod 4`` of Philox block
``(h + 1) // 4`` for key (seed, i) and episode t (word 0 of block 0 draws the initial state). Where the policy has a
set of actions, word ``h mod 4`` of block ``h // 4`` of the same key, for another purpose, draws one of them. A result
therefore never depends on how the work was cut up, and an agent that ran ahead is rolled back by replaying.

A round begins on one core, with all agents in step. If it lasts, threads take over: each plays its agents ahead, all
until they ask or a chunk of episodes ends, and agents that went past the earliest ask take back what they played
after it. Chunks double, so little is played in vain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Counting, Touched
from fed_ucbvi.core.compiling import compiled, compiled_parallel, prange, threads
from fed_ucbvi.core.sampling.philox import EPISODES, TIES, philox, unit_interval
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, drop_untouched, touch

STEPS_PER_CALL = 1 << 24
"""Compiled calls are cut here, so that Ctrl-C and the progress bar get a turn."""
STEPS_BEFORE_THREADS = 1 << 18
"""A round with more steps than this (about five milliseconds) is worth waking the other cores for."""


class World(NamedTuple):
    """Where agents play: flat tables, and their sizes.

    ``successors (steps, S, A, K)``, the distribution functions ``kernel (m, steps, S, A, K)`` and ``initial (m, S)``,
    whether transitions are ``pooled``, and whether visits are counted over all steps together.
    """

    successors: IndexArray
    kernel: FloatArray
    initial: FloatArray
    horizon: int
    states: int
    actions: int
    slots: int
    steps: int
    pooled: bool
    stationary: bool
    seed: np.uint64
    first_agent: int


class Play(NamedTuple):
    """What is played, and when agents ask.

    Attributes:
        ties: ``(H, S)``, how many of the listed actions are the policy's; empty where it has one each.
        due: ``(rows, P)``, budgets.
        rows: m, or 1 where all agents have the same.
        factor: on budgets.
    """

    ties: IndexArray
    due: CountArray
    rows: int
    factor: int


class Counts(NamedTuple):
    """What is counted: ``transitions (m or 1, P, K)``, ``visits (m, P)``, ``starts (m, S)``, all flat."""

    transitions: CountArray
    visits: CountArray
    starts: CountArray


class EpisodesDriver(FleetDriver):
    """Plays every trajectory. Exact, and the reference for the other drivers."""

    name = "episodes"

    def __init__(self, fleet: Fleet, cores: int | None = None) -> None:
        super().__init__(fleet)
        m, steps, S, A, K = fleet.probabilities.shape
        self._world = World(
            fleet.successors.reshape(-1),
            cumulative(fleet.probabilities).reshape(-1),
            cumulative(fleet.initial).reshape(-1),
            fleet.horizon,
            S,
            A,
            K,
            steps,
            fleet.pooled,
            fleet.counting is Counting.STATIONARY,
            np.uint64(fleet.seed),
            fleet.first_agent,
        )
        self._counts = Counts(
            fleet.transitions.reshape(-1), fleet.visits.reshape(-1), fleet.counted_starts.reshape(-1)
        )
        self._cores = min(threads() if cores is None else cores, m)
        self._agents = m
        self._alone = max(1, (STEPS_PER_CALL if self._cores == 1 else STEPS_BEFORE_THREADS) // (m * fleet.horizon))
        self._largest = max(1, STEPS_PER_CALL // (m * fleet.horizon))

    def extend(
        self, policy: PolicyArray, due: CountArray, first: int, most: int, factor: int = 1
    ) -> tuple[int, bool]:
        """Go on with the round whose counts are in the buffers; the number of episodes, and whether anyone asked."""
        who, touched = (self._world, *self._play_of(policy, due, factor), self._agents), self.fleet.touched
        played, chunk, asked = 0, self._alone, False
        while played < most and not asked:
            now = min(chunk, most - played)
            if self._cores > 1 and played >= self._alone:
                done, asked = _play_ahead(*who, first + played, now, self._counts, touched, self._cores)
                chunk = min(2 * chunk, self._largest)
            else:
                done, asked = _play_together(*who, first + played, now, self._counts, touched)
            played += done
        return played, asked

    def rewind(self, policy: PolicyArray, due: CountArray, first: int, count: int) -> None:
        """Take the ``count`` episodes from number ``first`` on out of the buffers again, by replaying them."""
        who = (self._world, *self._play_of(policy, due, 1), self._agents)
        _take_back(*who, first, count, self._counts, self.fleet.touched)

    def _play_of(self, policy: PolicyArray, due: CountArray, factor: int) -> tuple[Play, IndexArray]:
        """The play, and the policy's actions: flat, or lists ``(H S, A)``, of which code is compiled for each."""
        if policy.ndim == 2:
            return Play(_NO_TIES, due.reshape(-1), len(due), factor), policy.reshape(-1)
        actions, ties = listed(policy)
        return Play(ties.reshape(-1), due.reshape(-1), len(due), factor), actions.reshape((-1, actions.shape[2]))


_NO_TIES = np.zeros(0, dtype=np.int32)


@compiled
def listed(policy: PolicyArray) -> tuple[IndexArray, IndexArray]:
    """The sets of a mask ``(H, S, A)`` as lists of actions ``(H, S, A)``, and how long these are ``(H, S)``."""
    H, S, A = policy.shape
    actions, ties = np.zeros((H, S, A), dtype=np.int32), np.zeros((H, S), dtype=np.int32)
    for h in range(H):
        for s in range(S):
            for a in range(A):
                if policy[h, s, a]:
                    actions[h, s, ties[h, s]] = a
                    ties[h, s] += 1
    return actions, ties


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
def choose_tied(seed: np.uint64, agent: np.uint64, episode: np.uint64, h: int, ties: int) -> int:
    """Which of the set's actions agent plays at step h of an episode: word ``h mod 4`` of block ``h // 4``."""
    w0, w1, w2, w3 = philox(episode, np.uint64(h >> 2), TIES, np.uint64(0), seed, agent)
    position = h & 3
    word = w0 if position == 0 else (w1 if position == 1 else (w2 if position == 2 else w3))
    return int(unit_interval(word) * ties)


@compiled
def _play_episode(
    world: World, play: Play, policy: IndexArray, i: int, episode: int, sign: int, counts: Counts, touched: Touched
) -> bool:
    """Add one episode of the fleet's i-th agent to its counts (``sign`` -1: take it back); did it reach a budget?

    All arrays are flat and all indices unsigned, which spares the checks for negative ones.
    """
    transitions, visits, starts = counts
    ties, due, rows, factor = play
    H, S, seed = world.horizon, world.states, world.seed
    us, ua, uk, ui = np.uint64(world.states), np.uint64(world.actions), np.uint64(world.slots), np.uint64(i)
    zero = np.uint64(0)
    layer = us * ua * uk
    own = ui * layer * np.uint64(world.steps)
    if world.steps == 1:
        layer = zero
    width = us if policy.ndim == 1 else us * ua
    places = width if world.stationary else width * np.uint64(H)
    if world.stationary:
        width = zero
    base = ui * places
    counted = zero if world.pooled else base
    budget = base if rows > 1 else zero
    table, place_of_step, state_of_step = zero, zero, zero
    key, t = np.uint64(world.first_agent + i), np.uint64(episode)
    w0, w1, w2, w3 = philox(t, zero, EPISODES, zero, seed, key)
    s = _pick(world.initial, ui * us, S, unit_interval(w0))
    if world.stationary:
        starts[ui * us + s] += sign
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
        here = state_of_step + s
        if policy.ndim == 1:
            a = np.uint64(policy[here])
            place = here
        else:
            number, chosen = ties[here], 0
            if number > 1:
                chosen = choose_tied(seed, key, t, h, number)
            a = np.uint64(policy[here, np.uint64(chosen)])
            place = place_of_step + s * ua + a
        row = table + (s * ua + a) * uk
        slot = _pick(world.kernel, own + row, world.slots, unit_interval(word))
        transitions[(counted + place) * uk + slot] += sign
        before = visits[base + place]
        seen = before + sign
        visits[base + place] = seen
        if before == 0:
            touch(i, np.int64(place), touched)
        asked |= seen >= factor * due[budget + place]
        s = np.uint64(world.successors[row + slot])
        place_of_step += width
        state_of_step += us
        table += layer
    return asked


@compiled
def _play_together(
    world: World, play: Play, policy: IndexArray, agents: int, first: int, most: int, counts: Counts, touched: Touched
) -> tuple[int, bool]:
    """All agents in step, episode by episode; ``(episodes played, did anyone ask)``."""
    for played in range(most):
        asked = False
        for i in range(agents):
            asked |= _play_episode(world, play, policy, i, first + played, 1, counts, touched)
        if asked:
            return played + 1, True
    return most, False


@compiled
def _take_back(
    world: World, play: Play, policy: IndexArray, agents: int, first: int, most: int, counts: Counts, touched: Touched
) -> None:
    """Undo :func:`_play_together`: the same episodes with the sign changed."""
    for played in range(most):
        for i in range(agents):
            _play_episode(world, play, policy, i, first + played, -1, counts, touched)
    for i in range(agents):
        drop_untouched(i, counts.visits.reshape((agents, -1)), touched)


@compiled_parallel
def _play_ahead(
    world: World,
    play: Play,
    policy: IndexArray,
    agents: int,
    first: int,
    most: int,
    counts: Counts,
    touched: Touched,
    cores: int,
) -> tuple[int, bool]:
    """Like :func:`_play_together`, with the agents dealt out to threads, each playing ahead of the others.

    Threads never share a table: where transitions are pooled, each has one of its own, added up at the end.
    """
    transitions, visits, starts = counts
    pooled = world.pooled
    parts = np.zeros((cores if pooled else 1, len(transitions) if pooled else 1), dtype=np.int64)
    reached = np.full(agents, most, dtype=np.int64)
    asked = np.zeros(agents, dtype=np.bool_)
    for core in prange(cores):
        own = Counts(parts[core] if pooled else transitions, visits, starts)
        for i in range(agents * core // cores, agents * (core + 1) // cores):
            for played in range(most):
                if _play_episode(world, play, policy, i, first + played, 1, own, touched):
                    asked[i] = True
                    reached[i] = played + 1
                    break
    length = reached.min()
    for core in prange(cores):
        own = Counts(parts[core] if pooled else transitions, visits, starts)
        for i in range(agents * core // cores, agents * (core + 1) // cores):
            for played in range(length, reached[i]):
                _play_episode(world, play, policy, i, first + played, -1, own, touched)
            drop_untouched(i, visits.reshape((agents, -1)), touched)
    if pooled:
        for core in range(cores):
            transitions += parts[core]
    return int(length), bool(asked.any())
