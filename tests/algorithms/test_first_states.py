"""Bounds for first states of unknown law: by optimisation, by coverage, and in runs and their certificates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from false_certificates import STATEMENTS, Problem, corridor, judged, live, one_decision
from fed_ucbvi import FedKLUCBVI, FedUCBVI, run
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.first_states import largest_start_value, smallest_start_value
from fed_ucbvi.algorithms.kl_bound import optimism_events
from fed_ucbvi.algorithms.return_bounds import radius
from fed_ucbvi.core.types import CountArray, FloatArray
from fed_ucbvi.network.run_plan import RunPlan

EPISODES = np.array([40, 0, 7, 3])
VALUES = np.array([0.5, 3.0, 1.2, 0.0])


def best_mean(p: FloatArray, V: FloatArray, c: float) -> float:
    """The largest ``q.V`` with ``KL(p, q) <= c``, by SciPy's search over laws q."""
    seen = p > 0

    def room(q: FloatArray) -> float:
        return float(c - (p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-300))).sum())

    found = minimize(
        lambda q: -float(q @ V),
        0.98 * p + 0.02 / len(p),
        bounds=[(1e-12, 1.0)] * len(p),
        constraints=[{"type": "eq", "fun": lambda q: q.sum() - 1.0}, {"type": "ineq", "fun": room}],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return -float(found.fun)


def dual(p: FloatArray, V: FloatArray, c: float) -> float:
    """``min over nu >= max V of nu - exp(sum p log(nu - V) - c)``, by SciPy, over log(nu - max V)."""
    seen = p > 0

    def bound(log_y: float) -> float:
        nu = V.max() + math.exp(log_y)
        return float(nu - np.exp((p[seen] * np.log(nu - V[seen])).sum() - c))

    return float(minimize_scalar(bound, bounds=(-40, 15), method="bounded", options={"xatol": 1e-10}).fun)


def test_the_upper_bound_is_the_largest_mean_over_the_ball_of_laws() -> None:
    n = int(EPISODES.sum())
    p = EPISODES / n
    c = radius(n, 0.01) / n
    found = largest_start_value(EPISODES, VALUES, 0.01)
    assert found == pytest.approx(best_mean(p, VALUES, c), abs=1e-5)
    assert found == pytest.approx(dual(p, VALUES, c), abs=1e-7)


def test_the_lower_bound_is_the_smallest_mean_over_the_ball_that_holds_the_law() -> None:
    n = int(EPISODES.sum())
    others = len(VALUES) - 1
    c = (math.log(1 / 0.01) + others * math.log(math.e * (1 + n / others))) / n
    found = smallest_start_value(EPISODES, VALUES, 0.01)
    assert found == pytest.approx(-best_mean(EPISODES / n, -VALUES, c), abs=1e-5)
    assert found == pytest.approx(-dual(EPISODES / n, -VALUES, c), abs=1e-7)


def test_without_an_episode_first_states_may_be_any() -> None:
    none: CountArray = np.zeros(4, dtype=np.int64)
    assert largest_start_value(none, VALUES, 0.05) == 3.0
    assert smallest_start_value(none, VALUES, 0.05) == 0.0


def test_both_bounds_hold_for_all_numbers_of_episodes_at_once() -> None:
    """Hypothesis: each fails in at most 5 % of sequences. If it were 5 %, 28 of 300 would fail once in 1 000."""
    rng = np.random.default_rng(5)
    laws = np.array([[0.9, 0.1, 0.0, 0.0], [0.0, 0.02, 0.9, 0.08], [0.25] * 4])
    missed = {"upper": 0, "lower": 0}
    for number in range(300):
        law = laws[number % 3]
        true = float(law @ VALUES)
        starts = np.cumsum(rng.multinomial(1, law, size=120), axis=0)
        looks = [starts[n] for n in (0, 1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 119)]
        missed["upper"] += any(largest_start_value(one, VALUES, 0.05) < true for one in looks)
        missed["lower"] += any(smallest_start_value(one, VALUES, 0.05) > true for one in looks)
    assert max(missed.values()) <= 27


def setting(problem: Problem, *, starts_known: bool) -> Setting:
    states, actions = problem.rewards.shape
    return Setting(states, actions, problem.horizon, 4, 100, 0.0, 0, starts_known=starts_known)


@pytest.mark.parametrize(("starts_known", "events"), [(True, 3 * 5), (False, 3 * 5 + 1)])
def test_delta_is_shared_by_one_event_more_where_first_states_are_unknown(starts_known: bool, events: int) -> None:
    known = setting(corridor(), starts_known=starts_known)
    algorithm = FedKLUCBVI(delta=0.1)
    assert algorithm.rule(known).log_union == pytest.approx(math.log(2 * events / 0.1))
    assert algorithm.start_delta(known) == pytest.approx(0.1 / events)


@pytest.mark.parametrize(
    ("horizon", "random_rewards", "first_states", "events"),
    [(6, True, True, 3 * 11 + 1), (1, False, True, 1), (1, False, False, 1)],
)
def test_the_number_of_events_in_the_union(
    horizon: int, random_rewards: bool, first_states: bool, events: int
) -> None:
    found = optimism_events(3, horizon, random_rewards=random_rewards, first_states=first_states)
    assert found == events


def test_a_server_that_knows_sizes_only_does_not_know_first_states() -> None:
    plan = RunPlan(FedKLUCBVI(), setting(corridor(), starts_known=True))
    assert not plan.setting.starts_known


@pytest.mark.parametrize("algorithm", [FedKLUCBVI(stationary=True), FedUCBVI()])
def test_the_optimistic_value_of_a_live_run_counts_first_states_that_have_not_occurred(algorithm: FedKLUCBVI) -> None:
    """After two episodes, of which none began in the state that pays, the optimistic value is near the top."""
    problem = one_decision()
    result = run(algorithm, live(problem, 1), 2, seed=0, progress=False)
    assert result.optimistic_value > problem.best()
    assert result.gap == result.optimistic_value - result.estimated_value


def test_recorded_optimistic_values_are_above_the_best_value_after_any_number_of_episodes() -> None:
    """Hypothesis: in at most 5 % of runs one is below. If it were 5 %, 8 of 40 would be below once in 1 000 times."""
    problem = one_decision()
    below = 0
    for seed in range(40):
        result = run(FedKLUCBVI(stationary=True), live(problem, 1), 24, seed=seed, progress=False)
        below += bool((result.recommendations["optimistic"] < problem.best()).any())
    assert below <= 7


def test_the_bound_by_counts_is_below_the_value_where_first_states_are_unknown() -> None:
    """Three in four of these failed when first states were weighted as they occurred."""
    for seed in range(8):
        found = judged("first", seed, most=60)
        assert found is None or not found.false["model"]


@pytest.mark.full
@pytest.mark.parametrize("case", ["first", "corridor", "logs"])
def test_at_most_one_certificate_in_twenty_is_false_where_first_states_are_rare(case: str) -> None:
    """Hypothesis: at most 5 % are false. If it were 5 %, more than 34 of 400 would be false once in 1 000 times.

    What is asked for is less than that: at most 5 % of those that were drawn.
    """
    found = [judged(case, seed) for seed in range(400)]
    told = [one for one in found if one is not None]
    assert len(told) == 400
    for name in STATEMENTS:
        assert sum(one.false[name] for one in told) <= 20, name
