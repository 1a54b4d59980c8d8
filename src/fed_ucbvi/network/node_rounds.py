"""A round as a node holds it: how its agents play the episodes, when it ends, and what is saved of it.

:class:`NodeRound` has what all rounds have in common. How episodes are collected is the difference between
:class:`LockstepNodeRound` and :class:`LiveNodeRound`, the counterparts of the server's
:class:`~fed_ucbvi.network.rounds.LockstepRound` and :class:`~fed_ucbvi.network.rounds.LiveRound`.
``NODE_ROUND_TYPES`` names them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.party import Party
from fed_ucbvi.engine.rounds import Paid
from fed_ucbvi.network import messages
from fed_ucbvi.network.federation_spec import FederationSpec
from fed_ucbvi.network.messages import COUNTS
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.rewards import added, listed, paid_in
from fed_ucbvi.network.sources import check_room


def key_of(start: messages.Start) -> str:
    """Digest of what two starts of the same round have in common: all but how far to play, and further requests."""
    bare = replace(start, chunk=0, roster=b"", credited_roster=b"", missed=0, missed_roster=b"")
    return hashlib.sha256(messages.encode(bare)).hexdigest()


@dataclass(eq=False)
class NodeRound(ABC):
    """The round that the server has started, and its progress on this node.

    Attributes:
        start: the message that began it.
        party: the node's agents.
        store: where the round is saved once the agents have counted it.
        secure: True if reports are masked.
        unreported: payments of earlier episodes that no confirmed report has.
        uncounted: number of earlier episodes of each agent that no confirmed report has counted.
        last_confirmed: by part of a report, the round after which these episodes were played.
        before: number of episodes that the node has counted in rounds that closed without it; the server does not
            know of them.
        answered: True once the server has been sent the number of episodes played.
        length: number of episodes of the round, once it is stopped.
        paid: payments of the round, once the agents have counted it.
        ready: signature of the node for this round, under secure sums.
    """

    start: messages.Start
    party: Party
    store: NodeStateStore
    secure: bool
    unreported: Paid
    uncounted: int
    last_confirmed: Mapping[str, int]
    before: int = 0
    answered: bool = False
    length: int | None = None
    paid: Paid | None = None
    ready: messages.Ready | None = None

    # ------------------------------------------------------------------------------------- what a collection decides

    @classmethod
    @abstractmethod
    def check_source(cls, spec: FederationSpec, *, real: bool) -> None:
        """Raise unless a node with known problems, or with ``real`` environments, can play such rounds."""

    @classmethod
    @abstractmethod
    def base_of(cls, start: messages.Start, store: NodeStateStore, *, server_counts: bool) -> int:
        """Number of the round after whose end this one begins."""

    @abstractmethod
    def continues(self, start: messages.Start) -> bool:
        """True if ``start`` asks for this round once more, and it goes on from where it is."""

    @abstractmethod
    def restore(self) -> None:
        """Put back the round as it was played, if it has just begun and is in the store."""

    @property
    @abstractmethod
    def playing(self) -> bool:
        """True while the node plays without further messages, by :meth:`play_on`."""

    @abstractmethod
    def play_on(self) -> bool:
        """Play one more episode; True once there is an answer for the server."""

    @abstractmethod
    def go_on(self, chunk: int) -> None:
        """Follow a message of the server that the round goes on, or ends, at ``chunk`` episodes."""

    @property
    @abstractmethod
    def signed(self) -> tuple[int, Paid]:
        """Number of uncounted episodes of each agent, and the payments, that a signature under secure sums covers."""

    @property
    @abstractmethod
    def roster_length(self) -> int | None:
        """Length of the round as a roster has it."""

    @abstractmethod
    def _note(self, length: int) -> dict[str, Any]:
        """Facts about the round to be saved with the agents' state."""

    @abstractmethod
    def _counts(self) -> dict[str, Array]:
        """Counts of the round to be saved with the agents' state."""

    # -------------------------------------------------------------------------------------------- what all rounds do

    @property
    def most(self) -> int:
        """Largest number of episodes that may be played in it."""
        return self.start.most - self.before

    @property
    def unreported_by_now(self) -> Paid:
        """Payments that no confirmed report has, those of this round included once they are counted."""
        return self.unreported if self.paid is None else added(self.unreported, self.paid)

    def play(self, chunk: int) -> None:
        """Play until ``chunk`` episodes of the round are played or an agent requests a synchronisation."""
        if self.length is None:
            self.party.play(min(chunk, self.most))

    def stop(self, length: int) -> None:
        """End the round after ``length`` episodes: play more or take some back, and add the round to the counts."""
        number = self.start.round
        if self.paid is not None and self.party.played != length:
            raise InputError(f"round {number} was stopped after {self.party.played} episodes, not {length}.")
        if self.length is not None:
            return
        if number == 0:  # for logs: nothing is played, and nothing is kept
            self.length = 0
            self.paid = self.unreported
            return
        if length > self.most:
            raise InputError(f"the server stops round {number} after {length} episodes; {self.most} are left.")
        if self.paid is None:  # otherwise the agents have counted it, and saving it has failed
            self.party.stop(length)
            self.paid = paid_in(self.party, self.start)
        self.store.keep(number, self._note(length), self._counts())
        self.length = length

    def _unreported_note(self, length: int) -> dict[str, Any]:
        """Payments and episodes to be reported in a later round, if this one's report is not confirmed."""
        return {
            "owed": listed(self.unreported_by_now),
            "uncounted": self.uncounted + length,
            "since": self.last_confirmed,
        }


