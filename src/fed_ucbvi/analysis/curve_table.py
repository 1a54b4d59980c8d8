"""Curves of groups of runs as a table: means and medians over seeds at chosen numbers of episodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.analysis.run_table import column
from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer
from fed_ucbvi.results.curves import CURVES
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import (
    LABELS,
    apart,
    check_own_labels,
    group_runs,
    key_of,
    names_of,
    relabelled,
    settings_of,
)
from fed_ucbvi.results.statistics import mean_interval

if TYPE_CHECKING:
    import polars as pl

POINTS = 50
"""Numbers of episodes where none are chosen."""
FIGURES = ("mean", "mean_low", "mean_high", "lower_quartile", "median", "upper_quartile")


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
    groups = group_runs(runs)
    settings = relabelled([settings_of(group[0].about) for group in groups], labels or {})
    names = names_of(settings, "all runs", own=labels)
    check_own_labels(labels, settings, names.values())
    given = None if episodes is None else [check_positive_integer("a number of episodes", one) for one in episodes]
    differing = [{name: one[name] for name in one if name not in LABELS.values()} for one in apart(settings)]
    headers = _headers(dict.fromkeys(name for one in differing for name in one))
    rows: list[dict[str, Any]] = []
    for group, mine, others in zip(groups, settings, differing, strict=True):
        known = {"group": names[key_of(mine)], **{headers[name]: value for name, value in others.items()}}
        last = min(run.episodes_played for run in group)
        grid = np.geomspace(min(1, last), last, POINTS).round() if given is None else given
        points = np.array([point for point in dict.fromkeys(grid) if 0 < point <= last], dtype=np.int64)
        samples = np.array([CURVES[metric](run, points) for run in group], dtype=np.float64)
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


def _headers(settings: Iterable[str]) -> dict[str, str]:
    """What the columns of settings are called: by their names, with their owner's where such a name is taken."""
    taken = {"group", "runs", *FIGURES}
    headers: dict[str, str] = {}
    for name in settings:
        short = "planned_episodes" if name == "episodes" else name.rpartition(".")[2]
        headers[name] = name.replace(".", "_") if short in taken else short
        taken.add(headers[name])
    return headers
