"""Bounds of the theory: its formulas against figures by hand, and runs against its promises."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fed_ucbvi import MDP, Federation, FedKLUCBVI, FedUCBVI, InputError, gridworld, run, synthetic
from fed_ucbvi.algorithms.threshold import beta_common, beta_star, threshold_nu
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper.bounds import (
    beta_kl,
    beta_martingale,
    beta_max,
    beta_variance,
    first_episode,
    global_rule_from,
    kl_regret_bound,
    most_rounds,
    nontrivial_from,
    regret_bound,
    regret_bound_terms,
    regret_lower_bound,
    rounds_bound,
    trivial_bound,
)
from matrices import first_of, in_turn
from runs import federation_of, finished, without_cautions

PUBLISHED = ("mended", "printed")
SIZES = st.integers(1, 40)
EPISODES = st.integers(1, 10**15)
EPS = st.floats(0, 0.5)
DELTAS = st.floats(1e-6, 0.5)

pytestmark = without_cautions


# --------------------------------------------------------------------------------------------- the formulas


@pytest.mark.parametrize(
    ("value", "by_hand"),
    [
        (
            threshold_nu(S=8, A=4, H=10, M=20, T=30_000, eps_p=0.1, delta=0.05),
            8488632.866924552,
        ),
        (
            threshold_nu(S=5, A=5, H=5, M=20, T=3_000, eps_p=0.1, delta=0.05),
            496830.376715099,
        ),
        (beta_star(S=8, A=4, H=10, delta=0.05), 11.248959919135763),
        (beta_common(S=8, A=4, H=10, delta=0.05, n=30_000), 24.349688715535890),
        (beta_common(S=5, A=5, H=5, delta=0.05, n=0), 12.407564949312402),
        (
            most_rounds(S=8, A=4, H=10, M=20, T=10**9, eps_p=0.0, delta=0.05),
            137162.17589177925,
        ),
        (
            most_rounds(S=8, A=4, H=10, M=20, T=30_000, eps_p=0.1, delta=0.05),
            147309.44505080762,
        ),
    ],
)
def test_constants_of_the_papers_problems_are_those_by_hand_with_40_digits(value: float, by_hand: float) -> None:
    """GridWorld and the synthetic problem; in the last all rounds are local."""
    assert value == pytest.approx(by_hand, rel=1e-14)


def test_the_printed_bound_is_the_papers_last_display() -> None:
    """All sizes 1, eps_p = 0.1, eps_r = 0.2, delta = 0.5; beta^max is ``beta^c(M T) = log(12) + log(18 e)``."""
    b = math.log(12 * 18 * math.e)
    assert beta_max(1, 1, 1, 1, 1, 0.5) == pytest.approx(b, rel=1e-14)
    e = math.e
    by_hand = 138 * e * b + 6020 * e**2 * b**2 + e * b * (59.5 + 29.6)
    assert regret_bound(1, 1, 1, 1, 1, 0.1, 0.2, 0.5, proof="printed") == pytest.approx(by_hand, rel=1e-13)


def test_the_mended_bound_of_gridworld_by_hand() -> None:
    """``42.6 e b sqrt(H^3 S A T / M) + ...`` with the constants of docs/theory.md multiplied out."""
    b = beta_max(8, 4, 10, 20, 10**9, 0.05)
    terms = regret_bound_terms(8, 4, 10, 20, 10**9, 0.001, 0.002, 0.05)
    assert terms.exploration == pytest.approx(42.63 * math.e * b * math.sqrt(1000 * 32 * 10**9 / 20), rel=1e-3)
    lower = 2 * math.e * (122.9 + 300 / 20) * 1000 * 64 * 4 * b**2 + 186.5 * math.e**2 * 1000 * 32 * b**2 / 20
    assert terms.burn_in == pytest.approx(lower, rel=1e-3)
    assert terms.kernels == pytest.approx((66.25 * math.e + 3) * 10**9 * 100 * 0.001, rel=1e-12)
    assert terms.rewards == pytest.approx((38 * math.e + 2) * 10**9 * 10 * 0.002, rel=1e-12)
    assert terms.federated - terms.common == pytest.approx(2 * 10**9 * (0.001 * 100 + 0.002 * 10), rel=1e-6)


def test_the_concentration_functions_by_hand() -> None:
    assert beta_kl(2, 3, 4, 0.1, 9) == pytest.approx(math.log(1440) + 1 + math.log(10), rel=1e-14)
    assert beta_variance(5, 0.1, 10) == pytest.approx(math.log(240 * 101) + 1, rel=1e-14)
    assert beta_martingale(4, 0.1) == pytest.approx(math.log(1920), rel=1e-14)
    others = (
        beta_kl(2, 3, 4, 0.1, 50),
        beta_common(2, 3, 4, 0.1, 50),
        beta_star(2, 3, 4, 0.1),
    )
    assert beta_max(2, 3, 4, 5, 10, 0.1) == max(*others, beta_variance(5, 0.1, 10), beta_martingale(4, 0.1))


@given(S=SIZES, A=SIZES, H=SIZES, M=SIZES, T=EPISODES, eps_p=EPS, eps_r=EPS, delta=DELTAS)
def test_every_mended_term_is_below_the_printed_one(
    S: int, A: int, H: int, M: int, T: int, eps_p: float, eps_r: float, delta: float
) -> None:
    mended, printed = (regret_bound_terms(S, A, H, M, T, eps_p, eps_r, delta, proof=proof) for proof in PUBLISHED)
    assert all(ours <= theirs for ours, theirs in zip(mended, printed, strict=True))


@given(S=SIZES, A=SIZES, H=SIZES, M=SIZES, T=EPISODES, delta=DELTAS)
def test_four_times_the_agents_halve_exploration_but_for_logarithms(
    S: int, A: int, H: int, M: int, T: int, delta: float
) -> None:
    few, many = (regret_bound_terms(S, A, H, agents, T, 0, 0, delta).exploration for agents in (M, 4 * M))
    logs = beta_max(S, A, H, 4 * M, T, delta) / beta_max(S, A, H, M, T, delta)
    assert many == pytest.approx(few / 2 * logs, rel=1e-12)


@pytest.mark.parametrize("proof", PUBLISHED)
@pytest.mark.parametrize(("M", "eps_p"), [(1, 0.0), (20, 0.0), (20, 1e-7)])
def test_the_bound_becomes_non_trivial_where_it_says(proof: str, M: int, eps_p: float) -> None:
    T = nontrivial_from(8, 4, 10, M, eps_p, 0.0, 0.05, proof=proof)
    assert T is not None
    for t, below in ((T, True), (T - 1, False)):
        assert (regret_bound(8, 4, 10, M, t, eps_p, 0.0, 0.05, proof=proof) < trivial_bound(10, t)) is below


def test_heterogeneity_may_keep_the_bound_trivial_for_ever() -> None:
    """Linear in T with a slope above H: ``(66.25 e + 5) eps_p H^2 >= H`` from eps_p = 0.00054 on at H = 10."""
    least = 1 / ((66.25 * math.e + 5) * 10)
    assert nontrivial_from(8, 4, 10, 20, 0.999 * least, 0.0, 0.05) is not None
    assert nontrivial_from(8, 4, 10, 20, 1.001 * least, 0.0, 0.05) is None


def test_the_global_rule_is_reachable_from_where_nu_is_at_most_m_t() -> None:
    for eps_p in (0.0, 0.001, 0.007):
        T = global_rule_from(8, 4, 10, 20, eps_p, 0.05)
        assert T is not None
        assert threshold_nu(8, 4, 10, 20, T, eps_p, 0.05) <= 20 * T
        assert threshold_nu(8, 4, 10, 20, T - 1, eps_p, 0.05) > 20 * (T - 1)
    assert global_rule_from(8, 4, 10, 20, 0.0072, 0.05) is None


def test_the_lower_bound_names_the_conditions_that_are_not_met() -> None:
    """A = 2 and d = 3 make S = 3 + 7 = 10, with H >= 9."""
    met = regret_lower_bound(S=10, A=2, H=9, M=4, T=10_000)
    assert met.unmet == ()
    assert met.value == pytest.approx(math.sqrt(729 * 20 * 10_000 / 4) / (48 * math.sqrt(6)), rel=1e-14)
    assert regret_lower_bound(S=10, A=2, H=8, M=4, T=10_000).unmet == ("H >= 3 d = 9",)
    assert regret_lower_bound(S=9, A=2, H=9, M=4, T=10_000).unmet == ("S = 3 + (A^d - 1)/(A - 1) for some d",)
    assert regret_lower_bound(S=5, A=2, H=9, M=4, T=10_000).unmet == ("S >= 6 and A >= 2",)
    assert regret_lower_bound(S=10, A=2, H=9, M=4, T=44).unmet == ("M T >= H S A",)


@given(S=SIZES, A=SIZES, H=SIZES, M=st.integers(1, 40), T=EPISODES, delta=DELTAS)
def test_the_lower_bound_is_below_the_upper_bound(S: int, A: int, H: int, M: int, T: int, delta: float) -> None:
    assert regret_lower_bound(S, A, H, M, T).value < regret_bound(S, A, H, M, T, 0, 0, delta)


@given(S=SIZES, A=SIZES, H=SIZES, M=st.integers(3, 40), T=EPISODES, eps_p=EPS, delta=DELTAS)
def test_from_three_agents_on_rounds_are_bounded_more_closely_than_in_the_paper(
    S: int, A: int, H: int, M: int, T: int, eps_p: float, delta: float
) -> None:
    assert rounds_bound(S, A, H, M, T, eps_p, delta) <= most_rounds(S, A, H, M, T, eps_p, delta)


@given(limit=st.integers(1, 10**30), start=st.integers(1, 100))
def test_the_first_episode_is_the_first(limit: int, start: int) -> None:
    assert first_episode(lambda T: limit <= T, start) == max(limit, start)
    assert first_episode(lambda T: False) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"S": 0}, "states must be at least 1"),
        ({"T": 2.5}, "episodes must be a whole number"),
        ({"eps_p": -0.1}, "eps_p must be a number in"),
        ({"delta": 1.0}, "delta must be a number in"),
        ({"proof": "mine"}, "unknown proof 'mine'"),
        ({"T": 2**202}, "episodes must be at most"),
    ],
)
def test_bounds_refuse_what_is_no_setting(change: dict[str, object], words: str) -> None:
    setting: dict[str, object] = {
        "S": 2,
        "A": 2,
        "H": 2,
        "M": 2,
        "T": 2,
        "eps_p": 0,
        "eps_r": 0,
        "delta": 0.1,
    }
    with pytest.raises(InputError, match=words):
        regret_bound(**{**setting, **change})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- the runs


def least_margin(simulation: Simulation) -> FloatArray:
    """At every synchronisation ``Q - Q*``, with and without what ``lem:optimism`` grants; the smallest of each."""
    federation = federation_of(simulation)
    H = federation.horizon
    best = federation.common.solve().Q
    granted = (2 * federation.eps_r + 3 * federation.eps_p * H) * (H - np.arange(H))[:, None, None]
    least = np.full(2, np.inf)
    while not simulation.done:
        simulation.advance()
        gap = simulation.server.arrays()["Q"] - best
        least = np.minimum(least, ((gap + granted).min(), gap.min()))
    return least


RUNS = in_turn(
    [
        (environment, *size)
        for environment in (gridworld, synthetic)
        for size in ((1, 10**4), (2, 10**8), (20, 10**8))
    ],
    [(0.0, 0), (0.001, 1), (0.1, 2)],
)


def simulation_with_corrected_bonus(
    environment: Callable[..., Federation], agents: int, episodes: int, eps_p: float, seed: int
) -> Simulation:
    federation = environment(agents=agents, eps_p=eps_p, seed=seed)
    return Simulation(FedUCBVI(bonus="corrected"), federation, episodes, seed, "counts")


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "agents", "episodes", "eps_p_and_seed"), RUNS)
def test_runs_with_the_corrected_bonus_are_optimistic(
    environment: Callable[..., Federation], agents: int, episodes: int, eps_p_and_seed: tuple[float, int]
) -> None:
    """Each may fail with probability delta = 0.05 by the theory; in truth the constants are generous."""
    simulation = simulation_with_corrected_bonus(environment, agents, episodes, *eps_p_and_seed)
    assert least_margin(simulation)[0] >= -1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "agents", "episodes", "eps_p_and_seed"), RUNS)
def test_runs_with_the_corrected_bonus_have_no_more_rounds_than_the_theory_allows(
    environment: Callable[..., Federation], agents: int, episodes: int, eps_p_and_seed: tuple[float, int]
) -> None:
    """Each may fail with probability delta = 0.05 by the theory; in truth the constants are generous."""
    eps_p, seed = eps_p_and_seed
    simulation = finished(simulation_with_corrected_bonus(environment, agents, episodes, eps_p, seed))
    setting = simulation.setting
    allowed = rounds_bound(setting.states, setting.actions, setting.horizon, agents, episodes, eps_p, 0.05)
    assert simulation.rounds <= allowed


@pytest.mark.parametrize(
    ("algorithm", "agents", "T"),
    [
        (FedUCBVI(bonus="corrected"), 1, 10**11),
        (FedUCBVI(bonus="corrected"), 3, 10**11),
        (FedKLUCBVI(), 1, 10**8),
        (FedKLUCBVI(), 4, 10**8),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_runs_stay_below_bounds_that_a_bad_policy_would_break(
    algorithm: FedUCBVI | FedKLUCBVI, agents: int, T: int
) -> None:
    """``thm:regret``, mended, ``lem:communication`` and, from M = 3 on, ``R_max``; and those of Fed-KL-UCBVI.

    With small sizes and so many episodes the bounds are far below what can happen at worst: the regret of the worst
    policy, and a round an episode.
    """
    delta = 0.05
    sizes = (2, 2, 2, agents, T)
    federation = synthetic(agents=agents, states=2, actions=2, horizon=2, seed=3)
    common = federation.common
    worst = MDP(common.kernel, 1 - common.rewards, common.initial, 2).solve().policy
    if isinstance(algorithm, FedUCBVI):
        regret = regret_bound_terms(*sizes, 0.0, 0.0, delta).common
        rounds = min(
            rounds_bound(*sizes, 0.0, delta),
            most_rounds(*sizes, 0.0, delta) if agents >= 3 else math.inf,
        )
    else:
        regret = kl_regret_bound(*sizes, delta).common
        rounds = rounds_bound(*sizes, 0.0, delta, rule="global")
    assert T * float(common.initial @ (common.solve().V[0] - common.evaluate(worst)[0])) > 2 * regret
    assert rounds < T / 1000
    result = run(algorithm, federation, T, seed=1, driver="counts", progress=False)
    assert 0 < result.regret <= regret
    assert 0 < result.rounds <= rounds


def test_where_agents_differ_estimates_do_fall_below_the_optimum() -> None:
    """So what ``lem:optimism`` grants is needed: GridWorld, eps_p = 0.1, measured 0.7 below at T = 10^8."""
    federation = gridworld(agents=2, eps_p=0.1)
    granted, bare = least_margin(Simulation(FedUCBVI(bonus="corrected"), federation, 10**8, 0, "counts"))
    assert granted >= 0
    assert bare < -0.5


SEEDS = 60
DELTA = 0.3
ALARM = 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("agents", "eps_p"), first_of([(4, 0.0), (1, 0.0), (4, 0.1)]))
def test_optimism_holds_at_the_promised_rate(agents: int, eps_p: float) -> None:
    """H0: the probability that some Q of some synchronisation is below what ``lem:optimism`` grants is at most delta.

    One-sided binomial test on 60 independent runs, delta = 0.3 (a large delta makes a small bonus), false-alarm rate
    1e-6 each. Without bonus the same test must be rejected where agents are alike, or it would prove nothing.
    """
    rejected = {}
    for scale in (1.0, 0.0):
        algorithm = FedUCBVI(bonus="corrected", bonus_scale=scale, delta=DELTA)
        violations = 0
        for seed in range(SEEDS):
            world = synthetic(agents, eps_p, seed, states=3, actions=2, horizon=3, eps_r=eps_p / 2)
            violations += bool(least_margin(Simulation(algorithm, world, 3000, seed, "counts"))[0] < -1e-9)
        rejected[scale] = stats.binomtest(violations, SEEDS, DELTA, alternative="greater").pvalue < ALARM
    assert not rejected[1.0]
    assert rejected[0.0] == (eps_p == 0.0)
