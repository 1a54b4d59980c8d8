"""Runs as a table: one row for each run, with its settings and its results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import checked_runs

if TYPE_CHECKING:
    import polars as pl

SIZES = ("agents", "states", "actions", "horizon", "episodes", "eps_p", "eps_r")


def runs_frame(runs: Iterable[RunData]) -> pl.DataFrame:
    """A Polars frame with one row for each run; ``.to_pandas()`` and ``.write_csv(path)`` work on it.

    The first columns are algorithm, environment, sizes, seed and driver. Then come the algorithm's parameters and the
    environment's options, each under its name; a cell is null if the run has no such parameter. The results
    (:func:`outcomes`) come last. Where a name is taken, the parameter is called ``algorithm_NAME`` and the option
    ``environment_NAME``. An option that equals another column in every run (such as the number of agents) is left
    out. Lists are written as JSON texts. Unknown values are null.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> frame = runs_frame(run(FedUCBVI(nu=50), synthetic(agents=2), 30, seed=seed) for seed in (1, 2))
    >>> frame.select("algorithm", "environment", "nu", "environment_seed", "seed").rows()
    [('fed-ucbvi', 'synthetic', 50, 0, 1), ('fed-ucbvi', 'synthetic', 50, 0, 2)]
    """
    import polars as pl

    found = checked_runs(runs)
    made = [_made_with(run) for run in found]
    results = [outcomes(run) for run in found]
    parameters = [dict(run.about.parameters) for run in found]
    options = [{name: value for name, value in run.about.environment.items() if name != "name"} for run in found]
    taken = {*made[0], *results[0]}
    known = _names(options) - {name for name in _names(options) & set(made[0]) if _says_the_same(name, made, options)}
    both = _names(parameters) & known
    parameters = [_renamed(row, "algorithm", taken | both) for row in parameters]
    options = [
        _renamed({name: row[name] for name in row if name in known}, "environment", taken | both) for row in options
    ]
    columns: dict[str, list[Any]] = {}
    for part in (made, parameters, options, results):
        for name in dict.fromkeys(name for row in part for name in row):
            columns[name] = [row.get(name) for row in part]
    return pl.DataFrame([column(name, values) for name, values in columns.items()])


def outcomes(run: RunData) -> dict[str, float | int | bool]:
    """The results of a run: ``regret`` is the common regret, bytes are those of all agents, values are per episode.

    ``value`` and ``simple_regret`` are the recommended policy's in the common MDP, ``agents_value`` is what it is
    worth to the agents on average. ``federated_regret_low`` and ``_high`` are the ends of its bracket; they are equal
    where it is known exactly.
    """
    federated = run.federated_regret
    return {
        "episodes_played": run.episodes_played,
        "complete": run.complete,
        "regret": run.regret,
        "federated_regret_low": federated.lower,
        "federated_regret_high": federated.upper,
        "average_reward": run.average_reward,
        "value": run.value,
        "optimal_value": run.about.optimal_value,
        "simple_regret": run.simple_regret,
        "agents_value": run.agents_value.mean,
        "rounds": run.rounds,
        "bytes": run.bytes_up + run.bytes_down,
        "bytes_up": run.bytes_up,
        "bytes_down": run.bytes_down,
        "wall_seconds": run.wall_seconds,
    }


def _made_with(run: RunData) -> dict[str, Any]:
    about = run.about
    sizes = {name: getattr(about, name) for name in SIZES}
    environment = about.environment.get("name", "custom")
    return {
        "algorithm": about.algorithm,
        "environment": environment,
        **sizes,
        "seed": about.seed,
        "driver": about.driver,
    }


def _names(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {name for row in rows for name in row}


def _says_the_same(name: str, made: list[dict[str, Any]], options: list[dict[str, Any]]) -> bool:
    return name != "seed" and all(
        row.get(name) in (None, here[name]) for here, row in zip(made, options, strict=True)
    )


def _renamed(row: Mapping[str, Any], owner: str, taken: set[str]) -> dict[str, Any]:
    return {f"{owner}_{name}" if name in taken else name: value for name, value in row.items()}


def column(name: str, values: list[Any]) -> pl.Series:
    """A column of whole numbers, numbers, truth values or texts; values of several kinds become texts."""
    import polars as pl

    cells = [None if isinstance(value, float) and math.isnan(value) else value for value in values]
    kinds = {type(cell) for cell in cells if cell is not None}
    for wanted, kind in (({bool}, pl.Boolean), ({int}, pl.Int64), ({int, float}, pl.Float64)):
        if kinds and kinds <= wanted:
            return pl.Series(name, cells, dtype=kind)
    return pl.Series(name, [_text(cell) for cell in cells], dtype=pl.String)


def _text(cell: Any) -> str | None:
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell, default=str)
