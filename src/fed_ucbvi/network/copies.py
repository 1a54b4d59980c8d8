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


class Copy(NamedTuple):
    """The arrays of a message, and of which round it was."""

    round: int
    arrays: Message


class Copies:
    """The last message of each kind that one side has sent, or that the other has taken.

    Arrays are not copied. So a message must hold arrays of its own, which nobody writes to later.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Copy] = {}

    def keep(self, kind: str, exchange: int, round_number: int, arrays: Message) -> None:
        """Remember a message that was sent, or that was asked for and has come."""
        self.put(kind, exchange, Copy(round_number, arrays))

    def put(self, kind: str, exchange: int, copy: Copy) -> None:
        """The same, with a copy that several streams share."""
        self._kept[kind, exchange] = copy

    def last(self, kind: str, exchange: int) -> Copy | None:
        """What is remembered."""
        return self._kept.get((kind, exchange))

    def to_differ_from(self, kind: str, exchange: int, arrays: Message) -> Copy | None:
        """The earlier message that a sender may take the differences from, if there is one."""
        kept = self._kept.get((kind, exchange))
        if kept is None or len(kept.arrays) != len(arrays):
            return None
        pairs = zip(kept.arrays, arrays, strict=True)
        return kept if all(old.shape == new.shape and old.dtype == new.dtype for old, new in pairs) else None

    def since(self, kind: str, exchange: int, round_number: int, since: int) -> Copy:
        """What changes since a round are changes of; without arrays if the message is a late copy of an earlier one.

        Raises:
            WireError: if that is not here.
        """
        kept = self._kept.get((kind, exchange))
        if kept is not None and kept.round == since:
            return kept
        if kept is not None and since < round_number <= kept.round:
            return Copy(since, ())
        raise WireError(f"changes since round {since}, of which nothing is known on this stream.")
