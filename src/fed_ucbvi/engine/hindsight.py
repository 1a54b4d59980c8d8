"""Hindsight: the gain of a policy over the one in use, from outcomes that do not depend on what is done.

Prices, demand and arrivals do not react to actions in many problems; :meth:`Dynamics.action_dependence` decides
where. The outcomes of an episode then determine the return that any policy would have had in it. So a *candidate* can
be compared with the *incumbent* while only the incumbent is played. A candidate is fixed, and then judged by the
episodes that follow. Two lower bounds on its gain D, the difference of the two values, hold at all times at once:

**By replays.** The difference of the two returns in one episode lies in ``[lo, hi]``, by a backward induction over
the states of both. Its mean has the anytime lower bound of :mod:`fed_ucbvi.algorithms.return_bounds`. Episodes have
to be drawn alike. Where agents differ, all must have played the same number of episodes, and the gain is the mean
over agents.

**By laws.** Let x be the candidate's state and y the incumbent's, with the same outcome w for both, and

    L_h(x,y) = inf { q . [ r(h,x,c(x),w) - r(h,y,i(y),w) + L_{h+1}(x',y') ]_w :  KL(p_g, q) <= beta(N_g)/N_g },
    L_{H+1}  = 0,    beta(N) = log(H S^2 / delta') + log 2 + log(N+1)/2,

with the counts of outcomes since the candidate was fixed. The true difference from step h+1 on is a fixed function of
w, so Lemma 2 of ``docs/kl_proofs.md`` bounds its mean for each (h,x,y), and L grows with L_{h+1}: by induction
``L <= D``. All visits to a law have to be drawn alike, by all agents whose counts are added up. Where a law is
visited many times in an episode, this bound is far closer than the other one.

The j-th candidate has ``delta / (j (j+1))``, half of it for each bound, so that the better of the two may be used and
the first certified candidate is worse than the incumbent with probability at most delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.first_states import largest_start_value
from fed_ucbvi.algorithms.known_dynamics import plan_from_outcomes
from fed_ucbvi.algorithms.law_bounds import radii_of_laws, smallest_means
from fed_ucbvi.algorithms.return_bounds import add_returns, interval_of, new_histogram
from fed_ucbvi.core.errors import InputError, check_number, check_positive_integer
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.problem.dynamics import Dynamics
from fed_ucbvi.problem.policies import by_action, checked_policy

EPISODES_AT_ONCE = 1024
"""Number of episodes that are replayed together; it bounds the memory."""


class RecordedEpisodes(NamedTuple):
    """Episodes of one agent: first states ``(T,)``, and outcomes ``(T, H)``."""

    first_states: IndexArray
    outcomes: IndexArray


class DifferenceRange(NamedTuple):
    """Least and largest difference of two returns in an episode with the same outcomes, in [0, 1] per step."""

    low: float
    high: float


class GainBounds(NamedTuple):
    """Lower bounds on what a candidate earns more than the incumbent in an episode, with rewards in [0, 1].

    Attributes:
        candidate: number j of the candidate, from 1.
        episodes: number of episodes of each agent since it was fixed.
        mean: mean difference of returns in these episodes; NaN without any.
        by_replays: bound for which episodes must be drawn alike.
        by_laws: bound for which visits to a law must be drawn alike.
        delta: probability that one of the two is too large at any time.
    """

    candidate: int
    episodes: int
    mean: float
    by_replays: float
    by_laws: float
    delta: float

    @property
    def best(self) -> float:
        """The larger bound."""
        return max(self.by_replays, self.by_laws)


# ---------------------------------------------------------------------------------------------- what is looked at


def check_exogenous(dynamics: Dynamics, first_states: IndexArray | None = None) -> None:
    """Raise if outcomes depend on actions, with the first place where they do."""
    found = dynamics.action_dependence(first_states)
    if found is not None:
        raise InputError(
            "outcomes depend on what is done, so an episode does not say what another policy would have earned: at "
            f"step {found.step} in state {found.state}, actions {found.action} and {found.other_action} lead to "
            "different laws, there or later in the episode."
        )


def check_recorded(dynamics: Dynamics, recorded: RecordedEpisodes) -> None:
    """Raise unless first states and outcomes are those of whole episodes under these dynamics."""
    first, outcomes = recorded
    if outcomes.shape != (len(first), dynamics.horizon):
        raise InputError(
            f"outcomes must have shape (episodes, H) = {(len(first), dynamics.horizon)}, got {outcomes.shape}."
        )
    limits = (("first states", first, dynamics.states), ("outcomes", outcomes, dynamics.outcomes))
    for name, numbers, size in limits:
        if numbers.size and (numbers.min() < 0 or numbers.max() >= size):
            raise InputError(f"{name} must be numbers from 0 to {size - 1}.")


def counts_of_outcomes(dynamics: Dynamics, recorded: RecordedEpisodes) -> CountArray:
    """Number of times that each outcome of each law was seen, ``(G, W)``, under exogenous dynamics."""
    counts: CountArray = np.zeros((dynamics.laws, dynamics.outcomes), dtype=np.int64)
    state = recorded.first_states
    for h in range(dynamics.horizon):
        outcome = recorded.outcomes[:, h]
        law = dynamics.laws_at(h)[state, 0]
        np.add.at(counts, (law, outcome), 1)
        state = dynamics.next_states_at(h)[state, 0, outcome]  # all actions lead to the same laws
    return counts


def chances_of(policy: PolicyArray, actions: int) -> FloatArray:
    """Probability of each action, ``(H, S, A)``."""
    weights = by_action(policy, actions).astype(np.float64)
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def replayed_returns(
    dynamics: Dynamics, policy: PolicyArray, recorded: RecordedEpisodes, agent: int | None = None
) -> FloatArray:
    """Return of each episode had this policy been played, ``(T,)``, with rewards in [0, 1].

    Where the policy draws its actions, it is the mean over them. Rewards are those of one agent, or the mean.
    """
    check_recorded(dynamics, recorded)
    chances = chances_of(policy, dynamics.actions)
    parts = []
    for begin in range(0, len(recorded.first_states), EPISODES_AT_ONCE):
        part = slice(begin, begin + EPISODES_AT_ONCE)
        outcomes = recorded.outcomes[part]
        episode = np.arange(len(outcomes)).reshape(-1, 1, 1)
        value = np.zeros((len(outcomes), dynamics.states))
        for h in reversed(range(dynamics.horizon)):
            outcome = outcomes[:, h]
            paid = np.moveaxis(dynamics.rewards_at(h, agent)[..., outcome], -1, 0)
            after = np.moveaxis(dynamics.next_states_at(h)[..., outcome], -1, 0)
            value = (chances[h] * (paid + value[episode, after])).sum(axis=2)
        parts.append(value[np.arange(len(outcomes)), recorded.first_states[part]])
    return np.concatenate(parts) if parts else np.zeros(0)


# ----------------------------------------------------------------------------------------- both policies together


class _Branch(NamedTuple):
    """One of the combinations of actions that the two policies draw in their pairs of states.

    Attributes:
        chances: of this combination in each pair, ``(P,)``.
        my_cells: state and action of the candidate in each pair, two arrays ``(P,)``.
        their_cells: those of the incumbent.
        my_next: next state of the candidate for each outcome, ``(P, W)``.
        their_next: that of the incumbent.
    """

    chances: FloatArray
    my_cells: tuple[CountArray, CountArray]
    their_cells: tuple[CountArray, CountArray]
    my_next: IndexArray
    their_next: IndexArray


class _Step(NamedTuple):
    """Pairs of states that the two policies can be in at a step, with the same outcomes so far.

    Attributes:
        mine: states of the candidate, ``(P,)``.
        theirs: states of the incumbent.
        laws: the law of each pair, which both states have.
        branches: combinations of their actions.
    """

    mine: IndexArray
    theirs: IndexArray
    laws: IndexArray
    branches: list[_Branch]


class ComparedPolicies:
    """Two policies under exogenous dynamics: what they can differ by, and at least by what counts say.

    Args:
        dynamics: exogenous dynamics with known rewards.
        candidate: a policy ``(H, S)`` or ``(H, S, A)``.
        incumbent: the policy to compare with.
        first_states: where an episode may begin; everywhere by default.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        candidate: PolicyArray,
        incumbent: PolicyArray,
        first_states: IndexArray | None = None,
    ) -> None:
        check_exogenous(dynamics, first_states)
        if dynamics.rewards is None:
            raise InputError("rewards must be known to compare policies in hindsight; pass reward to Dynamics.")
        every = np.arange(dynamics.states, dtype=np.int32)
        self.dynamics = dynamics
        self.first_states = every if first_states is None else first_states
        self._steps = self._follow(chances_of(candidate, dynamics.actions), chances_of(incumbent, dynamics.actions))

    def _follow(self, mine: FloatArray, theirs: FloatArray) -> list[_Step]:
        """The pairs of states at each step, from the first one on."""
        S = self.dynamics.states
        steps = []
        numbers = self.first_states.astype(np.int64) * (S + 1)  # both begin in the same state
        for h in range(self.dynamics.horizon):
            my_states, their_states = np.divmod(np.unique(numbers), S)
            branches = self._branches(h, my_states, their_states, mine[h], theirs[h])
            laws = self.dynamics.laws_at(h)[my_states, 0]
            steps.append(_Step(my_states.astype(np.int32), their_states.astype(np.int32), laws, branches))
            reached = []
            for branch in branches:
                pairs = branch.my_next.astype(np.int64) * S + branch.their_next
                reached.append(pairs[branch.chances > 0].reshape(-1))
            numbers = np.concatenate(reached)
        return steps

    def _branches(
        self, h: int, my_states: CountArray, their_states: CountArray, mine: FloatArray, theirs: FloatArray
    ) -> list[_Branch]:
        """One branch where both policies take one action in every state."""
        next_states = self.dynamics.next_states_at(h)
        my_order = _likeliest_actions(mine)
        their_order = _likeliest_actions(theirs)
        branches = []
        for k, m in np.ndindex(my_order.shape[1], their_order.shape[1]):
            my_cells = (my_states, my_order[my_states, k])
            their_cells = (their_states, their_order[their_states, m])
            branches.append(
                _Branch(
                    chances=mine[my_cells] * theirs[their_cells],
                    my_cells=my_cells,
                    their_cells=their_cells,
                    my_next=next_states[my_cells],
                    their_next=next_states[their_cells],
                )
            )
        return branches

    def _worth(self, h: int, after: FloatArray, agent: int | None) -> FloatArray:
        """Difference of rewards, plus that of what follows, for each pair and outcome, ``(P, W)``.

        ``after`` has the difference from the next step on for each pair of states, ``(S, S)``.
        """
        step = self._steps[h]
        rewards = self.dynamics.rewards_at(h, agent)
        worth = np.zeros((len(step.mine), self.dynamics.outcomes))
        for branch in step.branches:
            paid = rewards[branch.my_cells] - rewards[branch.their_cells]
            follows = after[branch.my_next, branch.their_next]
            worth += branch.chances[:, None] * (paid + follows)
        return worth

    def _table(self, h: int, values: FloatArray) -> FloatArray:
        """Values of the pairs of a step as a table ``(S, S)``."""
        S = self.dynamics.states
        table = np.zeros((S, S))
        step = self._steps[h]
        table[step.mine, step.theirs] = values
        return table

    def difference_range(self, agent: int | None = None) -> DifferenceRange:
        """Between which values the difference of the two returns lies, whatever the outcomes.

        Rewards are those of one agent, or the mean over agents.
        """
        S = self.dynamics.states
        least = np.zeros((S, S))
        most = np.zeros((S, S))
        for h in reversed(range(self.dynamics.horizon)):
            least = self._table(h, self._worth(h, least, agent).min(axis=1))
            most = self._table(h, self._worth(h, most, agent).max(axis=1))
        first = self.first_states
        return DifferenceRange(float(least[first, first].min()), float(most[first, first].max()))

    def gain_by_laws(
        self,
        counts: CountArray,
        starts: CountArray,
        delta: float,
        *,
        initial: FloatArray | None = None,
        agent: int | None = None,
    ) -> float:
        """Lower bound on the gain, at all times at once with probability ``1 - delta``, by counts of outcomes.

        Args:
            counts: outcomes of each law since the candidate was fixed, ``(G, W)``, of agents that are alike.
            starts: number of episodes that began in each state since then, ``(S,)``.
            delta: the probability that the bound is too large at any time.
            initial: law of the first state, ``(S,)``, where it is known.
            agent: whose rewards; by default the mean over agents.
        """
        S = self.dynamics.states
        events = self.dynamics.horizon * S * S + int(initial is None)
        beta = radii_of_laws(counts, math.log(2.0 * events / delta))
        after = np.zeros((S, S))
        for h in reversed(range(self.dynamics.horizon)):
            worth = self._worth(h, after, agent)
            after = self._table(h, smallest_means(self._steps[h].laws, worth, counts, beta))
        gain = np.diagonal(after)
        if initial is not None:
            return float(initial @ gain)
        return -largest_start_value(starts, -gain, delta / events)


