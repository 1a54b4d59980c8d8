"""A page beside a run in Python (:func:`watch_run`), and beside a federation over the network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.dashboard.access import Access
from fed_ucbvi.dashboard.server import PageServer
from fed_ucbvi.dashboard.state import OVER, STOPPED, LiveState
from fed_ucbvi.dashboard.subject import Subject
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.recommendations import Recommended, table_of
from fed_ucbvi.results.round_record import OnRound, replay
from fed_ucbvi.results.run_data import RunData

if TYPE_CHECKING:
    from fed_ucbvi.engine.live import LiveFederation
    from fed_ucbvi.network.coordinator import Coordinator

SECONDS_BETWEEN = 0.25
"""Between two looks. Nodes come and go also while no round is played."""


class Page:
    """The page of a run in progress.

    Attributes:
        state: what it shows.
        url: where it is.
        on_round: to be given to the run.
    """

    def __init__(self, state: LiveState, server: PageServer) -> None:
        self.state, self.url, self._server = state, server.url, server
        self.on_round: OnRound = state

    @property
    def readers(self) -> int:
        return self._server.readers

    def finish(self, run: RunData) -> None:
        """Show the run's policy, and that it is over."""
        self.state.finish(run)


@contextmanager
def watch_run(
    algorithm: Algorithm[Any, Any],
    federation: Federation | LiveFederation,
    address: str = "127.0.0.1:0",
    *,
    certificate: str | Path | None = None,
    token_file: str | Path | None = None,
) -> Iterator[Page]:
    """Serve a page beside a run until the block ends.

    Args:
        algorithm: what runs.
        federation: what it runs on.
        address: ``HOST:PORT``; port 0 means a free one. Other machines can look only with the next two.
        certificate: a file, with its key beside it (``.key``).
        token_file: a file with a token that readers must know.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> algorithm, world = FedUCBVI(nu=100), synthetic(agents=2)
    >>> with watch_run(algorithm, world) as page:
    ...     result = run(algorithm, world, 50, on_round=page.on_round)
    ...     page.finish(result)
    >>> page.state.snapshot()["now"]["episodes"]
    50
    """
    files = (None if file is None else Path(file) for file in (certificate, token_file))
    access = Access.parse(address, *files)
    with page_of(LiveState(Subject.of_run(algorithm, federation)), access) as page:
        yield page


@contextmanager
def page_of(state: LiveState, access: Access, metrics: Callable[[], bytes] | None = None) -> Iterator[Page]:
    """Serve the page of a state until the block ends; if nothing was said of an end, the run was stopped."""
    with PageServer(state, access, metrics) as server:
        try:
            yield Page(state, server)
        except InputError as error:
            state.end(str(error), complete=False)
            raise
        finally:
            if state.phase not in (OVER, STOPPED):
                state.end("The program ended before the run.", complete=False)


@asynccontextmanager
async def following(state: LiveState, run: Coordinator) -> AsyncIterator[None]:
    """Keep ``state`` up to date while the block runs, in the loop in which the server itself runs."""
    shown: Recommended | None = None

    def look() -> None:
        nonlocal shown
        state.take_status(run.status())
        if run.engine.units != state.subject.units:
            state.take_subject(state.subject._replace(units=run.engine.units))
        recommended = run.engine.recommended
        if recommended is not None and recommended is not shown:
            shown = recommended
            state.take_policy(recommended.policy)

    async def keep_looking() -> None:
        while True:
            look()
            await asyncio.sleep(SECONDS_BETWEEN)

    for record in replay(
        run.engine.records(),
        table_of(run.engine.recommendations),
        planned_episodes=run.plan.setting.episodes,
        rules=run.plan.algorithm.rules,
        units=run.engine.units,
        horizon=run.plan.setting.horizon,
    ):  # rounds that an earlier server has played
        state(record)
    task = asyncio.create_task(keep_looking())
    try:
        yield
    finally:
        task.cancel()
        look()
