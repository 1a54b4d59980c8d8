"""Data behind figures and tables: what is written is what was given, and reads back equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sample_report
from fed_ucbvi import InputError
from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.colours import BLUE
from fed_ucbvi.report.content import Cell, Estimate, Figure, Table, check_table
from fed_ucbvi.report.page import cell_text
from fed_ucbvi.report.writing import figure_frame, table_frame


@pytest.mark.parametrize(
    "figure", [sample_report.many_curves(), sample_report.speed_up(), sample_report.by_environment()]
)
def test_every_point_of_a_figure_is_in_its_data_and_no_other(figure: Figure) -> None:
    frame = figure_frame(figure)
    assert frame.columns == ["panel", "series", "variant", "x", "y", "low", "high"]
    assert len(frame) == sum(len(series.x) for panel in figure.panels for series in panel.series)
    for panel in figure.panels:
        for series in panel.series:
            rows = frame.filter(
                pl.col("panel") == panel.title,
                pl.col("series") == series.name,
                pl.col("variant").eq_missing(pl.lit(series.variant or None, dtype=pl.String)),
            )
            assert rows["x"].to_list() == list(series.x)
            assert rows["y"].to_list() == list(series.y)
            assert rows["low"].to_list() == (list(series.low) if series.low else [None] * len(series.x))
            assert rows["high"].to_list() == (list(series.high) if series.high else [None] * len(series.x))


def test_data_read_back_equal_from_csv_and_parquet(tmp_path: Path) -> None:
    for figure in (sample_report.many_curves(), sample_report.by_environment()):
        frame = figure_frame(figure)
        frame.write_csv(tmp_path / "figure.csv")
        frame.write_parquet(tmp_path / "figure.parquet")
        assert_frame_equal(pl.read_csv(tmp_path / "figure.csv", schema=frame.schema), frame)
        assert_frame_equal(pl.read_parquet(tmp_path / "figure.parquet"), frame)


def test_arrays_of_numpy_are_as_good_as_lists() -> None:
    plain = Series("A", BLUE, [1, 2], [0.5, 0.25], [0.1, 0.2], [0.6, 0.3])
    arrays = Series("A", BLUE, *(np.array(part) for part in ([1, 2], [0.5, 0.25], [0.1, 0.2], [0.6, 0.3])))  # type: ignore[arg-type]
    one, other = (figure_frame(Figure("f", "", "", [Panel("", "", "", [series])])) for series in (plain, arrays))
    assert_frame_equal(one, other)


def test_a_table_keeps_figures_as_figures_and_intervals_with_their_ends() -> None:
    rows: list[list[Cell]] = [["a", Estimate(1.5, 1.0, 2.0), 3, 0.5, 7], ["b", 2.5, None, 2, "none"]]
    frame = table_frame(Table("t", "", "", ["name", "regret", "rounds", "slope", "mixed"], rows))
    assert frame.to_dicts() == [
        {"name": "a", "regret": 1.5, "regret low": 1.0, "regret high": 2.0, "rounds": 3, "slope": 0.5, "mixed": "7"},
        {
            "name": "b",
            "regret": 2.5,
            "regret low": None,
            "regret high": None,
            "rounds": None,
            "slope": 2.0,
            "mixed": "none",
        },
    ]
    assert frame.schema["rounds"] == pl.Int64
    assert table_frame(Table("t", "", "", ["name"], [])).shape == (0, 1)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Estimate(312.04, 304.9, 319.2), "312 [305, 319]"),
        (Estimate(0.001234, 0.001194, 0.001274), "0.001234 [0.001194, 0.001274]"),
        (Estimate(123456.7, 120000.0, 126913.4), "123,457 [120,000, 126,913]"),
        (Estimate(5.0, 5.0, 5.0), "5.000"),
        (Estimate(15.72, 15.7199999999, 15.7200000001), "15.7200"),
        (Estimate(-1.0, -3.0, 1.0), "-1.0 [-3.0, 1.0]"),
        (0.0, "0"),
        (0.5, "0.5"),
        (1e-9, "1e-09"),
        (123456.7, "123,457"),
        (np.int64(1234), "1,234"),
        (True, "yes"),
    ],
)
def test_cells_are_written_to_the_digits_that_mean_something(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (Table("t", "", "", [], []), "table 't' has no columns"),
        (Table("t", "", "", ["a", "a"], []), "two columns of one name"),
        (Table("t", "", "", ["a", "b"], [[1]]), "row 0: 1 cells for 2 columns"),
        (Table("t", "", "", ["a"], [[float("nan")]]), "row 0, column 'a': nan is not finite"),
        (Table("t", "", "", ["a"], [[Estimate(1.0, float("-inf"), 2.0)]]), "-inf is not finite"),
        (Table("t", "", "", ["a", "a low"], [[Estimate(1.0, 0.0, 2.0), 1]]), "column 'a low'"),
    ],
)
def test_tables_that_make_no_sense_are_refused(table: Table, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_table(table)
