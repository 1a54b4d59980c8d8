"""MVP, Monotonic Value Propagation (Zhang, Chen, Lee and Du, *Settling the sample complexity of online RL*, 2024).

One agent, as published: the visits to a triplet (h,s,a) are cut into *epochs* that end when they reach 1, 2, 4, ...
At the end of an epoch the model of the triplet is replaced by what was seen in that epoch alone (n visits, the
empirical kernel P, and the means of r and r^2), and the agent plans again::

    Q_h(s,a) = min(H, r + P V_{h+1} + b),    H where there is no model yet
    b = c1 sqrt(Var_P(V_{h+1}) L / n) + c2 sqrt((mean of r^2 - r^2) L / n) + c3 H L / n

with ``c1 = 460/9``, ``c2 = 2 sqrt(2)``, ``c3 = 544/9`` and ``L = ln(200 S A H^2 K^2 / delta)`` for K episodes. Its
regret has the optimal order for every K, without a burn-in. (The constants are large: in runs of common length the
bonus exceeds H, unless ``scale`` makes it smaller.)

Several agents (our extension, without a proof of its regret): the same with the visits of all agents added up,
``K = M T``. An agent that knows that ``left`` visits are missing asks for synchronisation after ``ceil(left / M)`` of
its own. A synchronisation at (h,s,a) that ends no epoch there leaves at most ``(1 - 1/M) left``, so an epoch takes
``O(M log(M T))`` of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms import fields
from fed_ucbvi.algorithms.base import (
    Array,
    FleetTables,
    Message,
    RunExtension,
    Setting,
    TableRow,
    TableServer,
    check_table_size,
)
from fed_ucbvi.algorithms.exact_sums import Grid, make_grid
from fed_ucbvi.algorithms.kernels import Choice, at_actions, at_policy, first_estimates
from fed_ucbvi.algorithms.one_report import OneReport, RoundAgents, RoundCounts
from fed_ucbvi.core.colours import MAGENTA, MUSTARD
from fed_ucbvi.core.parameters import NonNegative, Probability
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, WordArray

C1, C2, C3 = 460 / 9, 2 * math.sqrt(2), 544 / 9


class MVPReport(NamedTuple):
    """Up, of the round at ``(h, s, pi_h(s))``: visits, sums of r and r^2, and next states."""

    n: fields.RoundVisits
    paid: Annotated[FloatArray, fields.Meaning.REWARDS_OF_ROUND, fields.Shape("m H S")]
    squares: Annotated[FloatArray, fields.Meaning.SQUARED_REWARDS_OF_ROUND, fields.Shape("m H S")]
    moves: Annotated[CountArray, fields.Meaning.TRANSITIONS_OF_ROUND, fields.Shape("m H S S")]


@dataclass
class MVPAgents(RoundAgents[MVPReport]):
    """A fleet of m agents; where rewards are random, with the sums before the round.

    Attributes:
        before: the sums of rho of all earlier rounds, ``(m, steps, S, A)``; empty where rewards are certain.
        squares_before: those of rho^2, as a high and a low word, ``(m, steps, S, A, 2)``.
        unit: ``2^-f``, of which a random reward is rho.
    """

    before: CountArray
    squares_before: WordArray
    unit: float

    def arrays(self) -> dict[str, Array]:
        return {**super().arrays(), "before": self.before, "squares_before": self.squares_before}


class UpdateRule(NamedTuple):
    """``L``, and the factor on the bonus."""

    log_term: float
    scale: float


class Estimates(NamedTuple):
    """What the server knows: of each (h,s,a) visits, sums of r and r^2, and next states; and what follows from them.

    Of each of these four there are three tables: totals, those when the epoch of the triplet began, and the model
    that it has in use.
    """

    N: Annotated[CountArray, fields.Shape("3 H S A")]
    paid: Annotated[FloatArray, fields.Shape("3 H S A")]
    squares: Annotated[FloatArray, fields.Shape("3 H S A")]
    moves: Annotated[CountArray, fields.Shape("3 H S A S")]
    Q: fields.PairTable
    V: fields.Values
    policy: fields.Policy


TOTAL, BEGUN, MODEL = range(3)
Server = TableServer[Estimates, UpdateRule]


@dataclass(frozen=True)
class FedMVP(OneReport[Estimates, UpdateRule, MVPReport]):
    """MVP by M agents together, with the visits of all agents added up; our extension, without a proof.

    Args:
        scale: factor on the bonus; 1 is the published one.
        delta: failure probability.
    """

    name: ClassVar[str] = "fed-mvp"
    label: ClassVar[str] = "Fed-MVP"
    colour: ClassVar[str] = MAGENTA
    rules: ClassVar[tuple[str, ...]] = ("end of epoch",)
    report_type: ClassVar[type[Any]] = MVPReport
    broadcasts: ClassVar[tuple[str, ...]] = ("policy", "left")
    table: ClassVar[TableRow] = TableRow("model-based", False, "M S A H log^2 (M T)", "\u2013")
    extension = RunExtension(
        episodes="T sets the grid on which it adds up random rewards",
        agents="when an agent makes a request is set by the number of agents from the start",
        warm_start="it plans from the counts of its last epoch alone",
    )

    scale: NonNegative = 1.0
    delta: Probability = 0.05
    initial_policy: Choice = "random"

    def log_term(self, setting: Setting) -> float:
        """``L = ln(200 S A H^2 K^2 / delta)`` with ``K = M T``."""
        S, A, H, K = setting.states, setting.actions, setting.horizon, setting.agents * setting.episodes
        return math.log(200.0 * S * A * H**2 / self.delta) + 2.0 * math.log(K)

    def facts(self, setting: Setting) -> dict[str, float]:
        return {"L": self.log_term(setting)}

    def cautions(self, setting: Setting) -> list[str]:
        """A warning where the bonus is at least H whatever happens: an epoch has half of all visits at most."""
        needed, most = self.scale * C3 * self.log_term(setting), setting.agents * setting.episodes // 2
        if most > needed:
            return []
        return [
            f"nothing can be learnt: the bonus is at least H until an epoch has scale 544/9 L = {needed:,.0f} "
            f"visits, and it can have M T / 2 = {most:,} at most. Use a smaller scale."
        ]

    def reward_grid(self, setting: Setting) -> Grid:
        return make_grid(setting.agents, setting.episodes, setting.horizon, random_rewards=True)

    def update_rule(self, setting: Setting) -> UpdateRule:
        return UpdateRule(self.log_term(setting), float(self.scale))

    def new_estimates(self, setting: Setting) -> Estimates:
        """No model of anything: ``Q = V = H``."""
        check_table_size(self.name, setting, 3)
        return first_estimates(Estimates, setting, self.initial_policy)

    def broadcast(self, server: Server) -> Message:
        """The policy, and how many visits the epoch of each ``(h, s, pi_h(s))`` lacks, ``left[H,S]``."""
        N = at_policy(server.policy, server.estimates.N[TOTAL])
        return server.policy, _next_target(N) - N

    def fill_budgets(self, sent: dict[str, Array], M: int, limits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        """An M-th of what is missing, rounded up."""
        limits[:] = -(-sent["left"] // M)

    def new_agents(self, setting: Setting, tables: FleetTables) -> MVPAgents:
        blank = super().new_agents(setting, tables)
        before, squares = tables.sums.by_slot.sum(axis=-1), np.zeros_like(tables.sums.squares)
        return MVPAgents(**vars(blank), before=before, squares_before=squares, unit=self.reward_grid(setting).unit)

    def absorb(
        self, agents: RoundAgents[MVPReport], policy: IndexArray, transitions: CountArray, visits: CountArray
    ) -> None:
        """Work out the round's report; of random rewards, what was added since the round before."""
        super().absorb(agents, policy, transitions, visits)
        assert isinstance(agents, MVPAgents)
        by_slot, words = agents.tables.sums
        if not len(by_slot):
            return
        h, s = np.ogrid[: len(policy), : by_slot.shape[2]]
        here = (slice(None), h % by_slot.shape[1], s, policy)
        sums = by_slot.sum(axis=-1)
        low = words[..., 1] - agents.squares_before[..., 1]
        high = words[..., 0] - agents.squares_before[..., 0] - (words[..., 1] < agents.squares_before[..., 1])
        agents.out.paid[:] = (sums - agents.before)[here] * agents.unit
        agents.out.squares[:] = (high * 2.0**64 + low)[here] * agents.unit**2
        agents.before[:], agents.squares_before[:] = sums, words

    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: MVPReport) -> None:
        rewards = counts.rewards(tables)
        out.n[:], out.moves[:] = counts.visits, counts.next_states(tables)
        out.paid[:], out.squares[:] = counts.visits * rewards, counts.visits * rewards**2

    def aggregate(self, server: Server, report: Message, exchange: int) -> None:
        """Add up the reports; where an epoch is over, use its data for the model, and plan if there is any."""
        known = server.estimates
        N, here = known.N[TOTAL], at_actions(known.policy)
        target = _next_target(N[here])
        for table, rows in zip(known[:4], report, strict=True):
            table[TOTAL][here] += rows.sum(axis=0)
        over = np.zeros(N.shape, dtype=np.bool_)
        over[here] = N[here] >= target
        if over.any():
            for total, begun, model in known[:4]:
                model[over] = total[over] - begun[over]
                begun[over] = total[over]
            _plan(MODEL, known, server.rule)

    def new_planner(self, setting: Setting, server: Server) -> Server:
        """A plan without bonus from all that was seen; what was never seen is worth nothing."""
        known = server.estimates
        plan = Estimates._make([*known[:4], *map(np.zeros_like, known[4:])])
        planner = TableServer(plan, server.rule._replace(scale=0.0))
        _plan(TOTAL, plan, planner.rule, unseen=0.0)
        return planner


