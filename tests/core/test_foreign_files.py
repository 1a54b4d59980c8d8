"""Files of others: nothing in them ends the process, shows a traceback, or takes memory that there is not."""

from __future__ import annotations

import hashlib
import io
import json
import math
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from fed_ucbvi import (
    Federation,
    FedKLUCBVI,
    InputError,
    Run,
    Sweep,
    counts_from_logs,
    gridworld,
    load_counts,
    load_policy,
    run,
)
from fed_ucbvi.algorithms.increments import Support
from fed_ucbvi.core import memory
from fed_ucbvi.core.foreign_tables import read_table
from fed_ucbvi.engine.state_log import DIGEST_BYTES, HEAD, MAGIC
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.environments.bins import Bins
from fed_ucbvi.network import node_memory
from fed_ucbvi.network.run_plan import read_spec
from fed_ucbvi.results.policy import policy_of_bytes
from fed_ucbvi.results.run import CHECKSUM_KEY, CHECKSUM_PLACEHOLDER, CHECKSUM_PREFIX, MANIFEST_KEY, manifest_of
from mutated_files import LOG, READERS, SIZES, Mutations
from saved_states import log_in, saved_in

SOME = 40
MANY = 1500
LITTLE = 100_000_000
"""Bytes of memory in tests of what needs more."""


def test_table_with_a_header_of_python_2_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "federation.npz"
    gridworld(agents=2).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = members["rewards.npy"]
    members["rewards.npy"] = header.replace(b"(1, ", b"(1L,", 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert members["rewards.npy"] != header
    with pytest.raises(InputError, match="outdated"):
        Federation.load(path)


@pytest.mark.parametrize("name", READERS)
def test_reader_refuses_or_reads_some_mutated_files(name: str, tmp_path: Path) -> None:
    mutations = Mutations.of(name, tmp_path)
    found = [mutations.try_one(seed) for seed in range(SOME)]
    assert found.count("refused") > SOME // 2


@pytest.mark.full
@pytest.mark.parametrize("name", READERS)
def test_reader_refuses_or_reads_many_mutated_files(name: str, tmp_path: Path) -> None:
    mutations = Mutations.of(name, tmp_path)
    found = [mutations.try_one(seed) for seed in range(SOME, MANY)]
    least = 1 if name == "memory of a node" else MANY // 2  # a node has a second copy of its memory
    assert found.count("refused") >= least


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: LITTLE)


def test_parquet_that_makes_polars_panic_is_refused(tmp_path: Path) -> None:
    """Every byte of the footer is changed in turn; some of these files end a process that reads them with Polars."""
    path = tmp_path / "log.parquet"
    pl.DataFrame(LOG).write_parquet(path)
    valid = path.read_bytes()
    length = int.from_bytes(valid[-8:-4], "little")
    for at in range(len(valid) - 8 - length, len(valid) - 8, 7):
        path.write_bytes(valid[:at] + bytes([valid[at] ^ 0x7F]) + valid[at + 1 :])
        try:
            counts_from_logs(path, SIZES, random_rewards=True)
        except InputError:
            continue


def test_reader_of_tables_goes_on_after_its_process_has_ended() -> None:
    whole = io.BytesIO()
    pl.DataFrame({"a": [1, 2]}).write_parquet(whole)
    with pytest.raises(InputError):
        read_table(b"PAR1" + b"\xff" * 40 + b"PAR1", "parquet", ["a"])
    assert read_table(whole.getvalue(), "parquet", ["a"]).frame["a"].to_list() == [1, 2]


def test_run_with_more_rounds_than_memory_holds_is_refused_by_its_footer(tmp_path: Path, little_memory: None) -> None:
    content = io.BytesIO()
    pl.DataFrame({"a": pl.repeat(0, 5_000_000, eager=True)}).write_parquet(content)
    assert len(content.getvalue()) < 1_000_000
    with pytest.raises(
        InputError,
        match=r"A table of 5,000,000 rows needs 160 MB of memory, and 100 MB are available",
    ):
        read_table(content.getvalue(), "parquet", ["a"])


def counts_of(path: Path, shape: tuple[int, int, int]) -> Path:
    """A small file of counts that says it is of a large problem."""
    counts_from_logs(LOG, SIZES).save(path)
    changed = io.BytesIO()
    with (
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            content = old.read(name)
            if name == "about.npy":
                about = json.loads(str(np.load(io.BytesIO(content))))
                written = io.BytesIO()
                np.save(written, np.array(json.dumps({**about, "shape": shape})))
                content = written.getvalue()
            new.writestr(name, content)
    path.write_bytes(changed.getvalue())
    return path


def test_small_file_of_counts_for_a_large_table_is_refused(tmp_path: Path, little_memory: None) -> None:
    path = counts_of(tmp_path / "counts.npz", (1000, 1000, 1000))
    with pytest.raises(
        InputError,
        match=r"Reading .*counts.npz needs .* of memory, and 100 MB are available",
    ):
        load_counts(path)


def test_counts_of_another_problem_are_refused_before_they_are_unpacked(
    tmp_path: Path,
) -> None:
    path = counts_of(tmp_path / "counts.npz", (1000, 1000, 1000))
    with pytest.raises(
        InputError,
        match=r"have \(S, A, steps\) = \(1000, 1000, 1000\), not \(S, A, H\) = \(8, 4, 10\)",
    ):
        run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False, warm_start=path)


