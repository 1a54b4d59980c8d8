"""The messages of the federation, each declared once: as plain values here, as msgpack on the wire.

One bidirectional stream a node. A node hosts one or more agents, numbered first_agent, first_agent + 1, ...; arrays
that go up have a leading axis for them. The server asks, the node answers; docs/protocol.md has the order.

Down is from server to node, up from node to server. Two more calls take an empty message and give bytes: Certificate,
the server's certificate (PEM), and Policy, the file that an End has.

A message is an array of its name and its fields. Decoding is strict: a field of another type, a number below zero, a
field too many or a list longer than any honest one is an error, found before memory is taken for what is claimed.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import force_setattr

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.core import text as core_text
from fed_ucbvi.network.arrays import Natural, PackedArray, WireError

PROTOCOL = 15
"""Server and nodes must speak the same version."""
SHOWN = frozenset({"version", "node", "run", "reason", "name"})
"""Texts that end up in logs and on terminals: one line of printable characters, and not a long one."""
MAX_CHARACTERS = 500
REWARDS_ALONE = (1 << 32) - 1
"""The number of a query that asks for nothing but rewards; it precedes the others of its round."""
SIGNATURE = REWARDS_ALONE - 1
"""The number of the request to sign for a secure sum; it precedes the roster of its round."""
PART_BYTES = 64 << 10
"""Longer messages of a node travel in parts, so that nobody can send more than this before it is known who it is."""
MAX_ARRAYS = 64
MAX_ITEMS = 1 << 20
"""Arrays of a message; requests, rounds or entries of a roster in one."""

if TYPE_CHECKING:
    Arrays = tuple[Array, ...]
else:  # what the arrays of a message are on the wire
    Arrays = Annotated[tuple[PackedArray, ...], Meta(max_length=MAX_ARRAYS)]

ItemT = TypeVar("ItemT")
MessageT = TypeVar("MessageT")
Items = Annotated[tuple[ItemT, ...], Meta(max_length=MAX_ITEMS)]
Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
MAX_SIGNED_BYTES = 8192
Signed = Annotated[bytes, Meta(max_length=MAX_SIGNED_BYTES)]
"""A certificate or a signature."""


class _Message(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True):
    def __post_init__(self) -> None:
        for name in SHOWN.intersection(self.__struct_fields__):
            force_setattr(self, name, one_line(getattr(self, name)))


# ---------------------------------------------------------------------------------------------------- handshake


class Hello(_Message, frozen=True):
    """Up, first: who is there.

    The incarnation is drawn anew by every process, which numbers its streams; ``run`` is the one whose state the node
    holds.
    """

    protocol: Natural
    version: str
    node: str
    incarnation: Annotated[bytes, Meta(min_length=16, max_length=16)]
    first_agent: Natural
    agents: Natural
    run: str
    stream: Natural = 0


class Welcome(_Message, frozen=True):
    """Down: what everyone knows before the run.

    ``spec`` has the fields of its :class:`~fed_ucbvi.network.federation_spec.FederationSpec` that concern nodes, as
    JSON; ``bins`` is JSON, too. ``epoch`` grows with every server that resumes the run.
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
    at most ``most`` episodes, and answers with :class:`Played`. Without secure sums, ``confirmed`` is the last round
    whose report the server has used; -1: not even the logs. In round 0 nothing is played: nodes report their logs. In
    a run with promises ``playing`` is the kind of the policy (an index into
    :data:`~fed_ucbvi.results.round_record.PLAYING`), and ``judged`` has the numbers of incumbent and candidate.
    """

    round: Natural
    base: Natural
    first: Natural
    most: Natural
    chunk: Natural
    arrays: Arrays
    confirmed: Annotated[int, Meta(ge=-1)] = 0
    playing: Natural = 0
    judged: Items[Natural] = ()


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


class Played(_Message, frozen=True):
    """Up: how many episodes of the round were played, and the requests for synchronisation after the last of them.

    Under secure sums ``somebody`` replaces the requests: it is true if there was one. ``before`` is the number of
    episodes that a live node has counted in rounds that closed without it.
    """

    round: Natural
    played: Natural
    requests: Items[Request]
    somebody: bool = False
    before: Natural = 0

    @property
    def asked(self) -> bool:
        return self.somebody or bool(self.requests)


class Stop(_Message, frozen=True):
    """Down: the round has ``length`` episodes; what was played beyond them is taken back."""

    round: Natural
    length: Natural


# ------------------------------------------------------------------------------------------------------- secure sums


class Sign(_Message, frozen=True):
    """Down, under secure sums, after the last episode of a round: sign for the sum of this round."""

    round: Natural

    @property
    def exchange(self) -> int:
        return SIGNATURE


class Ready(_Message, frozen=True):
    """Up: a node's statement that it is ready to be summed with others, signed with the key of its certificate.

    Attributes:
        round: the round; 0 for logs.
        digest: digest of the welcome and of the broadcast of this round, as this node received them.
        episodes: number of episodes of this round of each of its agents; in round 0, those of its logs.
        rewards: True if the node reports rewards.
        key: an X25519 key for this round.
        signature: over these, the run, the node's name and its agents.
    """

    round: Natural
    digest: Bytes32
    episodes: Natural
    rewards: bool
    key: Bytes32
    signature: Signed

    @property
    def exchange(self) -> int:
        return SIGNATURE


class RosterEntry(_Message, frozen=True, tag=False):
    """A node in a roster: its agents, its certificate, and what it has signed for this round."""

    name: str
    first_agent: Natural
    agents: Natural
    certificate: Signed
    ready: Ready


class Roster(_Message, frozen=True):
    """Down, under secure sums: report this round, masked between the nodes of this roster."""

    round: Natural
    entries: Items[RosterEntry]

    @property
    def exchange(self) -> int:
        return 0


# ---------------------------------------------------------------------------------------------------------- reports


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

    One row for each agent, or one for all agents of a node where the server takes sums. Under secure sums it is the
    answer to a roster: the counts of the round, and what it paid as the last array, masked. Where models are
    exchanged, the one query is empty and the answer has transition counts.
    """

    round: Natural
    exchange: Natural
    arrays: Arrays


