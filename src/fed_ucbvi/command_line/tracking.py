"""``--track``: the trackers of a command. One that fails in the middle of a run is let go; the run goes on."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import OUTPUT
from fed_ucbvi.command_line.standard_error import say

if TYPE_CHECKING:
    from fed_ucbvi.results.round_record import RoundRecord
    from fed_ucbvi.results.run import Run
    from fed_ucbvi.trackers.tracker import Tracker

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
    """Several trackers, by what the command line calls them; what they print goes to standard error."""

    def __init__(self) -> None:
        self._trackers: dict[str, Tracker] = {}

    def open(self, text: str, every: int) -> None:
        """Add the tracker that ``text`` names."""
        from fed_ucbvi.trackers.by_name import make_tracker

        with redirect_stdout(sys.stderr):
            self._trackers[text] = make_tracker(text, every)

    def on_round(self, record: RoundRecord) -> None:
        """Hand a round to all of them."""
        self._each(lambda tracker: tracker(record))

    def finish(self, run: Run) -> None:
        """Hand the run to all of them."""
        self._each(lambda tracker: tracker.finish(run))

    def close(self, *, failed: bool) -> None:
        """Have all of them write what is left."""
        self._each(lambda tracker: tracker.end(failed=failed))
        self._trackers.clear()

    def _each(self, do: Callable[[Tracker], Any]) -> None:
        for text, tracker in tuple(self._trackers.items()):
            try:
                with redirect_stdout(sys.stderr):
                    do(tracker)
            except Exception as error:
                del self._trackers[text]
                say(f"{text} cannot be written: {error}. The run goes on without it.", logging.WARNING)


@contextmanager
def tracking(texts: Iterable[str], every: int) -> Iterator[Tracking]:
    """The trackers that ``--track`` names, open while the block lasts."""
    trackers = Tracking()
    try:
        for text in texts:
            trackers.open(text, every)
        yield trackers
    except BaseException:
        trackers.close(failed=True)
        raise
    trackers.close(failed=False)
