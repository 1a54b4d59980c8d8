"""A run in brief, for analyses: totals, and curves at a few hundred points instead of a record for every round.

A run with 30 000 rounds takes 4 MB of memory, its trace 15 kB; a sweep of thousands of runs fits easily.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.about import About
from fed_ucbvi.results.run import Run
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.store import Store

POINTS = 400


@dataclass(frozen=True)
class Trace:
    """A finished run in brief.

    Attributes:
        about: algorithm, environment, sizes, seed.
        regret: at T.
        rounds: communication rounds.
        bytes_up: from agents to server.
        bytes_down: from server to agents.
        rules_fired: rounds by the rule that triggered them.
        points: numbers of episodes, from 0 to T, evenly on a logarithmic axis, with T/2 and powers of ten.
        regret_so_far: the common regret at these points.
        rounds_so_far: rounds that ended by then.
        bytes_so_far: bytes of these rounds, both ways.
        fingerprint: equal for two runs whose rounds agree in length and regret, and different otherwise.
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
    def of(cls, run: Run) -> Trace:
        """The trace of a run."""
        last = run.episodes_played
        powers = [10**power for power in range(19) if 10**power < last]
        grid = np.unique(np.concatenate([[0, last / 2, last], powers, np.geomspace(1, last, POINTS).round()]))
        records = run.records
        sent = np.concatenate([[0], np.cumsum(records["bytes_up"] + records["bytes_down"])])
        content = b"".join(records[name].tobytes() for name in ("length", "regret"))
        return cls(
            about=run.about,
            regret=run.regret,
            rounds=run.rounds,
            bytes_up=run.bytes_up,
            bytes_down=run.bytes_down,
            rules_fired=run.rules_fired,
            points=grid,
            regret_so_far=run.regret_at(grid),
            rounds_so_far=run.rounds_at(grid).astype(np.float64),
            bytes_so_far=sent[np.searchsorted(run.round_ends, grid, side="right")].astype(np.float64),
            fingerprint=hashlib.sha256(content).hexdigest(),
        )

    @property
    def episodes_played(self) -> int:
        """T."""
        return int(self.points[-1])

    def regret_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """The common regret after ``episodes`` episodes, linear between points."""
        return np.asarray(np.interp(np.asarray(episodes, dtype=np.float64), self.points, self.regret_so_far))

    def rounds_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """Rounds within ``episodes`` episodes, linear between points."""
        return np.asarray(np.interp(np.asarray(episodes, dtype=np.float64), self.points, self.rounds_so_far))

    def bytes_at(self, episodes: npt.ArrayLike) -> FloatArray:
        """Bytes both ways within ``episodes`` episodes, linear between points."""
        return np.asarray(np.interp(np.asarray(episodes, dtype=np.float64), self.points, self.bytes_so_far))


Pair = tuple[Job, Trace]


def load_pairs(folder: Path, jobs: Iterable[Job]) -> list[Pair]:
    """The jobs whose runs are in a sweep's folder, with their traces."""
    store = Store.open(folder)
    return [(job, Trace.of(store.read(job))) for job in jobs if store.path(job).exists()]
