"""One progress bar for whatever takes a while: on a terminal, in a notebook, and silent where nobody looks."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fed_ucbvi.core.notebook import in_notebook

PATIENCE = 2.0
"""Seconds before a bar appears."""
BETWEEN_UPDATES = 0.2
"""Seconds between two updates of a bar in a notebook, each of which is a message to the browser."""

Show = Callable[[int, int, str], None]
"""Is told how many of how many are done, and what to write beside the bar."""


class Progress(NamedTuple):
    """How far a run is."""

    episodes: int
    total: int
    rounds: int
    regret: float
    gap: float = math.nan
    """Between the server's optimistic value and the estimated one of the policy recommended last."""


class ProgressCallback(Protocol):
    """Is told how many of how many are done, and how many have failed."""

    def __call__(self, done: int, total: int, failed: int = 0) -> None:
        """Show it."""
        ...


def announce_compilation() -> None:
    """Tell whoever looks why the very first run on a machine takes longer."""
    import numba

    if (sys.stderr.isatty() or in_notebook()) and not Path(numba.config.CACHE_DIR).exists():
        sys.stderr.write("compiling for this machine, once: about half a minute\n")


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressCallback]:
    """A function to report to on many things, such as runs."""
    with _bar() as show:

        def report(done: int, total: int, failed: int = 0) -> None:
            show(done, total, f"{done}/{total} {what}{f', {failed} failed' if failed else ''}")

        yield report


@contextmanager
def show_progress(how: bool | Callable[[Progress], None]) -> Iterator[Callable[[Progress], None]]:
    """A function to report to on one run: the caller's, a bar, or none."""
    if callable(how):
        yield how
        return
    if not how:
        yield lambda progress: None
        return
    with _bar() as show:
        began, started_at = time.perf_counter(), -1

        def report(progress: Progress) -> None:
            nonlocal started_at
            started_at = progress.episodes if started_at < 0 else started_at
            speed = (progress.episodes - started_at) / max(time.perf_counter() - began, 1e-9)
            regret = f"regret {progress.regret:,.0f}, " if progress.regret == progress.regret else ""
            gap = f"gap {progress.gap:,.4g}, " if progress.gap == progress.gap else ""
            text = f"{progress.episodes / progress.total:.0%} of {progress.total:,} episodes, "
            show(progress.episodes, progress.total, f"{text}{progress.rounds:,} rounds, {regret}{gap}{speed:,.0f}/s")

        yield report


@contextmanager
def _bar() -> Iterator[Show]:
    """Shows on a bar that appears two seconds after the first report, and shows nothing where nobody looks."""
    if in_notebook():
        with _notebook_bar() as show:
            yield show
    elif sys.stderr.isatty():
        with _terminal_bar() as show:
            yield show
    else:
        yield lambda done, total, text: None


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
    bar = _NotebookBar()
    try:
        yield bar.show
    finally:
        bar.finish()


class _NotebookBar:
    def __init__(self) -> None:
        self.began, self.drawn_at = time.monotonic(), 0.0
        self.handle: Any = None
        self.content: dict[str, str] = {}

    def show(self, done: int, total: int, text: str) -> None:
        bar = f'<progress value="{done}" max="{total}"></progress> {escape(text)}'
        self.content = {"text/plain": text, "text/html": bar}
        now = time.monotonic()
        if now - self.began >= PATIENCE and now - self.drawn_at >= BETWEEN_UPDATES:
            self.draw()

    def draw(self) -> None:
        from IPython.display import display

        if self.handle is None:
            self.handle = display(self.content, raw=True, display_id=True)
        else:
            self.handle.update(self.content, raw=True)
        self.drawn_at = time.monotonic()

    def finish(self) -> None:
        if self.handle is not None:
            self.draw()
