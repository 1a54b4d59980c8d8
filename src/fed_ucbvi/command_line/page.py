"""What is shown while a command runs: the live page (``--dashboard``) and trackers (``--track``); and ``watch``."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, redirect_stdout, suppress
from operator import methodcaller
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fed_ucbvi.command_line.options import CODE, PAGE, Output, argument, fields, load_code, option
from fed_ucbvi.command_line.outputs import print_json
from fed_ucbvi.command_line.program import interruptible, say
from fed_ucbvi.core.errors import InputError

if TYPE_CHECKING:
    from fed_ucbvi.algorithms.base import Algorithm
    from fed_ucbvi.dashboard.folders import WatchedSweep
    from fed_ucbvi.dashboard.state import LiveState
    from fed_ucbvi.network.coordinator import Coordinator
    from fed_ucbvi.network.run_plan import RunPlan
    from fed_ucbvi.problem.federation import Federation
    from fed_ucbvi.results.round_record import RoundRecord
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.run_spec import RunSpec
    from fed_ucbvi.trackers.tracker import Tracker

SECONDS_BETWEEN, PATIENCE = 2.0, 15.0
"""Between two looks at a folder; and in which a page must answer."""
MAX_WAITING = 1_000
"""Rounds that may wait for slow trackers."""


@contextmanager
def live_page(
    output: Output, make: Callable[[], LiveState], metrics: Callable[[], bytes] | None = None
) -> Iterator[LiveState | None]:
    """Serve the page of the state that ``make`` gives, if it is wanted, until the block ends, and say where."""
    if output.dashboard is None:
        if output.dashboard_cert is not None or output.dashboard_token is not None:
            raise InputError(
                "--dashboard-cert and --dashboard-token are for the page; pass --dashboard HOST:PORT as well."
            )
        yield None
        return
    from fed_ucbvi.dashboard.access import Access
    from fed_ucbvi.dashboard.watching import page_of

    access = Access.parse(output.dashboard, output.dashboard_cert, output.dashboard_token)
    with page_of(make(), access, metrics) as page:
        say(f"page: {page.url}")
        yield page.state


def state_of_run(algorithm: Algorithm[Any, Any], federation: Federation, spec: RunSpec) -> LiveState:
    from fed_ucbvi.dashboard.state import LiveState
    from fed_ucbvi.dashboard.subject import Subject

    return LiveState(Subject.of_run(algorithm, federation, seed=spec.seed, driver=spec.driver))


def state_of_federation(plan: RunPlan) -> LiveState:
    from fed_ucbvi.dashboard.state import LiveState
    from fed_ucbvi.dashboard.subject import Subject

    return LiveState(Subject.of_plan(plan))


def following(page: LiveState | None, run: Coordinator) -> AbstractAsyncContextManager[None]:
    """Show nodes, events and policy of a federation, if there is a page, while the block runs."""
    if page is None:
        return nullcontext()
    from fed_ucbvi.dashboard import watching

    return watching.following(page, run)


@contextmanager
def page_of_sweep(output: Output, folder: Path) -> Iterator[Callable[[], None]]:
    """The page of a sweep, and what is to be called whenever a run has ended."""
    watched: list[WatchedSweep] = []

    def make() -> LiveState:
        from fed_ucbvi.dashboard.folders import WatchedSweep

        watched.append(WatchedSweep(folder))
        return watched[0].state

    def look() -> None:
        for sweep in watched:
            sweep.look()

    with live_page(output, make):
        yield look
        for sweep in watched:
            sweep.state.end()


class Tracking:
    """Several trackers, by what the command line calls them, at work in a thread of their own.

    So a tracker that is slow does not hold up the run; if it cannot keep up, rounds are left out. What trackers print
    when they begin and end goes to standard error.
    """

    def __init__(self) -> None:
        self._trackers: dict[str, Tracker] = {}
        self._rounds: Queue[RoundRecord | None] = Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._hand_on, daemon=True)
        self._run: Run | None = None

    def open(self, text: str, every: int) -> None:
        from fed_ucbvi.trackers.tracker import make_tracker

        with redirect_stdout(sys.stderr):
            self._trackers[text] = make_tracker(text, every)

    def start(self) -> None:
        self._thread.start()

    def __call__(self, record: RoundRecord) -> None:
        """Hand a round to all of them, soon."""
        if self._trackers:
            with suppress(Full):
                self._rounds.put_nowait(record)

    def finish(self, run: Run) -> None:
        """Hand the run to all of them, at the end, when it has been saved and printed."""
        self._run = run

    def close(self, *, failed: bool) -> None:
        """Have all of them write what is left."""
        if self._thread.is_alive():
            self._rounds.put(None)
            self._thread.join()
        run = self._run
        with redirect_stdout(sys.stderr):
            if run is not None:
                self._each(lambda tracker: tracker.finish(run))
            self._each(lambda tracker: tracker.end(failed=failed))
        self._trackers.clear()

    def _hand_on(self) -> None:
        while (record := self._rounds.get()) is not None:
            self._each(methodcaller("__call__", record))

    def _each(self, do: Callable[[Tracker], object]) -> None:
        for text, tracker in tuple(self._trackers.items()):
            try:
                do(tracker)
            except Exception as error:
                del self._trackers[text]
                say(f"{text} cannot be written: {error}. The run continues without it.", logging.WARNING)


@contextmanager
def tracking(texts: Iterable[str], every: int) -> Iterator[Tracking]:
    """The trackers that ``--track`` names, open while the block lasts."""
    trackers = Tracking()
    try:
        for text in texts:
            trackers.open(text, every)
        trackers.start()
        yield trackers
    except BaseException:
        trackers.close(failed=True)
        raise
    trackers.close(failed=False)


def watch(
    output: Annotated[Output, fields(f"{PAGE} as_json", dashboard={"value": "127.0.0.1:0"})],
    source: str = argument(
        "DIR|URL", "A saved run, a sweep or the checkpoint of a run; or http://HOST:PORT/ of a running page."
    ),
    authority: Path | None = option(
        None, "FILE", "Of an https URL: the authority that signed its certificate.", name="--ca"
    ),
    code: list[str] | None = CODE,
) -> None:
    """Show how a run, a federation or a sweep stands or went: serve the page of DIR, or open URL in the browser.

    The page of DIR is served until Ctrl-C. With --json what the page shows is printed instead.
    """
    if source.startswith(("http://", "https://")):
        content = _state_of_page(source, output.dashboard_token, authority)
        if output.as_json:
            print_json(content)
        else:
            typer.launch(source)
            typer.echo(f"opened {source}", err=True)
        return
    from fed_ucbvi.dashboard.folders import state_of_folder

    load_code(code)
    state, look = state_of_folder(Path(source))
    if output.as_json:
        print_json(state.snapshot())
        return
    with interruptible(), live_page(output, lambda: state):
        typer.echo("Ctrl-C ends it", err=True)
        pause = threading.Event()
        with suppress(KeyboardInterrupt):
            while not pause.wait(SECONDS_BETWEEN):
                if look is not None:
                    look()


def _state_of_page(url: str, token_file: Path | None, authority: Path | None) -> dict[str, Any]:
    import json
    import ssl
    import urllib.error
    import urllib.request

    from fed_ucbvi.dashboard.access import read_token

    headers = {} if token_file is None else {"Authorization": f"Bearer {read_token(token_file)}"}
    context = ssl.create_default_context(cafile=authority) if url.startswith("https:") else None
    try:
        request = urllib.request.Request(f"{url.rstrip('/')}/state.json", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:
            content: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise InputError(
            f"{url} answers {error.code}: {error.read(500).decode(errors='replace').strip()}."
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{url} cannot be reached, or is no page of fed-ucbvi: {error}.") from error
    return content
