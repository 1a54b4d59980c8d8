"""The frame of algorithms whose agents send one report a round and then forget it, as model-free ones do.

Such an agent keeps what it was sent (value functions) and what it will report (statistics of the round). The server
keeps everything that lasts longer. :class:`OneReport` says what an algorithm has to add.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Algorithm, Array, Budgets, FleetTables, Message, ServerState, Setting
from fed_ucbvi.algorithms.greedy import randomise
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

ReportT = TypeVar("ReportT", bound=Any)
"""A NamedTuple of arrays with a leading agent axis."""
ServerT = TypeVar("ServerT", bound=ServerState)


class RoundCounts(NamedTuple):
    """What the agents saw in a round.

    Attributes:
        policy: ``(H, S)``, what they played.
        transitions: ``(m, H, S, K)``, from ``(h, s, pi_h(s))``, by slot of the support.
        visits: ``(m, H, S)``.
    """

    policy: IndexArray
    transitions: CountArray
    visits: CountArray

    def rewards(self, tables: FleetTables) -> FloatArray:
        """What ``(h, s, pi_h(s))`` paid each agent, ``(m, H, S)``; 0 where an agent has not been."""
        h, s = np.ogrid[: self.policy.shape[0], : self.policy.shape[1]]
        paid = tables.rewards[:, h % tables.rewards.shape[1], s, self.policy]
        return np.where(self.visits > 0, paid, 0.0)

    def next_states(self, tables: FleetTables) -> CountArray:
        """How often each agent went from ``(h, s, pi_h(s))`` to each state, ``(m, H, S, S)``."""
        m, H, S, K = self.transitions.shape
        h, s = np.ogrid[:H, :S]
        successors = tables.successors[h % tables.successors.shape[0], s, self.policy]
        counts = np.zeros((m, H, S, S), dtype=np.int64)
        for k in range(K):
            counts[:, h, s, successors[..., k]] += self.transitions[..., k]
        return counts


class PolicyAndVisits(NamedTuple):
    """Down, at the start of a round: ``policy[H,S]``, and the visits so far to ``(h, s, pi_h(s))``, ``N[H,S]``."""

    policy: IndexArray
    N: CountArray


@dataclass
class RoundAgents(Generic[ReportT]):
    """A fleet of m agents that remember nothing beyond a round.

    Attributes:
        tables: what they brought along.
        values: ``(k, H+1, S)``, the k value functions of the broadcast.
        out: what they will report.
        asks: when they request a synchronisation.
        federation_size: M.
    """

    tables: FleetTables
    values: FloatArray
    out: ReportT
    asks: Budgets
    federation_size: int

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return {"values": self.values, **self.out._asdict()}


class OneReport(Algorithm[ServerT, RoundAgents[ReportT]], Generic[ServerT, ReportT]):
    """Defaults for an algorithm of one exchange a synchronisation.

    An algorithm makes its server, and the buffers of its reports (:meth:`new_report`), and says how an agent's counts
    become a report (:meth:`summarise`) and what the server does with the reports (``aggregate``). By default an agent
    requests a synchronisation once the visits of all agents to some (h,s,a) may have doubled. For this the server's
    arrays need the visits ``N[H,S,A]``. An algorithm with another rule says what its ``broadcast_type`` is and which
    ``values`` in it agents keep, and gives :meth:`broadcast` and :meth:`fill_budgets`.
    """

    rules: ClassVar[tuple[str, ...]] = ("doubling",)
    broadcast_type: ClassVar[type[Any]] = PolicyAndVisits
    values: ClassVar[tuple[str, ...]] = ()

    def new_agents(self, setting: Setting, tables: FleetTables) -> RoundAgents[ReportT]:
        """A fleet that has seen nothing."""
        m, H, S = tables.agents, setting.horizon, setting.states
        return RoundAgents(
            tables=tables,
            values=np.zeros((len(self.values), H + 1, S)),
            out=self.new_report(m, H, S),
            asks=Budgets(np.ones((m, H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int8)),
            federation_size=setting.agents,
        )

    @abstractmethod
    def new_report(self, m: int, H: int, S: int) -> ReportT:
        """The buffers of m agents' reports."""

    def broadcast(self, server: ServerT) -> Any:
        """Server to agents at the start of a round: a NamedTuple with the policy first and ``values`` by name."""
        N = np.take_along_axis(server.arrays()["N"], server.policy[..., None], axis=2)
        return PolicyAndVisits(server.policy, N[..., 0])

    def budgets(self, agents: RoundAgents[ReportT], broadcast: Message) -> Budgets:
        """Keep the values for the round, and compute after how many visits agents request a synchronisation."""
        sent = self.broadcast_type(*broadcast)
        for kept, name in zip(agents.values, self.values, strict=True):
            np.copyto(kept, getattr(sent, name))
        self.fill_budgets(sent, agents.federation_size, agents.asks.visits, agents.asks.rule)
        return agents.asks

    def fill_budgets(self, broadcast: Any, M: int, visits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        """Fill the visits ``[m,H,S]`` after which an agent requests a synchronisation, and by which rule ``[H,S]``.

        By default v visits with ``N + M v >= 2 N``, so ``v = max(1, ceil(N/M))``.
        """
        visits[:] = np.maximum(1, -(-broadcast.N // M))

    def absorb(
        self, agents: RoundAgents[ReportT], policy: IndexArray, transitions: CountArray, visits: CountArray
    ) -> None:
        """Work out the round's report; that of the round before is forgotten."""
        self.summarise(RoundCounts(policy, transitions, visits), agents.tables, agents.values, agents.out)

    @abstractmethod
    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: ReportT) -> None:
        """Fill the report ``out`` from the round's counts."""

    def report(self, agents: RoundAgents[ReportT], query: Message, exchange: int) -> Any:
        """What the round's counts came to."""
        return agents.out


def report_buffers(kind: type[ReportT], m: int, H: int, S: int) -> ReportT:
    """A report of visits ``n[m,H,S]``, rewards and means ``[m,H,S]`` at the policy's actions."""
    shape = (m, H, S)
    buffers: ReportT = kind(np.zeros(shape, dtype=np.int64), *(np.zeros(shape) for _ in kind._fields[1:]))
    return buffers


def fill_means(counts: RoundCounts, tables: FleetTables, functions: Sequence[FloatArray], report: Message) -> None:
    """Fill visits, rewards, and for each function ``f[H+1,S]`` of the next state its mean over the visits.

    ``report`` is a report of :func:`report_buffers`; there are as many functions as it has means.
    """
    visits, rewards, *means = report
    _fill_means(*counts, tables.successors, tables.rewards, np.stack(functions), visits, rewards, tuple(means))


@compiled
def _fill_means(
    policy: IndexArray,
    transitions: CountArray,
    visits: CountArray,
    successors: IndexArray,
    rewards: FloatArray,
    functions: FloatArray,
    n: CountArray,
    r: FloatArray,
    means: tuple[FloatArray, ...],
) -> None:
    """``sum_k n(s,a,s'_k) f(s'_k) / n(s,a)`` at the next step for every f; 0 where ``n = 0``."""
    m, H, S, K = transitions.shape
    for i in range(m):
        ir = i if rewards.shape[0] > 1 else 0
        for h in range(H):
            hk = h if successors.shape[0] > 1 else 0
            hr = h if rewards.shape[1] > 1 else 0
            for s in range(S):
                count, a = visits[i, h, s], policy[h, s]
                n[i, h, s] = count
                r[i, h, s] = rewards[ir, hr, s, a] if count > 0 else 0.0
                for j in range(len(means)):
                    total = 0.0
                    if count > 0:
                        for k in range(K):
                            total += transitions[i, h, s, k] * functions[j, h + 1, successors[hk, s, a, k]]
                        total /= count
                    means[j][i, h, s] = total


def first_policy(setting: Setting, choice: str) -> IndexArray:
    """What is played in the first round: a ``random`` action or the ``first``, for each (h,s)."""
    policy = np.zeros((setting.horizon, setting.states), dtype=np.int32)
    if choice == "random":
        randomise(np.uint64(setting.seed), setting.actions, policy)
    return policy
