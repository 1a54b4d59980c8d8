"""The rules by which claims are judged, on constructed runs, every outcome by its rule; the table of algorithms."""

from __future__ import annotations

import itertools
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from commands import refusal, told
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper import ablations, experiment, section5, table1, theory, tuned
from fed_ucbvi.paper.experiment import RunScale
from fed_ucbvi.paper.judging import Claim, judge
from fed_ucbvi.paper.report.traces import Pair, Trace, Traces, table_of
from fed_ucbvi.results.about import label_of
from fed_ucbvi.sweeps.specification import Sweep
from made_up_runs import T, group, known, table, trace, verdict_on

Cell = tuple[str, str, int, float, float, int]


def cells(*several: Cell, **more: Any) -> Traces:
    """Groups of five runs from (environment, algorithm, M, eps_p, regret, rounds)."""
    groups = [
        group(env, name, [regret] * 5, agents=M, eps_p=eps_p, rounds=rounds, **more)
        for env, name, M, eps_p, regret, rounds in several
    ]
    return table(*groups)


def over_agents(env: str, slope: float, rounds_slope: float = 0.0) -> Traces:
    """Fed-UCBVI with regret and rounds like powers of M."""
    figures = [(m, 0.0, 1000 * m**slope, round(50 * m**rounds_slope)) for m in (1, 2, 4, 8, 16, 32)]
    return cells(*((env, "fed-ucbvi", *one) for one in figures))


def over_eps_p(*shares: float) -> Traces:
    """Fed-UCBVI with these shares of the regret of identical agents."""
    regrets = {
        0.0: 100.0,
        **{0.01 * 10**k: 100 * share for k, share in enumerate(shares)},
    }
    return cells(*(("gridworld", "fed-ucbvi", 20, eps_p, regret, 9) for eps_p, regret in regrets.items()))


def with_rounds(*counts: int, name: str = "fed-ucbvi") -> Traces:
    """An algorithm with these rounds, of 1 000 episodes, for several M."""
    return cells(*(("gridworld", name, 2 + k, 0.0, 1.0, count) for k, count in enumerate(counts)))


def with_additional_regret(*powers: float) -> Traces:
    """Fed-UCBVI with 20 agents; at each eps_p an additional regret that grows like a power of the episodes."""
    alike = group("gridworld", "fed-ucbvi", [100.0] * 5, agents=20, eps_p=0.0)
    several = [alike]
    for k, power in enumerate(powers):
        # The curve of identical agents is the root of the share of episodes.
        curve = partial(_with_addition, power=power)
        several.append(
            group(
                "gridworld",
                "fed-ucbvi",
                [150.0] * 5,
                agents=20,
                eps_p=0.01 * 10**k,
                curve=curve,
            )
        )
    return table(*several)


def _with_addition(share: FloatArray, power: float) -> FloatArray:
    return np.asarray((100.0 * np.sqrt(share) + 50.0 * share**power) / 150.0)


RIVAL = "fedq-bernstein"


def with_gaps(*, together: float, alone: float) -> Traces:
    """Fed-UCBVI and FedQ-Bernstein with 20 agents and with one; the ratios of their regrets are given."""
    return cells(
        ("gridworld", "fed-ucbvi", 20, 0.0, 100 * together, 9),
        ("gridworld", RIVAL, 20, 0.0, 100.0, 9),
        ("gridworld", "fed-ucbvi", 1, 0.0, 3000 * alone, 9),
        ("gridworld", RIVAL, 1, 0.0, 3000.0, 9),
    )


