"""The standing comparison: every algorithm on every environment, from one row a run.

``leaderboard.toml`` says what is run, ``leaderboard.csv`` holds a row for each run. All tables and figures follow
from these rows, so that they are made without running anything. Rows of one's own algorithms can be added to them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from fed_ucbvi.algorithms import ALGORITHMS, class_of
from fed_ucbvi.core.defaults import ALGORITHM
from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.files import reading
from fed_ucbvi.environments import current_name
from fed_ucbvi.report.content import Interval
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.statistics import mean_interval
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep

DEFINITION, TABLE = "leaderboard.toml", "leaderboard.csv"
QUICK = 50
"""A quick comparison has this many times fewer episodes, and two seeds."""


class Row(NamedTuple):
    """One run.

    Attributes:
        environment: its name.
        algorithm: its name.
        agents: M.
        episodes: T.
        seed: of the run and of the environment.
        regret: the common regret.
        rounds: of communication.
        bytes_up: from all agents to the server.
        bytes_down: from the server to all agents.
        value: what the recommended policy is worth to the agents, on average.
        best: what the best shared policy is worth to them (the upper end where only a bracket is known).
    """

    environment: str
    algorithm: str
    agents: int
    episodes: int
    seed: int
    regret: float
    rounds: int
    bytes_up: int
    bytes_down: int
    value: float
    best: float

    @classmethod
    def of(cls, job: Job, run: RunData) -> Row:
        """The row of a run; floats have seven digits."""
        floats = (run.regret, run.agents_value.mean, run.about.best_common_value.upper)
        regret, value, best = (float(f"{number:.7g}") for number in floats)
        sent = run.bytes_up, run.bytes_down
        sizes = run.about.agents, run.about.episodes, run.about.seed
        return cls(job.environment, job.algorithm, *sizes, regret, run.rounds, *sent, value, best)

    @property
    def megabytes(self) -> float:
        """Sent in both directions, in millions of bytes."""
        return (self.bytes_up + self.bytes_down) / 1e6

    @property
    def share(self) -> float:
        """The recommended policy's value as a share of the best shared policy's."""
        return self.value / self.best


Rows = Sequence[Row]


@dataclass(frozen=True)
class Board:
    """What is compared.

    Attributes:
        agents: M of algorithms for several agents.
        eps_p: how much agents differ.
        seeds: runs of each.
        episodes: T by environment, in the order in which environments are shown.
        excluded: why an environment, or an ``ALGORITHM on ENVIRONMENT``, is left out.
        notes: on the rows.
    """

    agents: int
    eps_p: float
    seeds: int
    episodes: Mapping[str, int]
    excluded: Mapping[str, str]
    notes: Sequence[str] = ()

    @classmethod
    def standing(cls) -> Board:
        """The one of this package."""
        return cls(**tomllib.loads((files(__package__) / DEFINITION).read_text(encoding="utf-8")))

    def quick(self) -> Board:
        """The same with little data."""
        shorter = {name: max(1, T // QUICK) for name, T in self.episodes.items()}
        return Board(self.agents, self.eps_p, 2, shorter, self.excluded)

    def without(self, environments: Iterable[str]) -> Board:
        """The same with these environments left out."""
        names = [current_name(name) for name in environments]
        for name in names:
            if name not in self.episodes:
                raise unknown_name("environment of the leaderboard", name, self.episodes)
        rest = {name: T for name, T in self.episodes.items() if name not in names}
        if not rest:
            raise InputError("every environment is left out; keep at least one.")
        return replace(self, episodes=rest, excluded={**self.excluded, **dict.fromkeys(names, "by request")})

    def sweep(self, algorithms: Iterable[str] = ALGORITHMS) -> Sweep:
        """All runs of these algorithms; every environment is drawn from each run's seed."""
        names = list(algorithms)
        grids = []
        for environment, episodes in self.episodes.items():
            for single in (False, True):
                chosen = [
                    name
                    for name in names
                    if class_of(name).single_agent is single and f"{name} on {environment}" not in self.excluded
                ]
                grid: dict[str, Any] = {"algorithms": chosen, "environments": [environment], "episodes": [episodes]}
                grid |= {"agents": [1 if single else self.agents], "eps_p": [self.eps_p]}
                grids += [{**grid, "seeds": self.seeds, "env_seed": "seed"}] if chosen else []
        return Sweep(name="leaderboard", grids=grids)

    def in_order(self, rows: Rows) -> list[Row]:
        """The rows by environment, algorithm and seed; algorithms of this package come first."""
        environments, algorithms = (
            list(self.episodes),
            [*dict.fromkeys((*ALGORITHMS, *(row.algorithm for row in rows)))],
        )
        return sorted(
            rows, key=lambda row: (environments.index(row.environment), algorithms.index(row.algorithm), row.seed)
        )


