"""Axes: ticks at round numbers, numbers in plain text, curves with bands and markers."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fed_ucbvi.charts.axes import (
    FEW_POINTS,
    MARKERS_OF_MANY,
    draw_curve,
    log_ticks,
    set_scales,
    set_texts,
    start_at_zero,
)
from fed_ucbvi.core.colours import BLUE


@pytest.fixture
def ax() -> Axes:
    return Figure(figsize=(4, 3)).add_subplot()


def tick_texts(ax: Axes) -> list[str]:
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    return [text.get_text() for text in ax.get_xticklabels()]


@pytest.mark.parametrize("low", [1e-7, 0.03, 1.0, 12.5, 9e8])
@pytest.mark.parametrize("factor", [1.01, 1.3, 2.0, 7.0, 100.0, 1e4, 1e12])
def test_a_logarithmic_axis_has_2_to_12_ticks_within_its_ends(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 12
    assert all(low <= tick <= low * factor for tick in ticks)


def test_ticks_follow_the_limits_of_a_logarithmic_axis(ax: Axes) -> None:
    set_scales(ax, x_log=True, y_log=False)
    ax.set_xlim(1, 30)
    assert tick_texts(ax) == ["1", "2", "5", "10", "20"]


def test_many_powers_of_ten_are_written_as_powers(ax: Axes) -> None:
    set_scales(ax, x_log=True, y_log=False)
    ax.set_xlim(1, 1e6)
    assert tick_texts(ax)[-1] == "10⁶"


def test_large_numbers_of_a_linear_axis_have_no_common_factor(ax: Axes) -> None:
    set_scales(ax, x_log=False, y_log=False)
    ax.set_xlim(0, 30_000)
    assert "10,000" in tick_texts(ax)
    assert ax.xaxis.get_offset_text().get_text() == ""


@pytest.mark.parametrize(("heights", "bottom"), [([1.0, 10.0], True), ([9.0, 10.0], False), ([-9.0, 10.0], False)])
def test_an_axis_starts_at_zero_where_that_hides_nothing(ax: Axes, heights: list[float], bottom: bool) -> None:
    ax.plot([1, 2], heights)
    start_at_zero(ax, heights)
    assert (ax.get_ylim()[0] == 0) == bottom


def test_curves_that_are_always_zero_have_an_axis_up_to_1(ax: Axes) -> None:
    start_at_zero(ax, [0.0, 0.0])
    assert ax.get_ylim() == (0, 1)


def test_a_curve_has_its_colour(ax: Axes) -> None:
    draw_curve(ax, [1, 2], [3, 4], colour=BLUE)
    (line,) = ax.get_lines()
    assert to_hex(line.get_color()).upper() == BLUE


def test_a_curve_has_its_dash(ax: Axes) -> None:
    draw_curve(ax, [1, 2], [3, 4], colour=BLUE, dash="dashed")
    (line,) = ax.get_lines()
    assert line.get_linestyle() == "--"


def test_a_curve_without_a_name_is_not_in_the_legend(ax: Axes) -> None:
    draw_curve(ax, [1, 2], [3, 4], colour=BLUE)
    assert ax.get_legend_handles_labels()[1] == []


def test_a_name_that_begins_with_an_underscore_is_in_the_legend(ax: Axes) -> None:
    draw_curve(ax, [1, 2], [3, 4], colour=BLUE, label="_mine")
    assert ax.get_legend_handles_labels()[1] == [" _mine"]


def test_a_band_reaches_from_low_to_high(ax: Axes) -> None:
    draw_curve(ax, [1, 2], [3, 4], colour=BLUE, low=[2, 3], high=[5, 6])
    (band,) = ax.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert (heights.min(), heights.max()) == (2, 6)


def marked_points(line: Line2D) -> int:
    every = line.get_markevery()
    assert isinstance(every, int)
    return len(np.arange(len(line.get_xdata()))[::every])  # type: ignore[arg-type]


def test_every_point_of_few_has_a_marker(ax: Axes) -> None:
    draw_curve(ax, range(FEW_POINTS), range(FEW_POINTS), colour=BLUE, marker="circle")
    assert marked_points(ax.get_lines()[0]) == FEW_POINTS


def test_some_points_of_many_have_a_marker(ax: Axes) -> None:
    draw_curve(ax, range(1000), range(1000), colour=BLUE, marker="circle")
    assert marked_points(ax.get_lines()[0]) == MARKERS_OF_MANY


def test_texts_of_axes_are_not_read_as_tex(ax: Axes) -> None:
    set_texts(ax, title="$\\bad{$", x_label="$x$", y_label="$y$")
    assert not ax.xaxis.get_label().get_parse_math()
