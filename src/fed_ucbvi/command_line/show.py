"""``fed-ucbvi show``: a saved run as a picture and a summary; several of them, or a sweep, as a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number

if TYPE_CHECKING:
    from fed_ucbvi.analysis.comparison import Comparison
    from fed_ucbvi.results.run import Run

FORMATS = ("markdown", "latex", "csv")


def show(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="What 'run --out DIR' or 'sweep --out DIR' wrote.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The picture, .png, .svg, .pdf or .html; replaced if it exists.",
            show_default="DIR/run.png for one run, none for several",
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="h",
            help="Step (from 1) whose policy is drawn; by default the first at which each square can be reached. "
            "Of one run.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What to compare several runs by: algorithm, environment, agents, a parameter; may be repeated.",
            show_default="algorithm",
        ),
    ] = None,
    metric: Annotated[str, typer.Option(metavar="NAME", help="What to compare: regret, rounds, bytes...")] = "regret",
    baseline: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="What to compare with: a group's name.", show_default="the first group"),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="KIND", help=f"Of a comparison: {', '.join(FORMATS)}.")
    ] = "markdown",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Draw a saved run and print its summary; compare several runs, or those of a sweep, over their seeds."""
    from fed_ucbvi.analysis.comparison import compare_runs
    from fed_ucbvi.charts.picture import check_picture
    from fed_ucbvi.core.errors import InputError, check_choice
    from fed_ucbvi.results.group_picture import plot_runs

    if out is not None:
        check_picture(out)
    check_choice("format", format_, FORMATS)
    runs = [run for folder in folders for run in _read(folder)]
    if len(folders) == len(runs) == 1:
        _show_one(runs[0], folders[0] / "run.png" if out is None else out, step, as_json=as_json)
        return
    if step is not None:
        raise InputError("--step belongs to the picture of one run; leave it out, or name one run.")
    comparison = compare_runs(runs, by=by or "algorithm", metric=metric, baseline=baseline)
    if out is not None:
        plot_runs(runs, out)
    _print(comparison, format_, as_json=as_json)


def _read(folder: Path) -> Sequence[Run]:
    """The saved run, or the runs of the sweep, that ``folder`` holds."""
    from fed_ucbvi.core.files import MANIFEST, read_manifest
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.sweeps.store import FORMAT, load_runs

    if (folder / MANIFEST).is_file() and read_manifest(folder)["format"] == FORMAT:
        return [run for _, run in load_runs(folder)]
    return [Run.load(folder)]


def _show_one(run: Run, picture: Path, step: int | None, *, as_json: bool) -> None:
    from fed_ucbvi.command_line.outputs import print_json, print_rows, summary_rows
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


def _print(comparison: Comparison, format_: str, *, as_json: bool) -> None:
    from fed_ucbvi.command_line.outputs import print_json

    if as_json:
        rows = comparison.frame.rows(named=True)
        print_json({"metric": comparison.metric, "baseline": comparison.baseline, "groups": rows})
        return
    if format_ == "csv":
        text = comparison.frame.write_csv()
    else:
        text = comparison.to_latex() if format_ == "latex" else comparison.to_markdown()
    typer.echo(text, nl=False)
