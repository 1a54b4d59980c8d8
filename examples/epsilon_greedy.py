"""Epsilon-greedy federated value iteration: ``fed-ucbvi run --algorithm examples.epsilon_greedy:EpsilonGreedy``."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import FleetTables, Message, Setting, TableServer
from fed_ucbvi.algorithms.one_report import OneReport, RoundCounts, first_policy
from fed_ucbvi.algorithms.report_fields import Meaning
from fed_ucbvi.core.errors import check_number
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray


class Report(NamedTuple):
    """Up, of each (h, s, policy): visits and the reward ``(m,H,S)``, and visits to each next state ``(m,H,S,S)``."""

    n: Annotated[CountArray, Meaning.VISITS_OF_ROUND]
    r: Annotated[FloatArray, Meaning.REWARD]
    moves: CountArray


class Pool(NamedTuple):
    """What the server knows: what is played, the values, and by (h,s,a) the visits, rewards and next states."""

    policy: IndexArray
    V: FloatArray
    N: CountArray
    rewards: FloatArray
    moves: CountArray


@dataclass(frozen=True)
class EpsilonGreedy(OneReport[TableServer[Pool, Setting], Report]):
    """Value iteration on the counts of all agents, without bonus; some actions are drawn at random.

    Args:
        epsilon: the probability of a random action, for each (h,s) of each round.
    """

    name: ClassVar[str] = "epsilon-greedy"
    label: ClassVar[str] = "ε-greedy"

    epsilon: float = 0.2

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, at_least=0, at_most=1)

    def new_server(self, setting: Setting) -> TableServer[Pool, Setting]:
        """Nothing is known, and every action of the first round is random."""
        H, S, A = setting.horizon, setting.states, setting.actions
        N, moves = np.zeros((H, S, A), dtype=np.int64), np.zeros((H, S, A, S), dtype=np.int64)
        pool = Pool(first_policy(setting, "random"), np.zeros((H + 1, S)), N, np.zeros((H, S, A)), moves)
        return TableServer(pool, setting)

    def new_report(self, m: int, H: int, S: int) -> Report:
        """Nothing seen."""
        return Report(np.zeros((m, H, S), np.int64), np.zeros((m, H, S)), np.zeros((m, H, S, S), np.int64))

    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: Report) -> None:
        """An agent reports its counts."""
        out.n[:], out.r[:], out.moves[:] = counts.visits, counts.rewards(tables), counts.next_states(tables)

    def aggregate(self, server: TableServer[Pool, Setting], report: Message, exchange: int) -> None:
        """The server adds up, plans for what it has seen, and draws where to explore from (seed, visits so far)."""
        (policy, V, N, rewards, moves), (n, r, m) = server.estimates, report
        h, s = np.ogrid[: len(policy), : len(V[0])]
        N[h, s, policy] += n.sum(axis=0)
        rewards[h, s, policy] += (n * r).sum(axis=0)
        moves[h, s, policy] += m.sum(axis=0)
        for step in reversed(range(len(policy))):
            Q = (rewards[step] + moves[step] @ V[step + 1]) / np.maximum(N[step], 1)
            policy[step], V[step] = Q.argmax(axis=1), Q.max(axis=1)
        random = np.random.Generator(np.random.Philox(key=[server.rule.seed, int(N.sum())]))
        explores = random.random(policy.shape) < self.epsilon
        policy[explores] = random.integers(N.shape[2], size=explores.sum())
