"""Plans from counts: the largest guaranteed value, by SciPy and enumeration; bounds that hold; federated = pooled."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from fed_ucbvi import CountTable, InputError, counts_from_logs, plan_from_counts, random_mdps
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.mdp import MDP
from matrices import first_of

DELTA = 0.05


def least_mean(p: FloatArray, V: FloatArray, c: float) -> float:
    """``inf { q.V : KL(p, q) <= c }`` over all distributions q, by SciPy's constrained minimisation."""
    seen = p > 0

    def divergence(q: FloatArray) -> float:
        return float(c - (p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-300))).sum())

    start = 0.999 * p + 0.001 / len(p)
    rules = [{"type": "ineq", "fun": divergence}, {"type": "eq", "fun": lambda q: q.sum() - 1.0}]
    found = optimize.minimize(
        lambda q: q @ V,
        start,
        bounds=[(0.0, 1.0)] * len(p),
        constraints=rules,
        options={"ftol": 1e-13, "maxiter": 500},
    )
    return float(found.fun)


def logged(mdp: MDP, episodes: int, rng: np.random.Generator, first: int = 0) -> dict[str, list[float]]:
    """A log of uniformly random actions; what is paid is the mean reward."""
    dense, H = mdp.kernel.dense(), mdp.horizon
    rows = []
    for episode in range(first, first + episodes):
        s = int(rng.choice(mdp.states, p=mdp.initial))
        for h in range(H):
            a = int(rng.integers(mdp.actions))
            after = int(rng.choice(mdp.states, p=dense[min(h, len(dense) - 1), s, a]))
            rows.append((episode, h, s, a, float(mdp.rewards[min(h, len(mdp.rewards) - 1), s, a]), after))
            s = after
    names = ("episode", "step", "state", "action", "reward", "next_state")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def small(seed: int, states: int = 3, horizon: int = 3) -> MDP:
    return random_mdps(agents=1, seed=seed, states=states, actions=2, horizon=horizon).common


@pytest.mark.parametrize(("stationary", "support"), first_of([(False, None), (True, 3)]))
def test_it_is_the_best_policy_for_the_least_means_of_scipy_and_no_policy_is_better(
    stationary: bool, support: int | None
) -> None:
    H, S, A = 2, 3, 2
    mdp = small(4, horizon=H)
    counts = counts_from_logs(logged(mdp, 400, np.random.default_rng(1)), (S, A, H), stationary=stationary)
    plan = plan_from_counts(counts, H, delta=DELTA, support=support)
    dense, steps = counts.dense(), len(counts.visits)
    K = S if support is None else support
    rewards = counts.mean_rewards()

    def value(policy: FloatArray) -> FloatArray:
        V = np.zeros(S)
        for h in range(H - 1, -1, -1):
            hc, new = min(h, steps - 1), np.zeros(S)
            for s in range(S):
                a = int(policy[h, s])
                n = int(dense[hc, s, a].sum())
                if n > 0:
                    beta = np.log(H * S * A / DELTA) + (K - 1) * np.log(np.e * (1 + n / (K - 1)))
                    new[s] = rewards[hc, s, a] + least_mean(dense[hc, s, a] / n, V, beta / n)
            V = new
        return V

    best = np.max([value(np.reshape(p, (H, S))) for p in itertools.product(range(A), repeat=H * S)], axis=0)
    np.testing.assert_allclose(plan.lower[0], best, rtol=0, atol=2e-6)
    np.testing.assert_allclose(value(plan.policy.astype(float)), best, rtol=0, atol=2e-6)


def test_bounds_enclose_the_value_of_the_plan_and_of_the_best_policy() -> None:
    """Hypothesis: each fails with probability at most 5 %; 200 runs, at most 21 failures, false alarm 1 in 1000."""
    lower, upper = 0, 0
    for seed in range(200):
        mdp = small(seed)
        counts = counts_from_logs(logged(mdp, 30, np.random.default_rng(seed)), (3, 2, 3), stationary=bool(seed % 2))
        plan = plan_from_counts(counts, 3, delta=DELTA)
        lower += bool((plan.lower > mdp.evaluate(plan.policy) + 1e-9).any())
        upper += bool((plan.upper < mdp.solve().V - 1e-9).any())
    assert max(lower, upper) <= 21


