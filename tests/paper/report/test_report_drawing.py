"""Figures of reports with matplotlib: their curves, axes and legends, and panels as SVG in the page's colours."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D

import sample_report
from fed_ucbvi.core.colours import BLUE
from fed_ucbvi.paper.report.content import Figure
from fed_ucbvi.paper.report.drawing import draw_figure, draw_panel, panel_svg
from fed_ucbvi.paper.report.panels import Panel, Series, legend_of, positions
from picture_texts import badly_placed
from sample_report import NASTY, SAMPLES, one_panel


def drawn(panel: Panel) -> Axes:
    ax = MatplotlibFigure(figsize=(4, 3)).add_subplot()
    draw_panel(ax, panel)
    return ax


@pytest.fixture(params=SAMPLES)
def figure(request: pytest.FixtureRequest) -> Figure:
    return SAMPLES[request.param]


def lines_of(ax: Axes) -> dict[str, Line2D]:
    return {str(line.get_label()): line for line in ax.get_lines()}


def test_every_series_is_drawn_with_its_points(figure: Figure) -> None:
    for panel in figure.panels:
        lines = lines_of(drawn(panel))
        for series, x in zip(panel.series, positions(panel), strict=True):
            np.testing.assert_array_equal(lines[series.full_name].get_xdata(), x)
            np.testing.assert_array_equal(lines[series.full_name].get_ydata(), series.y)


def test_every_series_has_its_colour(figure: Figure) -> None:
    for panel in figure.panels:
        lines = lines_of(drawn(panel))
        for series in panel.series:
            assert to_hex(lines[series.full_name].get_color()).upper() == series.colour


def test_axes_hold_every_point(figure: Figure) -> None:
    for panel in figure.panels:
        low, high = drawn(panel).get_ylim()
        assert low <= min(min(series.y) for series in panel.series)
        assert high >= max(max(series.y) for series in panel.series)


def test_axes_have_the_scale_of_their_panel(figure: Figure) -> None:
    for panel in figure.panels:
        ax = drawn(panel)
        assert ax.get_xscale() == ("log" if panel.x_log else "linear")
        assert ax.get_yscale() == ("log" if panel.y_log else "linear")


def test_axes_have_the_label_of_their_panel(figure: Figure) -> None:
    for panel in figure.panels:
        assert drawn(panel).get_xlabel() == panel.x_label


def test_long_labels_of_vertical_axes_are_broken_into_lines() -> None:
    ax = drawn(Panel("", "x", "Megabytes sent so far, both ways", [Series("A", BLUE, [1, 2], [1, 2])]))
    assert ax.get_ylabel() == "Megabytes sent so far, both\nways"


def test_the_lower_end_of_a_logarithmic_axis_cuts_bands_that_reach_below_zero() -> None:
    series = Series("A", BLUE, [1, 2, 3], [1.0, 2.0, 4.0], [-1.0, 0.5, 3.0], [1.5, 3.0, 9.0])
    ax = drawn(one_panel([series], y_log=True).panels[0])
    band = np.asarray(ax.collections[0].get_paths()[0].vertices)
    assert 0 < ax.get_ylim()[0] <= 0.5
    assert band[:, 1].min() == pytest.approx(ax.get_ylim()[0])


def test_points_without_a_line_have_bars() -> None:
    series = Series("A", BLUE, [1, 2], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5], marker="circle", line=False)
    ax = drawn(one_panel([series]).panels[0])
    assert [segment[:, 1].tolist() for segment in ax.collections[0].get_segments()] == [[0.5, 1.5], [1.5, 2.5]]  # type: ignore[attr-defined]


def test_few_different_x_are_each_written_below_the_axis() -> None:
    ax = drawn(sample_report.speed_up().panels[0])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "5", "10", "20", "50"]


def test_categories_are_written_below_the_axis() -> None:
    ax = drawn(sample_report.by_environment().panels[0])
    assert [text.get_text() for text in ax.get_xticklabels()][:2] == ["GridWorld", "synthetic MDP"]


def test_a_figure_has_its_legend_once(figure: Figure) -> None:
    (legend,) = draw_figure(figure).figure.legends
    texts = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    assert texts == [entry.text for entry in legend_of(figure.panels).entries]


def test_no_texts_of_a_figure_overlap(figure: Figure) -> None:
    assert badly_placed(draw_figure(figure).figure) == []


@pytest.fixture(scope="module")
def svg() -> str:
    return panel_svg(sample_report.many_curves().panels[0], "regret-0", NASTY)


def test_a_panel_on_a_page_is_well_formed(svg: str) -> None:
    assert ElementTree.fromstring(svg).tag == "svg"


def test_a_panel_on_a_page_has_its_text_alternative(svg: str) -> None:
    assert ElementTree.fromstring(svg).get("aria-label") == NASTY


def test_a_panel_on_a_page_has_the_colours_of_the_page(svg: str) -> None:
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg))
    assert {"var(--faint)", "var(--rule)", "var(--colour-0072B2)"} <= colours
    assert not [colour for colour in colours if colour.startswith("#")]


def test_ids_on_a_page_begin_with_the_name_of_their_panel(svg: str) -> None:
    ids = re.findall(r' id="([^"]*)"', svg)
    assert ids
    assert all(id_.startswith("regret-0-") for id_ in ids)


def test_every_reference_on_a_page_has_its_id(svg: str) -> None:
    references = set(re.findall(r'href="#([^"]*)"', svg)) | set(re.findall(r"url\(#([^)]*)\)", svg))
    assert references
    assert references <= set(re.findall(r' id="([^"]*)"', svg))


def test_the_same_panel_gives_the_same_svg(svg: str) -> None:
    assert panel_svg(sample_report.many_curves().panels[0], "regret-0", NASTY) == svg


def test_texts_from_data_are_escaped() -> None:
    assert "<script" not in panel_svg(sample_report.by_environment().panels[0], "f-0", "")
