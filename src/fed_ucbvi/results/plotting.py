"""The picture of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.charts.layout import WIDTH
from fed_ucbvi.charts.panels import Board, Panel, Scale, Series
from fed_ucbvi.charts.picture import Picture, check_picture
from fed_ucbvi.charts.scales import log_scale
from fed_ucbvi.core.colours import DARK_GREY, PALETTE, Marker
from fed_ucbvi.core.numbers import byte_count, number
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.curves import Curve, points_of
from fed_ucbvi.results.grid import policy_board
from fed_ucbvi.results.learning_curve import learning_curve
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import LABELS, Settings, label, setting_text, settings_of
from fed_ucbvi.results.statistics import INTERVAL_NAME
from fed_ucbvi.results.style import different_colours

WIDE = 1260.0
"""Width of three panels side by side."""
LOG_FROM = 100
"""From this many episodes on the axis is logarithmic."""
MAX_POINTS = 4000
"""The most rounds drawn one by one."""
RULE_MARKERS: tuple[Marker, ...] = ("circle", "triangle", "square", "diamond")
"""Markers of an algorithm's first, second... synchronisation rule; colours are those of the palette."""
EPISODES = "Episodes per agent"
REGRET = "Common regret (units of reward)"
REGRET_RESCALED = "Common regret (rewards rescaled to [0, 1])"
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
    known = not (math.isnan(run.regret) and math.isnan(run.average_reward))
    panels: list[Panel | Board] = [*([_regret(run)] if known else []), _rounds(run)]
    if len(run.records["length"]):
        panels.append(_lengths(run))
    if run.about.layout is not None:
        panels.insert(int(known), policy_board(run, run.about.layout, step))
    state = f"\n{run.unfinished}" if run.unfinished else ""
    settings = settings_of(run.about) | {"eps_p": run.about.eps_p}
    heading = f"{title(settings)}, seed {run.about.seed}{state}"
    return saved(Picture(panels, heading, WIDE if run.about.layout is None else WIDTH), path)


def saved(picture: Picture, path: str | Path | None) -> Picture:
    """The picture, written if there is a path."""
    if path is not None:
        picture.save(path)
    return picture


def panel(title: str, y_label: str, series: Sequence[Series], axis: Scale) -> Panel:
    """Curves against episodes."""
    return Panel(title, EPISODES, y_label, series, x_log=axis.log, x_axis=axis)


def episodes_axis(played: int) -> Scale:
    """Episodes along x, from 1; from 0 if none was played."""
    return log_scale(1, played) if played >= LOG_FROM else Scale(min(1, played), max(played, 2), log=False)


def _regret(run: RunData) -> Panel:
    """The common regret against episodes; where it is unknown, the reward."""
    if math.isnan(run.regret):
        return _learning(run)
    title = f"Regret: {number(run.regret)} in all"
    return _curve(run, title, regret_label([[run]]), RunData.regret_at)


def regret_label(groups: Sequence[Sequence[RunData]]) -> str:
    """What the axis of regret is called."""
    rescaled = any(Units.of(group[0].about.environment) != Units() for group in groups)
    return REGRET_RESCALED if rescaled else REGRET


def _learning(run: RunData) -> Panel:
    """What an episode paid against episodes; with an interval, where rewards were observed episode by episode."""
    curve = learning_curve(run)
    band: dict[str, Any] = {}
    if len(curve.mean) and not np.isnan(curve.error).any():
        band = {"low": curve.low.tolist(), "high": curve.high.tolist(), "band": INTERVAL_NAME}
    series = Series("", _colour(run), curve.episodes.tolist(), curve.mean.tolist(), **band)
    heading = f"Reward: {number(run.original_units['average_reward'])} an episode (regret unknown)"
    return panel(heading, LEARNING, [series], episodes_axis(run.episodes_played))


def _rounds(run: RunData) -> Panel:
    """Communication rounds so far against episodes."""
    sent = byte_count(run.bytes_up + run.bytes_down)
    heading = f"Communication: {run.rounds:,} round{'s' * (run.rounds != 1)}, {sent}"
    return _curve(run, heading, "Communication rounds so far", RunData.rounds_at, steps=True)


def _curve(run: RunData, heading: str, y_label: str, curve: Curve, *, steps: bool = False) -> Panel:
    played = run.episodes_played
    points = points_of(played, run.round_ends)
    heights = curve(run, points).tolist()
    series = Series("", _colour(run), points.tolist(), heights, steps=steps)
    return panel(heading, y_label, [series], episodes_axis(played))


def _colour(run: RunData) -> str:
    return different_colours([run.about.colour])[0]


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
    found = panel("Round lengths", "Length of the round (episodes)", drawn, episodes_axis(run.episodes_played))
    return replace(found, y_log=True, y_axis=log_scale(0.8, max(10.0, 1.3 * float(records["length"].max()))))


def _dots(run: RunData, chosen: Any, name: str, colour: str, marker: Marker) -> Series:
    """Some rounds as dots; where there are very many, one dot for all rounds within a pixel."""
    begins = np.concatenate([[0], run.round_ends])[:-1].astype(np.int64)[chosen] + 1
    lengths = run.records["length"][chosen]
    if len(begins) > MAX_POINTS:
        pixels = np.column_stack([np.log(begins), np.log(lengths)]) / math.log(run.episodes_played) * WIDTH
        _, kept = np.unique(pixels.round(), axis=0, return_index=True)
        begins, lengths = begins[np.sort(kept)], lengths[np.sort(kept)]
    return Series(name, colour, begins.tolist(), lengths.tolist(), marker=marker, line=False)


def written(name: str, value: Any) -> str:
    """One setting as it is written in pictures."""
    if name == "episodes":
        return f"T = {number(value)}"
    return setting_text(name, value).replace("eps_p = ", "εₚ = ") if name == "eps_p" else setting_text(name, value)


def title(settings: Settings) -> str:
    """What a picture is about: algorithm, environment, sizes and eps_p, as far as they are settings."""
    who = label({name: settings[name] for name in (*LABELS, *LABELS.values()) if name in settings})
    sizes = ("agents", "episodes", "horizon", "eps_p")
    numbers = label({name: settings[name] for name in sizes if name in settings}, written)
    return ": ".join(part for part in (who, numbers) if part)
