"""What an algorithm is: parameters, two states, and the messages between them.

An algorithm is a frozen dataclass of parameters. The *server* state and the *agents* state (a fleet of m agents
as arrays with a leading agent axis) are made by it and touched by nothing else. They meet only in messages, which
are named tuples of arrays:

1. ``broadcast`` (down): what the agents need for a round, the policy among it;
2. ``budgets``: each agent works out when it will ask for synchronisation; the driver plays until someone does;
3. ``absorb``: each agent adds the round's counts to its own;
4. for each of the ``exchanges``: ``query`` (down), ``report`` (up), ``aggregate``.

An algorithm ``takes`` either *sums* or *rows*. Where it takes sums, the reports are integers and the server uses
nothing but their sum over agents, so how agents are grouped never changes a bit. Where it takes rows, the server
needs every agent's report by itself, in agent order.

A simulation may do step 4 in one compiled piece (:meth:`Algorithm.synchronise`), with the same arithmetic in the
same order, so that the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.algorithms.exact_sums import Grid

SUMS, ROWS = "sums", "rows"
"""What a server takes of the agents' reports."""

Array = npt.NDArray[Any]
Message = tuple[Array, ...]


@dataclass(frozen=True)
class Setting:
    """What everyone knows before the run: S, A, H, M, T, eps_p and the seed.

    Where nobody knows eps_p it is taken to be 0, as if the agents were alike, and ``eps_p_known`` is False.
    """

    states: int
    actions: int
    horizon: int
    agents: int
    episodes: int
    eps_p: float
    seed: int
    eps_p_known: bool = True


