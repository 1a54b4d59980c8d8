"""A picture of how different the agents of a federation are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.analysis.inspection import Inspection
from fed_ucbvi.charts.panels import Board, Panel, Scale, Series
from fed_ucbvi.charts.picture import Picture, check_picture
from fed_ucbvi.core.colours import BLUE, VERMILLION
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.grid import grid_board, grid_squares
from fed_ucbvi.results.plotting import WIDE
from fed_ucbvi.results.style import label_of

UNSHARED = "Shade: mass not shared, 1 \u2212 \u03a3\u209b\u2032 min\u1d62 P\u2071(s\u2032)"
MAX_LABELS = 12
"""Axes with more agents, steps or states than this name only some of them."""
MAX_SQUARES = 120
"""The most squares along an axis of a board; where there are more, neighbours are merged."""


def plot_inspection(found: Inspection, path: str | Path | None = None) -> Picture:
    """Where kernels differ, which agents differ, and what sharing one policy costs each of them.

    The first panel shows ``1 - sum_s' min_i P^i(s')``, whose largest value is the smallest possible eps_p. If there
    is a grid, each square shows the largest value over steps and actions. Otherwise the panel shows values by step
    and (state, action), or by state and action where kernels do not depend on the step.

    Args:
        found: what :func:`~fed_ucbvi.inspect_federation` found.
        path: where to write the picture, ``.png``, ``.svg``, ``.pdf`` or ``.html``; nowhere if None.
    """
    if path is not None:
        check_picture(path)
    federation = found.federation
    where = _table(found.missing) if federation.layout is None else _grid(found.missing, federation.layout)
    name = label_of(str(federation.description.get("name", "custom")))
    title = (
        f"{name}: M = {federation.agents:,}, H = {federation.horizon:,}, \u03b5\u209a = {found.eps_p:.3g} "
        f"(least: {found.eps_p_least:.3g}), \u03b5\u1d63 = {found.eps_r:.3g}"
    )
    picture = Picture([where, _pairs(found), _values(found)], title, WIDE)
    if path is not None:
        picture.save(path)
    return picture


def _some(count: int) -> list[int]:
    """Which of the numbers 0, 1, ..., ``count - 1`` are written along an axis."""
    return list(range(0, count, -(-count // MAX_LABELS)))


def _board(
    title: str, x_label: str, y_label: str, table: FloatArray, shade: str, group: int = 1, *, even: bool = True
) -> Board:
    """A board of a table; where there are too many entries, neighbours are merged and show their largest.

    Args:
        title: above.
        x_label: what columns are, or groups of them.
        y_label: what rows are.
        table: the figures.
        shade: what they are, written below.
        group: columns in a group.
        even: whether squares are as high as wide.
    """
    rows, columns = table.shape
    down, along = (-(-size // MAX_SQUARES) for size in (rows, columns))
    padded = np.full((-(-rows // down) * down, -(-columns // along) * along), -np.inf)
    padded[:rows, :columns] = np.where(np.isnan(table), -np.inf, table)
    pooled = padded.reshape(-1, down, padded.shape[1] // along, along).max(axis=(1, 3))
    shades = np.where(np.isinf(pooled), np.nan, pooled)
    note = [] if down == along == 1 else [f"Squares: the largest of {down} \u00d7 {along}"]
    return Board(
        title,
        [x_label, shade, *note],
        y_label,
        shades.shape[0],
        shades.shape[1],
        shades.tolist(),
        x_ticks=[((n * group + (group - 1) / 2) / along, f"{n}") for n in _some(columns // group)],
        y_ticks=[(n / down, f"{n}") for n in _some(rows)],
        lines=(0, group if group > 1 and along == 1 else 0),
        even=even,
    )


def _table(missing: FloatArray) -> Board:
    """By step and (state, action); by state and action where there is one step."""
    steps, S, A = missing.shape
    title = "Where kernels differ"
    if steps == 1:
        return _board(title, "State (from 0)", "Action (from 0)", missing[0].T, UNSHARED, even=False)
    x_label = f"State (from 0), with its {A} actions side by side"
    return _board(title, x_label, "Step (from 0)", missing.reshape(steps, S * A), UNSHARED, A, even=False)


def _grid(missing: FloatArray, layout: Mapping[str, Any]) -> Board:
    """The largest over steps and actions, square by square."""
    table = np.full((int(layout["rows"]), int(layout["columns"])), np.nan)
    for (row, column), value in zip(layout["cells"], missing.max(axis=(0, 2)), strict=False):  # others have no square
        table[row, column] = value
    caption = ["The largest over steps and actions", UNSHARED]
    return grid_board(layout, "Where kernels differ", caption, grid_squares(layout, fill=False), table.tolist())


def _pairs(found: Inspection) -> Board:
    """The largest total variation between each two agents."""
    table = found.distances.worst / 2
    np.fill_diagonal(table, np.nan)
    agents = "Agent (from 0)"
    return _board("Which agents differ", agents, agents, table, "Shade: largest total variation over (h, s, a)")


def _values(found: Inspection) -> Panel:
    """Each agent's own optimum and its value under the shared policy; agents are sorted by what they lose."""
    order = np.argsort(found.own - found.shared, kind="stable")
    own, shared = found.own[order], found.shared[order]
    rank = list(range(len(order)))
    axis = Scale(-0.7, len(order) - 0.3, log=False, ticks=tuple((float(n), f"{order[n]}") for n in _some(len(order))))
    low, high = np.minimum(own, shared).tolist(), np.maximum(own, shared).tolist()
    series = [
        Series("its own optimal policy", BLUE, rank, own.tolist(), low, high, "solid", "circle", line=False),
        Series("the common MDP's optimal policy", VERMILLION, rank, shared.tolist(), marker="triangle", line=False),
    ]
    x_label, y_label = "Agent (from 0), by what it loses", "Value in the agent's own MDP (units of reward)"
    return Panel("What sharing costs", x_label, y_label, series, x_axis=axis)
