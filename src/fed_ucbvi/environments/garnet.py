"""Garnet: random MDPs in which an action leads to a few states only."""

from __future__ import annotations

import numpy as np

from fed_ucbvi._types import FloatArray
from fed_ucbvi.environments.families import Environment, Part, family
from fed_ucbvi.environments.seeds import generator
from fed_ucbvi.errors import check_integer, check_positive_integer
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel


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
) -> Federation:
    """A stationary random MDP of the kind of Archibald, McKinnon and Thomas (1995).

    Every (s,a) leads to ``branching`` different states, drawn evenly, with probabilities uniform on the simplex (the
    gaps between sorted uniform cuts). Rewards r(s,a) are uniform on [0,1]; episodes begin in a uniform state.

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

    >>> garnet(agents=2, spread=0.3).probabilities.shape
    (2, 1, 20, 4, 3)
    """
    S = check_positive_integer("states", states)
    A = check_positive_integer("actions", actions)
    b = check_positive_integer("branching", branching, at_most=S)
    H = check_positive_integer("horizon", horizon)
    root = check_integer("seed", seed)
    rng = generator(root, Part.STRUCTURE)
    ranks = rng.random((1, S, A, S)).argsort(axis=-1)
    successors = np.sort(ranks[..., :b], axis=-1).astype(np.int32)
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
    return family(environment, agents, eps_p, seed, spread)
