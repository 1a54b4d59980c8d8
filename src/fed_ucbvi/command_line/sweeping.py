"""``fed-ucbvi sweep``, ``report``, ``reproduce``, ``compare`` and ``leaderboard``: many runs, and what they show."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import fed_ucbvi
from fed_ucbvi.command_line import outputs
from fed_ucbvi.command_line.flags import algorithm_names, environment_names
from fed_ucbvi.command_line.options import CODE, JOBS, JSON, Output, argument, fields, option
from fed_ucbvi.command_line.outputs import live_page, print_result, print_table, warn
from fed_ucbvi.command_line.program import FAILED, INTERRUPTED, interruptible
from fed_ucbvi.core.errors import InputError, check_positive_integer, printable
from fed_ucbvi.core.files import new_file, read_manifest
from fed_ucbvi.run_spec import ALGORITHM_HELP, RunSpec

if TYPE_CHECKING:
    from fed_ucbvi.engine.progress import ProgressCallback
    from fed_ucbvi.paper.report.content import PageContent
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.sweeps.execution import SweepOutcome
    from fed_ucbvi.sweeps.job import Job
    from fed_ucbvi.sweeps.specification import Sweep

NAME = "NAME|MODULE:ATTRIBUTE"


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
    from fed_ucbvi.network.dashboard.sweep import SweepPage

    described = fed_ucbvi.Sweep.from_toml(file, code=code or ())

    def stopped(outcome: SweepOutcome) -> str:
        _print(outcome, output.as_json)
        where = f"{shlex.quote(str(file))} --out {shlex.quote(str(out))}"
        return f"finished runs are kept. Resume with: fed-ucbvi sweep {where} --resume"

    with live_page(output, lambda: SweepPage(described, out)) as page:
        with _making_runs(stopped) as show:

            def report(done: int, total: int, failed: int) -> None:
                show(done, total, failed)
                if page is not None:
                    page.look()

            outcome = fed_ucbvi.run_sweep(
                described, out, jobs=jobs, executor=executor, address=address, resume=resume, report=report
            )
        if page is not None:
            page.end()
    _print(outcome, output.as_json)
    if outcome.failed:
        raise typer.Exit(FAILED)


@contextmanager
def _making_runs(stopped: Callable[[SweepOutcome], str]) -> Iterator[ProgressCallback]:
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


def _print(outcome: SweepOutcome, as_json: bool) -> None:
    from fed_ucbvi.sweeps.store import FAILURES

    _warn_of({} if as_json else outcome.failed, str(outcome.out / FAILURES))
    rows = [
        ("runs", f"{outcome.runs:,}"),
        ("made now", f"{outcome.done:,} in {outcome.seconds:,.1f} s"),
        ("made earlier", f"{outcome.skipped:,}"),
        ("failed", f"{len(outcome.failed):,}"),
        ("kept in", str(outcome.out)),
    ]
    print_table(as_json, outcome.summary(), f"sweep '{outcome.name}'", rows)


def report(
    folder: Path = argument("DIR", "A sweep or a reproduction."),
    out: Path | None = option(None, "DIR2", "Where to write; by default DIR/report."),
    as_json: bool = JSON,
) -> None:
    """Write figures, tables and verdicts of a sweep or a reproduction as one page and as files."""
    from fed_ucbvi.paper import reproduction
    from fed_ucbvi.sweeps.store import FORMAT as SWEEP

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; a report is about a sweep or a reproduction.")
    kind = read_manifest(folder)["format"]
    reports = {SWEEP: report_on_sweep, reproduction.FORMAT: reproduction.report_on}
    if kind not in reports:
        raise InputError(f"{folder} holds a {kind}; a report is about a sweep or a reproduction.")
    _write_report(reports[kind](folder), out or folder / "report", as_json)


def report_on_sweep(folder: Path) -> PageContent:
    """The report on a sweep, complete or not."""
    from fed_ucbvi.paper.report.content import PageContent
    from fed_ucbvi.paper.report.run_figures import missing_runs, sweep_section, with_note
    from fed_ucbvi.paper.report.traces import Trace, table_of
    from fed_ucbvi.results.about import versions
    from fed_ucbvi.sweeps.store import Store

    store = Store.open(folder)
    sweep = store.sweep
    there = dict.fromkeys(store.finished())
    table = table_of((job, Trace.of(store.read(job))) for job in there)
    provenance = {"sweep": sweep.content(), "digest": sweep.digest, "versions": versions()}
    sections = [sweep_section(table, sweep.name)] if there else []
    missing = missing_runs(job for job in sweep.jobs() if job not in there)
    return with_note(PageContent(sweep.name, (), sections, provenance), folder, missing)


def _warn_of(failed: Mapping[str, str], where: str = "") -> None:
    """Warn of failed runs, by id, and name the file with the details of each."""
    for id_, error in failed.items():
        more = f" (see {where}/{id_}.json)" if where else ""
        warn(f"run {id_} failed: {printable(error)}{more}")


def write(made: PageContent, folder: Path) -> None:
    """Write the report; an earlier one is replaced."""
    from fed_ucbvi.engine.progress import progress_bar
    from fed_ucbvi.paper.report.writing import write_report

    with interruptible(), progress_bar("figures") as progress:
        write_report(made, folder, progress)


def _write_report(made: PageContent, folder: Path, as_json: bool) -> None:
    write(made, folder)
    verdicts = [verdict for _, verdict in made.judged]
    missing = made.provenance.get("missing", [])
    if missing:
        warn(made.text[0])
    shown = ("claim", "outcome", "measured", "seeds", "detail")
    content: dict[str, Any] = {"out": str(folder), "missing": missing}
    content |= {name: [part.id for part in getattr(made, name)] for name in ("sections", "figures", "tables")}
    content["verdicts"] = [{name: getattr(one, name) for name in shown} for one in verdicts]
    print_table(as_json, content, made.title, [(verdict.outcome, verdict.claim) for verdict in verdicts])
    if not as_json:
        typer.echo(f"saved in {folder}")


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
        outputs.check_out(out, overwrite=overwrite, kind=reproduction.FORMAT)
        reproduction.start(out, plan, overwrite=overwrite)
    runs = reproduction.Runs(out)
    again = f"resume with: fed-ucbvi reproduce --out {shlex.quote(str(out))} --resume"
    with _making_runs(lambda _: again) as report:
        failed = reproduction.run_experiments(runs, plan, jobs=jobs, report=report)
    _warn_of(failed)
    _write_report(reproduction.report_on(out, runs), out / reproduction.REPORT, as_json)
    if failed:
        raise typer.Exit(FAILED)


def compare(
    spec: RunSpec = fields(
        "environment environment_options agents",
        environment={"default": "the paper's two, at its settings"},
        agents={"help": "Number of agents in --env."},
    ),
    algorithms: list[str] | None = option(
        None, NAME, f"Only this one; may be repeated. {ALGORITHM_HELP}", name="--algorithm", names=algorithm_names
    ),
    episodes: int | None = option(None, "T", "Episodes per agent in --env.", default="30000"),
    seeds: int = option(5, "N", "Runs of each."),
    out: Path | None = option(None, "FILE.md", "Write the tables as Markdown."),
    as_json: bool = JSON,
) -> None:
    """Run every algorithm at the paper's settings, or in an environment, and tabulate regret, rounds and bytes."""
    from fed_ucbvi.paper import table1
    from fed_ucbvi.paper.experiment import RunScale
    from fed_ucbvi.paper.report.traces import Trace, table_of

    if algorithms:
        table1.check_names(algorithms)
    grids = table1.grids(RunScale(seeds=seeds), algorithms or None)
    if spec.environment is not None:
        grids = _elsewhere(grids, spec, 30_000 if episodes is None else episodes)
    elif (spec.agents, episodes, spec.environment_options) != (None, None, {}):
        raise InputError("--agents, --episodes and --env-option need --env.")
    outcome, runs = _made(fed_ucbvi.Sweep(name="compare", grids=grids))
    summary = table1.tabulate(table_of((job, Trace.of(run)) for job, run in runs))
    if spec.environment is not None:
        summary["claims"] = []  # the orderings are reported of the paper's settings
    _warn_of(outcome.failed)
    text = table1.markdown(summary)
    if out is not None:
        with new_file(out) as draft:
            draft.write_text(text, encoding="utf-8")
    print_result(as_json, summary, text if out is None else f"saved in {out}")