MINUS = "\N{MINUS SIGN}"
OUTCOMES: dict[Claim, list[tuple[Traces, str, str]]] = {
    section5.HETEROGENEITY: [
        (over_eps_p(0.8, 1.2), "holds", "0.80 to 1.20"),
        (over_eps_p(1.25, 1.25), "holds", "1.25"),
        (over_eps_p(1.1, 1.3), "holds partly", "1.10 to 1.30"),
        (over_eps_p(1.3, 3.0), "does not hold", "1.30 to 3.00"),
    ],
    section5.HETEROGENEITY_EVERY_M: [
        (over_eps_p(1.25, 1.25), "holds", "1.25"),
        (over_eps_p(1.1, 1.3), "holds partly", "1.10 to 1.30"),
        (over_eps_p(1.3, 3.0), "does not hold", "1.30 to 3.00"),
    ],
    section5.LINEAR_TERM: [
        (
            with_additional_regret(1.0, 1.5),
            "holds",
            "0.35 to 0.50 of the additional regret",
        ),
        (
            with_additional_regret(1.0, 0.5),
            "holds partly",
            "0.50 to 0.71 of the additional regret",
        ),
        (
            with_additional_regret(0.5, 0.5),
            "does not hold",
            "0.71 of the additional regret",
        ),
    ],
    section5.SPEED_UP: [
        (
            over_agents("gridworld", slope),
            outcome,
            f"slope {MINUS}{-slope:.2f} at εₚ = 0 ({MINUS}{-slope:.2f} over",
        )
        for slope, outcome in (
            (-1.0, "holds"),
            (-0.51, "holds"),
            (-0.3, "holds partly"),
        )
    ]
    + [(over_agents("gridworld", 0.1), "does not hold", "slope 0.10 at εₚ = 0")],
    section5.INVERSE_SPEED_UP: [
        (
            over_agents("gridworld", slope),
            outcome,
            f"slope {MINUS}{-slope:.2f} at εₚ = 0 ({MINUS}{-slope:.2f} over",
        )
        for slope, outcome in (
            (-1.0, "holds"),
            (-0.91, "holds"),
            (-0.7, "holds partly"),
            (-0.3, "does not hold"),
        )
    ],
    section5.FLAT_ROUNDS: [
        (over_agents("synthetic", -1.0, slope), outcome, "slope")
        for slope, outcome in (
            (0.0, "holds"),
            (-0.2, "holds"),
            (0.3, "holds partly"),
            (0.9, "does not hold"),
        )
    ],
    section5.FEW_ROUNDS: [
        (with_rounds(100, 50), "holds", "5.00% to 10.00% of T"),
        (with_rounds(101, 100), "holds partly", "10.00% to 10.10% of T"),
        (with_rounds(200, 101), "does not hold", "10.10% to 20.00% of T"),
    ],
    section5.HIGH_ROUNDS: [
        (with_rounds(990, 101, name=RIVAL), "holds", "10.10% to 99.00% of T"),
        (with_rounds(990, 100, name=RIVAL), "holds partly", "10.00% to 99.00% of T"),
        (with_rounds(100, 50, name=RIVAL), "does not hold", "5.00% to 10.00% of T"),
    ],
    section5.MOST_ROUNDS: [
        (with_rounds(990, 500, name=RIVAL), "holds", "50.00% to 99.00% of T"),
        (with_rounds(990, 499, name=RIVAL), "holds partly", "49.90% to 99.00% of T"),
        (with_rounds(490, 480, name=RIVAL), "does not hold", "48.00% to 49.00% of T"),
    ],
    section5.SIMILAR_GAPS: [
        (
            with_gaps(together=0.2, alone=0.1),
            "holds",
            "0.20 times FedQ-Bernstein's regret with M = 20, 0.10 alone",
        ),
        (
            with_gaps(together=0.1, alone=0.2),
            "holds",
            "the larger ratio is 2.0 times the smaller one",
        ),
        (
            with_gaps(together=0.1, alone=0.21),
            "holds partly",
            "the larger ratio is 2.1 times the smaller one",
        ),
        (
            with_gaps(together=0.1, alone=0.6),
            "does not hold",
            "the larger ratio is 6.0 times the smaller one",
        ),
    ],
}


@pytest.mark.parametrize(
    ("claim", "runs", "expected", "measured"),
    [pytest.param(claim, *case, id=f"{claim.name}-{case[1]}") for claim, some in OUTCOMES.items() for case in some],
)
def test_every_outcome_comes_about_at_the_limits(claim: Claim, runs: Traces, expected: str, measured: str) -> None:
    found = verdict_on(claim, runs)
    assert found.outcome == expected
    assert measured in found.measured


