"""The comparison of all algorithms: what it runs, what it tabulates, how it judges, what the command writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from commands import call, refusal
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.paper import experiment, table1
from fed_ucbvi.paper.experiment import RunScale
from fed_ucbvi.report.traces import Pair, Trace, table_of
from fed_ucbvi.results.style import colour_of
from fed_ucbvi.sweeps.specification import Sweep

SHORT = {"gridworld": 40, "synthetic": 60}


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "EPISODES", SHORT)
        jobs = Sweep(name="short", grids=table1.grids(RunScale(seeds=2))).jobs()
    return [(job, Trace.of(job.run())) for job in jobs]


def test_every_algorithm_runs_on_both_environments_with_every_seed(pairs: list[Pair]) -> None:
    done = [(job.environment, job.algorithm, job.seed) for job, _ in pairs]
    assert sorted(done) == sorted((env, name, seed) for env in SHORT for name in ALGORITHMS for seed in range(2))
    for job, _ in pairs:
        assert job.agents == (1 if ALGORITHMS[job.algorithm].single_agent else experiment.BASE_AGENTS)
        assert job.env_seed == job.seed
        assert job.episodes == SHORT[job.environment]


def test_the_table_holds_the_means_of_the_runs_with_their_intervals(pairs: list[Pair]) -> None:
    for env, rows in table1.tabulate(table_of(pairs))["tables"].items():
        assert [row["algorithm"] for row in rows] == list(ALGORITHMS)
        for row in rows:
            replicates = [run for job, run in pairs if (job.environment, job.algorithm) == (env, row["algorithm"])]
            regrets = [run.regret for run in replicates]
            assert row["regret"]["mean"] == pytest.approx(np.mean(regrets))
            error = np.std(regrets, ddof=1) / np.sqrt(len(regrets))
            high = np.mean(regrets) * np.exp(stats.t.ppf(0.975, len(regrets) - 1) * error / np.mean(regrets))
            assert row["median"] == pytest.approx(np.median(regrets))
            assert row["regret"]["high"] == pytest.approx(high)
            assert row["rounds"]["mean"] == pytest.approx(np.mean([run.rounds for run in replicates]))
            assert row["megabytes_up"] == pytest.approx(np.mean([run.bytes_up for run in replicates]) / 1e6)


def test_curves_over_bytes_end_at_the_total_of_bytes_and_regret(pairs: list[Pair]) -> None:
    section = table1.analyse(table_of(pairs), RunScale(seeds=2))
    (figure,) = section.figures
    for panel, env in zip(figure.panels, SHORT, strict=True):
        assert len(panel.series) == len(ALGORITHMS)
        for series, name in zip(panel.series, ALGORITHMS, strict=True):
            replicates = [run for job, run in pairs if (job.environment, job.algorithm) == (env, name)]
            assert series.x[-1] == pytest.approx(np.mean([run.bytes_up + run.bytes_down for run in replicates]) / 1e6)
            assert series.y[-1] == pytest.approx(np.mean([run.regret for run in replicates]))


def test_every_algorithm_has_a_colour_of_its_own() -> None:
    assert len({colour_of(name) for name in ALGORITHMS}) == len(ALGORITHMS)


def test_every_ordering_is_judged_and_names_algorithms_that_exist(pairs: list[Pair]) -> None:
    assert {name for ordering in table1.ORDERINGS for name in ordering.algorithms} <= set(ALGORITHMS)
    assert len(table1.EXPERIMENT.judge(table_of(pairs))) == len(table1.ORDERINGS)
    few = [(job, run) for job, run in pairs if job.algorithm in ("fed-ucbvi", "fedq-bernstein")]
    assert [one.claim for one in table1.EXPERIMENT.judge(table_of(few))] == [f"{table1.ORDERINGS[0].text}."]


@pytest.mark.slow
def test_the_command_writes_markdown_and_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "EPISODES", {"synthetic": 30})
    words = ("--algorithm", "fed-ucbvi", "--algorithm", "fedq-bernstein", "--seeds", 2, "--json")
    printed = call("compare", *words, "--out", tmp_path / "table.md")
    assert printed.exit_code == 0, printed.output
    rows = json.loads(printed.stdout)["tables"]["synthetic"]
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert [row["algorithm"] for row in rows] == ["fed-ucbvi", "fedq-bernstein"]
    for row in rows:
        assert f"| {row['algorithm']} | {row['kind']} |" in text
    assert text.count("| claim |") == 1


@pytest.mark.parametrize(
    ("names", "message"), [(["fed-ucbv"], "did you mean 'fed-ucbvi'?"), (["ucbvi", "ucbvi"], "named twice")]
)
def test_names_that_cannot_be_compared_are_refused(names: list[str], message: str) -> None:
    words = [word for name in names for word in ("--algorithm", name)]
    assert message in refusal("compare", *words, "--seeds", "1")


def test_liars_can_be_asked_for_on_the_command_line() -> None:
    words = ("run", "--episodes", "60", "--agents", "4", "--option", "nu=10", "--json", "--liars", "0.25", "--attack")
    environment = json.loads(call(*words, "counts").stdout)["environment"]
    assert (environment["attack"], len(environment["liars"])) == ("counts", 1)
    assert "did you mean 'counts'?" in refusal(*words, "conts")
