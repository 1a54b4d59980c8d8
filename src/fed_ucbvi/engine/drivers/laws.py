"""The driver for known dynamics: trajectory by trajectory, counted by law and outcome.

At each step the law is looked up, its outcome is drawn by inversion, and the next state is looked up. The random
numbers are those of the episodes driver (:mod:`fed_ucbvi.engine.drivers.episodes`), so a result does not depend on
how the work was divided, and episodes can be taken back by playing them again.

A law is a cell: the fleet has the G laws as states with one action, whose next states are the W outcomes, counted
over all steps. Beside that, visits by (h,s,a) are counted for the record. Policies have an axis for actions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Budgets, Counting
from fed_ucbvi.algorithms.return_bounds import record_returns
from fed_ucbvi.core.compiling import compiled, embedded, inner
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.sampling.distributions import cumulative
from fed_ucbvi.core.sampling.levels import NO_LEVELS, LevelLaw, level_of_episode
from fed_ucbvi.core.sampling.philox import number_of_action, unit_interval, word_at
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, Played, RoundEnd, drop_untouched
from fed_ucbvi.engine.drivers.episodes import STEPS_PER_CALL, block_of, trajectory_for
from fed_ucbvi.engine.drivers.played_actions import FlatActions, flat_actions
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units

_pick, _ = trajectory_for(embedded)


class LawWorld(NamedTuple):
    """Problem of a fleet over laws and outcomes.

    Attributes:
        law_of: ``(H or 1, S, A)``.
        next_state: ``(H or 1, S, A, W)``.
        laws: distribution functions of outcomes, flat, ``(m, G, W)``.
        initial: distribution functions of first states, flat, ``(m, S)``.
        seed: seed of the run.
        first_agent: number of the fleet's first agent.
        horizon: H.
        level_seed: seed of the levels of the policy.
        level_share: probability with which an episode draws a fresh level.
    """

    law_of: IndexArray
    next_state: IndexArray
    laws: FloatArray
    initial: FloatArray
    seed: np.uint64
    first_agent: int
    horizon: int
    level_seed: np.uint64
    level_share: float


class LawCounts(NamedTuple):
    """The buffers of a round.

    Attributes:
        outcomes: ``(m or 1, G, W)``, one row where they are counted together.
        visits: of laws, flat, ``(m, G)``.
        pairs: visits ``(m or 1, H, S, A)``.
        starts: ``(m, L, S)``.
        cells: the laws that each agent visited, ``(m, G)``.
        numbers: how many they are, ``(m,)``.
    """

    outcomes: CountArray
    visits: CountArray
    pairs: CountArray
    starts: CountArray
    cells: IndexArray
    numbers: CountArray


class LawStep(NamedTuple):
    """One step of an episode: the law that was visited, the action, the outcome and the next state."""

    law: np.int64
    action: np.int64
    outcome: np.int64
    state: np.int64


def pairs_shape(federation: Federation) -> tuple[int, int, int, int]:
    """Shape of the visits of a round by step, state and action, with one row for all agents that are paid alike."""
    rows = len(federation.rewards)
    return rows, federation.horizon, federation.states, federation.actions


def law_world(federation: Federation, fleet: Fleet) -> LawWorld:
    """The world of a federation with known dynamics."""
    dynamics = federation.dynamics
    laws = federation.laws
    assert dynamics is not None
    assert laws is not None
    return LawWorld(
        law_of=np.stack([dynamics.laws_at(h) for h in range(len(dynamics.law_of))]),
        next_state=np.stack([dynamics.next_states_at(h) for h in range(len(dynamics.next_state))]),
        laws=cumulative(laws).reshape(-1),
        initial=cumulative(federation.initial).reshape(-1),
        seed=np.uint64(fleet.seed),
        first_agent=fleet.first_agent,
        horizon=fleet.horizon,
        level_seed=fleet.sizes.level_seed,
        level_share=fleet.levels.share,
    )


def law_fleet(federation: Federation, seed: int, first_agent: int, *, pooled: bool, levels: LevelLaw) -> Fleet:
    """A fleet whose states are laws with one action and whose next states are outcomes."""
    dynamics = federation.dynamics
    laws = federation.laws
    assert dynamics is not None
    assert laws is not None
    shape = (1, dynamics.laws, 1, dynamics.outcomes)
    outcomes = np.broadcast_to(np.arange(dynamics.outcomes, dtype=np.int32), shape)
    return Fleet(
        successors=np.ascontiguousarray(outcomes),
        probabilities=laws[:, np.newaxis, :, np.newaxis],
        initial=federation.initial,
        horizon=federation.horizon,
        seed=seed,
        first_agent=first_agent,
        pooled=pooled,
        counting=Counting.STATIONARY,
        levels=levels,
    )


class LawDriver(FleetDriver):
    """Plays every trajectory under known dynamics.

    Args:
        fleet: made by :func:`law_fleet`.
        federation: the agents of the fleet.
    """

    def __init__(self, fleet: Fleet, federation: Federation) -> None:
        super().__init__(fleet)
        m = federation.agents
        H = federation.horizon
        self._world = law_world(federation, fleet)
        self._chunk = max(1, STEPS_PER_CALL // (8 * m * H))
        self.pairs: CountArray = np.zeros(pairs_shape(federation), dtype=np.int64)
        """Visits of the round by agent, step, state and action; one row for all agents that are paid alike."""
        outcomes, visits = fleet.flat
        self._counts = LawCounts(
            outcomes=outcomes,
            visits=visits.reshape(-1),
            pairs=self.pairs,
            starts=fleet.counted_starts,
            cells=fleet.touched.cells,
            numbers=fleet.touched.numbers,
        )

    def clear(self) -> None:
        super().clear()
        self.pairs.fill(0)

    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        actions = flat_actions(policy)
        played = 0
        asked = False
        while played < most and not asked:
            now = min(self._chunk, most - played)
            done, asked = _play_laws(
                self._world,
                self.fleet.kept_levels,
                actions,
                limits.reshape(-1),
                asking,
                first + played,
                now,
                1,
                self._counts,
            )
            played += done
        return played, asked

    def rewind(self, policy: PolicyArray, limits: CountArray, first: int, count: int) -> None:
        actions = flat_actions(policy)
        no_limits = limits.reshape(-1)
        _play_laws(self._world, self.fleet.kept_levels, actions, no_limits, False, first, count, -1, self._counts)
        counts = self._counts
        drop_untouched(0, len(counts.numbers), counts.visits, counts.cells, counts.numbers)

    def end(self, length: int, found: tuple[int, int, int], policy: PolicyArray, budgets: Budgets) -> RoundEnd:
        """End of a round; on record is the number of the law in place of the state."""
        requests, agent, law = found
        if not requests:
            return RoundEnd(length)
        rule = int(budgets.rule.flat[law])
        return RoundEnd(length, requests, self.first_agent + agent, state=law, rule=rule)


class LawReturns:
    """The returns of episodes under known dynamics and a policy with an axis for actions."""

    def __init__(self, fleet: Fleet, federation: Federation) -> None:
        dynamics = federation.dynamics
        assert dynamics is not None
        self._world = law_world(federation, fleet)
        self._rewards = rewards_of_agents(dynamics, fleet.first_agent, federation.agents)
        self._units = Units.of(federation.description)
        self._agents = federation.agents
        self._horizon = federation.horizon

    def add(
        self,
        policy: PolicyArray,
        first: int,
        length: int,
        histogram: CountArray,
        limits: tuple[float, float] | None,
        kept_levels: CountArray = NO_LEVELS,
    ) -> None:
        """Add the returns of all agents in ``length`` episodes from number ``first`` on.

        ``limits`` is the stated range of a return; a return outside is an error. ``kept_levels`` are the
        levels that the agents keep for the round, if there are several.
        """
        chunk = max(1, STEPS_PER_CALL // (8 * self._agents * self._horizon))
        actions = flat_actions(policy)
        for begin in range(first, first + length, chunk):
            returns = np.empty((min(chunk, first + length - begin), self._agents))
            _fill_law_returns(self._world, kept_levels, actions, self._rewards, begin, returns)
            record_returns(histogram, returns.reshape(-1), limits, self._units, self._horizon)


def rewards_of_agents(dynamics: Dynamics, first_agent: int, agents: int) -> FloatArray:
    """Rewards by outcome of some agents, ``(m or 1, H or 1, S, A, W)``."""
    rewards = dynamics.rewards
    assert rewards is not None
    rows = rewards if len(rewards) == 1 else rewards[first_agent : first_agent + agents]
    shape = (*rows.shape[:2], dynamics.states, dynamics.actions, dynamics.outcomes)
    return np.ascontiguousarray(np.broadcast_to(rows, shape))


# ------------------------------------------------------------------------------------------------------- compiled


@inner
def _level_of(i: int, t: np.uint64, kept_levels: CountArray, world: LawWorld) -> int:
    """The level of the policy that agent i of the fleet plays in episode t."""
    if len(kept_levels) == 0:
        return 0
    key = np.uint64(world.first_agent + i)
    return level_of_episode(world.level_seed, world.level_share, key, t, kept_levels[i])


@inner
def _take_step(
    h: int,
    level: int,
    s: np.int64,
    t: np.uint64,
    key: np.uint64,
    word: np.uint64,
    first: int,
    world: LawWorld,
    actions: FlatActions,
) -> LawStep:
    """Step h of episode t from state s, by a level of the policy; the agent's laws begin at entry ``first``."""
    policy, ties, thresholds = actions
    law_steps, states, _ = world.law_of.shape
    steps, _, _, outcomes = world.next_state.shape
    place = np.uint64((level * world.horizon + h) * states + s)

    # The action.
    number = ties[place]
    chosen = np.uint64(0)
    if number > 1:
        u = number_of_action(world.seed, key, t, h)
        if len(thresholds) == 0:
            chosen = np.uint64(u * number)
        else:
            row = place * np.uint64(policy.shape[1])
            chosen = _pick(thresholds, row, np.uint64(1), np.int64(number), u)
    a = np.int64(policy[place, chosen])

    # The outcome of its law.
    law = np.int64(world.law_of[shared(h, law_steps), s, a])
    begin = np.uint64(first + law * outcomes)
    outcome = np.int64(_pick(world.laws, begin, np.uint64(1), outcomes, unit_interval(word)))
    return LawStep(law, a, outcome, np.int64(world.next_state[shared(h, steps), s, a, outcome]))


