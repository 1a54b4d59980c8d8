"""Environments drawn at random: the paper's synthetic one, Garnet, and RandomMDPs of the federated literature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.memory import ProblemSize
from fed_ucbvi.core.parameters import Bounds, Count, Help, Size
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.environments.family import (
    Actions,
    Agents,
    BernoulliRewards,
    EpsP,
    Family,
    Horizon,
    RandomPart,
    Spread,
    States,
    environment,
    generator,
    random_kernel,
)
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

_COMMON = 0
_REWARDS = 1
_INDIVIDUAL = 2
_OFFSETS = 3
"""Parts of the synthetic environment."""
MAX_RANKED = 10**8
"""Up to this many triples (s,a,s') every triple draws a rank; beyond, only the next states are drawn."""
RANK_BYTES = 16
"""Memory of a rank, and of its place in the order."""
AT_ONCE = 10**7
"""Largest number of ranks in memory at a time."""


def _array_size(
    options: Mapping[str, Any],
    next_states: int,
    steps: int = 1,
    *,
    own_tables: bool = False,
) -> ProblemSize:
    """Sizes of an environment that is drawn as arrays."""
    return ProblemSize(
        options["states"],
        options["actions"],
        next_states,
        steps,
        by_row=False,
        own_tables=own_tables,
    )


def _garnet_size(options: Mapping[str, Any]) -> ProblemSize:
    ranks = options["states"] ** 2 * options["actions"]
    block = min(ranks, AT_ONCE) if ranks <= MAX_RANKED else 0
    return replace(_array_size(options, options["branching"]), scratch=RANK_BYTES * block)


@environment(
    "synthetic MDP",
    lambda options: _array_size(options, options["states"], options["horizon"], own_tables=True),
)
def synthetic(
    agents: Agents = 20,
    eps_p: EpsP = 0.0,
    seed: Annotated[
        Count,
        Help("of rewards and kernels; agent i's kernel depends on (seed, i) alone, neither on M nor eps_p."),
    ] = 0,
    *,
    states: States = 5,
    actions: Actions = 5,
    horizon: Horizon = 5,
    eps_r: Annotated[
        float,
        Bounds(at_least=0, below=1, why="Assumption 2"),
        Help(
            "how far agents' rewards may differ (Assumption 2): agent i's reward is (1 - eps_r) r + "
            "eps_r u^i with u^i uniform on [0,1]; the paper has 0."
        ),
    ] = 0.0,
    bernoulli_rewards: BernoulliRewards = False,
) -> Federation:
    """The synthetic environment of the paper's Section 5 with the paper's values as defaults.

    Rewards ``r_h(s,a)`` are uniform on [0,1], rows of the common and of the individual kernels are uniform on
    the simplex (normalised exponentials), and episodes begin in a uniform state.
    """
    M = agents
    sizes = (horizon, states, actions)
    common = _simplex_rows(generator(seed, _COMMON), (*sizes, states))
    individual = []
    for i in range(M):
        individual.append(_simplex_rows(generator(seed, _INDIVIDUAL, i), (*sizes, states)))
    rewards = generator(seed, _REWARDS).random(sizes)[None]
    if eps_r > 0:
        offsets = [generator(seed, _OFFSETS, i).random(sizes) for i in range(M)]
        rewards = (1.0 - eps_r) * rewards + eps_r * np.stack(offsets)
    return Federation.mixture(
        common,
        individual,
        eps_p,
        rewards=rewards,
        initial=np.full(states, 1.0 / states),
        horizon=horizon,
    )


def _simplex_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    weights = rng.standard_exponential(shape)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


@environment("Garnet MDP", _garnet_size)
def garnet(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1): other weights on the same next states."),
    ] = 0.0,
    seed: Annotated[Count, Help("of everything; agent i's part depends on (seed, i) alone.")] = 0,
    *,
    spread: Annotated[
        Spread,
        Help(
            "how far rows differ between agents: the weight of every next state is multiplied by e^x, "
            "with x drawn for each (s,a,s'), and the row normalised."
        ),
    ] = 0.0,
    states: States = 20,
    actions: Actions = 4,
    branching: Annotated[Size, Help("number of next states of every (s,a), at most S.")] = 3,
    horizon: Horizon = 10,
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """A stationary random MDP of the kind of Archibald, McKinnon and Thomas (1995).

    Every (s,a) leads to ``branching`` different states, drawn evenly, with probabilities uniform on the simplex (the
    gaps between sorted uniform cuts). Rewards r(s,a) are uniform on [0,1]; episodes begin in a uniform state.
    Once S² A is above 10⁸, time and memory grow with S A ``branching`` only.
    """
    S = states
    A = actions
    b = branching
    if b > S:
        raise InputError(f"branching must be at most {S}, got {b}.")
    rng = generator(seed, RandomPart.STRUCTURE)
    successors = _subsets(rng, S * A, S, b).reshape(1, S, A, b)
    cuts = np.sort(rng.random((1, S, A, b - 1)), axis=-1)
    rows = np.diff(cuts, axis=-1, prepend=0.0, append=1.0)
    return _weighted(successors, rows, seed)


