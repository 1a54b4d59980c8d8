"""Families of agents around one environment: the paper's mixture, or a natural parameter that varies.

An environment has one kernel for every displacement ``x`` of its natural parameter (the current of a river, the
probability of slipping), with ``x = 0`` for the environment as published. There are two ways to make agents differ:

- ``eps_p``: Assumption 1 with ``P^i = (1 - eps_p) P^c + eps_p P^{ind,i}``, where ``P^c`` is the published kernel and
  ``P^{ind,i}`` moves to the states that can be reached from a state with weights uniform on (0,1), normalised;
- ``spread``: agent i has the displacement ``x_i``, uniform on ``[-spread, spread]``. A displacement multiplies the
  weights of next states by ``e^x``, ``1`` or ``e^{-x}``, so every probability changes by a factor between
  ``e^{-2 spread}`` and ``e^{2 spread}``, supports stay as they are, and Assumption 1 holds with
  ``eps_p <= 1 - e^{-2 spread}``. The smallest eps_p is computed
  (:meth:`~fed_ucbvi.problem.federation.Federation.from_mdps`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.environments.seeds import generator
from fed_ucbvi.problem.federation import Federation, check_eps_p
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.mdp import MDP

MAX_SPREAD = 10.0
"""Weights are multiplied by at most ``e^10``, about 22,000."""

Rows = Sequence[Sequence[Mapping[int, float]]]
"""``rows[s][a]``: next states and their probabilities."""


class Part(IntEnum):
    """The first key of an environment's random generators; the second is ``i`` for the parts of agent i."""

    INDIVIDUAL = 0
    DISPLACEMENT = 1
    STRUCTURE = 2
    REWARDS = 3


class Environment(NamedTuple):
    """An environment before it is known how its agents differ.

    Attributes:
        name: as registered.
        options: its own options, for the record.
        kernel: the kernel at displacement ``x``, an array of shape ``shape``.
        varies: the natural parameter, in words.
        rewards: ``[S,A]`` or ``[H,S,A]``, in [0,1].
        initial: the first state, or its distribution.
        horizon: H.
        shape: of the displacement; ``()`` for a single number.
        individual: ``P^{ind,i}`` from the published kernel, i and agent i's generator; by default
            :func:`random_kernel`.
        layout: how to draw the states.
        reward_scale: an original reward is ``reward_offset + reward_scale * r``.
        reward_offset: see ``reward_scale``.
    """

    name: str
    options: Mapping[str, object]
    kernel: Callable[[FloatArray], Kernel]
    varies: str
    rewards: FloatArray
    initial: npt.ArrayLike | int
    horizon: int
    shape: tuple[int, ...] = ()
    individual: Callable[[Kernel, int, np.random.Generator], Kernel] | None = None
    layout: Mapping[str, object] | None = None
    reward_scale: float = 1.0
    reward_offset: float = 0.0


