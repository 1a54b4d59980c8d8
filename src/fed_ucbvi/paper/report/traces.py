"""A run in brief, for analyses: totals, and curves at a few hundred points instead of a record for every round.

A run with 30 000 rounds takes 4 MB of memory, its trace 15 kB; a sweep of thousands of runs fits easily.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partialmethod
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

    These are numbers of episodes from 0 to T, evenly on a logarithmic axis, with T/2 and powers of ten. Fingerprints
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
        last = run.episodes_played
        powers = [10**power for power in range(19) if 10**power < last]
        grid = np.unique(np.concatenate([[0, last / 2, last], powers, np.geomspace(1, last, 400).round()]))
        records = run.records
        sent = np.concatenate([[0], np.cumsum(records["bytes_up"] + records["bytes_down"])])
        content = b"".join(records[name].tobytes() for name in ("length", "regret"))
        totals = ("about", "regret", "rounds", "bytes_up", "bytes_down", "rules_fired")
        return cls(
            **{name: getattr(run, name) for name in totals},
            points=grid,
            regret_so_far=run.regret_at(grid),
            rounds_so_far=run.rounds_at(grid).astype(np.float64),
            bytes_so_far=sent[np.searchsorted(run.round_ends, grid, side="right")].astype(np.float64),
            fingerprint=hashlib.sha256(content).hexdigest(),
        )

    @property
    def episodes_played(self) -> int:
        return int(self.points[-1])

    def _at(self, curve: str, episodes: npt.ArrayLike) -> FloatArray:
        """A curve after so many episodes; linear between points."""
        return np.asarray(np.interp(np.asarray(episodes, dtype=np.float64), self.points, getattr(self, curve)))

    regret_at = partialmethod(_at, "regret_so_far")
    rounds_at = partialmethod(_at, "rounds_so_far")
    bytes_at = partialmethod(_at, "bytes_so_far")


Pair = tuple[Any, Trace]
"""A job (:class:`~fed_ucbvi.sweeps.job.Job`), whose ``settings`` and ``seed`` are what was asked for, and its run."""
Traces = RunTable[Trace]
"""Runs by what their jobs asked for. Runs with the same seed are paired: they had the same MDP and agents."""
Group = RunGroup[Trace]
Measure = Callable[[Any], float]
"""Of a trace, or of another run in brief."""
regret: Measure = attrgetter("regret")
rounds: Measure = attrgetter("rounds")


def megabytes(run: Any) -> float:
    """Sent both ways, all agents together."""
    return float(run.bytes_up + run.bytes_down) / 1e6


def table_of(pairs: Iterable[Pair]) -> Traces:
    """Runs by setting, in the order of the jobs."""
    return RunTable.of_rows((_labelled(job.settings, trace), (("run", job.seed),), trace) for job, trace in pairs)


def _labelled(settings: Mapping[str, Any], trace: Trace) -> dict[str, Any]:
    """The settings with the labels that the run has on record, where the code that knows them is missing."""
    unknown = (written for name, written in LABELS.items() if settings[written] == settings[name])
    return {**settings, **{written: text for written in unknown if (text := getattr(trace.about, written))}}
