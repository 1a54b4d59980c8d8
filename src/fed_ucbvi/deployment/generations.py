"""What a node keeps of its agents: their state after the round before and after this one, in memory and on disk.

The server may stand one round behind a node (it was killed before it had finished the round the node has already
taken in), never further: a node therefore keeps two generations. Round 0 is the state before anything was played.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fed_ucbvi.algorithms.base import Array, State
from fed_ucbvi.deployment.snapshots import read_snapshot, restore, write_snapshot
from fed_ucbvi.errors import InputError

KEPT = 2
FORMAT = "fed-ucbvi/node"


class Generations:
    """The agents' arrays after the last rounds; on disk too if there is a folder.

    Args:
        state: the agents, as new.
        identity: run, node, agents and problem: what a saved state must agree with to be this one's.
        folder: the node's own disk, or none.
    """

    def __init__(self, state: State, identity: Mapping[str, object], folder: Path | None) -> None:
        self._state, self._identity, self._folder = state, dict(identity), folder
        self.current = 0
        self._slots: dict[int, int] = {}
        self._kept: dict[int, dict[str, Array]] = {0: self._copy()}
        self._fresh = self._kept[0]
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._load(folder)

    @property
    def rounds(self) -> tuple[int, ...]:
        """After which rounds the node can go on."""
        return tuple(sorted({0, *self._kept}))

    def keep(self, round_number: int) -> None:
        """The agents have taken in a round: note it down before anyone hears of it."""
        arrays = self._copy()
        if self._folder is not None:
            about = {"format": FORMAT, **self._identity, "round": round_number}
            slot = 1 - self._slots.get(self.current, 1)
            write_snapshot(self._folder / f"state-{slot}.snapshot", about, arrays)
            self._slots[round_number] = slot
        base = self._kept.get(self.current, self._fresh)
        self._kept = {self.current: base, round_number: arrays}
        self.current = round_number

    def return_to(self, round_number: int) -> None:
        """Put the agents into the state after that round, whatever they have been through since."""
        kept = self._fresh if round_number == 0 else self._kept.get(round_number)
        if kept is None:
            raise InputError(
                f"this node cannot go on after round {round_number}; it holds rounds {list(self.rounds)}. "
                "Start it with the state folder it had."
            )
        restore(self._state, kept)
        self.current = round_number

    def _copy(self) -> dict[str, Array]:
        return {name: np.array(array, order="C") for name, array in self._state.arrays().items()}

    def _load(self, folder: Path) -> None:
        """Read what an earlier process left; a damaged file is as good as none, another run's is refused."""
        for slot in range(KEPT):
            path = folder / f"state-{slot}.snapshot"
            if not path.exists():
                continue
            try:
                about, arrays = read_snapshot(path)
            except InputError:
                continue
            number = about.pop("round", None)
            if about != {"format": FORMAT, **self._identity} or not isinstance(number, int):
                raise InputError(
                    f"{folder} holds the state of another run or node ({about.get('node')}, run {about.get('run')}); "
                    "take another folder or remove it."
                )
            self._kept[number], self._slots[number] = arrays, slot
