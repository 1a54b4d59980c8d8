"""Forecasts of ``plan`` before a run, against the formulas and against runs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from commands import call
from fed_ucbvi import FedUCBVI, Forecast, InputError, gridworld, plan, run, synthetic
from fed_ucbvi.paper.bounds import kl_regret_bound, regret_bound, rounds_bound, trivial_bound
from runs import without_cautions


@without_cautions
@pytest.mark.parametrize("agents", [1, 3, 20])
def test_bytes_are_those_of_the_rounds_of_a_run(agents: int) -> None:
    """Every round of a run with one request weighs what the plan says; the whole run weighs no more."""
    federation = gridworld(agents=agents, eps_p=0.1)
    made = plan(states=8, actions=4, horizon=10, agents=agents, episodes=300, eps_p=0.1)
    result = run(FedUCBVI(), federation, 300)
    single = result.records["requests"][:-1] == 1
    assert single.any()
    for name, expected in made.one_synchronisation._asdict().items():
        assert (result.records[name][:-1][single] == expected).all()
        assert result.records[name].sum() <= made.all_rounds._asdict()[name]
    assert result.rounds <= made.rounds


def test_the_bytes_of_all_rounds_are_those_computed_by_hand() -> None:
    """By hand: M = 2, S = 3, A = 2, H = 4; header 16 bytes, request 48, policy int32, counters int64, floats 8.

    Up go n, P V, P V^2 and Q.
    """
    made = plan(states=3, actions=2, horizon=4, agents=2, episodes=10_000)
    start = 16 + 4 * 3 * 4 + 4 * 3 * 2 * 8
    down = 2 * (start + 16 + 4 * 3 * 8)
    up = 2 * (48 + 4 * 4 * 3 * 2 * 8)
    assert made.one_synchronisation.bytes_up == up - 48
    assert made.one_synchronisation.bytes_down == down
    assert made.all_rounds.bytes_up == made.rounds * up
    assert made.all_rounds.bytes_down == made.rounds * down + 2 * (start + 16)


def at(episodes: int = 10**12, **more: Any) -> Forecast:
    """The paper's grid with twenty agents."""
    return plan(states=8, actions=4, horizon=10, agents=20, episodes=episodes, **more)


def test_federation_wins_below_the_eps_p_it_says() -> None:
    made = at(eps_p=1e-5)
    limit = made.federation_wins_below
    assert limit is not None
    assert at(eps_p=0.999 * limit).verdict == "yes"
    assert at(eps_p=1.001 * limit).verdict == "no"
    assert made.verdict == "yes"


def test_one_agent_alone_wins_from_the_t_it_says() -> None:
    made = at(eps_p=1e-4)
    T = made.alone_wins_from
    assert T is not None
    for t, wins in ((T, True), (T - 1, False)):
        together = regret_bound(8, 4, 10, 20, t, 1e-4, 0, 0.05)
        alone = regret_bound(8, 4, 10, 1, t, 0, 0, 0.05)
        assert (alone < min(together, trivial_bound(10, t))) is wins
    assert at(T, eps_p=1e-4).verdict == "no"
    assert at().alone_wins_from is None


def test_without_constants_the_gain_of_m_agents_is_eaten_up_where_it_says() -> None:
    made = at(1000, eps_p=0.01, eps_r=0.02)
    T = made.alone_wins_in_order
    assert T is not None
    gain = math.sqrt(10**3 * 32 * T) - math.sqrt(10**3 * 32 * T / 20)
    assert gain == pytest.approx(T * 10 * (10 * 0.01 + 0.02), rel=1e-12)


