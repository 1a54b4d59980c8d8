"""Reading and writing files, so that no half-written file is ever left under its final name."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.errors import InputError, printable
from fed_ucbvi.core.memory import JSON_FACTOR, SMALLER, check_memory

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MANIFEST = "manifest.json"
MAX_MEMBERS = 64
"""The most tables that an .npz file has."""


def check_free(folder: Path, kind: str, *, overwrite: bool) -> None:
    """Raise unless ``folder`` may be written: absent, empty, or of the same ``kind`` with ``overwrite``."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise InputError(f"{folder} exists and is not a folder; choose another name.")
    if not overwrite:
        raise InputError(f"{folder} exists; choose another name, or allow overwriting it (--overwrite).")
    try:
        read_manifest(folder, kind)
    except InputError as error:
        raise InputError(
            f"{folder} is not overwritten: {error} Choose another name or remove it yourself."
        ) from error


@contextmanager
def naming(path: Path, draft: Path | None = None) -> Iterator[None]:
    """Give an error of the system, such as a full disk, the name of the file or folder that is being written."""
    try:
        yield
    except OSError as error:
        names_draft = draft is not None and str(error.filename).startswith(str(draft))
        if (error.filename is None or names_draft) and error.errno is not None:
            error.filename = str(path)
        raise


@contextmanager
def _new_draft(path: Path, *, folder: bool) -> Iterator[Path]:
    """A temporary name beside ``path``: an empty folder, or an empty file.

    The name is always the same, so that what a killed process has left is replaced by the next write. While another
    process holds the lock on it, and on file systems without locks, the name has this process's number.
    """
    draft = path.with_name(f".{path.name}.partial")
    lock = _locked(draft, folder=folder)
    if lock is None:
        draft = draft.with_name(f"{draft.name}-{os.getpid()}")
    try:
        _empty(draft)
        if folder:
            draft.mkdir(exist_ok=True)
        yield draft
    finally:
        if lock is None:
            _remove(draft)
        else:
            if _is_same(lock, draft):
                _remove(draft)
            os.close(lock)


def _locked(draft: Path, *, folder: bool) -> int | None:
    """Create a draft, if it is not there, and lock it; None if that is not possible."""
    try:
        if folder:
            draft.mkdir(exist_ok=True)
        lock = os.open(draft, os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_same(lock, draft):  # else another process has just given it its final name
            return lock
    except BlockingIOError:
        pass
    except OSError:  # this file system has no locks, so it is nobody else's draft
        _remove(draft)
    os.close(lock)
    return None


def _is_same(opened: int, path: Path) -> bool:
    """True if ``path`` is the opened file, and not moved away or replaced since."""
    try:
        return os.path.samestat(os.fstat(opened), path.stat())
    except FileNotFoundError:
        return False


def _empty(draft: Path) -> None:
    """Empty a file or a folder, if it is there; a lock on it lasts."""
    if draft.is_dir():
        for inside in draft.iterdir():
            _remove(inside)
    elif draft.exists():
        os.truncate(draft, 0)


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path, kind: str, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``folder`` when the block ends well and vanishes when it does not."""
    place = folder.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with _new_draft(place, folder=True) as draft:
        number = draft.name.removeprefix(f".{place.name}.partial")
        old = place.with_name(f".{place.name}.old-partial{number}")
        _put_back(old, place)
        check_free(folder, kind, overwrite=overwrite)
        with naming(place, draft):
            yield draft
        check_free(place, kind, overwrite=overwrite)
        try:
            if place.exists():
                place.rename(old)
            draft.rename(place)
        finally:
            _put_back(old, place)


def _put_back(old: Path, place: Path) -> None:
    """Remove a folder that has been replaced, or give it its name back if nothing has taken its place."""
    if old.exists() and not place.exists():
        old.rename(place)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that replaces it when the block ends well."""
    with _new_draft(path, folder=False) as draft:
        with naming(path, draft):
            yield draft
        draft.replace(path)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, not only to the operating system's cache."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn any error of a reader of damaged files into an :class:`InputError` that names the folder."""
    try:
        yield
    except InputError as error:
        if str(folder) in str(error):
            raise
        raise InputError(f"{folder}: {error}") from error
    except MemoryError as error:
        raise InputError(f"{folder} is too large: there is not enough memory to read it.") from error
    except KeyError as error:
        raise InputError(f"{folder} is damaged: {error} is missing.") from error
    except Exception as error:
        raise InputError(f"{folder} is damaged: {printable(str(error)[:500])}.") from error


@dataclass(frozen=True)
class TableForm:
    """Type and shape of a table, from its header."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class TableArchive:
    """The tables of an .npz file: their forms are read from the headers, and a table only when it is needed.

    Raises:
        ValueError: if the file has anything but tables of numbers or text, of the lengths in their headers.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"there are {len(members):,} tables in it")
        self._archive = archive
        self.forms: dict[str, TableForm] = {}
        for member in members:
            self.forms[member.filename.removesuffix(".npy")] = self._form(member)
        if len(self.forms) < len(members):
            raise ValueError("two tables in it have one name")

    def _form(self, member: zipfile.ZipInfo) -> TableForm:
        from numpy.lib import format as npy

        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        with self._archive.open(member) as file:
            version = npy.read_magic(file)
            if version not in readers:
                raise ValueError(f"{member.filename} is in an unknown version of NumPy's format")
            with warnings.catch_warnings():  # NumPy warns of headers that Python 2 wrote, and reads them
                warnings.simplefilter("error", UserWarning)
                try:
                    shape, _, dtype = readers[version](file)
                except UserWarning as warning:
                    raise ValueError(f"{member.filename} has a header of an outdated form") from warning
            form = TableForm(dtype, shape)
            if dtype.kind not in "biufU" or min(shape, default=0) < 0:
                raise ValueError(f"{member.filename} is not a table of numbers")
            if file.tell() + form.bytes != member.file_size:
                raise ValueError(f"{member.filename} is not as long as its header says")
        return form

    def __contains__(self, name: str) -> bool:
        return name in self.forms

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        from numpy.lib import format as npy

        check_memory(f"The table {name}", self.forms[name].bytes, SMALLER)
        with self._archive.open(f"{name}.npy") as file:
            table: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
        return table


