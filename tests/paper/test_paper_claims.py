"""The rules by which claims are judged, on constructed runs: every outcome can come about, and only by its rule."""

from __future__ import annotations

import numpy as np
import pytest

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper import ablations, claims, theory, tuned_comparison, tuning
from fed_ucbvi.paper.seed_groups import Key, SeedGroups
from fed_ucbvi.paper.seed_groups import regret as final_regret
from fed_ucbvi.paper.traces import Trace
from fed_ucbvi.report.content import Verdict
from traces import T, several, trace


def seed_groups(
    *cells: tuple[str, str, int, float, float, int], label: str = "", fired: int = 0
) -> dict[Key, list[Trace]]:
    """Lots of two runs from (environment, algorithm, M, eps_p, regret, rounds)."""
    return {
        Key(env, name, label or name, "{}", "{}", agents, eps_p, T): [
            trace(name, agents, eps_p, regret, rounds, seed=seed, fired=fired) for seed in range(2)
        ]
        for env, name, agents, eps_p, regret, rounds in cells
    }


def outcome(verdict: Verdict | None) -> str:
    assert verdict is not None
    return verdict.outcome


def over_agents(env: str, slope: float, rounds_slope: float = 0.0) -> SeedGroups:
    """Fed-UCBVI with regret and rounds like powers of M."""
    return seed_groups(
        *((env, "fed-ucbvi", m, 0.0, 1000 * m**slope, round(50 * m**rounds_slope)) for m in (1, 2, 4, 8, 16, 32))
    )


# ------------------------------------------------------------------------------------------- heterogeneity


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [(0.8, 1.2, "holds"), (1.25, 1.25, "holds"), (1.1, 1.3, "holds partly"), (1.3, 3.0, "does not hold")],
)
def test_heterogeneity_costs_little_up_to_a_quarter_more_regret(small: float, large: float, expected: str) -> None:
    found = claims.heterogeneity_costs_little(
        seed_groups(
            ("gridworld", "fed-ucbvi", 20, 0.0, 100.0, 9),
            ("gridworld", "fed-ucbvi", 20, 0.01, 100 * small, 9),
            ("gridworld", "fed-ucbvi", 20, 0.1, 100 * large, 9),
        )
    )
    assert outcome(found) == expected
    assert found is not None
    assert f"{min(small, large):.2f} to {max(small, large):.2f}" in found.measured or small == large


def test_environments_that_disagree_make_a_claim_hold_partly() -> None:
    found = claims.heterogeneity_costs_little(
        seed_groups(
            ("gridworld", "fed-ucbvi", 20, 0.0, 100.0, 9),
            ("gridworld", "fed-ucbvi", 20, 0.1, 90.0, 9),
            ("synthetic", "fed-ucbvi", 20, 0.0, 100.0, 9),
            ("synthetic", "fed-ucbvi", 20, 0.1, 200.0, 9),
        )
    )
    assert outcome(found) == "holds partly"
    assert found is not None
    assert "GridWorld: holds; synthetic MDP: does not hold" in found.measured


def test_the_share_of_regret_in_the_second_half_is_told() -> None:
    found = claims.heterogeneity_costs_little(
        seed_groups(("gridworld", "fed-ucbvi", 20, 0.0, 100.0, 9), ("gridworld", "fed-ucbvi", 20, 0.1, 100.0, 9))
    )
    assert found is not None
    assert f"{1 - np.sqrt(0.5):.1%} falls into the second half" in found.measured


# -------------------------------------------------------------------------------------- speed-up and rounds


@pytest.mark.parametrize(
    ("slope", "expected"), [(-1.0, "holds"), (-0.91, "holds"), (-0.7, "holds partly"), (-0.3, "does not hold")]
)
def test_speed_up_is_linear_from_a_slope_of_nine_tenths_on(slope: float, expected: str) -> None:
    found = claims.linear_speed_up(over_agents("gridworld", slope))
    assert outcome(found) == expected
    assert found is not None
    assert f"slope −{-slope:.2f} at εₚ = 0 (95 % interval −{-slope:.2f} to −{-slope:.2f})" in found.measured  # noqa: RUF001


