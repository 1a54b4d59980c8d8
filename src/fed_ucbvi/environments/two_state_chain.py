"""The two-state chain that shows why heterogeneity costs ``eps_p H^2`` (``lem:performance-difference-lb``)."""

from __future__ import annotations

import numpy as np

from fed_ucbvi.core.errors import check_number, check_positive_integer
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments.families import Environment, family, kernel_of, shifted
from fed_ucbvi.environments.names import known_as
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.kernel import Kernel


@known_as("two-state chain", formerly="two-state-chain")
def two_state_chain(
    agents: int = 2,
    eps_p: float = 0.0,
    seed: int = 0,
    *,
    spread: float = 0.0,
    leave: float = 0.0,
    horizon: int = 10,
    bernoulli_rewards: bool = False,
) -> Federation:
    """The pair of MDPs of the paper's ``lem:performance-difference-lb``, as agents of one federation.

    There is one action. Every step in the first state pays 1 and leaves it with probability p; the second state pays
    nothing and is never left. A value is ``1 + (1-p) + ... + (1-p)^{H-1} = (1 - (1-p)^H) / p``. Under the individual
    kernels even agents never leave and odd agents leave at once, so with ``leave = 0`` agents 0 and 1 are the lemma's
    two MDPs, p = 0 and p = eps_p, and their values differ by ``H - (1 - (1-eps_p)^H) / eps_p``, which is at least
    ``eps_p H^2 / 4`` for ``eps_p < 2/H``.

    Args:
        agents: M.
        eps_p: weight of the individual kernels (Assumption 1).
        seed: of the agents' p where ``spread`` is above zero; agent i's depends on ``(seed, i)`` alone.
        spread: how far p differs between agents: its odds are ``e^x`` times those of ``leave``.
        leave: p of the common kernel.
        horizon: H.
        bernoulli_rewards: whether every reward is 1 or 0, with the same mean.

    >>> pair = two_state_chain(eps_p=0.1)
    >>> [round(float(pair.agent(i).solve().V[0, 0]), 6) for i in (0, 1)], round((1 - 0.9**10) / 0.1, 6)
    ([10.0, 6.513216], 6.513216)
    """
    q = check_number("leave", leave, at_least=0, at_most=1)
    H = check_positive_integer("horizon", horizon)

    def leaving(p: float) -> Kernel:
        return kernel_of([[{0: 1.0 - p, 1: p}], [{1: 1.0}]])

    def kernel(x: FloatArray) -> Kernel:
        return leaving(shifted(q, x))

    environment = Environment(
        name="two_state_chain",
        options={"leave": q, "horizon": H},
        kernel=kernel,
        varies="the probability of leaving",
        rewards=np.array([[1.0], [0.0]]),
        initial=0,
        horizon=H,
        individual=lambda _, i, __: leaving(float(i % 2)),
    )
    return family(environment, agents, eps_p, seed, spread, bernoulli_rewards)
