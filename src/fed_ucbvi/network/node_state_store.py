"""State of a node's agents after the round before and after this one, in memory and on disk.

The server is usually at most one round behind a node: it was killed before it had finished the round that the node's
agents have already counted. It is further behind if it resumes from an old copy of its checkpoint, or if the end of
the checkpoint was damaged. A node with a folder can go back to every round in its store
(:mod:`fed_ucbvi.engine.state_store`), and one without to the round before. Round 0 is the state
before anything was played.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, manifest_digest, read_manifest, reading, write_manifest
from fed_ucbvi.core.version import __version__
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.state_arrays import SavedState, named
from fed_ucbvi.engine.state_store import StateStore, missing_log
from fed_ucbvi.network.node_memory import NodeMemory

FORMAT = "fed-ucbvi/node"
FORMAT_VERSION = 9
MAX_ROUNDS = 1000
"""Largest number of rounds that a node announces to the server."""
STATE = "state."
ROUND = "round."
"""Prefixes of the names of arrays: those of the agents, and those about the round alone."""


class Note(TypedDict, total=False):
    """Notes about a round that cannot be played again, or whose report may not be confirmed."""

    owed: list[Any]
    since: int
    start: str
    played: int
    clock: int


class About(TypedDict):
    """Everything of a saved state that is not an array."""

    note: Note


class NodeStateStore:
    """The agents' arrays after the last rounds; on disk too if there is a folder.

    ``party`` is before its first round. A saved state must have the same ``identity`` (run, node, agents and problem)
    to be used.
    """

    def __init__(self, party: Party, identity: Mapping[str, object], folder: Path | None) -> None:
        self.party = party
        self.current = 0
        self._folder = folder
        self._fresh = _copy(self._saved(0))
        self._kept = {0: self._fresh}
        self._note: tuple[int, dict[str, Any]] = 0, {}
        self._unchanged = False
        self._log = None if folder is None else self._open(folder, identity)
        self.memory = NodeMemory(folder)
        if self._log is not None and self._log.last > 0 and not self.memory.exists:
            raise missing_log(self._log.folder)

    def _saved(self, number: int, note: Mapping[str, Any] = {}, counts: Mapping[str, Array] = {}) -> SavedState:
        """The agents' state after a round; ``note`` and ``counts`` say how it went, if it cannot be played again."""
        arrays = {STATE + name: array for name, array in self.party.state().items()}
        arrays |= {ROUND + name: array for name, array in counts.items()}
        return SavedState(number, {"note": dict(note)}, arrays, {})

    def _checked(self, saved: SavedState) -> SavedState:
        """A state that was read from disk; raise if what is noted with it has another form."""
        assert self._folder is not None
        with reading(self._folder):
            msgspec.convert(saved.about, About)
        return saved

    def _open(self, folder: Path, identity: Mapping[str, object]) -> StateStore:
        """The log that an earlier process left, or a new one; another run's is refused."""
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MANIFEST).exists():
            new = {"format": FORMAT, "format_version": FORMAT_VERSION, **identity, "version": __version__}
            first = StateStore(folder, manifest_digest(new), durable=True)
            if first.empty:  # the state before the manifest, so that a kill never leaves one without the other
                first.write(self._fresh)
            write_manifest(folder, new)
        store = StateStore.open(folder, FORMAT, FORMAT_VERSION, durable=True, lock=False)
        manifest = store.manifest
        if {name: manifest.get(name) for name in identity} != identity:
            raise InputError(
                f"{folder} holds the state of another run or node ({manifest.get('node')}, run "
                f"{manifest.get('run')}); use another folder or remove it."
            )
        if store.empty:
            raise missing_log(folder)
        return store

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds after which the node can resume."""
        logged = () if self._log is None else self._log.rounds[-MAX_ROUNDS:]
        return tuple(sorted({*self._kept, *logged}))

    def keep(self, number: int, note: Mapping[str, Any] = {}, counts: Mapping[str, Array] = {}) -> None:
        """Save a round that the agents have counted, before the server is told of it."""
        saved = self._saved(number, note, counts)
        if self._log is None:
            base = self._kept.get(self.current, self._fresh)
            self._kept = {0: self._fresh, self.current: base, number: _copy(saved)}
        else:
            if self._log.last != self.current:  # the server has gone back behind what is in the log
                self._log.begin((self.find(self.current) or self._fresh)._replace(round=self.current))
            self._log.write(saved)
            self._kept = {0: self._fresh}
        self._note = (number, saved.about["note"])
        self._unchanged = True
        self.current = number

    def note(self, number: int) -> dict[str, Any]:
        """The note about a round; empty if the round is not kept."""
        if number == self._note[0]:
            return self._note[1]
        found = self.find(number)
        return {} if found is None else dict(found.about["note"])

    def change(self, party: Party) -> None:
        """Others take the agents' place, which have seen nothing yet."""
        self.party = party
        self._unchanged = False

    def find(self, number: int) -> SavedState | None:
        """The saved state after a round, if there is one."""
        if number not in self._kept and self._log is not None and number in self._log.rounds:
            self._kept[number] = self._checked(self._log.read(number))
        return self._kept.get(number)

    def return_to(self, number: int) -> None:
        """Put the agents into the state after that round, whatever they have played since."""
        if not self._unchanged or number != self.current:  # usually they have just been there
            kept = self.find(number)
            if kept is None:
                raise InputError(
                    f"this node cannot resume after round {number}; it holds rounds {list(self.rounds)[-10:]}. "
                    "Start it with the state folder it had."
                )
            self.party.restore(named(STATE, kept.arrays))
        self.current = number
        self._unchanged = False

    def recall(self, number: int) -> int:
        """Have the agents play a kept round once more, as it went; its length."""
        kept = self.find(number)
        assert kept is not None
        length = int(kept.about["note"]["played"])
        self.party.recall(named(STATE, kept.arrays), named(ROUND, kept.arrays), length)
        self.party.stop(length)
        self.current = number
        return length


def stored_run(folder: Path) -> str | None:
    """The run whose state a folder holds, if it holds any."""
    return str(read_manifest(folder, FORMAT).get("run")) if (folder / MANIFEST).exists() else None


def _copy(saved: SavedState) -> SavedState:
    return saved._replace(arrays={name: np.array(array, order="C") for name, array in saved.arrays.items()})