def family(
    environment: Environment, agents: int, eps_p: float, seed: int, spread: float, bernoulli_rewards: bool
) -> Federation:
    """The federation of agents around an environment; at most one of ``eps_p`` and ``spread`` is above zero.

    Agent i's individual kernel and displacement depend on ``(seed, i)`` alone.
    """
    M = check_positive_integer("agents", agents)
    eps = check_eps_p(eps_p)
    root = check_integer("seed", seed)
    width = check_number("spread", spread, at_least=0, at_most=MAX_SPREAD)
    if eps > 0 and width > 0:
        raise InputError(
            f"eps_p = {eps:g} and spread = {width:g} are two ways to make agents differ; give one of them and leave "
            "the other at 0."
        )
    description = {
        "name": environment.name,
        "agents": M,
        "eps_p": eps,
        "seed": root,
        "spread": width,
        **environment.options,
        "reward_scale": environment.reward_scale,
        "reward_offset": environment.reward_offset,
    }
    published = environment.kernel(np.zeros(environment.shape))
    rewards, initial, H, layout = environment.rewards, environment.initial, environment.horizon, environment.layout
    if width > 0:
        signs = np.resize([1.0, -1.0], environment.shape)  # if all were alike, they could cancel
        farthest = environment.kernel(width * signs)
        if np.array_equal(farthest.probabilities, published.probabilities):
            raise InputError(
                f"spread = {width:g} changes nothing: {environment.varies} is 0 or 1 in this {environment.name}. "
                "Choose one in between, or spread = 0."
            )
        draws = (generator(root, Part.DISPLACEMENT, i).uniform(-1.0, 1.0, environment.shape) for i in range(M))
        mdps = [MDP(environment.kernel(width * np.asarray(u)), rewards, initial, H) for u in draws]
        federation = Federation.from_mdps(mdps, description=description, layout=layout)
        return federation.with_bernoulli_rewards(bernoulli_rewards)
    draw = environment.individual or (lambda kernel, _, rng: random_kernel(kernel, rng))
    own = [draw(published, i, generator(root, Part.INDIVIDUAL, i)) for i in range(M if eps > 0 else 1)]
    federation = Federation.mixture(
        published, own, eps, rewards=rewards, initial=initial, horizon=H, description=description, layout=layout
    )
    federation = federation.with_bernoulli_rewards(bernoulli_rewards)
    return federation if eps > 0 else federation.repeated(M)


def shifted(probability: float, x: npt.ArrayLike) -> float:
    """The probability whose odds are ``e^x`` times those of ``probability``; 0 and 1 stay.

    >>> shifted(0.5, 0.0), round(shifted(0.5, np.log(3.0)), 12), shifted(1.0, 2.0)
    (0.5, 0.75, 1.0)
    """
    if probability == 1.0:
        return 1.0
    return min(1.0, float(probability * np.exp(x) / (1.0 + probability * np.expm1(x))))


def kernel_of(*steps: Rows) -> Kernel:
    """The kernel with ``P_h(s'|s,a) = steps[h][s][a][s']``; a single table is stationary.

    All actions of a state list the same next states: every state that one of the actions lists, even with probability
    zero.

    >>> kernel_of([[{0: 0.5, 1: 0.5}, {0: 1.0}], [{1: 1.0}, {1: 1.0}]]).successors[0, 0].tolist()
    [[0, 1], [0, 1]]
    """
    reachable = [[sorted({s for row in rows for s in row}) for rows in table] for table in steps]
    K = max(len(states) for table in reachable for states in table)
    shape = (len(steps), len(steps[0]), len(steps[0][0]), K)
    successors, probabilities = np.zeros(shape, dtype=np.int32), np.zeros(shape)
    for h, table in enumerate(steps):
        for s, rows in enumerate(table):
            states = reachable[h][s]
            successors[h, s] = states + states[-1:] * (K - len(states))
            for a, row in enumerate(rows):
                for next_state, probability in row.items():
                    probabilities[h, s, a, states.index(next_state)] = probability
    return Kernel(successors, probabilities)


def random_kernel(kernel: Kernel, rng: np.random.Generator, allowed: npt.NDArray[np.bool_] | None = None) -> Kernel:
    """Weights uniform on (0,1), normalised, on the successors that ``kernel`` lists (and that are ``allowed``)."""
    support = kernel.successors
    usable = _distinct(support) if allowed is None else allowed
    weights: FloatArray = np.where(usable, 1.0 - rng.random(support.shape), 0.0)
    return Kernel(support, weights / weights.sum(axis=-1, keepdims=True))


def _distinct(successors: IndexArray) -> npt.NDArray[np.bool_]:
    """The slots of a row that are not padding, that is, do not repeat the successor before them."""
    used = np.ones(successors.shape, dtype=bool)
    used[..., 1:] = successors[..., 1:] != successors[..., :-1]
    return used


def line_layout(states: int) -> dict[str, object]:
    """States in a row from the first, where episodes start, to the last, the goal; actions are left and right."""
    return {
        "rows": 1,
        "columns": states,
        "cells": [[0, s] for s in range(states)],
        "start": [0, 0],
        "goals": [[0, states - 1]],
        "moves": [[0, -1], [0, 1]],
    }
