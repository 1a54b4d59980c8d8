"""The picture of one run: regret or rewards, the policy on a grid, communication, and the lengths of rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from fed_ucbvi.charts.axes import draw_curve, draw_points, set_scales, set_texts, start_at_zero
from fed_ucbvi.charts.figures import Panels, figure_style, given_panels, new_panels, set_heading
from fed_ucbvi.charts.picture_files import Size, check_picture
from fed_ucbvi.core.colours import DARK_GREY, PALETTE, Marker
from fed_ucbvi.core.numbers import byte_count, number
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.results import run_table
from fed_ucbvi.results.about import different_colours
from fed_ucbvi.results.grid_picture import plot_policy
from fed_ucbvi.results.picture_texts import EPISODES, ROUNDS, regret_label, set_episodes, title
from fed_ucbvi.results.run_data import RunData, learning_curve, points_of
from fed_ucbvi.results.statistics import INTERVAL_NAME

MAX_POINTS = 4000
"""The most rounds drawn one by one."""
DOTS_ACROSS = 850
"""Of more rounds, those that would lie within this fraction of the panel's width are drawn once."""
RULE_MARKERS: tuple[Marker, ...] = ("circle", "triangle", "square", "diamond")
"""Markers of an algorithm's first, second... synchronisation rule; colours are those of the palette."""
LEARNING = "Reward per episode"
NORMAL_QUANTILE = 1.96
"""Half the width of a 95 % interval of a normal law, in standard errors."""


def plot_run(
    run: RunData,
    path: str | Path | None = None,
    *,
    step: int | None = None,
    size: Size | None = None,
    axes: Iterable[Axes] | None = None,
) -> Panels:
    """Regret, communication, round lengths and (on a grid) the recommended policy of one run.

    Args:
        run: a run, finished or interrupted.
        path: where to write the picture, ``.png``, ``.svg`` or ``.pdf``; nowhere if None.
        step: the step (from 0) whose policy is drawn; by default each square shows the first step at which it can
            be reached.
        size: width and height of the new figure in inches.
        axes: the axes to draw on, one for each panel; by default those of a new figure.

    Returns:
        The axes of the panels, in reading order.
    """
    if path is not None:
        check_picture(path)
    drawings = _drawings(run, step)
    with figure_style():
        if axes is None:
            panels = new_panels(len(drawings), columns=2 if len(drawings) in (2, 4) else 3, size=size)
            set_heading(panels, _heading(run))
        else:
            panels = given_panels(axes, len(drawings))
        for draw, ax in zip(drawings, panels, strict=True):
            draw(ax)
    if path is not None:
        panels.save(path)
    return panels


def _heading(run: RunData) -> str:
    settings = run_table.settings_of(run.about) | {"eps_p": run.about.eps_p}
    state = f"\n{run.unfinished}" if run.unfinished else ""
    return f"{title(settings)}, seed {run.about.seed}{state}"


def _drawings(run: RunData, step: int | None) -> list[Callable[[Axes], object]]:
    """Functions that draw the panels; panels without data are left out."""
    drawings: list[Callable[[Axes], object]] = []
    if not math.isnan(run.regret):
        drawings.append(lambda ax: _draw_regret(ax, run))
    elif not math.isnan(run.average_reward):
        drawings.append(lambda ax: _draw_rewards(ax, run))
    if run.about.layout is not None:
        drawings.append(lambda ax: plot_policy(run, step=step, ax=ax))
    drawings.append(lambda ax: _draw_communication(ax, run))
    if len(run.records["length"]):
        drawings.append(lambda ax: _draw_lengths(ax, run))
    return drawings


def _colour(run: RunData) -> str:
    return different_colours([run.about.colour])[0]


def _draw_regret(ax: Axes, run: RunData) -> None:
    points = points_of(run.episodes_played, run.round_ends)
    regret = run.regret_at(points)
    set_scales(ax, x_log=False, y_log=False)
    draw_curve(ax, points, regret, colour=_colour(run))
    set_episodes(ax, run.episodes_played)
    start_at_zero(ax, regret)
    heading = f"Regret: {number(run.regret)} in all"
    set_texts(ax, title=heading, x_label=EPISODES, y_label=regret_label([run]))


