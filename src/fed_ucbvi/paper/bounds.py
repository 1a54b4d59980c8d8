"""Bounds on regret and rounds: the paper's (``thm:regret``, ``lem:communication``), Fed-KL-UCBVI's, a lower bound.

Symbols: S states, A actions, H horizon, M agents, T episodes per agent, delta the failure probability. First come the
concentration functions, the threshold nu and the paper's bound on rounds.

The regret bound has three forms. Two are for Fed-UCBVI with ``bonus="corrected"``, on the event ``G(delta)``, on
which the concentration inequalities of the proof hold: ``printed`` has the constants of the paper's last display,
``mended`` those that the same proof gives once its slips are corrected (``docs/theory.md``). Every mended term is
below the printed one. The third, ``kl``, is for ``FedKLUCBVI()`` with radius 1, for identical agents and rewards that
are a function of (h,s,a): Theorems 4 and 5 of ``docs/theory.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from fed_ucbvi.algorithms.threshold import beta_common, beta_star, threshold_nu
from fed_ucbvi.core.errors import InputError, check_choice, check_number, check_positive_integer

PROOFS = ("mended", "printed", "kl")
RULES = ("mixture", "global")
MAX_EPISODES = 2.0**200
"""Searches over T stop here."""
MAX_TERMS = 10_000
"""The most terms of a sum over states that are added up one by one."""
KAPPA = math.e / (math.e - 1)
"""Expected visits are at most this many times the visits and a logarithm."""
BALL = 4 / 3 + math.sqrt(5 / 3)
"""On the ball ``q.V - p.V <= sqrt(2 c Var_p(V)) + BALL c span(V)``."""


def beta_kl(S: int, A: int, H: int, delta: float, n: float) -> float:
    """``beta^KL(delta, n) = log(6 S A H / delta) + log(e (1 + n))`` (``lem:proba_master_event``)."""
    return math.log(6 * S * A * H / delta) + math.log(math.e * (1 + n))


def beta_variance(M: int, delta: float, t: float) -> float:
    """``beta^Var(delta, t) = log(24 e (2 M t + 1) / delta)`` (``lem:proba_master_event``)."""
    return math.log(24 * math.e * (2 * M * t + 1) / delta)


def beta_martingale(H: int, delta: float) -> float:
    """``beta(delta) = log(48 H / delta)`` (``lem:proba_master_event``)."""
    return math.log(48 * H / delta)


def beta_max(S: int, A: int, H: int, M: int, T: int, delta: float) -> float:
    """``beta^max(delta)``, the largest of all betas above and of ``log(e M T H / (S A))`` (``eq:def-beta-max``).

    >>> round(beta_max(S=8, A=4, H=10, M=20, T=30_000, delta=0.05), 3)
    27.345
    """
    return max(
        beta_kl(S, A, H, delta, M * T),
        beta_common(S, A, H, delta, M * T),
        beta_star(S, A, H, delta),
        beta_martingale(H, delta),
        beta_variance(M, delta, T),
        math.log(math.e * M * T * H / (S * A)),
    )


def most_rounds(S: int, A: int, H: int, M: int, T: int, eps_p: float, delta: float) -> float:
    """The bound on the number of rounds, ``def:roundsmax`` with ``log2 nu`` for its ``log nu``, for ``T M >= nu``.

    ``R_max = M S A H log2 nu + S A H log(T M / nu) / log(8/7)``. The appendix prints ``log nu``, which is too small:
    its proof counts doublings (``2^k <= nu``), and the sketch in the main text has ``log_2``. The second term is
    never below zero. Agents must start in the same distribution (slip 23 of ``docs/paper_slips.md``).
    :func:`rounds_bound` counts more closely.
    """
    nu = threshold_nu(S, A, H, M, T, eps_p, delta)
    doublings = math.log2(nu)
    growth = max(0.0, math.log(T * M / nu)) / math.log(8 / 7)
    return M * S * A * H * doublings + S * A * H * growth


class RegretBound(NamedTuple):
    """An upper bound on regret, term by term; averaged over agents, in units of reward.

    Attributes:
        exploration: of order ``sqrt(H^3 S A T / M)``, the leading term for M agents that learn together.
        burn_in: of order ``H^3 S^2 A``; it does not grow with T, except by logarithms.
        kernels: linear in T, from learning in kernels that differ by eps_p.
        rewards: linear in T, from rewards that differ by eps_r.
        reduction_kernels: ``2 T eps_p H^2``, from comparing in the agents' MDPs, not in the common one.
        reduction_rewards: ``2 T eps_r H``, the same for rewards.
    """

    exploration: float
    burn_in: float
    kernels: float
    rewards: float
    reduction_kernels: float
    reduction_rewards: float

    @property
    def common(self) -> float:
        """The bound on the common regret (``def:common_regret``), which runs report."""
        return self.exploration + self.burn_in + self.kernels + self.rewards

    @property
    def federated(self) -> float:
        """The bound on the federated regret (``def:regret``), which ``thm:regret`` is about."""
        return self.common + self.reduction_kernels + self.reduction_rewards

    @property
    def heterogeneity(self) -> float:
        """All that eps_p and eps_r cost the federated regret."""
        return self.kernels + self.rewards + self.reduction_kernels + self.reduction_rewards


def check_sizes(S: int, A: int, H: int, M: int, T: int, eps_p: float, eps_r: float, delta: float) -> None:
    """Raise unless these can be the sizes, the heterogeneity and the failure probability of a run."""
    for name, size in (
        ("states", S),
        ("actions", A),
        ("horizon", H),
        ("agents", M),
        ("episodes", T),
    ):
        check_positive_integer(name, size)
    check_number("eps_p", eps_p, at_least=0, at_most=1, why="Assumption 1")
    check_number("eps_r", eps_r, at_least=0, at_most=1, why="Assumption 2")
    check_number("delta", delta, above=0, below=1)
    if T > MAX_EPISODES * 2:
        raise InputError(f"episodes must be at most 2^201, got {T:.3g}.")


def regret_bound_terms(
    S: int,
    A: int,
    H: int,
    M: int,
    T: int,
    eps_p: float,
    eps_r: float,
    delta: float,
    *,
    proof: str = "mended",
    stationary: bool = False,
) -> RegretBound:
    """``thm:regret`` with its constants.

    Printed: ``138 e b sqrt(H^3 S A T / M) + 6020 e^2 H^3 S^2 A b^2 + e b T H (595 H eps_p + 148 H eps_r)`` with
    ``b = beta^max``. Mended: see :func:`_mended`. ``kl`` requires agents that are all alike, and may be
    ``stationary``: see :func:`kl_regret_bound`.

    >>> terms = regret_bound_terms(S=8, A=4, H=10, M=20, T=10**12, eps_p=0, eps_r=0, delta=0.05)
    >>> terms.federated == terms.common == terms.exploration + terms.burn_in
    True
    """
    check_choice("proof", proof, PROOFS)
    check_sizes(S, A, H, M, T, eps_p, eps_r, delta)
    if proof == "kl":
        if eps_p > 0 or eps_r > 0:
            raise InputError('proof="kl" is worked out for agents that are all alike: eps_p = eps_r = 0.')
        return kl_regret_bound(S, A, H, M, T, delta, stationary=stationary)
    if stationary:
        raise InputError('counts over all steps together (stationary=True) go with proof="kl" only.')
    b = beta_max(S, A, H, M, T, delta)
    if proof == "mended":
        return _mended(S, A, H, M, T, eps_p, eps_r, b)
    reduction_kernels = 2 * T * eps_p * H**2
    reduction_rewards = 2 * T * eps_r * H
    return RegretBound(
        exploration=138 * math.e * b * math.sqrt(H**3 * S * A * T / M),
        burn_in=6020 * math.e**2 * H**3 * S**2 * A * b**2,
        kernels=595 * math.e * b * T * H**2 * eps_p - reduction_kernels,
        rewards=148 * math.e * b * T * H**2 * eps_r - reduction_rewards,
        reduction_kernels=reduction_kernels,
        reduction_rewards=reduction_rewards,
    )


def _mended(S: int, A: int, H: int, M: int, T: int, eps_p: float, eps_r: float, b: float) -> RegretBound:
    """The bound with the constants of the mended proof; the letters are those of ``docs/theory.md``."""
    e = math.e
    root = math.sqrt
    per_count = 72  # of H^2 S b / N in one step: 11 + 28 + 11 + 14/3 + 9/2 + sqrt(88) + 10/3
    variance_rest = 8 * root(2)  # of H^3 S b sqrt(A T / M) in the sum of variances: 2 sqrt(8) + sqrt(32)
    both = 1 + root(2)  # the sums A and B, the second being sqrt(2) times the first
    leading = both * (4 * root(2) + 2) + root(8)
    quadratic = both * 4 * root(2)  # of e b sqrt(H^3 S A U / M)
    first_visits = root(1 / 2) + 1 + per_count / 2 + 6
    lower = both * (2 * variance_rest + 4 * root(6.5)) + first_visits + (4 + 8 + 4 * per_count) / M
    steps_p = 9.125 + 9 + 15
    steps_r = 3 + 6 + 10
    return RegretBound(
        exploration=2 * leading * e * b * root(H**3 * S * A * T / M),
        burn_in=2 * lower * e * H**3 * S**2 * A * b**2 + (quadratic * e * b) ** 2 * H**3 * S * A / M,
        kernels=(2 * steps_p * e + 3) * T * H**2 * eps_p,
        rewards=(2 * steps_r * e + 2) * T * H * eps_r,
        reduction_kernels=2 * T * eps_p * H**2,
        reduction_rewards=2 * T * eps_r * H,
    )


def kl_regret_bound(S: int, A: int, H: int, M: int, T: int, delta: float, *, stationary: bool = False) -> RegretBound:
    """Theorem 5 of ``docs/kl_regret.md``: the regret is at most W, with probability ``1 - 2 delta`` at least.

    ``W = X + Y sqrt(W)``, ``X = early + a H/2 sqrt(T D) + K D``, ``Y = (a + sqrt(2 beta_K)) sqrt(H (H-1) D / 2)``,

        a = sqrt(2 beta) + sqrt(2 beta_B),   kappa = e/(e-1),   n = M T (M T H if stationary),
        D = 4 kappa S A (H-1) log(T) / M,    early = kappa S A H (H+1) (1 + beta_N/M),
        K = (H-1) (sqrt(beta beta_K) + (4/3 + sqrt(5/3)) beta + beta_B/3 + beta_K/3),
        beta   = log(2 S (H-1) / delta) + log(n + 1) / 2,    beta_B = log(3 S A (H-1) n / delta),
        beta_K = log(3 S A (H-1) / delta) + log binomial(n + S - 1, S - 1),    beta_N = log(3 S A H / delta).

    If ``stationary``, D is without ``H-1``, early is ``2 kappa S A H^2 (1 + beta_N/M)``, and beta_K and beta_N are
    without ``H-1`` and H. ``exploration`` is the term with the root of T, ``burn_in`` all others.

    >>> bound = kl_regret_bound(S=8, A=4, H=10, M=20, T=10**8, delta=0.05)
    >>> bound.common < 0.2 * 10 * 10**8
    True
    """
    check_sizes(S, A, H, M, T, 0.0, 0.0, delta)
    pairs = S * A
    n = M * T * (H if stationary else 1)
    later = 1 if stationary else max(1, H - 1)  # tables of counts for steps that have a next one
    sequences = _log_binomial(n, S)
    beta = math.log(2 * S * max(1, H - 1) / delta) + math.log(n + 1) / 2
    beta_bernstein = math.log(3 * pairs * max(1, H - 1) * n / delta)
    beta_kernel = math.log(3 * pairs * later / delta) + sequences
    beta_visits = math.log(3 * pairs * (1 if stationary else H) / delta)

    inverse = 4 * KAPPA * pairs * later * math.log(T) / M if H > 1 else 0.0  # D
    early = KAPPA * pairs * H * (2 * H if stationary else H + 1) * (1 + beta_visits / M)
    a = math.sqrt(2 * beta) + math.sqrt(2 * beta_bernstein)
    exploration = a * H / 2 * math.sqrt(T * inverse)
    K = (H - 1) * (math.sqrt(beta * beta_kernel) + BALL * beta + (beta_bernstein + beta_kernel) / 3)
    X = early + exploration + K * inverse
    Y = (a + math.sqrt(2 * beta_kernel)) * math.sqrt(H * (H - 1) * inverse / 2)
    W = (Y + math.sqrt(Y * Y + 4 * X)) ** 2 / 4
    return RegretBound(
        exploration=exploration,
        burn_in=W - exploration,
        kernels=0.0,
        rewards=0.0,
        reduction_kernels=0.0,
        reduction_rewards=0.0,
    )


def _log_binomial(n: int, S: int) -> float:
    """``log binomial(n + S - 1, S - 1)``, which is the sum of ``f(j) = log(1 + n / j)`` over j from 1 to S - 1.

    From j = 10,000 on the sum is that of Euler and Maclaurin: the integral of f, half of f at both ends, and a
    twelfth of the difference of its slopes. The rest is below ``1e-14``.

    >>> math.isclose(_log_binomial(4, 3), math.log(math.comb(6, 2)))
    True
    """
    first = min(S, MAX_TERMS)
    total = math.fsum(math.log1p(n / j) for j in range(1, first))
    if first == S:
        return total
    last = S - 1
    low = math.log1p(n / first)
    high = math.log1p(n / last)
    integral = last * high - first * low + n * math.log1p((last - first) / (first + n))
    slope_low = -n / (first * (first + n))
    slope_high = -n / (last * (last + n))
    return total + integral + (low + high) / 2 + (slope_high - slope_low) / 12


def regret_bound(
    S: int,
    A: int,
    H: int,
    M: int,
    T: int,
    eps_p: float,
    eps_r: float,
    delta: float,
    *,
    proof: str = "mended",
    stationary: bool = False,
) -> float:
    """The bound on the *federated* regret of ``thm:regret``; :attr:`RegretBound.common` has the common one.

    >>> regret_bound(S=8, A=4, H=10, M=20, T=10**12, eps_p=0, eps_r=0, delta=0.05) < trivial_bound(10, 10**12)
    True
    """
    terms = regret_bound_terms(S, A, H, M, T, eps_p, eps_r, delta, proof=proof, stationary=stationary)
    return terms.federated


def trivial_bound(H: int, T: int) -> float:
    """``H T``: no policy loses more, since rewards lie in [0, 1]."""
    return float(H) * T


class LowerBound(NamedTuple):
    """The regret of every algorithm on some MDP, at least; and the conditions that these sizes do not meet."""

    value: float
    unmet: tuple[str, ...]


def regret_lower_bound(S: int, A: int, H: int, M: int, T: int) -> LowerBound:
    """``sqrt(H^3 S A T / M) / (48 sqrt(6))`` (Domingues et al., 2021, with M T episodes divided among M agents).

    The theorem requires ``S >= 6, A >= 2``, a full A-ary tree among the states, ``S = 3 + (A^d - 1)/(A - 1)``, ``H >=
    3 d``, and here ``M T >= H S A``. ``unmet`` lists the conditions that fail. Without the full tree the order is the
    same.

    >>> regret_lower_bound(S=10, A=2, H=9, M=4, T=10_000).unmet
    ()
    """
    check_sizes(S, A, H, M, T, 0.0, 0.0, 0.5)
    unmet = []
    if S < 6 or A < 2:
        unmet.append("S >= 6 and A >= 2")
    else:
        d = 1
        while 3 + (A**d - 1) // (A - 1) < S:
            d += 1
        if 3 + (A**d - 1) // (A - 1) != S:
            unmet.append("S = 3 + (A^d - 1)/(A - 1) for some d")
        if 3 * d > H:
            unmet.append(f"H >= 3 d = {3 * d}")
    if M * T < H * S * A:
        unmet.append("M T >= H S A")
    return LowerBound(math.sqrt(H**3 * S * A * T / M) / (48 * math.sqrt(6)), tuple(unmet))


def rounds_bound(
    S: int,
    A: int,
    H: int,
    M: int,
    T: int,
    eps_p: float,
    delta: float,
    *,
    rule: str = "mixture",
    stationary: bool = False,
    min_round_growth: float = 0.0,
) -> float:
    """A bound on synchronisations on the event ``E^count``, as in ``lem:communication`` but closer.

    Agents must start in the same distribution; otherwise ``E^count`` fails (slip 23 of ``docs/paper_slips.md``).

    Consider one (h,s,a). When an agent makes its first request by the local rule, its counter is 0; at its k-th
    request it is at least ``2^(k-2)``. Until N reaches nu, the counters of all agents add up to less than ``L =
    min(nu, M T)``. So by concavity the agents make at most ``M (1 + log2(L / M)) + 1`` requests. Above nu a request
    multiplies N by at least 9/7 (``N_hat >= 2 N``, ``|N - N_hat| <= 2/7 N_hat + nu/7``; the paper has 8/7), so there
    are at most ``log(M T / nu) / log(9/7)``. With three agents or more this is below ``R_max``. With one or two it is
    not, because ``R_max`` leaves out the first visits. There are never more rounds than episodes.

    ``rule="global"`` means the global rule everywhere, as in Fed-KL-UCBVI; only it has ``stationary`` counts and
    ``min_round_growth``. Theorem 4 of ``docs/kl_regret.md`` bounds its rounds, with the last one, with probability
    ``1 - delta`` at least. For each (h,s,a) there are ``M + (M + 1/2) log T`` for sure, and
    ``M + 1 + (M + 1/2) log k + log(T/k) / log(5/4)`` with ``k = 8 log(2 S A H M T / delta)`` with that probability if
    agents are alike (``eps_p = 0``). If stationary, for each (s,a), with ``T H`` for T, and
    ``k = 8 H log(2 S A M T / delta)``. With ``min_round_growth`` rho, ``2 + log(T) / log(1 + rho)`` for sure.
    """
    check_choice("rule", rule, RULES)
    check_sizes(S, A, H, M, T, eps_p, 0.0, delta)
    check_number("min_round_growth", min_round_growth, at_least=0)
    if rule == "global":
        if stationary:
            cells = S * A
            longest = T * H
            steps_together = H
        else:
            cells = S * A * H
            longest = T
            steps_together = 1
        for_sure = M + (M + 0.5) * math.log(longest)
        per_cell = for_sure
        if eps_p == 0:
            k = 8 * steps_together * math.log(2 * cells * M * T / delta)
            growth = max(0.0, math.log(longest / k)) / math.log(1.25)
            with_probability = M + 1 + (M + 0.5) * math.log(k) + growth
            per_cell = min(for_sure, with_probability)
        rounds = min(float(T), 1 + cells * per_cell)
        if min_round_growth > 0:
            return min(rounds, 2 + math.log(T) / math.log1p(min_round_growth))
        return rounds
    if stationary or min_round_growth:
        raise InputError('stationary counts and min_round_growth go with rule="global" only.')
    nu = threshold_nu(S, A, H, M, T, eps_p, delta)
    local = M * (1 + math.log2(min(nu / M, T))) + 1
    growth = max(0.0, math.log(T * M / nu)) / math.log(9 / 7)
    return min(float(T), S * A * H * (local + growth))


def first_episode(holds: Callable[[int], bool], start: int = 1) -> int | None:
    """The smallest T from ``start`` at which ``holds``, by doubling and then bisection; None if it never does.

    The result is exact if ``holds`` stays true once it is true. Otherwise the first power of two at which it holds
    decides.

    >>> first_episode(lambda T: T * T >= 1000)
    32
    """
    if holds(start):
        return start
    low = start
    high = 2 * start
    while not holds(high):
        low = high
        high = 2 * high
        if high > MAX_EPISODES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def nontrivial_from(
    S: int,
    A: int,
    H: int,
    M: int,
    eps_p: float,
    eps_r: float,
    delta: float,
    *,
    proof: str = "mended",
) -> int | None:
    """The smallest T at which the bound is below ``H T``; None if heterogeneity keeps it above for every T.

    >>> nontrivial_from(S=8, A=4, H=10, M=20, eps_p=0.1, eps_r=0, delta=0.05) is None
    True
    """
    check_sizes(S, A, H, M, 1, eps_p, eps_r, delta)
    return first_episode(
        lambda T: regret_bound(S, A, H, M, T, eps_p, eps_r, delta, proof=proof) < trivial_bound(H, T)
    )


def global_rule_from(S: int, A: int, H: int, M: int, eps_p: float, delta: float) -> int | None:
    """The smallest T with ``M T >= nu``, so that the global rule can fire at all; None where ``14 eps_p H >= 1``.

    >>> global_rule_from(S=8, A=4, H=10, M=20, eps_p=0.1, delta=0.05) is None
    True
    """
    check_sizes(S, A, H, M, 1, eps_p, 0.0, delta)
    if 14 * eps_p * H >= 1:
        return None
    return first_episode(lambda T: threshold_nu(S, A, H, M, T, eps_p, delta) <= M * T)