def test_environments_that_disagree_make_a_claim_hold_partly() -> None:
    some = (
        ("gridworld", 0.0, 100.0),
        ("gridworld", 0.1, 90.0),
        ("synthetic", 0.0, 100.0),
        ("synthetic", 0.1, 200.0),
    )
    runs = cells(*((env, "fed-ucbvi", 20, eps_p, regret, 9) for env, eps_p, regret in some))
    found = verdict_on(section5.HETEROGENEITY, runs)
    assert found.outcome == "holds partly"
    assert "(holds with 5 of 5 seeds). synthetic MDP: " in found.measured
    assert found.measured.endswith("(does not hold with 5 of 5 seeds).")


def test_the_share_of_regret_in_the_second_half_is_told() -> None:
    runs = cells(*(("gridworld", "fed-ucbvi", 20, eps_p, 100.0, 9) for eps_p in (0.0, 0.1)))
    found = verdict_on(section5.HETEROGENEITY, runs)
    assert f"{1 - np.sqrt(0.5):.1%} falls into the second half" in found.measured


def test_saturation_shows_in_the_slope_of_the_last_step() -> None:
    bent = [("gridworld", "fed-ucbvi", m, 0.0, regret, 9) for m, regret in ((2, 64.0), (16, 8.0), (128, 8.0))]
    found = verdict_on(section5.SPEED_UP, cells(*bent))
    assert "from M = 2 to 16 it is −1.00, from M = 16 to 128 it is 0.00" in found.measured  # noqa: RUF001


FAR_BELOW = {
    (0.1, 0.5): "holds",
    (0.4, 1.5): "holds partly",
    (0.9, 0.8, 0.7): "holds partly",
}
FAR_BELOW |= {(0.4, 1.5, 1.5): "does not hold", (1.0, 1.0): "does not hold"}


@pytest.mark.parametrize(("ratios", "expected"), FAR_BELOW.items())
def test_a_regret_is_far_below_another_at_half_of_it(ratios: tuple[float, ...], expected: str) -> None:
    some = [("gridworld", "fed-ucbvi", 2 + k, 0.0, 100 * ratio, 9) for k, ratio in enumerate(ratios)]
    some += [("gridworld", "fedq-bernstein", 2 + k, 0.0, 100.0, 9) for k in range(len(ratios))]
    found = known(section5.below(cells(*some)))
    assert found.outcome == expected
    assert f"(by means {min(ratios):.2f}" in found.measured
    assert f"{min(ratios):.2f}" in found.summary


def test_only_the_same_cell_is_compared() -> None:
    some = [
        ("gridworld", "fed-ucbvi", 2, 0.0, 1.0, 9),
        ("gridworld", "fedq-bernstein", 5, 0.0, 2.0, 9),
    ]
    assert section5.below(cells(*some)) is None


GROWING = [[1.0] * 5, [2.0] * 5, [3.0] * 5]


@pytest.mark.parametrize(
    ("regrets", "expected"),
    [
        ({"gridworld": GROWING}, "holds"),
        ({"gridworld": [[1.0] * 5, [1.0] * 5, [2.0] * 5]}, "does not hold"),
        (
            {"gridworld": [[2.0] * 5, [1.0] * 5, [3.0] * 5], "chain": GROWING},
            "holds partly",
        ),
        (
            {"gridworld": [[1.0, 5.0, 2.0], [3.0, 2.0, 4.0], [9.0, 9.0, 9.0]]},
            "undecided",
        ),
    ],
)
def test_an_ordering_holds_if_the_figures_grow_strictly(regrets: dict[str, list[list[float]]], expected: str) -> None:
    """Regrets of three algorithms, by environment and seed."""
    growing = table1.Ordering("It grows", "regret", ("x", "y", "z"))
    runs = [group(env, name, one) for env, row in regrets.items() for name, one in zip("xyz", row, strict=True)]
    assert known(table1.ordered(growing, table(*runs))).outcome == expected
    assert table1.ordered(growing, table(*runs).where(lambda one: one["algorithm"] != "y")) is None


def names_judged(runs: Traces) -> list[str]:
    return [verdict.name for verdict in section5.EXPERIMENT.judge(runs)]


