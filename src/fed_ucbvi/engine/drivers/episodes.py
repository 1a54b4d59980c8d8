"""The episodes driver: trajectory by trajectory, compiled.

Random numbers are those of :mod:`~fed_ucbvi.engine.drivers.trajectory`, which do not depend on how the work was
divided. So episodes can be taken back by replaying them.

A round begins on one core, with all agents in step. If it lasts, threads take over. Each plays its groups of agents
ahead, until one of a group requests a synchronisation or a chunk of episodes ends. Groups that went past the earliest
request take back what they played after it. Chunks double, so little is played in vain.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.algorithms.return_bounds import add_returns, check_returns
from fed_ucbvi.core.compiling import compiled, compiled_parallel, inlined, inner, prange, threads
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.sampling.philox import unit_interval
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, drop_untouched, one_if_shared
from fed_ucbvi.engine.drivers.rewards import payments_of
from fed_ucbvi.engine.drivers.trajectory import Sizes, block_of, trajectory_for, word_at
from fed_ucbvi.problem.dynamic_programming import tied
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units

STEPS_PER_CALL = 1 << 24
"""The most that one compiled call does, so that Ctrl-C and the progress bar are served in between."""
STEPS_BEFORE_THREADS = 1 << 18
"""A round with more steps than this (about three milliseconds) is worth waking the other cores for."""
GROUP = 8
"""Agents that are played together, step by step; more gain little."""


class EpisodesDriver(FleetDriver):
    """Plays every trajectory. Exact, and the reference for the other drivers."""

    name = "episodes"

    def __init__(self, fleet: Fleet, cores: int | None = None) -> None:
        super().__init__(fleet)
        m = len(fleet.probabilities)
        self._world = fleet.sizes, *world_of(fleet)
        self._counts = (
            fleet.transitions.reshape(-1),
            fleet.visits.reshape(-1),
            fleet.counted_starts.reshape(-1),
            fleet.touched.cells,
            fleet.touched.numbers,
        )
        self._cores = min(threads() if cores is None else cores, m)
        self._agents = m
        self._alone = max(1, (STEPS_PER_CALL if self._cores == 1 else STEPS_BEFORE_THREADS) // (m * fleet.horizon))
        self._largest = max(1, STEPS_PER_CALL // (m * fleet.horizon))

    def extend(
        self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True
    ) -> tuple[int, bool]:
        who = (*self._world, *actions_of(policy), limits.reshape(-1), asking)
        played, chunk, asked = 0, self._alone, False
        while played < most and not asked:
            now = min(chunk, most - played)
            if self._cores > 1 and played >= self._alone:
                done, asked = _play_ahead(*who, self._agents, first + played, now, *self._counts, self._cores)
                chunk = min(2 * chunk, self._largest)
            else:
                done, asked = _play(*who, 0, self._agents, first + played, now, 1, *self._counts)
            played += done
        return played, asked

    def rewind(self, policy: PolicyArray, limits: CountArray, first: int, count: int) -> None:
        """Take the ``count`` episodes from number ``first`` on out of the buffers again, by replaying them."""
        who = (*self._world, *actions_of(policy), limits.reshape(-1), True)
        _play(*who, 0, self._agents, first, count, -1, *self._counts)
        _, visits, _, cells, numbers = self._counts
        drop_untouched(0, self._agents, visits, cells, numbers)


def world_of(fleet: Fleet) -> tuple[IndexArray, FloatArray, FloatArray, int]:
    """Successors, distribution functions of next and of initial states, flat, and the number of the first agent."""
    kernel, initial = (cumulative(one_if_shared(law)).reshape(-1) for law in (fleet.probabilities, fleet.initial))
    return fleet.successors.reshape(-1), kernel, initial, fleet.first_agent


def actions_of(policy: PolicyArray) -> tuple[IndexArray, IndexArray]:
    """The policy's actions, flat, or lists ``(H S, W)``, and how long lists are; code is compiled for each."""
    if policy.ndim == 2:
        return policy.reshape(-1), _NO_TIES
    actions, ties = listed(policy)
    return actions.reshape((-1, actions.shape[2])), ties.reshape(-1)


_NO_TIES = np.zeros(0, dtype=np.int32)


@compiled
def listed(policy: PolicyArray) -> tuple[IndexArray, IndexArray]:
    """Weights of actions ``(H, S, A)`` as lists of equally likely ones ``(H, S, W)``, and their lengths ``(H, S)``.

    W is A, and more where the weights of a state come to more.
    """
    H, S, A = policy.shape
    most = A
    for h in range(H):
        for s in range(S):
            most = max(most, int(tied(policy, h, s, A)))
    actions, ties = np.empty((H, S, most), dtype=np.int32), np.empty((H, S), dtype=np.int32)
    for h in range(H):
        for s in range(S):
            number = 0
            for a in range(A):
                for _ in range(int(policy[h, s, a])):
                    actions[h, s, number] = a
                    number += 1
            ties[h, s] = number
    return actions, ties


