"""Runs as Ray tasks, on a cluster or on this machine. The process that started the sweep writes the files.

A run that is lost with its node is started again elsewhere. Its file depends only on its parameters, so it is the
same.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fed_ucbvi.core.ray_connection import connected_to_ray
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.local import Results, usable_cores
from fed_ucbvi.sweeps.worker import Failure, Made, make, one_thread

ATTEMPTS = 4
"""How often a run is started if it is lost each time, with its node, its process or its result."""


def run_on_ray(jobs: Sequence[Job], at_once: int | None, address: str | None) -> Results:
    """Make the runs, at most ``at_once`` at a time if that is given; yields each run when it ends."""
    if not jobs:
        return
    with connected_to_ray(address, at_once or usable_cores()) as ray:
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
                        made = Made(Failure(f"{type(error).__name__}: {error}".partition("\n")[0], str(error)))
                    yield job, made
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _task(content: Mapping[str, Any], place: str) -> Made:
    """Make a run, in the folder where the sweep was started if the node has it, to find files and modules."""
    with suppress(OSError):
        os.chdir(place)
    one_thread()
    return make(content)
