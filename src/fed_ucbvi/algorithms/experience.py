"""What model-based agents know: their own counts by agent and step, and those of one agent taken out of them."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Algorithm, FleetTables, Message, RewardSums, ServerT, Setting
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.indexing import reward_at
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray

Counters = npt.NDArray[Any]
"""An agent's own counters; see :func:`counter_type`."""

MAX_IN_CACHES = 1 << 21
"""Counters of 32 bits that fit the caches of a core and of its neighbours, roughly."""


_NO_MEANS: FloatArray = np.zeros((0, 0, 0, 0))


class Experience(NamedTuple):
    """What m agents know: their counts, by which supports they count, and the rewards where they have been.

    The step axis of the counts has length one where they are kept over all steps together. ``sums`` are those of
    random rewards, if the algorithm asks for them.
    """

    visits: Counters
    transitions: Counters
    successors: IndexArray
    rewards: FloatArray
    sums: RewardSums

    def absorb(
        self, policy: PolicyArray, transitions: CountArray, visits: CountArray, paid: FloatArray | None = None
    ) -> None:
        """Add the counts of a round, in place, and what it ``paid``, where agents keep means of their own."""
        m, steps, K = *visits.shape[:2], transitions.shape[-1]
        own = self.visits, self.transitions, _NO_MEANS if paid is None else self.rewards
        rewards = _NO_MEANS if paid is None else paid
        _absorb(policy, transitions.reshape((m, steps, -1, K)), visits.reshape((m, steps, -1)), rewards, own)


def no_experience(setting: Setting, tables: FleetTables, *, stationary: bool = False) -> Experience:
    """Counts are laid out step by step in memory, as an exchange reads them. Half the memory is half the time."""
    S = setting.states
    A = setting.actions
    K = tables.successors.shape[3]
    kind = counter_type(setting, stationary=stationary)
    steps = 1 if stationary else setting.horizon
    visits = np.zeros((steps, tables.agents, S, A), dtype=kind).swapaxes(0, 1)
    transitions = np.zeros((steps, tables.agents, S, A, K), dtype=kind).swapaxes(0, 1)
    return Experience(visits, transitions, tables.successors, tables.rewards, tables.sums)


def counter_type(setting: Setting, *, stationary: bool = False, rows: int = 0) -> type[np.signedinteger[Any]]:
    """What counts one agent's visits and holds its budgets, in tables of that many ``rows``.

    A budget is at most T (or T H, over all steps together) and one more, or N/M, where a warm start has brought more.
    It is 32 bits where that fits. Where tables of 32 bits would not fit the caches it is 16 bits, if that fits.
    """
    earlier = -(-setting.earlier_visits // setting.agents)
    most = setting.episodes * (setting.horizon if stationary else 1) + earlier
    numbers = rows * (1 if stationary else setting.horizon) * setting.states * setting.actions
    kinds = (np.int16, np.int32) if numbers > MAX_IN_CACHES else (np.int32,)
    return next((kind for kind in kinds if most < np.iinfo(kind).max), np.int64)


@inner
def pair_of(cell: int, policy: PolicyArray, states: int, actions: int) -> tuple[int, int, int]:
    """Step, state and action of a cell (see :class:`~fed_ucbvi.algorithms.base.Counting`)."""
    if policy.ndim == 2:
        h, s = divmod(cell, states)
        return h, s, policy[h, s]
    rest, a = divmod(cell, actions)
    h, s = divmod(rest, states)
    return h, s, a


@compiled
def _absorb(
    policy: PolicyArray,
    round_transitions: CountArray,
    round_visits: CountArray,
    paid: FloatArray,
    own: tuple[Counters, Counters, FloatArray],
) -> None:
    """Add the round's counts where it went, step by step as memory is laid out, and what it paid to the means."""
    visits, transitions, means = own
    (m, steps, places), (S, A, K) = round_visits.shape, transitions.shape[2:]
    for h in range(steps):
        for i in range(m):
            for place in range(places):
                n = round_visits[i, h, place]
                if n == 0:
                    continue
                _, s, a = pair_of(h * places + place, policy, S, A)
                visits[i, h, s, a] += n
                for k in range(K):
                    transitions[i, h, s, a, k] += round_transitions[i, h, place, k]
                if means.size > 0:
                    mean = means[i, h, s, a]
                    means[i, h, s, a] += n / visits[i, h, s, a] * (reward_at(i, h, s, a, paid) - mean)


class StepByStep(Algorithm[ServerT, Any], Generic[ServerT]):
    """An algorithm whose agents keep their counts, and whose exchange number e is about step ``h = H-1-e``."""

    asks_to_plan: ClassVar[bool] = True

    def exchanges(self, setting: Setting) -> int:
        return setting.horizon

    def query(self, server: ServerT, exchange: int) -> Message:
        """``V_{h+1}[S]`` for ``h = H-1-exchange``, multiples of ``2^-f`` where reports are sums."""
        return (server.V[len(server.policy) - exchange],)

    def query_values(self, query: Message) -> FloatArray | None:
        return query[0]
