"""Algorithms whose agents report counts: the second half of their contract, and the server that keeps all counts.

Agents report what they have counted since the last report that the server has confirmed, once per synchronisation.
Reports are sums of integers, so it does not matter how agents are grouped, and they can be masked. The server adds
them to a table of all counts and plans from it. So agents may play another policy than the server's, and a report can
wait for the next synchronisation.

Only such algorithms have secure sums, a quorum, logs of nodes, incumbents, certificates and known dynamics. A caller
that needs one of these takes the algorithm through :func:`as_count_reporting`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from fed_ucbvi.algorithms.base import (
    Algorithm,
    Array,
    Budgets,
    Counting,
    EstimatesT,
    FleetTables,
    Message,
    MessageSizes,
    RuleT,
    Setting,
    TableServer,
    added_up,
)
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.algorithms.counting_agents import CountingAgents
from fed_ucbvi.algorithms.exact_sums import Grid
from fed_ucbvi.algorithms.increments import Increments, Support, increments_of, listed_counts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray

if TYPE_CHECKING:
    from fed_ucbvi.problem.dynamics import Dynamics

START_DELTA = 0.05
"""Probability with which the optimistic value of an unknown first state may fail, where no proof shares it out."""


@dataclass
class CountingServer(TableServer[EstimatesT, RuleT], ABC):
    """A server that makes its estimates from a ``table`` of all counts; ``updates`` of them count how often."""

    table: CountTable

    @abstractmethod
    def update(self) -> None:
        """Make values and policy from the table."""

    def planner(self, estimates: EstimatesT, rule: RuleT) -> Self:
        """A server with another rule and a copy of all counts, to which later reports are added."""
        planner = replace(self, estimates=estimates, rule=rule, table=self.table.copy())
        planner.table.fresh[:] = True
        planner.update()
        planner.estimates.updates[:] = self.estimates.updates
        return planner

    def arrays(self) -> dict[str, Array]:
        arrays = dict(super().arrays())
        for name, array in self.table._asdict().items():
            arrays[f"table_{name}"] = array
        return arrays

    def make_room(self, arrays: Mapping[str, Array]) -> None:
        """Widen the table to the width of saved arrays."""
        self.table = self.table.widened(arrays["table_transitions"].shape[3])


ServerT = TypeVar("ServerT", bound=Any)
"""A :class:`CountingServer` with a ``grid``."""


class CountReporting(Algorithm[ServerT, CountingAgents], Generic[ServerT]):
    """An algorithm whose agents report new counts, once per synchronisation, and whose server keeps all counts.

    The server sends how many synchronisations it has completed, ``updates`` of its estimates. Counts that an agent
    made while it knew of fewer were part of one of them. Agents may play any policy, and are counted by action.
    """

    asks_to_plan: ClassVar[bool] = True
    report_type: ClassVar[type[Any]] = Increments

    @property
    def counting(self) -> Counting:
        """By action, as agents may draw among several."""
        return Counting.PAIRS

    def grid(self, setting: Setting) -> Grid:
        visits_per_episode = setting.horizon if self.counting is Counting.STATIONARY else 1
        return setting.sum_grid(1, visits_per_episode)

    def message_sizes(self, setting: Setting) -> MessageSizes:
        """Down go sets of actions as bits, N and a number; up a list of transitions, and one of rewards."""
        steps, S, A = self.counting.shape(setting.horizon, setting.states, setting.actions)
        pairs = steps * S * A
        policy = (setting.horizon * S * A + 7) // 8
        updates = 8
        return MessageSizes(
            broadcast=policy + 8 * pairs + updates,
            exchanges=1,
            query=updates,
            reports=0,
            listed=(pairs * S, pairs),
        )

    # ------------------------------------------------------------------------------------------ the steps of a round

    def new_agents(self, setting: Setting, tables: FleetTables) -> CountingAgents:
        return CountingAgents(self, setting, tables, self.grid(setting))

    def broadcast(self, server: ServerT) -> Message:
        """The policy, N ``[H or 1,S,A]``, and how many synchronisations the server has completed, ``[1]``."""
        return server.policy, server.table.visits, server.estimates.updates

    def budgets(self, agents: CountingAgents, broadcast: Message) -> Budgets:
        policy, N, completed = broadcast
        agents.confirm(int(completed[0]))
        return agents.budgets(policy, N)

    def absorb(self, agents: CountingAgents, policy: Any, transitions: CountArray, visits: CountArray) -> None:
        agents.absorb(policy, transitions, visits)

    def query(self, server: ServerT, exchange: int) -> Message:
        """The number of completed synchronisations."""
        return (server.estimates.updates,)

    def report(self, agents: CountingAgents, query: Message, exchange: int) -> Increments:
        everything = Support.full(agents.table.visits.shape)
        return increments_of(self.new_counts(agents, query), everything, agents.grid)

    def aggregate(self, server: ServerT, report: Message, exchange: int) -> None:
        everything = Support.full(server.table.visits.shape)
        self.add_counts(server, listed_counts(everything, server.grid, *added_up(report)))

    def synchronise(self, server: ServerT, agents: CountingAgents, setting: Setting) -> None:
        self.add_counts(server, self.new_counts(agents, self.query(server, 0)))

    # ------------------------------------------------------------------------------------------------ counts by table

    def new_counts(self, agents: CountingAgents, query: Message) -> CountTable:
        """Agent side: counts that the server has not confirmed, of which a report is one form.

        They stay new until the server has confirmed them; an empty query confirms nothing.
        """
        if query:
            agents.confirm(int(query[0][0]))
        return agents.table

    def add_counts(self, server: ServerT, new: CountTable) -> None:
        """Server side: what :meth:`aggregate` does, with counts that have been read already."""
        server.table = server.table.merge(new)
        server.update()

    def settle_report(self, agents: CountingAgents, broadcast: Message, *, used: bool) -> None:
        """Agent side, before a round over the network: drop the last report if the server has ``used`` it.

        Nothing else is dropped, however many synchronisations the server has completed since. A report that was not
        used is part of the next one.
        """
        if used:
            agents.table.clear()
        agents.confirmed[:] = broadcast[2]

    def logged_counts(self, setting: Setting, counts: CountTable) -> CountTable:
        """Counts of a node's logs, with rewards on the grid of the run."""
        return counts.with_bits(self.grid(setting).bits)

    def counts_of(self, server: ServerT, agents: CountingAgents | None) -> CountTable:
        """The counts of the server, and those that are new to it."""
        table: CountTable = server.table.copy()
        if agents is None:
            return table
        agents.confirm(int(server.estimates.updates[0]))
        return table.merge(agents.table)

    def start_from(self, server: ServerT, counts: CountTable) -> None:
        self.add_counts(server, counts)

    # -------------------------------------------------------------------------------------- guarantees and knowledge

    def certifying(self, delta: float) -> CountReporting[ServerT]:
        """The algorithm with values that are optimistic with probability ``1 - delta``; raise without a proof."""
        raise InputError(
            f"the values of {self.name} are not proved to be optimistic, so it cannot certify how near a policy is "
            "to the best (until_gap). Use fed-kl-ucbvi."
        )

    def start_delta(self, setting: Setting) -> float:
        """Probability with which the optimistic value of an unknown first state may fail.

        Where optimism is proved, this is the share of one event of its union
        (:mod:`fed_ucbvi.algorithms.first_states`).
        """
        return START_DELTA

    def pessimistic_values(self, setting: Setting, server: ServerT, policy: IndexArray, delta: float) -> FloatArray:
        """Lower bounds ``(H+1, S)`` on the values of a policy by counts alone, which fail with probability ``delta``.

        They are 0 by default.
        """
        return np.zeros((setting.horizon + 1, setting.states))

    def cautious_plan(self, setting: Setting, planner: ServerT) -> tuple[IndexArray, FloatArray] | None:
        """A plan that does not trust thin counts, and its values ``(H+1, S)`` by the counts; None by default."""
        return None

    def with_dynamics(self, dynamics: Dynamics) -> CountReporting[Any]:
        """The algorithm that uses known dynamics; raise if it can use none, as by default."""
        raise InputError(f"{self.name} {NO_DYNAMICS}")

    def counted_setting(self, setting: Setting) -> Setting:
        """The setting with the sizes of the tables in which visits are counted; by default those of the problem."""
        return setting


NO_DYNAMICS = (
    "counts visits by step, state and action, and cannot use known dynamics. Use fed-kl-ucbvi, or "
    "federation.without_dynamics()."
)
"""End of the message about an algorithm that cannot use known dynamics."""


def as_count_reporting(algorithm: Algorithm[Any, Any], refusal: str) -> CountReporting[Any]:
    """The algorithm, if its agents report counts; otherwise raise an error: its name followed by ``refusal``.

    >>> from fed_ucbvi import FedKLUCBVI
    >>> as_count_reporting(FedKLUCBVI(), "takes no logs of nodes.").name
    'fed-kl-ucbvi'
    """
    if isinstance(algorithm, CountReporting):
        return algorithm
    raise InputError(f"{algorithm.name} {refusal}")


def counted_setting(algorithm: Algorithm[Any, Any], setting: Setting) -> Setting:
    """The setting with the sizes of the tables in which an algorithm counts visits."""
    return algorithm.counted_setting(setting) if isinstance(algorithm, CountReporting) else setting
