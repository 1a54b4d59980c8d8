"""Output of commands: live page and trackers, a summary for people, one JSON object for programs."""

from __future__ import annotations

import json
import logging
import math
import os
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fed_ucbvi.command_line.options import Output
from fed_ucbvi.command_line.program import INTERRUPTED, say
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import check_free
from fed_ucbvi.core.numbers import byte_count
from fed_ucbvi.problem.units import PER_STEP, Units
from fed_ucbvi.results.round_record import INCUMBENT
from fed_ucbvi.specifications.run import RunOptions

if TYPE_CHECKING:
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.results.run_data import RunData
    from fed_ucbvi.trackers import Tracker


def check_out(folder: Path, *, overwrite: bool, kind: str) -> None:
    """Raise unless ``folder`` can be written once the work is done, and holds nothing but what it may replace."""
    check_free(folder, kind, overwrite=overwrite)
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir():
        raise InputError(f"cannot write {folder}: {above} is not a folder.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {folder}: {above} does not allow it.")


def check_kept(options: RunOptions, *, new_checkpoint: bool = False) -> None:
    """Raise unless a run's result, and its checkpoint in another folder, can be written."""
    from fed_ucbvi.engine.checkpoint import FORMAT
    from fed_ucbvi.results.run import FORMAT as SAVED_RUN

    out = options.out
    checkpoint = options.checkpoint
    if out is not None:
        check_out(out, overwrite=options.overwrite, kind=SAVED_RUN)
    if checkpoint is not None and new_checkpoint:
        try:
            check_free(checkpoint, FORMAT, overwrite=False)
        except InputError as error:
            again = f"resume it with 'fed-ucbvi resume {shlex.quote(str(checkpoint))}'"
            raise InputError(
                f"{checkpoint} exists. If it holds a checkpoint, {again}; or choose another name."
            ) from error
    if out is not None and checkpoint is not None:
        one = out.resolve()
        other = checkpoint.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            raise InputError(
                f"--out {out} and --checkpoint {checkpoint} must be two folders, neither inside the other."
            )


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Cautions are printed at once, as ``warning: ...`` on standard error."""
    from fed_ucbvi.engine.simulation import Caution

    others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
        if issubclass(category, Caution):
            warn(str(message))
        else:
            others(message, category, *rest)  # type: ignore[arg-type]

    with warnings.catch_warnings():
        warnings.simplefilter("always", Caution)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def warn(text: str) -> None:
    say(text, logging.WARNING)


def print_json(content: Mapping[str, object]) -> None:
    typer.echo(json.dumps(content, indent=2, allow_nan=False, default=str))


def print_result(as_json: bool, content: Mapping[str, object], *lines: str) -> None:
    """One JSON object for programs, or lines for people."""
    if as_json:
        print_json(content)
    elif lines:
        typer.echo("\n".join(lines))


def print_table(as_json: bool, content: Mapping[str, object], title: str, rows: Iterable[tuple[str, ...]]) -> None:
    """One JSON object for programs, or a title and rows for people."""
    if as_json:
        print_json(content)
    else:
        print_rows(title, rows)


def print_rows(title: str, rows: Iterable[tuple[str, ...]]) -> None:
    """A title and rows with aligned columns on standard output; the last column may wrap."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        while len(table.columns) < len(row):
            table.add_column(no_wrap=len(table.columns) < len(row) - 1, overflow="fold")
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    console.print(Text(title, style="bold"))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def up_and_down(carried: Any) -> str:
    """The traffic ``bytes_up`` and ``bytes_down`` of an object, in words."""
    return f"{byte_count(carried.bytes_up)} up, {byte_count(carried.bytes_down)} down"


def summary_rows(run: Run) -> tuple[str, list[tuple[str, str]]]:
    """A run in a few lines: first the value to the agents; values in the common MDP are labelled as such."""
    return f"{run.about.algorithm} on {run.about.environment.get('name', 'custom')}", [*_rows(run)]


