"""Run a sweep: make the runs that are missing, on local processes or on Ray, and store each when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer
from fed_ucbvi.sweeps.executors import run_locally, run_on_ray, usable_cores
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep
from fed_ucbvi.sweeps.store import Store

EXECUTORS = ("local", "ray")


@dataclass
class SweepOutcome:
    """The outcome of a sweep.

    Attributes:
        runs: number of runs of the sweep.
        done: number of runs that were made now.
        skipped: number of runs that had been made earlier.
        failed: the error of each run that failed, by id.
        damaged: ids of runs that were made again because their files were damaged.
    """

    name: str
    out: Path
    runs: int
    done: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        return self.done + self.skipped == self.runs

    def summary(self) -> dict[str, Any]:
        failed = [{"id": name, "error": error} for name, error in self.failed.items()]
        known = {"failed": failed, "complete": self.complete, "seconds": round(self.seconds, 3), "out": str(self.out)}
        return {**vars(self), **known}


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; finished runs are kept, and ``outcome`` counts them."""

    def __init__(self, outcome: SweepOutcome) -> None:
        super().__init__(f"interrupted after {outcome.done + outcome.skipped} of {outcome.runs} runs")
        self.outcome = outcome


def run_sweep(
    sweep: Sweep,
    out: str | Path,
    *,
    jobs: int | None = None,
    executor: str = "local",
    address: str | None = None,
    resume: bool = False,
    report: Callable[[int, int, int], None] | None = None,
) -> SweepOutcome:
    """Make every run of ``sweep`` that ``out`` does not hold yet.

    The files are the same whatever the executor, the number of processes and the order in which runs end.

    Args:
        sweep: what to run.
        out: folder to keep the runs in; see :mod:`fed_ucbvi.sweeps.store`.
        jobs: how many runs at a time; by default the usable cores, or on a cluster as many as fit.
        executor: ``local`` processes or ``ray``.
        address: of a Ray cluster; by default Ray is started on this machine.
        resume: continue the same sweep in ``out``, if it was started before, and skip its finished runs.
        report: called with the number of finished runs, of all runs, and of failures so far.

    Returns:
        The :class:`SweepOutcome`; runs that failed are on record in ``out``.

    Raises:
        InputError: if something cannot be used; ``out`` is then left as it was.
        SweepInterrupted: on Ctrl-C.
    """
    check_choice("executor", executor, EXECUTORS)
    if executor == "ray":
        from fed_ucbvi.core.ray_connection import check_ray

        check_ray(address)
    elif address is not None:
        raise InputError("an address is for the executor ray only; pass executor='ray' (--executor ray).")
    if jobs is not None:
        check_positive_integer("jobs", jobs)
    began = time.perf_counter()
    outcome = SweepOutcome(sweep.name, Path(out), len(sweep.jobs()))
    left = list[Job]()

    def tell() -> None:
        outcome.seconds = time.perf_counter() - began
        if report is not None:
            report(outcome.skipped + outcome.done, outcome.runs, len(outcome.failed))

    with Store.use(outcome.out, sweep, resume=resume) as store:
        try:
            left, outcome.damaged = store.left()
            outcome.skipped = outcome.runs - len(left)
            tell()
            order = by_need(left)
            here = executor == "local"
            made_by = run_locally(order, jobs or usable_cores()) if here else run_on_ray(order, jobs, address)
            with closing(made_by) as results:
                for job, made in results:
                    if made.error:
                        store.write_failure(job, made)
                        outcome.failed[job.id] = made.error
                    else:
                        store.write(job, made.content, made.seconds)
                        outcome.done += 1
                    tell()
        except KeyboardInterrupt as error:
            outcome.done = sum(store.path(job).exists() for job in left)  # one may have been written and not counted
            outcome.seconds = time.perf_counter() - began
            raise SweepInterrupted(outcome) from error
    return outcome


def by_need(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with the longest first, so that no long run is left at the end.

    The longest job of each algorithm comes before all others, so that processes compile different algorithms at
    first.
    """
    longest = sorted(jobs, key=lambda job: -(job.problem.agents or 1) * job.episodes)
    first = {job.algorithm.name: job for job in reversed(longest)}
    return [*first.values(), *(job for job in longest if first[job.algorithm.name] is not job)]