class Touched(NamedTuple):
    """Where a round went: for each agent, and for all of them together, so that nothing else need be looked at.

    A *place* is ``h S + s``. Arrays are changed in place by the driver, round after round.

    Attributes:
        places: ``(m, H S)``; the first ``numbers[i]`` of row i are the places that agent i visited, in any order.
        numbers: ``(m,)``.
        all_places: ``(H S,)``; the first ``number[0]`` are the places that anyone visited.
        number: ``(1,)``.
        all_visits: ``(1, H, S)``, the visits of all agents.
    """

    places: IndexArray
    numbers: CountArray
    all_places: IndexArray
    number: CountArray
    all_visits: CountArray

    @classmethod
    def nowhere(cls, agents: int, horizon: int, states: int) -> Touched:
        """Before the first round."""
        places = horizon * states
        return cls(
            np.zeros((agents, places), dtype=np.int32),
            np.zeros(agents, dtype=np.int64),
            np.zeros(places, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            np.zeros((1, horizon, states), dtype=np.int64),
        )


class FleetTables(NamedTuple):
    """What a fleet of m agents brings along.

    Attributes:
        agents: m.
        successors: ``(steps, S, A, K)``, by which slot of which support transitions are counted.
        rewards: ``(m or 1, steps, S, A)``; an agent reads its reward only where it has been.
        first_agent: the number of the fleet's first agent in the federation.
        touched: where a round went, if the round's transitions are pooled: one table for all agents. Only for
            algorithms that :attr:`Algorithm.pools`.
    """

    agents: int
    successors: IndexArray
    rewards: FloatArray
    first_agent: int = 0
    touched: Touched | None = None

    @classmethod
    def of_a_stranger(cls, setting: Setting) -> FleetTables:
        """Those of one agent of whose problem nothing is known; it can report that it has been nowhere."""
        S, A = setting.states, setting.actions
        return cls(1, np.zeros((1, S, A, 1), dtype=np.int32), np.zeros((1, 1, S, A)))


class Budgets(NamedTuple):
    """When agents ask: ``visits[m,H,S]`` during the round, and by which rule ``[H,S]`` (an index into ``rules``)."""

    visits: CountArray
    rule: npt.NDArray[np.int8]


class TableRow(NamedTuple):
    """The algorithm's row of the paper's Table 1; orders, without constants and logarithms in the regret."""

    kind: str
    heterogeneity: bool
    communication: str
    regret: str


class State(Protocol):
    """Everything that changes during a run is in ``arrays``, in place; that is what a checkpoint keeps."""

    def arrays(self) -> dict[str, Array]:
        """The mutable arrays by name."""
        ...


class ServerState(State, Protocol):
    """The server's side."""

    @property
    def policy(self) -> IndexArray:
        """What everyone plays, ``(H, S)``."""
        ...

    @property
    def V(self) -> FloatArray:
        """The current estimate of the values, ``(H+1, S)``."""
        ...


class Tables(Protocol):
    """Named arrays, the policy and the values among them; a NamedTuple does."""

    @property
    def policy(self) -> IndexArray:
        """``(H, S)``."""
        ...

    @property
    def V(self) -> FloatArray:
        """``(H+1, S)``."""
        ...

    def _asdict(self) -> dict[str, Any]: ...


EstimatesT = TypeVar("EstimatesT", bound=Tables)
RuleT = TypeVar("RuleT")


@dataclass
class TableServer(Generic[EstimatesT, RuleT]):
    """A server made of tables that change (``estimates``) and numbers that do not (``rule``)."""

    estimates: EstimatesT
    rule: RuleT

    @property
    def policy(self) -> IndexArray:
        """What everyone plays, ``(H, S)``."""
        return self.estimates.policy

    @property
    def V(self) -> FloatArray:
        """The current estimate of the values, ``(H+1, S)``."""
        return self.estimates.V

    def arrays(self) -> dict[str, Array]:
        """What changes during a run."""
        return self.estimates._asdict()


ServerT = TypeVar("ServerT", bound=ServerState)
AgentsT = TypeVar("AgentsT", bound=State)


class Algorithm(Protocol[ServerT, AgentsT]):
    """A federated algorithm; see the module's text for the order of calls."""

    name: ClassVar[str]
    rules: ClassVar[tuple[str, ...]]
    table: ClassVar[TableRow]
    single_agent: ClassVar[bool]
    takes: ClassVar[str]

    @property
    def together(self) -> bool:
        """Whether one agent's ask stops everyone; otherwise each agent plays on until it asks itself."""
        ...

    def facts(self, setting: Setting) -> dict[str, float]:
        """Constants in force, for the record (nu, for instance)."""
        ...

    def cautions(self, setting: Setting) -> list[str]:
        """Plain warnings to give before the run."""
        ...

    @property
    def pools(self) -> bool:
        """Whether it takes sums in which all visits count alike, so that agents can be counted in one table."""
        ...

    def grid(self, setting: Setting) -> Grid | None:
        """The grid of its sums; None if it takes rows."""
        ...

    def by_rows(self) -> Algorithm[ServerT, AgentsT]:
        """The same algorithm taking rows, for reports that are forged one by one; itself if it takes rows anyway."""
        ...

    def exchanges(self, setting: Setting) -> int:
        """How many query-report pairs one synchronisation takes."""
        ...

    def new_server(self, setting: Setting) -> ServerT:
        """The server before the first round."""
        ...

    def new_agents(self, setting: Setting, tables: FleetTables) -> AgentsT:
        """A fleet before the first round."""
        ...

    def broadcast(self, server: ServerT) -> Message:
        """Server to agents at the start of a round; the first array is the policy."""
        ...

    def budgets(self, agents: AgentsT, broadcast: Message) -> Budgets:
        """Agent side: how many visits make each agent ask."""
        ...

    def absorb(self, agents: AgentsT, policy: IndexArray, transitions: CountArray, visits: CountArray) -> None:
        """Agent side: take in the round's counts."""
        ...

    def query(self, server: ServerT, exchange: int) -> Message:
        """Server to agents, at the start of an exchange."""
        ...

    def report(self, agents: AgentsT, query: Message, exchange: int) -> Message:
        """Agents to server: arrays with a leading agent axis, one row a message."""
        ...

    def aggregate(self, server: ServerT, report: Message, exchange: int) -> None:
        """Server side: take in the reports of all M agents, in agent order; sums may come added up already."""
        ...

    def synchronise(self, server: ServerT, agents: AgentsT) -> None:
        """All exchanges of one synchronisation in one process."""
        ...


class TakesRows:
    """What algorithms have in common whose server takes rows."""

    takes: ClassVar[str] = ROWS
    pools: ClassVar[bool] = False

    def grid(self, setting: Setting) -> None:
        """None: reports are not integers."""

    def by_rows(self) -> Self:
        """The algorithm itself."""
        return self


def added_up(report: Message) -> Message:
    """The reports of some agents as one row, their sum; for algorithms that take sums."""
    return tuple(array.sum(axis=0, keepdims=True) for array in report)


def exchange_messages(
    algorithm: Algorithm[ServerT, AgentsT],
    server: ServerT,
    agents: AgentsT,
    setting: Setting,
    tamper: Callable[[Message, int], None] | None = None,
) -> None:
    """One synchronisation, message by message: what :meth:`Algorithm.synchronise` must equal bit for bit.

    ``tamper`` may change the reports of an exchange, in place, before the server sees them.
    """
    for exchange in range(algorithm.exchanges(setting)):
        report = algorithm.report(agents, algorithm.query(server, exchange), exchange)
        if tamper is not None:
            tamper(report, exchange)
        algorithm.aggregate(server, report, exchange)
