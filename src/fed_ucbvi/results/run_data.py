"""The records of a run, and the figures computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.communication import Traffic
from fed_ucbvi.core.bracket import Bracket
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.notebook import html_table
from fed_ucbvi.core.numbers import byte_count, number_text
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.core.unknown import none_for_nan
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import About
from fed_ucbvi.results.advice import advice_on, learnt_little
from fed_ucbvi.results.agents import AgentsValue
from fed_ucbvi.results.records import episodes_per_agent, rows_of

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class RunData:
    """The results of a finished (or interrupted) run; :class:`~fed_ucbvi.results.run.Run` adds files and pictures.

    Attributes:
        about: algorithm, environment, sizes, seed, driver, versions.
        records: one entry for each round, by column; see :data:`~fed_ucbvi.results.records.COLUMNS`.
        policy: the recommended policy, ``(H, S)``: planned without bonus from all counts, to be deployed.
        policy_kind: what it is; one of :data:`~fed_ucbvi.results.recommendations.KINDS`.
        exploring_policy: the optimistic policy that would be played next: ``(H, S)``, or a set of actions for each
            (h,s), ``(H, S, A)``.
        V: the server's optimistic values at the end, ``(H+1, S)``.
        value: what the recommended policy is worth in the common MDP from its initial distribution.
        estimated_value: what it is estimated to be worth, the mean of the planner's ``V_1`` over the initial states;
            NaN where nothing was planned.
        optimistic_value: what the server hopes for, ``1/M sum_i sum_s mu^i(s) V_1(s)``.
        by_agent: what the recommended policy is worth to each agent in its own MDP, ``(M,)``; NaN for liars.
        recommendations: the policies recommended during the run, with their gap, by column; see
            :data:`~fed_ucbvi.results.recommendations.COLUMNS`.
        wall_seconds: how long the run took; NaN in the files of a sweep, whose journal has it.
        complete: whether every agent has played all its episodes, from when it came until the end, or until it left.
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

    @cached_property
    def round_ends(self) -> FloatArray:
        """Episodes per agent after each round: every round adds the mean over the agents that took part in it."""
        return episodes_per_agent(self.records)

    @cached_property
    def _cumulative_regret(self) -> FloatArray:
        return np.asarray(np.cumsum(self.records["regret"]))

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
        return float(self._cumulative_regret[-1]) if len(self.round_ends) else 0.0

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
        lower_sum, upper_sum = (float((weights * (end - values)).sum()) for end in (lower, max(lower, upper)))
        return Bracket(lower_sum, upper_sum)

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
        return int((self.records["askers"] > 0).sum())

    @property
    def average_reward(self) -> float:
        """Reward an agent collected per episode, in its own MDP, averaged over agents and episodes."""
        return float(self.records["reward"].sum()) / (self._episodes or 1.0)

    @property
    def recent_reward(self) -> float:
        """The same over the last tenth of the episodes; all episodes of a round count alike."""
        T = self._episodes
        if T == 0.0:
            return math.nan
        paid = np.concatenate([[0.0], np.cumsum(self.records["reward"])])
        return float(paid[-1] - np.interp(0.9 * T, np.concatenate([[0], self.round_ends]), paid)) / (0.1 * T)

    @property
    def agents_value(self) -> AgentsValue:
        """What the agents get from the recommended policy, each in its own MDP: mean, worst and best (if honest)."""
        return AgentsValue.of(self.by_agent)

    @property
    def learnt_little(self) -> bool:
        """Whether the recommended policy is worth less than half of what the server still hopes for."""
        worth, _ = self._worth()
        hoped = self.optimistic_value if self.episodes_played else math.nan
        return learnt_little(worth, hoped, self.agents_value.mean, self.about.best_common_value.lower)

    @property
    def advice(self) -> str | None:
        """What to try where little was learnt, in one sentence; None if no advice is needed."""
        return advice_on(self.about, self.optimistic_value, *self._worth()) if self.learnt_little else None

    def _worth(self) -> tuple[float, str]:
        """The best available figure for the value of the policy, and its name in a sentence."""
        figures = {
            "the policy is worth": self.agents_value.mean,
            "the policy is estimated at": self.estimated_value,
            "the last tenth of them paid": self.recent_reward,
        }
        return next(((worth, said) for said, worth in figures.items() if not math.isnan(worth)), (math.nan, ""))

    @property
    def wall_time(self) -> str:
        """How long the run took, and by which driver, in words."""
        seconds = "unknown" if math.isnan(self.wall_seconds) else f"{self.wall_seconds:,.2f} s"
        return f"{seconds} (driver {self.about.driver})"

    @property
    def bytes_up(self) -> int:
        """Bytes from agents to server."""
        return int(self.records["bytes_up"].sum())

    @property
    def bytes_down(self) -> int:
        """Bytes from server to agents."""
        return int(self.records["bytes_down"].sum())

    @property
    def recommendation_traffic(self) -> Traffic:
        """Messages and bytes of all recommendations; those of the algorithm do not include them."""
        return Traffic(*(int(self.recommendations[name].sum()) for name in Traffic._fields))

    @property
    def rules_fired(self) -> dict[str, int]:
        """How many synchronisations each rule triggered; ``unknown`` are those of secure sums."""
        fired = self.records["rule"][self.records["askers"] > 0]
        known = {rule: int((fired == code).sum()) for code, rule in enumerate(self.about.rules)}
        unknown = int((fired < 0).sum())
        return {**known, "unknown": unknown} if unknown else known

    def regret_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """The common regret after each number of episodes per agent; linear in a round, where the policy is fixed."""
        points = np.asarray(episodes, dtype=np.float64)
        if points.size and (points.min() < 0 or points.max() > self.episodes_played):
            raise InputError(f"regret is known after 0..{self.episodes_played} episodes only.")
        ends = np.concatenate([[0], self.round_ends])
        return np.asarray(np.interp(points, ends, np.concatenate([[0.0], self._cumulative_regret])))

    def rounds_at(self, episodes: npt.ArrayLike) -> CountArray:
        """Communication rounds within each of the given numbers of episodes."""
        asked = self.round_ends[self.records["askers"] > 0]
        return np.asarray(np.searchsorted(asked, np.asarray(episodes), side="right"))

    @property
    def original_units(self) -> dict[str, float]:
        """Values per episode in the environment's own units; see :class:`~fed_ucbvi.problem.units.Units`.

        ``agents_mean``, ``agents_worst`` and ``agents_best`` are what the agents get from the policy,
        ``best_common_lower`` and ``best_common_upper`` the bracket of the best shared policy, ``own_optimal_value``
        the mean of the agents' own optima; ``value`` and ``optimal_value`` are those of the common MDP,
        ``estimated_value`` and ``optimistic_value`` what the server knows, ``gap`` their difference;
        ``regret`` is over all episodes.
        """
        about, agents = self.about, self.agents_value
        ours = {
            "agents_mean": agents.mean,
            "agents_worst": agents.worst,
            "agents_best": agents.best,
            "best_common_lower": about.best_common_value.lower,
            "best_common_upper": about.best_common_value.upper,
            "own_optimal_value": about.own_optimal_value,
            "value": self.value,
            "optimal_value": about.optimal_value,
            "estimated_value": self.estimated_value,
            "optimistic_value": self.optimistic_value,
            "average_reward": self.average_reward,
            "recent_reward": self.recent_reward,
        }
        units = Units.of(about.environment)
        own = {name: units.original_return(value, about.horizon) for name, value in ours.items()}
        differences = {"gap": self.gap, "regret": self.regret, "simple_regret": self.simple_regret}
        return {**own, **{name: units.scale * value for name, value in differences.items()}}

    def summary(self) -> dict[str, Any]:
        """The figures of the run, ready for JSON; what is unknown is None."""
        about = self.about
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
            "episodes_played": self.episodes_played,
            "complete": self.complete,
            "eps_p": about.eps_p,
            "eps_p_assumed": about.eps_p_assumed,
            "eps_r": about.eps_r,
            "seed": about.seed,
            "driver": about.driver,
            "agents_alike": about.alike,
            "agents_value": self.agents_value._asdict(),
            "policy_kind": self.policy_kind,
            "best_common_value": about.best_common_value.summary(),
            "own_optimal_value": about.own_optimal_value,
            "optimistic_value": self.optimistic_value,
            "estimated_value": self.estimated_value,
            "gap": self.gap,
            "simple_regret": self.simple_regret,
            "federated_simple_regret": self.federated_simple_regret.summary(),
            "advice": self.advice,
            "regret": self.regret,
            "federated_regret": self.federated_regret.summary(),
            "average_reward": self.average_reward,
            "recent_reward": self.recent_reward,
            "value": self.value,
            "optimal_value": about.optimal_value,
            "original_units": self.original_units,
            "rounds": self.rounds,
            "rules_fired": self.rules_fired,
            "messages_up": int(self.records["messages_up"].sum()),
            "messages_down": int(self.records["messages_down"].sum()),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "recommendations": self._recommendation_rows(),
            "recommendation_traffic": self.recommendation_traffic._asdict(),
            "nu": None,
            **about.facts,
            "warnings": list(about.cautions),
            "wall_seconds": self.wall_seconds,
            "versions": dict(about.versions),
        }
        return {key: none_for_nan(entry) for key, entry in content.items()}

    def _recommendation_rows(self) -> list[dict[str, Any]]:
        names = list(self.recommendations)
        return [none_for_nan(dict(zip(names, row, strict=True))) for row in rows_of(self.recommendations)]

    def to_frame(self) -> pl.DataFrame:
        """The records as a Polars frame, one row for each round, with the rule by name and running totals."""
        import polars as pl

        frame = pl.DataFrame(dict(self.records))
        names = dict(enumerate(self.about.rules))
        return frame.with_columns(
            pl.col("rule").replace_strict(names, default=None, return_dtype=pl.String),
            pl.Series("episodes", self.round_ends),
            pl.col("regret").cum_sum().alias("cumulative_regret"),
            (pl.col("askers") > 0).cum_sum().alias("rounds"),
        )

    def same_outcome(self, other: RunData) -> bool:
        """Whether two runs agree in everything except wall time and versions."""
        mine, theirs = (none_for_nan({**asdict(run.about), "versions": None}) for run in (self, other))
        return (
            mine == theirs
            and self.complete == other.complete
            and none_for_nan(self._figures()) == none_for_nan(other._figures())
            and np.array_equal(self.by_agent, other.by_agent, equal_nan=True)
            and np.array_equal(self.policy, other.policy)
            and np.array_equal(self.exploring_policy, other.exploring_policy)
            and np.array_equal(self.V, other.V)
            and _same_columns(self.records, other.records)
            and _same_columns(self.recommendations, other.recommendations)
        )

    def _figures(self) -> tuple[str, float, float, float]:
        return self.policy_kind, self.value, self.estimated_value, self.optimistic_value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunData):
            return NotImplemented
        return (
            self.same_outcome(other)
            and none_for_nan(self.wall_seconds) == none_for_nan(other.wall_seconds)
            and self.about.versions == other.about.versions
        )

    __hash__ = None  # type: ignore[assignment]

    def _title(self) -> str:
        about = self.about
        state = f", {self.unfinished}" if self.unfinished else ""
        return (
            f"{about.algorithm} on {about.environment.get('name', 'custom')}: {about.agents} agents, "
            f"{about.episodes:,} episodes{state}"
        )

    def __repr__(self) -> str:
        regret = "unknown" if np.isnan(self.regret) else f"{self.regret:,.1f}"
        sent = byte_count(self.bytes_up + self.bytes_down)
        return f"<Run {self._title()}; regret {regret}, {self.rounds:,} rounds, {sent}>"

    def _repr_html_(self) -> str:
        about = self.about
        figures = {
            "horizon": about.horizon,
            "eps_p": about.eps_p,
            "seed": about.seed,
            "regret": self.regret,
            "rounds": self.rounds,
            "reward an episode": self.average_reward,
            "recommended policy's value in the common MDP": self.value,
            "optimum of the common MDP": about.optimal_value,
        }
        rows = [(name, number_text(figure)) for name, figure in figures.items()]
        rows.insert(4, ("federated regret", str(self.federated_regret)))
        rows.append(("communication", f"{byte_count(self.bytes_up)} up, {byte_count(self.bytes_down)} down"))
        rows.append(("wall time", self.wall_time))
        return html_table(self._title(), rows)


def _same_columns(mine: Mapping[str, npt.NDArray[Any]], theirs: Mapping[str, npt.NDArray[Any]]) -> bool:
    return mine.keys() == theirs.keys() and all(
        np.array_equal(column, theirs[name], equal_nan=True) for name, column in mine.items()
    )
