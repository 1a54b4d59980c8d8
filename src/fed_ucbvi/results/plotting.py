"""Pictures of one run, and of several runs together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fed_ucbvi.charts.layout import WIDTH
from fed_ucbvi.charts.panels import Board, Dash, Panel, Scale, Series
from fed_ucbvi.charts.picture import Picture, check_picture
from fed_ucbvi.charts.scales import log_scale
from fed_ucbvi.core.colours import DARK_GREY, PALETTE, Marker
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.numbers import byte_count, number
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.results.grid import policy_board
from fed_ucbvi.results.learning_curve import learning_curve
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import Settings, group_runs, label, labels, setting_text, settings_of, shared
from fed_ucbvi.results.statistics import INTERVAL_NAME, mean_interval
from fed_ucbvi.results.style import colour_of, label_of

Curve = Callable[[RunData, CountArray], FloatArray | CountArray]
"""A quantity of a run, at each of the given numbers of episodes."""

WIDE = 1260.0
"""Width of three panels side by side."""
LOG_FROM = 100
"""From this many episodes on the axis is logarithmic."""
CURVE_POINTS = 400
MAX_POINTS = 4000
"""The most ends of rounds on a curve, and the most rounds drawn one by one."""
RULE_MARKERS: tuple[Marker, ...] = ("circle", "triangle", "square", "diamond")
"""Markers of an algorithm's first, second... synchronisation rule; colours are those of the palette."""
EPISODES = "Episodes per agent"
REGRET = "Common regret (units of reward)"
REWARD = "Mean reward an episode so far"
LEARNING = "Reward of an episode"


def plot_run(run: RunData, path: str | Path | None = None, *, step: int | None = None) -> Picture:
    """Regret, communication, round lengths and (on a grid) the recommended policy of one run.

    Args:
        run: a run, finished or interrupted.
        path: where to write the picture, ``.png``, ``.svg``, ``.pdf`` or ``.html``; nowhere if None.
        step: the step (from 0) whose policy is drawn; by default each square shows the first step at which it can
            be reached.
    """
    if path is not None:
        check_picture(path)
    known = not (math.isnan(run.common_regret) and math.isnan(run.average_reward))
    panels: list[Panel | Board] = [*([_regret(run)] if known else []), _rounds(run)]
    if len(run.records["length"]):
        panels.append(_lengths(run))
    if run.about.layout is not None:
        panels.insert(int(known), policy_board(run, run.about.layout, step))
    state = f"\n{run.unfinished}" if run.unfinished else ""
    settings = settings_of(run.about) | {"eps_p": run.about.eps_p}
    title = f"{_title(settings)}, seed {run.about.seed}{state}"
    return _saved(Picture(panels, title, WIDE if run.about.layout is None else WIDTH), path)


def plot_runs(runs: Iterable[RunData], path: str | Path | None = None) -> Picture:
    """Mean regret and communication rounds over runs that differ by seeds alone, with 95 % intervals of the mean.

    Runs that differ only in seeds and driver form a group. There is one curve for each group, in its algorithm's
    colour, labelled with the settings in which it differs from the others. Where regret is unknown, the reward is
    drawn.

    Args:
        runs: runs with at least one round each.
        path: where to write the picture, ``.png``, ``.svg``, ``.pdf`` or ``.html``; nowhere if None.
    """
    if path is not None:
        check_picture(path)
    groups = group_runs(runs)
    if any(run.episodes_played == 0 for group in groups for run in group):
        raise InputError("cannot draw a run that was interrupted before its first round.")
    settings = [settings_of(group[0].about) for group in groups]
    names = labels(settings, _written)
    known = not any(math.isnan(run.common_regret) for group in groups for run in group)
    left = _means(groups, names, RunData.regret_at if known else _mean_reward)
    axis = _episodes_axis(max(run.episodes_played for group in groups for run in group))
    panels = [
        _panel("Regret" if known else "Reward (regret unknown)", REGRET if known else REWARD, left, axis),
        _panel("Communication", "Communication rounds so far", _means(groups, names, RunData.rounds_at), axis),
    ]
    sizes = sorted({len(group) for group in groups})
    if sizes == [1]:
        what = "one run each" if len(groups) > 1 else "one run"
    else:
        what = f"mean of {sizes[0]}{f' to {sizes[-1]}' if len(sizes) > 1 else ''} runs"
    return _saved(Picture(panels, f"{_title(shared(settings))}\n{what}".strip(), WIDE), path)


def _saved(picture: Picture, path: str | Path | None) -> Picture:
    if path is not None:
        picture.save(path)
    return picture


def _panel(title: str, y_label: str, series: Sequence[Series], axis: Scale) -> Panel:
    return Panel(title, EPISODES, y_label, series, x_log=axis.log, x_axis=axis)


def _episodes_axis(played: int) -> Scale:
    """Episodes along x, from 1; from 0 if none was played."""
    return log_scale(1, played) if played >= LOG_FROM else Scale(min(1, played), max(played, 2), log=False)


