"""``fed-ucbvi reproduce``: the experiments of the paper, judged."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from fed_ucbvi.command_line.options import JOBS, JSON, option
from fed_ucbvi.command_line.outputs import check_out
from fed_ucbvi.command_line.program import FAILED
from fed_ucbvi.command_line.sweeping import making_runs, warn_of
from fed_ucbvi.core.errors import InputError, check_positive_integer
from fed_ucbvi.paper.commands.reporting import write_and_print


def reproduce(
    out: Path = option(Path("results"), "DIR", "Folder for runs, figures and the report."),
    overwrite: bool = option(False, "", "Replace an earlier reproduction in --out."),
    resume: bool = option(False, "", "Resume the reproduction in --out; it knows its own options."),
    only: list[str] | None = option(None, "NAME", "Only this experiment; may be repeated."),
    seeds: int | None = option(None, "N", "Runs of each cell."),
    full: bool = option(False, "", "The whole grid of agents and eps_p, and table1."),
    quick: bool = option(False, "", "Every figure from little data, in seconds."),
    jobs: int | None = JOBS,
    as_json: bool = JSON,
) -> None:
    """Run the paper's experiments and what they left open, judge the paper's claims, write a report.

    Runs that fail are recorded and do not stop the others; the exit code is then 1. Ctrl-C keeps what is finished.
    """
    from fed_ucbvi.paper import experiment, reproduction

    if jobs is not None:
        check_positive_integer("jobs", jobs)
    if resume:
        if overwrite or only or full or quick or seeds is not None:
            raise InputError("--resume uses the options of the reproduction that it resumes; pass none of your own.")
        plan = reproduction.ReproductionPlan.read(out)
    else:
        if full and quick:
            raise InputError("--full and --quick exclude each other.")
        usual = experiment.QUICK_SEEDS if quick else experiment.SEEDS
        scale = experiment.RunScale(
            "full" if full else "quick" if quick else "default", usual if seeds is None else seeds
        )
        plan = reproduction.ReproductionPlan(scale, reproduction.check_names(only or [], scale))
        check_out(out, overwrite=overwrite, kind=reproduction.FORMAT)
        reproduction.start(out, plan, overwrite=overwrite)
    runs = reproduction.Runs(out)
    again = f"resume with: fed-ucbvi reproduce --out {shlex.quote(str(out))} --resume"
    with making_runs(lambda _: again) as report:
        failed = reproduction.run_experiments(runs, plan, jobs=jobs, report=report)
    warn_of(failed)
    write_and_print(reproduction.report_on(out, runs), out / reproduction.REPORT, as_json)
    if failed:
        raise typer.Exit(FAILED)
