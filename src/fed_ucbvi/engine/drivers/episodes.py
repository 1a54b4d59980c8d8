"""The episodes driver: trajectory by trajectory, compiled.

The random number of step h in episode t of agent i is word ``(h + 1) mod 4`` of Philox block ``(h + 1) // 4`` for key
(seed, i) and episode t (word 0 of block 0 draws the initial state). Where the policy draws its actions, word ``h mod
4`` of block ``h // 4`` of the same key, for another purpose, draws one of them: the k-th of n equally good ones with
``k = floor(n u)``, others by inversion of their probabilities. A result therefore never depends on how the work was
divided, nor on the machine that did it, and episodes can be taken back by replaying them. A step is written once and
compiled twice: for processors and for GPUs.

A round begins on one core, with all agents in step. If it lasts, threads take over. Each plays its groups of agents
ahead, until one of a group requests a synchronisation or a chunk of episodes ends. Groups that went past the earliest
request take back what they played after it. Chunks double, so little is played in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.return_bounds import record_returns
from fed_ucbvi.core.compiling import compiled, compiled_parallel, embedded, inner, prange, threads
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.sampling.distributions import cumulative
from fed_ucbvi.core.sampling.levels import NO_LEVELS, level_of_episode
from fed_ucbvi.core.sampling.philox import EPISODES, number_of_action, philox, unit_interval, word_at
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, Played, Sizes, drop_untouched, one_if_shared
from fed_ucbvi.engine.drivers.played_actions import FlatActions, flat_actions
from fed_ucbvi.engine.drivers.rewards import payments_of
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units

STEPS_PER_CALL = 1 << 24
"""The most that one compiled call does, so that Ctrl-C and the progress bar are served in between."""
STEPS_BEFORE_THREADS = 1 << 18
"""A round with more steps than this (about three milliseconds) is worth waking the other cores for."""
GROUP = 8
"""Agents that are played together, step by step; more gain little."""


class World(NamedTuple):
    """The problem of a fleet, in flat tables.

    Attributes:
        successors: next states ``(steps, S, A, K)``.
        kernel: distribution functions of the kernel ``(m, steps, S, A, K)``, or one agent's if all have the same.
        initial: distribution functions of the initial state ``(m, S)``, or one agent's if all have the same.
        first_agent: number of the fleet's first agent in the federation.
    """

    successors: IndexArray
    kernel: FloatArray
    initial: FloatArray
    first_agent: int

    @classmethod
    def of(cls, fleet: Fleet) -> World:
        return cls(
            successors=fleet.successors.reshape(-1),
            kernel=cumulative(one_if_shared(fleet.probabilities)).reshape(-1),
            initial=cumulative(one_if_shared(fleet.initial)).reshape(-1),
            first_agent=fleet.first_agent,
        )


class FlatBuffers(NamedTuple):
    """The buffers of a round, in flat tables but for the last two.

    Attributes:
        transitions: ``(m or 1, P, K)``, with one row where all agents are counted together.
        visits: ``(m, P)``.
        starts: initial states of episodes ``(m, L, S)``; empty where they can be read off the visits.
        cells: the visited cells of each agent; see :class:`~fed_ucbvi.algorithms.base.VisitedCells`.
        numbers: the number of them.
    """

    transitions: CountArray
    visits: CountArray
    starts: CountArray
    cells: IndexArray
    numbers: CountArray


PlainWorld = tuple[IndexArray, FloatArray, FloatArray, int]
PlainBuffers = tuple[CountArray, CountArray, CountArray, IndexArray, CountArray]
"""The parts of :class:`World` and of :class:`FlatBuffers`, in their order, as kernels take them."""


class EpisodesDriver(FleetDriver):
    """Plays every trajectory. Exact, and the reference for the other drivers."""

    def __init__(self, fleet: Fleet, cores: int | None = None) -> None:
        super().__init__(fleet)
        m = len(fleet.probabilities)
        self._agents = m
        self._sizes = fleet.sizes
        flat = FlatBuffers(
            transitions=fleet.transitions.reshape(-1),
            visits=fleet.visits.reshape(-1),
            starts=fleet.counted_starts.reshape(-1),
            cells=fleet.touched.cells,
            numbers=fleet.touched.numbers,
        )
        # Numba takes 5 microseconds longer to accept a named tuple, which is a tenth of a short round.
        self._world: PlainWorld = tuple(World.of(fleet))  # type: ignore[assignment]
        self._counts: PlainBuffers = tuple(flat)  # type: ignore[assignment]
        self._cores = min(threads() if cores is None else cores, m)
        steps_alone = STEPS_PER_CALL if self._cores == 1 else STEPS_BEFORE_THREADS
        self._alone = max(1, steps_alone // (m * fleet.horizon))
        self._largest = max(1, STEPS_PER_CALL // (m * fleet.horizon))

    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        actions = flat_actions(policy)
        flat_limits = limits.reshape(-1)
        kept_levels = self.fleet.kept_levels
        played = 0
        chunk = self._alone
        asked = False
        while played < most and not asked:
            now = min(chunk, most - played)
            if self._cores > 1 and played >= self._alone:
                done, asked = _play_ahead(
                    self._sizes,
                    self._world,
                    kept_levels,
                    actions,
                    flat_limits,
                    asking,
                    self._agents,
                    first + played,
                    now,
                    self._counts,
                    self._cores,
                )
                chunk = min(2 * chunk, self._largest)
            else:
                done, asked = self._play(actions, flat_limits, asking, first + played, now, sign=1)
            played += done
        return played, asked

    def rewind(self, policy: PolicyArray, limits: CountArray, first: int, count: int) -> None:
        _, visits, _, cells, numbers = self._counts
        self._play(flat_actions(policy), limits.reshape(-1), True, first, count, sign=-1)
        drop_untouched(0, self._agents, visits, cells, numbers)

    def _play(
        self, actions: FlatActions, limits: CountArray, asking: bool, first: int, most: int, *, sign: int
    ) -> Played:
        """Play episodes of all agents on one core, or take them back with ``sign`` -1."""
        return _play(
            self._sizes,
            self._world,
            self.fleet.kept_levels,
            actions,
            limits,
            asking,
            0,
            self._agents,
            first,
            most,
            sign,
            self._counts,
        )


# ------------------------------------------------------------------------------------------------------ one step


Words = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
"""A block of the random generator."""
Next = tuple[np.uint64, np.uint64, np.uint64, np.uint64]
"""The outcome of a step.