def test_table_longer_than_its_header_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    counts_from_logs(LOG, SIZES).save(path)
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            new.writestr(name, content + bytes(10_000_000) if name == "cells.npy" else content)
    with pytest.raises(InputError, match=r"cells\.npy is not as long as its header says"):
        load_counts(path)


def test_signature_is_checked_before_the_policy_is_read(tmp_path: Path) -> None:
    """The policy is no JSON at all, and what is said is that nobody has signed it."""
    path = tmp_path / "policy.json"
    run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False).export_policy(path)
    described, _ = path.read_bytes().split(b', "policy": ')
    path.write_bytes(described + b', "policy": [[[[[{"}')
    authority = tmp_path / "ca.crt"
    authority.write_bytes(b"")
    with pytest.raises(InputError, match="it is not signed"):
        load_policy(path, authority=authority)


@pytest.mark.parametrize(
    "numbers",
    ['["a", "b"]', f"[{'9' * 400}]", f"[{'9' * 5000}]", "[[[1]]]", '{"a": 1}', "null"],
)
def test_bins_with_anything_but_numbers_are_refused(numbers: str, tmp_path: Path) -> None:
    mutations = Mutations.of("bins.json", tmp_path)
    text = mutations.valid.decode()
    content = json.loads(text)
    content["observations"][1]["edges"] = "HERE"
    mutations.path.write_text(json.dumps(content).replace('"HERE"', numbers), encoding="utf-8")
    with pytest.raises(InputError):
        Bins.load(mutations.path)


@pytest.mark.parametrize(
    "content",
    [
        "a = " + "[" * 5000 + "]" * 5000,
        f"name = {'9' * 5000}",
        f"name = 0x{'f' * 5000}",
        "grid = [[1]]\nname = 3",
    ],
)
def test_sweep_with_nested_or_endless_values_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"sweep\.toml"):
        Sweep.from_toml(path)


def test_policy_whose_environment_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False).export_policy(path)
    content = json.loads(path.read_bytes())
    path.write_bytes(json.dumps({**content, "environment": 3}).encode())
    with pytest.raises(InputError, match="its environment is not a table of options"):
        load_policy(path)


def test_spec_of_a_welcome_is_limited_before_it_is_read() -> None:
    with pytest.raises(InputError, match=r"the server's spec has 75 MB; at most 65\.5 kB are read"):
        read_spec(b"[" * 75_000_000)


def test_support_of_a_welcome_is_compared_with_memory_before_it_is_unpacked(
    little_memory: None,
) -> None:
    with pytest.raises(InputError, match=r"A support of 1,000,000,000 transitions needs 3 GB of memory"):
        Support.unpacked(zlib.compress(bytes(1000)), (10, 1000, 100))


@pytest.mark.parametrize("dtype", [",", "(((", "O", "V8", "<U3", 7, None])
def test_saved_state_with_an_unknown_type_of_numbers_is_damaged(dtype: object, tmp_path: Path) -> None:
    path = tmp_path / "log-000001"
    header = {
        "round": 0,
        "about": {},
        "rows": [],
        "changed": [],
        "forms": [["a", dtype, [1]]],
    }
    text = json.dumps(header).encode()
    head = HEAD.pack(MAGIC, len(text), 0)
    digest = hashlib.blake2b(
        hashlib.blake2b(b"run 1", digest_size=DIGEST_BYTES).digest(),
        digest_size=DIGEST_BYTES,
    )
    digest.update(head + text)
    path.write_bytes(head + digest.digest() + text)
    with pytest.raises(InputError, match="a header that makes no sense"):
        StateStore(tmp_path, "run")


@pytest.mark.parametrize("entry", ["description", "layout", "liars"])
def test_federation_without_an_entry_of_its_description_is_damaged(entry: str, tmp_path: Path) -> None:
    path = tmp_path / "world.npz"
    gridworld(agents=2).save(path)
    with np.load(path) as saved:
        tables = dict(saved)
    about = json.loads(str(tables["about"]))
    del about[entry]
    np.savez_compressed(path, allow_pickle=False, **{**tables, "about": np.array(json.dumps(about))})
    with pytest.raises(InputError, match=f"is damaged: '{entry}' is missing"):
        Federation.load(path)


def test_saved_run_that_is_no_run_shows_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "made"
    run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False).save(path)
    (path / "run.parquet").write_bytes(b"PAR1")
    words = [sys.executable, "-m", "fed_ucbvi", "show", str(path)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_run_is_read_back_equal_through_the_other_process(tmp_path: Path) -> None:
    made = run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False)
    made.save(tmp_path / "made")
    assert Run.load(tmp_path / "made") == made


