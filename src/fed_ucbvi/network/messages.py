"""The messages of the federation, each declared once: as plain values here, as msgpack on the wire.

One bidirectional stream a node. A node hosts one or more agents, numbered first_agent, first_agent + 1, ...; arrays
that go up have a leading axis for them. The server asks, the node answers; docs/protocol.md has the order.

Down is from server to node, up from node to server. Two more calls take an empty message and give bytes: Certificate,
the server's certificate (PEM), and Policy, the file that an End has.

A message is an array of its name and its fields. Decoding is strict: a field of another type, a number below zero, a
field too many or a list longer than any honest one is an error, found before memory is taken for what is claimed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import force_setattr

from fed_ucbvi.algorithms.base import Array, Message
from fed_ucbvi.network.arrays import FROM_ZEROS, Changes, Natural, PackedArray, WireError, forms, packed_bytes

PROTOCOL = 13
"""Server and nodes must speak the same version."""
SHOWN = frozenset({"version", "node", "run", "reason", "name"})
"""Texts that end up in logs and on terminals: one line of printable characters, and not a long one."""
MAX_CHARACTERS = 500
REWARDS_ALONE = (1 << 32) - 1
"""The number of a query that asks for nothing but rewards; it comes before the others of its round."""
COUNTS, REWARDS = PARTS = "counts", "rewards"
"""The parts of a report under secure sums."""
PART_BYTES = 64 << 10
"""Longer messages of a node travel in parts, so that nobody can send more than this before it is known who it is."""
MAX_ARRAYS, MAX_ITEMS = 64, 1 << 20
"""Arrays of a message; requests, rounds or entries of a roster in one."""

if TYPE_CHECKING:
    Arrays = tuple[Array, ...]
else:  # what the arrays of a message are on the wire
    Arrays = Annotated[tuple[PackedArray, ...], Meta(max_length=MAX_ARRAYS)] | Changes

ItemT = TypeVar("ItemT")
MessageT = TypeVar("MessageT")
Items = Annotated[tuple[ItemT, ...], Meta(max_length=MAX_ITEMS)]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
Signed = Annotated[bytes, Meta(max_length=8192)]
"""A certificate or a signature."""


class _Message(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    def __post_init__(self) -> None:
        for name in SHOWN.intersection(self.__struct_fields__):
            force_setattr(self, name, one_line(getattr(self, name)))


# ---------------------------------------------------------------------------------------------------- handshake


class Hello(_Message, frozen=True):
    """Up, first: who is there, or who leaves the run for good.

    The incarnation is drawn anew by every process, which numbers its streams; ``run`` is the one whose state the node
    holds. A node that leaves is answered with an end, and nothing else follows.
    """

    protocol: Natural
    version: str
    node: str
    incarnation: Annotated[bytes, Meta(min_length=16, max_length=16)]
    first_agent: Natural
    agents: Natural
    run: str
    leaving: bool = False
    stream: Natural = 0


class Welcome(_Message, frozen=True):
    """Down: what everyone knows before the run.

    ``spec`` has the fields of its :class:`~fed_ucbvi.run_spec.RunSpec` that concern nodes, as JSON; ``bins`` is JSON,
    too. ``epoch`` grows with every server that resumes the run.
    ``grid_bits`` is set where the run has been extended, ``earlier_visits`` where it was started from counts.
    ``support`` has the transitions that can be (:mod:`fed_ucbvi.algorithms.increments`), where the server knows them
    and reports list them.
    """

    protocol: Natural
    version: str
    run: str
    epoch: Natural
    spec: bytes
    eps_p: float
    grid_bits: Natural = 0
    earlier_visits: Natural = 0
    bins: bytes = b""
    support: bytes = b""


class Joining(_Message, frozen=True):
    """Up: sizes, digest and units of the node's problem, and after which rounds it can resume.

    A step pays between reward_offset and reward_offset + reward_scale, which reports have as 0 and 1. Of its logs, if
    it has some, it says how many episodes and steps they hold.
    """

    states: Natural
    actions: Natural
    horizon: Natural
    digest: Bytes32
    rounds: Items[Natural]
    reward_offset: float = 0.0
    reward_scale: float = 1.0
    logged_episodes: Natural = 0
    logged_steps: Natural = 0


class Refusal(_Message, frozen=True):
    """Down, at any time: the stream ends here, and why. If ``retry`` is set, coming back later makes sense."""

    reason: str
    retry: bool


# ------------------------------------------------------------------------------------------------------- a round


class Start(_Message, frozen=True):
    """Down: the broadcast of a round (policy, N, ...).

    The node continues from its state after round ``base`` with episode number ``first``, plays at most ``chunk`` of
    at most ``most`` episodes, and answers with :class:`Played`. What it reported in round ``confirmed`` has been
    used, under secure sums in the sum over ``roster``, and nothing that it reported later; -1: not even its logs.
    Under secure sums ``credited`` and ``credited_roster`` say the same of rewards. If ``missed`` is not 0, the
    server has no answer of this node to the roster ``missed_roster`` of that round, and asks for a denial. In round 0
    nothing is played: nodes report their logs. In a run with promises ``playing`` says what the policy is (of
    :data:`~fed_ucbvi.results.round_record.PLAYING`), and ``judged`` has the numbers of incumbent and candidate, whose
    returns are to be reported.
    """

    round: Natural
    base: Natural
    first: Natural
    most: Natural
    chunk: Natural
    arrays: Arrays
    confirmed: Annotated[int, Meta(ge=-1)] = 0
    roster: bytes = b""
    missed: Natural = 0
    missed_roster: bytes = b""
    playing: Natural = 0
    judged: Items[Natural] = ()
    credited: Natural = 0
    credited_roster: bytes = b""


class Continue(_Message, frozen=True):
    """Down: nobody has asked; play further, until ``chunk`` episodes of the round have been played."""

    round: Natural
    chunk: Natural


class Request(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An agent's request for synchronisation, at the (step, state, action) where its visits reached the budget.

    Where visits are counted over all steps together, ``step`` is H. ``rule`` is the one that was met.
    """

    agent: Natural
    step: Natural
    state: Natural
    action: Natural
    rule: Natural


