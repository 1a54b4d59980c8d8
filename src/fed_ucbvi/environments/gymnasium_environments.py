"""This package's environments for Gymnasium: importing this module registers them as ``fed_ucbvi/NAME-v0``.

>>> import gymnasium
>>> import fed_ucbvi.gymnasium_environments
>>> env = gymnasium.make("fed_ucbvi/gridworld-v0", agent=3, agents=20, eps_p=0.1)
>>> env.reset(seed=0)
(0, {})
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.colours import BLUE, DARK_GREY, GREEN, LIGHT_GREY, ORANGE, WHITE, rgb
from fed_ucbvi.core.errors import InputError, check_choice, check_integer
from fed_ucbvi.environments import ENVIRONMENTS, make_environment
from fed_ucbvi.environments.gymnasium_making import gymnasium_package
from fed_ucbvi.environments.gymnasium_tables import from_gymnasium
from fed_ucbvi.environments.sepsis import icu_sepsis
from fed_ucbvi.problem.reward_law import payments
from fed_ucbvi.problem.units import Units

gymnasium_package()

import gymnasium  # noqa: E402

NAMESPACE = "fed_ucbvi"

Rows = dict[int, dict[int, list[tuple[float, int, float, bool]]]]
"""``P[s][a]``: a list of (probability, next state, reward, terminated), as in Gymnasium's toy environments."""

Frame = npt.NDArray[np.uint8]

ROW = 20
"""States without a layout are drawn in rows of this length."""
LARGEST = 480
"""Approximate length in pixels of the longer side of a picture."""
WALL = "#"
FILLS = {WALL: DARK_GREY, ".": WHITE, "G": GREEN, "S": ORANGE}
"""Signs for squares, and their colours."""


