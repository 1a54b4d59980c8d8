"""A second process that compiles, on another core, what a first run needs later; this one finds it in the cache.

Numba compiles one function at a time, also in several threads, so another process is needed. It is started only where
the cache lacks what it would compile. What it has not compiled, because it failed or compiled for other types, is
compiled in this process as ever.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys

from fed_ucbvi.core.compiling import must_compile

_process: subprocess.Popen[str] | None = None
_said: list[str] = []


def start(module: str, last: str) -> None:
    """Run ``module`` beside this process, unless ``last``, the last function that it compiles, is in the cache."""
    global _process
    if _process is not None or _cores() < 2 or not must_compile(last):
        return
    stop()
    command = [sys.executable, "-P", "-m", module]
    quiet = subprocess.DEVNULL
    try:
        _process = subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True)
    except OSError:
        return
    atexit.register(stop)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def say(line: str) -> None:
    """In the second process: that something can be found in the cache, or for which types it compiles."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def wait_for(line: str, *, types: str = "") -> None:
    """Wait until the second process, if there is one, has said ``line`` or has ended.

    What it says first is for which types it compiles. If these are not ``types`` it is ended instead.
    """
    if _process is None or line in _said:
        return
    assert _process.stdout is not None
    for said in _process.stdout:
        _said.append(said.rstrip("\n"))
        if _said[0] != types:
            break
        if _said[-1] == line:
            return
    stop()


def stop() -> None:
    global _process
    if _process is not None:
        _process.terminate()
        _process.communicate()
    _process = None
    _said.clear()
