"""Runs as Ray tasks, on a cluster or on this machine. Files are written here, by the process that asks.

A run that is lost with its node is made elsewhere: it is a function of its parameters, so the file is the same.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fed_ucbvi.errors import InputError, missing_package
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.local import Results, usable_cores
from fed_ucbvi.sweeps.worker import Failure, Made, make, one_thread

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No reports on usage, no advice about accelerators."""
PATIENCE = 10.0
"""Seconds in which a cluster must answer."""
ATTEMPTS = 4
"""How often a run is begun that is lost each time with its node, its process or its result."""


def run_on_ray(jobs: Sequence[Job], at_once: int | None, address: str | None) -> Results:
    """Make the runs, at most ``at_once`` at a time if said; yields each when it ends."""
    if not jobs:
        return
    with _connection(at_once, address) as ray:
        task = ray.remote(num_cpus=1, max_retries=0)(_task)
        lost = (ray.exceptions.NodeDiedError, ray.exceptions.WorkerCrashedError, ray.exceptions.ObjectLostError)
        place, begun = os.getcwd(), Counter[str]()
        waiting, running = deque(jobs), dict[Any, Job]()
        try:
            while waiting or running:
                while waiting and (at_once is None or len(running) < at_once):
                    job = waiting.popleft()
                    running[task.remote(job.content(), place)] = job
                    begun[job.id] += 1
                for reference in ray.wait(list(running))[0]:
                    job = running.pop(reference)
                    try:
                        made = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        if isinstance(error, lost) and begun[job.id] < ATTEMPTS:
                            waiting.appendleft(job)
                            continue
                        made = Made(Failure(f"{type(error).__name__}: {error}".partition("\n")[0], str(error)), 0.0)
                    yield job, made
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _task(content: Mapping[str, Any], place: str) -> Made:
    """Make a run, in the folder where the sweep was started if the node has it: files and modules may be there."""
    with suppress(OSError):
        os.chdir(place)
    one_thread()
    return make(content)


def check_ray(address: str | None) -> None:
    """Raise, before anything is written, if Ray is missing or nothing listens at the address."""
    _ray()
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise InputError(
                f"no Ray cluster answers at {address} ({error}); start one with 'ray start --head', or correct "
                "the address."
            ) from error


def _ray() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise missing_package("runs on Ray need", "the package ray", "ray") from error
    return ray


@contextmanager
def _connection(processes: int | None, address: str | None) -> Iterator[Any]:
    """Ray: as the caller has it already, or connected to a cluster, or started here; ended if it was begun here."""
    ray = _ray()
    if ray.is_initialized():
        if address is not None:
            raise InputError("this process is connected to Ray already; leave the address out, or disconnect first.")
        yield ray
        return
    settings: dict[str, Any] = {"address": address or "local", "log_to_driver": False, "logging_level": "error"}
    if address is None:
        settings |= {"num_cpus": processes or usable_cores(), "include_dashboard": False}
    with _own_signals():
        try:
            ray.init(**settings)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"Ray cannot be used at {address or 'this machine'}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this program's handlers, which Ray would replace."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
