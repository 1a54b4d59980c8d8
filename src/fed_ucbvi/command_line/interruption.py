"""Ctrl-C and SIGTERM: the first signal stops the run, and no later one stops the saving of its result."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 5.0
"""Seconds after the first signal in which further ones are ignored, so that the partial result can be made."""


_whole_process = False


def own_process() -> None:
    """Say that the process ends with the command: once it has been told to stop, further signals are ignored."""
    global _whole_process
    _whole_process = True


class Interruption:
    """Turns signals into ``KeyboardInterrupt`` until told that results are being saved."""

    def __init__(self) -> None:
        self._stopped_at: float | None = None
        self._saving = False

    @property
    def stopped(self) -> bool:
        """Whether a signal has come."""
        return self._stopped_at is not None

    def saving(self) -> None:
        """From now on signals are ignored: what is left is short and must not be lost."""
        self._saving = True

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        now = time.monotonic()
        if self._saving or (self._stopped_at is not None and now - self._stopped_at < PATIENCE):
            return
        self._stopped_at = now
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """SIGINT and SIGTERM alike stop the block; a signal that the process was started to ignore stays ignored."""
    interruption = Interruption()
    earlier = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) != signal.SIG_IGN:
                    earlier[number] = signal.signal(number, interruption.handle)
        yield interruption
    finally:
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_IGN if _whole_process and interruption.stopped else handler)
