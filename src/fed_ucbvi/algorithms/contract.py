"""What an algorithm returns, checked once a round before compiled code reads it.

Compiled code does not look whether an index exists: an action of -1 would make it read and write elsewhere in memory.
So the loop over rounds, and whoever plays a round, ask the algorithm by way of a :class:`Contract`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Budgets, Counting, Message, Setting, all_finite, check_message
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, PolicyArray

_MADE_BY = "Correct new_server() or aggregate(), which make it."


class Contract:
    """What an algorithm must return in a run with a fleet of so many ``agents``, if it is to be checked at all.

    Arrays that are the same objects in every round have the form that they had, and only their entries are looked at.
    """

    def __init__(self, algorithm: Algorithm[Any, Any], setting: Setting, agents: int) -> None:
        H, S, A = setting.horizon, setting.states, setting.actions
        self._algorithm, self._actions, self._rules = algorithm, A, len(algorithm.rules)
        self._plan, self._values = (H, S), (H + 1, S)
        self._policy = (H, S) if algorithm.counting is Counting.POLICY else (H, S, A)
        self._places = algorithm.counting.shape(H, S, A)
        self._rows = (1, agents) if algorithm.together else (agents,)
        self._known: tuple[Any, Any] = None, None
        self._known_budgets: tuple[Any, Any] = None, None

    def broadcast(self, server: Any) -> Message:
        """What begins a round, if it and the server can be used."""
        if not self._algorithm.checked:
            return self._algorithm.broadcast(server)
        policy, V = server.policy, server.V
        if policy is not self._known[0] or V is not self._known[1]:
            self._check_form("its policy", policy, self._policy)
            self._check_values("its V", V)
            self._known = policy, V
        if not (_sound_sets if policy.ndim == 3 else _sound_actions)(policy, V, self._actions):
            self._check_actions("its policy", policy)
            self._check_values("its V", V)
        broadcast: Any = self._algorithm.broadcast(server)
        if not isinstance(broadcast, tuple) or not broadcast:
            raise self._fault("broadcast() must return a tuple of arrays, the policy first", broadcast)
        message: Message = broadcast
        if broadcast[0] is not policy:
            self._check_form("the policy that broadcast() returns", broadcast[0], self._policy)
            self._check_actions("the policy that broadcast() returns", broadcast[0])
        check_message(self._algorithm.name, "broadcast()", message)
        return message

    def budgets(self, agents: Any, broadcast: Message) -> Budgets:
        """When agents request a synchronisation, if that can be used."""
        budgets = self._algorithm.budgets(agents, broadcast)
        if not self._algorithm.checked:
            return budgets
        if not isinstance(budgets, Budgets):
            raise self._fault("budgets() must return a Budgets", budgets)
        visits, rule, growth = budgets
        if visits is not self._known_budgets[0] or rule is not self._known_budgets[1]:
            self._check_budgets(visits, rule)
            self._known_budgets = visits, rule
        if not (_sound_budgets(visits, rule, self._rules) and 0 <= growth < math.inf):
            raise self._unusable(budgets)
        return budgets

    def check_plan(self, server: Any, policy: PolicyArray, V: FloatArray | None) -> None:
        """Raise unless a server, and a policy planned from it with its values, if there are any, can be used."""
        self._check_values("its V", server.V)
        self._check_form("the policy that it recommends", policy, self._plan)
        self._check_actions("the policy that it recommends", policy)
        if V is not None:
            self._check_values("its planner's V", V)

    def _check_form(self, what: str, policy: Any, shape: tuple[int, ...]) -> None:
        sets = len(shape) == 3
        if not _is_array(policy, "b" if sets else "i", shape):
            kind = "truth values of shape (H, S, A)" if sets else "actions, integers of shape (H, S)"
            raise self._fault(f"{what} must be {kind} = {shape}", policy, _MADE_BY)

    def _check_actions(self, what: str, policy: PolicyArray) -> None:
        check_actions(f"{self._algorithm.name}: {what}", policy, self._actions, _MADE_BY)

    def _check_values(self, what: str, V: Any) -> None:
        if not _is_array(V, "f", self._values):
            raise self._fault(f"{what} must be numbers, floats of shape (H+1, S) = {self._values}", V, _MADE_BY)
        check_message(self._algorithm.name, what, (V,))

    def _check_budgets(self, visits: Any, rule: Any) -> None:
        if not any(_is_array(visits, "i", (rows, *self._places)) for rows in self._rows):
            rows = " or ".join(str((rows, *self._places)) for rows in self._rows)
            raise self._fault(f"visits of its budgets must be integers of shape {rows}", visits)
        if not _is_array(rule, "i", self._places):
            raise self._fault(f"the rule of its budgets must be integers of shape {self._places}", rule)

    def _unusable(self, budgets: Budgets) -> InputError:
        name, rules = self._algorithm.name, self._algorithm.rules
        low, wrong = budgets.visits.min(), [rule for rule in budgets.rule.flat if not 0 <= rule < len(rules)]
        if low < 1:
            row, *place = np.argwhere(budgets.visits == low)[0].tolist()
            return InputError(
                f"{name}: budgets must be at least 1 visit, got {low} for agent {row} at {tuple(place)}. Take "
                "np.maximum(1, ...) in budgets()."
            )
        if wrong:
            return InputError(
                f"{name}: a rule of its budgets must be 0 to {len(rules) - 1}, a place in its rules {rules}, got "
                f"{wrong[0]}."
            )
        return InputError(f"{name}: growth of its budgets must be a finite number from 0 on, got {budgets.growth}.")

    def _fault(self, expected: str, got: object, advice: str = "") -> InputError:
        form = f"{got.dtype} {got.shape}" if isinstance(got, np.ndarray) else type(got).__name__
        return InputError(f"{self._algorithm.name}: {expected}, got {form}.{advice and ' '}{advice}")


def check_actions(what: str, policy: PolicyArray, actions: int, advice: str = "") -> None:
    """Raise unless a policy of the right form takes actions that exist, or has one for every step and state."""
    if policy.ndim == 3:
        wrong = np.argwhere(~policy.any(axis=2))
        said = "has no action for some state: step {0}, state {1}"
    else:
        wrong = np.argwhere((policy < 0) | (policy >= actions))
        said = "takes actions that do not exist: {2} at step {0} in state {1}, where there are 0 to {3}"
    if len(wrong):
        h, s = wrong[0].tolist()
        raise InputError(f"{what} {said.format(h, s, policy[h, s], actions - 1)}.{advice and ' '}{advice}")


def _is_array(value: object, kind: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == kind and value.shape == shape


# There is no way out of these loops: so they take several entries at a time.


@compiled
def _sound_actions(policy: PolicyArray, V: FloatArray, actions: int) -> bool:
    low, high = _range(policy)
    return all_finite(V) and low >= 0 and high < actions


@compiled
def _sound_sets(policy: PolicyArray, V: FloatArray, actions: int) -> bool:
    H, S, _ = policy.shape
    everywhere = True
    for h in range(H):
        for s in range(S):
            some = False
            for a in range(actions):
                some |= policy[h, s, a]
            everywhere &= some
    return all_finite(V) and everywhere


@compiled
def _sound_budgets(visits: CountArray, rule: PolicyArray, rules: int) -> bool:
    low, high = _range(rule)
    return _range(visits)[0] >= 1 and low >= 0 and high < rules


@inner
def _range(array: PolicyArray) -> tuple[int, int]:
    """The least and the largest entry."""
    entries = array.ravel()
    low = high = entries[0]
    for i in range(len(entries)):
        low, high = min(low, entries[i]), max(high, entries[i])
    return low, high
