"""A sweep's folder: one Parquet file for each run, named by a digest of the run's parameters.

``manifest.json``
    the sweep, with all defaults filled in, and its digest;
``runs/ID.parquet``
    finished runs, see :meth:`~fed_ucbvi.results.run.Run.write_file`; on one machine the same run always gives the
    same bytes, so the time it took is unknown in the file, and stands in the journal;
``failures/ID.json``
    runs that failed: the job, the error and the traceback; removed when the run succeeds later;
``damaged/``
    run files whose checksum did not match when the sweep was resumed;
``journal.jsonl``
    one line for each finished run: its id, how long it took, and when it ended;
``lock``
    which process makes the runs, while it does.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, check_version, new_file, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.engine.folder_lock import folder_lock
from fed_ucbvi.engine.simulation import Caution
from fed_ucbvi.results.about import versions
from fed_ucbvi.results.run import Run
from fed_ucbvi.sweeps.executors import Made
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep

FORMAT = "fed-ucbvi/sweep"
FORMAT_VERSION = 2
RUNS = "runs"
FAILURES = "failures"
DAMAGED = "damaged"
JOURNAL = "journal.jsonl"
MAX_DIFFERENCES = 4
MAX_VALUES = 6
"""Numbers of differences, and of values of each, in the message about a folder that holds another sweep."""


class Store(NamedTuple):
    """The folder of one sweep."""

    folder: Path
    sweep: Sweep

    @classmethod
    def create(cls, folder: Path, sweep: Sweep) -> Store:
        """A new folder with nothing but the manifest; an existing one must be empty."""
        with new_folder(folder, FORMAT) as draft:
            for name in (RUNS, FAILURES):
                (draft / name).mkdir()
            content = {"format": FORMAT, "format_version": FORMAT_VERSION, "name": sweep.name, "digest": sweep.digest}
            content |= {"runs": len(sweep.jobs()), "versions": versions(), "sweep": sweep.content()}
            write_manifest(draft, content)
        return cls(folder, sweep)

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """The sweep that ``folder`` holds; another kind of folder is refused."""
        folder = Path(folder)
        manifest = read_manifest(folder, FORMAT)
        check_version(folder, manifest, FORMAT_VERSION)
        with reading(folder / MANIFEST):
            sweep = Sweep.recorded(manifest["sweep"])
            if sweep.digest != manifest["digest"]:
                raise InputError(
                    f"{folder / MANIFEST} was edited, or written by a version of fed-ucbvi whose runs are named "
                    f"otherwise ({manifest.get('versions')}); run the sweep again in another folder."
                )
        return cls(folder, sweep)

    @classmethod
    @contextmanager
    def use(cls, folder: Path, sweep: Sweep, *, resume: bool) -> Iterator[Store]:
        """Lock the folder of ``sweep`` for this process; it must be new, unless the same sweep is resumed."""
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            cls.create(folder, sweep)
        else:
            try:
                held = cls.open(folder).sweep
            except InputError as error:
                raise InputError(f"{error} Nothing in it was touched; choose another folder (--out).") from error
            if held.digest != sweep.digest:
                raise InputError(
                    f"{folder} holds another sweep, '{held.name}': {differences(held, sweep)}. "
                    "Nothing in it was touched; choose another folder (--out)."
                )
            if not resume:
                raise InputError(
                    f"{folder} holds this sweep already; continue it with --resume, or choose another folder (--out)."
                )
        with folder_lock(folder):
            yield cls(folder, sweep)

    def left(self) -> tuple[list[Job], tuple[str, ...]]:
        """The jobs that have no run yet, and the ids of those whose files were damaged and have been moved away."""
        for name in (RUNS, FAILURES):
            (self.folder / name).mkdir(exist_ok=True)
            for leftover in (self.folder / name).glob(".*.partial*"):
                leftover.unlink()
        left = []
        damaged = []
        for job in self.sweep.jobs():
            path = self.path(job)
            try:
                if path.exists():
                    self._read(job)
                    continue
            except InputError as error:
                damaged.append(job.id)
                text = f"{error} It was moved to {self._set_aside(path)} and the run is made anew."
                warnings.warn(text, Caution, stacklevel=2)
            left.append(job)
        return left, tuple(damaged)

    def _set_aside(self, path: Path) -> Path:
        folder = self.folder / DAMAGED
        folder.mkdir(exist_ok=True)
        names = (folder / f"{path.stem}-{number}{path.suffix}" for number in count(1))
        return path.rename(next(name for name in names if not name.exists()))

    def path(self, job: Job) -> Path:
        return self.folder / RUNS / f"{job.id}.parquet"

    def finished(self) -> list[Job]:
        return [job for job in self.sweep.jobs() if self.path(job).exists()]

    def read(self, job: Job) -> Run:
        """The finished run of a job, under the job's label; a damaged or foreign file is refused."""
        try:
            return self._read(job)
        except InputError as error:
            raise InputError(
                f"{error} Delete the file and resume the sweep (--resume) to make the run again."
            ) from error

    def _read(self, job: Job) -> Run:
        path = self.path(job)
        run = Run.read_file(path)
        if not job.made(run):
            raise InputError(f"{path} holds another run than its name.")
        label = job.algorithm.label
        return run if label == job.algorithm.name else replace(run, about=replace(run.about, label=label))

    def write(self, job: Job, content: bytes, seconds: float) -> None:
        with new_file(self.path(job)) as draft:
            draft.write_bytes(content)
        self._failure(job).unlink(missing_ok=True)
        line = json.dumps({"id": job.id, "seconds": round(seconds, 6), "when": datetime.now(UTC).isoformat()})
        with (self.folder / JOURNAL).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def seconds(self) -> dict[str, float]:
        """Seconds that each run took, by id, from the journal; lines that were cut off are left out."""
        journal = self.folder / JOURNAL
        found = dict[str, float]()
        for line in journal.read_text("utf-8").splitlines() if journal.exists() else ():
            with suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                found[entry["id"]] = float(entry["seconds"])
        return found

    def write_failure(self, job: Job, made: Made) -> None:
        what = {"error": made.error, "traceback": made.traceback.splitlines()}
        content = {"id": job.id, "job": job.content(), **what, "when": datetime.now(UTC).isoformat()}
        with new_file(self._failure(job)) as draft:
            draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _failure(self, job: Job) -> Path:
        return self.folder / FAILURES / f"{job.id}.json"


