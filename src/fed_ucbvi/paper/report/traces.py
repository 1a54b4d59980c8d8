"""A run in brief, for analyses: totals, and curves at a few hundred points instead of a record for every round.

A run with 30 000 rounds takes 4 MB of memory, its trace 15 kB; a sweep of thousands of runs fits easily.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.about import About
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.run_table import LABELS, RunGroup, RunTable


@dataclass(frozen=True)
class Trace:
    """A finished run in brief: regret, rounds that ended and their bytes, both ways, at ``points``.

    Points are numbers of episodes from 0 to T, evenly on a logarithmic axis, with T/2 and powers of ten. Fingerprints
    are equal for two runs whose rounds agree in length and regret, and different otherwise.
    """

    about: About
    regret: float
    rounds: int
    bytes_up: int
    bytes_down: int
    rules_fired: Mapping[str, int]
    points: FloatArray
    regret_so_far: FloatArray
    rounds_so_far: FloatArray
    bytes_so_far: FloatArray
    fingerprint: str

    @classmethod
    def of(cls, run: RunData) -> Trace:
        """The trace of a run."""
        points = trace_points(run.episodes_played)
        records = run.records
        bytes_by_round = np.cumsum(records["bytes_up"] + records["bytes_down"])
        bytes_after_rounds = np.concatenate([[0], bytes_by_round])
        rounds_ended = np.searchsorted(run.round_ends, points, side="right")
        content = records["length"].tobytes() + records["regret"].tobytes()
        return cls(
            about=run.about,
            regret=run.regret,
            rounds=run.rounds,
            bytes_up=run.bytes_up,
            bytes_down=run.bytes_down,
            rules_fired=run.rules_fired,
            points=points,
            regret_so_far=run.regret_at(points),
            rounds_so_far=run.rounds_at(points).astype(np.float64),
            bytes_so_far=bytes_after_rounds[rounds_ended].astype(np.float64),
            fingerprint=hashlib.sha256(content).hexdigest(),
        )

    @property
    def episodes_played(self) -> int:
        return int(self.points[-1])

    def regret_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """Regret after so many episodes; linear between points."""
        return self._interpolated(self.regret_so_far, episodes)

    def rounds_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """Rounds that ended after so many episodes; linear between points."""
        return self._interpolated(self.rounds_so_far, episodes)

    def bytes_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """Bytes of the rounds that ended after so many episodes; linear between points."""
        return self._interpolated(self.bytes_so_far, episodes)

    def _interpolated(self, curve: FloatArray, episodes: npt.ArrayLike) -> FloatArray:
        x = np.asarray(episodes, dtype=np.float64)
        return np.asarray(np.interp(x, self.points, curve))


def trace_points(episodes: int) -> FloatArray:
    """Numbers of episodes at which the trace of a run of so many episodes has points."""
    special = [0, episodes / 2, episodes]
    powers = [10**power for power in range(19) if 10**power < episodes]
    evenly = np.geomspace(1, episodes, 400).round()
    return np.unique(np.concatenate([special, powers, evenly]))


Pair = tuple[Any, Trace]
"""A job (:class:`~fed_ucbvi.sweeps.job.Job`), of which ``settings`` and ``seed`` are read, and its run."""
Traces = RunTable[Trace]
"""Runs by the settings of their jobs. Runs with the same seed are paired: they had the same MDP and agents."""
Group = RunGroup[Trace]
Measure = Callable[[Any], float]
"""A number for a trace, or for another run in brief."""
regret: Measure = attrgetter("regret")
rounds: Measure = attrgetter("rounds")


def megabytes(run: Any) -> float:
    """Megabytes sent both ways, all agents together."""
    return float(run.bytes_up + run.bytes_down) / 1e6


def table_of(pairs: Iterable[Pair]) -> Traces:
    """Runs by setting, in the order of the jobs."""
    rows = []
    for job, trace in pairs:
        settings = _with_recorded_labels(job.settings, trace.about)
        seeds = (("run", job.seed),)
        rows.append((settings, seeds, trace))
    return RunTable.of_rows(rows)


def _with_recorded_labels(settings: Mapping[str, Any], about: About) -> dict[str, Any]:
    """The settings with the labels that the run has on record, where the code that defines them is missing."""
    labelled = dict(settings)
    recorded = {"label": about.label, "environment_label": about.environment_label}
    for name, label_name in LABELS.items():
        has_no_label = settings[label_name] == settings[name]
        if has_no_label and recorded[label_name]:
            labelled[label_name] = recorded[label_name]
    return labelled
