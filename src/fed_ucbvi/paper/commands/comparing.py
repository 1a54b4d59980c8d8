"""``fed-ucbvi compare`` and ``leaderboard``: tables of many algorithms."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fed_ucbvi
from fed_ucbvi.command_line.flags import ALGORITHM_METAVAR, algorithm_names, environment_names
from fed_ucbvi.command_line.options import JOBS, JSON, fields, option
from fed_ucbvi.command_line.outputs import print_result, warn
from fed_ucbvi.command_line.sweeping import making_runs, warn_of
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.paper.commands.reporting import write_files
from fed_ucbvi.specifications.algorithm import ALGORITHM_HELP
from fed_ucbvi.specifications.problem import ProblemSpec

if TYPE_CHECKING:
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.sweeps.execution import SweepOutcome
    from fed_ucbvi.sweeps.job import Job
    from fed_ucbvi.sweeps.specification import Sweep


def compare(
    problem: ProblemSpec = fields(
        "environment environment_options agents",
        environment={"default": "the paper's two, at its settings"},
        agents={"help": "Number of agents in --env."},
    ),
    algorithms: list[str] | None = option(
        None,
        ALGORITHM_METAVAR,
        f"Only this one; may be repeated. {ALGORITHM_HELP}",
        name="--algorithm",
        names=algorithm_names,
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
    if problem.environment is not None:
        grids = _elsewhere(grids, problem, 30_000 if episodes is None else episodes)
    elif (problem.agents, episodes, problem.environment_options) != (None, None, {}):
        raise InputError("--agents, --episodes and --env-option need --env.")
    outcome, runs = _made(fed_ucbvi.Sweep(name="compare", grids=grids))
    summary = table1.tabulate(table_of((job, Trace.of(run)) for job, run in runs))
    if problem.environment is not None:
        summary["claims"] = []  # the orderings are reported of the paper's settings
    warn_of(outcome.failed)
    text = table1.markdown(summary)
    if out is not None:
        with new_file(out) as draft:
            draft.write_text(text, encoding="utf-8")
    print_result(as_json, summary, text if out is None else f"saved in {out}")


def _elsewhere(grids: list[dict[str, Any]], problem: ProblemSpec, episodes: int) -> list[dict[str, Any]]:
    """The grids of the paper's settings in another environment; it is drawn from each seed where it can be.

    Single-agent algorithms are left out where the environment cannot be had with one agent.
    """
    from fed_ucbvi.environments import find_environment

    env = str(problem.environment)
    found = find_environment(env)
    M = problem.make_federation().agents
    free = found.accepts("agents")
    changed = [
        {
            **grid,
            "environments": [{"name": env, **problem.environment_options}],
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
        ALGORITHM_METAVAR,
        f"Run this one too, on every environment; may be repeated. {ALGORITHM_HELP}",
        name="--algorithm",
        names=algorithm_names,
    ),
    leave_out: list[str] | None = option(
        None,
        "NAME",
        "Leave this environment out; may be repeated.",
        names=environment_names,
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
    from fed_ucbvi.paper import leaderboard as comparison
    from fed_ucbvi.paper import table1
    from fed_ucbvi.paper.orders import ROWS

    if algorithms:
        table1.check_names(algorithms)
    if again and quick:
        raise InputError("--again and --quick both make all runs; pass one of them.")
    board = comparison.LeaderboardPlan.standing().without(dict.fromkeys(leave_out or (), "by request"))
    if quick:
        board = board.quick()
    anew = [*ROWS] if again or quick else []
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
        write_files(comparison.page(board, rows), out)
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
        with making_runs(lambda _: again) as report:
            outcome = fed_ucbvi.run_sweep(sweep, kept, jobs=jobs, resume=True, report=report)
        return outcome, fed_ucbvi.load_runs(kept, complete=False)
