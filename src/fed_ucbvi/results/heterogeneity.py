"""A picture of how different the agents of a federation are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi._types import FloatArray
from fed_ucbvi.problem.inspection import Inspection
from fed_ucbvi.results.grid import draw_squares
from fed_ucbvi.results.plotting import EPS_P
from fed_ucbvi.results.style import BLUE, LIGHT_GREY, SETTINGS, VERMILLION, check_picture, label_of, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = "cividis"
"""From dark (none) to light (most), the same to all eyes."""
UNSHARED = r"Mass not shared, $1 - \sum_{s'} \min_i P^i(s')$"
MOST_LABELS = 12
"""Axes with more agents, steps or states than this name only some of them."""


def plot_inspection(found: Inspection, path: str | Path | None = None) -> Figure:
    """Where kernels differ, which agents differ, and what sharing one policy costs each of them.

    The first panel shows ``1 - sum_s' min_i P^i(s')``, whose largest value is the least eps_p: on the grid, if there
    is one, with the largest over steps and actions in each square; otherwise by step and (state, action), or by state
    and action where kernels do not depend on the step.
    """
    import matplotlib

    from fed_ucbvi.results.picture import Picture

    if path is not None:
        check_picture(path)
    federation = found.federation
    with matplotlib.rc_context(SETTINGS):
        figure = Picture(11.0, 3.4)
        where, pairs, values = figure.subplots(1, 3, width_ratios=(1.25, 1.0, 1.0))
        if federation.layout is None:
            _draw_table(where, found.missing)
        else:
            _draw_grid(where, found.missing, dict(federation.layout))
        _draw_pairs(pairs, found)
        _draw_values(values, found)
        name = label_of(str(federation.description.get("name", "custom")))
        figure.suptitle(
            f"{name}: $M$ = {federation.agents:,}, $H$ = {federation.horizon:,}, {EPS_P} = {found.eps_p:.3g} "
            f"(least: {found.eps_p_least:.3g}), $\\varepsilon_r$ = {found.eps_r:.3g}",
            fontsize=10,
            x=0.012,
            ha="left",
        )
    if path is not None:
        save_figure(figure, path)
    return figure


def _shade(axes: Axes, table: FloatArray, label: str, **how: Any) -> None:
    """A heat map with its scale, from the smallest entry to the largest; what is not a number is left blank."""
    known = table[~np.isnan(table)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    high = max(high, low + 1e-6)
    image = axes.imshow(table, cmap=SHADES, vmin=low, vmax=high, interpolation="nearest", zorder=0, **how)
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label(label)
    bar.outline.set_visible(False)


def _some_ticks(axis: Any, count: int) -> None:
    axis.set_ticks(range(0, count, -(-count // MOST_LABELS)))


def _draw_table(axes: Axes, missing: FloatArray) -> None:
    """By step and (state, action); by state and action where there is one step."""
    steps, S, A = missing.shape
    axes.set_title("Where kernels differ")
    if steps == 1:
        _shade(axes, missing[0].T, UNSHARED, aspect="auto")
        axes.set_xlabel("State (from 0)")
        axes.set_ylabel("Action (from 0)")
        _some_ticks(axes.xaxis, S)
        _some_ticks(axes.yaxis, A)
    else:
        _shade(axes, missing.reshape(steps, S * A), UNSHARED, aspect="auto")
        axes.set_xlabel(f"State (from 0), with its {A} actions side by side")
        axes.set_ylabel("Step (from 0)")
        named = range(0, S, -(-S // MOST_LABELS))
        axes.set_xticks([s * A + (A - 1) / 2 for s in named], [str(s) for s in named])
        axes.vlines(np.arange(1, S) * A - 0.5, -0.5, steps - 0.5, color="white", linewidth=0.6)
        _some_ticks(axes.yaxis, steps)
    axes.tick_params(length=0)


def _draw_grid(axes: Axes, missing: FloatArray, layout: dict[str, Any]) -> None:
    """The largest over steps and actions, square by square."""
    table = np.full((int(layout["rows"]), int(layout["columns"])), np.nan)
    for (row, column), value in zip(layout["cells"], missing.max(axis=(0, 2)), strict=True):
        table[row, column] = value
    _shade(axes, table, UNSHARED)
    draw_squares(axes, layout, fill=False)
    axes.set_title("Where kernels differ")
    axes.set_xlabel("The largest over steps and actions")


def _draw_pairs(axes: Axes, found: Inspection) -> None:
    """Agent by agent, the worst total variation."""
    table = found.distances.worst / 2
    np.fill_diagonal(table, np.nan)
    _shade(axes, table, "Largest total variation over $(h,s,a)$")
    axes.set_title("Which agents differ")
    axes.set_xlabel("Agent (from 0)")
    axes.set_ylabel("Agent (from 0)")
    _some_ticks(axes.xaxis, found.federation.agents)
    _some_ticks(axes.yaxis, found.federation.agents)
    axes.tick_params(length=0)


def _draw_values(axes: Axes, found: Inspection) -> None:
    """Each agent's own optimum and its value under the shared policy, the agents in order of what they lose."""
    order = np.argsort(found.own - found.shared, kind="stable")
    rank = np.arange(len(order))
    own, shared = found.own[order], found.shared[order]
    axes.hlines(rank, shared, own, color=LIGHT_GREY, linewidth=1.2, zorder=1)
    axes.plot(own, rank, "o", color=BLUE, markersize=3.5, label="its own optimal policy")
    axes.plot(shared, rank, "^", color=VERMILLION, markersize=3.5, label="the common MDP's")
    axes.set_title("What sharing costs")
    axes.set_xlabel("Value in the agent's own MDP (units of reward)")
    axes.set_ylabel("Agent (from 0), by what it loses")
    every = -(-len(order) // MOST_LABELS)
    axes.set_yticks(rank[::every], [str(i) for i in order[::every]])
    axes.set_ylim(-0.8, len(order) - 0.2 + 0.22 * len(order))
    axes.legend(loc="upper left", frameon=False, fontsize=7, handletextpad=0.3)
