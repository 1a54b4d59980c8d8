"""The paper's synthetic environment: everything drawn uniformly at random."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.environments.seeds import generator
from fed_ucbvi.problem.federation import Federation, check_eps_p

_COMMON, _REWARDS, _INDIVIDUAL, _OFFSETS = range(4)


@known_as("synthetic MDP")
def synthetic(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    states: int = 5,
    actions: int = 5,
    horizon: int = 5,
    eps_r: float = 0.0,
    bernoulli_rewards: bool = False,
) -> Federation:
    """The synthetic environment of the paper's Section 5 with the paper's values as defaults.

    Rewards ``r_h(s,a)`` are uniform on [0,1], rows of the common and of the individual kernels are uniform on
    the simplex (normalised exponentials), and episodes begin in a uniform state.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1).
        seed: of rewards and kernels; agent i's kernel depends on ``(seed, i)`` alone, neither on M nor eps_p.
        states: S.
        actions: A.
        horizon: H.
        eps_r: how far agents' rewards may differ (Assumption 2): agent i's reward is
            ``(1 - eps_r) r + eps_r u^i`` with ``u^i`` uniform on [0,1]; the paper has 0.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> synthetic(agents=3, eps_p=0.1, seed=1).probabilities.shape
    (3, 5, 5, 5, 5)
    """
    M = check_positive_integer("agents", agents)
    S = check_positive_integer("states", states)
    A = check_positive_integer("actions", actions)
    H = check_positive_integer("horizon", horizon)
    root = check_integer("seed", seed)
    check_number("eps_r", eps_r, at_least=0, below=1, why="Assumption 2")
    common = _simplex_rows(generator(root, _COMMON), (H, S, A, S))
    base = generator(root, _REWARDS).random((H, S, A))
    individual = [_simplex_rows(generator(root, _INDIVIDUAL, i), (H, S, A, S)) for i in range(M)]
    if eps_r > 0:
        offsets = [generator(root, _OFFSETS, i).random((H, S, A)) for i in range(M)]
        rewards = (1.0 - eps_r) * base[None] + eps_r * np.stack(offsets)
    else:
        rewards = base[None]
    parameters = {
        "agents": M,
        "eps_p": check_eps_p(eps_p),
        "seed": root,
        "states": S,
        "actions": A,
        "horizon": H,
        "eps_r": float(eps_r),
    }
    return Federation.mixture(
        common,
        individual,
        eps_p,
        rewards=rewards,
        initial=np.full(S, 1.0 / S),
        horizon=H,
        description={"name": "synthetic", **parameters},
    ).with_bernoulli_rewards(bernoulli_rewards)


def _simplex_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    weights = rng.standard_exponential(shape)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
