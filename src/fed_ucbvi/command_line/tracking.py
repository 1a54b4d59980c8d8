"""``--track``: the trackers of a command. One that fails in the middle of a run is let go; the run goes on."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from queue import Full, Queue
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import OUTPUT
from fed_ucbvi.command_line.standard_error import say

if TYPE_CHECKING:
    from fed_ucbvi.results.round_record import RoundRecord
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.trackers.tracker import Tracker

MOST_WAITING = 1_000
"""Rounds that may wait for slow trackers."""

Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER:PLACE",
        help="Hand every round to tensorboard:DIR, mlflow:URI or wandb:PROJECT; may be repeated.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
TrackEvery = Annotated[
    int,
    typer.Option(parser=whole_number, metavar="K", help="With --track: one round in K.", rich_help_panel=OUTPUT),
]


class Tracking:
    """Several trackers, by what the command line calls them, at work in a thread of their own.

    So a tracker that is slow does not hold up the run; if it cannot keep up, rounds are left out. What trackers print
    when they begin and end goes to standard error.
    """

    def __init__(self) -> None:
        self._trackers: dict[str, Tracker] = {}
        self._rounds: Queue[RoundRecord | None] = Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._hand_on, daemon=True)
        self._run: Run | None = None

    def open(self, text: str, every: int) -> None:
        """Add the tracker that ``text`` names."""
        from fed_ucbvi.trackers.by_name import make_tracker

        with redirect_stdout(sys.stderr):
            self._trackers[text] = make_tracker(text, every)

    def start(self) -> None:
        """From now on, hand rounds on."""
        self._thread.start()

    def on_round(self, record: RoundRecord) -> None:
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
            self._each(partial(_hand, record))

    def _each(self, do: Callable[[Tracker], object]) -> None:
        for text, tracker in tuple(self._trackers.items()):
            try:
                do(tracker)
            except Exception as error:
                del self._trackers[text]
                say(f"{text} cannot be written: {error}. The run goes on without it.", logging.WARNING)


def _hand(record: RoundRecord, tracker: Tracker) -> None:
    tracker(record)


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
