"""The panels that pictures are made of; each draws into axes it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fed_ucbvi._types import CountArray, FloatArray
from fed_ucbvi.results.labels import spread
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.statistics import mean_interval
from fed_ucbvi.results.style import (
    DARK_GREY,
    LINE_STYLES,
    MARKER_SIGNS,
    RULE_COLOURS,
    RULE_MARKERS,
    byte_count,
    colour_of,
    number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Callable[[Run, CountArray], FloatArray | CountArray]
"""Something of a run, after each of so many episodes."""

LOG_FROM = 100
"""Episodes from which a logarithmic axis helps."""
CURVE_POINTS = 400
MOST_ENDS = 4000
LABELS_APART = 0.075
"""Distance between two labels, as a share of the height of the axes; less where there are many in high axes."""
LABELS_REACH = 1.1
"""Height that all labels may take, as a share of that of the axes."""


def curve_points(played: int, ends: CountArray) -> CountArray:
    """Episodes at which to draw a curve: evenly on both kinds of axis, and where rounds end if not too many."""
    if played == 0:
        return np.zeros(0, dtype=np.int64)
    grid = np.concatenate([np.geomspace(1, played, CURVE_POINTS), np.linspace(1, played, CURVE_POINTS)])
    kept = ends[:: max(1, -(-len(ends) // MOST_ENDS))]
    return np.unique(np.concatenate([grid.round().astype(np.int64), kept, [played]]))


def episodes_axis(axes: Axes, played: int) -> None:
    """Episodes along x, from 1."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("Episodes per agent")
    if played >= LOG_FROM:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlim(1, max(played, 2))


