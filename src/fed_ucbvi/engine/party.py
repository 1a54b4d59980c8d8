"""A party: some agents together with what they play in, wherever they are.

A party does no input or output. In a round it gets the broadcast (:meth:`Party.start`), plays until one of its own
agents requests a synchronisation (:meth:`Party.play`), learns after how many episodes the round ended for everybody,
adds these to its agents' counts (:meth:`Party.stop`) and answers queries (:meth:`Party.report`). All that changes in
it is in :meth:`Party.state`. A simulation, a GPU, a fleet that is a Ray actor (:mod:`fed_ucbvi.engine.ray_fleets`)
and a node with a known problem are a :class:`SimulatedParty`. Agents with real environments, in one process or on a
node, are a :class:`LiveParty`.

Where all agents stop after the same episode, and are in several parties that cannot see each other, each party plays
ahead in chunks of episodes, until one of its own agents makes a request. Episodes after the earliest request are
taken back. Chunks grow while there is no request, so few episodes are discarded and long rounds take few answers.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Counting,
    FleetTables,
    Message,
    Setting,
    VisitedCells,
    added_up,
    check_report,
    exchange_messages,
    needs_checks,
)
from fed_ucbvi.algorithms.contract import checked_budgets
from fed_ucbvi.algorithms.counters import counter_type
from fed_ucbvi.algorithms.return_bounds import new_histogram
from fed_ucbvi.algorithms.state_memory import check_fleet_memory
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Driver, Fleet, RoundEnd, collect, find_requester, play_until, starts_in
from fed_ucbvi.engine.drivers.cuda import CUDA, on_gpu
from fed_ucbvi.engine.drivers.episodes import SimulatedReturns
from fed_ucbvi.engine.drivers.live import LiveDriver, LiveTables
from fed_ucbvi.engine.drivers.rewards import SimulatedRewards
from fed_ucbvi.engine.rounds import Paid, PlayedRound
from fed_ucbvi.engine.state_arrays import named, put_back, restore
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units

AGENTS = "agents."
SEEN = "seen."
"""Prefixes of the names of a party's arrays: those of its agents, and what was seen of their problem."""
FIRST_STEPS = 1 << 15
"""Environment steps a party may always play before it first answers; they take about a millisecond."""
MAX_STEPS = 1 << 25
"""The most environment steps a party plays before it answers; they take about a second."""


# ----------------------------------------------------------------------------------------------------------- messages


class StartRound(NamedTuple):
    """Begin a round, whose first episode has number ``first``, and go on as :class:`PlayUntil` says."""

    broadcast: Message
    first: int
    until: int


class PlayUntil(NamedTuple):
    """Go on until ``until`` episodes of the round are played; the answer is a :class:`Reached`."""

    until: int


class StopRound(NamedTuple):
    """The round has ``length`` episodes, to be counted; answer: a :class:`~fed_ucbvi.engine.rounds.PlayedRound`."""

    length: int


class AskReport(NamedTuple):
    """One exchange of a synchronisation; the answer is the report."""

    query: Message
    exchange: int


PartyMessage = StartRound | PlayUntil | StopRound | AskReport
AskAll = Callable[[PartyMessage], Sequence[Any]]


class Reached(NamedTuple):
    """Episodes of the round that a party has played, and whether an agent made a request after the last of them."""

    played: int
    asked: bool


class Answer(Protocol):
    """How far a party has played: a :class:`Reached`, or a message of a node on the network."""

    @property
    def played(self) -> int: ...

    @property
    def asked(self) -> bool: ...


