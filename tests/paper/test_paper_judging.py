"""Verdicts have an error term: what noise decides is undecided, and it is said how many seeds would decide."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fed_ucbvi.paper import claims, tuned_comparison, tuning
from fed_ucbvi.paper.judging import Comparison, combine, compare, decide, grade
from fed_ucbvi.paper.scale import Scale
from fed_ucbvi.paper.seed_groups import Key
from fed_ucbvi.paper.traces import Pair, Trace
from fed_ucbvi.report.content import Outcome
from fed_ucbvi.sweeps.specification import Sweep
from traces import several, trace

YES, NO = (Comparison(answer, answer, 5, None, False) for answer in (True, False))


def opened(needed: int | None, *, leaning: bool = True) -> Comparison:
    """A comparison without an answer."""
    return Comparison(None, leaning, 5, needed, False)


# ------------------------------------------------------------------------------------------ single comparisons


def test_a_comparison_is_answered_where_scipys_paired_test_rejects_and_open_elsewhere() -> None:
    """200 samples of five pairs, seed fixed; SciPy's two-sided paired t test at 5 % is the yardstick."""
    rng = np.random.default_rng(8)
    answers = []
    for _ in range(200):
        y = rng.exponential(size=5)
        x = y + rng.normal(0.5, 0.7, size=5)
        found, theirs = compare(x, y), stats.ttest_rel(x, y)
        assert found.open == (theirs.pvalue > 0.05)
        assert found.open or found.answer == (theirs.statistic < 0)
        answers.append(found.answer)
    assert {True, False, None} >= set(answers) >= {False, None}


def test_one_run_decides_if_leaving_it_out_turns_the_means_round() -> None:
    """Four runs a little worse and one very much better: the mean says lower, the median higher."""
    found = compare([30.0, 30.0, 30.0, 30.0, 30.0], [24.0, 25.0, 24.0, 26.0, 70.0])
    assert (found.answer, found.leaning, found.one_run) == (None, True, True)
    assert not compare([30.0, 31.0, 29.0], [50.0, 60.0, 55.0]).one_run


def test_more_pairs_than_there_are_would_decide_what_is_open() -> None:
    found = compare([1.0, 9.0, 2.0], [2.0, 3.0, 4.0])
    assert found.open
    assert found.needed is not None
    assert found.needed > 3
    assert compare([1.0], [2.0]).needed is None


# ----------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([YES, YES], "holds"),
        ([YES, opened(9)], "undecided"),
        ([YES, NO, opened(9)], "undecided"),
        ([YES, YES, NO, opened(9)], "holds partly"),
        ([NO, NO, NO, opened(9)], "does not hold"),
    ],
)
def test_open_comparisons_leave_a_claim_undecided_only_where_they_could_change_it(
    cells: list[Comparison], expected: str
) -> None:
    assert decide(grade, cells).outcome == expected


def test_the_number_of_seeds_is_the_least_that_settles_the_outcome() -> None:
    assert decide(grade, [YES, opened(40), opened(12)]).needed == 40
    assert decide(grade, [YES, YES, opened(12, leaning=False), opened(900)]).needed == 12
    assert decide(grade, [YES, opened(None)]).needed is None
    assert decide(grade, [YES, YES]).needed is None


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["holds", "undecided"], "undecided"),
        (["does not hold", "undecided"], "undecided"),
        (["holds partly", "undecided"], "holds partly"),
        (["holds", "does not hold", "undecided"], "holds partly"),
        (["undecided"], "undecided"),
        (["undecided", "undecided"], "undecided"),
    ],
)
def test_an_undecided_environment_counts_only_where_the_others_leave_it_room(
    outcomes: list[Outcome], expected: str
) -> None:
    assert combine(outcomes) == expected


# --------------------------------------------------------------------------------------------------- verdicts


def cell(environment: str, algorithm: str, eps_p: float = 0.0, label: str = "") -> Key:
    return Key(environment, algorithm, label or algorithm, "{}", "{}", 20, eps_p, 1000)


def test_a_single_failed_run_of_the_other_does_not_make_fed_ucbvi_the_better_one() -> None:
    """As tuned on the synthetic MDP: higher in four of five seeds, lower on average by one bad run of the other."""
    found = claims.below(
        {
            cell("synthetic", "fed-ucbvi"): several("fed-ucbvi", [22.0, 24.0, 23.0, 29.0, 19.0]),
            cell("synthetic", "fedq-bernstein"): several("fedq-bernstein", [18.0, 19.0, 18.5, 19.5, 71.0]),
        }
    )
    assert found is not None
    assert found.outcome == "undecided"
    assert "one run decides: the ratio of means is 0.80" in found.detail
    assert "that of medians 1.21, and it is lower with 1 of 5 seeds" in found.detail
    assert found.seeds.startswith("5 seeds; about ")
    assert found.seeds.endswith(" would decide synthetic MDP")


def test_noise_around_a_ratio_of_one_is_undecided_not_refuted() -> None:
    found = claims.below(
        {
            cell("synthetic", "fed-ucbvi"): several("fed-ucbvi", [23.0, 20.0, 28.0, 21.0, 25.0]),
            cell("synthetic", "fedq-hoeffding"): several("fedq-hoeffding", [20.0, 24.0, 16.0, 27.0, 18.0]),
        },
        other="fedq-hoeffding",
    )
    assert found is not None
    assert found.outcome == "undecided"


