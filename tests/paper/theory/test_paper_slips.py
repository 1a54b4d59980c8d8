"""Slips in the paper, each by a small numeric check; ``docs/paper_slips.md`` lists them by the same numbers.

Letters: S, A, H, M, T as in the paper; ``e`` is Euler's number. Where a slip does no harm, that is checked too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import MDP, Federation, FedUCBVI, gridworld, plan
from fed_ucbvi.algorithms.base import FleetTables, Setting
from fed_ucbvi.algorithms.fed_ucbvi_server import UpdateRule
from fed_ucbvi.algorithms.fed_ucbvi_server import bonus as bonus_of
from fed_ucbvi.algorithms.threshold import beta_common, beta_star, threshold_nu
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper.bounds import beta_max, most_rounds, regret_bound_terms, rounds_bound
from fed_ucbvi.problem.heterogeneity import distances
from runs import finished, without_cautions

e = math.e


pytestmark = without_cautions


def one_state(agents: int) -> Federation:
    """Agents with one state, one action and one step: every episode visits the same (h,s,a)."""
    return Federation.from_mdps([MDP([[[1.0]]], [[0.5]], initial=0, horizon=1)] * agents)


def rounds_of(simulation: Simulation) -> Iterator[tuple[CountArray, CountArray]]:
    """N before and after each round, which is played now."""
    while not simulation.done:
        before = simulation.server.arrays()["N"].copy()
        simulation.advance()
        yield before, simulation.server.arrays()["N"]


@compiled
def printed_bonus(N: float, H: int, rule: UpdateRule) -> float:
    """The bonus of N visits whose next values do not vary."""
    return bonus_of(N, 0.0, H, rule)


def test_1_the_printed_bonus_lacks_a_factor_h_in_what_term_iii_of_the_optimism_proof_takes_away() -> None:
    setting = Setting(8, 4, 10, 20, 30_000, 0.0, 0)
    star = beta_star(8, 4, 10, 0.05)
    common = beta_common(8, 4, 10, 0.05, 100)
    taken_away = (11 * common * 10 + 28 * star * 10) / 100
    theory, corrected = (
        printed_bonus(100.0, 10, FedUCBVI(bonus=bonus).update_rule(setting)) for bonus in ("theory", "corrected")
    )
    assert corrected == pytest.approx(taken_away, rel=1e-12)
    assert taken_away - theory == pytest.approx(11 * common * 9 / 100, rel=1e-12)


def test_2_eps_p_bounds_total_variation_which_is_half_of_l1() -> None:
    """``lem:tvbound`` says ``||P^c - P^i||_1 <= eps_p``; on the paper's GridWorld it is 0.2 at eps_p = 0.1."""
    world = gridworld(agents=20, eps_p=0.1)
    to_common = distances(world.probabilities, world.common.kernel.probabilities).to_common.max()
    assert to_common == pytest.approx(0.2, rel=1e-12)
    assert to_common / 2 <= 0.1 + 1e-12


def test_3_the_condition_of_the_algorithm_box_would_synchronise_after_every_visit() -> None:
    """``N_hat > N`` with ``N_hat = N + M v`` holds for v = 1; ``N_hat > 2 N`` for v > N / M."""
    N = 1000
    M = 20
    assert min(v for v in range(1, N) if N + M * v > N) == 1
    setting = Setting(1, 1, 1, M, 10**6, 0.0, 0)
    algorithm = FedUCBVI(nu=0.0, strict=True)
    agents = algorithm.new_agents(
        setting,
        FleetTables(M, np.zeros((1, 1, 1, 1), np.int32), np.zeros((1, 1, 1, 1))),
    )
    server = algorithm.new_server(setting)
    server.estimates.N[:] = N
    budget = int(algorithm.budgets(agents, algorithm.broadcast(server)).limits[0, 0, 0])
    assert budget == min(v for v in range(1, N) if N + M * v > 2 * N) == 51


def test_4_the_main_text_compares_strictly_unlike_the_appendix() -> None:
    """One agent: visits double at 1, 2, 4, ... by ``>=`` and at 1, 3, 7, ... by ``>``."""
    ends = {}
    for strict in (False, True):
        simulation = finished(Simulation(FedUCBVI(nu=1e9, strict=strict), one_state(1), 100, 0, "episodes"))
        records = simulation.records()
        ends[strict] = np.cumsum(records["length"])[records["requests"] > 0].tolist()
    assert ends[False] == [1, 2, 4, 8, 16, 32, 64]
    assert ends[True] == [1, 3, 7, 15, 31, 63]


