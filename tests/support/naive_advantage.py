"""FedQ-Advantage and UCB-Advantage once more, straight from the pseudocode: one visit at a time, lists and fractions.

Slow and plain on purpose, and sharing no code with the package, which is checked against it. Every visit is
kept with the values it saw, so that means and variances are exact, in two passes, over just the visits concerned.
Steps h run from 0 to H-1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from model_free import Sizes, Step

Triplet = tuple[int, int, int]
"""(h, s, a)."""


class Visit(NamedTuple):
    """One visit: the reward paid, and ``V`` and ``V^R`` of the next state at that time."""

    reward: Fraction
    value: Fraction
    reference: Fraction


def mean(numbers: list[Fraction]) -> Fraction:
    return sum(numbers, Fraction(0)) / len(numbers)


def variance(numbers: list[Fraction]) -> Fraction:
    middle = mean(numbers)
    return mean([(x - middle) ** 2 for x in numbers])


class Learner:
    """The tables both algorithms keep; Q and ``V^R`` start as they are given, step by step."""

    def __init__(
        self,
        sizes: Sizes,
        constants: dict[str, float],
        lower_order: bool,
        Q: list[float],
        V_ref: list[float],
    ) -> None:
        S, A, H = sizes[:3]
        self.sizes = sizes
        self.lower_order = lower_order
        self.second_bound_won = 0
        self.iota = constants["iota"]
        self.reference_after = constants["reference_after"]
        self.Q = np.tile(np.array(Q)[:, None, None], (1, S, A))
        self.V, self.V_ref = (np.tile(np.array([*first, 0.0])[:, None], (1, S)) for first in (Q, V_ref))
        self.stage: defaultdict[Triplet, list[Visit]] = defaultdict(list)
        self.earlier: defaultdict[Triplet, list[Visit]] = defaultdict(list)
        self.lengths: defaultdict[Triplet, list[int]] = defaultdict(list)
        self.settled = np.zeros((H, S), dtype=np.bool_)

    def note(self, step: Step) -> None:
        there = (step.h + 1, step.successor)
        visit = Visit(Fraction(step.reward), Fraction(self.V[there]), Fraction(self.V_ref[there]))
        self.stage[step.h, step.s, step.a].append(visit)

    def visits(self, triplet: Triplet) -> int:
        """N: visits in completed stages."""
        return len(self.earlier[triplet])

    def end_stage(self, triplet: Triplet, plain: float, factor: float) -> None:
        """``Q = min(Q1, Q2, Q)``; ``plain`` is the bonus in Q1, and ``factor H`` stands before the brackets in Q2."""
        now = self.stage[triplet]
        past = self.earlier[triplet]
        past.extend(now)
        N = len(past)
        y = len(now)
        iota = self.iota
        reward = mean([v.reward for v in now])
        Q1 = float(reward + mean([v.value for v in now])) + plain
        references = [v.reference for v in past]
        advantages = [v.value - v.reference for v in now]
        bonus = 2 * math.sqrt(variance(references) * Fraction(iota) / N)
        bonus += 2 * math.sqrt(variance(advantages) * Fraction(iota) / y)
        if self.lower_order:
            brackets = (iota / N) ** 0.75 + (iota / y) ** 0.75 + iota / N + iota / y
            bonus += factor * self.sizes.horizon * brackets
        Q2 = float(reward + mean(references) + mean(advantages)) + bonus
        old = self.Q[triplet]
        self.second_bound_won += int(Q2 not in (Q1, old) and min(Q1, Q2, old) == Q2)
        self.Q[triplet] = min(Q1, Q2, old)
        self.lengths[triplet].append(y)
        self.stage[triplet] = []
        h, s, _ = triplet
        self.V[h, s] = self.Q[h, s].max()

    def settle(self, h: int, s: int) -> None:
        """``V^R_h(s) = V_h(s)``, once."""
        if not self.settled[h, s]:
            self.settled[h, s] = True
            self.V_ref[h, s] = self.V[h, s]


# --------------------------------------------------------------------------------------------- FedQ-Advantage


@dataclass
class NaiveFedQ:
    learner: Learner
    reached: set[str] = field(default_factory=set)

    def visits_until_ask(self, triplet: Triplet) -> int:
        """c(s,a,h)."""
        H = self.learner.sizes.horizon
        M = self.learner.sizes.agents
        y = len(self.learner.stage[triplet])
        lengths = self.learner.lengths[triplet]
        if not lengths:
            return 1
        before = lengths[-1]
        if y <= (1 - Fraction(1, H)) * before:
            self.reached.add("early")
            return math.ceil(Fraction(before - y, M))
        self.reached.add("late")
        return math.floor(Fraction(before, M * H))

    def synchronise(self, reports: list[list[Step]]) -> None:
        """One round's steps of every agent, all with the values broadcast at its start."""
        learner = self.learner
        H = learner.sizes.horizon
        M = learner.sizes.agents
        A = learner.sizes.actions
        visited = set()
        for steps in reports:
            for step in steps:
                learner.note(step)
                visited.add((step.h, step.s, step.a))
        ended = []
        for triplet in sorted(visited):
            y = len(learner.stage[triplet])
            lengths = learner.lengths[triplet]
            if y >= (Fraction(H + 1, H) * lengths[-1] if lengths else M * H):
                learner.end_stage(triplet, math.sqrt(2 * H * H * learner.iota / y), 10)
                ended.append(triplet)
        for h, s, _ in ended:
            if sum(learner.visits((h, s, a)) for a in range(A)) >= learner.reference_after:
                learner.settle(h, s)


# ---------------------------------------------------------------------------------------------- UCB-Advantage


def stage_ends(horizon: int, most: int) -> set[int]:
    """The set L of visits at which stages end, up to ``most``: partial sums of e_1 = H, floor((1 + 1/H) e_i), ..."""
    ends = set()
    length = horizon
    total = 0
    while total <= most:
        total += length
        ends.add(total)
        length = math.floor((1 + Fraction(1, horizon)) * length)
    return ends


@dataclass
class NaiveUCB:
    """The algorithm for one agent, fed with episodes."""

    learner: Learner
    ends: set[int]

    def feed(self, episode: list[Step]) -> bool:
        """One episode, step by step; whether it changed Q."""
        learner = self.learner
        H = learner.sizes.horizon
        A = learner.sizes.actions
        iota = learner.iota
        changed = False
        for step in episode:
            triplet = (step.h, step.s, step.a)
            learner.note(step)
            y = len(learner.stage[triplet])
            if learner.visits(triplet) + y in self.ends:
                learner.end_stage(triplet, 2 * math.sqrt(H * H * iota / y), 5)
                changed = True
            total = sum(learner.visits((step.h, step.s, a)) + len(learner.stage[step.h, step.s, a]) for a in range(A))
            if total >= learner.reference_after:
                learner.settle(step.h, step.s)
        return changed

    def synchronise(self, episodes: list[list[Step]], discard: bool) -> int:
        """A round's episodes in agent order; how many were used."""
        for number, episode in enumerate(episodes, start=1):
            if self.feed(episode) and discard:
                return number
        return len(episodes)
