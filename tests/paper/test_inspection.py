"""Heterogeneity of agents: distances, maps and values against brute force, and eps_p estimated from counts."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fed_ucbvi import ByzanUCBVI, Federation, InputError, gridworld, synthetic
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.paper.inspection import inspect_federation
from fed_ucbvi.problem.heterogeneity import distances, estimate_eps_p, overlap
from problems import all_policies, brute_force_value, random_federation, row_of
from runs import counted_apart, finished


# ------------------------------------------------------------------------------------- distances and values
@given(seed=st.integers(0, 10**6), agents=st.integers(1, 4), stationary=st.booleans())
def test_distances_are_those_of_the_rows_one_by_one(seed: int, agents: int, stationary: bool) -> None:
    federation = random_federation(np.random.default_rng(seed), agents=agents, stationary=stationary)
    kernels = [federation.agent(i).kernel for i in range(agents)]
    found = distances(federation.probabilities, federation.common.kernel.probabilities)
    steps, S, A = found.to_common.shape

    def gap(one: int, other: int, h: int, s: int, a: int) -> float:
        first = row_of(kernels[one], h, s, a)
        second = row_of(kernels[other] if other >= 0 else federation.common.kernel, h, s, a)
        return math.fsum(abs(first.get(x, 0.0) - second.get(x, 0.0)) for x in range(S))

    triples = list(itertools.product(range(steps), range(S), range(A)))
    for i, j in itertools.product(range(agents), repeat=2):
        gaps = [gap(i, j, *triple) for triple in triples]
        assert found.worst[i, j] == pytest.approx(max(gaps), abs=1e-12)
        assert found.mean[i, j] == pytest.approx(math.fsum(gaps) / len(gaps), abs=1e-12)
    for triple in triples:
        assert found.to_common[triple] == pytest.approx(max(gap(i, -1, *triple) for i in range(agents)), abs=1e-12)


@given(seed=st.integers(0, 10**6), eps_p=st.floats(0, 0.9))
def test_distances_obey_assumption_1_in_total_variation(seed: int, eps_p: float) -> None:
    federation = random_federation(np.random.default_rng(seed), eps_p=eps_p)
    found = inspect_federation(federation)
    assert found.distances.to_common.max() / 2 <= eps_p + 1e-12
    assert found.distances.worst.max() / 2 <= found.eps_p_least + 1e-12
    assert found.missing.max() == pytest.approx(found.eps_p_least, abs=1e-12)
    assert found.eps_p_least <= found.eps_p + 1e-12


def test_the_price_of_sharing_is_that_of_the_best_of_all_policies() -> None:
    """The best common policy by listing all of them; 2 states, 2 actions, 2 steps, three agents."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        federation = random_federation(rng, states=2, actions=2, horizon=2, agents=3, eps_p=0.6, own_rewards=True)
        found = inspect_federation(federation)
        agents = [federation.agent(i) for i in range(3)]
        tables = [
            [sum(mdp.initial[s] * brute_force_value(mdp, policy, 0, s) for s in range(2)) for mdp in agents]
            for policy in all_policies(agents[0])
        ]
        own = np.max(tables, axis=0)
        assert found.own == pytest.approx(own, abs=1e-12)
        price = own.mean() - np.mean(tables, axis=1).max()
        assert found.price.exact
        assert found.price.lower == pytest.approx(price, abs=1e-11)


def test_agents_all_alike_differ_in_nothing() -> None:
    found = inspect_federation(gridworld(agents=3, eps_p=0.0))
    assert found.eps_p_least == 0.0
    assert found.distances.worst.max() == 0.0
    assert found.missing.max() == pytest.approx(0, abs=1e-15)
    assert found.price == (0.0, 0.0)
    summary = found.summary()
    assert summary["own_optimum"]["mean"] == pytest.approx(summary["common_optimum"], rel=1e-12)
    json.dumps(summary, allow_nan=False)


# ------------------------------------------------------------------------------------------ eps_p from counts
RUNS = 300
DELTA = 0.2
ALARM = 1e-6


def stopped_counts(rng: np.random.Generator, federation: Federation, most: int) -> CountArray:
    """Counts of visits that stop when it suits a cheat: at the largest deviation of the first next state."""
    *rows, K = federation.probabilities.shape
    counts = np.zeros((*rows, K), dtype=np.int64)
    for index in np.ndindex(*rows):
        p = federation.probabilities[index]
        draws = np.searchsorted(np.cumsum(p), rng.random(most), side="right").clip(max=K - 1)
        hits = np.cumsum(draws == 0)
        n = np.arange(1, most + 1)
        worst = int(np.argmax(np.abs(hits - n * p[0]) / np.sqrt(n)))
        counts[index] = np.bincount(draws[: worst + 1], minlength=K)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("cheating", [False, True])
