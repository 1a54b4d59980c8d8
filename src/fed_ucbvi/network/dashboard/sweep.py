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
"""The most runs that are listed: the last ones."""
CURVE_POINTS = 32
"""Points of a group's curve of regret."""


class SweepPage(LiveState):
    """Follows a sweep that this process makes in a folder."""

    def __init__(self, sweep: Sweep, folder: Path) -> None:
        super().__init__(Subject(f"sweep '{sweep.name}'"))
        self._store = Store(folder, sweep)
        settings = {job.id: job.settings for job in sweep.jobs()}
        names = names_of([*settings.values()], "all runs")
        common = {name: value for name, value in shared([*settings.values()]).items() if "." not in name}
        self._shared = label(common)
        self._about = {
            job.id: {
                "id": job.id,
                "seed": _seeds(job.seed, job.problem.env_seed),
                "group": names[key_of(settings[job.id])],
            }
            for job in sweep.jobs()
        }
        self._jobs = {job.id: job for job in sweep.jobs()}
        self._done: dict[str, dict[str, Any]] = {}
        self._curves: dict[str, FloatArray] = {}
        """The regret of each finished run at even shares of its episodes."""
        self._began: tuple[float, int] | None = None

    def look(self) -> None:
        store = self._store
        for file in sorted(
            (store.folder / RUNS).glob("*.parquet"),
            key=lambda path: path.stat().st_mtime,
        ):
            if file.stem in self._jobs and file.stem not in self._done:
                run = store.read(self._jobs[file.stem])
                figures = {
                    "value": none_for_nan(run.value),
                    "regret": none_for_nan(run.regret),
                    "rounds": run.rounds,
                }
                self._done[file.stem] = self._about[file.stem] | figures
                self._curves[file.stem] = _curve_of(run)
        failed = [
            self._about[file.stem] | {"error": str(json.loads(file.read_text("utf-8"))["error"])}
            for file in sorted((store.folder / FAILURES).glob("*.json"))
            if file.stem in self._jobs
        ]
        left = len(self._jobs) - len(self._done) - len(failed)
        counts = {
            "runs": len(self._jobs),
            "done": len(self._done),
            "failed": len(failed),
        }
        seconds = store.seconds()
        done = [row | {"seconds": seconds.get(row["id"])} for row in islice(reversed(self._done.values()), MAX_ROWS)]
        sweep = {
            **counts,
            "left": self._time_left(left),
            "shared": self._shared,
            "rows": [*failed, *done][:MAX_ROWS],
        }
        sweep["groups"] = self._groups(failed)
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
            row: dict[str, Any] = {"name": name, "runs": len(ids), "done": len(done)}
            row["failed"] = sum(id_ in errors for id_ in ids)
            regret = _known([self._done[id_]["regret"] for id_ in done])
            value = _known([self._done[id_]["value"] for id_ in done])
            median = float(np.median(regret)) if len(regret) else None
            row["mean"] = float(regret.mean()) if len(regret) else None
            row["median"] = median
            if median is None or median < 0:
                row["outliers"] = 0
            else:
                row["outliers"] = int((regret > FAILING * median).sum())
            row["value"] = float(value.mean()) if len(value) else None
            if done:
                row["rounds"] = float(np.mean([self._done[id_]["rounds"] for id_ in done]))
            else:
                row["rounds"] = None
            curves = [self._curves[id_] for id_ in done if np.isfinite(self._curves[id_]).all()]
            if curves:
                row["curve"] = np.mean(curves, axis=0).round(6).tolist()
            else:
                row["curve"] = []
            groups.append(row)
        return groups

    def _time_left(self, left: int) -> float | None:
        """Seconds for the remaining runs, at the rate since the first look; None if none has ended since."""
        now = time.monotonic()
        began, before = self._began = self._began or (now, left)
        return left * (now - began) / (before - left) if before > left else None


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
