"""What agents have been paid, where rewards are random or nobody knows them.

Agents read means of observed rewards: over all visits if they keep their experience, over the round's visits if they
report a round and forget it. Either way what an agent reports is the mean of exactly the rewards its report is about.
Algorithms that want moments of ``r + V(s')`` (:meth:`~fed_ucbvi.algorithms.base.Algorithm.reward_grid`) read sums of
rewards by next state besides.

Simulated rewards come from the drivers as they are. The support of every (h,s,a) is doubled: the k-th of K next
states has a slot k in which nothing is paid, with probability ``p_k (1 - q)``, and a slot K + k in which y is paid,
with probability ``p_k q`` (:mod:`fed_ucbvi.problem.reward_law`). So rewards are as exact in law as transitions, and
as independent of how the work is divided. :class:`SimulatedRewards` adds the two counts of each next state again.
"""

from __future__ import annotations

import numpy as np

from fed_ucbvi.algorithms.base import Array, Counting, FleetTables, RewardSums, VisitedCells
from fed_ucbvi.algorithms.exact_sums import Grid, on_grid, plus, times
from fed_ucbvi.algorithms.experience import pair_of
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.sampling.philox import product
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.reward_law import Payments, payments

RewardTables = tuple[FloatArray, CountArray, RewardSums, int]
"""Means of rewards, the visits behind them, sums and the bits of their grid, for compiled code."""


class ObservedRewards:
    """Means of rewards by (h,s,a), the visits behind them and, if there is a grid, sums by next state.

    The first axis is the agent's, or has length one where agents are counted in one table. The step axis has length
    one where steps are counted together. With ``ever`` means are over all visits, otherwise over the round's.
    """

    def __init__(self, shape: tuple[int, int, int, int], width: int, grid: Grid | None, ever: bool) -> None:
        self.means: FloatArray = np.zeros(shape)
        self.times: CountArray = np.zeros(shape if ever else (0, 0, 0, 0), dtype=np.int64)
        """Visits behind each mean, where they go beyond the round; otherwise empty."""
        self.bits = 0 if grid is None else grid.bits
        self.sums = RewardSums.none() if grid is None else RewardSums.none(*shape, width)

    def of(self, agents: slice) -> RewardTables:
        return self.means[agents], self.times[agents], self.sums.of(agents), self.bits

    def for_agents(
        self, agents: int, successors: IndexArray, first_agent: int = 0, touched: VisitedCells | None = None
    ) -> FleetTables:
        """What the agents are told, to read and not to write; rewards change in place."""
        supports = successors.view()
        means = self.means.view()
        sums = self.sums.of(slice(None))
        for table in (supports, means, *sums):
            table.flags.writeable = False
        return FleetTables(agents, supports, means, first_agent, touched, sums)

    def set_width(self, width: int) -> None:
        """Have as many slots for next states; what is in those that stay is kept."""
        if len(self.sums.by_slot):
            wider = RewardSums.none(*self.means.shape, width)
            kept = min(width, self.sums.by_slot.shape[-1])
            wider.by_slot[..., :kept] = self.sums.by_slot[..., :kept]
            self.sums = self.sums._replace(by_slot=wider.by_slot)

    def arrays(self) -> dict[str, Array]:
        """What has been seen since the beginning."""
        seen: dict[str, Array] = {"rewards": self.means}
        if self.times.size:
            seen["times"] = self.times
        if len(self.sums.by_slot):
            seen |= {"reward_sums": self.sums.by_slot, "reward_squares": self.sums.squares}
        return seen


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
    """What agents are paid with which probability; rewards that are not random are paid for certain."""
    return federation.payments or payments(federation.rewards, np.zeros_like(federation.rewards))


class SimulatedRewards(ObservedRewards):
    """Rewards that drivers draw together with transitions, on a doubled support.

    ``touched`` says where a round went, if agents are counted in one table; they must be paid alike then. ``grid`` is
    that of sums, if the algorithm wants them.
    """

    def __init__(
        self, federation: Federation, counting: Counting, touched: VisitedCells | None, grid: Grid | None, ever: bool
    ) -> None:
        H = federation.horizon
        S = federation.states
        A = federation.actions
        amounts = payments_of(federation).amounts
        rows = federation.agents if touched is None else 1
        self._amounts = amounts if touched is None else amounts.max(axis=0, keepdims=True)
        cells = counting.shape(H, S, A)
        K = federation.successors.shape[-1]
        steps = max(cells[0], amounts.shape[1])  # by step, where rewards are, so that everyone sees it
        super().__init__((rows, steps, S, A), K, grid, ever)
        self._touched = touched
        self._folded: CountArray = np.zeros((rows, *cells, K), dtype=np.int64)
        self._everywhere: IndexArray = np.arange(int(np.prod(cells)), dtype=np.int32)
        self._written = self._everywhere[:0]

    def take(self, policy: PolicyArray, drawn: CountArray, visits: CountArray) -> CountArray:
        """Take in a round's rewards; its transitions ``(m or 1, *cell, K)``, in a buffer that is used again."""
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


@inner
def updated_mean(mean: float, before: int, total: float, new: int) -> float:
    """The mean of rewards of which ``before`` had ``mean``, and ``new`` more the sum ``total``.

    One reward more that equals the mean leaves it as it is, exactly.
    """
    if before == 0:
        return total / new
    return mean + (total - new * mean) / (before + new)


@inner
def add_reward(rho: np.uint64, number: int, cell: tuple[int, int, int, int], k: int, sums: RewardSums) -> None:
    """Add rewards to the sums: ``number`` times rho, on the way to the k-th successor."""
    i, h, s, a = cell
    sums.by_slot[i, h, s, a, k] += np.int64(rho) * number
    words = sums.squares[i, h, s, a]
    words[0], words[1] = plus((words[0], words[1]), times(np.uint64(number), product(rho, rho)))


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
    """Counts ``drawn (rows, P, 2K)`` to ``folded (rows, P, K)``, and what was paid to means and sums."""
    (rows, _, K), (means, behind, sums, bits) = folded.shape, rewards
    S, A = means.shape[2:]
    remember = behind.size > 0
    add_up = len(sums.by_slot) > 0
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
                if add_up and successes > 0:
                    add_reward(on_grid(y, bits), successes, (i, h, s, a), k, sums)
            before = behind[i, h, s, a] if remember else 0
            means[i, h, s, a] = updated_mean(means[i, h, s, a], before, y * paid, visits[i, cell])
            if remember:
                behind[i, h, s, a] += visits[i, cell]
