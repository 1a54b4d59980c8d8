"""The records of a run over the network, and the result they make."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi._types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.communication import Traffic
from fed_ucbvi.deployment.plan import Plan
from fed_ucbvi.regret import Scorer
from fed_ucbvi.results.about import About
from fed_ucbvi.results.agents import hoped_for, values_by_agent
from fed_ucbvi.results.records import COLUMNS, columns_of
from fed_ucbvi.results.run import Run

if TYPE_CHECKING:
    from fed_ucbvi.deployment.rounds import Collected

DRIVER = "network"


class Records:
    """One row a round, and the events that were no part of the plan.

    Regret is on record where the server knows the problem: exactly where every agent always starts in one state, and
    otherwise in expectation over the starts, which the server does not see. Rewards are the nodes' own business.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: list[tuple[float, ...]] = []
        """In the order of :data:`~fed_ucbvi.results.records.COLUMNS`."""
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

    def result(self, policy: PolicyArray, V: FloatArray, *, complete: bool) -> Run:
        """The run as it stands."""
        plan, federation = self.plan, self.plan.federation
        common = None if federation is None else federation.common
        return Run(
            about=About.of(plan.algorithm, plan.setting, federation, DRIVER),
            records=self.columns(),
            policy=policy.copy(),
            V=V.copy(),
            value=math.nan if common is None else float(common.initial @ common.evaluate(policy)[0]),
            optimistic_value=math.nan if federation is None else hoped_for(federation, V),
            by_agent=(
                np.full(plan.setting.agents, np.nan) if federation is None else values_by_agent(federation, policy)
            ),
            wall_seconds=self.seconds,
            complete=complete,
        )

    def columns(self) -> dict[str, Array]:
        """The records so far, by column."""
        return columns_of(self.rows)
