"""The auto driver: trajectories for short rounds, counts for long ones.

Two safeguards, so that no round costs much more than with the better driver. A round that looks long from its
budgets and the policy's occupancy is drawn as counts at once. Any other is played episode by episode up to about
the point where that has cost as much as drawing counts would; if nobody has asked by then, the rest is drawn as
counts. Going on from fixed counts is exact in law because episodes are independent given the policy; how the
choice falls depends on the round's budgets and policy alone.
"""

from __future__ import annotations

from fed_ucbvi._compile import compiled
from fed_ucbvi._types import CountArray, FloatArray, IndexArray
from fed_ucbvi.drivers.base import Fleet, Stop, stopped
from fed_ucbvi.drivers.counts import CountsDriver
from fed_ucbvi.drivers.episodes import EpisodesDriver
from fed_ucbvi.problem.dynamic_programming import state_occupancy

EPISODES_PER_STATE = 16
"""Episodes that cost about as much as drawing one block of counts, per state (see docs/performance.md)."""


class AutoDriver:
    """Episodes or counts, whichever is cheaper for the round; see the module's text."""

    name = "auto"

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.transitions, self.visits = fleet.transitions, fleet.visits
        self._episodes, self._counts = EpisodesDriver(fleet), CountsDriver(fleet)
        self._first_agent = (fleet.successors, fleet.probabilities[0], fleet.initial[0])
        self._trial = EPISODES_PER_STATE * fleet.visits.shape[2]

    def clear(self) -> None:
        """Empty the buffers."""
        self.fleet.clear()

    def collect(self, policy: IndexArray, budgets: CountArray, first: int, most: int) -> Stop:
        """Play, or draw, or both; see :class:`~fed_ucbvi.drivers.base.Driver`."""
        trial = min(self._trial, most)
        if most > trial and _looks_longer(*self._first_agent, policy, budgets, trial):
            return self._counts.collect(policy, budgets, first, most)
        self.fleet.clear()
        length, asked = self._episodes.extend(policy, budgets, first, trial)
        if not asked and length < most:
            length += self._counts.extend(policy, budgets, first + length, most - length)
        return stopped(self.fleet, budgets, length)


@compiled
def _looks_longer(
    successors: IndexArray,
    probabilities: FloatArray,
    initial: FloatArray,
    policy: IndexArray,
    budgets: CountArray,
    length: int,
) -> bool:
    """Whether the round should last more than ``length`` episodes, taking all agents for copies of the first.

    A pair with budget b and occupancy d is due after b/d episodes; the first visits to pairs with budget 1 come as a
    Poisson stream whose rate is the sum of their occupancies.
    """
    m, H, S = budgets.shape
    d = state_occupancy(successors, probabilities, initial, policy)
    due, rate = 1e300, 0.0
    for i in range(m):
        for h in range(H):
            for s in range(S):
                if d[h, s] > 0.0:
                    if budgets[i, h, s] <= 1:
                        rate += d[h, s]
                    else:
                        due = min(due, budgets[i, h, s] / d[h, s])
        if due <= length or (rate > 0.0 and 1.0 / rate <= length):
            return False  # due and 1/rate only fall
    return True
