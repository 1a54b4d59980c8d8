"""SixArms: six rooms behind doors; the more a room pays, the less often its door opens."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, family, kernel_of, shifted
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel

ARMS = 6
OPENS = (1.0, 0.15, 0.10, 0.05, 0.03, 0.01)
PAYS = (50.0, 133.0, 300.0, 800.0, 1660.0, 6000.0)
"""Probability that the door of each room opens, and what a step in that room pays."""
WAY_OUT = 4
"""The one action that leaves the first room."""


@known_as("SixArms", formerly="sixarms")
def six_arms(
    agents: int = 20,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    horizon: int = 20,
    bernoulli_rewards: bool = False,
) -> Federation:
    """SixArms of Strehl and Littman (2008), with rewards divided by 6000.

    In the hall, state 0, action a tries the door of room a + 1, which opens with probability 1, 0.15, 0.1, 0.05, 0.03
    or 0.01; otherwise the agent stays in the
    hall. In room 1 every action but 4 stays and pays 50; in room i >= 2 only
    action i - 1 stays, and pays 133, 300, 800, 1660 or 6000. All other actions lead back to the hall.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1): from the hall to anywhere, from a room to the hall or
            into the room again.
        seed: of the differences between agents; those of agent i depend only on ``(seed, i)``.
        spread: how far the doors differ between agents: the odds that a door opens are ``e^x`` times those above,
            with x drawn for each door (the first always opens).
        horizon: H.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> round(float(six_arms(agents=2).common.solve().V[0, 0]), 4)
    1.7907
    """
    H = check_positive_integer("horizon", horizon)
    staying = [[a for a in range(ARMS) if a != WAY_OUT], *([room - 1] for room in range(2, ARMS + 1))]
    rewards = np.zeros((ARMS + 1, ARMS))
    for room, actions in enumerate(staying, start=1):
        rewards[room, actions] = PAYS[room - 1] / PAYS[-1]

    def kernel(x: FloatArray) -> Kernel:
        opens = [shifted(p, one) for p, one in zip(OPENS, x, strict=True)]
        hall = [{0: 1.0 - p, a + 1: p} for a, p in enumerate(opens)]
        rooms = [
            [{room: 1.0} if a in actions else {0: 1.0} for a in range(ARMS)]
            for room, actions in enumerate(staying, start=1)
        ]
        return kernel_of([hall, *rooms])

    environment = Environment(
        name="six_arms",
        options={"horizon": H},
        kernel=kernel,
        varies="the probability that a door opens",
        rewards=rewards,
        initial=0,
        horizon=H,
        shape=(ARMS,),
        reward_scale=PAYS[-1],
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)
