"""The records of a run, the figures and curves over episodes computed from them, and who follows a run as it goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.communication import Traffic
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.numbers import Bracket, byte_count, none_for_nan
from fed_ucbvi.core.text import Tabled
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import About
from fed_ucbvi.results.recommendations import AgentsValue, Certificate, policy_digest
from fed_ucbvi.results.round_record import PLAYING, OnRound, RoundRecord, episodes_per_agent, rows_of

if TYPE_CHECKING:
    import polars as pl

FAST = 0.5
"""The radius of ``FedKLUCBVI.fast()``."""
CURVE_POINTS = 400
MAX_ENDS = 4000
"""The most ends of rounds on a curve."""


@dataclass(frozen=True, eq=False)
class RunData(Tabled):
    """The results of a finished (or interrupted) run; :class:`~fed_ucbvi.results.run.Run` adds files and pictures.

    Attributes:
        about: algorithm, environment, sizes, seed, driver, versions.
        records: one entry for each round, by column; see :data:`~fed_ucbvi.results.round_record.COLUMNS`.
        policy: the recommended policy, ``(H, S)``: planned without bonus from all counts, to be deployed.
        policy_kind: what it is; one of :data:`~fed_ucbvi.results.recommendations.KINDS`.
        exploring_policy: the optimistic policy that would be played next: ``(H, S)``, or a set of actions for each
            (h,s), ``(H, S, A)``.
        V: the server's optimistic values at the end, ``(H+1, S)``.
        value: what the recommended policy is worth in the common MDP from its initial distribution.
        estimated_value: what it is estimated to be worth, the mean of the planner's ``V_1`` over the initial states;
            NaN where nothing was planned.
        optimistic_value: the server's, ``1/M sum_i sum_s mu^i(s) V_1(s)``.
        by_agent: what the recommended policy is worth to each agent in its own MDP, ``(M,)``; NaN for liars.
        recommendations: the policies recommended during the run, with their gap, by column; see
            :data:`~fed_ucbvi.results.recommendations.COLUMNS`.
        wall_seconds: how long the run took; NaN in the files of a sweep, whose journal has it.
        complete: whether every agent has played all its episodes, from when it came until the end, or until it left;
            or whether the run has ended with the certificate that it was to end with.
        certificates: that were issued during the run.
    """

    about: About
    records: Mapping[str, npt.NDArray[Any]]
    policy: IndexArray
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

    @property
    def certificate(self) -> Certificate | None:
        """The last one that is about the recommended policy; None where nothing is certified."""
        digest = policy_digest(self.policy)
        return next((one for one in reversed(self.certificates) if one.policy_sha256 == digest), None)

    @cached_property
    def round_ends(self) -> FloatArray:
        """Episodes per agent after each round: every round adds the mean over the agents that took part in it."""
        return episodes_per_agent(self.records)

    @property
    def _episodes(self) -> float:
        return float(self.round_ends[-1]) if len(self.round_ends) else 0.0

    @property
    def episodes_played(self) -> int:
        """Episodes per agent, rounded down: T if the run is complete; more if agents have joined a live run."""
        return int(self._episodes)

    @property
    def unfinished(self) -> str:
        """In which way the run is not complete, in words; nothing if it is."""
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
    def federated_regret(self) -> Bracket:
        """The regret against the best common policy (``def:regret``), in expectation over initial states.

        ``sum_t [max_pi 1/M sum_i V^{i,pi}_1(mu^i)] - 1/M sum_i V^{i,pi_t}_1(mu^i)``, over the honest agents. The
        maximum is known as a bracket (``about.best_common_value``), so the regret is one too. If a policy that was
        played is better than the lower end of that bracket, it raises the lower end. It is the maximum for all M
        agents. So where agents differ and some did not take part in every round, this regret is unknown.
        """
        values, agents = self.records["value"], self.records["agents"]
        if not self.about.alike and (agents != self.about.agents).any():
            return Bracket(math.nan, math.nan)
        weights = self.records["agent_episodes"] / np.maximum(agents, 1)
        lower, upper = self.about.best_common_value
        lower = float(values.max(initial=lower))
        return Bracket(*(float((weights * (end - values)).sum()) for end in (lower, max(lower, upper))))

    @property
    def simple_regret(self) -> float:
        """What the recommended policy loses in one episode in the common MDP: ``V*_1(mu) - V^pi_1(mu)``."""
        return self.about.optimal_value - self.value

    @property
    def federated_simple_regret(self) -> Bracket:
        """What the agents lose on average in one episode of the recommended policy, against the best common policy.

        ``[max_pi' 1/M sum_i V^{i,pi'}_1(mu^i)] - 1/M sum_i V^{i,pi}_1(mu^i)``, as a bracket, because the maximum is
        one.
        """
        mean = self.agents_value.mean
        return Bracket(*(max(0.0, end - mean) if end == end else end for end in self.about.best_common_value))

    @property
    def gap(self) -> float:
        """The optimistic value minus the recommended policy's estimated one; NaN where nothing was planned.

        If the server's values are optimistic, the gap bounds what the policy loses, up to the error of the estimate;
        see :mod:`fed_ucbvi.results.recommendations`.
        """
        return self.optimistic_value - self.estimated_value

    @property
    def rounds(self) -> int:
        """Communication rounds: the synchronisations that an agent requested."""
        return int((self.records["requests"] > 0).sum())

    @property
    def average_reward(self) -> float:
        """Reward an agent collected per episode, in its own MDP, averaged over agents and episodes."""
        return float(self.records["reward"].sum()) / (self._episodes or 1.0)

    @property
    def recent_reward(self) -> float:
        """The average reward over the last tenth of the episodes; all episodes of a round count alike."""
        T = self._episodes
        if T == 0.0:
            return math.nan
        before, paid = self.sum_at("reward", [0.9 * T, T])
        return float(paid - before) / (0.1 * T)

    @property
    def agents_value(self) -> AgentsValue:
        """What the agents get from the recommended policy, each in its own MDP: mean, worst and best (if honest)."""
        return AgentsValue.of(self.by_agent)

    @property
    def learnt_little(self) -> bool:
        """Whether the recommended policy is worth less than half of the server's optimistic value.

        The worth of the policy is the mean over agents if their MDPs are known, and otherwise the plan's estimate. If
        nothing was planned, it is the mean reward of the last tenth of the episodes. A policy known to be within 1 %
        of the best shared one is good enough in any case.
        """
        worth, _ = self._worth()
        good = self.agents_value.mean >= 0.99 * self.about.best_common_value.lower
        return self.episodes_played > 0 and worth < 0.5 * self.optimistic_value and not good

    @property
    def advice(self) -> str | None:
        """What to try where little was learnt, in one sentence; None if no advice is needed."""
        if not self.learnt_little:
            return None
        (worth, said), given = self._worth(), self.about.parameters
        units, H = Units.of(self.about.environment), self.about.horizon
        hope, get = (f"{units.original_return(value, H):,.4g}" for value in (self.optimistic_value, worth))
        scales = {name: given[name] for name in ("bonus_scale", "scale") if given.get(name)}
        tries = ["more episodes", *(f"a smaller {name} ({x / 10:g} instead of {x:g})" for name, x in scales.items())]
        if given.get("radius", 0.0) > FAST:
            tries.append(f"a smaller radius ({FAST:g} instead of {given['radius']:g}, without proof)")
        if given.get("stationary") is False:
            tries.append("stationary=true if kernel and rewards do not depend on the step")
        if given.get("clip") == "horizon":
            tries.append("clip='remaining'")
        return (
            f"has learnt little: the server's optimistic value is still {hope} an episode, {said} {get}; try "
            f"{', '.join(tries)}"
        )

    def _worth(self) -> tuple[float, str]:
        """The best available figure for the value of the policy, and its name in a sentence."""
        figures = [
            (self.agents_value.mean, "the policy is worth"),
            (self.estimated_value, "the policy is estimated at"),
            (self.recent_reward, "the last tenth of them paid"),
        ]
        return next((one for one in figures if not math.isnan(one[0])), (math.nan, ""))

    @property
    def wall_time(self) -> str:
        seconds = "unknown" if math.isnan(self.wall_seconds) else f"{self.wall_seconds:,.2f} s"
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
        return Traffic(*(int(self.recommendations[name].sum()) for name in Traffic._fields))

    @property
    def rules_fired(self) -> dict[str, int]:
        """How many synchronisations each rule triggered; ``unknown`` are those of secure sums."""
        fired = self.records["rule"][self.records["requests"] > 0]
        known = {rule: int((fired == code).sum()) for code, rule in enumerate(self.about.rules)}
        unknown = int((fired < 0).sum())
        return {**known, "unknown": unknown} if unknown else known

    def sum_at(self, column: str, episodes: npt.ArrayLike) -> FloatArray:
        """A column of the records, added up over so many episodes per agent; linear in a round."""
        ends, sums = (np.concatenate([[0.0], one]) for one in (self.round_ends, np.cumsum(self.records[column])))
        return np.asarray(np.interp(np.asarray(episodes, dtype=np.float64), ends, sums))

    def regret_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """The common regret after each number of episodes per agent; linear in a round, where the policy is fixed."""
        points = np.asarray(episodes, dtype=np.float64)
        if points.size and (points.min() < 0 or points.max() > self.episodes_played):
            raise InputError(f"regret is known after 0..{self.episodes_played} episodes only.")
        return self.sum_at("regret", points)

    def rounds_at(self, episodes: npt.ArrayLike) -> CountArray:
        """Communication rounds within each of the given numbers of episodes."""
        asked = self.round_ends[self.records["requests"] > 0]
        return np.asarray(np.searchsorted(asked, np.asarray(episodes), side="right"))

    @property
    def original_units(self) -> dict[str, float]:
        """Values per episode in the environment's own units; see :class:`~fed_ucbvi.problem.units.Units`.

        ``agents_mean``, ``agents_worst`` and ``agents_best`` are the policy's value for the agents,
        ``best_common_lower`` and ``best_common_upper`` the bracket of the best shared policy; ``regret`` is over all
        episodes. The others are called as they are here and in :attr:`about`.
        """
        about, agents, units = self.about, self.agents_value, Units.of(self.about.environment)
        mine = ("value", "estimated_value", "optimistic_value", "average_reward", "recent_reward")
        values = {
            **{f"agents_{name}": getattr(agents, name) for name in ("mean", "worst", "best")},
            **{f"best_common_{name}": getattr(about.best_common_value, name) for name in ("lower", "upper")},
            **{name: getattr(about, name) for name in ("own_optimal_value", "optimal_value")},
            **{name: getattr(self, name) for name in mine},
        }
        return {
            **{name: units.original_return(value, about.horizon) for name, value in values.items()},
            **{name: units.scale * getattr(self, name) for name in ("gap", "regret", "simple_regret")},
        }

    def summary(self) -> dict[str, Any]:
        """The figures of the run, ready for JSON; what is unknown is None."""
        about, planned = self.about, self.recommendations
        sizes = ("agents", "states", "actions", "horizon", "episodes")
        known = ("eps_p", "eps_p_assumed", "eps_r", "seed", "driver", "own_optimal_value", "optimal_value")
        mine = ("episodes_played", "complete", "policy_kind", "optimistic_value", "estimated_value", "gap", "value")
        more = ("simple_regret", "advice", "regret", "average_reward", "recent_reward", "rounds", "rules_fired")
        content = {
            "algorithm": about.algorithm,
            "parameters": dict(about.parameters),
            "env": about.environment.get("name", "custom"),
            "environment": dict(about.environment),
            **{name: getattr(about, name) for name in (*sizes, *known)},
            **{name: getattr(self, name) for name in (*mine, *more, "bytes_up", "bytes_down", "wall_seconds")},
            **{name: int(self.records[name].sum()) for name in ("messages_up", "messages_down")},
            "agents_alike": about.alike,
            "agents_value": self.agents_value._asdict(),
            "best_common_value": about.best_common_value.summary(),
            "federated_simple_regret": self.federated_simple_regret.summary(),
            "federated_regret": self.federated_regret.summary(),
            "original_units": self.original_units,
            "certificates": [one.to_data() for one in self.certificates],
            "recommendations": [none_for_nan(dict(zip(planned, row, strict=True))) for row in rows_of(planned)],
            "recommendation_traffic": self.recommendation_traffic._asdict(),
            "nu": None,
            **about.facts,
            "warnings": list(about.cautions),
            "versions": dict(about.versions),
        }
        return {key: none_for_nan(entry) for key, entry in content.items()}

    def to_frame(self) -> pl.DataFrame:
        """The records as a Polars frame, one row for each round, with the rule by name and running totals."""
        import polars as pl

        frame = pl.DataFrame(dict(self.records))
        names, playing = dict(enumerate(self.about.rules)), dict(enumerate(PLAYING))
        return frame.with_columns(
            pl.col("rule").replace_strict(names, default=None, return_dtype=pl.String),
            pl.col("playing").replace_strict(playing, default=None, return_dtype=pl.String),
            pl.Series("episodes", self.round_ends),
            pl.col("regret").cum_sum().alias("cumulative_regret"),
            (pl.col("requests") > 0).cum_sum().alias("rounds"),
        )

    def __repr__(self) -> str:
        about, state = self.about, f", {self.unfinished}" if self.unfinished else ""
        regret = "unknown" if np.isnan(self.regret) else f"{self.regret:,.1f}"
        return (
            f"<Run {about.algorithm} on {about.environment.get('name', 'custom')}: {about.agents} agents, "
            f"{about.episodes:,} episodes{state}; regret {regret}, {self.rounds:,} rounds, "
            f"{byte_count(self.bytes_up + self.bytes_down)}>"
        )


Curve = Callable[[RunData, CountArray], FloatArray | CountArray]
"""A quantity of a run, at each of the given numbers of episodes."""


def mean_reward(run: RunData, points: CountArray) -> FloatArray:
    """The mean reward per agent and episode, in its own units, over the first ``points`` episodes."""
    units, H = Units.of(run.about.environment), run.about.horizon
    return H * units.offset + units.scale * (run.sum_at("reward", points) / points)


CURVES: Mapping[str, Curve] = {"regret": RunData.regret_at, "rounds": RunData.rounds_at, "reward": mean_reward}
"""By name: the common regret so far, communication rounds so far, the mean reward an episode so far."""


def points_of(played: int, ends: FloatArray | Sequence[float] = ()) -> CountArray:
    """Episodes at which to draw a curve: even on both kinds of axis, and the ends of rounds if there are few."""
    if played == 0:
        return np.zeros(1, dtype=np.int64)
    grid = np.concatenate([np.geomspace(1, played, CURVE_POINTS), np.linspace(1, played, CURVE_POINTS)])
    kept = np.asarray(ends, dtype=np.int64)[:: max(1, -(-len(ends) // MAX_ENDS))]
    return np.unique(np.concatenate([grid.round().astype(np.int64), kept, [played]]))


class LearningCurve(NamedTuple):
    """Each point stands for the rounds since the one before: the mean reward of an episode, in the original units.

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
    records, ends = run.records, run.round_ends
    n = records["agent_episodes"].astype(np.float64)
    played = n > 0
    if not played.any():
        return LearningCurve(np.zeros(0), np.zeros(0), np.zeros(0))
    total = records["reward"] * records["agents"]
    spread = np.where(n > 1, records["reward_sd"], 0.0)
    squares = (n - 1) * spread**2 + np.divide(total**2, n, out=np.zeros_like(total), where=played)
    edges = np.geomspace(min(1.0, ends[0]), ends[-1], bins + 1)
    which = np.minimum(np.searchsorted(edges[1:], ends, side="left"), bins - 1)[played]
    filled, which = np.unique(which, return_inverse=True)
    count, paid, square = (np.bincount(which, weights=values[played]) for values in (n, total, squares))
    last = np.array([ends[played][which == bin].max() for bin in range(len(filled))])
    mean = paid / count
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(square - count * mean**2, 0.0) / (count - 1)
    error = np.sqrt(np.where(count > 1, variance, math.nan) / count)
    units, H = Units.of(run.about.environment), run.about.horizon
    return LearningCurve(last, H * units.offset + units.scale * mean, units.scale * error)


class Subscriber:
    """Hears of a run while it goes on: the progress bar, the live page, metrics, trackers. All methods are optional.

    A subscriber is an :data:`OnRound` that may want more than rounds.
    """

    def __call__(self, record: RoundRecord) -> None:
        """Take a round."""

    def take_policy(self, policy: IndexArray) -> None:
        """Take a policy that the run recommends on the way, ``(H, S)``."""

    def finish(self, run: RunData) -> None:
        """Take the run, when it is over."""


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

    def take_policy(self, policy: IndexArray) -> None:
        for subscriber in self._subscribers:
            subscriber.take_policy(policy)

    def finish(self, run: RunData) -> None:
        for subscriber in self._subscribers:
            subscriber.finish(run)
