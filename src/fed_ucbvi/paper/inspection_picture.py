"""The picture of an inspection: where kernels differ, which agents differ, and what sharing costs each agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fed_ucbvi.charts.axes import draw_points, set_scales, set_texts
from fed_ucbvi.charts.figures import Panels, figure_style, given_panels, new_panels, set_heading
from fed_ucbvi.charts.picture_files import Size, check_picture
from fed_ucbvi.core.colours import BLUE, VERMILLION, WHITE
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper.inspection import Inspection
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.grid_picture import draw_grid, draw_lines, draw_shades, set_square_axes

UNSHARED = "Shade: mass not shared, 1 \u2212 \u03a3\u209b\u2032 min\u1d62 P\u2071(s\u2032)"
MAX_LABELS = 12
"""Axes with more agents, steps or states than this name only some of them."""
MAX_SQUARES = 120
"""The most squares along an axis; where there are more, neighbours are merged."""
SIZE = (13.5, 4.4)
"""Inches."""


class Pooled(NamedTuple):
    """A table with merged neighbours, and how many rows and columns were merged into one."""

    table: FloatArray
    down: int
    along: int


def plot_inspection(
    found: Inspection,
    path: str | Path | None = None,
    *,
    size: Size | None = None,
    axes: Iterable[Axes] | None = None,
) -> Panels:
    """Where kernels differ, which agents differ, and what sharing one policy costs each of them.

    The first panel shows ``1 - sum_s' min_i P^i(s')``, whose largest value is the smallest possible eps_p. If there
    is a grid, each square shows the largest value over steps and actions. Otherwise the panel shows values by step
    and (state, action), or by state and action where kernels do not depend on the step.

    Args:
        found: the result of :func:`~fed_ucbvi.inspect_federation`.
        path: where to write the picture, ``.png``, ``.svg`` or ``.pdf``; nowhere if None.
        size: width and height of the new figure in inches.
        axes: three axes to draw on; by default those of a new figure.

    Returns:
        The axes of the three panels.
    """
    if path is not None:
        check_picture(path)
    with figure_style():
        panels = new_panels(3, columns=3, size=size or SIZE) if axes is None else given_panels(axes, 3)
        layout = found.federation.layout
        if layout is None:
            _draw_table(panels[0], found.missing)
        else:
            _draw_on_grid(panels[0], found.missing, layout)
        _draw_pairs(panels[1], found)
        _draw_values(panels[2], found)
        if axes is None:
            set_heading(panels, _heading(found))
    if path is not None:
        panels.save(path)
    return panels


def _heading(found: Inspection) -> str:
    federation = found.federation
    name = label_of(str(federation.description.get("name", "custom")))
    return (
        f"{name}: M = {federation.agents:,}, H = {federation.horizon:,}, \u03b5\u209a = {found.eps_p:.3g} "
        f"(least: {found.eps_p_least:.3g}), \u03b5\u1d63 = {found.eps_r:.3g}"
    )


def _draw_table(ax: Axes, missing: FloatArray) -> None:
    """By step and (state, action); by state and action where there is one step."""
    steps, S, A = missing.shape
    title = "Where kernels differ"
    if steps == 1:
        _draw_pooled(ax, missing[0].T, equal=False)
        set_texts(ax, title=title, x_label=f"State (from 0)\n{UNSHARED}", y_label="Action (from 0)")
        return
    pooled = _draw_pooled(ax, missing.reshape(steps, S * A), group=A, equal=False)
    x_label = f"State (from 0), with its {A} actions side by side\n{UNSHARED}{_note(pooled)}"
    set_texts(ax, title=title, x_label=x_label, y_label="Step (from 0)")


def _draw_on_grid(ax: Axes, missing: FloatArray, layout: Mapping[str, Any]) -> None:
    """The largest over steps and actions, square by square."""
    table = np.full((int(layout["rows"]), int(layout["columns"])), np.nan)
    for (row, column), value in zip(layout["cells"], missing.max(axis=(0, 2)), strict=False):  # others have no square
        table[row, column] = value
    draw_shades(ax, table)
    draw_grid(ax, layout, fill=False)
    x_label = f"The largest over steps and actions\n{UNSHARED}"
    set_texts(ax, title="Where kernels differ", x_label=x_label, y_label="")


def _draw_pairs(ax: Axes, found: Inspection) -> None:
    """The largest total variation between each two agents."""
    table = found.distances.worst / 2
    np.fill_diagonal(table, np.nan)
    pooled = _draw_pooled(ax, table)
    x_label = f"Agent (from 0)\nShade: largest total variation over (h, s, a){_note(pooled)}"
    set_texts(ax, title="Which agents differ", x_label=x_label, y_label="Agent (from 0)")


def _draw_pooled(ax: Axes, table: FloatArray, *, group: int = 1, equal: bool = True) -> Pooled:
    """A table as shaded squares with numbered rows and columns; ``group`` columns at a time have one number."""
    rows, columns = table.shape
    pooled = pool(table)
    draw_shades(ax, pooled.table, equal=equal)
    set_square_axes(ax, rows=pooled.table.shape[0], columns=pooled.table.shape[1])
    ax.set_aspect("equal" if equal else "auto")
    if group > 1 and pooled.along == 1:
        draw_lines(ax, down=range(0), along=range(group, columns, group), colour=WHITE)
    named_columns = _some(columns // group)
    named_rows = _some(rows)
    ax.set_xticks([(n * group + (group - 1) / 2) / pooled.along for n in named_columns], map(str, named_columns))
    ax.set_yticks([n / pooled.down for n in named_rows], map(str, named_rows))
    return pooled


def pool(table: FloatArray) -> Pooled:
    """A table of at most ``MAX_SQUARES`` rows and columns, in which merged neighbours have their largest entry."""
    rows, columns = table.shape
    down = -(-rows // MAX_SQUARES)
    along = -(-columns // MAX_SQUARES)
    padded = np.full((-(-rows // down) * down, -(-columns // along) * along), -np.inf)
    padded[:rows, :columns] = np.where(np.isnan(table), -np.inf, table)
    largest = padded.reshape(-1, down, padded.shape[1] // along, along).max(axis=(1, 3))
    return Pooled(table=np.where(np.isinf(largest), np.nan, largest), down=down, along=along)


def _note(pooled: Pooled) -> str:
    if pooled.down == pooled.along == 1:
        return ""
    return f"\nSquares: the largest of {pooled.down} \u00d7 {pooled.along}"


def _some(count: int) -> list[int]:
    """The numbers among 0, 1, ..., ``count - 1`` that are written along an axis."""
    return list(range(0, count, -(-count // MAX_LABELS)))


def _draw_values(ax: Axes, found: Inspection) -> None:
    """Each agent's own optimum and its value under the shared policy; agents are sorted by their loss."""
    order = np.argsort(found.own - found.shared, kind="stable")
    own = found.own[order]
    shared = found.shared[order]
    rank = np.arange(len(order))
    set_scales(ax, x_log=False, y_log=False)
    ax.vlines(rank, np.minimum(own, shared), np.maximum(own, shared), color=BLUE, linewidth=1.2)
    draw_points(ax, rank, own, colour=BLUE, marker="circle", label="its own optimal policy")
    draw_points(ax, rank, shared, colour=VERMILLION, marker="triangle", label="the common MDP's optimal policy")
    ax.set_xlim(-0.7, len(order) - 0.3)
    named = _some(len(order))
    ax.set_xticks(named, [str(order[n]) for n in named])
    ax.margins(y=0.15)
    ax.legend(loc="best", handletextpad=0.2)
    x_label = "Agent (from 0), sorted by its loss"
    y_label = "Value in the agent's own MDP\n(units of reward)"
    set_texts(ax, title="What sharing costs", x_label=x_label, y_label=y_label)