def test_5_doublings_are_logarithms_to_base_two() -> None:
    """One agent, nu above T = 1024: 11 rounds; ``log nu`` of ``def:roundsmax`` with nu = 1024 is 6.9, ``log2`` 10."""
    simulation = finished(Simulation(FedUCBVI(nu=1024.0), one_state(1), 1024, 0, "counts"))
    assert simulation.rounds == 11 == 1 + math.log2(1024)
    assert simulation.rounds > math.log2(1024) > math.log(1024)
    nu = threshold_nu(8, 4, 10, 20, 30_000, 0.1, 0.05)
    forecast = plan(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.1)
    assert forecast.rounds_max_log2 == pytest.approx(20 * 320 * math.log2(nu))


def test_6_the_linear_dependence_on_m_does_not_vanish_for_like_agents() -> None:
    """``M S A H log nu`` of ``def:roundsmax`` stays at eps_p = 0, though nu then grows with log T only."""
    few, many = (most_rounds(8, 4, 10, M, 10**9, 0.0, 0.05) for M in (20, 200))
    assert many > 8 * few


def test_7_the_lower_bound_lemma_is_about_total_variation_too() -> None:
    """``lem:performance-difference-lb``: (1, 0) and (1 - eps, eps) are 2 eps apart in L1; the values stand."""
    H = 10
    eps = 0.1
    fall = [[[1 - eps, eps]], [[0.0, 1.0]]]
    stay = [[[1.0, 0.0]], [[0.0, 1.0]]]
    assert np.abs(np.subtract(fall, stay)).sum(axis=-1).max() == pytest.approx(2 * eps)
    values = [MDP(kernel, [[1.0], [0.0]], initial=0, horizon=H).solve().V[0, 0] for kernel in (stay, fall)]
    assert values[1] == pytest.approx((1 - (1 - eps) ** H) / eps, rel=1e-12)
    assert values[0] - values[1] >= eps * H**2 / 4


def test_8_beta_star_leaves_no_room_for_the_union_over_the_number_of_visits() -> None:
    """``E*`` holds for one N with probability ``1 - 2 exp(-beta*)``; the proof adds up N = 2..M T but divides by T.

    With ``log(12 S A H M T / delta)`` it would. ``beta^max`` is larger than that, so ``thm:regret`` keeps its form.
    """
    S = 8
    A = 4
    H = 10
    M = 20
    T = 30_000
    delta = 0.05
    allotted = delta / (6 * S * A * H)
    assert 2 * math.exp(-beta_star(S, A, H, delta)) == pytest.approx(allotted)
    assert (M * T - 1) * 2 * math.exp(-beta_star(S, A, H, delta)) > 500_000 * allotted
    assert beta_common(S, A, H, delta, M * T) > math.log(12 * S * A * H * M * T / delta)


def test_9_the_event_of_counts_needs_a_logarithm_of_m_t_more() -> None:
    """``E^dev`` has M S A H T failures of probability ``delta / (6 M S A H T)``, each asking for ``log`` of that.

    ``cor:bernoulli-deviation`` needs ``log(4 e (2 n + 1) 6 M S A H T / delta)``, ``beta^c(delta, n)`` is smaller.
    """
    S = 8
    A = 4
    H = 10
    M = 20
    T = 30_000
    delta = 0.05
    needed = math.log(4 * e * (2 * T + 1) * 6 * M * S * A * H * T / delta)
    assert needed - beta_common(S, A, H, delta, T) == pytest.approx(math.log(M * T) - math.log(1.5), rel=1e-9)


def test_10_the_empirical_bernstein_bound_of_e_star_lacks_the_range_h() -> None:
    """V* is 0 or H; if H never occurs in N visits the variance seen is 0 and the error ``p H`` above ``7 b / (N-1)``.

    That happens with more than the probability allotted; 7 H / 3 for 7 (``lem:empiricalbernstein``) covers it.
    """
    S = 2
    A = 1
    H = 30
    N = 10_000
    delta = 0.05
    star = beta_star(S, A, H, delta)
    allotted = delta / (6 * S * A * H)
    p = 1 - (1.01 * allotted) ** (1 / N)
    assert (1 - p) ** N > allotted
    assert p * H > 7 * star / (N - 1)
    assert p * H < 7 * H * star / (3 * (N - 1))


