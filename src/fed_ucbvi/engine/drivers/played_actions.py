"""A policy as drivers draw from it: the actions it may take in each state, and by which law."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.sampling.distributions import cumulative
from fed_ucbvi.core.types import FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.agent_tables import may_play
from fed_ucbvi.problem.policies import PROBABILITIES, form_of

FlatActions = tuple[IndexArray, IndexArray, FloatArray]
"""A policy as a step reads it, with steps and states in one axis.

The first part has one action ``(H S,)``, or the possible actions ``(H S, A)``; the second their numbers ``(H S,)``,
empty where there is one action. The last part, ``(H S A,)``, has the distribution functions of the possible actions.
It is empty where they are equally likely, so that the k-th of n is drawn as k = floor(n u). A plain tuple, which
compiled functions accept faster than a named one.
"""


_NO_NUMBERS: IndexArray = np.zeros(0, dtype=np.int32)
_NO_THRESHOLDS: FloatArray = np.zeros(0)


class PossibleActions(NamedTuple):
    """The actions that a policy may take, listed for each step and state.

    Attributes:
        actions: ``(H, S, W)``, with W = 1 where the policy is one action for each step and state, and A otherwise;
            of a state only the first entries count.
        numbers: ``(H, S)``, how many they are.
        probabilities: ``(H, S, W)``, those of the listed actions; ``(0, 0, 0)`` where they are equally likely.
    """

    actions: IndexArray
    numbers: IndexArray
    probabilities: FloatArray

    @classmethod
    def of(cls, policy: PolicyArray) -> PossibleActions:
        if policy.ndim == 2:
            return cls(policy[..., None], np.ones_like(policy), np.zeros((0, 0, 0)))
        actions, numbers = _listed(policy)
        if form_of(policy) != PROBABILITIES:
            return cls(actions, numbers, np.zeros((0, 0, 0)))
        probabilities = np.take_along_axis(policy, actions, axis=2)
        probabilities[np.arange(policy.shape[2]) >= numbers[..., None]] = 0.0
        return cls(actions, numbers, probabilities)


def flat_actions(policy: PolicyArray) -> FlatActions:
    """A policy as :data:`FlatActions`; code is compiled for one action in each state and for several.

    The rows of a policy with several levels are those of level 0, then those of level 1, and so on.
    """
    if policy.ndim == 2:
        return policy.reshape(-1), _NO_NUMBERS, _NO_THRESHOLDS
    listed = PossibleActions.of(policy.reshape((-1, *policy.shape[-2:])))
    actions = listed.actions.reshape((-1, policy.shape[-1]))
    thresholds = cumulative(listed.probabilities) if listed.probabilities.size else _NO_THRESHOLDS
    return actions, listed.numbers.reshape(-1), thresholds.reshape(-1)


@compiled
def _listed(policy: PolicyArray) -> tuple[IndexArray, IndexArray]:
    """The possible actions of each step and state, in order, and their numbers."""
    H, S, A = policy.shape
    actions = np.zeros((H, S, A), dtype=np.int32)
    numbers = np.empty((H, S), dtype=np.int32)
    for h in range(H):
        for s in range(S):
            number = 0
            for a in range(A):
                if may_play(policy, h, s, a):
                    actions[h, s, number] = a
                    number += 1
            numbers[h, s] = number
    return actions, numbers
