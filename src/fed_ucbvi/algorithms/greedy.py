"""Greedy policies: which action is taken where several are equally good, and which before anything is known."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.compiling import compiled, embedded
from fed_ucbvi.core.sampling.philox import SERVER, philox, unit_interval
from fed_ucbvi.core.types import FloatArray, IndexArray

CHOICES = ("first", "random")
"""Initial policies and rules for ties."""


@embedded
def choose_action(Q: FloatArray, random_ties: bool, seed: np.uint64, update: int, place: int) -> int:
    """A maximiser of ``Q[A]``: the first, or one drawn from (seed, number of the update, step and state)."""
    A = Q.shape[0]
    best, equal = 0, 1
    for a in range(1, A):
        if Q[a] > Q[best]:
            best, equal = a, 1
        elif Q[a] == Q[best]:
            equal += 1
    if not random_ties or equal == 1:
        return best
    word, _, _, _ = philox(np.uint64(place), np.uint64(update), SERVER, np.uint64(0), seed, np.uint64(0))
    skip = int(unit_interval(word) * equal)
    for a in range(best, A):
        if Q[a] == Q[best]:
            if skip == 0:
                return a
            skip -= 1
    return best


@compiled
def randomise(seed: np.uint64, actions: int, policy: IndexArray) -> None:
    """Fill ``policy[H,S]`` with actions drawn from the seed, as :func:`choose_action` draws among equals."""
    H, S = policy.shape
    for h in range(H):
        for s in range(S):
            word, _, _, _ = philox(np.uint64(h * S + s), np.uint64(0), SERVER, np.uint64(0), seed, np.uint64(0))
            policy[h, s] = int(unit_interval(word) * actions)