def cumulative(probabilities: FloatArray) -> FloatArray:
    """Distribution functions along the last axis, exactly 1 from the last possible outcome on."""
    table = np.cumsum(probabilities, axis=-1)
    remaining = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    after = np.concatenate([remaining[..., 1:], np.zeros_like(remaining[..., :1])], axis=-1)
    return np.ascontiguousarray(np.where(after <= 0.0, 1.0, np.minimum(table, 1.0)))


_pick, _step, _step_of_sets = trajectory_for(inlined)
_ZERO, _ONE, _TWO, _THREE, _FOUR = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@inner
def _own_tables(sizes: Sizes, kernel: FloatArray, initial: FloatArray) -> tuple[np.uint64, np.uint64]:
    """How far apart the tables of two agents are, flat; 0 where all have the same."""
    size = sizes.states * sizes.actions * sizes.slots * (sizes.horizon if sizes.by_step else 1)
    own, own_start = len(kernel) > size, len(initial) > sizes.states
    return np.uint64(size if own else 0), np.uint64(sizes.states if own_start else 0)


@compiled
def _play(
    sizes: Sizes,
    successors: IndexArray,
    kernel: FloatArray,
    initial: FloatArray,
    first_agent: int,
    policy: IndexArray,
    ties: IndexArray,
    limits: CountArray,
    asking: bool,
    low: int,
    high: int,
    first: int,
    most: int,
    sign: int,
    transitions: CountArray,
    visits: CountArray,
    starts: CountArray,
    cells: IndexArray,
    numbers: CountArray,
) -> tuple[int, bool]:
    """Add episodes of agents ``low`` to ``high - 1`` to their counts, in step, until one of them reaches a budget.

    Returns ``(episodes played, was there a request)``. With ``sign`` -1 all ``most`` episodes are taken back.

    Agents are played in groups, step by step. An agent's next step depends on the outcome of its last one, for which
    the processor would wait most of the time; meanwhile it plays the others of the group.

    Args:
        sizes: of the tables, which are flat and come one by one, because Numba counts references to what is taken
            out of a tuple.
        successors: ``(steps, S, A, K)``.
        kernel: distribution functions ``(m, steps, S, A, K)``; or one agent's, if all have the same.
        initial: the same of initial states, ``(m or 1, S)``.
        first_agent: the number of the fleet's first agent.
        policy: actions ``(H S,)``, or lists of them ``(H S, A)``.
        ties: ``(H S,)``, how many of the listed actions are the policy's; empty where it has one each.
        limits: budgets, ``(m or 1, P)``.
        asking: whether agents may make requests.
        low: the first agent to play.
        high: the agent after the last one.
        first: the number of the first episode.
        most: how many episodes at most.
        sign: 1, or -1 to take episodes back.
        transitions: ``(m or 1, P, K)``, one row where they are counted together.
        visits: ``(m, P)``.
        starts: ``(m, S)``, where visits are counted over all steps together.
        cells: of :class:`~fed_ucbvi.algorithms.base.VisitedCells`.
        numbers: of the same.
    """
    us, uk = np.uint64(sizes.states), np.uint64(sizes.slots)
    size = np.uint64(cells.shape[1])
    own, own_start = _own_tables(sizes, kernel, initial)
    own_due = size if np.uint64(len(limits)) > size else _ZERO
    own_transitions = size if np.uint64(len(transitions)) > size * uk else _ZERO
    blocks = (sizes.horizon >> 2) + 1
    words, states = np.empty(4 * blocks * GROUP, dtype=np.uint64), np.empty(GROUP, dtype=np.uint64)
    for played in range(most):
        t, asked = np.uint64(first + played), False
        for begin in range(low, high, GROUP):
            group = min(GROUP, high - begin)
            for block in range(blocks):
                for j in range(group):
                    at = _FOUR * np.uint64(block * GROUP + j)
                    key = np.uint64(first_agent + begin + j)
                    words[at], words[at + _ONE], words[at + _TWO], words[at + _THREE] = block_of(
                        4 * block, sizes.seed, key, t
                    )
            for j in range(group):
                ui = np.uint64(begin + j)
                s = _pick(initial, ui * own_start, _ONE, sizes.states, unit_interval(words[_FOUR * np.uint64(j)]))
                if sizes.stationary:
                    starts[ui * us + s] += sign
                states[j] = s
            for h in range(sizes.horizon):
                at = _FOUR * np.uint64((h + 1 >> 2) * GROUP) + np.uint64(h + 1 & 3)
                for j in range(group):
                    uj, ui, key = np.uint64(j), np.uint64(begin + j), np.uint64(first_agent + begin + j)
                    s, word, mine = states[uj], words[at + _FOUR * uj], ui * own
                    if policy.ndim == 1:
                        cell, _, slot, s = _step(h, s, t, key, word, sizes, policy, successors, kernel, mine, _ONE)
                    else:
                        cell, _, slot, s = _step_of_sets(
                            h, s, t, key, word, sizes, policy, ties, successors, kernel, mine, _ONE
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
    successors: IndexArray,
    kernel: FloatArray,
    initial: FloatArray,
    first_agent: int,
    policy: IndexArray,
    ties: IndexArray,
    limits: CountArray,
    asking: bool,
    agents: int,
    first: int,
    most: int,
    transitions: CountArray,
    visits: CountArray,
    starts: CountArray,
    cells: IndexArray,
    numbers: CountArray,
    cores: int,
) -> tuple[int, bool]:
    """Like :func:`_play`, with groups of agents divided among threads, each group playing ahead of the others.

    Threads never share a table: where transitions are pooled, each has one of its own, added up at the end.
    """
    groups, pooled = (agents + GROUP - 1) // GROUP, len(transitions) == cells.shape[1] * sizes.slots
    parts = np.zeros((cores if pooled else 1, len(transitions) if pooled else 1), dtype=np.int64)
    reached, asked = np.full(groups, most, dtype=np.int64), np.zeros(groups, dtype=np.bool_)
    for core in prange(cores):
        own = parts[core] if pooled else transitions
        for g in range(groups * core // cores, groups * (core + 1) // cores):
            who = (g * GROUP, min((g + 1) * GROUP, agents))
            reached[g], asked[g] = _play(
                *(sizes, successors, kernel, initial, first_agent, policy, ties, limits, asking, *who),
                *(first, most, 1, own, visits, starts, cells, numbers),
            )
    length = reached.min()
    for core in prange(cores):
        own = parts[core] if pooled else transitions
        for g in range(groups * core // cores, groups * (core + 1) // cores):
            who, begin, more = (g * GROUP, min((g + 1) * GROUP, agents)), first + length, reached[g] - length
            _play(
                *(sizes, successors, kernel, initial, first_agent, policy, ties, limits, asking, *who),
                *(begin, more, -1, own, visits, starts, cells, numbers),
            )
            drop_untouched(*who, visits, cells, numbers)
    if pooled:
        for core in range(cores):
            transitions += parts[core]
    return int(length), bool(asked.any())


# -------------------------------------------------------------------------------------- what single episodes pay


class SimulatedReturns:
    """The returns of a fleet's episodes under a policy, whose actions are sets.

    Args:
        fleet: of the agents, on doubled supports if rewards are random.
        federation: with what they are paid.
    """

    def __init__(self, fleet: Fleet, federation: Federation) -> None:
        random = fleet.successors.shape[-1] > federation.successors.shape[-1]
        self._pays = payments_of(federation).amounts if random else federation.rewards
        self._first_paid = federation.successors.shape[-1] if random else 0
        self._units = Units.of(federation.description)
        self._agents, self._horizon = len(fleet.probabilities), fleet.horizon
        self._world = fleet.sizes._replace(stationary=False), *world_of(fleet)

    def add(
        self,
        policy: PolicyArray,
        first: int,
        length: int,
        histogram: CountArray,
        within: tuple[float, float] | None = None,
    ) -> None:
        """Add the returns of all agents in ``length`` episodes from number ``first`` on, to lie ``within``."""
        H = self._horizon
        low, high = within or (0.0, float(H))
        m, chunk = self._agents, max(1, STEPS_PER_CALL // (4 * self._agents * self._horizon))
        for begin in range(first, first + length, chunk):
            returns = np.empty((min(chunk, first + length - begin), m))
            _fill_returns(*self._world, *actions_of(policy), self._pays, self._first_paid, begin, returns)
            if within is not None:
                check_returns(returns.reshape(-1), within, self._units, H)
            add_returns(histogram, returns.reshape(-1), high, low)


@compiled
def _fill_returns(
    sizes: Sizes,
    successors: IndexArray,
    kernel: FloatArray,
    initial: FloatArray,
    first_agent: int,
    policy: IndexArray,
    ties: IndexArray,
    pays: FloatArray,
    first_paid: int,
    first: int,
    returns: FloatArray,
) -> None:
    """``returns[t, i]`` of agent i's episode number ``first + t``; slots from ``first_paid`` on are paid for."""
    T, m = returns.shape
    own, own_start = _own_tables(sizes, kernel, initial)
    for t in range(T):
        episode = np.uint64(first + t)
        for i in range(m):
            ui, key, total = np.uint64(i), np.uint64(first_agent + i), 0.0
            block = block_of(0, sizes.seed, key, episode)
            s = _pick(initial, ui * own_start, _ONE, sizes.states, unit_interval(block[0]))
            for h in range(sizes.horizon):
                if (h + 1) & 3 == 0:
                    block = block_of(h + 1, sizes.seed, key, episode)
                word, here = word_at(h + 1, *block), s
                cell, _, slot, s = _step_of_sets(
                    h, s, episode, key, word, sizes, policy, ties, successors, kernel, ui * own, _ONE
                )
                if slot >= first_paid:
                    a = int(cell % np.uint64(sizes.actions))
                    total += reward_at(i, h, int(here), a, pays)
            returns[t, i] = total
