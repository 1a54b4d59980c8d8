"""Sweeps: the same files however they are made, disturbed or not, and nothing of anybody else's touched."""

from __future__ import annotations

import errno
import importlib.util
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commands import refusal
from fed_ucbvi import InputError, Run, Sweep, compare_runs, load_runs, run_sweep
from fed_ucbvi.core.ray_connection import check_ray
from fed_ucbvi.engine.folder_lock import folder_lock
from fed_ucbvi.engine.simulation import Caution
from fed_ucbvi.sweeps import execution
from fed_ucbvi.sweeps.execution import by_need
from fed_ucbvi.sweeps.job import Job
from ray_cluster import needs_ray, two_nodes, wait_for
from repository import ROOT
from sweeps import made_sweep

pytestmark = pytest.mark.slow

TOML = """
name = "small"
[[grid]]
algorithms = ["fed-ucbvi"]
environments = ["synthetic"]
eps_p = [0.1]
agents = [5]
episodes = [5e5]
seeds = 4
driver = "episodes"
[[grid]]
algorithms = ["fedq-hoeffding"]
environments = ["gridworld"]
agents = [3]
episodes = [2000]
seeds = 3
env_seed = "seed"
"""
"""Seven runs of some tenths of a second."""
PROGRAM = "from fed_ucbvi.command_line import main\nif __name__ == '__main__':\n    main()\n"


GATED = """
import time
from fed_ucbvi.sweeps.job import Job

run = Job.run
Job.run = lambda job: run(job) if job.seed == 0 else time.sleep(3600)
"""
"""Only the first run of each algorithm ends."""


def everything_in(folder: Path) -> dict[str, bytes]:
    """All files, hidden ones among them, but the lock, which says who was there."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def runs_in(folder: Path) -> dict[str, bytes]:
    return everything_in(folder / "runs")


def grid(**changes: Any) -> dict[str, Any]:
    return {"algorithms": ["fed-ucbvi"], "environments": ["synthetic"], "agents": [2], "episodes": [30], **changes}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps")
    (path / "small.toml").write_text(TOML)
    (path / "program.py").write_text(PROGRAM)
    (path / "gated.py").write_text(GATED + PROGRAM)
    return path


@pytest.fixture(scope="module")
def small(folder: Path) -> Sweep:
    return Sweep.from_toml(folder / "small.toml")


@pytest.fixture(scope="module")
def undisturbed(folder: Path, small: Sweep) -> Path:
    """The sweep made by one process, one run after the other."""
    outcome = run_sweep(small, folder / "undisturbed", jobs=1)
    assert (outcome.runs, outcome.done, outcome.skipped, outcome.failed) == (7, 7, 0, {})
    assert outcome.complete
    return folder / "undisturbed"


def start(folder: Path, *arguments: str | Path, script: str = "program.py", **env: str) -> subprocess.Popen[str]:
    """A script in a session of its own, so that signals to its group reach it and its workers alone."""
    words = [sys.executable, str(folder / script), *map(str, arguments)]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    return subprocess.Popen(words, text=True, start_new_session=True, env=env, **pipes)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors, with no process of the group left."""
    out, err = process.communicate(timeout=300)
    wait_for("the end of the workers", lambda: not _group_exists(process.pid))
    return process.returncode, out, err


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_runs_are_those_of_their_jobs_in_order(undisturbed: Path, small: Sweep) -> None:
    pairs = load_runs(undisturbed)
    assert tuple(job for job, _ in pairs) == small.jobs()
    for job, run in pairs:
        assert job.made(run)
    for job, run in (pairs[0], pairs[-1]):
        assert job.run().same_outcome(run)
    assert sorted(runs_in(undisturbed)) == sorted(f"{job.id}.parquet" for job in small.jobs())


def test_the_time_of_a_run_is_that_of_the_journal(undisturbed: Path) -> None:
    journal = [json.loads(line) for line in (undisturbed / "journal.jsonl").read_text().splitlines()]
    seconds = {line["id"]: line["seconds"] for line in journal}
    assert {job.id: run.wall_seconds for job, run in load_runs(undisturbed)} == seconds


