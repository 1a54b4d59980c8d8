"""Random rewards, given by mean and variance.

A reward lies in [0, 1]. Given (h,s,a), it does not depend on the next state. Among all laws with mean ``mu`` and
variance ``v``, agents are paid by the one with two outcomes of which one is 0:

    ``y = (mu^2 + v)/mu`` with probability ``q = mu^2/(mu^2 + v)``, otherwise 0.

This law stays in [0, 1] for every ``v <= mu (1 - mu)``, and no law in [0, 1] has a larger variance. Where ``v = mu (1
- mu)`` the reward is Bernoulli, ``y = 1`` and ``q = mu``; where ``v = 0`` it is ``mu`` for certain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.kernel import frozen_floats, real_numbers

BERNOULLI = "bernoulli"
"""Accepted in place of variances: every reward is 1 with probability equal to its mean, and otherwise 0."""
VARIANCE_ROUNDING = 1e-12
"""A variance outside its range by at most this is taken for a rounding error."""


class Payments(NamedTuple):
    """The ``amounts`` y are paid with the probabilities ``chances`` q, otherwise 0; both have the same shape."""

    amounts: FloatArray
    chances: FloatArray


def by_step(name: str, rewards: npt.ArrayLike, states: int, actions: int) -> FloatArray:
    """A table ``[S,A]`` or ``[H,S,A]`` of finite numbers as ``(steps, S, A)``, or an error."""
    numbers = real_numbers(name, rewards)
    table = numbers[None] if numbers.ndim == 2 else numbers
    if table.ndim != 3 or table.shape[1:] != (states, actions):
        raise InputError(
            f"{name} must have shape (S, A) = ({states}, {actions}), or (H, S, A) if they depend on the step; "
            f"got {numbers.shape}."
        )
    if not np.isfinite(table).all():
        raise InputError(f"{name} hold a value that is not a finite number.")
    return table


def check_variances(variances: npt.ArrayLike | str, rewards: FloatArray) -> FloatArray:
    """Variances of rewards whose means are ``rewards[steps,S,A]``, as a table.

    The table has as many steps as the means, or H if only the variances depend on the step.
    """
    if isinstance(variances, str):
        if variances != BERNOULLI:
            raise InputError(f"reward_variances must be a table or '{BERNOULLI}', got '{variances}'.")
        return rewards * (1.0 - rewards)
    _, states, actions = rewards.shape
    table = by_step("reward_variances", variances, states, actions)
    steps = {len(rewards), len(table)} - {1}
    if len(steps) > 1:
        raise InputError(f"reward_variances have {len(table)} steps, and rewards {len(rewards)}.")
    most = rewards * (1.0 - rewards)
    outside = (table < -VARIANCE_ROUNDING) | (table > most + VARIANCE_ROUNDING)
    if outside.any():
        h, s, a = np.argwhere(outside)[0].tolist()
        mean = float(np.broadcast_to(rewards, outside.shape)[h, s, a])
        variance = float(np.broadcast_to(table, outside.shape)[h, s, a])
        raise InputError(
            f"the variance of the reward at (h={h}, s={s}, a={a}) is {variance:.6g}; a reward in [0, 1] with mean "
            f"{mean:.6g} has one from 0 to {mean:.6g} (1 - {mean:.6g}) = {mean * (1 - mean):.6g}. Where rewards were "
            "rescaled, divide variances by the square of the scale."
        )
    return np.clip(table, 0.0, most)


def none_if_zero(variances: FloatArray) -> FloatArray | None:
    """Variances as a read-only table; None if nothing is random."""
    if not variances.any():
        return None
    return frozen_floats(variances)


def payments(means: FloatArray, variances: FloatArray) -> Payments:
    """Amounts of rewards with these means and variances, and their probabilities.

    >>> payments(np.array([0.2, 0.5]), np.array([0.16, 0.0]))
    Payments(amounts=array([1. , 0.5]), chances=array([0.2, 1. ]))
    """
    means, variances = np.broadcast_arrays(means, variances)
    # y = mu + v / mu, which is 1 for a Bernoulli reward.
    positive_means = np.where(means > 0.0, means, 1.0)
    amounts = np.minimum(means + variances / positive_means, 1.0)
    is_bernoulli = (variances >= means * (1.0 - means)) & (variances > 0.0)
    amounts = np.where(is_bernoulli, 1.0, amounts)
    # q = mu / y.
    positive_amounts = np.where(amounts > 0.0, amounts, 1.0)
    chances = np.minimum(means / positive_amounts, 1.0)
    chances = np.where(means > 0.0, chances, 0.0)
    return Payments(amounts=frozen_floats(amounts), chances=frozen_floats(chances))
