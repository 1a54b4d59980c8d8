"""A limit on the time of each of many answers, with one timer for all of them."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadline:
    """Each task that is inside ``with`` gets so many seconds; then :class:`TimeoutError` is raised in it.

    Like ``asyncio.timeout``, which would set a timer for each task. All limits are equally long, so they end in the
    order in which they began.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._loop = seconds, asyncio.get_running_loop()
        self._ends: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._ends[_here()] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        task = _here()
        self._ends.pop(task, None)
        if task in self._late:
            self._late.remove(task)
            if task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End what has taken too long, and look again when the next is due."""
        self._timer = None
        for task, end in list(self._ends.items()):
            if end > self._loop.time():
                self._timer = self._loop.call_at(end, self._look)
                break
            del self._ends[task]
            self._late.add(task)
            task.cancel()


def _here() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task
