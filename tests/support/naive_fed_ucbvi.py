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
    """If rewards are random, variances are those of ``r + V``."""

    bonus: str = "practical"
    scale: float = 1.0
    aggregation: str = "weighted"
    random_rewards: bool = False


@dataclass
class NaiveAgent:
    """One client: how often it has ``seen`` each reward together with each next state."""

    seen: defaultdict[Triplet, Counter[tuple[float, int]]] = field(default_factory=lambda: defaultdict(Counter))

    def observe(self, h: int, s: int, a: int, reward: float, successor: int, times: int = 1) -> None:
        self.seen[h, s, a][reward, successor] += times


class NaiveReport(NamedTuple):
    """What a client sends about one (s, a) at one step; moments are those of ``r + V`` if rewards are random."""

    n: int
    PV: Fraction
    PV2: Fraction
    Q: Fraction


class NaiveServer:
    """What the server ends up with, and what it was sent."""

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


def report_of(agent: NaiveAgent, at: Triplet, V_next: list[Fraction], random_rewards: bool) -> NaiveReport:
    """Client side of one (s, a) at step h; the uniform kernel and no reward where it has not been."""
    seen = [(Fraction(reward), V_next[successor], n) for (reward, successor), n in agent.seen[at].items()]
    visits = sum(n for *_, n in seen)
    paid = sum((r * n for r, _, n in seen), Fraction(0)) / max(1, visits)
    if visits:
        ys = [(r * random_rewards + v, n) for r, v, n in seen]
    else:
        ys = [(v, 1) for v in V_next]
    first, second = (sum((y**p * n for y, n in ys), Fraction(0)) / sum(n for _, n in ys) for p in (1, 2))
    return NaiveReport(visits, first, second, first if random_rewards else paid + first)


def synchronise(agents: list[NaiveAgent], sizes: Sizes, options: Options) -> NaiveServer:
    """One synchronisation: the loops over h of the server's and of the clients' pseudocode."""
    server = NaiveServer(sizes)
    for h in reversed(range(sizes.horizon)):
        V_next = [Fraction(value) for value in server.V[h + 1].tolist()]
        for s, a in np.ndindex(sizes.states, sizes.actions):
            reports = [report_of(agent, (h, s, a), V_next, options.random_rewards) for agent in agents]
            server.reports |= {(i, h, s, a): report for i, report in enumerate(reports)}
            N = sum(report.n for report in reports)
            server.N[h, s, a] = N
            if N == 0:
                server.Q[h, s, a] = sizes.horizon
                continue
            weighted = options.aggregation == "weighted"
            weights = [Fraction(report.n, N) if weighted else Fraction(1, len(agents)) for report in reports]
            pairs = list(zip(weights, reports, strict=True))
            mean, second, average = (sum((w * report[k] for w, report in pairs), Fraction(0)) for k in (1, 2, 3))
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
