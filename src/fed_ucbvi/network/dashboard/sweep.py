"""The page of a sweep: how many of its runs are done and failed, figures of groups of seeds, and the last runs."""

from __future__ import annotations

import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.core.numbers import none_for_nan
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.network.dashboard.state import RUNNING, LiveState, Subject
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.run_table import key_of, label, names_of, shared
from fed_ucbvi.results.statistics import FAILING
from fed_ucbvi.sweeps.specification import Sweep
from fed_ucbvi.sweeps.store import FAILURES, RUNS, Store

MAX_ROWS = 200
"""Number of runs that are listed: the last ones."""
CURVE_POINTS = 32
"""Number of points of a group's curve of regret."""


class SweepPage(LiveState):
    """Follows a sweep that this process makes in a folder."""

    def __init__(self, sweep: Sweep, folder: Path) -> None:
        super().__init__(Subject(f"sweep '{sweep.name}'"))
        self._store = Store(folder, sweep)
        jobs = sweep.jobs()
        settings = {job.id: job.settings for job in jobs}
        names = names_of([*settings.values()], "all runs")
        common = {name: value for name, value in shared([*settings.values()]).items() if "." not in name}
        self._shared = label(common)
        self._jobs = {job.id: job for job in jobs}
        self._about = {}
        for job in jobs:
            self._about[job.id] = {
                "id": job.id,
                "seed": _seeds(job.seed, job.problem.env_seed),
                "group": names[key_of(settings[job.id])],
            }
        self._done: dict[str, dict[str, Any]] = {}
        self._curves: dict[str, FloatArray] = {}
        """The regret of each finished run at even shares of its episodes."""
        self._began: tuple[float, int] | None = None

    def look(self) -> None:
        store = self._store
        runs = (store.folder / RUNS).glob("*.parquet")
        for file in sorted(runs, key=lambda path: path.stat().st_mtime):
            id_ = file.stem
            if id_ in self._jobs and id_ not in self._done:
                run = store.read(self._jobs[id_])
                row: dict[str, Any] = dict(self._about[id_])
                row["value"] = none_for_nan(run.value)
                row["regret"] = none_for_nan(run.regret)
                row["rounds"] = run.rounds
                self._done[id_] = row
                self._curves[id_] = _curve_of(run)
        failed = []
        for file in sorted((store.folder / FAILURES).glob("*.json")):
            if file.stem in self._jobs:
                error = str(json.loads(file.read_text("utf-8"))["error"])
                failed.append({**self._about[file.stem], "error": error})
        seconds = store.seconds()
        done = []
        for row in islice(reversed(self._done.values()), MAX_ROWS):
            done.append({**row, "seconds": seconds.get(row["id"])})
        left = len(self._jobs) - len(self._done) - len(failed)
        sweep = {
            "runs": len(self._jobs),
            "done": len(self._done),
            "failed": len(failed),
            "left": self._time_left(left),
            "shared": self._shared,
            "rows": [*failed, *done][:MAX_ROWS],
            "groups": self._groups(failed),
        }
        self._put(sweep=sweep, status={"phase": RUNNING, "text": ""})

    def _groups(self, failed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The figures of the runs that differ by their seeds alone, in the order of the sweep.

        ``outliers`` are runs whose regret is more than three times the median of their group. The curve is the mean
        regret of the finished runs.
        """
        members: dict[str, list[str]] = {}
        for id_, about in self._about.items():
            members.setdefault(about["group"], []).append(id_)
        errors = {row["id"] for row in failed}
        groups = []
        for name, ids in members.items():
            done = [id_ for id_ in ids if id_ in self._done]
            regret = _known([self._done[id_]["regret"] for id_ in done])
            value = _known([self._done[id_]["value"] for id_ in done])
            rounds = _known([self._done[id_]["rounds"] for id_ in done])
            median = float(np.median(regret)) if len(regret) else None
            outliers = 0
            if median is not None and median >= 0:
                outliers = int((regret > FAILING * median).sum())
            curves = [self._curves[id_] for id_ in done if np.isfinite(self._curves[id_]).all()]
            group = {
                "name": name,
                "runs": len(ids),
                "done": len(done),
                "failed": sum(id_ in errors for id_ in ids),
                "mean": _mean(regret),
                "median": median,
                "outliers": outliers,
                "value": _mean(value),
                "rounds": _mean(rounds),
                "curve": np.mean(curves, axis=0).round(6).tolist() if curves else [],
            }
            groups.append(group)
        return groups

    def _time_left(self, left: int) -> float | None:
        """Seconds for the remaining runs, at the rate since the first look; None if none has ended since."""
        now = time.monotonic()
        if self._began is None:
            self._began = (now, left)
        began, left_then = self._began
        ended = left_then - left
        if ended <= 0:
            return None
        return left * (now - began) / ended


def _mean(figures: FloatArray) -> float | None:
    """The mean; None if there are no figures."""
    return float(figures.mean()) if len(figures) else None


def _known(figures: list[float | None]) -> FloatArray:
    """The figures that are known."""
    return np.array([figure for figure in figures if figure is not None], dtype=np.float64)


def _curve_of(run: Run) -> FloatArray:
    """The regret at even shares of the episodes that were played."""
    return np.asarray(
        run.regret_at(np.linspace(0.0, run.episodes_played, CURVE_POINTS)),
        dtype=np.float64,
    )


def _seeds(seed: int, env_seed: int) -> str:
    """The seed, with that of the environment if it is neither the default nor the run's."""
    if env_seed in (0, seed):
        return str(seed)
    return f"{seed}, environment {env_seed}"
