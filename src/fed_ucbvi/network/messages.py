"""The messages of the federation as plain values, and their way to bytes and back.

Down (server to node): :class:`Welcome`, :class:`Refusal`, :class:`Start`, :class:`Continue`, :class:`Stop`,
:class:`Roster`, :class:`Query`, :class:`End`. Up (node to server): :class:`Hello`, :class:`Ready`, :class:`Played`,
:class:`Report`, :class:`Fault`, and long ones of these in :class:`Part`. What they say is written in
``federation.proto``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from fed_ucbvi.algorithms.base import Array
from fed_ucbvi.network.arrays import WireError, pack, unpack
from fed_ucbvi.network.copies import Copies
from fed_ucbvi.network.schema import CLASSES, DecodeError

PROTOCOL = 4
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
    """Who is there."""

    protocol: int
    version: str
    node: str
    incarnation: bytes
    first_agent: int
    agents: int
    run: str


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


@dataclass(frozen=True)
class Ready:
    """The sizes of the node's problem, its digest, after which rounds it can resume, and its key for secure sums."""

    states: int
    actions: int
    horizon: int
    digest: bytes
    rounds: tuple[int, ...]
    key: bytes = b""
    signature: bytes = b""
    certificate: bytes = b""


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

    ``rewards`` asks what the round paid besides; the answer is the last array of the report.
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
Up = Hello | Ready | Played | Report | Fault | Part
Down = Welcome | Refusal | Start | Continue | Stop | Roster | Query | End

_UP: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in (Hello, Ready, Played, Report, Fault, Part)}
_DOWN: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Welcome, Refusal, Start, Continue, Stop, Roster, Query, End)
}
_FIELDS = {
    kind: tuple(field.name for field in dataclasses.fields(kind))
    for kind in (*_UP.values(), *_DOWN.values(), Request, Seat)
}
_PARTS: dict[str, type[Any]] = {"requests": Request, "seats": Seat}
"""Fields that are lists of messages."""


def one_line(text: str) -> str:
    r"""A text from elsewhere, fit to be shown.

    >>> one_line("all is well\n\x1b[31mroot: logged in")
    'all is well??[31mroot: logged in'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_CHARACTERS])


def encode(message: Up | Down, sent: Copies | None = None) -> bytes:
    """A message as bytes; with what was ``sent`` before on the stream, only what has changed since."""
    kind = type(message)
    name = kind.__name__
    content = {field: getattr(message, field) for field in _FIELDS[kind]}
    if isinstance(message, Start | Query | Report):
        content |= _changes(message, sent)
    for name_of_part, part in _PARTS.items():
        if name_of_part in content:
            content[name_of_part] = [
                CLASSES[part.__name__](**dataclasses.asdict(one)) for one in content[name_of_part]
            ]
    side = "Up" if name.lower() in _UP else "Down"
    data: bytes = CLASSES[side](**{name.lower(): CLASSES[name](**content)}).SerializeToString()
    return data


def in_parts(data: bytes) -> list[bytes]:
    """What is sent for a node's message: itself or, if it is long, its parts."""
    if len(data) <= PART_BYTES:
        return [data]
    starts = range(0, len(data), PART_BYTES)
    return [encode(Part(data[i : i + PART_BYTES], i + PART_BYTES < len(data))) for i in starts]


def _changes(message: WithArrays, sent: Copies | None) -> dict[str, Any]:
    """The arrays of a message that is sent now, and since when they are changes."""
    arrays = message.arrays
    if sent is None:
        return {"arrays": [pack(array) for array in arrays]}
    before = sent.to_differ_from(*_slot(message), arrays)
    sent.keep(*_slot(message), message.round, arrays)
    if before is None:
        return {"arrays": [pack(array) for array in arrays]}
    pairs = zip(arrays, before.arrays, strict=True)
    return {"arrays": [pack(array, old) for array, old in pairs], "since": before.round}


def _slot(message: WithArrays) -> tuple[str, int]:
    """Messages of one slot follow each other, round after round."""
    return type(message).__name__, 0 if isinstance(message, Start) else message.exchange


def keep_taken(message: Up | Down, taken: Copies) -> None:
    """Remember a message that was asked for; what comes unasked is not, or it would fill the memory."""
    if isinstance(message, Start | Query | Report):
        taken.keep(*_slot(message), message.round, message.arrays)


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
    values = {}
    for field in _FIELDS[kind]:
        value = getattr(content, field)
        if field == "arrays":
            value = _arrays(kind, content, taken or Copies())
        elif field in _PARTS:
            part = _PARTS[field]
            value = tuple(part(*(getattr(one, name) for name in _FIELDS[part])) for one in value)
        elif field == "rounds":
            value = tuple(value)
        elif field in TO_BE_READ:
            value = one_line(value)
        values[field] = value
    return kind(**values)


def _arrays(kind: type[Any], content: Any, taken: Copies) -> tuple[Array, ...]:
    """The arrays of a message; none if it is a late copy of an earlier one, of which only the key is read."""
    if not content.since:
        return tuple(unpack(array) for array in content.arrays)
    exchange = 0 if kind is Start else content.exchange
    before = taken.since(kind.__name__, exchange, content.round, content.since).arrays
    if not before:
        return ()
    if len(before) != len(content.arrays):
        raise WireError(f"changes of {len(content.arrays)} arrays, but there were {len(before)} before.")
    return tuple(unpack(array, old) for array, old in zip(content.arrays, before, strict=True))
