"""The best common policy: its bracket against enumeration of all policies, and what it says of runs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import NoReturn

import numpy as np
import pytest

from fed_ucbvi import MDP, ByzanUCBVI, Federation, FedQAdvantage, FedUCBVI, InputError, Run, gridworld, run, synthetic
from fed_ucbvi.core.numbers import Bracket
from fed_ucbvi.core.types import FloatArray, IndexArray
from fed_ucbvi.engine.regret import Scorer
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper import sharing
from fed_ucbvi.paper.common_policy import MIN_PASS, WORK, ascend, honest_tables, starting_policies
from fed_ucbvi.paper.sharing import best_common_policy, federated_regret, federated_simple_regret, price_of_sharing
from fed_ucbvi.paper.sharing_bounds import AllowedArray, flow_floor, own_optima, tighten
from matrices import first_of
from problems import random_federation, random_mdp

LOCAL = FedUCBVI(synchronisation="local")
"""Fed-UCBVI without the caution about nu."""


# ------------------------------------------------------------------------------- enumeration, from dense tables
def dense_tables(federation: Federation) -> tuple[FloatArray, FloatArray]:
    """``P[M,H,S,A,S]`` and ``r[M,H,S,A]``."""
    M = federation.agents
    H = federation.horizon
    S = federation.states
    A = federation.actions
    mdps = [federation.agent(i) for i in range(M)]
    P = np.stack([np.broadcast_to(mdp.kernel.dense(), (H, S, A, S)) for mdp in mdps])
    return P, np.stack([np.broadcast_to(mdp.rewards, (H, S, A)) for mdp in mdps])


@functools.cache
def every_policy(H: int, S: int, A: int) -> IndexArray:
    """All ``A^(HS)`` policies, ``(N, H, S)``."""
    grid = np.array(list(itertools.product(range(A), repeat=H * S)), dtype=np.int32)
    return grid.reshape(-1, H, S)


def values_of(federation: Federation, policies: IndexArray) -> FloatArray:
    """``V^{i,pi}_1(mu^i)`` of every policy and agent, ``(N, M)``, by backward induction on the dense tables."""
    P, r = dense_tables(federation)
    N, H, S = policies.shape
    V = np.zeros((N, federation.agents, S))
    for h in reversed(range(H)):
        rows = [
            r[:, h, s].T[policies[:, h, s]]
            + np.einsum("nmt,nmt->nm", P[:, h, s].swapaxes(0, 1)[policies[:, h, s]], V)
            for s in range(S)
        ]
        V = np.stack(rows, axis=-1)
    return np.asarray((V * federation.initial).sum(axis=-1))


def best_with_memory(federation: Federation) -> float:
    """The best policy that remembers its path: dynamic programming over where the agents are, weighted."""
    P, r = dense_tables(federation)

    def go(h: int, s: int, weights: FloatArray) -> float:
        if h == federation.horizon:
            return 0.0
        return max(
            float(weights @ r[:, h, s, a])
            + sum(go(h + 1, t, weights * P[:, h, s, a, t]) for t in range(federation.states))
            for a in range(federation.actions)
        )

    return sum(go(0, s, federation.initial[:, s]) for s in range(federation.states)) / federation.agents


def small_federations(number: int, states: int = 2, horizon: int = 3) -> Iterator[Federation]:
    """Mixtures with small and large eps_p, and agents with nothing in common; shared and own rewards and starts."""
    for seed in range(number):
        rng = np.random.default_rng([seed, states, horizon])
        agents = 2 + seed % 4
        if seed % 3 == 0:
            mdps = [random_mdp(rng, states, 2, horizon, zeros=0.4) for _ in range(agents)]
            yield Federation.from_mdps(mdps, reference="mean")
        else:
            kind = {
                "stationary": seed % 2 == 0,
                "own_rewards": seed % 5 < 3,
                "own_starts": seed % 7 < 3,
            }
            yield random_federation(
                rng,
                agents,
                states,
                2,
                horizon,
                eps_p=(0.05, 0.3, 0.8)[seed // 3 % 3],
                **kind,
            )


def parity_federation() -> Federation:
    """Two agents part at step 1, meet at step 2, and then need opposite actions."""
    to = np.eye(3)
    rewards = np.zeros((2, 3, 3, 2))
    rewards[0, 2, 0, 0] = rewards[1, 2, 0, 1] = 1.0
    kernels = [np.stack([[to[i + 1], to[i + 1]], [to[0], to[0]], [to[0], to[0]]]) for i in (0, 1)]
    mdps = [MDP(kernel, own, initial=0) for kernel, own in zip(kernels, rewards, strict=True)]
    return Federation.from_mdps(mdps, reference="mean")


# -------------------------------------------------------------------------------------------------- the bracket
@pytest.mark.parametrize("number", first_of([50, 400]))
def test_the_bracket_of_the_best_common_policy_is_exact_in_small_federations(
    number: int,
) -> None:
    better = 0
    for federation in itertools.chain(small_federations(number), small_federations(number // 2, horizon=2)):
        optimum = best_common_policy(federation)
        remembering = best_with_memory(federation)
        values = values_of(federation, every_policy(federation.horizon, 2, 2))
        assert optimum.value.exact
        assert optimum.value.lower == pytest.approx(values.mean(axis=1).max(), abs=1e-11)
        attained = values_of(federation, optimum.policy[None]).mean()
        assert attained == pytest.approx(optimum.value.lower, abs=1e-12)
        assert optimum.own == pytest.approx(values.max(axis=0).mean(), abs=1e-12)
        assert optimum.value.upper <= remembering + 1e-11
        assert remembering <= optimum.history_upper + 1e-11 <= optimum.own + 2e-11
        better += remembering > optimum.value.upper + 1e-6
    assert better > number / 10


@pytest.mark.parametrize("number", first_of([40, 334]))
def test_a_bracket_cut_short_holds_the_truth(number: int) -> None:
    """512 policies each; little enough work that many brackets stay open, some of them halfway."""
    open_ones = dict.fromkeys((1, 15 * MIN_PASS, 40 * MIN_PASS), 0)
    for federation in small_federations(number, states=3):
        best = values_of(federation, every_policy(3, 3, 2)).mean(axis=1).max()
        widths = []
        for work in open_ones:
            value = best_common_policy(federation, work=work).value
            assert value.lower - 1e-12 <= best <= value.upper + 1e-11
            open_ones[work] += not value.exact
            widths.append(value.upper - value.lower)
        assert widths[2] <= widths[0] + 1e-12
    first, halfway, last = open_ones.values()
    assert first > halfway > last > 0


def test_memory_can_be_worth_half_of_everything() -> None:
    federation = parity_federation()
    optimum = best_common_policy(federation)
    assert optimum.value == Bracket(0.5, 0.5)
    assert best_with_memory(federation) == pytest.approx(1.0)
    assert optimum.history_upper == optimum.own == 1.0
    assert price_of_sharing(federation) == Bracket(0.5, 0.5)


def test_no_randomised_markov_policy_beats_the_best_deterministic_one() -> None:
    rng = np.random.default_rng(1)
    for federation in small_federations(40):
        P, r = dense_tables(federation)
        M, H, S, A = r.shape
        best = best_common_policy(federation).value.upper
        for _ in range(50):
            rule = rng.dirichlet(np.full(A, 0.3), size=(H, S))
            V = np.zeros((M, S))
            for h in reversed(range(H)):
                V = np.einsum(
                    "sa,msa->ms",
                    rule[h],
                    r[:, h] + np.einsum("msat,mt->msa", P[:, h], V),
                )
            assert (federation.initial * V).sum() / M <= best + 1e-12


@pytest.mark.parametrize("agents", [5, 20, 100])
@pytest.mark.parametrize("eps_p", [0.0, 0.01, 0.1, 10**-0.5])
def test_the_papers_environments_are_solved_exactly(agents: int, eps_p: float) -> None:
    for federation in (gridworld(agents, eps_p), synthetic(agents, eps_p)):
        optimum = best_common_policy(federation)
        assert optimum.value.exact
        assert optimum.value.upper <= optimum.history_upper <= optimum.own
        common = values_of(federation, federation.common.solve().policy[None]).mean()
        assert common <= optimum.value.lower + 1e-12
        if eps_p == 0.0:
            assert optimum.own == pytest.approx(float(common), abs=1e-12)
            assert price_of_sharing(federation) == Bracket(0.0, 0.0)


def test_large_problems_get_the_cheap_bounds() -> None:
    world = gridworld(agents=3, eps_p=0.1, rows=12, columns=12, horizon=30)
    cheap = best_common_policy(world, work=1)
    assert cheap.nodes == 1
    assert 0.0 < cheap.value.lower < cheap.value.upper <= cheap.history_upper < cheap.own


def test_the_bracket_is_a_function_of_the_federation_for_given_work() -> None:
    world, its_equal = (gridworld(agents=6, eps_p=0.7, seed=3) for _ in range(2))
    first, again = (best_common_policy(one, work=WORK // 10) for one in (world, its_equal))
    assert first is not again
    assert not first.value.exact
    for field in fields(first):
        assert np.array_equal(getattr(first, field.name), getattr(again, field.name))


def test_the_same_search_is_made_once() -> None:
    small = synthetic(agents=2, eps_p=0.1)
    assert best_common_policy(small) is best_common_policy(small)
    assert best_common_policy(small) is not best_common_policy(small, work=1)


def test_a_search_without_work_is_refused() -> None:
    with pytest.raises(InputError, match="work"):
        best_common_policy(synthetic(agents=2), work=0)


def test_liars_do_not_count() -> None:
    whole = synthetic(agents=6, eps_p=0.5, eps_r=0.4)
    lying = whole.with_liars(0.34, "random", seed=2)
    assert lying.liars is not None
    honest = Federation.from_mdps(
        [whole.agent(i) for i in range(6) if i not in lying.liars.agents],
        reference="mean",
    )
    assert best_common_policy(lying).value == best_common_policy(honest).value
    assert best_common_policy(lying).value != best_common_policy(whole).value
    assert price_of_sharing(lying) == price_of_sharing(honest)


# -------------------------------------------------------------------------------------------- ascent and floors
@pytest.mark.slow
def test_ascent_ends_where_no_single_change_gains() -> None:
    for federation in small_federations(60, states=3):
        tables = honest_tables(federation)
        for start in starting_policies(tables, federation.common.solve().policy):
            before = values_of(federation, start[None]).mean()
            value, sweeps = ascend(tables, start, 100)
            assert 2 <= sweeps < 100
            assert value == pytest.approx(values_of(federation, start[None]).mean(), abs=1e-12)
            assert value >= before - 1e-12
            for h, s in itertools.product(range(federation.horizon), range(federation.states)):
                other = start.copy()
                other[h, s] = 1 - other[h, s]
                assert values_of(federation, other[None]).mean() <= value + 1e-11


def test_the_starts_of_few_agents_are_their_own_optima() -> None:
    federation = next(small_federations(1, states=3))
    tables = honest_tables(federation)
    common = federation.common.solve().policy
    starts = [policy.tobytes() for policy in starting_policies(tables, common)]
    assert len(starts) == len(set(starts))
    for i in range(federation.agents):
        assert federation.agent(i).solve().policy.tobytes() in starts


def floors(
    federation: Federation, allowed: AllowedArray
) -> tuple[float, float, float, FloatArray, IndexArray, FloatArray]:
    """The agents' own optima, both floors, and what the flow floor writes: costs, a policy, its regrets."""
    H, S, A = allowed.shape
    tables = honest_tables(federation)
    V = np.ones((H + 1, S, federation.agents))
    W = np.ones((H + 1, S))
    own, overlap = own_optima(tables, tables.probabilities.min(axis=-1), allowed, V, W)
    policy = np.zeros((H, S), dtype=np.int32)
    cost = np.zeros((H, S, A))
    regrets = np.zeros((2, H, S))
    return (
        own,
        overlap,
        flow_floor(tables, allowed, V, W, cost, policy, regrets),
        cost,
        policy,
        regrets,
    )


