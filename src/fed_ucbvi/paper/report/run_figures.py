"""Curves, panels and tables of groups of runs, the same way in every report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.text import shortened
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper.report.content import Cell, Table
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.paper.report.traces import Group, Measure, Traces, megabytes, regret, rounds
from fed_ucbvi.results.about import colour_of, label_of
from fed_ucbvi.results.looks import look_of
from fed_ucbvi.results.run_table import apart, key_of
from fed_ucbvi.results.statistics import FAILING, INTERVAL_NAME, Estimate, mean_interval

MAX_CARRIED = 3
"""The most groups that a caption names because a few runs carry their means."""
MAX_CELL_LENGTH = 40
"""Characters of a setting in a cell of a table; longer ones are cut."""
FAILING_TEXT = f"Failing: with more than {FAILING:g} times the median regret, and the 95 % interval of their share."
EPISODES_LABEL = "Episodes per agent, T"
REGRET_LABEL = "Common regret"
ROUNDS_LABEL = "Communication rounds"
AGENTS_LABEL = "Agents, M"
BYTES_LABEL = "Megabytes sent so far"


def eps_text(eps_p: float) -> str:
    """A heterogeneity with its symbol.

    >>> eps_text(0.316228)
    'εₚ = 0.32'
    """
    return f"εₚ = {eps_p:.2g}"


def cell_text(group: Group) -> str:
    return f"M = {group['agents']} and {eps_text(group['eps_p'])}"


def band_text(table: Iterable[Group]) -> str:
    """Meaning of bands, and groups whose means a few runs carry, for captions."""
    groups = list(table)
    sizes = sorted({len(group) for group in groups})
    if not sizes or sizes[-1] == 1:
        return "One run each."
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"Mean of {count} runs, band: {INTERVAL_NAME}.{_carried_text(groups)}"


def _carried_text(groups: Sequence[Group]) -> str:
    """Sentence on the groups with failing runs, those with the largest means for their medians first."""
    carried = [group for group in groups if group.summary(regret).failing]
    if not carried:
        return ""
    carried.sort(key=_median_over_mean)
    parts = [_carried_part(group) for group in carried[:MAX_CARRIED]]
    others = len(carried) - MAX_CARRIED
    more = f" and {others} more" if others > 0 else ""
    return f" Few runs, with over {FAILING:g} times the median, carry the mean of {'; '.join(parts)}{more}."


def _median_over_mean(group: Group) -> float:
    summary = group.summary(regret)
    return summary.median / summary.mean if summary.mean else 1.0


def _carried_part(group: Group) -> str:
    summary = group.summary(regret)
    where = f"{group['label']} on {label_of(group['environment'])} at {cell_text(group)}"
    share = f"{summary.failing} of {summary.runs}"
    return f"{where} ({share}, mean {summary.mean:,.0f}, median {summary.median:,.0f})"


def bars(algorithm: str, x: Sequence[Any], estimates: Iterable[Estimate], **style: Any) -> Series:
    """Points with a bar from the low to the high end of each estimate, in the colour of an algorithm.

    ``style`` are fields of the series that replace those of the algorithm.
    """
    shown = list(estimates)
    series = Series(
        name=label_of(algorithm),
        colour=colour_of(algorithm),
        x=x,
        y=[estimate.mean for estimate in shown],
        low=[estimate.low for estimate in shown],
        high=[estimate.high for estimate in shown],
        line=False,
        band=INTERVAL_NAME,
    )
    return replace(series, **style)


def banded(algorithm: str, x: Sequence[Any], samples: FloatArray | Sequence[FloatArray], **style: Any) -> Series:
    """Means of ``samples[run][x]`` in the colour and with the marker of an algorithm.

    With more than one run, the series has the interval of the means as its band. ``style`` are fields of the series
    that replace those of the algorithm.
    """
    mean, low, high = mean_interval(samples)
    series = Series(
        name=label_of(algorithm),
        colour=colour_of(algorithm),
        x=x,
        y=mean.tolist(),
        marker=look_of(algorithm).marker,
    )
    if len(samples) > 1:
        series = replace(series, low=low.tolist(), high=high.tolist(), band=INTERVAL_NAME)
    return replace(series, **style)


def episodes_grid(group: Group) -> npt.NDArray[np.int64]:
    """Numbers of episodes at which the curve of a group has points."""
    last = min(run.episodes_played for run in group.runs)
    return np.unique(np.geomspace(min(10, last), last, 33).round().astype(np.int64))


def over_episodes(group: Group, **style: Any) -> Series:
    """Common regret of a group against episodes."""
    points = episodes_grid(group)
    samples = [run.regret_at(points) for run in group.runs]
    return banded(group["algorithm"], points.tolist(), samples, **style)


def over_bytes(group: Group, **style: Any) -> Series | None:
    """Common regret of a group against the megabytes sent by then; None if nothing was sent."""
    points = episodes_grid(group)
    sent = np.mean([run.bytes_at(points) for run in group.runs], axis=0) / 1e6
    if not (sent > 0).any():
        return None
    points = points[sent > 0]
    x = sent[sent > 0].tolist()
    samples = [run.regret_at(points) for run in group.runs]
    return banded(group["algorithm"], x, samples, **style)


def over_agents(table: Traces, measure: Measure, **style: Any) -> Series | None:
    """A measure against M, over the seeds that all groups share; None if there are none."""
    order = table.ordered("agents")
    samples = order.in_common(measure)
    if not samples.size:
        return None
    agents = [group["agents"] for group in order]
    return banded(order.groups[0]["algorithm"], agents, samples.T, **style)


def panels_of(
    table: Traces, series_of: Callable[[Traces], Iterable[Series | None]], x_label: str, y_label: str, **axes: Any
) -> list[Panel]:
    """A panel for each environment with the series of ``series_of``; environments without series have none."""
    panels = []
    for name, part in table.parts("environment").items():
        series = [one for one in series_of(part) if one is not None]
        if series:
            panels.append(Panel(title=label_of(name), x_label=x_label, y_label=y_label, series=series, **axes))
    return panels


Column = str | tuple[str, str | Callable[[Group], Cell]]
"""Name of a column, with the function that computes a cell or the name of a usual column; or the latter alone."""
COLUMNS: dict[str, Callable[[Group], Cell]] = {
    "environment": lambda group: str(group["environment_label"] or label_of(group["environment"])),
    "algorithm": lambda group: label_of(group["algorithm"]),
    "label": lambda group: str(group["label"]),
    "M": lambda group: int(group["agents"]),
    "εₚ": lambda group: f"{group['eps_p']:.2g}",
    "T": lambda group: int(group["episodes"]),
    "runs": len,
    "regret": lambda group: group.estimate(regret),
    "median": lambda group: group.summary(regret).median,
    "failing": lambda group: group.summary(regret).failing_text,
    "rounds": lambda group: group.estimate(rounds),
    "MB": lambda group: group.estimate(megabytes),
}
"""Usual columns by name."""


def table_of_groups(
    id_: str,
    title: str,
    table: Iterable[Group],
    columns: Iterable[Column],
    caption: str = "",
    *,
    heading_columns: int = 0,
) -> Table:
    """A row for each group; the caption ends with the meaning of intervals."""
    groups = list(table)
    names = []
    cells = []
    for column in columns:
        name, cell = (column, column) if isinstance(column, str) else column
        names.append(name)
        cells.append(COLUMNS[cell] if isinstance(cell, str) else cell)
    return Table(
        id=id_,
        title=title,
        caption=f"{caption} {band_text(groups)}".strip(),
        columns=names,
        rows=[[cell(group) for cell in cells] for group in groups],
        heading_columns=heading_columns,
    )


def cells_table(table: Traces, id_: str, title: str) -> Table:
    """Mean regret, rounds and megabytes of every group of runs that differ in seeds alone, problem by problem.

    There is a column for each parameter and option in which groups differ. Environment, options and T are the
    heading of the groups of one problem.
    """
    settings = [{name: value for name, value in one.items() if name != "label"} for one in table.settings]
    differing = dict.fromkeys(name for one in apart(settings) for name in one)
    parameters = _names_without_owner(differing, "algorithm")
    options = _names_without_owner(differing, "environment")
    problem: list[Column] = ["environment"]
    for name, key in options.items():
        shown = f"{name} (environment)" if name in parameters else name
        problem.append((shown, _setting(key)))
    problem.append("T")
    algorithm: list[Column] = ["algorithm"]
    if any(group["label"] != label_of(group["algorithm"]) for group in table):
        algorithm.append("label")
    for name, key in parameters.items():
        algorithm.append((name, _setting(key)))
    figures: list[Column] = ["M", "εₚ", "runs", "regret", "median", "failing", "rounds", "MB"]
    return table_of_groups(
        id_,
        title,
        sorted(table, key=_order),
        [*problem, *algorithm, *figures],
        caption=f"{FAILING_TEXT} MB: both ways, all agents together.",
        heading_columns=len(problem),
    )


def _names_without_owner(settings: Iterable[str], owner: str) -> dict[str, str]:
    """Settings that begin with ``owner`` and a dot, by the rest of their names."""
    start = f"{owner}."
    return {name.removeprefix(start): name for name in settings if name.startswith(start)}


def _order(group: Group) -> tuple[Any, ...]:
    """By problem, then by algorithm, label and parameters, then by M and eps_p."""
    options = {name: value for name, value in group.settings.items() if name.startswith("environment.")}
    parameters = {name: value for name, value in group.settings.items() if name.startswith("algorithm.")}
    return (
        group["environment"],
        key_of(options),
        group["episodes"],
        group["algorithm"],
        group["label"],
        key_of(parameters),
        group["agents"],
        group["eps_p"],
    )


def _setting(name: str) -> Callable[[Group], Cell]:
    """A setting as a cell; empty if a group has none of this name."""

    def cell(group: Group) -> Cell:
        value = group[name]
        if value is None or type(value) in (int, float):
            return value  # type: ignore[no-any-return]
        text = value if isinstance(value, str) else json.dumps(value)
        return shortened(text, MAX_CELL_LENGTH)

    return cell