def sealed_run(path: Path, manifest: str, frame: pl.DataFrame) -> None:
    """Put another table and another manifest into a saved run, with a checksum that fits."""
    content = io.BytesIO()
    frame.write_parquet(content, metadata={MANIFEST_KEY: manifest, CHECKSUM_KEY: CHECKSUM_PLACEHOLDER})
    plain = content.getvalue()
    seal = CHECKSUM_PREFIX + hashlib.sha256(plain).hexdigest().encode()
    (path / "run.parquet").write_bytes(plain.replace(CHECKSUM_PLACEHOLDER.encode(), seal))


@pytest.fixture
def made(tmp_path: Path) -> Run:
    finished = run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False)
    finished.save(tmp_path / "made")
    return finished


def test_saved_run_of_many_rounds_is_refused_by_its_footer(made: Run, tmp_path: Path, little_memory: None) -> None:
    """Its file has some 30 kB."""
    frame = pl.DataFrame({name: pl.repeat(0, 300_000, dtype=pl.Int8, eager=True) for name in made.records})
    sealed_run(tmp_path / "made", json.dumps(manifest_of(made)), frame)
    assert (tmp_path / "made" / "run.parquet").stat().st_size < 100_000
    with pytest.raises(
        InputError,
        match=r"A table of 300,000 rows needs 202 MB of memory, and 100 MB are available",
    ):
        Run.load(tmp_path / "made")


def test_manifest_of_a_saved_run_is_compared_with_memory_before_it_is_read(
    made: Run, tmp_path: Path, little_memory: None
) -> None:
    manifest = {**manifest_of(made), "policy": "HERE"}
    text = json.dumps(manifest).replace('"HERE"', "[" + "[]," * 1_200_000 + "[]]")
    sealed_run(tmp_path / "made", text, pl.DataFrame(dict(made.records)))
    with pytest.raises(
        InputError,
        match=r"The manifest of .*run.parquet needs 115 MB of memory, and 100 MB are",
    ):
        Run.load(tmp_path / "made")


def test_saved_run_with_an_infinite_length_is_damaged(made: Run, tmp_path: Path) -> None:
    records = pl.DataFrame(dict(made.records)).with_columns(pl.lit(math.inf).alias("length"))
    sealed_run(tmp_path / "made", json.dumps(manifest_of(made)), records)
    with pytest.raises(InputError, match="is damaged: not all of its length are numbers of type int64"):
        Run.load(tmp_path / "made")


def test_saved_run_without_the_round_of_a_recommendation_is_damaged(made: Run, tmp_path: Path) -> None:
    manifest = manifest_of(made)
    manifest["recommendations"]["round"] = [None for _ in manifest["recommendations"]["round"]]
    sealed_run(tmp_path / "made", json.dumps(manifest), pl.DataFrame(dict(made.records)))
    with pytest.raises(InputError, match="is damaged: not all of its round are numbers of type int64"):
        Run.load(tmp_path / "made")


def test_policy_without_a_signature_takes_no_memory_beside_its_content(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.json"
    run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False).export_policy(path)
    described, _ = path.read_bytes().split(b', "policy": ')
    content = described + b', "policy": [' + b"[0]," * 5_000_000 + b"[0]]}\n"
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="it is not signed"):
            policy_of_bytes(content, "policy.json", authority=b"")
        _, taken = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1_000_000


def test_policy_file_larger_than_memory_is_refused_before_it_is_read(tmp_path: Path, little_memory: None) -> None:
    path = tmp_path / "policy.json"
    with path.open("wb") as file:
        file.truncate(75_000_000)
    with pytest.raises(
        InputError,
        match=r"The content of .*policy.json needs 150 MB of memory, and 100 MB are",
    ):
        load_policy(path)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"states": {}}, "states must be a whole number"),
        ({"states": 9}, "its state is that of another run"),
        ({"earlier_visits": 10**400}, "earlier_visits must be"),
        ({"seed": True}, "seed must be"),
    ],
)
def test_checkpoint_of_a_server_with_another_setting_is_damaged(
    changed: dict[str, object], says: str, tmp_path: Path
) -> None:
    mutations = Mutations.of("checkpoint of a server", tmp_path)
    mutations.target.write_bytes(mutations.valid)
    saved = saved_in(mutations.path)
    about = {**saved.about, "setting": {**saved.about["setting"], **changed}}
    log_in(mutations.path).write(saved._replace(round=saved.round + 1, about=about))
    with pytest.raises(InputError, match=says):
        mutations.reader.read(mutations.path)


@pytest.mark.parametrize(
    "memory",
    [{"epoch": {}}, {"epoch": -1.5}, {"sums": []}, {"sums": {"entry": 3}}, {"sums": {"answer": 7}}, []],
)
def test_memory_of_a_node_of_another_form_is_damaged(memory: object, tmp_path: Path) -> None:
    mutations = Mutations.of("memory of a node", tmp_path)
    data = msgspec.msgpack.encode(memory)
    for number, name in enumerate(node_memory.FILES):
        head = node_memory.HEAD.pack(number, len(data), hashlib.sha256(data).digest())
        (mutations.path / name).write_bytes(head + data)
    with pytest.raises(InputError, match=r"the memory is damaged\. It says what this node has sent"):
        mutations.reader.read(mutations.path)
