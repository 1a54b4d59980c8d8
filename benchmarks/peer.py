"""A plain Python and NumPy Fed-UCBVI, written the way such code is usually written: the peer we measure against."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.problem.federation import Federation


def run_plainly(federation: Federation, episodes: int, seed: int) -> int:
    """Practical bonus, local doubling, weighted aggregation; trajectories one step at a time. Returns the rounds."""
    rng = np.random.default_rng(seed)
    M, S, A, H = federation.agents, federation.states, federation.actions, federation.horizon
    kernels = [federation.agent(i).kernel.dense() for i in range(M)]
    steps = kernels[0].shape[0]
    rewards = federation.common.rewards
    n = np.zeros((M, H, S, A), dtype=np.int64)
    moves = np.zeros((M, H, S, A, S), dtype=np.int64)
    policy = rng.integers(A, size=(H, S))
    rounds = played = 0
    while played < episodes:
        before = n.copy()
        asked = False
        while not asked and played < episodes:
            for i in range(M):
                s = int(rng.choice(S, p=federation.initial[i]))
                for h in range(H):
                    a = policy[h, s]
                    following = int(rng.choice(S, p=kernels[i][h if steps > 1 else 0, s, a]))
                    n[i, h, s, a] += 1
                    moves[i, h, s, a, following] += 1
                    asked = asked or bool(n[i, h, s, a] >= 2 * before[i, h, s, a])
                    s = following
            played += 1
        if not asked:
            break
        rounds += 1
        V = np.zeros(S)
        for h in reversed(range(H)):
            N = n[:, h].sum(axis=0)
            seen = np.maximum(n[:, h], 1)[..., None]
            kernel = np.where(n[:, h][..., None] > 0, moves[:, h] / seen, 1.0 / S)
            PV, PV2 = kernel @ V, kernel @ V**2
            weight = n[:, h] / np.maximum(N, 1)
            r = rewards[h if rewards.shape[0] > 1 else 0]
            variance = np.maximum((weight * PV2).sum(axis=0) - (weight * PV).sum(axis=0) ** 2, 0.0)
            bonus = np.where(N >= 2, H / np.maximum(N, 1) + np.sqrt(variance / np.maximum(N, 1)), H)
            Q = np.minimum((weight * (np.where(n[:, h] > 0, r, 0.0) + PV)).sum(axis=0) + bonus, H)
            Q = np.where(N > 0, Q, H)
            V, policy[h] = Q.max(axis=1), Q.argmax(axis=1)
    return rounds
