"""Kernels and rewards of agents that follow from known dynamics and their laws.

    P(s'|h,s,a) = sum_w law_g(w) 1{next_state(h,s,a,w) = s'},    r(h,s,a) = sum_w law_g(w) reward(h,s,a,w),

with g = law_of(h,s,a). So a federation with known dynamics has a value, a regret and a best policy like any other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_choice
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.heterogeneity import overlap
from fed_ucbvi.problem.kernel import ROW_SUM_ROUNDING, ROW_SUM_TOLERANCE, frozen_floats, real_numbers


class Transitions(NamedTuple):
    """Next states ``(steps, S, A, K)``, ascending, and the slot of each outcome's, ``(steps, S, A, W)``."""

    successors: IndexArray
    slots: IndexArray


class MeanRewards(NamedTuple):
    """Mean rewards ``(rows, steps, S, A)`` and their variances, where rows are agents."""

    means: FloatArray
    variances: FloatArray


def check_laws(laws: npt.ArrayLike, dynamics: Dynamics) -> FloatArray:
    """Laws ``(M, G, W)`` as a read-only table, rescaled to add up to exactly 1, or an error."""
    table = real_numbers("laws", laws)
    if table.ndim != 3 or table.shape[1:] != (dynamics.laws, dynamics.outcomes) or len(table) == 0:
        raise InputError(
            f"laws must have shape (M, laws, outcomes) = (M, {dynamics.laws}, {dynamics.outcomes}), one table for "
            f"each agent; got {table.shape}."
        )
    wrong = ~np.isfinite(table).all(axis=2) | (table < 0).any(axis=2)
    if wrong.any():
        agent, law = np.argwhere(wrong)[0].tolist()
        raise InputError(f"law {law} of agent {agent} must hold finite, non-negative numbers.")
    totals = table.sum(axis=2)
    wrong = np.abs(totals - 1.0) > ROW_SUM_TOLERANCE
    if wrong.any():
        agent, law = np.argwhere(wrong)[0].tolist()
        raise InputError(f"law {law} of agent {agent} adds up to {totals[agent, law]:.12g}, not to 1.")
    exact = np.abs(totals - 1.0) <= ROW_SUM_ROUNDING
    return frozen_floats(table / np.where(exact, 1.0, totals)[..., None])


class CommonLaws(NamedTuple):
    """Laws ``(G, W)`` of the common MDP, and the smallest eps_p of Assumption 1 (1 where it fails)."""

    laws: FloatArray
    eps_p: float


def common_laws_of(laws: FloatArray, reference: str) -> CommonLaws:
    """The normalised minimum of the agents' laws ``(M, G, W)``, which attains the smallest eps_p, or their mean.

    ``reference`` is ``"overlap"`` or ``"mean"``.
    """
    check_choice("reference laws", reference, ("overlap", "mean"))
    shared = overlap(laws)
    if reference == "mean":
        return CommonLaws(np.asarray(laws.mean(axis=0)), shared.eps_p)
    if float(shared.mass.min()) <= 0.0:
        raise InputError(
            f"Assumption 1 fails: no outcome of law {int(shared.mass.argmin())} is possible for every agent, so "
            'there are no common laws. Pass reference="mean" to compare with the mean laws instead.'
        )
    return CommonLaws(shared.minimum / shared.mass[..., None], shared.eps_p)


def transitions_of(dynamics: Dynamics) -> Transitions:
    """Next states of every cell without repetition."""
    steps = dynamics.steps
    table = np.stack([dynamics.next_states_at(h) for h in range(steps)])
    order = np.argsort(table, axis=3, kind="stable")
    ascending = np.take_along_axis(table, order, axis=3)
    is_new = np.diff(ascending, axis=3, prepend=-1) != 0
    slot_in_order = is_new.cumsum(axis=3) - 1
    slots = np.empty(table.shape, dtype=np.int32)
    np.put_along_axis(slots, order, slot_in_order.astype(np.int32), axis=3)
    width = int(slots.max()) + 1
    successors = np.repeat(ascending[..., -1:], width, axis=3)  # the last one fills the slots behind it
    np.put_along_axis(successors, slots, table, axis=3)
    return Transitions(successors.astype(np.int32), slots)


def kernel_of(dynamics: Dynamics, laws: FloatArray, transitions: Transitions) -> FloatArray:
    """Probabilities ``(steps, S, A, K)`` of one agent with these ``laws (G, W)``."""
    steps = dynamics.steps
    probabilities = np.zeros(transitions.successors.shape)
    cells = tuple(np.ogrid[: dynamics.states, : dynamics.actions])
    for h in range(steps):
        chances = laws[dynamics.laws_at(h)]
        for w in range(dynamics.outcomes):
            slot = transitions.slots[h, :, :, w]
            probabilities[h][(*cells, slot)] += chances[:, :, w]
    return np.asarray(probabilities / probabilities.sum(axis=3, keepdims=True))


def rewards_of(dynamics: Dynamics, laws: FloatArray, agent: int | None = None) -> MeanRewards:
    """Means and variances ``(steps, S, A)`` of rewards under ``laws (G, W)``: one agent's, or of their mean."""
    assert dynamics.rewards is not None
    steps = max(len(dynamics.law_of), dynamics.rewards.shape[1])
    shape = (steps, dynamics.states, dynamics.actions)
    means = np.zeros(shape)
    variances = np.zeros(shape)
    for h in range(steps):
        amounts = dynamics.rewards_at(h, agent)
        chances = laws[dynamics.laws_at(h)]
        certain = np.where(chances > 0, amounts, -np.inf).max(axis=2)
        fixed = certain == np.where(chances > 0, amounts, np.inf).min(axis=2)
        means[h] = np.where(fixed, certain, np.clip((chances * amounts).sum(axis=2), 0.0, 1.0))
        spread = (chances * (amounts - means[h][..., None]) ** 2).sum(axis=2)
        variances[h] = np.where(fixed, 0.0, np.minimum(spread, means[h] * (1.0 - means[h])))
    return MeanRewards(means, variances)


def rewards_of_agents(dynamics: Dynamics, laws: FloatArray) -> list[MeanRewards]:
    """Rewards of each agent under its own laws ``laws[M,G,W]``."""
    assert dynamics.rewards is not None
    if len(dynamics.rewards) not in (1, len(laws)):
        raise InputError(f"the dynamics have rewards of {len(dynamics.rewards)} agents, and laws are of {len(laws)}.")
    return [rewards_of(dynamics, one, agent) for agent, one in enumerate(laws)]