def _likeliest_actions(chances: FloatArray) -> CountArray:
    """Actions in the order of their chances ``(S, A)``, as many as any state has with a chance."""
    number = int((chances > 0).sum(axis=1).max())
    return np.argsort(-chances, axis=1, kind="stable")[:, :number]


def gain_by_replays(histogram: CountArray, within: DifferenceRange, delta: float) -> float:
    """Lower bound on the mean of replayed differences, at all times at once with probability ``1 - delta``."""
    if within.high <= within.low:
        return within.low
    return interval_of(histogram, within.high, 2.0 * delta, within.low).lower  # each end has half


# -------------------------------------------------------------------------------------------------------- from logs


class LoggedGain(NamedTuple):
    """A policy planned from the first part of logs, and lower bounds on its gain by the rest."""

    policy: IndexArray
    bounds: GainBounds


def certify_from_logs(
    dynamics: Dynamics,
    incumbent: PolicyArray,
    logs: Sequence[RecordedEpisodes],
    *,
    learn_from: float = 0.5,
    delta: float = 0.05,
    alike: bool = False,
) -> LoggedGain:
    """Plan a policy from the first part of each agent's log, and bound its gain over the incumbent by the rest.

    Args:
        dynamics: exogenous dynamics with known rewards.
        incumbent: the policy to compare with, whatever policy was logged.
        logs: the episodes of each agent, in the order in which they were lived, the same number of each;
            :func:`fed_ucbvi.find_outcomes` derives their outcomes.
        learn_from: share of the episodes that the policy is planned from.
        delta: the probability that a bound is too large.
        alike: True if all agents have the same laws.
    """
    share = check_number("learn_from", learn_from, above=0, below=1)
    first = [_episodes(log, slice(None, _cut(log, share))) for log in logs]
    rest = [_episodes(log, slice(_cut(log, share), None)) for log in logs]
    of_first_candidate = check_number("delta", delta, above=0, below=0.5)
    of_all_candidates = 2.0 * of_first_candidate
    watched = Hindsight(dynamics, incumbent, agents=len(logs), delta=of_all_candidates, alike=alike)
    watched.add(first)
    policy = plan_from_outcomes(dynamics, watched.counts.sum(axis=0))
    watched.propose(policy)
    watched.add(rest)
    return LoggedGain(policy, watched.bounds())


