"""What only a process of our own may change, such as the program's; in a user's process all of it stays as it is."""

from __future__ import annotations

import atexit
import gc

is_ours = False


def claim_process() -> None:
    """Say that this process is ours, and look for garbage seldom: modules and compiled code make many objects.

    Nearly all of them are kept. At the end Python would look through them all once more, only to free what the
    operating system frees anyway.
    """
    global is_ours
    is_ours = True
    gc.set_threshold(100_000, 50, 100)
    atexit.register(gc.freeze)
