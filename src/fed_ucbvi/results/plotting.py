"""The picture of one run, and that of several: a curve of means over seeds for each group, in panels or facets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, compress
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.charts.panels import DASHES, Board, Dash, Panel, Scale, Series, log_scale
from fed_ucbvi.charts.picture import PIXELS_PER_INCH, Picture
from fed_ucbvi.charts.vega import MAX_COLUMNS, WIDTH
from fed_ucbvi.core.colours import DARK_GREY, PALETTE, Marker, check_colour
from fed_ucbvi.core.errors import InputError, check_number, unknown_name
from fed_ucbvi.core.numbers import byte_count, number
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.units import PER_STEP
from fed_ucbvi.results import run_table
from fed_ucbvi.results.about import different_colours
from fed_ucbvi.results.grid import policy_board
from fed_ucbvi.results.run_data import CURVES, Curve, RunData, learning_curve, points_of
from fed_ucbvi.results.run_table import LABELS, Division, RunGroup, RunTable, apart, key_of, label, parted
from fed_ucbvi.results.statistics import INTERVAL_NAME, mean_interval

WIDE = 1260.0
"""Width of three panels side by side."""
LOG_FROM = 100
"""From this many episodes on the axis is logarithmic."""
MAX_POINTS = 4000
"""The most rounds drawn one by one."""
RULE_MARKERS: tuple[Marker, ...] = ("circle", "triangle", "square", "diamond")
"""Markers of an algorithm's first, second... synchronisation rule; colours are those of the palette."""
EPISODES = "Episodes per agent"
LEARNING = "Reward of an episode"
MAX_CURVES = 10
MAX_FACETS = 12
"""The most curves that can be told apart in a panel, and the most facets of a picture."""
REWARD = "Mean reward an episode so far"
ROUNDS = "Communication rounds so far"


def plot_run(run: RunData, path: str | Path | None = None, *, step: int | None = None) -> Picture:
    """Regret, communication, round lengths and (on a grid) the recommended policy of one run.

    Args:
        run: a run, finished or interrupted.
        path: where to write the picture, ``.png``, ``.svg``, ``.pdf`` or ``.html``; nowhere if None.
        step: the step (from 0) whose policy is drawn; by default each square shows the first step at which it can
            be reached.
    """
    panels: list[Panel | Board] = []
    if not math.isnan(run.regret):
        panels.append(_curve(run, f"Regret: {number(run.regret)} in all", regret_label([run]), RunData.regret_at))
    elif not math.isnan(run.average_reward):
        panels.append(_learning(run))
    if run.about.layout is not None:
        panels.append(policy_board(run, run.about.layout, step))
    sent = byte_count(run.bytes_up + run.bytes_down)
    heading = f"Communication: {run.rounds:,} round{'s' * (run.rounds != 1)}, {sent}"
    panels.append(_curve(run, heading, ROUNDS, RunData.rounds_at, steps=True))
    if len(run.records["length"]):
        panels.append(_lengths(run))
    state = f"\n{run.unfinished}" if run.unfinished else ""
    settings = run_table.settings_of(run.about) | {"eps_p": run.about.eps_p}
    heading = f"{title(settings)}, seed {run.about.seed}{state}"
    return saved(Picture(panels, heading, WIDE if run.about.layout is None else WIDTH), path)


def saved(picture: Picture, path: str | Path | None) -> Picture:
    if path is not None:
        picture.save(path)
    return picture


def _panel(title: str, y_label: str, series: Sequence[Series], axis: Scale, **up: Any) -> Panel:
    return Panel(title, EPISODES, y_label, series, x_log=axis.log, x_axis=axis, **up)


def episodes_axis(played: int) -> Scale:
    """Episodes along x, from 1; from 0 if none was played."""
    return log_scale(1, played) if played >= LOG_FROM else Scale(min(1, played), max(played, 2), log=False)


def regret_label(runs: Sequence[RunData]) -> str:
    asked = {run.units for run in runs}
    return f"Common regret ({PER_STEP if asked == {PER_STEP} else 'units of reward'})"


def _learning(run: RunData) -> Panel:
    """The reward of an episode against episodes; with an interval where rewards were observed episode by episode."""
    curve = learning_curve(run)
    style = {}
    if len(curve.mean) and not np.isnan(curve.error).any():
        style = _band(*(curve.mean + sign * 1.96 * curve.error for sign in (-1, 1)))  # of a normal law
    heading = f"Reward: {number(run.average_reward)} an episode (regret unknown)"
    return _one(run, heading, LEARNING, curve.episodes, curve.mean, **style)


