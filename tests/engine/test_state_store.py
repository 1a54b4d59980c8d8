"""The log of states: a state is read back as it was written, also after damage to the files."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, InputError, synthetic
from fed_ucbvi.engine import state_store
from fed_ucbvi.engine.folder_lock import folder_lock
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.engine.state_log import HEAD, MAGIC
from fed_ucbvi.engine.state_store import StateStore
from saved_states import log_files


def states(number: int, seed: int = 1) -> Iterator[SavedState]:
    """States that change here and there, a little or a lot; arrays grow, come and go, and tables get longer."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {
        "counts": np.zeros((4, 5), dtype=np.int64),
        "values": np.zeros(30),
        "sets": np.zeros((3, 3), dtype=np.bool_),
        "one": np.zeros((), dtype=np.int8),
        "none": np.zeros((0, 2)),
    }
    rows: list[tuple[float, ...]] = []
    for number_of_round in range(1, number + 1):
        arrays["counts"][tuple(rng.integers((4, 5)))] += 1
        if number_of_round % 3 == 0:
            arrays["values"] = rng.normal(size=30)
            arrays["values"][3] = np.nan
        arrays["sets"] ^= rng.random((3, 3)) < 0.2
        arrays["one"] += 1
        if number_of_round == 4:
            arrays["counts"] = np.concatenate([arrays["counts"], arrays["counts"]], axis=1)
        if number_of_round == 6:
            arrays["late"] = rng.integers(9, size=7)
        if number_of_round == 8:
            del arrays["late"]
            del arrays["sets"]
            arrays["sets"] = np.ones((3, 3), dtype=np.bool_)
        for _ in range(number_of_round % 3):
            rows.append(tuple(rng.normal(size=3)))
        yield SavedState(
            round=number_of_round,
            about={"at": number_of_round},
            arrays={name: array.copy() for name, array in arrays.items()},
            rows={"rows": list(rows), "empty": []},
        )


def bits(state: SavedState) -> tuple[Any, ...]:
    """Everything in a state, to be compared."""
    arrays = []
    for name, array in state.arrays.items():
        arrays.append((name, array.dtype, array.shape, array.tobytes()))
    return state.round, state.about, arrays, list(state.rows.get("rows", []))


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations of a few entries."""
    monkeypatch.setattr(state_store, "SMALL_BYTES", 2000)


def written(folder: Path, number: int) -> dict[int, SavedState]:
    """Write states, and return them by round."""
    folder.mkdir(exist_ok=True)
    log = StateStore(folder, "run")
    all_states = {state.round: state for state in states(number)}
    for state in all_states.values():
        log.write(state)
    return all_states


@pytest.mark.usefixtures("_small")
def test_every_state_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    kept = written(tmp_path, 12)
    again = StateStore(tmp_path, "run")
    assert again.last == 12
    assert len(again.rounds) > 3
    for number in again.rounds:
        assert bits(again.read(number)) == bits(kept[number])
    assert bits(again.read()) == bits(kept[12])


@pytest.mark.usefixtures("_small")
def test_two_generations_are_kept(tmp_path: Path) -> None:
    written(tmp_path, 12)
    assert len(log_files(tmp_path)) == 2


def test_a_round_without_a_state_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 3)
    with pytest.raises(InputError, match="holds no state after round 1000"):
        StateStore(tmp_path, "run").read(1000)


def test_an_entry_takes_as_many_bytes_as_have_changed(tmp_path: Path) -> None:
    log = StateStore(tmp_path, "run")
    large = np.zeros(10**6)
    for number in range(20):
        large[number * 1000] = number
        log.write(SavedState(number, {}, {"large": large}, {"rows": [(1.0,)] * number}))
    (file,) = log_files(tmp_path)
    assert 8 * 10**6 < file.stat().st_size < 8 * 10**6 + 20 * 400
    assert np.array_equal(StateStore(tmp_path, "run").read().arrays["large"], large)


def readable(folder: Path, kept: dict[int, SavedState]) -> int:
    """The round of the last state in a damaged log, which must be the state of that round."""
    state = StateStore(folder, "run").read()
    assert bits(state) == bits(kept[state.round])
    return state.round


def tiny(folder: Path) -> dict[int, SavedState]:
    """A log of two generations, with entries of rounds 1 and 2, and 3 and 4."""
    kept = {}
    for first in (1, 3):
        log = StateStore(folder, "run")
        for number in range(first, first + 2):
            array = np.arange(number, number + 4)
            rows = [(0.5, float(row)) for row in range(number)]
            kept[number] = SavedState(number, {"at": number}, {"x": array}, {"rows": rows})
            log.write(kept[number])
    return kept


def test_a_flipped_bit_gives_an_earlier_state(tmp_path: Path) -> None:
    """Every byte of a log of two generations, one bit each. The older one is there if the newer is damaged."""
    kept = tiny(tmp_path)
    bits = itertools.cycle(range(8))
    reached = []
    for file in log_files(tmp_path):
        content = bytearray(file.read_bytes())
        for position in range(len(content)):
            bit = 1 << next(bits)
            content[position] ^= bit
            file.write_bytes(content)
            reached.append(readable(tmp_path, kept))
            content[position] ^= bit
        file.write_bytes(content)
    assert [after for after, _ in itertools.groupby(reached)] == [4, 2, 3], "as far as the damage is behind"


def test_a_log_that_is_cut_off_gives_the_last_whole_entry(tmp_path: Path) -> None:
    """Cut at every length; also where the file is missing."""
    kept = tiny(tmp_path)
    file = log_files(tmp_path)[-1]
    reached = []
    content = file.read_bytes()
    for length in reversed(range(len(content))):
        file.write_bytes(content[:length])
        reached.append(readable(tmp_path, kept))
    file.unlink()
    reached.append(readable(tmp_path, kept))
    assert [after for after, _ in itertools.groupby(reached)] == [3, 2], "in the end the generation before"


def test_states_after_damage_are_read_back(tmp_path: Path) -> None:
    expected = tiny(tmp_path)
    last = log_files(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    log = StateStore(tmp_path, "run")
    assert log.last == 3
    for state in states(9):
        if state.round > 3:
            expected[state.round] = state
            log.write(state)
    again = StateStore(tmp_path, "run")
    assert again.rounds == (3, 4, 5, 6, 7, 8, 9)
    for number in again.rounds:
        assert bits(again.read(number)) == bits(expected[number])


@pytest.mark.usefixtures("_small")
def test_an_entry_that_cannot_be_written_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at every seventh entry, alternately before and after the entry is written."""
    append_bytes = state_store.append_bytes
    calls = itertools.count()

    def full(*arguments: Any, **options: Any) -> int:
        call = next(calls)
        fails = call % 7 == 6
        if fails and call % 2 == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        size = append_bytes(*arguments, **options)
        if fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        return size

    monkeypatch.setattr(state_store, "append_bytes", full)
    log = StateStore(tmp_path, "run", durable=True)
    failed = 0
    kept = {}
    for state in states(30):
        kept[state.round] = state
        while log.last != state.round:
            try:
                log.write(state)
            except OSError:
                failed += 1
                assert StateStore(tmp_path, "run").last == log.last
    assert failed > 3
    again = StateStore(tmp_path, "run")
    for number in again.rounds:
        assert bits(again.read(number)) == bits(kept[number])
    assert list(tmp_path.glob(".*")) == []


