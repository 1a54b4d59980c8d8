"""A round on record, and what a run says of it while it goes on: to callbacks, trackers, the live page and metrics.

:class:`RoundRow` is the one declaration of what is kept of a round. :class:`Totals` adds rows up and makes of the
last one the :class:`RoundRecord` that callbacks are given, during a run and when a saved one is shown again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.units import Units

Columns = Mapping[str, npt.NDArray[Any]]
"""A table by column."""


EXPLORING, INCUMBENT, VERIFYING = range(3)
PLAYING = ("exploring", "incumbent", "verifying")
"""What a round plays: the algorithm's policy, what was played before it came, or a policy that is to be judged."""


class RoundRow(NamedTuple):
    """What is kept of a round, as it is saved.

    Attributes:
        start: episodes before it, of the agent that has played most.
        length: episodes in it, of that agent.
        agent_episodes: episodes in it of all agents (so many times the length where they stop together).
        agents: how many took part: M, unless some came later, were away or have left.
        regret: the sum over its episodes, averaged over the agents that took part.
        reward: likewise.
        value: of its policy for one episode, averaged over them, each in its own MDP.
        requests: how many agents requested the synchronisation.
        agent: the first of them; -1 in a round cut short, and under secure sums. So for the next four.
        step: of its request, like state and action; -1 also where counts are by (state, action).
        rule: an index into the algorithm's rules.
        messages_up: from agents to server; as the paper counts them, like the next three.
        reward_sd: the standard deviation of an episode's reward over all episodes of the round whose rewards were
            observed, of all agents together; NaN where they were not observed one by one, as in simulations, which
            count transitions.
        playing: an index into :data:`PLAYING`.
        cost: what exploring has cost at most so far, against the incumbent, over all episodes of all agents; NaN
            where there is no incumbent.
        allowed: what it may have cost; see :mod:`fed_ucbvi.engine.assurance`.
    """

    start: int
    length: int
    agent_episodes: int
    agents: int
    regret: float
    reward: float
    value: float
    requests: int
    agent: int
    step: int
    state: int
    action: int
    rule: int
    messages_up: int
    messages_down: int
    bytes_up: int
    bytes_down: int
    reward_sd: float
    playing: int = 0
    cost: float = math.nan
    allowed: float = math.nan


def column_types(row: type[tuple[Any, ...]]) -> dict[str, type[np.generic]]:
    """The types of a table's columns, from the named tuple that declares its rows."""
    return {name: np.int64 if kind is int else np.float64 for name, kind in get_type_hints(row).items()}


COLUMNS = column_types(RoundRow)


def columns_of(
    rows: Sequence[tuple[float, ...]], types: Mapping[str, type[np.generic]] = COLUMNS
) -> dict[str, npt.NDArray[Any]]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return {name: np.array(column, dtype=kind) for (name, kind), column in zip(types.items(), columns, strict=True)}


