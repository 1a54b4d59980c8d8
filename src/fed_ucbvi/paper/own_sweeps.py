"""The report on any sweep: curves, dependence on M, regret against bytes, a table.

The paper's claims are judged only from runs at the paper's settings: its environments and T, and the default
parameters of its algorithms. Other runs say something about other settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.paper.claims import judge
from fed_ucbvi.paper.figures import AGENTS_LABEL, BYTES_LABEL, EPISODES_LABEL, REGRET_LABEL, ROUNDS_LABEL
from fed_ucbvi.paper.scale import EPISODES
from fed_ucbvi.paper.seed_groups import (
    DASHES,
    Key,
    SeedGroups,
    band_text,
    cells_table,
    having,
    over_bytes,
    over_episodes,
    over_keys,
    regret,
    rounds,
    seed_groups_of,
    values,
)
from fed_ucbvi.paper.traces import Pair, Trace
from fed_ucbvi.paper.wording import eps_text
from fed_ucbvi.report.content import Figure, Section
from fed_ucbvi.results.settings import (
    ENVIRONMENT_SIZES,
    apart,
    key_of,
    label,
    names_of,
    parted,
    settings_of,
)
from fed_ucbvi.results.style import different_colours
from fed_ucbvi.sweeps.job import complete_options, complete_parameters

JUDGED = (
    "The claims are the paper's. They are judged only from those of these runs that are at its settings: GridWorld "
    "with T = 30 000 or the synthetic MDP with T = 3 000, default parameters everywhere."
)
NOT_JUDGED = (
    "The paper's claims are not judged here: no runs that could judge them are at its settings (GridWorld with "
    "T = 30 000 or the synthetic MDP with T = 3 000, default parameters everywhere)."
)


def analyse(pairs: Sequence[Pair], name: str) -> Section:
    """The section of a sweep called ``name``."""
    seed_groups = seed_groups_of(pairs)
    styles = _styles(seed_groups)
    figures = []
    for number, (title, group) in enumerate(_problems(seed_groups).items(), 1):
        for id_, what, curve, x_label in (
            ("regret", "episodes", over_episodes, EPISODES_LABEL),
            ("bytes", "bytes", over_bytes, BYTES_LABEL),
        ):
            heading = f"{title}: common regret against {what}"
            figures.append(_curves(group, styles, f"{id_}_{number}", heading, curve, x_label))
        if len(values(group, "agents")) > 1:
            heading = f"{title}: regret and rounds against M"
            figures.append(_over_agents(group, styles, f"agents_{number}", heading))
    verdicts = judge(at_the_papers_settings(seed_groups))
    return Section(
        id="sweep",
        title=name,
        text=(JUDGED if verdicts else NOT_JUDGED,),
        verdicts=verdicts,
        figures=[figure for figure in figures if figure.panels],
        tables=[cells_table(seed_groups, "sweep", "Every cell")],
    )


def at_the_papers_settings(seed_groups: SeedGroups) -> dict[Key, Sequence[Trace]]:
    """The groups of runs on the paper's environments with its T, of algorithms with default parameters."""
    return {
        key: replicates
        for key, replicates in seed_groups.items()
        if EPISODES.get(key.environment) == key.episodes
        and key.algorithm in ALGORITHMS
        and json.loads(key.options) == complete_options(key.environment, {})
        and json.loads(key.parameters) == complete_parameters(key.algorithm, {})
    }


def _all_positive(series: Sequence[Series]) -> bool:
    """Whether a logarithmic axis can show these curves; the regret of a run that never errs is 0."""
    return all(value > 0 for one in series for value in one.y)


def _problems(seed_groups: SeedGroups) -> dict[str, SeedGroups]:
    """The groups of runs by environment, its options and T, with a title that says in what these differ."""
    groups: dict[tuple[str, str, int], dict[Key, Any]] = {}
    for key, replicates in seed_groups.items():
        groups.setdefault((key.environment, key.options, key.episodes), {})[key] = replicates
    firsts = [settings_of(next(iter(group.values()))[0].about) for group in groups.values()]
    names = ("environment", "environment_label", "episodes")
    always = [{name: one[name] for name in names} for one in firsts]
    about = ("environment", *ENVIRONMENT_SIZES)
    options = [{name: one[name] for name in one if name.startswith(about)} for one in firsts]
    titles = [label(some | mine) for mine, some in zip(always, apart(options), strict=True)]
    return dict(zip(_numbered(titles), groups.values(), strict=True))


def _numbered(texts: Sequence[str]) -> list[str]:
    """The texts, with numbers if two are the same."""
    if len(set(texts)) == len(texts):
        return list(texts)
    return [f"{text} ({number})" for number, text in enumerate(texts, 1)]


def _styles(seed_groups: SeedGroups) -> dict[Key, dict[str, Any]]:
    """Name and colour by algorithm, label and parameters; dash by eps_p."""
    abouts = [replicates[0].about for replicates in seed_groups.values()]
    sides, _ = parted([settings_of(about) for about in abouts], "algorithm")
    names = names_of(sides, "all runs")
    wanted = {key_of(side): about.colour for side, about in reversed([*zip(sides, abouts, strict=True)])}
    colours = dict(zip(names, different_colours([wanted[side] for side in names]), strict=True))
    levels = values(seed_groups, "eps_p")
    styles = {}
    for key, side in zip(seed_groups, map(key_of, sides), strict=True):
        styles[key] = {
            "name": names[side],
            "colour": colours[side],
            "dash": DASHES[levels.index(key.eps_p) % len(DASHES)],
            "variant": eps_text(key.eps_p) if len(levels) > 1 else "",
            "label": names[side],
        }
    return styles


def _curves(
    seed_groups: SeedGroups, styles: Mapping[Key, Any], id_: str, title: str, curve: Any, x_label: str
) -> Figure:
    """A panel for each M."""
    panels = []
    for agents in values(seed_groups, "agents"):
        group = having(seed_groups, agents=agents)
        series: list[Series | None] = [curve(replicates, **styles[key]) for key, replicates in group.items()]
        drawn = [one for one in series if one is not None]
        if drawn:
            panels.append(
                Panel(f"M = {agents}", x_label, REGRET_LABEL, drawn, x_log=True, y_log=_all_positive(drawn))
            )
    return Figure(id_, title, band_text(seed_groups.values()), panels)


def _over_agents(seed_groups: SeedGroups, styles: Mapping[Key, Any], id_: str, title: str) -> Figure:
    panels = []
    for measure, y_label in ((regret, REGRET_LABEL), (rounds, ROUNDS_LABEL)):
        series = []
        for key in {(key.label, key.parameters, key.eps_p): key for key in seed_groups}.values():
            group = having(seed_groups, label=key.label, parameters=key.parameters, eps_p=key.eps_p)
            one = over_keys(group, "agents", measure, **styles[key])
            if one is not None and len(one.x) > 1:
                series.append(one)
        if series:
            panels.append(Panel("", AGENTS_LABEL, y_label, series, x_log=True, y_log=_all_positive(series)))
    return Figure(id_, title, band_text(seed_groups.values()), panels)
