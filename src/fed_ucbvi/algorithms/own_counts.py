"""What one agent has counted, taken out of its algorithm: transitions, rewards and where episodes began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.algorithms.experience import Experience
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray


@dataclass(frozen=True)
class OwnCounts:
    """The counts of one agent; ``steps`` is H, or 1 where all steps are counted together.

    Attributes:
        transitions: ``(steps, S, A, K)``, visits of (h,s,a) that went on to the k-th next state.
        successors: ``(steps or 1, S, A, K)``, the next states.
        rewards: ``(steps, S, A, K)``, the sum of what these visits paid.
        reward_variance: ``(steps, S, A)``, of a reward given the next state; 0 where rewards are not random.
        starts: ``(S,)``, how many episodes began where; or, if ``law_known``, the law of the initial state.
        horizon: H.
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
        """``(steps, S, A)``."""
        return np.asarray(self.transitions.sum(axis=-1))

    @classmethod
    def of(
        cls,
        algorithm: Algorithm[Any, Any],
        agents: Any,
        agent: int,
        horizon: int,
        starts: FloatArray | None,
        *,
        law_known: bool,
    ) -> OwnCounts:
        """Those of one of ``agents``.

        Args:
            algorithm: whose agents they are.
            agents: a fleet in which each agent is counted by itself.
            agent: its place in the fleet.
            horizon: H.
            starts: the law of the initial state, where it is known, or how many episodes began where. None where
                counts are by step: then the visits at the first step say it.
            law_known: whether it is the law.
        """
        experience = getattr(agents, "experience", None)
        if not isinstance(experience, Experience):
            raise InputError(
                f"agents of {algorithm.name} do not keep their counts, so nothing can be planned from them. Take "
                "fed-ucbvi or one of its kin."
            )
        transitions = np.array(experience.transitions[agent], dtype=np.int64)
        steps = len(transitions)
        shape = (steps, *experience.rewards.shape[2:])
        means = np.broadcast_to(experience.rewards[min(agent, len(experience.rewards) - 1)], shape)
        rewards, spread = transitions * means[..., None], np.zeros(shape)
        if len(experience.sums.by_slot):
            rewards, spread = _of_sums(experience, agent, transitions, agents.grid.unit)
        if starts is None:
            if steps == 1 and horizon > 1:
                raise InputError("counts over all steps together do not say where episodes began.")
            starts = transitions[0].sum(axis=(1, 2)).astype(np.float64)
        return cls(transitions, experience.successors, rewards, spread, starts, horizon, law_known)


def _of_sums(
    experience: Experience, agent: int, transitions: CountArray, unit: float
) -> tuple[FloatArray, FloatArray]:
    """Sums of random rewards by next state, and the variance of a reward given the next state, pooled over them."""
    by_slot, squares = experience.sums.by_slot[agent] * unit, experience.sums.squares[agent].astype(np.float64)
    total = (squares[..., 0] * 2.0**64 + squares[..., 1]) * unit * unit
    between = np.divide(by_slot**2, transitions, out=np.zeros_like(by_slot), where=transitions > 0).sum(axis=-1)
    freedom = transitions.sum(axis=-1) - (transitions > 0).sum(axis=-1)
    return by_slot, np.maximum(total - between, 0.0) / np.maximum(freedom, 1)
