"""``fed-ucbvi show``: a saved run as a picture and a summary; several of them, or a sweep, as a comparison."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fed_ucbvi.command_line.options import JSON, argument, option
from fed_ucbvi.command_line.outputs import print_json, print_rows, summary_rows
from fed_ucbvi.core.errors import InputError, check_choice

if TYPE_CHECKING:
    from rich.table import Table

    from fed_ucbvi.analysis.comparison import Comparison
    from fed_ucbvi.results.run import Run

FORMATS = ("table", "markdown", "latex", "csv")
ANY = 10_000
"""More columns than any terminal has."""
LEAST = 16
"""Columns that the label of a group may have before it is folded."""
LESS_NEEDED = ("seeds_needed", "failing", "lower_in", "difference", "median", "seeds", "ratio")
"""Columns to leave out where a terminal is too narrow for all, the first one first."""


def show(
    folders: list[Path] = argument("DIR...", "What 'run --out DIR' or 'sweep --out DIR' wrote."),
    out: Path | None = option(
        *(None, "FILE", "The picture, .png, .svg, .pdf or .html; replaced if it exists."),
        default="DIR/run.png for one run, none for several",
    ),
    step: int | None = option(
        *(None, "h"),
        "Step (from 1) whose policy is drawn; by default the first at which each square can be reached. Of one run.",
    ),
    by: list[str] | None = option(
        *(None, "NAME"),
        "What to compare several runs by: algorithm, environment, agents, a parameter; may be repeated.",
        default="algorithm",
    ),
    metric: str = option("regret", "NAME", "What to compare: regret, rounds, bytes..."),
    baseline: str | None = option(None, "GROUP", "What to compare with: a group.", default="the first group"),
    format_: str | None = option(
        None, "KIND", f"Of a comparison: {', '.join(FORMATS)}.", default="table on a terminal, else markdown"
    ),
    columns: str | None = option(
        None, "NAME,NAME...", "Columns of a comparison: group, seeds, mean, median, deviation, ratio..."
    ),
    label: list[str] | None = option(
        None, "NAME=TEXT", "What to call an algorithm or a group in table and picture; may be repeated."
    ),
    colour: list[str] | None = option(
        None, "NAME=#RRGGBB", "Of an algorithm or a group in the picture; may be repeated."
    ),
    facet: list[str] | None = option(
        *(None, "NAME", "Draw a panel for each value: environment, agents, a parameter...; may be repeated."),
        default="none while all curves can be told apart",
    ),
    y_log: bool = option(False, "", "Draw on logarithmic vertical axes."),
    size: str | None = option(None, "WxH", "Of the picture in inches, about, such as 6.5x3."),
    as_json: bool = JSON,
) -> None:
    """Draw a saved run and print its summary; compare several runs, or those of a sweep, over their seeds."""
    from fed_ucbvi.analysis.comparison import compare_runs
    from fed_ucbvi.charts.picture import check_picture
    from fed_ucbvi.results.plotting import plot_runs

    if out is not None:
        check_picture(out)
    if format_ is not None:
        check_choice("format", format_, FORMATS)
    labels, colours = _pairs("--label", label), _pairs("--colour", colour)
    inches = None if size is None else _inches(size)
    runs = [run for folder in folders for run in _read(folder)]
    if len(folders) == len(runs) == 1:
        _show_one(runs[0], folders[0] / "run.png" if out is None else out, step, as_json=as_json)
        return
    if step is not None:
        raise InputError("--step belongs to the picture of one run; leave it out, or name one run.")
    if out is None and (colours or facet or y_log or inches):
        raise InputError("--colour, --facet, --y-log and --size are about the picture; pass --out FILE too.")
    comparison = compare_runs(runs, by=by or "algorithm", metric=metric, baseline=baseline, labels=labels)
    if out is not None:
        plot_runs(runs, out, facet=facet or None, y_log=y_log, labels=labels, colours=colours, size=inches)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    _print(comparison, names, format_ or ("table" if sys.stdout.isatty() else "markdown"), as_json=as_json)


def _read(folder: Path) -> Sequence[Run]:
    """The saved run, or the runs of the sweep, that ``folder`` holds."""
    from fed_ucbvi.core.files import MANIFEST, read_manifest
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.sweeps.store import FORMAT, load_runs

    if (folder / MANIFEST).is_file() and read_manifest(folder)["format"] == FORMAT:
        return [run for _, run in load_runs(folder)]
    return [Run.load(folder)]


def _show_one(run: Run, picture: Path, step: int | None, *, as_json: bool) -> None:
    from fed_ucbvi.core.errors import check_integer
    from fed_ucbvi.results.plotting import plot_run

    if step is not None:
        step = check_integer("step", step, at_least=1, at_most=run.about.horizon) - 1
    plot_run(run, picture, step=step)
    if as_json:
        print_json({**run.summary(), "picture": str(picture)})
    else:
        title, rows = summary_rows(run)
        print_rows(title, [*rows, ("picture", str(picture))])


def _pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """What an option says that is given as NAME=TEXT, any number of times; a name may contain the sign."""
    pairs = [text.rpartition("=") for text in texts or ()]
    for name, sign, value in pairs:
        if not (name.strip() and sign and value.strip()):
            raise InputError(f"{option} is written NAME=TEXT, got '{name}{sign}{value}'.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _inches(text: str) -> tuple[float, float]:
    try:
        width, height = (float(side) for side in text.lower().split("x"))
    except ValueError:
        raise InputError(f"--size is written WxH in inches, such as 6.5x3, got '{text}'.") from None
    return width, height


def _print(comparison: Comparison, columns: Sequence[str] | None, format_: str, *, as_json: bool) -> None:
    if as_json:
        rows = comparison.frame.rows(named=True)
        print_json({"metric": comparison.metric, "baseline": comparison.baseline, "groups": rows})
    elif format_ == "table":
        _print_table(comparison, columns)
    else:
        write = {"csv": comparison.to_csv, "latex": comparison.to_latex, "markdown": comparison.to_markdown}[format_]
        typer.echo(write(columns), nl=False)


def _print_table(comparison: Comparison, columns: Sequence[str] | None) -> None:
    """The comparison as wide as the terminal: columns that say nothing, or do not fit, are left out."""
    from rich.console import Console
    from rich.text import Text

    from fed_ucbvi.analysis.comparison import PAIRED, USUAL

    console, frame = Console(highlight=False), comparison.frame
    names = list(USUAL if columns is None else columns)
    if columns is None:
        alone = frame["problem"].n_unique() == frame.height > 1
        empty = [name for name in (*PAIRED, "failing") if set(frame[name].to_list()) <= {None, "baseline"}]
        names = ["problem" if alone and name == "group" else name for name in names if name not in empty]
    for name in LESS_NEEDED if columns is None else ():
        width = Console(width=ANY, height=1).measure(_table(comparison, names, headed=False)).maximum
        if width > console.width and name in names:
            names.remove(name)
    console.print(_table(comparison, names, headed="problem" not in names))
    console.print(Text(comparison.caption_of(names), style="dim"))


def _table(comparison: Comparison, names: Sequence[str], *, headed: bool) -> Table:
    """A table for the terminal; if ``headed``, problems are headings in it."""
    from rich.table import Table
    from rich.text import Text

    from fed_ucbvi.analysis.comparison import TEXTS

    header, rows = comparison.texts(names)
    problems = comparison.frame["problem"].to_list()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, text in zip(names, header, strict=True):
        if name in ("group", "problem"):
            table.add_column(text, overflow="fold", min_width=LEAST)
        else:
            table.add_column(text, justify="left" if name in TEXTS else "right", no_wrap=True)
    for place, (problem, row) in enumerate(zip(problems, rows, strict=True)):
        if headed and problem and problem not in problems[:place]:
            table.add_row(Text(problem, style="bold"))
        table.add_row(*(Text(text) for text in row))
    return table
