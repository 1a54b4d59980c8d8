"""Writing a report into a folder: the page, pictures, data, verdicts, and a manifest of them all.

The page is self-contained: outcomes of claims, plots, tables, provenance. All text from data is escaped. The content
security policy of the page forbids every request. The same report always gives the same bytes.
"""

from __future__ import annotations

import io
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.colours import DARK_GREY, on_dark
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, read_manifest, write_manifest
from fed_ucbvi.core.text import with_printable_texts
from fed_ucbvi.paper.report.content import Cell, Figure, PageContent, Section, Table, Verdict, check_report
from fed_ucbvi.paper.report.panels import colour_variable, legend_of
from fed_ucbvi.results.statistics import Estimate

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as MatplotlibFigure

FORMAT = "fed-ucbvi/report"
FORMAT_VERSION = 1
PAGE = "index.html"
VERDICTS = "verdicts.json"
OURS = re.compile(r"index\.html|verdicts\.json|(figures|tables)/[A-Za-z0-9][A-Za-z0-9_-]*\.(svg|png|pdf|csv|parquet)")
"""The files of which a report can consist. No other file is ever removed, even if a manifest lists it."""
SIGNS = {
    "holds": ("✓", "holds"),
    "holds partly": ("≈", "partly"),
    "at the limit": ("≈", "undecided"),
    "undecided": ("?", "undecided"),
    "does not hold": ("✗", "fails"),
}
"""Sign and CSS class of each outcome; the words are always written too."""
PLURALS = {"holds": "hold", "holds partly": "hold partly", "does not hold": "do not hold"}
"""Outcomes that have another form in the plural."""
PICTURES = ("svg", "png", "pdf")
FIGURE_FILES = (*PICTURES, "parquet")
TABLE_FILES = ("csv", "parquet")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
"""The page may load nothing from outside, nor evaluate texts as programs."""
LONG_PARAGRAPH = 400
"""Characters of a paragraph at the top that is shown whole; of longer ones the first sentence is."""
SWATCH_DASHES = {"solid": "1 0", "dashed": "7 3", "dotted": "1.5 2.5", "dashdot": "7 3 1.5 3"}
SWATCH_SHAPES = {
    "cross": "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z",
    "circle": "M-.9,0A.9,.9,0,1,1,.9,0A.9,.9,0,1,1,-.9,0Z",
    "square": "M-.8,-.8H.8V.8H-.8Z",
    "diamond": "M0,-1.1L1.1,0L0,1.1L-1.1,0Z",
    "triangle": "M0,-1L1,.8H-1Z",
}
"""Dashes and markers of the legends on the page, as SVG."""


def write_report(report: PageContent, folder: Path, progress: Callable[[int, int], None] | None = None) -> list[Path]:
    """Write a report and replace an earlier one, if there is one; other files in ``folder`` are not touched.

    All files are first written to a temporary place and moved only when all of them are complete; what cannot be
    drawn is an error before that. ``progress`` is called with the number of figures drawn and of all. Returned are
    the files: ``index.html``, ``verdicts.json``, for each figure ``figures/ID.svg``, ``.png``, ``.pdf`` and
    ``.parquet``, for each table ``tables/ID.csv`` and ``.parquet``.
    """
    report = with_printable_texts(report)
    check_report(report)
    folder = Path(folder)
    earlier = earlier_files(folder)
    contents = _contents(report)
    drawn = 0
    for name in contents:
        if name not in earlier and (folder / name).exists():
            raise InputError(f"{folder / name} exists and is not an earlier report's; choose another folder.")
    draft = folder / ".report.partial"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        for name, content in contents.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_bytes(content())
            if progress is not None and name.startswith("figures/") and name.endswith(FIGURE_FILES[-1]):
                progress(drawn := drawn + 1, len(report.figures))
        _list_files(folder, draft, {*earlier, *contents})
        for name in contents:
            (folder / name).parent.mkdir(exist_ok=True)
            (draft / name).replace(folder / name)
        for name in earlier - set(contents):
            (folder / name).unlink(missing_ok=True)
        _list_files(folder, draft, contents)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [folder / name for name in contents]


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


def _list_files(folder: Path, draft: Path, names: Iterable[str]) -> None:
    """Write the manifest of those files, in one step; at no time does it lack a file that exists."""
    write_manifest(draft, {"format": FORMAT, "format_version": FORMAT_VERSION, "files": sorted(names)})
    (draft / MANIFEST).replace(folder / MANIFEST)


def _contents(report: PageContent) -> dict[str, Callable[[], bytes]]:
    verdicts = [{"section": section.id, **asdict(verdict)} for section, verdict in report.judged]
    contents: dict[str, Callable[[], bytes]] = {
        PAGE: lambda: render_page(report).encode(),
        VERDICTS: lambda: f"{json.dumps(verdicts, indent=1, ensure_ascii=False)}\n".encode(),
    }
    for figure in report.figures:
        pictures = FigureFiles(figure)
        contents |= {f"figures/{figure.id}.{kind}": partial(pictures.content, kind) for kind in PICTURES}
        contents[f"figures/{figure.id}.parquet"] = partial(_data, figure_frame, figure, "parquet")
    for table in report.tables:
        contents |= {f"tables/{table.id}.{kind}": partial(_data, table_frame, table, kind) for kind in TABLE_FILES}
    return contents