def test_a_generation_that_could_not_begin_does_not_change_later_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    one, two, three = states(3)
    log = StateStore(tmp_path, "run")
    log.write(one)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="Input/output"):
            log.begin(three)
    log.write(two)
    assert bits(StateStore(tmp_path, "run").read()) == bits(two)


def test_states_after_the_round_to_which_a_run_returned_are_removed(tmp_path: Path) -> None:
    kept = written(tmp_path, 9)
    log = StateStore(tmp_path, "run")
    log.begin(log.read(5))
    assert log.rounds[-1] == 5
    other = SavedState(6, {"at": "another"}, kept[5].arrays, kept[5].rows)
    log.write(other)
    for file in log_files(tmp_path)[-1:]:
        file.write_bytes(file.read_bytes()[:50])
    assert readable(tmp_path, kept) == 5


def test_a_process_that_finds_a_newer_generation_stops(tmp_path: Path) -> None:
    one, two, three = states(3)
    first = StateStore(tmp_path, "run")
    second = StateStore(tmp_path, "run")
    first.write(one)
    with pytest.raises(InputError, match="another process is using the run"):
        second.write(two)
    third = StateStore(tmp_path, "run")
    third.write(two)
    with pytest.raises(InputError, match="another process is using the run"):
        first.write(three)
    assert bits(StateStore(tmp_path, "run").read()) == bits(two)


def test_a_log_of_another_run_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 2)
    with pytest.raises(InputError, match="is damaged"):
        StateStore(tmp_path, "another run")


def test_an_entry_that_is_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 1)
    (file,) = log_files(tmp_path)
    content = file.read_bytes()
    file.write_bytes(HEAD.pack(MAGIC, 2**32 - 1, 2**63) + content[HEAD.size :])
    with pytest.raises(InputError, match="cut off"):
        StateStore(tmp_path, "run")


@pytest.mark.parametrize("name", ["server.V", "agents.own_visits", "clock", "recommended.V"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda array: array[:1], "has shape"),
        (lambda array: array.astype(np.float32), "type float32"),
        (None, "is missing"),
    ],
    ids=["shape", "type", "missing"],
)
def test_arrays_that_do_not_fit_are_refused(name: str, change: Any, message: str) -> None:
    """Also arrays that NumPy would stretch or convert."""
    world = synthetic(agents=2, states=3, actions=2, horizon=2)
    played = Simulation(FedUCBVI(), world, 50, 1, "auto")
    played.advance()
    saved = played.saved()
    if change is None:
        del saved.arrays[name]
    else:
        saved.arrays[name] = change(saved.arrays[name])
    fresh = Simulation(FedUCBVI(), world, 50, 1, "auto")
    with pytest.raises(InputError, match=f"does not fit this run: {name} .*{message}"):
        fresh.restore(saved)


def test_arrays_of_texts_are_refused_without_a_trace(tmp_path: Path) -> None:
    log = StateStore(tmp_path, "run")
    texts = SavedState(0, {}, {"texts": np.array([b"abc"])}, {})
    with pytest.raises(InputError, match="numbers of the unknown type"):
        log.begin(texts)
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_texts_are_refused_without_a_trace_in_a_log_that_was_begun(tmp_path: Path) -> None:
    log = StateStore(tmp_path, "run")
    one, two = states(2)
    log.write(one)
    with pytest.raises(InputError, match="numbers of the unknown type"):
        log.write(two._replace(arrays={"texts": np.array([b"abc"])}))
    assert bits(StateStore(tmp_path, "run").read()) == bits(one)


def test_a_locked_folder_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match=r"in use by process \d+ on .")
    with folder_lock(tmp_path / "new"), refused, folder_lock(tmp_path / "new"):
        pass


def test_a_folder_can_be_locked_again_after_it_was_released(tmp_path: Path) -> None:
    with folder_lock(tmp_path / "new"):
        pass
    with folder_lock(tmp_path / "new"):
        assert (tmp_path / "new" / "lock").exists()
