"""Groups of runs that differ only in their seed (replicates), with their means, bands and curves.

In experiments the seed of the environment is the seed of the run. So run k of one group and run k of another have the
same MDP and the same agents, and comparisons are paired.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.charts.panels import Dash, Series
from fed_ucbvi.paper.traces import Pair, Trace
from fed_ucbvi.paper.wording import differing, value_text
from fed_ucbvi.report.content import Cell, Interval, Table
from fed_ucbvi.results.settings import settings_of
from fed_ucbvi.results.statistics import INTERVAL_NAME, Band, mean_interval, on_log_axis
from fed_ucbvi.results.style import colour_of, label_of, marker_of
from fed_ucbvi.sweeps.job import Job

DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted", "dashdot")
CURVE_POINTS = 33


class Key(NamedTuple):
    """What the runs of a group share; ``parameters`` and ``options`` (of the environment) are JSON texts."""

    environment: str
    algorithm: str
    label: str
    parameters: str
    options: str
    agents: int
    eps_p: float
    episodes: int


SeedGroups = Mapping[Key, Sequence[Trace]]
Measure = Callable[[Trace], float]


def key_of(job: Job) -> Key:
    """The key of the group to which a run belongs."""
    return Key(
        job.environment,
        job.algorithm,
        job.label,
        json.dumps(job.parameters, sort_keys=True),
        json.dumps(job.environment_options, sort_keys=True),
        job.agents,
        job.eps_p,
        job.episodes,
    )


def seed_groups_of(pairs: Iterable[Pair]) -> dict[Key, list[Trace]]:
    """Runs by group, in the order in which groups first appear; within a group by seed."""
    seed_groups: dict[Key, list[Trace]] = {}
    for job, run in pairs:
        seed_groups.setdefault(key_of(job), []).append(run)
    for replicates in seed_groups.values():
        replicates.sort(key=lambda run: run.about.seed)
    return seed_groups


def having(seed_groups: SeedGroups, **wanted: Any) -> dict[Key, Sequence[Trace]]:
    """The groups whose keys have these values."""
    return {
        key: replicates
        for key, replicates in seed_groups.items()
        if all(getattr(key, name) == value for name, value in wanted.items())
    }


def values(seed_groups: SeedGroups, name: str) -> list[Any]:
    """The values that a part of the keys takes, in ascending order.

    >>> values({Key("e", "a", "a", "", "", m, 0.0, 9): [] for m in (5, 2, 5)}, "agents")
    [2, 5]
    """
    return sorted({getattr(key, name) for key in seed_groups})


def environments(seed_groups: SeedGroups) -> list[str]:
    """The environments, in the order in which they appear."""
    return list(dict.fromkeys(key.environment for key in seed_groups))


def regret(run: Trace) -> float:
    """The common regret at T."""
    return run.regret


def rounds(run: Trace) -> float:
    """Communication rounds."""
    return float(run.rounds)


def megabytes(run: Trace) -> float:
    """Bytes both ways, in millions."""
    return (run.bytes_up + run.bytes_down) / 1e6


def mean(replicates: Sequence[Trace], measure: Measure) -> float:
    """The mean of a measure over a group."""
    return float(np.mean([measure(run) for run in replicates]))


def paired(x: Sequence[Trace], y: Sequence[Trace], measure: Measure) -> tuple[list[float], list[float]]:
    """A measure of two groups, over the seeds that both have, in the same order."""
    others = {run.about.seed: run for run in y}
    both = [(run, others[run.about.seed]) for run in x if run.about.seed in others]
    return [measure(run) for run, _ in both], [measure(run) for _, run in both]


def interval(replicates: Sequence[Trace], measure: Measure) -> Interval:
    """The mean of a measure over a group, with its 95 % interval."""
    middle, low, high = mean_interval([measure(run) for run in replicates])
    return Interval(float(middle), max(0.0, float(low)), float(high))


def log_bars(spreads: Sequence[Interval]) -> dict[str, Any]:
    """Means with the ends of their intervals on a logarithmic axis, for a series."""
    band = Band(*(np.array([getattr(spread, name) for spread in spreads]) for name in ("mean", "low", "high")))
    return {name: ends.tolist() for name, ends in zip(("y", "low", "high"), on_log_axis(band), strict=True)}


def band_text(runs: Iterable[Sequence[Trace]]) -> str:
    """What bands are, for captions."""
    sizes = sorted({len(replicates) for replicates in runs})
    if not sizes or sizes[-1] == 1:
        return "One run each."
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"Mean of {count} runs, band: {INTERVAL_NAME}."


def episodes_grid(replicates: Sequence[Trace], points: int = CURVE_POINTS) -> npt.NDArray[np.int64]:
    """Episodes at which to draw a curve on a logarithmic axis."""
    last = min(run.episodes_played for run in replicates)
    return np.unique(np.geomspace(min(10, last), last, points).round().astype(np.int64))


def banded(
    algorithm: str,
    x: Sequence[float] | Sequence[str],
    samples: npt.ArrayLike,
    *,
    positive: bool = True,
    **style: Any,
) -> Series:
    """A series in the colour and with the marker of an algorithm: means of ``samples[run, x]`` with their bands.

    With ``positive`` bands are those of a logarithmic axis.
    """
    band = mean_interval(samples)
    middle, low, high = on_log_axis(band) if positive else band
    style = {"name": label_of(algorithm), "colour": colour_of(algorithm)} | style
    style.setdefault("marker", marker_of(algorithm))
    style.setdefault("band", INTERVAL_NAME if len(np.asarray(samples)) > 1 else "")
    return Series(x=x, y=middle.tolist(), low=low.tolist(), high=high.tolist(), **style)


def over_episodes(replicates: Sequence[Trace], **style: Any) -> Series:
    """The common regret of a group against T."""
    points = episodes_grid(replicates)
    return banded(
        replicates[0].about.algorithm, points.tolist(), [run.regret_at(points) for run in replicates], **style
    )


def over_bytes(replicates: Sequence[Trace], **style: Any) -> Series | None:
    """The common regret of a group against the megabytes sent by then; None if nothing was sent."""
    points = episodes_grid(replicates)
    sent = np.mean([run.bytes_at(points) for run in replicates], axis=0) / 1e6
    kept = sent > 0
    if not kept.any():
        return None
    samples = [run.regret_at(points[kept]) for run in replicates]
    return banded(replicates[0].about.algorithm, sent[kept].tolist(), samples, **style)


def over_keys(seed_groups: SeedGroups, axis: str, measure: Measure, **style: Any) -> Series | None:
    """A measure against a part of the keys (``agents``), over the seeds that all groups share; None if no group."""
    if not seed_groups:
        return None
    order = sorted(seed_groups, key=lambda key: getattr(key, axis))
    common = set.intersection(*({run.about.seed for run in seed_groups[key]} for key in order))
    if not common:
        return None
    samples = np.array([[measure(run) for run in seed_groups[key] if run.about.seed in common] for key in order]).T
    return banded(order[0].algorithm, [getattr(key, axis) for key in order], samples, **style)


def cells_table(seed_groups: SeedGroups, name: str, title: str) -> Table:
    """Regret, rounds and megabytes of every group, with a column for each setting in which groups differ."""
    options = _columns(seed_groups, "environment", "options")
    parameters = _columns(seed_groups, "algorithm", "parameters")
    labelled = any(key.label != key.algorithm for key in seed_groups)
    columns = (
        "environment",
        *(f"{option} (environment)" if option in parameters else option for option in options),
        "algorithm",
        *(["label"] if labelled else []),
        *parameters,
        *("M", "εₚ", "T", "runs", "regret", "rounds", "MB"),
    )
    rows = [
        (
            written["environment_label"],
            *(_cell(key.options, option) for option in options),
            written["label"] if key.label == key.algorithm else label_of(key.algorithm),
            *([written["label"]] if labelled else []),
            *(_cell(key.parameters, parameter) for parameter in parameters),
            key.agents,
            f"{key.eps_p:.2g}",
            key.episodes,
            len(replicates),
            interval(replicates, regret),
            interval(replicates, rounds),
            interval(replicates, megabytes),
        )
        for key, replicates in sorted(seed_groups.items(), key=lambda item: item[0])
        for written in [settings_of(replicates[0].about)]
    ]
    return Table(name, title, f"MB: both ways, all agents together. {band_text(seed_groups.values())}", columns, rows)


def _columns(seed_groups: SeedGroups, owner: str, what: str) -> list[str]:
    """The options that differ within one environment, or the parameters that differ within one algorithm."""
    texts: dict[str, dict[str, Any]] = {}
    for key in seed_groups:
        texts.setdefault(getattr(key, owner), {})[getattr(key, what)] = json.loads(getattr(key, what))
    return list(dict.fromkeys(name for several in texts.values() for name in differing(list(several.values()))))


def _cell(text: str, name: str) -> Cell:
    """The value of an option as a cell; empty if there is no such option."""
    value = json.loads(text).get(name)
    return value if value is None or type(value) in (int, float) else value_text(value)
