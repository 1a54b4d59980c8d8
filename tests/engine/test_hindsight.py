"""Hindsight: replays, ranges and bounds against enumeration and a general solver; coverage; what is refused."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import battery_sites
import numpy as np
import pytest
import shops

from fed_ucbvi import Dynamics, Federation
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.types import CountArray, FloatArray, IndexArray, PolicyArray
from fed_ucbvi.engine.hindsight import (
    ComparedPolicies,
    Hindsight,
    RecordedEpisodes,
    certify_from_logs,
    chances_of,
    check_exogenous,
    counts_of_outcomes,
    replayed_returns,
)
from known_problems import exogenous_dynamics, lived_episodes, plan_of_means, random_dynamics, random_laws
from matrices import first_of
from solvers import largest_mean_by_optimisation

SIZES = (3, 4, 2)
"""H, S and A of :func:`exogenous_dynamics`."""


def some_policies(rng: np.random.Generator) -> list[PolicyArray]:
    """A deterministic policy, a set of actions and probabilities."""
    H, S, A = SIZES
    actions: IndexArray = rng.integers(A, size=(H, S)).astype(np.int32)
    sets = rng.random((H, S, A)) < 0.6
    sets[..., 0] |= ~sets.any(axis=2)
    return [actions, sets, rng.dirichlet(np.ones(A), size=(H, S))]


def lived_return(dynamics: Dynamics, chances: FloatArray, first: int, outcomes: tuple[int, ...], agent: int) -> float:
    """Mean return over draws of actions, by a loop over states and their probabilities."""
    at = {first: 1.0}
    total = 0.0
    for h, outcome in enumerate(outcomes):
        after: dict[int, float] = {}
        for state, probability in at.items():
            for action, chance in enumerate(chances[h, state]):
                share = probability * chance
                total += share * float(dynamics.rewards_at(h, agent)[state, action, outcome])
                to = int(dynamics.next_states_at(h)[state, action, outcome])
                after[to] = after.get(to, 0.0) + share
        at = after
    return total


def every_outcome(dynamics: Dynamics) -> list[tuple[int, ...]]:
    return list(itertools.product(range(dynamics.outcomes), repeat=dynamics.horizon))


# Replays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", range(3), ids=["actions", "sets", "probabilities"])
def test_replayed_returns_are_those_of_the_policy_on_the_same_outcomes(form: int) -> None:
    rng = np.random.default_rng(form)
    dynamics = exogenous_dynamics(rng)
    policy = some_policies(rng)[form]
    outcomes = every_outcome(dynamics)
    first = rng.integers(4, size=len(outcomes)).astype(np.int32)
    recorded = RecordedEpisodes(first, np.array(outcomes, dtype=np.int32))
    chances = chances_of(policy, 2)
    expected = [
        lived_return(dynamics, chances, int(start), one, 0) for start, one in zip(first, outcomes, strict=True)
    ]
    np.testing.assert_allclose(replayed_returns(dynamics, policy, recorded), expected, rtol=0, atol=1e-14)


def test_the_mean_of_replays_over_the_laws_is_the_value_of_the_policy() -> None:
    rng = np.random.default_rng(3)
    dynamics = exogenous_dynamics(rng)
    laws = random_laws(rng, 1, dynamics)
    federation = Federation.from_laws(dynamics, laws, initial=1)
    policy = some_policies(rng)[0]
    recorded = RecordedEpisodes(np.ones(8, dtype=np.int32), np.array(every_outcome(dynamics), dtype=np.int32))
    returns = replayed_returns(dynamics, policy, recorded)
    chances = np.ones(8)
    state = recorded.first_states
    for h in range(3):
        outcome = recorded.outcomes[:, h]
        chances *= laws[0][dynamics.laws_at(h)[state, 0], outcome]
        state = dynamics.next_states_at(h)[state, 0, outcome]
    assert chances @ returns == pytest.approx(float(federation.agent(0).evaluate(policy)[0, 1]), abs=1e-14)


def test_counts_of_outcomes_are_those_of_the_laws_on_the_way() -> None:
    rng = np.random.default_rng(4)
    dynamics = exogenous_dynamics(rng)
    recorded = lived_episodes(rng, dynamics, random_laws(rng, 1, dynamics)[0], first=2, episodes=30)
    expected = np.zeros((dynamics.laws, dynamics.outcomes), dtype=np.int64)
    for outcomes in recorded.outcomes:
        s = 2
        for h, w in enumerate(outcomes):
            a = int(rng.integers(2))
            expected[dynamics.laws_at(h)[s, a], w] += 1
            s = int(dynamics.next_states_at(h)[s, a, w])
    assert np.array_equal(counts_of_outcomes(dynamics, recorded), expected)


# What two policies can differ by --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", range(3), ids=["actions", "sets", "probabilities"])
@pytest.mark.parametrize("seed", range(4))
def test_the_range_of_differences_is_attained_and_not_left(seed: int, form: int) -> None:
    """By enumeration of outcomes; where a policy draws its actions, the range may be a little wider."""
    rng = np.random.default_rng([seed, form])
    dynamics = exogenous_dynamics(rng)
    candidate = some_policies(rng)[0]
    incumbent = some_policies(rng)[form]
    first = np.array([0, 3], dtype=np.int32)
    found = ComparedPolicies(dynamics, candidate, incumbent, first).difference_range()
    differences = [
        lived_return(dynamics, chances_of(candidate, 2), int(start), outcomes, 0)
        - lived_return(dynamics, chances_of(incumbent, 2), int(start), outcomes, 0)
        for start in first
        for outcomes in every_outcome(dynamics)
    ]
    assert found.low <= min(differences) + 1e-14
    assert found.high >= max(differences) - 1e-14
    if form == 0:
        assert found == pytest.approx((min(differences), max(differences)), abs=1e-14)


def gain_by_solver(
    dynamics: Dynamics, candidate: PolicyArray, incumbent: PolicyArray, counts: CountArray, first: int, delta: float
) -> float:
    """The recursion for L as it is written, pair by pair, with a general convex solver."""
    mine = chances_of(candidate, dynamics.actions)
    theirs = chances_of(incumbent, dynamics.actions)
    union = np.log(2 * dynamics.horizon * dynamics.states**2 / delta)

    @functools.cache
    def L(h: int, x: int, y: int) -> float:
        if h == dynamics.horizon:
            return 0.0
        worth = np.zeros(dynamics.outcomes)
        for w, a, b in np.ndindex(dynamics.outcomes, dynamics.actions, dynamics.actions):
            chance = mine[h, x, a] * theirs[h, y, b]
            if chance > 0:
                paid = dynamics.rewards_at(h)[x, a, w] - dynamics.rewards_at(h)[y, b, w]
                to = dynamics.next_states_at(h)
                worth[w] += chance * (paid + L(h + 1, int(to[x, a, w]), int(to[y, b, w])))
        seen = counts[dynamics.laws_at(h)[x, 0]]
        N = seen.sum()
        if N == 0:
            return float(worth.min())
        c = (union + 0.5 * np.log(N + 1)) / N
        return -largest_mean_by_optimisation(seen / N, -worth, c)

    return L(0, first, first)


@pytest.mark.parametrize("form", range(2), ids=["actions", "sets"])
def test_the_bound_by_laws_is_its_recursion(form: int) -> None:
    rng = np.random.default_rng([5, form])
    dynamics = exogenous_dynamics(rng)
    candidate = some_policies(rng)[0]
    incumbent = some_policies(rng)[form]
    recorded = lived_episodes(rng, dynamics, random_laws(rng, 1, dynamics)[0], first=1, episodes=40)
    counts = counts_of_outcomes(dynamics, recorded)
    initial = np.eye(4)[1]
    compared = ComparedPolicies(dynamics, candidate, incumbent, np.array([1], dtype=np.int32))
    found = compared.gain_by_laws(counts, np.zeros(4, dtype=np.int64), 0.1, initial=initial)
    assert found == pytest.approx(gain_by_solver(dynamics, candidate, incumbent, counts, 1, 0.1), abs=1e-4)


def test_the_bound_by_laws_is_the_range_where_nothing_was_seen() -> None:
    rng = np.random.default_rng(6)
    dynamics = exogenous_dynamics(rng)
    compared = ComparedPolicies(dynamics, some_policies(rng)[0], some_policies(rng)[0])
    nothing = np.zeros((dynamics.laws, dynamics.outcomes), dtype=np.int64)
    found = compared.gain_by_laws(nothing, np.zeros(4, dtype=np.int64), 0.05)
    assert found == pytest.approx(compared.difference_range().low, abs=1e-14)


@pytest.mark.parametrize("known_start", [True, False])
def test_the_bound_by_laws_approaches_the_gain(known_start: bool) -> None:
    rng = np.random.default_rng(7)
    dynamics = exogenous_dynamics(rng)
    laws = random_laws(rng, 1, dynamics)
    candidate = some_policies(rng)[0]
    incumbent = some_policies(rng)[0]
    mu = np.full(4, 0.25)
    federation = Federation.from_laws(dynamics, laws, initial=mu)
    V = federation.agent(0).evaluate(candidate)[0] - federation.agent(0).evaluate(incumbent)[0]
    counts = np.round(laws[0] * 10**9).astype(np.int64)
    starts = np.full(4, 10**9)
    compared = ComparedPolicies(dynamics, candidate, incumbent)
    found = compared.gain_by_laws(counts, starts, 0.05, initial=mu if known_start else None)
    assert float(mu @ V) - 1e-3 < found <= float(mu @ V)


# Candidates -----------------------------------------------------------------------------------------------------


def two_prices() -> Dynamics:
    """Two actions that earn the same on average, one when outcome 0 is drawn and the other with outcome 1."""
    return Dynamics(
        laws=1,
        outcomes=2,
        law_of=0,
        next_state=np.zeros((1, 2, 2)),
        reward=[[[1.0, 0.0], [0.0, 1.0]]],
        horizon=2,
        states=1,
        actions=2,
    )


def test_a_candidate_is_due_when_episodes_have_doubled() -> None:
    rng = np.random.default_rng(1)
    watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=1)
    due = []
    for episode in range(1, 21):
        watched.add([lived_episodes(rng, two_prices(), np.array([[0.5, 0.5]]), first=0, episodes=1)])
        if watched.is_due:
            watched.propose(np.ones((2, 1), dtype=np.int32))
            due.append(episode)
    assert due == [1, 2, 4, 8, 16]


def test_candidates_share_delta() -> None:
    watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=1, delta=0.06)
    shares = []
    for _ in range(200):
        watched.propose(np.ones((2, 1), dtype=np.int32))
        shares.append(watched.bounds().delta)
    assert shares[:3] == pytest.approx([0.03, 0.01, 0.005])
    assert sum(shares) < 0.06


def test_a_new_candidate_is_judged_by_later_episodes_alone() -> None:
    rng = np.random.default_rng(2)
    watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=1)
    watched.add([lived_episodes(rng, two_prices(), np.array([[0.0, 1.0]]), first=0, episodes=500)])
    watched.propose(np.ones((2, 1), dtype=np.int32))
    assert watched.bounds().best == -2.0


def test_reports_in_parts_give_the_same_bits_as_all_at_once() -> None:
    rng = np.random.default_rng(3)
    dynamics = exogenous_dynamics(rng)
    incumbent = some_policies(rng)[1]
    candidate = some_policies(rng)[0]
    laws = random_laws(rng, 2, dynamics)
    each = [lived_episodes(rng, dynamics, laws[i], first=0, episodes=50) for i in range(2)]
    whole = Hindsight(dynamics, incumbent, agents=2)
    parts = Hindsight(dynamics, incumbent, agents=2)
    for watched in (whole, parts):
        watched.propose(candidate)
    whole.add(each)
    for begin in range(0, 50, 5):
        part = slice(begin, begin + 5)
        parts.add([RecordedEpisodes(one.first_states[part], one.outcomes[part]) for one in each])
    assert whole.bounds()[3:] == parts.bounds()[3:]


def test_agents_may_have_candidates_of_their_own() -> None:
    """The first agent's law favours the first action, the second's the other one; each is offered its own."""
    rng = np.random.default_rng(4)
    laws = np.array([[[0.9, 0.1]], [[0.1, 0.9]]])
    mixed = np.full((2, 1, 2), 0.5)
    watched = Hindsight(two_prices(), mixed, agents=2)
    watched.propose(np.zeros((2, 1), dtype=np.int32), np.ones((2, 1), dtype=np.int32))
    watched.add([lived_episodes(rng, two_prices(), law, first=0, episodes=400) for law in laws])
    bounds = watched.bounds()
    assert 0.4 < bounds.by_replays < 0.8
    assert 0.4 < bounds.by_laws < 0.8


def certified_share(runs: int, delta: float, gap: float) -> float:
    """Share of runs in which a candidate that is worse by ``gap`` per step was ever certified, by either bound."""
    law = np.array([[0.5 + gap / 2, 0.5 - gap / 2]])
    certified = 0
    for seed in range(runs):
        rng = np.random.default_rng([11, seed])
        watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=1, delta=delta)
        for _ in range(60):
            watched.add([lived_episodes(rng, two_prices(), law, first=0, episodes=1)])
            if watched.candidates and watched.bounds().best > 0:
                certified += 1
                break
            if watched.is_due:
                watched.propose(np.ones((2, 1), dtype=np.int32))
    return certified / runs


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_a_candidate_that_is_not_better_is_hardly_ever_certified(gap: float) -> None:
    assert certified_share(60, 0.5, gap) <= 0.5


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.1])
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_certificates_of_candidates_that_are_not_better_keep_delta(delta: float, gap: float) -> None:
    assert certified_share(1000, delta, gap) <= delta


# The shared examples --------------------------------------------------------------------------------------------


def episodes_until_certified(federation: Federation, incumbent: IndexArray, seed: int, most: int, **how: Any) -> int:
    """Episodes of each agent until a plan from the counts is certified, while the incumbent is played."""
    dynamics = federation.dynamics
    laws = federation.laws
    assert dynamics is not None
    assert laws is not None
    rng = np.random.default_rng(seed)
    watched = Hindsight(dynamics, incumbent, federation.agents, initial=federation.initial[0], **how)
    first = int(federation.initial[0].argmax())
    for episode in range(1, most + 1):
        watched.add([lived_episodes(rng, dynamics, law, first=first, episodes=1) for law in laws])
        if watched.candidates and watched.bounds().best > 0:
            return episode
        if watched.is_due:
            watched.propose(plan_of_means(dynamics, watched.counts.sum(axis=0)))
    return most + 1


def rule_of_shops() -> IndexArray:
    return np.array([[shops.usual(h, s) for s in range(shops.MOST + 1)] for h in range(shops.DAYS)], dtype=np.int32)


@pytest.mark.parametrize("seed", first_of(list(range(20))))
def test_batteries_are_certified_within_14_days_of_watching(seed: int) -> None:
    assert episodes_until_certified(battery_sites.batteries(), battery_sites.rule(), seed, most=14) <= 14


@pytest.mark.parametrize("seed", first_of(list(range(20))))
def test_shops_that_are_alike_are_certified_within_6_months_of_watching(seed: int) -> None:
    law = shops.demand_law(2.5)[None]
    alike = Federation.from_laws(shops.known_day(), np.stack([law] * 5), initial=shops.FIRST)
    assert episodes_until_certified(alike, rule_of_shops(), seed, most=6, alike=True) <= 6


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_different_shops_with_policies_of_their_own_are_certified_within_72_months(seed: int) -> None:
    federation = shops.known_shops()
    assert federation.laws is not None
    rng = np.random.default_rng(seed)
    watched = Hindsight(shops.known_day(), rule_of_shops(), agents=5, initial=federation.initial[0])
    certified = False
    for month in range(1, 73):
        watched.add(
            [lived_episodes(rng, watched.dynamics, law, first=shops.FIRST, episodes=1) for law in federation.laws]
        )
        certified |= bool(watched.candidates) and month % 4 == 0 and watched.bounds().best > 0
        if watched.is_due:
            watched.propose(*(plan_of_means(watched.dynamics, own) for own in watched.counts))
    assert certified


# From logs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", first_of(list(range(20))))
def test_sixty_logged_days_of_batteries_certify_a_policy(seed: int) -> None:
    federation = battery_sites.batteries()
    assert federation.laws is not None
    rng = np.random.default_rng([21, seed])
    dynamics = battery_sites.dynamics()
    first = battery_sites.FIRST
    logs = [lived_episodes(rng, dynamics, law, first=first, episodes=60) for law in federation.laws]
    assert certify_from_logs(dynamics, battery_sites.rule(), logs).bounds.best > 0.0


def test_the_policy_of_logs_is_planned_from_their_first_part() -> None:
    rng = np.random.default_rng(22)
    dynamics = exogenous_dynamics(rng)
    log = lived_episodes(rng, dynamics, random_laws(rng, 1, dynamics)[0], first=0, episodes=40)
    found = certify_from_logs(dynamics, some_policies(rng)[1], [log], learn_from=0.25)
    earlier = RecordedEpisodes(log.first_states[:10], log.outcomes[:10])
    assert np.array_equal(found.policy, plan_of_means(dynamics, counts_of_outcomes(dynamics, earlier)))
    assert found.bounds.episodes == 30


def test_a_policy_of_logs_has_all_of_delta() -> None:
    rng = np.random.default_rng(23)
    log = lived_episodes(rng, two_prices(), np.array([[0.5, 0.5]]), first=0, episodes=4)
    found = certify_from_logs(two_prices(), np.zeros((2, 1), dtype=np.int32), [log], delta=0.06)
    assert found.bounds.delta == pytest.approx(0.06)


# What is refused ------------------------------------------------------------------------------------------------


def queue_that_reacts_to_prices() -> Dynamics:
    return Dynamics(
        laws=2,
        outcomes=3,
        law_of=lambda h, s, price: price,
        next_state=lambda h, s, price, arrivals: np.minimum(s + arrivals, 4),
        reward=np.zeros((5, 2)),
        horizon=5,
        states=5,
        actions=2,
    )


def test_outcomes_that_depend_on_actions_are_refused() -> None:
    message = "at step 0 in state 0, actions 0 and 1 lead to different laws"
    with pytest.raises(InputError, match=message):
        Hindsight(queue_that_reacts_to_prices(), np.zeros((5, 5), dtype=np.int32), agents=1)


def test_wear_that_depends_on_use_is_refused() -> None:
    wear = Dynamics(
        laws=3,
        outcomes=2,
        law_of=lambda h, wear, use: wear,
        next_state=lambda h, wear, use, fails: np.where(fails, 0, np.minimum(wear + use, 2)),
        horizon=3,
        states=3,
        actions=2,
    )
    with pytest.raises(InputError, match="outcomes depend on what is done"):
        check_exogenous(wear)


def test_rewards_that_are_to_be_learnt_are_refused() -> None:
    rng = np.random.default_rng(0)
    one_law = Dynamics(laws=1, outcomes=2, law_of=0, next_state=np.zeros((3, 2, 2)), horizon=3, states=3, actions=2)
    assert one_law.action_dependence() is None
    with pytest.raises(InputError, match="rewards must be known"):
        Hindsight(one_law, rng.integers(2, size=(3, 3)), agents=1)


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ((np.zeros(2, dtype=np.int32), np.zeros((2, 3), dtype=np.int32)), r"outcomes must have shape .* = \(2, 2\)"),
        ((np.ones(2, dtype=np.int32), np.zeros((2, 2), dtype=np.int32)), "first states must be numbers from 0 to 0"),
        ((np.zeros(2, dtype=np.int32), np.full((2, 2), 2, dtype=np.int32)), "outcomes must be numbers from 0 to 1"),
    ],
)
def test_episodes_that_do_not_fit_are_refused(recorded: tuple[IndexArray, IndexArray], message: str) -> None:
    watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=1)
    with pytest.raises(InputError, match=message):
        watched.add([RecordedEpisodes(*recorded)])


def test_agents_with_different_numbers_of_episodes_are_refused() -> None:
    rng = np.random.default_rng(0)
    watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=2)
    law = np.array([[0.5, 0.5]])
    lengths = [lived_episodes(rng, two_prices(), law, first=0, episodes=n) for n in (1, 2)]
    with pytest.raises(InputError, match="the same number of episodes of each of the 2 agents"):
        watched.add(lengths)


def test_bounds_without_a_candidate_are_refused() -> None:
    watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=1)
    with pytest.raises(InputError, match="there is no candidate to judge"):
        watched.bounds()


def test_a_number_of_candidates_that_does_not_fit_is_refused() -> None:
    watched = Hindsight(two_prices(), np.zeros((2, 1), dtype=np.int32), agents=3)
    policy = np.zeros((2, 1), dtype=np.int32)
    with pytest.raises(InputError, match="one policy for all agents, or 3; got 2"):
        watched.propose(policy, policy)


def test_random_dynamics_are_hardly_ever_exogenous() -> None:
    rng = np.random.default_rng(12)
    assert random_dynamics(rng).action_dependence() is not None
