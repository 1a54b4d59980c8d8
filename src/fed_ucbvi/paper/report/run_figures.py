"""Curves, panels and tables of groups of runs, the same way in every report; and the report on any sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.colours import DASHES
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.text import shortened
from fed_ucbvi.paper.report.content import Cell, Figure, PageContent, Section, Table
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.paper.report.traces import Group, Measure, Traces, megabytes, regret, rounds
from fed_ucbvi.results.about import colour_of, different_colours, label_of
from fed_ucbvi.results.looks import look_of
from fed_ucbvi.results.run_table import ENVIRONMENT_SIZES, apart, key_of, label, settings_of
from fed_ucbvi.results.statistics import FAILING, INTERVAL_NAME, Estimate, mean_interval

MAX_CARRIED = 3
"""The most groups whose means are said to be carried by a few runs."""
FAILING_TEXT = f"Failing: with more than {FAILING:g} times the median regret, and the 95 % interval of their share."
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


def bars(algorithm: str, x: Sequence[Any], spreads: Iterable[Estimate], **style: Any) -> Series:
    """Points with bars from the low to the high end of each estimate, in an algorithm's colour unless said."""
    y, low, high = zip(*spreads, strict=True)
    look = {"name": label_of(algorithm), "colour": colour_of(algorithm), "line": False, "band": INTERVAL_NAME}
    return Series(x=x, y=y, low=low, high=high, **{**look, **style})


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
    few = f" Few runs, with over {FAILING:g} times the median, carry the mean of {'; '.join(parts)}{more}."
    return text + few if parts else text


def episodes_grid(group: Group) -> npt.NDArray[np.int64]:
    last = min(run.episodes_played for run in group.runs)
    return np.unique(np.geomspace(min(10, last), last, 33).round().astype(np.int64))


def banded(algorithm: str, x: Sequence[Any], samples: Any, **style: Any) -> Series:
    """Means of ``samples[run, x]`` with bands for a logarithmic axis, in an algorithm's colour and marker."""
    look = {"name": label_of(algorithm), "colour": colour_of(algorithm), "marker": look_of(algorithm).marker}
    return mean_series(x=x, samples=samples, **{**look, **style})


def mean_series(name: str, colour: str, x: Sequence[Any], samples: Sequence[Any], **style: Any) -> Series:
    """Means of ``samples[run][x]``, with their interval if there is more than one run."""
    mean, low, high = mean_interval(samples)
    if len(samples) == 1:
        return Series(name, colour, x, mean.tolist(), **style)
    ends = {"low": low.tolist(), "high": high.tolist(), "band": INTERVAL_NAME}
    return Series(name, colour, x, mean.tolist(), **ends, **style)


def over_episodes(group: Group, **style: Any) -> Series:
    points = episodes_grid(group)
    return banded(group["algorithm"], points.tolist(), [run.regret_at(points) for run in group.runs], **style)


def over_bytes(group: Group, **style: Any) -> Series | None:
    """The common regret of a group against the megabytes sent by then; None if nothing was sent."""
    points = episodes_grid(group)
    sent = np.mean([run.bytes_at(points) for run in group.runs], axis=0) / 1e6
    x = sent[sent > 0].tolist()
    points = points[sent > 0]
    return banded(group["algorithm"], x, [run.regret_at(points) for run in group.runs], **style) if x else None


def over_agents(table: Traces, measure: Measure, **style: Any) -> Series | None:
    """A measure against M, over the seeds that all groups share; None if there are none."""
    order = table.ordered("agents")
    samples = order.in_common(measure)
    if not samples.size:
        return None
    return banded(order.groups[0]["algorithm"], [group["agents"] for group in order], samples.T, **style)


def panels_of(
    table: Traces, series_of: Callable[[Traces], Iterable[Series | None]], x_label: str, y_label: str, **axes: Any
) -> list[Panel]:
    """A panel for each environment with what ``series_of`` draws; without those that would be empty."""
    drawn = {name: [one for one in series_of(part) if one] for name, part in table.parts("environment").items()}
    return [Panel(label_of(name), x_label, y_label, series, **axes) for name, series in drawn.items() if series]


