"""What a federation's server shows while it runs and prints when it is over."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fed_ucbvi.command_line.standard_error import say, writes_json
from fed_ucbvi.core.errors import InputError

if TYPE_CHECKING:
    from fed_ucbvi.network.coordinator import Coordinator
    from fed_ucbvi.network.server import Outcome

SECONDS_BETWEEN = 0.2


class Display(NamedTuple):
    """Two functions: one to call after every round, one to print a line, on a terminal above the figures."""

    report: Callable[[Coordinator], None]
    say: Callable[[str], None]


@contextmanager
def show_federation(*, quiet: bool) -> Iterator[Display]:
    """On a terminal one line is kept up to date, with the nodes' news above it; not where the log is JSON."""
    if quiet or writes_json() or not sys.stderr.isatty():
        yield Display(lambda run: None, say)
        return
    from rich.console import Console
    from rich.logging import RichHandler
    from rich.status import Status

    from fed_ucbvi.core.numbers import byte_count
    from fed_ucbvi.results.recommendations import last_gap

    console = Console(stderr=True)
    root = logging.getLogger()
    root.handlers[:] = [RichHandler(console=console, show_path=False, show_level=False)]
    due = 0.0
    with Status("waiting for nodes", console=console) as status:

        def report(run: Coordinator) -> None:
            nonlocal due
            now = time.monotonic()
            if now < due:
                return
            due = now + SECONDS_BETWEEN
            records, wire = run.records, run.registry.wire
            nobody = "requests are secret" if run.plan.secure_sums else "nobody asked"
            node_calls = f"agent {records.last_asker} asked" if records.last_asker >= 0 else nobody
            gap = records.units.scale * last_gap(records.recommendations)
            known = "" if math.isnan(gap) else f", gap {gap:,.4g}"
            status.update(
                f"{run.registry.connected} nodes, round {run.round:,}, {int(records.episodes):,} of "
                f"{records.episodes_at_the_end:,} episodes, {byte_count(wire.bytes_up)} up, "
                f"{byte_count(wire.bytes_down)} down{known}; {node_calls}"
            )

        yield Display(report, lambda text: console.print(text, highlight=False, markup=False))


def federation_summary(outcome: Outcome) -> dict[str, Any]:
    """The figures of the run, with the bytes that were really sent and the events that were not planned."""
    played, planned = outcome.agent_episodes
    episodes = {"agent_episodes": played, "agent_episodes_planned": planned}
    return {**outcome.run.summary(), **episodes, "wire": asdict(outcome.wire), "events": outcome.events}


def finish_federation(
    outcome: Outcome,
    *,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    checkpoint: Path | None,
    failure: InputError | None,
) -> None:
    """Save a run over the network, unless it can be resumed, and print it; a failure is printed last."""
    from fed_ucbvi.command_line.outputs import print_json, print_rows, save_somewhere, summary_rows
    from fed_ucbvi.command_line.program import INTERRUPTED
    from fed_ucbvi.core.numbers import byte_count

    run = outcome.run
    saved: Path | None = None
    unsaved: InputError | None = None
    if out is not None and (outcome.ended or checkpoint is None):
        saved, unsaved = save_somewhere(run, out, overwrite=overwrite)
    if as_json:
        print_json(federation_summary(outcome))
    elif not quiet or (unsaved is not None and saved is None):
        title, rows = summary_rows(run)
        if outcome.ended and not run.complete:
            played, planned = outcome.agent_episodes
            rows[1] = ("not complete", f"agents have played {played:,} of {planned:,} episodes in all")
        wire = outcome.wire
        rows.append(("on the wire", f"{byte_count(wire.bytes_up)} up, {byte_count(wire.bytes_down)} down"))
        rows.extend(("event", f"round {e['round']}, {e['node']}: {e['what']} -> {e['done']}") for e in outcome.events)
        if saved is not None:
            rows.append(("saved to", str(saved)))
        print_rows(title, rows)
    troubles = [str(trouble) for trouble in (failure, unsaved) if trouble is not None]
    if troubles:
        raise InputError(" ".join(troubles))
    if not outcome.ended:
        again = "" if checkpoint is None else f"; start the same command again to go on from {checkpoint}"
        say(f"stopped after {run.episodes_played:,} episodes per agent{again}")
        raise typer.Exit(INTERRUPTED)
