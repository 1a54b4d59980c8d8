"""The representative experiment: all of it or nothing, and the figures are those of its runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fed_ucbvi import InputError, Run
from fed_ucbvi.experiments import representative

EPISODES = 200
SEEDS = 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("representative") / "results"
    representative.reproduce(out, seeds=SEEDS, episodes=EPISODES)
    return out


def test_the_constants_are_those_of_the_paper() -> None:
    assert (representative.AGENTS, representative.EPISODES, representative.HORIZON) == (20, 30_000, 10)
    assert representative.EPS_P == (0.0, 0.1)
    assert len(representative.plans()) == 10
    assert len({plan.id for plan in representative.plans()}) == 10


def test_it_writes_runs_figures_summary_and_manifest(made: Path) -> None:
    names = sorted(path.name for path in made.iterdir())
    figure = representative.FIGURE
    assert names == ["manifest.json", f"{figure}.pdf", f"{figure}.png", "runs", "summary.json"]
    assert (made / f"{figure}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (made / f"{figure}.pdf").read_bytes().startswith(b"%PDF-")
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["format"] == "fed-ucbvi/reproduction"
    assert [path.name for path in sorted(made.parent.iterdir())] == ["results"]


def test_the_runs_on_disk_are_those_asked_for(made: Path) -> None:
    runs = representative.load(made)
    assert [(run.about.eps_p, run.about.seed) for run in runs] == [(0.0, 0), (0.0, 1), (0.1, 0), (0.1, 1)]
    for run in runs:
        assert (run.about.agents, run.about.horizon, run.episodes_played) == (20, 10, EPISODES)
        assert run.about.environment["seed"] == 0
        assert run.complete


def test_the_summary_states_the_figures_of_the_runs(made: Path) -> None:
    summary = json.loads((made / "summary.json").read_text())
    runs = representative.load(made)
    for number, row in enumerate(summary["results"]):
        lot = runs[SEEDS * number : SEEDS * (number + 1)]
        assert row["eps_p"] == representative.EPS_P[number]
        assert row["common_regret"]["values"] == [run.common_regret for run in lot]
        assert row["common_regret"]["mean"] == pytest.approx(np.mean([run.common_regret for run in lot]))
        assert row["rounds"]["values"] == [run.rounds for run in lot]
        assert row["common_regret"]["margin"] > 0
    assert summary["settings"]["seeds"] == SEEDS
    assert len(summary["warnings"]) == 2
    assert all("eps_p" in text for text in summary["warnings"])


def test_a_plan_runs_the_same_every_time(made: Path) -> None:
    plan = representative.plans(SEEDS, EPISODES)[2]
    again = representative.run_plan(plan)
    assert again.same_outcome(Run.load(made / representative.RUNS / plan.id))


def test_a_single_run_has_no_margin() -> None:
    runs = [representative.run_plan(plan) for plan in representative.plans(1, 20)]
    assert representative.analyse(runs)["results"][0]["rounds"]["margin"] is None


def test_progress_is_told_before_every_run(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    representative.reproduce(
        tmp_path / "x", seeds=1, episodes=20, report=lambda done, total: told.append((done, total))
    )
    assert told == [(0, 2), (1, 2)]


def test_an_earlier_reproduction_is_replaced_only_if_allowed(tmp_path: Path) -> None:
    out = tmp_path / "results"
    representative.reproduce(out, seeds=1, episodes=20)
    before = (out / "summary.json").read_bytes()
    with pytest.raises(InputError, match="exists"):
        representative.reproduce(out, seeds=1, episodes=30)
    assert (out / "summary.json").read_bytes() == before
    representative.reproduce(out, seeds=1, episodes=30, overwrite=True)
    assert json.loads((out / "summary.json").read_text())["settings"]["episodes"] == 30
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_no_reproduction_is_never_replaced(tmp_path: Path) -> None:
    saved, foreign = tmp_path / "run", tmp_path / "foreign"
    representative.run_plan(representative.plans(1, 20)[0]).save(saved)
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    for folder in (saved, foreign):
        with pytest.raises(InputError):
            representative.reproduce(folder, seeds=1, episodes=20, overwrite=True)
    assert Run.load(saved).complete
    assert (foreign / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_behind_if_it_fails_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    from fed_ucbvi.results import plotting

    def fail(runs: list[Run], path: Path) -> None:
        raise error

    monkeypatch.setattr(plotting, "plot_runs", fail)
    with pytest.raises(type(error)):
        representative.reproduce(tmp_path / "results", seeds=1, episodes=20)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seeds", [0, -1])
def test_at_least_one_seed_is_needed(tmp_path: Path, seeds: int) -> None:
    with pytest.raises(InputError, match="seeds must be at least 1"):
        representative.reproduce(tmp_path / "results", seeds=seeds)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_reproduction_is_refused(made: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": representative.FORMAT}))
    with pytest.raises(InputError, match="names no runs"):
        representative.load(tmp_path)
