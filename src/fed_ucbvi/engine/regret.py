"""What a round is worth: its common regret, the reward collected in it, and the value of its policy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import CountArray, FloatArray, MaskArray, PolicyArray
from fed_ucbvi.problem.agent_tables import LAST_TYPES, AgentTables, no_policy, reachable_states, update_values
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.policies import form_of
from fed_ucbvi.results.round_record import EXPLORING


class CachedEvaluation(NamedTuple):
    """MDPs that are evaluated in every round, with the values of the last policy, most of which may still be right.

    ``V (H+1, S, m)`` are the values of ``last``; see :func:`fed_ucbvi.problem.agent_tables.update_values`.
    """

    tables: AgentTables
    last: PolicyArray
    V: FloatArray


class Scorer:
    """Scores rounds; agents with equal MDPs are evaluated once."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        common = federation.common
        honest = federation.honest
        H = federation.horizon
        self.optimum = common.solve()
        self._agents_of_kind = self._number_of_each_kind(slice(None))
        successors = common.kernel.successors
        probabilities = common.kernel.probabilities
        begins = np.asarray((federation.kind_tables.initial > 0).any(axis=1))
        reachable = reachable_states(successors, probabilities > 0, begins, H)
        alone = AgentTables.of(
            successors, probabilities[..., None], common.rewards[..., None], common.initial[:, None], reachable
        )
        self._tables = alone, own = alone, federation.kind_tables
        names = [name for name in AgentTables._fields if name != "initial"]
        self._alike = all(np.array_equal(getattr(alone, name), getattr(own, name)) for name in names)
        """Whether every policy has the same values in both, to the last bit, wherever episodes begin."""
        self._evaluations: dict[tuple[int, int], tuple[CachedEvaluation, CachedEvaluation]] = {}
        self._rewards = federation.rewards
        self._honest = honest
        self._everyone = np.zeros(1, dtype=np.int64)

    def _number_of_each_kind(self, which: MaskArray | slice) -> CountArray:
        """How many of the honest agents that are chosen have each kind of MDP."""
        chosen, kind = self.federation.kinds
        return np.bincount(kind[which], minlength=len(chosen))

    def _evaluation(self, key: tuple[int, int], policy: PolicyArray) -> tuple[CachedEvaluation, CachedEvaluation]:
        """In the common MDP and in the agents', one and the same if they are alike; anew if policies change form."""
        found = self._evaluations.get(key)
        if found is None or found[0].last.dtype != LAST_TYPES[form_of(policy)]:
            common, agents = (
                CachedEvaluation(tables, no_policy(policy), np.zeros((len(policy) + 1, *tables.initial.shape)))
                for tables in self._tables
            )
            self._evaluations[key] = found = agents if self._alike else common, agents
        return found

    def score(
        self,
        policy: PolicyArray,
        visits: CountArray,
        starts: CountArray,
        present: MaskArray | None = None,
        playing: int = EXPLORING,
    ) -> tuple[float, float, float]:
        """``(regret, reward, value)`` of a round, averaged over those present; see :func:`score_round`.

        ``visits`` is ``(m, *cell)``. Visits may have one row for the sum over all agents, if nobody lies and rewards
        are shared. ``starts`` is ``(m, L, S)``: the number of episodes that began in each state, by level of the
        policy. Rounds may play different policies in turn: ``playing`` says which, and what was last played as this
        is where evaluation begins.
        """
        if policy.ndim < 4:
            begun = starts[:, 0] if starts.shape[1] == 1 else starts.sum(axis=1)
            return self._score_policy(policy, visits, begun, present, (playing, 0))
        regret = 0.0
        reward = 0.0
        value = 0.0
        episodes = int(starts.sum())
        for level, begun in starts_by_policy(policy, starts).items():
            one_regret, one_reward, one_value = self._score_policy(
                policy[level], visits, begun, present, (playing, level)
            )
            regret += one_regret
            reward = one_reward
            value += one_value * (int(begun.sum()) / episodes)
        return regret, reward, value

    def _score_policy(
        self,
        policy: PolicyArray,
        visits: CountArray,
        starts: CountArray,
        present: MaskArray | None,
        key: tuple[int, int],
    ) -> tuple[float, float, float]:
        """The same for the episodes that played one policy, which began as ``starts (m, S)`` says.

        ``key`` says whose last evaluation is brought up to date.
        """
        rows = self._honest
        number = self._agents_of_kind
        if present is not None:
            number = self._number_of_each_kind(present[self._honest])
            if not number.any():
                return 0.0, 0.0, math.nan
        if len(visits) == 1:
            rows = self._everyone
            starts = starts if len(starts) == 1 else starts.sum(axis=0, keepdims=True)
        best = self.optimum.V[0]
        by_action = visits if visits.ndim == 4 else visits[..., None]
        common, agents = self._evaluation(key, policy)
        if common is not agents:
            update_values(common.tables, policy, common.last, common.V)
        return score_round(policy, by_action, starts, rows, best, common.V, *agents, number, self._rewards)

    def gap(self, playing: int) -> FloatArray:
        """``V* - V^pi`` at the first step, of the policy scored last, in states where episodes may begin."""
        common, _ = self._evaluations[playing, 0]
        lost: FloatArray = self.optimum.V[0] - common.V[0, :, 0]
        return lost