@pytest.mark.parametrize(
    ("episodes", "conclusion"),
    [
        ("5", "T = 5 is below both, so federate"),
        ("6", "T = 6 lies between, so try both"),
        ("1e13", "T = 1e+13 lies between, so try both"),
        ("2e13", "T = 2e+13 is above both, so let each agent learn alone"),
    ],
)
def test_the_command_plan_concludes_whether_to_federate(episodes: str, conclusion: str) -> None:
    """Five shops: alone wins from ``30 * 126 * ((1 - 1/sqrt(5)) / 14.9)^2 = 5.2`` on in order."""
    made = plan(states=21, actions=6, horizon=30, agents=5, episodes=1000, eps_p=0.49, eps_r=0.2)
    assert made.alone_wins_in_order == pytest.approx(5.2028, rel=1e-4)
    assert f"{made.alone_wins_from:.3g}" == "1.35e+13"
    sizes = "--states 21 --actions 6 --horizon 30 --agents 5 --eps-p 0.49 --eps-r 0.2"
    text = " ".join(call("plan", *sizes.split(), "--episodes", episodes).stdout.split())
    assert "By the bounds with their large constants it does from T = 1.35e+13 on" in text
    assert "by their orders (constants and logarithms left out) from T = 6 on" in text
    assert conclusion in text


def test_at_the_papers_settings_the_theory_cannot_tell() -> None:
    made = at(30_000, eps_p=0.1)
    assert made.verdict == "undecided"
    assert not (made.global_rule_reachable)
    assert made.global_rule_from is None
    assert made.nontrivial_from is made.federation_wins_below is None
    assert made.bound.federated < made.bound_paper


def test_the_plan_of_an_environment_is_that_of_its_sizes() -> None:
    federation = synthetic(agents=4, eps_p=0.1, eps_r=0.2)
    same = plan(
        states=5,
        actions=5,
        horizon=5,
        agents=4,
        episodes=9,
        eps_p=federation.eps_p,
        eps_r=federation.eps_r,
    )
    assert plan(federation, episodes=9) == same
    assert same.bound.rewards > 0
    assert same.summary()["bound"]["federated"] == same.bound.federated


@pytest.mark.parametrize("eps_p", [0.0, 0.1])
def test_the_plan_has_what_fed_kl_ucbvi_promises(eps_p: float) -> None:
    """Where agents differ, rounds are bounded by what is sure: ``S A H (M + (M + 1/2) log T)`` and the last one."""
    made = at(10**8, eps_p=eps_p)
    sizes = (8, 4, 10, 20, 10**8)
    for promise, stationary in ((made.kl, False), (made.kl_stationary, True)):
        likely = rounds_bound(*sizes, 0.0, 0.05, rule="global", stationary=stationary)
        if eps_p == 0:
            assert promise == (
                math.floor(likely),
                kl_regret_bound(*sizes, 0.05, stationary=stationary),
            )
        else:
            cells, longest = (32, 10**9) if stationary else (320, 10**8)
            assert promise.rounds == math.floor(1 + cells * (20 + 20.5 * math.log(longest))) > likely
            assert promise.regret is None
    summary = made.summary()["kl"]
    assert summary["rounds"] == made.kl.rounds
    assert (summary["regret"] is None) is (eps_p > 0)


def test_the_command_says_what_fed_kl_ucbvi_promises() -> None:
    text = " ".join(call("plan", "--env", "gridworld", "--episodes", "1e8").stdout.split())
    assert "in the long run" not in text, "agents that do not differ need not stop federating"
    assert "Fed-KL-UCBVI at most" in text
    assert "with probability 0.9: exploration" in text
    apart = " ".join(call("plan", "--env", "gridworld", "--eps-p", "0.1").stdout.split())
    assert "a bound on its regret is proved for agents that are all alike" in apart


def test_min_round_growth_bounds_rounds_by_a_logarithm() -> None:
    grown = rounds_bound(8, 4, 10, 500, 30_000, 0.1, 0.05, rule="global", stationary=True, min_round_growth=0.1)
    assert grown == pytest.approx(2 + math.log(30_000) / math.log(1.1), rel=1e-12)


@pytest.mark.parametrize("options", [{"stationary": True}, {"min_round_growth": 0.1}], ids=str)
def test_options_of_the_global_rule_are_refused_for_the_mixture(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match='go with rule="global" only'):
        rounds_bound(8, 4, 10, 500, 30_000, 0.1, 0.05, **options)


def test_plan_of_a_billion_states_needs_no_table() -> None:
    made = plan(states=10**9, actions=2, horizon=10, agents=5, episodes=1000)
    assert made.verdict == "undecided"
    assert made.one_synchronisation.bytes_down > 10 * 10**9