def allowed_policies(allowed: AllowedArray) -> AllowedArray:
    """Which of all policies take allowed actions only."""
    H, S, A = allowed.shape
    policies = every_policy(H, S, A)
    return np.asarray(allowed[np.arange(H)[:, None], np.arange(S), policies].all(axis=(1, 2)))


def test_the_floors_are_below_the_loss_of_every_allowed_policy() -> None:
    rng = np.random.default_rng(5)
    ruled_out = 0
    for federation in small_federations(300):
        H = federation.horizon
        S = federation.states
        A = federation.actions
        allowed = rng.random((H, S, A)) < 0.7
        allowed |= np.arange(A) == rng.integers(A, size=(H, S, 1))
        sums = values_of(federation, every_policy(H, S, A)).sum(axis=1)
        inside = allowed_policies(allowed)
        own, overlap, floor, cost, policy, regrets = floors(federation, allowed)
        assert values_of(federation, every_policy(H, S, A))[inside].max(axis=0).sum() == pytest.approx(own)
        assert overlap >= 0.0
        assert own - sums[inside].max() >= max(overlap, floor) - 1e-12
        lost = values_of(federation, policy[None]).sum()
        assert own - regrets[0].sum() == pytest.approx(lost, abs=1e-11)
        for a, h, s in itertools.product(range(A), range(H), range(S)):
            taking = inside & (every_policy(H, S, A)[:, h, s] == a)
            if allowed[h, s, a]:
                bound = floor + cost[h, s, a] - cost[h, s, policy[h, s]]
                assert own - sums[taking].max() >= bound - 1e-12
        known = float(rng.choice(sums[inside]))
        before = int(allowed.sum())
        tables = honest_tables(federation)
        shared = tables.probabilities.min(axis=-1)
        upper, _, step, state, passes = tighten(tables, shared, allowed, known, 100)
        ruled_out += before - int(allowed.sum())
        assert sums[inside].max() <= max(upper, known) + 1e-12
        if sums[inside].max() > known + 1e-12:
            assert sums[allowed_policies(allowed)].max() == sums[inside].max()
            assert upper <= known or step >= 0 or (allowed.sum(axis=2) == 1).all()
        assert passes % 2 == 0
        assert step < 0 or allowed[step, state].sum() > 1
    assert ruled_out > 100


