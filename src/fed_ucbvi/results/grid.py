"""The grid on which states lie: the first step at which a square can be reached, and the moves of a policy.

A layout has the grid's ``rows`` and ``columns``; ``cells``, the square of each state in turn (states after the last
have none); the squares ``start`` and ``goals``; ``moves``, the rows and columns by which each action moves; and,
where these depend on the state, ``moves_by_state``.
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
    state_on = {tuple(cell): state for state, cell in enumerate(layout["cells"])}
    start = state_on[tuple(layout["start"])]
    steps = {start: 0}
    queue = [start]
    for state in queue:  # the queue grows as squares are reached
        row, column = layout["cells"][state]
        for down, right in moves_from(layout, state):
            next_state = state_on.get((row + down, column + right))
            if next_state is not None and next_state not in steps:
                steps[next_state] = steps[state] + 1
                queue.append(next_state)
    return [steps.get(state) for state in range(len(state_on))]


def policy_arrows(
    layout: Mapping[str, Any], policy: PolicyArray, step: int | None = None
) -> dict[tuple[int, int], tuple[int, int]]:
    """For squares that can be reached, the (rows, columns) by which the policy's action moves.

    Where the policy draws its actions, the most likely one counts. By default a square has the action of the first
    step at which it can be reached, because no agent is there before; with ``step`` (from 0) every square that can be
    reached by then has the action of that step.
    """
    actions = policy.argmax(axis=2) if policy.ndim == 3 else policy
    arrows: dict[tuple[int, int], tuple[int, int]] = {}
    for state, first_step in enumerate(first_steps(layout)):
        if first_step is None:
            continue
        shown_step = first_step if step is None else step
        if first_step <= shown_step < len(actions):
            action = int(actions[shown_step, state])
            down, right = moves_from(layout, state)[action]
            row, column = layout["cells"][state]
            arrows[row, column] = (int(down), int(right))
    return arrows
