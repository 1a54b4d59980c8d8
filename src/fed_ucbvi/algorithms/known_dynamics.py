"""Fed-KL-UCBVI where dynamics are known: optimism over the outcomes of laws in place of next states.

With g the law at (h,s,a), N its visits by all agents at whatever step and state, p the empirical distribution of its
outcomes, and ``X_w = r(h,s,a,w) + V_{h+1}(next_state(h,s,a,w))``,

    Q_h(s,a) = U(p, X, beta(N)/N),    max_w X_w where N = 0         (:mod:`fed_ucbvi.algorithms.law_bounds`)
    V_h(s)   = max_a Q_h(s,a);  every agent draws among the maximisers anew at every visit
    beta(N)  = radius ( log(E / delta) + log 2 + (1/2) log(N + 1) )

E is ``S H`` where rewards depend on the outcome, and ``S (H-1)`` otherwise, as nothing is drawn at the last step
then. Where the law of the first state is unknown, it is one more. The proof is that of Fed-KL-UCBVI: for a fixed
(h,s) and the action of an optimal policy, X with V* in place of V is a fixed function of the outcome.

A law is counted like a state with one action over all steps, whose next states are the outcomes. So agents, reports,
masks and files are those of Fed-KL-UCBVI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import (
    Array,
    Counting,
    FleetTables,
    MessageSizes,
    RunExtension,
    Setting,
    checked_by_tests,
)
from fed_ucbvi.algorithms.count_reporting import CountingServer, CountReporting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.counting_agents import CountingAgents
from fed_ucbvi.algorithms.drawn_radius import level_law
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.law_bounds import (
    LawEstimates,
    LawTables,
    ball_radii_of_laws,
    induct_laws,
    radii_of_laws,
    smallest_means,
)
from fed_ucbvi.algorithms.synchronisation_rules import DoublingRule, SynchronisationRule
from fed_ucbvi.core.colours import TEAL, Marker
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.sampling.levels import LEVELS, ONE_LEVEL, LevelLaw
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.dynamics import Dynamics


class LawRule(NamedTuple):
    """Constants of the optimistic value.

    Attributes:
        radius: factor on beta.
        log_union: ``log(2 E / delta)``.
        plain: True to plan without optimism.
    """

    radius: float
    log_union: float
    plain: bool = False


@dataclass
class LawServer(CountingServer[LawEstimates, LawRule]):
    """The central server: known dynamics, and the outcomes that all agents have counted together."""

    grid: Grid
    dynamics: Dynamics
    tables: LawTables

    @property
    def policy(self) -> PolicyArray:
        """Sets of actions ``(H, S, A)``; of a planner the first of each, ``(H, S)``."""
        best = self.estimates.best
        return np.asarray(best.argmax(axis=2).astype(np.int32)) if self.rule.plain else best

    def update(self) -> None:
        """Make the estimates from the table."""
        counts = outcome_counts(self.table, self.dynamics.outcomes)
        induct_laws(self.tables, counts, self.beta(counts), self.rule.plain, self.estimates)

    def beta(self, counts: CountArray) -> FloatArray:
        """Radius of each law, ``(1, G)``, or by step, ``(H, G)``, where a smaller radius has a clock."""
        if self.rule.radius >= 1.0:
            return self.rule.radius * radii_of_laws(counts, self.rule.log_union)[np.newaxis]
        visits = counts.sum(axis=1)
        of_steps = np.array([visits[np.unique(laws)].sum() for laws in self.tables.law_of]).reshape(-1, 1)
        clock = self.rule.radius * radii_of_laws(of_steps, self.rule.log_union)
        return np.ascontiguousarray(np.broadcast_to(clock[:, np.newaxis], (len(clock), len(counts))))


@dataclass
class DrawnLawServer(LawServer):
    """A server with estimates for each level of optimism, of which agents draw the one that they play.

    Level j plans with the radius ``min(j, beta(N))``; ``estimates`` are those of the highest level, which is proved
    (:mod:`fed_ucbvi.algorithms.drawn_radius`).

    Attributes:
        lower: estimates of the other levels.
    """

    lower: list[LawEstimates]

    @property
    def policy(self) -> PolicyArray:
        """Sets of actions ``(9, H, S, A)``, one for each level."""
        return np.stack([*(estimates.best for estimates in self.lower), self.estimates.best])

    def update(self) -> None:
        """Make the estimates of all levels from the table."""
        counts = outcome_counts(self.table, self.dynamics.outcomes)
        beta = self.beta(counts)
        for level, estimates in enumerate(self.lower):
            induct_laws(self.tables, counts, np.minimum(beta, float(level)), False, estimates)
        induct_laws(self.tables, counts, beta, False, self.estimates)

    def arrays(self) -> dict[str, Array]:
        arrays = super().arrays()
        for level, estimates in enumerate(self.lower):
            for name, array in estimates._asdict().items():
                arrays[f"level{level}_{name}"] = array
        return arrays


def outcome_counts(table: CountTable, outcomes: int) -> CountArray:
    """Number of times that each outcome of each law was seen, ``(G, W)``, from a table of laws."""
    laws = table.visits.shape[1]
    counts: CountArray = np.zeros((laws, outcomes), dtype=np.int64)
    rows = np.arange(laws).reshape(-1, 1)
    np.add.at(counts, (rows, table.successors[0, :, 0]), table.transitions[0, :, 0])
    return counts


def tables_of_dynamics(dynamics: Dynamics) -> LawTables:
    """Known dynamics with all axes but that of steps in full."""
    assert dynamics.rewards is not None
    law_steps = range(len(dynamics.law_of))
    state_steps = range(len(dynamics.next_state))
    reward_steps = range(dynamics.rewards.shape[1])
    return LawTables(
        law_of=np.stack([dynamics.laws_at(h) for h in law_steps]),
        next_state=np.stack([dynamics.next_states_at(h) for h in state_steps]),
        rewards=np.stack([dynamics.rewards_at(h) for h in reward_steps]),
    )


def plan_from_outcomes(dynamics: Dynamics, counts: CountArray) -> IndexArray:
    """The best policy ``(H, S)`` if laws are what was seen, and uniform where nothing was.

    Args:
        dynamics: what is known, rewards among it.
        counts: number of times that each outcome of each law was seen, ``(G, W)``.
    """
    estimates = LawEstimates.empty(dynamics.horizon, dynamics.states, dynamics.actions)
    no_radius = np.zeros((1, dynamics.laws))
    induct_laws(tables_of_dynamics(dynamics), counts, no_radius, True, estimates)
    return np.asarray(estimates.best.argmax(axis=2).astype(np.int32))


@checked_by_tests
@dataclass(frozen=True)
class FedKLUCBVIOverLaws(CountReporting[LawServer]):
    """Fed-KL-UCBVI with known dynamics, made by ``FedKLUCBVI.with_dynamics``.

    Attributes:
        dynamics: what is known; rewards are among it.
        radius: factor on the radius of the ball.
        delta: the probability with which optimism may fail.
        min_round_growth: as for Fed-KL-UCBVI.
        drawn: True if agents draw how optimistic they are.
        fresh_share: as for Fed-KL-UCBVI.
    """

    name: ClassVar[str] = "fed-kl-ucbvi"
    label: ClassVar[str] = "Fed-KL-UCBVI"
    colour: ClassVar[str] = TEAL
    marker: ClassVar[Marker] = "diamond"
    rules: ClassVar[tuple[str, ...]] = ("global",)
    extension = RunExtension(episodes=None, warm_start=None)

    dynamics: Dynamics
    radius: float = 1.0
    delta: float = 0.05
    min_round_growth: float = 0.0
    drawn: bool = False
    fresh_share: float | None = None

    @property
    def counting(self) -> Counting:
        """Over all steps together, as a law may be visited at any."""
        return Counting.STATIONARY

    def counted_setting(self, setting: Setting) -> Setting:
        return replace(setting, states=self.dynamics.laws, actions=1)

    def new_agents(self, setting: Setting, tables: FleetTables) -> CountingAgents:
        grid = self.grid(setting)
        return CountingAgents(self, self.counted_setting(setting), tables, grid)

    def rule(self, setting: Setting) -> LawRule:
        return LawRule(float(self.radius), math.log(2.0 * self._events(setting) / self.delta))

    def _events(self, setting: Setting) -> int:
        """Number of events in the union that makes the values optimistic."""
        assert self.dynamics.rewards is not None
        by_outcome = self.dynamics.rewards.shape[-1] > 1
        steps = self.dynamics.horizon if by_outcome else self.dynamics.horizon - 1
        return max(1, self.dynamics.states * steps + int(not setting.starts_known))

    def start_delta(self, setting: Setting) -> float:
        return self.delta / self._events(setting)

    def largest_value(self, setting: Setting, step: int) -> float:
        return float(setting.horizon - step)

    def new_server(self, setting: Setting) -> LawServer:
        """No outcome was seen: every law may bring its best one."""
        grid = self.grid(setting)
        certain = LawServer(
            estimates=self._no_estimates(),
            rule=self.rule(setting),
            table=CountTable.empty(1, self.dynamics.laws, 1, bits=grid.bits),
            grid=grid,
            dynamics=self.dynamics,
            tables=tables_of_dynamics(self.dynamics),
        )
        server = self._with_levels(certain) if self.drawn else certain
        server.update()
        server.estimates.updates[:] = 0
        return server

    def _no_estimates(self) -> LawEstimates:
        return LawEstimates.empty(self.dynamics.horizon, self.dynamics.states, self.dynamics.actions)

    def _with_levels(self, certain: LawServer) -> DrawnLawServer:
        """The levels of a server, which is the highest one."""
        return DrawnLawServer(
            estimates=certain.estimates,
            rule=certain.rule,
            table=certain.table,
            grid=certain.grid,
            dynamics=certain.dynamics,
            tables=certain.tables,
            lower=[self._no_estimates() for _ in range(LEVELS - 1)],
        )

    def level_law(self, setting: Setting) -> LevelLaw:
        """Nine levels if optimism is drawn, otherwise one."""
        return level_law(setting.agents, self.fresh_share) if self.drawn else ONE_LEVEL

    def new_planner(self, setting: Setting, server: LawServer) -> LawServer:
        """Value iteration on all counts of the server."""
        certain = LawServer(
            estimates=server.estimates,
            rule=server.rule,
            table=server.table,
            grid=server.grid,
            dynamics=server.dynamics,
            tables=server.tables,
        )
        return certain.planner(self._no_estimates(), server.rule._replace(plain=True))

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        return DoublingRule.named("global", min_round_growth=float(self.min_round_growth))

    def certifying(self, delta: float) -> FedKLUCBVIOverLaws:
        """This algorithm with at most ``delta`` for optimism, which is proved for a radius of 1."""
        if self.radius < 1.0:
            raise InputError(
                f"{self.name} with radius {self.radius:g} is not proved to be optimistic, so it cannot certify how "
                "near a policy is to the best (until_gap). Use fed-kl-ucbvi with radius=1."
            )
        return replace(self, delta=min(self.delta, delta), drawn=False)

    def message_sizes(self, setting: Setting) -> MessageSizes:
        """Down go sets of actions as bits, N of each law and a number; up a list of outcomes."""
        dynamics = self.dynamics
        levels = self.level_law(setting).number
        policy = (levels * dynamics.horizon * dynamics.states * dynamics.actions + 7) // 8
        updates = 8
        return MessageSizes(
            broadcast=policy + 8 * dynamics.laws + updates,
            exchanges=1,
            query=updates,
            reports=0,
            listed=(dynamics.laws * dynamics.outcomes,),
        )

    # ------------------------------------------------------------------------------ what a policy is worth at least

    def pessimistic_values(self, setting: Setting, server: LawServer, policy: IndexArray, delta: float) -> FloatArray:
        """Below the values ``(H+1, S)`` of a policy with probability ``1 - delta``.

        Balls that hold the laws themselves, with one event for each law, and one more if the law of the first state
        is unknown.
        """
        events = self.dynamics.laws + int(not setting.starts_known)
        return self._smallest_values(server, policy, math.log(events / delta), choose=False)

    def cautious_plan(self, setting: Setting, planner: LawServer) -> tuple[IndexArray, FloatArray]:
        """The policy with the largest pessimistic values, and these values.

        They guarantee nothing, as the policy is chosen by the same counts; they only have to choose.
        """
        policy: IndexArray = np.zeros((setting.horizon, setting.states), dtype=np.int32)
        log_union = math.log(self.dynamics.laws / self.delta)
        V = self._smallest_values(planner, policy, log_union, choose=True)
        return policy, V

    def _smallest_values(
        self, server: LawServer, policy: IndexArray, log_union: float, *, choose: bool
    ) -> FloatArray:
        """Smallest values over the balls, of ``policy``; if ``choose``, of the best one, which is written to it."""
        dynamics = self.dynamics
        counts = outcome_counts(server.table, dynamics.outcomes)
        beta = ball_radii_of_laws(counts, log_union)
        V = np.zeros((dynamics.horizon + 1, dynamics.states))
        states = np.arange(dynamics.states)
        for h in reversed(range(dynamics.horizon)):
            worth = dynamics.rewards_at(h) + V[h + 1][dynamics.next_states_at(h)]
            laws = dynamics.laws_at(h)
            least = smallest_means(laws.reshape(-1), worth.reshape((laws.size, -1)), counts, beta)
            Q = least.reshape(laws.shape)
            if choose:
                policy[h] = Q.argmax(axis=1)
            V[h] = Q[states, policy[h]]
        return V
