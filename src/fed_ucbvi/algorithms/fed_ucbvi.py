"""Fed-UCBVI (the paper's Section 4 and appendix on pseudocode).

Beside the published algorithm stand two of its kin, made of its options: :class:`SharpFedUCBVI`, which has far less
regret and no proof, and :class:`ProvedFedUCBVI`, which keeps the proof.

Steps h run from 0 to H-1 here and from 1 to H in the paper. Exchange number e of a synchronisation handles step
``h = H-1-e``: down goes ``V_{h+1}``; up come ``n^i_h`` and, as exact sums over the agent's visits, those of
``V_{h+1}``, of ``V_{h+1}^2`` and of the rewards, from which the server has ``P V``, ``P V^2`` and ``Q``. Where
rewards are random the sums are those of ``y = r + V_{h+1}`` and of ``y^2``, and the bonus covers their spread too.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import (
    ROWS,
    SUMS,
    Algorithm,
    Budgets,
    Counting,
    FleetTables,
    GoingOn,
    Message,
    Setting,
    TableRow,
    as_sets,
)
from fed_ucbvi.algorithms.counts import Counts
from fed_ucbvi.algorithms.exact_sums import Grid, make_grid
from fed_ucbvi.algorithms.fed_ucbvi_agents import SYNCHRONISATIONS, Agents, AskingRule
from fed_ucbvi.algorithms.fed_ucbvi_counts import EarlierAgents, counts_of_model, model_of_pool
from fed_ucbvi.algorithms.fed_ucbvi_model import Model, ModelAgents, model_of
from fed_ucbvi.algorithms.fed_ucbvi_pooled import PooledAgents
from fed_ucbvi.algorithms.fed_ucbvi_rows import RowAgents, Rows, add_up_rows
from fed_ucbvi.algorithms.fed_ucbvi_server import RANGES, TIES, Estimates, Server, UpdateRule
from fed_ucbvi.algorithms.fed_ucbvi_sums import SumAgents, Sums, add_up
from fed_ucbvi.algorithms.greedy import CHOICES, randomise
from fed_ucbvi.core.colours import BLUE, ROSE, TEAL, Marker
from fed_ucbvi.core.errors import InputError, check_choice, check_flag, check_number
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray
from fed_ucbvi.theory.constants import beta_common, beta_star, threshold_nu

BONUSES = ("practical", "theory", "corrected", "tight")
RANGES_OF = {
    "practical": RANGES,
    "theory": ("horizon", "remaining"),
    "corrected": ("horizon", "remaining"),
    "tight": ("remaining", "max", "span"),
}
"""The ranges that a bonus can take."""
AGGREGATIONS = ("weighted", "uniform")
CLIPS = ("horizon", "remaining")


class Broadcast(NamedTuple):
    """Down, at the start of a round: the policy, ``[H,S]`` or a mask ``[H,S,A]``, and ``N[H or 1,S,A]``."""

    policy: PolicyArray
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
            proof of optimism needs; ``tight``: the same proof with small constants, for ``bonus_range`` max, span or
            remaining (:func:`~fed_ucbvi.algorithms.fed_ucbvi_server.tight_bonus`). Where ``N <= 1`` all give the
            largest possible Q, but for ``practical`` with the range max or span.
        bonus_range: what stands for the range of the next value ``V_{h+1}``, where the bonus
            has H: ``horizon``, H itself, as published; ``remaining``, H-h, which is all that is left; ``max``, the
            largest of the values; ``span``, their largest less their least. The server knows the values. Where
            rewards are random the last three are one more, for it is ``r + V_{h+1}`` that varies.
        bonus_scale: factor on the bonus where ``N >= 2``.
        aggregation: weights of the agents, ``weighted`` by ``n^i/N`` (``eq:aggergating_weights``) or
            ``uniform``, ``1/M``; they average Q, ``P V`` and ``P V^2`` alike.
        synchronisation: ``mixture`` of the local and the global doubling rule, split at nu, or one of them alone.
        nu: the threshold; by default ``def:sdeltat``.
        strict: compare with ``>`` as the main text does, not with ``>=`` as the appendix does.
        clip: Q is at most H (``horizon``, the paper) or H-h+1 (``remaining``).
        delta: failure probability, used by nu and by the theory's bonuses.
        initial_policy: ``random``, drawn from the run's seed, or ``first``, action 0 everywhere.
        ties: among actions of equal Q take the ``first``, as published, or a ``random`` one, drawn from the run's
            seed; or let every agent draw one anew at every visit (``every-visit``), so that M agents do not all try
            the same action where nothing is known.
        stationary: count visits by (s,a), over all steps together. Only where kernel and rewards do not depend on the
            step: each visit then tells about all of them.
        rest: a round that begins after t episodes goes on for at least ``rest t`` episodes, unless some agent reaches
            eight times its budget. It saves rounds where there are many agents.
        guard: g in ``L = 1 + g log N``, by which a practical bonus and the variance in it are multiplied, so that it
            does not settle too early where rewards are rare.

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
    clip: str = "horizon"
    delta: float = 0.05
    initial_policy: str = "random"
    ties: str = "first"
    bonus_range: str = "horizon"
    stationary: bool = False
    rest: float = 0.0
    guard: float = 0.0

    @staticmethod
    def sharp(*, stationary: bool = False) -> SharpFedUCBVI:
        """Far less regret, with nothing to tune; ``stationary`` if kernel and rewards do not depend on the step."""
        return SharpFedUCBVI(stationary=stationary)

    @staticmethod
    def proved(*, stationary: bool = False, bonus_range: str = "max") -> ProvedFedUCBVI:
        """Less regret than the published algorithm, by a bonus for which the proof of optimism holds."""
        return ProvedFedUCBVI(stationary=stationary, bonus_range=bonus_range)

    def __post_init__(self) -> None:
        check_choice("bonus", self.bonus, BONUSES)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        check_choice("synchronisation", self.synchronisation, SYNCHRONISATIONS)
        check_choice("clip", self.clip, CLIPS)
        check_choice("initial policy", self.initial_policy, CHOICES)
        check_choice("rule for ties", self.ties, TIES)
        check_choice("range of the bonus", self.bonus_range, RANGES)
        if self.bonus_range not in RANGES_OF[self.bonus]:
            raise InputError(
                f"the {self.bonus} bonus does not go with the range {self.bonus_range}; it takes "
                f"{' or '.join(RANGES_OF[self.bonus])}."
            )
        if self.guard and self.bonus != "practical":
            raise InputError(f"a guard is for the practical bonus; the {self.bonus} bonus has its logarithms.")
        check_flag("stationary", self.stationary)
        check_number("rest", self.rest, at_least=0)
        check_number("guard", self.guard, at_least=0)
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
    def counting(self) -> Counting:
        """By (h,s) as published; by action where ties are drawn at every visit; over all steps if stationary."""
        if self.stationary:
            return Counting.STATIONARY
        return Counting.PAIRS if self.ties == "every-visit" else Counting.POLICY

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

    def largest_value(self, setting: Setting, step: int) -> float:
        """The cap on Q: H, or what is left of it."""
        left = setting.horizon - step
        return float(left if self.clip == "remaining" else setting.horizon if left else 0)

    def grid(self, setting: Setting) -> Grid | None:
        """That of X, Y and Z."""
        return self._grid(setting)

    def _grid(self, setting: Setting) -> Grid:
        random, kept = setting.random_rewards, setting.grid_bits
        rows = setting.agents + (setting.earlier_visits > 0)
        return make_grid(rows, self._most_visits(setting), setting.horizon, random_rewards=random, kept=kept)

    def _most_visits(self, setting: Setting) -> int:
        """By step ``N <= M T``, over all steps together ``N <= M T H``, and what a warm start has brought."""
        return (
            setting.agents * setting.episodes * (setting.horizon if self.stationary else 1) + setting.earlier_visits
        )

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
        per_range, per_log, per_variance = c, 0.0, c * c
        if self.bonus == "tight":
            star += math.log(self._most_visits(setting))
        elif self.bonus != "practical":
            per_range, per_log, per_variance = c * 28.0 * star, 11.0, c * c * 8.0 * star
        return UpdateRule(
            weighted=self.aggregation == "weighted",
            tight=self.bonus == "tight",
            value_range=RANGES.index(self.bonus_range),
            scale=c,
            per_range=per_range,
            per_log=per_log,
            log_by_range=self.bonus == "corrected",
            log_union=beta_common(S, A, 1 if self.stationary else H, self.delta, 0.0),
            per_variance=per_variance,
            guard=self.guard,
            beta_star=star,
            heterogeneous=setting.eps_p > 0,
            clip_remaining=self.clip == "remaining",
            ties=TIES.index(self.ties),
            seed=np.uint64(setting.seed),
            agents=setting.agents,
            grid=self._grid(setting),
            random_rewards=setting.random_rewards,
        )

    def new_server(self, setting: Setting) -> Server:
        """``N = 0``, ``Q = V = H`` and the initial policy: where ties are drawn at every visit, all actions."""
        H, S, A = setting.horizon, setting.states, setting.actions
        V = np.full((H + 1, S), float(H))
        V[H] = 0.0
        policy = np.zeros((H, S), dtype=np.int32)
        if self.initial_policy == "random":
            randomise(np.uint64(setting.seed), A, policy)
        N, Q = np.zeros((1 if self.stationary else H, S, A), dtype=np.int64), np.full((H, S, A), float(H))
        greedy = np.zeros((0, S, A), dtype=np.bool_)
        if self.counting is not Counting.POLICY:
            greedy = as_sets(policy, A) | (self.ties == "every-visit")
        estimates = Estimates(N, Q, V, policy, greedy, np.full(H, -1.0), np.zeros(1, dtype=np.int64))
        return Server(estimates, self.update_rule(setting))

    def asking_rule(self, setting: Setting) -> AskingRule:
        """When agents request a synchronisation."""
        kind = SYNCHRONISATIONS.index(self.synchronisation)
        return AskingRule(kind, self.strict, self.threshold(setting), setting.agents, float(self.rest))

    def new_agents(self, setting: Setting, tables: FleetTables) -> Agents:
        """No visits yet."""
        self._check_stationary(tables)
        asking, grid = self.asking_rule(setting), self._grid(setting)
        if tables.touched is not None:
            return PooledAgents.new(setting, tables, self.counting, asking, grid, tables.touched)
        return SumAgents.new(setting, tables, self.counting, asking, grid, self.aggregation == "weighted")

    def _check_stationary(self, tables: FleetTables) -> None:
        """Raise if this is said to be stationary and the tables are known not to be."""
        by_step = [
            name
            for name, steps in (("kernel", tables.successors.shape[0]), ("rewards", tables.rewards.shape[1]))
            if steps > 1
        ]
        if self.stationary and by_step:
            raise InputError(
                f"stationary=True counts visits over all steps together, but here {' and '.join(by_step)} depend on "
                "the step. Take stationary=False."
            )

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

    def absorb(self, agents: Agents, policy: PolicyArray, transitions: CountArray, visits: CountArray) -> None:
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
        N, Q, V, policy, greedy, ranges, updates = server.estimates
        nothing = Estimates(
            np.zeros_like(N),
            np.zeros_like(Q),
            np.zeros_like(V),
            np.zeros_like(policy),
            greedy[:0],
            np.zeros_like(ranges),
            np.zeros_like(updates),
        )
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
        self._check_stationary(tables)
        return RowAgents.new(setting, tables, self.counting, self.asking_rule(setting), self._grid(setting))

    def empty_report(self, agents: Agents, query: Message, exchange: int) -> Message:
        """The room there is for it."""
        return agents.out if isinstance(agents, RowAgents) else self.report(agents, query, exchange)

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Server side of step ``h = H-1-exchange``, in agent order."""
        add_up_rows(len(server.policy) - 1 - exchange, Rows(*report), server.rule, server.estimates)


