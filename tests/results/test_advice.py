"""A run that has learnt little says so, and what to try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shops

from commands import PUBLISHED, call, told
from fed_ucbvi import (
    UCBVI,
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    LiveFederation,
    Run,
    best_common_policy,
    chain,
    gridworld,
    n_room,
    riverswim,
    run,
    synthetic,
)
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.command_line.outputs import summary_rows


@pytest.fixture(scope="module")
def little() -> Run:
    return run(FedUCBVI(), n_room(agents=3), 50)


def test_advice_for_a_run_that_has_learnt_little(little: Run) -> None:
    assert little.learnt_little
    assert little.advice == (
        "has learnt little: the server's optimistic value is still 25 per episode, the policy is worth "
        f"{little.agents_value.mean:,.4g}; try more episodes, a smaller bonus_scale (0.1 instead of 1)"
    )


def test_advice_is_the_last_row_of_the_summary(little: Run) -> None:
    assert summary_rows(little)[1][-1] == ("advice", little.advice)


@pytest.mark.parametrize("make", [gridworld, riverswim, synthetic, chain])
def test_a_default_run_that_has_learnt_says_nothing(
    make: Callable[[], Federation],
) -> None:
    federation = make()
    result = run(FedUCBVI(), federation, 30_000)
    assert result.agents_value.mean > 0.95 * best_common_policy(federation).value.lower
    assert result.advice is None
    assert "advice" not in dict(summary_rows(result)[1])


@pytest.mark.slow
@pytest.mark.full
def test_five_shops_with_defaults_are_advised_in_euro() -> None:
    """As published they learn next to nothing in 300 months, with Fed-KL-UCBVI most of what there is."""
    result = run(FedUCBVI(), shops.shops(), 300)
    assert result.advice is not None
    worth = f"{result.agents_value.mean:,.4g}"
    assert f"optimistic value is still 1,680 per episode, the policy is worth {worth}" in result.advice
    better = run(FedKLUCBVI(stationary=True), shops.shops(), 300)
    assert better.agents_value.mean > 100
    assert better.advice is None


def test_a_policy_below_half_of_the_optimistic_value_has_learnt_little(little: Run) -> None:
    worth = little.agents_value.mean
    assert not replace(little, optimistic_value=2.0 * worth).learnt_little
    assert replace(little, optimistic_value=2.001 * worth).learnt_little


def test_a_policy_within_one_percent_of_the_optimum_has_learnt_enough(little: Run) -> None:
    best = little.about.optimal_value
    assert not replace(little, value=0.995 * best).learnt_little
    assert replace(little, value=0.985 * best).learnt_little


def test_nothing_is_said_of_a_run_that_has_not_begun(little: Run) -> None:
    none = {name: column[:0] for name, column in little.records.items()}
    begun_only = replace(little, records=none, complete=False)
    assert begun_only.advice is None
    assert begun_only.episodes_played == 0


STATIONARY = "stationary=true if kernel and rewards do not depend on the step"


@pytest.mark.parametrize(
    ("algorithm", "tries"),
    [
        (UCBVI(scale=2.0), ", a smaller scale (0.2 instead of 2), clip='remaining'"),
        (UCBVI(scale=0.5, clip="remaining"), ", a smaller scale (0.05 instead of 0.5)"),
        (
            FedKLUCBVI(),
            f", a smaller radius (0.5 instead of 1, without proof), {STATIONARY}",
        ),
        (FedKLUCBVI.fast(stationary=True), ""),
    ],
)
def test_advice_names_parameters_the_algorithm_has(algorithm: Algorithm[Any, Any], tries: str) -> None:
    advice = run(algorithm, n_room(agents=1), 20).advice
    assert advice is not None
    assert advice.endswith(f"; try more episodes{tries}")


def test_a_live_run_compares_with_the_estimate_or_else_with_what_its_last_episodes_paid() -> None:
    result = run(
        FedUCBVI(),
        LiveFederation.from_gymnasium("FrozenLake-v1", 2, reward_range=(0, 1)),
        30,
    )
    assert result.optimistic_value == pytest.approx(result.V[0, 0]), "every episode begins in state 0"
    assert result.recent_reward < 50
    assert result.advice is not None
    assert f"the policy is estimated at {result.estimated_value:,.4g}; try" in result.advice
    unplanned = replace(result, estimated_value=float("nan")).advice
    assert unplanned is not None
    assert f"the last tenth of them paid {result.recent_reward:,.4g}; try" in unplanned
    cliff = LiveFederation.from_gymnasium("CliffWalking-v1", 2, horizon=20, reward_range=(-100, 0))
    assert run(FedUCBVI(bonus_scale=0.01), cliff, 100).advice is None


def test_the_last_tenth_is_cut_out_of_a_round_in_proportion(little: Run) -> None:
    """Rounds of 60, 36 and 4 episodes that pay 1, 2 and 10 each: the last ten are six of the second and the third."""
    lengths = np.array([60, 36, 4])
    pays = np.array([1.0, 2.0, 10.0])
    made = {name: little.records[name][:3] for name in little.records}
    made |= {"agent_episodes": 3 * lengths, "reward": lengths * pays}
    assert replace(little, records=made).recent_reward == pytest.approx((6 * 2.0 + 4 * 10.0) / 10)


def test_commands_print_advice(little: Run, tmp_path: Path) -> None:
    problem = ("--env", "n_room", "--agents", 3, "--episodes", 50)
    run_words = ("run", *PUBLISHED, *problem, "--out", tmp_path / "run")
    assert "has learnt little" in " ".join(call(*run_words).stdout.split())
    assert "has learnt little" in " ".join(call("show", tmp_path / "run").stdout.split())
    assert told("show", tmp_path / "run")["advice"] == little.advice


def test_a_run_that_has_learnt_enough_gets_no_advice() -> None:
    summary = told("run", "--agents", 20, "--episodes", 30_000)
    assert summary["advice"] is None
    assert summary["warnings"] == []
