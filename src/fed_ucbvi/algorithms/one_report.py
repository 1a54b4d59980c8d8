"""The frame of algorithms whose agents send one report a round and then forget it, as model-free ones do.

Such an agent keeps what it was sent (value functions) and what it will report (statistics of the round). Whatever
lasts is with the server. What is left for an algorithm to say is in :class:`OneReport`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.algorithms.base import Array, Budgets, FleetTables, Message, ServerState, Setting, TakesRows
from fed_ucbvi.algorithms.greedy import randomise

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


@dataclass
class RoundAgents(Generic[ReportT]):
    """A fleet of m agents that remember nothing beyond a round.

    Attributes:
        tables: what they brought along.
        values: ``(k, H+1, S)``, the k value functions of the broadcast.
        out: what they will report.
        asks: when they ask for synchronisation.
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


class OneReport(TakesRows, Generic[ServerT, ReportT]):
    """Defaults for an algorithm of one exchange a synchronisation.

    An algorithm says what its ``broadcast_type`` is and which ``values`` in it agents keep, makes its buffers
    (:meth:`new_report`), and gives ``broadcast``, :meth:`fill_budgets`, :meth:`summarise` and ``aggregate``.
    """

    broadcast_type: ClassVar[type[Any]]
    values: ClassVar[tuple[str, ...]] = ()
    single_agent: ClassVar[bool] = False

    @property
    def together(self) -> bool:
        """One agent's ask stops everyone."""
        return True

    def facts(self, setting: Setting) -> dict[str, float]:
        """No constants to record."""
        return {}

    def cautions(self, setting: Setting) -> list[str]:
        """Nothing to warn of."""
        return []

    def exchanges(self, setting: Setting) -> int:
        """One: reports go up without being asked for."""
        return 1

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

    def new_report(self, m: int, H: int, S: int) -> ReportT:
        """The buffers of m agents' reports."""
        raise NotImplementedError

    def broadcast(self, server: ServerT) -> Any:
        """Server to agents at the start of a round: a NamedTuple with the policy first and ``values`` by name."""
        raise NotImplementedError

    def budgets(self, agents: RoundAgents[ReportT], broadcast: Message) -> Budgets:
        """Keep the values for the round, and work out how many visits make an agent ask."""
        sent = self.broadcast_type(*broadcast)
        for kept, name in zip(agents.values, self.values, strict=True):
            np.copyto(kept, getattr(sent, name))
        self.fill_budgets(sent, agents.federation_size, agents.asks.visits, agents.asks.rule)
        return agents.asks

    def fill_budgets(self, broadcast: Any, M: int, visits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        """Fill the visits ``[m,H,S]`` at which an agent asks, and by which rule ``[H,S]``."""
        raise NotImplementedError

    def absorb(
        self, agents: RoundAgents[ReportT], policy: IndexArray, transitions: CountArray, visits: CountArray
    ) -> None:
        """Work out the round's report; that of the round before is forgotten."""
        self.summarise(RoundCounts(policy, transitions, visits), agents.tables, agents.values, agents.out)

    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: ReportT) -> None:
        """Fill the report ``out`` from the round's counts."""
        raise NotImplementedError

    def query(self, server: ServerT, exchange: int) -> Message:
        """Nothing: the end of the round says it all."""
        return ()

    def report(self, agents: RoundAgents[ReportT], query: Message, exchange: int) -> Any:
        """What the round's counts came to."""
        return agents.out

    def aggregate(self, server: ServerT, report: Message, exchange: int) -> None:
        """Server side: take in the reports of all M agents, in agent order."""
        raise NotImplementedError

    def synchronise(self, server: ServerT, agents: RoundAgents[ReportT]) -> None:
        """The one exchange."""
        self.aggregate(server, self.report(agents, (), 0), 0)


def report_buffers(kind: type[ReportT], m: int, H: int, S: int) -> ReportT:
    """A report of visits ``n[m,H,S]`` and of means ``[m,H,S]`` at the policy's actions."""
    shape = (m, H, S)
    buffers: ReportT = kind(np.zeros(shape, dtype=np.int64), *(np.zeros(shape) for _ in kind._fields[1:]))
    return buffers


def first_policy(setting: Setting, choice: str) -> IndexArray:
    """What is played in the first round: a ``random`` action or the ``first``, for each (h,s)."""
    policy = np.zeros((setting.horizon, setting.states), dtype=np.int32)
    if choice == "random":
        randomise(np.uint64(setting.seed), setting.actions, policy)
    return policy
