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
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.rewards import added, listed, paid_in
from fed_ucbvi.network.sources import check_room


def key_of(start: messages.Start) -> str:
    """Digest of the start of a round, however far the node is to play before it answers."""
    return hashlib.sha256(messages.encode(replace(start, chunk=0))).hexdigest()


@dataclass(eq=False)
class NodeRound(ABC):
    """The round that the server has started, and its progress on this node.

    Attributes:
        start: the message that began it.
        party: the node's agents.
        store: where the round is saved once the agents have counted it.
        unreported: payments of earlier episodes that no confirmed report has.
        last_confirmed: number of the round after which these episodes were played.
        before: number of episodes that the node has counted in rounds that closed without it; the server does not
            know of them.
        answered: True once the server has been sent the number of episodes played.
        length: number of episodes of the round, once it is stopped.
        paid: payments of the round, once the agents have counted it.
        signed: True once the node has signed for the sum of this round.
    """

    start: messages.Start
    party: Party
    store: NodeStateStore
    unreported: Paid
    last_confirmed: int = 0
    before: int = 0
    answered: bool = False
    length: int | None = None
    paid: Paid | None = None
    signed: bool = False

    # ------------------------------------------------------------------------------------- what a collection decides

    @classmethod
    @abstractmethod
    def check_source(cls, spec: FederationSpec, *, real: bool) -> None:
        """Raise unless a node with known problems, or with ``real`` environments, can play such rounds."""

    @classmethod
    @abstractmethod
    def base_of(cls, start: messages.Start, store: NodeStateStore, *, reports_counts: bool) -> int:
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
    def go_on(self, chunk: int) -> bool:
        """Follow a message of the server that the round goes on, or ends; True once there is an answer."""

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
    def first(self) -> int:
        """Number of episodes that each agent has played before this round."""
        return self.start.first + self.before

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
        if length > self.most:
            raise InputError(f"the server stops round {number} after {length} episodes; {self.most} are left.")
        if self.paid is None:  # otherwise the agents have counted it, and saving it has failed
            self.party.stop(length)
            self.paid = paid_in(self.party, self.start)
        self.store.keep(number, self._note(length), self._counts())
        self.length = length


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
    def base_of(cls, start: messages.Start, store: NodeStateStore, *, reports_counts: bool) -> int:
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

    def go_on(self, chunk: int) -> bool:
        self.play(chunk)
        return True

    def _note(self, length: int) -> dict[str, Any]:
        """Nothing: the episodes can be played again."""
        return {}

    def _counts(self) -> dict[str, Array]:
        """Nothing: the episodes can be played again."""
        return {}


class LiveNodeRound(NodeRound):
    """A round in which the node plays until its agents request a synchronisation, or until the server says stop.

    Nodes do not wait for each other. Before the node reports how many episodes it played, its agents count the round
    and the node saves it, because episodes of real environments cannot be played again.

    Attributes:
        halted: True once the server has said that the round ends.
    """

    halted = False

    @classmethod
    def check_source(cls, spec: FederationSpec, *, real: bool) -> None:
        """Nothing: such rounds can be played in whatever a node has."""

    @classmethod
    def base_of(cls, start: messages.Start, store: NodeStateStore, *, reports_counts: bool) -> int:
        """Number of the round in ``start``, or of a later one that the server has closed without this node."""
        if not reports_counts:
            return start.base
        last = max((number for number in store.rounds if number < start.round), default=0)
        if last <= start.base:
            return start.base
        note = store.note(last)
        unused = bool(note) and note["since"] == start.confirmed and note["clock"] > start.first
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
        return self._stop_if_over()

    def go_on(self, chunk: int) -> bool:
        """Stop where the agents are: the agents of another node have requested a synchronisation.

        If the agents have not yet played the least number of episodes of a round, they first play these.
        """
        self.halted = True
        return self._stop_if_over()

    def _stop_if_over(self) -> bool:
        """Stop if the round is over for this node; True if it is."""
        party = self.party
        enough = party.played >= party.least_episodes
        over = party.asked or party.played >= self.most or (self.halted and enough)
        if over:
            self.stop(party.played)
        return over

    def _note(self, length: int) -> dict[str, Any]:
        return {
            "owed": listed(self.unreported_by_now),
            "since": self.last_confirmed,
            "start": key_of(self.start),
            "played": length,
            "clock": self.first + length,
        }

    def _counts(self) -> dict[str, Array]:
        return self.party.counts()


class LogsNodeRound(NodeRound):
    """Round 0: nothing is played, and the node reports its logs."""

    @classmethod
    def check_source(cls, spec: FederationSpec, *, real: bool) -> None:
        """Nothing: every node may have logs."""

    @classmethod
    def base_of(cls, start: messages.Start, store: NodeStateStore, *, reports_counts: bool) -> int:
        return start.base

    def continues(self, start: messages.Start) -> bool:
        return False

    def restore(self) -> None:
        """Nothing: there is nothing to put back."""

    @property
    def playing(self) -> bool:
        return False

    def play_on(self) -> bool:
        return True

    def go_on(self, chunk: int) -> bool:
        return True

    def play(self, chunk: int) -> None:
        """Nothing is played."""

    def stop(self, length: int) -> None:
        """End the round; nothing is kept."""
        self.length = 0
        self.paid = self.unreported

    def _note(self, length: int) -> dict[str, Any]:
        return {}

    def _counts(self) -> dict[str, Array]:
        return {}


NODE_ROUND_TYPES: Mapping[str, type[NodeRound]] = {"lockstep": LockstepNodeRound, "live": LiveNodeRound}
"""The rounds of a node, by the name of the run's collection."""
