"""What a round is worth: its common regret, the reward collected in it, and the value of its policy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.problem.agent_tables import mean_value, update_values
from fed_ucbvi.problem.dynamic_programming import policy_values
from fed_ucbvi.problem.federation import Federation


class Scorer:
    """Scores rounds; remembers the last policy's values, of which most may still hold for the next."""

    def __init__(self, federation: Federation) -> None:
        common, tables = federation.common, federation.agent_tables
        H, S, m = federation.horizon, federation.states, len(federation.honest)
        self.optimum = common.solve()
        self._fixed = (
            common.kernel.successors,
            common.kernel.probabilities,
            common.rewards,
            self.optimum.V[0],
            *tables,
            federation.rewards,
            federation.honest,
            np.full((H, S), -1, dtype=np.int32),
            np.zeros((H + 1, S, m)),
        )

    def score(self, policy: IndexArray, visits: CountArray) -> tuple[float, float, float]:
        """``(regret, reward, value)`` of a round; see :func:`score_round`."""
        return score_round(policy, visits, *self._fixed)


@compiled
def _paid(visits: CountArray, rewards: FloatArray, policy: IndexArray) -> float:
    """``sum_{h,s} visits_h(s) r_h(s, pi_h(s))``."""
    H, S = visits.shape
    total = 0.0
    for h in range(H):
        hr = h if rewards.shape[0] > 1 else 0
        for s in range(S):
            total += visits[h, s] * rewards[hr, s, policy[h, s]]
    return total


@compiled
def score_round(
    policy: IndexArray,
    visits: CountArray,
    common_successors: IndexArray,
    common_probabilities: FloatArray,
    common_rewards: FloatArray,
    best: FloatArray,
    successors: IndexArray,
    probabilities: FloatArray,
    agents_rewards: FloatArray,
    initial: FloatArray,
    reachable: npt.NDArray[np.bool_],
    rewards: FloatArray,
    honest: CountArray,
    last: IndexArray,
    V: FloatArray,
) -> tuple[float, float, float]:
    """``(regret, reward, value)`` of a round, averaged over the honest agents.

    Regret is ``1/M sum_i sum_t V*_1(s^i_{t,1}) - V^pi_1(s^i_{t,1})`` in the common MDP (``def:common_regret``) with
    the initial states that occurred; ``best`` is ``V*_1``. Reward is what the agents were paid in their own MDPs.
    Both are sums over the round's episodes. Value is that of one episode in the agents' own MDPs,
    ``1/M sum_i V^{i,pi}_1(mu^i)``; ``V`` holds the agents' values of the policy ``last``, and both are brought up to
    date.
    """
    _, H, S = visits.shape
    V_common = policy_values(common_successors, common_probabilities, common_rewards, policy)
    regret = 0.0
    for i in honest:
        for s in range(S):
            if visits[i, 0, s] > 0:
                regret += visits[i, 0, s] * (best[s] - V_common[0, s])
    shared = rewards.shape[0] == 1
    totals = np.zeros((H, S), dtype=np.int64)
    reward = 0.0
    for j in range(len(honest)):
        i = honest[j]
        for h in range(H):
            for s in range(S):
                totals[h, s] += visits[i, h, s]
        if not shared or j == len(honest) - 1:
            reward += _paid(totals, rewards[0 if shared else i], policy)
            totals[:] = 0
    update_values(successors, probabilities, agents_rewards, reachable, policy, last, V)
    return regret / len(honest), reward / len(honest), mean_value(initial, V)
