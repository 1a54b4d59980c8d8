"""The picture of an inspection: shades and points are the distances and values that were found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fed_ucbvi import MDP, Federation, InputError, deep_sea, gridworld, inspect_federation, synthetic
from fed_ucbvi.paper.inspection import Inspection
from fed_ucbvi.paper.inspection_picture import plot_inspection, pool
from matrices import first_of
from picture_texts import badly_placed


def two_stationary_agents() -> Federation:
    return Federation.from_mdps([MDP([[[p, 1 - p]], [[0.5, 0.5]]], [[0.0], [1.0]], 0, 3) for p in (0.2, 0.4)])


KINDS: dict[str, Callable[[], Federation]] = {
    "grid": lambda: gridworld(agents=4, eps_p=0.1),
    "one agent on a large grid": lambda: gridworld(agents=1, rows=20, columns=18),
    "states without a square": lambda: deep_sea(agents=2, eps_p=0.1, size=4),
    "many agents": lambda: synthetic(agents=30, eps_p=0.2, eps_r=0.1, states=20, actions=3, horizon=15),
    "stationary without a grid": two_stationary_agents,
}


@pytest.fixture(scope="module", params=first_of(list(KINDS)))
def found(request: pytest.FixtureRequest) -> Inspection:
    return inspect_federation(KINDS[request.param]())


@pytest.fixture(scope="module")
def small() -> Inspection:
    return inspect_federation(KINDS["grid"]())


def shades(ax: Axes) -> Any:
    (image,) = ax.get_images()
    return np.ma.filled(np.ma.asarray(image.get_array()), np.nan)


def test_the_panels_are_in_reading_order(small: Inspection) -> None:
    titles = [ax.get_title("left") for ax in plot_inspection(small)]
    assert titles == ["Where kernels differ", "Which agents differ", "What sharing costs"]


def test_the_largest_shade_is_the_least_eps_p(found: Inspection) -> None:
    assert np.nanmax(shades(plot_inspection(found)[0])) == pytest.approx(found.missing.max(), abs=1e-12)


def test_agents_are_not_compared_with_themselves(found: Inspection) -> None:
    assert np.isnan(np.diag(shades(plot_inspection(found)[1]))).all()


def test_shades_of_pairs_are_their_total_variation(found: Inspection) -> None:
    drawn = shades(plot_inspection(found)[1])
    np.testing.assert_array_equal(drawn[0, 1:], found.distances.worst[0, 1:] / 2)


def values(found: Inspection) -> tuple[Any, Any]:
    """Values of own and of shared policies, in the order in which they are drawn."""
    own, shared = plot_inspection(found)[2].get_lines()
    return np.asarray(own.get_ydata()), np.asarray(shared.get_ydata())


def test_every_agent_has_the_value_of_its_own_policy(found: Inspection) -> None:
    np.testing.assert_array_equal(np.sort(values(found)[0]), np.sort(found.own))


def test_every_agent_has_the_value_of_the_shared_policy(found: Inspection) -> None:
    np.testing.assert_array_equal(np.sort(values(found)[1]), np.sort(found.shared))


def test_agents_are_sorted_by_their_loss(found: Inspection) -> None:
    own, shared = values(found)
    assert (np.diff(own - shared) >= 0).all()


def test_agents_are_named_below_their_values(small: Inspection) -> None:
    ax = plot_inspection(small)[2]
    order = [int(text.get_text()) for text in ax.get_xticklabels()]
    np.testing.assert_array_equal(values(small)[0], small.own[order])


def test_no_texts_overlap(found: Inspection) -> None:
    assert badly_placed(plot_inspection(found).figure) == []


def test_the_picture_is_written(small: Inspection, tmp_path: Path) -> None:
    plot_inspection(small, tmp_path / "agents.png")
    assert (tmp_path / "agents.png").read_bytes().startswith(b"\x89PNG")


def test_given_axes_are_drawn_on_and_returned(small: Inspection) -> None:
    axes = Figure().subplots(1, 3)
    assert list(plot_inspection(small, axes=axes)) == list(axes)


def test_too_few_axes_are_refused(small: Inspection) -> None:
    with pytest.raises(InputError, match="axes must be 3 matplotlib axes"):
        plot_inspection(small, axes=[Figure().add_subplot()])


def test_neighbours_in_a_large_table_are_merged_to_their_largest() -> None:
    table = np.random.default_rng(1).random((7, 300))
    pooled = pool(table)
    expected = [[table[row, 3 * column : 3 * column + 3].max() for column in range(100)] for row in range(7)]
    np.testing.assert_array_equal(pooled.table, expected)
    assert (pooled.down, pooled.along) == (1, 3)


def test_a_small_table_stays_as_it_is() -> None:
    table = np.random.default_rng(1).random((7, 30))
    np.testing.assert_array_equal(pool(table).table, table)