These are the cell that is visited (see :class:`~fed_ucbvi.algorithms.base.Counting`), the number of (h,s,a), or of
(s,a) over all steps, the slot of the successor, and the next state.
"""
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)


@compiled
def block_of(position: int, seed: np.uint64, agent: np.uint64, episode: np.uint64) -> Words:
    """The block in which word number ``position`` of an episode is."""
    return philox(episode, np.uint64(position >> 2), EPISODES, _ZERO, seed, agent)


def trajectory_for(jit: Callable[[Any], Any]) -> tuple[Callable[..., np.uint64], Callable[..., Next]]:
    """The functions ``pick`` and ``step`` below, compiled by ``jit``.

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
        low = 0
        high = K - 1
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
        row_of_policy: int,
        s: np.uint64,
        t: np.uint64,
        key: np.uint64,
        word: np.uint64,
        sizes: Sizes,
        policy: IndexArray,
        ties: IndexArray,
        thresholds: FloatArray,
        successors: IndexArray,
        kernel: FloatArray,
        first: np.uint64,
        stride: np.uint64,
    ) -> Next:
        """Step h of episode t from state s, by a row of the policy: ``level H + h``.

        ``policy``, ``ties`` and ``thresholds`` are the parts of :data:`~.played_actions.FlatActions`.
        """
        actions = np.uint64(sizes.actions)
        slots = np.uint64(sizes.slots)
        here = np.uint64(h) * np.uint64(sizes.states) + s
        place = np.uint64(row_of_policy) * np.uint64(sizes.states) + s
        if policy.ndim == 1:
            a = np.uint64(policy[place])
            cell = here
            pair = here * actions + a
        else:
            number = ties[place]
            chosen = np.uint64(0)
            if number > 1:
                u = number_of_action(sizes.seed, key, t, h)
                if len(thresholds) == 0:
                    chosen = np.uint64(u * number)
                else:
                    chosen = pick(thresholds, place * np.uint64(policy.shape[1]), np.uint64(1), np.int64(number), u)
            a = np.uint64(policy[place, chosen])
            cell = pair = (s if sizes.stationary else here) * actions + a
        row = ((here if sizes.by_step else s) * actions + a) * slots
        slot = pick(kernel, first + row * stride, stride, sizes.slots, unit_interval(np.uint64(word)))
        return cell, pair, slot, np.uint64(successors[row + slot])

    return pick, step


# ---------------------------------------------------------------------------------------------------- whole rounds


_pick, _step = trajectory_for(embedded)


@inner
def _own_tables(sizes: Sizes, kernel: FloatArray, initial: FloatArray) -> tuple[np.uint64, np.uint64]:
    """Distances between the tables of two agents, flat; 0 where all have the same."""
    size = sizes.states * sizes.actions * sizes.slots * (sizes.horizon if sizes.by_step else 1)
    own = len(kernel) > size
    own_start = len(initial) > sizes.states
    return np.uint64(size if own else 0), np.uint64(sizes.states if own_start else 0)


