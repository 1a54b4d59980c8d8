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

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import wraps
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.memory import ProblemSize, check_problem
from fed_ucbvi.core.parameters import Bounds, Count, Help, Size, check_value
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel
from fed_ucbvi.problem.mdp import MDP
from fed_ucbvi.problem.units import Units

Agents = Annotated[Size, Help("number of agents, M.")]
EpsP = Annotated[
    float,
    Bounds(at_least=0, below=1, why="Assumption 1"),
    Help("weight of the individual kernels (Assumption 1)."),
]
Seed = Annotated[
    Count,
    Help("of the differences between agents; those of agent i depend only on (seed, i)."),
]
States = Annotated[Size, Help("number of states, S.")]
Actions = Annotated[Size, Help("number of actions, A.")]
Horizon = Annotated[Size, Help("steps of an episode, H.")]
BernoulliRewards = Annotated[bool, Help("whether every reward is 1 or 0, with the same mean.")]
"""Parameters of many environments, with the help texts that they have where an environment gives no other."""
Spread = Annotated[float, Bounds(at_least=0, at_most=10)]
"""Weights are multiplied by at most ``e^10``, about 22,000."""
LABEL = "environment_label"
"""Attribute that :func:`known_as` sets on the function."""

P = ParamSpec("P")
BuilderT = TypeVar("BuilderT", bound=Callable[..., Any])
Rows = Sequence[Sequence[Mapping[int, float]]]
"""``rows[s][a]``: next states and their probabilities."""
Cell = tuple[int, int]


class RandomPart(IntEnum):
    """The first key of an environment's random generators; the second is ``i`` for the parts of agent i."""

    INDIVIDUAL = 0
    DISPLACEMENT = 1
    STRUCTURE = 2
    REWARDS = 3


def generator(seed: int, *part: int) -> np.random.Generator:
    """The random generator of one part: a function of seed and part alone, distinct for distinct arguments."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=part))


class Family(NamedTuple):
    """An environment before heterogeneity is applied.

    Attributes:
        kernel: the kernel at displacement ``x``, an array of shape ``shape``.
        rewards: ``[S,A]`` or ``[H,S,A]``, in [0,1].
        initial: the first state, or its distribution.
        varies: the natural parameter, in words.
        horizon: H, where the function has no such option.
        shape: of the displacement; ``()`` for a single number.
        individual: ``P^{ind,i}`` from the published kernel, i and agent i's generator.
        layout: how to draw the states.
        units: of the original rewards.
        resolved: options as they are recorded, where this differs from the caller's.
    """

    kernel: Callable[[FloatArray], Kernel]
    rewards: FloatArray
    initial: npt.ArrayLike | int = 0
    varies: str = "nothing"
    horizon: int | None = None
    shape: tuple[int, ...] = ()
    individual: Callable[[Kernel, int, np.random.Generator], Kernel] = lambda common, _, rng: random_kernel(
        common, rng
    )
    layout: Mapping[str, object] | None = None
    units: Units = Units()
    resolved: Mapping[str, object] = {}


def known_as(label: str) -> Callable[[BuilderT], BuilderT]:
    """Give a label, for tables and figures, to the function that makes an environment.

    >>> @known_as("Two Rooms")
    ... def two_rooms(agents=2): ...
    >>> two_rooms.environment_label
    'Two Rooms'
    """

    def mark(builder: BuilderT) -> BuilderT:
        setattr(builder, LABEL, label)
        return builder

    return mark


def environment(
    label: str, size: Callable[[Mapping[str, Any]], ProblemSize]
) -> Callable[[Callable[P, Family | Federation]], Callable[P, Federation]]:
    """Make a function that returns a :class:`Family` into one that returns the federation of its agents.

    The function's name is that of the environment; ``label`` is for tables and figures, and ``size`` gives the sizes
    for these options, which are compared with the memory before anything is built. The function gets options
    that fit their annotations (:mod:`fed_ucbvi.core.parameters`), and uses those that it needs. This decorator makes
    the agents differ, and writes the federation's description: its name and all its parameters.
    """

    def decorate(build: Callable[P, Family | Federation]) -> Callable[P, Federation]:
        signature = inspect.signature(build)
        hints = get_type_hints(build, include_extras=True)

        @wraps(build)
        def make(*args: P.args, **kwargs: P.kwargs) -> Federation:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            options = bound.arguments
            for name, value in options.items():
                options[name] = check_value(name, value, hints[name])
            _check_one_way_to_differ(options)
            alike = all(options.get(name, 0) == 0 for name in ("eps_p", "spread", "eps_r"))
            steps = options.get("horizon") or 1  # some environments know their horizon only when they are built
            check_problem(build.__name__, size(options), options["agents"], steps, alike=alike)
            built = build(*bound.args, **bound.kwargs)
            bernoulli_rewards = options.pop("bernoulli_rewards")
            description = {"name": build.__name__, **options}
            if isinstance(built, Family):
                description.update(built.resolved)
                if "spread" in options:
                    description["reward_scale"] = built.units.scale
                    description["reward_offset"] = built.units.offset
                built = _federation(built, description)
            return replace(built, description=description).with_bernoulli_rewards(bernoulli_rewards)

        make.__signature__ = signature.replace(return_annotation="Federation")  # type: ignore[attr-defined]
        make.__annotations__ = {**build.__annotations__, "return": Federation}
        return known_as(label)(make)

    return decorate


def _check_one_way_to_differ(options: Mapping[str, Any]) -> None:
    eps_p = options["eps_p"]
    spread = options.get("spread", 0)
    if eps_p > 0 and spread > 0:
        raise InputError(
            f"eps_p = {eps_p:g} and spread = {spread:g} are two ways to make agents "
            "differ; give one of them and leave the other at 0."
        )


def _federation(built: Family, options: Mapping[str, Any]) -> Federation:
    """The federation of agents around an environment; agent i's part depends on ``(seed, i)`` alone."""
    if options.get("spread", 0.0) > 0:
        return _displaced_agents(built, options)
    agents = options["agents"]
    eps_p = options["eps_p"]
    published = built.kernel(np.zeros(built.shape))
    kernels = []
    for i in range(agents if eps_p > 0 else 1):
        rng = generator(options["seed"], RandomPart.INDIVIDUAL, i)
        kernels.append(built.individual(published, i, rng))
    federation = Federation.mixture(
        published,
        kernels,
        eps_p,
        rewards=built.rewards,
        initial=built.initial,
        horizon=built.horizon or options["horizon"],
        layout=built.layout,
    )
    if eps_p > 0:
        return federation
    # All agents share the tables of one in memory.
    probabilities = federation.probabilities
    initial = federation.initial
    return replace(
        federation,
        probabilities=np.broadcast_to(probabilities, (agents, *probabilities.shape[1:])),
        initial=np.broadcast_to(initial, (agents, *initial.shape[1:])),
    )


