"""Curves, panels and tables of groups of runs, the same way in every report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.charts.panels import Dash, Panel, Series
from fed_ucbvi.core.text import shortened
from fed_ucbvi.report.content import Cell, Estimate, Table
from fed_ucbvi.report.traces import Group, Measure, Traces, environments, megabytes, regret, rounds
from fed_ucbvi.results.settings import apart, key_of
from fed_ucbvi.results.statistics import FAILING, INTERVAL_NAME, mean_interval
from fed_ucbvi.results.style import colour_of, label_of, marker_of

DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted", "dashdot")
CURVE_POINTS = 33
MAX_CARRIED = 3
"""The most groups whose means are said to be carried by a few runs."""
FAILING_TEXT = f"Failing: with more than {FAILING:g} times the median regret, and the 95 % interval of their share."
MAX_CHARACTERS = 40
"""Longer values of options are cut in tables."""
EPISODES_LABEL = "Episodes per agent, T"
REGRET_LABEL = "Common regret"
ROUNDS_LABEL = "Communication rounds"
AGENTS_LABEL = "Agents, M"
BYTES_LABEL = "Megabytes sent so far"


def eps_text(eps_p: float) -> str:
    """How a heterogeneity is written.

    >>> eps_text(0.316228)
    'εₚ = 0.32'
    """
    return f"εₚ = {eps_p:.2g}"


def cell_text(group: Group) -> str:
    return f"M = {group['agents']} and {eps_text(group['eps_p'])}"


def interval(group: Group, measure: Measure) -> Estimate:
    """The mean of a measure over a group, with its 95 % interval as on a logarithmic axis."""
    return Estimate(*(float(end) for end in mean_interval(group.samples(measure))))


def log_bars(spreads: Sequence[Estimate]) -> dict[str, Any]:
    """Means with the ends of their intervals, for a series."""
    ends = {"y": "mean", "low": "low", "high": "high"}
    return {key: [getattr(spread, name) for spread in spreads] for key, name in ends.items()}


def band_text(table: Iterable[Group]) -> str:
    """What bands are, and whose means a few runs carry, for captions."""
    groups = list(table)
    sizes = sorted({len(group) for group in groups})
    if not sizes or sizes[-1] == 1:
        return "One run each."
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    text = f"Mean of {count} runs, band: {INTERVAL_NAME}."
    carried = [(found, group) for group in groups if (found := group.summary(regret)).failing]
    carried.sort(key=lambda one: one[0].median / one[0].mean if one[0].mean else 1.0)
    parts = [
        f"{group['label']} on {label_of(group['environment'])} at {cell_text(group)} ({found.failing} of "
        f"{found.runs}, mean {found.mean:,.0f}, median {found.median:,.0f})"
        for found, group in carried[:MAX_CARRIED]
    ]
    more = f" and {len(carried) - MAX_CARRIED} more" if len(carried) > MAX_CARRIED else ""
    return text + (
        f" Few runs, with over {FAILING:g} times the median, carry the mean of {'; '.join(parts)}{more}."
        if parts
        else ""
    )


def episodes_grid(group: Group) -> npt.NDArray[np.int64]:
    """Episodes at which to draw a curve on a logarithmic axis."""
    last = min(run.episodes_played for run in group.runs)
    return np.unique(np.geomspace(min(10, last), last, CURVE_POINTS).round().astype(np.int64))


def banded(algorithm: str, x: Sequence[float] | Sequence[str], samples: npt.ArrayLike, **style: Any) -> Series:
    """Means of ``samples[run, x]`` with bands for a logarithmic axis, in an algorithm's colour and marker."""
    middle, low, high = mean_interval(samples)
    style = {"name": label_of(algorithm), "colour": colour_of(algorithm)} | style
    style.setdefault("marker", marker_of(algorithm))
    style.setdefault("band", INTERVAL_NAME if len(np.asarray(samples)) > 1 else "")
    return Series(x=x, y=middle.tolist(), low=low.tolist(), high=high.tolist(), **style)


def over_episodes(group: Group, **style: Any) -> Series:
    """The common regret of a group against T."""
    points = episodes_grid(group)
    return banded(group["algorithm"], points.tolist(), [run.regret_at(points) for run in group.runs], **style)


