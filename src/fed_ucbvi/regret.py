"""The common regret of a round and the reward collected in it."""

from __future__ import annotations

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.problem.dynamic_programming import policy_values


@compiled
def score_round(
    successors: IndexArray,
    probabilities: FloatArray,
    common_rewards: FloatArray,
    best: FloatArray,
    policy: IndexArray,
    visits: CountArray,
    rewards: FloatArray,
    counted: CountArray,
) -> tuple[float, float]:
    """``(regret, reward)`` of a round, summed over its episodes and averaged over the agents ``counted``.

    Regret is ``1/M sum_i sum_t V*_1(s^i_{t,1}) - V^pi_1(s^i_{t,1})`` in the common MDP (``def:common_regret``) with
    the initial states that occurred; ``best`` is ``V*_1``. Reward is what the agents were paid in their own MDPs.
    """
    _, H, S = visits.shape
    V = policy_values(successors, probabilities, common_rewards, policy)
    regret, reward = 0.0, 0.0
    for i in counted:
        ir = i if rewards.shape[0] > 1 else 0
        for s in range(S):
            if visits[i, 0, s] > 0:
                regret += visits[i, 0, s] * (best[s] - V[0, s])
        for h in range(H):
            hr = h if rewards.shape[1] > 1 else 0
            for s in range(S):
                reward += visits[i, h, s] * rewards[ir, hr, s, policy[h, s]]
    return regret / len(counted), reward / len(counted)
