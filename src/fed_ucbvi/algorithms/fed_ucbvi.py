"""Fed-UCBVI (the paper's Section 4 and appendix on pseudocode).

Steps h run from 0 to H-1 here and from 1 to H in the paper. Exchange number e of a synchronisation handles step
``h = H-1-e``: down goes ``V_{h+1}``; up come ``n^i_h`` and, as exact sums over the agent's visits, those of
``V_{h+1}``, of ``V_{h+1}^2`` and of the rewards, from which the server has ``P V``, ``P V^2`` and ``Q``. A sum over
agents does not depend on how they are grouped, so a simulation or a node sends one report for all its agents.

Where rewards are random, the server uses their means by (h,s,a). The variance in the bonus is then that of the next
value only: the bonus does not cover the spread of rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fed_ucbvi.algorithms.base import (
    Budgets,
    FleetTables,
    Message,
    MessageSizes,
    RunExtension,
    Setting,
    checked_by_tests,
)
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.counting_agents import CountingAgents
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.fed_ucbvi_server import Estimates, Server, Sums, UpdateRule, add_up, induct, sums_of
from fed_ucbvi.algorithms.fields import declared_array, new_tables
from fed_ucbvi.algorithms.kernels import Choice, InitialPolicy, Ties, first_estimates
from fed_ucbvi.algorithms.step_by_step import StepByStep
from fed_ucbvi.algorithms.synchronisation_rules import DoublingRule, SynchronisationRule
from fed_ucbvi.algorithms.threshold import beta_common, beta_star, threshold_nu
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import Help, NonNegative, Probability
from fed_ucbvi.core.types import CountArray, IndexArray

Bonus = Literal["practical", "theory", "corrected"]
Synchronisation = Literal["mixture", "local", "global"]

ROW_BYTES = 4 * 8
"""Bytes of an agent's n, ``P V``, ``P V^2`` and Q of one (s,a), as the paper counts its messages."""


