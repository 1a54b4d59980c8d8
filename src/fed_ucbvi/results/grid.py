"""The recommended policy, drawn on the grid that the states live on.

A layout has the grid's ``rows`` and ``columns``; ``cells``, the square of each state in turn (states after the last
have none); the squares ``start`` and ``goals``; ``moves``, by how many rows and columns each action moves; and, where
that is not the same everywhere, ``moves_by_state``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.errors import InputError
from fed_ucbvi.results.run import Run
from fed_ucbvi.results.style import DARK_GREY, GREEN, LIGHT_GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Square = tuple[int, int]

SMALL_GRID = 6
"""Grids up to this many rows and columns have their start, goals and walls named in the squares."""
FINE_GRID = 16
"""Grids from this many rows or columns on have no lines, and arrows that fill the squares."""


def moves_from(layout: Mapping[str, Any], state: int) -> Sequence[Sequence[int]]:
    """For each action the (row, column) by which it moves on from ``state``."""
    by_state = layout.get("moves_by_state")
    return layout["moves"] if by_state is None else by_state[state]  # type: ignore[no-any-return]


def first_steps(layout: Mapping[str, Any]) -> list[int | None]:
    """For each state the first step (from 0) at which its square can be reached from the start, or None."""
    number = {tuple(cell): state for state, cell in enumerate(layout["cells"])}
    steps: list[int | None] = [None] * len(number)
    start = number[tuple(layout["start"])]
    steps[start] = 0
    queue = deque([(start, 0)])
    while queue:
        state, step = queue.popleft()
        row, column = layout["cells"][state]
        for down, right in moves_from(layout, state):
            following = number.get((row + down, column + right))
            if following is not None and steps[following] is None:
                steps[following] = step + 1
                queue.append((following, step + 1))
    return steps


def draw_policy(axes: Axes, run: Run, layout: Mapping[str, Any], step: int | None) -> None:
    """The recommended policy as arrows on the grid.

    By default a square shows the action of the first step at which it can be reached: before that nobody is ever
    there and nothing is learnt. With ``step`` (from 0) every square that can be reached by then shows that step's.
    """
    horizon = run.about.horizon
    if step is not None and not 0 <= step < horizon:
        raise InputError(f"step must lie in 0..{horizon - 1}, got {step}.")
    draw_squares(axes, layout)
    arrows = []
    for state, ((row, column), first) in enumerate(zip(layout["cells"], first_steps(layout), strict=True)):
        at = first if step is None else step
        if first is not None and at is not None and first <= at < horizon:
            down, right = moves_from(layout, state)[int(run.policy[at, state])]
            arrows.append((column, row, right, down))
    fine = max(layout["rows"], layout["columns"]) >= FINE_GRID
    x, y, u, v = np.array(arrows, dtype=np.float64).reshape(-1, 4).T
    axes.quiver(
        x, y, u, v, angles="xy", units="xy", scale_units="xy", scale=1.3 if fine else 2.0, pivot="mid",
        width=0.1 if fine else 0.055, color="black", zorder=3,
    )  # fmt: skip
    axes.set_title("Learnt policy")
    when = "on first reaching a square" if step is None else f"at step {step + 1} of {horizon}"
    signs = "" if max(layout["rows"], layout["columns"]) <= SMALL_GRID else " (\u25cb start, \u25c7 goal)"
    axes.set_xlabel(
        f"Action {when}{signs}\nValue {run.value:.4g}, optimum {run.about.optimal_value:.4g} (units of reward)"
    )


def draw_squares(axes: Axes, layout: Mapping[str, Any], *, fill: bool = True) -> None:
    """Walls, start and goals by colour and by name, or by colour and shape where squares are too small for names.

    Without ``fill`` start and goals are told by name and shape alone, so that squares can have colours of their own.
    """
    rows, columns = int(layout["rows"]), int(layout["columns"])
    free = {tuple(cell) for cell in layout["cells"]}
    start, goals = tuple(layout["start"]), [tuple(cell) for cell in layout["goals"]]
    walls = [(r, c) for r in range(rows) for c in range(columns) if (r, c) not in free]
    _fill(axes, walls, DARK_GREY)
    if fill:
        _fill(axes, goals, GREEN, 0.35)
        _fill(axes, [start], ORANGE, 0.35)
    fine = max(rows, columns) >= FINE_GRID
    across = [-0.5, rows - 0.5] if fine else np.arange(rows + 1) - 0.5
    along = [-0.5, columns - 0.5] if fine else np.arange(columns + 1) - 0.5
    axes.hlines(across, -0.5, columns - 0.5, color=LIGHT_GREY, linewidth=0.6, zorder=1)
    axes.vlines(along, -0.5, rows - 0.5, color=LIGHT_GREY, linewidth=0.6, zorder=1)
    if max(rows, columns) <= SMALL_GRID:
        names = [("start", start), *(("goal", goal) for goal in goals)]
        for name, (row, column) in names:
            box = None if fill else {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            axes.text(column, row - 0.43, name, ha="center", va="top", fontsize=6.5, color=DARK_GREY, bbox=box)
        for row, column in walls:
            axes.text(column, row, "wall", ha="center", va="center", fontsize=6.5, color="white")
    else:
        _outline(axes, [start], 64, max(rows, columns))
        _outline(axes, goals, 4, max(rows, columns))
    axes.set_xlim(-0.6, columns - 0.4)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _outline(axes: Axes, cells: Sequence[Square], corners: int, size: int) -> None:
    """A circle or a diamond round squares, large enough to be seen on a large grid."""
    from matplotlib.patches import RegularPolygon

    radius = max(0.55, size / 30)
    for row, column in cells:
        shape = RegularPolygon((column, row), corners, radius=radius, fill=False, edgecolor="black", linewidth=0.9)
        shape.set(zorder=4, clip_on=False)
        axes.add_patch(shape)


def _fill(axes: Axes, cells: Sequence[Square], colour: str, alpha: float = 1.0) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    boxes = [Rectangle((column - 0.5, row - 0.5), 1, 1) for row, column in cells]
    axes.add_collection(PatchCollection(boxes, facecolor=colour, edgecolor="none", alpha=alpha, zorder=0))
