"""What an algorithm is: parameters, two states, and the messages between them.

An algorithm is a frozen dataclass of parameters. It makes the *server* state and the *agents* state (a fleet of m
agents as arrays with a leading agent axis), and nothing else changes them. Server and agents exchange only messages,
which are named tuples of arrays. *Down* is from server to agents, *up* from agents to server. A round has four parts:

1. ``broadcast`` (down): what the agents need for the round, the policy among it;
2. ``budgets``: each agent computes after how many visits it will request a synchronisation, and the driver plays
until
   some agent does;
3. ``absorb``: each agent adds the round's counts to its own;
4. the synchronisation: for each of the ``exchanges`` a ``query`` (down), a ``report`` (up) and ``aggregate``.

An algorithm ``takes`` either *sums* or *rows*. If it takes sums, the reports are integers and the server uses nothing
but their sum over agents, so the result does not depend on how agents are grouped. If it takes rows, the server needs
the report of each agent, in agent order.

A simulation may do part 4 in one compiled function (:meth:`Algorithm.synchronise`), with the same arithmetic in the
same order, so that the result is the same to the last bit.

The policy that agents play is there to explore. The policy to deploy, the *recommended* policy, is planned without
bonus from all counts. A *planner* does this: a server of the same kind that replaces the server in part 4.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.core.colours import MARKERS, Marker, check_colour
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, MaskArray, PolicyArray, WordArray

SUMS, ROWS = "sums", "rows"
"""What a server takes of the agents' reports."""

WHOLE_KINDS = ("i", "b", "u")
"""Of arrays in messages beside floats: integers and truth values."""

Array = npt.NDArray[Any]
Message = tuple[Array, ...]


@dataclass(frozen=True)
class Setting:
    """What everyone knows before the run: S, A, H, M, T, eps_p and the seed, and whether rewards are random.

    Where nobody knows eps_p it is taken to be 0, as if the agents were alike, and ``eps_p_known`` is False. A run
    that goes on with more episodes or agents than planned keeps the ``grid_bits`` of its exact sums; 0 where they
    follow from the rest. A warm start brings up to ``earlier_visits`` visits to one (h,s,a) along.
    """

    states: int
    actions: int
    horizon: int
    agents: int
    episodes: int
    eps_p: float
    seed: int
    eps_p_known: bool = True
    random_rewards: bool = False
    grid_bits: int = 0
    earlier_visits: int = 0


class Counting(Enum):
    """How the visits of a round are counted; the thing that is counted is called a *place*.

    ``POLICY``: by ``(h, s)``, for policies with one action each. ``PAIRS``: by ``(h, s, a)``, for policies that are
    sets of actions. ``STATIONARY``: by ``(s, a)``, all steps together.
    """

    POLICY = "policy"
    PAIRS = "pairs"
    STATIONARY = "stationary"

    def shape(self, horizon: int, states: int, actions: int) -> tuple[int, ...]:
        """The axes of places, and of every table by place."""
        if self is Counting.POLICY:
            return horizon, states
        return (horizon if self is Counting.PAIRS else 1), states, actions


