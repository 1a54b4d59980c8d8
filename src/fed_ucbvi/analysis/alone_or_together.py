"""Alone or together: whether an agent should use the shared policy, its own plan, or something in between.

The shared policy is learnt from the counts of all M agents. Its error from too little data is about ``sqrt(M)``
times smaller than that of an agent's own plan, but it is made for a mixture of the agents: what an agent loses by
that, at most of order ``eps_p H^2``, does not shrink with more episodes. The error of its own plan does, like
``sqrt(H^3 S A / T)``. So together is better at first and, if agents differ, alone at last. When this turns cannot be
read from the theory, whose constants are too large, but from the agent's own counts.

An agent's own plan looks better than it is on the counts that it was made from. So the counts are divided at random
into parts: plan on all but one, value on that one, for each of them. Differences to the shared policy are valued on
the same part, which takes most of the noise out of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import AlgorithmLike, as_algorithm
from fed_ucbvi.algorithms.base import Counting
from fed_ucbvi.algorithms.own_counts import OwnCounts
from fed_ucbvi.analysis.own_model import OwnModel, folds
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.engine.live import LiveFederation, LiveSimulation
from fed_ucbvi.engine.simulation import Simulation, drive
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.agents import is_known
from fed_ucbvi.results.run import Run

TOGETHER, ALONE, BLEND = CHOICES = ("together", "alone", "blend")
FOLDS, REPEATS = 4, 2
"""Parts into which counts are divided, each valued by plans made from the others; and how often."""
TRUSTS = (4.0, 2.0, 1.0, 0.5)
"""By how many standard errors plans are wary of an action, or of leaving the shared policy."""
NORMAL = 1.96
"""Standard errors by which a gain must exceed 0: one-sided, for each of two candidates, 5 % in all."""


class Gain(NamedTuple):
    """What a policy pays more an episode than the shared one: an estimate, and its standard error."""

    mean: float
    error: float

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval."""
        return self.mean - NORMAL * self.error

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + NORMAL * self.error


@dataclass(frozen=True)
class Advice:
    """What one agent should use.

    Attributes:
        agent: its number.
        use: ``together`` (the shared policy), ``alone`` (its own plan) or ``blend``.
        policy: that policy, ``(H, S)``.
        shared_value: what the shared policy pays the agent an episode, estimated from its own counts.
        shared_error: the standard error of this estimate.
        alone: what the agent's own plan pays more.
        blend: what the blend pays more.
        trust: of the own plan and of the blend; see :meth:`~fed_ucbvi.analysis.own_model.OwnModel.plan`.
        plans: the three policies, by name.
    """

    agent: int
    use: str
    policy: IndexArray
    shared_value: float
    shared_error: float
    alone: Gain
    blend: Gain
    trust: dict[str, float]
    plans: dict[str, IndexArray]

    def in_units(self, units: Units) -> dict[str, Any]:
        """The figures, ready for JSON, in the environment's own units."""
        x = units.scale
        gains = {
            name: {
                "gain": x * gain.mean,
                "standard_error": x * gain.error,
                "low": x * gain.low,
                "high": x * gain.high,
            }
            for name, gain in ((ALONE, self.alone), (BLEND, self.blend))
        }
        value = units.original_return(self.shared_value, len(self.policy))
        shared = {"value": value, "standard_error": x * self.shared_error}
        return {"agent": self.agent, "use": self.use, TOGETHER: shared, **gains, "trust": self.trust}


@dataclass(frozen=True)
class Advised:
    """A run, and what each of its agents should use."""

    run: Run
    agents: tuple[Advice, ...]


