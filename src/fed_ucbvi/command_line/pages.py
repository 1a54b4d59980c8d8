"""The live page of a run or of a sweep, which an installed package serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fed_ucbvi.command_line.options import Output
from fed_ucbvi.core.plugins import find_registered

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm
    from fed_ucbvi.engine.rounds import Engine
    from fed_ucbvi.results.round_record import RoundRecord
    from fed_ucbvi.results.run_data import RunData
    from fed_ucbvi.sweeps.specification import Sweep

GROUP = "fed_ucbvi.pages"
"""The group of entry points of live pages: ``run``, a :class:`ServeRun`, and ``sweep``, a :class:`ServeSweep`."""


class RunPage(Protocol):
    """The page of a run in progress."""

    def __call__(self, record: RoundRecord) -> None:
        """Show a round."""

    def take_earlier(self, engine: Engine) -> None:
        """Show the rounds that were played before the run was resumed."""

    def finish(self, run: RunData) -> None:
        """Show the result."""


class SweepPage(Protocol):
    """The page of a sweep in progress."""

    def look(self) -> None:
        """Show the runs that are finished by now."""

    def end(self) -> None:
        """Show that the sweep has ended."""


class ServeRun(Protocol):
    """Serves the page of a run at ``HOST:PORT`` until the block ends."""

    def __call__(
        self, address: str, algorithm: Algorithm[Any, Any], problem: Any, settings: dict[str, Any]
    ) -> AbstractContextManager[RunPage]: ...


class ServeSweep(Protocol):
    """Serves the page of a sweep at ``HOST:PORT`` until the block ends."""

    def __call__(self, address: str, sweep: Sweep, folder: Path) -> AbstractContextManager[SweepPage]: ...


@contextmanager
def page_of_run(
    output: Output,
    algorithm: Algorithm[Any, Any],
    problem: Any,
    **settings: Any,
) -> Iterator[RunPage | None]:
    """Serve the page of a run until the block ends; None without ``--dashboard``."""
    if output.dashboard is None:
        yield None
        return
    serve: ServeRun = _server_of("run")
    with serve(output.dashboard, algorithm, problem, settings) as page:
        yield page


@contextmanager
def page_of_sweep(output: Output, sweep: Sweep, folder: Path) -> Iterator[SweepPage | None]:
    """Serve the page of a sweep until the block ends; None without ``--dashboard``."""
    if output.dashboard is None:
        yield None
        return
    serve: ServeSweep = _server_of("sweep")
    with serve(output.dashboard, sweep, folder) as page:
        yield page


def _server_of(subject: str) -> Callable[..., Any]:
    server: Callable[..., Any] = find_registered(GROUP, subject, f"live page of a {subject}")
    return server