def _curve(run: RunData, heading: str, y_label: str, curve: Curve, *, steps: bool = False) -> Panel:
    points = points_of(run.episodes_played, run.round_ends)
    return _one(run, heading, y_label, points, curve(run, points), steps=steps)


def _one(run: RunData, heading: str, y_label: str, x: Any, y: Any, **style: Any) -> Panel:
    """One curve in the colour of the run's algorithm."""
    series = Series("", different_colours([run.about.colour])[0], x.tolist(), y.tolist(), **style)
    return _panel(heading, y_label, [series], episodes_axis(run.episodes_played))


def _band(low: FloatArray, high: FloatArray) -> dict[str, Any]:
    return {"low": low.tolist(), "high": high.tolist(), "band": INTERVAL_NAME}


def _lengths(run: RunData) -> Panel:
    """The length of every round, by the rule that ended it, against the episode it began with."""
    records = run.records
    asked = records["requests"] > 0
    series = []
    for code, rule in enumerate(run.about.rules):
        chosen = asked & (records["rule"] == code)
        name = f"round ended by the {rule} rule ({chosen.sum():,})"
        colour = PALETTE[code % len(PALETTE)]
        marker = RULE_MARKERS[code % len(RULE_MARKERS)]
        series.append(_dots(run, chosen, name, colour, marker))
    series.append(_dots(run, ~asked, "round ended by the end of the run", DARK_GREY, "cross"))
    drawn = [one for one in series if len(one.x)]
    up = {"y_log": True, "y_axis": log_scale(0.8, max(10.0, 1.3 * float(records["length"].max())))}
    return _panel("Round lengths", "Length of the round (episodes)", drawn, episodes_axis(run.episodes_played), **up)


def _dots(run: RunData, chosen: Any, name: str, colour: str, marker: Marker) -> Series:
    """Some rounds as dots; where there are very many, one dot for all rounds within a pixel."""
    begins = np.concatenate([[0], run.round_ends])[:-1].astype(np.int64)[chosen] + 1
    lengths = run.records["length"][chosen]
    if len(begins) > MAX_POINTS:
        pixels = np.column_stack([np.log(begins), np.log(lengths)]) / math.log(run.episodes_played) * WIDTH
        _, kept = np.unique(pixels.round(), axis=0, return_index=True)
        begins = begins[np.sort(kept)]
        lengths = lengths[np.sort(kept)]
    return Series(name, colour, begins.tolist(), lengths.tolist(), marker=marker, line=False)


def written(name: str, value: Any) -> str:
    if name == "episodes":
        return f"T = {number(value)}"
    text = run_table.setting_text(name, value)
    return text.replace("eps_p = ", "εₚ = ") if name == "eps_p" else text


def title(settings: Mapping[str, Any]) -> str:
    """What a picture is about: algorithm, environment, sizes and eps_p, as far as they are settings."""
    who = label({name: settings[name] for name in (*LABELS, *LABELS.values()) if name in settings})
    sizes = ("agents", "episodes", "horizon", "eps_p")
    numbers = label({name: settings[name] for name in sizes if name in settings}, written)
    return ": ".join(part for part in (who, numbers) if part)


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
    table = RunTable.of(runs, labels, facet)
    if any(run.episodes_played == 0 for run in table.runs):
        raise InputError("cannot draw a run that was interrupted before its first round.")
    divisions = table.divide(_facet(table.settings) if facet is None else facet, write=written)
    looks = _looks(table, divisions, colours or {})
    facets: dict[str, list[tuple[RunGroup[RunData], str, str, Dash]]] = {}
    for group, named in zip(table, divisions, strict=True):
        curve = (group, named.rest_name or group["label"], *looks[key_of(named.rest)])
        facets.setdefault(named.name, []).append(curve)
    most = max(map(len, facets.values()))
    if most > MAX_CURVES or len(facets) > MAX_FACETS:
        raise InputError(
            f"a picture has at most {MAX_FACETS} facets with {MAX_CURVES} curves each, here are {len(facets)} with "
            f"up to {most}; facet by something else, or draw fewer runs at a time."
        )
    measures = [("Regret", regret_label(table.runs), "regret"), ("Communication", ROUNDS, "rounds")]
    if any(math.isnan(run.regret) for run in table.runs):
        measures[0] = ("Reward (regret unknown)", REWARD, "reward")
    axis = episodes_axis(max(run.episodes_played for run in table.runs))
    drawn = []
    for heading, y_label, measure in measures:
        row = []
        for name, curves in facets.items():
            series = [_mean(*curve, CURVES[measure]) for curve in curves]
            log = y_log and all(max(one.y) > 0 for one in series)
            shown = [_positive(one) for one in series] if log else series
            row.append(_panel(heading if len(facets) == 1 else name, y_label, shown, axis, y_log=log))
        drawn.append(row)
    rows = drawn if len(facets) <= MAX_COLUMNS else zip(*drawn, strict=True)
    panels = [one for row in rows for one in row]
    sizes = sorted({len(group) for group in table})
    if sizes == [1]:
        what = "one run each" if len(table) > 1 else "one run"
    else:
        what = f"mean of {sizes[0]}{f' to {sizes[-1]}' if len(sizes) > 1 else ''} runs"
    width, height = _pixels(size)
    columns = min(len(facets), MAX_COLUMNS) if len(facets) > 1 else None
    if columns is None and height is not None:
        columns = 2 if width > height else 1
    heading = f"{title(run_table.shared(table.settings))}\n{what}".strip()
    return saved(Picture(panels, heading, width, height=height, columns=columns), path)


