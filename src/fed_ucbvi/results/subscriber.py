"""The one protocol by which a run is followed while it goes on: by progress bar, live page, metrics and trackers."""

from __future__ import annotations

from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.results.round_record import OnRound, RoundRecord
from fed_ucbvi.results.run_data import RunData


class Subscriber:
    """Hears of a run while it goes on: the progress bar, the live page, metrics, trackers. All methods are optional.

    A subscriber is an :data:`OnRound` that may want more than rounds.
    """

    def __call__(self, record: RoundRecord) -> None:
        """Take a round."""

    def take_policy(self, policy: IndexArray) -> None:
        """Take a policy that the run recommends on the way, ``(H, S)``."""

    def finish(self, run: RunData) -> None:
        """Take the run, when it is over."""


class CallbackList(Subscriber):
    """Several callbacks as one, called in their order; those that are None are left out.

    >>> bool(CallbackList(None)), bool(CallbackList(None, print))
    (False, True)
    """

    def __init__(self, *callbacks: OnRound | None) -> None:
        self._callbacks = [callback for callback in callbacks if callback is not None]
        self._subscribers = [callback for callback in self._callbacks if isinstance(callback, Subscriber)]

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def __call__(self, record: RoundRecord) -> None:
        for callback in self._callbacks:
            callback(record)

    def take_policy(self, policy: IndexArray) -> None:
        for subscriber in self._subscribers:
            subscriber.take_policy(policy)

    def finish(self, run: RunData) -> None:
        for subscriber in self._subscribers:
            subscriber.finish(run)