def alone_or_together(
    algorithm: AlgorithmLike, problem: FederationLike | LiveFederation, episodes: int, *, seed: int = 0
) -> Advised:
    """Run ``algorithm`` and tell each agent, from its own counts alone, whether to use the shared policy.

    Args:
        algorithm: one whose agents keep their counts, e.g. ``FedUCBVI.sharp()``.
        problem: a federation, what stands for one in :func:`fed_ucbvi.run`, or live environments.
        episodes: T.
        seed: of the run.
    """
    simulation = (
        LiveSimulation(as_algorithm(algorithm), problem, episodes, seed, None)
        if isinstance(problem, LiveFederation)
        else Simulation(as_algorithm(algorithm), as_federation(problem), episodes, seed, "auto", apart=True)
    )
    run = drive(simulation, False, None, None)
    found = []
    for i in range(simulation.setting.agents):
        known = is_known(simulation.federation)
        starts: FloatArray | None = simulation.federation.initial[i] if known else None
        if starts is None and simulation.algorithm.counting is Counting.STATIONARY:
            starts = simulation.starts.astype(np.float64)
        H = simulation.setting.horizon
        counts = OwnCounts.of(simulation.algorithm, simulation.agents, i, H, starts, law_known=known)
        found.append(advise(counts, run.policy, agent=i))
    return Advised(run, tuple(found))


def advise(counts: OwnCounts, shared: IndexArray, *, agent: int = 0, seed: int = 0) -> Advice:
    """What an agent with these counts should use; ``shared`` is the recommended policy ``(H, S)``.

    The advice is to stay together unless another policy is better by more than 1.96 standard errors; of two that are,
    the one whose gain is larger for sure. The shared policy has been learnt from these counts too, as one of M, which
    flatters it a little; the own plan is valued as made from three quarters of them, which does not. Both keep an
    agent from leaving too early.
    """
    if not counts.transitions.sum():
        raise InputError(f"agent {agent} has counted nothing, so there is nothing to advise from.")
    rng = np.random.default_rng([seed, agent])
    gains: dict[str, list[float]] = {ALONE: [], BLEND: []}
    errors: dict[str, list[float]] = {ALONE: [], BLEND: []}
    for _ in range(REPEATS):
        for made_from, valued_on in folds(counts, FOLDS, rng):
            test = OwnModel.of(valued_on)
            base = test.value(shared)
            for name, policy in _plans(made_from, shared, rng)[0].items():
                valued = test.value(test.known(policy, shared))
                gains[name].append(test.worth(valued) - test.worth(base))
                errors[name].append(test.error(valued, base))
    # the parts are independent; a second division is of the same counts and adds no information
    gain = {
        name: Gain(float(np.mean(gains[name])), math.sqrt(float(np.mean(np.square(errors[name]))) / FOLDS))
        for name in gains
    }
    plans, trust = _plans(counts, shared, rng)
    plans[TOGETHER] = shared
    best = max(gain, key=lambda name: gain[name].low)
    use = best if gain[best].low > 0 else TOGETHER
    whole = OwnModel.of(counts)
    base = whole.value(shared)
    return Advice(
        agent, use, plans[use], whole.worth(base), whole.error(base), gain[ALONE], gain[BLEND], trust, plans
    )


def _plans(
    counts: OwnCounts, shared: IndexArray, rng: np.random.Generator
) -> tuple[dict[str, IndexArray], dict[str, float]]:
    """The agent's own plan and the blend, and how wary they are: the best of :data:`TRUSTS`, on parts left out."""
    bases = {ALONE: None, BLEND: shared}
    worth = {name: np.zeros(len(TRUSTS)) for name in bases}
    for made_from, valued_on in folds(counts, 2, rng):
        fit, test = OwnModel.of(made_from), OwnModel.of(valued_on)
        for name, base in bases.items():
            for place, trust in enumerate(TRUSTS):
                worth[name][place] += test.worth(test.value(test.known(fit.plan(trust, base), shared)))
    trusts = {name: TRUSTS[int(sums.argmax())] for name, sums in worth.items()}
    whole = OwnModel.of(counts)
    return {name: whole.plan(trusts[name], base) for name, base in bases.items()}, trusts
