"""Fed-UCBVI (the paper's Section 4 and appendix on pseudocode).

Steps h run from 0 to H-1 here and from 1 to H in the paper. Exchange number e of a synchronisation handles step
``h = H-1-e``: down goes ``V_{h+1}``; up come ``n^i_h`` and, as exact sums over the agent's visits, those of
``V_{h+1}``, of ``V_{h+1}^2`` and of the rewards, from which the server has ``P V``, ``P V^2`` and ``Q``. Where
rewards are random the sums are those of ``y = r + V_{h+1}`` and of ``y^2``, and the bonus covers their spread too.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import (
    ROWS,
    SUMS,
    Algorithm,
    Budgets,
    FleetTables,
    GoingOn,
    Message,
    Setting,
    TableRow,
)
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.algorithms.exact_sums import Grid, make_grid
from fed_ucbvi.algorithms.fed_ucbvi_agents import SYNCHRONISATIONS, Agents, AskingRule
from fed_ucbvi.algorithms.fed_ucbvi_counts import EarlierAgents, counts_of_model, model_of_pool
from fed_ucbvi.algorithms.fed_ucbvi_model import Model, ModelAgents, model_of
from fed_ucbvi.algorithms.fed_ucbvi_pooled import PooledAgents
from fed_ucbvi.algorithms.fed_ucbvi_rows import RowAgents, Rows, add_up_rows
from fed_ucbvi.algorithms.fed_ucbvi_server import TIES, Estimates, Server, UpdateRule
from fed_ucbvi.algorithms.fed_ucbvi_sums import SumAgents, Sums, add_up
from fed_ucbvi.algorithms.greedy import CHOICES, randomise
from fed_ucbvi.core.colours import BLUE, Marker
from fed_ucbvi.core.errors import InputError, check_choice, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.theory.constants import beta_common, beta_star, threshold_nu

BONUSES = ("practical", "theory", "corrected")
AGGREGATIONS = ("weighted", "uniform")


class Broadcast(NamedTuple):
    """Down, at the start of a round: the policy ``[H,S]`` and ``N[H,S,A]``."""

    policy: IndexArray
    N: CountArray


class Query(NamedTuple):
    """Down, for step h: ``V_{h+1}[S]``, multiples of ``2^-f`` where reports are sums."""

    V_next: FloatArray


@dataclass(frozen=True)
class FedUCBVI(Algorithm[Server, Agents]):
    """Parameters of Fed-UCBVI.

    Args:
        bonus: ``practical``: ``H/N + sqrt(Var/N)``, what the paper's experiments used; ``theory``:
            ``eq:bonus_function`` as printed; ``corrected``: the same with ``11 beta^c`` multiplied by H, which the
            proof of optimism needs. Where ``N <= 1`` all give the largest possible Q.
        bonus_scale: factor on the bonus where ``N >= 2``.
        aggregation: weights of the agents, ``weighted`` by ``n^i/N`` (``eq:aggergating_weights``) or
            ``uniform``, ``1/M``; they average Q, ``P V`` and ``P V^2`` alike.
        synchronisation: ``mixture`` of the local and the global doubling rule, split at nu, or one of them alone.
        nu: the threshold; by default ``def:sdeltat``.
        strict: compare with ``>`` as the main text does, not with ``>=`` as the appendix does.
        delta: failure probability, used by nu and by the theory's bonuses.
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first``, as published, or a ``random`` one, drawn from the run's
            seed.

    >>> FedUCBVI(bonus="theory").strict
    False
    """

    name: ClassVar[str] = "fed-ucbvi"
    label: ClassVar[str] = "Fed-UCBVI"
    colour: ClassVar[str] = BLUE
    marker: ClassVar[Marker] = "cross"
    rules: ClassVar[tuple[str, ...]] = ("local", "global")
    takes: ClassVar[str] = SUMS
    keeps_experience: ClassVar[bool] = True
    asks_to_plan: ClassVar[bool] = True
    table: ClassVar[TableRow] = TableRow(
        "model-based", True, "S A H log T + M S A H log log T + M S A H log(1 + eps_p T)", "sqrt(H^3 S A T / M)"
    )

    bonus: str = "practical"
    bonus_scale: float = 1.0
    aggregation: str = "weighted"
    synchronisation: str = "mixture"
    nu: float | None = None
    strict: bool = False
    delta: float = 0.05
    initial_policy: str = "random"
    ties: str = "first"

    def __post_init__(self) -> None:
        check_choice("bonus", self.bonus, BONUSES)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        check_choice("synchronisation", self.synchronisation, SYNCHRONISATIONS)
        check_choice("initial policy", self.initial_policy, CHOICES)
        check_choice("rule for ties", self.ties, TIES)
        check_number("bonus_scale", self.bonus_scale, at_least=0)
        check_number("delta", self.delta, above=0, below=1)
        if self.nu is not None:
            check_number("nu", self.nu, at_least=0)

    def threshold(self, setting: Setting) -> float:
        """Nu in force."""
        if self.nu is not None:
            return float(self.nu)
        return threshold_nu(
            setting.states,
            setting.actions,
            setting.horizon,
            setting.agents,
            setting.episodes,
            setting.eps_p,
            self.delta,
        )

    def facts(self, setting: Setting) -> dict[str, float]:
        """Nu, for the record."""
        return {"nu": self.threshold(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where nu was given but the global rule can never fire, because ``N <= M T < nu``.

        With nu computed that is the rule rather than the exception, at the paper's own settings too; whoever wants to
        know asks :func:`~fed_ucbvi.analysis.planning.plan`.
        """
        nu, most = self.threshold(setting), setting.agents * setting.episodes
        reachable = most > nu if self.strict else most >= nu
        if self.nu is None or self.synchronisation != "mixture" or reachable:
            return []
        return [f"the global rule cannot fire: it needs N >= nu = {nu:,.10g}, and N is at most M T = {most:,}."]

    @property
    def pools(self) -> bool:
        """With weights by visits it does not matter whose they were."""
        return self.aggregation == "weighted"

    @property
    def has_models(self) -> bool:
        """With weights by visits the counts of all agents together are enough."""
        return self.pools

    @property
    def going_on(self) -> GoingOn:
        """With weights by visits all; uniform weights are for a fixed set of agents."""
        if self.has_models:
            return GoingOn("", "", "")
        fixed = "it weights agents alike, those that have seen nothing too, or takes the report of each by itself"
        return GoingOn("", fixed, fixed)

    def grid(self, setting: Setting) -> Grid | None:
        """That of X, Y and Z."""
        return self._grid(setting)

    def _grid(self, setting: Setting) -> Grid:
        random, kept = setting.random_rewards, setting.grid_bits
        rows = setting.agents + (setting.earlier_visits > 0)
        visits = setting.agents * setting.episodes + setting.earlier_visits
        return make_grid(rows, visits, setting.horizon, random_rewards=random, kept=kept)

    def reward_grid(self, setting: Setting) -> Grid | None:
        """That of X and Y, in which random rewards are."""
        return self._grid(setting) if setting.random_rewards else None

    def by_rows(self) -> FedUCBVI:
        """The same, with one row of means for each agent."""
        return FedUCBVIByRows(**{field.name: getattr(self, field.name) for field in dataclasses.fields(FedUCBVI)})

    def exchanges(self, setting: Setting) -> int:
        """H, one for each step."""
        return setting.horizon

    def update_rule(self, setting: Setting) -> UpdateRule:
        """The server's rule with the bonus of the chosen kind, scaled."""
        S, A, H = setting.states, setting.actions, setting.horizon
        c, star = self.bonus_scale, beta_star(S, A, H, self.delta)
        per_visit, per_log, per_variance = c * H, 0.0, c * c
        if self.bonus != "practical":
            per_visit, per_variance = c * 28.0 * star * H, c * c * 8.0 * star
            per_log = c * (11.0 * H if self.bonus == "corrected" else 11.0)
        return UpdateRule(
            weighted=self.aggregation == "weighted",
            per_visit=per_visit,
            per_log=per_log,
            log_union=beta_common(S, A, H, self.delta, 0.0),
            per_variance=per_variance,
            ties=TIES.index(self.ties),
            seed=np.uint64(setting.seed),
            agents=setting.agents,
            grid=self._grid(setting),
            random_rewards=setting.random_rewards,
        )

    def new_server(self, setting: Setting) -> Server:
        """``N = 0``, ``Q = V = H`` and the initial policy."""
        H, S, A = setting.horizon, setting.states, setting.actions
        V = np.full((H + 1, S), float(H))
        V[H] = 0.0
        policy = np.zeros((H, S), dtype=np.int32)
        if self.initial_policy == "random":
            randomise(np.uint64(setting.seed), A, policy)
        N, Q = np.zeros((H, S, A), dtype=np.int64), np.full((H, S, A), float(H))
        return Server(Estimates(N, Q, V, policy, np.zeros(1, dtype=np.int64)), self.update_rule(setting))

    def asking_rule(self, setting: Setting) -> AskingRule:
        """When agents request a synchronisation."""
        kind = SYNCHRONISATIONS.index(self.synchronisation)
        return AskingRule(kind, self.strict, self.threshold(setting), setting.agents)

    def new_agents(self, setting: Setting, tables: FleetTables) -> Agents:
        """No visits yet."""
        asking, grid = self.asking_rule(setting), self._grid(setting)
        if tables.touched is not None:
            return PooledAgents.new(setting, tables, asking, grid, tables.touched)
        return SumAgents.new(setting, tables, asking, grid, self.aggregation == "weighted")

    def broadcast(self, server: Server) -> Broadcast:
        """``pi_(r)`` and ``N_(r)``."""
        return Broadcast(server.policy, server.estimates.N)

    def budgets(self, agents: Agents, broadcast: Message) -> Budgets:
        """Visits v in the round after which an agent requests a synchronisation.

        Local rule (``eq:local_doubling_cond``): ``n^i + v >= 2 n^i``, so ``v >= max(1, n^i)``. Global rule
        (``eq:global_est_doubling_cond``): ``N + M v >= 2 N``, so ``v >= max(1, ceil(N/M))``.
        """
        policy, N = broadcast
        return agents.budgets(policy, N)

    def absorb(self, agents: Agents, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """``n^i_(r+1) = n^i_(r) +`` the round's counts."""
        agents.absorb(policy, transitions, visits)

    def query(self, server: Server, exchange: int) -> Query:
        """``V_{h+1}`` for ``h = H-1-exchange``."""
        return Query(server.V[len(server.policy) - exchange])

    def report(self, agents: Agents, query: Message, exchange: int) -> Message:
        """Agent side of step ``h = H-1-exchange``."""
        return agents.report(agents.horizon - 1 - exchange, query[0])

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side of step ``h = H-1-exchange``; of the rows, nothing but their sum matters."""
        add_up(len(server.policy) - 1 - exchange, Sums(*report), server.rule, server.estimates)

    def model(self, agents: Agents) -> Model:
        """Transition counts and sums of rewards of all agents together."""
        if isinstance(agents, PooledAgents):
            return model_of_pool(agents)
        if not isinstance(agents, SumAgents):
            raise InputError("agents that report rows of means send no models.")
        return model_of(agents)

    def agents_of(self, setting: Setting, model: Message) -> ModelAgents:
        """What was counted, as if by one agent."""
        return ModelAgents.new(setting, Model(*model), self._grid(setting))

    def counts(self, setting: Setting, model: Message) -> Counts:
        """Transition counts by next state, and what was paid."""
        return counts_of_model(model, setting.horizon, self._grid(setting))

    def earlier_agents(self, setting: Setting, counts: Counts) -> EarlierAgents:
        """One more row of the sum over agents."""
        return EarlierAgents.start(setting, counts, self._grid(setting))

    def synchronise(self, server: Server, agents: Agents) -> None:
        """All H exchanges in one compiled piece."""
        agents.synchronise(server)

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """The same without bonus, from exchanges of its own: value iteration on the pooled counts.

        ``Q = r + P V``, where ``P`` and ``r`` are the agents' estimates averaged with the same weights as always, and
        ``Q = 0`` where ``N = 0``.
        """
        nothing = Estimates._make(np.zeros_like(table) for table in server.estimates)
        return Server(nothing, server.rule._replace(ties=TIES.index("first"), plain=True))


@dataclass(frozen=True)
class FedUCBVIByRows(FedUCBVI):
    """Fed-UCBVI whose agents report means as floats, a row each."""

    takes: ClassVar[str] = ROWS

    @property
    def pools(self) -> bool:
        """Rows are one agent's each."""
        return False

    def grid(self, setting: Setting) -> None:
        """None: means are not on a grid."""

    def by_rows(self) -> FedUCBVI:
        """The algorithm itself."""
        return self

    def new_agents(self, setting: Setting, tables: FleetTables) -> Agents:
        """No visits yet."""
        return RowAgents.new(setting, tables, self.asking_rule(setting), self._grid(setting))

    def empty_report(self, agents: Agents, query: Message, exchange: int) -> Message:
        """The room there is for it."""
        return agents.out if isinstance(agents, RowAgents) else self.report(agents, query, exchange)

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side of step ``h = H-1-exchange``, in agent order."""
        add_up_rows(len(server.policy) - 1 - exchange, Rows(*report), server.rule, server.estimates)