def test_saturation_shows_in_the_slope_of_the_last_step() -> None:
    cells = [("gridworld", "fed-ucbvi", m, 0.0, regret, 9) for m, regret in ((1, 64.0), (8, 8.0), (64, 8.0))]
    found = claims.linear_speed_up(seed_groups(*cells))
    assert found is not None
    assert "from M = 1 to 8 it is −1.00, from M = 8 to 64 it is 0.00" in found.measured  # noqa: RUF001


@pytest.mark.parametrize(
    ("slope", "expected"), [(0.0, "holds"), (-0.2, "holds"), (0.3, "holds partly"), (0.9, "does not hold")]
)
def test_rounds_are_nearly_flat_up_to_a_slope_of_a_tenth(slope: float, expected: str) -> None:
    assert outcome(claims.flat_communication(over_agents("synthetic", -1.0, slope))) == expected


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [((100, 50), "holds"), ((101, 100), "holds partly"), ((200, 101), "does not hold")],
)
def test_rounds_are_few_up_to_a_tenth_of_the_episodes(rounds: tuple[int, int], expected: str) -> None:
    cells = [("gridworld", "fed-ucbvi", 2 + k, 0.0, 1.0, count) for k, count in enumerate(rounds)]
    assert outcome(claims.few_rounds(seed_groups(*cells))) == expected


# ---------------------------------------------------------------------------------------------- comparison


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ((0.1, 0.5), "holds"),
        ((0.4, 1.5), "holds partly"),
        ((0.9, 0.8, 0.7), "holds partly"),
        ((0.4, 1.5, 1.5), "does not hold"),
        ((1.0, 1.0), "does not hold"),
    ],
)
def test_a_regret_is_far_below_another_at_half_of_it(ratios: tuple[float, ...], expected: str) -> None:
    cells = [("gridworld", "fed-ucbvi", 2 + k, 0.0, 100 * ratio, 9) for k, ratio in enumerate(ratios)]
    cells += [("gridworld", "fedq-bernstein", 2 + k, 0.0, 100.0, 9) for k in range(len(ratios))]
    found = claims.below(seed_groups(*cells))
    assert outcome(found) == expected
    assert found is not None
    assert f"lower in {sum(ratio < 1 for ratio in ratios)} of {len(ratios)} cells" in found.measured
    assert f"{min(ratios):.2f}" in found.summary


def test_only_the_same_cell_is_compared() -> None:
    cells = [("gridworld", "fed-ucbvi", 2, 0.0, 1.0, 9), ("gridworld", "fedq-bernstein", 5, 0.0, 2.0, 9)]
    assert claims.below(seed_groups(*cells)) is None


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"a": [1, 2, 3]}, "holds"),
        ({"a": [1, 1]}, "does not hold"),
        ({"a": [2, 1], "b": [1, 2]}, "holds partly"),
    ],
)
def test_an_ordering_holds_if_the_means_grow_strictly(figures: dict[str, list[float]], expected: str) -> None:
    rows = {name: [several("x", [figure] * 3) for figure in row] for name, row in figures.items()}
    assert claims.ordered("c", "p", rows, final_regret).outcome == expected


def test_an_ordering_that_seeds_leave_open_is_undecided() -> None:
    rows = {"a": [several("x", [1.0, 5.0, 2.0]), several("y", [3.0, 2.0, 4.0])]}
    assert claims.ordered("c", "p", rows, final_regret).outcome == "undecided"


def test_what_cannot_be_judged_is_not_judged() -> None:
    alone = seed_groups(("gridworld", "fed-ucbvi", 20, 0.1, 100.0, 9))
    assert [verdict.place for verdict in claims.judge(alone)] == ["Section 5, communication complexity; Figure 3"]
    assert claims.judge({}) == []
    assert claims.judge(seed_groups(("gridworld", "fedq-bernstein", 20, 0.0, 100.0, 9))) == []