def amounts_axis(axes: Axes) -> None:
    """Amounts along y from 0 up, written as 12,000."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_ylim(bottom=0)
    whole = axes.get_ylim()[1] >= 5
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def draw_regret(axes: Axes, run: Run) -> None:
    """The common regret against episodes; where it is unknown, the reward."""
    if np.isnan(run.common_regret):
        axes.set_title(f"Reward: {number(run.average_reward)} an episode (regret unknown)")
        axes.set_ylabel("Mean reward an episode so far")
        _draw_curve(axes, run, mean_reward)
        return
    axes.set_title(f"Regret: {number(run.common_regret)} in all")
    axes.set_ylabel("Common regret (units of reward)")
    _draw_curve(axes, run, lambda run, points: run.regret_at(points))


def mean_reward(run: Run, points: CountArray) -> FloatArray:
    """What an agent was paid an episode, on average over the first so many; even within a round."""
    ends = np.concatenate([[0], np.cumsum(run.records["agent_episodes"]) / run.about.agents])
    totals = np.concatenate([[0.0], np.cumsum(run.records["reward"])])
    return np.asarray(np.interp(points, ends, totals) / points)


def draw_rounds(axes: Axes, run: Run) -> None:
    """Communication rounds so far against episodes."""
    axes.set_title(
        f"Communication: {run.rounds:,} round{'s' * (run.rounds != 1)}, {byte_count(run.bytes_up + run.bytes_down)}"
    )
    axes.set_ylabel("Communication rounds so far")
    _draw_curve(axes, run, lambda run, points: run.rounds_at(points), drawstyle="steps-post")


def _draw_curve(axes: Axes, run: Run, curve: Curve, drawstyle: str = "default") -> None:
    points = curve_points(run.episodes_played, run.records["start"] + run.records["length"])
    axes.plot(
        points,
        curve(run, points),
        color=colour_of(run.about.algorithm),
        drawstyle=drawstyle,
        marker="o" if len(points) < 3 else "",
        clip_on=False,
    )
    episodes_axis(axes, run.episodes_played)
    amounts_axis(axes)


def draw_lengths(axes: Axes, run: Run) -> None:
    """The length of every round, by the rule that ended it, against the episode it began with."""
    records = run.records
    begins, lengths = records["start"] + 1, records["length"]
    axes.set_title("Round lengths")
    axes.set_ylabel("Length of the round (episodes)")
    axes.set_yscale("log")
    names = []
    for code, rule in enumerate(run.about.rules):
        chosen = (records["rule"] == code) & (records["askers"] > 0)
        if chosen.any():
            colour, marker = RULE_COLOURS[code % len(RULE_COLOURS)], RULE_MARKERS[code % len(RULE_MARKERS)]
            dots = axes.scatter(begins[chosen], lengths[chosen], s=9 + 6 * code, color=colour, marker=marker)
            dots.set(linewidths=0, alpha=0.55 if code == 0 else 0.85, clip_on=False, gid=rule)
            names.append((f"{MARKER_SIGNS[marker]} ended by the {rule} rule ({chosen.sum():,})", colour))
    cut = records["askers"] == 0
    if cut.any():
        dots = axes.scatter(begins[cut], lengths[cut], s=22, facecolors="white", edgecolors=DARK_GREY, zorder=3)
        dots.set(linewidths=0.9, clip_on=False, gid="end of the run")
        names.append(("\u25cb ended by the end of the run", DARK_GREY))
    for line, (text, colour) in enumerate(names):
        _note(axes, text, line, colour)
    episodes_axis(axes, run.episodes_played)
    axes.set_ylim(0.8, max(10.0, 1.6 * float(lengths.max(initial=1))))


def _note(axes: Axes, text: str, line: int, colour: str) -> None:
    """A line of text in the upper left corner: no round is longer than about all that came before it."""
    place = (6.0, -4.0 - 11.0 * line)
    note = axes.annotate(text, (0, 1), place, xycoords="axes fraction", textcoords="offset points", va="top")
    note.set(color=colour, fontsize=7.5)


def draw_means(axes: Axes, lots: Sequence[Sequence[Run]], names: Sequence[str], curve: Curve) -> None:
    """The mean of each lot of runs with the 95 % interval of the mean as a band, named at its right end."""
    drawn: dict[str, int] = {}
    ends: list[tuple[float, str, str]] = []
    for lot, name in zip(lots, names, strict=True):
        points = curve_points(min(run.episodes_played for run in lot), np.zeros(0, dtype=np.int64))
        mean, low, high = mean_interval([curve(run, points) for run in lot])
        algorithm = lot[0].about.algorithm
        colour, style = colour_of(algorithm), LINE_STYLES[drawn.get(algorithm, 0) % len(LINE_STYLES)]
        drawn[algorithm] = drawn.get(algorithm, 0) + 1
        axes.plot(points, mean, color=colour, linestyle=style, clip_on=False, label=name)
        end = number(mean[-1])
        if len(lot) > 1:
            axes.fill_between(points, low, high, color=colour, alpha=0.2, linewidth=0)
            margin = float(high[-1] - mean[-1])
            end = f"{end} \u00b1 {margin:.2g}" if margin < 100 else f"{end} \u00b1 {margin:,.0f}"
        ends.append((float(mean[-1]), f"{name}: {end}" if name else end, colour))
    episodes_axis(axes, max(run.episodes_played for lot in lots for run in lot))
    amounts_axis(axes)
    _name_ends(axes, ends)


def _name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write beside the right ends of curves, pushed apart where texts would overlap."""
    bottom, top = axes.get_ylim()
    order = sorted(ends)
    sizes = [min(LABELS_APART, LABELS_REACH / len(order))] * len(order)
    margin = (LABELS_REACH - 1) / 2
    wanted = [(end[0] - bottom) / (top - bottom) for end in order]
    heights = spread(wanted, sizes, low=-margin, high=1 + margin)
    for (_, text, colour), height in zip(order, heights, strict=True):
        name = axes.annotate(text, (1, height), (4, 0), xycoords="axes fraction", textcoords="offset points")
        name.set(va="center", color=colour, fontsize=7.5)
