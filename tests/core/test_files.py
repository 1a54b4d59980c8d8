"""Nothing half-written is left under a final name, and nobody else's folder is touched."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, check_version, new_file, new_folder, read_manifest, write_manifest

RUN = "fed-ucbvi/run/1"


def contents(folder: Path) -> dict[str, str]:
    """Every file under ``folder``, hidden ones among them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in files}


def save(folder: Path, text: str, *, overwrite: bool = False) -> None:
    with new_folder(folder, RUN, overwrite=overwrite) as draft:
        write_manifest(draft, {"format": RUN})
        (draft / "data").write_text(text, encoding="utf-8")


def saved(text: str) -> dict[str, str]:
    return {f"run/{MANIFEST}": '{\n "format": "fed-ucbvi/run/1"\n}\n', "run/data": text}


# Folders ---------------------------------------------------------------------------------------------------------
def test_a_new_folder_appears_at_the_end_where_it_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with new_folder(Path("run"), RUN) as draft:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        (draft / "data").write_text("new", encoding="utf-8")
        assert not (tmp_path / "run").exists()
    assert contents(tmp_path) == {"run/data": "new"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "run"]


def test_a_new_folder_may_be_deep_or_empty_before(tmp_path: Path) -> None:
    save(tmp_path / "a" / "b" / "run", "deep")
    (tmp_path / "run").mkdir()
    save(tmp_path / "run", "new")
    assert contents(tmp_path / "a" / "b") == saved("deep")
    assert (tmp_path / "run" / "data").read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("name", ["run", "link"])
def test_overwriting_leaves_the_new_content_alone_also_through_a_link(tmp_path: Path, name: str) -> None:
    save(tmp_path / "run", "old")
    (tmp_path / "run" / "left over").touch()
    if name == "link":
        (tmp_path / "link").symlink_to(tmp_path / "run")
    save(tmp_path / name, "new", overwrite=True)
    assert contents(tmp_path).items() >= saved("new").items()
    assert not (tmp_path / "run" / "left over").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({"run", name})


@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, FileNotFoundError])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: type[BaseException], before: str | None) -> None:
    if before is not None:
        save(tmp_path / "run", before)

    def write() -> None:
        with new_folder(tmp_path / "run", RUN, overwrite=True) as draft:
            (draft / "data").write_text("half", encoding="utf-8")
            if error is not FileNotFoundError:
                raise error
            shutil.rmtree(draft)  # so there is nothing to give the final name to

    with pytest.raises(error):
        write()
    assert contents(tmp_path) == ({} if before is None else saved(before))
    assert len(list(tmp_path.iterdir())) == (before is not None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("thesis.tex", "years of work"),
        (MANIFEST, '{"format": "another-program/1"}'),
        (MANIFEST, '{"name": "no format"}'),
        (MANIFEST, "{damaged"),
        (MANIFEST, "[]"),
        (MANIFEST, '{"format": "fed-ucbvi/checkpoint/1"}'),
    ],
)
def test_a_folder_of_another_kind_or_program_is_never_overwritten(tmp_path: Path, name: str, text: str) -> None:
    foreign = tmp_path / "run"
    foreign.mkdir()
    (foreign / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"run is not overwritten: .* remove it yourself"):
        save(foreign, "new", overwrite=True)
    with pytest.raises(InputError, match="exists"):
        save(foreign, "new")
    assert contents(tmp_path) == {f"run/{name}": text}


@pytest.mark.parametrize("overwrite", [False, True])
def test_neither_our_folder_nor_a_file_in_its_place_is_overwritten_unasked(tmp_path: Path, overwrite: bool) -> None:
    save(tmp_path / "run", "old")
    with pytest.raises(
        InputError,
        match=r"run exists; choose another name, or allow overwriting it \(--overwrite\)",
    ):
        save(tmp_path / "run", "new")
    (tmp_path / "file").write_text("a file", encoding="utf-8")
    with pytest.raises(InputError, match="exists and is not a folder"):
        save(tmp_path / "file", "new", overwrite=overwrite)
    assert contents(tmp_path) == {"file": "a file", **saved("old")}


def test_a_folder_that_appeared_during_the_block_is_not_overwritten(
    tmp_path: Path,
) -> None:
    def write() -> None:
        with new_folder(tmp_path / "run", RUN) as draft:
            (draft / "data").write_text("ours", encoding="utf-8")
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "thesis.tex").write_text("years of work", encoding="utf-8")

    with pytest.raises(InputError):
        write()
    assert contents(tmp_path) == {"run/thesis.tex": "years of work"}


