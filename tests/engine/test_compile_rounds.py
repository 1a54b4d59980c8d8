"""A second process compiles for a first run: it is started only then, waited for, and not in vain."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fed_ucbvi import FedUCBVI, gridworld, run
from fed_ucbvi.core import compiling
from fed_ucbvi.core.compiling import compile_beside
from fed_ucbvi.engine import compile_rounds, regret
from fed_ucbvi.engine.drivers import counts

MODULE, LAST = "fed_ucbvi.engine.compile_rounds", "counts._collect"
SAVE = """
from fed_ucbvi.core.compiling import _LockedFile
import time
_LockedFile({folder!r}, {base!r}, "stamp").save("our types", "code")
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    yield
    compiling.stop_compiling_beside()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules, and for compiled code, in which there is nothing yet."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(compiling, "cache_folder", tmp_path)
    return tmp_path


def index_of(folder: Path, function: str) -> Any:
    return compiling._LockedFile(str(folder), f"{function}-130-digest.py311", "stamp")


def test_functions_are_compiled_for_the_types_of_usual_runs() -> None:
    functions: list[Any] = [regret.score_round, counts._collect]
    compile_rounds.main()
    known = [list(function.signatures) for function in functions]
    for world, T in ((gridworld(agents=20), 30_000), (gridworld(agents=3, eps_p=0.1), 100)):
        run(FedUCBVI(), world, T, progress=False)
    assert [list(function.signatures) for function in functions] == known


def test_it_is_not_started_where_the_cache_has_what_it_compiles_or_there_is_one_core(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "drivers_0").mkdir()
    digest = compiling.code_digest(Path(counts.__file__))
    index = elsewhere / "drivers_0" / f"{LAST}-130-{digest}.py311.nbi"
    index.touch()
    compile_beside(MODULE, [LAST])
    assert compiling._beside is None
    index.unlink()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    compile_beside(MODULE, [LAST])
    assert compiling._beside is None
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    compile_beside(MODULE, [LAST])
    assert compiling._beside is not None


def test_the_index_it_looks_for_is_the_one_that_numba_writes() -> None:
    run(FedUCBVI(), gridworld(agents=2), 10_000, progress=False)
    compile_beside(MODULE, [LAST])
    assert compiling._beside is None


@pytest.mark.parametrize("end", ["", "raise SystemExit(1)"], ids=["compiles nothing", "fails"])
def test_it_is_waited_for_until_it_ends_and_only_for_its_functions(elsewhere: Path, end: str) -> None:
    code = f"import time, pathlib; time.sleep(1); pathlib.Path({str(elsewhere)!r}, 'ended').touch()\n{end}"
    (elsewhere / "beside.py").write_text(code)
    compile_beside("beside", ["regret.score_round", LAST])
    assert index_of(elsewhere, "base._clear").load("our types") is None
    assert compiling._beside is not None
    assert index_of(elsewhere, "regret.score_round").load("our types") is None
    assert (elsewhere / "ended").exists()
    assert compiling._beside is None


def test_what_it_has_compiled_is_found_and_where_it_is_for_other_types_it_is_ended(elsewhere: Path) -> None:
    index = index_of(elsewhere, LAST)
    (elsewhere / "beside.py").write_text(SAVE.format(folder=str(elsewhere), base=f"{LAST}-130-digest.py311"))
    compile_beside("beside", [LAST])
    assert index.load("our types") == "code"
    assert compiling._beside is not None
    assert index.load("other types") is None
    assert compiling._beside is None


def test_one_that_was_stopped_is_not_waited_for_for_ever(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere / "beside.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    compile_beside("beside", [LAST])
    monkeypatch.setattr(compiling, "PATIENCE", 0.5)
    assert index_of(elsewhere, LAST).load("our types") is None
    assert compiling._beside is None


def test_one_that_hangs_with_the_cache_locked_is_ended_also_by_who_needs_another_function(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "import fcntl, pathlib, time; lock = open('{0}/lock', 'ab'); fcntl.flock(lock, fcntl.LOCK_EX); "
    hangs += "pathlib.Path('{0}/locked').touch(); time.sleep(600)"
    (elsewhere / "beside.py").write_text(hangs.format(elsewhere))
    compile_beside("beside", [LAST])
    while not (elsewhere / "locked").exists():
        time.sleep(0.01)
    monkeypatch.setattr(compiling, "PATIENCE", 0.1)
    other = index_of(elsewhere, "base._clear")
    assert other.load("our types") is None
    assert compiling._beside is None
    other.save("our types", "code")
    assert other.load("our types") == "code"


def test_a_cache_that_another_process_keeps_locked_is_done_without(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "PATIENCE", 0.1)
    index = index_of(elsewhere, LAST)
    index.save("our types", "code")
    with (elsewhere / "lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert index.load("our types") is None
        index.save("other types", "other code")
    assert index.load("our types") == "code"
    assert index.load("other types") is None
