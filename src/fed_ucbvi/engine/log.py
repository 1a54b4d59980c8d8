"""Saved state as a log: records are only ever added, and only what has changed is written.

A *generation* begins with a full state. *Entries* with changes follow, one for each time that the state is kept. An
entry is one or more records (:mod:`fed_ucbvi.engine.log_records`), so that no record and no file comes near 2 GiB.
The header of a record names run, round, kind (``full`` or ``change``) and the pieces of arrays in it. What has
changed is found by comparison with a copy in memory of what was written last.

Once the changes of a generation take more bytes than its full state, the next generation begins. Two are kept. If a
kill or damage has left an incomplete record at the end, its digest shows this. The record is left out, and the run
resumes from the entry before. If a full state cannot be read, the generation before it is used, with its entries.

Only one process ever writes to a generation. A process that opens a folder begins a new generation, and a process
that finds a newer generation than its own stops.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.log_records import (
    DamageError,
    GenerationWriter,
    Piece,
    apply_pieces,
    part_path,
    read_records,
)
from fed_ucbvi.engine.saved_state import SavedState, differs

log = logging.getLogger("fed_ucbvi.engine.checkpoint")

CHUNK_BYTES = 1 << 26
"""The most that one piece takes; a record ends with the piece that fills it up."""
PIECES = 10_000
"""The most pieces that a record has."""
KEPT = 2
"""How many generations are kept."""
SMALL_BYTES = 1 << 16
"""Up to this size, changes never begin a new generation."""
FULL, CHANGE = "full", "change"
KINDS = "biuf"
"""The kinds of numbers that arrays may hold, as NumPy names them."""


class Entry(NamedTuple):
    """After which round, and in which file of the generation it ends, and where."""

    round: int
    part: int
    end: int


@dataclass
class Generation:
    """The whole entries of a generation, and what is wrong after them."""

    number: int
    entries: list[Entry] = field(default_factory=list)
    trouble: str = ""


class Log:
    """The log in a folder.

    Args:
        folder: must exist.
        run: identifies the run and all that must be the same for it to be resumed.
        durable: whether a write waits until everything is on disk, not only in the operating system's cache.
        kept: how many generations are kept; None for all.

    Raises:
        InputError: if there is a log and nothing of it can be read.
    """

    def __init__(self, folder: Path, run: str, *, durable: bool, kept: int | None = KEPT) -> None:
        self.folder, self._run, self._durable, self._kept = folder, run, durable, kept
        self._writer: GenerationWriter | None = None
        self._full_bytes = self._change_bytes = 0
        self._shadow: dict[str, Array] = {}
        self._forms: list[list[Any]] = []
        self._counted: dict[str, int] = {}
        found = [self._index(number) for number in sorted(self._numbers(), reverse=True)]
        self._number = found[0].number if found else 0
        self._generations = [generation for generation in found if generation.entries]
        """The newest first."""
        for generation in found:
            if generation.trouble:
                log.warning("%s, generation %d: %s", folder, generation.number, generation.trouble)
        if found and not self._generations:
            raise InputError(
                f"{folder} is damaged: {found[0].trouble}, and there is no earlier state. Put back a copy of the "
                "folder, or begin the run again in another one."
            )
        if any(generation.trouble for generation in found):
            log.warning("%s: what cannot be read is left out; going on after round %d", folder, self.last)

    # ------------------------------------------------------------------------------------------------------- reading

    @property
    def empty(self) -> bool:
        """Whether there is no state."""
        return not self._generations

    @property
    def last(self) -> int:
        """The round after which the last state was kept; -1 if none was."""
        return -1 if self.empty else self._generations[0].entries[-1].round

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds after which the state can be read, in order."""
        found: list[int] = []
        for generation in self._generations:
            found[:0] = [entry.round for entry in generation.entries if not found or entry.round < found[0]]
        return tuple(found)

    def read(self, after: int | None = None) -> SavedState:
        """The last state, or that after one of :attr:`rounds`."""
        for generation in self._generations:
            for entry in reversed(generation.entries):
                if after is None or entry.round == after:
                    return next(state for at, state in self._states(generation) if at == entry)
        raise InputError(f"{self.folder} holds no state after round {after}.")

    def between(self, first: int, last: int) -> Iterator[SavedState]:
        """The states after these rounds, in order; the arrays are the same ones every time, as far as they last."""
        newer = [generation.entries[0].round for generation in self._generations]
        for generation, until in reversed([*zip(self._generations, [last + 1, *newer], strict=False)]):
            for entry, state in self._states(generation):
                if first <= entry.round < min(until, last + 1):
                    yield state

    def _numbers(self) -> set[int]:
        """Of all generations that there are files of."""
        names = [re.fullmatch(r"log-(\d+)-\d+", path.name) for path in self.folder.iterdir()]
        return {int(match[1]) for match in names if match is not None}

    def _index(self, number: int) -> Generation:
        """Where the whole entries of a generation end."""
        generation, part = Generation(number), 0
        try:
            for record in read_records(self.folder, self._run, number):
                header = record.header
                kind = CHANGE if generation.entries else FULL
                if (header["run"], header["part"], header["kind"]) != (self._run, part, kind):
                    raise DamageError("a record is out of place")
                part = (part + 1) % header["parts"]
                if part == 0:
                    generation.entries.append(Entry(header["round"], record.part, record.end))
            if part or not generation.entries:
                raise DamageError("the last entry is not whole")
        except DamageError as damage:
            generation.trouble = str(damage)
        return generation

    def _states(self, generation: Generation) -> Iterator[tuple[Entry, SavedState]]:
        """The state after each entry: the full one with all changes up to there."""
        arrays: dict[str, Array] = {}
        rows: dict[str, list[tuple[float, ...]]] = {}
        about: dict[str, Any] = {}
        order: list[Array] = []
        entries = iter(generation.entries)
        entry = next(entries, None)
        for record in read_records(self.folder, self._run, generation.number):
            about = record.header.get("about", about)
            if "forms" in record.header:
                arrays = {name: _shaped(arrays.get(name), *form) for name, *form in record.header["forms"]}
                order = [*arrays.values()]
            apply_pieces(order, rows, record.header["pieces"], record.payload)
            if entry is not None and (record.part, record.end) == entry[1:]:
                yield entry, SavedState(entry.round, about, arrays, rows)
                entry = next(entries, None)
            if entry is None:
                return

    # ------------------------------------------------------------------------------------------------------- writing

    def write(self, state: SavedState) -> None:
        """Add what has changed since the last write; the first one of a process begins a generation."""
        if self._writer is None:
            self.begin(state)
            return
        if part_path(self.folder, self._number + 1, 0).exists():
            raise InputError(f"another process goes on with the run in {self.folder}; this one stops.")
        self._change_bytes += self._add(self._writer, self._generations[0], state, CHANGE)
        if self._change_bytes > max(self._full_bytes, SMALL_BYTES):
            try:
                self.begin(state)
            except OSError as error:
                log.warning("%s: a new generation cannot begin yet: %s", self.folder, error)

    def begin(self, state: SavedState) -> None:
        """Begin a generation with a full state.

        If the run has gone back to an earlier round, entries after later rounds are no longer true and are removed.
        """
        generation = Generation(self._number + 1)
        self._sweep()
        try:
            writer = GenerationWriter(self.folder, self._run, generation.number, durable=self._durable)
            self._full_bytes = self._add(writer, generation, state, FULL)
            writer.commit()
        except BaseException:
            self._sweep()
            raise
        self._writer, self._number, self._change_bytes = writer, generation.number, 0
        kept = [earlier for earlier in self._generations if self._cut(earlier, state.round)]
        self._generations = [generation, *kept][: self._kept]
        for number in self._numbers() - {one.number for one in self._generations}:
            self._remove(number)

    def _add(self, writer: GenerationWriter, generation: Generation, state: SavedState, kind: str) -> int:
        """Add an entry; how many bytes it takes."""
        forms = [[name, array.dtype.str, [*array.shape]] for name, array in state.arrays.items()]
        pieces = [*self._changed_rows(state, kind), *self._changes(state, kind)]
        groups: list[list[Piece]] = [[]]
        filled = 0
        for piece in pieces:
            if groups[-1] and (len(groups[-1]) >= PIECES or filled + piece.nbytes > CHUNK_BYTES):
                groups.append([])
                filled = 0
            groups[-1].append(piece)
            filled += piece.nbytes
        common = {"run": self._run, "round": state.round, "kind": kind, "parts": len(groups)}
        headers = [
            {**common, "part": i, "pieces": [piece.header() for piece in group]} for i, group in enumerate(groups)
        ]
        headers[0]["about"] = state.about
        if kind == FULL or forms != self._forms:
            headers[0]["forms"] = forms
        written = writer.add([*zip(headers, groups, strict=True)])
        generation.entries.append(Entry(state.round, writer.part, writer.size))
        self._remember(state, forms, pieces)
        return written

    def _changed_rows(self, state: SavedState, kind: str) -> Iterator[Piece]:
        for name, rows in state.rows.items():
            first = 0 if kind == FULL else self._counted.get(name, 0)
            step = max(1, CHUNK_BYTES // (8 * len(rows[0]))) if rows else 1
            for start in range(first, len(rows), step):
                yield Piece(-1, start, np.array(rows[start : start + step], dtype="<f8"), name=name)

    def _changes(self, state: SavedState, kind: str) -> Iterator[Piece]:
        for index, (name, array) in enumerate(state.arrays.items()):
            before, flat = self._shadow.get(name), np.ascontiguousarray(array).reshape(-1)
            whole = kind == FULL or before is None or (before.shape, before.dtype) != (array.shape, array.dtype)
            step = max(1, CHUNK_BYTES // flat.itemsize)
            for start in range(0, flat.size, step):
                now = flat[start : start + step]
                if whole or before is None:
                    yield Piece(index, start, now)
                    continue
                places = np.flatnonzero(differs(now, before.reshape(-1)[start : start + step]))
                if len(places) * (4 + now.itemsize) >= now.nbytes:
                    yield Piece(index, start, now)
                elif len(places):
                    yield Piece(index, start, now[places], places.astype("<u4"))

    def _remember(self, state: SavedState, forms: list[list[Any]], pieces: list[Piece]) -> None:
        """What was written is what the next state is compared with."""
        self._forms = forms
        self._counted = {name: len(rows) for name, rows in state.rows.items()}
        self._shadow = {name: _shaped(self._shadow.get(name), *form) for name, *form in forms}
        order = [*self._shadow.values()]
        for piece in pieces:
            if piece.which >= 0:
                stretch = order[piece.which].reshape(-1)[piece.start :]
                if piece.places is None:
                    stretch[: piece.values.size] = piece.values
                else:
                    stretch[piece.places] = piece.values

    def _cut(self, generation: Generation, after: int) -> bool:
        """Remove entries after a later round; whether any is left."""
        kept = [entry for entry in generation.entries if entry.round <= after]
        if kept and len(kept) < len(generation.entries):
            self._remove(generation.number, kept[-1].part + 1)
            os.truncate(part_path(self.folder, generation.number, kept[-1].part), kept[-1].end)
            generation.entries = kept
        return bool(kept)

    def _sweep(self) -> None:
        """Remove what a process that was stopped while it wrote has left."""
        for draft in self.folder.glob(".log-*.partial-*"):
            draft.unlink(missing_ok=True)

    def _remove(self, number: int, part: int = 0) -> None:
        """Remove the files of a generation from one part on; the last one first."""
        there = part
        while part_path(self.folder, number, there).exists():
            there += 1
        for each in reversed(range(part, there)):
            part_path(self.folder, number, each).unlink()


def _shaped(array: Array | None, dtype: str, shape: list[int]) -> Array:
    """The array, if it has this form, or zeros that have."""
    kind = np.dtype(dtype)
    if kind.kind not in KINDS:
        raise InputError(f"a saved state holds numbers of the unknown type {dtype}.")
    if array is not None and (array.dtype, array.shape) == (kind, tuple(shape)):
        return array
    return np.zeros(shape, dtype=kind)