@contextmanager
def reading_npz(path: Path, kind: str, what: str) -> Iterator[tuple[dict[str, Any], TableArchive]]:
    """The description and the tables in a file of one ``kind``, which errors call ``what``."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; expected {what}.")
    with reading(path), path.open("rb") as file:
        if file.read(2) != b"PK":
            raise InputError(f"{path} is not {what}.")
        file.seek(0)
        with zipfile.ZipFile(file) as archive:
            data = TableArchive(archive)
            about = _read_description(path, data)
            if not isinstance(about, dict) or about.get("format") != kind:
                raise InputError(f"{path} is not {what}.")
            yield about, data


def _read_description(path: Path, data: TableArchive) -> Any:
    """The JSON in the table ``about`` of an archive; None if there is no such text."""
    if "about" not in data or data.forms["about"].shape != ():
        return None
    bytes_per_character = 4
    needed = JSON_FACTOR * data.forms["about"].bytes // bytes_per_character
    check_memory(f"The description in {path}", needed, SMALLER)
    return json.loads(str(data["about"]))


def read_json(path: Path) -> Any:
    """The content of a file of JSON that is not too large to be read."""
    check_memory(f"The content of {path}", JSON_FACTOR * path.stat().st_size, SMALLER)
    return json.loads(path.read_text(encoding="utf-8"))


def write_manifest(folder: Path, content: Mapping[str, object]) -> None:
    with new_file(folder / MANIFEST) as draft:
        draft.write_bytes(_manifest(content))


def _manifest(content: Mapping[str, object]) -> bytes:
    return f"{json.dumps(content, indent=1, allow_nan=False)}\n".encode()


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """The manifest of a folder written by this package; of one ``kind`` if it is given."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder} holds no {MANIFEST}: it is not something fed-ucbvi saved.")
    with reading(path):
        content = read_json(path)
    written = content.get("format") if isinstance(content, dict) else None
    if not isinstance(written, str) or not written.startswith("fed-ucbvi/"):
        raise InputError(f"{path} is another program's file.")
    if kind is not None and written != kind:
        raise InputError(f"{folder} holds a {written}, but a {kind} is needed.")
    return dict(content)


def file_digest(path: Path) -> str:
    """SHA-256 of the contents of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_digest(manifest: Path | Mapping[str, object]) -> str:
    """Digest of a manifest, to the last byte: of the one in a folder, or of one with this content."""
    if isinstance(manifest, Path):
        text = (manifest / MANIFEST).read_bytes()
    else:
        text = _manifest(manifest)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def check_version(name: str | Path, manifest: Mapping[str, Any], version: int) -> None:
    """Raise unless the manifest of ``name`` has this version of its format."""
    if manifest.get("format_version") != version:
        program = manifest.get("version")
        writer = "the version of fed-ucbvi that"
        if isinstance(program, str):
            writer = f"fed-ucbvi {printable(program)}, which"
        found = printable(str(manifest.get("format_version")))
        raise InputError(f"{name} has format version {found}; this program reads {version}. Use {writer} wrote it.")
