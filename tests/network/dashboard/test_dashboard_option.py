"""``--dashboard``: the pages of runs, of runs that are resumed, and of sweeps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import SMALL, call, refusal
from fed_ucbvi import FedUCBVI, RoundRecord, Run, Sweep, run, synthetic
from fed_ucbvi.network.dashboard.server import PageServer
from fed_ucbvi.network.dashboard.sweep import SweepPage
from fed_ucbvi.sweeps.executors import Made
from fed_ucbvi.sweeps.store import Store
from sweeps import made_sweep

HERE = ("--dashboard", "127.0.0.1:0")
SWEEP = """
name = "two seeds"
[[grid]]
algorithms = ["fed-ucbvi"]
environments = ["synthetic"]
agents = [2]
episodes = [40]
seeds = 2
"""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What pages show when they are closed."""
    contents: list[dict[str, Any]] = []
    close = PageServer.close

    def look_and_close(self: PageServer) -> None:
        assert self.state is not None
        contents.append(self.state.snapshot())
        close(self)

    monkeypatch.setattr(PageServer, "close", look_and_close)
    return contents


def test_a_run_is_shown_with_its_own_figures(tmp_path: Path, shown: list[dict[str, Any]]) -> None:
    result = call(*SMALL, *HERE, "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0
    assert re.search(r"^page: http://127\.0\.0\.1:\d+/$", result.stderr, flags=re.MULTILINE)
    assert json.loads(result.stdout)["complete"]
    (content,), made = shown, Run.load(tmp_path / "run")
    assert content["status"] == {"phase": "over", "text": ""}
    assert content["subject"]["title"] == "fed-ucbvi on synthetic"
    assert content["now"]["regret"] == pytest.approx(made.regret, rel=1e-12)
    assert content["now"]["gap"] == made.gap
    assert content["now"]["synchronisations"] == made.rounds
    assert content["now"]["bytes_up"] == made.bytes_up
    assert content["now"]["bytes_down"] == made.bytes_down
    assert content["requests"]["rules"] == {name: n for name, n in made.rules_fired.items() if n}
    assert len(content["points"]) == len(made.records["start"])


def test_a_run_that_is_resumed_has_its_earlier_rounds_on_the_page(
    tmp_path: Path, shown: list[dict[str, Any]]
) -> None:
    def stop(record: RoundRecord) -> None:
        if record.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(
            FedUCBVI(nu=100),
            synthetic(agents=2),
            60,
            checkpoint=tmp_path / "kept",
            checkpoint_every=1,
            on_round=stop,
        )
    result = call("resume", tmp_path / "kept", *HERE, "--quiet")
    assert result.exit_code == 0
    (content,) = shown
    assert [point[0] for point in content["points"]] == list(range(1, content["now"]["round"] + 1))
    assert content["status"]["phase"] == "over"


def test_a_sweep_is_shown_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: list[dict[str, Any]]
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    folder = tmp_path / "sweep"
    seen = []
    look = SweepPage.look

    def look_and_tell(self: SweepPage) -> None:
        look(self)
        seen.append((self.phase, self.snapshot()["sweep"]["done"]))

    monkeypatch.setattr(SweepPage, "look", look_and_tell)
    result = call("sweep", tmp_path / "sweep.toml", "--out", folder, "--jobs", 1, "--json", *HERE)
    assert result.exit_code == 0
    assert "page: http://127.0.0.1:" in result.stderr
    assert json.loads(result.stdout)["complete"]
    assert seen == [("running", 0), ("running", 1), ("running", 2)]
    (content,) = shown
    assert content["status"] == {"phase": "over", "text": ""}
    assert content["subject"]["title"] == "sweep 'two seeds'"
    assert {row["seed"] for row in content["sweep"]["rows"]} == {"0", "1"}
    for row in content["sweep"]["rows"]:
        made = Run.read_file(folder / "runs" / f"{row['id']}.parquet")
        assert row["value"] == made.value
        assert row["regret"] == made.regret
        assert row["rounds"] == made.rounds
    store = Store.open(folder)
    lost = store.sweep.jobs()[0]
    store.path(lost).unlink()
    store.write_failure(lost, Made(error="ValueError: no"))
    page = SweepPage(store.sweep, folder)
    page.look()
    sweep = page.snapshot()["sweep"]
    assert sweep["done"] == 1
    assert sweep["failed"] == 1
    assert sweep["rows"][0]["error"] == "ValueError: no"


def test_rows_of_a_sweep_say_what_sets_their_runs_apart(tmp_path: Path) -> None:
    other = {"name": "fed-ucbvi", "bonus_scale": 0.1}
    theory = {"name": "fed-ucbvi", "bonus": "theory"}
    algorithms = ["fed-ucbvi", other, {**theory, "label": "theory's bonus"}]
    problem = {
        "environments": ["synthetic"],
        "agents": [2],
        "eps_p": [0.0, 0.1],
        "episodes": [20],
        "seeds": 1,
    }
    described = Sweep(name="varied", grids=[{"algorithms": algorithms, **problem}])
    folder = made_sweep(tmp_path / "sweep", described)
    page = SweepPage(described, folder)
    page.look()
    sweep = page.snapshot()["sweep"]
    groups = sorted(row["group"] for row in sweep["rows"])
    assert groups == [
        "Fed-UCBVI, eps_p = 0, bonus_scale = 0.1",
        "Fed-UCBVI, eps_p = 0, bonus_scale = 1",
        "Fed-UCBVI, eps_p = 0.1, bonus_scale = 0.1",
        "Fed-UCBVI, eps_p = 0.1, bonus_scale = 1",
        "theory's bonus, eps_p = 0",
        "theory's bonus, eps_p = 0.1",
    ]
    assert sweep["shared"] == "Fed-UCBVI on synthetic MDP, M = 2, T = 20"
    for row in sweep["rows"]:
        about = Run.read_file(folder / "runs" / f"{row['id']}.parquet").about
        assert f"eps_p = {about.eps_p:g}" in row["group"]
        assert row["group"].startswith("theory") == (about.parameters["bonus"] == "theory")


def swept(folder: Path) -> tuple[SweepPage, Store]:
    """The page of a sweep of two algorithms with four seeds each."""
    problem = {
        "environments": ["synthetic"],
        "agents": [2],
        "episodes": [40],
        "seeds": 4,
    }
    described = Sweep(name="groups", grids=[{"algorithms": ["fed-ucbvi", "fed-kl-ucbvi"], **problem}])
    page = SweepPage(described, made_sweep(folder, described))
    return page, Store.open(folder)


def test_figures_of_a_group_are_those_of_its_seeds(
    tmp_path: Path,
) -> None:
    page, store = swept(tmp_path / "sweep")
    page.look()
    groups = page.snapshot()["sweep"]["groups"]
    assert len(groups) == 2
    for group, algorithm in zip(groups, ("fed-ucbvi", "fed-kl-ucbvi"), strict=True):
        runs = [store.read(job) for job in store.sweep.jobs() if job.algorithm.name == algorithm]
        regret = np.array([run.regret for run in runs])
        assert group["done"] == 4
        assert group["runs"] == 4
        assert group["failed"] == 0
        assert group["mean"] == pytest.approx(regret.mean())
        assert group["median"] == pytest.approx(np.median(regret))
        assert group["curve"][0] == 0
        assert group["curve"][-1] == pytest.approx(regret.mean(), abs=1e-6)


def test_a_group_counts_failed_seeds_apart_from_outliers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, store = swept(tmp_path / "sweep")
    first, second, *_ = store.sweep.jobs()
    store.path(first).unlink()
    store.write_failure(first, Made(error="ValueError: no"))
    read = Store.read

    def with_an_outlier(self: Store, job: Any) -> Run:
        made = read(self, job)
        if job.id != second.id:
            return made
        records = {**made.records, "regret": 10 * made.records["regret"]}
        return replace(made, records=records)

    monkeypatch.setattr(Store, "read", with_an_outlier)
    page.look()
    group, other = page.snapshot()["sweep"]["groups"]
    assert group["done"] == 3
    assert group["failed"] == 1
    assert group["outliers"] == 1
    assert other["done"] == 4
    assert other["failed"] == 0
    assert other["outliers"] == 0


def test_pages_that_cannot_be_served_are_refused() -> None:
    assert "the page is served on this machine only" in refusal(*SMALL, "--dashboard", "0.0.0.0:0")
    assert "HOST:PORT" in refusal(*SMALL, "--dashboard", "8080")
