"""What ``plan`` says before a run, against the formulas and against runs."""

from __future__ import annotations

import math
import warnings

import pytest

from commands import call
from fed_ucbvi import FedUCBVI, gridworld, plan, run, synthetic
from fed_ucbvi.engine.simulation import Caution
from fed_ucbvi.theory.bounds import regret_bound, trivial_bound


@pytest.mark.parametrize("agents", [1, 3, 20])
def test_bytes_are_those_of_the_rounds_of_a_run(agents: int) -> None:
    """Every round of a run with one request weighs what the plan says; the whole run weighs no more."""
    federation = gridworld(agents=agents, eps_p=0.1)
    made = plan(states=8, actions=4, horizon=10, agents=agents, episodes=300, eps_p=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        result = run(FedUCBVI(), federation, 300)
    single = result.records["askers"][:-1] == 1
    assert single.any()
    for name, expected in made.one_synchronisation._asdict().items():
        assert (result.records[name][:-1][single] == expected).all()
        assert result.records[name].sum() <= made.all_rounds._asdict()[name]
    assert result.rounds <= made.rounds


def test_all_rounds_weigh_what_the_largest_rounds_and_the_end_of_training_do() -> None:
    """By hand: M = 2, S = 3, A = 2, H = 4; header 16 bytes, request 48, policy int32, counters int64, floats 8.

    Up go n, P V, P V^2 and Q.
    """
    made = plan(states=3, actions=2, horizon=4, agents=2, episodes=10_000)
    start = 16 + 4 * 3 * 4 + 4 * 3 * 2 * 8
    down = 2 * (start + 16 + 4 * 3 * 8)
    up = 2 * (48 + 4 * 4 * 3 * 2 * 8)
    assert (made.one_synchronisation.bytes_up, made.one_synchronisation.bytes_down) == (up - 48, down)
    assert made.all_rounds.bytes_up == made.rounds * up
    assert made.all_rounds.bytes_down == made.rounds * down + 2 * (start + 16)


def test_federation_wins_below_the_eps_p_it_says() -> None:
    made = plan(states=8, actions=4, horizon=10, agents=20, episodes=10**12, eps_p=1e-5)
    limit = made.federation_wins_below
    assert limit is not None
    assert plan(states=8, actions=4, horizon=10, agents=20, episodes=10**12, eps_p=0.999 * limit).verdict == "yes"
    assert plan(states=8, actions=4, horizon=10, agents=20, episodes=10**12, eps_p=1.001 * limit).verdict == "no"
    assert made.verdict == "yes"


def test_one_agent_alone_wins_from_the_t_it_says() -> None:
    made = plan(states=8, actions=4, horizon=10, agents=20, episodes=10**12, eps_p=1e-4)
    T = made.alone_wins_from
    assert T is not None
    for t, wins in ((T, True), (T - 1, False)):
        together, alone = regret_bound(8, 4, 10, 20, t, 1e-4, 0, 0.05), regret_bound(8, 4, 10, 1, t, 0, 0, 0.05)
        assert (alone < min(together, trivial_bound(10, t))) is wins
    assert plan(states=8, actions=4, horizon=10, agents=20, episodes=T, eps_p=1e-4).verdict == "no"
    assert plan(states=8, actions=4, horizon=10, agents=20, episodes=10**12).alone_wins_from is None


def test_without_constants_the_gain_of_m_agents_is_eaten_up_where_it_says() -> None:
    made = plan(states=8, actions=4, horizon=10, agents=20, episodes=1000, eps_p=0.01, eps_r=0.02)
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
def test_the_command_says_what_its_two_figures_for_t_are_and_what_follows(episodes: str, conclusion: str) -> None:
    """Five shops: alone wins from ``30 * 126 * ((1 - 1/sqrt(5)) / 14.9)^2 = 5.2`` on in order."""
    made = plan(states=21, actions=6, horizon=30, agents=5, episodes=1000, eps_p=0.49, eps_r=0.2)
    assert made.alone_wins_in_order == pytest.approx(5.2028, rel=1e-4)
    assert f"{made.alone_wins_from:.3g}" == "1.35e+13"
    sizes = (
        "--states",
        "21",
        "--actions",
        "6",
        "--horizon",
        "30",
        "--agents",
        "5",
        "--eps-p",
        "0.49",
        "--eps-r",
        "0.2",
    )
    text = " ".join(call("plan", *sizes, "--episodes", episodes).stdout.split())
    assert "By the bounds with their large constants it does from T = 1.35e+13 on" in text
    assert "by their orders (constants and logarithms left out) from T = 6 on" in text
    assert conclusion in text


def test_agents_that_do_not_differ_are_not_told_when_to_stop_federating() -> None:
    assert "in the long run" not in call("plan", "--env", "gridworld").stdout


def test_at_the_papers_settings_the_theory_cannot_tell() -> None:
    made = plan(states=8, actions=4, horizon=10, agents=20, episodes=30_000, eps_p=0.1)
    assert made.verdict == "undecided"
    assert (made.global_rule_reachable, made.global_rule_from) == (False, None)
    assert made.nontrivial_from is made.federation_wins_below is None
    assert made.bound.federated < made.bound_paper


def test_an_environment_brings_its_sizes_and_differences_along() -> None:
    federation = synthetic(agents=4, eps_p=0.1, eps_r=0.2)
    assert federation.eps_r > 0
    made = plan(
        states=5, actions=5, horizon=5, agents=4, episodes=100, eps_p=federation.eps_p, eps_r=federation.eps_r
    )
    assert made.bound.rewards > 0
    assert made.summary()["bound"]["federated"] == made.bound.federated
