"""``fed-ucbvi compare``: every algorithm side by side, next to the theory's orders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.reproduce import progress_bar


def compare(
    algorithms: Annotated[
        list[str] | None, typer.Option("--algorithm", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Runs of each.")] = 5,
    out: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write the tables as Markdown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run every algorithm at the paper's settings and tabulate regret, rounds and bytes."""
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json
    from fed_ucbvi.experiments import comparison
    from fed_ucbvi.files import new_file

    with interruptible(), progress_bar("runs") as report:
        summary = comparison.tabulate(comparison.run_all(algorithms or None, seeds=seeds, report=report))
    text = comparison.markdown(summary)
    if out is not None:
        with new_file(out) as draft:
            draft.write_text(text, encoding="utf-8")
    if as_json:
        print_json(summary)
    elif out is None:
        typer.echo(text)
    else:
        typer.echo(f"saved in {out}")
