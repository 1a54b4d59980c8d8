"""Records of rounds, as they are saved and as callbacks, trackers, the live page and metrics get them.

:class:`RoundRow` is the one declaration of what is saved of a round. :class:`Totals` adds rows up and makes of the
last one the :class:`RoundRecord` that callbacks get, during a run and when a saved one is shown again.
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


EXPLORING = 0
INCUMBENT = 1
VERIFYING = 2
PLAYING = ("exploring", "incumbent", "verifying")
"""Kinds of policies that a round plays: the algorithm's, the incumbent, or a policy that is being judged."""


class RoundRow(NamedTuple):
    """One row of the table of rounds, as it is saved.

    Attributes:
        start: episodes before it, of the agent that has played most.
        length: episodes in it, of that agent.
        agent_episodes: episodes in it of all agents (so many times the length where they stop together).
        agents: number of agents that took part: M, unless some joined later, were away or have left.
        regret: sum over the episodes of the round, averaged over the agents that took part.
        reward: likewise.
        value: value of the policy for one episode, averaged over these agents, each in its own MDP.
        requests: number of agents that requested the synchronisation.
        agent: the first of them; -1 in a round cut short, and under secure sums. So for the next four.
        step: step of its request, like state and action; -1 also where counts are by (state, action).
        rule: an index into the algorithm's rules.
        messages_up: from agents to server; as the paper counts them, like the next three.
        reward_sd: the standard deviation of an episode's reward over all episodes of the round whose rewards were
            observed, of all agents together; NaN where they were not observed one by one, as in simulations, which
            count transitions.
        playing: an index into :data:`PLAYING`.
        cost: upper bound on the cost of exploring so far, against the incumbent, over all episodes of all agents; NaN
            where there is no incumbent.
        allowed: the cost that is allowed; see :mod:`fed_ucbvi.engine.exploration_account`.
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
    types: dict[str, type[np.generic]] = {}
    for name, kind in get_type_hints(row).items():
        types[name] = np.int64 if kind is int else np.float64
    return types


COLUMNS = column_types(RoundRow)


def columns_of(
    rows: Sequence[tuple[float, ...]], types: Mapping[str, type[np.generic]] = COLUMNS
) -> dict[str, npt.NDArray[Any]]:
    """A table by column, from its rows."""
    table: dict[str, npt.NDArray[Any]] = {}
    for index, (name, kind) in enumerate(types.items()):
        table[name] = np.array([row[index] for row in rows], dtype=kind)
    return table


def rows_of(columns: Columns) -> list[tuple[Any, ...]]:
    """The rows of a table by column."""
    entries = [column.tolist() for column in columns.values()]
    return list(zip(*entries, strict=True))


class RoundRecord(NamedTuple):
    """One round, and where the run stands after it. Fields may be added; existing fields keep their meaning.

    Regret, reward and values are in the environment's own units; see :class:`~fed_ucbvi.problem.units.Units`. Fields
    that are not described here are described in :class:`RoundRow`.

    Attributes:
        round: its number, from 1.
        episodes: number of episodes per agent so far: every round adds the mean over the agents that took part in it;
            rounded down.
        planned_episodes: number of episodes at the end: T, except in live runs with a quorum, in which
            agents miss rounds.
        synchronisations: number so far; a round that was cut short has none.
        rule: the rule by which the first agent requested; empty if none did.
        regret: regret so far, averaged in every round over the agents that took part in it; NaN where it is unknown.
        reward: reward of an episode of this round, averaged over agents; NaN where it is unknown. In simulations with
            random rewards it is the mean of the visited cells, not the rewards that were drawn.
        optimistic_value: the server's at the last recommendation, over the initial states; NaN before the first.
        recommended_value: the planner's estimate for the policy it recommended; NaN where nothing is planned.
        bytes_up: from agents to server so far, as the paper counts them; without recommendations.
        bytes_down: from server to agents.
        seconds: since the run began.
        playing: one of :data:`PLAYING`.
        cost: upper bound on the cost of exploring per episode so far. NaN without an incumbent.
        allowed: the cost that is allowed, likewise.
        certificate: the certificate issued in this round, in words.
        charge: upper bound on the cost of one exploring episode against the incumbent; NaN once the run has explored,
            without an incumbent, and in records of a saved run.
        explores_from: number of episodes per agent after which exploring can begin, given the present data; likewise
            NaN, and while the incumbent's value may be 0.
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
        converted: dict[str, Any] = {}
        for name in ("reward", "optimistic_value", "recommended_value"):
            converted[name] = units.original_return(getattr(self, name), horizon)
        for name in ("regret", "reward_sd", "cost", "allowed", "charge"):
            converted[name] = units.original_difference(getattr(self, name))
        return self._replace(**converted)