def test_the_interval_holds_eps_p_at_the_promised_rate(cheating: bool) -> None:
    """H0: it misses eps_p with probability at most delta = 0.2, also if somebody chooses when to stop counting.

    One-sided binomial test on 300 federations (60 with the cheat), false-alarm rate 1e-6 each.
    """
    rng = np.random.default_rng(3)
    runs = RUNS // 5 if cheating else RUNS
    misses = 0
    for _ in range(runs):
        federation = random_federation(
            rng,
            states=2,
            actions=2,
            horizon=2,
            agents=3,
            eps_p=float(rng.random()) * 0.9,
        )
        if cheating:
            counts = stopped_counts(rng, federation, 300)
        else:
            visits = rng.integers(0, 2000, federation.probabilities.shape[:-1])
            counts = rng.multinomial(visits, federation.probabilities)
        found = estimate_eps_p(counts, DELTA, least_visits=20)
        visited = (counts.sum(axis=-1) >= 20).all(axis=0)
        masses = overlap(federation.probabilities).mass
        eps_p = 1 - masses.min()
        of_visited = 1 - masses[visited].min() if visited.any() else 0.0
        misses += not (found.lower <= eps_p + 1e-12 and eps_p <= found.upper + 1e-12)
        misses += of_visited > found.upper_counted + 1e-12
        assert found.pairs_counted == visited.sum()
    assert stats.binomtest(min(misses, runs), runs, DELTA, alternative="greater").pvalue >= ALARM


def test_the_interval_shrinks_to_eps_p() -> None:
    """By about the square root of the number of visits: at least fivefold for a hundredfold."""
    rng = np.random.default_rng(0)
    federation = synthetic(agents=3, eps_p=0.3)
    eps_p = overlap(federation.probabilities).eps_p
    widths = []
    for n in (10**4, 10**6, 10**8):
        found = estimate_eps_p(rng.multinomial(n, federation.probabilities))
        assert found.lower <= eps_p <= found.upper == found.upper_counted
        assert found.point == pytest.approx(eps_p, abs=10 / math.sqrt(n))
        widths.append(found.upper - found.lower)
    assert widths[0] > 5 * widths[1] > 25 * widths[2]


@pytest.fixture
def counts_without_one_pair() -> CountArray:
    """A million visits of two agents to every (h,s,a), but none of one agent to the first."""
    federation = synthetic(agents=2, eps_p=0.1, states=2, actions=2, horizon=2)
    counts = np.random.default_rng(1).multinomial(10**6, federation.probabilities)
    counts[1, 0, 0, 0] = 0
    return counts


def test_a_pair_that_was_never_visited_leaves_eps_p_unbounded(counts_without_one_pair: CountArray) -> None:
    found = estimate_eps_p(counts_without_one_pair)
    assert found.upper == 1.0
    assert found.lower > 0.0


def test_visited_pairs_bound_eps_p(counts_without_one_pair: CountArray) -> None:
    found = estimate_eps_p(counts_without_one_pair)
    assert found.upper_counted < 0.2
    assert found.pairs_counted == 7
    assert found.pairs == 8


def test_no_visits_leave_eps_p_unknown(counts_without_one_pair: CountArray) -> None:
    nothing = estimate_eps_p(np.zeros_like(counts_without_one_pair))
    assert math.isnan(nothing.point)
    assert (nothing.lower, nothing.upper) == (0.0, 1.0)
    assert nothing.upper_counted == 1.0
    assert nothing.pairs_counted == 0


def test_two_agents_known_apart_are_told_apart() -> None:
    """No common next state at all: eps_p = 1."""
    counts = np.zeros((2, 1, 1, 1, 2), dtype=np.int64)
    counts[0, ..., 0] = counts[1, ..., 1] = 10**6
    found = estimate_eps_p(counts)
    assert found.lower > 0.9999
    assert (found.point, found.upper) == (1.0, 1.0)


def test_one_agent_or_one_next_state_leaves_nothing_to_differ() -> None:
    rows = np.random.default_rng(0).integers(0, 50, (1, 2, 2, 2, 3))
    for counts in (rows, rows[..., :1].repeat(4, axis=0)):
        found = estimate_eps_p(counts)
        assert (found.lower, found.upper) == (0.0, 0.0)


def test_the_counts_of_a_run_bound_its_eps_p() -> None:
    """Counts of each agent of Byzan-UCBVI, whose visits depend on what the agents have seen."""
    federation = synthetic(agents=3, eps_p=0.2, states=3, actions=2, horizon=3)
    simulation = finished(Simulation(ByzanUCBVI(log_term=0.01), counted_apart(federation, "counts"), 10**6, 0))
    found = estimate_eps_p(simulation.agents.arrays()["transitions"])
    assert found.lower <= overlap(federation.probabilities).eps_p <= found.upper


@pytest.mark.parametrize(
    ("counts", "options", "words"),
    [
        (
            np.ones((2, 1, 1, 2)),
            {},
            r"counts must have shape \(agents, steps, S, A, K\)",
        ),
        (-np.ones((2, 1, 1, 1, 2)), {}, "counts must not be negative"),
        (np.full((2, 1, 1, 1, 2), 0.5), {}, "counts must hold whole numbers"),
        (np.ones((2, 1, 1, 1, 2)), {"delta": 0}, "delta must be a number in"),
        (
            np.ones((2, 1, 1, 1, 2)),
            {"least_visits": 0},
            "least_visits must be at least 1",
        ),
    ],
)
def test_an_estimate_refuses_what_are_no_counts(counts: object, options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        estimate_eps_p(counts, **options)  # type: ignore[arg-type]