def over_bytes(group: Group, **style: Any) -> Series | None:
    """The common regret of a group against the megabytes sent by then; None if nothing was sent."""
    points = episodes_grid(group)
    sent = np.mean([run.bytes_at(points) for run in group.runs], axis=0) / 1e6
    kept = sent > 0
    if not kept.any():
        return None
    return banded(
        group["algorithm"], sent[kept].tolist(), [run.regret_at(points[kept]) for run in group.runs], **style
    )


def over_agents(table: Traces, measure: Measure, **style: Any) -> Series | None:
    """A measure against M, over the seeds that all groups share; None if there are none."""
    order = sorted(table, key=lambda group: group["agents"])
    samples = Traces(order).in_common(measure)
    if not samples.size:
        return None
    return banded(order[0]["algorithm"], [group["agents"] for group in order], samples.T, **style)


def panels_of(
    table: Traces, series_of: Callable[[Traces], Iterable[Series | None]], x_label: str, y_label: str, **axes: Any
) -> list[Panel]:
    """A panel for each environment with what ``series_of`` draws; without those that would be empty."""
    panels = []
    for environment in environments(table):
        series = [one for one in series_of(table.having(environment=environment)) if one is not None]
        if series:
            panels.append(Panel(label_of(environment), x_label, y_label, series, **axes))
    return panels


Columns = dict[str, Callable[[Group], Cell]]
"""Names of columns, and what a group has in them."""
COLUMNS: Columns = {
    "environment": lambda group: str(group["environment_label"] or label_of(group["environment"])),
    "algorithm": lambda group: label_of(group["algorithm"]),
    "label": lambda group: str(group["label"]),
    "M": lambda group: int(group["agents"]),
    "εₚ": lambda group: f"{group['eps_p']:.2g}",
    "T": lambda group: int(group["episodes"]),
    "runs": len,
    "regret": lambda group: interval(group, regret),
    "median": lambda group: group.summary(regret).median,
    "failing": lambda group: group.summary(regret).failing_text,
    "rounds": lambda group: interval(group, rounds),
    "MB": lambda group: interval(group, megabytes),
}
"""Those of most tables."""


def columns(*names: str) -> Columns:
    """Some of the usual columns."""
    return {name: COLUMNS[name] for name in names}


def table_of_groups(id_: str, title: str, table: Iterable[Group], columns: Columns, caption: str = "") -> Table:
    """A row for each group; every column is a function of it."""
    groups = list(table)
    rows = [[cell(group) for cell in columns.values()] for group in groups]
    return Table(id_, title, f"{caption} {band_text(groups)}".strip(), list(columns), rows)


def cells_table(table: Traces, id_: str, title: str) -> Table:
    """Regret, rounds and megabytes of every group, with a column for each setting in which groups differ."""
    unlabelled = [{name: value for name, value in one.items() if name != "label"} for one in table.settings]
    differing = dict.fromkeys(name for one in apart(unlabelled) for name in one if "." in name)
    parameters = {name.partition(".")[2]: name for name in differing if name.startswith("algorithm.")}
    options = {name.partition(".")[2]: name for name in differing if name.startswith("environment.")}
    labelled = any(group["label"] != label_of(group["algorithm"]) for group in table)
    made: Columns = {
        **columns("environment"),
        **{f"{name} (environment)" if name in parameters else name: _setting(key) for name, key in options.items()},
        **columns("algorithm", *(["label"] if labelled else [])),
        **{name: _setting(key) for name, key in parameters.items()},
        **columns("M", "εₚ", "T", "runs", "regret", "median", "failing", "rounds", "MB"),
    }
    return table_of_groups(
        id_, title, sorted(table, key=_order), made, f"{FAILING_TEXT} MB: both ways, all agents together."
    )


def _order(group: Group) -> tuple[Any, ...]:
    """By environment, algorithm and label, then by parameters, options and sizes."""
    names = ("environment", "algorithm", "label")
    owned = [
        {name: value for name, value in group.settings.items() if name.startswith(f"{one}.")} for one in names[1::-1]
    ]
    sizes = (group["agents"], group["eps_p"], group["episodes"])
    return (*(group[name] for name in names), *map(key_of, owned), *sizes)


def _setting(name: str) -> Callable[[Group], Cell]:
    """A setting as a cell; empty if a group has none of this name."""

    def cell(group: Group) -> Cell:
        value = group[name]
        if value is None or type(value) in (int, float):
            return value  # type: ignore[no-any-return]
        return shortened(value if isinstance(value, str) else json.dumps(value), MAX_CHARACTERS)

    return cell