def _rows(run: Run) -> Iterator[tuple[str, str]]:
    about = run.about
    records = run.records
    units = Units.of(run.about.environment)
    eps_p = "eps_p unknown" if math.isnan(about.eps_p) else f"eps_p = {about.eps_p:g}"
    setting = f"{about.agents:,} agents, {about.episodes:,} episodes, H = {about.horizon}, {eps_p}"
    setting += ", random rewards" if about.random_rewards else ""
    setting += "" if units == Units() else f", rewards of {units} per step"
    setting += f", figures {run.units}" if run.units == PER_STEP else ""
    yield "setting", f"{setting}, seed {about.seed}"
    if not run.complete:
        yield "not complete", f"{run.unfinished}; the figures are those so far"
    if (records["agents"] != about.agents).any():
        least = f"{records['agents'].min():,}"
        most = f"{records['agents'].max():,}"
        yield "took part", f"{least if least == most else f'{least} to {most}'} agents in a round"
    yield from _worth(run)
    partly = run.rewarded_episodes < run.episodes_played
    if not math.isnan(run.average_reward) and (partly or math.isnan(run.value)):
        recent = "unknown" if math.isnan(run.recent_reward) else _amount(run.recent_reward)
        paid = f"{_amount(run.average_reward)} per episode, {recent} in the last tenth"
        if partly:
            paid += f"; known for {run.rewarded_episodes:,.4g} of {run.episodes_played:,} episodes"
        yield "paid", paid
    if not math.isnan(run.gap):
        two = f"optimistic {_amount(run.optimistic_value)}, estimated {_amount(run.estimated_value)}"
        before = ""
        earlier = run.recommendations["optimistic"] - run.recommendations["estimated"]
        if len(earlier) > 1:
            before = f"; {_amount(earlier[-2])} after {run.recommendations['episodes'][-2]:,} episodes"
        yield "gap", f"{_amount(run.gap)} ({two}){before}"
    if len(records["cost"]) and not math.isnan(records["cost"][-1]):
        episodes = int(records["agent_episodes"].sum())
        cost, allowed = (float(records[name][-1]) / episodes for name in ("cost", "allowed"))
        yield "exploring cost", f"at most {cost:,.4g} an episode, {allowed:,.4g} were allowed"
        if allowed > 0.0 and (records["playing"] == INCUMBENT).all():
            yield "explored", "nothing; a stated range of returns (--return-range) lets exploring begin sooner"
    for one in run.certificates:
        yield f"certificate: {one.kind}", f"{one}; after {one.played:,} episodes"
    if run.certificate is not None:
        for sentence in run.certificate.assumed:
            yield "assumed", sentence
    yield "regret", "unknown" if math.isnan(run.regret) else f"{run.regret:,.2f}"
    rules = ", ".join(f"{count:,} {rule}" for rule, count in run.rules_fired.items())
    yield "rounds", f"{run.rounds:,} ({rules})" if rules else f"{run.rounds:,}"
    yield "communication", up_and_down(run)
    if number := len(run.recommendations["round"]):
        yield "recommendations", f"{number} policies on the way, {up_and_down(run.recommendation_traffic)} more"
    for name, value in about.facts.items():
        text = f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"
        if name == "nu" and not math.isnan(about.eps_p_assumed):
            text += f" (with eps_p = {about.eps_p_assumed:g}, as if agents were identical)"
        yield name, text
    yield "wall time", run.wall_time
    if run.advice is not None:
        yield "advice", run.advice


def _worth(run: Run) -> Iterator[tuple[str, str]]:
    """The value of the recommended policy: to the agents, and, where they differ, in the common MDP."""
    about = run.about
    agents = run.agents_value
    if math.isnan(run.value):
        estimated = "" if math.isnan(run.estimated_value) else f", estimated {_amount(run.estimated_value)}"
        yield "recommended policy", f"value unknown{estimated}"
        return
    shared = Units.of(about.environment).shares and about.optimal_value > 0
    compared = f"{run.value / about.optimal_value:.2%}" if shared else f"{_amount(run.simple_regret)} less"
    common = f"value {_amount(run.value)}, optimum {_amount(about.optimal_value)} ({compared})"
    if about.alike:
        yield "recommended policy", common
    elif agents.agents == 0:
        yield "value per agent", "unknown"
    else:
        honest = "" if agents.agents == about.agents else f"; over the {agents.agents:,} honest agents"
        worst = f"worst {_amount(agents.worst)} (agent {agents.worst_agent})"
        best = f"best {_amount(agents.best)} (agent {agents.best_agent})"
        yield "value per agent", f"mean {_amount(agents.mean)}, {worst}, {best}{honest}"
    if not about.alike:
        yield "in the common MDP", common


