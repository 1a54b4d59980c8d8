"""Twelve sites with a battery: what an owner knows of them, and the laws of price and load, which are not known.

An episode is a day of 24 hours. A state is a charge (0 to 9), a price level (0 to 3) and a load that is on or off. An
action moves the charge by -2 to +2 units. How charge moves and what is paid is known. The next price level and the
next load are drawn by a law of the hour, the price level and the load: 192 laws with 8 outcomes.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi import Dynamics, Federation
from fed_ucbvi.core.types import FloatArray, IndexArray

SITES = 12
HOURS = 24
CHARGES = 10
LEVELS = 4
STATES = CHARGES * LEVELS * 2
MOVES = (-2, -1, 0, 1, 2)
PRICES = np.array([0.05, 0.15, 0.30, 0.60])
"""Euro for a unit at each level."""
RESALE = 0.8
"""Share of the price at which units are sold."""
LOW = -3.2
HIGH = 1.0
"""Between which an hour pays, in euro."""
OUTCOMES = LEVELS * 2
LAWS = HOURS * OUTCOMES


def state_of(charge: IndexArray, market: IndexArray) -> IndexArray:
    """Number of a state; ``market`` is twice the price level, plus 1 if there is a load."""
    return charge * OUTCOMES + market


FIRST = 4 * OUTCOMES + 2
"""Every day begins with charge 4, price level 1 and no load."""


def law_of(hour: IndexArray, state: IndexArray, action: IndexArray) -> IndexArray:
    """One law for each hour, price level and load."""
    return hour * OUTCOMES + state % OUTCOMES


def charge_after(state: IndexArray, action: IndexArray) -> IndexArray:
    """Charge that a move leads to, within what the battery holds."""
    moved: IndexArray = np.clip(state // OUTCOMES + np.asarray(MOVES)[action], 0, CHARGES - 1)
    return moved


def next_state(hour: IndexArray, state: IndexArray, action: IndexArray, outcome: IndexArray) -> IndexArray:
    """State with the new charge; an outcome is the next price level and load."""
    return state_of(charge_after(state, action), outcome)


def euro(hour: IndexArray, state: IndexArray, action: IndexArray, outcome: IndexArray) -> FloatArray:
    """Pay of an hour at each site, ``[site, hour, state, action, outcome]``."""
    site = np.arange(SITES).reshape(-1, 1, 1, 1, 1)
    moved = charge_after(state, action) - state // OUTCOMES
    demand = np.where(state % 2 == 1, 2 + site % 2, 0)
    bought = demand + moved
    price = PRICES[state % OUTCOMES // 2]
    paid = np.where(bought > 0, price * bought, RESALE * price * bought)
    wear = (0.03 + 0.01 * (site % 3)) * np.abs(moved)
    return np.asarray(-paid - wear)


def dynamics() -> Dynamics:
    """Everything that the owner knows."""
    return Dynamics(
        laws=LAWS,
        outcomes=OUTCOMES,
        law_of=law_of,
        next_state=next_state,
        reward=euro,
        reward_range=(LOW, HIGH),
        horizon=HOURS,
        states=STATES,
        actions=len(MOVES),
    )


def laws() -> FloatArray:
    """What chance does at each site: ``[site, law, outcome]``."""
    hour = np.arange(HOURS)
    usual = 1.5 + 1.5 * np.sin(2.0 * np.pi * (hour - 12) / 24.0)
    level = np.arange(LEVELS)
    towards = 0.5 * level[None, :, None] + 0.5 * usual[:, None, None]
    weights = np.exp(-1.8 * np.abs(level - towards))
    next_level = weights / weights.sum(axis=2, keepdims=True)
    table = np.zeros((SITES, HOURS, LEVELS, 2, LEVELS, 2))
    for site in range(SITES):
        comes = 0.25 + 0.05 * (site % 4)
        goes = 0.4 + 0.03 * (site // 4)
        next_load = np.array([[1.0 - comes, comes], [goes, 1.0 - goes]])
        table[site] = next_level[:, :, None, :, None] * next_load[None, None, :, None, :]
    return table.reshape(SITES, LAWS, OUTCOMES)


def batteries() -> Federation:
    """The twelve sites; the common MDP is that of their mean tables."""
    return Federation.from_laws(
        dynamics(),
        laws(),
        initial=FIRST,
        reference="mean",
        description={"name": "batteries"},
    )


def rule() -> IndexArray:
    """Today's rule: charge 2 at the lowest price; at the highest, or the second with a load, discharge 1."""
    state = np.arange(STATES)
    level = state % OUTCOMES // 2
    load = state % 2
    charge = state // OUTCOMES
    sell = ((level == 3) | ((level == 2) & (load == 1))) & (charge > 0)
    action = np.where(level == 0, MOVES.index(2), np.where(sell, MOVES.index(-1), MOVES.index(0)))
    return np.tile(action.astype(np.int32), (HOURS, 1))
