"""The paper's constants: figures computed by hand with 40 digits, and what their definitions imply."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi.theory.constants import beta_common, beta_star, most_rounds, threshold_nu

SIZES = st.integers(1, 50)
DELTAS = st.floats(1e-6, 0.5)


def test_the_threshold_of_the_papers_gridworld() -> None:
    nu = threshold_nu(S=8, A=4, H=10, M=20, T=30_000, eps_p=0.1, delta=0.05)
    assert nu == pytest.approx(8488632.866924552, rel=1e-14)


def test_the_threshold_of_the_papers_synthetic_problem() -> None:
    nu = threshold_nu(S=5, A=5, H=5, M=20, T=3_000, eps_p=0.1, delta=0.05)
    assert nu == pytest.approx(496830.376715099, rel=1e-14)


def test_the_concentration_functions_of_the_papers_gridworld() -> None:
    assert beta_star(S=8, A=4, H=10, delta=0.05) == pytest.approx(11.248959919135763, rel=1e-14)
    assert beta_common(S=8, A=4, H=10, delta=0.05, n=30_000) == pytest.approx(24.349688715535890, rel=1e-14)
    assert beta_common(S=5, A=5, H=5, delta=0.05, n=0) == pytest.approx(12.407564949312402, rel=1e-14)


def test_the_most_rounds_of_gridworld_at_a_billion_episodes() -> None:
    rounds = most_rounds(S=8, A=4, H=10, M=20, T=10**9, eps_p=0.0, delta=0.05)
    assert rounds == pytest.approx(137162.17589177925, rel=1e-13)


def test_the_most_rounds_of_the_papers_gridworld_are_all_local() -> None:
    rounds = most_rounds(S=8, A=4, H=10, M=20, T=30_000, eps_p=0.1, delta=0.05)
    assert rounds == pytest.approx(147309.44505080762, rel=1e-13)


@given(S=SIZES, A=SIZES, H=SIZES, M=SIZES, T=st.integers(1, 10**9), eps_p=st.floats(0, 0.99), delta=DELTAS)
def test_the_threshold_is_proportional_to_the_agents_and_grows_by_fourteen_visits_in_eps_p(
    S: int, A: int, H: int, M: int, T: int, eps_p: float, delta: float
) -> None:
    nu = threshold_nu(S, A, H, M, T, eps_p, delta)
    assert nu == pytest.approx(M * threshold_nu(S, A, H, 1, T, eps_p, delta), rel=1e-12)
    alike = threshold_nu(S, A, H, M, T, 0.0, delta)
    assert nu - alike == pytest.approx(14 * eps_p * (T * H * M), rel=1e-9, abs=1e-9 * nu)
    assert alike / M == pytest.approx(182 * beta_common(S, A, H, delta, T), rel=1e-12)


@given(S=SIZES, A=SIZES, H=SIZES, delta=DELTAS, n=st.integers(0, 10**12))
def test_the_concentration_functions_invert_to_their_arguments(S: int, A: int, H: int, delta: float, n: int) -> None:
    assert math.exp(beta_star(S, A, H, delta)) * delta == pytest.approx(12 * S * A * H, rel=1e-12)
    growth = beta_common(S, A, H, delta, n) - beta_common(S, A, H, delta, 0)
    assert math.exp(growth) == pytest.approx(2 * n + 1, rel=1e-10)


@given(S=SIZES, A=SIZES, H=SIZES, M=SIZES, T=st.integers(1, 10**12), eps_p=st.floats(0, 0.99), delta=DELTAS)
def test_the_most_rounds_double_local_counters_up_to_the_threshold_and_then_grow_them_by_an_eighth_part(
    S: int, A: int, H: int, M: int, T: int, eps_p: float, delta: float
) -> None:
    """Undoing the logarithms: ``nu`` doublings for each agent, then factors of 8/7 from nu to T M, if it is above."""
    nu = threshold_nu(S, A, H, M, T, eps_p, delta)
    each = most_rounds(S, A, H, M, T, eps_p, delta) / (S * A * H)
    left = each - M * math.log2(nu)
    if nu >= T * M:
        assert left == pytest.approx(0.0, abs=1e-9 * each)
    else:
        assert nu * (8 / 7) ** left == pytest.approx(T * M, rel=1e-9)
