"""``fed-ucbvi compare``: every algorithm side by side, next to the theory's orders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number


def compare(
    algorithms: Annotated[
        list[str] | None, typer.Option("--algorithm", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option(parser=whole_number, metavar="N", help="Runs of each.")] = 5,
    out: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write the tables as Markdown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run every algorithm at the paper's settings and tabulate regret, rounds and bytes."""
    import tempfile

    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json, warn
    from fed_ucbvi.experiments import table1
    from fed_ucbvi.experiments.scale import Scale
    from fed_ucbvi.experiments.traces import load_pairs
    from fed_ucbvi.files import new_file
    from fed_ucbvi.progress import progress_bar
    from fed_ucbvi.sweeps.execution import run_sweep
    from fed_ucbvi.sweeps.specification import Sweep

    if algorithms:
        table1.check_names(algorithms)
    sweep = Sweep(name="compare", grids=table1.grids(Scale(seeds=seeds), algorithms or None))
    with tempfile.TemporaryDirectory() as folder:
        with interruptible(), progress_bar("runs") as report:
            outcome = run_sweep(sweep, Path(folder) / "sweep", report=report)
        summary = table1.tabulate(load_pairs(Path(folder) / "sweep", sweep.jobs()))
    for id_, error in outcome.failed.items():
        warn(f"run {id_} failed: {error}")
    text = table1.markdown(summary)
    if out is not None:
        with new_file(out) as draft:
            draft.write_text(text, encoding="utf-8")
    if as_json:
        print_json(summary)
    elif out is None:
        typer.echo(text)
    else:
        typer.echo(f"saved in {out}")
