"""How different the agents are: the smallest eps_p of Assumption 1, eps_r of Assumption 2, and L1 distances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.core.types import FloatArray

ROUNDING = 1e-13
"""Overlaps this close to one count as one: the agents' kernels are the same up to rounding."""


class Overlap(NamedTuple):
    """The common part of the agents' kernels.

    ``minimum[h,s,a,k]`` is ``min_i P^i``; ``mass[h,s,a]`` its sum over next states.
    """

    minimum: FloatArray
    mass: FloatArray

    @property
    def eps_p(self) -> float:
        """The smallest eps_p for which Assumption 1 holds, ``1 - min_{h,s,a} mass``; 1 means that it fails.

        Assumption 1 asks for one kernel with ``(1 - eps_p) P^c <= P^i`` for all i. Summing over next states
        gives ``1 - eps_p <= mass``, and ``P^c = minimum / mass`` reaches it.
        """
        least = float(self.mass.min())
        return 0.0 if least >= 1.0 - ROUNDING else 1.0 - least


def overlap(probabilities: FloatArray) -> Overlap:
    """The overlap of ``probabilities[M,steps,S,A,K]``, kernels on one support.

    >>> import numpy as np
    >>> overlap(np.array([[[[[0.9, 0.1]]]], [[[[0.7, 0.3]]]]])).eps_p.__round__(12)
    0.2
    """
    minimum = probabilities.min(axis=0)
    return Overlap(minimum, minimum.sum(axis=-1))


def reward_gap(rewards: FloatArray) -> float:
    """eps_r of Assumption 2: ``max_{i,j} ||r^i - r^j||_inf`` of ``rewards[M,steps,S,A]``."""
    return float((rewards.max(axis=0) - rewards.min(axis=0)).max())


class Distances(NamedTuple):
    """How far kernels are apart, in L1; total variation is half of it.

    Attributes:
        worst: ``(M, M)``, ``max_{h,s,a} ||P^i - P^j||_1``.
        mean: ``(M, M)``, the mean of the same over (h,s,a).
        pairwise: ``(steps, S, A)``, ``max_{i,j} ||P^i - P^j||_1``.
        to_common: ``(steps, S, A)``, ``max_i ||P^i - P^c||_1``, at most ``2 eps_p`` under Assumption 1.
    """

    worst: FloatArray
    mean: FloatArray
    pairwise: FloatArray
    to_common: FloatArray


def distances(probabilities: FloatArray, common: FloatArray) -> Distances:
    """L1 distances between ``probabilities[M,steps,S,A,K]`` and from them to ``common[steps,S,A,K]``.

    >>> import numpy as np
    >>> two = np.array([[[[[0.9, 0.1]]]], [[[[0.7, 0.3]]]]])
    >>> distances(two, two.mean(axis=0)).worst.round(12)
    array([[0. , 0.4],
           [0.4, 0. ]])
    """
    M = probabilities.shape[0]
    worst, mean = np.zeros((M, M)), np.zeros((M, M))
    pairwise, to_common = np.zeros(common.shape[:-1]), np.zeros(common.shape[:-1])
    for i in range(M):
        np.maximum(to_common, np.abs(probabilities[i] - common).sum(axis=-1), out=to_common)
        gaps = np.abs(probabilities[i:] - probabilities[i]).sum(axis=-1)
        worst[i, i:] = worst[i:, i] = gaps.max(axis=(1, 2, 3))
        mean[i, i:] = mean[i:, i] = gaps.mean(axis=(1, 2, 3))
        np.maximum(pairwise, gaps.max(axis=0), out=pairwise)
    return Distances(worst, mean, pairwise, to_common)
