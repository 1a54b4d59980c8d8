"""The loop over rounds, written once: what is played, accounted for, recorded and recommended, and in which order.

An :class:`Engine` does no input or output. A round is a generator: it yields what it needs done, a :class:`Play` or a
:class:`Synchronise`, and is sent the answer. A simulation answers at once, from its own agents
(:mod:`fed_ucbvi.engine.simulation`). A server on the network asks its nodes, and answers once they have
(:mod:`fed_ucbvi.network.coordinator`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Message, Setting, as_sets
from fed_ucbvi.algorithms.communication import Meter
from fed_ucbvi.algorithms.contract import Contract
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray
from fed_ucbvi.engine.assurance import DELTA, NOTHING_PROMISED, Assurance, Promises, policy_arrays, saved_policy
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.extension import warm_setting
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.engine.state_store import SavedState, put_back, restore
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import About
from fed_ucbvi.results.recommendations import (
    PLANNED,
    RecommendationRow,
    Recommended,
    initial_value,
    is_due,
    is_known,
    mean_of_known,
    mean_over,
    table_of,
    values_by_agent,
)
from fed_ucbvi.results.round_record import (
    EXPLORING,
    INCUMBENT,
    VERIFYING,
    RoundRecord,
    RoundRow,
    Totals,
    columns_of,
    rows_of,
)
from fed_ucbvi.results.run import Run


class Play(NamedTuple):
    """Let the agents play the round that ``broadcast`` begins; the answer is a :class:`PlayedRound`.

    Where all agents stop together it has at most so many episodes. Unless it explores, their returns are wanted.
    """

    broadcast: Message
    most: int
    playing: int = EXPLORING


class Synchronise(NamedTuple):
    """Hold all exchanges of the agents with ``server``, which is a planner if ``planning``.

    The answer is None, or, if it became known on this occasion, what the round paid: a :class:`Paid`.
    """

    server: Any
    planning: bool


Request = Play | Synchronise
RequestT = TypeVar("RequestT")
ValueT = TypeVar("ValueT")
Steps = Generator[Request, Any, ValueT]
"""A generator that yields what it needs done, is sent the answers, and returns a value."""


class Paid(NamedTuple):
    """What episodes paid, where rewards were observed, and where they began: those of a round, and late ones.

    Attributes:
        episodes: how many, of all agents; those of agents that do not say what they were paid are not among them.
        total: the sum of their rewards.
        starts: how many of all these episodes, told or not, began in each state, ``(S,)``.
        squares: the sum over these episodes of the squared reward of an episode; NaN where nobody has added it up.
        exploring: what those paid that did not play the incumbent, above the least that an episode pays.
        returns: of episodes that played a policy that is judged, by its number
            (:mod:`fed_ucbvi.algorithms.return_bounds`).
    """

    episodes: int
    total: float
    starts: CountArray
    squares: float = math.nan
    exploring: float = 0.0
    returns: Mapping[int, CountArray] = {}

    @property
    def deviation(self) -> float:
        """The standard deviation of an episode's reward; NaN of fewer than two episodes."""
        n = self.episodes
        if n < 2 or math.isnan(self.squares):
            return math.nan
        return math.sqrt(max(0.0, self.squares - self.total * self.total / n) / (n - 1))


class PlayedRound(NamedTuple):
    """What agents have played.

    Attributes:
        stop: how the round ended; its length is that of the agent that played most.
        visits: ``(m, *cell)``, or one row for all agents together; None where only the agents know.
        starts: where episodes began, ``(m, S)``, likewise.
        lengths: how many episodes each agent played, ``(M,)``; None where all played the same number.
        paid: where rewards were observed and need not be computed.
        returns: of its episodes, where they are wanted (:mod:`fed_ucbvi.algorithms.return_bounds`).
    """

    stop: RoundEnd
    visits: CountArray | None = None
    starts: CountArray | None = None
    lengths: CountArray | None = None
    paid: Paid | None = None
    returns: CountArray | None = None