Column = str | tuple[str, str | Callable[[Group], Cell]]
"""The name of a column, and what a group has in it or which of the usual columns it is; or a usual one's name."""
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
"""The usual ones."""


def table_of_groups(
    id_: str, title: str, table: Iterable[Group], columns: Iterable[Column], caption: str = ""
) -> Table:
    groups = list(table)
    names = []
    cells = []
    for column in columns:
        name, cell = (column, column) if isinstance(column, str) else column
        names.append(name)
        cells.append(COLUMNS[cell] if isinstance(cell, str) else cell)
    rows = [[cell(group) for cell in cells] for group in groups]
    return Table(id_, title, f"{caption} {band_text(groups)}".strip(), names, rows)


def cells_table(table: Traces, id_: str, title: str) -> Table:
    """Regret, rounds and megabytes of every group, with a column for each setting in which groups differ."""
    unlabelled = [{name: value for name, value in one.items() if name != "label"} for one in table.settings]
    differing = dict.fromkeys(name for one in apart(unlabelled) for name in one if "." in name)
    parameters = {name.partition(".")[2]: name for name in differing if name.startswith("algorithm.")}
    options = {name.partition(".")[2]: name for name in differing if name.startswith("environment.")}
    labelled = any(group["label"] != label_of(group["algorithm"]) for group in table)
    shown: list[Column] = [
        "environment",
        *((f"{name} (environment)" if name in parameters else name, _setting(key)) for name, key in options.items()),
        "algorithm",
        *(["label"] if labelled else []),
        *((name, _setting(key)) for name, key in parameters.items()),
        "M",
        "εₚ",
        "T",
        "runs",
        "regret",
        "median",
        "failing",
        "rounds",
        "MB",
    ]
    caption = f"{FAILING_TEXT} MB: both ways, all agents together."
    return table_of_groups(id_, title, sorted(table, key=_order), shown, caption)


def _order(group: Group) -> tuple[Any, ...]:
    """By environment, algorithm and label, then by parameters, options and sizes."""
    known = group.settings.items()
    owners = ("algorithm.", "environment.")
    owned = [{name: value for name, value in known if name.startswith(owner)} for owner in owners]
    names = ("environment", "algorithm", "label")
    sizes = ("agents", "eps_p", "episodes")
    return (*(group[name] for name in names), *map(key_of, owned), *(group[name] for name in sizes))


def _setting(name: str) -> Callable[[Group], Cell]:
    """A setting as a cell; empty if a group has none of this name."""

    def cell(group: Group) -> Cell:
        value = group[name]
        if value is None or type(value) in (int, float):
            return value  # type: ignore[no-any-return]
        return shortened(value if isinstance(value, str) else json.dumps(value), 40)

    return cell


MAX_MISSING = 20
"""The most cells with missing runs that are named at the top of a report; the provenance lists all."""


def sweep_section(table: Traces, name: str) -> Section:
    """The section of a sweep called ``name``: for each problem regret against episodes and bytes, and against M."""
    looks = _looks(table)
    figures = []
    for number, (title, part) in enumerate(_problems(table).items(), 1):
        sizes = part.values("agents")
        caption = band_text(part)
        for id_, what, curve, x_label in (
            ("regret", "episodes", over_episodes, EPISODES_LABEL),
            ("bytes", "bytes", over_bytes, BYTES_LABEL),
        ):
            panels = [
                _panel(
                    f"M = {agents}",
                    x_label,
                    REGRET_LABEL,
                    [curve(group, **looks[key_of(group.settings)]) for group in part.having(agents=agents)],
                )
                for agents in sizes
            ]
            figures.append(Figure(f"{id_}_{number}", f"{title}: common regret against {what}", caption, panels))
        if len(sizes) > 1:
            panels = []
            for measure, y_label in ((regret, REGRET_LABEL), (rounds, ROUNDS_LABEL)):
                lines = [line for line in part.split_rest("agents") if len(line) > 1]
                series = [over_agents(line, measure, **looks[key_of(line.groups[0].settings)]) for line in lines]
                panels.append(_panel("", AGENTS_LABEL, y_label, series))
            figures.append(Figure(f"agents_{number}", f"{title}: regret and rounds against M", caption, panels))
    cells = cells_table(table, "sweep", "Every cell")
    return without_gaps(Section("sweep", name, figures=figures, tables=[cells]))


