"""Checks of what an algorithm from outside this package returns, made once per round before compiled code reads it.

Compiled code does not test whether an index exists: an action of -1 would make it read and write elsewhere in memory.
So the engine and the parties use these functions for every algorithm that
:func:`~fed_ucbvi.algorithms.base.needs_checks`. This package's own algorithms are checked by tests instead.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Budgets, Counting, Message, Setting, check_message
from fed_ucbvi.algorithms.communication import size
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray, PolicyArray
from fed_ucbvi.problem.policies import check_actions

_MADE_BY = "Correct new_server() or aggregate(), which make it."


def checked_broadcast(algorithm: Algorithm[Any, Any], setting: Setting, server: Any) -> Message:
    """The message that begins a round; raise unless it and the server can be used."""
    H = setting.horizon
    S = setting.states
    A = setting.actions
    shape = (H, S) if algorithm.counting is Counting.POLICY else (H, S, A)
    _check_policy(algorithm, "its policy", server.policy, shape, A)
    _check_values(algorithm, setting, "its V", server.V)
    message: Any = algorithm.broadcast(server)
    if not isinstance(message, tuple) or not message:
        raise _fault(algorithm, "broadcast() must return a tuple of arrays, the policy first", message)
    if message[0] is not server.policy:
        _check_policy(algorithm, "the policy that broadcast() returns", message[0], shape, A)
    check_message(algorithm.name, "broadcast()", message)
    declared = algorithm.message_sizes(setting).broadcast
    if size(message) != declared:
        raise InputError(
            f"{algorithm.name}: broadcast() returns {size(message)} bytes, but message_sizes() says {declared}. "
            "Correct message_sizes(), from which the bytes of a run are computed."
        )
    checked: Message = message
    return checked


def checked_budgets(
    algorithm: Algorithm[Any, Any], setting: Setting, agents: Any, broadcast: Message, fleet: int
) -> Budgets:
    """The budgets of a round for a ``fleet`` of so many agents; raise unless they can be used."""
    budgets = algorithm.budgets(agents, broadcast)
    name = algorithm.name
    rules = algorithm.rules
    cells = algorithm.counting.shape(setting.horizon, setting.states, setting.actions)
    rows = (1, fleet) if algorithm.stops_jointly else (fleet,)
    if not isinstance(budgets, Budgets):
        raise _fault(algorithm, "budgets() must return a Budgets", budgets)
    limits, rule, growth = budgets
    if not any(_is_array(limits, "i", (number, *cells)) for number in rows):
        shapes = " or ".join(str((number, *cells)) for number in rows)
        raise _fault(algorithm, f"limits of its budgets must be integers of shape {shapes}", limits)
    if not _is_array(rule, "i", cells):
        raise _fault(algorithm, f"the rule of its budgets must be integers of shape {cells}", rule)
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


def check_plan(
    algorithm: Algorithm[Any, Any], setting: Setting, server: Any, policy: PolicyArray, V: FloatArray | None
) -> None:
    """Raise unless a server, and a policy planned from it with its values, if there are any, can be used."""
    _check_values(algorithm, setting, "its V", server.V)
    shape = (setting.horizon, setting.states)
    _check_policy(algorithm, "the policy that it recommends", policy, shape, setting.actions)
    if V is not None:
        _check_values(algorithm, setting, "its planner's V", V)


def _check_policy(
    algorithm: Algorithm[Any, Any], what: str, policy: Any, shape: tuple[int, ...], actions: int
) -> None:
    sets = len(shape) == 3
    if not _is_array(policy, "b" if sets else "i", shape):
        kind = "truth values of shape (H, S, A)" if sets else "actions, integers of shape (H, S)"
        raise _fault(algorithm, f"{what} must be {kind} = {shape}", policy, _MADE_BY)
    check_actions(f"{algorithm.name}: {what}", policy, actions, _MADE_BY)


def _check_values(algorithm: Algorithm[Any, Any], setting: Setting, what: str, V: Any) -> None:
    shape = (setting.horizon + 1, setting.states)
    if not _is_array(V, "f", shape):
        expected = f"{what} must be numbers, floats of shape (H+1, S) = {shape}"
        raise _fault(algorithm, expected, V, _MADE_BY)
    check_message(algorithm.name, what, (V,))


def _fault(algorithm: Algorithm[Any, Any], expected: str, got: object, advice: str = "") -> InputError:
    form = f"{got.dtype} {got.shape}" if isinstance(got, np.ndarray) else type(got).__name__
    return InputError(f"{algorithm.name}: {expected}, got {form}.{advice and ' '}{advice}")


def _is_array(value: object, kind: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == kind and value.shape == shape