def _displaced_agents(built: Family, options: Mapping[str, Any]) -> Federation:
    """Agents whose natural parameter differs by displacements uniform on ``[-spread, spread]``."""
    spread = options["spread"]
    published = built.kernel(np.zeros(built.shape))
    alternating = np.resize([1.0, -1.0], built.shape)  # equal signs could cancel
    displaced = built.kernel(spread * alternating)
    if np.array_equal(displaced.probabilities, published.probabilities):
        raise InputError(
            f"spread = {spread:g} changes nothing: {built.varies} is 0 or 1 in this {options['name']}. "
            "Choose one in between, or spread = 0."
        )
    mdps = []
    for i in range(options["agents"]):
        u = generator(options["seed"], RandomPart.DISPLACEMENT, i).uniform(-1.0, 1.0, built.shape)
        kernel = built.kernel(spread * np.asarray(u))
        mdp = MDP(
            kernel=kernel,
            rewards=built.rewards,
            initial=built.initial,
            horizon=built.horizon or options["horizon"],
        )
        mdps.append(mdp)
    return Federation.from_mdps(mdps, layout=built.layout)


def shifted(probability: float, x: npt.ArrayLike) -> float:
    """The probability whose odds are ``e^x`` times those of ``probability``; 0 and 1 stay.

    >>> shifted(0.5, 0.0), round(shifted(0.5, np.log(3.0)), 12), shifted(1.0, 2.0)
    (0.5, 0.75, 1.0)
    """
    if probability == 1.0:
        return 1.0
    displaced = probability * np.exp(x) / (1.0 + probability * np.expm1(x))
    return min(1.0, float(displaced))


def kernel_of(*steps: Rows, common_support: bool = True) -> Kernel:
    """The kernel with ``P_h(s'|s,a) = steps[h][s][a][s']``; a single table is stationary.

    By default all actions of a state list the same next states: every state that one of the actions lists, even with
    probability zero.

    >>> kernel_of([[{0: 0.5, 1: 0.5}, {0: 1.0}], [{1: 1.0}, {1: 1.0}]]).successors[0, 0].tolist()
    [[0, 1], [0, 1]]
    """
    supports = []
    for h, table in enumerate(steps):
        for s, rows in enumerate(table):
            for a, row in enumerate(rows):
                listed_states = set().union(*rows) if common_support else row
                supports.append((h, s, a, sorted(listed_states)))
    K = max(len(states) for _, _, _, states in supports)
    shape = (len(steps), len(steps[0]), len(steps[0][0]), K)
    successors = np.zeros(shape, dtype=np.int32)
    probabilities = np.zeros(shape)
    for h, s, a, states in supports:
        row = steps[h][s][a]
        padding = states[-1:] * (K - len(states))
        successors[h, s, a] = states + padding
        probabilities[h, s, a, : len(states)] = [row.get(state, 0.0) for state in states]
    return Kernel(successors, probabilities)


def random_kernel(
    kernel: Kernel,
    rng: np.random.Generator,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> Kernel:
    """Weights uniform on (0,1), normalised, on the successors that ``kernel`` lists (and that are ``allowed``)."""
    support = kernel.successors
    usable = distinct(support) if allowed is None else allowed
    weights: FloatArray = np.where(usable, 1.0 - rng.random(support.shape), 0.0)
    return Kernel(support, weights / weights.sum(axis=-1, keepdims=True))


def distinct(successors: IndexArray) -> npt.NDArray[np.bool_]:
    """The slots of a row that are not padding, that is, do not repeat the successor before them."""
    used = np.ones(successors.shape, dtype=bool)
    used[..., 1:] = successors[..., 1:] != successors[..., :-1]
    return used


def grid_layout(
    rows: int,
    columns: int,
    cells: Iterable[Cell],
    start: Cell,
    goals: Iterable[Cell],
    moves: Iterable[Cell],
) -> dict[str, object]:
    """Layout of states that are squares of a grid, and actions that are moves, for drawing."""
    return {
        "rows": rows,
        "columns": columns,
        "cells": [list(cell) for cell in cells],
        "start": list(start),
        "goals": [list(cell) for cell in goals],
        "moves": [list(move) for move in moves],
    }
