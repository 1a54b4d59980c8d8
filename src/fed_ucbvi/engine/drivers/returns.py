"""What single episodes pay in a simulation: the trajectories of ``episodes`` once more, with their rewards."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.algorithms.return_bounds import add_returns, check_returns
from fed_ucbvi.core.compiling import compiled, inlined
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.sampling.philox import unit_interval
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.drivers.base import Fleet
from fed_ucbvi.engine.drivers.episodes import actions_of, world_of
from fed_ucbvi.engine.drivers.rewards import payments_of
from fed_ucbvi.engine.drivers.trajectory import Sizes, block_of, trajectory_for, word_at
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units

STEPS_PER_CALL = 1 << 22
_ONE = np.uint64(1)
_pick, _, _step = trajectory_for(inlined)


class SimulatedReturns:
    """The returns of a fleet's episodes under a policy, whose actions are sets.

    Args:
        fleet: of the agents, on doubled supports if rewards are random.
        federation: with what they are paid.
    """

    def __init__(self, fleet: Fleet, federation: Federation) -> None:
        random = fleet.successors.shape[-1] > federation.successors.shape[-1]
        self._pays = payments_of(federation).amounts if random else federation.rewards
        self._first_paid = federation.successors.shape[-1] if random else 0
        self._units = Units.of(federation.description)
        self._agents, self._horizon = len(fleet.probabilities), fleet.horizon
        self._world = fleet.sizes._replace(stationary=False), *world_of(fleet)

    def add(
        self,
        policy: PolicyArray,
        first: int,
        length: int,
        histogram: CountArray,
        within: tuple[float, float] | None = None,
    ) -> None:
        """Add the returns of all agents in ``length`` episodes from number ``first`` on, to lie ``within``."""
        H = self._horizon
        low, high = within or (0.0, float(H))
        m, chunk = self._agents, max(1, STEPS_PER_CALL // (self._agents * self._horizon))
        for begin in range(first, first + length, chunk):
            returns = np.empty((min(chunk, first + length - begin), m))
            _fill_returns(*self._world, *actions_of(policy), self._pays, self._first_paid, begin, returns)
            if within is not None:
                check_returns(returns.reshape(-1), within, self._units, H)
            add_returns(histogram, returns.reshape(-1), high, low)


@compiled
def _fill_returns(
    sizes: Sizes,
    successors: IndexArray,
    kernel: FloatArray,
    initial: FloatArray,
    first_agent: int,
    policy: IndexArray,
    ties: IndexArray,
    pays: FloatArray,
    first_paid: int,
    first: int,
    returns: FloatArray,
) -> None:
    """``returns[t, i]`` of agent i's episode number ``first + t``; slots from ``first_paid`` on are paid for."""
    T, m = returns.shape
    size = sizes.states * sizes.actions * sizes.slots * (sizes.horizon if sizes.by_step else 1)
    own = np.uint64(0 if len(kernel) == size else size)
    own_start = np.uint64(0 if len(initial) == sizes.states else sizes.states)
    for t in range(T):
        episode = np.uint64(first + t)
        for i in range(m):
            ui, key, total = np.uint64(i), np.uint64(first_agent + i), 0.0
            block = block_of(0, sizes.seed, key, episode)
            s = _pick(initial, ui * own_start, _ONE, sizes.states, unit_interval(block[0]))
            for h in range(sizes.horizon):
                if (h + 1) & 3 == 0:
                    block = block_of(h + 1, sizes.seed, key, episode)
                word, here = word_at(h + 1, *block), s
                cell, _, slot, s = _step(
                    h, s, episode, key, word, sizes, policy, ties, successors, kernel, ui * own, _ONE
                )
                if slot >= first_paid:
                    a = int(cell % np.uint64(sizes.actions))
                    total += reward_at(i, h, int(here), a, pays)
            returns[t, i] = total
