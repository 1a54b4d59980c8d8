"""RandomMDPs of the federated literature: one random kernel for all, mixed with a random one of each agent's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import check_choice, check_integer, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, Part, family, random_kernel
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.environments.seeds import generator
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

VARIANTS = ("overlapping", "disjoint")


@known_as("RandomMDPs")
def random_mdps(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    states: int = 5,
    actions: int = 5,
    horizon: int = 10,
    variant: str = "overlapping",
    bernoulli_rewards: bool = False,
) -> Federation:
    """RandomMDPs of Jin, Peng, Yang, Wang and Zhang (2022), with episodes of H steps.

    All kernels are stationary, with weights uniform on (0,1), normalised. In the variant ``overlapping`` every (s,a)
    may lead to every state. In ``disjoint``, with which the paper studies how results depend on kappa, each state is
    among the next states of (s,a) under the common kernel with probability 1/2 (at least one is, and at least one is
    not), and individual kernels lead to the others. Rewards r(s,a) are uniform on [0,1], and episodes begin in a
    uniform state.

    (In the paper an agent goes on for ever and later rewards are discounted by 0.9. H = 10 steps see as far. Its
    first agent has the common kernel itself; here all agents differ alike.)

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1), the paper's kappa.
        seed: of everything; agent i's part depends on ``(seed, i)`` alone.
        spread: how far rows differ between agents: the weight of every next state is multiplied by ``e^x``, with x
            drawn for each (s,a,s'), and the row normalised.
        states: S, at least 2.
        actions: A.
        horizon: H.
        variant: overlapping or disjoint.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> random_mdps(agents=3, eps_p=0.4).probabilities.shape
    (3, 1, 5, 5, 5)
    """
    S = check_integer("states", states, at_least=2)
    A = check_positive_integer("actions", actions)
    H = check_positive_integer("horizon", horizon)
    root = check_integer("seed", seed)
    check_choice("variant", variant, VARIANTS)
    rng = generator(root, Part.STRUCTURE)
    disjoint = variant == "disjoint"
    common = _halves(rng, S, A) if disjoint else np.ones((1, S, A, S), dtype=np.bool_)
    everywhere = np.broadcast_to(np.arange(S, dtype=np.int32), common.shape)
    rows = random_kernel(Kernel(everywhere, common / common.sum(axis=-1, keepdims=True)), rng, common).probabilities

    def kernel(x: FloatArray) -> Kernel:
        weights = rows * np.exp(x)
        return Kernel(everywhere, weights / weights.sum(axis=-1, keepdims=True))

    environment = Environment(
        name="random_mdps",
        options={"states": S, "actions": A, "horizon": H, "variant": variant},
        kernel=kernel,
        varies="every probability",
        rewards=generator(root, Part.REWARDS).random((S, A)),
        initial=np.full(S, 1.0 / S),
        horizon=H,
        shape=common.shape,
        individual=lambda published, _, own: random_kernel(published, own, ~common if disjoint else common),
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)


def _halves(rng: np.random.Generator, S: int, A: int) -> npt.NDArray[np.bool_]:
    """Half of the states for each (s,a), about: every state by a coin; never none and never all, ``(1, S, A, S)``."""
    chosen: npt.NDArray[np.bool_] = rng.random((1, S, A, S)) < 0.5
    spare = rng.integers(S, size=(1, S, A, 1)) == np.arange(S)
    chosen |= spare & ~chosen.any(axis=-1, keepdims=True)
    chosen &= ~(spare & chosen.all(axis=-1, keepdims=True))
    return chosen