def test_the_times_of_runs_can_be_compared(undisturbed: Path) -> None:
    runs = [run for _, run in load_runs(undisturbed)]
    assert min(compare_runs(runs, metric="wall_seconds").frame["mean"].to_list()) > 0


class TestCutJournal:
    """A sweep whose journal ends in the middle of its second line."""

    @pytest.fixture
    def cut(self, undisturbed: Path, tmp_path: Path) -> Path:
        copy = tmp_path / "copy"
        shutil.copytree(undisturbed, copy)
        first = (copy / "journal.jsonl").read_text().splitlines()[0]
        (copy / "journal.jsonl").write_text(f'{first}\n{{"id": "cut o')
        return copy

    def test_the_times_of_the_other_runs_are_unknown(self, cut: Path) -> None:
        runs = [run for _, run in load_runs(cut)]
        assert sum(math.isnan(run.wall_seconds) for run in runs) == len(runs) - 1

    def test_unknown_times_are_not_compared(self, cut: Path) -> None:
        runs = [run for _, run in load_runs(cut)]
        with pytest.raises(InputError, match=r"the wall_seconds of the run of .* is unknown"):
            compare_runs(runs, metric="wall_seconds")


class TestFileOfARun:
    """A run that is read from its file, without the journal."""

    @pytest.fixture
    def alone(self, undisturbed: Path) -> Run:
        return Run.read_file(next((undisturbed / "runs").glob("*.parquet")))

    def test_its_time_is_unknown(self, alone: Run) -> None:
        assert math.isnan(alone.wall_seconds)

    def test_its_unknown_time_is_null_in_json(self, alone: Run) -> None:
        assert alone.summary()["wall_seconds"] is None

    def test_its_unknown_time_is_said_in_words(self, alone: Run) -> None:
        assert alone.wall_time.startswith("unknown")

    def test_it_is_read_from_its_bytes(self, alone: Run) -> None:
        assert alone == Run.from_bytes(alone.to_bytes())


def test_the_folder_is_as_documented(undisturbed: Path, small: Sweep) -> None:
    names = sorted(path.name for path in undisturbed.iterdir())
    assert names == ["failures", "journal.jsonl", "lock", "manifest.json", "runs"]
    manifest = json.loads((undisturbed / "manifest.json").read_text())
    assert (manifest["format"], manifest["format_version"]) == ("fed-ucbvi/sweep", 2)
    assert manifest["digest"] == small.digest
    assert Sweep(**manifest["sweep"]).jobs() == small.jobs()


