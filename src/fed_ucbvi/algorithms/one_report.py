"""The frames of algorithms whose agents send one report a round and then forget it, as model-free ones do.

Such an agent keeps the value functions of the broadcast and the statistics of the round. The server keeps everything
that lasts longer. :class:`OneReport` has defaults for such an algorithm, and :class:`EveryEpisode` for those that
synchronise after every episode and report the trajectory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Budgets,
    EstimatesT,
    FleetTables,
    Message,
    MessageSizes,
    RuleT,
    SentValues,
    Setting,
    TableServer,
    check_agents,
)
from fed_ucbvi.algorithms.fields import Meaning, Shape, declared_array, declared_bytes, new_tables
from fed_ucbvi.algorithms.kernels import at_policy
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.indexing import reward_at, shared
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

ReportT = TypeVar("ReportT", bound=Any)
"""A NamedTuple of arrays with a leading agent axis."""


class RoundCounts(NamedTuple):
    """Counts of the agents in a round.

    Attributes:
        policy: ``(H, S)``, the actions that they played.
        transitions: ``(m, H, S, K)``, from ``(h, s, pi_h(s))``, by slot of the support.
        visits: ``(m, H, S)``.
    """

    policy: IndexArray
    transitions: CountArray
    visits: CountArray

    def rewards(self, tables: FleetTables) -> FloatArray:
        """The reward of ``(h, s, pi_h(s))`` for each agent, ``(m, H, S)``; 0 where an agent has not been."""
        h, s = np.ogrid[: self.policy.shape[0], : self.policy.shape[1]]
        paid = tables.rewards[:, h % tables.rewards.shape[1], s, self.policy]
        return np.where(self.visits > 0, paid, 0.0)

    def next_states(self, tables: FleetTables) -> CountArray:
        """Number of times that each agent went from ``(h, s, pi_h(s))`` to each state, ``(m, H, S, S)``."""
        m, H, S, K = self.transitions.shape
        h, s = np.ogrid[:H, :S]
        successors = tables.successors[h % tables.successors.shape[0], s, self.policy]
        counts = np.zeros((m, H, S, S), dtype=np.int64)
        for k in range(K):
            counts[:, h, s, successors[..., k]] += self.transitions[..., k]
        return counts


@dataclass
class RoundAgents(Generic[ReportT]):
    """A fleet of m agents that remember nothing beyond a round.

    ``values`` are the k value functions of the broadcast, ``(k, H+1, S)``; ``out`` is what they will report.
    """

    tables: FleetTables
    values: FloatArray
    out: ReportT
    budgets: Budgets
    federation_size: int

    def arrays(self) -> dict[str, Array]:
        return {"values": self.values, **self.out._asdict()}


class OneReport(Algorithm[TableServer[EstimatesT, RuleT], RoundAgents[ReportT]], Generic[EstimatesT, RuleT, ReportT]):
    """Defaults for an algorithm of one exchange a synchronisation.

    An algorithm declares its server's tables (``estimates_type``, and :meth:`new_estimates` if not all of them are
    zero at first) and its ``report_type``. It has two methods: :meth:`summarise` makes a report of an agent's counts,
    and ``aggregate`` uses the reports of all agents. By default an agent requests a synchronisation once the visits
    of all agents to some (h,s,a), ``N[H,S,A]`` of the estimates, may have doubled. An algorithm with another rule
    declares ``broadcasts`` and overrides :meth:`fill_budgets`. ``examples/epsilon_greedy.py`` is a whole algorithm.

    An algorithm that plays the first action whatever it sees:

    >>> class Known(NamedTuple):
    ...     policy: Annotated[IndexArray, Shape("H S")]
    ...     V: Annotated[FloatArray, Shape("H+1 S")]
    ...     N: Annotated[CountArray, Shape("H S A")]
    >>> class Seen(NamedTuple):
    ...     n: Annotated[CountArray, Meaning.VISITS_OF_ROUND, Shape("m H S")]
    >>> @dataclass(frozen=True)
    ... class Stubborn(OneReport[Known, Setting, Seen]):
    ...     name: ClassVar[str] = "stubborn"
    ...     estimates_type: ClassVar[type[Any]] = Known
    ...     report_type: ClassVar[type[Any]] = Seen
    ...
    ...     def summarise(self, counts, tables, values, out):
    ...         out.n[:] = counts.visits
    ...
    ...     def aggregate(self, server, report, exchange):
    ...         server.estimates.N[..., 0] += report[0].sum(axis=0)
    >>> from fed_ucbvi import run, synthetic
    >>> run(Stubborn(), synthetic(agents=4, states=1), episodes=64).rounds
    7

    Attributes:
        estimates_type: the server's tables, a NamedTuple whose fields declare shapes.
        report_type: a NamedTuple whose fields declare shapes and meanings (:mod:`fed_ucbvi.algorithms.fields`).
        broadcasts: the names of the estimates that go down at the start of a round, the policy first; of a table by
            (h,s,a) what belongs to the policy's actions is sent, ``[H,S]``.
        values: those of them that are values ``V[H+1,S]`` and that agents keep for the round; the first are the
            optimistic ones.
    """

    rules: ClassVar[tuple[str, ...]] = ("doubling",)
    estimates_type: ClassVar[type[Any]]
    broadcasts: ClassVar[tuple[str, ...]] = ("policy", "N")
    values: ClassVar[tuple[str, ...]] = ()

    def new_estimates(self, setting: Setting) -> EstimatesT:
        """Estimates before the first round; by default all tables are zero."""
        known: EstimatesT = new_tables(self.estimates_type, setting)
        return known

    def message_sizes(self, setting: Setting) -> MessageSizes:
        """The estimates that are broadcast, one report, and no query."""
        broadcast = 0
        for name in self.broadcasts:
            if name not in self.estimates_type._fields:
                raise InputError(
                    f"{self.name} broadcasts {name}, which its estimates lack; add it, or do not send it."
                )
            table = declared_array(self.estimates_type, name, setting)
            if len(table.shape) == 3:  # only what belongs to the policy's actions is sent
                table = table._replace(shape=table.shape[:2])
            broadcast += table.bytes
        return MessageSizes(
            broadcast=broadcast, exchanges=1, query=0, reports=declared_bytes(self.report_type, setting)
        )

    @abstractmethod
    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: ReportT) -> None:
        """Agent side: fill the report ``out`` from the round's counts."""

    def update_rule(self, setting: Setting) -> RuleT:
        """Constants of the server's update; by default the setting."""
        rule: Any = setting
        return rule  # type: ignore[no-any-return]

    def new_server(self, setting: Setting) -> TableServer[EstimatesT, RuleT]:
        check_agents(self, setting.agents)
        return TableServer(self.new_estimates(setting), self.update_rule(setting))

    def new_agents(self, setting: Setting, tables: FleetTables) -> RoundAgents[ReportT]:
        m = tables.agents
        H = setting.horizon
        S = setting.states
        budgets = Budgets(np.ones((m, H, S), dtype=np.int64), np.zeros((H, S), dtype=np.int8))
        out = new_tables(self.report_type, setting, m)
        return RoundAgents(tables, np.zeros((len(self.values), H + 1, S)), out, budgets, setting.agents)

    def broadcast(self, server: TableServer[EstimatesT, RuleT]) -> Message:
        known = server.estimates
        sent = list[Array]()
        for name in self.broadcasts:
            table = getattr(known, name)
            sent.append(at_policy(known.policy, table) if table.ndim == 3 else table)
        return tuple(sent)

    @property
    def sent_values(self) -> SentValues:
        """The first of the values that are broadcast are the optimistic ones."""
        return SentValues(broadcast=self.broadcasts.index(self.values[0]) if self.values else None)

    def budgets(self, agents: RoundAgents[ReportT], broadcast: Message) -> Budgets:
        """Keep the values for the round, and compute after how many visits agents request a synchronisation."""
        sent = dict(zip(self.broadcasts, broadcast, strict=True))
        for kept, name in zip(agents.values, self.values, strict=True):
            np.copyto(kept, sent[name])
        self.fill_budgets(sent, agents.federation_size, agents.budgets.limits, agents.budgets.rule)
        return agents.budgets

    def fill_budgets(self, sent: dict[str, Array], M: int, limits: CountArray, rule: npt.NDArray[np.int8]) -> None:
        """Fill the visits ``[m,H,S]`` after which an agent requests a synchronisation, and by which rule ``[H,S]``.

        ``sent`` is the broadcast by name. By default v visits with ``N + M v >= 2 N``, so ``v = max(1, ceil(N/M))``.
        """
        limits[:] = np.maximum(1, -(-sent["N"] // M))

    def absorb(
        self, agents: RoundAgents[ReportT], policy: IndexArray, transitions: CountArray, visits: CountArray
    ) -> None:
        """Work out the round's report; that of the round before is forgotten."""
        self.summarise(RoundCounts(policy, transitions, visits), agents.tables, agents.values, agents.out)

    def report(self, agents: RoundAgents[ReportT], query: Message, exchange: int) -> Any:
        return agents.out


def fill_means(counts: RoundCounts, tables: FleetTables, functions: Sequence[FloatArray], report: Message) -> None:
    """Fill visits, rewards, and for each function ``f[H+1,S]`` of the next state its mean over the visits.

    ``report`` holds visits, rewards and as many means as there are functions, each ``(m, H, S)``.
    """
    # A plain tuple of the report, as its length depends on the functions. The named counts cost 0.5 us of a round
    # of 67 us.
    _fill_means(counts, tables.successors, tables.rewards, np.stack(functions), tuple(report))


@compiled
def _fill_means(
    counts: RoundCounts, successors: IndexArray, rewards: FloatArray, functions: FloatArray, report: Message
) -> None:
    """``sum_k n(s,a,s'_k) f(s'_k) / n(s,a)`` at the next step for every f; 0 where ``n = 0``."""
    policy = counts.policy
    transitions = counts.transitions
    visits = counts.visits
    n = report[0]
    r = report[1]
    means = report[2:]
    m, H, S, K = transitions.shape
    for i in range(m):
        for h in range(H):
            hk = shared(h, successors.shape[0])
            for s in range(S):
                count = visits[i, h, s]
                a = policy[h, s]
                n[i, h, s] = count
                r[i, h, s] = reward_at(i, h, s, a, rewards) if count > 0 else 0.0

                # The mean of each function over the next states.
                for j in range(len(means)):
                    total = 0.0
                    if count > 0:
                        for k in range(K):
                            total += transitions[i, h, s, k] * functions[j, h + 1, successors[hk, s, a, k]]
                        total /= count
                    means[j][i, h, s] = total


# ------------------------------------------------------------------------------------------------ every episode


class Trajectories(NamedTuple):
    """Up, after every episode, one row for each agent; the actions are the policy's."""

    states: Annotated[IndexArray, Meaning.STATE, Shape("m H+1")]
    rewards: Annotated[FloatArray, Meaning.REWARD, Shape("m H")]


class EveryEpisode(OneReport[EstimatesT, RuleT, Trajectories], Generic[EstimatesT, RuleT]):
    """An algorithm that synchronises after every episode; agents report their trajectories."""

    rules: ClassVar[tuple[str, ...]] = ("every episode",)
    broadcasts: ClassVar[tuple[str, ...]] = ("policy",)
    report_type: ClassVar[type[Any]] = Trajectories

    def budgets(self, agents: RoundAgents[Trajectories], broadcast: Message) -> Budgets:
        agents.budgets.limits.fill(1)
        return agents.budgets

    def summarise(self, counts: RoundCounts, tables: FleetTables, values: FloatArray, out: Trajectories) -> None:
        """Read the round's counts, which are those of one episode, as trajectories."""
        if not _read_trajectories(counts, tables.successors, tables.rewards, out):
            raise InputError(f"{self.name} synchronises after every episode, but was given a longer round.")


@compiled
def _read_trajectories(counts: RoundCounts, successors: IndexArray, rewards: FloatArray, out: Trajectories) -> bool:
    """One episode's counts as ``(s_0, ..., s_H)`` and rewards; False unless each step has exactly one transition."""
    policy = counts.policy
    transitions = counts.transitions
    visits = counts.visits
    states = out.states
    observed = out.rewards
    m, H, S, K = transitions.shape
    for i in range(m):
        # The first state.
        total = 0
        for s in range(S):
            total += visits[i, 0, s]
            if visits[i, 0, s] == 1:
                states[i, 0] = s
        if total != 1:
            return False

        # The reward and the next state of each step.
        for h in range(H):
            s = states[i, h]
            a = policy[h, s]
            observed[i, h] = reward_at(i, h, s, a, rewards)
            slot = -1
            for k in range(K):
                if transitions[i, h, s, k] == 1:
                    slot = k
            if slot < 0:
                return False
            states[i, h + 1] = successors[shared(h, successors.shape[0]), s, a, slot]
    return True
