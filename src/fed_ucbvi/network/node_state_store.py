"""What a node keeps of its agents: their state after the round before and after this one, in memory and on disk.

The server may stand one round behind a node (it was killed before it had finished the round the node has already
taken in), never further: a node therefore keeps two generations. Round 0 is the state before anything was played.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.snapshots import read_snapshot, sweep, write_snapshot

KEPT = 2
FORMAT = "fed-ucbvi/node"
ROUND = "round."
"""Before the names of arrays that are about the round alone."""


class Restorable(Protocol):
    """What can go back to what it was."""

    def arrays(self) -> dict[str, Array]:
        """All that changes, by name."""
        ...

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Go back to what :meth:`arrays` said."""
        ...


class Generation(NamedTuple):
    """The state after a round; ``note`` and ``counts`` say how the round went, where it cannot be played again."""

    state: dict[str, Array]
    note: dict[str, Any]
    counts: dict[str, Array]


class NodeStateStore:
    """The agents' arrays after the last rounds; on disk too if there is a folder.

    Args:
        state: the players, as new.
        identity: run, node, agents and problem: what a saved state must agree with to be this one's.
        folder: the node's own disk, or none.
    """

    def __init__(self, state: Restorable, identity: Mapping[str, object], folder: Path | None) -> None:
        self._state, self._identity, self._folder = state, dict(identity), folder
        self.current = 0
        self._slots: dict[int, int] = {}
        self._kept = {0: Generation(_copies(state.arrays()), {}, {})}
        self._fresh = self._kept[0]
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._load(folder)

    @property
    def rounds(self) -> tuple[int, ...]:
        """After which rounds the node can go on."""
        return tuple(sorted({0, *self._kept}))

    def keep(
        self, round_number: int, note: Mapping[str, Any] | None = None, counts: Mapping[str, Array] | None = None
    ) -> None:
        """The agents have taken in a round: note it down before anyone hears of it."""
        kept = Generation(_copies(self._state.arrays()), dict(note or {}), _copies(counts or {}))
        if self._folder is not None:
            about = {"format": FORMAT, **self._identity, "round": round_number, "note": kept.note}
            slot = 1 - self._slots.get(self.current, 1)
            arrays = {**kept.state, **{ROUND + name: array for name, array in kept.counts.items()}}
            write_snapshot(self._folder / f"state-{slot}.snapshot", about, arrays)
            self._slots[round_number] = slot
        base = self._kept.get(self.current, self._fresh)
        self._kept = {self.current: base, round_number: kept}
        self.current = round_number

    def find(self, round_number: int) -> Generation | None:
        """What is kept of a round, if anything."""
        return self._kept.get(round_number)

    def return_to(self, round_number: int) -> None:
        """Put the agents into the state after that round, whatever they have been through since."""
        kept = self._fresh if round_number == 0 else self._kept.get(round_number)
        if kept is None:
            raise InputError(
                f"this node cannot go on after round {round_number}; it holds rounds {list(self.rounds)}. "
                "Start it with the state folder it had."
            )
        self._state.restore(kept.state)
        self.current = round_number

    def _load(self, folder: Path) -> None:
        """Read what an earlier process left; a damaged file is as good as none, another run's is refused."""
        sweep(folder)
        for slot in range(KEPT):
            path = folder / f"state-{slot}.snapshot"
            if not path.exists():
                continue
            try:
                about, arrays = read_snapshot(path)
            except InputError:
                continue
            number, note = about.pop("round", None), about.pop("note", {})
            if about != {"format": FORMAT, **self._identity} or not isinstance(number, int):
                raise InputError(
                    f"{folder} holds the state of another run or node ({about.get('node')}, run {about.get('run')}); "
                    "take another folder or remove it."
                )
            counts = {name.removeprefix(ROUND): arrays.pop(name) for name in [*arrays] if name.startswith(ROUND)}
            self._kept[number], self._slots[number] = Generation(arrays, note, counts), slot


def stored_run(folder: Path) -> str | None:
    """The run whose state a folder holds, if it holds any."""
    for slot in range(KEPT):
        path = folder / f"state-{slot}.snapshot"
        with suppress(InputError):
            if path.exists():
                return str(read_snapshot(path).about["run"])
    return None


def _copies(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(array, order="C") for name, array in arrays.items()}
