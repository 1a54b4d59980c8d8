"""The records of a run over the network, and the result they make."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.algorithms.communication import Traffic
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.results.about import About
from fed_ucbvi.results.agents import AgentsValue, initial_value, mean_over, values_by_agent
from fed_ucbvi.results.recommendations import Recommended, Row, table_of
from fed_ucbvi.results.records import COLUMNS, columns_of
from fed_ucbvi.results.run import Run

if TYPE_CHECKING:
    from fed_ucbvi.network.rounds import Collected

DRIVER = "network"


class Records:
    """One row for each round, and the events that were not planned.

    Regret is on record where the server knows the problem: exactly where every agent always starts in one state, and
    otherwise in expectation over the starts, which the server does not see. Rewards are the nodes' own business.
    """

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.rows: list[tuple[float, ...]] = []
        """In the order of :data:`~fed_ucbvi.results.records.COLUMNS`."""
        self.recommendations: list[Row] = []
        """In the order of :data:`~fed_ucbvi.results.recommendations.COLUMNS`."""
        self.events: list[dict[str, Any]] = []
        self.played = self.rounds = self.last_length = 0
        self.regret = 0.0 if plan.federation is not None else math.nan
        self.seconds = 0.0
        self.last_asker = -1
        self._scorer = None if plan.federation is None else Scorer(plan.federation)

    def add(
        self, start: int, collected: Collected, lengths: CountArray, policy: PolicyArray, traffic: Traffic
    ) -> None:
        """Note down a finished round, in which agent i played ``lengths[i]`` episodes, the first number ``start``."""
        end, request = collected.end, collected.request
        values = {
            "start": start,
            "length": end.length,
            "agent_episodes": int(lengths.sum()),
            **self._score(policy, lengths),
            "askers": end.askers,
            "agent": end.agent,
            "step": end.step,
            "state": end.state,
            "action": -1 if request is None else request.action,
            "rule": -1 if request is None else request.rule,
            **traffic._asdict(),
        }
        self.restore([tuple(values.get(name, math.nan) for name in COLUMNS)])

    def restore(self, rows: list[tuple[float, ...]]) -> None:
        """Go on after these rows."""
        for row in rows:
            values = dict(zip(COLUMNS, row, strict=True))
            self.rows.append(row)
            self.rounds += values["askers"] > 0
            self.regret += values["regret"]
            self.last_length, self.last_asker = int(values["length"]), int(values["agent"])

    def _score(self, policy: PolicyArray, lengths: CountArray) -> dict[str, float]:
        federation = self.plan.federation
        if federation is None or self._scorer is None:
            return {}
        starts = federation.initial
        fixed = bool((starts.max(axis=1) == 1.0).all())
        begun: CountArray = np.zeros((federation.agents, federation.states), dtype=np.int64)
        if fixed:
            begun = lengths[:, None] * starts.astype(np.int64)
        pooled = self.plan.algorithm.pools and federation.pay_alike
        if pooled and len(federation.rewards) == 1:  # as in simulation, to the last bit
            begun = begun.sum(axis=0, keepdims=True)
        shape = (federation.horizon, federation.states, *policy.shape[2:])
        regret, _, value = self._scorer.score(policy, np.zeros((len(begun), *shape), dtype=np.int64), begun)
        if not fixed:
            gap: FloatArray = self._scorer.optimum.V[0] - federation.common.evaluate(policy)[0]
            regret = float(lengths @ (starts @ gap)) / federation.agents
        return {"regret": regret, "value": value}

    def recommend(
        self,
        round_number: int,
        played: int,
        V: FloatArray,
        recommended: Recommended,
        starts: CountArray | None,
        traffic: Traffic,
    ) -> None:
        """Note down a recommendation; ``V`` are the optimistic values, ``starts`` counts episodes by first state."""

        def at_start(values: FloatArray) -> float:
            federation = self.plan.federation
            return mean_over(starts, values) if federation is None else initial_value(federation, values)

        value = AgentsValue.of(self._by_agent(recommended.policy)).mean
        self.recommendations.append((round_number, played, at_start(V), at_start(recommended.V), value, *traffic))

    def _by_agent(self, policy: IndexArray) -> FloatArray:
        federation = self.plan.federation
        unknown: FloatArray = np.full(self.plan.setting.agents, np.nan)
        return unknown if federation is None else values_by_agent(federation, policy)

    def result(self, exploring: Array, V: FloatArray, recommended: Recommended, *, complete: bool) -> Run:
        """The run as it stands; the policy is the one recommended last."""
        plan, federation = self.plan, self.plan.federation
        common, policy = None if federation is None else federation.common, recommended.policy
        _, _, hoped, estimated, *_ = self.recommendations[-1] if self.recommendations else (0, 0, math.nan, math.nan)
        return Run(
            about=About.of(plan.algorithm, plan.setting, federation, DRIVER),
            records=self.columns(),
            policy=policy.copy(),
            policy_kind=recommended.kind,
            exploring_policy=exploring.copy(),
            V=V.copy(),
            value=math.nan if common is None else float(common.initial @ common.evaluate(policy)[0]),
            estimated_value=estimated,
            optimistic_value=hoped if federation is None else initial_value(federation, V),
            by_agent=self._by_agent(policy),
            recommendations=table_of(self.recommendations),
            wall_seconds=self.seconds,
            complete=complete,
        )

    def columns(self) -> dict[str, Array]:
        """The records so far, by column."""
        return columns_of(self.rows)
