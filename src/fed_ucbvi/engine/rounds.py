"""A run as a sequence of rounds: what is played, accounted for, recorded and recommended, and in which order.

An :class:`Engine` does no input or output. It is driven from outside, in the order of these lines::

    while not engine.done:
        play = engine.begin_round()
        played = ...                            # the agents play the round
        if played.stop.requests:
            ...                                 # the agents synchronise with engine.server
        engine.end_round(play, played)
        if engine.wants_recommendation:
            planner = engine.new_planner()
            if engine.planner_needs_reports:
                ...                             # the agents synchronise with the planner
            engine.recommend(planner)

A simulation does what the dots stand for with agents of its own (:mod:`fed_ucbvi.engine.simulation`), and a server on
the network by asking its nodes (:mod:`fed_ucbvi.network.coordinator`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Counting, Message, Setting, needs_checks
from fed_ucbvi.algorithms.communication import Meter
from fed_ucbvi.algorithms.contract import check_plan, checked_broadcast
from fed_ucbvi.algorithms.count_reporting import NO_DYNAMICS, START_DELTA, CountReporting, as_count_reporting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.first_states import largest_start_value, smallest_start_value
from fed_ucbvi.algorithms.known_dynamics import FedKLUCBVIOverLaws
from fed_ucbvi.algorithms.state_memory import check_server_memory
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray
from fed_ucbvi.engine.assumptions import Circumstances
from fed_ucbvi.engine.assurance import Assurance
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.extension import warm_setting
from fed_ucbvi.engine.judged_policies import policy_arrays, saved_policy
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.engine.regret import Score, Scorer
from fed_ucbvi.engine.state_arrays import SavedState, put_back, restore
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.policies import by_action, highest_level
from fed_ucbvi.problem.units import OWN_UNITS, PER_STEP, Units
from fed_ucbvi.results.about import About
from fed_ucbvi.results.recommendations import (
    GROWTH,
    PLANNED,
    RecommendationRow,
    Recommended,
    initial_value,
    is_due,
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
from fed_ucbvi.results.run_data import convert_run


@dataclass(frozen=True)
class Play:
    """A round for the agents to play.

    Attributes:
        broadcast: the message that begins it.
        most: the largest number of episodes, where all agents stop together.
        playing: an index into :data:`~fed_ucbvi.results.round_record.PLAYING`. Unless the round explores, the returns
            of its episodes are wanted.
        policy: a copy of the policy in the broadcast, which a synchronisation overwrites.
    """

    broadcast: Message
    most: int
    playing: int
    policy: PolicyArray


class Paid(NamedTuple):
    """Rewards and initial states of episodes, as far as they were observed: those of a round, and late ones.

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
    """A round that agents have played.

    Attributes:
        stop: how the round ended; its length is that of the agent that played most.
        visits: ``(m, *cell)``, or one row for all agents together; None where only the agents know.
        starts: number of episodes that began in each state, by level of the policy, ``(m, L, S)``, likewise.
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


class Engine:
    """A run in progress: the server, the number of episodes of every agent, and the records so far.

    Args:
        algorithm: the algorithm with its parameters.
        setting: sizes and seed of the run.
        known: the federation by which the run is scored; None where it is unknown.
        environment: name and options of the problem, for the record.
        units: units of rewards.
        driver: name of the driver that collects the data, for the record.
        together: True if all agents stop after the same episode. An agent that was away then has missed episodes.
        counts: counts of an earlier run to start from.
        promises: what the run promises while it learns.
        dynamics: known dynamics of the problem, if there are any.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        setting: Setting,
        *,
        known: Federation | None,
        environment: Mapping[str, Any],
        units: Units,
        driver: str,
        together: bool,
        counts: CountTable | None = None,
        promises: Promises | None = None,
        dynamics: Dynamics | None = None,
    ) -> None:
        self.requested = algorithm
        self.driver_name = driver
        self.together = together
        if known is not None and known.liars is not None:
            _check_withstands_liars(algorithm, setting)
        if known is not None and known.dynamics is not None and dynamics is None:
            raise InputError(
                "known dynamics are used by simulations in one process; elsewhere, count by step, state and action: "
                "use federation.without_dynamics()."
            )
        self.algorithm = algorithm
        if dynamics is not None:
            self.algorithm = as_count_reporting(algorithm, NO_DYNAMICS).with_dynamics(dynamics)
        if promises is not None:
            self.algorithm = promises.apply(self.algorithm)
        self._counting = self.algorithm if isinstance(self.algorithm, CountReporting) else None
        if counts is not None:
            setting, counts = warm_setting(self.algorithm, setting, counts)
        self.setting = setting
        self.earlier = counts
        self.known = known
        self.environment = environment
        self.units = units
        self._scorer = None if known is None else Scorer(known)
        self.assurance: Assurance | None = None
        """Keeper of the promises; None if nothing is promised."""
        if promises is not None:
            circumstances = Circumstances(
                stationary=self.algorithm.counting is Counting.STATIONARY,
                warm_start=counts is not None,
                eps_r=0.0 if known is None else known.eps_r,
            )
            if isinstance(self.algorithm, FedKLUCBVIOverLaws):
                circumstances = Circumstances.over_laws(
                    self.algorithm.dynamics,
                    eps_p=setting.eps_p,
                    warm_start=counts is not None,
                )
            self.assurance = Assurance(promises, setting, lambda: self.units, circumstances)
        check_server_memory(self.algorithm, setting)
        self.server = self.algorithm.new_server(setting)
        if counts is not None:
            self.algorithm.start_from(self.server, counts)
        if needs_checks(self.algorithm):
            self.broadcast()  # raise now what would be raised by the first round
        self._meter = Meter(self.algorithm.message_sizes(setting), setting.horizon)
        self.rows: list[RoundRow] = []
        self.recommendations: list[RecommendationRow] = []
        self.recommended: Recommended | None = None
        """The policy recommended last."""
        self.starts: CountArray = np.zeros(setting.states, dtype=np.int64)
        """How many episodes have begun in each state, where their law is unknown and someone has counted them."""
        self.present: MaskArray = np.ones(setting.agents, dtype=np.bool_)
        """Agents that take part, as a mask."""
        self.set_clock(np.zeros(setting.agents, dtype=np.int64))
        self.totals = Totals(math.nan if known is None else 0.0)
        self.seconds = 0.0
        """Wall time until the end of the last round, with that before the run was resumed."""
        self._clock_start: float | None = None

    def declare_units(self, units: Units) -> None:
        """Set the units of rewards, where agents declare them after the engine was made."""
        self.units = units

    def start_clock(self) -> None:
        """Measure the wall time of the run from now on."""
        self._clock_start = time.perf_counter() - self.seconds

    def take_part(self, present: MaskArray) -> None:
        """Set which agents take part from now on."""
        self.present[:] = present

    def set_clock(self, clock: CountArray) -> None:
        self._clock: CountArray | None = clock
        self.played = int(clock.max())

    @property
    def clock(self) -> CountArray:
        """Number of episodes played so far by each agent, ``(M,)``."""
        if self._clock is None:
            self._clock = np.full(self.setting.agents, self.played)
        return self._clock

    @property
    def done(self) -> bool:
        """True if all agents that take part have played T episodes, or what the run was to certify is certified."""
        T = self.setting.episodes
        if self.certified:
            return True
        return self.played >= T and (self.together or int(self.clock[self.present].min()) >= T)

    @property
    def certified(self) -> bool:
        """True if the run is over because the gap that was asked for is certified."""
        return self.assurance is not None and self.assurance.certified

    @property
    def planned_episodes(self) -> int:
        """Episodes that are to be played, added up over agents."""
        return self.setting.agents * self.setting.episodes

    @property
    def rounds(self) -> int:
        return self.totals.synchronisations

    @property
    def episodes_at_the_end(self) -> int:
        """Episodes per agent at the end: T, but in live runs in which agents have missed rounds."""
        if self.together:
            return self.setting.episodes
        clock = self.clock[self.present]
        left = float((self.setting.episodes - clock).sum()) / max(1, len(clock))
        return int(round(self.totals.episodes + left, 6))

    @property
    def last_length(self) -> int:
        """Number of episodes of the last round; 0 before the first."""
        return self.rows[-1].length if self.rows else 0

    # -------------------------------------------------------------------------------------------------------- a round

    def broadcast(self) -> Message:
        """The message with which the server begins a round, checked if the algorithm is not this package's own."""
        if needs_checks(self.algorithm):
            return checked_broadcast(self.algorithm, self.setting, self.server)
        return self.algorithm.broadcast(self.server)

    def begin_round(self) -> Play:
        """The next round, with the server's policy or the one that the promises ask for."""
        broadcast = self.broadcast()
        played_least = self.played
        if not self.together:
            played_least = int(self.clock[self.present].min(initial=self.played))
        most = self.setting.episodes - played_least
        playing = EXPLORING
        if self.assurance is not None:
            choice = self.assurance.choose(self.played, most)
            most = choice.most
            playing = choice.playing
            if choice.policy is not None:
                broadcast = (by_action(choice.policy, self.setting.actions), *broadcast[1:])
        return Play(broadcast=broadcast, most=most, playing=playing, policy=np.array(broadcast[0]))

    def end_round(self, play: Play, played: PlayedRound) -> None:
        """Move the clocks, score and record a round that was played and, on request, synchronised."""
        start = self.played
        if played.paid is not None:
            self.starts += played.paid.starts
        episodes = self._move_clocks(played)
        agents = int(np.count_nonzero(self.present))
        score = self._score(play.policy, played, episodes, agents, play.playing)
        cost = math.nan
        allowed = math.nan
        if self.assurance is not None:
            self._keep_promises(self.assurance, play, played, episodes, reward=score.reward * agents)
            cost, allowed = self.assurance.balance()
        stop = played.stop
        traffic = self._meter.round(agents, requesters=stop.requests, last=self.done, episodes=stop.length)
        row = RoundRow(
            start=start,
            length=stop.length,
            agent_episodes=episodes,
            agents=agents,
            regret=score.regret,
            reward=score.reward,
            value=score.value,
            requests=stop.requests,
            agent=stop.agent,
            step=stop.step,
            state=stop.state,
            action=stop.action,
            rule=stop.rule,
            messages_up=traffic.messages_up,
            messages_down=traffic.messages_down,
            bytes_up=traffic.bytes_up,
            bytes_down=traffic.bytes_down,
            reward_sd=math.nan if played.paid is None else played.paid.deviation,
            playing=play.playing,
            cost=cost,
            allowed=allowed,
        )
        self.rows.append(row)
        self.totals.add(row)
        if self._clock_start is not None:
            self.seconds = time.perf_counter() - self._clock_start

    def _keep_promises(
        self, assurance: Assurance, play: Play, played: PlayedRound, episodes: int, reward: float
    ) -> None:
        """Record a round for the promises, promote or certify what can be, and end the run if that was asked for."""
        paid, returns = _new_payments(assurance, play.playing, played, episodes, reward)
        assurance.record(play.playing, episodes, paid, returns)
        assurance.check(
            self.optimistic_value(),
            partial(self._model_value, delta=assurance.promises.parts.model),
            rounds=len(self.rows) + 1,
            played=self.played,
            ending=self.done,
        )

    def _model_value(self, policy: PolicyArray, delta: float) -> float:
        """A lower bound on a policy's value by the counts, which fails with probability ``delta``."""
        setting = self.setting
        assert self._counting is not None  # promises are made by algorithms whose agents report counts only
        low = self._counting.pessimistic_values(setting, self.server, policy, delta)
        if setting.starts_known:
            return self.initial_value(low)
        if setting.random_rewards:
            delta *= 0.5  # the other half is for rewards
        events = setting.states * setting.actions * setting.horizon + 1
        return smallest_start_value(self.starts, low[0], delta / events)

    def last_round(self) -> RoundRecord:
        """The last round, and where the run stands after it."""
        values = self.recommendations[-1][2:4] if self.recommendations else (math.nan, math.nan)
        record = self.totals.record(self.algorithm.rules, self.episodes_at_the_end, values, self.seconds)
        if self.assurance is not None:
            record = record._replace(certificate=self.assurance.issued(len(self.rows)))
            outlook = self.assurance.outlook(self.played)
            if outlook is not None:
                record = record._replace(charge=outlook.charge, explores_from=outlook.begins)
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

    def _score(self, policy: PolicyArray, played: PlayedRound, episodes: int, agents: int, playing: int) -> Score:
        """The score of a round; agents that do not report rewards count as if paid the mean of the others."""
        score = Score(regret=math.nan, reward=math.nan, value=math.nan)
        if self._scorer is not None:
            if played.visits is None or played.starts is None:
                score = self._expected_score(policy, played, self._scorer, playing)
            else:
                score = self._scorer.score(policy, played.visits, played.starts, playing=playing)
        if played.paid is not None and played.paid.episodes:
            score = score._replace(reward=played.paid.total * (episodes / played.paid.episodes) / agents)
        return score

    def _expected_score(self, policy: PolicyArray, played: PlayedRound, scorer: Scorer, playing: int) -> Score:
        """The score of a round whose visits and rewards only the agents know.

        Regret is exact where every agent always starts in one state, or where the agents have told in which states
        all episodes of the round began. Otherwise it is in expectation over the starts.
        """
        federation = scorer.federation
        counts = np.zeros_like(self.present)
        counts[federation.honest] = True
        counts &= self.present
        each = played.stop.length if played.lengths is None else played.lengths
        lengths: CountArray = np.where(counts, each, 0)
        law = federation.initial
        fixed = bool((law.max(axis=1) == 1.0).all())
        begun: CountArray = lengths[:, None] * law.astype(np.int64) * fixed
        if self.algorithm.grid(self.setting) is not None and federation.pay_alike and len(federation.rewards) == 1:
            begun = begun.sum(axis=0, keepdims=True)  # as in simulation, to the last bit
        told = played.paid is not None and int(played.paid.starts.sum()) == int(lengths.sum())
        told &= bool(counts[self.present].all())  # nobody lies
        if not fixed and told and played.paid is not None:
            begun = played.paid.starts[np.newaxis]
            fixed = True
        visits = np.zeros((len(begun), *policy.shape), dtype=np.int64)
        some = None if self.present.all() else self.present
        regret, _, value = scorer.score(policy, visits, begun[:, np.newaxis], some, playing)
        if not fixed and counts.any():
            regret = float(lengths @ (law @ scorer.gap(playing))) / int(np.count_nonzero(counts))
        return Score(regret=regret, reward=math.nan, value=value)

    # -------------------------------------------------------------------------------------------------- recommending

    @property
    def wants_recommendation(self) -> bool:
        """True if a policy is to be recommended after the round that has just ended."""
        growth = GROWTH if self.assurance is None else self.assurance.growth
        return self.done or is_due(self.played, self.recommendations, growth)

    def new_planner(self) -> Any:
        """A server that plans without a bonus, from all counts; None if the algorithm does not plan."""
        return self.algorithm.new_planner(self.setting, self.server)

    @property
    def planner_needs_reports(self) -> bool:
        """True if the agents must synchronise with a planner before it can plan.

        A server that keeps all counts has them already if the last round ended with a synchronisation.
        """
        keeps_counts = self._counting is not None
        has_all = keeps_counts and bool(self.rows) and self.rows[-1].requests > 0
        return self.algorithm.asks_to_plan and not has_all

    def planned(self, planner: Any) -> Recommended:
        """The policy to deploy by a planner that has all reports; the run does not change by it."""
        recommended = Recommended.of(self.server, planner)
        if self.assurance is not None and self.assurance.distrusts_counts(ending=self.done):
            assert self._counting is not None
            cautious = self._counting.cautious_plan(self.setting, self.server if planner is None else planner)
            if cautious is not None:
                policy, V = cautious
                recommended = Recommended(policy=policy, V=V, kind=PLANNED)
            return recommended
        values = None if planner is None else recommended.V
        check_plan(self.algorithm, self.setting, self.server, recommended.policy, values)
        return recommended

    def recommend(self, planner: Any) -> None:
        """Record the policy to deploy after this round."""
        recommended = self.planned(planner)
        if self.assurance is not None:
            estimated = self.initial_value(recommended.V)
            optimistic = self.optimistic_value()
            self.assurance.consider(recommended, estimated, optimistic)
            if self.done and self.assurance.final is not None:
                recommended = self.assurance.final
        self.recommended = recommended
        self.recommendations.append(self._row(recommended))

    def _row(self, recommended: Recommended) -> RecommendationRow:
        asked = self.planner_needs_reports
        traffic = self._meter.recommendation(
            int(np.count_nonzero(self.present)),
            recommended.policy,
            asked=asked,
            last=self.done,
            episodes=self.last_length,
        )
        return RecommendationRow(
            round=len(self.rows),
            episodes=self.played,
            optimistic=self.optimistic_value(),
            estimated=self.initial_value(recommended.V),
            value=mean_of_known(self._by_agent(recommended.policy)),
            messages_up=traffic.messages_up,
            messages_down=traffic.messages_down,
            bytes_up=traffic.bytes_up,
            bytes_down=traffic.bytes_down,
        )

    def optimistic_value(self) -> float:
        """Upper bound on what the best policy is worth in an episode, if the server's values are optimistic.

        It is the mean of ``V_1`` over the law of the first state, if that is known. Otherwise it is the largest such
        mean over all laws that the first states of this run's episodes allow; those of a warm start are not counted.
        See :mod:`fed_ucbvi.algorithms.first_states`.
        """
        if self.setting.starts_known:
            return self.initial_value(self.server.V)
        delta = START_DELTA if self._counting is None else self._counting.start_delta(self.setting)
        return largest_start_value(self.starts, self.server.V[0], delta)

    def initial_value(self, V: FloatArray) -> float:
        """The mean of ``V_1`` over initial states: over those that occurred, where their law is unknown."""
        if self.known is not None:
            return initial_value(self.known, V)
        return mean_over(self.starts, V)

    def _by_agent(self, policy: IndexArray) -> FloatArray:
        if self.known is None:
            return np.full(self.setting.agents, np.nan)
        return values_by_agent(self.known, policy)

    # ----------------------------------------------------------------------------------------------------- the result

    def saved(self) -> SavedState:
        """State from which the run can be resumed; the arrays are the run's own and change with it."""
        arrays = {f"server.{name}": array for name, array in self.server.arrays().items()}
        arrays |= {"clock": self.clock, "starts": self.starts}
        about: dict[str, Any] = {"setting": asdict(self.setting), "seconds": self.seconds, "kind": ""}
        if self.recommended is not None:
            arrays |= policy_arrays("recommended", self.recommended)
            about["kind"] = self.recommended.kind
        if self.assurance is not None:
            more, about["assurance"] = self.assurance.saved()
            arrays |= more
        rows: dict[str, Sequence[tuple[float, ...]]] = {"records": self.rows, "recommendations": self.recommendations}
        return SavedState(len(self.rows), about, arrays, rows)

    def restore(self, saved: SavedState) -> None:
        """Resume from what :meth:`saved` gave; for an engine that has played nothing."""
        arrays = saved.arrays
        clock = np.zeros_like(self.clock)
        restore(self.server, arrays, "server.")
        put_back("clock", clock, arrays.get("clock"))
        put_back("starts", self.starts, arrays.get("starts"))
        self.set_clock(clock)
        if saved.about["kind"]:
            self.recommended = saved_policy("recommended", arrays, self.setting, saved.about["kind"])
        if self.assurance is not None:
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
        policy = recommended.policy
        value = math.nan
        if self.known is not None:
            common = self.known.common
            value = float(common.initial @ common.evaluate(policy)[0])
        rescaled = Run(
            about=About.of(self.requested, self.setting, self.environment, self.known, self.driver_name),
            records=self.records(),
            policy=policy.copy(),
            policy_kind=recommended.kind,
            exploring_policy=highest_level(self.server.policy).copy(),
            V=self.server.V.copy(),
            value=value,
            estimated_value=self.initial_value(recommended.V),
            optimistic_value=self.optimistic_value(),
            by_agent=self._by_agent(policy),
            recommendations=table_of(recommendations),
            wall_seconds=self.seconds,
            complete=self.certified or self.totals.agent_episodes == self.planned_episodes,
            # certificates are in own units already
            certificates=() if self.assurance is None else tuple(self.assurance.certificates),
            units=PER_STEP,
        )
        return convert_run(rescaled, self.units, OWN_UNITS)


def _new_payments(
    assurance: Assurance, playing: int, played: PlayedRound, episodes: int, reward: float
) -> tuple[float, Mapping[int, CountArray]]:
    """Rewards of exploring above the least possible, and returns by number of the policy, not recorded before.

    On the network these are the reported ones: none if there was no sum, and possibly those of earlier episodes.
    """
    if played.visits is not None:
        least = episodes * assurance.least_return
        paid = 0.0 if playing == INCUMBENT else reward - least
        if playing == EXPLORING or played.returns is None:
            return paid, {}
        return paid, {assurance.numbers[playing == VERIFYING]: played.returns}
    reported = played.paid
    if reported is None:
        return 0.0, {}
    all_reported = reported.episodes == int(reported.starts.sum())
    return reported.exploring if all_reported else math.nan, reported.returns


def _check_withstands_liars(algorithm: Algorithm[Any, Any], setting: Setting) -> None:
    """Raise unless the algorithm takes the report of each agent, which a liar could replace."""
    if algorithm.grid(setting) is not None:
        raise InputError(
            f"{algorithm.name} adds up the reports of all agents, and a sum does not show whose report is wrong. "
            "Use byzan-ucbvi with Byzantine agents (--liars)."
        )
