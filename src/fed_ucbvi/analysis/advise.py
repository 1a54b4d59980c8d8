"""Which algorithm, which options, how many bins and how many episodes: advice before a run, with its reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.analysis.dependence import Dependence, Transitions, check_agent_dependence, check_step_dependence
from fed_ucbvi.analysis.inspection import price_of_sharing
from fed_ucbvi.core.errors import InputError, check_number, check_positive_integer
from fed_ucbvi.core.numbers import Bracket, byte_count
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.problem.federation import Federation

if TYPE_CHECKING:
    import gymnasium

    from fed_ucbvi.environments.bins import Bins

VISITS_BY_STEP, VISITS_STATIONARY = 40, 100
"""Mean visits of all agents to a pair, counted by step and over all steps, after which the recommended policy of
Fed-KL-UCBVI has 0.95 of the optimum. Measured (docs/advise.md): 2 to 28 and 1 to 67 on six environments, and many
more on SixArms, where rewards are hard to find."""
MANY_AGENTS, GROWTH_BY_STEP, GROWTH_STATIONARY = 100, 0.01, 0.1
"""The number of agents from which on rounds are worth saving, and by which ``min_round_growth`` (docs/kl.md)."""
USUAL_BINS, MIN_BINS = 8, 3
MEMORY = 4 << 30
"""Bytes for an agent's tables, unless said otherwise."""
NOISY = 0.25
"""A standard deviation of the reward at a pair, as a share of its range, from which optimism should cover it."""
DEAR = 0.05
"""A price of sharing, as a share of what agents get by their own policies, above which no shared policy can have the
0.95 of the optimum that each agent can learn by itself."""
KL, FAST, FEDQ = "fed-kl-ucbvi", "fed-kl-ucbvi-fast", "fedq-bernstein"
"""The algorithms that are recommended, by name."""


@dataclass(frozen=True)
class Problem:
    """What is known before the run; None where something is not.

    Attributes:
        states: S, and so on for actions, horizon and agents.
        next_states: how many a pair can have at most.
        stationary: whether kernel and rewards are the same at every step.
        test: on which episodes that was found out.
        agents_test: whether agents differ, where episodes of several were played.
        reward_spread: the standard deviation of the reward at a pair, as a share of the range: the largest, or where
            episodes were played the root mean square over visits.
        price: what agents lose an episode by sharing one policy.
        own: what they get an episode by their own best policies, on average.
        bins: for each continuous dimension, where the environment was made finite by some.
    """

    states: int
    actions: int
    horizon: int
    agents: int
    next_states: int | None = None
    stationary: bool | None = None
    test: Dependence | None = None
    agents_test: Dependence | None = None
    reward_spread: float | None = None
    eps_p: float | None = None
    eps_r: float | None = None
    price: Bracket | None = None
    own: float | None = None
    bins: int | None = None

    @property
    def dear(self) -> bool:
        """Whether sharing one policy certainly costs too much."""
        return self.price is not None and self.own is not None and self.price.lower > DEAR * self.own


@dataclass(frozen=True)
class Advice:
    """What to run.

    Attributes:
        options: its parameters that are not defaults.
        random_rewards: whether to say that rewards are random.
        together: whether to federate; False with one agent, and where one policy for all costs too much.
        episodes: for each agent, together or alone.
        bins_per_dimension: of continuous observations; None if there are none.
        memory: bytes of one agent's tables.
    """

    algorithm: str
    options: Mapping[str, object]
    random_rewards: bool
    together: bool
    episodes: int
    bins_per_dimension: int | None
    memory: int
    problem: Problem
    reasons: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        known = dict(vars(self.problem))
        del known["bins"]
        tests = {"step_dependence": known.pop("test"), "agent_dependence": known.pop("agents_test")}
        known |= {key: test and {**asdict(test), "found": test.found} for key, test in tests.items()}
        known["price"] = known["price"] and known["price"].summary()
        return {**vars(self), "options": dict(self.options), "reasons": list(self.reasons), "problem": known}


