"""The report on any sweep: curves, dependence on M, regret against bytes, a table; and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.report import run_figures as draw
from fed_ucbvi.report.content import Figure, PageContent, Section
from fed_ucbvi.report.traces import Described, Group, Traces, regret, rounds
from fed_ucbvi.results.settings import ENVIRONMENT_SIZES, apart, key_of, label, settings_of
from fed_ucbvi.results.style import different_colours, label_of

MAX_MISSING = 20
"""The most cells with missing runs that are named at the top of a report; the provenance lists all."""
Styles = Mapping[str, dict[str, Any]]
"""How curves look, by the key of a group's settings."""


def sweep_section(table: Traces, name: str) -> Section:
    """The section of a sweep called ``name``."""
    styles, figures = _styles(table), []
    for number, (title, part) in enumerate(_problems(table).items(), 1):
        for id_, what, curve, x_label in (
            ("regret", "episodes", draw.over_episodes, draw.EPISODES_LABEL),
            ("bytes", "bytes", draw.over_bytes, draw.BYTES_LABEL),
        ):
            panels = _curves(part, styles, curve, x_label)
            heading = f"{title}: common regret against {what}"
            figures.append(Figure(f"{id_}_{number}", heading, draw.band_text(part), panels))
        if len(part.values("agents")) > 1:
            heading = f"{title}: regret and rounds against M"
            figures.append(Figure(f"agents_{number}", heading, draw.band_text(part), _over_agents(part, styles)))
    return without_gaps(
        Section("sweep", name, figures=figures, tables=[draw.cells_table(table, "sweep", "Every cell")])
    )


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
    titles = [
        label({**some, **{name: one[name] for name in named}}) for one, some in zip(firsts, options, strict=True)
    ]
    if len(set(titles)) < len(titles):
        titles = [f"{title} ({number})" for number, title in enumerate(titles, 1)]
    return {title: Traces(groups) for title, groups in zip(titles, parts.values(), strict=True)}


def _styles(table: Traces) -> Styles:
    """Name and colour by algorithm, label and parameters; dash by eps_p."""
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
            "dash": draw.DASHES[levels.index(group["eps_p"]) % len(draw.DASHES)],
            "variant": draw.eps_text(group["eps_p"]) if len(levels) > 1 else "",
        }
        for group, side in zip(table, sides, strict=True)
    }


def _panel(title: str, x_label: str, y_label: str, series: Iterable[Series | None]) -> list[Panel]:
    """Curves on logarithmic axes where they can be; the regret of a run that never errs is 0."""
    drawn = [one for one in series if one is not None]
    positive = all(value > 0 for one in drawn for value in one.y)
    return [Panel(title, x_label, y_label, drawn, x_log=True, y_log=positive)] if drawn else []


def _curves(table: Traces, styles: Styles, curve: Callable[..., Series | None], x_label: str) -> list[Panel]:
    """A panel for each M."""
    return [
        panel
        for agents in table.values("agents")
        for panel in _panel(
            f"M = {agents}",
            x_label,
            draw.REGRET_LABEL,
            (curve(group, **styles[key_of(group.settings)]) for group in table.having(agents=agents)),
        )
    ]


def _over_agents(table: Traces, styles: Styles) -> list[Panel]:
    lines = [part for part in table.split_rest("agents") if len(part) > 1]
    return [
        panel
        for measure, y_label in ((regret, draw.REGRET_LABEL), (rounds, draw.ROUNDS_LABEL))
        for panel in _panel(
            "",
            draw.AGENTS_LABEL,
            y_label,
            (draw.over_agents(part, measure, **styles[key_of(part.groups[0].settings)]) for part in lines),
        )
    ]


# -------------------------------------------------------------------------------------------------- what is missing


def without_gaps(section: Section) -> Section:
    """The section without panels, figures and tables that are empty because their runs are missing."""
    figures = [
        replace(figure, panels=[panel for panel in figure.panels if panel.series]) for figure in section.figures
    ]
    return replace(
        section,
        figures=[figure for figure in figures if figure.panels],
        tables=[table for table in section.tables if table.rows],
    )


def missing_runs(jobs: Iterable[Described]) -> list[str]:
    """Jobs without runs in words, a line for each algorithm, environment, M and eps_p."""
    lacking: dict[str, list[int]] = {}
    for job in jobs:
        one = job.settings
        plain = one["label"] == label_of(one["algorithm"])
        name = one["algorithm"] if plain else f"{one['algorithm']} ({one['label']})"
        where = f"{one['environment']}, M = {one['agents']}, {draw.eps_text(one['eps_p'])}, T = {one['episodes']:,}"
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
