"""The contract of an algorithm: parameters, two states, and the messages between them.

An algorithm is a frozen dataclass of parameters. It makes the *server* state and the *agents* state (a fleet of m
agents as arrays with a leading agent axis), and nothing else changes them. Server and agents exchange only messages,
which are named tuples of arrays. *Down* is from server to agents, *up* from agents to server. A round has four parts:

1. ``broadcast`` (down): what the agents need for the round, the policy among it;
2. ``budgets``: each agent computes after how many visits it will request a synchronisation, and the driver plays
   until some agent does;
3. ``absorb``: each agent adds the round's counts to its own;
4. the synchronisation: for each of the ``exchanges`` a ``query`` (down), a ``report`` (up) and ``aggregate``.

Reports are either *sums* or *rows*. With sums, the reports are integers on a grid (:meth:`Algorithm.grid`) and the
server uses nothing but their sum over agents, so the result does not depend on how agents are grouped. If it takes
rows, the server needs the report of each agent, in agent order.

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
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.exact_sums import Grid, make_grid
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import check_parameters
from fed_ucbvi.core.sampling.levels import ONE_LEVEL, LevelLaw
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray

if TYPE_CHECKING:
    from fed_ucbvi.problem.federation import Federation

Array = npt.NDArray[Any]
Message = tuple[Array, ...]


@dataclass(frozen=True)
class Setting:
    """Sizes and constants of a run, known to all: S, A, H, M, T, eps_p and the seed, and if rewards are random.

    Where nobody knows eps_p it is 0, as if the agents were identical, and ``eps_p_known`` is False. A run that is
    extended to more episodes keeps the ``grid_bits`` of its exact sums; 0 where they follow from the rest.
    A warm start brings up to ``earlier_visits`` visits to one (h,s,a) along. ``starts_known`` is False where the law
    of the first state is unknown: in live environments, and where a server knows the sizes of the problem only.

    >>> Setting(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.1, seed=0).random_rewards
    False
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
    starts_known: bool = True

    @classmethod
    def of(
        cls,
        problem: Federation,
        episodes: int,
        seed: int,
        *,
        random_rewards: bool,
        bits: int = 0,
        starts_known: bool = True,
    ) -> Setting:
        """Make the setting of a run on a problem; rewards may be random where the problem does not declare it."""
        known = not math.isnan(problem.eps_p)
        return cls(
            states=problem.states,
            actions=problem.actions,
            horizon=problem.horizon,
            agents=problem.agents,
            episodes=episodes,
            eps_p=problem.eps_p if known else 0.0,
            seed=seed,
            eps_p_known=known,
            random_rewards=random_rewards,
            grid_bits=bits,
            starts_known=starts_known,
        )

    def sum_grid(self, most: int, per_episode: int = 1) -> Grid:
        """The grid of sums over all visits of values up to ``most``, of so many visits to one cell an episode."""
        rows = self.agents + (self.earlier_visits > 0)
        visits = self.agents * self.episodes * per_episode + self.earlier_visits
        return make_grid(rows, visits, most, random_rewards=self.random_rewards, kept=self.grid_bits)


class Counting(Enum):
    """Unit in which the visits of a round are counted, called a *cell*.

    ``POLICY``: by ``(h, s)``, for policies with one action each. ``PAIRS``: by ``(h, s, a)``, for policies that are
    sets of actions. ``STATIONARY``: by ``(s, a)``, all steps together.
    """

    POLICY = "policy"
    PAIRS = "pairs"
    STATIONARY = "stationary"

    def shape(self, horizon: int, states: int, actions: int) -> tuple[int, ...]:
        """The axes of cells, and of every table by cell."""
        if self is Counting.POLICY:
            return horizon, states
        return (horizon if self is Counting.PAIRS else 1), states, actions