@checked_by_tests
@dataclass(frozen=True)
class FedUCBVI(StepByStep[Server]):
    """Parameters of Fed-UCBVI.

    >>> FedUCBVI(bonus="theory").strict
    False
    """

    name: ClassVar[str] = "fed-ucbvi"
    label: ClassVar[str] = "Fed-UCBVI"
    rules: ClassVar[tuple[str, ...]] = ("local", "global")
    report_type: ClassVar[type[Any]] = Sums

    bonus: Annotated[
        Bonus,
        Help(
            "practical: H/N + sqrt(Var/N), what the paper's experiments used; theory: "
            "eq:bonus_function as printed; corrected: the same with 11 beta^c multiplied by H, which "
            "the proof of optimism needs. Where N <= 1 all give the largest possible Q."
        ),
    ] = "practical"
    bonus_scale: Annotated[NonNegative, Help("factor on the bonus where N >= 2.")] = 1.0
    synchronisation: Annotated[
        Synchronisation, Help("mixture of the local and the global doubling rule, split at nu, or one of them alone.")
    ] = "mixture"
    nu: Annotated[NonNegative | None, Help("the threshold; by default def:sdeltat.")] = None
    strict: Annotated[bool, Help("compare with > as the main text does, not with >= as the appendix does.")] = False
    delta: Annotated[Probability, Help("failure probability, used by nu and by the theory's bonuses.")] = 0.05
    initial_policy: InitialPolicy = "random"
    ties: Annotated[
        Choice,
        Help("among actions of equal Q take the first, as published, or a random one, drawn from the run's seed."),
    ] = "first"

    def threshold(self, setting: Setting) -> float:
        """Nu in force."""
        if self.nu is not None:
            return float(self.nu)
        s = setting
        return threshold_nu(s.states, s.actions, s.horizon, s.agents, s.episodes, s.eps_p, self.delta)

    def facts(self, setting: Setting) -> dict[str, float]:
        return {"nu": self.threshold(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where nu was given but the global rule can never fire, because ``N <= M T < nu``.

        With nu computed that is the rule rather than the exception, at the paper's own settings too; whoever wants to
        know asks :func:`~fed_ucbvi.paper.forecast.plan`.
        """
        nu = self.threshold(setting)
        most = setting.agents * setting.episodes
        reachable = most > nu if self.strict else most >= nu
        if self.nu is None or self.synchronisation != "mixture" or reachable:
            return []
        return [f"the global rule cannot fire: it needs N >= nu = {nu:,.10g}, and N is at most M T = {most:,}."]

    extension = RunExtension(episodes=None, warm_start=None)

    def grid(self, setting: Setting) -> Grid:
        return setting.sum_grid(setting.horizon)

    def update_rule(self, setting: Setting) -> UpdateRule:
        """The server's rule with the bonus of the chosen kind, scaled."""
        S = setting.states
        A = setting.actions
        H = setting.horizon
        c = self.bonus_scale
        star = beta_star(S, A, H, self.delta)
        per_visit = c * H
        per_log = 0.0
        per_variance = c * c
        if self.bonus != "practical":
            per_visit = c * 28.0 * star * H
            per_variance = c * c * 8.0 * star
            per_log = c * (11.0 * H if self.bonus == "corrected" else 11.0)
        return UpdateRule(
            per_visit=per_visit,
            per_log=per_log,
            log_union=beta_common(S, A, H, self.delta, 0.0),
            per_variance=per_variance,
            ties=Ties.of(setting, self.ties),
            grid=self.grid(setting),
        )

    def new_server(self, setting: Setting) -> Server:
        """``N = 0``, ``Q = V = H`` and the initial policy."""
        return Server(first_estimates(Estimates, setting, self.initial_policy), self.update_rule(setting))

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        return DoublingRule.named(self.synchronisation, self.threshold(setting), strict=self.strict)

    def new_agents(self, setting: Setting, tables: FleetTables) -> CountingAgents:
        return CountingAgents(self, setting, tables, self.grid(setting))

    def broadcast(self, server: Server) -> Message:
        """``pi_(r)[H,S]`` and ``N_(r)[H,S,A]``."""
        return server.policy, server.estimates.N

    def budgets(self, agents: CountingAgents, broadcast: Message) -> Budgets:
        policy, N = broadcast
        return agents.budgets(policy, N)

    def absorb(self, agents: CountingAgents, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        agents.absorb(policy, transitions, visits)

    def report(self, agents: CountingAgents, query: Message, exchange: int) -> Sums:
        h = len(agents.asks.rule) - 1 - exchange
        return sums_of(agents.table, h, query[0], agents.grid)

    def message_sizes(self, setting: Setting) -> MessageSizes:
        """Sizes of the paper's messages: policy and N down; in each exchange ``V_{h+1}`` down and four tables up."""
        policy = declared_array(Estimates, "policy", setting).bytes
        counts = declared_array(Estimates, "N", setting).bytes
        return MessageSizes(
            broadcast=policy + counts,
            exchanges=setting.horizon,
            query=8 * setting.states,
            reports=setting.horizon * setting.states * setting.actions * ROW_BYTES,
        )

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side of step ``h = H-1-exchange``; only the sum of the rows matters."""
        h = len(server.policy) - 1 - exchange
        rows = Sums(*report)
        if server.earlier is not None:
            own = sums_of(server.earlier, h, server.V[h + 1], server.rule.grid)
            rows = Sums(
                n=np.concatenate([rows.n, own.n]),
                X=np.concatenate([rows.X, own.X]),
                Y=np.concatenate([rows.Y, own.Y]),
                Z=np.concatenate([rows.Z, own.Z]),
            )
        add_up(h, rows, server.rule, server.estimates)

    def counts_of(self, server: Server, agents: CountingAgents | None) -> CountTable:
        if agents is None:
            raise InputError(f"the server of {self.name} knows sums over visits, not the counts of its agents.")
        return agents.table.copy()

    def start_from(self, server: Server, counts: CountTable) -> None:
        """Add the counts to all sums, as one more report that the server has itself."""
        nothing = CountTable.empty(*server.estimates.Q.shape, bits=server.rule.grid.bits)
        server.earlier = nothing.merge(counts)
        induct(server.earlier, server.rule, server.estimates)

    def synchronise(self, server: Server, agents: CountingAgents, setting: Setting) -> None:
        """All H exchanges, in one compiled function unless the server has counts of an earlier run."""
        if server.earlier is None:
            induct(agents.table, server.rule, server.estimates)
        else:
            super().synchronise(server, agents, setting)

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """Value iteration on the counts of all agents, with exchanges of its own: ``Q = r + P V``, 0 where N = 0."""
        nothing = new_tables(Estimates, setting)
        rule = server.rule._replace(ties=server.rule.ties._replace(random=False), plain=True)
        return Server(nothing, rule, server.earlier)