def test_what_cannot_be_judged_is_not_judged() -> None:
    assert names_judged(table()) == []
    assert names_judged(cells(("gridworld", "fed-ucbvi", 20, 0.1, 100.0, 9))) == [section5.FEW_ROUNDS.name]
    rival = cells(("gridworld", "fedq-bernstein", 20, 0.0, 100.0, 9))
    assert names_judged(rival) == [section5.HIGH_ROUNDS.name, section5.MOST_ROUNDS.name]


def test_runs_with_one_agent_decide_nothing_but_the_gap_in_the_single_agent_setting() -> None:
    alone = cells(
        ("gridworld", "fed-ucbvi", 1, 0.0, 100.0, 9),
        ("gridworld", "fedq-bernstein", 1, 0.0, 100.0, 9),
    )
    assert names_judged(alone) == []


def test_a_claim_about_figure_1_is_judged_with_the_agents_of_figure_1() -> None:
    """A cost of heterogeneity with 2 agents counts for the stricter claim only."""
    some = [
        ("gridworld", "fed-ucbvi", 20, 0.0, 100.0, 9),
        ("gridworld", "fed-ucbvi", 20, 0.1, 110.0, 9),
    ]
    some += [
        ("gridworld", "fed-ucbvi", 2, 0.0, 100.0, 9),
        ("gridworld", "fed-ucbvi", 2, 0.1, 140.0, 9),
    ]
    outcomes = {verdict.name: verdict.outcome for verdict in section5.EXPERIMENT.judge(cells(*some))}
    assert outcomes[section5.HETEROGENEITY.name] == "holds"
    assert outcomes[section5.HETEROGENEITY_EVERY_M.name] == "holds partly"


def test_one_over_m_is_stricter_than_linear_speed_up() -> None:
    verdicts = section5.EXPERIMENT.judge(over_agents("gridworld", -0.7))
    outcomes = {verdict.name: verdict.outcome for verdict in verdicts}
    assert outcomes[section5.SPEED_UP.name] == "holds"
    assert outcomes[section5.INVERSE_SPEED_UP.name] == "holds partly"


def test_stricter_readings_are_listed_as_ours() -> None:
    ours = {verdict.name for verdict in section5.EXPERIMENT.judge(all_cells()) if verdict.ours}
    stricter = (
        section5.HETEROGENEITY_EVERY_M,
        section5.INVERSE_SPEED_UP,
        section5.MOST_ROUNDS,
    )
    assert ours == {claim.name for claim in stricter}


def all_cells() -> Traces:
    some = product(
        ("gridworld", "synthetic"),
        ("fed-ucbvi", "fedq-bernstein"),
        (1, 2, 20),
        (0.0, 0.1),
    )
    return cells(*((env, name, m, eps_p, 100.0 / m, 9) for env, name, m, eps_p in some))


def test_every_claim_of_the_paper_is_judged_where_all_data_is_there() -> None:
    claims = (
        *section5.CLAIMS,
        *section5.RIVAL_CLAIMS,
        section5.BELOW,
        section5.SIMILAR_GAPS,
    )
    assert names_judged(all_cells()) == [claim.name for claim in claims]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [((8, 9), "holds"), ((9, 9), "does not hold"), ((10, 9), "does not hold")],
)
def test_the_global_rule_saves_rounds_only_if_the_mixture_has_fewer(rounds: tuple[int, int], expected: str) -> None:
    cell = ("gridworld", "fed-ucbvi", 20, 0.0, 5.0)
    both = cells((*cell, rounds[0]), label=ablations.PAPER, fired=3)
    local = cells((*cell, rounds[1]), label=ablations.LOCAL)
    (found,) = ablations.EXPERIMENT.judge(table(*both, *local))
    assert found.outcome == expected
    assert "5 of 5 runs are the same round by round, and the global rule fired 15 times" in found.measured


@pytest.mark.parametrize(("other", "expected"), [(60, "holds"), (50, "does not hold")])
def test_fed_ucbvi_has_the_fewest_rounds_only_if_all_others_have_more(other: int, expected: str) -> None:
    some = [
        ("gridworld", "fed-ucbvi", 20, 0.0, 1.0, 50),
        ("gridworld", "fedq-advantage", 20, 0.0, 1.0, other),
    ]
    assert known(judge(tuned.FEWEST_ROUNDS, cells(*some), tuned.fewest_rounds)).outcome == expected