class LockstepNodeRound(NodeRound):
    """A round in which all agents stop after the same episode.

    The node plays as far as it is asked to, and learns from the server where the round ends. Episodes can be taken
    back and played again, so every start begins the round anew.
    """

    @classmethod
    def check_source(cls, spec: FederationSpec, *, real: bool) -> None:
        check_room(spec.run.problem.agents or 0, whose="agents of the server's run")
        if real:
            raise InputError(
                "this node's agents have real environments, which cannot be taken back to an earlier episode, as "
                "lockstep needs it; serve the run with --collection live."
            )

    @classmethod
    def base_of(cls, start: messages.Start, store: NodeStateStore, *, server_counts: bool) -> int:
        return start.base

    def continues(self, start: messages.Start) -> bool:
        return False

    def restore(self) -> None:
        """Nothing: the round is played again."""

    @property
    def playing(self) -> bool:
        return False

    def play_on(self) -> bool:
        """Nothing: all that was asked for has been played."""
        return True

    def go_on(self, chunk: int) -> None:
        self.play(chunk)

    @property
    def signed(self) -> tuple[int, Paid]:
        """Earlier episodes only: the length of this round is not yet known, and the roster has it."""
        return self.uncounted, self.unreported

    @property
    def roster_length(self) -> int | None:
        return self.length

    def _note(self, length: int) -> dict[str, Any]:
        return self._unreported_note(length) if self.secure else {}

    def _counts(self) -> dict[str, Array]:
        """Nothing: the episodes can be played again."""
        return {}


class LiveNodeRound(NodeRound):
    """A round in which the node plays until its agents request a synchronisation, or until the server says stop.

    Nodes do not wait for each other. Before the node reports how many episodes it played, its agents count the round
    and the node saves it, because episodes of real environments cannot be played again.
    """

    @classmethod
    def check_source(cls, spec: FederationSpec, *, real: bool) -> None:
        """Nothing: such rounds can be played in whatever a node has."""

    @classmethod
    def base_of(cls, start: messages.Start, store: NodeStateStore, *, server_counts: bool) -> int:
        """Number of the round in ``start``, or of a later one that the server has closed without this node."""
        if not server_counts:
            return start.base
        last = max((number for number in store.rounds if number < start.round), default=0)
        if last <= start.base:
            return start.base
        note = store.note(last)
        unused = bool(note) and note["since"][COUNTS] == start.confirmed and note["clock"] > start.first
        return last if unused else start.base

    def continues(self, start: messages.Start) -> bool:
        return key_of(self.start) == key_of(start)

    def restore(self) -> None:
        number = self.start.round
        if self.store.note(number).get("start") == key_of(self.start):
            self.length = self.store.recall(number)
            self.paid = paid_in(self.party, self.start)

    @property
    def playing(self) -> bool:
        return not self.answered and self.length is None

    def play_on(self) -> bool:
        party = self.party
        party.play(min(party.played + 1, self.most))
        if not party.asked and party.played < self.most:
            return False
        self.stop(party.played)
        return True

    def go_on(self, chunk: int) -> None:
        """Stop where the agents are: the agents of another node have requested a synchronisation."""
        self.stop(self.party.played)

    @property
    def signed(self) -> tuple[int, Paid]:
        return self.uncounted + (self.length or 0), self.unreported_by_now

    @property
    def roster_length(self) -> int | None:
        """Nothing: every node has signed its own length."""
        return 0

    def _note(self, length: int) -> dict[str, Any]:
        return {
            **self._unreported_note(length),
            "start": key_of(self.start),
            "played": length,
            "clock": self.start.first + self.before + length,
        }

    def _counts(self) -> dict[str, Array]:
        return self.party.counts()


NODE_ROUND_TYPES: Mapping[str, type[NodeRound]] = {"lockstep": LockstepNodeRound, "live": LiveNodeRound}
"""The rounds of a node, by the name of the run's collection."""