def _problems(table: Traces) -> dict[str, Traces]:
    """The groups of runs by environment, its options and T, with a title that says in what these differ."""
    named = ("environment", "environment_label", "episodes")
    parts: dict[str, list[Group]] = {}
    for group in table:
        about = {name: value for name, value in group.settings.items() if name.startswith("environment.")}
        parts.setdefault(key_of({**about, **{name: group[name] for name in named}}), []).append(group)
    firsts = [settings_of(groups[0].runs[0].about) for groups in parts.values()]
    owned = ("environment", *ENVIRONMENT_SIZES)
    options = apart([{name: one[name] for name in one if name.startswith(owned)} for one in firsts])
    problems = zip(firsts, options, strict=True)
    titles = [label({**own, **{name: one[name] for name in named}}) for one, own in problems]
    if len(set(titles)) < len(titles):
        titles = [f"{title} ({number})" for number, title in enumerate(titles, 1)]
    return {title: Traces(groups) for title, groups in zip(titles, parts.values(), strict=True)}


def _looks(table: Traces) -> dict[str, dict[str, Any]]:
    sides = table.divide("algorithm", ("all runs", ""))
    wanted: dict[str, str] = {}
    for group, side in zip(table, sides, strict=True):
        wanted.setdefault(side.name, group.runs[0].about.colour)
    colours = dict(zip(wanted, different_colours(list(wanted.values())), strict=True))
    levels = table.values("eps_p")
    return {
        key_of(group.settings): {
            "name": side.name,
            "colour": colours[side.name],
            "dash": DASHES[levels.index(group["eps_p"]) % len(DASHES)],
            "variant": eps_text(group["eps_p"]) if len(levels) > 1 else "",
        }
        for group, side in zip(table, sides, strict=True)
    }


def _panel(title: str, x_label: str, y_label: str, series: Iterable[Series | None]) -> Panel:
    """Curves on logarithmic axes where they can be; the regret of a run that never errs is 0."""
    drawn = [one for one in series if one is not None]
    positive = all(value > 0 for one in drawn for value in one.y)
    return Panel(title, x_label, y_label, drawn, x_log=True, y_log=positive)


def without_gaps(section: Section) -> Section:
    """The section without panels, figures and tables that are empty because their runs are missing."""
    figures = [replace(one, panels=[panel for panel in one.panels if panel.series]) for one in section.figures]
    tables = [table for table in section.tables if table.rows]
    return replace(section, figures=[figure for figure in figures if figure.panels], tables=tables)


def missing_runs(jobs: Iterable[Any]) -> list[str]:
    """Jobs without runs in words, a line for each algorithm, environment, M and eps_p."""
    lacking: dict[str, list[int]] = {}
    for job in jobs:
        one = job.settings
        plain = one["label"] == label_of(one["algorithm"])
        name = one["algorithm"] if plain else f"{one['algorithm']} ({one['label']})"
        where = f"{one['environment']}, M = {one['agents']}, {eps_text(one['eps_p'])}, T = {one['episodes']:,}"
        lacking.setdefault(f"{name} on {where}", []).append(job.seed)
    return [f"{cell}: seeds {', '.join(map(str, seeds))}" for cell, seeds in lacking.items()]


def with_note(report: PageContent, folder: Path, missing: Sequence[str]) -> PageContent:
    """The report, with a note on missing runs at its top; an error if there is no finished run."""
    if not report.sections:
        raise InputError(f"{folder} holds no finished run; make some first (--resume).")
    if not missing:
        return report
    more = [f"and {len(missing) - MAX_MISSING} more"] if len(missing) > MAX_MISSING else []
    note = f"INCOMPLETE: runs of {len(missing)} cells are missing, and what follows rests on the others. Missing: "
    text = f"{note}{'; '.join([*missing[:MAX_MISSING], *more])}."
    return replace(report, text=(text, *report.text), provenance={**report.provenance, "missing": list(missing)})