def load_runs(folder: str | Path, *, complete: bool = True) -> list[tuple[Job, Run]]:
    """The runs of a sweep with their jobs, in the order of :meth:`Sweep.jobs`.

    Args:
        folder: a sweep's folder.
        complete: whether missing runs are an error; otherwise they are left out.
    """
    store = Store.open(folder)
    number = len(store.sweep.jobs())
    finished = store.finished()
    if complete and len(finished) < number:
        raise InputError(
            f"{folder} lacks {number - len(finished)} of {number} runs; "
            "finish the sweep with --resume, or pass complete=False."
        )
    times = store.seconds()
    return [(job, replace(store.read(job), wall_seconds=times.get(job.id, math.nan))) for job in finished]


def differences(held: Sweep, given: Sweep) -> str:
    """In words."""
    found = [] if held.name == given.name else [f"this one is called '{given.name}'"]
    there = _values(held)
    here = _values(given)
    for key in there | here:
        for which, values in (("there", there[key] - here[key]), ("here", here[key] - there[key])):
            if values:
                found.append(f"{key} {', '.join(sorted(values)[:MAX_VALUES])} only {which}")
    return "; ".join(found[:MAX_DIFFERENCES]) or "the same values are combined in another way or order"


def _values(sweep: Sweep) -> defaultdict[str, set[str]]:
    """Every value that occurs in a sweep, by key, with parameters and options as separate keys."""
    found = defaultdict[str, set[str]](set)
    for job in sweep.jobs():
        for key, value in job.content().items():
            for name, part in value.items() if isinstance(value, Mapping) else ((key, value),):
                found[name].add(json.dumps(part))
    return found
