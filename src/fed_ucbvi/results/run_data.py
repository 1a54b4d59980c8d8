"""The records of a run, the figures and curves computed from them, and the callbacks of a run in progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.communication import Traffic
from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.core.numbers import byte_count, none_for_nan
from fed_ucbvi.core.text import Tabled
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.problem.units import OWN_UNITS, UNITS, Units
from fed_ucbvi.results.about import About
from fed_ucbvi.results.own_units import (
    convert_about,
    convert_certificate,
    convert_recommendations,
    convert_records,
    convert_values,
)
from fed_ucbvi.results.recommendations import AgentsValue, Certificate, policy_digest
from fed_ucbvi.results.round_record import PLAYING, OnRound, RoundRecord, episodes_per_agent, rows_of

if TYPE_CHECKING:
    import polars as pl

FAST_RADIUS = 0.5
"""The radius of ``FedKLUCBVI.fast()``."""
RunT = TypeVar("RunT", bound="RunData")
CURVE_POINTS = 400
MAX_ENDS = 4000
"""The most ends of rounds on a curve."""
EPISODE_ROUNDING = 1e-9
"""Numbers of episodes below this share of the total are 0 up to rounding."""


class Worth(NamedTuple):
    """A figure for the value of a policy, and its description in a sentence."""

    figure: float
    description: str


@dataclass(frozen=True, eq=False)
class RunData(Tabled):
    """The results of a finished (or interrupted) run; :class:`~fed_ucbvi.results.run.Run` adds files and pictures.

    Rewards, values and regret are in the environment's own units; see :meth:`in_units`.

    Attributes:
        about: algorithm, environment, sizes, seed, driver, versions.
        records: one entry for each round, by column; see :data:`~fed_ucbvi.results.round_record.COLUMNS`.
        policy: the recommended policy, ``(H, S)``: planned without bonus from all counts, to be deployed. Where a
            run recommends an incumbent that draws its actions, ``(H, S, A)``.
        policy_kind: how it was made; one of :data:`~fed_ucbvi.results.recommendations.KINDS`.
        exploring_policy: the optimistic policy that would be played next: ``(H, S)``, or a set of actions for each
            (h,s), ``(H, S, A)``.
        V: the server's optimistic values at the end, ``(H+1, S)``.
        value: value of the recommended policy in the common MDP from its initial distribution.
        estimated_value: estimate of that value, the mean of the planner's ``V_1`` over the initial states; NaN where
            nothing was planned.
        optimistic_value: the server's, ``1/M sum_i sum_s mu^i(s) V_1(s)``.
        by_agent: value of the recommended policy to each agent in its own MDP, ``(M,)``; NaN for liars.
        recommendations: the policies recommended during the run, with their gap, by column; see
            :data:`~fed_ucbvi.results.recommendations.COLUMNS`.
        wall_seconds: duration of the run; NaN in the files of a sweep, whose journal has it.
        complete: true if every agent has played all its episodes, from when it joined until the end or until it left,
            or if the run has ended with the certificate that it was to end with.
        certificates: certificates issued during the run.
        units: units of rewards, values and regret; one of :data:`~fed_ucbvi.problem.units.UNITS`.
    """

    about: About
    records: Mapping[str, npt.NDArray[Any]]
    policy: PolicyArray
    policy_kind: str
    exploring_policy: npt.NDArray[Any]
    V: FloatArray
    value: float
    estimated_value: float
    optimistic_value: float
    by_agent: FloatArray
    recommendations: Mapping[str, npt.NDArray[Any]]
    wall_seconds: float
    complete: bool
    certificates: tuple[Certificate, ...] = ()
    units: str = OWN_UNITS

    def in_units(self: RunT, units: str) -> RunT:
        """The run with its figures in the units ``own`` (the environment's) or ``per step in [0, 1]``.

        In the latter every step pays between 0 and 1, as the algorithms count. All tables, pictures and comparisons
        made of the result are in these units.

        >>> from fed_ucbvi import FedUCBVI, make_environment, run
        >>> cliff = run(FedUCBVI(), make_environment("windy_cliff", agents=2), 50)
        >>> round(cliff.about.optimal_value, 1), round(cliff.in_units("per step in [0, 1]").about.optimal_value, 1)
        (151.1, 10.8)
        """
        check_choice("units", units, UNITS)
        if units == self.units:
            return self
        own = Units.of(self.about.environment)
        conversion = own if units == OWN_UNITS else own.inverse()
        H = self.about.horizon
        certificates = tuple(convert_certificate(one, conversion, H) for one in self.certificates)
        return replace(convert_run(self, conversion, units), certificates=certificates)

    @property
    def certificate(self) -> Certificate | None:
        """The last certificate for the recommended policy; None where nothing is certified."""
        digest = policy_digest(self.policy)
        for certificate in reversed(self.certificates):
            if certificate.policy_sha256 == digest:
                return certificate
        return None

    @cached_property
    def round_ends(self) -> FloatArray:
        """Episodes per agent after each round: every round adds the mean over the agents that took part in it."""
        return episodes_per_agent(self.records)

    @property
    def _episodes(self) -> float:
        if not len(self.round_ends):
            return 0.0
        return float(self.round_ends[-1])

    @property
    def episodes_played(self) -> int:
        """Episodes per agent, rounded down: T if the run is complete.

        They may be more than T if agents of a live run missed rounds.
        """
        return int(self._episodes)

    @property
    def unfinished(self) -> str:
        """Reason why the run is not complete, in words; empty if it is complete."""
        if self.complete:
            return ""
        if self.episodes_played < self.about.episodes:
            return f"interrupted after {self.episodes_played:,} episodes"
        return "agents have missed episodes"

    @property
    def regret(self) -> float:
        """The common regret after the last episode (``def:common_regret``), per agent that took part."""
        return float(self.sum_at("regret", self._episodes))

    @property
    def simple_regret(self) -> float:
        """Loss of the recommended policy in one episode in the common MDP: ``V*_1(mu) - V^pi_1(mu)``."""
        return self.about.optimal_value - self.value

    @property
    def gap(self) -> float:
        """The optimistic value minus the recommended policy's estimated one; NaN where nothing was planned.

        If the server's values are optimistic, the gap bounds the loss of the policy, up to the error of the estimate;
        see :mod:`fed_ucbvi.results.recommendations`.
        """
        return self.optimistic_value - self.estimated_value

    @property
    def rounds(self) -> int:
        """Communication rounds: the synchronisations that an agent requested."""
        return int((self.records["requests"] > 0).sum())

    @property
    def average_reward(self) -> float:
        """Reward an agent collected per episode, in its own MDP, averaged over agents and episodes.

        Rounds whose reward is unknown are left out; :attr:`rewarded_episodes` is the number of the other episodes.
        NaN if no reward is known.
        """
        if not len(self.round_ends):
            return 0.0
        known = ~np.isnan(self.records["reward"])
        if not known.any():
            return math.nan
        return float(self.records["reward"][known].sum()) / self.rewarded_episodes

    @property
    def rewarded_episodes(self) -> float:
        """Episodes per agent in rounds whose reward is known."""
        return self._episodes - float(self._unrewarded.sum())

    @cached_property
    def _unrewarded(self) -> FloatArray:
        """Episodes per agent of each round whose reward is unknown, and 0 for the others."""
        each = np.diff(self.round_ends, prepend=0.0)
        return np.where(np.isnan(self.records["reward"]), each, 0.0)

    @property
    def recent_reward(self) -> float:
        """The average reward over the last tenth of the episodes; all episodes of a round count alike.

        Rounds whose reward is unknown are left out. NaN if no reward of the last tenth is known.
        """
        T = self._episodes
        if T == 0.0:
            return math.nan
        points = [0.9 * T, T]
        reward_before, reward_at_end = self.sum_at("reward", points)
        unknown_before, unknown_at_end = self._interpolated(self._unrewarded, points)
        episodes = 0.1 * T - float(unknown_at_end - unknown_before)
        if episodes <= EPISODE_ROUNDING * T:
            return math.nan
        return float(reward_at_end - reward_before) / episodes

    @property
    def agents_value(self) -> AgentsValue:
        """Value of the recommended policy to the honest agents, each in its own MDP: mean, worst and best."""
        return AgentsValue.of(self.by_agent)

    @property
    def learnt_little(self) -> bool:
        """True if the recommended policy is worth less than half of the server's optimistic value.

        Both are counted from the least that an episode can pay. The worth of the policy is the mean over agents if
        their MDPs are known, and otherwise the plan's estimate. If nothing was planned, it is the mean reward of the
        last tenth of the episodes. A policy that is within 1 % of the optimum in the common MDP is good enough in any
        case.
        """
        if self.units == OWN_UNITS:
            least = self.about.horizon * Units.of(self.about.environment).offset
        else:
            least = 0.0
        worth = self._worth().figure - least
        optimistic = self.optimistic_value - least
        near_optimal = self.value - least >= 0.99 * (self.about.optimal_value - least)
        return self.episodes_played > 0 and worth < 0.5 * optimistic and not near_optimal

    @property
    def advice(self) -> str | None:
        """Suggestion for a run that has learnt little, in one sentence; None if no advice is needed."""
        if not self.learnt_little:
            return None
        parameters = self.about.parameters
        suggestions = ["more episodes"]
        for name in ("bonus_scale", "scale"):
            scale = parameters.get(name)
            if scale:
                suggestions.append(f"a smaller {name} ({scale / 10:g} instead of {scale:g})")
        radius = parameters.get("radius", 0.0)
        if radius > FAST_RADIUS:
            suggestions.append(f"a smaller radius ({FAST_RADIUS:g} instead of {radius:g}, without proof)")
        if parameters.get("stationary") is False:
            suggestions.append("stationary=true if kernel and rewards do not depend on the step")
        if parameters.get("clip") == "horizon":
            suggestions.append("clip='remaining'")
        worth = self._worth()
        return (
            f"has learnt little: the server's optimistic value is still {self.optimistic_value:,.4g} per "
            f"episode, {worth.description} {worth.figure:,.4g}; try {', '.join(suggestions)}"
        )

    def _worth(self) -> Worth:
        """The best available figure for the value of the policy."""
        worths = (
            Worth(self.agents_value.mean, "the policy is worth"),
            Worth(self.estimated_value, "the policy is estimated at"),
            Worth(self.recent_reward, "the last tenth of them paid"),
        )
        for worth in worths:
            if not math.isnan(worth.figure):
                return worth
        return Worth(math.nan, "")

    @property
    def wall_time(self) -> str:
        if math.isnan(self.wall_seconds):
            seconds = "unknown"
        else:
            seconds = f"{self.wall_seconds:,.2f} s"
        return f"{seconds} (driver {self.about.driver})"

    @property
    def bytes_up(self) -> int:
        return int(self.records["bytes_up"].sum())

    @property
    def bytes_down(self) -> int:
        return int(self.records["bytes_down"].sum())

    @property
    def recommendation_traffic(self) -> Traffic:
        """Messages and bytes of all recommendations; those of the algorithm do not include them."""
        totals = {name: int(self.recommendations[name].sum()) for name in Traffic._fields}
        return Traffic(**totals)

    @property
    def rules_fired(self) -> dict[str, int]:
        """Number of synchronisations that each rule triggered; ``unknown`` are those of secure sums."""
        fired = self.records["rule"][self.records["requests"] > 0]
        counts = {rule: int((fired == code).sum()) for code, rule in enumerate(self.about.rules)}
        unknown = int((fired < 0).sum())
        if unknown:
            counts["unknown"] = unknown
        return counts

    def sum_at(self, column: str, episodes: npt.ArrayLike) -> FloatArray:
        """A column of the records, added up over so many episodes per agent; linear in a round.

        Rounds whose reward is unknown count as 0 in the sum of rewards.
        """
        values = self.records[column]
        if column == "reward":
            values = np.where(np.isnan(values), 0.0, values)
        return self._interpolated(values, episodes)

    def _interpolated(self, values: FloatArray, episodes: npt.ArrayLike) -> FloatArray:
        """One figure for each round, added up over so many episodes per agent; linear in a round."""
        ends = np.concatenate([[0.0], self.round_ends])
        sums = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray(np.interp(np.asarray(episodes, dtype=np.float64), ends, sums))

    def mean_reward_at(self, points: npt.ArrayLike) -> FloatArray:
        """The mean reward of an episode over the first ``points`` episodes per agent whose reward is known.

        NaN where the reward of none of them is known.
        """
        end = np.asarray(points, dtype=np.float64)
        episodes = end - self._interpolated(self._unrewarded, end)
        known = episodes > EPISODE_ROUNDING * end
        unknown: FloatArray = np.full(end.shape, math.nan)
        mean: FloatArray = np.divide(self.sum_at("reward", end), episodes, out=unknown, where=known)
        return mean

    def regret_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """The common regret after each number of episodes per agent; linear in a round, where the policy is fixed."""
        points = np.asarray(episodes, dtype=np.float64)
        if points.size and (points.min() < 0 or points.max() > self.episodes_played):
            raise InputError(f"regret is known after 0..{self.episodes_played} episodes only.")
        return self.sum_at("regret", points)

    def rounds_at(self, episodes: npt.ArrayLike) -> CountArray:
        """Communication rounds within each of the given numbers of episodes."""
        requested_at = self.round_ends[self.records["requests"] > 0]
        return np.asarray(np.searchsorted(requested_at, np.asarray(episodes), side="right"))

    def summary(self) -> dict[str, Any]:
        """The figures of the run, ready for JSON; unknown figures are None."""
        about = self.about
        recommendations = []
        for row in rows_of(self.recommendations):
            entries = dict(zip(self.recommendations, row, strict=True))
            recommendations.append(none_for_nan(entries))
        content = {
            "algorithm": about.algorithm,
            "parameters": dict(about.parameters),
            "env": about.environment.get("name", "custom"),
            "environment": dict(about.environment),
            "agents": about.agents,
            "states": about.states,
            "actions": about.actions,
            "horizon": about.horizon,
            "episodes": about.episodes,
            "eps_p": about.eps_p,
            "eps_p_assumed": about.eps_p_assumed,
            "eps_r": about.eps_r,
            "seed": about.seed,
            "driver": about.driver,
            "optimal_value": about.optimal_value,
            "episodes_played": self.episodes_played,
            "complete": self.complete,
            "policy_kind": self.policy_kind,
            "optimistic_value": self.optimistic_value,
            "estimated_value": self.estimated_value,
            "gap": self.gap,
            "value": self.value,
            "simple_regret": self.simple_regret,
            "advice": self.advice,
            "regret": self.regret,
            "average_reward": self.average_reward,
            "rewarded_episodes": self.rewarded_episodes,
            "recent_reward": self.recent_reward,
            "rounds": self.rounds,
            "rules_fired": self.rules_fired,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "wall_seconds": self.wall_seconds,
            "messages_up": int(self.records["messages_up"].sum()),
            "messages_down": int(self.records["messages_down"].sum()),
            "agents_alike": about.alike,
            "agents_value": self.agents_value._asdict(),
            "units": self.units,
            "certificates": [certificate.to_data() for certificate in self.certificates],
            "recommendations": recommendations,
            "recommendation_traffic": self.recommendation_traffic._asdict(),
            "nu": None,
        }
        content.update(about.facts)
        content["warnings"] = list(about.cautions)
        content["versions"] = dict(about.versions)
        return {key: none_for_nan(entry) for key, entry in content.items()}

    def to_frame(self) -> pl.DataFrame:
        """The records as a Polars frame, one row for each round, with the rule by name and running totals."""
        import polars as pl

        frame = pl.DataFrame(dict(self.records))
        names = dict(enumerate(self.about.rules))
        playing = dict(enumerate(PLAYING))
        return frame.with_columns(
            pl.col("rule").replace_strict(names, default=None, return_dtype=pl.String),
            pl.col("playing").replace_strict(playing, default=None, return_dtype=pl.String),
            pl.Series("episodes", self.round_ends),
            pl.col("regret").cum_sum().alias("cumulative_regret"),
            (pl.col("requests") > 0).cum_sum().alias("rounds"),
        )

    def __repr__(self) -> str:
        about = self.about
        environment = about.environment.get("name", "custom")
        state = f", {self.unfinished}" if self.unfinished else ""
        regret = "unknown" if np.isnan(self.regret) else f"{self.regret:,.1f}"
        traffic = byte_count(self.bytes_up + self.bytes_down)
        return (
            f"<Run {about.algorithm} on {environment}: {about.agents} agents, "
            f"{about.episodes:,} episodes{state}; regret {regret}, {self.rounds:,} rounds, {traffic}>"
        )


def convert_run(run: RunT, units: Units, name: str) -> RunT:
    """All figures of a run but its certificates, converted by ``units``; ``name`` is that of the new units."""
    if units == Units():
        return replace(run, units=name)
    H = run.about.horizon
    return replace(
        run,
        units=name,
        about=convert_about(run.about, units),
        records=convert_records(run.records, units, H),
        recommendations=convert_recommendations(run.recommendations, units, H),
        V=convert_values(run.V, units),
        value=units.original_return(run.value, H),
        estimated_value=units.original_return(run.estimated_value, H),
        optimistic_value=units.original_return(run.optimistic_value, H),
        by_agent=units.original_return(run.by_agent, H),
    )


Curve = Callable[[RunData, CountArray], FloatArray | CountArray]
"""A quantity of a run, at each of the given numbers of episodes."""


def mean_reward(run: RunData, points: CountArray) -> FloatArray:
    """The mean reward per agent and episode over the first ``points`` episodes."""
    return run.mean_reward_at(points)


CURVES: Mapping[str, Curve] = {
    "regret": RunData.regret_at,
    "rounds": RunData.rounds_at,
    "reward": mean_reward,
}
"""By name: the common regret so far, communication rounds so far, the mean reward an episode so far."""


def points_of(played: int, ends: FloatArray | Sequence[float] = ()) -> CountArray:
    """Episodes at which to draw a curve: even on both kinds of axis, and the ends of rounds if there are few."""
    if played == 0:
        return np.zeros(1, dtype=np.int64)
    logarithmic = np.geomspace(1, played, CURVE_POINTS)
    linear = np.linspace(1, played, CURVE_POINTS)
    grid = np.concatenate([logarithmic, linear]).round().astype(np.int64)
    stride = max(1, math.ceil(len(ends) / MAX_ENDS))
    drawn_ends = np.asarray(ends, dtype=np.int64)[::stride]
    return np.unique(np.concatenate([grid, drawn_ends, [played]]))


class LearningCurve(NamedTuple):
    """Mean reward of an episode over the rounds of a run; each point stands for the rounds since the one before.

    Its standard error is NaN where only sums of rewards were observed; ``episodes`` are per agent, at the end.
    """

    episodes: FloatArray
    mean: FloatArray
    error: FloatArray


def learning_curve(run: RunData, bins: int = 60) -> LearningCurve:
    """The rewards of a run, with neighbouring rounds together so that there are at most ``bins`` points.

    Bins are even in the logarithm of episodes. From the mean ``m_r`` and the standard deviation ``s_r`` of the
    ``n_r`` episodes of each round, those of all episodes of a bin follow exactly:
    ``(n - 1) s^2 = sum_r [(n_r - 1) s_r^2 + n_r m_r^2] - n m^2``. The error is ``s / sqrt(n)``.
    """
    records = run.records
    ends = run.round_ends
    n = records["agent_episodes"].astype(np.float64)
    known = (n > 0) & ~np.isnan(records["reward"])
    if not known.any():
        nothing = np.zeros(0)
        return LearningCurve(episodes=nothing, mean=nothing, error=nothing)
    # Per round: the sum of rewards over all its episodes, and the sum of their squares.
    total = records["reward"] * records["agents"]
    spread = np.where(n > 1, records["reward_sd"], 0.0)
    squares = (n - 1) * spread**2 + np.divide(total**2, n, out=np.zeros_like(total), where=known)
    # The bin of every round with a known reward; empty bins are left out.
    edges = np.geomspace(min(1.0, ends[0]), ends[-1], bins + 1)
    bin_of_round = np.minimum(np.searchsorted(edges[1:], ends, side="left"), bins - 1)[known]
    filled, bin_of_round = np.unique(bin_of_round, return_inverse=True)
    # Per bin: number of episodes, sum of rewards, sum of squares, and the end of its last round.
    count = np.bincount(bin_of_round, weights=n[known])
    reward = np.bincount(bin_of_round, weights=total[known])
    square = np.bincount(bin_of_round, weights=squares[known])
    last_end = np.zeros(len(filled))
    np.maximum.at(last_end, bin_of_round, ends[known])
    # Mean and standard error per bin.
    mean = reward / count
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(square - count * mean**2, 0.0) / (count - 1)
    error = np.sqrt(np.where(count > 1, variance, math.nan) / count)
    return LearningCurve(episodes=last_end, mean=mean, error=error)


class Subscriber:
    """Receives events of a run in progress: progress bar, live page, metrics, trackers. All methods are optional.

    A subscriber is an :data:`OnRound` that can receive more than rounds.
    """

    def __call__(self, record: RoundRecord) -> None:
        """Receive a round."""

    def take_policy(self, policy: PolicyArray) -> None:
        """Receive a policy that the run recommends before its end."""

    def finish(self, run: RunData) -> None:
        """Receive the run, when it is over."""


class CallbackList(Subscriber):
    """Several callbacks as one, called in their order; those that are None are left out.

    >>> bool(CallbackList(None)), bool(CallbackList(None, print))
    (False, True)
    """

    def __init__(self, *callbacks: OnRound | None) -> None:
        self._callbacks = [callback for callback in callbacks if callback is not None]
        self._subscribers = [callback for callback in self._callbacks if isinstance(callback, Subscriber)]

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def __call__(self, record: RoundRecord) -> None:
        for callback in self._callbacks:
            callback(record)

    def take_policy(self, policy: PolicyArray) -> None:
        for subscriber in self._subscribers:
            subscriber.take_policy(policy)

    def finish(self, run: RunData) -> None:
        for subscriber in self._subscribers:
            subscriber.finish(run)