@pytest.mark.parametrize(("rounds", "expected"), [(1, "holds"), (10**9, "does not hold")])
def test_the_bound_on_rounds_holds_only_if_no_run_exceeds_it(rounds: int, expected: str) -> None:
    label = next(iter(theory.BONUSES))
    runs = cells(("gridworld", "fed-ucbvi", 1, 0.0, 1.0, rounds), label=label)
    assert known(theory.rounds_within_bound(runs)).outcome == expected


def test_no_verdict_is_given_on_the_bound_on_regret_because_none_could_fail() -> None:
    """At every T run the bound exceeds T times the optimal value, the largest regret there can be."""
    label = next(iter(theory.BONUSES))
    worst = cells(("gridworld", "fed-ucbvi", 20, 0.0, 4.0 * T, 9), label=label)
    run = worst.runs[0]
    for episodes in (10, 10**3, 10**6, theory.EPISODES):
        assert theory.bound_on_regret(run, episodes) > run.about.optimal_value * episodes
    assert known(theory.rounds_within_bound(worst)).outcome == "holds"


def test_the_factor_whose_largest_regret_is_least_is_taken() -> None:
    factors = {0.25: (1.0, 9.0), 0.5: (5.0, 6.0), 1.0: (7.0, 7.0)}
    tried = [group("gridworld", "fed-ucbvi", regrets, label=f"k = {k:g}") for k, regrets in factors.items()]
    assert tuned.best_factors(table(*tried)) == {("gridworld", "fed-ucbvi"): (0.5, None)}


def test_the_linear_regime_ends_where_the_mean_regret_has_halved() -> None:
    def bent(share: FloatArray) -> FloatArray:
        return np.asarray(np.minimum(share, 0.1))

    run = trace("fed-ucbvi", 1, 0.0, 1.0, 1, curve=bent)
    longer = Trace(**{**vars(run), "points": run.points * 1000, "regret": run.regret})
    assert theory.linear_until(longer) == pytest.approx(0.2 * T * 1000, rel=0.03)


SHORT = {"gridworld": 40, "synthetic": 60}


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "EPISODES", SHORT)
        jobs = Sweep(name="short", grids=table1.grids(RunScale(seeds=2))).jobs()
    return [(job, Trace.of(job.run())) for job in jobs]


def runs_of(pairs: list[Pair], environment: str, algorithm: str) -> list[Trace]:
    """The runs of an algorithm on an environment."""
    found = []
    for job, run in pairs:
        if job.problem.environment == environment and job.algorithm.name == algorithm:
            found.append(run)
    return found


def test_every_algorithm_runs_with_every_seed(pairs: list[Pair]) -> None:
    done = [(job.problem.environment, job.algorithm.name, job.seed) for job, _ in pairs]
    assert sorted(done) == sorted(itertools.product(SHORT, ALGORITHMS, range(2)))


def test_jobs_have_the_sizes_of_the_paper(pairs: list[Pair]) -> None:
    for job, _ in pairs:
        single_agent = ALGORITHMS[job.algorithm.name].single_agent
        assert job.problem.agents == (1 if single_agent else experiment.BASE_AGENTS)
        assert job.problem.env_seed == job.seed
        assert job.episodes == SHORT[str(job.problem.environment)]


@pytest.mark.parametrize("env", SHORT)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_table_has_the_mean_regret_with_its_interval(pairs: list[Pair], env: str, name: str) -> None:
    row = row_of(pairs, env, name)
    regrets = [run.regret for run in runs_of(pairs, env, name)]
    mean = np.mean(regrets)
    error = np.std(regrets, ddof=1) / np.sqrt(len(regrets))
    high = mean * np.exp(stats.t.ppf(0.975, len(regrets) - 1) * error / mean)
    assert row["regret"]["mean"] == pytest.approx(mean)
    assert row["regret"]["high"] == pytest.approx(high)
    assert row["median"] == pytest.approx(np.median(regrets))


