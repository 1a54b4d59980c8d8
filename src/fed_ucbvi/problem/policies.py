"""The three forms of a policy, told apart by the type of their numbers.

- *Actions*, integers ``(H, S)``: one action for each step and state.
- *Sets* of equally good actions, truth values ``(H, S, A)``: one of them is drawn uniformly at every visit.
- *Probabilities*, floats ``(H, S, A)``: an action is drawn by them at every visit.

A set is the uniform distribution over its actions. It has a form of its own because algorithms learn sets: on the
wire a set takes one bit for each action, and its values and draws need no probabilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.sampling.distributions import cumulative
from fed_ucbvi.core.types import MaskArray, PolicyArray
from fed_ucbvi.problem.kernel import ROW_SUM_ROUNDING

ACTIONS = "actions"
SETS = "sets"
PROBABILITIES = "probabilities"
FORMS = (ACTIONS, SETS, PROBABILITIES)
TYPES: dict[str, np.dtype[Any]] = {
    ACTIONS: np.dtype(np.int32),
    SETS: np.dtype(np.bool_),
    PROBABILITIES: np.dtype(np.float64),
}
"""The type of the numbers of each form."""
PROBABILITY_TOLERANCE = 1e-6
"""Largest distance from 1 of the sum of an owner's probabilities."""


class _Form(NamedTuple):
    """Words for an error about a policy of a form: its numbers, their meaning, and how to write the other forms."""

    numbers: str
    meaning: str
    advice: str


_IN_WORDS = {
    ACTIONS: _Form(
        numbers="integers",
        meaning="actions",
        advice="Give probabilities as floats, and sets of actions as truth values.",
    ),
    SETS: _Form(
        numbers="truth values",
        meaning="sets of actions",
        advice="Give actions as integers, and probabilities as floats.",
    ),
    PROBABILITIES: _Form(
        numbers="floats",
        meaning="probabilities of actions",
        advice="Give actions as integers.",
    ),
}
_KINDS = {"i": ACTIONS, "u": ACTIONS, "b": SETS, "f": PROBABILITIES}


def form_of(policy: PolicyArray) -> str:
    """The form of a policy, by the type of its numbers; empty if no form has such numbers.

    >>> form_of(np.zeros((2, 3), dtype=np.int32)), form_of(np.full((2, 3, 2), 0.5))
    ('actions', 'probabilities')
    """
    return _KINDS.get(policy.dtype.kind, "")


def shape_of(form: str, horizon: int, states: int, actions: int) -> tuple[int, ...]:
    """The shape of a policy of this form."""
    if form == ACTIONS:
        return (horizon, states)
    return (horizon, states, actions)


def highest_level(policy: PolicyArray) -> PolicyArray:
    """The policy of the highest level, of a policy with several levels ``(L, H, S, A)``; otherwise the policy."""
    return policy[-1] if policy.ndim == 4 else policy


def by_action(policy: PolicyArray, actions: int) -> PolicyArray:
    """A policy with an axis for actions, ``(H, S, A)``: one action becomes a set of one."""
    if policy.ndim == 3:
        return policy
    return np.asarray(policy[..., None] == np.arange(actions))


def possible_actions(policy: PolicyArray, actions: int) -> MaskArray:
    """The actions ``(H, S, A)`` that a policy ever takes."""
    return np.asarray(by_action(policy, actions) != 0)


def drawn_action(row: PolicyArray, u: float) -> int:
    """The action that the number u in [0, 1) draws from a row ``(A,)`` of a set or of probabilities.

    The k-th of n equally good actions has k = floor(n u), as in compiled code. Others are drawn by inversion.
    """
    possible = np.flatnonzero(row)
    if form_of(row) == SETS:
        return int(possible[int(u * len(possible))])
    return int(np.searchsorted(cumulative(row), u, side="right"))


def check_actions(what: str, policy: PolicyArray, actions: int, advice: str = "") -> None:
    """Raise unless a policy whose type and shape fit takes actions that exist.

    A set must not be empty. Probabilities must be numbers from 0 on that add up to 1 for each step and state.
    """
    form = form_of(policy)
    more = f" {advice}" if advice else ""
    if form == ACTIONS:
        wrong = (policy < 0) | (policy >= actions)
        if wrong.any():
            h, s = np.argwhere(wrong)[0].tolist()
            raise InputError(
                f"{what} takes actions that do not exist: {policy[h, s]} at step {h} in state {s}, where there are "
                f"0 to {actions - 1}.{more}"
            )
    elif form == SETS:
        empty = ~policy.any(axis=2)
        if empty.any():
            h, s = np.argwhere(empty)[0].tolist()
            raise InputError(f"{what} has no action for some state: step {h}, state {s}.{more}")
    else:
        impossible = ~(policy >= 0)
        if impossible.any():
            h, s, a = np.argwhere(impossible)[0].tolist()
            raise InputError(
                f"{what} has a probability of {policy[h, s, a]:.9g} for action {a} at step {h} in state {s}; "
                f"probabilities are numbers from 0 to 1.{more}"
            )
        sums = policy.sum(axis=2)
        unequal = ~(np.abs(sums - 1.0) <= PROBABILITY_TOLERANCE)
        if unequal.any():
            h, s = np.argwhere(unequal)[0].tolist()
            raise InputError(
                f"{what} has probabilities that add up to {sums[h, s]:.9g}, not to 1, at step {h} in state {s}. "
                f"Divide each row by its sum.{more}"
            )


def checked_policy(what: str, policy: PolicyArray, horizon: int, states: int, actions: int) -> PolicyArray:
    """A policy of one of the three forms as compiled code reads it, or an error that names what is wrong.

    Probabilities that add up to 1 up to :data:`PROBABILITY_TOLERANCE` are divided by their sum.
    """
    form = form_of(policy)
    if not form:
        raise InputError(
            f"{what} must be a table of actions (integers), of probabilities (floats) or of sets of actions (truth "
            "values) with all rows of one length; got something else."
        )
    expected = shape_of(form, horizon, states, actions)
    if policy.shape != expected:
        axes = "(H, S)" if form == ACTIONS else "(H, S, A)"
        words = _IN_WORDS[form]
        raise InputError(
            f"{what} consists of {words.numbers}, which are {words.meaning}, so it must have shape {axes} = "
            f"{expected}, got {policy.shape}. {words.advice}"
        )
    check_actions(what, policy, actions)
    if form == PROBABILITIES:
        sums = policy.sum(axis=2, keepdims=True)
        policy = np.where(np.abs(sums - 1.0) > ROW_SUM_ROUNDING, policy / sums, policy)
    return np.ascontiguousarray(policy, dtype=TYPES[form])
