"""The standing comparison: the document follows from the rows, the rows from the runs, and others can join."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from commands import call, refusal, told
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.core.errors import missing_package
from fed_ucbvi.environments import ENVIRONMENTS, sepsis
from fed_ucbvi.paper import leaderboard
from fed_ucbvi.paper.leaderboard import LeaderboardPlan, Row, documents, places, read_rows, standings
from fed_ucbvi.paper.orders import row_of
from fed_ucbvi.paper.report.content import check_report
from fed_ucbvi.sweeps.job import Job
from repository import ROOT

BOARD = LeaderboardPlan.standing()
ROWS = leaderboard.standing_rows()
HERE = BOARD.without(BOARD.missing(list(ALGORITHMS)))
"""Without what cannot be run here, because a package is not installed."""
JOBS = HERE.sweep().jobs()


def test_the_documents_follow_from_the_stored_rows() -> None:
    for name, text in documents(BOARD, ROWS).items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run 'make leaderboard-document'"


def test_the_stored_rows_are_those_of_the_sweep() -> None:
    rows = [row for row in ROWS if row.environment in HERE.environments]
    stored = [(row.environment, row.algorithm, row.agents, row.episodes, row.seed) for row in rows]
    expected = [
        (job.problem.environment, job.algorithm.name, job.problem.agents, job.episodes, job.seed)
        for job in in_order()
    ]
    assert sorted(stored) == sorted(expected)


def in_order() -> list[Job]:
    places = {name: place for names in (BOARD.environments, ALGORITHMS) for place, name in enumerate(names)}
    return sorted(
        JOBS,
        key=lambda job: (places[str(job.problem.environment)], places[job.algorithm.name], job.seed),
    )


@pytest.mark.parametrize(
    ("environment", "algorithm"),
    [
        ("synthetic", "fed-kl-ucbvi"),
        ("chain", "fed-ucbvi"),
        ("windy_cliff", "ucbvi"),
        ("random_mdps", "byzan-ucbvi"),
    ],
)
def test_a_run_made_today_gives_the_row_that_is_stored(environment: str, algorithm: str) -> None:
    (job,) = (
        job for job in JOBS if (job.problem.environment, job.algorithm.name, job.seed) == (environment, algorithm, 1)
    )
    (stored,) = (row for row in ROWS if (row.environment, row.algorithm, row.seed) == (environment, algorithm, 1))
    assert Row.of(job, job.run()) == stored


def test_pairs_that_the_leaderboard_leaves_out_have_a_reason() -> None:
    pairs = {(job.algorithm.name, job.problem.environment) for job in JOBS}
    for environment in ENVIRONMENTS:
        for algorithm in ALGORITHMS:
            assert environment in {**BOARD.environments, **BOARD.excluded}, f"name {environment} in leaderboard.toml"
            why = HERE.why_not(algorithm, environment)
            assert bool(why) != ((algorithm, environment) in pairs), (
                f"{algorithm} on {environment}: name it in leaderboard.toml, with episodes or among excluded"
            )


def made_up(seeds: int = 4) -> list[Row]:
    """Three algorithms on two environments, the last of them on one only."""
    rng = np.random.default_rng(5)
    names = [("a", "fed-ucbvi"), ("b", "fed-ucbvi"), ("a", "x"), ("b", "x"), ("a", "y")]
    some = product(names, range(seeds))
    return [Row(*who, 2, 30, seed, float(rng.uniform(1, 9)), 7 + seed, 10, 20, 1.5, 2.0) for who, seed in some]


def test_ratios_are_geometric_means_over_environments_with_students_interval_over_seeds() -> None:
    rows = made_up()
    regret = {(row.environment, row.algorithm, row.seed): row.regret for row in rows}
    for standing in standings(rows):
        where = ["a"] if standing.algorithm == "y" else ["a", "b"]
        ratios = [
            stats.gmean([regret[env, standing.algorithm, k] / regret[env, "fed-ucbvi", k] for env in where])
            for k in range(4)
        ]
        mean = float(stats.gmean(ratios))
        assert standing.agents == len(where)
        assert standing.regret.mean == pytest.approx(mean)
        if standing.algorithm == "fed-ucbvi":
            assert standing.regret.low == 1.0
            assert standing.regret.high == 1.0
            continue
        low, high = stats.t.interval(0.95, 3, np.mean(np.log(ratios)), stats.sem(np.log(ratios)))
        assert (standing.regret.low, standing.regret.high) == pytest.approx((np.exp(low), np.exp(high)))
    assert [one.regret.mean for one in standings(rows)] == sorted(one.regret.mean for one in standings(rows))


def test_places_are_means_with_students_interval_on_a_logarithmic_scale_the_least_regret_first() -> None:
    rows = made_up()
    found = places(rows, "b")
    assert {place.algorithm for place in found} == {"fed-ucbvi", "x"}
    for place in found:
        values = [row.regret for row in rows if (row.environment, row.algorithm) == ("b", place.algorithm)]
        mean, (_, high) = (
            np.mean(values),
            stats.t.interval(0.95, 3, np.mean(values), stats.sem(values)),
        )
        factor = np.exp(high / mean - 1)
        assert place.regret.mean == pytest.approx(mean)
        assert (place.regret.low, place.regret.high) == pytest.approx((mean / factor, mean * factor))
        assert place.median == pytest.approx(np.median(values))
        assert place.failing == "0 of 4 [0, 60 %]"
        assert (place.share.mean, place.megabytes.mean) == pytest.approx((0.75, 3e-5))
    assert found[0].regret.mean <= found[1].regret.mean


def with_an_environment_without_baseline() -> list[Row]:
    rows = made_up()
    alone = [row._replace(environment="c") for row in rows if (row.environment, row.algorithm) == ("a", "x")]
    return [*rows, *alone]


def test_an_environment_without_the_baseline_is_not_in_the_ratios() -> None:
    assert standings(with_an_environment_without_baseline()) == standings(made_up())


def test_an_environment_without_the_baseline_has_its_own_table() -> None:
    own_places = places(with_an_environment_without_baseline(), "c")
    assert [place.algorithm for place in own_places] == ["x"]


@pytest.fixture
def own_grid_board() -> LeaderboardPlan:
    """A plan in which one environment has a grid of its own, with options for one algorithm."""
    own = {
        "episodes": [20],
        "eps_p": [0.0],
        "driver": "episodes",
        "options": {"fed-kl-ucbvi": {"stationary": True}},
    }
    return LeaderboardPlan(
        agents=2,
        eps_p=0.1,
        seeds=1,
        environments={"chain": own, "synthetic": {"episodes": [20]}},
        excluded={"others on chain": "slow"},
    )


def jobs_by_cell(board: LeaderboardPlan) -> dict[tuple[object, str], Job]:
    jobs = board.sweep(["fed-kl-ucbvi", "fed-ucbvi"]).jobs()
    return {(job.problem.environment, job.algorithm.name): job for job in jobs}


def test_only_algorithms_with_options_run_on_an_environment_with_options(own_grid_board: LeaderboardPlan) -> None:
    assert set(jobs_by_cell(own_grid_board)) == {
        ("chain", "fed-kl-ucbvi"),
        ("synthetic", "fed-kl-ucbvi"),
        ("synthetic", "fed-ucbvi"),
    }


def test_an_environment_may_have_its_own_grid(own_grid_board: LeaderboardPlan) -> None:
    job = jobs_by_cell(own_grid_board)["chain", "fed-kl-ucbvi"]
    assert job.problem.eps_p == 0.0
    assert job.driver == "episodes"
    assert job.algorithm.parameters["stationary"] is True


def test_a_grid_of_one_environment_does_not_change_the_others(own_grid_board: LeaderboardPlan) -> None:
    job = jobs_by_cell(own_grid_board)["synthetic", "fed-kl-ucbvi"]
    assert job.problem.eps_p == 0.1
    assert job.driver == "auto"
    assert job.algorithm.parameters["stationary"] is False


def test_the_reason_for_leaving_out_other_algorithms_is_given(own_grid_board: LeaderboardPlan) -> None:
    assert own_grid_board.why_not("fed-ucbvi", "chain") == "slow"
    assert own_grid_board.why_not("mine:Mine", "chain") == "slow"


def test_an_environment_without_its_package_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> Path:
        raise missing_package("it needs", "icu-sepsis", "icu-sepsis")

    monkeypatch.setattr(sepsis, "_tables_file", missing)
    sepsis.sepsis_tables.cache_clear()
    grids: dict[str, dict[str, object]] = {"chain": {"episodes": [20]}}
    grids["icu_sepsis"] = {"episodes": [5], "options": {"fed-ucbvi": {}}}
    board = LeaderboardPlan(2, 0.1, 2, grids, {"others on icu_sepsis": "a test"})
    monkeypatch.setattr(LeaderboardPlan, "standing", lambda: board)
    monkeypatch.setattr("fed_ucbvi.paper.orders.ROWS", {"fed-ucbvi": row_of("fed-ucbvi")})
    result = call(
        "leaderboard",
        "--again",
        "--algorithm",
        "fed-ucbvi",
        "--jobs",
        1,
        "--out",
        tmp_path,
    )
    assert result.exit_code == 0, result.output
    assert "icu_sepsis is left out: it needs icu-sepsis, which is not installed" in result.stderr
    assert "- icu_sepsis: it needs icu-sepsis" in (tmp_path / "leaderboard.md").read_text(encoding="utf-8")
    assert {row.environment for row in read_rows(tmp_path / "leaderboard.csv")} == {"chain"}
    assert board.missing(["ucbvi"]) == {}, "who would not run there needs no package"


def test_rows_written_are_read_back(tmp_path: Path) -> None:
    leaderboard.write_rows(made_up(), tmp_path / "rows.csv")
    read = read_rows(tmp_path / "rows.csv")
    assert read == made_up()
    assert {(type(row.rounds), type(row.value)) for row in read} == {(int, float)}


def test_the_page_can_be_drawn() -> None:
    content = leaderboard.page(BOARD, ROWS)
    check_report(content)
    (section,) = content.sections
    assert len(section.figures[0].panels) == len(BOARD.environments)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> LeaderboardPlan:
    """A board of two environments, whose standing rows are those of three algorithms."""
    grids = {"synthetic": {"episodes": [20]}, "chain": {"episodes": [30]}}
    board = LeaderboardPlan(2, 0.1, 2, grids, {"ucbvi on chain": "a test"})
    jobs = board.sweep(["fed-ucbvi", "ucbvi"]).jobs()
    rows = [Row.of(job, job.run()) for job in jobs]
    monkeypatch.setattr(LeaderboardPlan, "standing", lambda: board)
    monkeypatch.setattr(leaderboard, "standing_rows", lambda: rows)
    return board


@pytest.mark.slow
def test_an_own_algorithm_is_shown_among_the_others(small: LeaderboardPlan, tmp_path: Path) -> None:
    own = "examples.epsilon_greedy:EpsilonGreedy"
    words = [
        "leaderboard",
        "--algorithm",
        own,
        "--store",
        tmp_path / "runs",
        "--jobs",
        1,
    ]
    board = told(*words, "--out", tmp_path / "board")
    assert (board["made"], board["runs"]) == (4, 10)
    assert {one["algorithm"]: one["environments"] for one in board["overall"]} == {
        "fed-ucbvi": 2,
        "ucbvi": 1,
        own: 2,
    }
    assert [place["agents"] for place in board["environments"]["chain"]] == [2, 2]
    rows = read_rows(tmp_path / "board" / "leaderboard.csv")
    assert [row.algorithm for row in rows[:6]] == ["fed-ucbvi"] * 2 + ["ucbvi"] * 2 + [own] * 2
    for name, text in documents(small, rows).items():
        assert (tmp_path / "board" / name).read_text(encoding="utf-8") == text
    assert "- ucbvi on chain: a test." in documents(small, rows)["leaderboard.md"]
    assert (tmp_path / "board" / "index.html").stat().st_size > 1000
    assert told(*words)["overall"] == board["overall"], "from the runs that are kept"


@pytest.mark.slow
def test_an_environment_can_be_left_out(small: LeaderboardPlan, tmp_path: Path) -> None:
    words = (
        "--algorithm",
        "fedq-hoeffding",
        "--leave-out",
        "synthetic",
        "--jobs",
        1,
        "--out",
        tmp_path,
    )
    board = told("leaderboard", *words)
    assert board["made"] == 2
    assert board["runs"] == 4
    assert list(board["environments"]) == ["chain"]
    assert "- synthetic: by request." in (tmp_path / "leaderboard.md").read_text(encoding="utf-8")
    assert list(small.environments) == ["synthetic", "chain"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--again", "--quick"], "--again and --quick both make all runs"),
        (["--store", "runs"], "--store and --jobs are about runs"),
        (["--leave-out", "chian"], "did you mean 'chain'?"),
        (
            ["--leave-out", "chain", "--leave-out", "synthetic"],
            "every environment is left out",
        ),
        (["--algorithm", "fed-ucbv"], "did you mean 'fed-ucbvi'?"),
        (
            ["--algorithm", "ucbvi", "--algorithm", "ucbvi"],
            "an algorithm is named twice",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(words: list[str], message: str) -> None:
    assert message in refusal("leaderboard", *words)


def test_the_leaderboard_without_options_shows_the_standing_rows() -> None:
    shown = call("leaderboard").stdout
    assert all(f"| {kind.label} |" in shown for kind in ALGORITHMS.values())
