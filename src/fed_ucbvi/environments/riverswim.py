"""RiverSwim: a swimmer against a current, with a small reward downstream and a large one far upstream."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_choice, check_integer, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, family, kernel_of, line_layout
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

SWIM: dict[str, dict[str, tuple[float, float, float]]] = {
    "tabularl": {"first": (0.6, 0.4, 0.0), "between": (0.35, 0.6, 0.05), "last": (0.0, 0.6, 0.4)},
    "strehl-littman": {"first": (0.3, 0.7, 0.0), "between": (0.3, 0.6, 0.1), "last": (0.0, 0.3, 0.7)},
}
"""Probabilities that swimming right moves one state up, stays, or drifts one state down."""


@known_as("RiverSwim")
def riverswim(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    states: int = 6,
    horizon: int = 20,
    variant: str = "tabularl",
    bernoulli_rewards: bool = False,
) -> Federation:
    """RiverSwim of Strehl and Littman (2008), in their version or in that of TabulaRL (Osband).

    Action 0 (left) always drifts one state down. Action 1 (right) moves up, stays or drifts down. Action 0 in the
    first state pays a little, action 1 in the last state pays
    1. In TabulaRL's version swimming up, staying and drifting
    have probabilities 0.35, 0.6 and 0.05, and episodes begin in the first state; in Strehl and Littman's 0.3, 0.6 and
    0.1, rewards are 5 and 10000 (divided by 10000 here), and episodes begin in the second or third state.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1), which move to neighbouring states or stay.
        seed: of the differences between agents; those of agent i depend only on ``(seed, i)``.
        spread: how far the current differs between agents: a current x makes swimming up ``e^{-x}`` and drifting
            down ``e^x`` times as likely, relative to staying.
        states: S, at least 3.
        horizon: H.
        variant: tabularl or strehl-littman.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> round(float(riverswim(agents=2).common.solve().V[0, 0]), 4)
    3.3973
    """
    S = check_integer("states", states, at_least=3)
    H = check_positive_integer("horizon", horizon)
    check_choice("variant", variant, SWIM)
    original = variant == "strehl-littman"
    rewards = np.zeros((S, 2))
    rewards[0, 0] = 5e-4 if original else 5e-3
    rewards[S - 1, 1] = 1.0
    start = np.zeros(S)
    start[[1, 2] if original else [0]] = 0.5 if original else 1.0

    def kernel(x: FloatArray) -> Kernel:
        places = ["first", *["between"] * (S - 2), "last"]
        return kernel_of([[{max(s - 1, 0): 1.0}, _swim(s, variant, place, x)] for s, place in enumerate(places)])

    environment = Environment(
        name="riverswim",
        options={"states": S, "horizon": H, "variant": variant},
        kernel=kernel,
        varies="the chance of moving",
        rewards=rewards,
        initial=start,
        horizon=H,
        layout=None if original else line_layout(S),
        reward_scale=10000.0 if original else 1.0,
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)


def _swim(s: int, variant: str, place: str, x: FloatArray) -> dict[int, float]:
    """Where swimming right in state s leads when the current is x."""
    up, stay, down = SWIM[variant][place]
    weights = {s - 1: down * float(np.exp(x)), s: stay, s + 1: up * float(np.exp(-x))}
    total = sum(weights.values())
    return {state: weight / total for state, weight in weights.items() if weight > 0}
