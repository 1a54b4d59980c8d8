"""The terms of a bound on regret, and a check of the sizes on which it depends."""

from __future__ import annotations

from typing import NamedTuple

from fed_ucbvi.core.errors import InputError, check_number, check_positive_integer

MAX_EPISODES = 2.0**200
"""Searches over T stop here."""


class RegretBound(NamedTuple):
    """An upper bound on regret, term by term; averaged over agents, in units of reward.

    Attributes:
        exploration: of order ``sqrt(H^3 S A T / M)``, the leading term for M agents that learn together.
        burn_in: of order ``H^3 S^2 A``; it does not grow with T, except by logarithms.
        kernels: linear in T, from learning in kernels that differ by eps_p.
        rewards: linear in T, from rewards that differ by eps_r.
        reduction_kernels: ``2 T eps_p H^2``, from comparing in the agents' MDPs, not in the common one.
        reduction_rewards: ``2 T eps_r H``, the same for rewards.
    """

    exploration: float
    burn_in: float
    kernels: float
    rewards: float
    reduction_kernels: float
    reduction_rewards: float

    @property
    def common(self) -> float:
        """The bound on the common regret (``def:common_regret``), which runs report."""
        return self.exploration + self.burn_in + self.kernels + self.rewards

    @property
    def federated(self) -> float:
        """The bound on the federated regret (``def:regret``), which ``thm:regret`` is about."""
        return self.common + self.reduction_kernels + self.reduction_rewards

    @property
    def heterogeneity(self) -> float:
        """All that eps_p and eps_r cost the federated regret."""
        return self.kernels + self.rewards + self.reduction_kernels + self.reduction_rewards


def check_sizes(S: int, A: int, H: int, M: int, T: int, eps_p: float, eps_r: float, delta: float) -> None:
    """Raise unless these can be the sizes, the heterogeneity and the failure probability of a run."""
    for name, size in (("states", S), ("actions", A), ("horizon", H), ("agents", M), ("episodes", T)):
        check_positive_integer(name, size)
    check_number("eps_p", eps_p, at_least=0, at_most=1, why="Assumption 1")
    check_number("eps_r", eps_r, at_least=0, at_most=1, why="Assumption 2")
    check_number("delta", delta, above=0, below=1)
    if T > MAX_EPISODES * 2:
        raise InputError(f"episodes must be at most 2^201, got {T:.3g}.")