class PlayAhead:
    """A round in which all parties stop after the same episode, although none sees the requests of the others.

    Iteration gives the number of episodes of the round until which all parties are to play next, and ends once the
    round does. After each step :meth:`take` takes the answers of the parties. This class does no input or output, so
    the parties may be called, or asked over a network and awaited.

    Args:
        agents: number of agents of the largest party.
        horizon: number of steps of an episode.
        last_length: number of episodes of the last round; 0 before the first.
        most: largest number of episodes of the round.

    Attributes:
        length: number of episodes of the round; known at the end of the iteration.
        requested: True if an agent has requested a synchronisation, which ends the round.
    """

    def __init__(self, agents: int, horizon: int, last_length: int, most: int) -> None:
        self._steps = agents * horizon
        self._largest_step = max(1, MAX_STEPS // horizon)
        self._last_length = last_length
        self._most = most
        self.length = 0
        self.requested = False

    def __iter__(self) -> Iterator[int]:
        for until in self._chunks():
            self.length = until
            yield until
            if self.requested:
                return

    def take(self, answers: Iterable[Answer]) -> None:
        """Take the answers of all parties; the round ends after the earliest request."""
        requests = [answer.played for answer in answers if answer.asked]
        if requests:
            self.requested = True
            self.length = min(requests)

    def _chunks(self) -> Iterator[int]:
        """Number of episodes of the round after which parties answer, up to the largest number.

        The first is one that costs little, or twice the last round. Each following one is at most three times the one
        before.
        """
        cheap = FIRST_STEPS // self._steps
        as_last_time = min(2 * self._last_length, MAX_STEPS // self._steps)
        until = min(self._most, max(1, cheap, as_last_time))
        yield until
        while until < self._most:
            until = min(until + min(2 * until, self._largest_step), self._most)
            yield until


def play_in_step(ask_all: AskAll, broadcast: Message, first: int, ahead: PlayAhead) -> int:
    """Have all parties play a round in which they stop after the same episode; return its length.

    The first episode of the round has number ``first``. The parties have not yet stopped.
    """
    message: PartyMessage
    begun = False
    for until in ahead:
        message = PlayUntil(until) if begun else StartRound(broadcast, first, until)
        ahead.take(ask_all(message))
        begun = True
    return ahead.length


# -------------------------------------------------------------------------------------------------------- the parties


class Party(ABC):
    """Agents and what they play in; see the module's text.

    ``driver`` plays for all of them; where agents do not stop together, there is one for each ``apart``.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        driver: Driver,
        tables: FleetTables,
        apart: Sequence[Driver] = (),
    ) -> None:
        self.algorithm = algorithm
        self.setting = setting
        self.driver = driver
        self._apart = apart
        self.agents: Any = algorithm.new_agents(setting, tables)
        self.seen: LiveTables | None = None
        """The next states and rewards seen so far, where the problem is unknown."""
        self._summed: VisitedCells | None = None
        """Where the visits of all agents are added up."""
        self.played = 0
        self.asked = False
        self.least_episodes = 0
        """Number of episodes of a round before which no agent makes a request."""
        self.return_limits: tuple[float, float] | None = None
        """Range of an episode's return, with rewards in [0, 1], where it was stated."""

    def limit_returns(self, limits: tuple[float, float]) -> None:
        """State the range of an episode's return, with rewards in [0, 1]; a return outside it is an error."""
        self.return_limits = limits

    # -------------------------------------------------------------------------------------------------------- a round

    def start(self, broadcast: Message, first: int) -> None:
        """Begin a round, whose first episode has number ``first``."""
        self.broadcast = broadcast
        self.policy = broadcast[0]
        self.first = first
        if needs_checks(self.algorithm):
            fleet = len(self.driver.visits)
            self.budgets = checked_budgets(self.algorithm, self.setting, self.agents, broadcast, fleet)
        else:
            self.budgets = self.algorithm.budgets(self.agents, broadcast)
        self.played = 0
        self.asked = False
        self.driver.begin(self.policy, self.budgets, first)

    def play(self, until: int) -> Reached:
        """Play until ``until`` episodes of the round are played or one of these agents requests a synchronisation."""
        if not self.asked:
            self.played, self.asked = play_until(
                self.driver,
                self.policy,
                self.budgets,
                self.first,
                self.played,
                until,
                least=self.least_episodes,
            )
        return Reached(self.played, self.asked)

    def stop(self, length: int) -> PlayedRound:
        """End the round after ``length`` episodes, whatever was played, and add it to the agents' counts."""
        if length != self.played:
            self._move_to(length)
        end = self.driver.stopped(self.policy, self.budgets, self.first, length)
        return self._count(end)

    def play_round(self, broadcast: Message, first: int, most: int, *, judged: bool = False) -> PlayedRound:
        """A whole round, where these are all agents: until a request, at most ``most`` episodes.

        If it is ``judged``, the returns of its episodes are told; they are also looked at if their range was stated.
        """
        self.start(broadcast, first)
        judged = judged or self.return_limits is not None
        driver = self._trajectories if judged else self.driver
        self.played, self.asked = play_until(driver, self.policy, self.budgets, first, 0, most)
        played = self.stop(self.played)
        return played._replace(returns=self.returns()) if judged else played

    @property
    def _trajectories(self) -> Driver:
        """A driver that plays episode by episode, into the same buffers."""
        return self.driver

    def play_apart(self, broadcast: Message, clock: CountArray, episodes: int) -> PlayedRound:
        """A whole round in which every agent plays until its own request, or until it has played ``episodes``."""
        self.start(broadcast, 0)
        budgets = self.budgets
        ends = list[RoundEnd]()
        lengths = np.zeros_like(clock)
        for i, driver in enumerate(self._apart):
            own = budgets._replace(limits=budgets.limits[i : i + 1])
            first = int(clock[i])
            driver.clear()
            if first < episodes:
                ends.append(collect(driver, self.policy, own, first, episodes - first))
                lengths[i] = ends[-1].length
        asked = [end for end in ends if end.requests]
        end = (asked[0] if asked else RoundEnd(0))._replace(length=int(lengths.max()), requests=len(asked))
        return self._count(end)._replace(lengths=lengths)

    def _count(self, end: RoundEnd) -> PlayedRound:
        """Add a round to the agents' counts, and say what was played."""
        visits = self.driver.visits
        self.algorithm.absorb(self.agents, self.policy, self._transitions(), visits)
        if self._summed is not None:
            visits = self._summed.all_visits
        counted = self.algorithm.counting is Counting.STATIONARY or self.algorithm.level_law(self.setting).number > 1
        starts = self.driver.starts if counted else starts_in(visits)
        return PlayedRound(end, visits, starts)

    def _transitions(self) -> CountArray:
        """Transitions of the round by slot of the support, ``(m or 1, *cell, K)``."""
        return self.driver.transitions

    def requests(self) -> list[RoundEnd]:
        """For each agent that makes a request now, in their order: where, and by which rule."""
        visits = self.driver.visits
        limits = self.budgets.limits
        found = []
        for i in range(len(visits)):
            requesters, _, cell = find_requester(visits[i : i + 1], limits[i : i + 1] if len(limits) > 1 else limits)
            if requesters:
                found.append(self.driver.end(self.played, (1, i, cell), self.policy, self.budgets))
        return found

    def report(self, query: Message, exchange: int) -> Message:
        """The agents' answer in one exchange: one row for each, or one for all where the server takes sums."""
        report = self.algorithm.report(self.agents, query, exchange)
        check_report(self.algorithm, report)
        return tuple(report) if self.algorithm.grid(self.setting) is None else added_up(report)

    def exchange(self, server: Any, synchronisations: int) -> None:
        """All exchanges of the agents with ``server``, or a planner, after so many synchronisations."""
        self.algorithm.synchronise(server, self.agents, self.setting)

    def answer(self, message: PartyMessage) -> Any:
        match message:
            case StartRound(broadcast, first, until):
                self.start(broadcast, first)
                return self.play(until)
            case PlayUntil(until):
                return self.play(until)
            case StopRound(length):
                return self.stop(length)
            case AskReport(query, exchange):
                return self.report(query, exchange)

    # ---------------------------------------------------------------------------------------------------------- state

    def state(self) -> dict[str, Array]:
        """All that has changed since the beginning, but for the buffers of the round, by name; not copied."""
        parts = {AGENTS: self.agents.arrays(), SEEN: {} if self.seen is None else self.seen.arrays()}
        return {prefix + name: array for prefix, part in parts.items() for name, array in part.items()}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go back to what :meth:`state` said, with empty buffers."""
        self._restore_seen(arrays)
        self._make_room()
        restore(self.agents, arrays, AGENTS)
        self.driver.clear()
        self.played = 0
        self.asked = False

    def counts(self) -> dict[str, Array]:
        """What was counted in the round and cannot be played again, for :meth:`recall`; not copied."""
        return {}

    def recall(self, arrays: Mapping[str, Array], counts: Mapping[str, Array], played: int) -> None:
        """The round that was just started has been played before: play it again, or put back what it brought.

        That is what :meth:`state` and :meth:`counts` gave after it had been ``played``.
        """
        if played != self.played:
            self._move_to(played)
        least = max(self.least_episodes, self.budgets.min_length(self.first))
        self.asked = played >= least and self.driver.anyone(self.budgets.limits)

    def close(self) -> None:  # noqa: B027
        """Leave what they play in; it is made anew if there is more to play."""

    # ---------------------------------------------------------------------------------------- what parties differ in

    @abstractmethod
    def paid(self) -> Paid:
        """What the round that was just stopped paid these agents together, and where it began."""

    @abstractmethod
    def returns(self) -> CountArray:
        """Of the episodes of the round that was just stopped: a histogram."""

    @abstractmethod
    def _move_to(self, length: int) -> None:
        """Play more episodes or take some back, so that the round has that many."""

    def _make_room(self) -> None:  # noqa: B027
        """Have agents with room for what was seen."""

    def _restore_seen(self, arrays: Mapping[str, Array]) -> None:
        if named(SEEN, arrays).keys() != named(SEEN, self.state()).keys():
            raise InputError("the saved state does not fit this run: what was seen of the problem is something else.")
        if self.seen is not None:
            restore(self.seen, arrays, SEEN)


class SimulatedParty(Party):
    """Agents with simulated MDPs, played by any of the drivers; with ``episodes`` a round can be taken back.

    Of ``federation`` the common MDP is not used. If ``pooled``, the transitions of all agents are counted in one
    table, where algorithm and payments allow it. The result is the same, but agents counted in one table cannot go
    back to an earlier state.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation,
        driver: str = "episodes",
        first_agent: int = 0,
        *,
        pooled: bool = True,
    ) -> None:
        counting = algorithm.counting
        random = setting.random_rewards
        pooled = pooled and algorithm.pools and algorithm.stops_jointly and federation.pay_alike
        stationary = counting is Counting.STATIONARY
        counters = counter_type(setting, stationary=stationary, rows=federation.agents) if pooled else np.int64
        counted: dict[str, Any] = {"counting": counting, "pooled": pooled, "counters": counters}
        counted["levels"] = algorithm.level_law(setting)
        if driver != CUDA:  # which keeps what agents know on the GPU
            supports = FleetTables(federation.agents, federation.successors, federation.rewards, first_agent)
            width = np.dtype(counters).itemsize
            check_fleet_memory(algorithm, setting, supports, pooled=pooled, counter_bytes=width)
        fleet = Fleet.of(federation, setting.seed, first_agent, random_rewards=random, **counted)
        made = on_gpu(fleet, algorithm, federation, setting) if driver == CUDA else make_driver(driver, fleet)
        agents = len(made.visits)
        touched = made.fleet.touched if pooled else None
        self.random_rewards: SimulatedRewards | None = None
        tables = FleetTables(agents, federation.successors, federation.rewards, first_agent, touched)
        if random:
            self.random_rewards = SimulatedRewards(federation, counting, touched, algorithm.grid(setting))
            tables = self.random_rewards.for_agents(agents, federation.successors, first_agent, touched)
        each = [] if algorithm.stops_jointly else [fleet.agent(i) for i in range(federation.agents)]
        apart = [make_driver(driver, one) for one in each]
        super().__init__(algorithm, setting, made, tables, apart)
        self.federation = federation
        self._fleet = fleet
        self._summed = touched if len(federation.rewards) == 1 else None

    def start(self, broadcast: Message, first: int) -> None:
        super().start(broadcast, first)
        if self.federation.liars is not None:
            self.federation.liars.tamper_budgets(self.budgets.limits)

    def _transitions(self) -> CountArray:
        """The transitions of the round, after its random rewards have been read off them."""
        drawn = self.driver.transitions
        if self.random_rewards is None:
            return drawn
        return self.random_rewards.take(self.policy, drawn, self.driver.visits)

    def paid(self) -> Paid:
        """``sum_{i,h,s,a} visits^i_h(s,a) r^i_h(s,a)``, the sum that a simulation has on record."""
        visits = self.driver.visits
        policy = self.policy
        rewards = self.federation.rewards[:, : visits.shape[1]]
        if policy.ndim == 2:
            rows, _, S, A = rewards.shape
            by_step = np.broadcast_to(rewards, (rows, len(policy), S, A))
            rewards = np.take_along_axis(by_step, policy[None, ..., None], axis=3)[..., 0]
        return Paid(self.played * len(visits), float((visits * rewards).sum()), self.driver.starts.sum(axis=(0, 1)))

    def returns(self) -> CountArray:
        """The returns of the round's episodes, from the same trajectories played again."""
        histogram = new_histogram()
        self._simulated_returns.add(
            self.policy, self.first, self.played, histogram, self.return_limits, self._fleet.kept_levels
        )
        return histogram

    @cached_property
    def _simulated_returns(self) -> SimulatedReturns:
        return SimulatedReturns(self._fleet, self.federation)

    @cached_property
    def _trajectories(self) -> Driver:
        return make_driver("episodes", self._fleet)

    def exchange(self, server: Any, synchronisations: int) -> None:
        """The same, message by message if some of them are lies."""
        liars = self.federation.liars
        setting = self.setting
        if liars is None:
            super().exchange(server, synchronisations)
        else:
            tamper = partial(liars.tamper_report, synchronisations, setting.horizon)
            exchange_messages(self.algorithm, server, self.agents, setting, tamper)

    def _move_to(self, length: int) -> None:
        """Play more without regard to budgets, or replay episodes and subtract their counts."""
        limits = self.budgets.limits
        driver = self.driver
        played = self.played
        if length > played:
            driver.extend(self.policy, limits, self.first + played, length - played, False)
        else:
            driver.rewind(self.policy, limits, self.first + length, played - length)
        self.played = length


class LiveParty(Party):
    """Agents that call ``env.step`` on environments whose kernels nobody knows; supports grow with what they see.

    Agent i's environment is ``make(i)``; for ``vectorisation`` see :class:`~fed_ucbvi.engine.live.LiveFederation`.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        agents: range,
        make: Callable[[int], Any],
        units: Units,
        vectorisation: str = "sync",
    ) -> None:
        m = len(agents)
        H = setting.horizon
        S = setting.states
        A = setting.actions
        random = setting.random_rewards
        self.tables = tables = LiveTables(
            m,
            H,
            S,
            A,
            agents.start,
            algorithm.counting,
            algorithm.grid(setting) if random else None,
            fixed_rewards=not random,
            levels=algorithm.level_law(setting),
        )
        each = [] if algorithm.stops_jointly else [range(i, i + 1) for i in agents]
        everyone, *apart = self._drivers = [
            LiveDriver(tables, who, make, vectorisation, units, setting.seed) for who in (agents, *each)
        ]
        super().__init__(algorithm, setting, everyone, tables.for_agents(), apart)
        self.seen = tables
        self._width = tables.width

    def start(self, broadcast: Message, first: int) -> None:
        super().start(broadcast, first)
        self.tables.forget_payments()

    def limit_returns(self, limits: tuple[float, float]) -> None:
        super().limit_returns(limits)
        self.tables.limit_returns(limits)

    def paid(self) -> Paid:
        starts = self.tables.starts.sum(axis=(0, 1))
        total, squares = self.tables.paid.tolist()
        return Paid(int(starts.sum()), total, starts, squares)

    def returns(self) -> CountArray:
        return self.tables.returns

    def _count(self, end: RoundEnd) -> PlayedRound:
        """The agents add the counts to theirs, on wider supports if new next states have been seen."""
        if self.tables.width != self._width:
            before = self.agents.arrays()
            self._make_room()
            for name, array in self.agents.arrays().items():  # all that changes in agents
                array[..., : before[name].shape[-1]] = before[name]
            self.algorithm.budgets(self.agents, self.broadcast)
        return super()._count(end)._replace(paid=self.paid())

    def _move_to(self, length: int) -> None:
        raise InputError(
            f"the server has counted {length} episodes of this round, of which this node holds {self.played}; real "
            "environments cannot play them again. Start the node with the state folder it had."
        )

    def counts(self) -> dict[str, Array]:
        return self.tables.of_round()

    def recall(self, arrays: Mapping[str, Array], counts: Mapping[str, Array], played: int) -> None:
        self._restore_seen(arrays)
        for name, array in self.tables.of_round().items():
            put_back(name, array, counts.get(name))
        self.played = played
        super().recall(arrays, counts, played)

    def _make_room(self) -> None:
        if self.tables.width != self._width:
            self._width = self.tables.width
            self.agents = self.algorithm.new_agents(self.setting, self.tables.for_agents())

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()


def part_of(federation: Federation, first_agent: int, agents: int) -> Federation:
    """The agents from ``first_agent`` on if the federation has all M, or all of it if it has just these."""
    if federation.liars is not None:
        raise InputError("agents that lie know the reports of others; they live in simulations only.")
    if federation.agents == agents:
        part = slice(0, agents)
    elif federation.agents >= first_agent + agents:
        part = slice(first_agent, first_agent + agents)
    else:
        raise InputError(
            f"the problem has {federation.agents} agents; agents {first_agent} to {first_agent + agents - 1} need "
            f"{first_agent + agents}, or {agents} if it holds the node's own alone."
        )
    rewards = federation.rewards
    variances = federation.reward_variances
    return replace(
        federation,
        probabilities=federation.probabilities[part],
        rewards=rewards if len(rewards) == 1 else rewards[part],
        initial=federation.initial[part],
        reward_variances=variances if variances is None or len(variances) == 1 else variances[part],
        laws=None if federation.laws is None else federation.laws[part],
    )


def split_agents(agents: int, parts: int, kind: str = "nodes") -> list[tuple[int, int]]:
    """``(first agent, number of agents)`` of each part, as even as can be.

    >>> split_agents(8, 3)
    [(0, 2), (2, 3), (5, 3)]
    """
    if parts > agents:
        raise InputError(f"{agents} agents make at most {agents} {kind}, not {parts}; each has at least one.")
    edges = [agents * i // parts for i in range(parts + 1)]
    return [(first, after - first) for first, after in itertools.pairwise(edges)]