def choose_parameters(
    problem: FederationLike | gymnasium.Env[Any, Any] | Sequence[gymnasium.Env[Any, Any]] | None = None,
    *,
    states: int | None = None,
    actions: int | None = None,
    horizon: int | None = None,
    agents: int = 20,
    episodes: int | None = None,
    sample_episodes: int = 30,
    false_alarms: float = 0.01,
    memory: int = MEMORY,
    seed: int = 0,
) -> Advice:
    """Recommend an algorithm, its options, the number of bins and that of episodes.

    The problem is given by its sizes, as a federation whose tables are known, or as the Gymnasium environments of one
    or more agents, in which a few episodes with random actions are played.

    Args:
        problem: a federation (an environment's name, an MDP or a list of MDPs will do), or the Gymnasium environment
            of one agent, or a list of those of several, to see whether they differ; spaces that are not finite get
            bins.
        states: S; with ``actions`` and ``horizon``, if there is no ``problem``.
        actions: A.
        horizon: H; with an environment, its max_episode_steps by default.
        agents: M; with a federation, its own.
        episodes: T, as many as each agent can play, if that is given.
        sample_episodes: how many to play in each environment.
        false_alarms: of the test whether kernel and rewards depend on the step, and of that on the agent.
        memory: bytes that an agent's tables may take.
        seed: of the episodes and the test.

    >>> advice = choose_parameters(states=21, actions=6, horizon=30, agents=5)
    >>> advice.algorithm, dict(advice.options), advice.episodes
    ('fed-kl-ucbvi', {}, 1008)
    """
    M = check_positive_integer("agents", agents)
    T = None if episodes is None else check_positive_integer("episodes", episodes)
    check_positive_integer("memory", memory)
    check_number("false_alarms", false_alarms, above=0, below=1)
    given = {"states": states, "actions": actions, "horizon": horizon}
    if problem is None:
        if None in given.values():
            raise InputError("advice needs states, actions and horizon, or a federation, or an environment to try.")
        S, A, H = (check_positive_integer(name, size) for name, size in given.items())
        known = Problem(S, A, H, M)
    elif environments := _environments(problem):
        if states is not None or actions is not None:
            raise InputError("an environment brings its sizes along; leave out states and actions.")
        known = _tried(environments, horizon, M, T, sample_episodes, false_alarms, seed)
    else:
        if {*given.values()} != {None}:
            raise InputError("a federation (--env) brings its sizes along; leave out states, actions and horizon.")
        known = _known(as_federation(problem))  # type: ignore[arg-type]
    return _advice(known, T, memory)


def _environments(problem: object) -> list[gymnasium.Env[Any, Any]]:
    """The Gymnasium environments, if it is one or a list of them; otherwise none."""
    given: list[Any] = list(problem) if isinstance(problem, Sequence) else [problem]
    return given if all(hasattr(one, "observation_space") for one in given) else []


def _known(federation: Federation) -> Problem:
    """A federation whose tables are known."""
    kernel, random = federation.common.kernel, federation.reward_variances
    stationary = kernel.steps == 1 and federation.rewards.shape[1] == 1
    return Problem(
        *(federation.states, federation.actions, federation.horizon, federation.agents),
        next_states=int(kernel.successors.shape[-1]),
        stationary=stationary,
        reward_spread=0.0 if random is None else float(np.sqrt(np.max(random))),
        eps_p=federation.eps_p,
        eps_r=federation.eps_r,
        price=price_of_sharing(federation),
        own=federation.common_optimum.own,
    )


