"""What both sides of a stream remember of it, so that of an array only what has changed is sent.

A start, a query or a report mostly repeats the one before it: the start of the last round, or the query or report of
the same exchange in the last synchronisation. The sender remembers what it sent last on the stream and sends only the
entries that differ. The receiver remembers the same. A message says from which earlier round it takes the
differences. The first message of each kind on a stream is whole, so after a reconnection both sides can begin at
once.
"""

from __future__ import annotations

from typing import NamedTuple

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.network.arrays import WireError

Slot = tuple[type, int]
"""The kind of a message, and its exchange if it has one."""


class Copy(NamedTuple):
    """The arrays of a message, and of which round it was."""

    round: int
    arrays: Message


class Copies:
    """The last message of each slot that one side has sent, or that the other has taken.

    Arrays are not copied. So a message must hold arrays of its own, which nobody writes to later.
    """

    def __init__(self) -> None:
        self._kept: dict[Slot, Copy] = {}

    def keep(self, slot: Slot, copy: Copy) -> None:
        """Remember a message that was sent, or that was asked for and has come; streams may share a copy."""
        self._kept[slot] = copy

    def last(self, slot: Slot) -> Copy | None:
        """What is remembered."""
        return self._kept.get(slot)

    def to_differ_from(self, slot: Slot, arrays: Message) -> Copy | None:
        """The earlier message that a sender may take the differences from, if there is one."""
        kept = self._kept.get(slot)
        if kept is None or len(kept.arrays) != len(arrays):
            return None
        for old, new in zip(kept.arrays, arrays, strict=True):
            if old.shape != new.shape or old.dtype != new.dtype:
                return None
        return kept

    def since(self, slot: Slot, round_number: int, since: int) -> Copy:
        """What changes since a round are changes of; without arrays if the message is a late copy of an earlier one.

        Raises:
            WireError: if that is not here.
        """
        kept = self._kept.get(slot)
        if kept is not None and kept.round == since:
            return kept
        if kept is not None and since < round_number <= kept.round:
            return Copy(since, ())
        raise WireError(f"changes since round {since}, of which nothing is known on this stream.")