def rows_of(columns: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


class RoundRecord(NamedTuple):
    """One round, and where the run stands after it. Fields may be added; those that are here keep their meaning.

    Regret, reward and values are in the environment's own units; see :class:`~fed_ucbvi.problem.units.Units`. What is
    not described here is described in :class:`RoundRow`.

    Attributes:
        round: its number, from 1.
        episodes: per agent, so far: every round adds the mean over the agents that took part in it, and what is
            less than an episode is left out.
        planned_episodes: their number at the end: T, but in live runs with a quorum, in which agents miss rounds.
        synchronisations: so far; a round that was cut short has none.
        rule: the rule by which the first agent requested; empty if none did.
        regret: so far, averaged in every round over the agents that took part in it; NaN where it is unknown.
        reward: of an episode of this round, averaged over agents; NaN where it is unknown. In simulations with random
            rewards it is the mean of the cells that were visited, not what was drawn.
        optimistic_value: the server's at the last recommendation, over the initial states; NaN before the first.
        recommended_value: the planner's estimate for the policy it recommended; NaN where nothing is planned.
        bytes_up: from agents to server so far, as the paper counts them; recommendations are not in it.
        bytes_down: the other way.
        seconds: since the run began.
        playing: one of :data:`PLAYING`.
        cost: what exploring has cost an episode at most so far; ``allowed``, what it may have. NaN without incumbent.
        certificate: that was issued in this round, in words.
        charge: the most that one episode of exploring can cost against the incumbent; NaN once the run has explored,
            without an incumbent, and in records of a saved run.
        explores_from: number of episodes per agent after which exploring can begin, by what is known now; likewise
            NaN, and while the incumbent's worth may be 0.
    """

    round: int
    episodes: int
    planned_episodes: int
    length: int
    synchronisations: int
    requests: int
    agent: int
    step: int
    state: int
    action: int
    rule: str
    regret: float
    reward: float
    optimistic_value: float
    recommended_value: float
    bytes_up: int
    bytes_down: int
    seconds: float
    reward_sd: float = math.nan
    agents: int = 0
    playing: str = PLAYING[EXPLORING]
    cost: float = math.nan
    allowed: float = math.nan
    certificate: str = ""
    charge: float = math.nan
    explores_from: float = math.nan

    @property
    def gap(self) -> float:
        """Between the optimistic and the recommended value; see :mod:`fed_ucbvi.results.recommendations`."""
        return self.optimistic_value - self.recommended_value

    def in_units(self, units: Units, horizon: int) -> RoundRecord:
        """This record in other units; its rewards are in [0, 1] a step."""
        if units == Units():
            return self
        values = ("reward", "optimistic_value", "recommended_value")
        differences = ("regret", "reward_sd", "cost", "allowed", "charge")
        own: dict[str, Any] = {name: units.original_return(getattr(self, name), horizon) for name in values}
        own |= {name: units.original_difference(getattr(self, name)) for name in differences}
        return self._replace(**own)


class Totals:
    """What the rounds of a run add up to.

    Episodes per agent: every round adds the mean over the agents that took part in it. While their number stays the
    same, the episodes of all of them are added up before they are divided.
    """

    def __init__(self, regret: float = 0.0) -> None:
        self.rounds = self.synchronisations = self.bytes_up = self.bytes_down = self.agent_episodes = 0
        self.regret = regret
        self.last: RoundRow | None = None
        self._before = 0.0
        self._agents = 1
        self._episodes = 0
        """Episodes per agent before the last rounds with one number of agents; that number; all their episodes."""

    def add(self, row: RoundRow) -> None:
        agents = max(1, row.agents)
        if agents != self._agents:
            self._before = self.episodes
            self._agents = agents
            self._episodes = 0
        self._episodes += row.agent_episodes
        self.agent_episodes += row.agent_episodes
        self.rounds += 1
        self.synchronisations += row.requests > 0
        self.regret += row.regret
        self.bytes_up += row.bytes_up
        self.bytes_down += row.bytes_down
        self.last = row

    @property
    def episodes(self) -> float:
        """Per agent."""
        return self._before + self._episodes / self._agents

    def _per_episode(self, total: float) -> float:
        return math.nan if math.isnan(total) else total / self.agent_episodes

    def record(
        self,
        rules: Sequence[str],
        planned_episodes: int,
        values: tuple[float, float],
        seconds: float = math.nan,
    ) -> RoundRecord:
        """The last round, and where the run stands after it, if every step pays between 0 and 1.

        ``values`` are the optimistic and the estimated one at the last recommendation.
        """
        row = self.last
        assert row is not None, "a round has been added"
        as_they_are = (
            "length",
            "requests",
            "agent",
            "step",
            "state",
            "action",
            "reward_sd",
            "agents",
        )
        return RoundRecord(
            round=self.rounds,
            episodes=int(self.episodes),
            planned_episodes=planned_episodes,
            rule=rules[row.rule] if row.rule >= 0 else "",
            reward=row.reward * row.agents / row.agent_episodes if row.agent_episodes else math.nan,
            optimistic_value=values[0],
            recommended_value=values[1],
            seconds=seconds,
            playing=PLAYING[row.playing],
            cost=self._per_episode(row.cost),
            allowed=self._per_episode(row.allowed),
            **{name: getattr(self, name) for name in ("synchronisations", "regret", "bytes_up", "bytes_down")},
            **{name: getattr(row, name) for name in as_they_are},
        )


def episodes_per_agent(records: Columns) -> FloatArray:
    """Episodes per agent after each round, as :class:`Totals` adds them up.

    >>> rounds = {"agent_episodes": np.array([2, 2, 8]), "agents": np.array([2, 2, 4])}
    >>> episodes_per_agent(rounds).tolist()
    [1.0, 2.0, 4.0]
    """
    totals = np.cumsum(records["agent_episodes"], dtype=np.int64)
    agents = np.maximum(records["agents"], 1)
    ends = np.empty(len(totals))
    before = 0.0
    earlier = 0
    changes = np.flatnonzero(np.diff(agents)) + 1
    for stretch in np.split(np.arange(len(totals)), changes) if len(totals) else ():
        ends[stretch] = before + (totals[stretch] - earlier) / agents[stretch]
        before = ends[stretch[-1]]
        earlier = totals[stretch[-1]]
    return ends


def replay(
    records: Columns,
    recommendations: Columns,
    *,
    episodes: int,
    rules: Sequence[str],
    units: Units,
    horizon: int,
) -> Iterator[RoundRecord]:
    """What ``on_round`` was called with, from the tables of a run.

    ``seconds``, ``charge`` and ``explores_from`` are not saved, and NaN.

    ``episodes`` is T; a live run whose agents have missed rounds may have more per agent, and then that is given.
    """
    recommended = zip(
        *(recommendations[name].tolist() for name in ("round", "optimistic", "estimated")),
        strict=True,
    )
    by_round = {int(number): (optimistic, estimated) for number, optimistic, estimated in recommended}
    values = (math.nan, math.nan)
    totals = Totals()
    planned = max([episodes, *episodes_per_agent(records)[-1:].astype(int).tolist()])
    for row in rows_of(records):
        totals.add(RoundRow(*row))
        values = by_round.get(totals.rounds, values)
        yield totals.record(rules, planned, values).in_units(units, horizon)


OnRound = Callable[[RoundRecord], None]
"""Is called after every round. What it raises ends the run."""
