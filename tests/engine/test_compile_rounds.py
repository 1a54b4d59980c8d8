"""A second process compiles for a first run: it is started only then, waited for, and changes no result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fed_ucbvi import Federation, FedUCBVI, gridworld, run
from fed_ucbvi.core import compiling, second_process
from fed_ucbvi.engine import compile_rounds
from fed_ucbvi.engine.drivers import counts
from fed_ucbvi.engine.drivers.auto import LONG_ROUNDS, SHORT_ROUNDS, AutoDriver
from fed_ucbvi.engine.simulation import Simulation

MODULE, LAST = "fed_ucbvi.engine.compile_rounds", "counts._collect"
TYPES = "types"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(second_process, "_cores", lambda: 2)
    yield
    second_process.stop()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules, and for compiled code, in which there is nothing yet."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(compiling, "cache_folder", tmp_path)
    return tmp_path


def said() -> list[str] | None:
    """What the second process has said up to now; None if there is none."""
    return None if second_process._process is None else list(second_process._said)


def driver_of(federation: Federation, episodes: int, **parameters: Any) -> AutoDriver:
    driver = Simulation(FedUCBVI(**parameters), federation, episodes, 0, "auto").driver
    assert isinstance(driver, AutoDriver)
    return driver


def test_functions_are_compiled_for_the_types_of_usual_runs(capsys: pytest.CaptureFixture[str]) -> None:
    compile_rounds.main()
    types, *compiled = capsys.readouterr().out.splitlines()
    assert compiled == [SHORT_ROUNDS, LONG_ROUNDS]
    for usual in (driver_of(gridworld(agents=20), 30_000), driver_of(gridworld(agents=3, eps_p=0.1), 100)):
        assert usual.types == types
    assert driver_of(gridworld(agents=2), 10**12).types != types  # counters of 64 bits


def test_it_is_not_started_where_the_cache_has_what_it_compiles_or_there_is_one_core(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "drivers_0").mkdir()
    digest = compiling.code_digest(Path(counts.__file__))
    index = elsewhere / "drivers_0" / f"{LAST}-130-{digest}.py311.nbi"
    index.touch()
    second_process.start(MODULE, LAST)
    assert said() is None
    index.unlink()
    monkeypatch.setattr(second_process, "_cores", lambda: 1)
    second_process.start(MODULE, LAST)
    assert said() is None
    monkeypatch.setattr(second_process, "_cores", lambda: 2)
    second_process.start(MODULE, LAST)
    assert said() == []


def test_the_index_it_looks_for_is_the_one_that_numba_writes() -> None:
    run(FedUCBVI(), gridworld(agents=2), 10_000, progress=False)
    second_process.start(MODULE, LAST)
    assert said() is None


def test_a_run_that_waits_for_it_has_the_same_result() -> None:
    alone = run(FedUCBVI(), gridworld(agents=2), 10_000, progress=False)
    second_process.start(MODULE, "no such function")
    assert said() == []
    beside = run(FedUCBVI(), gridworld(agents=2), 10_000, progress=False)
    heard = said()
    assert heard is not None
    assert heard[1:] == [SHORT_ROUNDS, LONG_ROUNDS]
    assert (alone.rounds, alone.regret) == (beside.rounds, beside.regret)


@pytest.mark.parametrize(
    ("code", "types"),
    [("raise SystemExit(1)", TYPES), ("print('types')", TYPES), ("input(print('others', flush=True))", TYPES)],
    ids=["fails at once", "ends early", "has other types"],
)
def test_it_is_not_waited_for_in_vain(elsewhere: Path, code: str, types: str) -> None:
    (elsewhere / "beside.py").write_text(code)
    second_process.start("beside", LAST)
    assert said() == []
    second_process.wait_for(SHORT_ROUNDS, types=types)
    assert said() is None
    second_process.wait_for(LONG_ROUNDS, types=types)


def test_what_it_has_said_once_is_not_waited_for_again(elsewhere: Path) -> None:
    (elsewhere / "beside.py").write_text("import time; print('types\\nshort', flush=True); time.sleep(600)")
    second_process.start("beside", LAST)
    for _ in range(2):
        second_process.wait_for("short", types=TYPES)
        assert said() == [TYPES, "short"]
    second_process.stop()
    assert said() is None
