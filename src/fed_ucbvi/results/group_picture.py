"""The picture of several runs: means over seeds, one curve for each group, in one panel or in facets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from fed_ucbvi.charts.layout import MAX_COLUMNS
from fed_ucbvi.charts.panels import Dash, Panel, Scale, Series
from fed_ucbvi.charts.picture import PIXELS_PER_INCH, Picture, check_picture
from fed_ucbvi.core.colours import check_colour
from fed_ucbvi.core.errors import InputError, check_number, unknown_name
from fed_ucbvi.core.numbers import number
from fed_ucbvi.results.curves import CURVES, Curve, points_of
from fed_ucbvi.results.plotting import WIDE, episodes_axis, panel, regret_label, saved, title, written
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import (
    LABELS,
    Settings,
    apart,
    check_own_labels,
    group_runs,
    key_of,
    names_of,
    parted,
    relabelled,
    settings_of,
    shared,
)
from fed_ucbvi.results.statistics import INTERVAL_NAME, mean_interval
from fed_ucbvi.results.style import different_colours

MAX_CURVES, MAX_FACETS = 10, 12
"""The most curves that can be told apart in a panel, and the most facets of a picture."""
REWARD = "Mean reward an episode so far"
ROUNDS = "Communication rounds so far"
DASHES: tuple[Dash, ...] = get_args(Dash)


class Group(NamedTuple):
    """Runs that differ only in seeds: the facet they are drawn in, and the looks of their curve."""

    runs: Sequence[RunData]
    facet: str
    name: str
    colour: str
    dash: Dash


class Measure(NamedTuple):
    """What is drawn along the vertical axis."""

    title: str
    y_label: str
    curve: Curve


def plot_runs(
    runs: Iterable[RunData],
    path: str | Path | None = None,
    *,
    facet: str | Sequence[str] | None = None,
    y_log: bool = False,
    labels: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    size: tuple[float, float] | None = None,
) -> Picture:
    """Mean regret and communication rounds over runs that differ by seeds alone, with 95 % intervals of the mean.

    Runs that differ only in seeds and driver form a group. There is one curve for each group, labelled with the
    settings in which it differs from the others. Algorithms (with their parameters) differ in colour, other settings
    in dashes; if these are more than there are dashes, all curves differ in colour. Where regret is unknown, the
    reward is drawn.

    Args:
        runs: runs with at least one round each.
        path: where to write the picture, ``.png``, ``.svg``, ``.pdf`` or ``.html``; nowhere if None.
        facet: a setting, or several, with a panel for each of their values: ``"environment"`` (with its options),
            ``"agents"``, ``"eps_p"``, the name of a parameter... By default none, or, if more than ten curves would
            share a panel, what leaves the fewest panels.
        y_log: whether vertical axes are logarithmic; an axis with a curve that is never positive stays linear.
        labels: what to call an algorithm, a curve or a facet, by its name or by what it would be called otherwise.
        colours: ``#RRGGBB`` for an algorithm or a group, by its name or label.
        size: width and height in inches, about; texts keep their size.
    """
    if path is not None:
        check_picture(path)
    lots = group_runs(runs)
    if any(run.episodes_played == 0 for lot in lots for run in lot):
        raise InputError("cannot draw a run that was interrupted before its first round.")
    settings = relabelled([settings_of(lot[0].about) for lot in lots], labels or {})
    by = _facet(settings) if facet is None else facet
    groups = _groups(lots, settings, by, labels, colours)
    known = not any(math.isnan(run.regret) for lot in lots for run in lot)
    measures = [
        Measure("Regret", regret_label(lots), CURVES["regret"])
        if known
        else Measure("Reward (regret unknown)", REWARD, CURVES["reward"]),
        Measure("Communication", ROUNDS, CURVES["rounds"]),
    ]
    axis = episodes_axis(max(run.episodes_played for lot in lots for run in lot))
    facets = list(dict.fromkeys(group.facet for group in groups))
    drawn = [_panels(measure, groups, axis, y_log=y_log) for measure in measures]
    if len(facets) == 1:
        panels = [row[0] for row in drawn]
    elif len(facets) <= MAX_COLUMNS:
        panels = [one for row in drawn for one in row]
    else:
        panels = [one for pair in zip(*drawn, strict=True) for one in pair]
    sizes = sorted({len(lot) for lot in lots})
    if sizes == [1]:
        what = "one run each" if len(lots) > 1 else "one run"
    else:
        what = f"mean of {sizes[0]}{f' to {sizes[-1]}' if len(sizes) > 1 else ''} runs"
    width, height = _pixels(size)
    columns = min(len(facets), MAX_COLUMNS) if len(facets) > 1 else None
    if columns is None and height is not None:
        columns = 2 if width > height else 1
    heading = f"{title(shared(settings))}\n{what}".strip()
    return saved(Picture(panels, heading, width, height=height, columns=columns), path)


def _pixels(size: tuple[float, float] | None) -> tuple[float, float | None]:
    """Width and height of a picture."""
    if size is None:
        return WIDE, None
    if len(size) != 2:
        raise InputError(f"size must be width and height in inches, such as (6.5, 3), got {size!r}.")
    width, height = (check_number("a size in inches", side, at_least=1.0) for side in size)
    return width * PIXELS_PER_INCH, height * PIXELS_PER_INCH


def _facet(settings: Sequence[Settings]) -> tuple[str, ...]:
    """What to facet by so that every panel can be read, with as few panels as possible; nothing if one will do."""
    if len(settings) <= MAX_CURVES:
        return ()
    differing = dict.fromkeys(name for one in apart(settings) for name in one if name not in LABELS.values())
    others = [name for name in differing if not name.startswith("algorithm")]  # algorithms are what one compares
    names = [name.rpartition(".")[2] for name in (*others, *(name for name in differing if name not in others))]
    found = []
    for by in (*((name,) for name in names), *combinations(names, 2)):
        keys = [key_of(one) for one in parted(settings, by)[0]]
        if len(set(keys)) <= MAX_FACETS and 1 < max(map(keys.count, keys)) <= MAX_CURVES:
            found.append((len(set(keys)), len(by), by))
    if not found:
        raise InputError(
            f"{len(settings)} curves cannot be told apart: a panel holds at most {MAX_CURVES}, a picture at most "
            f"{MAX_FACETS} facets, and the groups differ in {', '.join(names)}; draw fewer of them at a time."
        )
    return min(found, key=lambda one: one[:2])[2]


def _groups(
    lots: Sequence[Sequence[RunData]],
    settings: Sequence[Settings],
    by: str | Sequence[str],
    labels: Mapping[str, str] | None,
    colours: Mapping[str, str] | None,
) -> list[Group]:
    facets, sides = parted(settings, by)
    facet_names, names = names_of(facets, "", written, labels), names_of(sides, "", written, labels)
    check_own_labels(labels, settings, [*names.values(), *facet_names.values()])
    looks = _looks(dict(zip(map(key_of, sides), zip(settings, lots, strict=True), strict=True)), names, colours or {})
    groups = [
        Group(lot, facet_names[key_of(facet)], names[key_of(side)], *looks[key_of(side)])
        for lot, facet, side in zip(lots, facets, sides, strict=True)
    ]
    in_facet = [group.facet for group in groups]
    most, count = max(map(in_facet.count, in_facet)), len(set(in_facet))
    if most > MAX_CURVES or count > MAX_FACETS:
        raise InputError(
            f"a picture has at most {MAX_FACETS} facets with {MAX_CURVES} curves each, here are {count} with up to "
            f"{most}; facet by something else, or draw fewer runs at a time."
        )
    return groups


def _looks(
    sides: Mapping[str, tuple[Settings, Sequence[RunData]]], names: Mapping[str, str], colours: Mapping[str, str]
) -> dict[str, tuple[str, Dash]]:
    """Colour and dash of each curve, by the key of its settings."""
    parts = parted([settings for settings, _ in sides.values()], "algorithm")
    algorithms, others = (dict(zip(sides, map(key_of, part), strict=True)) for part in parts)
    coloured = algorithms if len(set(others.values())) <= len(DASHES) else {key: key for key in sides}
    wanted: dict[str, str] = {}
    for key, (_, lot) in sides.items():
        wanted.setdefault(coloured[key], lot[0].about.colour)
    chosen = dict(zip(wanted, different_colours([*wanted.values()]), strict=True))
    found = {key: chosen[coloured[key]] for key in sides}
    for name, colour in colours.items():
        check_colour(f"the colour of {name}", colour)
        mine = [key for key, (one, _) in sides.items() if name in (names[key], one["algorithm"], one["label"])]
        if not mine:
            known = {one["algorithm"] for one, _ in sides.values()} | {*names.values()} - {""}
            raise unknown_name("algorithm or group", name, known)
        found |= dict.fromkeys(mine, colour)
    before: list[str] = []
    looks: dict[str, tuple[str, Dash]] = {}
    for key, colour in found.items():
        looks[key] = (colour, DASHES[before.count(colour) % len(DASHES)])
        before.append(colour)
    return looks


def _panels(measure: Measure, groups: Sequence[Group], axis: Scale, *, y_log: bool) -> list[Panel]:
    """A panel for each facet."""
    facets = list(dict.fromkeys(group.facet for group in groups))
    alone = len(facets) == 1
    found = []
    for facet in facets:
        series = [_mean(group, measure.curve, labelled=alone) for group in groups if group.facet == facet]
        drawn = panel(measure.title if alone else facet, measure.y_label, series, axis)
        if y_log and all(max(one.y) > 0 for one in series):
            drawn = replace(drawn, y_log=True, series=[_positive(one) for one in series])
        found.append(drawn)
    return found


def _positive(series: Series) -> Series:
    """What a logarithmic axis can hold of a curve."""
    kept = np.flatnonzero(np.asarray(series.y) > 0)
    columns: dict[str, Any] = {name: getattr(series, name) for name in ("x", "y", "low", "high")}
    for name, column in columns.items():
        columns[name] = None if column is None else [column[place] for place in kept]
    return replace(series, **columns)


def _mean(group: Group, curve: Curve, *, labelled: bool) -> Series:
    """The mean of a group of runs with its interval; if ``labelled``, named at its right end."""
    points = points_of(min(run.episodes_played for run in group.runs))
    mean, low, high = mean_interval([curve(run, points) for run in group.runs])
    end = number(mean[-1])
    band: dict[str, Any] = {}
    if len(group.runs) > 1:
        band = {"low": low.tolist(), "high": high.tolist(), "band": INTERVAL_NAME}
        margin = float(high[-1] - mean[-1])
        end = f"{end} \u00b1 {margin:.2g}" if margin < 100 else f"{end} \u00b1 {margin:,.0f}"
    return Series(
        group.name or settings_of(group.runs[0].about)["label"],
        group.colour,
        points.tolist(),
        mean.tolist(),
        dash=group.dash,
        label="" if not labelled else f"{group.name}: {end}" if group.name else end,
        **band,
    )