def test_11_one_sample_drawn_from_elsewhere_moves_l1_by_two() -> None:
    """``eq:emp_heterogeneity_bound`` adds up ``|1{s'=x} - 1{s'=y}| <= 1`` over s', which is 2 in all.

    In total variation it stands, and total variation times the span of V is what the proof needs.
    """
    drawn = np.array([0.0, 1.0])
    common = np.array([1.0, 0.0])
    apart = float(distances(drawn[None, None, None, None], common[None, None, None]).to_common.max())
    assert apart == 2
    values = np.array([3.0, 10.0])
    assert abs((drawn - common) @ values) <= apart / 2 * np.ptp(values)


def monotone(P: list[float], f: list[float], alpha: float, H: float) -> float:
    """g of ``eq:monotonic_function``."""
    mean = float(np.dot(P, f))
    variance = float(np.dot(P, (np.array(f) - mean) ** 2))
    return mean + max(math.sqrt(alpha * variance), alpha * H)


def test_12_the_shifted_values_leave_the_range_in_which_g_grows() -> None:
    """``lem:monotonicity`` asks for ``|f| <= H``; V + shift may exceed it, and g then falls where f grows.

    Cut off at H the shifted values still lie above V*, and neither the shift nor the cut adds to the variance, so
    that the second subtraction of the shift, which the proof then forgets, is not needed.
    """
    P = [0.05, 0.95]
    H = 1.0
    alpha = 0.15
    assert monotone(P, [0.05, 2.0], alpha, H) < monotone(P, [0.0, 2.0], alpha, H)
    assert monotone(P, [0.05, 1.0], alpha, H) > monotone(P, [0.0, 1.0], alpha, H)
    values = np.random.default_rng(0).random(50) * 10
    assert np.var(np.minimum(values + 3.0, 10.0)) <= np.var(values + 3.0) == pytest.approx(np.var(values))


ROWS = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda row: sum(row) > 0.01)


@given(first=ROWS, second=ROWS, values=st.lists(st.floats(0, 7), min_size=4, max_size=4))
def test_variances_move_by_total_variation_times_the_square_of_the_range(
    first: list[float], second: list[float], values: list[float]
) -> None:
    """``eq:distribution_transfert`` is true with 3 times the L1 distance, and with 1/2 of it, which 13 to 15 need."""
    P = np.array(first) / sum(first)
    Q = np.array(second) / sum(second)
    f = np.array(values)
    variance = {name: float(row @ f**2 - (row @ f) ** 2) for name, row in (("P", P), ("Q", Q))}
    apart = distances(np.array([P, Q])[:, None, None, None], P[None, None, None]).worst.max()
    assert variance["Q"] <= variance["P"] + 49 * apart / 2 + 1e-9 <= variance["P"] + 3 * 49 * apart + 2e-9


def test_13_the_variances_of_the_two_estimates_differ_by_more_than_eps_p_allows() -> None:
    """The proofs put ``3 H^2 eps_p`` for ``||P_hat - P_hat^c||``, where ``E^common`` has ``11 beta^c / N`` as well.

    Two visits, one of them drawn from elsewhere, at eps_p = 0.01: the variance differs by H^2/4.
    """
    H = 10.0
    eps_p = 0.01
    f = np.array([0.0, H])
    drawn = np.array([0.5, 0.5])
    common = np.array([1.0, 0.0])
    gap = drawn @ f**2 - (drawn @ f) ** 2 - (common @ f**2 - (common @ f) ** 2)
    assert gap == H**2 / 4 > 3 * H**2 * eps_p