def _elsewhere(grids: list[dict[str, Any]], spec: RunSpec, episodes: int) -> list[dict[str, Any]]:
    """The grids of the paper's settings in another environment; it is drawn from each seed where it can be.

    Single-agent algorithms are left out where the environment cannot be had with one agent.
    """
    from fed_ucbvi.environments import find_environment

    env = str(spec.environment)
    found = find_environment(env)
    M = spec.make_federation().agents
    free = found.accepts("agents")
    changed = [
        {
            **grid,
            "environments": [{"name": env, **spec.environment_options}],
            "episodes": [episodes],
            "agents": [1 if grid["agents"] == [1] else M],
            "env_seed": "seed" if found.accepts("seed") else 0,
        }
        for grid in grids
        if free or M == 1 or grid["agents"] != [1]
    ]
    if not changed:
        raise InputError(f"{env} has {M} agents, and these algorithms are for one.")
    return changed


def leaderboard(
    algorithms: list[str] | None = option(
        None,
        NAME,
        f"Run this one too, on every environment; may be repeated. {ALGORITHM_HELP}",
        name="--algorithm",
        names=algorithm_names,
    ),
    leave_out: list[str] | None = option(
        None, "NAME", "Leave this environment out; may be repeated.", names=environment_names
    ),
    again: bool = option(False, "", "Make all runs again instead of reading their table."),
    quick: bool = option(False, "", "Make all runs again, from little data."),
    store: Path | None = option(None, "DIR", "Keep the runs here, and resume from what is there."),
    out: Path | None = option(None, "DIR", "Write the document, a page with a figure, and the table."),
    jobs: int | None = JOBS,
    as_json: bool = JSON,
) -> None:
    """Every algorithm on every environment: regret, rounds, bytes and what was learnt, from a table of stored runs.

    Without options nothing is run. See docs/leaderboard.md.
    """
    from fed_ucbvi.algorithms import ALGORITHMS
    from fed_ucbvi.paper import leaderboard as comparison
    from fed_ucbvi.paper import table1

    if algorithms:
        table1.check_names(algorithms)
    if again and quick:
        raise InputError("--again and --quick both make all runs; pass one of them.")
    board = comparison.LeaderboardPlan.standing().without(dict.fromkeys(leave_out or (), "by request"))
    if quick:
        board = board.quick()
    anew = [*ALGORITHMS] if again or quick else []
    wanted = list(dict.fromkeys([*anew, *(algorithms or [])]))
    if missing := board.missing(wanted):
        board = board.without(missing)
        warn("; ".join(f"{name} is left out: {reason}." for name, reason in missing.items()))
    rows = [] if anew else [row for row in comparison.standing_rows() if row.environment in board.environments]
    if not wanted and (store is not None or jobs is not None):
        raise InputError(
            "--store and --jobs are about runs, and none are to be made; add --algorithm, --again or --quick."
        )
    made: list[comparison.Row] = []
    if wanted:
        outcome, runs = _made(board.sweep(wanted), store, jobs)
        if outcome.failed:
            id_, error = next(iter(outcome.failed.items()))
            raise InputError(f"{len(outcome.failed)} of {outcome.runs} runs failed; run {id_}: {error}")
        made = [comparison.Row.of(job, run) for job, run in runs]
    names = {row.algorithm for row in made}
    rows = board.in_order([row for row in rows if row.algorithm not in names] + made)
    if out is not None:
        write(comparison.page(board, rows), out)
        with new_file(out / comparison.TABLE) as draft:
            comparison.write_rows(rows, draft)
        for name, text in comparison.documents(board, rows).items():
            with new_file(out / name) as draft:
                draft.write_text(text, encoding="utf-8")
    content = {**comparison.summary(rows), "made": len(made), "out": None if out is None else str(out)}
    table = comparison.table_text(comparison.tables(rows)[0], comparison.ratio_text)
    print_result(as_json, content, f"{comparison.OVERALL_TEXT}\n\n{table}" if out is None else f"saved in {out}")


def _made(
    sweep: Sweep, store: Path | None = None, jobs: int | None = None
) -> tuple[SweepOutcome, list[tuple[Job, Run]]]:
    """The runs of a sweep that did not fail; they are kept in ``store`` if there is one, and resumed from there."""
    again = "nothing is saved" if store is None else "finished runs are kept; run the command again"
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "runs" if store is None else store
        with _making_runs(lambda _: again) as report:
            outcome = fed_ucbvi.run_sweep(sweep, kept, jobs=jobs, resume=True, report=report)
        return outcome, fed_ucbvi.load_runs(kept, complete=False)
