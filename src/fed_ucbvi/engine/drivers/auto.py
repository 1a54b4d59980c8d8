"""The auto driver: trajectories for short rounds, counts for long ones.

No round costs much more than with the better of the two drivers. A round that looks long from its budgets and the
policy's occupancy is drawn as counts at once. Any other is played episode by episode, until that has taken about as
long as drawing counts would. If no agent has requested a synchronisation by then, the rest is drawn as counts. Adding
drawn counts to played ones is exact in law, because episodes are independent given the policy. The choice depends on
the round's budgets and policy alone.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import shared
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet, FleetDriver, Played
from fed_ucbvi.engine.drivers.counts import CountsDriver
from fed_ucbvi.engine.drivers.episodes import EpisodesDriver
from fed_ucbvi.problem.agent_tables import may_play, occupancies, tied, weight

EPISODES_PER_STATE = 16
"""Episodes that cost about as much as drawing one block of counts, per state and level of the policy.

See docs/performance.md.
"""


class AutoDriver(FleetDriver):
    """Episodes or counts, whichever is cheaper for the round; see the module's text."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self._episodes = EpisodesDriver(fleet)
        self._first_agent = (fleet.successors, fleet.probabilities[0, ..., None], fleet.initial[0, :, None])
        self._trial = EPISODES_PER_STATE * fleet.initial.shape[1]

    @cached_property
    def _counts(self) -> CountsDriver:
        """The other driver, made when a round is first drawn as counts."""
        return CountsDriver(self.fleet)

    def extend(self, policy: PolicyArray, limits: CountArray, first: int, most: int, asking: bool = True) -> Played:
        levels = len(policy) if policy.ndim == 4 else 1
        trial = min(levels * self._trial, most)
        by_cell = limits.reshape((len(limits), -1))
        if most > trial and (
            not asking or _looks_longer(self._first_agent, lowest_level(policy), by_cell, len(self.visits), trial)
        ):
            return self._counts.extend(policy, limits, first, most, asking)
        length, asked = self._episodes.extend(policy, limits, first, trial, asking)
        if not asked and length < most:
            more, asked = self._counts.extend(policy, limits, first + length, most - length, asking)
            length += more
        return length, asked


def lowest_level(policy: PolicyArray) -> PolicyArray:
    """The policy of level 0, which is played most often, of a policy with several levels."""
    return policy[0] if policy.ndim == 4 else policy


@compiled
def _looks_longer(
    first_agent: tuple[IndexArray, FloatArray, FloatArray],
    policy: PolicyArray,
    limits: CountArray,
    agents: int,
    length: int,
) -> bool:
    """True if the round should last more than ``length`` episodes, taking all agents for copies of the first.

    A cell with budget b and occupancy d is due after b/d episodes; the first visits to cells with budget 1 come as
    a Poisson stream whose rate is the sum of their occupancies. Where ``limits`` has one row it is every agent's.
    """
    alike = agents // len(limits)
    d = _occupancy_by_cell(occupancies(*first_agent, policy), policy, limits.shape[1])
    soonest = 1e300
    rate = 0.0
    for i in range(len(limits)):
        for cell in range(len(d)):
            if d[cell] > 0.0:
                if limits[i, cell] <= 1:
                    rate += alike * d[cell]
                else:
                    soonest = min(soonest, limits[i, cell] / d[cell])
        if soonest <= length or (rate > 0.0 and 1.0 / rate <= length):
            return False  # soonest and 1/rate only fall
    return True


@inner
def _occupancy_by_cell(d: FloatArray, policy: PolicyArray, cells: int) -> FloatArray:
    """Expected visits to every cell in one episode, from those to states ``(H, S, 1)``."""
    H, S, _ = d.shape
    if policy.ndim == 2:
        return d.reshape(cells)
    A = policy.shape[2]
    steps = cells // (S * A)
    pairs = np.zeros((steps, S, A))
    for h in range(H):
        for s in range(S):
            if d[h, s, 0] > 0.0:
                share = d[h, s, 0] / tied(policy, h, s, A)
                for a in range(A):
                    if may_play(policy, h, s, a):
                        pairs[shared(h, steps), s, a] += share * weight(policy, h, s, a)
    return pairs.reshape(cells)
