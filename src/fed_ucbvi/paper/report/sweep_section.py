"""The report on any sweep: for each problem, regret against episodes, bytes and agents; and a table of means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from fed_ucbvi.core.colours import DASHES, Dash
from fed_ucbvi.paper.report.content import Figure, Section
from fed_ucbvi.paper.report.missing_runs import without_gaps
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.paper.report.run_figures import (
    AGENTS_LABEL,
    BYTES_LABEL,
    EPISODES_LABEL,
    REGRET_LABEL,
    ROUNDS_LABEL,
    band_text,
    cells_table,
    eps_text,
    over_agents,
    over_bytes,
    over_episodes,
)
from fed_ucbvi.paper.report.traces import Group, Measure, Traces, regret, rounds
from fed_ucbvi.results.about import different_colours
from fed_ucbvi.results.run_table import ENVIRONMENT_SIZES, apart, key_of, label, settings_of

PROBLEM = ("environment", "environment_label", "episodes")
"""Settings of a problem beside the options of its environment."""


@dataclass(frozen=True)
class Look:
    """Name, colour and dash of a curve; ``variant`` is its heterogeneity if the sweep has several."""

    name: str
    colour: str
    dash: Dash
    variant: str

    def on(self, series: Series | None) -> Series | None:
        """``series`` with this look."""
        if series is None:
            return None
        return replace(series, name=self.name, colour=self.colour, dash=self.dash, variant=self.variant)


Looks = Mapping[str, Look]
"""Looks of curves by the key of the settings of a group."""


def sweep_section(table: Traces, name: str) -> Section:
    """Section of a sweep called ``name``: figures of each problem, and the means of every group of runs."""
    looks = _looks(table)
    figures = []
    for number, (title, part) in enumerate(_problems(table).items(), 1):
        caption = band_text(part)
        over_time = Figure(
            id=f"regret_{number}",
            title=f"{title}: common regret against episodes",
            caption=caption,
            panels=_panels_by_agents(part, looks, over_episodes, EPISODES_LABEL),
        )
        over_traffic = Figure(
            id=f"bytes_{number}",
            title=f"{title}: common regret against bytes",
            caption=caption,
            panels=_panels_by_agents(part, looks, over_bytes, BYTES_LABEL),
        )
        figures += [over_time, over_traffic]
        if len(part.values("agents")) > 1:
            against_agents = Figure(
                id=f"agents_{number}",
                title=f"{title}: regret and rounds against M",
                caption=caption,
                panels=[
                    _panel_against_agents(part, looks, regret, REGRET_LABEL),
                    _panel_against_agents(part, looks, rounds, ROUNDS_LABEL),
                ],
            )
            figures.append(against_agents)
    cells = cells_table(table, "sweep", "Means of all groups of runs")
    return without_gaps(Section(id="sweep", title=name, figures=figures, tables=[cells]))


def _panels_by_agents(
    part: Traces, looks: Looks, curve: Callable[[Group], Series | None], x_label: str
) -> list[Panel]:
    """A panel for each M, with a curve for each group."""
    panels = []
    for agents in part.values("agents"):
        groups = part.having(agents=agents)
        series = [looks[key_of(group.settings)].on(curve(group)) for group in groups]
        panels.append(_panel(f"M = {agents}", x_label, REGRET_LABEL, series))
    return panels


def _panel_against_agents(part: Traces, looks: Looks, measure: Measure, y_label: str) -> Panel:
    """A curve for each set of groups that differ in M alone."""
    series = []
    for line in part.split_rest("agents"):
        if len(line) > 1:
            look = looks[key_of(line.groups[0].settings)]
            series.append(look.on(over_agents(line, measure)))
    return _panel("", AGENTS_LABEL, y_label, series)


def _panel(title: str, x_label: str, y_label: str, series: Iterable[Series | None]) -> Panel:
    """Curves on logarithmic axes where they can be; the regret of a run that never errs is 0."""
    drawn = [one for one in series if one is not None]
    positive = all(value > 0 for one in drawn for value in one.y)
    return Panel(title=title, x_label=x_label, y_label=y_label, series=drawn, x_log=True, y_log=positive)


def _problems(table: Traces) -> dict[str, Traces]:
    """Groups of runs by environment, its options and T; titles say in which of these the problems differ."""
    problems: dict[str, list[Group]] = {}
    for group in table:
        problem = {name: value for name, value in group.settings.items() if name.startswith("environment.")}
        problem |= {name: group[name] for name in PROBLEM}
        problems.setdefault(key_of(problem), []).append(group)
    titles = _problem_titles(list(problems.values()))
    return {title: Traces(groups) for title, groups in zip(titles, problems.values(), strict=True)}


def _problem_titles(problems: Iterable[list[Group]]) -> list[str]:
    """A title for each problem, numbered where two would be the same."""
    recorded = [settings_of(groups[0].runs[0].about) for groups in problems]
    owned = ("environment", *ENVIRONMENT_SIZES)
    environments = [{name: one[name] for name in one if name.startswith(owned)} for one in recorded]
    titles = []
    for settings, differing in zip(recorded, apart(environments), strict=True):
        problem = {name: settings[name] for name in PROBLEM}
        titles.append(label({**differing, **problem}))
    if len(set(titles)) < len(titles):
        titles = [f"{title} ({number})" for number, title in enumerate(titles, 1)]
    return titles


def _looks(table: Traces) -> dict[str, Look]:
    """Looks by the key of a group's settings: colours for algorithms with their parameters, dashes for eps_p."""
    divisions = table.divide("algorithm", ("all runs", ""))
    wanted: dict[str, str] = {}
    for group, division in zip(table, divisions, strict=True):
        wanted.setdefault(division.name, group.runs[0].about.colour)
    colours = dict(zip(wanted, different_colours(list(wanted.values())), strict=True))
    levels = table.values("eps_p")
    looks = {}
    for group, division in zip(table, divisions, strict=True):
        level = levels.index(group["eps_p"])
        looks[key_of(group.settings)] = Look(
            name=division.name,
            colour=colours[division.name],
            dash=DASHES[level % len(DASHES)],
            variant=eps_text(group["eps_p"]) if len(levels) > 1 else "",
        )
    return looks
