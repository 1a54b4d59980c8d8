"""The comparison of all algorithms: what it runs, what it tabulates, how it judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fed_ucbvi import Run
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.command_line import app
from fed_ucbvi.experiments import comparison

SHORT = {"gridworld": 40, "synthetic": 60}


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return comparison.run_all(seeds=2, episodes=SHORT)


def test_every_algorithm_runs_on_both_environments_with_every_seed(runs: list[Run]) -> None:
    done = [(run.about.environment["name"], run.about.algorithm, run.about.seed) for run in runs]
    assert sorted(done) == sorted((env, name, seed) for env in SHORT for name in ALGORITHMS for seed in range(2))
    for run in runs:
        assert run.about.agents == (1 if ALGORITHMS[run.about.algorithm].single_agent else comparison.AGENTS)
        assert run.about.episodes == SHORT[str(run.about.environment["name"])]


def test_the_table_holds_the_means_and_deviations_of_the_runs(runs: list[Run]) -> None:
    tables = comparison.tabulate(runs)["tables"]
    for env, rows in tables.items():
        for row in rows:
            lot = [r for r in runs if (r.about.environment["name"], r.about.algorithm) == (env, row["algorithm"])]
            regrets = [run.common_regret for run in lot]
            assert row["common_regret"]["mean"] == pytest.approx(np.mean(regrets))
            assert row["common_regret"]["std"] == pytest.approx(abs(regrets[0] - regrets[1]) / np.sqrt(2))
            assert row["rounds"]["mean"] == pytest.approx(np.mean([run.rounds for run in lot]))
            assert row["megabytes_up"]["mean"] == pytest.approx(np.mean([run.bytes_up for run in lot]) / 1e6)


@pytest.mark.parametrize(("fed", "bernstein", "holds"), [(1.0, 2.0, True), (2.0, 2.0, False), (3.0, 2.0, False)])
def test_a_claim_holds_only_if_the_means_are_in_its_order(fed: float, bernstein: float, holds: bool) -> None:
    def row(name: str, regret: float) -> dict[str, Any]:
        return {"algorithm": name, "common_regret": {"mean": regret}, "rounds": {"mean": 1.0}}

    (judged,) = comparison.judge([row("fed-ucbvi", fed), row("fedq-bernstein", bernstein)])
    assert (judged["figures"], judged["holds"]) == ([fed, bernstein], holds)


def test_every_claim_names_algorithms_that_exist() -> None:
    assert {name for claim in comparison.CLAIMS for name in claim.algorithms} <= set(ALGORITHMS)


def test_the_command_writes_markdown_and_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "EPISODES", {"synthetic": 30})
    arguments = ["compare", "--algorithm", "fed-ucbvi", "--algorithm", "fedq-bernstein", "--seeds", "2"]
    printed = CliRunner().invoke(app, [*arguments, "--json", "--out", str(tmp_path / "table.md")])
    assert printed.exit_code == 0
    rows = json.loads(printed.stdout)["tables"]["synthetic"]
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert [row["algorithm"] for row in rows] == ["fed-ucbvi", "fedq-bernstein"]
    for row in rows:
        assert f"| {row['algorithm']} | {row['kind']} |" in text
    assert text.count("| claim |") == 1


def test_an_unknown_algorithm_is_refused() -> None:
    refused = CliRunner().invoke(app, ["compare", "--algorithm", "fed-ucbv", "--seeds", "1"])
    assert refused.exit_code == 2
    assert "did you mean 'fed-ucbvi'?" in refused.output


def test_liars_can_be_asked_for_on_the_command_line() -> None:
    arguments = ["run", "--episodes", "60", "--agents", "4", "--nu", "10", "--json", "--liars", "0.25", "--attack"]
    lied = CliRunner().invoke(app, [*arguments, "counts"])
    assert lied.exit_code == 0
    environment = json.loads(lied.stdout)["environment"]
    assert (environment["attack"], len(environment["liars"])) == ("counts", 1)
    refused = CliRunner().invoke(app, [*arguments, "conts"])
    assert refused.exit_code == 2
    assert "did you mean 'counts'?" in refused.output
