"""The recommended policy, drawn on the grid that the states live on.

A layout has the grid's ``rows`` and ``columns``; ``cells``, the square of each state in turn (states after the last
have none); the squares ``start`` and ``goals``; ``moves``, by how many rows and columns each action moves; and, where
that is not the same everywhere, ``moves_by_state``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fed_ucbvi.charts.panels import Board, Shades, Square
from fed_ucbvi.charts.vega import FINE
from fed_ucbvi.core.colours import DARK_GREY, GREEN, ORANGE, WHITE, lighter
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import PolicyArray
from fed_ucbvi.problem.units import PER_STEP
from fed_ucbvi.results.run_data import RunData


def moves_from(layout: Mapping[str, Any], state: int) -> Sequence[Sequence[int]]:
    """For each action, the (row, column) by which it moves from ``state``."""
    by_state = layout.get("moves_by_state")
    return layout["moves"] if by_state is None else by_state[state]  # type: ignore[no-any-return]


def first_steps(layout: Mapping[str, Any]) -> list[int | None]:
    """For each state the first step (from 0) at which its square can be reached from the start, or None."""
    number = {tuple(cell): state for state, cell in enumerate(layout["cells"])}
    queue = [number[tuple(layout["start"])]]
    steps = {queue[0]: 0}
    for state in queue:  # which grows as squares are reached
        row, column = layout["cells"][state]
        for down, right in moves_from(layout, state):
            following = number.get((row + down, column + right))
            if following is not None and following not in steps:
                steps[following] = steps[state] + 1
                queue.append(following)
    return [steps.get(state) for state in range(len(number))]


def policy_board(run: RunData, layout: Mapping[str, Any], step: int | None) -> Board:
    """The recommended policy as arrows on the grid.

    By default a square shows the action of the first step at which it can be reached, because before that no agent is
    ever there. With ``step`` (from 0) every square that can be reached by then shows the action of that step.
    """
    horizon = run.about.horizon
    if step is not None and not 0 <= step < horizon:
        raise InputError(f"step must lie in 0..{horizon - 1}, got {step}.")
    arrows = policy_arrows(layout, run.policy, step)
    when = "on first reaching a square" if step is None else f"at step {step + 1} of {horizon}"
    signs = "" if _small(layout) else " (\u25cb start, \u25c7 goal)"
    unit = PER_STEP if run.units == PER_STEP else "units of reward"
    worth = f"Value {run.value:.4g}, optimum {run.about.optimal_value:.4g} ({unit})"
    squares = [square._replace(arrow=arrows.get(square[:2])) for square in grid_squares(layout)]
    return grid_board(layout, "Recommended policy", [f"Action {when}{signs}", worth], squares)


def policy_arrows(
    layout: Mapping[str, Any], policy: PolicyArray, step: int | None = None
) -> dict[tuple[int, int], tuple[int, int]]:
    """For squares that can be reached, the (rows, columns) by which the policy's action moves.

    Where the policy draws its actions, the most likely one counts. For ``step`` see :func:`policy_board`.
    """
    if policy.ndim == 3:
        policy = policy.argmax(axis=2)
    arrows: dict[tuple[int, int], tuple[int, int]] = {}
    for state, (cell, first) in enumerate(zip(layout["cells"], first_steps(layout), strict=True)):
        at = first if step is None else step
        if first is not None and at is not None and first <= at < len(policy):
            down, right = moves_from(layout, state)[int(policy[at, state])]
            arrows[tuple(cell)] = (int(down), int(right))
    return arrows


def grid_board(
    layout: Mapping[str, Any], title: str, caption: Sequence[str], squares: Sequence[Square], shades: Shades = ()
) -> Board:
    rows = int(layout["rows"])
    columns = int(layout["columns"])
    fine = max(rows, columns) >= FINE
    return Board(title, caption, "", rows, columns, shades, squares, lines=(0, 0) if fine else (1, 1))


def grid_squares(layout: Mapping[str, Any], *, fill: bool = True) -> list[Square]:
    """Walls, start and goals by colour and by name, or by colour and shape where squares are too small for names.

    Without ``fill``, start and goals have a name and a shape but no colour, so that squares can have other colours.
    """
    free = {tuple(cell) for cell in layout["cells"]}
    named = _small(layout)
    start = tuple(layout["start"])
    goals = {tuple(cell) for cell in layout["goals"]}

    def square(cell: tuple[int, int]) -> Square:
        if cell not in free:
            return Square(*cell, DARK_GREY, "wall" if named else "", WHITE)
        if cell != start and cell not in goals:
            return Square(*cell)
        name, colour = ("start", ORANGE) if cell == start else ("goal", GREEN)
        tint = lighter(colour, 0.65) if fill else ""
        if named:
            return Square(*cell, tint, name, DARK_GREY)
        return Square(*cell, tint, "", DARK_GREY, "circle" if cell == start else "diamond")

    return [square(cell) for cell in itertools.product(range(int(layout["rows"])), range(int(layout["columns"])))]


def _small(layout: Mapping[str, Any]) -> bool:
    """Whether start, goals and walls are named in the squares."""
    return bool(max(layout["rows"], layout["columns"]) <= 6)