def starts_by_policy(policy: PolicyArray, starts: CountArray) -> dict[int, CountArray]:
    """Initial states of the episodes that played each of the different policies, by the first level that has it.

    ``policy`` is ``(L, H, S, A)`` and ``starts`` ``(m, L, S)``; policies that nobody played are left out.
    """
    first_level: dict[bytes, int] = {}
    found: dict[int, CountArray] = {}
    for level in np.flatnonzero(starts.any(axis=(0, 2))):
        own = int(level)
        first = first_level.setdefault(policy[own].tobytes(), own)
        if first in found:
            found[first] = found[first] + starts[:, own]
        else:
            found[first] = starts[:, own]
    return found


@inner
def _paying_states(rewards: FloatArray, out: CountArray) -> int:
    """List the states in which some action pays; how many there are."""
    number = 0
    for s in range(len(rewards)):
        pays = False
        for a in range(rewards.shape[1]):
            pays |= rewards[s, a] != 0.0
        out[number] = s
        number += pays
    return number


@inner
def _paid(visits: CountArray, rewards: FloatArray, policy: PolicyArray) -> float:
    """``sum_{h,s,a} visits_h(s,a) r_h(s,a)``; where visits have no action axis to speak of, it was the policy's."""
    H, S, W = visits.shape
    paying = np.empty(S, dtype=np.int64)
    number = 0
    total = 0.0
    for h in range(H):
        hr = shared(h, rewards.shape[0])
        if h == 0 or hr > 0:
            number = _paying_states(rewards[hr], paying)
        for s in paying[:number]:
            if policy.ndim == 2:
                if visits[h, s, 0] > 0:
                    total += visits[h, s, 0] * rewards[hr, s, policy[h, s]]
            else:
                for a in range(W):
                    if visits[h, s, a] > 0:
                        total += visits[h, s, a] * rewards[hr, s, a]
    return total


@compiled
def score_round(
    policy: PolicyArray,
    visits: CountArray,
    starts: CountArray,
    rows: CountArray,
    best: FloatArray,
    common_V: FloatArray,
    tables: AgentTables,
    last: PolicyArray,
    V: FloatArray,
    number: CountArray,
    rewards: FloatArray,
) -> tuple[float, float, float]:
    """``(regret, reward, value)`` of a round, averaged over the honest agents that took part.

    Regret is ``1/M sum_i sum_t V*_1(s^i_{t,1}) - V^pi_1(s^i_{t,1})`` in the common MDP (``def:common_regret``) with
    the initial states that occurred; ``best`` is ``V*_1`` and ``common_V`` ``V^pi``. Reward is what the agents were
    paid in their own MDPs. Both are sums over the round's episodes. Value is that of one episode in the agents' own
    MDPs, ``1/M sum_i V^{i,pi}_1(mu^i)``; ``number[k]`` of these agents have the k-th MDP of ``tables``. ``V``, their
    values with the policy ``last``, is brought up to date first, and may be ``common_V``. Only the given ``rows`` of
    visits count.
    """
    _, H, S, W = visits.shape
    M = 0
    for k in range(len(number)):  # not number.sum(), which takes Numba half a second to compile
        M += number[k]
    update_values(tables, policy, last, V)
    regret = 0.0
    for i in rows:
        for s in range(S):
            if starts[i, s] > 0:
                regret += starts[i, s] * (best[s] - common_V[0, s, 0])
    shared = rewards.shape[0] == 1
    reward = 0.0
    if len(rows) == 1:
        reward = _paid(visits[rows[0]], rewards[0 if shared else rows[0]], policy)
    else:
        totals = np.zeros((H, S, W), dtype=np.int64)
        for j in range(len(rows)):
            i = rows[j]
            for h in range(H):
                for s in range(S):
                    for w in range(W):
                        totals[h, s, w] += visits[i, h, s, w]
            if not shared or j == len(rows) - 1:
                reward += _paid(totals, rewards[0 if shared else i], policy)
                totals[:] = 0
    values = 0.0
    initial = tables.initial
    for s in range(S):
        for k in range(len(number)):
            if initial[s, k] > 0.0:
                values += number[k] * initial[s, k] * V[0, s, k]
    return regret / M, reward / M, values / M
