"""The grid on which states lie: when its squares are reached, and where a policy's actions lead.

A layout has the grid's ``rows`` and ``columns``; ``cells``, the square of each state in turn (states after the last
have none); the squares ``start`` and ``goals``; ``moves``, by how many rows and columns each action moves; and, where
that is not the same everywhere, ``moves_by_state``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fed_ucbvi.core.types import PolicyArray


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


def policy_arrows(
    layout: Mapping[str, Any], policy: PolicyArray, step: int | None = None
) -> dict[tuple[int, int], tuple[int, int]]:
    """For squares that can be reached, the (rows, columns) by which the policy's action moves.

    Where the policy draws its actions, the most likely one counts. By default a square has the action of the first
    step at which it can be reached, because no agent is there before; with ``step`` (from 0) every square that can be
    reached by then has the action of that step.
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