class VisitedCells(NamedTuple):
    """The cells that a round visited, for each agent and for all together; work after a round is done only there.

    Cells are numbered in row-major order. The first ``numbers[i]`` in row i of ``cells (m, P)`` are those that agent
    i visited, in any order, and the first ``number[0]`` of ``all_cells (P,)`` those that any agent visited;
    ``all_visits (1, *cell)`` are the visits of all agents. The driver changes the arrays in place.
    """

    cells: IndexArray
    numbers: CountArray
    all_cells: IndexArray
    number: CountArray
    all_visits: CountArray

    @classmethod
    def empty(cls, agents: int, shape: tuple[int, ...]) -> VisitedCells:
        """Before the first round; ``shape`` is that of cells."""
        cells = math.prod(shape)
        return cls(
            np.zeros((agents, cells), dtype=np.int32),
            np.zeros(agents, dtype=np.int64),
            np.zeros(cells, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
            np.zeros((1, *shape), dtype=np.int64),
        )


NO_REWARD_SUMS: CountArray = np.zeros((0, 0, 0, 0), dtype=np.int64)
NO_REWARD_SUMS.flags.writeable = False  # as the sums that agents read, so that code is compiled once for both
"""Reward sums of a fleet whose rewards are not random."""


class FleetTables(NamedTuple):
    """Tables for a fleet of m ``agents``: its size, supports and rewards.

    Attributes:
        successors: ``(steps, S, A, K)``, the support of each pair: its possible next states, in K slots. Transitions
            are counted by slot.
        rewards: ``(m or 1, steps, S, A)``; an agent reads its reward only where it has been. Where rewards are random
            or unknown these are the mean rewards of the round, changed in place by whoever collects the data.
        first_agent: its number in the federation.
        touched: where a round went, if the round's transitions are pooled: one table for all agents. Only for
            algorithms that take sums (:meth:`Algorithm.grid`).
        reward_sums: ``(m or 1, steps, S, A)``, sums of ``ceil(r 2^f)`` over the visits of the round, where rewards
            are random and the algorithm takes sums on a grid (:meth:`Algorithm.grid`); changed in place likewise.
            They hold only where the round has been.
    """

    agents: int
    successors: IndexArray
    rewards: FloatArray
    first_agent: int = 0
    touched: VisitedCells | None = None
    reward_sums: CountArray = NO_REWARD_SUMS

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
    def placeholder(cls, setting: Setting) -> FleetTables:
        """The tables of an agent of unknown problem, which can report zero visits."""
        S = setting.states
        A = setting.actions
        return cls(1, np.zeros((1, S, A, 1), dtype=np.int32), np.zeros((1, 1, S, A)))


class Budgets(NamedTuple):
    """Numbers of visits after which agents request a synchronisation.

    Attributes:
        limits: ``(m or 1, *cell)``, number of visits during the round after which an agent makes a request; one row
            where all agents have the same.
        rule: ``(*cell,)``, index of the rule in ``rules``.
        growth: a round that begins after t episodes lasts at least ``growth t`` episodes; agents make requests only
            from then on.
    """

    limits: CountArray
    rule: npt.NDArray[np.int8]
    growth: float = 0.0

    def min_length(self, first: int) -> int:
        """The least number of episodes of a round that begins after ``first``."""
        return math.ceil(self.growth * first)


class SentValues(NamedTuple):
    """Values in the messages of a server, which a node checks before it answers.

    They lie between 0 and H, and are 0 after the last step.

    Attributes:
        broadcast: number of the broadcast's array that is ``V[H+1,S]``; None if there is none.
        query: number of the array that is ``V_{H-e}[S]`` in the query of exchange e; None if there is none.
        monotone: True if the V of a broadcast never rises from one round to the next.
    """

    broadcast: int | None = None
    query: int | None = None
    monotone: bool = False


class MessageSizes(NamedTuple):
    """Bytes of the arrays that the server and one agent send each other, in closed form.

    They are those of the paper's messages, in which each agent sends a report of its own, however a run groups agents
    and whatever form of reports it uses.

    Attributes:
        broadcast: bytes of the message that begins a round.
        exchanges: number of exchanges in one synchronisation.
        query: bytes of the query of one exchange; 0 if there is none.
        reports: bytes of an agent's reports in all exchanges of one synchronisation, as far as their size is fixed.
        listed: numbers of entries of the tables that reports list sparsely: at most one entry for each visit of the
            round, and at most all of them.
    """

    broadcast: int
    exchanges: int
    query: int
    reports: int
    listed: tuple[int, ...] = ()

    def reports_after(self, visits: int) -> int:
        """The most bytes of an agent's reports after a round with so many visits.

        >>> MessageSizes(broadcast=100, exchanges=1, query=8, reports=0, listed=(1000, 40)).reports_after(50)
        1440
        """
        entries = sum(min(visits, most) for most in self.listed)
        return self.reports + ENTRY_BYTES * entries


ENTRY_BYTES = 16
"""Bytes of an entry of a sparse list: its place in the table, and a count."""

NOT_DECLARED = "not declared supported by this algorithm"
NOT_IMPLEMENTED = "it does not implement counts_of and start_from"


@dataclass(frozen=True)
class RunExtension:
    """Changes to a run under way, or to its start, that an algorithm allows: None, or the reason why not.

    Attributes:
        episodes: to play more than were planned.
        warm_start: to start from the counts of an earlier run.

    >>> RunExtension(episodes=None, warm_start="it keeps no counts of transitions").episodes is None
    True
    """

    episodes: str | None = NOT_DECLARED
    warm_start: str | None = NOT_DECLARED

    def __post_init__(self) -> None:
        for name in ("episodes", "warm_start"):
            reason = getattr(self, name)
            if reason is not None and not (isinstance(reason, str) and reason.strip()):
                raise InputError(
                    f"{name} of RunExtension must be the reason why it is not possible, or None if it is; got "
                    f"{reason!r}."
                )


class State(Protocol):
    """Everything that changes during a run is in ``arrays``, in place; that is what a checkpoint keeps."""

    def arrays(self) -> dict[str, Array]: ...


class ServerState(State, Protocol):
    """With what everyone plays, actions ``(H, S)`` or sets of them ``(H, S, A)``, and the values ``V (H+1, S)``."""

    @property
    def policy(self) -> PolicyArray: ...

    @property
    def V(self) -> FloatArray: ...


EstimatesT = TypeVar("EstimatesT", bound=Any)
"""A NamedTuple of arrays, the policy ``(H, S)`` and the values ``V (H+1, S)`` among them."""
RuleT = TypeVar("RuleT")


@dataclass
class TableServer(Generic[EstimatesT, RuleT]):
    """A server made of tables that change (``estimates``) and numbers that do not (``rule``)."""

    estimates: EstimatesT
    rule: RuleT

    @property
    def policy(self) -> PolicyArray:
        policy: PolicyArray = self.estimates.policy
        return policy

    @property
    def V(self) -> FloatArray:
        V: FloatArray = self.estimates.V
        return V

    def arrays(self) -> dict[str, Array]:
        arrays: dict[str, Array] = self.estimates._asdict()
        return arrays


MEMORY_LIMIT = 1 << 30
"""Bytes that a server's table of transition counts ``(H, S, A, S)`` may have: 1 GiB."""


def check_table_size(name: str, setting: Setting) -> None:
    """Raise an error if a table of transition counts is too large for the server of an algorithm."""
    H = setting.horizon
    S = setting.states
    A = setting.actions
    needed = H * S * A * S * 8
    if needed > MEMORY_LIMIT:
        raise InputError(
            f"{name} keeps a table of transition counts (H, S, A, S) = ({H}, {S}, {A}, {S}), which would need "
            f"{needed / 2**30:.1f} GiB; the limit is {MEMORY_LIMIT / 2**30:g} GiB. Use fewer states, or an "
            "algorithm that does not collect transitions, such as fed-ucbvi."
        )


ServerT = TypeVar("ServerT", bound=ServerState)
AgentsT = TypeVar("AgentsT", bound=State)


class Algorithm(ABC, Generic[ServerT, AgentsT]):
    """A federated algorithm; :mod:`fed_ucbvi.algorithms.base` has the order of calls.

    A subclass is a frozen dataclass whose fields are the parameters: their types say which values are allowed, and
    ``Help`` in the type what they mean. What is not abstract here has a default. All that anybody else needs to
    know of an algorithm is in the class attributes.

    >>> from fed_ucbvi import FedQHoeffding
    >>> FedQHoeffding(c=1.0).label
    'FedQ-Hoeffding'
    >>> FedQHoeffding(bonus="publishd")
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: unknown bonus 'publishd'; did you mean 'published'? Known: practical, published.

    Attributes:
        name: by which it is registered and recorded, such as ``fed-ucbvi``.
        label: how the name is written in tables and figures; by default as it is. A subclass with a name of its own
            does not inherit it.
        rules: names of the rules by which agents request a synchronisation; see :class:`Budgets`.
        single_agent: whether it runs with one agent only.
        report_type: the NamedTuple of its reports, whose fields declare shapes and meanings
            (:mod:`fed_ucbvi.algorithms.fields`). A node sends reports with :attr:`Meaning.STATE`, the states that an
            agent went through, only where its owner has agreed.
        asks_to_plan: whether a planner needs the exchanges of one more synchronisation; otherwise it has its plan as
            soon as it is made.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    rules: ClassVar[tuple[str, ...]] = ("budget",)
    single_agent: ClassVar[bool] = False
    report_type: ClassVar[type[Any]] = tuple
    asks_to_plan: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_parameters(self)

    def __init_subclass__(cls, **options: Any) -> None:
        """Label an algorithm with a name of its own by it, unless it has a label."""
        super().__init_subclass__(**options)
        own = vars(cls)
        if "name" in own:
            cls.label = own.get("label", cls.name)

    # ------------------------------------------------------------------------------------------ the steps of a round

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

    def synchronisation_rule(self, setting: Setting) -> Any:
        """The rule of :meth:`budgets`, if it is a :class:`~fed_ucbvi.SynchronisationRule`; otherwise None."""
        return None

    @abstractmethod
    def absorb(self, agents: AgentsT, policy: Any, transitions: CountArray, visits: CountArray) -> None:
        """Agent side: add the round's counts to the agents' own."""

    def query(self, server: ServerT, exchange: int) -> Message:
        """Server to agents, at the start of an exchange; by default an empty message."""
        return ()

    @abstractmethod
    def report(self, agents: AgentsT, query: Message, exchange: int) -> Message:
        """Agents to server: arrays with a leading agent axis, one row for each message.

        A :class:`~typing.NamedTuple` whose fields say what they mean (:mod:`fed_ucbvi.algorithms.fields`).
        """

    @abstractmethod
    def aggregate(self, server: ServerT, report: Message, exchange: int) -> None:
        """Server side: use the reports of all M agents, in agent order; sums may be added up already."""

    @abstractmethod
    def message_sizes(self, setting: Setting) -> MessageSizes:
        """Bytes of the messages between the server and one agent, computed without making them."""

    def synchronise(self, server: ServerT, agents: AgentsT, setting: Setting) -> None:
        """All exchanges of one synchronisation in one process; by default message by message.

        The number of exchanges is that of :meth:`message_sizes`.
        """
        exchange_messages(self, server, agents, setting)

    def new_planner(self, setting: Setting, server: ServerT) -> ServerT | None:
        """A server of the same kind that plans without bonus; pairs never visited are worth nothing to it.

        Its policy is ``(H, S)``, the first action among equals. None, as by default, where nothing is planned: then
        the greedy policy of the server's own estimates is what is recommended.
        """
        return None

    # ------------------------------------------------------------------------------------------------ further choices

    @property
    def stops_jointly(self) -> bool:
        """True if the request of one agent stops all agents, as by default; otherwise each plays until its own."""
        return True

    def level_law(self, setting: Setting) -> LevelLaw:
        """Law by which agents draw one of the policies of a broadcast; by default there is one policy."""
        return ONE_LEVEL

    @property
    def counting(self) -> Counting:
        """By what visits are counted during a round; by default policies have one action each."""
        return Counting.POLICY

    @property
    def extension(self) -> RunExtension:
        """Changes that a run allows; by default none. ``docs/theory.md`` has the reasons."""
        return RunExtension()

    def facts(self, setting: Setting) -> dict[str, float]:
        """Constants in force, for the record, such as nu; by default none."""
        return {}

    def cautions(self, setting: Setting) -> list[str]:
        """Warnings to give before the run; by default none."""
        return []

    @property
    def sent_values(self) -> SentValues:
        """Places of values in the server's messages, which nodes check; by default there are none."""
        return SentValues()

    # ------------------------------------------------------------------ sums and counts that stand for several agents

    def grid(self, setting: Setting) -> Grid | None:
        """The grid of the sums that the server takes; None, as by default, if it takes a row of each agent.

        In sums all visits count alike, so that agents can be counted in one table.
        """
        return None

    def counts_of(self, server: ServerT, agents: AgentsT | None) -> CountTable:
        """Counts of the agents, for a later run; without ``agents`` those that they have reported."""
        reason = self.extension.warm_start or NOT_IMPLEMENTED
        raise InputError(f"no run can start from the counts of {self.name}: {reason}.")

    def start_from(self, server: ServerT, counts: CountTable) -> None:
        """Server side: begin with the counts of an earlier run, which are part of all sums from then on."""
        reason = self.extension.warm_start or NOT_IMPLEMENTED
        raise InputError(f"{self.name} cannot start from the counts of an earlier run: {reason}.")


def check_message(name: str, what: str, message: Message) -> None:
    """Raise unless a message of the algorithm ``name`` is made of arrays of finite numbers."""
    array: Any
    for array in message:
        kind = array.dtype.kind if type(array) is np.ndarray else ""
        if (kind and kind in "ibu") or (kind == "f" and np.isfinite(array).all()):
            continue
        if kind != "f":
            raise InputError(f"{name}: {what} must consist of arrays of numbers, got {type(array).__name__}.")
        where = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise InputError(
            f"{name}: {what} has {array[where]} at {where}, where finite numbers belong. Look for a division "
            "by 0 or a logarithm of 0 in the algorithm."
        )


AlgorithmClassT = TypeVar("AlgorithmClassT", bound=type[Any])

_CHECKED_BY_TESTS: set[type[Any]] = set()


def checked_by_tests(kind: AlgorithmClassT) -> AlgorithmClassT:
    """Declare that tests check the results of a class of algorithms, so that rounds need not; a class decorator.

    It is for this class alone: what its subclasses return is checked in every round.
    """
    _CHECKED_BY_TESTS.add(kind)
    return kind


def needs_checks(algorithm: Algorithm[Any, Any]) -> bool:
    """True if the results of an algorithm are checked in every round; see :func:`checked_by_tests`."""
    return type(algorithm) not in _CHECKED_BY_TESTS


def check_agents(algorithm: Algorithm[Any, Any], agents: int) -> None:
    """Raise if an algorithm is for a single agent, and there are more."""
    if algorithm.single_agent and agents > 1:
        raise InputError(
            f"{algorithm.name} is for a single agent, and this federation has {agents}. Use an algorithm for several "
            "agents, or agents=1."
        )


def check_report(algorithm: Algorithm[Any, Any], report: Message) -> None:
    """Raise unless a server can use what agents report."""
    if needs_checks(algorithm):
        check_message(algorithm.name, "report()", report)


def added_up(report: Message) -> Message:
    """The reports of some agents as one row, their sum."""
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
    for exchange in range(algorithm.message_sizes(setting).exchanges):
        report = algorithm.report(agents, algorithm.query(server, exchange), exchange)
        check_report(algorithm, report)
        if tamper is not None:
            tamper(report, exchange)
        algorithm.aggregate(server, report, exchange)