def _pixels(size: tuple[float, float] | None) -> tuple[float, float | None]:
    if size is None:
        return WIDE, None
    if len(size) != 2:
        raise InputError(f"size must be width and height in inches, such as (6.5, 3), got {size!r}.")
    width, height = (check_number("a size in inches", side, at_least=1.0) for side in size)
    return width * PIXELS_PER_INCH, height * PIXELS_PER_INCH


def _facet(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
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
            f"{len(settings)} curves are too many for one panel: a panel holds at most {MAX_CURVES}, a picture at "
            f"most {MAX_FACETS} facets, and the groups differ in {', '.join(names)}; draw fewer of them at a time."
        )
    return min(found, key=lambda one: one[:2])[2]


def _looks(
    table: RunTable[RunData], divisions: Sequence[Division], colours: Mapping[str, str]
) -> dict[str, tuple[str, Dash]]:
    """Colour and dash of each curve, by the key of its settings."""
    sides = {key_of(named.rest): (named.rest_name, group) for named, group in zip(divisions, table, strict=True)}
    parts = parted([group.settings for _, group in sides.values()], "algorithm")
    algorithms, others = (dict(zip(sides, map(key_of, part), strict=True)) for part in parts)
    coloured = algorithms if len(set(others.values())) <= len(DASHES) else {key: key for key in sides}
    wanted: dict[str, str] = {}
    for key, (_, group) in sides.items():
        wanted.setdefault(coloured[key], group.runs[0].about.colour)
    chosen = dict(zip(wanted, different_colours([*wanted.values()]), strict=True))
    found = {key: chosen[coloured[key]] for key in sides}
    for name, colour in colours.items():
        check_colour(f"the colour of {name}", colour)
        mine = [key for key, (own, group) in sides.items() if name in (own, group["algorithm"], group["label"])]
        if not mine:
            known = {group["algorithm"] for _, group in sides.values()} | {own for own, _ in sides.values()} - {""}
            raise unknown_name("algorithm or group", name, known)
        found |= dict.fromkeys(mine, colour)
    drawn = list(found.values())
    before = [drawn[:place].count(colour) for place, colour in enumerate(drawn)]
    return {key: (found[key], DASHES[turn % len(DASHES)]) for key, turn in zip(found, before, strict=True)}


def _positive(series: Series) -> Series:
    """What a logarithmic axis can hold of a curve."""
    columns: dict[str, Any] = {name: getattr(series, name) for name in ("x", "y", "low", "high")}
    columns = {name: column and list(compress(column, np.array(series.y) > 0)) for name, column in columns.items()}
    return replace(series, **columns)


def _mean(group: RunGroup[RunData], name: str, colour: str, dash: Dash, curve: Curve) -> Series:
    points = points_of(min(run.episodes_played for run in group.runs))
    return mean_series(name, colour, points.tolist(), [curve(run, points) for run in group.runs], dash=dash)


def mean_series(name: str, colour: str, x: Sequence[Any], samples: Sequence[Any], **style: Any) -> Series:
    """Means of ``samples[run][x]``, with their interval if there is more than one run."""
    mean, low, high = mean_interval(samples)
    band = _band(low, high) if len(samples) > 1 else {}
    return Series(name, colour, x, mean.tolist(), **band, **style)