@dataclass(frozen=True)
class SharpFedUCBVI(FedUCBVI):
    """Fed-UCBVI with far less regret and nothing to tune: the parameters of :class:`FedUCBVI` with other defaults.

    Ties are drawn at every visit. Q is at most what is left of the horizon. The bonus takes the span of values. The
    global rule ends rounds. There is no proof: this bonus is not always optimistic. ``guard`` is by default 1/4, or
    1/2 if ``stationary``; it is settled when the algorithm is made, so that the record has it. Make another one
    rather than replace ``stationary`` in one that is made.

    >>> FedUCBVI.sharp().ties
    'every-visit'
    """

    name: ClassVar[str] = "fed-ucbvi-sharp"
    label: ClassVar[str] = "Fed-UCBVI sharp"
    colour: ClassVar[str] = TEAL
    marker: ClassVar[Marker] = "diamond"

    synchronisation: str = "global"
    clip: str = "remaining"
    ties: str = "every-visit"
    bonus_range: str = "span"
    guard: float | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.guard is None:
            object.__setattr__(self, "guard", 0.5 if self.stationary else 0.25)
        super().__post_init__()


@dataclass(frozen=True)
class ProvedFedUCBVI(FedUCBVI):
    """Fed-UCBVI with the tight bonus, for which the proof of optimism holds, and the parameters of :class:`FedUCBVI`.

    Ties are drawn at every visit, Q and the bonus take what is left of the horizon, the global rule ends rounds. What
    is proved is in ``docs/theory.md`` and :mod:`fed_ucbvi.theory.proved`.
    """

    name: ClassVar[str] = "fed-ucbvi-proved"
    label: ClassVar[str] = "Fed-UCBVI proved"
    colour: ClassVar[str] = ROSE
    marker: ClassVar[Marker] = "triangle"

    bonus: str = "tight"
    synchronisation: str = "global"
    clip: str = "remaining"
    ties: str = "every-visit"
    bonus_range: str = "max"
