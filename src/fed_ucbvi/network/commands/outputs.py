"""Output of a federation: the run, its traffic and events, and a line that is kept up to date meanwhile."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fed_ucbvi.command_line.options import Output
from fed_ucbvi.command_line.outputs import print_run, report_stop, save_run, summary_rows, up_and_down
from fed_ucbvi.command_line.program import INTERRUPTED, say, writes_json
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.progress import waiting_to_explore
from fed_ucbvi.specifications.run import RunOptions

if TYPE_CHECKING:
    from fed_ucbvi.network.coordinator import Coordinator
    from fed_ucbvi.network.server import Outcome
    from fed_ucbvi.results.run import Run


def finish_federation(
    outcome: Outcome,
    options: RunOptions,
    output: Output,
    *,
    secure_sums: bool,
    failure: InputError | None = None,
) -> None:
    """Save the run of a federation, print it, and end with 130 if it was stopped.

    The run is not saved if it can be resumed from a checkpoint. ``failure``, if there is one, is raised last.
    """
    run = outcome.run
    can_resume = not outcome.ended and options.checkpoint is not None
    saved = save_run(run, None if can_resume else options.out, overwrite=options.overwrite)
    title, rows = _summary_rows(outcome, secure_sums=secure_sums)
    print_run(_summary(outcome), title, rows, output, saved)
    if not outcome.ended and failure is None:
        report_stop(run, saved, options.checkpoint, "start the same command again to resume from")
    errors = [str(error) for error in (failure, saved.error) if error is not None]
    if errors:
        raise InputError(" ".join(errors))
    if not outcome.ended:
        raise typer.Exit(INTERRUPTED)


def _agent_episodes(run: Run) -> tuple[int, int]:
    """Number of episodes of all agents together: those that were played, and those that were planned."""
    return int(run.records["agent_episodes"].sum()), run.about.agents * run.about.episodes


def _summary(outcome: Outcome) -> dict[str, Any]:
    played, planned = _agent_episodes(outcome.run)
    return {
        **outcome.run.summary(),
        "agent_episodes": played,
        "agent_episodes_planned": planned,
        "wire": asdict(outcome.wire),
        "events": outcome.events,
    }


def _summary_rows(outcome: Outcome, *, secure_sums: bool) -> tuple[str, list[tuple[str, str]]]:
    """Title and rows of a run over the network, with its traffic and events."""
    title, rows = summary_rows(outcome.run)
    if outcome.ended and not outcome.run.complete:
        played, planned = _agent_episodes(outcome.run)
        rows[1] = ("not complete", f"agents have played {played:,} of {planned:,} episodes in all")
    compression = "; masked reports cannot be compressed" if secure_sums else ", before compression"
    rows.append(("messages sent", up_and_down(outcome.wire) + compression))
    for event in outcome.events:
        rows.append(("event", f"round {event['round']}, {event['node']}: {event['what']} -> {event['done']}"))
    return title, rows


class Display(NamedTuple):
    """A function to call after every round, and one that prints a line, on a terminal above the figures."""

    report: Callable[[Coordinator], None]
    say: Callable[[str], None]


@contextmanager
def show_federation(*, quiet: bool) -> Iterator[Display]:
    """Keep one line up to date on a terminal, with messages about nodes above it; not where the log is JSON."""
    if quiet or writes_json() or not sys.stderr.isatty():
        yield Display(report=lambda run: None, say=say)
        return
    from rich.console import Console
    from rich.logging import RichHandler
    from rich.status import Status

    console = Console(stderr=True)
    root = logging.getLogger()
    root.handlers[:] = [RichHandler(console=console, show_path=False, show_level=False)]
    with Status("waiting for nodes", console=console) as status:

        def report(run: Coordinator) -> None:
            status.update(_status_line(run))

        def print_line(text: str) -> None:
            console.print(text, highlight=False, markup=False)

        yield Display(report=report, say=print_line)


def _status_line(run: Coordinator) -> str:
    last = run.engine.last_round()
    if last.agent >= 0:
        asked = f"agent {last.agent} asked"
    elif run.plan.rules.secure_sums:
        asked = "requests are secret"
    else:
        asked = "nobody asked"
    gap = "" if math.isnan(last.gap) else f", gap {last.gap:,.4g}"
    return (
        f"{run.registry.connected} nodes, round {run.round:,}, {last.episodes:,} of "
        f"{last.planned_episodes:,} episodes, {up_and_down(run.registry.wire)}{gap}; "
        f"{waiting_to_explore(last)}{asked}"
    )
