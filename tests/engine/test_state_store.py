"""The log that state is kept in: what was written is what is read, whatever happens to the files."""

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
            del arrays["sets"], arrays["late"]
            arrays["sets"] = np.ones((3, 3), dtype=np.bool_)
        rows += [tuple(rng.normal(size=3)) for _ in range(number_of_round % 3)]
        copies = {name: array.copy() for name, array in arrays.items()}
        yield SavedState(number_of_round, {"at": number_of_round}, copies, {"rows": list(rows), "empty": []})


def bits(state: SavedState) -> tuple[Any, ...]:
    """All that is in a state, to be compared."""
    arrays = [(name, array.dtype, array.shape, array.tobytes()) for name, array in state.arrays.items()]
    return *state[:2], arrays, list(state.rows.get("rows", []))


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations of a few entries."""
    monkeypatch.setattr(state_store, "SMALL_BYTES", 2000)


def written(folder: Path, number: int) -> dict[int, SavedState]:
    """Write states; all of them by round."""
    folder.mkdir(exist_ok=True)
    log = StateStore(folder, "run")
    all_states = {state.round: state for state in states(number)}
    for state in all_states.values():
        log.write(state)
    return all_states


@pytest.mark.usefixtures("_small")
def test_every_state_is_read_back_to_the_bit_from_pieces(tmp_path: Path) -> None:
    kept = written(tmp_path, 12)
    again = StateStore(tmp_path, "run")
    assert again.last == 12
    assert len(again.rounds) > 3
    for number in again.rounds:
        assert bits(again.read(number)) == bits(kept[number])
    assert bits(again.read()) == bits(kept[12])
    assert len(log_files(tmp_path)) == 2, "generations"
    with pytest.raises(InputError, match="holds no state after round 1000"):
        again.read(1000)


def test_an_entry_takes_as_much_as_has_changed(tmp_path: Path) -> None:
    log = StateStore(tmp_path, "run")
    large = np.zeros(10**6)
    for number in range(20):
        large[number * 1000] = number
        log.write(SavedState(number, {}, {"large": large}, {"rows": [(1.0,)] * number}))
    (file,) = log_files(tmp_path)
    assert 8 * 10**6 < file.stat().st_size < 8 * 10**6 + 20 * 400
    assert np.array_equal(StateStore(tmp_path, "run").read().arrays["large"], large)


def readable(folder: Path, kept: dict[int, SavedState]) -> int:
    """After which round a damaged log goes on, with the very state of that round."""
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


def test_a_bit_that_is_flipped_anywhere_gives_an_earlier_state(tmp_path: Path) -> None:
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


def test_a_log_that_ends_early_goes_on_from_the_last_whole_entry(tmp_path: Path) -> None:
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


def test_what_goes_on_after_damage_is_kept_too(tmp_path: Path) -> None:
    kept = tiny(tmp_path)
    last = log_files(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    log = StateStore(tmp_path, "run")
    assert log.last == 3
    later = {state.round: state for state in states(9) if state.round > 3}
    for state in later.values():
        log.write(state)
    again = StateStore(tmp_path, "run")
    assert again.rounds == (3, 4, 5, 6, 7, 8, 9)
    assert all(bits(again.read(number)) == bits({**kept, **later}[number]) for number in again.rounds)


@pytest.mark.usefixtures("_small")
def test_an_entry_that_cannot_be_written_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at some entries, now before and now after they are written."""
    append_bytes = state_store.append_bytes
    calls = itertools.count()

    def full(*arguments: Any, **options: Any) -> int:
        call = next(calls)
        size = append_bytes(*arguments, **options) if call % 2 else 0
        if call % 7 == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        return size if call % 2 else append_bytes(*arguments, **options)

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
    assert all(bits(again.read(number)) == bits(kept[number]) for number in again.rounds)
    assert not [*tmp_path.glob(".*")]


def test_a_generation_that_could_not_begin_changes_nothing_that_is_written_later(
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


def test_a_course_that_was_left_is_forgotten(tmp_path: Path) -> None:
    kept = written(tmp_path, 9)
    log = StateStore(tmp_path, "run")
    log.begin(log.read(5))
    assert log.rounds[-1] == 5
    other = SavedState(6, {"at": "another"}, kept[5].arrays, kept[5].rows)
    log.write(other)
    for file in log_files(tmp_path)[-1:]:
        file.write_bytes(file.read_bytes()[:50])
    assert readable(tmp_path, kept) == 5


def test_who_finds_a_newer_generation_stops(tmp_path: Path) -> None:
    first, second = (StateStore(tmp_path, "run") for _ in range(2))
    one, two, three = states(3)
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


def test_lengths_that_no_file_has_are_refused_before_they_are_read(tmp_path: Path) -> None:
    written(tmp_path, 1)
    (file,) = log_files(tmp_path)
    content = file.read_bytes()
    file.write_bytes(HEAD.pack(MAGIC, 2**32 - 1, 2**63) + content[HEAD.size :])
    with pytest.raises(InputError, match="cut off"):
        StateStore(tmp_path, "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda array: array[:1], "has shape"),
        (lambda array: array.astype(np.float32), "type float32"),
        (None, "is missing"),
    ],
)
def test_arrays_are_checked_by_name_shape_and_type(change: Any, message: str) -> None:
    """Those that NumPy would stretch or convert, too."""
    world = synthetic(agents=2, states=3, actions=2, horizon=2)
    played, fresh = (Simulation(FedUCBVI(), world, 50, 1, "auto") for _ in range(2))
    played.advance()
    for name in ("server.V", "agents.n", "clock", "recommended.V"):
        saved = played.saved()
        names = [one for one in saved.arrays if one.startswith(name[:7])]
        name = name if name in saved.arrays else names[0]
        if change is None:
            del saved.arrays[name]
        else:
            saved.arrays[name] = change(saved.arrays[name])
        with pytest.raises(InputError, match=f"does not fit this run: {name} .*{message}|{message}"):
            fresh.restore(saved)


def test_arrays_of_anything_but_numbers_are_refused_and_leave_no_file(tmp_path: Path) -> None:
    log = StateStore(tmp_path, "run")
    with pytest.raises(InputError, match="numbers of the unknown type"):
        log.begin(SavedState(0, {}, {"texts": np.array([b"abc"])}, {}))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match=r"in use by process \d+ on .")
    with folder_lock(tmp_path / "new"), refused, folder_lock(tmp_path / "new"):
        pass
    with folder_lock(tmp_path / "new"):
        pass
