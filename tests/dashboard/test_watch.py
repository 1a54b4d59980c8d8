"""``--dashboard`` and ``fed-ucbvi watch``: runs, sweeps and checkpoints in folders, and running pages."""

from __future__ import annotations

import fcntl
import json
import re
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest

from commands import SMALL, call, refusal
from fed_ucbvi import FedUCBVI, InputError, RoundRecord, Run, Sweep, resume, run, run_sweep, synthetic
from fed_ucbvi.dashboard.access import Access
from fed_ucbvi.dashboard.folders import WatchedSweep, state_of_folder
from fed_ucbvi.dashboard.server import PageServer
from fed_ucbvi.dashboard.state import LiveState
from fed_ucbvi.dashboard.subject import Subject
from fed_ucbvi.sweeps.execution import SweepInterrupted
from fed_ucbvi.sweeps.store import Store
from rounds import made_up_rounds
from sweeps import made_sweep

SWEEP = """
name = "two seeds"
[[grid]]
algorithms = ["fed-ucbvi"]
environments = ["synthetic"]
agents = [2]
episodes = [40]
seeds = 2
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run, made beside a page."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    result = call(*SMALL, "--dashboard", "127.0.0.1:0", "--out", folder, "--json")
    assert result.exit_code == 0
    assert re.search(r"^page: http://127\.0\.0\.1:\d+/$", result.stderr, flags=re.MULTILINE)
    assert json.loads(result.stdout)["complete"]
    return folder


def watched(folder: Path) -> dict[str, Any]:
    result = call("watch", folder, "--json")
    assert result.exit_code == 0
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_a_saved_run_is_shown_with_its_own_figures(saved: Path) -> None:
    content, made = watched(saved), Run.load(saved)
    assert content["status"] == {"phase": "over", "text": ""}
    assert content["subject"]["title"] == "fed-ucbvi on synthetic"
    assert content["now"]["regret"] == pytest.approx(made.regret, rel=1e-12)
    assert content["now"]["gap"] == made.gap
    assert content["now"]["synchronisations"] == made.rounds
    assert (content["now"]["bytes_up"], content["now"]["bytes_down"]) == (made.bytes_up, made.bytes_down)
    assert content["requests"]["rules"] == {name: n for name, n in made.rules_fired.items() if n}
    assert len(content["points"]) == len(made.records["start"])


def test_a_checkpoint_is_shown_as_far_as_it_goes_and_grows(tmp_path: Path) -> None:
    folder, world = tmp_path / "kept", synthetic(agents=2)

    def stop(record: RoundRecord) -> None:
        if record.round == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(FedUCBVI(nu=100), world, 60, checkpoint=folder, checkpoint_every=1, on_round=stop)
    state, look = state_of_folder(folder)
    assert look is not None
    content = state.snapshot()
    assert (content["now"]["round"], content["status"]["phase"]) == (7, "running")
    assert content["subject"]["agents"] == 2
    told: list[RoundRecord] = []
    resume(folder, on_round=told.append)
    look()
    content = state.snapshot()
    assert (content["now"]["round"], content["status"]["phase"]) == (told[-1].round, "over")
    assert content["now"]["regret"] == pytest.approx(told[-1].regret, rel=1e-12)


def test_a_run_that_is_resumed_has_its_earlier_rounds_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shown = tmp_path / "kept", []

    def stop(record: RoundRecord) -> None:
        if record.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(FedUCBVI(nu=100), synthetic(agents=2), 60, checkpoint=folder, checkpoint_every=1, on_round=stop)
    close = PageServer.close

    def look_and_close(self: PageServer) -> None:
        assert self.state is not None
        shown.append(self.state.snapshot())
        close(self)

    monkeypatch.setattr(PageServer, "close", look_and_close)
    result = call("resume", folder, "--dashboard", "127.0.0.1:0", "--quiet")
    assert result.exit_code == 0
    (content,) = shown
    assert [point[0] for point in content["points"]] == list(range(1, content["now"]["round"] + 1))
    assert content["status"]["phase"] == "over"


def test_a_sweep_is_shown_while_it_is_made_and_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    folder, seen, look = tmp_path / "sweep", [], WatchedSweep.look

    def look_and_tell(self: WatchedSweep) -> None:
        look(self)
        seen.append(self.state.snapshot()["sweep"]["done"])

    monkeypatch.setattr(WatchedSweep, "look", look_and_tell)
    options = ("--out", folder, "--jobs", 1, "--json", "--dashboard", "127.0.0.1:0")
    result = call("sweep", tmp_path / "sweep.toml", *options)
    assert result.exit_code == 0
    assert "page: http://127.0.0.1:" in result.stderr
    assert json.loads(result.stdout)["complete"]
    assert seen == [0, 1, 2]
    content = watched(folder)
    assert content["status"]["phase"] == "over"
    assert content["subject"]["title"] == "sweep 'two seeds'"
    assert {row["seed"] for row in content["sweep"]["rows"]} == {"0", "1"}
    for row in content["sweep"]["rows"]:
        made = Run.read_file(folder / "runs" / f"{row['id']}.parquet")
        assert (row["value"], row["regret"], row["rounds"]) == (made.value, made.regret, made.rounds)
    broken = folder / "runs" / f"{content['sweep']['rows'][0]['id']}.parquet"
    failure = {"id": broken.stem, "job": {**_job(folder, broken.stem)}, "error": "ValueError: no", "traceback": []}
    (folder / "failures" / f"{broken.stem}.json").write_text(json.dumps(failure), encoding="utf-8")
    broken.unlink()
    content = watched(folder)
    assert (content["sweep"]["done"], content["sweep"]["failed"]) == (1, 1)


def test_a_sweep_that_was_stopped_is_not_shown_as_running(tmp_path: Path) -> None:
    sweep, folder = Sweep(**tomllib.loads(SWEEP)), tmp_path / "sweep"
    stopping: list[int] = []

    def stop(done: int, runs: int, failed: int) -> None:
        if done == 1:
            state, _ = state_of_folder(folder)
            stopping.append(done)
            assert state.phase == "running", "its process is at work"
            raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted):
        run_sweep(sweep, folder, jobs=1, report=stop)
    assert stopping == [1]
    state, look = state_of_folder(folder)
    content = state.snapshot()
    assert content["status"]["phase"] == "stopped"
    assert "runs missing: 1" in content["status"]["text"]
    run_sweep(sweep, folder, jobs=1, resume=True)
    assert look is not None
    look()
    assert state.snapshot()["status"] == {"phase": "over", "text": ""}


def test_somebody_who_looks_does_not_keep_a_sweep_from_being_made(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "sweep", Sweep(**tomllib.loads(SWEEP)))
    found = [store.in_use]
    with Store.use(store.folder, store.sweep, resume=True) as used:
        found += [store.in_use, used.in_use]
        with (
            pytest.raises(InputError, match="in use by another process"),
            Store.use(store.folder, store.sweep, resume=True),
        ):
            pass
    assert [*found, store.in_use] == [False, True, True, False]
    looking = (store.folder / "manifest.json").open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.05, looking.close).start()
    with Store.use(store.folder, store.sweep, resume=True):
        assert store.in_use, "it waits for somebody who only looks"


VARIED = """
name = "varied"
[[grid]]
algorithms = [
  "fed-ucbvi",
  { name = "fed-ucbvi", bonus_scale = 0.1 },
  { name = "fed-ucbvi", label = "theory's bonus", bonus = "theory" },
]
environments = ["synthetic"]
agents = [2]
eps_p = [0.0, 0.1]
episodes = [20]
seeds = 1
"""


def test_rows_of_a_sweep_say_what_sets_their_runs_apart(tmp_path: Path) -> None:
    folder = made_sweep(tmp_path / "sweep", Sweep(**tomllib.loads(VARIED)))
    sweep = watched(folder)["sweep"]
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
        assert (row["group"].startswith("theory")) == (about.parameters["bonus"] == "theory")


def _job(folder: Path, name: str) -> dict[str, Any]:
    return next(job.content() for job in Store.open(folder).sweep.jobs() if job.id == name)


def test_a_page_is_printed_or_opened_in_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    state = LiveState(Subject("a run", agents=4, states=8))
    for record in made_up_rounds(1, count=20):
        state(record)
    with PageServer(state, Access.parse("127.0.0.1:0")) as server:
        assert json.loads(call("watch", server.url, "--json").stdout) == state.snapshot()
        assert call("watch", server.url).exit_code == 0
        assert opened == [server.url]


def test_what_cannot_be_watched_is_refused(saved: Path, tmp_path: Path) -> None:
    assert "holds no manifest.json" in refusal("watch", tmp_path)
    assert "cannot be reached" in refusal("watch", "http://127.0.0.1:1/")
    assert "cannot be reached" in refusal("watch", "http://127.0.0.1:1/", "--json")
    for words in (SMALL, ("watch", saved)):  # one flag says where the page is, whoever serves it
        assert "certificate and a token" in refusal(*words, "--dashboard", "0.0.0.0:0")
    assert "pass --dashboard" in refusal(*SMALL, "--dashboard-token", tmp_path / "token")
    assert "HOST:PORT" in refusal(*SMALL, "--dashboard", "8080")
