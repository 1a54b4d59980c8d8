"""The secure sum in progress, on the server: its roster, and the answers so far.

They are written to the checkpoint as they arrive. A server that is started again in the middle of a round asks with
the roster that it had sent, because nodes answer no other one, and only the nodes whose answers it lacks.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.messages import Report, Roster, decode_down, decode_up, encode

FOLDER = "sum"
ROSTER_FILE = "roster"
SUFFIX = ".report"


class PendingSum:
    """Roster and answers of the last sum that was begun; in memory only without a folder."""

    def __init__(self, checkpoint: Path | None = None) -> None:
        self._folder = None if checkpoint is None else checkpoint / FOLDER
        self.roster: Roster | None = None
        self.answers: dict[str, Message] = {}
        if self._folder is not None and (self._folder / ROSTER_FILE).exists():
            try:
                self._read(self._folder)
            except WireError as error:
                raise InputError(
                    f"{self._folder} is damaged: {error} Remove it; then the sum of the round in progress is lost."
                ) from error

    def begin(self, roster: Roster) -> None:
        """Begin a sum over this roster; if it is the one that was begun last, its answers are kept."""
        if roster == self.roster:
            return
        self.roster = roster
        self.answers = {}
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir()
            self._write(ROSTER_FILE, encode(roster))

    def add(self, name: str, answer: Report) -> None:
        """Take the answer of a node."""
        self.answers[name] = answer.arrays
        self._write(name + SUFFIX, encode(answer))

    def _write(self, name: str, data: bytes) -> None:
        if self._folder is not None:
            with new_file(self._folder / name) as draft:
                draft.write_bytes(data)

    def _read(self, folder: Path) -> None:
        roster = decode_down((folder / ROSTER_FILE).read_bytes())
        if not isinstance(roster, Roster):
            raise WireError("what should be a roster is another message.")
        self.roster = roster
        for entry in roster.entries:
            file = folder / (entry.name + SUFFIX)
            answer = decode_up(file.read_bytes()) if file.exists() else None
            if isinstance(answer, Report):
                self.answers[entry.name] = answer.arrays
