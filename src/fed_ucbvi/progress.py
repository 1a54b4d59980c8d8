"""A progress bar for runs that take a while; silent where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fed_ucbvi.simulation import Progress

PATIENCE = 2.0
"""Seconds before a bar appears."""


def announce_compilation() -> None:
    """Tell whoever looks why the very first run on a machine takes longer."""
    import numba

    if sys.stderr.isatty() and not Path(numba.config.CACHE_DIR).exists():
        sys.stderr.write("compiling for this machine, once: about half a minute\n")


def _nothing(progress: Progress) -> None:
    """Report to nobody."""


@contextmanager
def show_progress(how: bool | Callable[[Progress], None]) -> Iterator[Callable[[Progress], None]]:
    """A function to report to: the caller's, a bar on a terminal's standard error, or none."""
    if callable(how):
        yield how
        return
    if not how or not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.percentage:>3.0f} % of {task.total:,.0f} episodes"),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[rounds]:,} rounds, regret {task.fields[regret]:,.0f}, {task.fields[speed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    began = time.perf_counter()
    task = None
    started_at = 0

    def report(progress: Progress) -> None:
        nonlocal task, started_at
        elapsed = time.perf_counter() - began
        if task is None:
            started_at = started_at or progress.episodes
            if elapsed < PATIENCE:
                return
            bar.start()
            task = bar.add_task("", total=progress.total, rounds=0, regret=0.0, speed="")
        speed = f"{(progress.episodes - started_at) / max(elapsed, 1e-9):,.0f}/s"
        bar.update(task, completed=progress.episodes, rounds=progress.rounds, regret=progress.regret, speed=speed)

    try:
        yield report
    finally:
        bar.stop()
