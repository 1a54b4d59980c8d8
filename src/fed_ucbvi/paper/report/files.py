"""The files of a report: their names, and the data of figures and tables as frames."""

from __future__ import annotations

import io
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fed_ucbvi.paper.report.content import Figure, Table
from fed_ucbvi.results.statistics import Estimate

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as MatplotlibFigure

PAGE = "index.html"
VERDICTS = "verdicts.json"
PICTURES = ("svg", "png", "pdf")
FIGURE_FILES = (*PICTURES, "parquet")
TABLE_FILES = ("csv", "parquet")
REPORT_FILE = re.compile(
    r"index\.html|verdicts\.json|(figures|tables)/[A-Za-z0-9][A-Za-z0-9_-]*\.(svg|png|pdf|csv|parquet)"
)
"""Names of the files of which a report can consist. No other file is ever removed, even if a manifest lists it."""


class FigureFiles:
    """The files of one figure, which is laid out once for all of them."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    @cached_property
    def drawn(self) -> MatplotlibFigure:
        from fed_ucbvi.paper.report.drawing import draw_figure

        return draw_figure(self.figure).figure

    def content(self, kind: str) -> bytes:
        """The picture as SVG, PNG or PDF, or the data as Parquet."""
        from fed_ucbvi.charts.figures import figure_content

        if kind in PICTURES:
            return figure_content(self.drawn, kind)
        return frame_content(figure_frame(self.figure), kind)


class TableFiles:
    """The files of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def content(self, kind: str) -> bytes:
        """The table as CSV or Parquet."""
        return frame_content(table_frame(self.table), kind)


def frame_content(frame: pl.DataFrame, kind: str) -> bytes:
    """A data frame as CSV or Parquet."""
    buffer = io.BytesIO()
    if kind == "csv":
        frame.write_csv(buffer)
    else:
        frame.write_parquet(buffer)
    return buffer.getvalue()


def figure_frame(figure: Figure) -> pl.DataFrame:
    """One row per point: panel, series, variant, x, y, low, high; exactly the numbers that are drawn.

    ``x`` is text if some panel of the figure has categories. ``low`` and ``high`` are null without an interval.
    """
    import polars as pl

    has_categories = False
    rows: list[tuple[object, ...]] = []
    for panel in figure.panels:
        for series in panel.series:
            unknown = [None] * len(series.x)
            low = unknown if series.low is None else series.low
            high = unknown if series.high is None else series.high
            for x, y, y_low, y_high in zip(series.x, series.y, low, high, strict=True):
                has_categories = has_categories or isinstance(x, str)
                rows.append((panel.title, series.name, series.variant or None, x, y, y_low, y_high))
    schema = {
        "panel": pl.String,
        "series": pl.String,
        "variant": pl.String,
        "x": pl.String if has_categories else pl.Float64,
        "y": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row", strict=False)


def table_frame(table: Table) -> pl.DataFrame:
    """The rows; a column with intervals is followed by their ends, in columns ``... low`` and ``... high``.

    A column that has both texts and figures is text.
    """
    import polars as pl

    columns: dict[str, list[Any]] = {}
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        columns[name] = [cell.mean if isinstance(cell, Estimate) else cell for cell in cells]
        if any(isinstance(cell, Estimate) for cell in cells):
            columns[f"{name} low"] = [cell.low if isinstance(cell, Estimate) else None for cell in cells]
            columns[f"{name} high"] = [cell.high if isinstance(cell, Estimate) else None for cell in cells]
    return pl.DataFrame([pl.Series(name, cells, strict=False) for name, cells in columns.items()])