def answered(steps: Generator[RequestT, Any, ValueT], answer: Callable[[RequestT], Any]) -> ValueT:
    """What ``steps`` returns if everything it asks for is answered at once."""
    reply = None
    while True:
        try:
            request = steps.send(reply)
        except StopIteration as end:
            value: ValueT = end.value
            return value
        reply = answer(request)


class Engine:
    """A run in progress: the server, the number of episodes of every agent, and the records so far.

    Args:
        algorithm: parameters, for the record. Where agents lie, the same algorithm taking rows is what runs.
        federation: the problem, where it is known; otherwise nothing is scored.
        driver: what collects the data, for the record.
        together: whether all agents stop after the same episode. An agent that was away then has missed episodes.
        counts: of an earlier run, to start from.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        federation: Federation | None,
        driver: str,
        *,
        together: bool,
        counts: CountTable | None = None,
        promises: Promises | None = None,
    ) -> None:
        self.requested, self.driver_name, self.together = algorithm, driver, together
        lies = federation is not None and federation.liars is not None
        self.algorithm = algorithm.with_agent_reports() if lies else algorithm
        if promises is not None:
            self.algorithm = promises.apply(self.algorithm)
        if counts is not None:
            setting, counts = warm_setting(self.algorithm, setting, counts)
        self.setting = setting
        self.earlier = counts
        self.scored = federation
        self._law_known = federation is not None and is_known(federation)
        self._scorer = None if federation is None else Scorer(federation)
        self.units = Units() if federation is None else Units.of(federation.description)
        """Of rewards, as environments pay them."""
        self.promised = promises is not None
        self.assurance = Assurance(promises or NOTHING_PROMISED, setting, lambda: self.units)
        """What keeps the promises, if there are any."""
        if federation is not None:
            self.assurance.eps_r = federation.eps_r
        self.contract = Contract(self.algorithm, setting, setting.agents)
        self.server = self.algorithm.new_server(setting)
        if counts is not None:
            self.algorithm.start_from(self.server, counts)
        self.contract.broadcast(self.server)
        self._meter = Meter(self.algorithm, setting)
        self.rows: list[RoundRow] = []
        self.recommendations: list[RecommendationRow] = []
        self.recommended: Recommended | None = None
        """The policy recommended last."""
        self.starts: CountArray = np.zeros(setting.states, dtype=np.int64)
        """How many episodes have begun in each state, where their law is unknown and someone has counted them."""
        self.present: MaskArray = np.ones(setting.agents, dtype=np.bool_)
        """Which agents take part."""
        self.set_clock(np.zeros(setting.agents, dtype=np.int64))
        self.totals = Totals(0.0 if federation is not None else math.nan)
        self.seconds = 0.0

    def set_clock(self, clock: CountArray) -> None:
        self._clock: CountArray | None = clock
        self.played = int(clock.max())

    @property
    def clock(self) -> CountArray:
        """How many episodes each agent has played, ``(M,)``."""
        if self._clock is None:
            self._clock = np.full(self.setting.agents, self.played)
        return self._clock

    @property
    def done(self) -> bool:
        """Whether all agents that take part have played T episodes, or what the run was to certify is certified."""
        T = self.setting.episodes
        all_played = self.played >= T and (self.together or int(self.clock[self.present].min()) >= T)
        return self.assurance.certified or all_played

    @property
    def learns(self) -> bool:
        """Whether anything but the value of one policy is to be found out."""
        return not self.assurance.promises.only

    @property
    def planned_episodes(self) -> int:
        """Episodes that are to be played, added up over agents."""
        return self.setting.agents * self.setting.episodes

    @property
    def rounds(self) -> int:
        return self.totals.synchronisations

    @property
    def episodes_at_the_end(self) -> int:
        """What they come to if those that take part now play all theirs: T, but in live runs that agents joined."""
        if self.together:
            return self.setting.episodes
        clock = self.clock[self.present]
        left = float((self.setting.episodes - clock).sum()) / max(1, len(clock))
        return int(round(self.totals.episodes + left, 6))

    @property
    def last_length(self) -> int:
        """Of the last round; 0 before the first."""
        return self.rows[-1].length if self.rows else 0

    # -------------------------------------------------------------------------------------------------------- a round

    def round(self) -> Steps[None]:
        """One round: broadcast, play, synchronise if requested, score, record, and recommend if it is time."""
        broadcast = self.contract.broadcast(self.server)
        assurance, start, most = self.assurance, self.played, self.setting.episodes - self.played
        if not self.together:
            most = self.setting.episodes - int(self.clock[self.present].min(initial=self.played))
        playing, table, most = assurance.choose(start, most)
        if table is not None:
            broadcast = (as_sets(table, self.setting.actions), *broadcast[1:])
        policy = np.array(broadcast[0])  # a synchronisation writes over the policy
        played: PlayedRound = yield Play(broadcast, most, playing)
        stop = played.stop
        if stop.requests:
            paid: Paid | None = yield Synchronise(self.server, planning=False)
            played = played if paid is None else played._replace(paid=paid)
        if played.paid is not None:
            self.starts += played.paid.starts
        episodes = self._move_clocks(played)
        agents = self._meter.agents = int(np.count_nonzero(self.present))
        score = self._score(policy, played, episodes, agents, playing)
        if self.promised:
            assurance.record(playing, episodes, *_told(assurance, playing, played, episodes, score[1] * agents))
            where = len(self.rows) + 1, self.played
            assurance.check(self.initial_value(self.server.V), self._model_value, *where, ending=self.done)
        done, promise = self.done, (playing, *assurance.balance())
        traffic = self._meter.round(stop.requests, done, stop.length)
        spread = math.nan if played.paid is None else played.paid.deviation
        row = RoundRow(start, stop.length, episodes, agents, *score, *stop[1:], *traffic, spread, *promise)
        self.rows.append(row)
        self.totals.add(row)
        if done or (is_due(self.played, self.recommendations, assurance.growth) and self.learns):
            recommended = yield from self.plan()
            if self.promised and self.learns:
                values = self.initial_value(recommended.V), self.initial_value(self.server.V)
                assurance.consider(recommended, *values)
                if done and assurance.final is not None:
                    recommended = assurance.final
            self.recommended = recommended
            self.recommendations.append(self._row(recommended))

    def _model_value(self, policy: PolicyArray) -> float:
        """What a policy is worth at least by the counts; half of delta is for them, as it is optimism's."""
        low = self.algorithm.pessimistic_values(self.setting, self.server, policy, 0.5 * DELTA)
        return self.initial_value(low)

    def last_round(self) -> RoundRecord:
        """The last round, and where the run stands after it."""
        values = self.recommendations[-1][2:4] if self.recommendations else (math.nan, math.nan)
        record = self.totals.record(self.algorithm.rules, self.episodes_at_the_end, values, self.seconds)
        record = record._replace(certificate=self.assurance.issued(len(self.rows)))
        return record.in_units(self.units, self.setting.horizon)

    def _move_clocks(self, played: PlayedRound) -> int:
        """Add the round's episodes to those of each agent that takes part; the sum over agents."""
        if played.lengths is None:
            self.played += played.stop.length
            self._clock = None  # all the same
            return self.setting.agents * played.stop.length
        ends = played.lengths + (self.played if self.together else self.clock)
        self.set_clock(np.where(self.present, ends, self.clock))
        return int(played.lengths[self.present].sum())

    def _score(
        self, policy: PolicyArray, played: PlayedRound, episodes: int, agents: int, playing: int
    ) -> tuple[float, float, float]:
        """``(regret, reward, value)`` of the round, for each of the agents that took part; NaN where nobody knows.

        Where some agents do not say what they were paid, the mean of the others stands for theirs.
        """
        regret, reward, value = math.nan, math.nan, math.nan
        if self._scorer is not None:
            if played.visits is None or played.starts is None:
                regret, reward, value = self._expected_score(policy, played, self._scorer, playing)
            else:
                regret, reward, value = self._scorer.score(policy, played.visits, played.starts, playing=playing)
        if played.paid is not None and played.paid.episodes:
            reward = played.paid.total * (episodes / played.paid.episodes) / agents
        return regret, reward, value

    def _expected_score(
        self, policy: PolicyArray, played: PlayedRound, scorer: Scorer, playing: int
    ) -> tuple[float, float, float]:
        """The same for a round whose visits only the agents know; the server does not know what they were paid.

        Regret is exact where every agent always starts in one state, and otherwise in expectation over the starts.
        """
        federation, counts = scorer.federation, np.zeros_like(self.present)
        counts[federation.honest] = True
        counts &= self.present
        each = played.stop.length if played.lengths is None else played.lengths
        lengths: CountArray = np.where(counts, each, 0)
        law = federation.initial
        fixed = bool((law.max(axis=1) == 1.0).all())
        begun: CountArray = lengths[:, None] * law.astype(np.int64) * fixed
        if self.algorithm.pools and federation.pay_alike and len(federation.rewards) == 1:
            begun = begun.sum(axis=0, keepdims=True)  # as in simulation, to the last bit
        visits = np.zeros((len(begun), *policy.shape), dtype=np.int64)
        some = None if self.present.all() else self.present
        regret, _, value = scorer.score(policy, visits, begun, some, playing)
        if not fixed and counts.any():
            regret = float(lengths @ (law @ scorer.gap(playing))) / int(np.count_nonzero(counts))
        return regret, math.nan, value

    # -------------------------------------------------------------------------------------------------- recommending

    def plan(self) -> Steps[Recommended]:
        """The policy to deploy, planned from all counts; the run does not change by it."""
        if self.assurance.incumbent is not None and not self.learns:
            return self.assurance.incumbent.recommended
        planner = self.algorithm.new_planner(self.setting, self.server)
        if planner is not None and self._asks_to_plan:
            yield Synchronise(planner, planning=True)
        recommended, assurance = Recommended.of(self.server, planner), self.assurance
        if assurance.thin and (assurance.candidate is None or self.done):
            cautious = self.algorithm.cautious_plan(self.setting, self.server if planner is None else planner)
            return recommended if cautious is None else Recommended(*cautious, PLANNED)
        self.contract.check_plan(self.server, recommended.policy, None if planner is None else recommended.V)
        return recommended

    @property
    def _asks_to_plan(self) -> bool:
        """Whether a planner needs the agents' reports now: a server that keeps all counts may have them already."""
        has_all = self.algorithm.server_counts and bool(self.rows) and self.rows[-1].requests > 0
        return self.learns and self.algorithm.asks_to_plan and not has_all

    def _row(self, recommended: Recommended) -> RecommendationRow:
        self._meter.agents = int(np.count_nonzero(self.present))
        asked, last = self._asks_to_plan, self.last_length
        if self.algorithm.another_form:  # as published: what is counted is the paper's exchange
            asked = self.algorithm.asks_to_plan
        return RecommendationRow(
            len(self.rows),
            self.played,
            self.initial_value(self.server.V),
            self.initial_value(recommended.V),
            mean_of_known(self._by_agent(recommended.policy)),
            *self._meter.recommendation(recommended.policy, asked=asked, last=self.done, episodes=last),
        )

    def initial_value(self, V: FloatArray) -> float:
        """The mean of ``V_1`` over initial states: over those that occurred, where their law is unknown."""
        if self.scored is not None and self._law_known:
            return initial_value(self.scored, V)
        return mean_over(self.starts, V)

    def _by_agent(self, policy: IndexArray) -> FloatArray:
        unknown: FloatArray = np.full(self.setting.agents, np.nan)
        return unknown if self.scored is None else values_by_agent(self.scored, policy)

    # ----------------------------------------------------------------------------------------------------- the result

    def saved(self) -> SavedState:
        """What is needed to resume from here; the arrays are the run's own and change with it."""
        arrays = {f"server.{name}": array for name, array in self.server.arrays().items()}
        arrays |= {"clock": self.clock, "starts": self.starts}
        about: dict[str, Any] = {"setting": asdict(self.setting), "seconds": self.seconds, "kind": ""}
        if self.recommended is not None:
            arrays |= policy_arrays("recommended", self.recommended)
            about["kind"] = self.recommended.kind
        if self.promised:
            more, about["assurance"] = self.assurance.saved()
            arrays |= more
        rows: dict[str, Sequence[tuple[float, ...]]] = {"records": self.rows, "recommendations": self.recommendations}
        return SavedState(len(self.rows), about, arrays, rows)

    def restore(self, saved: SavedState) -> None:
        """Resume from what :meth:`saved` gave; for an engine that has played nothing."""
        arrays, clock = saved.arrays, np.zeros_like(self.clock)
        restore(self.server, arrays, "server.")
        put_back("clock", clock, arrays.get("clock"))
        put_back("starts", self.starts, arrays.get("starts"))
        self.set_clock(clock)
        if saved.about["kind"]:
            self.recommended = saved_policy("recommended", arrays, self.setting, saved.about["kind"])
        if self.promised:
            self.assurance.restore(arrays, saved.about["assurance"])
        self.seconds = float(saved.about["seconds"])
        self.rows = [RoundRow(*row) for row in rows_of(columns_of(saved.rows.get("records", ())))]
        recommendations = rows_of(table_of(saved.rows.get("recommendations", ())))
        self.recommendations = [RecommendationRow(*row) for row in recommendations]
        for row in self.rows:
            self.totals.add(row)

    def records(self) -> dict[str, Array]:
        return columns_of(self.rows)

    def result(self) -> Run:
        """The run as it stands, with the policy recommended last."""
        recommended = self.recommended
        if recommended is None:  # nothing has been played
            recommended = Recommended.of(self.server, self.algorithm.new_planner(self.setting, self.server))
        return self._result(recommended, self.recommendations)

    def _result(self, recommended: Recommended, recommendations: Sequence[RecommendationRow]) -> Run:
        common, policy = None if self.scored is None else self.scored.common, recommended.policy
        return Run(
            about=About.of(self.requested, self.setting, self.scored, self.driver_name),
            records=self.records(),
            policy=policy.copy(),
            policy_kind=recommended.kind,
            exploring_policy=self.server.policy.copy(),
            V=self.server.V.copy(),
            value=math.nan if common is None else float(common.initial @ common.evaluate(policy)[0]),
            estimated_value=self.initial_value(recommended.V),
            optimistic_value=self.initial_value(self.server.V),
            by_agent=self._by_agent(policy),
            recommendations=table_of(recommendations),
            wall_seconds=self.seconds,
            complete=self.assurance.certified or self.totals.agent_episodes == self.planned_episodes,
            certificates=tuple(self.assurance.certificates),
        )


def _told(
    assurance: Assurance, playing: int, played: PlayedRound, episodes: int, reward: float
) -> tuple[float, Mapping[int, CountArray]]:
    """What exploring has paid above the least, and returns by the numbers of policies, as far as they are news.

    On the network that is what was reported: nothing if no sum came about, else of late episodes too.
    """
    told = played.paid
    if played.visits is not None:
        returns = {} if played.returns is None else {assurance.numbers[playing == VERIFYING]: played.returns}
        least = episodes * assurance.range()[0]
        return 0.0 if playing == INCUMBENT else reward - least, {} if playing == EXPLORING else returns
    if told is None:
        return 0.0, {}
    return told.exploring if told.episodes == int(told.starts.sum()) else math.nan, told.returns