@pytest.mark.parametrize(("S", "A", "H"), [(2, 1, 1), (8, 4, 10), (5, 5, 5), (100, 10, 100)])
def test_14_the_corrected_bonus_covers_what_was_forgotten_up_to_2_to_53_visits(S: int, A: int, H: int) -> None:
    """With 10, 12 and 13 mended the proof takes away ``(4 + 14/3 + 6/5) b* + sqrt(44 b* b^c) + 11 b^c`` times H/N.

    ``9/8 + 15/8 = 3`` is what it takes of ``eps_p H``. The bonus gives ``28 b* + 11 b^c`` times H/N.
    """
    star = beta_star(S, A, H, 0.05)
    common = beta_common(S, A, H, 0.05, 2**53)
    assert (4 + 14 / 3 + 6 / 5) * star + math.sqrt(44 * star * common) <= 28 * star
    assert 2 * math.sqrt(15 / 8 * 6 / 5 / 2) >= math.sqrt(4.5)


@pytest.mark.parametrize("H", [1, 5, 100])
def test_15_one_step_loses_h_eps_p_not_h_squared_eps_p(H: int) -> None:
    """A, D, D/H, what B needs to be of one sign, and the bonus, in units of eps_p; ``7 H^2`` is printed for one step.

    Over H steps that would be ``7 H^3``; the next display has ``7 H^2``, which is right but for D/H and B.
    """
    one_step = 9 / 8 * H + 2 * H + 2 + 3 * H + H
    assert 7 * H < one_step <= 9.125 * H
    assert H == 1 or H * one_step < 7 * H**3
    T = 1000
    eps_p = 0.01
    in_all = regret_bound_terms(8, 4, H, 20, T, eps_p, 0.0, 0.05).kernels
    assert in_all == pytest.approx((2 * (9.125 + 9 + 15) * e + 3) * T * H**2 * eps_p, rel=1e-12)
    assert in_all >= 2 * e * T * H * one_step * eps_p


def test_16_first_visits_of_many_agents_come_all_at_once() -> None:
    """``lem:pigeon_hole_principle``: ``4 H S A`` visits at most find N at 0 or 1; here 20 do, and N jumps to 20.

    Twice M H S A is true: while N is 0 or 1 every agent's first visit ends the round.
    """
    simulation = Simulation(FedUCBVI(), one_state(20), 50, 0, "episodes")
    found = sum(int(simulation.driver.visits.sum()) for before, _ in rounds_of(simulation) if before.item() <= 1)
    assert 4 < found == 20 <= 2 * 20


def test_17_the_sum_over_steps_of_term_z_has_a_factor_h_more() -> None:
    """``2 H (4 eps_p H^2 + 3 eps_r H)`` for each of H steps; ``8 H^3 eps_p + 6 H eps_r`` is printed for all."""
    H = 10
    eps_p = 0.01
    eps_r = 0.02
    summed = sum(2 * H * (4 * eps_p * H**2 + 3 * eps_r * H) for _ in range(H))
    assert summed == pytest.approx(8 * H**4 * eps_p + 6 * H**3 * eps_r)
    assert summed > 8 * H**3 * eps_p + 6 * H * eps_r


def test_18_the_variance_lemma_states_less_than_its_proof_adds_up() -> None:
    """The remainders of ``lem:bound_sum_variance`` with all sizes and beta 1; it states 30, it proves 60."""
    remainders = 24 * math.sqrt(2) + math.sqrt(8) + math.sqrt(8) + 6
    assert 30 < remainders < 60


def bound_on_a(factor: float, T: float, S: int, A: int, H: int, M: int, b: float, split: float) -> float:
    """The display before the last of the bound on A_1 with U = eps_p = eps_r = 0.

    The last root is split as ``sqrt(60 x y) <= split x + 30 / split y``; the paper has 6 and 5.
    """
    lead = math.sqrt(H**3 * S * A * T)
    rest = math.sqrt(H**5 * S**3 * A**2 / M) * b
    return factor * b * e / math.sqrt(M) * (math.sqrt(2) * lead + H**2 * S * A + split * lead + 30 / split * rest)


@pytest.mark.parametrize("T", [10.0**k for k in range(0, 16, 3)])
def test_19_the_bound_on_a_holds_although_it_drops_six_terms(
    T: float,
) -> None:
    """``16 (sqrt(2) + 6)`` is not 23. But the factor is ``sqrt(4 * 4) = 4``, not 16, and with that it stands."""
    S = 8
    A = 4
    H = 10
    M = 20
    b = 30.0
    printed = 23 * e * b * math.sqrt(H**3 * S * A * T / M) + 96 * e * H**3 * S**1.5 * A * M**-0.5 * b**2
    assert bound_on_a(4, T, S, A, H, M, b, 2) <= printed
    if T >= 1e9:
        assert bound_on_a(16, T, S, A, H, M, b, 6) > 1.5 * printed


