"""Fed-KL-UCBVI: optimism from a Kullback-Leibler ball around the empirical transitions of all agents together.

With N the visits of all agents to (h,s,a), p the empirical distribution of the next state and ``c = beta(N)/N``,

    U(p, V, c) = sup { q.V : KL(p, q) <= c }                                  (:mod:`fed_ucbvi.algorithms.kl_bound`)
    Q_h(s,a)   = min( H-h+1,  r_h(s,a) + U(p, V_{h+1}, c) ),    H-h+1 where N = 0
    V_h(s)     = max_a Q_h(s,a);  every agent draws among the maximisers anew at every visit
    beta(N)    = radius ( log(S (H-1) / delta) + log 2 + (1/2) log(N + 1) )

With radius 1 all ``V_h >= V*_h`` hold at all synchronisations together with probability ``1 - delta``;
``docs/kl_proofs.md`` has the proof. A smaller radius has less regret and no proof. It uses the visits to all pairs of
the step in place of N in the logarithm, so that a pair that was given up too early is tried again. Where rewards are
random, r is the largest mean that the Bernoulli divergence allows, with S (2H-1) in place of S (H-1). Where the law
of the first state is unknown, one event more is left for it: S (H-1) + 1, or S (2H-1) + 1
(:mod:`fed_ucbvi.algorithms.first_states`).

The server keeps all counts (:class:`~fed_ucbvi.algorithms.count_table.CountTable`). Agents report what is *new* since
their last report that the server has confirmed, once a round: sums of integers, so that it does not matter how agents
are grouped. Steps h run from 0 to H-1 here and from 1 to H above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from fed_ucbvi.algorithms.base import Counting, RunExtension, Setting, checked_by_tests
from fed_ucbvi.algorithms.count_reporting import CountReporting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.drawn_radius import DrawnServer, level_law
from fed_ucbvi.algorithms.fed_kl_server import Server
from fed_ucbvi.algorithms.kl_bound import Estimates, Rule, optimism_events, pessimistic_values
from fed_ucbvi.algorithms.known_dynamics import FedKLUCBVIOverLaws
from fed_ucbvi.algorithms.synchronisation_rules import DoublingRule, SynchronisationRule
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import Bounds, Help, NonNegative, Positive, Probability
from fed_ucbvi.core.sampling.levels import ONE_LEVEL, LevelLaw
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.problem.dynamics import Dynamics

MANY_CELLS = 100_000
GROWTH_OF_MANY = 0.001
"""Cells (h,s,a), or (s,a) if stationary, from which on rounds grow by default, and by how much."""


@checked_by_tests
@dataclass(frozen=True)
class FedKLUCBVI(CountReporting[Server]):
    """Parameters of Fed-KL-UCBVI.

    >>> FedKLUCBVI.fast().radius
    0.5
    """

    name: ClassVar[str] = "fed-kl-ucbvi"
    label: ClassVar[str] = "Fed-KL-UCBVI"
    rules: ClassVar[tuple[str, ...]] = ("global",)
    extension = RunExtension(
        episodes=None, warm_start=None
    )  # everything may change: the union bound is over states and steps only

    radius: Annotated[
        Positive, Help("factor on the radius of the ball. 1 is what is proved; less is faster and has no proof.")
    ] = 1.0
    stationary: Annotated[
        bool,
        Help(
            "count visits by (s,a), over all steps together. Only where kernel and rewards do not "
            "depend on the step: each visit then tells about all of them."
        ),
    ] = False
    delta: Annotated[Probability, Help("the probability with which optimism may fail, over the whole run.")] = 0.05
    min_round_growth: Annotated[
        NonNegative | None,
        Help(
            "a round that begins after t episodes lasts at least min_round_growth t episodes, so that "
            "there are at most 2 + log(T) / log(1 + min_round_growth) rounds, however many agents "
            "there are. By default it is 0.001 where counts have MANY_CELLS cells or more, because a "
            "synchronisation then takes longer than many episodes, and otherwise 0. The bound on "
            "regret is proved for 0."
        ),
    ] = None

    optimism: Annotated[
        Literal["certain", "drawn"],
        Help(
            "certain: all agents play with the proved radius. drawn: each agent draws how optimistic it is, so that "
            "most episodes are played with a smaller radius; less regret, and a guarantee of the same order."
        ),
    ] = "certain"
    fresh_share: Annotated[
        Annotated[float, Bounds(0, at_most=1)] | None,
        Help(
            "with optimism=drawn: probability with which an episode draws anew how optimistic it is. By default it "
            "is 2/M for M agents, but at least 0.1 and at most 1."
        ),
    ] = None

    @staticmethod
    def fast(*, stationary: bool = False) -> FastFedKLUCBVI:
        """Less regret and no proof; ``stationary`` if kernel and rewards do not depend on the step."""
        return FastFedKLUCBVI(stationary=stationary)

    def with_dynamics(self, dynamics: Dynamics) -> FedKLUCBVI | FedKLUCBVIOverLaws:
        """This algorithm over laws and outcomes; counting by step and over all steps are two values of dynamics."""
        sizes = (dynamics.horizon, dynamics.states, dynamics.actions)
        if dynamics.digest == Dynamics.stationary(*sizes).digest:
            return replace(self, stationary=True)
        if self.stationary:
            raise InputError(
                "stationary=True says which visits are counted together, and so do the known dynamics of this "
                "problem. Leave out stationary."
            )
        if dynamics.digest == Dynamics.by_step(*sizes).digest:
            return self
        if dynamics.rewards is None:
            raise InputError(
                "known dynamics must have known rewards too, unless they are Dynamics.by_step or "
                "Dynamics.stationary; pass reward to Dynamics."
            )
        return FedKLUCBVIOverLaws(
            dynamics=dynamics,
            radius=float(self.radius),
            delta=float(self.delta),
            min_round_growth=float(self.min_round_growth or 0.0),
            drawn=self.optimism == "drawn",
            fresh_share=self.fresh_share,
        )

    @property
    def counting(self) -> Counting:
        """By action, for agents draw among the maximisers; over all steps if stationary."""
        return Counting.STATIONARY if self.stationary else Counting.PAIRS

    def rule(self, setting: Setting) -> Rule:
        return Rule.new(
            setting.states,
            setting.horizon,
            self.delta,
            self.grid(setting).bits,
            random_rewards=setting.random_rewards,
            radius=float(self.radius),
            first_states=not setting.starts_known,
        )

    def start_delta(self, setting: Setting) -> float:
        """The share of one event of the union; see :func:`~fed_ucbvi.algorithms.kl_bound.optimism_events`."""
        events = optimism_events(
            setting.states,
            setting.horizon,
            random_rewards=setting.random_rewards,
            first_states=not setting.starts_known,
        )
        return self.delta / events

    def new_server(self, setting: Setting) -> Server:
        """Nothing is known: all actions are equally good everywhere."""
        H = setting.horizon
        S = setting.states
        A = setting.actions
        grid = self.grid(setting)
        table = CountTable.empty(self.counting.shape(H, S, A)[0], S, A, bits=grid.bits)
        certain = Server(Estimates.start(H, S, A, plain=False), self.rule(setting), table, grid)
        return certain if self.optimism == "certain" else DrawnServer.of(certain, setting)

    def level_law(self, setting: Setting) -> LevelLaw:
        """One level if optimism is certain, otherwise nine."""
        if self.optimism == "certain":
            return ONE_LEVEL
        return level_law(setting.agents, self.fresh_share)

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        growth = self.min_round_growth
        if growth is None:
            cells = math.prod(self.counting.shape(setting.horizon, setting.states, setting.actions))
            growth = GROWTH_OF_MANY if cells >= MANY_CELLS else 0.0
        return DoublingRule.named("global", min_round_growth=float(growth))

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """Value iteration on all counts of the server."""
        estimates = Estimates.start(setting.horizon, setting.states, setting.actions, plain=True)
        certain = server.certain() if isinstance(server, DrawnServer) else server
        return certain.planner(estimates, certain.rule._replace(plain=True))

    def certifying(self, delta: float) -> FedKLUCBVI:
        """This algorithm with at most ``delta`` for optimism, which is proved for a radius of 1."""
        if self.radius < 1.0:
            raise InputError(
                f"{self.name} with radius {self.radius:g} is not proved to be optimistic, so it cannot certify how "
                "near a policy is to the best (until_gap). Use fed-kl-ucbvi with radius=1."
            )
        return replace(self, delta=min(self.delta, delta), optimism="certain")

    def pessimistic_values(self, setting: Setting, server: Server, policy: IndexArray, delta: float) -> FloatArray:
        return pessimistic_values(
            server.table,
            policy.copy(),
            setting.random_rewards,
            delta,
            setting.states,
            first_states=not setting.starts_known,
        )

    def cautious_plan(self, setting: Setting, planner: Server) -> tuple[IndexArray, FloatArray]:
        """The plan of the optimistic values turned round: N KL(p, P) <= log(S A H/delta), and the worst of the ball.

        That bounds one direction and not all, so its values guarantee nothing. It only has to choose.
        """
        H = setting.horizon
        S = setting.states
        A = setting.actions
        policy: IndexArray = np.zeros((H, S), dtype=np.int32)
        pessimistic_values(planner.table, policy, setting.random_rewards, self.delta, 1, True)
        return policy, pessimistic_values(planner.table, policy, setting.random_rewards, float(S * A * H), 1)


@checked_by_tests
@dataclass(frozen=True)
class FastFedKLUCBVI(FedKLUCBVI):
    """Fed-KL-UCBVI with a smaller radius: less regret, and no proof."""

    name: ClassVar[str] = "fed-kl-ucbvi-fast"
    label: ClassVar[str] = "Fed-KL-UCBVI fast"

    radius: Annotated[
        Positive, Help("factor on the radius of the ball. 1 is what is proved; less is faster and has no proof.")
    ] = 0.5
