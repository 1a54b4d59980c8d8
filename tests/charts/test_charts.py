"""Panels as Vega-Lite, sound by its schema, on axes that hold them; pictures in which every text can be read."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import sample_report
from fed_ucbvi import InputError
from fed_ucbvi.charts.panels import Dash, Panel, Series, legend_of, positions, x_scale, y_scale
from fed_ucbvi.charts.picture import POINTS, Picture
from fed_ucbvi.charts.vega import DASHES, SHAPES, WIDTH, panel_chart, rows_of
from fed_ucbvi.core.colours import BLUE, PALETTE
from fed_ucbvi.paper.report.content import Figure, check_figure
from fed_ucbvi.paper.report.writing import plots_of
from matrices import first_of, in_turn
from sample_report import SAMPLES, check_schema, one_panel
from svg_texts import overlapping, texts_of


def layers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The layers of a panel by their marks."""
    return {layer["mark"]["type"]: layer for layer in spec["layer"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(list(SAMPLES)))
def test_every_specification_keeps_to_the_schema_of_vega_lite(name: str) -> None:
    check_schema(Picture(SAMPLES[name].panels).specification(interactive=True))
    for plot in plots_of(SAMPLES[name]):
        check_schema(plot)
        json.dumps(plot, allow_nan=False)


def test_the_schema_would_refuse_a_word_that_it_does_not_know() -> None:
    plot = plots_of(sample_report.speed_up())[0]
    plot["layer"][0]["mark"]["colour"] = "red"
    with pytest.raises(Exception, match="Failed validating"):
        check_schema(plot)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_data_of_a_panel_are_those_of_its_series_with_their_looks(name: str) -> None:
    for panel in SAMPLES[name].panels:
        rows = rows_of(panel)
        assert [row["series"] for row in rows] == [series.full_name for series in panel.series]
        for row, series, xs in zip(rows, panel.series, positions(panel), strict=True):
            np.testing.assert_allclose(row["x"], xs, rtol=1e-8)
            np.testing.assert_allclose(row["y"], series.y, rtol=1e-8)
            np.testing.assert_allclose(row["low"], series.low or [], rtol=1e-8)
            np.testing.assert_allclose(row["high"], series.high or [], rtol=1e-8)
            assert row["colour"] == series.colour
            assert row["dash"] == DASHES[series.dash]
            assert row["shape"] == SHAPES.get(series.marker, "")
            assert row.get("text", list(series.x)) == list(series.x)


@pytest.mark.parametrize("name", SAMPLES)
def test_axes_have_their_kind_and_title_and_hold_every_point(name: str) -> None:
    for panel in SAMPLES[name].panels:
        spec = panel_chart(panel, "series", lines=(400, 400))
        up = next(layer["encoding"]["y"] for layer in spec["layer"] if layer["encoding"]["y"]["field"] == "y")
        for axis, title, log, values in (
            (spec["encoding"]["x"], panel.x_label, panel.x_log, [x for xs in positions(panel) for x in xs]),
            (up, panel.y_label, panel.y_log, [y for series in panel.series for y in series.y]),
        ):
            assert axis["axis"]["title"] == [title]
            assert axis["scale"]["type"] == ("log" if log else "linear")
            low, high = axis["scale"]["domain"]
            assert low <= min(values) <= max(values) <= high


def test_long_titles_of_axes_are_broken_into_lines() -> None:
    panel = Panel("", "Megabytes sent so far, both ways", "up", [Series("A", BLUE, [1, 2], [1, 2])])
    title = panel_chart(panel, "series", lines=(20, 20))["encoding"]["x"]["axis"]["title"]
    assert title == ["Megabytes sent so", "far, both ways"]


def test_bands_are_drawn_as_far_as_the_axis_reaches_and_points_get_bars() -> None:
    series = Series("A", BLUE, [1, 2, 3], [1.0, 2.0, 4.0], [-1.0, 0.5, 3.0], [1.5, 3.0, 9.0])
    panel = one_panel([series], y_log=True).panels[0]
    spec = panel_chart(panel, "series")
    assert layers(spec)["area"]["encoding"]["y"]["field"] == "floor"
    assert layers(spec)["area"]["encoding"]["y2"]["field"] == "high"
    (floor,) = [step["calculate"] for step in spec["transform"] if step.get("as") == "floor"]
    assert floor == f"max(datum.low, {y_scale(panel).low!r})"
    assert 0 < y_scale(panel).low <= 0.5
    assert "rule" not in layers(spec)
    points = layers(panel_chart(sample_report.by_environment().panels[0], "series"))
    assert "rule" in points
    assert "area" not in points


def test_of_many_points_a_few_are_marked_and_of_few_all() -> None:
    x = [float(k) for k in range(1, 101)]
    series = [Series(f"{k}", BLUE, x, x, marker="circle") for k in range(3)]
    marked = [row["marked"] for row in rows_of(one_panel(series).panels[0])]
    assert all(5 <= sum(places) <= 8 for places in marked)
    assert not any(one and other for one, other in zip(marked[0], marked[1], strict=True))
    few = rows_of(one_panel([Series("A", BLUE, [1, 2], [1, 2], marker="circle")]).panels[0])
    assert few[0]["marked"] == [1, 1]


def test_points_in_one_category_stand_side_by_side_in_order() -> None:
    panel = sample_report.by_environment().panels[0]
    first = [xs[0] for xs in positions(panel)]
    assert first == sorted(first)
    assert len(set(first)) == 4
    assert np.mean(first) == pytest.approx(0)
    assert all(-0.5 < x < 0.5 for x in first)


def test_the_x_of_few_points_are_written_under_the_axis() -> None:
    scale = x_scale(sample_report.speed_up().panels[0])
    assert [text for _, text in scale.ticks or ()] == ["1", "2", "5", "10", "20", "50"]


@given(st.floats(1e-12, 1e12), st.floats(1.01, 1e20))
def test_a_logarithmic_axis_has_at_least_two_ticks_within_its_ends_and_no_crowd(low: float, factor: float) -> None:
    scale = y_scale(one_panel([Series("A", BLUE, [1, 2], [low, low * factor])], y_log=True).panels[0])
    places = [place for place, _ in scale.ticks or ()]
    assert 2 <= len(places) <= 12
    assert all(scale.low <= place <= scale.high for place in places)
    assert len({text for _, text in scale.ticks or ()}) == len(places)


def test_amounts_begin_at_zero_unless_that_would_hide_their_differences() -> None:
    assert y_scale(one_panel([Series("A", BLUE, [1, 2], [1.0, 10.0])]).panels[0]).low == 0
    assert y_scale(one_panel([Series("A", BLUE, [1, 2], [9.0, 10.0])]).panels[0]).low > 8
    assert y_scale(one_panel([Series("A", BLUE, [1, 2], [-9.0, 10.0])]).panels[0]).low < -9
    assert x_scale(one_panel([Series("A", BLUE, [5], [-9.0])]).panels[0]).low < 5


def test_markers_go_with_names_or_with_variants_in_the_legend() -> None:
    def pair(marker: str, other: str) -> list[str]:
        series = [
            Series("A", PALETTE[0], [1, 2], [1, 2], marker=marker, variant="one"),  # type: ignore[arg-type]
            Series("A", PALETTE[0], [1, 2], [2, 3], marker=other, variant="two", dash="dashed"),  # type: ignore[arg-type]
        ]
        legend = legend_of(one_panel(series).panels)
        return [entry.marker for entry in (*legend.names.values(), *legend.variants.values())]

    assert pair("circle", "circle") == ["circle", "none", "none"]
    assert pair("circle", "square") == ["none", "circle", "square"]


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
        (one_panel([Series("A", BLUE, [1], [1], low=[float("nan")], high=[1])]), r"low\[0\] is nan"),
        (one_panel([Series("A", c, [1], [1], variant=c) for c in PALETTE[:2]]), "name 'A' has more than one colour"),
        (
            one_panel([Series(d, BLUE, [1], [1], variant="v", dash=d) for d in get_args(Dash)[:2]]),
            "more than one dash",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(figure: Figure, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_figure(figure)


def test_numbers_may_be_arrays() -> None:
    x = np.arange(1.0, 4.0)
    y = np.array([2.0, 3.0, 5.0])
    as_arrays = one_panel([Series("a", BLUE, x, y, low=y - 1, high=y + 1)])  # type: ignore[arg-type]
    as_lists = one_panel([Series("a", BLUE, x.tolist(), y.tolist(), low=(y - 1).tolist(), high=(y + 1).tolist())])
    assert Picture(as_arrays.panels).specification() == Picture(as_lists.panels).specification()


def picture(figure: Figure) -> str:
    return Picture(figure.panels).svg


def words(svg: str) -> str:
    return " ".join(text.text for text in texts_of(svg))


@pytest.mark.parametrize("panels", [1, 2, 3, 6])
def test_a_legend_of_many_long_names_takes_more_lines(panels: int) -> None:
    series = [Series(f"FedQ-Bernstein number {k}", BLUE, [0, 1], [0.0, 1.0 + k]) for k in range(20)]
    panel = one_panel(series).panels[0]
    svg = picture(Figure("many", "Names", "", [panel] * panels))
    assert overlapping(svg) == []
    assert words(svg).count("FedQ-Bernstein") == 20, "once for all panels"
    assert len({text.corners[0, 1] for text in texts_of(svg) if "FedQ" in text.text}) > 3


@pytest.mark.parametrize("count", [2, 4, 8, 20, 40])
def test_categories_with_long_names_do_not_overlap(count: int) -> None:
    names = [f"FedQ-Bernstein number {k}" for k in range(count)]
    series = [Series("points", BLUE, names, [float(k) for k in range(count)], marker="circle", line=False)]
    svg = picture(one_panel(series))
    assert words(svg).count("FedQ-Bernstein") == count
    assert overlapping(svg) == []


ALONG: list[Sequence[float]] = [[1, 2, 5, 10, 20, 50, 100, 200], range(1, 301), range(100, 3000)]
ALONG += [[20_000, 25_000, 1e6], range(0, 900_001, 30_000)]


@pytest.mark.parametrize(("x", "log", "panels"), in_turn(itertools.product(ALONG, [False, True]), [1, 3, 4]))
def test_numbers_along_an_axis_do_not_overlap_nor_are_they_cut(panels: int, x: Sequence[float], log: bool) -> None:
    x = [value for value in x if value > 0 or not log]
    series = [Series("A", BLUE, x, [float(k) for k in range(1, len(x) + 1)], marker="circle")]
    panel = Panel("", "along", "up, and a title that is long", series, x_log=log, y_log=log)
    svg = picture(Figure("numbers", "Numbers", "", [panel] * panels))
    assert overlapping(svg) == []


def test_the_legend_names_colours_then_dashes_then_bands_once_for_all_panels() -> None:
    drawn = [text.text for text in texts_of(picture(sample_report.many_curves()))]
    names = ["Fed-UCBVI", "FedQ-Bernstein", "FedQ-Advantage"]
    variants = [f"εₚ = {k}" for k in (0, 0.1, 0.2, 0.3)]
    assert drawn[:8] == [*names, *variants, "95 % interval of the mean"]
    assert drawn.count("Fed-UCBVI") == 1
    alone = Picture(one_panel([Series("", BLUE, [1, 2], [1, 2])]).panels).specification()
    assert len(alone["vconcat"]) == 1, "a series without a name has no legend"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_picture_shows_titles_but_not_the_claim_and_every_format_is_sound(name: str) -> None:
    figure = SAMPLES[name]
    picture = Picture(figure.panels)
    drawn = words(picture.svg)
    assert overlapping(picture.svg) == []
    assert all(text in drawn for panel in figure.panels for text in (panel.title, panel.x_label, panel.y_label))
    assert figure.title not in drawn
    files = {format_: picture.content(format_) for format_ in ("svg", "png", "pdf")}
    ((width, height),) = re.findall(r'<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"', files["svg"].decode())
    assert float(width) == pytest.approx(WIDTH, rel=0.08)
    paper = (float(width) * POINTS, float(height) * POINTS)
    with Image.open(io.BytesIO(files["png"])) as image:
        image.load()
        assert image.size == pytest.approx([side * 200 / 72 for side in paper], abs=2)
        colours = image.convert("RGB").getcolors(1 << 24)
    found = {"#{:02X}{:02X}{:02X}".format(*colour) for _, colour in colours or ()}  # type: ignore[misc]
    assert {series.colour for panel in figure.panels for series in panel.series} <= found
    assert files["pdf"].startswith(b"%PDF-")
    (box,) = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", files["pdf"])
    assert (float(box[0]), float(box[1])) == pytest.approx(paper, abs=1)
