"""A plan without bonus once more, in dense NumPy and by enumeration, from the reading copy and a table of counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi import CountTable, reference
from fed_ucbvi.core.types import FloatArray, IndexArray
from problems import policies_in


class Model(NamedTuple):
    """An estimated MDP: ``P[H,S,A,S]`` and ``r[H,S,A]``, both zero where nothing is known (worth nothing)."""

    P: FloatArray
    r: FloatArray


def agents_models(experience: Any, states: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Visits ``n[m,H,S,A]``, empirical kernel and rewards of each agent, from the counts that it keeps."""
    n = np.array(experience.visits)
    moves = np.array(experience.transitions)
    m, H, S, A, K = moves.shape
    P = np.zeros((m, H, S, A, states))
    r = np.zeros((m, H, S, A))
    for i, h, s, a in np.ndindex(m, H, S, A):
        if n[i, h, s, a] == 0:
            continue
        r[i, h, s, a] = experience.rewards[i, h, s, a]
        towards = experience.successors[h % len(experience.successors), s, a]
        for k in range(K):
            P[i, h, s, a, towards[k]] += moves[i, h, s, a, k] / n[i, h, s, a]
    return n, P, r


def average(n: FloatArray, P: FloatArray, r: FloatArray) -> Model:
    """The agents' models averaged by visits; nothing where nobody has been."""
    w = n / np.maximum(n.sum(axis=0), 1)
    return Model((w[..., None] * P).sum(axis=0), (w * r).sum(axis=0))


def model_of(counts: CountTable) -> Model:
    """The estimated MDP of a table of counts by step."""
    N = np.maximum(counts.visits, 1)
    return Model(counts.dense() / N[..., None], counts.mean_rewards())


def solve(model: Model) -> tuple[FloatArray, FloatArray]:
    """``Q[H,S,A]`` and ``V[H+1,S]`` by backward induction."""
    V = reference.evaluate(model.P, model.r)
    return model.r + np.einsum("hsay,hy->hsa", model.P, V[1:]), V


def evaluate(model: Model, policy: IndexArray) -> FloatArray:
    """``V^pi[H+1,S]``."""
    return reference.evaluate(model.P, model.r, policy[..., None] == np.arange(model.r.shape[2]))


def best_by_enumeration(model: Model) -> FloatArray:
    """``max_pi V^pi_1``, state by state, over all deterministic policies."""
    policies = policies_in(np.ones(model.r.shape, dtype=np.bool_))
    return np.asarray(np.max([evaluate(model, policy)[0] for policy in policies], axis=0))
