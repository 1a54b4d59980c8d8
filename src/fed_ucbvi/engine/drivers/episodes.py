"""The episodes driver: trajectory by trajectory, compiled.

Random numbers are those of :mod:`~fed_ucbvi.engine.drivers.trajectory`, which do not depend on how the work was
divided. So episodes can be taken back by replaying them.

A round begins on one core, with all agents in step. If it lasts, threads take over. Each plays its agents ahead,
until they request a synchronisation or a chunk of episodes ends. Agents that went past the earliest request take back
what they played after it. Chunks double, so little is played in vain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Touched
from fed_ucbvi.core.compiling import compiled, compiled_parallel, inlined, prange, threads
from fed_ucbvi.core.sampling.philox import unit_interval
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, drop_untouched, touch
from fed_ucbvi.engine.drivers.trajectory import Sizes, block_of, trajectory_for, word_at

STEPS_PER_CALL = 1 << 24
"""The most that one compiled call does, so that Ctrl-C and the progress bar are served in between."""
STEPS_BEFORE_THREADS = 1 << 18
"""A round with more steps than this (about five milliseconds) is worth waking the other cores for."""


class World(NamedTuple):
    """Where agents play: flat tables.

    ``successors (steps, S, A, K)``, the distribution functions ``kernel (m, steps, S, A, K)`` and ``initial (m, S)``,
    and whether transitions are ``pooled``.
    """

    successors: IndexArray
    kernel: FloatArray
    initial: FloatArray
    pooled: bool
    first_agent: int


class Play(NamedTuple):
    """What is played, and when agents request a synchronisation.

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
        m = len(fleet.probabilities)
        self._world = World(
            fleet.successors.reshape(-1),
            cumulative(fleet.probabilities).reshape(-1),
            cumulative(fleet.initial).reshape(-1),
            fleet.pooled,
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
        """Continue the round whose counts are in the buffers; its number of episodes, and if there was a request."""
        who, touched = (
            (self._world, self.fleet.sizes, *self._play_of(policy, due, factor), self._agents),
            self.fleet.touched,
        )
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
        who = (self._world, self.fleet.sizes, *self._play_of(policy, due, 1), self._agents)
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


_pick, _step, _step_of_sets = trajectory_for(inlined)
_ONE = np.uint64(1)


@compiled
def _play_episode(
    world: World,
    sizes: Sizes,
    play: Play,
    policy: IndexArray,
    i: int,
    episode: int,
    sign: int,
    counts: Counts,
    touched: Touched,
) -> bool:
    """Add one episode of the fleet's i-th agent to its counts (``sign`` -1: take it back); did it reach a budget?"""
    transitions, visits, starts = counts
    ties, due, rows, factor = play
    us, ua, uk, ui = np.uint64(sizes.states), np.uint64(sizes.actions), np.uint64(sizes.slots), np.uint64(i)
    own = ui * us * ua * uk
    if sizes.by_step:
        own *= np.uint64(sizes.horizon)
    places = us if policy.ndim == 1 else us * ua
    if not sizes.stationary:
        places *= np.uint64(sizes.horizon)
    base = ui * places
    counted = np.uint64(0) if world.pooled else base
    budget = base if rows > 1 else np.uint64(0)
    key, t = np.uint64(world.first_agent + i), np.uint64(episode)
    w0, w1, w2, w3 = block_of(0, sizes.seed, key, t)
    s = _pick(world.initial, ui * us, _ONE, sizes.states, unit_interval(w0))
    if sizes.stationary:
        starts[ui * us + s] += sign
    asked = False
    for h in range(sizes.horizon):
        if (h + 1) & 3 == 0:
            w0, w1, w2, w3 = block_of(h + 1, sizes.seed, key, t)
        word = word_at(h + 1, w0, w1, w2, w3)
        if policy.ndim == 1:
            place, _, slot, s = _step(h, s, t, key, word, sizes, policy, world.successors, world.kernel, own, _ONE)
        else:
            place, _, slot, s = _step_of_sets(
                h, s, t, key, word, sizes, policy, ties, world.successors, world.kernel, own, _ONE
            )
        transitions[(counted + place) * uk + slot] += sign
        before = visits[base + place]
        seen = before + sign
        visits[base + place] = seen
        if before == 0:
            touch(i, np.int64(place), touched)
        asked |= seen >= factor * due[budget + place]
    return asked


@compiled
def _play_together(
    world: World,
    sizes: Sizes,
    play: Play,
    policy: IndexArray,
    agents: int,
    first: int,
    most: int,
    counts: Counts,
    touched: Touched,
) -> tuple[int, bool]:
    """All agents in step, episode by episode; ``(episodes played, was there a request)``."""
    for played in range(most):
        asked = False
        for i in range(agents):
            asked |= _play_episode(world, sizes, play, policy, i, first + played, 1, counts, touched)
        if asked:
            return played + 1, True
    return most, False


@compiled
def _take_back(
    world: World,
    sizes: Sizes,
    play: Play,
    policy: IndexArray,
    agents: int,
    first: int,
    most: int,
    counts: Counts,
    touched: Touched,
) -> None:
    """Undo :func:`_play_together`: the same episodes with the sign changed."""
    for played in range(most):
        for i in range(agents):
            _play_episode(world, sizes, play, policy, i, first + played, -1, counts, touched)
    for i in range(agents):
        drop_untouched(i, counts.visits.reshape((agents, -1)), touched)


@compiled_parallel
def _play_ahead(
    world: World,
    sizes: Sizes,
    play: Play,
    policy: IndexArray,
    agents: int,
    first: int,
    most: int,
    counts: Counts,
    touched: Touched,
    cores: int,
) -> tuple[int, bool]:
    """Like :func:`_play_together`, with the agents divided among threads, each playing ahead of the others.

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
                if _play_episode(world, sizes, play, policy, i, first + played, 1, own, touched):
                    asked[i] = True
                    reached[i] = played + 1
                    break
    length = reached.min()
    for core in prange(cores):
        own = Counts(parts[core] if pooled else transitions, visits, starts)
        for i in range(agents * core // cores, agents * (core + 1) // cores):
            for played in range(length, reached[i]):
                _play_episode(world, sizes, play, policy, i, first + played, -1, own, touched)
            drop_untouched(i, visits.reshape((agents, -1)), touched)
    if pooled:
        for core in range(cores):
            transitions += parts[core]
    return int(length), bool(asked.any())