class Ready(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Under secure sums: that a node is ready to be summed with others, signed with the key of its certificate.

    Attributes:
        binding: the digest of the run, the epoch, the support, the round and the broadcast that the node was sent.
        episodes: of each of its agents that are in no confirmed sum of counts; in lockstep without those of this
            round, whose length the roster says. In round 0, those of its logs.
        uncredited: likewise, those that are in no confirmed sum of rewards.
        since: the last rounds of which it was told that a sum with its counts, and with its rewards, has been used.
        rewards: whether it tells what they paid.
        key: an X25519 key for this round.
        signature: over these, the run, the round, the node's name and its agents.
        denial: the signature under "I did not answer that roster", if the start asked for one and it is true.
    """

    binding: bytes
    episodes: Natural
    uncredited: Natural
    since: tuple[Annotated[int, Meta(ge=-1)], Natural]
    rewards: bool
    key: Bytes32
    signature: Signed
    denial: Signed = b""


class Played(_Message, frozen=True):
    """Up: how many episodes of the round were played, and the requests for synchronisation after the last of them.

    Under secure sums ``somebody`` replaces the requests: it says only that there was one. ``before`` is how many
    episodes a live node has counted in rounds that closed without it.
    """

    round: Natural
    played: Natural
    requests: Items[Request]
    somebody: bool = False
    ready: Ready | None = None
    before: Natural = 0

    @property
    def asked(self) -> bool:
        return self.somebody or bool(self.requests)


class Stop(_Message, frozen=True):
    """Down: the round has ``length`` episodes; what was played beyond them is taken back."""

    round: Natural
    length: Natural


class RosterEntry(_Message, frozen=True, tag=False):
    """A node in a roster: its agents, its certificate, and what it has signed for this round."""

    name: str
    first_agent: Natural
    agents: Natural
    certificate: Signed
    ready: Ready


class Denial(_Message, frozen=True, tag=False):
    """That a node did not answer the roster of an earlier round; the node's signature, and its certificate."""

    name: str
    round: Natural
    roster: bytes
    signature: Signed
    certificate: Signed


class Roster(_Message, frozen=True):
    """Down, under secure sums: report what is new, masked between the nodes of this roster.

    In lockstep the round has ``length`` episodes; in a live collection it is 0, and every node has said its own.
    It asks for ``counts``, for ``rewards`` or for both: a round that ends without a request needs no counts.
    """

    round: Natural
    length: Natural
    entries: Items[RosterEntry]
    denials: Items[Denial] = ()
    counts: bool = True
    rewards: bool = True

    @property
    def parts(self) -> tuple[str, ...]:
        return (COUNTS,) * self.counts + (REWARDS,) * self.rewards

    @property
    def signed(self) -> tuple[RosterEntry | Denial, ...]:
        return *self.entries, *self.denials

    @property
    def exchange(self) -> int:
        return 0 if self.counts else REWARDS_ALONE


class Query(_Message, frozen=True):
    """Down: one exchange of the synchronisation (V_{h+1}).

    Where a synchronisation takes E exchanges, numbers from E on are those of a second one in the same round, for the
    recommended policy: the same questions about other values. ``rewards`` asks besides what the round paid and where
    its episodes began; the last array of the report says it. A question about nothing else has no arrays and the
    number :data:`REWARDS_ALONE`.
    """

    round: Natural
    exchange: Natural
    arrays: Arrays
    rewards: bool = False


class Report(_Message, frozen=True):
    """Up: the answer to a query (n and sums over visits).

    One row for each agent, or one for all agents of a node where the server takes sums. Under secure sums the answer
    to a roster: masked, and with rewards as the last array; as exchange 0, or :data:`REWARDS_ALONE` without counts.
    Where models are exchanged, the one query is empty and the answer has transition counts.
    """

    round: Natural
    exchange: Natural
    arrays: Arrays


class Decline(_Message, frozen=True):
    """Up, in place of a report under secure sums: the node does not answer this roster, and why."""

    round: Natural
    reason: str
    exchange: Natural = 0


class Fault(_Message, frozen=True):
    """Up: the node cannot continue, and why."""

    reason: str


class Part(_Message, frozen=True):
    """Up: a piece of a message that is longer than 64 KiB.

    All pieces but the last have 64 KiB, and nothing comes between them; put together they are a message.
    """

    data: bytes
    more: bool


class End(_Message, frozen=True):
    """Down: training is over, after so many rounds and episodes; with the recommended policy as a file.

    The server signs it where it has a certificate (results/policy.py).
    """

    round: Natural
    episodes: Natural
    policy: bytes


WithArrays = Start | Query | Report
Up = Hello | Joining | Played | Report | Decline | Fault | Part
Down = Welcome | Refusal | Start | Continue | Stop | Roster | Query | End
_UP: Decoder[Up] = Decoder(Up)
_DOWN: Decoder[Down] = Decoder(Down)
_ENCODER = Encoder(enc_hook=PackedArray.of)


def one_line(text: str) -> str:
    r"""A text from elsewhere, fit to be shown.

    >>> one_line("all is well\n\x1b[31mroot: logged in")
    'all is well??[31mroot: logged in'
    """
    text = text[:MAX_CHARACTERS]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def has_left(name: str) -> str:
    """The reason of the refusal that ends the last stream of a node that has left for good."""
    return f"'{name}' has left this run for good"


class DeltaCache:
    """The last message of each kind, and exchange, that one side of a stream has sent, or that the other has taken.

    Arrays are not copied. So a message must hold arrays of its own, which nobody writes to later.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[type, int], WithArrays] = {}

    @staticmethod
    def _slot(message: Up | Down) -> tuple[type, int]:
        return type(message), getattr(message, "exchange", 0)

    def last(self, message: Up | Down) -> WithArrays | None:
        """The message before this one that it may repeat."""
        return self._kept.get(self._slot(message))

    def keep(self, message: Up | Down) -> None:
        """Remember a message that was sent, or was asked for and has come; unasked ones would fill the memory."""
        if isinstance(message, WithArrays):
            self._kept[self._slot(message)] = message

    def base(self, message: WithArrays, since: int) -> Message:
        """The arrays that changes since a round are changes of; none for a late copy of an earlier message."""
        kept = self.last(message)
        if kept is not None and (kept.round == since or (since == FROM_ZEROS and message.round >= kept.round)):
            return kept.arrays
        if kept is not None and since < message.round <= kept.round:
            return ()
        raise WireError(f"changes since round {since}, of which nothing is known on this stream.")


def encode(message: Up | Down, sent: DeltaCache | None = None) -> bytes:
    """A message as bytes; with what was ``sent`` before on the stream, only what has changed since."""
    if sent is not None and isinstance(message, WithArrays):
        before = sent.last(message)
        sent.keep(message)
        if before is not None and forms(before.arrays) == forms(message.arrays):
            changes = Changes.of(message.arrays, before.arrays, before.round)
            if changes.size < sum([packed_bytes(array.size, array.dtype) for array in message.arrays]):
                message = msgspec.structs.replace(message, arrays=changes)
    return _ENCODER.encode(message)


class ToMany:
    """A message for many streams, encoded once for all those that have carried the same before."""

    def __init__(self, message: Down) -> None:
        self.message = message
        self._encoded: dict[int, tuple[WithArrays | None, bytes]] = {}

    def encode(self, sent: DeltaCache) -> bytes:
        before = sent.last(self.message)
        if id(before) not in self._encoded:
            self._encoded[id(before)] = before, encode(self.message, sent)
        sent.keep(self.message)
        return self._encoded[id(before)][1]


def in_parts(data: bytes) -> list[bytes]:
    """What is sent for a node's message: itself or, if it is long, its parts."""
    if len(data) <= PART_BYTES:
        return [data]
    starts = range(0, len(data), PART_BYTES)
    return [encode(Part(data[i : i + PART_BYTES], i + PART_BYTES < len(data))) for i in starts]


def _decode(decoder: Decoder[MessageT], data: bytes, taken: DeltaCache | None = None) -> MessageT:
    """A message from bytes, given what was ``taken`` before; raises :class:`WireError` where they are none."""
    try:
        message = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"{len(data)} bytes that are no message of this protocol: {one_line(str(error))}.") from error
    if isinstance(message, WithArrays):
        sent: Any = message.arrays
        if isinstance(sent, Changes):
            before = (taken or DeltaCache()).base(message, sent.since)
            arrays = sent.made_to(before) if before else ()
        else:
            arrays = tuple([array.unpacked() for array in sent])
        force_setattr(message, "arrays", arrays)
    return message


decode_up, decode_down = partial(_decode, _UP), partial(_decode, _DOWN)
