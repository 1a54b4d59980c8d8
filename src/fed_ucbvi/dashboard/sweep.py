"""The page of a sweep: how many of its runs are done and failed, and the last of them."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fed_ucbvi.core.numbers import none_for_nan
from fed_ucbvi.dashboard.state import LiveState, Subject
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.run_table import LABELS, key_of, label, names_of, shared
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep
from fed_ucbvi.sweeps.store import FAILURES, RUNS, Store

MAX_ROWS = 200
"""Runs of a sweep that are listed: the last ones."""


class SweepPage:
    """Follows a sweep that this process makes in a folder."""

    def __init__(self, sweep: Sweep, folder: Path) -> None:
        self._store = Store(folder, sweep)
        self.state = LiveState(Subject(f"sweep '{sweep.name}'"))
        self._jobs = {job.id: job for job in sweep.jobs()}
        self._settings = {job.id: job.settings for job in sweep.jobs()}
        self._labels: dict[str, str] = {}
        self._seen: set[str] = set()
        self._rows: deque[dict[str, Any]] = deque(maxlen=MAX_ROWS)
        self._began: tuple[float, int] | None = None

    def look(self) -> None:
        store, jobs = self._store, self._jobs
        for file in sorted((store.folder / RUNS).glob("*.parquet"), key=lambda path: path.stat().st_mtime):
            if file.stem in jobs and file.stem not in self._seen:
                self._seen.add(file.stem)
                self._take(store.read(jobs[file.stem]), jobs[file.stem])
        files = [file for file in sorted((store.folder / FAILURES).glob("*.json")) if file.stem in jobs]
        failed = [json.loads(file.read_text("utf-8")) for file in files]
        if not self._labels:
            names = names_of([*self._settings.values()], "all runs")
            self._labels = {id_: names[key_of(settings)] for id_, settings in self._settings.items()}
        seconds = store.seconds()
        rows = [
            *({"id": one["id"], "seed": _seed(one["job"]), "error": str(one["error"])} for one in failed),
            *({**row, "seconds": seconds.get(row["id"])} for row in reversed(self._rows)),
        ][:MAX_ROWS]
        rows = [{**row, "group": self._labels[row["id"]]} for row in rows]
        left = len(jobs) - len(self._seen) - len(failed)
        counts = {"runs": len(jobs), "done": len(self._seen), "failed": len(failed), "left": self._time_left(left)}
        common = {name: value for name, value in shared([*self._settings.values()]).items() if "." not in name}
        self.state.take_sweep({**counts, "shared": label(common), "rows": rows})

    def _time_left(self, left: int) -> float | None:
        """Seconds for the runs that are left, at the rate since the first look; None if none has ended since."""
        now = time.monotonic()
        began, before = self._began = self._began or (now, left)
        return left * (now - began) / (before - left) if before > left else None

    def _take(self, run: Run, job: Job) -> None:
        """Take a finished run, and from it how its algorithm and its environment are written."""
        known = {"label": run.about.label, "environment_label": run.about.environment_label}
        mine = dict(self._settings[job.id])
        for name, written in LABELS.items():
            if known[written] not in ("", mine[written]):
                self._labels = {}
                for settings in self._settings.values():
                    if (settings[name], settings[written]) == (mine[name], mine[written]):
                        settings[written] = known[written]
        figures = {"value": none_for_nan(run.value), "regret": none_for_nan(run.regret), "rounds": run.rounds}
        self._rows.append({"id": job.id, "seed": _seed(job.content()), **figures})


def _seed(job: Mapping[str, Any]) -> str:
    """The seeds of a run; that of the environment, too, if it is neither the usual one nor the run's."""
    own = job["env_seed"] not in (0, job["seed"])
    return f"{job['seed']}, environment {job['env_seed']}" if own else str(job["seed"])
