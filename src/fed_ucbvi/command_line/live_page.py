"""``--dashboard``: the live page beside a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fed_ucbvi.command_line.standard_error import say
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.results.round_record import OnRound

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm
    from fed_ucbvi.dashboard.folders import WatchedSweep
    from fed_ucbvi.dashboard.state import LiveState
    from fed_ucbvi.network.coordinator import Coordinator
    from fed_ucbvi.network.run_plan import RunPlan
    from fed_ucbvi.problem.federation import Federation
    from fed_ucbvi.results.run_data import RunData


class PageOptions(NamedTuple):
    """The options of a command that are about the page."""

    address: str | None
    certificate: Path | None
    token_file: Path | None

    def arguments(self) -> list[str]:
        """The same for another process."""
        given = zip(("--dashboard", "--dashboard-cert", "--dashboard-token"), self, strict=True)
        return [word for name, value in given if value is not None for word in (name, str(value))]


class LivePage:
    """The page of a command that is running, or, without a state, none."""

    def __init__(self, state: LiveState | None) -> None:
        self._state = state
        self.on_round: OnRound | None = state

    def finish(self, run: RunData, *, ended: bool | None = None) -> None:
        """Show the run's policy, and that it is over; see :func:`fed_ucbvi.dashboard.watching.show_end`."""
        if self._state is not None:
            from fed_ucbvi.dashboard.watching import show_end

            show_end(self._state, run, ended=ended)

    def following(self, run: Coordinator) -> AbstractAsyncContextManager[None]:
        """Show nodes, events and policy of a federation while the block runs."""
        if self._state is None:
            return nullcontext()
        from fed_ucbvi.dashboard.federation import following

        return following(self._state, run)


@contextmanager
def live_page(
    options: PageOptions, make: Callable[[], LiveState], metrics: Callable[[], bytes] | None = None
) -> Iterator[LivePage]:
    """Serve the page of the state that ``make`` gives, if it is wanted, until the block ends, and say where."""
    if options.address is None:
        if options.certificate is not None or options.token_file is not None:
            raise InputError(
                "--dashboard-cert and --dashboard-token are for the page; say --dashboard HOST:PORT too."
            )
        yield LivePage(None)
        return
    from fed_ucbvi.dashboard.access import Access
    from fed_ucbvi.dashboard.watching import page_of

    access = Access.parse(options.address, options.certificate, options.token_file)
    with page_of(make(), access, metrics) as page:
        say(f"page: {page.url}")
        yield LivePage(page.state)


@contextmanager
def page_of_run(options: PageOptions, algorithm: Algorithm[Any, Any], federation: Federation) -> Iterator[LivePage]:
    """The page of a simulation."""

    def make() -> LiveState:
        from fed_ucbvi.dashboard.state import LiveState
        from fed_ucbvi.dashboard.subject import Subject

        return LiveState(Subject.of_run(algorithm, federation))

    with live_page(options, make) as page:
        yield page


@contextmanager
def page_of_federation(
    options: PageOptions, plan: RunPlan, metrics: Callable[[], bytes] | None
) -> Iterator[LivePage]:
    """The page of a server, which also gives its metrics."""

    def make() -> LiveState:
        from fed_ucbvi.dashboard.federation import subject_of
        from fed_ucbvi.dashboard.state import LiveState

        return LiveState(subject_of(plan))

    with live_page(options, make, metrics) as page:
        yield page


@contextmanager
def page_of_sweep(options: PageOptions, folder: Path) -> Iterator[Callable[[], None]]:
    """The page of a sweep, and what is to be called whenever a run has ended."""
    watched: list[WatchedSweep] = []

    def make() -> LiveState:
        from fed_ucbvi.dashboard.folders import WatchedSweep

        watched.append(WatchedSweep(folder))
        return watched[0].state

    def look() -> None:
        for sweep in watched:
            sweep.look()

    with live_page(options, make):
        yield look
        for sweep in watched:
            sweep.state.end()