class TabularEnv(gymnasium.Env[Any, Any]):
    """One agent's MDP as a Gymnasium environment; an episode is truncated after H steps and never terminates.

    It pays rewards in the environment's own units. Live federations of it need their range as ``reward_range``.

    Args:
        environment: its name in this package, as ``gridworld``.
        agent: which agent's MDP (from 0), or None for the common MDP.
        render_mode: None, ``ansi`` (text) or ``rgb_array`` (a picture).
        options: the environment's own, as agents=20, eps_p=0.1.

    Attributes:
        P: the table of kernel and rewards, where neither depends on the step; see :meth:`table`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
    }

    def __init__(
        self,
        environment: str,
        agent: int | None = 0,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        federation = make_environment(environment, **options)
        if agent is None:
            self.mdp = federation.common
        else:
            self.mdp = federation.agent(check_integer("agent", agent, at_most=federation.agents - 1))
        self.units = Units.of(federation.description)
        if render_mode is not None:
            check_choice("render mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Discrete(self.mdp.states)
        self.action_space = gymnasium.spaces.Discrete(self.mdp.actions)
        self.initial_state_distrib = self.mdp.initial
        self.layout = layout_of(federation.layout, self.mdp.states)
        self._payments = None
        if self.mdp.reward_variances is not None:
            self._payments = payments(self.mdp.rewards, self.mdp.reward_variances)
        if self.mdp.kernel.steps == 1 and len(self.mdp.rewards) == 1:
            self.P = self.table(0)
        self._distribution = np.cumsum(self.mdp.kernel.probabilities, axis=-1)
        self._state = 0
        self._steps = -1
        self._paid = 0.0

    def table(self, step: int) -> Rows:
        """``P[s][a]`` of a step (from 0)."""
        h = check_integer("step", step, at_most=self.mdp.horizon - 1)
        rows: Rows = {}
        for s in range(self.mdp.states):
            rows[s] = {a: self._entries(h, s, a) for a in range(self.mdp.actions)}
        return rows

    def _entries(self, step: int, state: int, action: int) -> list[tuple[float, int, float, bool]]:
        """``P[s][a]`` of a step: each possible next state with each possible reward."""
        kernel = self.mdp.kernel
        h = min(step, kernel.steps - 1)
        entries = []
        for k in range(kernel.width):
            p = float(kernel.probabilities[h, state, action, k])
            next_state = int(kernel.successors[h, state, action, k])
            if p > 0:
                for reward, chance in self._outcomes(step, state, action):
                    entries.append((p * chance, next_state, reward, False))
        return entries

    def _outcomes(self, step: int, state: int, action: int) -> list[tuple[float, float]]:
        """The possible rewards in own units, with their probabilities."""
        h = min(step, len(self.mdp.rewards) - 1)
        if self._payments is None:
            return [(self.units.original(float(self.mdp.rewards[h, state, action])), 1.0)]
        amount = float(self._payments.amounts[h, state, action])
        chance = float(self._payments.chances[h, state, action])
        outcomes = []
        if chance < 1:
            outcomes.append((self.units.original(0.0), 1.0 - chance))
        if chance > 0:
            outcomes.append((self.units.original(amount), chance))
        return outcomes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self._pick(np.cumsum(self.mdp.initial))
        self._steps = 0
        self._paid = 0.0
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if not 0 <= self._steps < self.mdp.horizon:
            raise InputError("the episode is over, or has not begun: call reset().")
        if not 0 <= action < self.mdp.actions:
            raise InputError(f"an action must be 0..{self.mdp.actions - 1}, got {action}.")
        kernel = self.mdp.kernel
        s = self._state
        outcomes = self._outcomes(self._steps, s, action)
        (first_reward, first_chance), (last_reward, _) = outcomes[0], outcomes[-1]
        if len(outcomes) == 1 or self.np_random.random() >= first_chance:
            self._paid = last_reward
        else:
            self._paid = first_reward
        h = min(self._steps, kernel.steps - 1)
        slot = self._pick(self._distribution[h, s, action])
        self._state = int(kernel.successors[h, s, action, slot])
        self._steps += 1
        return self._state, self._paid, False, self._steps == self.mdp.horizon, {}

    def _pick(self, distribution: Any) -> int:
        """A draw from a distribution function; never past the last outcome that is possible."""
        u = self.np_random.random() * distribution[-1]
        return int(np.searchsorted(distribution, u, side="right"))

    def render(self) -> str | Frame | None:
        """The state among all states, on the grid where there is one."""
        if self.render_mode == "ansi":
            where = draw_text(self.layout, self._state)
            return f"step {self._steps} of {self.mdp.horizon}, paid {self._paid:g}\n{where}"
        if self.render_mode == "rgb_array":
            return draw_picture(self.layout, self._state)
        return None


def register() -> list[str]:
    """Register every environment of this package that is not registered yet; returns all ids.

    Environments whose tables other packages hold are left out.
    """
    ids = []
    for name, made in ENVIRONMENTS.items():
        if made in (from_gymnasium, icu_sepsis):
            continue
        id = f"{NAMESPACE}/{name}-v0"
        ids.append(id)
        if id not in gymnasium.registry:
            gymnasium.register(id, entry_point=f"{__name__}:TabularEnv", kwargs={"environment": name})
    return ids


def layout_of(layout: Mapping[str, Any] | None, states: int) -> dict[str, Any]:
    """The layout of an environment, or else the states in order, row by row.

    >>> layout_of(None, 3)["cells"]
    [[0, 0], [0, 1], [0, 2]]
    """
    if layout is not None:
        return dict(layout)
    cells = [[state // ROW, state % ROW] for state in range(states)]
    rows = math.ceil(states / ROW)
    return {"rows": rows, "columns": min(states, ROW), "cells": cells}


def draw_text(layout: Mapping[str, Any], state: int) -> str:
    """The states as signs: ``#`` no state (a wall), ``S`` start, ``G`` goal, ``.`` others; the agent in brackets.

    >>> print(draw_text({"rows": 1, "columns": 3, "cells": [[0, 0], [0, 1], [0, 2]], "goals": [[0, 2]]}, 1))
     . [.] G
    """
    lines = [[f" {sign} " for sign in line] for line in _signs(layout)]
    for row, column in layout["cells"][state : state + 1]:  # a state after the last cell has no square
        lines[row][column] = f"[{lines[row][column].strip()}]"
    return "\n".join("".join(line).rstrip() for line in lines)


def draw_picture(layout: Mapping[str, Any], state: int) -> Frame:
    """The states as squares ``(height, width, 3)``: walls dark, start orange, goals green, the agent a blue disc."""
    signs = _signs(layout)
    size = max(8, LARGEST // max(signs.shape))
    across = np.arange(size) - (size - 1) / 2
    disc = across[:, None] ** 2 + across[None, :] ** 2 <= (0.33 * size) ** 2
    picture = np.empty((*signs.shape, size, size, 3), dtype=np.uint8)
    for sign, colour in FILLS.items():
        picture[signs == sign] = list(rgb(DARK_GREY if sign == WALL else LIGHT_GREY))
        picture[:, :, 1:-1, 1:-1][signs == sign] = list(rgb(colour))
    for row, column in layout["cells"][state : state + 1]:
        picture[row, column][disc] = list(rgb(BLUE))
    rows, columns = signs.shape
    return picture.swapaxes(1, 2).reshape(rows * size, columns * size, 3)


def _signs(layout: Mapping[str, Any]) -> npt.NDArray[np.str_]:
    """A sign for each square, one of :data:`FILLS`."""
    signs = np.full((layout["rows"], layout["columns"]), WALL)
    for cell in layout["cells"]:
        signs[tuple(cell)] = "."
    for cell in layout.get("goals", []):
        signs[tuple(cell)] = "G"
    start = layout.get("start")
    if start:
        signs[tuple(start)] = "S"
    return signs


register()
