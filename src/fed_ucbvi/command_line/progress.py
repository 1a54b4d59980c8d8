"""A bar for commands that make many things, such as runs; silent where nobody looks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Report(Protocol):
    """Is told how many of how many are done, and how many have failed."""

    def __call__(self, done: int, total: int, failed: int = 0) -> None:
        """Show it."""
        ...


@contextmanager
def progress_bar(what: str) -> Iterator[Report]:
    """A function to report to; on a terminal a bar appears two seconds after the first report."""
    if not sys.stderr.isatty():
        yield lambda done, total, failed=0: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from fed_ucbvi.progress import PATIENCE

    count = TextColumn(f"{{task.completed}}/{{task.total}} {what}{{task.fields[failures]}}")
    columns = (count, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", failures="")
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True

    def report(done: int, total: int, failed: int = 0) -> None:
        bar.update(task, completed=done, total=total, failures=f", {failed} failed" if failed else "")
        if PATIENCE <= 0:
            bar.start()
        elif timer.ident is None:
            timer.start()

    try:
        yield report
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()
        if bar.live.is_started:
            bar.stop()
