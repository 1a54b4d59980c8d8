"""A process that makes runs: it receives jobs and sends back the contents of files, over one pipe."""

from __future__ import annotations

import math
import os
import threading
import traceback
from collections.abc import Mapping
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple


class Made(NamedTuple):
    """The result of a job: the content of its file and the seconds of the run; or, in one line, why it failed."""

    content: bytes = b""
    seconds: float = 0.0
    error: str = ""
    traceback: str = ""


def make(content: Mapping[str, Any]) -> Made:
    """Make the run that a job's content describes.

    The file does not contain how long the run took, so that the same run always gives the same bytes.
    """
    from dataclasses import replace

    from fed_ucbvi.sweeps.job import Job

    try:
        run = Job(**content).complete().run()
        return Made(replace(run, wall_seconds=math.nan).to_bytes(), run.wall_seconds)
    except Exception as error:
        return Made(error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())


def one_thread() -> None:
    """Compute on one thread, because there is a process for every core."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from fed_ucbvi.core.compiling import use_one_thread

    use_one_thread()


def serve(line: Connection) -> None:
    """Report that the process is ready, then make runs until the other side closes the pipe."""
    _end_with_parent()
    one_thread()
    line.send(None)
    while True:
        try:
            content = line.recv()
        except EOFError:
            return
        line.send(make(content))


def _end_with_parent() -> None:
    """End this process when its parent dies, even if the parent is killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