def _cut(log: RecordedEpisodes, share: float) -> int:
    return math.ceil(share * len(log.first_states))


def _episodes(log: RecordedEpisodes, part: slice) -> RecordedEpisodes:
    return RecordedEpisodes(np.asarray(log.first_states)[part], np.asarray(log.outcomes)[part])


# -------------------------------------------------------------------------------------------------------- watching


class Hindsight:
    """Candidates that are judged, one after the other, by episodes in which only the incumbent is played.

    A new candidate is due when the number of episodes has doubled since the last one was fixed.

    Args:
        dynamics: exogenous dynamics with known rewards.
        incumbent: the policy that is played, in any form.
        agents: M.
        delta: the probability that any certified candidate is worse than the incumbent.
        initial: law of the first state, ``(S,)``, where it is known.
        alike: True if all agents have the same laws, so that their counts may be added up. Otherwise the bound by
            laws is the mean of those of the agents' own counts, each with its share of delta.

    >>> from fed_ucbvi import Dynamics
    >>> shop = Dynamics(  # one unit can be stored for one euro; it sells for three if anybody asks for it
    ...     laws=1,
    ...     outcomes=2,
    ...     law_of=0,
    ...     next_state=lambda h, s, buys, asked: 0,
    ...     reward=lambda h, s, buys, asked: 3.0 * buys * asked - 1.0 * buys,
    ...     horizon=5,
    ...     states=1,
    ...     actions=2,
    ... )
    >>> never = np.zeros((5, 1), dtype=np.int32)
    >>> watched = Hindsight(shop, never, agents=1)
    >>> watched.propose(never + 1)
    >>> asked = np.array([[1, 0, 1, 1, 1]] * 20, dtype=np.int32)
    >>> watched.add([RecordedEpisodes(np.zeros(20, dtype=np.int32), asked)])
    >>> bounds = watched.bounds()
    >>> bounds.best > 0.0, round(bounds.mean * shop.units.scale, 3)
    (True, 7.0)
    """

    def __init__(
        self,
        dynamics: Dynamics,
        incumbent: PolicyArray,
        agents: int,
        *,
        delta: float = 0.05,
        initial: FloatArray | None = None,
        alike: bool = False,
    ) -> None:
        self.first_states = None if initial is None else np.flatnonzero(initial).astype(np.int32)
        check_exogenous(dynamics, self.first_states)
        if dynamics.rewards is None:
            raise InputError("rewards must be known to compare policies in hindsight; pass reward to Dynamics.")
        self.dynamics = dynamics
        self.incumbent = self._checked("the incumbent", incumbent)
        self.agents = check_positive_integer("agents", agents)
        self.delta = check_number("delta", delta, above=0, below=1)
        self.initial = initial
        self.rows = 1 if alike else agents
        self._paid_differently = len(dynamics.rewards)
        self.counts: CountArray = np.zeros((self.rows, dynamics.laws, dynamics.outcomes), dtype=np.int64)
        """Outcomes of all episodes so far, ``(M or 1, G, W)``."""
        self.episodes = 0
        """Number of episodes of each agent so far."""
        self.number = 0
        """Number of candidates so far."""
        self.candidates: list[PolicyArray] = []
        """The candidate of all agents, or one for each; empty before the first."""
        self._forget()

    def _checked(self, name: str, policy: PolicyArray) -> PolicyArray:
        sizes = (self.dynamics.horizon, self.dynamics.states, self.dynamics.actions)
        return checked_policy(name, np.asarray(policy), *sizes)

    def _forget(self) -> None:
        """Begin to count for a new candidate."""
        self.judged_episodes = 0
        self._judged_counts = np.zeros_like(self.counts)
        self._judged_starts = np.zeros((self.rows, self.dynamics.states), dtype=np.int64)
        self._differences = new_histogram()
        self._sum = 0.0

    @property
    def is_due(self) -> bool:
        """True if a new candidate may be proposed: there is none, or the episodes have doubled since."""
        return not self.candidates or self.judged_episodes >= self.episodes - self.judged_episodes

    def propose(self, *candidates: PolicyArray) -> None:
        """Fix a candidate, chosen from whatever was seen so far; what follows judges it.

        It is one policy for all agents, or one for each where their counts are not added up.
        """
        if len(candidates) != 1 and len(candidates) != self.rows:
            raise InputError(f"a candidate is one policy for all agents, or {self.rows}; got {len(candidates)}.")
        self.candidates = [self._checked("the candidate", policy) for policy in candidates]
        self.number += 1
        self._forget()
        self._compared = [
            ComparedPolicies(self.dynamics, policy, self.incumbent, self.first_states) for policy in self.candidates
        ]
        agents = range(max(len(self.candidates), self._paid_differently))
        ranges = [self._compared[agent % len(self._compared)].difference_range(agent) for agent in agents]
        self.range = DifferenceRange(min(one.low for one in ranges), max(one.high for one in ranges))

    def add(self, recorded: Sequence[RecordedEpisodes]) -> None:
        """Add episodes of all agents, the same number of each, in the order of the agents."""
        lengths = {len(one.first_states) for one in recorded}
        if len(recorded) != self.agents or len(lengths) != 1:
            raise InputError(f"the same number of episodes of each of the {self.agents} agents must be added.")
        for agent, one in enumerate(recorded):
            check_recorded(self.dynamics, one)
            row = agent % self.rows
            counts = counts_of_outcomes(self.dynamics, one)
            self.counts[row] += counts
            self._judged_counts[row] += counts
            self._judged_starts[row] += np.bincount(one.first_states, minlength=self.dynamics.states)
            if self.candidates:
                self._add_differences(agent, one)
        self.episodes += lengths.pop()
        self.judged_episodes = self.judged_episodes + len(recorded[0].first_states)

    def _add_differences(self, agent: int, recorded: RecordedEpisodes) -> None:
        candidate = self.candidates[agent % len(self.candidates)]
        mine = replayed_returns(self.dynamics, candidate, recorded, agent)
        theirs = replayed_returns(self.dynamics, self.incumbent, recorded, agent)
        self._sum += float((mine - theirs).sum())
        if self.range.high > self.range.low:
            add_returns(self._differences, mine - theirs, self.range.high, self.range.low)

    def bounds(self) -> GainBounds:
        """Lower bounds on the gain of the candidate, by the episodes since it was fixed."""
        if not self.candidates:
            raise InputError("there is no candidate to judge; propose one first.")
        delta = self.delta / (self.number * (self.number + 1))
        n = self.judged_episodes * self.agents
        return GainBounds(
            candidate=self.number,
            episodes=self.judged_episodes,
            mean=self._sum / n if n else math.nan,
            by_replays=gain_by_replays(self._differences, self.range, delta / 2.0),
            by_laws=self._gain_by_laws(delta / 2.0),
            delta=delta,
        )

    def _gain_by_laws(self, delta: float) -> float:
        gains = [
            self._compared[row % len(self._compared)].gain_by_laws(
                self._judged_counts[row],
                self._judged_starts[row],
                delta / self.rows,
                initial=self.initial,
                agent=None if self.rows < self.agents else row,
            )
            for row in range(self.rows)
        ]
        return float(np.mean(gains))
