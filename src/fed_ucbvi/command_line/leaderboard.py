"""``fed-ucbvi leaderboard``: the standing comparison, alone or with algorithms of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import ALGORITHM_HELP, algorithm_flag, environment_names

if TYPE_CHECKING:
    from fed_ucbvi.paper.leaderboard import Board, Row
    from fed_ucbvi.sweeps.specification import Sweep


def leaderboard(
    algorithms: Annotated[
        list[str] | None,
        algorithm_flag(f"Run this one too, on every environment; may be repeated. {ALGORITHM_HELP}"),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Leave this environment out; may be repeated.",
            autocompletion=environment_names,
            show_default=False,
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Make all runs anew instead of reading their table.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Make all runs anew, from little data.")] = False,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the runs here, and go on with what is there.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the document, a page with a figure, and the table.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="N", help="Runs at a time; by default one a core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Every algorithm on every environment: regret, rounds, bytes and what was learnt, from a table of stored runs.

    Without options nothing is run. See docs/leaderboard.md.
    """
    from fed_ucbvi.algorithms import ALGORITHMS
    from fed_ucbvi.command_line.outputs import print_json
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.paper import leaderboard as comparison
    from fed_ucbvi.paper import leaderboard_page, table1

    if algorithms:
        table1.check_names(algorithms)
    if again and quick:
        raise InputError("--again and --quick both make all runs; give one of them.")
    board = comparison.Board.standing().without(leave_out or ())
    if quick:
        board = board.quick()
    anew = [*ALGORITHMS] if again or quick else []
    rows = [] if anew else [row for row in comparison.standing_rows() if row.environment in board.episodes]
    wanted = list(dict.fromkeys([*anew, *(algorithms or [])]))
    if not wanted and (store is not None or jobs is not None):
        raise InputError(
            "--store and --jobs are about runs, and none are to be made; add --algorithm, --again or --quick."
        )
    made = _run(board.sweep(wanted), store, jobs) if wanted else []
    names = {row.algorithm for row in made}
    rows = board.in_order([row for row in rows if row.algorithm not in names] + made)
    if out is not None:
        _write(board, rows, out)
    if as_json:
        print_json({**comparison.summary(rows), "made": len(made), "out": None if out is None else str(out)})
        return
    table = leaderboard_page.table_text(
        leaderboard_page.OVERALL, leaderboard_page.overall_rows(rows), leaderboard_page.ratio_text
    )
    typer.echo(f"{leaderboard_page.OVERALL_TEXT}\n\n{table}" if out is None else f"saved in {out}")


def _run(sweep: Sweep, store: Path | None, jobs: int | None) -> list[Row]:
    """Make the runs that are missing and return the rows of all."""
    import tempfile

    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import others_on_standard_error, plain_warnings
    from fed_ucbvi.command_line.program import INTERRUPTED
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.engine.progress import announce_compilation, progress_bar
    from fed_ucbvi.paper.leaderboard import Row
    from fed_ucbvi.sweeps.execution import SweepInterrupted, run_sweep
    from fed_ucbvi.sweeps.store import load_runs

    announce_compilation()
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "runs" if store is None else store
        with interruptible() as interruption, plain_warnings():
            try:
                with others_on_standard_error(), progress_bar("runs") as report:
                    outcome = run_sweep(sweep, kept, jobs=jobs, resume=True, report=report)
            except SweepInterrupted as stop:
                interruption.saving()
                again = "nothing is saved" if store is None else "finished runs are kept; give the command again"
                typer.echo(f"{stop}; {again}", err=True)
                raise typer.Exit(INTERRUPTED) from None
        if outcome.failed:
            id_, error = next(iter(outcome.failed.items()))
            raise InputError(f"{len(outcome.failed)} of {outcome.runs} runs failed; run {id_}: {error}")
        return [Row.of(job, run) for job, run in load_runs(kept)]


def _write(board: Board, rows: list[Row], out: Path) -> None:
    from fed_ucbvi.command_line.report import write
    from fed_ucbvi.core.files import new_file
    from fed_ucbvi.paper.leaderboard import TABLE, write_rows
    from fed_ucbvi.paper.leaderboard_page import DOCUMENT, markdown, page

    write(page(board, rows), out)
    with new_file(out / TABLE) as draft:
        write_rows(rows, draft)
    with new_file(out / DOCUMENT) as draft:
        draft.write_text(markdown(board, rows), encoding="utf-8")