class Decline(_Message, frozen=True):
    """Up, under secure sums: the node does not sign for this round, or does not answer this roster, and why."""

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
Up = Hello | Joining | Played | Ready | Report | Decline | Fault | Part
Down = Welcome | Refusal | Start | Continue | Stop | Sign | Roster | Query | End
_UP: Decoder[Up] = Decoder(Up)
_DOWN: Decoder[Down] = Decoder(Down)
_ENCODER = Encoder(enc_hook=PackedArray.of)


def one_line(text: str) -> str:
    r"""A text from elsewhere as one printable line of limited length.

    >>> print(one_line("all is well\n\x1b[31mroot: logged in"))
    all is well \x1b[31mroot: logged in
    """
    return core_text.one_line(text[:MAX_CHARACTERS])[:MAX_CHARACTERS]


def encode(message: Up | Down) -> bytes:
    """A message as bytes."""
    return _ENCODER.encode(message)


def kind_of(data: bytes) -> str:
    """Name of a message's kind from its first bytes; empty where these are not the bytes of a message.

    >>> kind_of(encode(Stop(1, 2)))
    'Stop'
    """
    short_array = len(data) > 1 and data[0] >> 4 == 0x9
    short_text = len(data) > 1 and data[1] >> 5 == 0x5
    if not (short_array and short_text):
        return ""
    length = data[1] & 0x1F
    return data[2 : 2 + length].decode(errors="replace")


class ToMany:
    """A message for many streams, encoded once."""

    def __init__(self, message: Down) -> None:
        self.message = message

    @cached_property
    def data(self) -> bytes:
        """The message as bytes."""
        return encode(self.message)


def in_parts(data: bytes) -> list[bytes]:
    """The bytes to be sent for a node's message: itself or, if it is long, its parts."""
    if len(data) <= PART_BYTES:
        return [data]
    starts = range(0, len(data), PART_BYTES)
    return [encode(Part(data[i : i + PART_BYTES], i + PART_BYTES < len(data))) for i in starts]


def _decode(decoder: Decoder[MessageT], data: bytes) -> MessageT:
    """A message from bytes; raises :class:`WireError` where they are none."""
    try:
        message = decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"{len(data)} bytes that are no message of this protocol: {one_line(str(error))}.") from error
    if isinstance(message, WithArrays):
        packed: Any = message.arrays
        arrays = tuple([array.unpacked() for array in packed])
        force_setattr(message, "arrays", arrays)
    return message


decode_up = partial(_decode, _UP)
decode_down = partial(_decode, _DOWN)
