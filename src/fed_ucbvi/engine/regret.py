"""The score of a round: its common regret, the reward collected in it, and the value of its policy."""

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


class Score(NamedTuple):
    """Sums over the episodes of a round, averaged over the agents that took part, and the value of its policy.

    Numbers are NaN where they are unknown.
    """

    regret: float
    reward: float
    value: float


class CachedEvaluation(NamedTuple):
    """MDPs that are evaluated in every round, and the last evaluation, most of which is often still right.

    Attributes:
        tables: the MDPs of m agents.
        last: the policy that was evaluated last.
        V: its values, ``(H+1, S, m)``; see :func:`fed_ucbvi.problem.agent_tables.update_values`.
    """

    tables: AgentTables
    last: PolicyArray
    V: FloatArray

    @classmethod
    def of(cls, tables: AgentTables, policy: PolicyArray) -> CachedEvaluation:
        """An evaluation of policies of this form, before the first one."""
        H = len(policy)
        return cls(
            tables=tables,
            last=no_policy(policy),
            V=np.zeros((H + 1, *tables.initial.shape)),
        )


class Evaluations(NamedTuple):
    """The evaluations in the common MDP and in the agents' MDPs; one object if these are alike."""

    common: CachedEvaluation
    agents: CachedEvaluation


class EvaluationKey(NamedTuple):
    """The kind of round, see :data:`~fed_ucbvi.results.round_record.PLAYING`, and the level of a policy."""

    playing: int
    level: int


class RoundCounts(NamedTuple):
    """The counts of a round on which its score depends.

    Attributes:
        visits: ``(m, H or 1, S, A or 1)``.
        starts: ``(m, S)``, number of episodes that began in each state.
        rows: the rows of ``visits`` and ``starts`` that count.
        agents: number of agents with each kind of MDP.
    """

    visits: CountArray
    starts: CountArray
    rows: CountArray
    agents: CountArray


