"""A node's memory: what it must not forget when its agents go back to an earlier round.

It is one small file in the node's folder, replaced as a whole whenever it changes.
"""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.network.messages import RosterEntry
from fed_ucbvi.network.run_plan import EPOCHS_AHEAD, epoch_now

FILE = "memory"
DIGEST_BYTES = 32


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
        self._file = None if folder is None else folder / FILE
        self._content = _Content()
        if self._file is not None and self._file.exists():
            self._content = _read(self._file)

    @property
    def exists(self) -> bool:
        """True if something has been written."""
        return self._file is not None and self._file.exists()

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
        if self._file is not None:
            data = msgspec.msgpack.encode(content)
            with new_file(self._file) as draft:
                draft.write_bytes(hashlib.sha256(data).digest() + data)
        self._content = content  # only now: if the disk is full, nothing may be sent


def _read(file: Path) -> _Content:
    """The content of a file; raises if it is damaged."""
    whole = file.read_bytes()
    digest = whole[:DIGEST_BYTES]
    data = whole[DIGEST_BYTES:]
    damaged = InputError(
        f"{file} is damaged. It says what this node has sent, and without it the node could send it twice; put back "
        "a copy of the folder, or use another one."
    )
    if hashlib.sha256(data).digest() != digest:
        raise damaged
    try:
        return msgspec.msgpack.decode(data, type=_Content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise damaged from error


def _time(epoch: int) -> str:
    """Return the time of an epoch that is not in the future."""
    return f"{datetime.datetime.fromtimestamp(epoch / 1000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
