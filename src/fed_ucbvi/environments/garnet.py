"""Garnet: random MDPs in which an action leads to a few states only."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_integer, check_positive_integer
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.environments.families import Environment, Part, family
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.environments.seeds import generator
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

MAX_RANKED = 10**8
"""Up to this many triples (s,a,s') every triple draws a rank; beyond, only the next states are drawn."""
AT_ONCE = 10**7
"""How many ranks are held at a time."""


@known_as("Garnet MDP")
def garnet(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    states: int = 20,
    actions: int = 4,
    branching: int = 3,
    horizon: int = 10,
    bernoulli_rewards: bool = False,
) -> Federation:
    """A stationary random MDP of the kind of Archibald, McKinnon and Thomas (1995).

    Every (s,a) leads to ``branching`` different states, drawn evenly, with probabilities uniform on the simplex (the
    gaps between sorted uniform cuts). Rewards r(s,a) are uniform on [0,1]; episodes begin in a uniform state.
    Once S² A is above 10⁸, time and memory grow with S A ``branching`` only.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1): other weights on the same next states.
        seed: of everything; agent i's part depends on ``(seed, i)`` alone.
        spread: how far rows differ between agents: the weight of every next state is multiplied by ``e^x``, with x
            drawn for each (s,a,s'), and the row normalised.
        states: S.
        actions: A.
        branching: number of next states of every (s,a), at most S.
        horizon: H.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> garnet(agents=2, spread=0.3).probabilities.shape
    (2, 1, 20, 4, 3)
    """
    S = check_positive_integer("states", states)
    A = check_positive_integer("actions", actions)
    b = check_positive_integer("branching", branching, at_most=S)
    H = check_positive_integer("horizon", horizon)
    root = check_integer("seed", seed)
    rng = generator(root, Part.STRUCTURE)
    successors = _subsets(rng, S * A, S, b).reshape(1, S, A, b)
    cuts = np.sort(rng.random((1, S, A, b - 1)), axis=-1)
    rows = np.diff(cuts, axis=-1, prepend=0.0, append=1.0)

    def kernel(x: FloatArray) -> Kernel:
        weights = rows * np.exp(x)
        return Kernel(successors, weights / weights.sum(axis=-1, keepdims=True))

    environment = Environment(
        name="garnet",
        options={"states": S, "actions": A, "branching": b, "horizon": H},
        kernel=kernel,
        varies="every probability",
        rewards=generator(root, Part.REWARDS).random((S, A)),
        initial=np.full(S, 1.0 / S),
        horizon=H,
        shape=rows.shape,
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)


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
    """The same in law by Floyd's method (Bentley and Floyd 1987), with b draws for each subset.

    For j = n-b, ..., n-1 a number of 0..j is drawn; it joins the subset, or j does if it is there already.
    """
    chosen = np.empty((rows, b), dtype=np.int32)
    for k, j in enumerate(range(n - b, n)):
        drawn = rng.integers(0, j + 1, size=rows, dtype=np.int32)
        taken = (chosen[:, :k] == drawn[:, None]).any(axis=1)
        chosen[:, k] = np.where(taken, j, drawn)
    return np.sort(chosen, axis=-1)
