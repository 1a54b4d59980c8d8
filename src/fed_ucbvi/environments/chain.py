"""A chain: little or nothing to gain on the left, much on the right, and moves that may fail."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_choice, check_integer, check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, family, kernel_of, line_layout, shifted
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

VARIANTS = ("rlberry", "tabularl")


@known_as("chain")
def chain(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    length: int = 5,
    fail: float | None = None,
    horizon: int | None = None,
    variant: str = "rlberry",
    bernoulli_rewards: bool = False,
) -> Federation:
    """The chain of rlberry-scool, or the stochastic chain of TabulaRL (Osband).

    Action 0 goes one state to the left, action 1 one to the right; a move that fails goes the other way, and one that
    would leave the chain stays. rlberry-scool's: both moves fail with probability 0.1; every step in the first state
    pays 0.05, every step in the last one 1. TabulaRL's: moves to the right fail with probability 1/length, those to
    the left never; moving right in the last state pays 1. (There rewards are Gaussian with deviation 1, and moving
    left in the first state pays one of mean 0; here they are their means.) Episodes begin in the first state.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1), which move to either side.
        seed: of the differences between agents; those of agent i depend only on ``(seed, i)``.
        spread: how far the probability of failing differs between agents: its odds are ``e^x`` times those of
            ``fail``.
        length: number of states, at least 2.
        fail: probability that a move fails; by default 0.1, and 1/length in TabulaRL's variant.
        horizon: H; by default twice the length, and the length in TabulaRL's variant.
        variant: rlberry or tabularl.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> round(float(chain(agents=2).common.solve().V[0, 0]), 4)
    4.7939
    """
    L = check_integer("length", length, at_least=2)
    check_choice("variant", variant, VARIANTS)
    both_fail = variant == "rlberry"
    default_fail, default_horizon = (0.1, 2 * L) if both_fail else (1.0 / L, L)
    q = check_number("fail", default_fail if fail is None else fail, at_least=0, at_most=1)
    H = check_positive_integer("horizon", default_horizon if horizon is None else horizon)
    rewards = np.zeros((L, 2))
    if both_fail:
        rewards[0], rewards[L - 1] = 0.05, 1.0
    else:
        rewards[L - 1, 1] = 1.0

    def kernel(x: FloatArray) -> Kernel:
        p = shifted(q, x)
        ends = [(max(s - 1, 0), min(s + 1, L - 1)) for s in range(L)]
        wrong = p if both_fail else 0.0
        return kernel_of([[{left: 1.0 - wrong, right: wrong}, {left: p, right: 1.0 - p}] for left, right in ends])

    environment = Environment(
        name="chain",
        options={"length": L, "fail": q, "horizon": H, "variant": variant},
        kernel=kernel,
        varies="the probability of failing",
        rewards=rewards,
        initial=0,
        horizon=H,
        layout=line_layout(L),
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)
