"""Files with one snapshot of a state each: replaced as a whole, checked when read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.network.arrays import WireError, pack, unpack
from fed_ucbvi.network.schema import CLASSES, DecodeError

DIGEST_BYTES = 32


class Snapshot(NamedTuple):
    """What is on record, and the arrays by name."""

    about: dict[str, Any]
    arrays: dict[str, Array]


def write_snapshot(path: Path, about: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Replace ``path``, all or nothing, even if the machine goes down: digest first, then the snapshot."""
    message = CLASSES["Snapshot"](about=json.dumps(about, allow_nan=False))
    for name, array in arrays.items():
        message.arrays[name].CopyFrom(pack(array))
    data = message.SerializeToString()
    with new_file(path) as draft, draft.open("wb") as file:
        file.write(hashlib.sha256(data).digest())
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too
    finally:
        os.close(folder)


def sweep(folder: Path) -> None:
    """Remove what a process that was killed while it wrote has left."""
    for draft in folder.glob(".*.snapshot.partial-*"):
        draft.unlink(missing_ok=True)


def read_snapshot(path: Path) -> Snapshot:
    """Read back what :func:`write_snapshot` wrote."""
    content = path.read_bytes()
    data = content[DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != content[:DIGEST_BYTES]:
        raise InputError(f"{path} is damaged: it is not what was written.")
    try:
        message = CLASSES["Snapshot"].FromString(data)
        return Snapshot(json.loads(message.about), {name: unpack(array) for name, array in message.arrays.items()})
    except (DecodeError, WireError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}.") from error