def test_comparisons_pair_runs_by_seed() -> None:
    """Instances differ fivefold, the two algorithms by a tenth on each: unpaired noise would hide it."""
    scale = [1.0, 3.0, 5.0, 4.0, 2.0]
    own = [trace("fed-ucbvi", 20, 0.1, 100 * s, 9, seed=k) for k, s in enumerate(scale)]
    base = [trace("fed-ucbvi", 20, 0.0, 91 * s, 9, seed=k) for k, s in enumerate(scale)]
    found = claims.heterogeneity_costs_little(
        {cell("gridworld", "fed-ucbvi", 0.1): own[::-1], cell("gridworld", "fed-ucbvi"): base}
    )
    assert found is not None
    assert found.outcome == "holds"


def test_a_slope_near_the_limit_is_undecided() -> None:
    slopes = [-0.84, -0.95, -0.88, -0.97, -0.9]
    runs = {
        Key("gridworld", "fed-ucbvi", "fed-ucbvi", "{}", "{}", m, 0.0, 1000): [
            trace("fed-ucbvi", m, 0.0, 1000 * m**slope, 9, seed=seed) for seed, slope in enumerate(slopes)
        ]
        for m in (1, 4, 16)
    }
    found = claims.linear_speed_up(runs)
    assert found is not None
    assert found.outcome == "undecided"


# ----------------------------------------------------------------------------------------------------- tuning


def tuned(worst: dict[float, float], algorithm: str = "fed-ucbvi") -> dict[Key, list[Trace]]:
    """Tuning runs with these largest regrets by factor, and an evaluation with other seeds."""
    seed_groups = {
        cell("gridworld", algorithm, label=f"k = {k:g}"): [
            trace(algorithm, 20, 0.0, most * share, 9, seed=1000 + seed) for seed, share in enumerate((0.5, 1.0))
        ]
        for k, most in worst.items()
    }
    return {**seed_groups, cell("gridworld", algorithm, label=tuning.BEST): several(algorithm, [5.0, 6.0])}


@pytest.mark.parametrize(
    ("worst", "edge"),
    [
        ({0.25: 9.0, 0.5: 4.0, 1.0: 8.0}, None),
        ({0.25: 3.0, 0.5: 4.0, 1.0: 8.0}, "least"),
        ({0.25: 9.0, 0.5: 4.0, 1.0: 2.0}, "largest"),
    ],
)
def test_a_best_factor_at_the_edge_of_the_grid_is_said_beside_the_verdict(
    worst: dict[float, float], edge: str | None
) -> None:
    seed_groups = tuned(worst)
    ((factor, found),) = tuning.best_factors(seed_groups).values()
    assert found == edge
    text = tuning.tuning_text(seed_groups, ["fed-ucbvi"])
    assert "Tuned on 2 instances (seeds 1000 to 1001), evaluated on 2 others (seeds 0 to 1)." in text
    if edge is None:
        assert "No best k is at the edge." in text
    else:
        shown = f"k = {tuning.factor_text(factor)}, the {edge} tried"
        assert f"At the edge of the grid: Fed-UCBVI on GridWorld ({shown})" in text
    rivals = {cell("gridworld", "fedq-advantage", label=tuning.BEST): several("fedq-advantage", [50.0, 60.0])}
    verdict = next(
        one
        for one in tuned_comparison.verdicts({**seed_groups, **rivals, **tuned(worst, "fedq-advantage")})
        if "FedQ-Advantage" in one.claim
    )
    assert text.split(" At the edge")[0].split(" No best")[0] in verdict.detail


def test_tuning_with_a_shorter_t_than_the_evaluation_is_said_beside_the_verdict() -> None:
    seed_groups = tuned({0.25: 9.0, 0.5: 4.0, 1.0: 8.0})
    assert "tuned with T" not in tuning.tuning_text(seed_groups, ["fed-ucbvi"])
    longer = {
        key._replace(episodes=9000) if key.label == tuning.BEST else key: replicates
        for key, replicates in seed_groups.items()
    }
    assert "GridWorld: tuned with T = 1,000, evaluated with T = 9,000." in tuning.tuning_text(longer, ["fed-ucbvi"])


def tuning_pairs(best: dict[tuple[str, str], float]) -> list[Pair]:
    """Tuning runs of all, with the least regret at these factors, and at 1/8 for the rest."""
    tried = Sweep(name="t", grids=tuning.grids(Scale())[:1]).jobs()
    return [
        (
            job,
            trace(
                job.algorithm,
                20,
                0.0,
                1 + abs(np.log2(float(job.label[4:]) / best.get((job.environment, job.algorithm), 0.125))),
                9,
                seed=job.seed,
            ),
        )
        for job in tried
    ]


def test_the_grid_is_widened_beyond_an_edge_for_those_whose_best_factor_is_there() -> None:
    ends = {("gridworld", "fedq-advantage"): 1.0, ("synthetic", "concurrent-ucbvi"): 1 / 64}
    jobs = [
        job
        for grid in tuning.wider_grids(tuning_pairs(ends), Scale())
        for job in Sweep(name="t", grids=[grid]).jobs()
    ]
    assert {(job.environment, job.algorithm, job.label) for job in jobs} == {
        *(("gridworld", "fedq-advantage", f"k = {k:g}") for k in (2, 4, 8, 16)),
        *(("synthetic", "concurrent-ucbvi", f"k = {1 / k:g}") for k in (128, 256, 512, 1024)),
    }
    assert {job.seed for job in jobs} == set(tuning.TUNING_SEEDS)
    assert {job.parameters["iota"] for job in jobs if job.algorithm == "fedq-advantage"} == {4.0, 16.0, 64.0, 256.0}
    assert tuning.wider_grids(tuning_pairs({}), Scale()) == []
