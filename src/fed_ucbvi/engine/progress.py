"""Progress bars on a terminal and in a notebook; nothing is shown elsewhere."""

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

SECONDS_BEFORE_BAR = 2.0
"""Seconds before a bar appears."""
SECONDS_BETWEEN_UPDATES = 0.2
"""Seconds between two updates of a bar in a notebook, each of which is a message to the browser."""

Show = Callable[[int, int, str], None]
"""Function of the number done, the total number, and the text beside the bar."""


class ProgressCallback(Protocol):
    """Function of the number done, the total number, and the number that failed."""

    def __call__(self, done: int, total: int, failed: int = 0) -> None: ...


def announce_compilation() -> None:
    """Write on a terminal or in a notebook why the first run on a machine takes longer."""
    from fed_ucbvi.core.compiling import has_compiled_code

    if (sys.stderr.isatty() or _in_notebook()) and not has_compiled_code():
        sys.stderr.write("compiling for this machine, once: about half a minute\n")


def _in_notebook() -> bool:
    """True in an IPython kernel, as in Jupyter; IPython on a terminal has none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressCallback]:
    """A function that reports progress with many equal things, such as runs."""
    with _bar() as show:

        def report(done: int, total: int, failed: int = 0) -> None:
            text = f"{done}/{total} {what}"
            if failed:
                text += f", {failed} failed"
            show(done, total, text)

        yield report


@contextmanager
def show_progress(how: bool | OnRound) -> Iterator[OnRound]:
    """A function that reports rounds: the caller's, one with a bar, or one that does nothing."""
    if callable(how):
        yield how
        return
    if not how:
        yield lambda record: None
        return
    with _bar() as show:
        began = time.perf_counter()
        first_episodes: int | None = None

        def report(record: RoundRecord) -> None:
            nonlocal first_episodes
            if first_episodes is None:
                first_episodes = record.episodes
            seconds = time.perf_counter() - began
            speed = (record.episodes - first_episodes) / max(seconds, 1e-9)
            show(record.episodes, record.planned_episodes, _describe(record, speed))

        yield report


def _describe(record: RoundRecord, speed: float) -> str:
    """The text beside the bar of a run that plays ``speed`` episodes per second."""
    total = record.planned_episodes
    parts = [
        f"{record.episodes / total:.0%} of {total:,} episodes",
        f"{record.synchronisations:,} rounds",
    ]
    if not math.isnan(record.regret):
        parts.append(f"regret {record.regret:,.0f}")
    if not math.isnan(record.gap):
        parts.append(f"gap {record.gap:,.4g}")
    return ", ".join(parts) + f", {waiting_to_explore(record)}{speed:,.0f}/s"


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
    """A function that shows progress on a terminal or in a notebook, and does nothing elsewhere."""
    if not (_in_notebook() or sys.stderr.isatty()):
        yield lambda done, total, text: None
        return
    with _notebook_bar() if _in_notebook() else _terminal_bar() as show:
        yield show


@contextmanager
def _terminal_bar() -> Iterator[Show]:
    """A bar on standard error, removed at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("")
    timer = threading.Timer(SECONDS_BEFORE_BAR, bar.start)
    timer.daemon = True

    def show(done: int, total: int, text: str) -> None:
        bar.update(task, completed=done, total=total, description=text)
        if SECONDS_BEFORE_BAR <= 0:
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
    """One output of the cell, updated in place; the last report stays."""
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
        if now - began >= SECONDS_BEFORE_BAR and now - drawn_at >= SECONDS_BETWEEN_UPDATES:
            draw()

    try:
        yield show
    finally:
        if handle is not None:
            draw()
