"""Fed-UCBVI (the paper's Section 4 and appendix on pseudocode).

Steps h run from 0 to H-1 here and from 1 to H in the paper. Exchange number e of a synchronisation handles step
``h = H-1-e``: down goes ``V_{h+1}``; up come ``n^i_h`` and, as exact sums over the agent's visits, those of
``V_{h+1}``, of ``V_{h+1}^2`` and of the rewards, from which the server has ``P V``, ``P V^2`` and ``Q``. Where
rewards are random the sums are those of ``y = r + V_{h+1}`` and of ``y^2``, and the bonus covers their spread too.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fed_ucbvi.algorithms.base import (
    Budgets,
    FleetTables,
    Message,
    MessageSizes,
    RunExtension,
    Setting,
    TableRow,
    Tuning,
)
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.counting_agents import Counted, CountingAgents
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.experience import StepByStep
from fed_ucbvi.algorithms.fed_ucbvi_server import (
    Estimates,
    Means,
    Rows,
    Server,
    Sums,
    UpdateRule,
    add_up,
    add_up_rows,
    induct,
    sums_of,
    write_means,
    write_rows,
)
from fed_ucbvi.algorithms.fields import declared_array, declared_bytes, new_tables
from fed_ucbvi.algorithms.kernels import Choice, InitialPolicy, Ties, first_estimates
from fed_ucbvi.algorithms.synchronisation_rules import DoublingRule, SynchronisationRule
from fed_ucbvi.algorithms.threshold import beta_common, beta_star, threshold_nu
from fed_ucbvi.core.colours import BLUE, Marker
from fed_ucbvi.core.parameters import Help, NonNegative, Probability
from fed_ucbvi.core.types import CountArray, IndexArray

Bonus = Literal["practical", "theory", "corrected"]
Aggregation = Literal["weighted", "uniform"]
Synchronisation = Literal["mixture", "local", "global"]


@dataclass(frozen=True)
class FedUCBVI(StepByStep[Server]):
    """Parameters of Fed-UCBVI.

    >>> FedUCBVI(bonus="theory").strict
    False
    """

    name: ClassVar[str] = "fed-ucbvi"
    label: ClassVar[str] = "Fed-UCBVI"
    colour: ClassVar[str] = BLUE
    marker: ClassVar[Marker] = "cross"
    rules: ClassVar[tuple[str, ...]] = ("local", "global")
    rewards_by_state: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow(
        "model-based", True, "S A H log T + M S A H log log T + M S A H log(1 + eps_p T)", "sqrt(H^3 S A T / M)"
    )

    tuning: ClassVar[Tuning] = Tuning("bonus_scale = k", lambda k: {"bonus_scale": k})

    bonus: Annotated[
        Bonus,
        Help(
            "practical: H/N + sqrt(Var/N), what the paper's experiments used; theory: "
            "eq:bonus_function as printed; corrected: the same with 11 beta^c multiplied by H, which "
            "the proof of optimism needs. Where N <= 1 all give the largest possible Q."
        ),
    ] = "practical"
    bonus_scale: Annotated[NonNegative, Help("factor on the bonus where N >= 2.")] = 1.0
    aggregation: Annotated[
        Aggregation,
        Help(
            "weights of the agents, weighted by n^i/N (eq:aggergating_weights) or uniform, 1/M; they "
            "average Q, P V and P V^2 alike."
        ),
    ] = "weighted"
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

    @property
    def pools(self) -> bool:
        """With weights by visits it does not matter whose they were."""
        return self.aggregation == "weighted"

    @property
    def extension(self) -> RunExtension:
        """More episodes, and with weights by visits also a warm start."""
        if self.pools:
            return RunExtension(episodes=None, warm_start=None)
        return RunExtension(
            episodes=None, warm_start="it weights agents alike, or takes the report of each by itself"
        )

    def grid(self, setting: Setting) -> Grid | None:
        return setting.sum_grid(setting.horizon)

    def with_agent_reports(self) -> FedUCBVI:
        return _in_form(FedUCBVIByRows, self)

    def with_increments(self) -> FedUCBVI:
        """With weights by visits the counts of all agents together are enough."""
        return _in_form(FedUCBVIByIncrements, self) if self.pools else self

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
            weighted=self.aggregation == "weighted",
            per_visit=per_visit,
            per_log=per_log,
            log_union=beta_common(S, A, H, self.delta, 0.0),
            per_variance=per_variance,
            ties=Ties.of(setting, self.ties),
            agents=setting.agents,
            grid=setting.sum_grid(H),
        )

    def new_server(self, setting: Setting) -> Server:
        """``N = 0``, ``Q = V = H`` and the initial policy."""
        known = first_estimates(Estimates, setting, self.initial_policy)
        rule = self.update_rule(setting)
        table = CountTable.empty(*known.Q.shape, bits=rule.grid.bits, by_slot=setting.random_rewards)
        return Server(known, rule, table)

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        return DoublingRule.named(self.synchronisation, self.threshold(setting), strict=self.strict)

    def new_agents(self, setting: Setting, tables: FleetTables) -> CountingAgents:
        grid = setting.sum_grid(setting.horizon)
        agents = CountingAgents(self, setting, tables, grid)
        if self.aggregation == "uniform":
            words = ((), (grid.words,), (2,), (grid.words,))
            shape = (tables.agents, setting.states, setting.actions)
            agents.out = Means._make(np.zeros((*shape, *more), dtype=np.int64) for more in words)
        return agents

    def broadcast(self, server: Server) -> Message:
        """``pi_(r)[H,S]`` and ``N_(r)[H,S,A]``."""
        return server.policy, server.estimates.N

    def budgets(self, agents: CountingAgents, broadcast: Message) -> Budgets:
        policy, N = broadcast
        return agents.budgets(policy, N)

    def absorb(self, agents: CountingAgents, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        agents.absorb(policy, transitions, visits)

    def report(self, agents: CountingAgents, query: Message, exchange: int) -> Message:
        h = len(agents.asks.rule) - 1 - exchange
        V_next = query[0]
        if agents.out is None:
            return sums_of(agents.table, h, V_next, agents.grid)
        means: Means = agents.out
        write_means(h, agents.experience, V_next, agents.grid, means)
        return means

    def message_sizes(self, setting: Setting) -> MessageSizes:
        """Those of the paper: a policy and N down; in each exchange ``V_{h+1}`` down and :class:`Rows` up."""
        policy = declared_array(Estimates, "policy", setting).bytes
        counts = declared_array(Estimates, "N", setting).bytes
        return MessageSizes(
            broadcast=policy + counts,
            exchanges=setting.horizon,
            query=8 * setting.states,
            reports=setting.horizon * declared_bytes(Rows, setting),
        )

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side of step ``h = H-1-exchange``; of the rows, nothing but their sum matters."""
        h = len(server.policy) - 1 - exchange
        rows = Sums(*report)
        if not server.table.is_empty:
            own = sums_of(server.table, h, server.V[h + 1], server.grid)
            rows = Sums._make(np.concatenate(arrays) for arrays in zip(rows, own, strict=True))
        add_up(h, rows, server.rule, server.estimates)

    def counts_of(self, server: Server, agents: CountingAgents | None) -> CountTable:
        assert agents is not None
        return agents.counted()

    def start_from(self, server: Server, counts: CountTable) -> None:
        """One more row of the sum over agents, which the server has itself."""
        server.table = server.table.merge(counts)
        server.update()

    def synchronise(self, server: Server, agents: CountingAgents, setting: Setting) -> None:
        """All H exchanges; in one compiled piece where agents are counted in one table."""
        if self.pools and server.table.is_empty:
            induct(tuple(agents.table), server.rule, tuple(server.estimates))
        else:
            super().synchronise(server, agents, setting)

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """The same without bonus, from exchanges of its own: value iteration on the pooled counts.

        ``Q = r + P V``, where ``P`` and ``r`` are the agents' estimates averaged with the same weights as always, and
        ``Q = 0`` where ``N = 0``.
        """
        nothing = Estimates._make(np.zeros_like(table) for table in server.estimates)
        rule = server.rule._replace(ties=server.rule.ties._replace(random=False), plain=True)
        return Server(nothing, rule, server.table)


