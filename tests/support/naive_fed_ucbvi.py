"""Fed-UCBVI once more, straight from the paper's pseudocode: loops, dictionaries and exact fractions.

Slow and plain on purpose, and sharing no code with the package, which is checked against it. Steps h run from 0 to
H-1. Roots and logarithms are floats; everything else is exact, given the values V that the roots and logarithms
went into.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

Triplet = tuple[int, int, int]
"""(h, s, a)."""


class Sizes(NamedTuple):
    states: int
    actions: int
    horizon: int
    agents: int
    delta: float


class Options(NamedTuple):
    bonus: str = "practical"
    scale: float = 1.0
    aggregation: str = "weighted"


@dataclass
class NaiveAgent:
    """One client: its counters and the rewards it has seen."""

    visits: defaultdict[Triplet, int] = field(default_factory=lambda: defaultdict(int))
    transitions: defaultdict[tuple[int, int, int, int], int] = field(default_factory=lambda: defaultdict(int))
    rewards: defaultdict[Triplet, float] = field(default_factory=lambda: defaultdict(float))

    def observe(self, h: int, s: int, a: int, reward: float, successor: int, times: int = 1) -> None:
        """The same step of the same kind, so many times."""
        if times > 0:
            self.rewards[h, s, a] = reward
            self.visits[h, s, a] += times
            self.transitions[h, s, a, successor] += times

    def kernel(self, h: int, s: int, a: int, states: int) -> list[Fraction]:
        """The empirical kernel; uniform where the triplet was never visited."""
        n = self.visits[h, s, a]
        if n == 0:
            return [Fraction(1, states) for _ in range(states)]
        return [Fraction(self.transitions[h, s, a, successor], n) for successor in range(states)]


class NaiveReport(NamedTuple):
    """What a client sends about one (s, a) at one step."""

    n: int
    PV: Fraction
    PV2: Fraction
    Q: Fraction


@dataclass
class NaiveServer:
    """What the server ends up with, and what it was sent."""

    N: dict[Triplet, int] = field(default_factory=dict)
    variance: dict[Triplet, Fraction] = field(default_factory=dict)
    bonus: dict[Triplet, float] = field(default_factory=dict)
    Q: dict[Triplet, float] = field(default_factory=dict)
    V: dict[tuple[int, int], float] = field(default_factory=dict)
    policy: dict[tuple[int, int], int] = field(default_factory=dict)
    reports: dict[tuple[int, int, int, int], NaiveReport] = field(default_factory=dict)


def beta_star(sizes: Sizes) -> float:
    """``log(12 S A H / delta)``."""
    return math.log(12 * sizes.states * sizes.actions * sizes.horizon / sizes.delta)


def beta_common(sizes: Sizes, n: int) -> float:
    """``log(6 S A H / delta) + log(6 e (2 n + 1))``."""
    union = math.log(6 * sizes.states * sizes.actions * sizes.horizon / sizes.delta)
    return union + math.log(6 * math.e * (2 * n + 1))


def threshold_nu(sizes: Sizes, episodes: int, eps_p: float) -> float:
    """``14 eps_p T H M + 182 M beta^c(delta, T)``."""
    heterogeneity = 14 * eps_p * episodes * sizes.horizon * sizes.agents
    return heterogeneity + 182 * sizes.agents * beta_common(sizes, episodes)


def bonus_of(N: int, variance: Fraction, sizes: Sizes, options: Options) -> float:
    """The bonus of a triplet visited N times in all."""
    H = sizes.horizon
    if N <= 1:
        return float(H)
    if options.bonus == "practical":
        return options.scale * (H / N + math.sqrt(variance / N))
    factor = {"theory": 1, "corrected": H}[options.bonus]
    logs = 28 * beta_star(sizes) * H + 11 * factor * beta_common(sizes, N)
    return options.scale * (logs / N + math.sqrt(8 * beta_star(sizes) * float(variance) / N))


def report_of(agent: NaiveAgent, h: int, s: int, a: int, V_next: list[Fraction], states: int) -> NaiveReport:
    """Client side of one (s, a) at step h."""
    kernel = agent.kernel(h, s, a, states)
    PV = sum((p * v for p, v in zip(kernel, V_next, strict=True)), Fraction(0))
    PV2 = sum((p * v * v for p, v in zip(kernel, V_next, strict=True)), Fraction(0))
    return NaiveReport(agent.visits[h, s, a], PV, PV2, Fraction(agent.rewards[h, s, a]) + PV)


def synchronise(agents: list[NaiveAgent], sizes: Sizes, options: Options) -> NaiveServer:
    """One synchronisation: the loops over h of the server's and of the clients' pseudocode."""
    S, A, H = sizes.states, sizes.actions, sizes.horizon
    server = NaiveServer()
    for s in range(S):
        server.V[H, s] = 0.0
    for h in reversed(range(H)):
        V_next = [Fraction(server.V[h + 1, s]) for s in range(S)]
        for s in range(S):
            for a in range(A):
                reports = [report_of(agent, h, s, a, V_next, S) for agent in agents]
                for i, report in enumerate(reports):
                    server.reports[i, h, s, a] = report
                N = sum(report.n for report in reports)
                server.N[h, s, a] = N
                if N == 0:
                    server.Q[h, s, a] = float(H)
                    continue
                if options.aggregation == "weighted":
                    weights = [Fraction(report.n, N) for report in reports]
                else:
                    weights = [Fraction(1, len(agents)) for _ in reports]
                mean = sum((w * report.PV for w, report in zip(weights, reports, strict=True)), Fraction(0))
                second = sum((w * report.PV2 for w, report in zip(weights, reports, strict=True)), Fraction(0))
                average = sum((w * report.Q for w, report in zip(weights, reports, strict=True)), Fraction(0))
                server.variance[h, s, a] = second - mean**2
                server.bonus[h, s, a] = bonus_of(N, server.variance[h, s, a], sizes, options)
                server.Q[h, s, a] = min(float(average) + server.bonus[h, s, a], float(H))
            best = max(server.Q[h, s, a] for a in range(A))
            server.V[h, s] = best
            server.policy[h, s] = next(a for a in range(A) if server.Q[h, s, a] == best)
    return server


def visits_until_ask(
    before: int, N: int, agents: int, nu: float, synchronisation: str, strict: bool
) -> tuple[int, str]:
    """Visit after visit until a client asks at a triplet: how many it took, and the rule.

    ``before`` is ``n_(r)``, ``N`` is ``N_(r)``. The appendix compares with ``<``, ``>=``; the main text (``strict``)
    with ``<=``, ``>``.

    >>> visits_until_ask(3, 7, 2, nu=100, synchronisation="mixture", strict=False)
    (3, 'local')
    >>> visits_until_ask(3, 7, 2, nu=7, synchronisation="mixture", strict=False)
    (4, 'global')
    """
    local_applies = {"mixture": nu >= N if strict else nu > N, "local": True, "global": False}[synchronisation]
    n, N_hat, visits = before, N, 0
    while True:
        n, N_hat, visits = n + 1, N_hat + agents, visits + 1
        doubled, global_doubled = (n > 2 * before, N_hat > 2 * N) if strict else (n >= 2 * before, N_hat >= 2 * N)
        if local_applies and doubled:
            return visits, "local"
        if not local_applies and global_doubled:
            return visits, "global"
