"""``fed-ucbvi show``: a saved run as a picture and a summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number


def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What 'run --out DIR' wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The picture, .png or .pdf; replaced if it exists.",
            show_default="DIR/run.png",
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="h",
            help="Step (from 1) whose policy is drawn; by default the first at which each square can be reached.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Draw a saved run and print its summary."""
    from fed_ucbvi.command_line.outputs import print_json, print_rows, summary_rows
    from fed_ucbvi.errors import check_integer
    from fed_ucbvi.results.plotting import plot_run
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.results.style import check_picture

    picture = folder / "run.png" if out is None else out
    check_picture(picture)
    run = Run.load(folder)
    if step is not None:
        step = check_integer("step", step, at_least=1, at_most=run.about.horizon) - 1
    plot_run(run, picture, step=step)
    if as_json:
        print_json({**run.summary(), "picture": str(picture)})
    else:
        title, rows = summary_rows(run)
        print_rows(title, [*rows, ("picture", str(picture))])
