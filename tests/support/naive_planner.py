"""A plan without bonus once more, in dense NumPy and by enumeration; of the package it uses the reading copy only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi import reference
from fed_ucbvi.core.types import FloatArray, IndexArray
from problems import policies_in


class Model(NamedTuple):
    """An estimated MDP: ``P[H,S,A,S]`` and ``r[H,S,A]``, both zero where nothing is known (worth nothing)."""

    P: FloatArray
    r: FloatArray


def agents_models(agents: Any, states: int, *, strangers: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Each agent's ``n[m,H,S,A]``, empirical kernel and rewards; ``strangers`` have the uniform kernel, reward 0."""
    experience = agents.experience
    n = np.array(experience.visits)
    moves = np.array(experience.transitions)
    m, H, S, A, K = moves.shape
    P = np.zeros((m, H, S, A, states))
    r = np.zeros((m, H, S, A))
    for i, h, s, a in np.ndindex(m, H, S, A):
        table = experience.rewards[i % len(experience.rewards)]
        if n[i, h, s, a] == 0:
            P[i, h, s, a] = 1.0 / states if strangers else 0.0
            continue
        r[i, h, s, a] = table[h % len(table), s, a]
        towards = experience.successors[h % len(experience.successors), s, a]
        for k in range(K):
            P[i, h, s, a, towards[k]] += moves[i, h, s, a, k] / n[i, h, s, a]
    return n, P, r


def average(n: FloatArray, P: FloatArray, r: FloatArray, *, weighted: bool) -> Model:
    """The agents' models averaged by visits or one vote each; nothing where nobody has been."""
    N = n.sum(axis=0)
    w = np.where(N > 0, n / np.maximum(N, 1) if weighted else np.ones_like(n) / len(n), 0.0)
    return Model((w[..., None] * P).sum(axis=0), (w * r).sum(axis=0))


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