def _weighted(successors: IndexArray, rows: FloatArray, seed: int) -> Family:
    """Kernels whose weights on the same next states differ; rewards and the first state are uniform."""
    _, S, A, _ = successors.shape

    def kernel(x: FloatArray) -> Kernel:
        weights = rows * np.exp(x)
        return Kernel(successors, weights / weights.sum(axis=-1, keepdims=True))

    return Family(
        kernel=kernel,
        rewards=generator(seed, RandomPart.REWARDS).random((S, A)),
        initial=np.full(S, 1.0 / S),
        varies="every probability",
        shape=rows.shape,
    )


def _subsets(rng: np.random.Generator, rows: int, n: int, b: int) -> IndexArray:
    """Independent subsets of ``b`` of the numbers 0..n-1, each uniform among all; ascending, shape ``(rows, b)``."""
    if rows * n > MAX_RANKED:
        return _drawn_subsets(rng, rows, n, b)
    chosen = np.empty((rows, b), dtype=np.int32)
    block = max(1, AT_ONCE // n)
    for start in range(0, rows, block):
        ranks = rng.random((min(block, rows - start), n))
        chosen[start : start + block] = ranks.argpartition(b - 1, axis=-1)[:, :b]
    return np.sort(chosen, axis=-1)


def _drawn_subsets(rng: np.random.Generator, rows: int, n: int, b: int) -> IndexArray:
    """Subsets of the law of :func:`_subsets` by Floyd's method (Bentley and Floyd 1987), with b draws for each.

    For j = n-b, ..., n-1 a number of 0..j is drawn; it joins the subset, or j does if it is there already.
    """
    chosen = np.empty((rows, b), dtype=np.int32)
    for k, j in enumerate(range(n - b, n)):
        drawn = rng.integers(0, j + 1, size=rows, dtype=np.int32)
        taken = (chosen[:, :k] == drawn[:, None]).any(axis=1)
        chosen[:, k] = np.where(taken, j, drawn)
    return np.sort(chosen, axis=-1)


@environment("RandomMDPs", lambda options: _array_size(options, options["states"]))
def random_mdps(
    agents: Agents = 20,
    eps_p: Annotated[
        EpsP,
        Help("weight of the individual kernels (Assumption 1), the paper's kappa."),
    ] = 0.0,
    seed: Annotated[Count, Help("of everything; agent i's part depends on (seed, i) alone.")] = 0,
    *,
    spread: Annotated[
        Spread,
        Help(
            "how far rows differ between agents: the weight of every next state is multiplied by e^x, "
            "with x drawn for each (s,a,s'), and the row normalised."
        ),
    ] = 0.0,
    states: Annotated[int, Bounds(2), Help("S, at least 2.")] = 5,
    actions: Actions = 5,
    horizon: Horizon = 10,
    variant: Annotated[Literal["overlapping", "disjoint"], Help("overlapping or disjoint.")] = "overlapping",
    bernoulli_rewards: BernoulliRewards = False,
) -> Family:
    """RandomMDPs of Jin, Peng, Yang, Wang and Zhang (2022), with episodes of H steps.

    All kernels are stationary, with weights uniform on (0,1), normalised. In the variant ``overlapping`` every (s,a)
    may lead to every state. In ``disjoint``, with which the paper studies how results depend on kappa, each state is
    among the next states of (s,a) under the common kernel with probability 1/2 (at least one is, and at least one is
    not), and individual kernels lead to the others. Rewards r(s,a) are uniform on [0,1], and episodes begin in a
    uniform state.

    (In the paper an agent goes on for ever and later rewards are discounted by 0.9. H = 10 steps see as far. Its
    first agent has the common kernel itself; here all agents differ alike.)
    """
    S = states
    A = actions
    rng = generator(seed, RandomPart.STRUCTURE)
    disjoint = variant == "disjoint"
    if disjoint:
        common = _halves(rng, S, A)
    else:
        common = np.ones((1, S, A, S), dtype=np.bool_)
    everywhere = np.broadcast_to(np.arange(S, dtype=np.int32), common.shape)
    uniform = Kernel(everywhere, common / common.sum(axis=-1, keepdims=True))
    rows = random_kernel(uniform, rng, common).probabilities
    elsewhere = ~common if disjoint else common

    def individual(published: Kernel, _: int, own_rng: np.random.Generator) -> Kernel:
        return random_kernel(published, own_rng, elsewhere)

    return _weighted(everywhere, rows, seed)._replace(individual=individual)


def _halves(rng: np.random.Generator, S: int, A: int) -> npt.NDArray[np.bool_]:
    """Half of the states for each (s,a), about: every state by a coin; never none and never all, ``(1, S, A, S)``."""
    chosen: npt.NDArray[np.bool_] = rng.random((1, S, A, S)) < 0.5
    spare = rng.integers(S, size=(1, S, A, 1)) == np.arange(S)
    chosen |= spare & ~chosen.any(axis=-1, keepdims=True)
    chosen &= ~(spare & chosen.all(axis=-1, keepdims=True))
    return chosen