class Scorer:
    """Scores rounds; agents with equal MDPs are evaluated once."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.optimum = federation.common.solve()
        self._agents_of_kind = self._number_of_each_kind(slice(None))
        self._common_tables = _tables_of_common_mdp(federation)
        self._agent_tables = federation.kind_tables
        self._alike = _have_same_values(self._common_tables, self._agent_tables)
        self._evaluations: dict[EvaluationKey, Evaluations] = {}
        self._rewards = federation.rewards
        self._honest = federation.honest
        self._first_row = np.zeros(1, dtype=np.int64)

    def _number_of_each_kind(self, which: MaskArray | slice) -> CountArray:
        """Number of the chosen honest agents with each kind of MDP."""
        chosen, kind = self.federation.kinds
        return np.bincount(kind[which], minlength=len(chosen))

    def _evaluations_of(self, key: EvaluationKey, policy: PolicyArray) -> Evaluations:
        """The evaluations of a kind of round; new ones if the form of its policies changes."""
        found = self._evaluations.get(key)
        if found is None or found.common.last.dtype != LAST_TYPES[form_of(policy)]:
            agents = CachedEvaluation.of(self._agent_tables, policy)
            common = agents
            if not self._alike:
                common = CachedEvaluation.of(self._common_tables, policy)
            found = Evaluations(common, agents)
            self._evaluations[key] = found
        return found

    def score(
        self,
        policy: PolicyArray,
        visits: CountArray,
        starts: CountArray,
        present: MaskArray | None = None,
        playing: int = EXPLORING,
    ) -> Score:
        """The score of a round, averaged over the agents that took part; see :func:`score_round`.

        Args:
            policy: the policy of the round.
            visits: ``(m, *cell)``, or one row for the sum over all agents, if nobody lies and rewards are shared.
            starts: ``(m, L, S)``, number of episodes that began in each state, by level of the policy.
            present: the agents that took part; None if all did.
            playing: the kind of round. The last evaluation for the same kind is brought up to date.
        """
        if policy.ndim < 4:
            key = EvaluationKey(playing, level=0)
            begun = starts[:, 0] if starts.shape[1] == 1 else starts.sum(axis=1)
            return self._score_policy(policy, visits, begun, present, key)
        regret = 0.0
        reward = 0.0
        value = 0.0
        episodes = int(starts.sum())
        for level, begun in starts_by_policy(policy, starts).items():
            key = EvaluationKey(playing, level)
            score = self._score_policy(policy[level], visits, begun, present, key)
            regret += score.regret
            reward = score.reward
            value += score.value * (int(begun.sum()) / episodes)
        return Score(regret, reward, value)

    def _score_policy(
        self,
        policy: PolicyArray,
        visits: CountArray,
        starts: CountArray,
        present: MaskArray | None,
        key: EvaluationKey,
    ) -> Score:
        """The score of the episodes that played one policy; ``starts`` is ``(m, S)``."""
        agents_of_kind = self._agents_of_kind
        if present is not None:
            agents_of_kind = self._number_of_each_kind(present[self._honest])
            if not agents_of_kind.any():
                return Score(regret=0.0, reward=0.0, value=math.nan)
        rows = self._honest
        if len(visits) == 1:
            rows = self._first_row
            if len(starts) > 1:
                starts = starts.sum(axis=0, keepdims=True)
        counts = RoundCounts(
            visits=visits if visits.ndim == 4 else visits[..., None],
            starts=starts,
            rows=rows,
            agents=agents_of_kind,
        )
        common, agents = self._evaluations_of(key, policy)
        if common is not agents:
            update_values(common.tables, policy, common.last, common.V)
        best = self.optimum.V[0]
        regret, reward, value = score_round(policy, counts, best, common.V, agents, self._rewards)
        return Score(regret, reward, value)

    def gap(self, playing: int) -> FloatArray:
        """``V* - V^pi`` at the first step, of the policy scored last, in states where episodes may begin."""
        common, _ = self._evaluations[EvaluationKey(playing, level=0)]
        lost: FloatArray = self.optimum.V[0] - common.V[0, :, 0]
        return lost


def _tables_of_common_mdp(federation: Federation) -> AgentTables:
    """The common MDP as that of one agent; states in which some agent can be are reachable."""
    common = federation.common
    successors = common.kernel.successors
    probabilities = common.kernel.probabilities
    begins = np.asarray((federation.kind_tables.initial > 0).any(axis=1))
    return AgentTables.of(
        successors=successors,
        probabilities=probabilities[..., None],
        rewards=common.rewards[..., None],
        initial=common.initial[:, None],
        reachable=reachable_states(successors, probabilities > 0, begins, federation.horizon),
    )


def _have_same_values(one: AgentTables, other: AgentTables) -> bool:
    """True if every policy has the same values in both, to the last bit, wherever episodes begin."""
    for name in AgentTables._fields:
        if name != "initial" and not np.array_equal(getattr(one, name), getattr(other, name)):
            return False
    return True


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
    """Write the states in which some action pays to ``out``; their number."""
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
    """``sum_{h,s,a} visits_h(s,a) r_h(s,a)``; if the policy has one action per state, visits are not by action."""
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
    counts: RoundCounts,
    best: FloatArray,
    common_V: FloatArray,
    agents: CachedEvaluation,
    rewards: FloatArray,
) -> tuple[float, float, float]:
    """``(regret, reward, value)`` of a round, averaged over the honest agents that took part.

    Regret is ``1/M sum_i sum_t V*_1(s^i_{t,1}) - V^pi_1(s^i_{t,1})`` in the common MDP (``def:common_regret``) with
    the initial states that occurred; ``best`` is ``V*_1`` and ``common_V`` ``V^pi``. Reward is what the agents were
    paid in their own MDPs. Both are sums over the round's episodes. Value is that of one episode in the agents' own
    MDPs, ``1/M sum_i V^{i,pi}_1(mu^i)``. Their evaluation is brought up to date first, and may be ``common_V``.
    """
    number = counts.agents
    M = 0
    for k in range(len(number)):  # not number.sum(), which takes Numba half a second to compile
        M += number[k]
    update_values(agents.tables, policy, agents.last, agents.V)
    regret = _regret(counts, best, common_V)
    reward = _reward(policy, counts, rewards)
    values = 0.0
    initial = agents.tables.initial
    for s in range(len(initial)):
        for k in range(len(number)):
            if initial[s, k] > 0.0:
                values += number[k] * initial[s, k] * agents.V[0, s, k]
    return regret / M, reward / M, values / M


@inner
def _regret(counts: RoundCounts, best: FloatArray, common_V: FloatArray) -> float:
    """The sum over the episodes of all agents of what the policy loses against the best one."""
    starts = counts.starts
    regret = 0.0
    for i in counts.rows:
        for s in range(starts.shape[1]):
            if starts[i, s] > 0:
                regret += starts[i, s] * (best[s] - common_V[0, s, 0])
    return regret


@inner
def _reward(policy: PolicyArray, counts: RoundCounts, rewards: FloatArray) -> float:
    """The sum over the episodes of all agents of the rewards; where agents share them, visits are added up first."""
    rows = counts.rows
    visits = counts.visits
    _, H, S, W = visits.shape
    same_rewards = rewards.shape[0] == 1
    if len(rows) == 1:
        return _paid(visits[rows[0]], rewards[0 if same_rewards else rows[0]], policy)
    reward = 0.0
    totals = np.zeros((H, S, W), dtype=np.int64)
    for j in range(len(rows)):
        i = rows[j]
        for h in range(H):
            for s in range(S):
                for w in range(W):
                    totals[h, s, w] += visits[i, h, s, w]
        if not same_rewards or j == len(rows) - 1:
            reward += _paid(totals, rewards[0 if same_rewards else i], policy)
            totals[:] = 0
    return reward
