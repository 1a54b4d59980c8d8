"""Live pages of runs, sweeps and federations, served until a block ends.

The first two are registered as entry points of the group ``fed_ucbvi.pages`` in ``pyproject.toml``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.command_line.program import say
from fed_ucbvi.network.dashboard.server import PageServer, check_local
from fed_ucbvi.network.dashboard.state import LiveState, Subject
from fed_ucbvi.network.dashboard.sweep import SweepPage
from fed_ucbvi.network.run_plan import RunPlan
from fed_ucbvi.sweeps.specification import Sweep

StateT = TypeVar("StateT", bound=LiveState)


@contextmanager
def serve_run(
    address: str,
    algorithm: Algorithm[Any, Any],
    problem: Any,
    settings: dict[str, Any],
) -> Iterator[LiveState]:
    """Serve the page of a run in this process."""
    check_local(address)
    state = LiveState(Subject.of_run(algorithm, problem, **settings))
    with serve_state(address, state):
        yield state


@contextmanager
def serve_sweep(address: str, sweep: Sweep, folder: Path) -> Iterator[SweepPage]:
    """Serve the page of a sweep that this process makes in a folder."""
    check_local(address)
    state = SweepPage(sweep, folder)
    with serve_state(address, state):
        yield state


@contextmanager
def serve_federation(address: str, plan: RunPlan, metrics: Callable[[], bytes]) -> Iterator[LiveState]:
    """Serve the page of a federation, with its metrics."""
    check_local(address)
    state = LiveState(Subject.of_plan(plan))
    with serve_state(address, state, metrics):
        yield state


@contextmanager
def serve_state(address: str, state: StateT, metrics: Callable[[], bytes] | None = None) -> Iterator[StateT]:
    """Serve the page of a state, and metrics if there are any; prints the address of the page."""
    with PageServer(state, address, metrics) as page:
        say(f"page: {page.url}")
        yield state
