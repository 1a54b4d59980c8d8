"""Runs on local processes.

Each process makes one run at a time, so that only this run is lost if the process dies.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.worker import Failure, Made, serve

Results = Generator[tuple[Job, Made], None, None]
"""What an executor yields: each job when it ends, with its result. Closing the generator stops running jobs."""


class DeathError(Exception):
    """A worker process ended unexpectedly."""


class Worker:
    """A process, the pipe to it, and its present job; None while it starts."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, far_end = context.Pipe()
        self.process = context.Process(target=serve, args=(far_end,), daemon=True)
        with _signals_kept_from_children():
            self.process.start()
        far_end.close()
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        """Send it a job."""
        self.job = job
        with suppress(BrokenPipeError):  # if it has died, listening will show
            self.line.send_bytes(json.dumps(job.content()).encode())

    def listen(self) -> Made | None:
        """Read its next message: that it is ready, or the result of its job."""
        try:
            message = self.line.recv_bytes()
            if self.job is None:
                return None
            content = json.loads(message)
            outcome = self.line.recv_bytes() if content["failure"] is None else Failure(*content["failure"])
        except (EOFError, ConnectionError) as error:
            self.process.join()
            code = self.process.exitcode
            why = f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
            raise DeathError(f"the process died ({why})") from error
        return Made(outcome, content["seconds"])

    def end(self) -> None:
        """Stop it, whatever it is doing."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.line.close()


def run_locally(jobs: Sequence[Job], processes: int) -> Results:
    """Make the runs in the order given, ``processes`` at a time; yields each when it ends."""
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
                try:
                    made = worker.listen()
                except DeathError as error:
                    if job is None:
                        raise InputError(
                            f"a worker could not start: {error}. In a script, call run_sweep only under "
                            "'if __name__ == \"__main__\":', since every worker imports the script."
                        ) from error
                    made = Made(Failure(f"{error}; was there enough memory?"))
                    workers.pop(worker.line).end()
                else:
                    if waiting:
                        worker.give(waiting.popleft())
                    else:
                        workers.pop(worker.line).end()
                if job is not None and made is not None:
                    yield job, made
    finally:
        for worker in workers.values():
            worker.end()


def usable_cores() -> int:
    """How many cores this process may use."""
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
