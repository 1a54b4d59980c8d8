"""One progress bar for whatever takes a while: on a terminal or in a notebook, disabled elsewhere."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from fed_ucbvi.results.round_record import OnRound, RoundRecord

PATIENCE = 2.0
"""Seconds before a bar appears."""
BETWEEN_UPDATES = 0.2
"""Seconds between two updates of a bar in a notebook, each of which is a message to the browser."""

Show = Callable[[int, int, str], None]
"""Is told how many of how many are done, and what to write beside the bar."""


class ProgressCallback(Protocol):
    """Is told how many of how many are done, and how many have failed."""

    def __call__(self, done: int, total: int, failed: int = 0) -> None: ...


def announce_compilation() -> None:
    """Write a line that explains why the first run on a machine takes longer, where a person reads it."""
    from fed_ucbvi.core.compiling import has_compiled_code

    if (sys.stderr.isatty() or _in_notebook()) and not has_compiled_code():
        sys.stderr.write("compiling for this machine, once: about half a minute\n")


def _in_notebook() -> bool:
    """Whether this runs in an IPython kernel, as in Jupyter; a terminal's IPython has none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressCallback]:
    """A function to report to on many things, such as runs."""
    with _bar() as show:

        def report(done: int, total: int, failed: int = 0) -> None:
            show(done, total, f"{done}/{total} {what}{f', {failed} failed' if failed else ''}")

        yield report


@contextmanager
def show_progress(how: bool | OnRound) -> Iterator[OnRound]:
    """A function to report rounds to: the caller's, a bar, or none."""
    if callable(how):
        yield how
        return
    if not how:
        yield lambda record: None
        return
    with _bar() as show:
        began = time.perf_counter()
        started_at = -1

        def report(record: RoundRecord) -> None:
            nonlocal started_at
            started_at = record.episodes if started_at < 0 else started_at
            speed = (record.episodes - started_at) / max(time.perf_counter() - began, 1e-9)
            total = record.planned_episodes
            regret = f"regret {record.regret:,.0f}, " if record.regret == record.regret else ""
            gap = f"gap {record.gap:,.4g}, " if record.gap == record.gap else ""
            text = f"{record.episodes / total:.0%} of {total:,} episodes, {record.synchronisations:,} rounds, "
            show(record.episodes, total, f"{text}{regret}{gap}{waiting_to_explore(record)}{speed:,.0f}/s")

        yield report


def waiting_to_explore(record: RoundRecord) -> str:
    """A note on a run that has not explored yet because of its incumbent; empty for other runs."""
    if math.isnan(record.charge):
        return ""
    if math.isnan(record.explores_from):
        return f"incumbent only (exploring may cost {record.charge:,.4g} an episode), "
    return (
        f"incumbent only until about episode {math.ceil(record.explores_from):,} (exploring may cost "
        f"{record.charge:,.4g} an episode), "
    )


@contextmanager
def _bar() -> Iterator[Show]:
    """Shows on a bar that appears two seconds after the first report, and shows nothing where nobody looks."""
    if not (_in_notebook() or sys.stderr.isatty()):
        yield lambda done, total, text: None
        return
    with _notebook_bar() if _in_notebook() else _terminal_bar() as show:
        yield show


@contextmanager
def _terminal_bar() -> Iterator[Show]:
    """A bar on standard error, gone in the end."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    text_column = TextColumn("{task.description}", markup=False)
    columns = (text_column, BarColumn(bar_width=12), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("")
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True

    def show(done: int, total: int, text: str) -> None:
        bar.update(task, completed=done, total=total, description=text)
        if PATIENCE <= 0:
            bar.start()
        elif timer.ident is None:
            timer.start()

    try:
        yield show
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()
        if bar.live.is_started:
            bar.stop()


@contextmanager
def _notebook_bar() -> Iterator[Show]:
    """One output of the cell, updated in place; it stays, with what was reported last."""
    began = time.monotonic()
    drawn_at = 0.0
    content = {"text/plain": ""}
    handle: Any = None

    def draw() -> None:
        nonlocal handle, drawn_at
        from IPython.display import display

        drawn_at = time.monotonic()
        if handle is None:
            handle = display(content, raw=True, display_id=True)
        else:
            handle.update(content, raw=True)

    def show(done: int, total: int, text: str) -> None:
        nonlocal content
        bar = f'<progress value="{done}" max="{total}"></progress> {escape(text)}'
        content = {"text/plain": text, "text/html": bar}
        now = time.monotonic()
        if now - began >= PATIENCE and now - drawn_at >= BETWEEN_UPDATES:
            draw()

    try:
        yield show
    finally:
        if handle is not None:
            draw()
