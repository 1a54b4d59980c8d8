"""Runs on local processes, or as Ray tasks on a cluster; the process that started the sweep writes the files.

A local process makes one run at a time, so that only this run is lost if the process dies. A run that is lost with
its Ray node is started again elsewhere. Its file depends only on its parameters, so it is the same.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fed_ucbvi.core.errors import InputError

if TYPE_CHECKING:
    from fed_ucbvi.sweeps.job import Job


class Made(NamedTuple):
    """The result of a job: the content of its file and the seconds of the run; or, in one line, why it failed."""

    content: bytes = b""
    seconds: float = 0.0
    error: str = ""
    traceback: str = ""


Results: TypeAlias = "Generator[tuple[Job, Made], None, None]"
"""The results of an executor: each job when it ends, with its result. Closing the generator stops running jobs."""

EPISODES_TO_COMPILE = 40
"""Number of episodes of a run that is made to compile what a job needs."""
ATTEMPTS = 4
"""Number of times a run is started if it is lost each time, with its node, its process or its result."""


def make(content: Mapping[str, Any]) -> Made:
    """Make the run that a job's content describes, on one thread, because there is a process for every core.

    The file does not contain how long the run took, so that the same run always gives the same bytes. Imports wait
    until a process is at work.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from fed_ucbvi.core.compiling import use_one_thread
    from fed_ucbvi.sweeps.job import Job

    use_one_thread()
    try:
        run = Job.from_content(content).run()
        return Made(replace(run, wall_seconds=math.nan).to_bytes(), run.wall_seconds)
    except Exception as error:
        return Made(error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())


def compile_kernels(contents: Sequence[Mapping[str, Any]]) -> None:
    """Make a short run of each of these jobs with each driver, so that later processes find compiled code.

    Errors of a job are reported when the job itself is run.
    """
    from fed_ucbvi.core.compiling import has_compiled_code, use_one_thread
    from fed_ucbvi.sweeps.job import Job

    if has_compiled_code():
        return
    use_one_thread()
    for content in contents:
        for driver in ("episodes", "counts"):
            with suppress(Exception):
                job = Job.from_content(content)
                replace(job, driver=driver, episodes=min(job.episodes, EPISODES_TO_COMPILE)).run()


def _one_of_each_algorithm(jobs: Sequence[Job]) -> list[Mapping[str, Any]]:
    """Contents of one job of each algorithm."""
    by_algorithm = {job.algorithm.name: job for job in reversed(jobs)}
    return [job.content() for job in by_algorithm.values()]


def serve(line: Connection) -> None:
    """In a process of its own: report that it is ready, then make runs until the parent closes the pipe or dies."""
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    line.send(None)
    while True:
        try:
            content = line.recv()
        except EOFError:
            return
        line.send(make(content))


class Worker:
    """A process, the pipe to it, its present job (None while it starts), and how it died, if it has."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, far_end = context.Pipe()
        self.process = context.Process(target=serve, args=(far_end,), daemon=True)
        with _signals_kept_from_children():
            self.process.start()
        far_end.close()
        self.job: Job | None = None
        self.death = ""

    def give(self, job: Job) -> None:
        self.job = job
        with suppress(BrokenPipeError):  # if it has died, listening will show
            self.line.send(job.content())

    def listen(self) -> Made | None:
        """The result of its job; None when it says that it is ready."""
        try:
            made: Made | None = self.line.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            why = f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
            self.death = f"the process died ({why})"
            made = Made(error=f"{self.death}; was there enough memory?")
        return made

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()
        self.line.close()


def _compile_in_one_process(jobs: Sequence[Job]) -> None:
    """Compile in a process of its own what would otherwise be compiled in several at the same time."""
    from fed_ucbvi.core.compiling import has_compiled_code

    if has_compiled_code():
        return
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=compile_kernels, args=(_one_of_each_algorithm(jobs),), daemon=True)
    try:
        with _signals_kept_from_children():
            process.start()
        process.join()
    finally:
        process.kill()
        process.join()


def run_locally(jobs: Sequence[Job], processes: int) -> Results:
    """Make the runs in the order given, ``processes`` at a time."""
    if min(processes, len(jobs)) > 1:
        _compile_in_one_process(jobs)
    waiting = deque(jobs)
    workers: dict[Connection, Worker] = {}
    try:
        while True:
            starting = sum(worker.job is None for worker in workers.values())
            while len(workers) < processes and starting < len(waiting):
                worker = Worker()
                workers[worker.line] = worker
                starting += 1
            if not workers:
                return
            for line in wait(list(workers)):
                worker = workers[line]  # type: ignore[index]
                job = worker.job
                made = worker.listen()
                if worker.death and job is None:
                    raise InputError(
                        f"a worker could not start: {worker.death}. In a script, call run_sweep only under "
                        "'if __name__ == \"__main__\":', since every worker imports the script."
                    )
                if waiting and not worker.death:
                    worker.give(waiting.popleft())
                else:
                    workers.pop(worker.line).end()
                if job is not None and made is not None:
                    yield job, made
    finally:
        for worker in workers.values():
            worker.end()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _signals_kept_from_children() -> Iterator[None]:
    """Processes started here ignore Ctrl-C and SIGTERM; their parent handles these and ends them."""
    resource_tracker.ensure_running()  # starting it inside the block would let the signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_on_ray(jobs: Sequence[Job], at_once: int | None, address: str | None) -> Results:
    """Make the runs, at most ``at_once`` at a time if that is given."""
    from fed_ucbvi.core.ray_connection import connected_to_ray, run_on_every_node

    if not jobs:
        return
    with connected_to_ray(address, at_once or usable_cores()) as ray:
        run_on_every_node(ray, _compile_task, _one_of_each_algorithm(jobs), os.getcwd())
        task = ray.remote(num_cpus=1, max_retries=0)(_task)
        lost = (ray.exceptions.NodeDiedError, ray.exceptions.WorkerCrashedError, ray.exceptions.ObjectLostError)
        place = os.getcwd()
        begun = Counter[str]()
        waiting = deque(jobs)
        running: dict[Any, Job] = {}
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
                        what = f"{type(error).__name__}: {error}".partition("\n")[0]
                        made = Made(error=what, traceback=str(error))
                    yield job, made
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _task(content: Mapping[str, Any], place: str) -> Made:
    """Make a run, in the folder where the sweep was started if the node has it, to find files and modules."""
    with suppress(OSError):
        os.chdir(place)
    return make(content)


def _compile_task(contents: Sequence[Mapping[str, Any]], place: str) -> None:
    """Compile what jobs need, in the same folder as :func:`_task`."""
    with suppress(OSError):
        os.chdir(place)
    compile_kernels(contents)
