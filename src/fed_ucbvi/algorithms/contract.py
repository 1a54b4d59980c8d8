"""What an algorithm returns, checked once a round before compiled code reads it.

Compiled code does not look whether an index exists: an action of -1 would make it read and write elsewhere in memory.
So the loop over rounds, and whoever plays a round, ask the algorithm by way of a :class:`Contract`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Budgets, Counting, Message, Setting, check_message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray, PolicyArray
from fed_ucbvi.problem.dynamic_programming import WEIGHTS

_MADE_BY = "Correct new_server() or aggregate(), which make it."


class Contract:
    """What an algorithm must return in a run with a fleet of so many ``agents``, if it is to be checked at all.

    Attributes:
        broadcast: what begins a round, if it and the server can be used.
        budgets: when agents request a synchronisation, if that can be used.
    """

    def __init__(self, algorithm: Algorithm[Any, Any], setting: Setting, agents: int) -> None:
        H, S, A = setting.horizon, setting.states, setting.actions
        self._algorithm, self._actions = algorithm, A
        self._plan, self._values = (H, S), (H + 1, S)
        self._policy = (H, S) if algorithm.counting is Counting.POLICY else (H, S, A)
        self._cells = algorithm.counting.shape(H, S, A)
        self._rows = (1, agents) if algorithm.stops_jointly else (agents,)
        checked = algorithm.checked
        self.broadcast: Callable[[Any], Message] = self._checked_broadcast if checked else algorithm.broadcast
        self.budgets: Callable[[Any, Message], Budgets] = self._checked_budgets if checked else algorithm.budgets

    def _checked_broadcast(self, server: Any) -> Message:
        self._check_policy("its policy", server.policy, self._policy)
        self._check_values("its V", server.V)
        message: Any = self._algorithm.broadcast(server)
        if not isinstance(message, tuple) or not message:
            raise self._fault("broadcast() must return a tuple of arrays, the policy first", message)
        if message[0] is not server.policy:
            self._check_policy("the policy that broadcast() returns", message[0], self._policy)
        check_message(self._algorithm.name, "broadcast()", message)
        checked: Message = message
        return checked

    def _checked_budgets(self, agents: Any, broadcast: Message) -> Budgets:
        budgets = self._algorithm.budgets(agents, broadcast)
        name, rules = self._algorithm.name, self._algorithm.rules
        if not isinstance(budgets, Budgets):
            raise self._fault("budgets() must return a Budgets", budgets)
        limits, rule, growth = budgets
        if not any(_is_array(limits, "i", (rows, *self._cells)) for rows in self._rows):
            shapes = " or ".join(str((rows, *self._cells)) for rows in self._rows)
            raise self._fault(f"limits of its budgets must be integers of shape {shapes}", limits)
        if not _is_array(rule, "i", self._cells):
            raise self._fault(f"the rule of its budgets must be integers of shape {self._cells}", rule)
        if limits.min() < 1:
            row, *cell = np.argwhere(limits == limits.min())[0].tolist()
            raise InputError(
                f"{name}: budgets must be at least 1 visit, got {limits.min()} for agent {row} at {tuple(cell)}. Use "
                "np.maximum(1, ...) in budgets()."
            )
        if rule.min() < 0 or rule.max() >= len(rules):
            wrong = rule[(rule < 0) | (rule >= len(rules))][0]
            raise InputError(
                f"{name}: a rule of its budgets must be 0 to {len(rules) - 1}, an index into its rules {rules}, got "
                f"{wrong}."
            )
        if not 0 <= growth < math.inf:
            raise InputError(f"{name}: growth of its budgets must be a finite number from 0 on, got {growth}.")
        return budgets

    def check_plan(self, server: Any, policy: PolicyArray, V: FloatArray | None) -> None:
        """Raise unless a server, and a policy planned from it with its values, if there are any, can be used."""
        self._check_values("its V", server.V)
        self._check_policy("the policy that it recommends", policy, self._plan)
        if V is not None:
            self._check_values("its planner's V", V)

    def _check_policy(self, what: str, policy: Any, shape: tuple[int, ...]) -> None:
        sets = len(shape) == 3
        if not _is_array(policy, "b" if sets else "i", shape):
            kind = "truth values of shape (H, S, A)" if sets else "actions, integers of shape (H, S)"
            raise self._fault(f"{what} must be {kind} = {shape}", policy, _MADE_BY)
        check_actions(f"{self._algorithm.name}: {what}", policy, self._actions, _MADE_BY)

    def _check_values(self, what: str, V: Any) -> None:
        if not _is_array(V, "f", self._values):
            raise self._fault(f"{what} must be numbers, floats of shape (H+1, S) = {self._values}", V, _MADE_BY)
        check_message(self._algorithm.name, what, (V,))

    def _fault(self, expected: str, got: object, advice: str = "") -> InputError:
        form = f"{got.dtype} {got.shape}" if isinstance(got, np.ndarray) else type(got).__name__
        return InputError(f"{self._algorithm.name}: {expected}, got {form}.{advice and ' '}{advice}")


def check_actions(what: str, policy: PolicyArray, actions: int, advice: str = "") -> None:
    """Raise unless a policy of the right form takes actions that exist, or has one for every step and state.

    Weights of actions are from 0 on, and no more than :data:`WEIGHTS` together.
    """
    sets = policy.ndim == 3
    if sets and policy.dtype != np.bool_ and (policy.min() < 0 or policy.sum(axis=2, dtype=np.int64).max() > WEIGHTS):
        raise InputError(
            f"{what} has weights of actions below 0, or more than {WEIGHTS} together.{advice and ' '}{advice}"
        )
    if policy.any(axis=2).all() if sets else policy.min() >= 0 and policy.max() < actions:
        return
    h, s = np.argwhere(~policy.any(axis=2) if sets else (policy < 0) | (policy >= actions))[0].tolist()
    wrong = f"has no action for some state: step {h}, state {s}"
    if not sets:
        wrong = f"takes actions that do not exist: {policy[h, s]} at step {h} in state {s}, where there are 0 to "
        wrong += str(actions - 1)
    raise InputError(f"{what} {wrong}.{advice and ' '}{advice}")


def _is_array(value: object, kind: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == kind and value.shape == shape
