"""Alone or together: whether an agent should use the shared policy, its own plan, or something in between.

The shared policy is learnt from the counts of all M agents. Its error from too little data is about ``sqrt(M)``
times smaller than that of an agent's own plan, but it is made for a mixture of the agents: what an agent loses by
that, at most of order ``eps_p H^2``, does not shrink with more episodes. The error of its own plan does, like
``sqrt(H^3 S A / T)``. So together is better at first and, if agents differ, alone at last. When this turns cannot be
read from the theory, whose constants are too large, but from the agent's own counts.

An agent's own plan looks better than it is on the counts that it was made from. So the counts are divided at random
into parts: plan on all but one, value on that one, for each of them. Differences to the shared policy are valued on
the same part, which takes most of the noise out of them.

An action that was never tried in a state is not planned. A state of which nothing is known is taken to be worth what
states are worth on average, by visits: worth nothing, as to the planner of a run, would be a large loss for a small
chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import AlgorithmLike, as_algorithm
from fed_ucbvi.algorithms.experience import OwnCounts
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray
from fed_ucbvi.engine.live import LiveFederation, as_problem
from fed_ucbvi.engine.simulation import Simulation, drive
from fed_ucbvi.environments import FederationLike
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.run import Run

TOGETHER, ALONE, BLEND = "together", "alone", "blend"
FOLDS, REPEATS = 4, 2
"""Parts into which counts are divided, each valued by plans made from the others; and how often."""
CONFIDENCES = (4.0, 2.0, 1.0, 0.5)
"""Confidence multipliers of plans: by how many standard errors an action must be better."""
PRIOR = 2.0
"""Visits by which the variance of a pair is drawn to the usual one, so that one visit does not look certain."""
NORMAL = 1.96
"""Standard errors by which a gain must exceed 0: one-sided, for each of two candidates, 5 % in all."""


class Valued(NamedTuple):
    """A policy on a model: ``V (H+1, S)``, and with which probability a state is met at a step, ``met (H, S)``."""

    policy: IndexArray
    V: FloatArray
    met: FloatArray


@dataclass(frozen=True)
class OwnModel:
    """Frequencies in place of probabilities.

    Attributes:
        n: ``(steps, S, A)``, visits.
        p: ``(steps, S, A, K)``, frequencies of next states.
        r: ``(steps, S, A, K)``, the mean reward given the next state.
        initial: ``(S,)``.
    """

    counts: OwnCounts
    n: CountArray
    p: FloatArray
    r: FloatArray
    initial: FloatArray

    @classmethod
    def of(cls, counts: OwnCounts) -> OwnModel:
        n, own = counts.visits, counts.transitions
        p = own / np.maximum(n, 1)[..., None]
        r = np.divide(counts.rewards, own, out=np.zeros_like(counts.rewards), where=own > 0)
        return cls(counts, n, p, r, counts.starts / max(counts.starts.sum(), 1e-300))

    def _next(self, h: int, V: FloatArray) -> tuple[int, FloatArray]:
        """The row of the tables for step h, and the values of its next states, ``(S, A, K)``."""
        successors = self.counts.successors
        return h if len(self.n) > 1 else 0, V[successors[h if len(successors) > 1 else 0]]

    def plan(self, confidence: float, shared: IndexArray | None = None) -> IndexArray:
        """A policy ``(H, S)`` planned from the last step to the first.

        Without a ``shared`` policy it takes the action with the largest ``Q(a) - confidence se(a)`` of those tried.
        Given one, it takes action a in place of the shared action b if

            Q(a) - confidence sqrt(se(a)^2 + se(b)^2) > Q(b),

        where b has been tried, and else b. Q and V are those of the policy made so far, and
        ``se(a)^2 = Var[r + V_{h+1}(s')] / n(h,s,a)``, where the variance is estimated from the n visits and
        :data:`PRIOR` more that vary as visits do on average. The more visits of its own an agent has, the smaller a
        difference counts.
        """
        H, (_, S, _) = self.counts.horizon, self.n.shape
        policy, V, states = np.zeros((H, S), dtype=np.int32), np.zeros(S), np.arange(S)
        for h in reversed(range(H)):
            row, after = self._next(h, V)
            n, gain = self.n[row], self.r[row] + after
            Q = (self.p[row] * gain).sum(axis=-1)
            spread = (self.p[row] * (gain - Q[..., None]) ** 2).sum(axis=-1) + self.counts.reward_variance[row]
            usual = float((n * spread).sum()) / max(float(n.sum()), 1.0)
            error = (n * spread + PRIOR * usual) / ((n + PRIOR) * np.maximum(n, 1))
            tried = n > 0
            if shared is None:
                sure = np.where(tried, Q - confidence * np.sqrt(error), -math.inf)
            else:
                base = states, shared[h]
                sure = Q - confidence * np.sqrt(error + error[base][:, None])
                sure = np.where(tried & tried[base][:, None], sure, -math.inf)
                sure[base] = Q[base]
            policy[h] = sure.argmax(axis=1)
            V = _filled(Q[states, policy[h]], n[states, policy[h]])
        return policy

    def value(self, policy: IndexArray) -> Valued:
        """The values of a policy, and where it goes."""
        H, S = policy.shape
        V, met, states = np.zeros((H + 1, S)), np.zeros((H, S)), np.arange(S)
        for h in reversed(range(H)):
            row, after = self._next(h, V[h + 1])
            worth = (self.p[row] * (self.r[row] + after)).sum(axis=-1)[states, policy[h]]
            V[h] = _filled(worth, self.n[row][states, policy[h]])
        met[0] = self.initial
        for h in range(H - 1):
            row, after = self._next(h, states.astype(np.float64))
            flow = met[h][:, None] * self.p[row][states, policy[h]]
            met[h + 1] = np.bincount(after[states, policy[h]].astype(np.int64).ravel(), flow.ravel(), minlength=S)
        return Valued(policy, V, met)

    def known(self, policy: IndexArray, instead: IndexArray) -> IndexArray:
        """The policy where its actions have been tried, and another one elsewhere."""
        rows = np.arange(len(policy)) % len(self.n)
        tried = self.n[rows[:, None], np.arange(policy.shape[1]), policy] > 0
        return np.where(tried, policy, instead)

    def worth(self, valued: Valued) -> float:
        """The mean of ``V_1`` over initial states."""
        return float(self.initial @ valued.V[0])

    def error(self, one: Valued, other: Valued | None = None) -> float:
        """The standard error of the value of a policy, or of the difference of two, given the counts of this model.

        By the delta method: with respect to the kernel at (h,s,a) the value has the gradient ``d_h(s) V_{h+1}``, and
        different (h,s,a) are independent, so ``se^2 = sum Var[g(s') + w r] / (n - 1)`` with g the gradient and w the
        visits an episode, summed over steps where they are counted together; for a difference, those of one policy
        minus those of the other. At a pair with fewer than two visits a visit is taken to vary as much as visits do
        on average.
        """
        gradient, weight = self._gradient(one)
        start, often = one.V[0], self.n > 1
        spread = self._spread(gradient, weight)
        usual = float(spread[often].sum()) / max(float((weight[often] ** 2).sum()), 1e-300)
        if other is not None:
            second, less = self._gradient(other)
            gradient, weight, start = gradient - second, weight - less, start - other.V[0]
            spread = self._spread(gradient, weight)
        total = float(np.where(often, spread / np.maximum(self.n - 1, 1), usual * weight**2).sum())
        if not self.counts.law_known:
            episodes = max(float(self.counts.starts.sum()), 1.0)
            total += float(self.initial @ (start - self.initial @ start) ** 2) / episodes
        return math.sqrt(total)

    def _spread(self, gradient: FloatArray, weight: FloatArray) -> FloatArray:
        """``Var[g(s') + w r]`` by (h,s,a)."""
        influence = gradient + weight[..., None] * self.r
        mean = (self.p * influence).sum(axis=-1)
        between = (self.p * (influence - mean[..., None]) ** 2).sum(axis=-1)
        return np.asarray(between + weight**2 * self.counts.reward_variance)

    def _gradient(self, valued: Valued) -> tuple[FloatArray, FloatArray]:
        """``sum_h d_h(s) V_{h+1}`` by next state and ``sum_h d_h(s)``, both where the policy takes the action."""
        states = np.arange(self.n.shape[1])
        gradient, weight = np.zeros(self.p.shape), np.zeros(self.n.shape)
        for h, (actions, met) in enumerate(zip(valued.policy, valued.met, strict=True)):
            row, after = self._next(h, valued.V[h + 1])
            gradient[row][states, actions] += met[:, None] * after[states, actions]
            weight[row][states, actions] += met
        return gradient, weight


def _filled(V: FloatArray, visits: CountArray) -> FloatArray:
    """Values of states, with the mean by visits where there are no visits."""
    mean = float(visits @ V) / max(float(visits.sum()), 1.0)
    return np.where(visits > 0, V, mean)


def folds(counts: OwnCounts, number: int, rng: np.random.Generator) -> list[tuple[OwnCounts, OwnCounts]]:
    """Every visit, with what it paid, to one of ``number`` parts, by chance; each part after all the others together.

    Given the visits, next states are independent draws from the kernel, so a part is independent of the others. Of
    random rewards only sums are known. The sum of m of n rewards with variance v, given the sum R of all, has mean
    ``R m/n`` and variance ``v m (n - m)/n``, and is drawn as if it were normal.
    """
    left, found = counts, []
    for parts in range(number, 0, -1):
        part = _share(left, 1.0 / parts, rng)
        left = _less(left, part)
        found.append((_less(counts, part), part))
    return found


def _share(counts: OwnCounts, chance: float, rng: np.random.Generator) -> OwnCounts:
    """Some of the visits, each with this chance."""
    own = counts.transitions
    part = rng.binomial(own, chance)
    share = np.divide(part, own, out=np.zeros(own.shape), where=own > 0)
    noise = np.sqrt(counts.reward_variance[..., None] * part * (1.0 - share))
    paid = counts.rewards * share + noise * rng.standard_normal(own.shape)
    starts = counts.starts if counts.law_known else rng.binomial(counts.starts.astype(np.int64), chance)
    return replace(counts, transitions=part, rewards=paid, starts=starts.astype(np.float64))


def _less(counts: OwnCounts, part: OwnCounts) -> OwnCounts:
    transitions, rewards = counts.transitions - part.transitions, counts.rewards - part.rewards
    starts = counts.starts if counts.law_known else counts.starts - part.starts
    return replace(counts, transitions=transitions, rewards=rewards, starts=starts)


class Gain(NamedTuple):
    """What a policy pays more an episode than the shared one: an estimate, and its standard error."""

    mean: float
    error: float

    @property
    def low(self) -> float:
        return self.mean - NORMAL * self.error

    @property
    def high(self) -> float:
        return self.mean + NORMAL * self.error


@dataclass(frozen=True)
class AgentAdvice:
    """What one agent should use.

    Attributes:
        use: ``together`` (the shared policy), ``alone`` (its own plan) or ``blend``.
        policy: that policy, ``(H, S)``.
        shared_value: what the shared policy pays the agent an episode, estimated from its own counts.
        shared_error: the standard error of this estimate.
        alone, blend: what the agent's own plan and the blend pay more.
        confidence: the multiplier of the own plan and of the blend; see :meth:`OwnModel.plan`.
        plans: the three policies, by name.
    """

    agent: int
    use: str
    policy: IndexArray
    shared_value: float
    shared_error: float
    alone: Gain
    blend: Gain
    confidence: dict[str, float]
    plans: dict[str, IndexArray]

    def in_units(self, units: Units) -> dict[str, Any]:
        """The figures, ready for JSON, in the environment's own units."""
        x = units.scale
        gains = {
            name: {"gain": x * one.mean, "standard_error": x * one.error, "low": x * one.low, "high": x * one.high}
            for name, one in ((ALONE, self.alone), (BLEND, self.blend))
        }
        value = units.original_return(self.shared_value, len(self.policy))
        shared = {"value": value, "standard_error": x * self.shared_error}
        return {"agent": self.agent, "use": self.use, TOGETHER: shared, **gains, "confidence": self.confidence}


@dataclass(frozen=True)
class Advised:
    """A run, and what each of its agents should use."""

    run: Run
    agents: tuple[AgentAdvice, ...]


def alone_or_together(
    algorithm: AlgorithmLike, problem: FederationLike | LiveFederation, episodes: int, *, seed: int = 0
) -> Advised:
    """Run ``algorithm`` and tell each agent, from its own counts alone, whether to use the shared policy.

    Args:
        algorithm: one whose agents keep their counts, e.g. ``FedKLUCBVI()``.
        problem: a federation, what stands for one in :func:`fed_ucbvi.run`, or live environments.
        episodes: T.
        seed: of the run.
    """
    simulation = Simulation(as_algorithm(algorithm), as_problem(problem), episodes, seed, apart=True)
    run, party = drive(simulation, False), simulation.party
    everyone = range(simulation.setting.agents)
    return Advised(run, tuple(advise(party.own_counts(i), run.policy, agent=i) for i in everyone))


def advise(counts: OwnCounts, shared: IndexArray, *, agent: int = 0, seed: int = 0) -> AgentAdvice:
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
    plans, confidence = _plans(counts, shared, rng)
    plans[TOGETHER] = shared
    best = max(gain, key=lambda name: gain[name].low)
    use = best if gain[best].low > 0 else TOGETHER
    whole = OwnModel.of(counts)
    base = whole.value(shared)
    return AgentAdvice(
        agent, use, plans[use], whole.worth(base), whole.error(base), gain[ALONE], gain[BLEND], confidence, plans
    )


def _plans(
    counts: OwnCounts, shared: IndexArray, rng: np.random.Generator
) -> tuple[dict[str, IndexArray], dict[str, float]]:
    """The agent's own plan and the blend, and their confidence multipliers: the best on parts left out."""
    bases = {ALONE: None, BLEND: shared}
    worth = {name: np.zeros(len(CONFIDENCES)) for name in bases}
    for made_from, valued_on in folds(counts, 2, rng):
        fit, test = OwnModel.of(made_from), OwnModel.of(valued_on)
        for name, base in bases.items():
            for k, confidence in enumerate(CONFIDENCES):
                worth[name][k] += test.worth(test.value(test.known(fit.plan(confidence, base), shared)))
    chosen = {name: CONFIDENCES[int(sums.argmax())] for name, sums in worth.items()}
    whole = OwnModel.of(counts)
    return {name: whole.plan(chosen[name], base) for name, base in bases.items()}, chosen