def test_20_the_bound_on_c_loses_a_factor_e() -> None:
    """At S = A = H = M = beta = 1, where ``sum 1/N <= 4``; 68 and 272 are printed, without e."""
    sum_of_c = e * (22 + 46 + 2) * 4
    assert sum_of_c > 2 * 272


def largest_u(root: float, rest: float) -> float:
    """The largest U with ``U <= root sqrt(U) + rest``."""
    return ((root + math.sqrt(root**2 + 4 * rest)) / 2) ** 2


@pytest.mark.parametrize("T", [10.0**k for k in range(0, 19, 3)])
@pytest.mark.parametrize(("S", "A", "H", "M"), [(1, 1, 1, 1), (8, 4, 10, 20)])
def test_21_the_result_stands_although_its_last_steps_lose_factors(T: float, S: int, A: int, H: int, M: int) -> None:
    """``288 e + 272 + 4 e`` became 560, the martingale's e went, ``2 * 71`` became 138 and ``2 * 146`` became 144.

    Put right and solved exactly, the quadratic inequality on U still gives less than is printed for eps_r = 0. For
    eps_r it does not, but for H eps_r having become ``H^2 eps_r``.
    """
    b = beta_max(S, A, H, M, int(T), 0.05)
    lead = math.sqrt(H**3 * S * A * T / M)
    root = 69 * e * b * math.sqrt(H**3 * S * A / M)
    lower = (292 * e + 280 * e) * H**3 * S**2 * A * b**2
    for eps_p in (0.0, 0.01):
        exact = largest_u(
            root,
            (69 + math.sqrt(8)) * e * b * lead + lower + 295 * e * b * T * H**2 * eps_p,
        )
        terms = regret_bound_terms(S, A, H, M, int(T), eps_p, 0.0, 0.05, proof="printed")
        printed = terms.exploration + terms.burn_in + 590 * e * b * T * H**2 * eps_p
        assert exact <= printed <= terms.federated
    by_rewards = largest_u(root, lower + 146 * e * b * T * H * 0.5)
    if T >= 1e9:
        assert by_rewards > 144 * e * b * T * H * 0.5


def test_22_the_conclusion_stands_if_the_estimated_counter_is_subtracted() -> None:
    """``|N - N_hat| <= 2/7 N_hat + nu/7`` gives ``N >= 5/7 N_hat - nu/7``, printed as ``3/7 N_hat + nu/7``.

    The second is not above ``4/7 N_hat`` where ``N_hat > nu``; the first is, even 9/14, where ``N_hat >= 2 nu``.
    """
    few, many = (rounds_bound(8, 4, 10, 20, T, 0.0, 0.05) for T in (10**12, 10**13))
    nus = [threshold_nu(8, 4, 10, 20, T, 0.0, 0.05) for T in (10**12, 10**13)]
    local = 320 * 20 * math.log2(nus[1] / nus[0])
    assert many - few - local == pytest.approx(320 * math.log(10 * nus[0] / nus[1]) / math.log(2 * 9 / 14), rel=1e-9)
    for nu, N_hat in ((1000.0, 2000.0), (1000.0, 50_000.0)):
        assert 3 / 7 * N_hat + nu / 7 < 4 / 7 * N_hat
        assert 5 / 7 * N_hat - nu / 7 >= 9 / 14 * N_hat - 1e-9 > 4 / 7 * N_hat


def starting(places: list[int]) -> Federation:
    """Agents that stay where they start, in one of two states, with one action: kernels alike, starts not."""
    stay = [[[1.0, 0.0]], [[0.0, 1.0]]]
    return Federation.from_mdps([MDP(stay, [[0.5], [0.5]], initial=place, horizon=1) for place in places])


