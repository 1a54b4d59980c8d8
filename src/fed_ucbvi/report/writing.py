"""Writing a report into a folder: the page, pictures, data, verdicts, and a manifest of them all."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fed_ucbvi.charts.picture import Picture
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, read_manifest, write_manifest, write_parquet
from fed_ucbvi.core.text import with_printable_texts
from fed_ucbvi.report.content import Estimate, Figure, PageContent, Table, check_report
from fed_ucbvi.report.page import FIGURE_FILES, PICTURES, TABLE_FILES, render_page

if TYPE_CHECKING:
    import polars as pl

FORMAT = "fed-ucbvi/report"
FORMAT_VERSION = 1
PAGE = "index.html"
VERDICTS = "verdicts.json"
OURS = re.compile(r"index\.html|verdicts\.json|(figures|tables)/[A-Za-z0-9][A-Za-z0-9_-]*\.(png|pdf|csv|parquet)")
"""The files of which a report can consist. No other file is ever removed, even if a manifest lists it."""


def write_report(report: PageContent, folder: Path, progress: Callable[[int, int], None] | None = None) -> list[Path]:
    """Write a report and replace an earlier one, if there is one; other files in ``folder`` are not touched.

    All files are first written to a temporary place and moved only when all of them are complete.

    Args:
        report: what to write; an error is raised before anything is written if it cannot be drawn.
        folder: where; made if needed.
        progress: called with the number of figures drawn and of all figures.

    Returns:
        The files: ``index.html``, ``verdicts.json``, for each figure ``figures/ID.png``, ``.pdf`` and ``.parquet``,
        for each table ``tables/ID.csv`` and ``.parquet``.
    """
    report = with_printable_texts(report)
    check_report(report)
    folder = Path(folder)
    earlier = earlier_files(folder)
    names = _names(report)
    foreign = [name for name in names if name not in earlier and (folder / name).exists()]
    if foreign:
        raise InputError(f"{folder / foreign[0]} exists and is not an earlier report's; choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".report.partial-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write_all(report, draft, progress)
        _list_files(folder, draft, {*earlier, *names})
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (draft / name).replace(folder / name)
        for name in earlier - set(names):
            (folder / name).unlink(missing_ok=True)
        _list_files(folder, draft, names)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [folder / name for name in names]


def earlier_files(folder: Path) -> set[str]:
    """The files of an earlier report in ``folder``, by its manifest; an error if the folder holds something else."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} exists and is not a folder; choose another name.")
    if not (folder / MANIFEST).exists():
        return set()
    listed = read_manifest(folder, FORMAT).get("files")
    if not isinstance(listed, list):
        raise InputError(f"{folder / MANIFEST} is damaged: it does not list the files of the report.")
    return {name for name in listed if isinstance(name, str) and OURS.fullmatch(name)}


def _names(report: PageContent) -> list[str]:
    return [
        PAGE,
        VERDICTS,
        *(f"figures/{figure.id}.{kind}" for figure in report.figures for kind in FIGURE_FILES),
        *(f"tables/{table.id}.{kind}" for table in report.tables for kind in TABLE_FILES),
    ]


def _list_files(folder: Path, draft: Path, names: Iterable[str]) -> None:
    """Write the manifest of those files, in one step; at no time does it lack a file that exists."""
    write_manifest(draft, {"format": FORMAT, "format_version": FORMAT_VERSION, "files": sorted(names)})
    (draft / MANIFEST).replace(folder / MANIFEST)


def _write_all(report: PageContent, draft: Path, progress: Callable[[int, int], None] | None) -> None:
    for part in ("figures", "tables"):
        (draft / part).mkdir(parents=True)
    verdicts = [{"section": section.id, **asdict(verdict)} for section, verdict in report.judged]
    (draft / VERDICTS).write_text(json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (draft / PAGE).write_text(render_page(report), encoding="utf-8")
    for table in report.tables:
        frame = table_frame(table)
        frame.write_csv(draft / "tables" / f"{table.id}.csv")
        write_parquet(frame, draft / "tables" / f"{table.id}.parquet")
    for done, figure in enumerate(report.figures, 1):
        write_parquet(figure_frame(figure), draft / "figures" / f"{figure.id}.parquet")
        picture = Picture(figure.panels)  # without a title: a paper has captions
        for format_ in PICTURES:
            (draft / "figures" / f"{figure.id}.{format_}").write_bytes(picture.content(format_))
        if progress is not None:
            progress(done, len(report.figures))


# ---------------------------------------------------------------------------------------------------------- the data


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
        columns[name] = _column(name, [cell.mean if isinstance(cell, Estimate) else cell for cell in cells])
        if any(isinstance(cell, Estimate) for cell in cells):
            for end in ("low", "high"):
                ends = [float(getattr(cell, end)) if isinstance(cell, Estimate) else None for cell in cells]
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
