"""Epsilon-greedy federated value iteration: ``fed-ucbvi run --algorithm examples.epsilon_greedy:EpsilonGreedy``."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

import fed_ucbvi as fed
from fed_ucbvi import CountArray, FloatArray, IndexArray, Meaning, Setting, Shape


class Report(NamedTuple):
    """Up, of each (h, s, policy): visits, the reward, and visits to each next state."""

    n: Annotated[CountArray, Meaning.VISITS_OF_ROUND, Shape("m H S")]
    r: Annotated[FloatArray, Meaning.REWARD, Shape("m H S")]
    moves: Annotated[CountArray, Shape("m H S S")]


class Pool(NamedTuple):
    """What the server knows: what is played, the values, and by (h,s,a) the visits, rewards and next states.

    Agents request a synchronisation once the visits N may have doubled.
    """

    policy: Annotated[IndexArray, Shape("H S")]
    V: Annotated[FloatArray, Shape("H+1 S")]
    N: Annotated[CountArray, Shape("H S A")]
    rewards: Annotated[FloatArray, Shape("H S A")]
    moves: Annotated[CountArray, Shape("H S A S")]


Server = fed.TableServer[Pool, Setting]


@dataclass(frozen=True)
class EpsilonGreedy(fed.OneReport[Pool, Setting, Report]):
    """Value iteration on the counts of all agents, without bonus; some actions are drawn at random."""

    name: ClassVar[str] = "epsilon-greedy"
    label: ClassVar[str] = "ε-greedy"
    estimates_type: ClassVar[type[Any]] = Pool
    report_type: ClassVar[type[Any]] = Report

    epsilon: Annotated[
        float,
        fed.Bounds(at_least=0, at_most=1),
        fed.Help("the probability of a random action, for each (h,s) of each round."),
    ] = 0.2

    def new_estimates(self, setting: Setting) -> Pool:
        """Nothing is known, and every action of the first round is random."""
        return fed.new_tables(Pool, setting, policy=fed.first_policy(setting, "random"))

    def summarise(self, counts: fed.RoundCounts, tables: fed.FleetTables, values: FloatArray, out: Report) -> None:
        """An agent reports its counts."""
        out.n[:], out.r[:], out.moves[:] = counts.visits, counts.rewards(tables), counts.next_states(tables)

    def aggregate(self, server: Server, report: fed.Message, exchange: int) -> None:
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