# Files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_a_new_file_replaces_the_old(tmp_path: Path, before: str | None, error: type[BaseException] | None) -> None:
    path = tmp_path / "state"
    after = "new" if error is None else before
    if before is not None:
        path.write_text(before, encoding="utf-8")
    with (
        nullcontext() if error is None else pytest.raises(error),
        new_file(path) as draft,
    ):
        draft.write_text("new", encoding="utf-8")
        assert contents(tmp_path).get("state") == before
        if error is not None:
            raise error
    assert contents(tmp_path) == ({} if after is None else {"state": after})


# Killed processes ------------------------------------------------------------------------------------------------
KILLED = """
import os, signal, sys
from pathlib import Path
from fed_ucbvi.core.files import new_file, new_folder
path = Path(sys.argv[2])
with new_file(path) if sys.argv[1] == "file" else new_folder(path, "fed-ucbvi/run/1", overwrite=True) as draft:
    (draft if sys.argv[1] == "file" else draft / "data").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_while_writing(kind: str, path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED, kind, str(path)], timeout=300)
    assert process.returncode == -signal.SIGKILL


def test_the_next_write_replaces_a_file_that_a_killed_process_left(
    tmp_path: Path,
) -> None:
    killed_while_writing("file", tmp_path / "state")
    assert list(contents(tmp_path).values()) == ["half"]
    with new_file(tmp_path / "state") as draft:
        assert draft.read_text(encoding="utf-8") == ""
        draft.write_text("new", encoding="utf-8")
    assert contents(tmp_path) == {"state": "new"}


def test_the_next_write_replaces_a_folder_that_a_killed_process_left(
    tmp_path: Path,
) -> None:
    killed_while_writing("folder", tmp_path / "run")
    assert list(contents(tmp_path).values()) == ["half"]
    save(tmp_path / "run", "new")
    assert contents(tmp_path) == saved("new")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_was_being_replaced_when_a_process_was_killed_is_put_back(
    tmp_path: Path,
) -> None:
    save(tmp_path / "run", "old")
    (tmp_path / "run").rename(tmp_path / ".run.old-partial")  # the new one would have got the name next
    (tmp_path / ".run.partial").mkdir()
    with pytest.raises(InputError, match="exists; choose another name, or allow overwriting it"):
        save(tmp_path / "run", "new")
    assert contents(tmp_path) == saved("old")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    with new_file(tmp_path / "state") as first:
        first.write_text("first", encoding="utf-8")
        with new_file(tmp_path / "state") as second:
            second.write_text("second", encoding="utf-8")
        assert contents(tmp_path)["state"] == "second"
    assert contents(tmp_path) == {"state": "first"}


def test_files_are_written_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "no locks")))
    with new_file(tmp_path / "state") as draft:
        draft.write_text("new", encoding="utf-8")
    assert contents(tmp_path) == {"state": "new"}


# Manifests -------------------------------------------------------------------------------------------------------
def test_a_manifest_comes_back_equal(tmp_path: Path) -> None:
    content = {
        "format": RUN,
        "seed": 2**64 - 1,
        "eps_p": 0.1,
        "name": "Grünland",
        "list": [1, None, True, "x"],
    }
    write_manifest(tmp_path, content)
    assert read_manifest(tmp_path) == content
    assert read_manifest(tmp_path, RUN) == content
    assert json.loads((tmp_path / MANIFEST).read_text(encoding="utf-8")) == content


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_manifest_that_json_cannot_hold_is_not_written(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_manifest(tmp_path, {"format": RUN, "regret": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, f"holds no {MANIFEST}: it is not something fed-ucbvi saved"),
        *((raw, "is damaged: ") for raw in (b"", b"{", b'{"format": "fed-ucbvi/run/1"', b"\xff\xfe\x00")),
        *((raw, "is another program's file") for raw in (b"[]", b"null", b"3", b'"fed-ucbvi/run/1"', b"{}")),
        *((raw, "is another program's file") for raw in (b'{"format": 3}', b'{"format": "x/1"}')),
        (
            b'{"format": "fed-ucbvi/log/1"}',
            "holds a fed-ucbvi/log/1, but a fed-ucbvi/run/1 is needed",
        ),
    ],
)
def test_what_is_no_manifest_of_ours_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path, RUN)


def test_another_format_is_refused_with_the_version_to_take() -> None:
    check_version("kept", {"format_version": 5}, 5)
    with pytest.raises(
        InputError,
        match=r"kept has format version 4; this program reads 5. Use fed-ucbvi 0.1.0, ",
    ):
        check_version("kept", {"format_version": 4, "version": "0.1.0"}, 5)
    with pytest.raises(InputError, match="Use the version of fed-ucbvi that wrote it"):
        check_version("kept", {"format_version": 4}, 5)
