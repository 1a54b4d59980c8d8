"""Labels beside curves: pushed apart, and no further than needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from fed_ucbvi.charts.labels import spread


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(1, 9)), min_size=1, max_size=9),
)
def test_labels_are_spread_without_overlap_within_bounds_in_order(ends: list[tuple[float, float]]) -> None:
    wanted, sizes = sorted(end[0] for end in ends), [end[1] for end in ends]
    centres = spread(wanted, sizes, low=0, high=100)
    assert centres[0] - sizes[0] / 2 >= -1e-9
    assert centres[-1] + sizes[-1] / 2 <= 100 + 1e-9
    gaps = np.diff(centres) - (np.array(sizes[1:]) + np.array(sizes[:-1])) / 2
    assert (gaps >= -1e-9).all()


@pytest.mark.parametrize("seed", range(5))
def test_labels_move_as_little_as_can_be(seed: int) -> None:
    generator = np.random.default_rng(seed)
    wanted, sizes = np.sort(generator.uniform(0, 20, 6)), generator.uniform(1, 4, 6)
    apart = (sizes[1:] + sizes[:-1]) / 2
    best = optimize.minimize(
        lambda centres: ((centres - wanted) ** 2).sum(),
        np.linspace(2, 22, 6),
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": lambda centres: np.diff(centres) - apart},
            {"type": "ineq", "fun": lambda centres: [centres[0] - sizes[0] / 2, 24 - centres[-1] - sizes[-1] / 2]},
        ],
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(spread(wanted.tolist(), sizes.tolist(), low=0, high=24), best.x, atol=1e-5)