def _tried(
    environments: Sequence[gymnasium.Env[Any, Any]],
    horizon: int | None,
    agents: int,
    episodes: int | None,
    sample_episodes: int,
    false_alarms: float,
    seed: int,
) -> Problem:
    """The first environment, after a few episodes in it; with bins for as many as there are, if it needs some.

    The others are compared with it.
    """
    from fed_ucbvi.environments.bin_making import learn_bins
    from fed_ucbvi.environments.bins import Edges
    from fed_ucbvi.environments.finite_spaces import dimensions_of

    env = environments[0]
    observed = dimensions_of(env.observation_space)
    continuous = sum(not one.count for one in observed)
    whole = math.prod(one.count for one in observed if one.count)
    tried: dict[str, Any] = {"episodes": sample_episodes, "horizon": horizon, "seed": seed}
    tried["reward_range"] = (0, 1)  # any will do
    bins_with = partial(learn_bins, env, actions_per_dimension=MIN_BINS, **tried)
    bins = bins_with(bins_per_dimension=USUAL_BINS)
    stationary: bool | None = None
    for _ in range(2 if continuous and episodes is not None else 1):  # the bins depend on the test, and it on them
        if continuous and episodes is not None:
            places = episodes * agents / (VISITS_STATIONARY / bins.horizon if stationary else VISITS_BY_STEP)
            most = places / (whole * bins.number_of_actions)
            bins = bins_with(bins_per_dimension=max(MIN_BINS, math.floor(most ** (1 / continuous) + 1e-9)))
        seen = _sample(env, bins, sample_episodes, seed)
        test = check_step_dependence(seen, bins.horizon, false_alarms=false_alarms, seed=seed)
        stationary = not test.found
    columns = np.stack([seen.state, seen.action, seen.following], axis=1)
    moves = np.unique(columns, axis=0)
    followed = np.unique(moves[:, :2], axis=0, return_counts=True)[1]  # how many states follow a pair
    pair = np.unique(columns[:, :2], axis=0, return_inverse=True)[1].reshape(-1)
    off = seen.reward - (np.bincount(pair, seen.reward) / np.bincount(pair))[pair]  # from the mean of the pair
    others = [_sample(one, bins, sample_episodes, seed + i) for i, one in enumerate(environments[1:], start=1)]
    return Problem(
        *(bins.states + 1, bins.number_of_actions, bins.horizon, agents),
        next_states=min(bins.states + 1, 2 * int(followed.max())),
        stationary=stationary,
        test=test,
        agents_test=check_agent_dependence([seen, *others], false_alarms=false_alarms, seed=seed) if others else None,
        reward_spread=float(np.sqrt(np.mean(off**2))) / (float(np.ptp(seen.reward)) or 1.0),
        bins=max(one.count for one in bins.observations if isinstance(one, Edges)) if continuous else None,
    )


def _sample(env: gymnasium.Env[Any, Any], bins: Bins, episodes: int, seed: int) -> Transitions:
    """Episodes with random actions in bins; after termination there is nothing to be learnt."""
    from fed_ucbvi.environments.bin_making import make_finite, random_episodes

    rows = []
    for one in random_episodes(make_finite(env, bins), episodes, bins.horizon, seed):
        states = [*one.observations[:-1], bins.states if one.terminated else one.observations[-1]]
        moves = zip(states, one.actions, states[1:], one.rewards, strict=False)
        rows += [(h, *move) for h, move in enumerate(moves)]
    return Transitions.of(rows)


def _advice(known: Problem, episodes: int | None, memory: int) -> Advice:
    S, A, H, M = known.states, known.actions, known.horizon, known.agents
    reasons, stationary = [_about_steps(known)], known.stationary is True
    tables = 16 * S * A * (1 if stationary else H) * (known.next_states or S)  # of all rounds and of this one
    algorithm, options = KL, {"stationary": True} if stationary else {}
    if tables > memory:
        keeps, tables = byte_count(tables), 16 * S * A * H
        algorithm, options, stationary = FEDQ, {}, False
        reasons.append(
            f"{KL} keeps transition counts, {keeps} for an agent, more than {byte_count(memory)}; {FEDQ} keeps none "
            f"({byte_count(tables)}), and learns more slowly."
        )
    else:
        reasons.append(
            f"{KL} has a proof and nothing to tune (docs/kl.md); an agent's tables take {byte_count(tables)}. {FAST} "
            "has less regret and no proof."
        )
    visits = VISITS_STATIONARY if stationary else VISITS_BY_STEP
    together = M > 1 and not known.dear
    needed = math.ceil(visits * S * A * (1 if stationary else H) / ((M if together else 1) * H))
    whose = "all agents" if together else "an agent"
    reasons.append(
        f"{needed:,} episodes give {visits} visits of {whose} to each of the {S:,} x {A:,} pairs"
        f"{'' if stationary else ' at each step'} on average. With that the recommended policy had 0.95 of the "
        "optimum in our measurements, except where rewards are hard to find; there it may take ten times as many."
    )
    if episodes is not None and episodes < needed:
        reasons.append(
            f"You have {episodes:,} episodes, a share of {episodes / needed:.0%} of that: expect a policy that is "
            "still improving, or use fewer bins, states or actions."
        )
    if known.bins is not None:
        filled = "a beginning; use more with more episodes"
        filled = filled if episodes is None else f"as many as {episodes:,} episodes can fill"
        reasons.append(f"{known.bins} bins for each continuous dimension are {filled}.")
    spread = known.reward_spread or 0.0
    random = spread >= NOISY
    if spread:
        what = ". That is little, and their means are enough: to cover the spread would slow learning down."
        what = ", so declare them random: optimism then covers their spread." if random else what
        reasons.append(f"Rewards at a pair vary by {spread:.2f} of their range{what}")
    reasons.append(_about_sharing(known, needed))
    played = needed if episodes is None else episodes
    if algorithm == KL and together and M >= MANY_AGENTS:
        growth = GROWTH_STATIONARY if stationary else GROWTH_BY_STEP
        most = math.floor(2 + math.log(played) / math.log1p(growth))
        reasons.append(
            f"With {M:,} agents there is a request after almost every episode at first. With min_round_growth="
            f"{growth:g} there are at most {most:,} rounds, however many agents there are. What that costs in regret "
            "is in docs/kl.md."
        )
    return Advice(algorithm, options, random, together, played, known.bins, tables, known, tuple(reasons))


