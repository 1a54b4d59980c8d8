"""A plan without bonus once more, in dense NumPy and by enumeration; shares no code with the package."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.core.types import FloatArray, IndexArray


class Model(NamedTuple):
    """An estimated MDP: ``P[H,S,A,S]`` and ``r[H,S,A]``, both zero where nothing is known (worth nothing)."""

    P: FloatArray
    r: FloatArray


def agents_models(agents: Any, states: int, *, strangers: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Each agent's ``n[m,H,S,A]``, empirical kernel and rewards; ``strangers`` have the uniform kernel, reward 0."""
    experience = agents.experience
    n, moves = np.array(experience.visits), np.array(experience.transitions)
    m, H, S, A, K = moves.shape
    P, r = np.zeros((m, H, S, A, states)), np.zeros((m, H, S, A))
    for i, h, s, a in np.ndindex(m, H, S, A):
        table = experience.rewards[i if len(experience.rewards) > 1 else 0]
        if n[i, h, s, a] == 0:
            P[i, h, s, a] = 1.0 / states if strangers else 0.0
            continue
        r[i, h, s, a] = table[h if len(table) > 1 else 0, s, a]
        towards = experience.successors[h if len(experience.successors) > 1 else 0, s, a]
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
    H, S, A = model.r.shape
    Q, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        Q[h] = model.r[h] + model.P[h] @ V[h + 1]
        V[h] = Q[h].max(axis=1)
    return Q, V


def evaluate(model: Model, policy: IndexArray) -> FloatArray:
    """``V^pi[H+1,S]``."""
    H, S, _ = model.r.shape
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        here = np.arange(S), policy[h]
        V[h] = model.r[h][here] + model.P[h][here] @ V[h + 1]
    return V


def best_by_enumeration(model: Model) -> FloatArray:
    """``max_pi V^pi_1``, state by state, over all deterministic policies."""
    H, S, A = model.r.shape
    best = np.full(S, -np.inf)
    for actions in itertools.product(range(A), repeat=H * S):
        best = np.maximum(best, evaluate(model, np.array(actions).reshape(H, S))[0])
    return best