@compiled
def _play_laws(
    world: LawWorld,
    kept_levels: CountArray,
    actions: FlatActions,
    limits: CountArray,
    asking: bool,
    first: int,
    most: int,
    sign: int,
    counts: LawCounts,
) -> tuple[int, bool]:
    """Add episodes to the counts until some agent has reached its limit of visits to a law.

    Returns ``(episodes played, was there a request)``. ``limits (m or 1, G)`` are flat; only if ``asking`` may agents
    make requests. With ``sign`` -1 all ``most`` episodes are taken back.
    """
    m = len(counts.numbers)
    payments, H, S, _ = counts.pairs.shape
    rows, laws, outcomes = counts.outcomes.shape
    own_limits = laws if len(limits) > laws else 0
    own_start = S if len(world.initial) > S else 0
    for played in range(most):
        t = np.uint64(first + played)
        asked = False
        for i in range(m):
            key = np.uint64(world.first_agent + i)
            level = _level_of(i, t, kept_levels, world)
            words = block_of(0, world.seed, key, t)
            u = unit_interval(words[0])
            s = np.int64(_pick(world.initial, np.uint64(i * own_start), np.uint64(1), S, u))
            counts.starts[i, level, s] += sign
            for h in range(H):
                if (h + 1) & 3 == 0:
                    words = block_of(h + 1, world.seed, key, t)
                word = word_at(h + 1, *words)
                step = _take_step(h, level, s, t, key, word, i * laws * outcomes, world, actions)

                # Counts by (h,s,a), by law and outcome, and by law for each agent.
                counts.pairs[shared(i, payments), h, s, step.action] += sign
                counts.outcomes[i if rows > 1 else 0, step.law, step.outcome] += sign
                place = i * laws + step.law
                before = counts.visits[place]
                counts.visits[place] = before + sign
                if before == 0:
                    counts.cells[i, counts.numbers[i]] = step.law
                    counts.numbers[i] += 1
                asked |= asking and before + sign >= limits[i * own_limits + step.law]
                s = step.state
        if asked and sign > 0:
            return played + 1, True
    return most, False


@compiled
def _fill_law_returns(
    world: LawWorld,
    kept_levels: CountArray,
    actions: FlatActions,
    rewards: FloatArray,
    first: int,
    returns: FloatArray,
) -> None:
    """``returns[t, i]`` of agent i's episode number ``first + t``."""
    T, m = returns.shape
    rows, steps, S, _, outcomes = rewards.shape
    laws = len(world.laws) // (m * outcomes)
    own_start = S if len(world.initial) > S else 0
    H = world.horizon
    for j in range(T):
        t = np.uint64(first + j)
        for i in range(m):
            key = np.uint64(world.first_agent + i)
            level = _level_of(i, t, kept_levels, world)
            words = block_of(0, world.seed, key, t)
            u = unit_interval(words[0])
            s = np.int64(_pick(world.initial, np.uint64(i * own_start), np.uint64(1), S, u))
            total = 0.0
            for h in range(H):
                if (h + 1) & 3 == 0:
                    words = block_of(h + 1, world.seed, key, t)
                word = word_at(h + 1, *words)
                step = _take_step(h, level, s, t, key, word, i * laws * outcomes, world, actions)
                total += rewards[shared(i, rows), shared(h, steps), s, step.action, step.outcome]
                s = step.state
            returns[j, i] = total
