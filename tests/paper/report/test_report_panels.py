"""Panels as values: places of categories, legends, and what is refused before anything is drawn."""

from __future__ import annotations

from typing import get_args

import pytest

import sample_report
from fed_ucbvi import InputError
from fed_ucbvi.core.colours import BLUE, PALETTE, Dash, Marker
from fed_ucbvi.paper.report.content import Figure, check_figure
from fed_ucbvi.paper.report.panels import Legend, Panel, Series, legend_of, positions
from sample_report import one_panel


def legend_of_variants(marker: Marker, other: Marker) -> Legend:
    """The legend of two variants of one name, with these markers."""
    one = Series("A", BLUE, [1, 2], [1, 2], marker=marker, variant="one")
    two = Series("A", BLUE, [1, 2], [2, 3], marker=other, variant="two", dash="dashed")
    return legend_of(one_panel([one, two]).panels)


def test_a_marker_that_all_variants_have_belongs_to_the_name() -> None:
    assert [entry.marker for entry in legend_of_variants("circle", "circle").entries] == ["circle", "none", "none"]


def test_markers_that_differ_belong_to_the_variants() -> None:
    assert [entry.marker for entry in legend_of_variants("circle", "square").entries] == ["none", "circle", "square"]


def test_the_legend_has_names_then_variants_then_bands_once_for_all_panels() -> None:
    texts = [entry.text for entry in legend_of(sample_report.many_curves().panels).entries]
    names = ["Fed-UCBVI", "FedQ-Bernstein", "FedQ-Advantage"]
    variants = ["\u03b5\u209a = 0", "\u03b5\u209a = 0.1", "\u03b5\u209a = 0.2", "\u03b5\u209a = 0.3"]
    assert texts == [*names, *variants, "95 % interval of the mean"]


def test_a_series_without_a_name_is_not_in_the_legend() -> None:
    assert legend_of(one_panel([Series("", BLUE, [1, 2], [1, 2])]).panels).entries == []


def test_points_in_one_category_stand_side_by_side_in_order() -> None:
    panel = sample_report.by_environment().panels[0]
    first = [xs[0] for xs in positions(panel)]
    assert first == sorted(set(first))
    assert all(-0.5 < x < 0.5 for x in first)


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (7, 3)])
def test_panels_stand_in_rows_that_are_as_even_as_can_be(count: int, columns: int) -> None:
    panel = Panel("", "x", "y", [Series("A", BLUE, [1, 2], [1, 2])])
    assert Figure("f", "", "", [panel] * count).columns == columns


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
def test_panels_that_cannot_be_drawn_are_refused_with_their_place(figure: Figure, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_figure(figure)