@functools.cache
def _class_in_form(form: type[FedUCBVI], kind: type[FedUCBVI]) -> type[FedUCBVI]:
    mixed = type(kind.__name__, (form, kind), {"__module__": kind.__module__, "another_form": True})
    return dataclass(frozen=True)(mixed)


def _in_form(form: type[FedUCBVI], algorithm: FedUCBVI) -> FedUCBVI:
    """The same algorithm, of whatever class, with another form of reports."""
    family = (kind for kind in type(algorithm).__mro__ if issubclass(kind, FedUCBVI))
    plain = next(kind for kind in family if not vars(kind).get("another_form"))
    kind = form if plain is FedUCBVI else _class_in_form(form, plain)
    return kind(**vars(algorithm))


@dataclass(frozen=True)
class FedUCBVIByIncrements(Counted[Server], FedUCBVI):
    """Fed-UCBVI whose agents report what is new, once a synchronisation; the server keeps a table of all counts.

    A sum over the counts of all agents is a sum of integers, so that it does not matter who adds, and when: estimates
    are those of the paper's H exchanges, to the last bit.
    """

    another_form: ClassVar[bool] = True

    def exchanges(self, setting: Setting) -> int:
        return 1

    def new_server(self, setting: Setting) -> Server:
        server = FedUCBVI.new_server(self, setting)
        server.keeps = True
        return server

    def query_values(self, query: Message) -> None:
        return None

    def new_planner(self, setting: Setting, server: Server) -> Server:
        plain = FedUCBVI.new_planner(self, setting, server)
        return server.planner(plain.estimates, plain.rule)


@dataclass(frozen=True)
class FedUCBVIByRows(FedUCBVI):
    """Fed-UCBVI whose agents report means as floats, a row each."""

    another_form: ClassVar[bool] = True
    pools = False  # rows are one agent's each

    def grid(self, setting: Setting) -> None:
        """None: means are not on a grid, though sums of random rewards are."""

    def reward_grid(self, setting: Setting) -> Grid | None:
        return setting.sum_grid(setting.horizon) if setting.random_rewards else None

    def new_agents(self, setting: Setting, tables: FleetTables) -> CountingAgents:
        agents = super().new_agents(setting, tables)
        agents.out = new_tables(Rows, setting, tables.agents)
        return agents

    def report(self, agents: CountingAgents, query: Message, exchange: int) -> Rows:
        rows: Rows = agents.out
        write_rows(len(agents.asks.rule) - 1 - exchange, agents.experience, agents.grid.unit, query[0], rows)
        return rows

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side of step ``h = H-1-exchange``, in agent order."""
        add_up_rows(len(server.policy) - 1 - exchange, Rows(*report), server.rule, server.estimates)