# ------------------------------------------------------------------------------------------------------- rows


def standing_rows() -> list[Row]:
    """The rows of this package."""
    return read_rows(Path(str(files(__package__) / TABLE)))


def read_rows(path: Path) -> list[Row]:
    """The rows that :func:`write_rows` wrote."""
    import polars as pl

    kinds = {name: {str: pl.String, int: pl.Int64, float: pl.Float64}[kind] for name, kind in _columns().items()}
    with reading(path):
        return [Row(*cells) for cells in pl.read_csv(path, schema=kinds).rows()]


def write_rows(rows: Rows, path: Path) -> None:
    """One line a run, as CSV."""
    import polars as pl

    pl.DataFrame(rows, schema=list(Row._fields), orient="row").write_csv(path)


def _columns() -> dict[str, type]:
    return {name: kind for name, kind in get_type_hints(Row).items() if name in Row._fields}


# ------------------------------------------------------------------------------------------------- what they say


class Place(NamedTuple):
    """An algorithm on one environment: means over seeds with their 95 % intervals."""

    algorithm: str
    agents: int
    seeds: int
    regret: Interval
    rounds: Interval
    megabytes: Interval
    share: Interval


class Standing(NamedTuple):
    """An algorithm over all environments: geometric means of ratios to the baseline, paired by seed.

    Attributes:
        algorithm: its name.
        environments: on how many.
        regret: ratio of regrets, with the 95 % interval over seeds.
        rounds: ratio of rounds.
        megabytes: ratio of bytes.
        share: mean share of the best shared policy's value.
    """

    algorithm: str
    environments: int
    regret: Interval
    rounds: Interval
    megabytes: Interval
    share: Interval


def places(rows: Rows, environment: str) -> list[Place]:
    """The algorithms on an environment, the least regret first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.environment == environment:
            found.setdefault(row.algorithm, []).append(row)
    made = [
        Place(
            name,
            lot[0].agents,
            len(lot),
            *(
                _mean([float(getattr(row, measure)) for row in lot])
                for measure in ("regret", "rounds", "megabytes", "share")
            ),
        )
        for name, lot in found.items()
    ]
    return sorted(made, key=lambda place: place.regret.mean)


def standings(rows: Rows, baseline: str = ALGORITHM) -> list[Standing]:
    """The algorithms over all environments on which they ran, the least regret first."""
    by_run = {(row.algorithm, row.environment, row.seed): row for row in rows}
    made = []
    for name in dict.fromkeys(row.algorithm for row in rows):
        pairs: dict[int, list[tuple[Row, Row]]] = {}
        for (algorithm, environment, seed), row in by_run.items():
            if algorithm == name and (base := by_run.get((baseline, environment, seed))) is not None:
                pairs.setdefault(seed, []).append((row, base))
        if not pairs:
            raise InputError(f"{name} has no run that can be compared with one of {baseline}.")
        regret, rounds, megabytes = (_ratio(pairs, measure) for measure in ("regret", "rounds", "megabytes"))
        share = _mean([float(np.mean([row.share for row, _ in lot])) for lot in pairs.values()])
        environments = {row.environment for lot in pairs.values() for row, _ in lot}
        made.append(Standing(name, len(environments), regret, rounds, megabytes, share))
    return sorted(made, key=lambda standing: standing.regret.mean)


def summary(rows: Rows) -> dict[str, Any]:
    """Standings and places, ready for JSON."""
    environments = dict.fromkeys(row.environment for row in rows)
    return {
        "runs": len(rows),
        "overall": [_plain(one) for one in standings(rows)],
        "environments": {name: [_plain(one) for one in places(rows, name)] for name in environments},
    }


def _plain(one: Place | Standing) -> dict[str, Any]:
    return {name: asdict(cell) if isinstance(cell, Interval) else cell for name, cell in one._asdict().items()}


def _ratio(pairs: Mapping[int, Sequence[tuple[Row, Row]]], measure: str) -> Interval:
    """The geometric mean over environments of ratios to the baseline, for each seed, and its interval over seeds."""
    logs = [
        float(np.mean([math.log(getattr(row, measure) / getattr(base, measure)) for row, base in lot]))
        for lot in pairs.values()
    ]
    return Interval(*(math.exp(float(end)) for end in mean_interval(logs)))


def _mean(values: Sequence[float]) -> Interval:
    return Interval(*(float(end) for end in mean_interval(values)))