def _points(played: int, ends: FloatArray | Sequence[float] = ()) -> CountArray:
    """Episodes at which to draw a curve: even on both kinds of axis, and the ends of rounds if there are few."""
    if played == 0:
        return np.zeros(1, dtype=np.int64)
    grid = np.concatenate([np.geomspace(1, played, CURVE_POINTS), np.linspace(1, played, CURVE_POINTS)])
    kept = np.asarray(ends, dtype=np.int64)[:: max(1, -(-len(ends) // MAX_POINTS))]
    return np.unique(np.concatenate([grid.round().astype(np.int64), kept, [played]]))


def _mean_reward(run: RunData, points: CountArray) -> FloatArray:
    """The mean reward per agent and episode over the first ``points`` episodes; constant within a round."""
    ends = np.concatenate([[0], run.round_ends])
    totals = np.concatenate([[0.0], np.cumsum(run.records["reward"])])
    return np.asarray(np.interp(points, ends, totals) / points)


def _regret(run: RunData) -> Panel:
    """The common regret against episodes; where it is unknown, the reward."""
    if math.isnan(run.common_regret):
        return _learning(run)
    return _curve(run, f"Regret: {number(run.common_regret)} in all", REGRET, RunData.regret_at)


def _learning(run: RunData) -> Panel:
    """What an episode paid against episodes; with an interval, where rewards were observed episode by episode."""
    curve = learning_curve(run)
    band: dict[str, Any] = {}
    if len(curve.mean) and not np.isnan(curve.error).any():
        band = {"low": curve.low.tolist(), "high": curve.high.tolist(), "band": INTERVAL_NAME}
    series = Series("", colour_of(run.about.algorithm), curve.episodes.tolist(), curve.mean.tolist(), **band)
    title = f"Reward: {number(run.average_reward)} an episode (regret unknown)"
    return _panel(title, LEARNING, [series], _episodes_axis(run.episodes_played))


def _rounds(run: RunData) -> Panel:
    """Communication rounds so far against episodes."""
    sent = byte_count(run.bytes_up + run.bytes_down)
    title = f"Communication: {run.rounds:,} round{'s' * (run.rounds != 1)}, {sent}"
    return _curve(run, title, "Communication rounds so far", RunData.rounds_at, steps=True)


def _curve(run: RunData, title: str, y_label: str, curve: Curve, *, steps: bool = False) -> Panel:
    played = run.episodes_played
    points = _points(played, run.round_ends)
    heights = curve(run, points).tolist()
    series = Series("", colour_of(run.about.algorithm), points.tolist(), heights, steps=steps)
    return _panel(title, y_label, [series], _episodes_axis(played))


def _lengths(run: RunData) -> Panel:
    """The length of every round, by the rule that ended it, against the episode it began with."""
    records = run.records
    asked = records["askers"] > 0
    series = []
    for code, rule in enumerate(run.about.rules):
        chosen = asked & (records["rule"] == code)
        name = f"round ended by the {rule} rule ({chosen.sum():,})"
        colour, marker = PALETTE[code % len(PALETTE)], RULE_MARKERS[code % len(RULE_MARKERS)]
        series.append(_dots(run, chosen, name, colour, marker))
    series.append(_dots(run, ~asked, "round ended by the end of the run", DARK_GREY, "cross"))
    drawn = [one for one in series if len(one.x)]
    panel = _panel("Round lengths", "Length of the round (episodes)", drawn, _episodes_axis(run.episodes_played))
    return replace(panel, y_log=True, y_axis=log_scale(0.8, max(10.0, 1.3 * float(records["length"].max()))))


def _dots(run: RunData, chosen: Any, name: str, colour: str, marker: Marker) -> Series:
    """Some rounds as dots; where there are very many, one dot for all rounds within a pixel."""
    begins = np.concatenate([[0], run.round_ends])[:-1].astype(np.int64)[chosen] + 1
    lengths = run.records["length"][chosen]
    if len(begins) > MAX_POINTS:
        pixels = np.column_stack([np.log(begins), np.log(lengths)]) / math.log(run.episodes_played) * WIDTH
        _, kept = np.unique(pixels.round(), axis=0, return_index=True)
        begins, lengths = begins[np.sort(kept)], lengths[np.sort(kept)]
    return Series(name, colour, begins.tolist(), lengths.tolist(), marker=marker, line=False)


def _means(groups: Sequence[Sequence[RunData]], names: Sequence[str], curve: Curve) -> list[Series]:
    """The mean of each group of runs with its interval, named at its right end."""
    found: list[Series] = []
    drawn: dict[str, int] = {}
    dashes: tuple[Dash, ...] = get_args(Dash)
    for group, name in zip(groups, names, strict=True):
        points = _points(min(run.episodes_played for run in group))
        mean, low, high = mean_interval([curve(run, points) for run in group])
        algorithm = group[0].about.algorithm
        end = number(mean[-1])
        several: dict[str, Any] = {}
        if len(group) > 1:
            several = {"low": low.tolist(), "high": high.tolist(), "band": INTERVAL_NAME}
            margin = float(high[-1] - mean[-1])
            end = f"{end} \u00b1 {margin:.2g}" if margin < 100 else f"{end} \u00b1 {margin:,.0f}"
        found.append(
            Series(
                name or label_of(algorithm),
                colour_of(algorithm),
                points.tolist(),
                mean.tolist(),
                dash=dashes[drawn.get(algorithm, 0) % len(dashes)],
                label=f"{name}: {end}" if name else end,
                **several,
            )
        )
        drawn[algorithm] = drawn.get(algorithm, 0) + 1
    return found


def _written(name: str, value: Any) -> str:
    """One setting as it is written in pictures."""
    if name == "episodes":
        return f"T = {number(value)}"
    return setting_text(name, value).replace("eps_p = ", "εₚ = ") if name == "eps_p" else setting_text(name, value)


def _title(settings: Settings) -> str:
    who = label({name: settings[name] for name in ("algorithm", "environment") if name in settings})
    sizes = ("agents", "episodes", "horizon", "eps_p")
    numbers = label({name: settings[name] for name in sizes if name in settings}, _written)
    return ": ".join(part for part in (who, numbers) if part)
