"""A finite-horizon Markov decision process as a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
from fed_ucbvi.core.text import html_table
from fed_ucbvi.core.types import FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.dynamic_programming import optimal_values, policy_values
from fed_ucbvi.problem.kernel import ROW_SUM_ROUNDING, ROW_SUM_TOLERANCE, Kernel, frozen_floats, real_numbers
from fed_ucbvi.problem.policies import checked_policy
from fed_ucbvi.problem.reward_law import by_step, check_variances, none_if_zero


class Solution(NamedTuple):
    """Exact solution of an MDP: ``Q*[H,S,A]``, ``V*[H+1,S]`` (``V*_{H+1} = 0``) and an optimal policy ``[H,S]``."""

    Q: FloatArray
    V: FloatArray
    policy: IndexArray


@dataclass(frozen=True, eq=False)
class MDP:
    """``(S, A, H, P, r)`` of the paper's Section 3 with an initial distribution.

    Args:
        kernel: ``P[S,A,S]`` (stationary), ``P[H,S,A,S]``, or a :class:`Kernel` stored by support.
        rewards: ``r[S,A]`` (stationary) or ``r[H,S,A]``, in ``[0,1]``: the rewards, or their means if random.
        initial: distribution ``mu[S]`` of the first state, or the first state itself.
        horizon: ``H``; may be left out where the kernel or the reward depends on the step.
        reward_variances: where rewards are random, their variances, ``[S,A]`` or ``[H,S,A]``, or ``"bernoulli"``:
            every reward is 1 or 0. See :mod:`fed_ucbvi.problem.reward_law`. The attribute is None if nothing is
            random, also where all variances are 0; otherwise it has as many steps as ``rewards``.

    >>> coin = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [1.0]], initial=0, horizon=3)
    >>> coin.solve().V[0]
    array([1.25, 3.  ])
    """

    kernel: Kernel
    rewards: FloatArray
    initial: FloatArray
    horizon: int
    reward_variances: FloatArray | None

    def __init__(
        self,
        kernel: Kernel | npt.ArrayLike,
        rewards: npt.ArrayLike,
        initial: npt.ArrayLike | int,
        horizon: int | None = None,
        reward_variances: npt.ArrayLike | str | None = None,
    ) -> None:
        if isinstance(kernel, Kernel):
            stored = kernel
        else:
            stored = Kernel.from_dense(kernel)
        table = check_rewards(rewards, stored.states, stored.actions)
        variances = None
        if reward_variances is not None:
            variances = none_if_zero(check_variances(reward_variances, table))
        if variances is not None:
            table = frozen_floats(np.broadcast_to(table, variances.shape))
        steps = horizon_of(stored.steps, table.shape[0], horizon)
        first = check_initial(initial, stored.states)
        vars(self).update(
            kernel=stored,
            rewards=table,
            initial=first,
            horizon=steps,
            reward_variances=variances,
        )

    @classmethod
    def unknown(cls, states: int, actions: int, horizon: int) -> MDP:
        """An MDP of which only the sizes are known: its rewards, and so all its values, are NaN."""
        state_numbers = np.arange(states, dtype=np.int32)[None, :, None, None]
        stay = np.broadcast_to(state_numbers, (1, states, actions, 1))
        kernel = Kernel(stay, np.ones(stay.shape))
        mdp = cls(kernel, np.zeros((states, actions)), 0, horizon)
        vars(mdp)["rewards"] = frozen_floats(np.full(mdp.rewards.shape, np.nan))
        return mdp

    def with_end(self) -> MDP:
        """This MDP with one more state, number S, which no transition enters or leaves."""
        one_state_more = ((0, 0), (0, 1), (0, 0))
        successors = np.pad(self.kernel.successors, (*one_state_more, (0, 0)), constant_values=self.states)
        probabilities = np.pad(self.kernel.probabilities, (*one_state_more, (0, 0)))
        probabilities[:, -1, :, 0] = 1.0
        variances = None
        if self.reward_variances is not None:
            variances = np.pad(self.reward_variances, one_state_more)
        return MDP(
            kernel=Kernel(successors, probabilities),
            rewards=np.pad(self.rewards, one_state_more),
            initial=np.append(self.initial, 0.0),
            horizon=self.horizon,
            reward_variances=variances,
        )

    @property
    def states(self) -> int:
        """S."""
        return self.kernel.states

    @property
    def actions(self) -> int:
        """A."""
        return self.kernel.actions

    def solve(self) -> Solution:
        """Optimal values and policy by backward induction (``eq:optimal_bellman_equations``)."""
        Q, V, policy = self._solution
        return Solution(Q=Q.copy(), V=V.copy(), policy=policy.copy())

    @cached_property
    def _solution(self) -> Solution:
        kernel = self.kernel
        Q, V, policy = optimal_values(kernel.successors, kernel.probabilities, self.rewards, self.horizon)
        return Solution(Q=Q, V=V, policy=policy)

    def evaluate(self, policy: npt.ArrayLike) -> FloatArray:
        """``V^pi[H+1,S]`` (``eq:bellman_equations``).

        ``policy`` is one action for each step and state, integers ``[H,S]``; or by action, ``[H,S,A]``: the
        probabilities of actions, or truth values for a set of actions of which one is drawn uniformly at every visit.
        """
        kernel = self.kernel
        return policy_values(
            kernel.successors,
            kernel.probabilities,
            self.rewards,
            self._checked_policy(policy),
        )

    def occupancy(self, policy: npt.ArrayLike) -> FloatArray:
        """``d_h(s)``, the probability of state ``s`` at step ``h`` under ``policy``; shape ``(H, S)``."""
        from fed_ucbvi.problem.agent_tables import occupancies  # compiled

        kernel = self.kernel
        by_agent = occupancies(
            kernel.successors,
            kernel.probabilities[..., None],
            self.initial[:, None],
            self._checked_policy(policy),
        )
        return by_agent[..., 0]

    def __repr__(self) -> str:
        return f"<MDP: S = {self.states:,}, A = {self.actions:,}, H = {self.horizon:,}>"

    def _repr_html_(self) -> str:
        kernel = "stationary" if self.kernel.steps == 1 else "depends on the step"
        rewards = "stationary" if len(self.rewards) == 1 else "depend on the step"
        if self.reward_variances is not None:
            rewards = f"random, {rewards}"
        rows = [
            ("states", f"{self.states:,}"),
            ("actions", f"{self.actions:,}"),
            ("horizon", f"{self.horizon:,}"),
            ("kernel", kernel),
            ("next states", f"at most {self.kernel.width:,}"),
            ("rewards", rewards),
            ("first states", f"{np.count_nonzero(self.initial):,} possible"),
        ]
        return html_table("MDP", rows)

    def _checked_policy(self, policy: npt.ArrayLike) -> PolicyArray:
        return checked_policy("a policy", np.asarray(policy), self.horizon, self.states, self.actions)


def check_rewards(rewards: npt.ArrayLike, states: int, actions: int) -> FloatArray:
    """Rewards as a read-only ``(steps, S, A)`` table, or an error."""
    table = by_step("rewards", rewards, states, actions)
    if table.min() < 0 or table.max() > 1:
        raise InputError(
            f"rewards must lie in [0, 1]; these span [{table.min():.6g}, {table.max():.6g}]. "
            "Rescale them: r -> (r - min) / (max - min)."
        )
    return frozen_floats(table)


def check_initial(initial: npt.ArrayLike | int, states: int) -> FloatArray:
    """The initial distribution as a read-only ``(S,)`` array, or an error."""
    if np.ndim(initial) == 0:
        start = check_integer("the initial state", initial, at_most=states - 1)
        distribution = np.zeros(states)
        distribution[start] = 1.0
    else:
        distribution = real_numbers("the initial distribution", initial)
        if distribution.shape != (states,):
            raise InputError(
                f"the initial distribution must have shape (S,) = ({states},), got {distribution.shape}."
            )
        if not np.isfinite(distribution).all() or distribution.min() < 0:
            raise InputError("the initial distribution must hold finite, non-negative numbers.")
        total = distribution.sum()
        if abs(total - 1) > ROW_SUM_TOLERANCE:
            raise InputError(f"the initial distribution sums to {total:.12g}, not to 1.")
        if abs(total - 1) > ROW_SUM_ROUNDING:
            distribution = distribution / total
    return frozen_floats(distribution)


def horizon_of(kernel_steps: int, reward_steps: int, horizon: int | None) -> int:
    """H from the tables that depend on the step and from ``horizon``, or an error where they disagree."""
    horizons = {steps for steps in (kernel_steps, reward_steps) if steps > 1}
    if horizon is not None:
        horizons.add(check_positive_integer("the horizon", horizon))
    if not horizons:
        raise InputError("the horizon is missing: kernel and rewards are stationary, so pass horizon=H.")
    if len(horizons) > 1:
        raise InputError(f"kernel, rewards and horizon disagree on the number of steps: {sorted(horizons)}.")
    return horizons.pop()
