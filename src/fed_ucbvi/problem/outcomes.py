"""Outcomes of recorded steps under known dynamics: checked where recorded, and derived where they follow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.kernel import real_numbers, whole_numbers

REWARD_TOLERANCE = 1e-6
"""Largest difference between a recorded reward and that of an outcome, as a share of the range of rewards."""


def find_outcomes(
    dynamics: Dynamics,
    states: npt.ArrayLike,
    actions: npt.ArrayLike,
    *,
    rewards: npt.ArrayLike | None = None,
    outcomes: npt.ArrayLike | None = None,
    agent: int | None = None,
) -> IndexArray:
    """The outcome of each step of recorded episodes, ``(T, H)``.

    An outcome that was not recorded is the one whose next state, and reward if rewards were recorded, is what was
    seen. There must be exactly one.

    Args:
        dynamics: what is known.
        states: ``(T, H+1)``, the last one included.
        actions: ``(T, H)``.
        rewards: ``(T, H)``, in your own units; they are compared with the known ones.
        outcomes: ``(T, H)``, where they were recorded; they are compared with the next states.
        agent: whose rewards; needed where agents are paid differently.

    Raises:
        InputError: if no outcome, or more than one, explains a step; with its episode, step, state and action.

    >>> shop = Dynamics(  # a stock of up to 2; what is sold says what was asked for, unless the shelf is empty
    ...     laws=1,
    ...     outcomes=3,
    ...     law_of=0,
    ...     next_state=lambda h, stock, order, demand: np.clip(stock + order - demand, 0, 2),
    ...     reward=lambda h, stock, order, demand: np.minimum(stock + order, demand) - 0.5 * order,
    ...     horizon=2,
    ...     states=3,
    ...     actions=2,
    ... )
    >>> find_outcomes(shop, states=[[2, 1, 1]], actions=[[0, 1]]).tolist()
    [[1, 1]]
    """
    visited = _whole_table("states", states, dynamics.horizon + 1, dynamics.states)
    taken = _whole_table("actions", actions, dynamics.horizon, dynamics.actions)
    if len(visited) != len(taken):
        raise InputError(f"there are states of {len(visited)} episodes and actions of {len(taken)}.")
    paid = None if rewards is None else _paid(dynamics, rewards, taken.shape)
    recorded = None if outcomes is None else _whole_table("outcomes", outcomes, dynamics.horizon, dynamics.outcomes)
    if recorded is not None and len(recorded) != len(taken):
        raise InputError(f"there are outcomes of {len(recorded)} episodes and actions of {len(taken)}.")
    found: IndexArray = np.zeros(taken.shape, dtype=np.int32)
    for h in range(dynamics.horizon):
        cells = (visited[:, h], taken[:, h])
        fits = dynamics.next_states_at(h)[cells] == visited[:, h + 1, np.newaxis]
        if paid is not None:
            known = dynamics.rewards_at(h, agent)[cells]
            fits &= np.abs(known - paid[:, h, np.newaxis]) <= REWARD_TOLERANCE
        if recorded is None:
            _check_unique(h, cells, visited[:, h + 1], fits)
            found[:, h] = fits.argmax(axis=1)
        else:
            _check_recorded(h, cells, visited[:, h + 1], fits, recorded[:, h])
            found[:, h] = recorded[:, h]
    return found


def _whole_table(name: str, given: npt.ArrayLike, length: int, number: int) -> CountArray:
    table = whole_numbers(name, given)
    if table.ndim != 2 or table.shape[1] != length:
        raise InputError(f"{name} must have shape (episodes, {length}), got {table.shape}.")
    if table.size and (table.min() < 0 or table.max() >= number):
        episode, step = np.argwhere((table < 0) | (table >= number))[0].tolist()
        raise InputError(
            f"{name} must be numbers from 0 to {number - 1}; in episode {episode} at step {step} there is "
            f"{table[episode, step]}."
        )
    return table


def _paid(dynamics: Dynamics, rewards: npt.ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Recorded rewards, rescaled as those of the dynamics."""
    table = real_numbers("rewards", rewards)
    if table.shape != shape:
        raise InputError(f"rewards must have shape {shape}, got {table.shape}.")
    return dynamics.units.rescaled(table)


def _place(h: int, cells: tuple[CountArray, CountArray], episode: int) -> str:
    states, actions = cells
    return f"in episode {episode}, at step {h} in state {states[episode]} with action {actions[episode]}"


def _check_unique(h: int, cells: tuple[CountArray, CountArray], after: CountArray, fits: MaskArray) -> None:
    """Raise unless exactly one outcome explains each step."""
    explained = fits.sum(axis=1)
    impossible = np.flatnonzero(explained == 0)
    if len(impossible):
        episode = int(impossible[0])
        raise InputError(
            f"{_place(h, cells, episode)}, no outcome leads to what was recorded, next state {after[episode]}: the "
            "dynamics are wrong there, or the record is."
        )
    several = np.flatnonzero(explained > 1)
    if len(several):
        episode = int(several[0])
        which = np.flatnonzero(fits[episode]).tolist()
        raise InputError(
            f"{_place(h, cells, episode)}, the outcomes {which} all lead to next state {after[episode]}. Record the "
            "outcome and pass it, or pass rewards if they tell the outcomes apart."
        )


def _check_recorded(
    h: int, cells: tuple[CountArray, CountArray], after: CountArray, fits: MaskArray, outcomes: CountArray
) -> None:
    """Raise unless the recorded outcome of each step explains it."""
    wrong = np.flatnonzero(~fits[np.arange(len(outcomes)), outcomes])
    if len(wrong):
        episode = int(wrong[0])
        raise InputError(
            f"{_place(h, cells, episode)}, outcome {outcomes[episode]} does not lead to what was recorded, next "
            f"state {after[episode]} (or not to its reward): the dynamics are wrong there, or the record is."
        )