def test_every_claim_of_the_paper_is_judged_where_all_data_is_there() -> None:
    cells = [
        (env, name, m, eps_p, 100.0 / m, 9)
        for env in ("gridworld", "synthetic")
        for name in ("fed-ucbvi", "fedq-bernstein")
        for m in (2, 5)
        for eps_p in (0.0, 0.1)
    ]
    assert len(claims.judge(seed_groups(*cells))) == len(claims.CLAIMS)


# --------------------------------------------------------------------------------- rules of single experiments


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [((8, 9), "holds"), ((9, 9), "does not hold"), ((10, 9), "does not hold")],
)
def test_the_global_rule_saves_rounds_only_if_the_mixture_has_fewer(rounds: tuple[int, int], expected: str) -> None:
    cell = ("gridworld", "fed-ucbvi", 20, 0.0, 5.0)
    both = seed_groups((*cell, rounds[0]), label=ablations.PAPER, fired=3)
    local = seed_groups((*cell, rounds[1]), label=ablations.LOCAL)
    found = ablations.global_rule_saves({**both, **local})
    assert outcome(found) == expected
    assert found is not None
    assert "2 of 2 runs are the same round by round, and the global rule fired 6 times" in found.measured


@pytest.mark.parametrize(("other", "expected"), [(60, "holds"), (50, "does not hold")])
def test_fed_ucbvi_has_the_fewest_rounds_only_if_all_others_have_more(other: int, expected: str) -> None:
    cells = [("gridworld", "fed-ucbvi", 20, 0.0, 1.0, 50), ("gridworld", "fedq-advantage", 20, 0.0, 1.0, other)]
    assert outcome(tuned_comparison.fewest_rounds(seed_groups(*cells))) == expected


@pytest.mark.parametrize(("rounds", "expected"), [(1, "holds"), (10**9, "does not hold")])
def test_the_bound_on_rounds_holds_only_if_no_run_exceeds_it(rounds: int, expected: str) -> None:
    label = next(iter(theory.BONUSES))
    found = theory.rounds_within_bound(seed_groups(("gridworld", "fed-ucbvi", 1, 0.0, 1.0, rounds), label=label))
    assert outcome(found) == expected


def test_no_verdict_is_given_on_the_bound_on_regret_because_none_could_fail() -> None:
    """At every T run the bound exceeds T times the optimal value, the largest regret there can be."""
    label = next(iter(theory.BONUSES))
    worst = {**seed_groups(("gridworld", "fed-ucbvi", 20, 0.0, 4.0 * T, 9), label=label)}
    run = next(iter(worst.values()))[0]
    for episodes in (10, 10**3, 10**6, theory.EPISODES):
        assert theory.bound_on_regret(run, episodes) > run.about.optimal_value * episodes
    assert outcome(theory.rounds_within_bound(worst)) == "holds"


def test_the_factor_whose_largest_regret_is_least_is_taken() -> None:
    tried: dict[Key, list[Trace]] = {}
    for factor, regrets in ((0.25, (1.0, 9.0)), (0.5, (5.0, 6.0)), (1.0, (7.0, 7.0))):
        (key,) = seed_groups(("gridworld", "fed-ucbvi", 20, 0.0, 1.0, 9), label=f"k = {factor:g}")
        tried[key] = [trace("fed-ucbvi", 20, 0.0, regret, 9, seed=seed) for seed, regret in enumerate(regrets)]
    assert tuning.best_factors(tried) == {("gridworld", "fed-ucbvi"): (0.5, None)}


def test_the_linear_regime_ends_where_the_mean_regret_has_halved() -> None:
    def bent(share: FloatArray) -> FloatArray:
        return np.asarray(np.minimum(share, 0.1))

    run = trace("fed-ucbvi", 1, 0.0, 1.0, 1, curve=bent)
    longer = Trace(**{**vars(run), "points": run.points * 1000, "regret": run.regret})
    assert theory.linear_until(longer) == pytest.approx(0.2 * T * 1000, rel=0.03)