def _about_steps(known: Problem) -> str:
    if known.test is not None:
        p = f"({known.test}; a dependence is found by mistake with probability {known.test.false_alarms:g})"
        if known.test.found:
            coarse = ", or because bins are coarse" if known.bins is not None else ""
            return f"Visits are counted by step, because what follows a pair depends on the step{coarse} {p}."
        return (
            "Visits are counted over all steps together (stationary), because no dependence on the step was found "
            f"{p}. A few episodes cannot show a small one: leave the option out if you know of one."
        )
    if known.stationary is None:
        return (
            "Visits are counted by step, because it is not known whether kernel and rewards depend on it. If they do "
            f"not, stationary=true needs about {known.horizon * VISITS_BY_STEP / VISITS_STATIONARY:.0f} times fewer "
            "episodes."
        )
    if known.stationary:
        return "Visits are counted over all steps together (stationary): the tables are the same at every step."
    return "Visits are counted by step, because the tables depend on it."


def _about_sharing(known: Problem, needed: int) -> str:
    if known.agents == 1:
        return "There is one agent, so there is nothing to share: run it without a network."
    if known.price is None or known.own is None:
        return _about_differences(known.agents_test)
    if not known.price.upper:
        alike = "The agents are alike" if known.eps_p == known.eps_r == 0 else "One policy is best for all agents"
        return f"{alike}, so together they need about as many episodes as one agent needs, divided by M."
    costs = (
        f"The agents differ (eps_p = {known.eps_p:.3g}, eps_r = {known.eps_r:.3g}). The best shared policy is "
        f"worth {_ends(known.price, 1.0)} less an episode than their own best policies, {known.own:.4g}: "
        f"{_ends(known.price, 0.01 * known.own)} %"
    )
    if known.dear:
        return (
            f"{costs}. That is too much, so let each learn alone. With far fewer than {needed:,} episodes sharing "
            "may be better still: alone_or_together() decides this for each agent from its own counts."
        )
    return f"{costs}. Sharing is worth that while agents have seen little; compare both after the run."


def _ends(bracket: Bracket, unit: float) -> str:
    low, high = (f"{end / unit:.3g}" for end in bracket)
    return low if low == high else f"{low} to {high}"


def _about_differences(test: Dependence | None) -> str:
    compare = "Compare the shared policy with each agent's own after the run (alone_or_together())"
    if test is None:
        return (
            f"How much the agents differ is not known. {compare}; where agents differ much and play long, each alone "
            "is better in the end."
        )
    if test.found:
        values = {"next states": test.kernel, "rewards": test.rewards}
        differ = " and ".join(name for name, value in values.items() if value <= test.false_alarms / 2)
        return (
            f"The agents differ in their {differ} ({test}). {compare}, and expect each alone to be better in the end."
        )
    return f"No difference between the agents was found ({test}). A few episodes cannot show a small one. {compare}."
