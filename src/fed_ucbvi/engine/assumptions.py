"""Split of delta over what a run promises, and the assumptions of its certificates, each as a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.units import Units


@dataclass(frozen=True)
class DeltaParts:
    """Probabilities with which the parts of what a run promises may fail; they add up to delta.

    Attributes:
        optimism: of the optimistic value of the best policy, for all rounds together: transitions, random rewards,
            and first states whose law is unknown.
        lower: of the lower ends of the intervals of all policies that are judged by their own episodes.
        upper: likewise of the upper ends; 0 where nothing that is promised rests on them.
        model: of ``model_at_least``. This is a statement beside what is promised, and no part of delta.

    >>> parts = DeltaParts.of(0.05, incumbent=True, until_gap=True)
    >>> parts.optimism, parts.lower, parts.upper, parts.total
    (0.025, 0.0125, 0.0125, 0.05)
    """

    optimism: float
    lower: float
    upper: float
    model: float

    @classmethod
    def of(cls, delta: float, *, incumbent: bool, until_gap: bool) -> DeltaParts:
        """The split for a run that promises no harm to an incumbent, a certified gap, or both.

        A certified gap has half of delta for optimism. It rests on lower ends only: a gap is the optimistic value
        less the lower end of the recommended policy. An incumbent rests on both ends, as exploring is charged with
        its upper end and allowed by its lower end.
        """
        optimism = 0.5 * delta if until_gap else 0.0
        ends = delta - optimism
        upper = 0.5 * ends if incumbent else 0.0
        return cls(optimism, ends - upper, upper, 0.5 * delta)

    @property
    def total(self) -> float:
        return self.optimism + self.lower + self.upper

    def interval(self, number: int, *, alone: bool = False) -> float:
        """Probability of an interval whose ends have half each: of the j-th policy ``2 lower / (j (j+1))``.

        These add up over all j to ``lower`` for lower ends. If one policy is judged ``alone``, it has all.
        """
        share = 1.0 if alone else 1.0 / (number * (number + 1))
        return 2.0 * self.lower * share

    def sentence(self) -> str:
        named = {
            "the optimistic value": self.optimism,
            "the lower ends of the intervals of all judged policies": self.lower,
            "their upper ends": self.upper,
        }
        parts = ", ".join(f"{part:.4g} for {name}" for name, part in named.items() if part > 0.0)
        return f"Everything that the run promises fails with probability at most {self.total:.4g} in all: {parts}."


@dataclass(frozen=True)
class Circumstances:
    """Facts about a run on which its certificates rest.

    Attributes:
        stationary: True if visits of all steps are counted together.
        warm_start: True if the run began with counts.
        eps_r: largest difference of two agents' rewards, 0 or NaN where it is not known.
        dynamics: known dynamics by whose laws visits are counted; None where they are counted by state and action.
    """

    stationary: bool = False
    warm_start: bool = False
    eps_r: float = 0.0
    dynamics: Dynamics | None = None

    @classmethod
    def over_laws(cls, dynamics: Dynamics, *, eps_p: float, warm_start: bool) -> Circumstances:
        """Facts about a run that counts by law and outcome.

        Rewards by outcome are weighed by laws that differ, so what they cost is ``eps_p`` more per step
        (Theorem 8 in ``docs/kl_proofs.md``).
        """
        rewards = dynamics.rewards
        assert rewards is not None
        between_agents = float(np.ptp(rewards, axis=0).max())
        by_outcome = eps_p if rewards.shape[-1] > 1 else 0.0
        return cls(warm_start=warm_start, eps_r=between_agents + by_outcome, dynamics=dynamics)


def assumptions_of_returns(
    setting: Setting, units: Units, within: tuple[float, float] | None, parts: DeltaParts
) -> list[str]:
    """Assumptions of intervals from the returns of a policy's own episodes; ``within`` is the range in our units."""
    H = setting.horizon
    sentences = [
        "Episodes are drawn alike: nothing that changes from one episode to the next, such as a season or wear, "
        "matters."
    ]
    if setting.agents > 1:
        sentences.append("Values are means over the agents, which have played equally many episodes or are alike.")
    if within is None:
        low = units.offset
        high = units.offset + units.scale
        sentences.append(f"Every step pays between {low:.6g} and {high:.6g} (the range of rewards).")
    else:
        low, high = (units.original_return(end, H) for end in within)
        sentences.append(f"Every episode pays between {low:.6g} and {high:.6g}, whatever is played (return_range).")
    return [*sentences, parts.sentence()]


def assumptions_of_model(setting: Setting, facts: Circumstances, best_at_most: str) -> list[str]:
    """Assumptions of what follows from counts; ``best_at_most`` is what is proved where agents differ, if they do."""
    if facts.dynamics is not None:
        return [_known_dynamics(facts.dynamics), *_first_states_and_agents(setting, facts, best_at_most)]
    sentences = [
        "The state holds everything that matters for the next state and the reward; if states are bins, all "
        "observations in one bin behave alike."
    ]
    if facts.stationary:
        sentences.append("Transitions and rewards are the same at every step of an episode (stationary=true).")
    if setting.random_rewards:
        sentences.append("Rewards may be random: of their law only the range is assumed.")
    else:
        sentences.append(
            "Rewards are deterministic: the same step, state and action always pay the same (random_rewards=False)."
        )
    return [*sentences, *_first_states_and_agents(setting, facts, best_at_most)]


def _known_dynamics(dynamics: Dynamics) -> str:
    laws = "one law" if dynamics.laws == 1 else f"one of {dynamics.laws:,} laws"
    return (
        f"Every outcome is drawn by {laws} that the known dynamics name for its step, state and action, whatever "
        "came before, and leads to the next state and the reward that they name."
    )


def _first_states_and_agents(setting: Setting, facts: Circumstances, best_at_most: str) -> list[str]:
    """Assumptions about first states, differences between agents, and a warm start."""
    sentences = []
    if setting.starts_known:
        sentences.append("The law of the first state is that of the problem's table.")
    else:
        sentences.append(
            "The law of the first state is estimated from this run's episodes; it is the same for all agents, or "
            "they have played equally many episodes."
        )
    if setting.agents > 1:
        if best_at_most:
            sentences.append(best_at_most)
        elif setting.eps_p_known:
            sentences.append("All agents have the same transitions and rewards.")
        else:
            sentences.append("All agents have the same transitions and rewards (eps_p is unknown).")
    if facts.warm_start:
        sentences.append(
            "The counts that the run began with are of the same problem, and no episode is missing from them because "
            "of its outcome."
        )
    return sentences


def slack_of_agents(setting: Setting, eps_r: float) -> float:
    """``eps_p H (H-1) / 2 + H eps_r``: what the best may be worth above the optimistic value (Theorem 2)."""
    H = setting.horizon
    eps_p = setting.eps_p if setting.eps_p_known else 0.0
    return 0.5 * eps_p * H * (H - 1) + H * (0.0 if math.isnan(eps_r) else eps_r)