@pytest.mark.parametrize("env", SHORT)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_table_has_the_mean_traffic(pairs: list[Pair], env: str, name: str) -> None:
    row = row_of(pairs, env, name)
    replicates = runs_of(pairs, env, name)
    assert row["rounds"]["mean"] == pytest.approx(np.mean([run.rounds for run in replicates]))
    assert row["megabytes_up"] == pytest.approx(np.mean([run.bytes_up for run in replicates]) / 1e6)


def row_of(pairs: list[Pair], environment: str, algorithm: str) -> dict[str, Any]:
    """The row of an algorithm in the table of an environment."""
    rows = table1.tabulate(table_of(pairs))["tables"][environment]
    return next(row for row in rows if row["algorithm"] == algorithm)


def test_curves_over_bytes_end_at_the_totals_of_the_runs(pairs: list[Pair]) -> None:
    section = table1.analyse(table_of(pairs), RunScale(seeds=2))
    (figure,) = section.figures
    for panel, env in zip(figure.panels, SHORT, strict=True):
        assert len(panel.series) == len(ALGORITHMS)
        by_label = {series.name: series for series in panel.series}
        for name in ALGORITHMS:
            series = by_label[label_of(name)]
            replicates = runs_of(pairs, env, name)
            megabytes = [(run.bytes_up + run.bytes_down) / 1e6 for run in replicates]
            assert series.x[-1] == pytest.approx(np.mean(megabytes))
            assert series.y[-1] == pytest.approx(np.mean([run.regret for run in replicates]))


def test_orderings_name_registered_algorithms() -> None:
    for ordering in table1.ORDERINGS:
        assert set(ordering.algorithms) <= set(ALGORITHMS)


def test_every_ordering_is_judged(pairs: list[Pair]) -> None:
    assert len(table1.EXPERIMENT.judge(table_of(pairs))) == len(table1.ORDERINGS)


def test_an_ordering_without_runs_of_all_its_algorithms_is_not_judged(pairs: list[Pair]) -> None:
    few = [(job, run) for job, run in pairs if job.algorithm.name in ("fed-ucbvi", "fedq-bernstein")]
    claims = [verdict.claim for verdict in table1.EXPERIMENT.judge(table_of(few))]
    assert claims == [f"{table1.ORDERINGS[0].text}."]


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], str]:
    """The rows that the command prints as JSON, and the table that it writes as Markdown."""
    monkeypatch.setattr(experiment, "EPISODES", {"synthetic": 30})
    words = ("--algorithm", "fed-ucbvi", "--algorithm", "fedq-bernstein", "--seeds", 2)
    rows = told("compare", *words, "--out", tmp_path / "table.md")["tables"]["synthetic"]
    return rows, (tmp_path / "table.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command_compare_prints_json(compared: tuple[list[dict[str, Any]], str]) -> None:
    rows, _ = compared
    assert [row["algorithm"] for row in rows] == ["fed-ucbvi", "fedq-bernstein"]


@pytest.mark.slow
def test_the_command_compare_writes_markdown(compared: tuple[list[dict[str, Any]], str]) -> None:
    rows, text = compared
    for row in rows:
        assert f"| {row['algorithm']} | {row['kind']} |" in text
    assert text.count("| claim |") == 1


@pytest.mark.parametrize(
    ("names", "message"),
    [(["fed-ucbv"], "did you mean 'fed-ucbvi'?"), (["ucbvi", "ucbvi"], "named twice")],
)
def test_names_that_cannot_be_compared_are_refused(names: list[str], message: str) -> None:
    words = [word for name in names for word in ("--algorithm", name)]
    assert message in refusal("compare", *words, "--seeds", "1")


def test_liars_can_be_asked_for_on_the_command_line() -> None:
    words = (
        "run",
        "--algorithm",
        "byzan-ucbvi",
        "--episodes",
        "60",
        "--agents",
        "4",
        "--liars",
        "0.25",
        "--attack",
    )
    environment = told(*words, "counts")["environment"]
    assert environment["attack"] == "counts"
    assert len(environment["liars"]) == 1
    assert "did you mean 'counts'?" in refusal(*words, "conts")
