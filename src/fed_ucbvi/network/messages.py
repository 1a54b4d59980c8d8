"""The messages of the federation as plain values, and their way to bytes and back.

Down (server to node): :class:`Welcome`, :class:`Refusal`, :class:`Start`, :class:`Continue`, :class:`Stop`,
:class:`Roster`, :class:`Query`, :class:`End`. Up (node to server): :class:`Hello`, :class:`Ready`, :class:`Played`,
:class:`Report`, :class:`Fault`, and long ones of these in :class:`Part`. What they say is written in
``federation.proto``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.network.arrays import WireError, changes, pack, packed_bytes, unpack, with_changes
from fed_ucbvi.network.copies import Copies, Copy, Slot
from fed_ucbvi.network.schema import CLASSES, DecodeError

PROTOCOL = 6
"""Server and nodes must speak the same version."""
TO_BE_READ = frozenset({"version", "node", "run", "reason", "algorithm", "collection", "exchanging", "name"})
REWARDS_ALONE = (1 << 32) - 1
"""The number of a query that asks for nothing but rewards; it comes before the others of its round."""
PART_BYTES = 64 << 10
"""Longer messages of a node travel in parts, so that nobody can send more than this before it is known who it is."""
MAX_CHARACTERS = 500
"""Texts that end up in logs and on terminals are one line of printable characters, and not a long one."""


@dataclass(frozen=True)
class Hello:
    """Who is there, or who leaves the run for good."""

    protocol: int
    version: str
    node: str
    incarnation: bytes
    first_agent: int
    agents: int
    run: str
    leaving: bool = False


@dataclass(frozen=True)
class Welcome:
    """What everyone knows before the run."""

    protocol: int
    version: str
    run: str
    algorithm: str
    parameters: str
    states: int
    actions: int
    horizon: int
    agents: int
    episodes: int
    eps_p: float
    seed: int
    collection: str
    random_rewards: bool = False
    epoch: int = 0
    secure_sums: bool = False
    exchanging: str = ""
    may_exclude: bool = False
    grid_bits: int = 0
    earlier_visits: int = 0
    bins: str = ""


@dataclass(frozen=True)
class Ready:
    """Sizes, digest and units of the node's problem, after which rounds it can resume, its key for secure sums."""

    states: int
    actions: int
    horizon: int
    digest: bytes
    rounds: tuple[int, ...]
    key: bytes = b""
    signature: bytes = b""
    certificate: bytes = b""
    reward_offset: float = 0.0
    reward_scale: float = 1.0


@dataclass(frozen=True)
class Refusal:
    """The stream ends here, and why."""

    reason: str
    retry: bool


@dataclass(frozen=True)
class Start:
    """The broadcast of a round; play at most ``chunk`` episodes from number ``first`` on."""

    round: int
    base: int
    first: int
    most: int
    chunk: int
    arrays: tuple[Array, ...]


@dataclass(frozen=True)
class Continue:
    """Play further, until ``chunk`` episodes of the round have been played."""

    round: int
    chunk: int


@dataclass(frozen=True)
class Request:
    """An agent's request for synchronisation, at the (step, state, action) where it reached its budget."""

    agent: int
    step: int
    state: int
    action: int
    rule: int


@dataclass(frozen=True)
class Played:
    """How many episodes of the round were played, and the requests for synchronisation after the last of them.

    Under secure sums ``somebody`` replaces the requests: it says only that there was one.
    """

    round: int
    played: int
    requests: tuple[Request, ...]
    somebody: bool = False

    @property
    def asked(self) -> bool:
        """Whether any agent made a request."""
        return self.somebody or bool(self.requests)


@dataclass(frozen=True)
class Stop:
    """The round has ``length`` episodes."""

    round: int
    length: int


@dataclass(frozen=True)
class Seat:
    """A node in a roster: its agents, and its key for secure sums with its signature and its certificate."""

    name: str
    first_agent: int
    agents: int
    key: bytes
    signature: bytes
    certificate: bytes


@dataclass(frozen=True)
class Roster:
    """The nodes whose sum is asked for from now on; the epoch is the server's."""

    epoch: int
    seats: tuple[Seat, ...]


@dataclass(frozen=True)
class Query:
    """The question of one exchange. A synchronisation has E of them; numbers from E on are for the recommendation.

    ``rewards`` asks besides what the round paid and where its episodes began; the last array of the report says it.
    """

    round: int
    exchange: int
    arrays: tuple[Array, ...]
    rewards: bool = False


@dataclass(frozen=True)
class Report:
    """The answer to a query: one row for each agent, or one for all agents of a node where the server takes sums."""

    round: int
    exchange: int
    arrays: tuple[Array, ...]


@dataclass(frozen=True)
class Fault:
    """The node cannot continue, and why."""

    reason: str


@dataclass(frozen=True)
class Part:
    """A piece of a long message."""

    data: bytes
    more: bool


@dataclass(frozen=True)
class End:
    """The run is over: its numbers of rounds and episodes, and the recommended policy as a file."""

    round: int
    episodes: int
    policy: bytes


WithArrays = Start | Query | Report
_WITH_ARRAYS = (Start, Query, Report)
Up = Hello | Ready | Played | Report | Fault | Part
Down = Welcome | Refusal | Start | Continue | Stop | Roster | Query | End

_UP: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Hello, Ready, Played, Report, Fault, Part)}
_DOWN: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Welcome, Refusal, Start, Continue, Stop, Roster, Query, End)
}
_LISTS = frozenset({"arrays", "rounds", "requests", "seats"})
_PLAIN = {
    kind: tuple(field.name for field in dataclasses.fields(kind) if field.name not in _LISTS)
    for kind in (*_UP.values(), *_DOWN.values(), Request, Seat)
}
"""Fields that are numbers, texts or bytes."""
_TEXTS = {kind: tuple(name for name in fields if name in TO_BE_READ) for kind, fields in _PLAIN.items()}
PartT = TypeVar("PartT", Request, Seat)
_SIDES = {
    kind: (CLASSES[side], name) for side, kinds in (("Up", _UP), ("Down", _DOWN)) for name, kind in kinds.items()
}
"""The class of a message's envelope, and its name there."""