def _draw_rewards(ax: Axes, run: RunData) -> None:
    """The reward of an episode against episodes; with an interval where rewards were observed episode by episode."""
    curve = learning_curve(run)
    known = len(curve.mean) > 0 and not np.isnan(curve.error).any()
    margin = NORMAL_QUANTILE * curve.error
    set_scales(ax, x_log=False, y_log=False)
    draw_curve(
        ax,
        curve.episodes,
        curve.mean,
        colour=_colour(run),
        low=curve.mean - margin if known else None,
        high=curve.mean + margin if known else None,
    )
    set_episodes(ax, run.episodes_played)
    heading = f"Reward: {number(run.average_reward)} per episode (regret unknown)"
    band = f"\nBand: {INTERVAL_NAME}" if known else ""
    set_texts(ax, title=heading, x_label=f"{EPISODES}{band}", y_label=LEARNING)


def _draw_communication(ax: Axes, run: RunData) -> None:
    points = points_of(run.episodes_played, run.round_ends)
    rounds = run.rounds_at(points)
    set_scales(ax, x_log=False, y_log=False)
    draw_curve(ax, points, rounds, colour=_colour(run), steps=True)
    set_episodes(ax, run.episodes_played)
    start_at_zero(ax, rounds)
    sent = byte_count(run.bytes_up + run.bytes_down)
    heading = f"Communication: {run.rounds:,} round{'s' * (run.rounds != 1)}, {sent}"
    set_texts(ax, title=heading, x_label=EPISODES, y_label=ROUNDS)


def _draw_lengths(ax: Axes, run: RunData) -> None:
    """The length of every round, by the rule that ended it, against the episode it began with."""
    records = run.records
    asked = records["requests"] > 0
    set_scales(ax, x_log=False, y_log=True)
    for code, rule in enumerate(run.about.rules):
        colour = PALETTE[code % len(PALETTE)]
        marker = RULE_MARKERS[code % len(RULE_MARKERS)]
        _draw_rounds(ax, run, asked & (records["rule"] == code), f"{rule} rule", colour, marker)
    _draw_rounds(ax, run, ~asked, "end of the run", DARK_GREY, "cross")
    set_episodes(ax, run.episodes_played)
    longest = max(10.0, float(records["length"].max()))
    ax.set_ylim(0.8, 0.8 * (1.3 * longest / 0.8) ** 1.35)  # free for the legend above
    legend = ax.legend(title="Round ended by", loc="upper left", alignment="left", handletextpad=0.2)
    legend.set_in_layout(False)
    set_texts(ax, title="Round lengths", x_label=EPISODES, y_label="Length (episodes)")


def _draw_rounds(
    ax: Axes, run: RunData, chosen: npt.NDArray[np.bool_], cause: str, colour: str, marker: Marker
) -> None:
    """Some rounds as dots, with their number in the legend; rounds that would cover each other are drawn once."""
    count = int(chosen.sum())
    if count == 0:
        return
    begins = np.concatenate([[0], run.round_ends])[:-1].astype(np.int64)[chosen] + 1
    lengths = run.records["length"][chosen]
    if count > MAX_POINTS:
        kept = _apart(begins, lengths, run.episodes_played)
        begins = begins[kept]
        lengths = lengths[kept]
    dots = 3.0 if count > 40 else 4.5
    label = f"{cause} ({count:,})"
    draw_points(ax, begins, lengths, colour=colour, marker=marker, label=label, markersize=dots, markeredgewidth=0)


def _apart(begins: CountArray, lengths: CountArray, played: int) -> npt.NDArray[np.intp]:
    """The places of the first point in each cell of a fine raster of logarithmic axes."""
    share: FloatArray = np.log(np.column_stack([begins, lengths]).astype(np.float64)) / math.log(played)
    _, kept = np.unique((DOTS_ACROSS * share).round(), axis=0, return_index=True)
    return np.sort(kept)
