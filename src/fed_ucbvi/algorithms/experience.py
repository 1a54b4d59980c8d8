"""What model-based agents know: their own counts by agent and step, and those of one agent taken out of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.algorithms.base import Algorithm, FleetTables, Message, RewardSums, ServerT, Setting
from fed_ucbvi.core.compiling import compiled, inner
from fed_ucbvi.core.errors import InputError
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
    S, A, K = setting.states, setting.actions, tables.successors.shape[3]
    kind, steps = counter_type(setting, stationary=stationary), 1 if stationary else setting.horizon
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

    def experience_of(self, agents: Any) -> Experience | None:
        kept: Experience = agents.experience
        return kept if len(kept.transitions) else None

    def query(self, server: ServerT, exchange: int) -> Message:
        """``V_{h+1}[S]`` for ``h = H-1-exchange``, multiples of ``2^-f`` where reports are sums."""
        return (server.V[len(server.policy) - exchange],)

    def query_values(self, query: Message) -> FloatArray | None:
        return query[0]


@dataclass(frozen=True)
class OwnCounts:
    """The counts of one agent; ``steps`` is H, or 1 where all steps are counted together.

    Attributes:
        transitions: ``(steps, S, A, K)``, visits of (h,s,a) that went on to the k-th next state.
        successors: ``(steps or 1, S, A, K)``, the next states.
        rewards: ``(steps, S, A, K)``, the sum of what these visits paid.
        reward_variance: ``(steps, S, A)``, of a reward given the next state; 0 where rewards are not random.
        starts: ``(S,)``, how many episodes began where; or, if ``law_known``, the law of the initial state.
        law_known: whether the law of the initial state is known and need not be estimated.
    """

    transitions: CountArray
    successors: IndexArray
    rewards: FloatArray
    reward_variance: FloatArray
    starts: FloatArray
    horizon: int
    law_known: bool

    @property
    def visits(self) -> CountArray:
        return np.asarray(self.transitions.sum(axis=-1))

    @classmethod
    def of(
        cls, algorithm: Algorithm[Any, Any], agents: Any, agent: int, horizon: int, starts: FloatArray, known: bool
    ) -> OwnCounts:
        """Those of the agent at place ``agent`` of a fleet in which each is counted by itself."""
        experience = algorithm.experience_of(agents)
        if experience is None:
            raise InputError(
                f"agents of {algorithm.name} do not keep their counts, so nothing can be planned from them. Use "
                "fed-ucbvi or a variant."
            )
        transitions = np.array(experience.transitions[agent], dtype=np.int64)
        shape = (len(transitions), *experience.rewards.shape[2:])
        means = np.broadcast_to(experience.rewards[min(agent, len(experience.rewards) - 1)], shape)
        rewards, spread = transitions * means[..., None], np.zeros(shape)
        if len(experience.sums.by_slot):
            rewards, spread = _of_sums(experience, agent, transitions, agents.grid.unit)
        return cls(transitions, experience.successors, rewards, spread, starts, horizon, known)


def _of_sums(
    experience: Experience, agent: int, transitions: CountArray, unit: float
) -> tuple[FloatArray, FloatArray]:
    """Sums of random rewards by next state, and the variance of a reward given the next state, pooled over them."""
    by_slot, squares = experience.sums.by_slot[agent] * unit, experience.sums.squares[agent].astype(np.float64)
    total = (squares[..., 0] * 2.0**64 + squares[..., 1]) * unit * unit
    between = np.divide(by_slot**2, transitions, out=np.zeros_like(by_slot), where=transitions > 0).sum(axis=-1)
    freedom = transitions.sum(axis=-1) - (transitions > 0).sum(axis=-1)
    return by_slot, np.maximum(total - between, 0.0) / np.maximum(freedom, 1)
