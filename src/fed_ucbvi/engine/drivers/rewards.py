"""Rewards that agents observe, where rewards are random or unknown.

Agents read the mean rewards of the round by (h,s,a). An agent that keeps its counts adds them to means of its own. An
algorithm whose reports are exact sums (:meth:`~fed_ucbvi.algorithms.base.Algorithm.grid`) reads the sums of the
round's random rewards in place of means: integers, so that no order of addition matters.

Simulated rewards come from the drivers as they are. The support of every (h,s,a) is doubled: the k-th of K next
states has a slot k in which nothing is paid, with probability ``p_k (1 - q)``, and a slot K + k in which y is paid,
with probability ``p_k q`` (:mod:`fed_ucbvi.problem.reward_law`). So rewards are as exact in law as transitions, and
as independent of how the work is divided. :class:`SimulatedRewards` adds the two counts of each next state again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Counting, FleetTables, VisitedCells
from fed_ucbvi.algorithms.counters import pair_of
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid
from fed_ucbvi.core.compiling import compiled
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.reward_law import Payments, payments


class RewardTables(NamedTuple):
    """Rewards of a round by agent and (h,s,a), for compiled code.

    Attributes:
        means: ``(m or 1, steps, S, A)``, of the round's visits.
        sums: the same shape, sums of ``ceil(r 2^bits)``; no rows where nobody needs them.
        bits: those of the grid of ``sums``.
    """

    means: FloatArray
    sums: CountArray
    bits: int


class ObservedRewards:
    """Mean rewards of the round by (h,s,a) and, if there is a grid, their exact sums.

    The first axis is the agent's, or has length one where agents are counted in one table. The step axis has length
    one where steps are counted together.
    """

    def __init__(self, shape: tuple[int, int, int, int], grid: Grid | None) -> None:
        self.means: FloatArray = np.zeros(shape)
        self.sums: CountArray = np.zeros((0, 0, 0, 0) if grid is None else shape, dtype=np.int64)
        self.bits = 0 if grid is None else grid.bits

    def of(self, agents: slice) -> RewardTables:
        """The rows of some agents."""
        return RewardTables(self.means[agents], self.sums[agents], self.bits)

    def for_agents(
        self, agents: int, successors: IndexArray, first_agent: int = 0, touched: VisitedCells | None = None
    ) -> FleetTables:
        """The tables that agents read; rewards change in place, and agents cannot write to them."""
        supports = successors.view()
        means = self.means.view()
        sums = self.sums.view()
        for table in (supports, means, sums):
            table.flags.writeable = False
        return FleetTables(
            agents=agents,
            successors=supports,
            rewards=means,
            first_agent=first_agent,
            touched=touched,
            reward_sums=sums,
        )

    def arrays(self) -> dict[str, Array]:
        """Rewards of the round, by name; not copied."""
        return {"rewards": self.means, "reward_sums": self.sums}


def doubled(successors: IndexArray, probabilities: FloatArray, chances: FloatArray) -> tuple[IndexArray, FloatArray]:
    """The support in which every next state has a slot without and a slot with payment; see the module's text."""
    steps = max(len(successors), chances.shape[1])
    q = chances[..., None]
    paid = probabilities * q
    unpaid = probabilities * (1.0 - q)
    twice = np.concatenate([successors, successors], axis=-1)
    return (
        np.ascontiguousarray(np.broadcast_to(twice, (steps, *twice.shape[1:]))),
        np.concatenate([unpaid, paid], axis=-1),
    )


def payments_of(federation: Federation) -> Payments:
    """Rewards of the agents with their probabilities; rewards that are not random are paid for certain."""
    return federation.payments or payments(federation.rewards, np.zeros_like(federation.rewards))


class SimulatedRewards(ObservedRewards):
    """Rewards that drivers draw together with transitions, on a doubled support.

    ``touched`` lists the cells of a round, if agents are counted in one table; they must be paid alike then. ``grid``
    is that of sums, if the algorithm reads them.
    """

    def __init__(
        self, federation: Federation, counting: Counting, touched: VisitedCells | None, grid: Grid | None
    ) -> None:
        H = federation.horizon
        S = federation.states
        A = federation.actions
        amounts = payments_of(federation).amounts
        rows = federation.agents if touched is None else 1
        self._amounts = amounts if touched is None else amounts.max(axis=0, keepdims=True)
        cells = counting.shape(H, S, A)
        K = federation.successors.shape[-1]
        steps = max(cells[0], amounts.shape[1])  # by step, where rewards are, so that check_stationary refuses them
        super().__init__((rows, steps, S, A), grid)
        self._touched = touched
        self._folded: CountArray = np.zeros((rows, *cells, K), dtype=np.int64)
        self._everywhere: IndexArray = np.arange(int(np.prod(cells)), dtype=np.int32)
        self._written = self._everywhere[:0]

    def take(self, policy: PolicyArray, drawn: CountArray, visits: CountArray) -> CountArray:
        """Read a round's rewards; returns its transitions ``(m or 1, *cell, K)``, in a buffer that is used again."""
        cells = self._everywhere
        touched = self._touched
        rows = len(self._folded)
        K = self._folded.shape[-1]
        folded = self._folded.reshape((rows, -1, K))
        if touched is not None:
            folded[0, self._written] = 0
            visits = touched.all_visits
            cells = touched.all_cells[: touched.number[0]].copy()
            self._written = cells
        drawn = drawn.reshape((rows, -1, 2 * K))
        visits = visits.reshape((rows, -1))
        _fold(policy, drawn, visits, cells, self._amounts, folded, self.of(slice(None)))
        return self._folded


@compiled
def _fold(
    policy: PolicyArray,
    drawn: CountArray,
    visits: CountArray,
    cells: IndexArray,
    amounts: FloatArray,
    folded: CountArray,
    rewards: RewardTables,
) -> None:
    """Add the two slots of each next state, ``drawn (rows, P, 2K)`` to ``folded (rows, P, K)``, and set rewards."""
    rows, _, K = folded.shape
    _, _, S, A = rewards.means.shape
    add_up = len(rewards.sums) > 0
    for i in range(rows):
        for cell in cells:
            if visits[i, cell] == 0:
                folded[i, cell] = 0
                continue
            h, s, a = pair_of(cell, policy, S, A)
            y = reward_at(i, h, s, a, amounts)
            paid = 0
            for k in range(K):
                successes = drawn[i, cell, K + k]
                folded[i, cell, k] = drawn[i, cell, k] + successes
                paid += successes
            rewards.means[i, h, s, a] = y * paid / visits[i, cell]
            if add_up:
                rewards.sums[i, h, s, a] = np.int64(on_grid(y, rewards.bits)) * paid
