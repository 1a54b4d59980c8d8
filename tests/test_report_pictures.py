"""Pictures of reports: what is drawn is what was given, labelled, and no two texts cover each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from PIL import Image
from scipy import optimize

import sample_report
from fed_ucbvi import InputError
from fed_ucbvi.report.content import Figure, Panel, Series
from fed_ucbvi.report.pictures import WIDTH, draw
from fed_ucbvi.report.scales import positions, x_scale, y_scale
from fed_ucbvi.results.labels import spread
from fed_ucbvi.results.style import BLUE, COLOURS, DARK_GREY, PALETTE, save_figure
from overlaps import overlapping

SAMPLES = {
    "many curves": sample_report.many_curves(),
    "few points": sample_report.speed_up(),
    "categories": sample_report.by_environment(),
    "many panels": sample_report.small_panels(),
}


def one_panel(series: Sequence[Series], **axes: Any) -> Figure:
    return Figure("one", "One panel", "", [Panel("A panel", "along", "up", series, **axes)])


def curves(picture: Picture, panel: int = 0) -> list[Line2D]:
    return [line for line in picture.axes[panel].lines if line.get_gid() != "leader"]


def labels(picture: Picture, panel: int = 0) -> dict[str, str]:
    texts = [text for text in picture.axes[panel].texts if text.get_gid() == "label"]
    return {text.get_text(): str(text.get_color()) for text in texts}


def legend(picture: Picture) -> list[str]:
    return [text.get_text() for legend in picture.legends for text in legend.get_texts()]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_panel_has_its_title_its_axes_labels_its_scales_and_its_curves(name: str) -> None:
    figure = SAMPLES[name]
    picture = draw(figure)
    assert len(picture.axes) == len(figure.panels)
    for number, (axes, panel) in enumerate(zip(picture.axes, figure.panels, strict=True)):
        assert axes.get_title("left").replace("\n", " ") == panel.title
        assert axes.get_xlabel() == panel.x_label
        first = number == 0 or axes.get_position().x0 == picture.axes[0].get_position().x0
        assert axes.get_ylabel() == panel.y_label or (not first and len({p.y_label for p in figure.panels}) == 1)
        assert axes.get_xscale() == ("log" if panel.x_log else "linear")
        assert axes.get_yscale() == ("log" if panel.y_log else "linear")
        drawn = curves(picture, number)
        for line, series, xs in zip(drawn, panel.series, positions(panel), strict=True):
            np.testing.assert_array_equal(np.asarray(line.get_xdata()), xs)
            np.testing.assert_array_equal(np.asarray(line.get_ydata()), series.y)
            assert line.get_color() == series.colour
            assert line.get_label() == series.full_name
            low, high = axes.get_ylim()
            assert low <= min(series.y)
            assert max(series.y) <= high


@pytest.mark.parametrize("name", SAMPLES)
def test_no_texts_overlap_or_leave_the_picture(name: str) -> None:
    assert overlapping(draw(SAMPLES[name])) == []


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("panels", [1, 2, 3, 6])
def test_labels_of_curves_that_end_together_are_pushed_apart_on_every_kind_of_axis(log: bool, panels: int) -> None:
    series = [
        Series(f"Algorithm {k}", PALETTE[k], [1, 10, 100], [1.0, 2.0, height], label=f"Algorithm {k}")
        for k, height in enumerate((5.0, 5.0, 5.01, 5.02, 90.0, 90.0, 0.5, 100.0))
    ]
    panel = Panel("All end together", "along", "up", series, x_log=log, y_log=log)
    picture = draw(Figure("together", "Labels", "", [panel] * panels))
    assert overlapping(picture) == []
    assert len(labels(picture, -1)) == len(series)
    beside = {text.get_text(): text.get_window_extent().y0 for text in picture.axes[-1].texts}
    assert beside["Algorithm 6"] < beside["Algorithm 0"] < beside["Algorithm 3"] < beside["Algorithm 7"]


def test_more_labels_than_fit_beside_the_axes_make_the_axes_taller() -> None:
    series = [Series(f"{k}", BLUE, [0, 1], [0.0, 1.0 + k / 1000], label=f"label {k}") for k in range(40)]
    picture = draw(one_panel(series))
    assert overlapping(picture) == []
    assert picture.get_size_inches()[1] > 1.5 * draw(one_panel(series[:5])).get_size_inches()[1]


@pytest.mark.parametrize("count", [2, 4, 8, 20, 40])
def test_categories_with_long_names_do_not_overlap(count: int) -> None:
    names = [f"FedQ-EarlySettled-LowCost number {k}" for k in range(count)]
    series = [Series("points", BLUE, names, [float(k) for k in range(count)], marker="circle", line=False)]
    picture = draw(one_panel(series))
    assert len(picture.axes[0].get_xticklabels()) == count
    assert overlapping(picture) == []


@pytest.mark.parametrize("panels", [1, 4])
@pytest.mark.parametrize(
    "x",
    [
        [1, 2, 5, 10, 20, 50, 100, 200],
        range(1, 301),
        range(100, 3000),
        [20_000, 25_000, 1e6],
        range(0, 900_001, 30_000),
    ],
)
@pytest.mark.parametrize("log", [False, True])
def test_numbers_along_an_axis_do_not_overlap(panels: int, x: Sequence[float], log: bool) -> None:
    x = [value for value in x if value > 0 or not log]
    series = [Series("A", BLUE, x, [float(k) for k in range(1, len(x) + 1)], marker="circle")]
    panel = Panel("", "along", "up", series, x_log=log, y_log=log)
    picture = draw(Figure("numbers", "Numbers", "", [panel] * panels))
    assert overlapping(picture) == []
    assert len([text for text in picture.axes[0].get_xticklabels() if text.get_text()]) >= 2


def test_labels_name_colours_and_the_legend_names_dashes() -> None:
    picture = draw(sample_report.many_curves())
    for panel in (0, 1):
        assert labels(picture, panel) == {
            "Fed-UCBVI": COLOURS["fed-ucbvi"],
            "FedQ-Bernstein": COLOURS["fedq-bernstein"],
            "FedQ-Advantage": COLOURS["fedq-advantage"],
        }
    assert legend(picture) == ["εₚ = 0", "εₚ = 0.1", "εₚ = 0.2", "εₚ = 0.3"]
    handles = picture.legends[0].get_lines()
    assert {to_hex(line.get_color()).upper() for line in handles} == {DARK_GREY}
    assert len({str(line._dash_pattern) for line in curves(picture)}) == 4  # type: ignore[attr-defined]


def test_the_legend_names_what_no_label_does() -> None:
    assert legend(draw(sample_report.speed_up())) == ["1/√M"]
    figure = sample_report.by_environment()
    assert legend(draw(figure)) == [series.name for series in figure.panels[0].series]
    labelled = one_panel([Series("all", BLUE, [1, 2], [1, 2], label="all of it")])
    assert draw(labelled).legends == []


def test_markers_go_with_names_or_with_variants() -> None:
    def pair(marker: str, other: str) -> list[Line2D]:
        series = [
            Series("A", PALETTE[0], [1, 2], [1, 2], marker=marker, variant="one"),  # type: ignore[arg-type]
            Series("A", PALETTE[0], [1, 2], [2, 3], marker=other, variant="two", dash="dashed"),  # type: ignore[arg-type]
        ]
        return list(draw(one_panel(series)).legends[0].get_lines())

    assert [line.get_marker() for line in pair("circle", "circle")] == ["o", "", ""]
    assert [line.get_marker() for line in pair("circle", "square")] == ["", "o", "s"]


@pytest.mark.parametrize("name", SAMPLES)
def test_only_colours_that_everyone_can_tell_apart_are_drawn(name: str) -> None:
    picture = draw(SAMPLES[name])
    known = {colour.upper() for colour in (*PALETTE, *COLOURS.values(), DARK_GREY)}
    for panel, axes in enumerate(picture.axes):
        drawn = {to_hex(line.get_color()).upper() for line in curves(picture, panel)}
        drawn |= {
            to_hex(colour).upper() for band in axes.collections for colour in np.atleast_2d(band.get_edgecolor())
        }
        assert drawn <= known


def test_bands_are_the_intervals_as_far_as_the_axis_reaches() -> None:
    series = Series("A", BLUE, [1, 2, 3], [1.0, 2.0, 4.0], [-1.0, 0.5, 3.0], [1.5, 3.0, 9.0])
    for log in (False, True):
        axes = draw(one_panel([series], y_log=log)).axes[0]
        bottom, top = axes.get_ylim()
        (path,) = axes.collections[0].get_paths()
        corners = np.asarray(path.vertices)
        for x, low, high in zip(series.x, series.low or (), series.high or (), strict=True):
            heights = corners[corners[:, 0] == x][:, 1]
            assert heights.min() == max(low, bottom)
            assert heights.max() == high <= top


def test_points_in_one_category_stand_side_by_side_in_order() -> None:
    panel = sample_report.by_environment().panels[0]
    first = [xs[0] for xs in positions(panel)]
    assert first == sorted(first)
    assert len(set(first)) == 4
    assert np.mean(first) == pytest.approx(0)
    assert all(-0.5 < x < 0.5 for x in first)


def test_the_x_of_few_points_are_written_under_the_axis() -> None:
    axes = draw(sample_report.speed_up()).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "5", "10", "20", "50"]


def test_amounts_begin_at_zero_unless_that_would_hide_their_differences() -> None:
    assert y_scale(one_panel([Series("A", BLUE, [1, 2], [1.0, 10.0])]).panels[0]).low == 0
    assert y_scale(one_panel([Series("A", BLUE, [1, 2], [9.0, 10.0])]).panels[0]).low > 8
    assert y_scale(one_panel([Series("A", BLUE, [1, 2], [-9.0, 10.0])]).panels[0]).low < -9
    assert x_scale(one_panel([Series("A", BLUE, [5], [-9.0])]).panels[0]).low < 5


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_a_picture_is_as_wide_as_a_page_and_the_same_figure_gives_the_same_file(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    before = dict(matplotlib.rcParams)
    for path in paths:
        picture = draw(sample_report.many_curves())
        save_figure(picture, path)
        assert picture.get_size_inches()[0] == pytest.approx(WIDTH / 72)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert dict(matplotlib.rcParams) == before
    if suffix == "png":
        with Image.open(paths[0]) as image:
            assert image.size[0] == 1480


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


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        (Figure("f", "", "", []), "figure 'f' has no panel"),
        (one_panel([]), "figure 'one', panel 'A panel' has no series"),
        (one_panel([Series("A", BLUE, [], [])]), "panel 'A panel', series 'A' is empty"),
        (one_panel([Series("A", BLUE, [1, 2], [1, float("nan")])]), r"series 'A': y\[1\] is nan"),
        (one_panel([Series("A", BLUE, [1, 2], [1, float("inf")])]), r"series 'A': y\[1\] is inf"),
        (one_panel([Series("A", BLUE, [1, 2], [1, None])]), r"y\[1\] is None"),  # type: ignore[list-item]
        (one_panel([Series("A", BLUE, [1, 2], [0, 1])], y_log=True), r"y\[0\] is 0, .*logarithmic.*y_log"),
        (one_panel([Series("A", BLUE, [0, 2], [1, 1])], x_log=True), r"x\[0\] is 0, .*logarithmic.*x_log"),
        (one_panel([Series("A", BLUE, [1, 2], [1])]), "y has 1 entries, x has 2"),
        (one_panel([Series("A", BLUE, [1], [1], low=[0])]), "give both or neither"),
        (one_panel([Series("A", BLUE, [1], [1], low=[2], high=[1])]), "above high"),
        (one_panel([Series("A", BLUE, [1], [1], low=[float("nan")], high=[1])]), r"low\[0\] is nan"),
        (one_panel([Series("A", "blue", [1], [1])]), "#RRGGBB"),
        (one_panel([Series("A", BLUE, [1], [1], line=False)]), "neither line nor marker"),
        (one_panel([Series("A", BLUE, ["a"], [1]), Series("B", BLUE, [1], [1])]), "both numbers and texts"),
        (one_panel([Series("A", BLUE, ["a"], [1])], x_log=True), "x_log"),
        (one_panel([Series("A", BLUE, [1], [1])] * 2), "two series 'A'"),
        (one_panel([Series("A", c, [1], [1], variant=c) for c in PALETTE[:2]]), "name 'A' has more than one colour"),
        (
            one_panel(
                [Series("A", BLUE, [1], [1], variant="v"), Series("B", BLUE, [1], [1], variant="v", dash="dotted")]
            ),
            "variant 'v' has more than one dash",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(figure: Figure, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(figure)