def one_line(text: str) -> str:
    r"""A text from elsewhere, fit to be shown.

    >>> one_line("all is well\n\x1b[31mroot: logged in")
    'all is well??[31mroot: logged in'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_CHARACTERS])


def encode(message: Up | Down, sent: Copies | None = None) -> bytes:
    """A message as bytes; with what was ``sent`` before on the stream, only what has changed since."""
    kind = type(message)
    side, name = _SIDES[kind]
    envelope = side()
    content = getattr(envelope, name)
    content.SetInParent()
    for field in _PLAIN[kind]:
        setattr(content, field, getattr(message, field))
    if isinstance(message, _WITH_ARRAYS):
        _put_arrays(message, content, sent)
    elif isinstance(message, Ready):
        content.rounds.extend(message.rounds)
    elif isinstance(message, Played):
        _put_parts(message.requests, content.requests)
    elif isinstance(message, Roster):
        _put_parts(message.seats, content.seats)
    data: bytes = envelope.SerializeToString()
    return data


def _put_parts(parts: tuple[Request, ...] | tuple[Seat, ...], content: Any) -> None:
    for part in parts:
        content.add(**dataclasses.asdict(part))


class ToMany:
    """A message for many streams, encoded once for all those that have carried the same before."""

    def __init__(self, message: Start | Query) -> None:
        self.message = message
        self._slot, self._copy = _slot(message), Copy(message.round, message.arrays)
        self._encoded: dict[int, tuple[Copy | None, bytes]] = {}

    def encode(self, sent: Copies) -> bytes:
        """The same as :func:`encode`."""
        before = sent.last(self._slot)
        if id(before) not in self._encoded:
            self._encoded[id(before)] = before, encode(self.message, sent)
        sent.keep(self._slot, self._copy)
        return self._encoded[id(before)][1]


def in_parts(data: bytes) -> list[bytes]:
    """What is sent for a node's message: itself or, if it is long, its parts."""
    if len(data) <= PART_BYTES:
        return [data]
    starts = range(0, len(data), PART_BYTES)
    return [encode(Part(data[i : i + PART_BYTES], i + PART_BYTES < len(data))) for i in starts]


def _put_arrays(message: WithArrays, content: Any, sent: Copies | None) -> None:
    """Write the arrays of a message that is sent now or, if that is shorter, what has changed and since when."""
    if sent is not None:
        slot = _slot(message)
        before = sent.to_differ_from(slot, message.arrays)
        sent.keep(slot, Copy(message.round, message.arrays))
        if before is not None:
            changed, data = changes(message.arrays, before.arrays)
            if len(changed) + len(data) < sum([packed_bytes(array) for array in message.arrays]):
                content.since, content.changed, content.data = before.round, changed, data
                return
    for array in message.arrays:
        pack(array, content.arrays.add())


def _slot(message: WithArrays) -> Slot:
    """Messages of one slot follow each other, round after round."""
    return type(message), 0 if isinstance(message, Start) else message.exchange


def keep_taken(message: Up | Down, taken: Copies) -> None:
    """Remember a message that was asked for; what comes unasked is not, or it would fill the memory."""
    if isinstance(message, _WITH_ARRAYS):
        taken.keep(_slot(message), Copy(message.round, message.arrays))


def decode_up(data: bytes, taken: Copies | None = None) -> Up:
    """A node's message from bytes, given what was ``taken`` before; raises :class:`WireError` where they are none."""
    message: Up = _decode("Up", _UP, data, taken)
    return message


def decode_down(data: bytes, taken: Copies | None = None) -> Down:
    """The server's message from bytes, likewise."""
    message: Down = _decode("Down", _DOWN, data, taken)
    return message


def _decode(side: str, kinds: dict[str, type[Any]], data: bytes, taken: Copies | None) -> Any:
    try:
        envelope = CLASSES[side].FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes that are no message of this protocol.") from error
    name = envelope.WhichOneof("kind")
    if name is None:
        raise WireError(f"a message of no known kind ({len(data)} bytes).")
    kind, content = kinds[name], getattr(envelope, name)
    values = {field: getattr(content, field) for field in _PLAIN[kind]}
    for field in _TEXTS[kind]:
        values[field] = one_line(values[field])
    if kind in _WITH_ARRAYS:
        values["arrays"] = _arrays(kind, content, taken)
    elif kind is Ready:
        values["rounds"] = tuple(content.rounds)
    elif kind is Played:
        values["requests"] = _parts(Request, content.requests)
    elif kind is Roster:
        values["seats"] = _parts(Seat, content.seats)
    return kind(**values)


def _parts(kind: type[PartT], content: Any) -> tuple[PartT, ...]:
    return tuple(kind(*(getattr(one, name) for name in _PLAIN[kind])) for one in content)


def _arrays(kind: type[Any], content: Any, taken: Copies | None) -> tuple[Array, ...]:
    """The arrays of a message; none if it is a late copy of an earlier one, of which only the key is read."""
    since = content.since
    if not since:
        return tuple([unpack(array) for array in content.arrays])
    if content.arrays:
        raise WireError("whole arrays and changes in one message.")
    slot = kind, 0 if kind is Start else content.exchange
    before = (taken or Copies()).since(slot, content.round, since).arrays
    return with_changes(before, content.changed, content.data) if before else ()