@pytest.mark.parametrize("T", [10**9, 10**15])
def test_23_the_event_of_counts_fails_for_sure_where_agents_start_in_different_places(
    T: int,
) -> None:
    """``lem:diff_stat_dist`` bounds ``|d^i - d^j|`` by ``eps_p H``, which takes equal initial distributions.

    One of M agents starts in a state where no other ever is, and kernels are alike. When that agent asks, N has grown
    by N/M only, ``N_hat`` by N; whatever ``N >= nu`` it is, the inequality of ``E^count`` is broken.
    """
    M = 20
    delta = 0.05
    assert starting([0] + [1] * (M - 1)).eps_p == 0
    for N in (threshold_nu(2, 1, 1, M, T, 0.0, delta), float(T)):
        true = N + N / M
        estimated = 2 * N
        allowed = 2 / 7 * estimated + 26 * M * beta_common(2, 1, 1, delta, T)
        assert abs(true - estimated) > allowed


@pytest.mark.parametrize(("places", "least", "most"), [([0] * 100, 2.0, 2.0), ([0] + [1] * 99, 1.01, 1.02)])
def test_23_r_max_is_exceeded_if_a_request_makes_n_grow_by_1_over_m(
    places: list[int], least: float, most: float
) -> None:
    """``lem:communication`` counts on 8/7. Visits are certain here, so no nu is needed for concentration; it is 100.

    With 100 agents that start together N doubles, as the rule wants.
    """
    M = len(places)
    T = 10**13
    nu = 100.0
    simulation = Simulation(FedUCBVI(nu=nu), starting(places), T, 0, "counts")
    visits = ((int(before[0, 0, 0]), int(after[0, 0, 0])) for before, after in rounds_of(simulation))
    growth = [after / before for before, after in visits if before >= nu and after > before]
    assert least <= min(growth) <= max(growth) <= most
    allowed = 2 * (M * math.log2(nu) + math.log(T * M / nu) / math.log(8 / 7))
    assert (simulation.rounds <= allowed) == (least > 8 / 7)


def test_24_given_how_often_a_pair_was_visited_its_next_states_are_not_drawn_independently() -> None:
    """The proofs on ``E^KL``, ``E^common`` and ``E*`` condition on ``N = n`` and go on as if samples were i.i.d.

    One action leads to a good or a bad state, each with probability 1/2, the other to a middling one; after bad luck
    the algorithm turns to the other, so few visits mean bad luck. Hypothesis to be refuted: samples are i.i.d. given
    N. Then the runs with the least N would all have had nothing but bad luck with probability ``2^-(N runs)``, below
    1e-9, and of those with a large N more than 0.6 would have been lucky with probability below 0.01. Fixed seeds.
    """
    lucky = np.zeros((4, 2, 4))
    lucky[0, 0, [1, 2]] = 0.5
    lucky[0, 1, 3] = 1.0
    for state in (1, 2, 3):
        lucky[state, :, state] = 1.0
    rewards = [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.5, 0.5]]
    alone = Federation.from_mdps([MDP(lucky, rewards, initial=0, horizon=2)])
    seen: dict[int, list[int]] = {}
    for seed in range(200):
        simulation = finished(Simulation(FedUCBVI(), alone, 12, seed, "episodes"))
        N = simulation.server.arrays()["N"]
        seen.setdefault(int(N[0, 0, 0]), []).append(int(N[1, 1].sum()))
    least = min(seen)
    most = max(n for n, lot in seen.items() if len(lot) >= 15)
    assert len(seen[least]) * least > 30
    assert sum(seen[least]) == 0
    assert np.mean(seen[most]) / most > 0.6


@pytest.mark.parametrize("eps_p", [0.0, 0.5])
def test_25_by_the_rule_itself_n_at_most_doubles_in_a_round_whatever_agents_do(
    eps_p: float,
) -> None:
    """Case 2 of ``lem:pigeon_hole_principle`` takes ``N_tilde <= 4 N`` from ``E^count``.

    While nobody asks, every agent has ``M v^i <= N``; summed over agents, ``N_tilde = N + sum v^i <= 2 N``. Rounding
    up to whole visits adds less than M. So neither the event nor nu nor equal starts are needed, and 2 does for 4.
    """
    M = 20
    worlds = [gridworld(agents=M, eps_p=eps_p), starting([0] * 7 + [1] * 13)]
    for world in worlds:
        simulation = Simulation(FedUCBVI(synchronisation="global"), world, 3000, 0, "episodes")
        checked = 0
        for before, after in rounds_of(simulation):
            known = before >= 1
            assert (after[known] <= 2 * before[known] + M - 1).all()
            checked += int((after[known] > 1.5 * before[known]).sum())
        assert checked > 0