def test_random_rewards_have_lower_bounds_too() -> None:
    log = {"episode": range(40), "step": 0, "state": 0, "action": 0, "reward": [0.0, 1.0] * 20, "next_state": 0}
    counts = counts_from_logs(log, (2, 2, 1), random_rewards=True)
    beta = np.log(2 * 4 / DELTA) + np.log(2) + 0.5 * np.log(41)

    def divergence(x: float) -> float:
        return float(20 * np.log(0.5 / x) + 20 * np.log(0.5 / (1 - x)) - beta)

    least = optimize.brentq(divergence, 1e-9, 0.5)
    assert plan_from_counts(counts, 1, delta=DELTA).lower[0, 0] == pytest.approx(least, abs=1e-6)


def test_the_plan_of_hospitals_together_is_that_of_their_pooled_logs_bit_for_bit() -> None:
    mdp, rng = small(7, states=5, horizon=4), np.random.default_rng(2)
    logs = [logged(mdp, 20, rng, first=100 * i) for i in range(3)]
    apart = [counts_from_logs(log, (5, 2, 4)) for log in logs]
    together = {name: sum((log[name] for log in reversed(logs)), list[float]()) for name in logs[0]}
    pooled, merged = counts_from_logs(together, (5, 2, 4)), CountTable.empty(4, 5, 2)
    for table in apart:
        merged = merged.merge(table)
    assert merged.equals(pooled)
    one, other = plan_from_counts(merged), plan_from_counts(pooled)
    assert all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("policy", "lower", "upper", "thin")
    )


def test_it_says_where_the_logs_are_too_thin_to_judge() -> None:
    log: dict[str, Any] = {"episode": range(300), "step": 0, "state": 0}
    log |= {"action": [0, 1, 1] * 100, "reward": [0, 1, 1] * 100}
    plan = plan_from_counts(counts_from_logs({**log, "next_state": 0}, (2, 2, 1)), 1)
    assert plan.thin[0].tolist() == [
        False,
        True,
    ]  # both actions were seen, their rewards are known; state 1 never was
    assert plan.seen[0].tolist() == [True, False]
    assert plan.bounds(0) == pytest.approx((1.0, 1.0))
    assert plan.bounds([0.0, 1.0]) == (0.0, 1.0)
    one = {name: np.broadcast_to(column, 300)[1:3] for name, column in log.items()}
    assert plan_from_counts(counts_from_logs({**one, "next_state": 0}, (2, 2, 1)), 1).thin[0, 0]  # action 0 never was
    assert plan.summary(0)["certain"] == 1


def test_of_actions_that_guarantee_nothing_the_one_seen_most_is_taken() -> None:
    log = {"episode": range(5), "step": 0, "state": 0, "action": [0, 1, 1, 2, 2], "reward": 0, "next_state": 0}
    assert plan_from_counts(counts_from_logs(log, (1, 4, 1)), 1).policy[0, 0] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass horizon=H"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 2, "delta": 1.0}, "delta must be a number"),
        ({"horizon": 2, "support": 1}, "support must be at least 2"),
    ],
)
def test_what_cannot_be_planned_says_why(options: dict[str, float], message: str) -> None:
    log = {"episode": [0, 1], "step": 0, "state": 0, "action": 0, "reward": 0, "next_state": [0, 1]}
    counts = counts_from_logs(log, (2, 1, 2), stationary=True)
    with pytest.raises(InputError, match=message):
        plan_from_counts(counts, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="have H = 2, got horizon = 3"):
        plan_from_counts(counts_from_logs(log, (2, 1, 2)), 3)
