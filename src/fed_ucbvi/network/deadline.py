"""A limit on the time of each of many answers, with one timer for all of them."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Deadline:
    """Gives many tasks so many seconds each; then :class:`TimeoutError` is raised in the task, inside :meth:`of`.

    Like ``asyncio.timeout``, which would set a timer for each task. All limits are equally long, so they end in the
    order in which they began.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._loop = seconds, asyncio.get_running_loop()
        self._ends: dict[_Limit, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def of(self, task: asyncio.Task[Any]) -> _Limit:
        """The limit of a task, for ``with``; it begins now."""
        limit = _Limit(task, self._ends)
        self._ends[limit] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)
        return limit

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End what has taken too long, and look again when the next is due."""
        self._timer = None
        for limit, end in list(self._ends.items()):
            if end > self._loop.time():
                self._timer = self._loop.call_at(end, self._look)
                break
            del self._ends[limit]
            limit.late = True
            limit.task.cancel()


class _Limit:
    """That of one task."""

    __slots__ = ("_ends", "late", "task")

    def __init__(self, task: asyncio.Task[Any], ends: dict[_Limit, float]) -> None:
        self.task, self._ends, self.late = task, ends, False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._ends.pop(self, None)
        if self.late and self.task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error