@pytest.mark.full
def test_files_depend_neither_on_the_number_of_processes_nor_on_the_order(
    undisturbed: Path, small: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(execution, "by_need", lambda jobs: random.Random(3).sample(jobs, len(jobs)))
    run_sweep(small, tmp_path / "out", jobs=2, report=lambda *numbers: told.append(numbers))
    assert runs_in(tmp_path / "out") == runs_in(undisturbed)
    assert told == [(done, 7, 0) for done in range(8)]


def test_long_runs_come_first_after_one_of_each_algorithm(small: Sweep) -> None:
    ordered = by_need(small.jobs())
    assert sorted(job.id for job in ordered) == sorted(job.id for job in small.jobs())
    assert {job.algorithm.name for job in ordered[:2]} == {"fed-ucbvi", "fedq-hoeffding"}
    sizes = [(job.problem.agents or 1) * job.episodes for job in ordered[2:]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """Where Ray keeps its sockets: a name short enough for them, and found in the commands of its processes."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield name


def _mentions(text: str) -> bool:
    """Whether a process other than this one has ``text`` in its command."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text.encode() in path.read_bytes():
                return True
    return False


@needs_ray
@pytest.mark.full
def test_ray_makes_the_same_files_as_local_processes(
    undisturbed: Path, folder: Path, tmp_path: Path, ray_folder: str
) -> None:
    out = tmp_path / "out"
    arguments = ("sweep", folder / "small.toml", "--out", out, "--executor", "ray", "--jobs", "2", "--json")
    process = start(folder, *arguments, RAY_TMPDIR=ray_folder)
    wait_for("Ray's start", lambda: process.poll() is not None or _mentions(ray_folder))
    code, printed, errors = finished(process)
    assert (code, errors) == (0, "")
    assert (json.loads(printed)["done"], json.loads(printed)["failed"]) == (7, [])
    assert runs_in(out) == runs_in(undisturbed)
    wait_for("Ray's end", lambda: not _mentions(ray_folder))


@pytest.mark.parametrize(
    ("number", "to_all", "code"),
    [
        pytest.param(signal.SIGKILL, True, -9, id="kill -9 of all", marks=pytest.mark.full),
        pytest.param(signal.SIGKILL, False, -9, id="kill -9 of the parent", marks=pytest.mark.full),
        pytest.param(signal.SIGINT, True, 130, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, False, 130, id="SIGTERM", marks=pytest.mark.full),
    ],
)
def test_a_sweep_stopped_in_the_middle_resumes_to_the_same_files(
    number: signal.Signals, to_all: bool, code: int, undisturbed: Path, small: Sweep, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "my sweep"
    process = start(folder, "sweep", folder / "small.toml", "--out", out, "--jobs", "2", script="gated.py")
    wait_for("two runs", lambda: process.poll() is not None or len(list((out / "runs").glob("*.parquet"))) == 2)
    (os.killpg if to_all else os.kill)(process.pid, number)
    found, printed, errors = finished(process)
    assert found == code
    kept = {name: content for name, content in runs_in(out).items() if not name.startswith(".")}
    assert len(kept) == 2
    assert kept.items() <= runs_in(undisturbed).items()
    if code == 130:
        assert re.search(r"made now +2 ", printed)
        assert re.fullmatch(r"interrupted after 2 of 7 runs; .* --out '.*my sweep' --resume\n", errors)
    (out / "runs" / ".half.parquet.partial-1").write_bytes(b"what a killed process may leave")
    outcome = run_sweep(small, out, jobs=1, resume=True)
    assert (outcome.done, outcome.skipped, outcome.failed) == (5, 2, {})
    assert runs_in(out) == runs_in(undisturbed)
    assert list((out / "failures").iterdir()) == []


@pytest.mark.full
def test_a_process_that_is_killed_costs_its_run_alone(undisturbed: Path, small: Sweep, tmp_path: Path) -> None:
    killed: list[int | None] = []

    def kill_one(done: int, total: int, failed: int) -> None:
        if done == 1 and not killed:
            victim = multiprocessing.active_children()[0]
            killed.append(victim.pid)
            victim.kill()

    outcome = run_sweep(small, tmp_path / "out", jobs=2, report=kill_one)
    assert killed
    assert (outcome.done, len(outcome.failed), outcome.complete) == (6, 1, False)
    ((name, error),) = outcome.failed.items()
    assert "the process died (killed by SIGKILL)" in error
    record = json.loads((tmp_path / "out" / "failures" / f"{name}.json").read_text())
    assert Job.from_content(record["job"]).id == record["id"] == name
    with pytest.raises(InputError, match="lacks 1 of 7 runs; finish the sweep with --resume"):
        load_runs(tmp_path / "out")
    assert len(load_runs(tmp_path / "out", complete=False)) == 6
    assert run_sweep(small, tmp_path / "out", jobs=1, resume=True).skipped == 6
    assert runs_in(tmp_path / "out") == runs_in(undisturbed)
    assert list((tmp_path / "out" / "failures").iterdir()) == []
    assert multiprocessing.active_children() == []


FRAGILE = """
from fed_ucbvi import FedUCBVI
from fed_ucbvi.algorithms import OWN

class Fragile(FedUCBVI):
    name = "fragile"

    def new_agents(self, setting, tables):
        if setting.seed in (1, 3):
            raise RuntimeError("the pump broke")
        return super().new_agents(setting, tables)

OWN["fragile"] = f"{__name__}:Fragile"
"""


@dataclass(frozen=True)
class FragileSweep:
    """A sweep of an algorithm that a script registers and that fails for two of five seeds."""

    folder: Path
    exit_code: int
    output: str
    errors: str


@pytest.fixture(scope="module")
def fragile_sweep(tmp_path_factory: pytest.TempPathFactory) -> FragileSweep:
    folder = tmp_path_factory.mktemp("fragile")
    grid = 'algorithms = ["fragile"]\nenvironments = ["synthetic"]\nepisodes = [20]'
    (folder / "fragile.toml").write_text(f'name = "x"\n[[grid]]\n{grid}')
    (folder / "fragile.py").write_text(FRAGILE + PROGRAM)
    out = folder / "out"
    words = ("sweep", folder / "fragile.toml", "--out", out, "--json")
    code, output, errors = finished(start(folder, *words, script="fragile.py"))
    return FragileSweep(folder=out, exit_code=code, output=output, errors=errors)


class TestRunsThatFail:
    """Runs that fail leave the others alone, and are reported with their errors."""

    def test_the_exit_code_is_1(self, fragile_sweep: FragileSweep) -> None:
        assert fragile_sweep.exit_code == 1

    def test_nothing_is_printed_as_an_error(self, fragile_sweep: FragileSweep) -> None:
        assert fragile_sweep.errors == ""

    def test_the_other_runs_are_made(self, fragile_sweep: FragileSweep) -> None:
        summary = json.loads(fragile_sweep.output)
        assert (summary["runs"], summary["done"], summary["skipped"], summary["complete"]) == (5, 3, 0, False)

    def test_the_error_of_each_is_in_the_json(self, fragile_sweep: FragileSweep) -> None:
        failed = json.loads(fragile_sweep.output)["failed"]
        assert [failure["error"] for failure in failed] == ["RuntimeError: the pump broke"] * 2

    def test_the_job_of_each_is_on_record(self, fragile_sweep: FragileSweep) -> None:
        records = [json.loads(path.read_text()) for path in (fragile_sweep.folder / "failures").iterdir()]
        assert sorted(record["job"]["seed"] for record in records) == [1, 3]

    def test_the_traceback_of_each_is_on_record(self, fragile_sweep: FragileSweep) -> None:
        for path in (fragile_sweep.folder / "failures").iterdir():
            traceback = json.loads(path.read_text())["traceback"]
            assert traceback[0] == "Traceback (most recent call last):"
            assert any("in new_agents" in line for line in traceback)


@pytest.mark.full
def test_the_python_of_the_documentation_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    code, printed, errors = finished(start(tmp_path, script="example.py"))
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    assert lines[0] == "10 0 {}"
    assert [line.split()[:2] for line in lines[1:]] == [[m, seed] for m in "14" for seed in "01234"]


@pytest.mark.full
def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    call = f"run_sweep(Sweep(name='x', grids=[{grid()!r}]), {str(tmp_path / 'out')!r}, jobs=1)"
    (tmp_path / "bare.py").write_text(f"from fed_ucbvi import Sweep, run_sweep\n{call}\n")
    code, _, errors = finished(start(tmp_path, script="bare.py"))
    assert code == 1
    assert "a worker could not start" in errors
    assert "if __name__ ==" in errors


def test_a_full_disk_stops_the_sweep_without_a_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(name="x", grids=[grid(seeds=3)])
    whole = Path.write_bytes

    def half(path: Path, content: bytes) -> None:
        if path.parent.name != "runs":
            whole(path, content)
            return
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", half)
        with pytest.raises(OSError, match="No space left"):
            run_sweep(sweep, tmp_path / "out", jobs=1)
    assert runs_in(tmp_path / "out") == {}
    assert multiprocessing.active_children() == []


@pytest.fixture
def tiny() -> Sweep:
    return Sweep(name="tiny", grids=[grid(seeds=2)])


@pytest.fixture
def made(tiny: Sweep, tmp_path: Path) -> Path:
    return made_sweep(tmp_path / "tiny", tiny)


def test_resuming_a_finished_sweep_makes_no_run(made: Path, tiny: Sweep) -> None:
    before = everything_in(made)
    outcome = run_sweep(tiny, made, resume=True)
    assert (outcome.done, outcome.skipped) == (0, 2)
    assert everything_in(made) == before


def test_sweep_is_resumed_only_on_request(made: Path, tiny: Sweep) -> None:
    with pytest.raises(InputError, match="holds this sweep already; continue it with --resume"):
        run_sweep(tiny, made)


def test_sweep_in_use_by_another_process_is_refused(made: Path, tiny: Sweep) -> None:
    with folder_lock(made), pytest.raises(InputError, match="in use by process"):
        run_sweep(tiny, made, resume=True)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seeds": 3}, "seed 2 only here"),
        ({"seeds": 1}, "seed 1 only there"),
        ({"episodes": [30, 40]}, "episodes 40 only here"),
        ({"algorithms": [{"name": "fed-ucbvi", "bonus": "theory"}]}, 'bonus "practical" only there; bonus "theory"'),
        ({"environments": [{"name": "synthetic", "states": 3}]}, "states 5 only there; states 3 only here"),
        ({"seeds": [1, 0]}, "combined in another way or order"),
    ],
)
def test_another_sweeps_folder_is_kept(changes: dict[str, Any], difference: str, resume: bool, made: Path) -> None:
    before = everything_in(made)
    other = Sweep(name="tiny", grids=[grid(**{"seeds": 2, **changes})])
    with pytest.raises(InputError, match=f"holds another sweep, 'tiny': .*{difference}.*choose another folder"):
        run_sweep(other, made, resume=resume)
    with pytest.raises(InputError, match="this one is called 'huge'"):
        run_sweep(Sweep(name="huge", grids=[grid(seeds=2)]), made, resume=resume)
    assert everything_in(made) == before


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_no_sweep_is_not_touched(tiny: Sweep, resume: bool, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    file = tmp_path / "file"
    run_folder = tmp_path / "run"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("all my work")
    file.write_text("all my data")
    tiny.jobs()[0].run().save(run_folder)
    before = everything_in(tmp_path)
    for path in (thesis, file, run_folder):
        with pytest.raises(InputError, match=r"Nothing in it was touched; choose another folder \(--out\)"):
            run_sweep(tiny, path, resume=resume)
    assert everything_in(tmp_path) == before


def test_an_edited_or_damaged_manifest_is_refused(made: Path, tiny: Sweep) -> None:
    path = made / "manifest.json"
    whole = path.read_text()
    manifest = json.loads(whole)
    for text, message in (
        ("{", "damaged"),
        (json.dumps({**manifest, "format_version": 9}), "format version 9; this program reads 2"),
        (json.dumps({**manifest, "digest": "0"}), "was edited, or written by a version"),
        (json.dumps({**manifest, "sweep": {"name": "x"}}), "grid: is missing"),
        (json.dumps({key: value for key, value in manifest.items() if key != "sweep"}), "damaged"),
    ):
        path.write_text(text)
        for use in (load_runs, lambda folder: run_sweep(tiny, folder, resume=True)):
            with pytest.raises(InputError, match=message):
                use(made)
    path.write_text(whole)
    assert len(load_runs(made)) == 2


@pytest.mark.parametrize(
    "replace",
    [
        lambda own, other: b"",
        lambda own, other: own[: len(own) // 2],
        lambda own, other: b"PAR1 nothing PAR1",
        lambda own, other: other,
    ],
    ids=["empty", "cut", "not Parquet", "of another run"],
)
def test_unusable_run_file_is_named_with_the_remedy(
    replace: Callable[[bytes, bytes], bytes], made: Path, tiny: Sweep
) -> None:
    first, second = (made / "runs" / f"{job.id}.parquet" for job in tiny.jobs())
    first.write_bytes(replace(first.read_bytes(), second.read_bytes()))
    with pytest.raises(InputError, match=rf"{first.name} .*Delete the file and resume the sweep \(--resume\)"):
        load_runs(made)


@pytest.mark.full
def test_resuming_replaces_damaged_files(made: Path, tiny: Sweep) -> None:
    first = made / "runs" / f"{tiny.jobs()[0].id}.parquet"
    for number in (1, 2):
        damaged = first.read_bytes()[: -10 * number]
        first.write_bytes(damaged)
        with pytest.warns(Caution, match=rf"{first.name} is damaged.* It was moved to .*damaged.* made anew"):
            outcome = run_sweep(tiny, made, jobs=1, resume=True)
        assert (outcome.done, outcome.skipped, outcome.damaged) == (1, 1, (tiny.jobs()[0].id,))
        assert (made / "damaged" / f"{first.stem}-{number}.parquet").read_bytes() == damaged
        assert load_runs(made)[0][1].same_outcome(tiny.jobs()[0].run())


def test_the_command_line_refuses_what_cannot_be_used(made: Path, folder: Path, tmp_path: Path) -> None:
    toml = tmp_path / "tiny.toml"
    grid = 'algorithms = ["fed-ucb"]\nenvironments = ["gridworld"]\nepisodes = [1]\n'
    toml.write_text('name = "x"\n[[grid]]\n' + grid)
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((toml, "--out", tmp_path / "x"), r"tiny\.toml: grid\[0\]\.algorithms\[0\]: unknown algorithm 'fed-ucb'"),
        ((folder / "small.toml", "--out", made), "holds another sweep, 'tiny'"),
        ((folder / "small.toml", "--out", tmp_path / "x", "--jobs", "0"), "jobs must be at least 1"),
        ((folder / "small.toml", "--out", tmp_path / "x", "--executor", "slurm"), "unknown executor 'slurm'.*ray"),
        ((folder / "small.toml", "--out", tmp_path / "x", "--address", "host:1"), "pass executor='ray'"),
    ]
    if importlib.util.find_spec("ray") is not None:
        nowhere = ("--out", tmp_path / "x", "--executor", "ray", "--address", "127.0.0.1:9")
        cases.append(((folder / "small.toml", *nowhere), "no Ray cluster answers at 127.0.0.1:9"))
    for arguments, message in cases:
        assert re.search(message, refusal("sweep", arguments))
    assert not (tmp_path / "x").exists()


def test_a_missing_ray_is_named_with_its_extra(tiny: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'fed-ucbvi\[ray\]'"):
        run_sweep(tiny, tmp_path / "out", executor="ray")
    assert not (tmp_path / "out").exists()


@needs_ray
@pytest.mark.full
def test_runs_lost_with_a_node_are_made_on_another_node(folder: Path, undisturbed: Path, tmp_path: Path) -> None:
    """The second of two nodes on this machine is killed while a run is made there."""
    out = tmp_path / "out"
    with two_nodes() as cluster:
        on_cluster = ("--executor", "ray", "--address", cluster.address, "--json")
        process = start(folder, "sweep", folder / "small.toml", "--out", out, *on_cluster)
        wait_for("a run on the second node", lambda: cluster.at_work("ray::_task") or process.poll() is not None)
        assert process.poll() is None
        cluster.kill_second()
        printed, errors = process.communicate(timeout=300)
        check_ray(cluster.address)  # it is left running
    assert process.returncode == 0, errors
    summary = json.loads(printed)
    assert (summary["done"], summary["failed"], summary["complete"]) == (7, [], True)
    assert "Raylet is terminated" in errors
    assert runs_in(out) == runs_in(undisturbed)
    assert list((out / "failures").iterdir()) == []
