"""The page of a folder: of a saved run, a sweep, or the checkpoint of a run that may still be in progress."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fed_ucbvi.algorithms import recorded_algorithm
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import manifest_digest, read_manifest, reading
from fed_ucbvi.core.numbers import none_for_nan
from fed_ucbvi.dashboard.state import OVER, RUNNING, STOPPED, LiveState
from fed_ucbvi.dashboard.subject import Subject
from fed_ucbvi.engine.checkpoint import FEDERATION
from fed_ucbvi.engine.checkpoint import FORMAT as CHECKPOINT
from fed_ucbvi.engine.extension import planned_in
from fed_ucbvi.engine.state_store import SavedState, StateStore
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.recommendations import table_of
from fed_ucbvi.results.round_record import columns_of, replay
from fed_ucbvi.results.run import FORMAT as RUN
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.settings import LABELS, key_of, label, names_of, shared
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.store import FAILURES, RUNS, Store
from fed_ucbvi.sweeps.store import FORMAT as SWEEP

FEDERATION_CHECKPOINT = "fed-ucbvi/federation"
"""What a server keeps; its module needs the packages of the network, this one does not."""
MAX_ROWS = 200
"""Runs of a sweep that are listed: the last ones."""
STOPPED_TEXT = "No process is running this sweep; runs missing: {left:,}. Continue with fed-ucbvi sweep ... --resume."

Look = Callable[[], None]
"""Brings a state up to date."""


def state_of_folder(folder: Path) -> tuple[LiveState, Look | None]:
    """What there is to see in a folder, and how to look again; None where nothing can change."""
    kind = read_manifest(folder)["format"]
    if kind == RUN:
        return state_of_run(Run.load(folder)), None
    if kind == SWEEP:
        sweep = WatchedSweep(folder)
        sweep.look()
        return sweep.state, sweep.look
    if kind in (CHECKPOINT, FEDERATION_CHECKPOINT):
        checkpoint = _WatchedCheckpoint(folder)
        checkpoint.look()
        return checkpoint.state, checkpoint.look
    raise InputError(f"{folder} holds a {kind}; there is a page for runs, sweeps and checkpoints of runs.")


def state_of_run(run: Run) -> LiveState:
    state, about = LiveState(Subject.of_about(run.about)), run.about
    columns = (run.records, run.recommendations)
    for record in replay(
        *columns,
        planned_episodes=about.episodes,
        rules=about.rules,
        units=state.subject.units,
        horizon=about.horizon,
    ):
        state(record)
    state.finish(run)
    return state


class WatchedSweep:
    """A sweep: how many runs are done and failed, and the last of them.

    Args:
        folder: of the sweep; it may be made later.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.state = LiveState(Subject("sweep"))
        self._store: Store | None = None
        self._settings: dict[str, dict[str, Any]] = {}
        self._labels: dict[str, str] = {}
        self._seen: set[str] = set()
        self._rows: deque[dict[str, Any]] = deque(maxlen=MAX_ROWS)
        self._began: tuple[float, int] | None = None

    def look(self) -> None:
        if self._store is None:
            self._store = Store.open(self._folder)
            self._settings = {job.id: job.settings for job in self._store.sweep.jobs()}
            self.state.take_subject(Subject(f"sweep '{self._store.sweep.name}'"))
        store, seconds = self._store, self._store.seconds()
        jobs = {job.id: job for job in store.sweep.jobs()}
        in_use = store.in_use  # asked before files are counted, so that the last ones are not missed
        for file in sorted((self._folder / RUNS).glob("*.parquet"), key=lambda path: path.stat().st_mtime):
            if file.stem in jobs and file.stem not in self._seen:
                self._seen.add(file.stem)
                self._take(store.read(jobs[file.stem]), jobs[file.stem])
        files = [file for file in sorted((self._folder / FAILURES).glob("*.json")) if file.stem in jobs]
        failed = [json.loads(file.read_text("utf-8")) for file in files]
        if not self._labels:
            names = names_of([*self._settings.values()], "all runs")
            self._labels = {id_: names[key_of(settings)] for id_, settings in self._settings.items()}
        rows = [
            *({"id": one["id"], "seed": _seed(one["job"]), "error": str(one["error"])} for one in failed),
            *({**row, "seconds": seconds.get(row["id"])} for row in reversed(self._rows)),
        ][:MAX_ROWS]
        rows = [{**row, "group": self._labels[row["id"]]} for row in rows]
        left = len(jobs) - len(self._seen) - len(failed)
        counts = {"runs": len(jobs), "done": len(self._seen), "failed": len(failed), "left": self._time_left(left)}
        phase = RUNNING if in_use else STOPPED if left > 0 else OVER
        text = STOPPED_TEXT.format(left=left) if phase == STOPPED else ""
        common = {name: value for name, value in shared([*self._settings.values()]).items() if "." not in name}
        self.state.take_sweep({**counts, "shared": label(common), "rows": rows}, phase, text)

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


class _WatchedCheckpoint:
    """A run as it stood when its checkpoint was written last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        manifest = read_manifest(folder)
        with reading(folder):
            task = manifest.get("task", manifest)
            self._algorithm = recorded_algorithm(task["algorithm"], task["parameters"])
            described = task.get("environment") or task.get("live") or {}
            layout = None
            if (folder / FEDERATION).is_file():
                federation = Federation.load(folder / FEDERATION)
                described, layout = federation.description, federation.layout
        saved = self._read()
        members = () if saved is None else saved.about.get("members", ())
        units = Units(**members[0]["units"]) if members else Units.of(described)
        parameters = dict(task["parameters"])
        self.state = LiveState(Subject.of(str(task["algorithm"]), parameters, described, layout=layout, units=units))
        self._shown = 0

    def _read(self) -> SavedState | None:
        log = StateStore(self._folder, manifest_digest(self._folder), durable=False)
        return None if log.empty else log.read()

    def look(self) -> None:
        """Take the rounds that are new, and how many agents and episodes the run goes on with."""
        saved = self._read()
        if saved is None:
            return
        planned, (H, S) = planned_in(saved.about), saved.arrays["server.policy"].shape[:2]
        self.state.take_subject(self.state.subject._replace(agents=planned["agents"], states=S, horizon=H))
        tables = columns_of(saved.rows.get("records", ())), table_of(saved.rows.get("recommendations", ()))
        for record in replay(
            *tables,
            planned_episodes=planned["episodes"],
            rules=self._algorithm.rules,
            units=self.state.subject.units,
            horizon=self.state.subject.horizon,
        ):
            if record.round > self._shown:
                self.state(record)
                self._shown = record.round
        if "recommended.policy" in saved.arrays:
            self.state.take_policy(saved.arrays["recommended.policy"])
        if saved.about["done"]:
            self.state.end()