def test_with_one_action_everywhere_the_flow_floor_is_the_loss() -> None:
    rng = np.random.default_rng(6)
    for federation in small_federations(50, states=3):
        H = federation.horizon
        S = federation.states
        A = federation.actions
        chosen = rng.integers(A, size=(H, S), dtype=np.int32)
        own, _, floor, _, policy, _ = floors(federation, np.arange(A) == chosen[:, :, None])
        assert floor == 0.0
        assert np.array_equal(policy, chosen)
        assert own == pytest.approx(values_of(federation, chosen[None]).sum(), abs=1e-12)


def test_reachable_is_where_some_policy_takes_some_agent() -> None:
    for federation in (*small_federations(60, states=3), parity_federation()):
        H = federation.horizon
        S = federation.states
        A = federation.actions
        P, _ = dense_tables(federation)
        seen = np.zeros((H, S), dtype=bool)
        for policy in every_policy(H, S, A):
            d = federation.initial
            for h in range(H):
                seen[h] |= (d > 0).any(axis=0)
                d = np.einsum("ms,mst->mt", d, P[:, h, np.arange(S), policy[h]])
        assert np.array_equal(honest_tables(federation).reachable, seen)
    world = honest_tables(gridworld(agents=2, eps_p=0.1)).reachable
    assert (world[0].sum(), world[1].sum()) == (1, 3)


