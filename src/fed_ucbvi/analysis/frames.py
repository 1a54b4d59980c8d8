"""Runs as Polars frames: one row for each run, or one for each group of runs and number of episodes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer
from fed_ucbvi.results.curves import CURVES
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.run_table import RunTable, checked_runs
from fed_ucbvi.results.settings import LABELS, apart
from fed_ucbvi.results.statistics import mean_interval

if TYPE_CHECKING:
    import polars as pl

POINTS = 50
"""Numbers of episodes of a curve where none are chosen."""
FIGURES = ("mean", "mean_low", "mean_high", "lower_quartile", "median", "upper_quartile")
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
    made, results = [_made_with(run) for run in found], [outcomes(run) for run in found]
    owned: list[dict[str, Any]] = [
        {
            **{f"algorithm.{name}": value for name, value in run.about.parameters.items()},
            **{f"environment.{name}": value for name, value in run.about.environment.items() if name != "name"},
        }
        for run in found
    ]
    for size in SIZES:
        if all(row.get(f"environment.{size}") in (None, here[size]) for here, row in zip(made, owned, strict=True)):
            for row in owned:
                row.pop(f"environment.{size}", None)
    headers = _headers(dict.fromkeys(name for row in owned for name in row), {*made[0], *results[0]})
    parts = (made, [{headers[name]: value for name, value in row.items()} for row in owned], results)
    columns = {name: part for part in parts for name in dict.fromkeys(name for row in part for name in row)}
    return pl.DataFrame([column(name, [row.get(name) for row in part]) for name, part in columns.items()])


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
    who = {"algorithm": about.algorithm, "environment": about.environment.get("name", "custom")}
    return {**who, **{name: getattr(about, name) for name in SIZES}, "seed": about.seed, "driver": about.driver}


def curves_frame(
    runs: Iterable[RunData],
    episodes: Sequence[int] | None = None,
    *,
    metric: str = "regret",
    labels: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """A Polars frame with one row for each group of runs and each number of episodes: their curves.

    Runs that differ only in seeds form a group. ``group`` is its label; each setting in which groups differ has a
    column of its own, too. ``runs`` is how many there are, ``mean`` is their mean with its 95 % interval from
    ``mean_low`` to ``mean_high`` (null for a single run). Half of the runs lie between ``lower_quartile`` and
    ``upper_quartile``, on both sides of the ``median``.

    Args:
        runs: runs with at least one round each.
        episodes: per agent; a group has no row for what not all its runs have played. By default 50 numbers, even on
            a logarithmic axis.
        metric: ``regret`` or ``rounds`` so far, or ``reward``, the mean of an episode so far.
        labels: what to call an algorithm or a group, by its name or by what it would be called otherwise.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> runs = [run(FedUCBVI(nu=50), synthetic(agents=M), 30, seed=seed) for M in (2, 3) for seed in (1, 2)]
    >>> curves_frame(runs, [10, 30], metric="rounds").select("group", "agents", "episodes", "runs").rows()
    [('M = 2', 2, 10, 2), ('M = 2', 2, 30, 2), ('M = 3', 3, 10, 2), ('M = 3', 3, 30, 2)]
    """
    import polars as pl

    check_choice("metric", metric, CURVES)
    table = RunTable.of(runs, labels)
    given = None if episodes is None else [check_positive_integer("a number of episodes", one) for one in episodes]
    differing = [{name: one[name] for name in one if name not in LABELS.values()} for one in apart(table.settings)]
    headers = _headers(dict.fromkeys(name for one in differing for name in one), {"group", "runs", *FIGURES})
    headers |= {"episodes": "planned_episodes"} if "episodes" in headers else {}
    rows: list[dict[str, Any]] = []
    for group, named, others in zip(table, table.divide((), ("", "all runs")), differing, strict=True):
        known = {"group": named.rest_name, **{headers[name]: value for name, value in others.items()}}
        last = min(run.episodes_played for run in group.runs)
        grid = np.geomspace(min(1, last), last, POINTS).round() if given is None else given
        points = np.array([point for point in dict.fromkeys(grid) if 0 < point <= last], dtype=np.int64)
        samples = np.array([CURVES[metric](run, points) for run in group.runs], dtype=np.float64)
        quartiles = np.quantile(samples, [0.25, 0.5, 0.75], axis=0)
        figures = np.vstack([*mean_interval(samples), quartiles])
        if len(group) == 1:
            figures[1:3] = math.nan  # a single run has no interval
        for point, values in zip(points.tolist(), figures.T.tolist(), strict=True):
            rows.append({**known, "episodes": point, "runs": len(group), **dict(zip(FIGURES, values, strict=True))})
    if not rows:
        raise InputError("no group of runs has played that many episodes; choose smaller numbers.")
    columns = ["group", *headers.values(), "episodes", "runs", *FIGURES]
    return pl.DataFrame([column(name, [row.get(name) for row in rows]) for name in columns])


def _headers(settings: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """What the columns of settings are called: by their names, with their owner's where such a name is taken."""
    names = list(settings)
    used = Counter([*(name.rpartition(".")[2] for name in names), *taken])
    return {name: name.replace(".", "_") if used[short := name.rpartition(".")[2]] > 1 else short for name in names}


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