def _amount(value: float) -> str:
    """A value with four decimals, or with one from 1,000 on."""
    return f"{value:,.4f}" if abs(value) < 1000 else f"{value:,.1f}"


class SavedRun(NamedTuple):
    """Where a run was saved.

    Attributes:
        place: the folder; None if the run was not to be saved, or could not be saved anywhere.
        error: the error message, if the run could not be saved where it was wanted.
    """

    place: Path | None = None
    error: str | None = None

    @property
    def lost(self) -> bool:
        """True if the run could not be saved anywhere."""
        return self.place is None and self.error is not None


def save_run(run: Run, out: Path | None, *, overwrite: bool) -> SavedRun:
    """Save a run in ``out``, or in a new folder elsewhere if the system does not let us: it may have taken days."""
    if out is None:
        return SavedRun()
    try:
        run.save(out, overwrite=overwrite)
        return SavedRun(place=out)
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".")
    for place in (Path(tempfile.gettempdir()), Path.cwd()):
        elsewhere = place / f"fed-ucbvi-run-{os.getpid()}"
        with suppress(OSError, InputError):
            run.save(elsewhere)
            message = f"cannot write {out}: {reason}. The run is saved in {elsewhere} instead."
            return SavedRun(place=elsewhere, error=message)
    return SavedRun(error=f"cannot write {out}, nor anywhere else: {reason}. Only what is printed is left.")


def print_run(
    content: Mapping[str, object],
    title: str,
    rows: Iterable[tuple[str, str]],
    output: Output,
    saved: SavedRun,
) -> None:
    """Print a run, as one JSON object or in rows; a run that could not be saved is printed in any case."""
    if output.as_json:
        print_json(content)
    elif not output.quiet or saved.lost:
        where = [] if saved.place is None else [("saved to", str(saved.place))]
        print_rows(title, [*rows, *where])


def report_stop(run: Run, saved: SavedRun, checkpoint: Path | None, how_to_resume: str) -> None:
    """Print one line about a run that was stopped, with the way to resume it if there is a checkpoint."""
    kept = "no result is saved" if saved.place is None else f"the result so far is saved in {saved.place}"
    again = "" if checkpoint is None else f"; {how_to_resume} {shlex.quote(str(checkpoint))}"
    say(f"stopped after {run.episodes_played:,} of {run.about.episodes:,} episodes; {kept}{again}")


def finish(run: Run, options: RunOptions, output: Output) -> None:
    """Save a run, print it, and end with 130 if it was stopped.

    It is printed even if it cannot be saved.
    """
    saved = save_run(run, options.out, overwrite=options.overwrite)
    title, rows = summary_rows(run)
    print_run(run.summary(), title, rows, output, saved)
    if not run.complete:
        report_stop(run, saved, options.checkpoint, "resume it with: fed-ucbvi resume")
    if saved.error is not None:
        raise InputError(saved.error)
    if not run.complete:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def others_on_standard_error() -> Iterator[None]:
    """Redirect libraries' output, from Python or not, to standard error; standard output is for the result."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def tracking(output: Output) -> Iterator[list[Tracker]]:
    """Open the trackers that ``--track`` names, and close them when the block ends.

    Anything that their packages print meanwhile goes to standard error. Without ``--track`` they are not imported.
    """
    if not output.track:
        yield []
        return
    from fed_ucbvi.trackers import make_tracker

    stdout = sys.stdout
    with redirect_stdout(sys.stderr), ExitStack() as stack:
        trackers = [stack.enter_context(make_tracker(text, output.track_every)) for text in output.track]
        with redirect_stdout(stdout):
            yield trackers


def finish_trackers(trackers: Iterable[Tracker], run: RunData) -> None:
    """Log the parameters and results of a run, once the run is saved."""
    with redirect_stdout(sys.stderr):
        for tracker in trackers:
            tracker.finish(run)
