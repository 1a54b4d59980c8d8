"""A node's memory: what it must not forget when its agents go back to an earlier round.

It is in two small files in the node's folder, which are written in turn and in place. So a write that a kill has cut
off leaves the content before it, and nothing has been sent since.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import struct
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import naming
from fed_ucbvi.network.messages import RosterEntry
from fed_ucbvi.network.run_plan import EPOCHS_AHEAD, epoch_now

FILES = ("memory-0", "memory-1")
HEAD = struct.Struct("<QQ32s")
"""Number of the write, bytes of content, and their digest."""


class SumRecord(Struct, frozen=True):
    """Record of the statements and answers of a node under secure sums.

    Attributes:
        entry: what the node has signed last.
        key: private part of the one-time key in it; empty once the roster has been answered.
        end: number of episodes of each agent at the end of that round.
        until: the same at the end of the last round in which a roster was answered.
        roster: digest of the roster that was answered in the round of ``entry``; empty before.
        answer: the answer to it, as bytes.
    """

    entry: RosterEntry | None = None
    key: bytes = b""
    end: int = 0
    until: int = 0
    roster: bytes = b""
    answer: bytes = b""


class _Content(Struct, frozen=True):
    """Content of the file: the largest epoch of a server that was met, and the record of sums."""

    epoch: int = 0
    sums: SumRecord = SumRecord()


class NodeMemory:
    """The memory of a node in a run; without a folder it ends with the process.

    Raises:
        InputError: if the file is damaged.
    """

    def __init__(self, folder: Path | None) -> None:
        self._files = [] if folder is None else [folder / name for name in FILES]
        self._writes = 0
        self._content = _Content()
        found = [one for file in self._files if file.exists() and (one := _read(file)) is not None]
        if found:
            self._writes, self._content = max(found, key=lambda one: one[0])
        elif self.exists:
            raise InputError(
                f"{folder}: the memory is damaged. It says what this node has sent, and without it the node could "
                "send it twice; put back a copy of the folder, or use another one."
            )

    @property
    def exists(self) -> bool:
        """True if something has been written."""
        return any(file.exists() for file in self._files)

    @property
    def epoch(self) -> int:
        return self._content.epoch

    @property
    def sums(self) -> SumRecord:
        return self._content.sums

    def keep_sums(self, sums: SumRecord) -> None:
        """Write a new record of sums."""
        self._write(replace(self._content, sums=sums))

    def check_epoch(self, epoch: int) -> None:
        """Note that a server of this epoch welcomes the node.

        An epoch is a time, and one in the future would make the node refuse every later server, so it is refused. If
        one is remembered because this machine's clock was wrong, it does not count.

        Raises:
            InputError: if the node has met a newer server, or the epoch is in the future.
        """
        now = epoch_now()
        if epoch > now + EPOCHS_AHEAD:
            raise InputError(
                f"the server was started {(epoch - now) / 3_600_000:,.0f} hours in the future by this machine's "
                "clock, so one of the two clocks is wrong. Set it, and start the server again on its checkpoint, or "
                "this node if its own clock was wrong."
            )
        known = self.epoch
        if known > now + EPOCHS_AHEAD:
            known = 0
        if epoch < known:
            raise InputError(
                f"the server is an old one: it was started at {_time(epoch)}, and this node has met one that was "
                f"started at {_time(known)}. End it, and join the newer one; if there is none, start the server "
                "again on its checkpoint after that time."
            )
        if epoch > known:
            self._write(replace(self._content, epoch=epoch))

    def _write(self, content: _Content) -> None:
        if self._files:
            writes = self._writes + 1
            data = msgspec.msgpack.encode(content)
            _overwrite(self._files[writes % 2], HEAD.pack(writes, len(data), hashlib.sha256(data).digest()) + data)
            self._writes = writes
        self._content = content  # only now: if the disk is full, nothing may be sent


def _overwrite(file: Path, data: bytes) -> None:
    """Write data at the beginning of a file; what is behind them stays."""
    with naming(file):
        opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(opened, data[written:], written)
        finally:
            os.close(opened)


def _read(file: Path) -> tuple[int, _Content] | None:
    """The number of the write and the content of a file; None if they are not whole."""
    whole = file.read_bytes()
    if len(whole) < HEAD.size:
        return None
    writes, size, digest = HEAD.unpack_from(whole)
    data = whole[HEAD.size : HEAD.size + size]
    if hashlib.sha256(data).digest() != digest:
        return None
    try:
        return int(writes), msgspec.msgpack.decode(data, type=_Content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _time(epoch: int) -> str:
    """Return the time of an epoch that is not in the future."""
    return f"{datetime.datetime.fromtimestamp(epoch / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
