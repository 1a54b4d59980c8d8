"""``fed-ucbvi sweep``: many runs, described in a file."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import fed_ucbvi
from fed_ucbvi.command_line import outputs
from fed_ucbvi.command_line.options import CODE, JOBS, Output, argument, fields, option
from fed_ucbvi.command_line.outputs import print_table, warn
from fed_ucbvi.command_line.pages import page_of_sweep
from fed_ucbvi.command_line.program import FAILED, INTERRUPTED, interruptible
from fed_ucbvi.core.errors import printable

if TYPE_CHECKING:
    from fed_ucbvi.engine.progress import ProgressCallback
    from fed_ucbvi.sweeps.execution import SweepOutcome


def sweep(
    output: Output = fields("dashboard as_json"),
    file: Path = argument("FILE", "The sweep, in TOML; see docs/sweeps.md."),
    out: Path = option(..., "DIR", "Folder to keep the runs in, one file each."),
    jobs: int | None = JOBS,
    executor: str = option("local", "NAME", "local processes, or ray."),
    address: str | None = option(None, "ADDRESS", "A Ray cluster; by default Ray starts on this machine."),
    resume: bool = option(False, "", "Resume this sweep in --out."),
    code: list[str] | None = CODE,
) -> None:
    """Make every run that FILE describes and DIR does not hold yet.

    Runs that fail are recorded and do not stop the others; the exit code is then 1. Ctrl-C keeps what is finished.
    """
    described = fed_ucbvi.Sweep.from_toml(file, code=code or ())

    def stopped(outcome: SweepOutcome) -> str:
        print_outcome(outcome, output.as_json)
        where = f"{shlex.quote(str(file))} --out {shlex.quote(str(out))}"
        return f"finished runs are kept. Resume with: fed-ucbvi sweep {where} --resume"

    with page_of_sweep(output, described, out) as page:
        with making_runs(stopped) as show:

            def report(done: int, total: int, failed: int) -> None:
                show(done, total, failed)
                if page is not None:
                    page.look()

            outcome = fed_ucbvi.run_sweep(
                described, out, jobs=jobs, executor=executor, address=address, resume=resume, report=report
            )
        if page is not None:
            page.end()
    print_outcome(outcome, output.as_json)
    if outcome.failed:
        raise typer.Exit(FAILED)


@contextmanager
def making_runs(stopped: Callable[[SweepOutcome], str]) -> Iterator[ProgressCallback]:
    """A progress bar for a block that makes runs; on Ctrl-C the command ends with the text of ``stopped``."""
    from fed_ucbvi.engine.progress import announce_compilation, progress_bar
    from fed_ucbvi.sweeps.execution import SweepInterrupted

    announce_compilation()
    with interruptible() as interruption, outputs.plain_warnings():
        try:
            with outputs.others_on_standard_error(), progress_bar("runs") as report:
                yield report
        except SweepInterrupted as stop:
            interruption.saving()
            typer.echo(f"{stop}; {stopped(stop.outcome)}", err=True)
            raise typer.Exit(INTERRUPTED) from None


def print_outcome(outcome: SweepOutcome, as_json: bool) -> None:
    from fed_ucbvi.sweeps.store import FAILURES

    warn_of({} if as_json else outcome.failed, str(outcome.out / FAILURES))
    rows = [
        ("runs", f"{outcome.runs:,}"),
        ("made now", f"{outcome.done:,} in {outcome.seconds:,.1f} s"),
        ("made earlier", f"{outcome.skipped:,}"),
        ("failed", f"{len(outcome.failed):,}"),
        ("kept in", str(outcome.out)),
    ]
    print_table(as_json, outcome.summary(), f"sweep '{outcome.name}'", rows)


def warn_of(failed: Mapping[str, str], where: str = "") -> None:
    """Warn of failed runs, by id, and name the file with the details of each."""
    for id_, error in failed.items():
        more = f" (see {where}/{id_}.json)" if where else ""
        warn(f"run {id_} failed: {printable(error)}{more}")
