"""Fed-UCBVI once more, straight from the paper's pseudocode: loops over visits and exact fractions.

Slow and plain on purpose, and sharing no code with the package, which is checked against it. Steps h run from 0 to
H-1. Roots and logarithms are floats; everything else is exact, given the values V that the roots and logarithms
went into.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

Triplet = tuple[int, int, int]
"""(h, s, a)."""


class Sizes(NamedTuple):
    states: int
    actions: int
    horizon: int
    agents: int
    delta: float = 0.05


class Options(NamedTuple):
    """The kind of bonus, and the factor on it."""

    bonus: str = "practical"
    scale: float = 1.0


@dataclass
class NaiveAgent:
    """One client: how often it has ``seen`` each reward together with each next state."""

    seen: defaultdict[Triplet, Counter[tuple[float, int]]] = field(default_factory=lambda: defaultdict(Counter))

    def observe(self, h: int, s: int, a: int, reward: float, successor: int, times: int = 1) -> None:
        self.seen[h, s, a][reward, successor] += times


class NaiveReport(NamedTuple):
    """Report of a client about one (s, a) at one step."""

    n: int
    PV: Fraction
    PV2: Fraction
    Q: Fraction


class NaiveServer:
    """Tables of the server after a synchronisation, and the reports it was sent."""

    def __init__(self, sizes: Sizes) -> None:
        S = sizes.states
        A = sizes.actions
        H = sizes.horizon
        self.N = np.zeros((H, S, A), dtype=np.int64)
        self.variance, self.Q = np.zeros((2, H, S, A))
        self.V = np.zeros((H + 1, S))
        self.reports: dict[tuple[int, int, int, int], NaiveReport] = {}

    def assert_equals(self, estimates: Any, within: float | list[float]) -> None:
        """N is that of a server, Q is ``within`` so much, by step, of its own, and V and the policy follow from Q."""
        N, Q, V, policy, *_ = estimates
        near = np.broadcast_to(np.array(within).reshape((-1, 1)), policy.shape)
        assert np.array_equal(N, self.N)
        assert (np.abs(Q - self.Q) <= near[..., None]).all()
        assert (np.abs(V[:-1] - self.V[:-1]) <= 2 * near).all()
        assert not V[-1].any()
        good = self.V[:-1, :, None] - self.Q <= 2 * near[..., None]
        assert np.take_along_axis(good, policy[..., None].astype(np.int64), axis=2).all()


def beta_star(sizes: Sizes) -> float:
    """``log(12 S A H / delta)``."""
    return math.log(12 * sizes.states * sizes.actions * sizes.horizon / sizes.delta)


def beta_common(sizes: Sizes, n: int) -> float:
    """``log(6 S A H / delta) + log(6 e (2 n + 1))``."""
    union = math.log(6 * sizes.states * sizes.actions * sizes.horizon / sizes.delta)
    return union + math.log(6 * math.e * (2 * n + 1))


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


def report_of(agent: NaiveAgent, at: Triplet, V_next: list[Fraction]) -> NaiveReport:
    """Client side of one (s, a) at step h; all zero where it has not been."""
    visits = 0
    rewards = Fraction(0)
    first = Fraction(0)
    second = Fraction(0)
    for (reward, successor), n in agent.seen[at].items():
        visits += n
        rewards += n * Fraction(reward)
        first += n * V_next[successor]
        second += n * V_next[successor] ** 2
    if visits == 0:
        return NaiveReport(0, first, second, rewards)
    return NaiveReport(visits, first / visits, second / visits, (rewards + first) / visits)


def synchronise(agents: list[NaiveAgent], sizes: Sizes, options: Options) -> NaiveServer:
    """One synchronisation: the loops over h of the server's and of the clients' pseudocode."""
    server = NaiveServer(sizes)
    for h in reversed(range(sizes.horizon)):
        V_next = [Fraction(value) for value in server.V[h + 1].tolist()]
        for s, a in np.ndindex(sizes.states, sizes.actions):
            reports = [report_of(agent, (h, s, a), V_next) for agent in agents]
            for i, report in enumerate(reports):
                server.reports[i, h, s, a] = report
            N = sum(report.n for report in reports)
            server.N[h, s, a] = N
            if N == 0:
                server.Q[h, s, a] = sizes.horizon
                continue
            mean = sum((Fraction(report.n, N) * report.PV for report in reports), Fraction(0))
            second = sum((Fraction(report.n, N) * report.PV2 for report in reports), Fraction(0))
            average = sum((Fraction(report.n, N) * report.Q for report in reports), Fraction(0))
            variance = second - mean**2
            server.variance[h, s, a] = variance
            server.Q[h, s, a] = min(
                float(average) + bonus_of(N, variance, sizes, options),
                float(sizes.horizon),
            )
        server.V[h] = server.Q[h].max(axis=1)
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
    local_applies = {
        "mixture": nu >= N if strict else nu > N,
        "local": True,
        "global": False,
    }[synchronisation]
    n = before
    N_hat = N
    visits = 0
    while True:
        n = n + 1
        N_hat = N_hat + agents
        visits = visits + 1
        if strict:
            doubled, global_doubled = (n > 2 * before, N_hat > 2 * N)
        else:
            doubled, global_doubled = (n >= 2 * before, N_hat >= 2 * N)
        if local_applies and doubled:
            return visits, "local"
        if not local_applies and global_doubled:
            return visits, "global"
