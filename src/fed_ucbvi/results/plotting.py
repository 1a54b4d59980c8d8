"""The picture of several runs: a curve of means over seeds for each group of runs, in panels or facets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fed_ucbvi.charts.axes import (
    BAND_OPACITY,
    FAINT_BAND_OPACITY,
    FEW_CURVES,
    draw_curve,
    set_scales,
    set_texts,
    start_at_zero,
)
from fed_ucbvi.charts.figures import (
    Panels,
    figure_legend,
    figure_style,
    given_panels,
    new_panels,
    set_heading,
    without_tex,
)
from fed_ucbvi.charts.picture_files import Size, check_picture, check_size
from fed_ucbvi.core.colours import DASHES, Dash, check_colour
from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.results import run_table
from fed_ucbvi.results.about import different_colours
from fed_ucbvi.results.picture_texts import EPISODES, REWARD, ROUNDS, regret_label, set_episodes, setting_text, title
from fed_ucbvi.results.run_data import CURVES, Curve, RunData, points_of
from fed_ucbvi.results.run_table import LABELS, Division, RunGroup, RunTable, all_names, apart, key_of, parted
from fed_ucbvi.results.statistics import INTERVAL_NAME, mean_interval

MAX_CURVES = 10
MAX_FACETS = 12
"""The most curves that can be told apart in a panel, and the most facets of a picture."""
MAX_COLUMNS = 4


class Look(NamedTuple):
    """Colour and dash of a curve."""

    colour: str
    dash: Dash


class MeanCurve(NamedTuple):
    """A group of runs in a facet, with the name and the look of its curve."""

    group: RunGroup[RunData]
    name: str
    look: Look


class Measure(NamedTuple):
    """A quantity that is drawn against episodes."""

    title: str
    label: str
    curve: Curve


class Panel(NamedTuple):
    """The curves of one facet in one measure."""

    title: str
    measure: Measure
    curves: Sequence[MeanCurve]


class Points(NamedTuple):
    """Means over the runs of a group, with the ends of their intervals if there are several runs."""

    episodes: CountArray
    mean: FloatArray
    low: FloatArray | None
    high: FloatArray | None


def plot_runs(
    runs: Iterable[RunData],
    path: str | Path | None = None,
    *,
    facet: str | Sequence[str] | None = None,
    y_log: bool = False,
    labels: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    size: Size | None = None,
    axes: Iterable[Axes] | None = None,
) -> Panels:
    """Mean regret and communication rounds over runs that differ by seeds alone, with 95 % intervals of the mean.

    Runs that differ only in seeds and driver form a group. There is one curve for each group, labelled with the
    settings in which it differs from the others. Algorithms (with their parameters) differ in colour, other settings
    in dashes; if these are more than there are dashes, all curves differ in colour. Where regret is unknown, the
    reward is drawn.

    Args:
        runs: runs with at least one round each.
        path: where to write the picture, ``.png``, ``.svg`` or ``.pdf``; nowhere if None.
        facet: a setting, or several, with a panel for each of their values: ``"environment"`` (with its options),
            ``"agents"``, ``"eps_p"``, the name of a parameter... By default none, or, if more than ten curves would
            share a panel, the settings with the fewest panels.
        y_log: logarithmic vertical axes; an axis with a curve that is never positive stays linear.
        labels: labels of algorithms, curves or facets, by their names or by the labels that they would have.
        colours: ``#RRGGBB`` for an algorithm or a group, by its name or label.
        size: width and height of the new figure in inches.
        axes: the axes to draw on, one for each panel; by default those of a new figure.

    Returns:
        The axes of the panels, in reading order.
    """
    if path is not None:
        check_picture(path)
    if size is not None:
        check_size(size)
    table = RunTable.of(runs, labels, facet)
    if any(run.episodes_played == 0 for run in table.runs):
        raise InputError("cannot draw a run that was interrupted before its first round.")
    facets = _facets(table, facet, colours or {})
    parts = _panels(facets, _measures(table.runs))
    with figure_style():
        if axes is None:
            names = list(dict.fromkeys(curve.name for curves in facets.values() for curve in curves))
            panels = new_panels(len(parts), columns=_columns(len(facets), size), size=size, legend=names)
        else:
            panels = given_panels(axes, len(parts))
        played = max(run.episodes_played for run in table.runs)
        for part, ax in zip(parts, panels, strict=True):
            _draw_panel(ax, part, played=played, y_log=y_log)
        if axes is None:
            set_heading(panels, _heading(table))
            if len(table) > 1:
                figure_legend(panels)
        elif len(table) > 1:
            without_tex(panels[0].legend())
    if path is not None:
        panels.save(path)
    return panels


def _facets(
    table: RunTable[RunData], facet: str | Sequence[str] | None, colours: Mapping[str, str]
) -> dict[str, list[MeanCurve]]:
    """The curves of each facet, by its name."""
    by = _facet(table.settings) if facet is None else facet
    divisions = table.divide(by, write=setting_text)
    looks = _looks(table, divisions, colours)
    facets: dict[str, list[MeanCurve]] = {}
    for group, division in zip(table, divisions, strict=True):
        curve = MeanCurve(
            group=group,
            name=division.rest_name or group["label"],
            look=looks[key_of(division.rest)],
        )
        facets.setdefault(division.name, []).append(curve)
    most = max(len(curves) for curves in facets.values())
    if most > MAX_CURVES or len(facets) > MAX_FACETS:
        raise InputError(
            f"a picture has at most {MAX_FACETS} facets with {MAX_CURVES} curves each, here are {len(facets)} with "
            f"up to {most}; facet by something else, or draw fewer runs at a time."
        )
    return facets


def _measures(runs: Sequence[RunData]) -> list[Measure]:
    rounds = Measure(title="Communication", label=ROUNDS, curve=CURVES["rounds"])
    if any(math.isnan(run.regret) for run in runs):
        return [Measure(title="Reward (regret unknown)", label=REWARD, curve=CURVES["reward"]), rounds]
    return [Measure(title="Regret", label=regret_label(runs), curve=CURVES["regret"]), rounds]


def _panels(facets: Mapping[str, Sequence[MeanCurve]], measures: Sequence[Measure]) -> list[Panel]:
    """A row of facets for each measure or, if these are too many for a row, the measures of each facet in turn."""
    if len(facets) == 1:
        (curves,) = facets.values()
        return [Panel(title=measure.title, measure=measure, curves=curves) for measure in measures]
    panels = []
    if len(facets) <= MAX_COLUMNS:
        for measure in measures:
            for name, curves in facets.items():
                panels.append(Panel(title=name, measure=measure, curves=curves))
    else:
        for name, curves in facets.items():
            for measure in measures:
                panels.append(Panel(title=name, measure=measure, curves=curves))
    return panels


def _columns(facets: int, size: Size | None) -> int:
    if facets > 1:
        return min(facets, MAX_COLUMNS)
    tall = size is not None and size[0] <= size[1]
    return 1 if tall else 2


def _heading(table: RunTable[RunData]) -> str:
    """The settings that all runs share, and the number of runs in a group."""
    sizes = sorted({len(group) for group in table})
    if sizes == [1]:
        count = "one run each" if len(table) > 1 else "one run"
    else:
        runs = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
        count = f"mean of {runs} runs, band: {INTERVAL_NAME}"
    return f"{title(run_table.shared(table.settings))}\n{count}".strip()


def _draw_panel(ax: Axes, panel: Panel, *, played: int, y_log: bool) -> None:
    """The curves of one panel, of which those with few others have stronger bands."""
    drawn = [_points(curve.group, panel.measure.curve) for curve in panel.curves]
    log = y_log and all(points.mean.max() > 0 for points in drawn)
    opacity = BAND_OPACITY if len(drawn) <= FEW_CURVES else FAINT_BAND_OPACITY
    set_scales(ax, x_log=False, y_log=log)
    for curve, points in zip(panel.curves, drawn, strict=True):
        shown = _positive(points) if log else points
        draw_curve(
            ax,
            shown.episodes,
            shown.mean,
            colour=curve.look.colour,
            label=curve.name,
            dash=curve.look.dash,
            low=shown.low,
            high=shown.high,
            band_opacity=opacity,
        )
    set_episodes(ax, played)
    if not log:
        start_at_zero(ax, np.concatenate([points.mean for points in drawn]))
    set_texts(ax, title=panel.title, x_label=EPISODES, y_label=panel.measure.label)


def _points(group: RunGroup[RunData], curve: Curve) -> Points:
    """Means of a quantity as far as all runs of the group go."""
    episodes = points_of(min(run.episodes_played for run in group.runs))
    mean, low, high = mean_interval([curve(run, episodes) for run in group.runs])
    several = len(group) > 1
    return Points(episodes=episodes, mean=mean, low=low if several else None, high=high if several else None)


def _positive(points: Points) -> Points:
    """The part of a curve that a logarithmic axis can show."""
    positive = points.mean > 0
    return Points(
        episodes=points.episodes[positive],
        mean=points.mean[positive],
        low=None if points.low is None else points.low[positive],
        high=None if points.high is None else points.high[positive],
    )


def _facet(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Settings to facet by so that every panel can be read, with the fewest panels; none if one panel is enough."""
    if len(settings) <= MAX_CURVES:
        return ()
    differing = [name for name in all_names(apart(settings)) if name not in LABELS.values()]
    # Facets by algorithm are the last choice, because algorithms are compared within a panel.
    differing.sort(key=lambda name: name.startswith("algorithm"))
    names = [name.rpartition(".")[2] for name in differing]
    choices = [(name,) for name in names] + list(combinations(names, 2))
    found: dict[tuple[str, ...], tuple[int, int]] = {}
    for by in choices:
        parts, _ = parted(settings, by)
        curves = Counter(key_of(part) for part in parts)
        most = max(curves.values())
        if len(curves) <= MAX_FACETS and 1 < most <= MAX_CURVES:
            found[by] = (len(curves), len(by))
    if not found:
        raise InputError(
            f"{len(settings)} curves are too many for one panel: a panel holds at most {MAX_CURVES}, a picture at "
            f"most {MAX_FACETS} facets, and the groups differ in {', '.join(names)}; draw fewer of them at a time."
        )
    return min(found, key=lambda by: found[by])