class FigureFiles:
    """The files of one figure, which is laid out once for all of them."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    @cached_property
    def drawn(self) -> MatplotlibFigure:
        from fed_ucbvi.paper.report.drawing import draw_figure

        return draw_figure(self.figure).figure

    def content(self, format_: str) -> bytes:
        from fed_ucbvi.charts.figures import figure_content

        return figure_content(self.drawn, format_)


def _data(frame_of: Callable[[Any], pl.DataFrame], content: Figure | Table, kind: str) -> bytes:
    frame = frame_of(content)
    buffer = io.BytesIO()
    if kind == "csv":
        frame.write_csv(buffer)
    else:
        frame.write_parquet(buffer)
    return buffer.getvalue()


def figure_frame(figure: Figure) -> pl.DataFrame:
    """One row for each point: panel, series, variant, x, y, low, high; exactly the numbers that are drawn.

    ``x`` is text if some panel of the figure has categories. ``low`` and ``high`` are null without an interval.
    """
    import polars as pl

    text = any(isinstance(x, str) for panel in figure.panels for series in panel.series for x in series.x)
    rows: list[tuple[object, ...]] = []
    for panel in figure.panels:
        for series in panel.series:
            ends = [[None] * len(series.x) if end is None else end for end in (series.low, series.high)]
            points = zip(series.x, series.y, *ends, strict=True)
            rows += [(panel.title, series.name, series.variant or None, *point) for point in points]
    schema = dict.fromkeys(("panel", "series", "variant"), pl.String) | {"x": pl.String if text else pl.Float64}
    schema |= dict.fromkeys(("y", "low", "high"), pl.Float64)
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


def render_page(report: PageContent) -> str:
    import jinja2

    strict = jinja2.StrictUndefined
    environment = jinja2.Environment(autoescape=True, undefined=strict, trim_blocks=True, lstrip_blocks=True)
    drawn = {one.colour.upper() for figure in report.figures for panel in figure.panels for one in panel.series}
    papers, ours = ([pair for pair in report.judged if pair[1].ours is own] for own in (False, True))
    return environment.from_string(_asset("page.html")).render(
        report=report,
        policy=POLICY,
        longest=LONG_PARAGRAPH,
        claims=[("claims", "The paper's claims", papers), ("ours", "Our own claims", ours)],
        counted=_counted,
        signs=SIGNS,
        colours=[(colour_variable(colour), colour, on_dark(colour)) for colour in sorted(drawn | {DARK_GREY})],
        plots_of=plots_of,
        legend_of=legend_of,
        variable=colour_variable,
        dashes=SWATCH_DASHES,
        shapes=SWATCH_SHAPES,
        figure_files=FIGURE_FILES,
        table_files=TABLE_FILES,
        table_cells=lambda table: [[_shown(cell) for cell in row] for row in table.rows],
        provenance=json.dumps(report.provenance, indent=2, ensure_ascii=False, allow_nan=False),
        style=_asset("page.css"),
        script=_asset("page.js"),
    )


def _counted(judged: Sequence[tuple[Section, Verdict]]) -> list[tuple[str, str]]:
    """The outcomes that occur, each with its number of verdicts in words."""
    found = [verdict.outcome for _, verdict in judged]
    return [(outcome, counted_text(outcome, found.count(outcome))) for outcome in SIGNS if outcome in found]


def counted_text(outcome: str, count: int) -> str:
    """A number of verdicts and their outcome, with the verb in the singular or the plural.

    >>> counted_text("holds", 4), counted_text("holds partly", 1), counted_text("does not hold", 2)
    ('4 hold', '1 holds partly', '2 do not hold')
    """
    if count == 1:
        return f"1 {outcome}"
    return f"{count} {PLURALS.get(outcome, outcome)}"


def plots_of(figure: Figure) -> list[str]:
    """The SVG element of each panel, with title, panel and caption as its text alternative."""
    from fed_ucbvi.paper.report.drawing import panel_svg

    plots = []
    for number, panel in enumerate(figure.panels):
        description = ". ".join(text for text in (figure.title, panel.title, figure.caption) if text)
        plots.append(panel_svg(panel, f"{figure.id}-{number}", description))
    return plots


def _shown(cell: Cell) -> dict[str, Any]:
    """A cell as text, with the number to sort by if it is a number, and the text shown on hovering."""
    value = cell.mean if isinstance(cell, Estimate) else cell
    number = None if value is None or isinstance(value, str) else float(value)
    exact = f"{cell.mean!r} [{cell.low!r}, {cell.high!r}]" if isinstance(cell, Estimate) else ""
    return {"text": cell_text(cell), "number": number, "is_text": isinstance(cell, str), "exact": exact}


def cell_text(cell: Cell) -> str:
    """A cell as a person reads it: an interval to two digits of its width.

    >>> cell_text(Estimate(312.04, 304.9, 319.2)), cell_text(Estimate(0.50341, 0.4987, 0.5081))
    ('312 [305, 319]', '0.5034 [0.4987, 0.5081]')
    >>> cell_text(30_000), cell_text(0.123456), cell_text(None), cell_text("all")
    ('30,000', '0.1235', '–', 'all')
    """
    if cell is None:
        return "–"  # noqa: RUF001
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Estimate):
        decimals = _decimals(abs(cell.mean), 4)
        if cell.high > cell.low:
            decimals = min(_decimals(cell.high - cell.low, 2), decimals + 2)
        texts = [f"{part:,.{decimals}f}" for part in cell]
        return texts[0] if len(set(texts)) == 1 else "{} [{}, {}]".format(*texts)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if hasattr(cell, "__index__"):
        return f"{int(cell):,}"
    value = float(cell)
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def _decimals(size: float, digits: int) -> int:
    """The number of decimals that shows ``digits`` leading digits of a number of this size."""
    return max(0, digits - 1 - math.floor(math.log10(size))) if size > 0 else 0


def _asset(name: str) -> str:
    return files("fed_ucbvi.paper.report").joinpath(name).read_text(encoding="utf-8")