@compiled
def _play(
    sizes: Sizes,
    world: PlainWorld,
    kept_levels: CountArray,
    actions: FlatActions,
    limits: CountArray,
    asking: bool,
    low: int,
    high: int,
    first: int,
    most: int,
    sign: int,
    counts: PlainBuffers,
) -> tuple[int, bool]:
    """Add episodes of agents ``low`` to ``high - 1`` to their counts, in step, until one of them reaches a budget.

    Returns the number of episodes played, and True if there was a request. ``limits (m or 1, P)`` are flat; only if
    ``asking`` may agents make requests. With ``sign`` -1 all ``most`` episodes are taken back.

    Agents are played in groups, step by step. An agent's next step depends on the outcome of its last one, for which
    the processor would wait most of the time; meanwhile it plays the others of the group.
    """
    successors, kernel, initial, first_agent = world
    policy, ties, thresholds = actions
    transitions, visits, starts, cells, numbers = counts
    us = np.uint64(sizes.states)
    uk = np.uint64(sizes.slots)
    size = np.uint64(cells.shape[1])
    # Distances between the tables of two agents; 0 where they share one table.
    own, own_start = _own_tables(sizes, kernel, initial)
    own_due = size if np.uint64(len(limits)) > size else _ZERO
    own_transitions = size if np.uint64(len(transitions)) > size * uk else _ZERO
    starts_per_agent = np.uint64(len(starts) // max(1, len(numbers)))
    # Room for a group: random words of an episode, current states, and levels of the policy.
    blocks = (sizes.horizon >> 2) + 1
    words = np.empty(4 * blocks * GROUP, dtype=np.uint64)
    states = np.empty(GROUP, dtype=np.uint64)
    levels = np.zeros(GROUP, dtype=np.int64)
    for played in range(most):
        t = np.uint64(first + played)
        asked = False
        for begin in range(low, high, GROUP):
            group = min(GROUP, high - begin)
            # Draw all random words of the episode.
            for block in range(blocks):
                for j in range(group):
                    at = _FOUR * np.uint64(block * GROUP + j)
                    key = np.uint64(first_agent + begin + j)
                    words[at], words[at + _ONE], words[at + _TWO], words[at + _THREE] = block_of(
                        4 * block, sizes.seed, key, t
                    )
            # Draw levels and initial states.
            for j in range(group):
                ui = np.uint64(begin + j)
                s = _pick(initial, ui * own_start, _ONE, sizes.states, unit_interval(words[_FOUR * np.uint64(j)]))
                level = 0
                if len(kept_levels) > 0:
                    key = np.uint64(first_agent + begin + j)
                    level = level_of_episode(sizes.level_seed, sizes.level_share, key, t, kept_levels[begin + j])
                    levels[j] = level
                if len(starts) > 0:
                    starts[ui * starts_per_agent + np.uint64(level) * us + s] += sign
                states[j] = s
            # Play the steps, and count them.
            for h in range(sizes.horizon):
                at = _FOUR * np.uint64((h + 1 >> 2) * GROUP) + np.uint64(h + 1 & 3)
                for j in range(group):
                    uj = np.uint64(j)
                    ui = np.uint64(begin + j)
                    key = np.uint64(first_agent + begin + j)
                    s = states[uj]
                    word = words[at + _FOUR * uj]
                    mine = ui * own
                    row = levels[j] * sizes.horizon + h
                    cell, _, slot, s = _step(
                        h, row, s, t, key, word, sizes, policy, ties, thresholds, successors, kernel, mine, _ONE
                    )
                    states[uj] = s
                    transitions[(ui * own_transitions + cell) * uk + slot] += sign
                    before = visits[ui * size + cell]
                    seen = before + sign
                    visits[ui * size + cell] = seen
                    if before == 0:
                        cells[ui, np.uint64(numbers[ui])] = cell
                        numbers[ui] += 1
                    asked |= asking and seen >= limits[ui * own_due + cell]
        if asked and sign > 0:
            return played + 1, True
    return most, False


@compiled_parallel
def _play_ahead(
    sizes: Sizes,
    world: PlainWorld,
    kept_levels: CountArray,
    actions: FlatActions,
    limits: CountArray,
    asking: bool,
    agents: int,
    first: int,
    most: int,
    counts: PlainBuffers,
    cores: int,
) -> tuple[int, bool]:
    """Like :func:`_play`, with groups of agents divided among threads, each group playing ahead of the others.

    Threads never share a table: where transitions are pooled, each has one of its own, added up at the end.
    """
    transitions, visits, starts, cells, numbers = counts
    groups = (agents + GROUP - 1) // GROUP
    pooled = len(transitions) == cells.shape[1] * sizes.slots
    parts = np.zeros((cores if pooled else 1, len(transitions) if pooled else 1), dtype=np.int64)
    reached = np.full(groups, most, dtype=np.int64)
    asked = np.zeros(groups, dtype=np.bool_)
    # Each group plays until one of its agents makes a request, or the chunk ends.
    for core in prange(cores):
        own = (parts[core] if pooled else transitions, visits, starts, cells, numbers)
        for g in range(groups * core // cores, groups * (core + 1) // cores):
            low = g * GROUP
            high = min(low + GROUP, agents)
            reached[g], asked[g] = _play(
                sizes, world, kept_levels, actions, limits, asking, low, high, first, most, 1, own
            )
    # Groups that went past the earliest request take back what they played after it.
    length = reached.min()
    for core in prange(cores):
        own = (parts[core] if pooled else transitions, visits, starts, cells, numbers)
        for g in range(groups * core // cores, groups * (core + 1) // cores):
            low = g * GROUP
            high = min(low + GROUP, agents)
            begin = first + length
            more = reached[g] - length
            _play(sizes, world, kept_levels, actions, limits, asking, low, high, begin, more, -1, own)
            drop_untouched(low, high, visits, cells, numbers)
    # Add up the tables of the threads.
    if pooled:
        for core in range(cores):
            transitions += parts[core]
    return int(length), bool(asked.any())


# ------------------------------------------------------------------------------------------- returns of episodes


class SimulatedReturns:
    """The returns of episodes under a policy with an axis for actions.

    The fleet is on doubled supports if rewards are random.
    """

    def __init__(self, fleet: Fleet, federation: Federation) -> None:
        random = fleet.successors.shape[-1] > federation.successors.shape[-1]
        self._pays = payments_of(federation).amounts if random else federation.rewards
        self._first_paid = federation.successors.shape[-1] if random else 0
        self._units = Units.of(federation.description)
        self._agents = len(fleet.probabilities)
        self._horizon = fleet.horizon
        self._sizes = fleet.sizes._replace(stationary=False)
        self._world: PlainWorld = tuple(World.of(fleet))  # type: ignore[assignment]

    def add(
        self,
        policy: PolicyArray,
        first: int,
        length: int,
        histogram: CountArray,
        limits: tuple[float, float] | None = None,
        kept_levels: CountArray = NO_LEVELS,
    ) -> None:
        """Add the returns of all agents in ``length`` episodes from number ``first`` on.

        ``limits`` is the stated range of a return; a return outside is an error. ``kept_levels`` are the levels that
        agents keep for the round.
        """
        m = self._agents
        chunk = max(1, STEPS_PER_CALL // (4 * self._agents * self._horizon))
        actions = flat_actions(policy)
        for begin in range(first, first + length, chunk):
            returns = np.empty((min(chunk, first + length - begin), m))
            _fill_returns(
                self._sizes,
                self._world,
                kept_levels,
                actions,
                self._pays,
                self._first_paid,
                begin,
                returns,
            )
            record_returns(histogram, returns.reshape(-1), limits, self._units, self._horizon)


@compiled
def _fill_returns(
    sizes: Sizes,
    world: PlainWorld,
    kept_levels: CountArray,
    actions: FlatActions,
    pays: FloatArray,
    first_paid: int,
    first: int,
    returns: FloatArray,
) -> None:
    """``returns[t, i]`` of agent i's episode number ``first + t``; slots from ``first_paid`` on are paid for."""
    successors, kernel, initial, first_agent = world
    policy, ties, thresholds = actions
    T, m = returns.shape
    own, own_start = _own_tables(sizes, kernel, initial)
    for t in range(T):
        episode = np.uint64(first + t)
        for i in range(m):
            ui = np.uint64(i)
            key = np.uint64(first_agent + i)
            total = 0.0
            level = 0
            if len(kept_levels) > 0:
                level = level_of_episode(sizes.level_seed, sizes.level_share, key, episode, kept_levels[i])
            block = block_of(0, sizes.seed, key, episode)
            s = _pick(initial, ui * own_start, _ONE, sizes.states, unit_interval(block[0]))
            for h in range(sizes.horizon):
                if (h + 1) & 3 == 0:
                    block = block_of(h + 1, sizes.seed, key, episode)
                word = word_at(h + 1, *block)
                here = s
                row = level * sizes.horizon + h
                cell, _, slot, s = _step(
                    h, row, s, episode, key, word, sizes, policy, ties, thresholds, successors, kernel, ui * own, _ONE
                )
                if slot >= first_paid:
                    a = int(cell % np.uint64(sizes.actions))
                    total += reward_at(i, h, int(here), a, pays)
            returns[t, i] = total
