"""The connection to a Ray cluster, for sweeps and for runs whose fleets are Ray actors."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fed_ucbvi.core.errors import InputError, missing_package

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""No reports on usage, no advice about accelerators."""
ANSWER_TIMEOUT = 10.0
"""Seconds in which a cluster must answer."""


def check_ray(address: str | None) -> None:
    """Raise, before anything is written, if Ray is missing or nothing listens at the address."""
    _ray()
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT).close()
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
def connected_to_ray(address: str | None, processes: int) -> Iterator[Any]:
    """Ray: the caller's connection, or a new one to a cluster, or a cluster started here, which is ended here.

    Ray's messages stay off standard output. ``processes`` is the number that run at a time if it is started here.
    """
    ray = _ray()
    if ray.is_initialized():
        if address is not None:
            raise InputError("this process is connected to Ray already; leave the address out, or disconnect first.")
        yield ray
        return
    settings: dict[str, Any] = {
        "address": address or "local",
        "log_to_driver": False,
        "logging_level": "error",
    }
    if address is None:
        settings |= {"num_cpus": processes, "include_dashboard": False}
    with _own_signals():
        try:
            ray.init(**settings)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"Ray cannot be used at {address or 'this machine'}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def run_on_every_node(ray: Any, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function once on each living node, on all of them at the same time, and wait until all calls have ended.

    A call that fails is ignored: this is for preparations without which everything works, too.
    """
    task = ray.remote(num_cpus=1, max_retries=0)(function)
    calls = []
    for node in ray.nodes():
        if node["Alive"]:
            on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
            calls.append(task.options(scheduling_strategy=on_node).remote(*arguments))
    for call in calls:
        with suppress(ray.exceptions.RayError):
            ray.get(call)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this program's handlers, which Ray would replace."""
    numbers: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        numbers = [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
