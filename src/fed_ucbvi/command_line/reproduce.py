"""``fed-ucbvi reproduce``: the whole experimental section, from nothing to one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import whole_number

if TYPE_CHECKING:
    from fed_ucbvi.paper.reproduction import ReproductionPlan

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def reproduce(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for runs, figures and the report.")] = Path(
        "results"
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier reproduction in --out.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the reproduction in --out; it knows its own options.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this experiment; may be repeated.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="N", help="Runs of each cell."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The whole grid of agents and eps_p, and table1.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Every figure from little data, in seconds.")] = False,
    jobs: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="N", help="Runs at a time; by default one a core.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and what they left open, judge the paper's claims, write a report.

    Runs that fail are recorded and do not stop the others; the exit code is then 1. Ctrl-C keeps what is finished.
    """
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import check_out, warn
    from fed_ucbvi.command_line.program import FAILED, INTERRUPTED
    from fed_ucbvi.command_line.report import print_report, write
    from fed_ucbvi.core.errors import InputError, check_positive_integer
    from fed_ucbvi.engine.progress import announce_compilation, progress_bar
    from fed_ucbvi.paper import reproduction
    from fed_ucbvi.sweeps.execution import SweepInterrupted

    announce_compilation()
    if jobs is not None:
        check_positive_integer("jobs", jobs)
    if resume:
        if overwrite or only or full or quick or seeds is not None:
            raise InputError("--resume takes the options of the reproduction it goes on with; give none of your own.")
        plan = reproduction.ReproductionPlan.read(out)
    else:
        plan = _plan(only or [], seeds, full=full, quick=quick)
        check_out(out, overwrite=overwrite, kind=reproduction.FORMAT)
        reproduction.start(out, plan, overwrite=overwrite)
    runs = reproduction.Runs(out)
    try:
        with interruptible(), progress_bar("runs") as report:
            failed = reproduction.run_experiments(runs, plan, jobs=jobs, report=report)
    except SweepInterrupted as error:
        typer.echo(f"{error}; go on with: fed-ucbvi reproduce --out {shlex.quote(str(out))} --resume", err=True)
        raise typer.Exit(INTERRUPTED) from None
    for id_, error_text in failed.items():
        warn(f"run {id_} failed: {error_text}")
    made = reproduction.report_on(out, runs)
    write(made, out / reproduction.REPORT)
    print_report(made, out / reproduction.REPORT, as_json=as_json)
    if failed:
        raise typer.Exit(FAILED)


def _plan(only: list[str], seeds: int | None, *, full: bool, quick: bool) -> ReproductionPlan:
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.paper import reproduction, scale

    if full and quick:
        raise InputError("--full and --quick exclude each other.")
    size: Any = "full" if full else "quick" if quick else "default"
    count = seeds if seeds is not None else scale.QUICK_SEEDS if quick else scale.SEEDS
    chosen = scale.Scale(size, count)
    return reproduction.ReproductionPlan(chosen, reproduction.check_names(only, chosen))
