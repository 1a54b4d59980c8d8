"""The data of figures and tables as frames, which are written as CSV and Parquet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fed_ucbvi.report.content import Cell, Figure, Interval, Table

if TYPE_CHECKING:
    import polars as pl


def figure_frame(figure: Figure) -> pl.DataFrame:
    """One row for each point: panel, series, variant, x, y, low, high; exactly the numbers that are drawn.

    ``x`` is text if some panel of the figure has categories. ``low`` and ``high`` are null without an interval.
    """
    import polars as pl

    text = any(isinstance(x, str) for panel in figure.panels for series in panel.series for x in series.x)
    columns: dict[str, list[object]] = {name: [] for name in ("panel", "series", "variant", "x", "y", "low", "high")}
    for panel in figure.panels:
        for series in panel.series:
            count = len(series.x)
            columns["panel"] += [panel.title] * count
            columns["series"] += [series.name] * count
            columns["variant"] += [series.variant or None] * count
            columns["x"] += [_as_text(x) if text else float(x) for x in series.x]
            columns["y"] += map(float, series.y)
            columns["low"] += [None] * count if series.low is None else map(float, series.low)
            columns["high"] += [None] * count if series.high is None else map(float, series.high)
    types = dict.fromkeys(("panel", "series", "variant"), pl.String) | {"x": pl.String if text else pl.Float64}
    return pl.DataFrame(columns, schema=types | dict.fromkeys(("y", "low", "high"), pl.Float64))


def table_frame(table: Table) -> pl.DataFrame:
    """The rows; a column with intervals is followed by their ends, in columns ``... low`` and ``... high``.

    A column that has both texts and figures is text.
    """
    import polars as pl

    columns = {}
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        columns[name] = _column(name, [cell.mean if isinstance(cell, Interval) else cell for cell in cells])
        if any(isinstance(cell, Interval) for cell in cells):
            for end in ("low", "high"):
                ends = [float(getattr(cell, end)) if isinstance(cell, Interval) else None for cell in cells]
                columns[f"{name} {end}"] = pl.Series(f"{name} {end}", ends, dtype=pl.Float64)
    return pl.DataFrame(columns)


def _column(name: str, cells: list[str | int | float | None]) -> pl.Series:
    import polars as pl

    if any(isinstance(cell, str) for cell in cells):
        return pl.Series(name, [None if cell is None else _as_text(cell) for cell in cells], dtype=pl.String)
    if all(cell is None or hasattr(cell, "__index__") for cell in cells):
        return pl.Series(name, [None if cell is None else int(cell) for cell in cells], dtype=pl.Int64)
    return pl.Series(name, [None if cell is None else float(cell) for cell in cells], dtype=pl.Float64)


def _as_text(value: str | float) -> str:
    """A text as it is, a number in as many digits as it takes to read it back."""
    return value if isinstance(value, str) else repr(value.item() if hasattr(value, "item") else value)


def cell_text(cell: Cell) -> str:
    """A cell as a person reads it: an interval to two digits of its width.

    >>> cell_text(Interval(312.04, 304.9, 319.2)), cell_text(Interval(0.50341, 0.4987, 0.5081))
    ('312 [305, 319]', '0.5034 [0.4987, 0.5081]')
    >>> cell_text(30_000), cell_text(0.123456), cell_text(None), cell_text("all")
    ('30,000', '0.1235', '–', 'all')
    """
    if cell is None:
        return "–"  # noqa: RUF001
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Interval):
        decimals = _decimals(cell.high - cell.low, 2) if cell.high > cell.low else _decimals(abs(cell.mean), 4)
        return "{} [{}, {}]".format(*(f"{part:,.{decimals}f}" for part in (cell.mean, cell.low, cell.high)))
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if hasattr(cell, "__index__"):
        return f"{int(cell):,}"
    value = float(cell)
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.4g}"
    text = f"{value:,.{_decimals(abs(value), 4)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimals(size: float, digits: int) -> int:
    """The number of decimals that shows ``digits`` leading digits of a number of this size."""
    return max(0, digits - 1 - math.floor(math.log10(size))) if size > 0 else 0
