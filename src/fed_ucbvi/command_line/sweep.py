"""``fed-ucbvi sweep``: many runs from one file, spread over processes or a cluster."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import Dashboard, DashboardCert, DashboardToken

if TYPE_CHECKING:
    from fed_ucbvi.sweeps.execution import Outcome


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep, in TOML; see docs/sweeps.md.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to keep the runs in, one file each.")],
    jobs: Annotated[
        int | None,
        typer.Option(parser=whole_number, metavar="N", help="Runs at a time; by default one a core."),
    ] = None,
    executor: Annotated[str, typer.Option(metavar="NAME", help="local processes, or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster; by default Ray starts on this machine.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with this sweep in --out.")] = False,
    dashboard: Dashboard = None,
    dashboard_cert: DashboardCert = None,
    dashboard_token: DashboardToken = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make every run that FILE describes and DIR does not hold yet.

    Runs that fail are recorded and do not stop the others; the exit code is then 1. Ctrl-C keeps what is finished.
    """
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.live_page import PageOptions, page_of_sweep
    from fed_ucbvi.command_line.outputs import others_on_standard_error, plain_warnings
    from fed_ucbvi.command_line.program import FAILED, INTERRUPTED
    from fed_ucbvi.engine.progress import announce_compilation, progress_bar
    from fed_ucbvi.sweeps.execution import SweepInterrupted, run_sweep
    from fed_ucbvi.sweeps.specification import Sweep

    announce_compilation()
    described = Sweep.from_toml(file)
    page_options = PageOptions(dashboard, dashboard_cert, dashboard_token)
    with interruptible() as interruption, plain_warnings(), page_of_sweep(page_options, out) as look:
        try:
            with others_on_standard_error(), progress_bar("runs") as show:

                def report(done: int, total: int, failed: int) -> None:
                    show(done, total, failed)
                    look()

                outcome = run_sweep(
                    described, out, jobs=jobs, executor=executor, address=address, resume=resume, report=report
                )
        except SweepInterrupted as stop:
            interruption.saving()
            _print(stop.outcome, as_json)
            where = f"{shlex.quote(str(file))} --out {shlex.quote(str(out))}"
            typer.echo(f"{stop}; finished runs are kept. Go on with: fed-ucbvi sweep {where} --resume", err=True)
            raise typer.Exit(INTERRUPTED) from None
    _print(outcome, as_json)
    if outcome.failed:
        raise typer.Exit(FAILED)


def _print(outcome: Outcome, as_json: bool) -> None:
    from fed_ucbvi.command_line.outputs import print_json, print_rows, warn
    from fed_ucbvi.core.errors import printable
    from fed_ucbvi.sweeps.store import FAILURES

    if as_json:
        print_json(outcome.summary())
        return
    for name, error in outcome.failed.items():
        warn(f"run {name} failed: {printable(error)} (see {outcome.out / FAILURES / name}.json)")
    rows = [
        ("runs", f"{outcome.runs:,}"),
        ("made now", f"{outcome.done:,} in {outcome.seconds:,.1f} s"),
        ("made earlier", f"{outcome.skipped:,}"),
        ("failed", f"{len(outcome.failed):,}"),
        ("kept in", str(outcome.out)),
    ]
    print_rows(f"sweep '{outcome.name}'", rows)