class Touched(NamedTuple):
    """The places that a round visited, for each agent and for all together; work after a round is done only there.

    Places (see :class:`Counting`) are numbered in row-major order. Arrays are changed in place by the driver, round
    after round.

    Attributes:
        places: ``(m, P)``; the first ``numbers[i]`` of row i are the places that agent i visited, in any order.
        numbers: ``(m,)``.
        all_places: ``(P,)``; the first ``number[0]`` are the places that any agent visited.
        number: ``(1,)``.
        all_visits: ``(1, *place)``, the visits of all agents.
    """

    places: IndexArray
    numbers: CountArray
    all_places: IndexArray
    number: CountArray
    all_visits: CountArray

    @classmethod
    def nowhere(cls, agents: int, shape: tuple[int, ...]) -> Touched:
        """Before the first round; ``shape`` is that of places."""
        places = math.prod(shape)
        return cls(
            np.zeros((agents, places), dtype=np.int32),
            np.zeros(agents, dtype=np.int64),
            np.zeros(places, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            np.zeros((1, *shape), dtype=np.int64),
        )


class RewardSums(NamedTuple):
    """The random rewards that agents were paid, as sums of ``rho = ceil(r 2^f)`` over all visits.

    There is one row where all agents are counted in one table, and none (length 0) where rewards are not random.

    Attributes:
        by_slot: ``(m or 1, steps, S, A, K)``, those of visits that went on to the k-th successor.
        squares: ``(m or 1, steps, S, A, 2)``, of ``rho^2``, as a high and a low word.
    """

    by_slot: CountArray
    squares: WordArray

    @classmethod
    def none(cls, *shape: int) -> RewardSums:
        """Nothing was paid yet; ``shape`` is that of ``by_slot``, and by default there is nothing to be paid."""
        rows, steps, S, A, K = shape or (0, 0, 0, 0, 0)
        return cls(
            np.zeros((rows, steps, S, A, K), dtype=np.int64), np.zeros((rows, steps, S, A, 2), dtype=np.uint64)
        )

    def of(self, agents: slice) -> RewardSums:
        """A view of some agents' sums."""
        return RewardSums(self.by_slot[agents], self.squares[agents])


NO_SUMS = RewardSums.none()
for _table in NO_SUMS:
    _table.flags.writeable = False  # as agents see sums always, so that code is compiled once for both
"""Where rewards are not random, and where an algorithm reads their means only."""


class FleetTables(NamedTuple):
    """What a fleet of m agents is given: its sizes, supports and rewards.

    Attributes:
        agents: m.
        successors: ``(steps, S, A, K)``, the support of each pair: its possible next states, in K slots. Transitions
            are counted by slot.
        rewards: ``(m or 1, steps, S, A)``; an agent reads its reward only where it has been. Where rewards are random
            or unknown these are means of what was observed, changed in place by whoever collects the data.
        first_agent: the number of the fleet's first agent in the federation.
        touched: where a round went, if the round's transitions are pooled: one table for all agents. Only for
            algorithms that :attr:`Algorithm.pools`.
        sums: of random rewards, changed in place likewise, for algorithms with a :meth:`Algorithm.reward_grid`.
    """

    agents: int
    successors: IndexArray
    rewards: FloatArray
    first_agent: int = 0
    touched: Touched | None = None
    sums: RewardSums = NO_SUMS

    def check_stationary(self) -> None:
        """Raise if the tables are known to depend on the step; for algorithms that count over all steps together."""
        steps = {"kernel": self.successors.shape[0], "rewards": self.rewards.shape[1]}
        by_step = [name for name, number in steps.items() if number > 1]
        if by_step:
            raise InputError(
                f"stationary=True counts visits over all steps together, but here {' and '.join(by_step)} depend on "
                "the step. Use stationary=False."
            )

    @classmethod
    def of_a_stranger(cls, setting: Setting) -> FleetTables:
        """Those of one agent of whose problem nothing is known; it can report that it has been nowhere."""
        S, A = setting.states, setting.actions
        return cls(1, np.zeros((1, S, A, 1), dtype=np.int32), np.zeros((1, 1, S, A)))


class Budgets(NamedTuple):
    """When agents request a synchronisation.

    Attributes:
        visits: ``(m or 1, *place)``, how many visits during the round make an agent do so; one row where all agents
            have the same.
        rule: ``(*place,)``, by which rule (an index into ``rules``).
        growth: a round that begins after t episodes lasts at least ``growth t`` episodes; agents make requests only
            from then on.
    """

    visits: CountArray
    rule: npt.NDArray[np.int8]
    growth: float = 0.0

    def min_length(self, first: int) -> int:
        """The least number of episodes of a round that begins after ``first``."""
        return math.ceil(self.growth * first)


class TableRow(NamedTuple):
    """The algorithm's row of the paper's Table 1; orders, without constants and logarithms in the regret.

    ``heterogeneity`` says whether agents may differ; None where nobody has said.
    """

    kind: str
    heterogeneity: bool | None
    communication: str
    regret: str


UNSAID = "its author has not said that this is sound"


class GoingOn(NamedTuple):
    """Which changes to a run under way, or to its start, an algorithm allows; where one is not allowed, why not.

    Attributes:
        episodes: to play more than were planned.
        agents: to take new agents in after the first round.
        warm_start: to start from the counts of an earlier run.
    """

    episodes: str = UNSAID
    agents: str = UNSAID
    warm_start: str = UNSAID


class State(Protocol):
    """Everything that changes during a run is in ``arrays``, in place; that is what a checkpoint keeps."""

    def arrays(self) -> dict[str, Array]:
        """The mutable arrays by name."""
        ...


class ServerState(State, Protocol):
    """The server's side."""

    @property
    def policy(self) -> PolicyArray:
        """What everyone plays: actions ``(H, S)``, or sets of them ``(H, S, A)``."""
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
    def policy(self) -> PolicyArray:
        """What everyone plays."""
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


class Algorithm(ABC, Generic[ServerT, AgentsT]):
    """A federated algorithm; see the module's text for the order of calls.

    A subclass is a frozen dataclass whose fields are the parameters. It documents them in its docstring, under
    ``Args``. What is not abstract here has a default. All that anybody else needs to know of an algorithm is in the
    class attributes.

    Attributes:
        name: by which it is registered and recorded, such as ``fed-ucbvi``.
        label: how the name is written in tables and figures; by default as it is.
        colour: of its curves, ``#RRGGBB``; by default each picture chooses one that no other curve has.
        marker: of its points; by default none. A subclass with a name of its own inherits none of these three.
        rules: names of the rules by which agents request a synchronisation; see :class:`Budgets`.
        table: its row of the paper's Table 1, if there is one.
        single_agent: whether it runs with one agent only.
        instead: what to use instead if there are several agents.
        takes: ``sums`` or ``rows``; see the module's text.
        keeps_experience: whether its agents keep the transitions of all rounds, not only those of the last.
        sends_trajectories: whether its reports tell the server the states that an agent went through, in order. A
            node sends such reports only where its owner has agreed.
        asks_to_plan: whether a planner needs the exchanges of one more synchronisation; otherwise it has its plan as
            soon as it is made.
        server_counts: whether the server keeps all that was reported, so that a planner needs an exchange only after
            a round without a synchronisation.
        falling: whether the V that it broadcasts never rises from one round to the next.
        checked: whether what it returns is checked in every round. This package's own algorithms are not: tests check
            them. It need not be given.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    colour: ClassVar[str]
    marker: ClassVar[Marker]
    rules: ClassVar[tuple[str, ...]] = ("budget",)
    table: ClassVar[TableRow | None] = None
    single_agent: ClassVar[bool] = False
    instead: ClassVar[str] = "an algorithm for several"
    takes: ClassVar[str] = ROWS
    keeps_experience: ClassVar[bool] = False
    sends_trajectories: ClassVar[bool] = False
    asks_to_plan: ClassVar[bool] = False
    server_counts: ClassVar[bool] = False
    falling: ClassVar[bool] = False
    checked: ClassVar[bool]

    def __init_subclass__(cls, **options: Any) -> None:
        """Complete how an algorithm with a name of its own looks, and check what it says of itself."""
        super().__init_subclass__(**options)
        own = vars(cls)
        cls.checked = not cls.__module__.startswith("fed_ucbvi.")
        if "name" in own:
            cls.label = own.get("label", cls.name)
            cls.colour = own.get("colour", "")
            cls.marker = own.get("marker", "none")
            if cls.colour != "":
                check_colour(f"the colour of {cls.name}", cls.colour)
            check_choice(f"marker of {cls.name}", cls.marker, MARKERS)
            check_choice(f"kind of reports of {cls.name}", cls.takes, (SUMS, ROWS))
        if cls.exchanges is not Algorithm.exchanges and cls.synchronise is Algorithm.synchronise:
            raise InputError(
                f"{cls.__name__} says how many exchanges a synchronisation takes, but the synchronise() that it "
                "inherits does one only; write one that does all of them."
            )

    @property
    def together(self) -> bool:
        """Whether one agent's request stops all agents, as by default; otherwise each plays until its own request."""
        return True

    @property
    def counting(self) -> Counting:
        """By what visits are counted during a round; by default policies have one action each."""
        return Counting.POLICY

    @property
    def pools(self) -> bool:
        """Whether it takes sums in which all visits count alike, so that agents can be counted in one table."""
        return False

    @property
    def has_models(self) -> bool:
        """Whether agents can report all they have counted at once (:meth:`model`); by default they cannot."""
        return False

    @property
    def going_on(self) -> GoingOn:
        """What may change in a run under way; by default nothing. ``docs/theory.md`` has the reasons."""
        return GoingOn()

    def largest_value(self, setting: Setting, step: int) -> float:
        """The most that ``V_step`` can be that agents are asked about; by default H, and 0 after the last step."""
        return float(setting.horizon) if step < setting.horizon else 0.0

    def check_agents(self, agents: int) -> None:
        """Raise unless it can run with this many agents."""
        if self.single_agent and agents > 1:
            raise InputError(
                f"{self.name} is for a single agent, and this federation has {agents}. Take {self.instead}, or "
                "agents=1."
            )

    def facts(self, setting: Setting) -> dict[str, float]:
        """Constants in force, for the record (nu, for instance); by default none."""
        return {}

    def cautions(self, setting: Setting) -> list[str]:
        """Plain warnings to give before the run; by default none."""
        return []

    def grid(self, setting: Setting) -> Grid | None:
        """The grid of its sums; None if it takes rows."""
        return None

    def reward_grid(self, setting: Setting) -> Grid | None:
        """The grid on which it wants random rewards added up (:class:`RewardSums`); None if means are enough."""
        return None

    def by_rows(self) -> Algorithm[ServerT, AgentsT]:
        """The same algorithm taking rows, for reports that are forged one by one; itself if it takes rows anyway."""
        return self

    def exchanges(self, setting: Setting) -> int:
        """How many query-report pairs one synchronisation takes; by default one."""
        return 1

    @abstractmethod
    def new_server(self, setting: Setting) -> ServerT:
        """The server before the first round."""

    @abstractmethod
    def new_agents(self, setting: Setting, tables: FleetTables) -> AgentsT:
        """A fleet before the first round."""

    @abstractmethod
    def broadcast(self, server: ServerT) -> Message:
        """Server to agents at the start of a round; the first array is the policy."""

    @abstractmethod
    def budgets(self, agents: AgentsT, broadcast: Message) -> Budgets:
        """Agent side: after how many visits each agent requests a synchronisation."""

    def asking_rule(self, setting: Setting) -> Any:
        """The rule of :meth:`budgets`, if a GPU can apply it (:mod:`~fed_ucbvi.engine.drivers.cuda`); else None."""
        return None

    @abstractmethod
    def absorb(self, agents: AgentsT, policy: Any, transitions: CountArray, visits: CountArray) -> None:
        """Agent side: add the round's counts to the agents' own."""

    def query(self, server: ServerT, exchange: int) -> Message:
        """Server to agents, at the start of an exchange; by default nothing, and the end of the round says it all."""
        return ()

    @abstractmethod
    def report(self, agents: AgentsT, query: Message, exchange: int) -> Message:
        """Agents to server: arrays with a leading agent axis, one row for each message.

        A :class:`~typing.NamedTuple` whose fields say what they mean (:mod:`fed_ucbvi.algorithms.report_fields`).
        """

    def empty_report(self, agents: AgentsT, query: Message, exchange: int) -> Message:
        """Arrays as large as those of a report, whatever is in them, for counting bytes."""
        return self.report(agents, query, exchange)

    def report_bytes(self, setting: Setting, episodes: int) -> int | None:
        """The most bytes of one agent's report of so many episodes; by default those of an :meth:`empty_report`."""
        return None

    @abstractmethod
    def aggregate(self, server: ServerT, report: Message, exchange: int) -> None:
        """Server side: use the reports of all M agents, in agent order; sums may be added up already."""

    def model(self, agents: AgentsT) -> Message:
        """Agents to server, in place of all reports: what they have counted, added up to one row of integers."""
        raise NotImplementedError

    def agents_of(self, setting: Setting, model: Message) -> Any:
        """Server side: agents whose reports are those of all agents whose models add up to this one."""
        raise NotImplementedError

    def counts(self, setting: Setting, model: Message) -> Any:
        """What a model says, as :class:`~fed_ucbvi.algorithms.counts.Counts` for a later run."""
        raise InputError(f"no run can start from the counts of {self.name}: {self.going_on.warm_start}.")

    def counts_of(self, setting: Setting, server: ServerT) -> Any:
        """What the server knows, likewise, if it keeps all that was reported (:attr:`server_counts`)."""
        raise NotImplementedError

    def earlier_agents(self, setting: Setting, counts: Any) -> Any:
        """The agents of an earlier run, known by their counts: they report, and nothing else.

        Their ``model`` is what they report where counts are exchanged.
        """
        raise InputError(f"{self.name} cannot start from the counts of an earlier run: {self.going_on.warm_start}.")

    def synchronise(self, server: ServerT, agents: AgentsT) -> None:
        """All exchanges of one synchronisation in one process; by default there is one."""
        report = self.report(agents, self.query(server, 0), 0)
        check_report(self, report)
        self.aggregate(server, report, 0)

    def new_planner(self, setting: Setting, server: ServerT) -> ServerT | None:
        """A server of the same kind that plans without bonus; pairs never visited are worth nothing to it.

        Its policy is ``(H, S)``, the first action among equals. None, as by default, where nothing is planned: then
        the greedy policy of the server's own estimates is what is recommended.
        """
        return None


def check_message(name: str, what: str, message: Message) -> None:
    """Raise unless a message of the algorithm ``name`` is made of arrays of finite numbers."""
    array: Any
    for array in message:
        kind = array.dtype.kind if type(array) is np.ndarray else ""
        if kind in WHOLE_KINDS or (kind == "f" and all_finite(array)):
            continue
        if kind != "f":
            raise InputError(f"{name}: {what} must consist of arrays of numbers, got {type(array).__name__}.")
        where = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise InputError(
            f"{name}: {what} has {array[where]} at {where}, where finite numbers belong. Look for a division "
            "by 0 or a logarithm of 0 in the algorithm."
        )


def check_report(algorithm: Algorithm[Any, Any], report: Message) -> None:
    """Raise unless a server can use what agents report."""
    if algorithm.checked:
        check_message(algorithm.name, "report()", report)


@compiled
def all_finite(array: FloatArray) -> bool:
    """Whether no number is NaN or infinite."""
    wrong = False
    for x in array.ravel():
        wrong |= x - x != 0.0  # no way out of the loop: so it takes several numbers at a time
    return not wrong


def as_sets(policy: PolicyArray, actions: int) -> MaskArray:
    """A policy as sets of actions, ``(H, S, A)``."""
    return policy.astype(np.bool_) if policy.ndim == 3 else np.asarray(policy[..., None] == np.arange(actions))


def added_up(report: Message) -> Message:
    """The reports of some agents as one row, their sum; for algorithms that take sums."""
    return tuple([array.copy() if len(array) == 1 else array.sum(axis=0, keepdims=True) for array in report])


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
        check_report(algorithm, report)
        if tamper is not None:
            tamper(report, exchange)
        algorithm.aggregate(server, report, exchange)