def _looks(table: RunTable[RunData], divisions: Sequence[Division], colours: Mapping[str, str]) -> dict[str, Look]:
    """The look of each curve, by the key of its settings."""
    names: dict[str, str] = {}
    groups: dict[str, RunGroup[RunData]] = {}
    for division, group in zip(divisions, table, strict=True):
        key = key_of(division.rest)
        names[key] = division.rest_name
        groups[key] = group
    found = _colours(groups)
    for name, colour in colours.items():
        check_colour(f"the colour of {name}", colour)
        keys = [key for key, group in groups.items() if name in (names[key], group["algorithm"], group["label"])]
        if not keys:
            algorithms = {group["algorithm"] for group in groups.values()}
            curves = set(names.values()) - {""}
            raise unknown_name("algorithm or group", name, algorithms | curves)
        for key in keys:
            found[key] = colour
    uses: Counter[str] = Counter()
    looks: dict[str, Look] = {}
    for key, colour in found.items():
        looks[key] = Look(colour=colour, dash=DASHES[uses[colour] % len(DASHES)])
        uses[colour] += 1
    return looks


def _colours(groups: Mapping[str, RunGroup[RunData]]) -> dict[str, str]:
    """A colour for each algorithm or, if other settings have more values than there are dashes, for each curve.

    ``groups`` and the result have the same keys, one per curve.
    """
    algorithms, others = parted([group.settings for group in groups.values()], "algorithm")
    if len({key_of(rest) for rest in others}) <= len(DASHES):
        owners = dict(zip(groups, (key_of(algorithm) for algorithm in algorithms), strict=True))
    else:
        owners = {key: key for key in groups}
    wanted: dict[str, str] = {}
    for key, group in groups.items():
        wanted.setdefault(owners[key], group.runs[0].about.colour)
    chosen = dict(zip(wanted, different_colours(list(wanted.values())), strict=True))
    return {key: chosen[owner] for key, owner in owners.items()}
