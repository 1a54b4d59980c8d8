"""Pictures of grids: walls, start and goals, a number in each square as its shade, and a policy as arrows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from fed_ucbvi.charts.axes import MARKERS, set_texts
from fed_ucbvi.charts.figures import Panels, figure_style, one_axes
from fed_ucbvi.charts.picture_files import check_picture
from fed_ucbvi.core.colours import BLACK, DARK_GREY, GREEN, LIGHT_GREY, ORANGE, WHITE, lighter
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.units import PER_STEP
from fed_ucbvi.results.grid import policy_arrows
from fed_ucbvi.results.run_data import RunData

NAMED_UP_TO = 6
"""Up to so many rows and columns, squares are named; on larger grids start and goals are marked by shapes."""
FINE_FROM = 16
"""From so many rows or columns on there are no lines between squares, and arrows nearly fill them."""
ARROW_LENGTH = 0.5
FINE_ARROW_LENGTH = 0.77
NAME_HEIGHT = 0.36
"""Height of a name above the centre of its square, which the arrow takes."""
Cell = tuple[int, int]


def plot_policy(
    run: RunData, path: str | Path | None = None, *, step: int | None = None, ax: Axes | None = None
) -> Axes:
    """The recommended policy of a run on a grid, as arrows that point where its actions move.

    Args:
        run: a run whose environment is a grid.
        path: where to write the picture, ``.png``, ``.svg`` or ``.pdf``; nowhere if None.
        step: the step (from 0) whose policy is drawn; by default each square shows the first step at which it can
            be reached, because no agent is there before.
        ax: the axes to draw on; by default those of a new figure.

    Returns:
        The axes that were drawn on; ``ax.figure`` is their figure.
    """
    layout = run.about.layout
    if layout is None:
        raise InputError(f"the states of {run.about.environment.get('name', 'this run')} do not lie on a grid.")
    horizon = run.about.horizon
    if step is not None and not 0 <= step < horizon:
        raise InputError(f"step must lie in 0..{horizon - 1}, got {step}.")
    if path is not None:
        check_picture(path)
    with figure_style():
        ax = one_axes(ax)
        draw_grid(ax, layout)
        _draw_arrows(ax, layout, policy_arrows(layout, run.policy, step))
        when = "on first reaching a square" if step is None else f"at step {step + 1} of {horizon}"
        signs = "" if _names_fit(layout) else " (\N{WHITE CIRCLE} start, \N{WHITE DIAMOND} goal)"
        unit = PER_STEP if run.units == PER_STEP else "units of reward"
        worth = f"Value {run.value:.4g}, optimum {run.about.optimal_value:.4g} ({unit})"
        set_texts(ax, title="Recommended policy", x_label=f"Action {when}{signs}\n{worth}", y_label="")
    if path is not None:
        Panels([ax]).save(path)
    return ax


def draw_grid(ax: Axes, layout: Mapping[str, Any], *, fill: bool = True) -> None:
    """Walls, start and goals, by colour and by name, or by colour and shape where squares are too small for names.

    Without ``fill``, start and goals have a name or a shape but no colour, so that squares can show something else.
    """
    rows = int(layout["rows"])
    columns = int(layout["columns"])
    free = {tuple(cell) for cell in layout["cells"]}
    start = tuple(layout["start"])
    goals = {tuple(cell) for cell in layout["goals"]}
    for cell in itertools.product(range(rows), range(columns)):
        if cell not in free:
            _draw_square(ax, cell, colour=DARK_GREY, name="wall" if _names_fit(layout) else "", text_colour=WHITE)
        elif cell == start:
            _draw_end(ax, layout, cell, name="start", colour=ORANGE if fill else "")
        elif cell in goals:
            _draw_end(ax, layout, cell, name="goal", colour=GREEN if fill else "")
    set_square_axes(ax, rows=rows, columns=columns)
    if max(rows, columns) < FINE_FROM:
        draw_lines(ax, down=range(1, rows), along=range(1, columns), colour=LIGHT_GREY if fill else WHITE)
    ax.set_xticks([])
    ax.set_yticks([])


def set_square_axes(ax: Axes, *, rows: int, columns: int) -> None:
    """Axes on which the square of row r and column c is around (c, r), the first row on top, within a frame."""
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(rows - 0.5, -0.5)
    ax.set_aspect("equal")
    ax.grid(False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(True)
        spine.set_color(LIGHT_GREY)


def draw_lines(ax: Axes, *, down: range, along: range, colour: str) -> None:
    """Lines above rows ``down`` and left of columns ``along``."""
    for row in down:
        ax.axhline(row - 0.5, color=colour, linewidth=0.8)
    for column in along:
        ax.axvline(column - 0.5, color=colour, linewidth=0.8)


def draw_shades(ax: Axes, table: FloatArray, *, equal: bool = True) -> AxesImage:
    """A number in each square as its shade, from dark (least) to light (most), with a scale; NaN is left blank."""
    known = table[~np.isnan(table)]
    low = float(known.min()) if known.size else 0.0
    high = float(known.max()) if known.size else 1.0
    if low == high:
        low = min(0.0, low)
        high = max(0.0, high) or 1.0
    image = ax.imshow(table, vmin=low, vmax=high, aspect="equal" if equal else "auto", interpolation="nearest")
    scale = ax.figure.colorbar(image, ax=ax, shrink=0.85, fraction=0.05, pad=0.03)
    scale.outline.set_visible(False)
    return image


def _names_fit(layout: Mapping[str, Any]) -> bool:
    return bool(max(layout["rows"], layout["columns"]) <= NAMED_UP_TO)


def _draw_end(ax: Axes, layout: Mapping[str, Any], cell: Cell, *, name: str, colour: str) -> None:
    """The start or a goal."""
    tint = lighter(colour, 0.65) if colour else ""
    if _names_fit(layout):
        _draw_square(ax, cell, colour=tint, name=name, text_colour=DARK_GREY, on_paper=not colour, up=NAME_HEIGHT)
        return
    _draw_square(ax, cell, colour=tint)
    marker = MARKERS["circle" if name == "start" else "diamond"]
    row, column = cell
    ax.plot(column, row, marker=marker, markersize=8, markerfacecolor="none", markeredgecolor=BLACK, label=f"_{name}")


def _draw_square(
    ax: Axes,
    cell: Cell,
    *,
    colour: str = "",
    name: str = "",
    text_colour: str = BLACK,
    on_paper: bool = False,
    up: float = 0.0,
) -> None:
    row, column = cell
    if colour:
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="none", zorder=0.9))
    if name:
        paper = {"facecolor": WHITE, "edgecolor": "none", "pad": 1.5} if on_paper else None
        ax.text(column, row - up, name, color=text_colour, ha="center", va="center", fontsize=8, bbox=paper)


def _draw_arrows(ax: Axes, layout: Mapping[str, Any], arrows: Mapping[Cell, Cell]) -> None:
    """An arrow for each square, centred in it; a dot where the action stays."""
    fine = max(layout["rows"], layout["columns"]) >= FINE_FROM
    length = FINE_ARROW_LENGTH if fine else ARROW_LENGTH
    moving = {cell: move for cell, move in arrows.items() if any(move)}
    staying = [cell for cell, move in arrows.items() if not any(move)]
    if moving:
        cells = np.array(list(moving), dtype=np.float64)
        moves = np.array(list(moving.values()), dtype=np.float64)
        ax.quiver(
            cells[:, 1],
            cells[:, 0],
            moves[:, 1] * length,
            moves[:, 0] * length,
            pivot="middle",
            angles="xy",
            scale_units="xy",
            scale=1,
            units="xy",
            width=0.05,
            headwidth=5,
            headlength=5,
            headaxislength=4.5,
            minlength=0,
            color=BLACK,
            zorder=3,
        )
    if staying:
        rows, columns = zip(*staying, strict=True)
        ax.plot(columns, rows, linestyle="None", marker="o", markersize=4, color=BLACK, label="_stay")
