"""The secure sum in progress, on the server: its roster, and the answers so far.

They are written to the checkpoint as they arrive. A server that is started again in the middle of a round asks with
the roster that it had sent, because nodes answer no other one, and only the nodes whose answers it lacks.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.files import naming
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.messages import Report, Roster, decode_down, decode_up, encode

FILE = "sum"
HEAD = struct.Struct("<QQ")
"""Place of a node in the roster (0 for the roster itself), and bytes of the message."""


class PendingSum:
    """Roster and answers of the last sum that was begun; in memory only without a checkpoint."""

    def __init__(self, checkpoint: Path | None = None) -> None:
        self._file = None if checkpoint is None else checkpoint / FILE
        self.roster: Roster | None = None
        self.answers: dict[str, Message] = {}
        if self._file is not None and self._file.exists():
            try:
                self._read(self._file.read_bytes())
            except (WireError, IndexError):  # then nodes are asked again, and send the same bytes
                self.roster = None
                self.answers = {}

    def begin(self, roster: Roster) -> None:
        """Begin a sum over this roster; if it is the one that was begun last, its answers are kept."""
        if roster != self.roster:
            self.roster = roster
            self.answers = {}
            self._write(0, encode(roster), anew=True)

    def add(self, name: str, answer: Report) -> None:
        """Take the answer of a node."""
        assert self.roster is not None
        self.answers[name] = answer.arrays
        names = [entry.name for entry in self.roster.entries]
        self._write(1 + names.index(name), encode(answer), anew=False)

    def _write(self, place: int, data: bytes, *, anew: bool) -> None:
        if self._file is None:
            return
        with naming(self._file):
            opened = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                end = 0 if anew else os.lseek(opened, 0, os.SEEK_END)
                written = os.pwrite(opened, HEAD.pack(place, len(data)) + data, end)
                os.ftruncate(opened, end + written)
            finally:
                os.close(opened)

    def _read(self, content: bytes) -> None:
        for place, data in _messages(content):
            if place == 0:
                roster = decode_down(data)
                self.roster = roster if isinstance(roster, Roster) else None
            elif self.roster is not None:
                answer = decode_up(data)
                if isinstance(answer, Report):
                    self.answers[self.roster.entries[place - 1].name] = answer.arrays


def _messages(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole messages of a file; one that was cut off is left out."""
    at = 0
    while at + HEAD.size <= len(content):
        place, size = HEAD.unpack_from(content, at)
        at += HEAD.size
        if at + size > len(content):
            return
        yield place, content[at : at + size]
        at += size
