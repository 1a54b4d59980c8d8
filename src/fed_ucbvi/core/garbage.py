"""Looking for garbage seldom, in a process of our own that starts, works and ends."""

from __future__ import annotations

import atexit
import gc


def collect_seldom() -> None:
    """Spend little time on garbage: modules and compiled code make many objects, nearly all of which are kept.

    At the end Python would look through them all once more, only to free what the operating system frees anyway.
    """
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)