# --------------------------------------------------------------------------------------------- regret of a run
@pytest.mark.parametrize("driver", ["episodes", "counts"])
@pytest.mark.parametrize("environment", [gridworld, synthetic])
def test_federated_regret_is_the_sum_over_episodes_of_what_the_best_policy_gains(
    environment: Callable[[int, float, int], Federation], driver: str
) -> None:
    federation = environment(4, 0.3, 1)
    simulation = Simulation(LOCAL, federation, 400, 3, driver)
    assert federated_regret(simulation.result(), federation) == Bracket(0.0, 0.0), "before the first round"
    best = best_common_policy(federation).value.lower
    total = 0.0
    while not simulation.done:
        policy = simulation.server.policy.copy()
        before = simulation.played
        simulation.advance()
        total += (simulation.played - before) * (best - values_of(federation, policy[None]).mean())
    regret = federated_regret(simulation.result(), federation)
    assert regret.exact
    assert regret.lower == pytest.approx(total, rel=1e-9)


def test_federated_simple_regret_is_what_the_recommended_policy_loses_against_the_best_of_all_policies() -> None:
    federation = random_federation(np.random.default_rng(8), 3, 2, 2, 3, eps_p=0.5, own_rewards=True)
    result = run(LOCAL, federation, 20, seed=1)
    best = values_of(federation, every_policy(3, 2, 2)).mean(axis=1).max()
    worth = values_of(federation, result.policy[None]).mean()
    regret = federated_simple_regret(result, federation)
    assert regret.exact
    assert regret.lower == pytest.approx(best - worth, abs=1e-11)


