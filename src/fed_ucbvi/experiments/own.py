"""What can be said about any sweep: curves, dependence on M, regret against bytes, a table, the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fed_ucbvi.experiments.claims import eps_text, judge
from fed_ucbvi.experiments.figures import AGENTS_LABEL, BYTES_LABEL, EPISODES_LABEL, REGRET_LABEL, ROUNDS_LABEL
from fed_ucbvi.experiments.lots import (
    DASHES,
    Key,
    Lots,
    band_text,
    cells_table,
    having,
    lots_of,
    over_bytes,
    over_episodes,
    over_keys,
    regret,
    rounds,
    values,
)
from fed_ucbvi.experiments.traces import Pair
from fed_ucbvi.report.content import Figure, Panel, Section, Series
from fed_ucbvi.results.style import PALETTE, colour_of, label_of


def analyse(pairs: Sequence[Pair], name: str) -> Section:
    """The section of a sweep called ``name``."""
    lots = lots_of(pairs)
    figures = []
    for number, (title, group) in enumerate(_problems(lots).items(), 1):
        figures += [
            _curves(
                group, f"regret_{number}", f"{title}: common regret against episodes", over_episodes, EPISODES_LABEL
            ),
            _curves(group, f"bytes_{number}", f"{title}: common regret against bytes", over_bytes, BYTES_LABEL),
        ]
        if len(values(group, "agents")) > 1:
            figures.append(_over_agents(group, f"agents_{number}", f"{title}: regret and rounds against M"))
    return Section(
        id="sweep",
        title=name,
        text=("The claims below are the paper's, where these runs can judge them.",),
        verdicts=judge(lots),
        figures=[figure for figure in figures if figure.panels],
        tables=[cells_table(lots, "sweep", "Every cell")],
    )


def _problems(lots: Lots) -> dict[str, Lots]:
    """The lots by environment, its options and T, under a title each."""
    groups: dict[tuple[str, str, int], dict[Key, Any]] = {}
    for key, lot in lots.items():
        groups.setdefault((key.environment, key.options, key.episodes), {})[key] = lot
    titles = [f"{label_of(environment)}, T = {episodes:,}" for environment, _, episodes in groups]
    if len(set(titles)) < len(titles):
        titles = [f"{title} (options {number})" for number, title in enumerate(titles, 1)]
    return dict(zip(titles, groups.values(), strict=True))


def _styles(lots: Lots) -> dict[Key, dict[str, Any]]:
    """Colour by algorithm, or by label where one algorithm has several; dash by eps_p."""
    labels = list(dict.fromkeys((key.algorithm, key.label, key.parameters) for key in lots))
    algorithms = [algorithm for algorithm, _, _ in labels]
    alone = len({colour_of(algorithm) for algorithm in algorithms}) == len(algorithms)  # others are all black
    texts = [label_of(label) for _, label, _ in labels]
    if len(set(texts)) < len(texts):
        texts = [f"{text} ({number})" for number, text in enumerate(texts, 1)]
    colours = {
        label: colour_of(label[0]) if alone else PALETTE[number % len(PALETTE)] for number, label in enumerate(labels)
    }
    levels = values(lots, "eps_p")
    styles = {}
    for key in lots:
        label = (key.algorithm, key.label, key.parameters)
        styles[key] = {
            "name": texts[labels.index(label)],
            "colour": colours[label],
            "dash": DASHES[levels.index(key.eps_p) % len(DASHES)],
            "variant": eps_text(key.eps_p) if len(levels) > 1 else "",
            "label": texts[labels.index(label)],
        }
    return styles


def _curves(lots: Lots, id_: str, title: str, curve: Any, x_label: str) -> Figure:
    """A panel for each M."""
    styles, panels = _styles(lots), []
    for agents in values(lots, "agents"):
        group = having(lots, agents=agents)
        series: list[Series | None] = [curve(lot, **styles[key]) for key, lot in group.items()]
        drawn = [one for one in series if one is not None]
        if drawn:
            panels.append(Panel(f"M = {agents}", x_label, REGRET_LABEL, drawn, x_log=True, y_log=True))
    return Figure(id_, title, band_text(lots.values()), panels)


def _over_agents(lots: Lots, id_: str, title: str) -> Figure:
    styles, panels = _styles(lots), []
    for measure, y_label in ((regret, REGRET_LABEL), (rounds, ROUNDS_LABEL)):
        series = []
        for key in {(key.label, key.parameters, key.eps_p): key for key in lots}.values():
            group = having(lots, label=key.label, parameters=key.parameters, eps_p=key.eps_p)
            one = over_keys(group, "agents", measure, **styles[key])
            if one is not None and len(one.x) > 1:
                series.append(one)
        if series:
            panels.append(Panel("", AGENTS_LABEL, y_label, series, x_log=True, y_log=True))
    return Figure(id_, title, band_text(lots.values()), panels)
