"""The live driver: agents that call ``env.step`` on environments whose kernels nobody knows.

Counts are kept by slot of a support (the list of possible next states), as everywhere. Here supports are
*discovered*: the first next state seen after (s,a), by any agent at any step, takes the first slot, and so on. When
some pair needs more slots than there are, their number doubles. So memory grows with what the environment does, not
with S^2.

Rewards are observed, rescaled to [0, 1] and averaged for each agent and (h,s,a)
(:mod:`fed_ucbvi.engine.drivers.rewards`). Where they are said to be random they are added up by next state besides,
for algorithms whose bonus accounts for their spread. Otherwise a second, different reward of an agent for the same
step, state and action is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.algorithms.base import Array, Budgets, Counting, FleetTables
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid
from fed_ucbvi.algorithms.return_bounds import new_histogram, record_returns
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.sampling.distributions import cumulative
from fed_ucbvi.core.sampling.levels import (
    NO_LEVELS,
    ONE_LEVEL,
    LevelLaw,
    kept_levels,
    level_of_episode,
)
from fed_ucbvi.core.sampling.philox import number_of_action
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Driver, Played
from fed_ucbvi.engine.drivers.played_actions import PossibleActions
from fed_ucbvi.engine.drivers.rewards import ObservedRewards, RewardTables
from fed_ucbvi.problem.units import Units

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

ROUNDING = 1e-9
"""How far outside its range a reward may lie, as a share of the range, and still count as rounding error."""
FIRST_WIDTH = 2
"""Slots for next states to begin with."""


class LiveTables:
    """Observations of the agents of a run, or of one node: supports, rewards, and the round's buffers.

    ``grid`` is that of sums of random rewards, if the algorithm reads them.
    """

    def __init__(
        self,
        agents: int,
        horizon: int,
        states: int,
        actions: int,
        first_agent: int = 0,
        counting: Counting = Counting.POLICY,
        grid: Grid | None = None,
        *,
        fixed_rewards: bool = False,
        return_limits: tuple[float, float] | None = None,
        levels: LevelLaw = ONE_LEVEL,
    ) -> None:
        shape = counting.shape(horizon, states, actions)
        self.horizon = horizon
        self.counting = counting
        self.first_agent = first_agent
        self.known = np.zeros((states, actions), dtype=np.int32)
        """How many next states of (s,a) have been seen."""
        self.successors: IndexArray = np.zeros((1, states, actions, FIRST_WIDTH), dtype=np.int32)
        self.rewards = ObservedRewards((agents, shape[0], states, actions), grid)
        self.visits: CountArray = np.zeros((agents, *shape), dtype=np.int64)
        self.transitions: CountArray = np.zeros((agents, *shape, FIRST_WIDTH), dtype=np.int64)
        self.levels = levels
        self.starts: CountArray = np.zeros((agents, levels.number, states), dtype=np.int64)
        """Number of the round's episodes that began in each state, by level of the policy."""
        self.first_rewards: FloatArray = np.full((agents, shape[0], states, actions) if fixed_rewards else 0, np.nan)
        """Reward of the first visit of each agent to each cell, NaN before it; empty where rewards may be random."""
        self._return_limits = return_limits
        self.forget_payments()

    def limit_returns(self, limits: tuple[float, float]) -> None:
        """State the range of an episode's return, with rewards in [0, 1]; a return outside it is an error."""
        self._return_limits = limits

    def record_returns(self, returns: FloatArray, units: Units) -> None:
        """Add the returns of some episodes of the round to their histogram; check them against the stated range."""
        record_returns(self.returns, returns, self._return_limits, units, self.horizon)

    @property
    def width(self) -> int:
        return int(self.successors.shape[3])

    def forget_payments(self) -> None:
        self.paid: FloatArray = np.zeros(2)
        """What the round's episodes paid, added up over agents, and the squares of what each paid."""
        self.returns = new_histogram()
        """What each of them paid, likewise; see :mod:`fed_ucbvi.algorithms.return_bounds`."""

    def for_agents(self) -> FleetTables:
        """Tables of the agents, to read and not to write; it changes in place, until supports widen."""
        return self.rewards.for_agents(len(self.visits), self.successors, self.first_agent)

    def arrays(self) -> dict[str, Array]:
        """Observations since the beginning, without the buffers of the round."""
        seen: dict[str, Array] = {"known": self.known, "successors": self.successors}
        if self.first_rewards.size:
            seen["first_rewards"] = self.first_rewards
        return seen

    def of_round(self) -> dict[str, Array]:
        """Observations of the round."""
        buffers: dict[str, Array] = {"visits": self.visits, "transitions": self.transitions, "starts": self.starts}
        return buffers | self.rewards.arrays() | {"paid": self.paid, "returns": self.returns}

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Have as many slots for next states as tables that were saved; the buffers of the round are emptied."""
        if (width := arrays["successors"].shape[3]) != self.width:
            self.successors = np.zeros((*self.successors.shape[:3], width), dtype=np.int32)
            self.transitions = np.zeros((*self.visits.shape, width), dtype=np.int64)

    def discover(self, states: IndexArray, actions: IndexArray) -> None:
        """Give a slot to every next state in ``states[m,H+1]`` that has none."""
        while not _discover(states, actions, self.successors, self.known):
            self.successors = np.concatenate([self.successors, np.zeros_like(self.successors)], axis=-1)
            self.transitions = np.concatenate([self.transitions, np.zeros_like(self.transitions)], axis=-1)


class LiveDriver(Driver):
    """Plays some agents, in step, episode by episode; their random generators go on from round to round."""

    name = "live"

    def __init__(
        self,
        tables: LiveTables,
        agents: range,
        make: Callable[[int], Any],
        vectorisation: str,
        units: Units,
        seed: int,
    ) -> None:
        super().__init__(tables, slice(agents.start - tables.first_agent, agents.stop - tables.first_agent))
        self.tables = tables
        self.units = units
        self._agents = agents
        self._make = make
        self._vectorisation = vectorisation
        self._seed = seed
        self._vector: VectorEnv[Any, Any, Any] | None = None
        m = len(agents)
        H = tables.horizon
        self._states, self._actions = (np.zeros((m, n), dtype=np.int32) for n in (H + 1, H))
        self._pays: FloatArray = np.zeros((m, H))
        self._kept_levels = NO_LEVELS
        """Level of the policy that each agent keeps for the round; empty where the policy has one level."""
        self._levels: CountArray = np.zeros(m, dtype=np.int64)
        """Level of the policy that each agent plays in this episode."""

    def begin(self, policy: PolicyArray, budgets: Budgets, first: int) -> None:
        self.clear()
        self._kept_levels = NO_LEVELS
        self._levels[:] = 0
        if policy.ndim == 4:
            self._kept_levels = kept_levels(np.uint64(self._seed), self.first_agent, len(self._levels), first)

    def clear(self) -> None:
        super().clear()
        self.tables.rewards.sums[self._rows] = 0

    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        tables = self.tables
        m = len(self._pays)
        length = 0
        asked = False
        listed = PossibleActions.of(policy.reshape((-1, *policy.shape[-2:])) if policy.ndim == 4 else policy)
        thresholds = cumulative(listed.probabilities)
        while length < most and not asked:
            self._play(listed, thresholds, first + length)
            returns = self._pays.sum(axis=1)
            if tables.first_rewards.size:
                self._check_fixed()
            tables.record_returns(returns, self.units)
            tables.discover(self._states, self._actions)
            asked, paid = _count(
                policy.ndim > 2,
                (self._states, self._actions, self._pays),
                (tables.successors, tables.known),
                limits.reshape((len(limits), -1)),
                asking,
                (
                    self.visits.reshape((m, -1)),
                    self.transitions.reshape((m, -1, tables.width)),
                    self.starts,
                    self._levels,
                ),
                tables.rewards.of(self._rows),
            )
            tables.paid += paid, returns @ returns
            length += 1
        return length, asked

    def close(self) -> None:
        if self._vector is not None:
            self._vector.close()
            self._vector = None

    def _play(self, listed: PossibleActions, thresholds: FloatArray, episode: int) -> None:
        """One episode of every agent: its states, its actions and its rewards in our units.

        ``thresholds (H, S, W)`` are distribution functions of the listed actions, empty if these are equally likely.
        """
        states = self._states
        actions = self._actions
        pays = self._pays
        H = pays.shape[1]
        end = listed.numbers.shape[1] - 1
        who = (np.uint64(self._seed), self.first_agent, episode)
        for j in range(len(self._kept_levels)):
            self._levels[j] = level_of_episode(
                np.uint64(self._seed),
                self.tables.levels.share,
                np.uint64(self.first_agent + j),
                np.uint64(episode),
                self._kept_levels[j],
            )
        first_rows = self._levels * H
        law = (listed.actions, listed.numbers, thresholds)
        if self._vector is None:
            from fed_ucbvi.engine.drivers.live_environments import vector_of

            self._vector = vector_of(self._make, self._agents, self._vectorisation)
            seeds = [environment_seed(self._seed, i, episode) for i in self._agents]
            now, _ = self._vector.reset(seed=seeds)  # type: ignore[arg-type]
        else:
            now, _ = self._vector.reset()
        states[:, 0] = now
        for h in range(H):
            if (now == end).all():
                states[:, h + 1 :] = end
                pays[:, h:] = 0.0
                for later in range(h, H):
                    actions[:, later] = _choose(*law, first_rows, now, *who, later)
                break
            actions[:, h] = _choose(*law, first_rows, now, *who, h)
            now, pays[:, h], _, truncated, _ = self._vector.step(actions[:, h])
            if h + 1 < H and truncated.any():
                raise InputError(
                    f"the environment of agent {self.first_agent + int(np.argmax(truncated))} cut an episode off "
                    f"after {h + 1} steps, before the horizon {H}: make it with max_episode_steps={H}, or "
                    f"use a horizon of at most {h + 1}."
                )
            states[:, h + 1] = now
        np.subtract(pays, self.units.offset, out=pays)
        np.divide(pays, self.units.scale, out=pays)
        if not (pays.min() >= 0.0 and pays.max() <= 1.0):
            self._into_range(pays)

    def _check_fixed(self) -> None:
        """Raise if an agent was paid another reward than before for the same step, state and action."""
        first = self.tables.first_rewards[self._rows]
        place = _find_other_reward(self._states, self._actions, self._pays, first)
        if place < 0:
            return
        i, h = divmod(place, self._pays.shape[1])
        s = int(self._states[i, h])
        a = int(self._actions[i, h])
        steps = first.shape[1]
        rewards = (first[i, h if steps > 1 else 0, s, a], self._pays[i, h])
        before, now = (self.units.offset + self.units.scale * float(reward) for reward in rewards)
        where = "" if steps > 1 else " (visits of all steps are counted together)"
        raise InputError(
            f"agent {self.first_agent + i} was paid {now:.12g} at step {h} in state {s} for action {a}, and "
            f"{before:.12g} before{where}, but random_rewards=False (--fixed-rewards) says that rewards are not "
            "random. Leave it out, or pass random_rewards=True (--random-rewards)."
        )

    def _into_range(self, pays: FloatArray) -> None:
        """Move rewards that rounding has put outside [0, 1] to its ends; others are an error."""
        outside = ~((pays >= -ROUNDING) & (pays <= 1.0 + ROUNDING))
        if outside.any():
            i, h = (int(x) for x in np.argwhere(outside)[0])
            low = self.units.offset
            high = self.units.offset + self.units.scale
            raise InputError(
                f"agent {self.first_agent + i} was paid {low + pays[i, h] * self.units.scale:.12g} at step {h}, "
                f"outside reward_range ({low:.12g}, {high:.12g}). Give a range that holds all rewards, and 0 "
                "if episodes can terminate, for nothing is paid after that."
            )
        np.clip(pays, 0.0, 1.0, out=pays)


@compiled
def _find_other_reward(states: IndexArray, actions: IndexArray, pays: FloatArray, first: FloatArray) -> int:
    """Number ``i H + h`` of the first reward that is not that of its cell before; -1 if there is none.

    Rewards of cells that are visited for the first time are written to ``first[i, step or 0, s, a]``.
    """
    m: int = pays.shape[0]
    H: int = pays.shape[1]
    steps: int = first.shape[1]
    for i in range(m):
        for h in range(H):
            hc = shared(h, steps)
            s = states[i, h]
            a = actions[i, h]
            known = first[i, hc, s, a]
            if np.isnan(known):
                first[i, hc, s, a] = pays[i, h]
            elif abs(pays[i, h] - known) > ROUNDING:
                return i * H + h
    return -1


def environment_seed(seed: int, agent: int, episode: int = 0) -> int:
    """The seed of an agent's environment: a function of the run's seed and the agent's number.

    An environment that is made anew in the middle of a run has another one, by its first ``episode``: it must not
    show again what has been seen.
    """
    key = (agent, episode) if episode else (agent,)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])


@compiled
def _slot(successors: IndexArray, known: int, state: int) -> int:
    """Where ``state`` is among the first ``known`` successors; ``known`` if nowhere."""
    for k in range(known):
        if successors[k] == state:
            return k
    return known


@compiled
def _choose(
    actions: IndexArray,
    numbers: IndexArray,
    thresholds: FloatArray,
    first_rows: CountArray,
    states: IndexArray,
    seed: np.uint64,
    first_agent: int,
    episode: int,
    h: int,
) -> IndexArray:
    """The actions that agents in ``states`` play at step h: those that a simulation would draw.

    The policy of agent i begins at row ``first_rows[i]``.
    """
    chosen = np.zeros(len(states), dtype=np.int32)
    for i in range(len(states)):
        s = states[i]
        row = first_rows[i] + h
        number = numbers[row, s]
        place = 0
        if number > 1:
            u = number_of_action(seed, np.uint64(first_agent + i), np.uint64(episode), h)
            if len(thresholds) == 0:
                place = int(u * number)
            else:
                while u >= thresholds[row, s, place]:
                    place += 1
        chosen[i] = actions[row, s, place]
    return chosen


@compiled
def _discover(states: IndexArray, actions: IndexArray, successors: IndexArray, known: IndexArray) -> bool:
    """Add the next states of some trajectories to the supports; False if there are too few slots."""
    m = states.shape[0]
    H = states.shape[1] - 1
    for i in range(m):
        for h in range(H):
            s = states[i, h]
            a = actions[i, h]
            y = states[i, h + 1]
            k = _slot(successors[0, s, a], known[s, a], y)
            if k == known[s, a]:
                if k == successors.shape[3]:
                    return False
                successors[0, s, a, k] = y
                known[s, a] += 1
    return True


@compiled
def _count(
    by_action: bool,
    episode: tuple[IndexArray, IndexArray, FloatArray],
    support: tuple[IndexArray, IndexArray],
    limits: CountArray,
    asking: bool,
    counts: tuple[CountArray, CountArray, CountArray, CountArray],
    rewards: RewardTables,
) -> tuple[bool, float]:
    """Add one episode of every agent to its counts, means and sums; ``(was there a request, rewards in all)``."""
    states, actions, pays = episode
    successors, known = support
    visits, transitions, starts, levels = counts
    means = rewards.means
    m, H = pays.shape
    _, steps, S, A = means.shape
    add_up = len(rewards.sums) > 0
    asked = False
    paid = 0.0
    for i in range(m):
        budgets = limits[shared(i, len(limits))]
        starts[i, levels[i], states[i, 0]] += 1
        for h in range(H):
            s = states[i, h]
            a = actions[i, h]
            hc = shared(h, steps)
            cell = (hc * S + s) * A + a if by_action else hc * S + s
            visits[i, cell] += 1
            n = visits[i, cell]
            asked |= asking and n >= budgets[cell]
            k = _slot(successors[0, s, a], known[s, a], states[i, h + 1])
            transitions[i, cell, k] += 1
            paid += pays[i, h]
            if n == 1:
                means[i, hc, s, a] = pays[i, h]
            else:  # a reward that equals the mean leaves it as it is, exactly
                means[i, hc, s, a] += (pays[i, h] - means[i, hc, s, a]) / n
            if add_up:
                rewards.sums[i, hc, s, a] += np.int64(on_grid(pays[i, h], rewards.bits))
    return asked, paid