@pytest.mark.parametrize("regret_of", [federated_regret, federated_simple_regret])
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            gridworld(agents=4, eps_p=0.1),
            "the run has agents = 3 and the federation has agents = 4",
        ),
        (
            synthetic(agents=3, eps_p=0.1),
            "the run has states = 8 and the federation has states = 5",
        ),
        (
            gridworld(agents=3, eps_p=0.1, horizon=9),
            "the run has horizon = 10 and the federation has horizon = 9",
        ),
        (
            gridworld(agents=3, eps_p=0.1, seed=1),
            "the run's policy is worth .* to agent 0 in the run",
        ),
        (
            gridworld(agents=3, eps_p=0.2),
            "the run's policy is worth .* to agent 0 in the run",
        ),
    ],
)
def test_another_federation_than_that_of_the_run_is_refused(
    regret_of: Callable[[Run, Federation], Bracket], other: Federation, message: str
) -> None:
    result = run(LOCAL, gridworld(agents=3, eps_p=0.1), 5)
    with pytest.raises(InputError, match=message):
        regret_of(result, other)


def test_the_regrets_are_unknown_where_values_are_unknown_as_in_a_live_run() -> None:
    world = synthetic(agents=2)
    result = run(LOCAL, world, 10)
    unknown = np.full_like(result.records["value"], np.nan)
    records = {**result.records, "value": unknown}
    live = replace(result, records=records, by_agent=np.full(2, np.nan))
    assert np.isnan(federated_regret(live, world)).all()
    assert np.isnan(federated_simple_regret(live, world)).all()


def test_a_run_searches_for_no_common_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("nobody asked for the best common policy")

    federation = gridworld(agents=3, eps_p=0.1)
    monkeypatch.setattr(sharing, "search_common_policy", refuse)
    result = run(LOCAL, federation, 50)
    assert result.summary()["episodes_played"] == 50
    with pytest.raises(AssertionError, match="nobody asked"):
        federated_regret(result, federation)


@pytest.mark.parametrize("eps_p", [0.0, 0.01, 0.1])
def test_the_federated_regret_keeps_the_papers_bound(
    eps_p: float,
) -> None:
    """``R(T) <= R^c(T) + 2 T eps_p H^2`` where agents have one reward."""
    federation = gridworld(agents=5, eps_p=eps_p)
    result = run(LOCAL, federation, 1000, seed=1)
    regret = federated_regret(result, federation)
    H = result.about.horizon
    assert 0.0 < regret.upper <= (result.regret + 2 * 1000 * eps_p * H * H) * (1 + 1e-9)
    assert eps_p > 0 or (regret.exact and regret.lower == pytest.approx(result.regret, rel=1e-9))


def test_a_policy_played_that_beats_the_bracket_raises_its_lower_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation = gridworld(agents=5, eps_p=0.1)
    result = run(LOCAL, federation, 3000, seed=0)
    values = result.records["value"]
    wider = Bracket(float(values.min()), float(values.max()) + 0.5)
    found = replace(best_common_policy(federation), value=wider)
    monkeypatch.setattr(sharing, "best_common_policy", lambda _: found)
    regret = federated_regret(result, federation)
    weights = result.records["length"]
    assert regret.lower == pytest.approx((weights * (values.max() - values)).sum())
    assert regret.upper == pytest.approx((weights * (values.max() + 0.5 - values)).sum())


def test_where_agents_stop_apart_every_episode_counts_once() -> None:
    federation = synthetic(agents=3, eps_p=0.3)
    result = run(
        FedQAdvantage(forced_synchronisation=False, reference_after=20),
        federation,
        3000,
        seed=2,
    )
    assert len(set(result.records["agent_episodes"] / result.records["length"])) > 1
    best = best_common_policy(federation).value.lower
    values = result.records["value"]
    episodes = result.records["agent_episodes"]
    assert federated_regret(result, federation).lower == pytest.approx(3000 * best - (values * episodes).sum() / 3)


def test_only_honest_agents_values_are_recorded() -> None:
    lying = synthetic(agents=5, eps_p=0.6).with_liars(0.4, "flip", seed=1)
    algorithm = ByzanUCBVI(log_term=0.01)
    result = run(algorithm, lying, 50, seed=2)
    assert lying.liars is not None
    honest = [i for i in range(5) if i not in lying.liars.agents]
    last = values_of(lying, result.policy[None])[0, honest].mean()
    simulation = Simulation(algorithm, lying, 51, 2, "episodes")
    driver = simulation.driver
    _, _, value = Scorer(lying).score(result.policy, driver.visits, driver.starts)
    assert value == pytest.approx(last)
    assert (result.records["value"] <= best_common_policy(lying).value.upper + 1e-12).all()