class Totals:
    """Sums over the rounds of a run.

    Episodes per agent: every round adds the mean over the agents that took part in it. While their number stays the
    same, the episodes of all of them are added up before they are divided.
    """

    def __init__(self, regret: float = 0.0) -> None:
        self.rounds = 0
        self.synchronisations = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self.agent_episodes = 0
        self.regret = regret
        self.last: RoundRow | None = None
        # A stretch is a sequence of rounds with one number of agents.
        self._episodes_before_stretch = 0.0
        self._agents = 1
        self._agent_episodes_of_stretch = 0

    def add(self, row: RoundRow) -> None:
        agents = max(1, row.agents)
        if agents != self._agents:
            self._episodes_before_stretch = self.episodes
            self._agents = agents
            self._agent_episodes_of_stretch = 0
        self._agent_episodes_of_stretch += row.agent_episodes
        self.agent_episodes += row.agent_episodes
        self.rounds += 1
        self.synchronisations += row.requests > 0
        self.regret += row.regret
        self.bytes_up += row.bytes_up
        self.bytes_down += row.bytes_down
        self.last = row

    @property
    def episodes(self) -> float:
        """Number of episodes per agent."""
        return self._episodes_before_stretch + self._agent_episodes_of_stretch / self._agents

    def _per_episode(self, total: float) -> float:
        if math.isnan(total):
            return math.nan
        return total / self.agent_episodes

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
        optimistic, estimated = values
        reward = math.nan
        if row.agent_episodes:
            reward = row.reward * row.agents / row.agent_episodes
        return RoundRecord(
            round=self.rounds,
            episodes=int(self.episodes),
            planned_episodes=planned_episodes,
            length=row.length,
            synchronisations=self.synchronisations,
            requests=row.requests,
            agent=row.agent,
            step=row.step,
            state=row.state,
            action=row.action,
            rule=rules[row.rule] if row.rule >= 0 else "",
            regret=self.regret,
            reward=reward,
            optimistic_value=optimistic,
            recommended_value=estimated,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            seconds=seconds,
            reward_sd=row.reward_sd,
            agents=row.agents,
            playing=PLAYING[row.playing],
            cost=self._per_episode(row.cost),
            allowed=self._per_episode(row.allowed),
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
    if not len(totals):
        return ends
    episodes_before = 0.0
    total_before = 0
    changes = np.flatnonzero(np.diff(agents)) + 1
    for stretch in np.split(np.arange(len(totals)), changes):
        ends[stretch] = episodes_before + (totals[stretch] - total_before) / agents[stretch]
        episodes_before = ends[stretch[-1]]
        total_before = totals[stretch[-1]]
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
    """Records of a finished run, as ``on_round`` got them, from its tables.

    ``seconds``, ``charge`` and ``explores_from`` are not saved, and NaN.

    ``episodes`` is T; if the agents of a live run have played more, because some missed rounds, that number is used.
    """
    values_by_round: dict[int, tuple[float, float]] = {}
    for index, round_number in enumerate(recommendations["round"].tolist()):
        optimistic = float(recommendations["optimistic"][index])
        estimated = float(recommendations["estimated"][index])
        values_by_round[round_number] = (optimistic, estimated)
    ends = episodes_per_agent(records)
    planned = episodes
    if len(ends):
        planned = max(episodes, int(ends[-1]))
    values = (math.nan, math.nan)
    totals = Totals()
    for row in rows_of(records):
        totals.add(RoundRow(*row))
        values = values_by_round.get(totals.rounds, values)
        yield totals.record(rules, planned, values).in_units(units, horizon)


OnRound = Callable[[RoundRecord], None]
"""A function that is called after every round. An exception that it raises ends the run."""