@dataclass(frozen=True)
class MVP(FedMVP):
    """MVP for a single agent, as published; the parameters are those of :class:`FedMVP`."""

    name: ClassVar[str] = "mvp"
    label: ClassVar[str] = "MVP"
    colour: ClassVar[str] = MUSTARD
    single_agent: ClassVar[bool] = True
    instead: ClassVar[str] = FedMVP.name
    table: ClassVar[TableRow] = TableRow("model-based", False, "S A H log T", "sqrt(H^3 S A T)")


def _next_target(N: CountArray) -> CountArray:
    """The smallest power of two above N: 1, 2, 4, 4, 8, ... for N = 0, 1, 2, 3, 4, ..."""
    target: CountArray = np.int64(1) << np.where(N > 0, np.frexp(N)[1], 0).astype(np.int64)
    return target


def _plan(which: int, known: Estimates, rule: UpdateRule, unseen: float | None = None) -> None:
    """Backward induction with one of three tables; Q is ``unseen``, by default H, where nothing is in it."""
    n, paid, squares, moves = (table[which] for table in known[:4])
    H = len(known.policy)
    L, scale = rule
    for h in reversed(range(H)):
        visits, V = np.maximum(n[h], 1), known.V[h + 1]
        r, kernel = paid[h] / visits, moves[h] / visits[..., None]
        mean = kernel @ V
        spread = np.maximum(kernel @ V**2 - mean**2, 0.0)
        noise = np.maximum(squares[h] / visits - r**2, 0.0)
        bonus = C1 * np.sqrt(spread * L / visits) + C2 * np.sqrt(noise * L / visits) + C3 * H * L / visits
        value = np.minimum(r + mean + scale * bonus, H)
        known.Q[h] = np.where(n[h] > 0, value, H if unseen is None else unseen)
        known.policy[h] = known.Q[h].argmax(axis=1)
        known.V[h] = known.Q[h].max(axis=1)
