"""A run in one file: it reads back equal, or is refused."""

from __future__ import annotations

import errno
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fed_ucbvi import FedUCBVI, InputError, Run, gridworld, run
from fed_ucbvi.results.round_record import COLUMNS
from fed_ucbvi.results.run import CHECKSUM_KEY, FORMAT_VERSION, MANIFEST_KEY, manifest_of


@pytest.fixture(scope="module")
def result() -> Run:
    return run(FedUCBVI(nu=9.0, bonus_scale=0.3), gridworld(agents=3, eps_p=0.1), 700, seed=2**63 + 1)


def test_a_run_reads_back_equal_and_gives_the_same_bytes_again(result: Run, tmp_path: Path) -> None:
    result.write_file(tmp_path / "run.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]
    back = Run.read_file(tmp_path / "run.parquet")
    assert back == result
    assert back.same_outcome(result)
    assert back.wall_seconds == result.wall_seconds
    for name, column in result.records.items():
        assert back.records[name].dtype == column.dtype
        assert back.records[name].tobytes() == column.tobytes()
    assert back.to_bytes() == result.to_bytes() == (tmp_path / "run.parquet").read_bytes()


def test_any_reader_of_parquet_sees_the_records(result: Run) -> None:
    content = io.BytesIO(result.to_bytes())
    frame = pl.read_parquet(content)
    assert frame.columns == list(COLUMNS)
    assert frame["regret"].sum() == pytest.approx(result.regret)
    manifest = json.loads(pl.read_parquet_metadata(content)[MANIFEST_KEY])
    assert manifest["summary"] == json.loads(json.dumps(result.summary()))


def test_writing_replaces_what_is_there(result: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    path.write_bytes(b"earlier")
    result.write_file(path)
    assert Run.read_file(path) == result


def test_a_full_disk_leaves_no_half_file_and_keeps_the_old_one(
    result: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result.write_file(tmp_path / "old")

    def half(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    for name in ("old", "new"):
        with pytest.raises(OSError, match="No space left"):
            replace(result, value=0.25).write_file(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert Run.read_file(tmp_path / "old") == result


def test_truncated_files_are_refused(result: Run, tmp_path: Path) -> None:
    path, whole = tmp_path / "run.parquet", result.to_bytes()
    for kept in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(InputError, match=r"run\.parquet is damaged"):
            Run.read_file(path)
    with pytest.raises(InputError, match="absent is not a file"):
        Run.read_file(tmp_path / "absent")
    with pytest.raises(InputError, match="is not a file"):
        Run.read_file(tmp_path)


def test_every_flipped_bit_is_noticed(result: Run) -> None:
    whole = result.to_bytes()
    rng = np.random.default_rng(1)
    for position in rng.integers(len(whole), size=200).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        with pytest.raises(InputError):
            Run.from_bytes(bytes(damaged))
    assert Run.from_bytes(whole) == result


def test_other_parquet_files_are_refused(result: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    frame = pl.DataFrame(dict(result.records))
    frame.write_parquet(path)
    with pytest.raises(InputError, match="no run of fed-ucbvi's"):
        Run.read_file(path)
    frame.write_parquet(path, metadata={MANIFEST_KEY: "{}", CHECKSUM_KEY: "sha256:none"})
    with pytest.raises(InputError, match="checksum"):
        Run.read_file(path)


def test_a_later_format_is_refused_by_its_version(result: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("fed_ucbvi.results.run.FORMAT_VERSION", FORMAT_VERSION + 1)
        content = result.to_bytes()
    with pytest.raises(InputError, match=f"format version {FORMAT_VERSION + 1}; this program reads {FORMAT_VERSION}"):
        Run.from_bytes(content, "theirs")


NONSENSE: dict[str, tuple[Any, ...]] = {
    "about": (None, {}, "nothing"),
    "policy": (None, [[0, 1], [2]], [["left"]], [[2**40]], [[1e300]], [[0]]),
    "V": ({"a": 1}, "high"),
    "value": (None, "much"),
    "wall_seconds": ([],),
}


@pytest.mark.parametrize("key", NONSENSE)
def test_a_sealed_file_with_nonsense_inside_is_refused(
    key: str, result: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = manifest_of(result)
    less, about = {name: part for name, part in content.items() if name != key}, content["about"]
    fewer = {name: part for name, part in about.items() if name != "agents"}
    wrong = [less, *({**content, key: value} for value in NONSENSE[key])]
    for manifest in (*wrong, {**content, "about": {**about, "extra": 1}}, {**content, "about": fewer}):
        with monkeypatch.context() as broken:
            broken.setattr("fed_ucbvi.results.run.manifest_of", lambda run, manifest=manifest: manifest)
            sealed = result.to_bytes()
        with pytest.raises(InputError, match="theirs is damaged"):
            Run.from_bytes(sealed, "theirs")


@pytest.mark.parametrize("columns", [{"length": None}, {"length": "many"}])
def test_a_sealed_file_with_other_records_is_refused(columns: dict[str, Any], result: Run) -> None:
    records: dict[str, Any] = {name: column for name, column in result.records.items() if name != "length"}
    rows = len(result.records["length"])
    records |= {name: [text] * rows for name, text in columns.items() if text is not None}
    with pytest.raises(InputError, match="theirs is damaged"):
        Run.from_bytes(replace(result, records=records).to_bytes(), "theirs")
