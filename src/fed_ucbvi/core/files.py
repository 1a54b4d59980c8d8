"""Writing files so that nothing half-written is ever left under its final name."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fed_ucbvi.core.errors import InputError, printable

if TYPE_CHECKING:
    from numpy.lib.npyio import NpzFile

MANIFEST = "manifest.json"


def check_free(folder: Path, kind: str, *, overwrite: bool) -> None:
    """Raise unless ``folder`` may be written: absent, empty, or of the same ``kind`` and ``overwrite`` was said."""
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
    """An error of the system, a full disk for instance, names what was to be written, not nothing or its draft."""
    try:
        yield
    except OSError as error:
        unnamed = error.filename is None or (draft is not None and str(error.filename).startswith(str(draft)))
        if unnamed and error.errno is not None:
            error.filename = str(path)
        raise


@contextmanager
def new_folder(folder: Path, kind: str, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``folder`` when the block ends well and vanishes when it does not."""
    check_free(folder, kind, overwrite=overwrite)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.parent / f".{folder.name}.partial-{os.getpid()}"
    old = folder.parent / f".{folder.name}.old-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        with naming(folder, draft):
            yield draft
        check_free(folder, kind, overwrite=overwrite)
        if folder.exists():
            folder.rename(old)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that replaces it when the block ends well."""
    draft = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with naming(path, draft):
            yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, not only to the operating system's cache."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Whatever damaged files make a reader raise becomes an :class:`InputError` that names the folder."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{folder} is damaged: {error}.") from error


@contextmanager
def reading_npz(path: Path, kind: str, what: str) -> Iterator[tuple[dict[str, Any], NpzFile]]:
    """The description and the tables in a file of one ``kind``, which errors call ``what``."""
    import numpy as np

    if not path.is_file():
        raise InputError(f"{path} is not a file; expected {what}.")
    with reading(path), path.open("rb") as file:
        if file.read(2) != b"PK":  # NumPy would take it for pickled data
            raise InputError(f"{path} is not {what}.")
        file.seek(0)
        with np.load(file, allow_pickle=False) as data:
            about = json.loads(str(data["about"])) if "about" in data else None
            if not isinstance(about, dict) or about.get("format") != kind:
                raise InputError(f"{path} is not {what}.")
            yield about, data


def write_manifest(folder: Path, content: Mapping[str, object]) -> None:
    with new_file(folder / MANIFEST) as draft:
        draft.write_bytes(_manifest(content))


def _manifest(content: Mapping[str, object]) -> bytes:
    return f"{json.dumps(content, indent=1, allow_nan=False)}\n".encode()


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """The manifest of a folder written by this package, of one ``kind`` if said."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder} holds no {MANIFEST}: it is not something fed-ucbvi saved.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}.") from error
    written = content.get("format") if isinstance(content, dict) else None
    if not isinstance(written, str) or not written.startswith("fed-ucbvi/"):
        raise InputError(f"{path} is another program's file.")
    if kind is not None and written != kind:
        raise InputError(f"{folder} holds a {written}, but a {kind} is needed.")
    return dict(content)


def manifest_digest(manifest: Path | Mapping[str, object]) -> str:
    """What identifies a manifest, to the last byte: that in a folder, or one with this content."""
    text = (manifest / MANIFEST).read_bytes() if isinstance(manifest, Path) else _manifest(manifest)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def check_version(name: str | Path, manifest: Mapping[str, Any], version: int) -> None:
    """Raise unless the manifest says that what ``name`` holds has this version of its format."""
    if manifest.get("format_version") != version:
        known = manifest.get("version")
        wrote = f"fed-ucbvi {printable(known)}, which" if isinstance(known, str) else "the version of fed-ucbvi that"
        found = printable(str(manifest.get("format_version")))
        raise InputError(f"{name} has format version {found}; this program reads {version}. Use {wrote} wrote it.")
