"""Transcripts: what server and nodes say to each other, line by line, so that each can show it afterwards.

``transcript.jsonl`` in the checkpoint of a server, or in the state folder of a node, has an object a line: time,
peer, which way, which message of which round, how many bytes, and their SHA-256. What agents have seen is not in it.
Under secure sums the signed Readies are, and every roster, with certificates. A line ends with ``before``, the digest
of the line before, and ``line``, its own: the SHA-256 of all that stands before it in the line, and a brace.

What is sent has its line with the operating system before it leaves. So a process that is killed has a line for all
that the others got from it; a machine that loses power may forget the last ones.
"""

from __future__ import annotations

import datetime
import hashlib
import mmap
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fed_ucbvi.core.errors import InputError, printable
from fed_ucbvi.core.files import naming
from fed_ucbvi.core.version import __version__
from fed_ucbvi.network.messages import Decline, Down, Hello, Played, Refusal, Roster, Start, Stop, Up, Welcome
from fed_ucbvi.network.roster import Authority, fingerprint

FILE = "transcript.jsonl"
FORMAT = "fed-ucbvi/transcript 1"
IN, OUT = "in", "out"
OPENED, CERTIFICATE, ROSTER, UNREADABLE, DOUBT = "opened", "certificate", "roster", "unreadable", "doubt"
"""Kinds of lines that are no message; others name events."""
OWN = b',"line":"'
SERVER = "server"
"""Whom a node's transcript is about."""
LEAVES = "leaves for good"


class Line(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line; what does not apply is left out.

    Attributes:
        kind: the message's name; or ``opened`` (a process has begun to write), ``certificate``, ``roster`` (what
            follows refers to it), ``doubt`` (the message with this digest may not have left), or what has happened.
        way: ``in`` or ``out``.
        peer: the node, in a server's transcript; ``server`` in a node's; in an ``opened`` line who writes.
        stream: the first digits of the digest of the hello that began the stream.
        digest: SHA-256 of the message as it was sent, of a certificate, or of a roster.
        episodes: played, or new under secure sums (without those of this round in lockstep); of a stop, how long the
            round is.
        confirmed: the round whose report the server says it has used, under secure sums in the sum over ``roster``.
        missed: the round whose roster the server says this node has not answered.
        roster: the digest of a roster.
        signed: a Ready or a roster with everything that its signatures need, or a certificate (DER).
        before: the digest of the line before.
    """

    time: str
    kind: str
    way: str = ""
    peer: str = ""
    stream: str = ""
    round: int = 0
    digest: str = ""
    bytes: int = 0
    episodes: int | None = None
    confirmed: int = 0
    missed: int = 0
    roster: str = ""
    run: str = ""
    format: str = ""
    note: str = ""
    signed: Any = None
    before: str = ""


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Line)


class Transcript:
    """The transcript in this process's folder, gone on with; without a folder nothing is kept.

    ``who`` is the node's name, none for the server; ``run`` is its id, if it is known.
    """

    def __init__(self, folder: Path | None, who: str = "", run: str = "") -> None:
        self._file: int | None = None
        self._before, self._pending = "", bytearray()
        self._hashed: tuple[Any, str] = b"", hashlib.sha256().hexdigest()
        self._roster = ""
        self._shown: set[str] = set()
        self.path = None if folder is None else folder / FILE
        if self.path is None:
            return
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = end = os.fstat(self._file).st_size
        if size:
            with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as data:
                end = data.rfind(b"\n") + 1
                self._before = _own(data[data.rfind(b"\n", 0, max(0, end - 1)) + 1 : end])
        os.ftruncate(self._file, end)
        cut = f"; {size - end} bytes of a line that was not finished are cut off" if size > end else ""
        self.add(OPENED, peer=who, run=run, format=FORMAT, note=f"fed-ucbvi {__version__}{cut}")

    def add(self, kind: str, **about: Any) -> None:
        """A line, to be written with the next :meth:`flush`."""
        if self._file is None:
            return
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        body = _ENCODER.encode(Line(now, kind, before=self._before, **about))
        self._before = hashlib.sha256(body).hexdigest()
        self._pending += body[:-1] + OWN + self._before.encode() + b'"}\n'

    def message(self, message: Up | Down | None, data: Any, **about: Any) -> None:
        """A message as it was sent; None if it cannot be read."""
        if self._file is None:
            return
        if data is not self._hashed[0]:  # what goes to many is hashed once
            self._hashed = data, hashlib.sha256(data).hexdigest()
        if isinstance(message, Roster):
            about["roster"] = self._show(message)
        kind = UNREADABLE if message is None else type(message).__name__
        self.add(kind, digest=self._hashed[1], bytes=len(data), **_about(message), **about)

    def _show(self, roster: Roster) -> str:
        """The digest of a roster, which is in the transcript once, as are its certificates."""
        whole = fingerprint(roster).hex()
        if whole != self._roster:
            self._roster = whole
            for one in roster.signed:
                digest = hashlib.sha256(one.certificate).hexdigest()
                if digest not in self._shown:
                    self._shown.add(digest)
                    self.add(CERTIFICATE, peer=one.name, digest=digest, signed=one.certificate)
            bare = _with_certificates(roster, lambda certificate: hashlib.sha256(certificate).digest())
            self.add(ROSTER, round=roster.round, digest=whole, signed=bare)
        return whole

    def flush(self) -> None:
        """Hand all lines to the operating system; what a full disk leaves out is kept for the next time."""
        while self._file is not None and self.path is not None and self._pending:
            with naming(self.path):
                del self._pending[: os.write(self._file, self._pending)]

    def close(self) -> None:
        with suppress(OSError):
            self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Conversation:
    """One stream in a transcript, from its hello on; at the other end is ``peer``, or whom the hello names."""

    def __init__(self, transcript: Transcript, peer: str = "") -> None:
        self._transcript, self.peer, self._stream = transcript, peer, ""

    def sent(self, message: Up | Down, data: Any) -> None:
        """A message is about to be sent. What cannot be written yet is written with what follows."""
        self._line(OUT, message, data)
        with suppress(OSError):
            self._transcript.flush()

    def doubt(self, data: Any) -> None:
        """What was to be sent last may have been, or not: the stream broke, or whoever sent it was stopped."""
        if self._stream:
            digest = hashlib.sha256(data).hexdigest()
            self._transcript.add(DOUBT, way=DOUBT, peer=self.peer, stream=self._stream, digest=digest)

    def received(self, message: Up | Down | None, data: Any) -> None:
        self._line(IN, message, data)

    def _line(self, way: str, message: Up | Down | None, data: Any) -> None:
        if isinstance(message, Hello) and not self._stream:
            self._stream, self.peer = hashlib.sha256(data).hexdigest()[:16], self.peer or message.node
        if self._stream:
            self._transcript.message(message, data, way=way, peer=self.peer, stream=self._stream)


NOBODY = Transcript(None)
"""Keeps nothing."""


def _about(message: Up | Down | None) -> dict[str, Any]:
    """What a line says of a message: nothing that an agent has seen, nor where one asked."""
    about: dict[str, Any] = {"round": getattr(message, "round", 0)}
    match message:
        case Start():
            about |= {"confirmed": message.confirmed, "roster": message.roster.hex(), "missed": message.missed}
        case Stop():
            about["episodes"] = message.length
        case Played():
            ready = message.ready
            about |= {
                "episodes": message.before + message.played if ready is None else ready.episodes,
                "signed": ready,
            }
        case Welcome():
            about |= {"run": message.run, "note": f"epoch {message.epoch}"}
        case Hello(leaving=True):
            about["note"] = LEAVES
        case Refusal():
            about["note"] = "come back later" if message.retry else "for good"
        case Decline():
            about["note"] = message.reason
    return about


def _with_certificates(roster: Roster, instead: Callable[[bytes], bytes]) -> Roster:
    """A roster with something else, such as its digest, in the place of every certificate."""
    entries = tuple(replace(one, certificate=instead(one.certificate)) for one in roster.entries)
    denials = tuple(replace(one, certificate=instead(one.certificate)) for one in roster.denials)
    return replace(roster, entries=entries, denials=denials)


def _own(line: bytes) -> str:
    """What a line says is its digest."""
    return line.rpartition(OWN)[2][:64].decode(errors="replace")


# --------------------------------------------------------------------------------------------------------- reading


_Ways = dict[str, list[tuple[int, Line]]]
"""The messages of a stream, in and out, with the numbers of their lines."""


class BrokenTranscriptError(InputError):
    """A transcript is not what was written, or two do not agree; ``path`` and ``line`` say where."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(f"{path}, line {line}: {what}.")
        self.path, self.line, self.what = path, line, what


def read_transcript(folder: Path, authority: Authority | None = None) -> list[Line]:
    """The lines of a transcript, a file or in a folder, checked; with an authority, what is signed in rosters too.

    Raises :class:`BrokenTranscriptError` at the first line that was altered, or before which some are missing.
    """
    path = _path(folder)
    if not path.is_file():
        raise InputError(f"{path} is not a file; servers with --checkpoint and nodes with --state have a transcript.")
    lines, before, run = list[Line](), "", ""
    certificates: dict[bytes, bytes] = {}
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            line = _checked(path, number, text)
            if line.before != before:
                raise BrokenTranscriptError(path, number, "lines before it are missing, or others than there were")
            if number == 1 and line.format != FORMAT:
                raise InputError(f"{path} is not a transcript that this version reads.")
            before, run = _own(text), line.run or run
            try:
                if line.kind == CERTIFICATE:
                    certificate = msgspec.convert(line.signed, bytes)
                    certificates[hashlib.sha256(certificate).digest()] = certificate
                elif line.kind == ROSTER:
                    _check_roster(line, run, certificates, authority)
            except (msgspec.ValidationError, InputError) as error:
                raise BrokenTranscriptError(path, number, str(error).rstrip(".")) from error
            lines.append(line)
    if not lines:
        raise BrokenTranscriptError(path, 1, "the transcript is empty")
    return lines


def _path(folder: Path) -> Path:
    return folder / FILE if folder.is_dir() else folder


def _checked(path: Path, number: int, text: bytes) -> Line:
    body, _, end = text.rpartition(OWN)
    if end != hashlib.sha256(body + b"}").hexdigest().encode() + b'"}\n':
        raise BrokenTranscriptError(path, number, "it was altered, or is cut off")
    try:
        return _DECODER.decode(body + b"}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BrokenTranscriptError(path, number, f"it is not a line of a transcript: {error}") from error


def _check_roster(line: Line, run: str, certificates: dict[bytes, bytes], authority: Authority | None) -> None:
    """Raise unless a roster has the digest that it is said to have; with an authority, unless it was signed."""
    roster = _with_certificates(msgspec.convert(line.signed, Roster), lambda digest: certificates.get(digest, b""))
    if fingerprint(roster).hex() != line.digest:
        raise InputError("the roster does not have the digest that stands with it")
    if authority is not None:
        at = datetime.datetime.fromisoformat(line.time)
        for one in roster.signed:
            authority.check(one, run, roster.round, at)


class Agreement(NamedTuple):
    """What two transcripts say of each other.

    Attributes:
        streams: that both have.
        messages: that one has sent and the other has received.
        lost: messages that were sent at the end of a stream that broke, and did not arrive.
    """

    streams: int
    messages: int
    lost: int


def compare_transcripts(one: Path, other: Path, authority: Authority | None = None) -> Agreement:
    """Raise unless a server's transcript and a node's agree: what arrived is what was sent, in order.

    On a stream that breaks the last messages may be lost on the way, and a node that is rejected before its hello
    is read has a stream that the server's transcript lacks. Everything else is told as a
    :class:`BrokenTranscriptError`.
    """
    read = [(_path(folder), read_transcript(folder, authority)) for folder in (one, other)]
    read.sort(key=lambda item: item[1][0].peer)
    (server, said), (node, heard) = read
    name = heard[0].peer
    if said[0].peer or not name:
        raise InputError("compare the transcript of a server with that of a node.")
    own, its = _by_stream(said, name), _by_stream(heard, SERVER)
    messages = lost = 0
    for stream in dict.fromkeys((*own, *its)):
        ours, theirs = own[stream], its[stream]
        if any(line.note == LEAVES for _, line in ours[IN][:1]):
            continue
        if not ours[IN] and all(line.kind == "Refusal" for _, line in theirs[IN]):
            continue
        for arrived, left in (_agreed(server, ours, node, theirs), _agreed(node, theirs, server, ours)):
            messages, lost = messages + arrived, lost + left
    return Agreement(sum(bool(ours[IN]) for ours in own.values()), messages, lost)


def _by_stream(lines: Iterable[Line], peer: str) -> dict[str, _Ways]:
    """Messages from and to a peer with the numbers of their lines, by stream and way."""
    found: dict[str, _Ways] = defaultdict(lambda: {IN: [], OUT: [], DOUBT: []})
    for number, line in enumerate(lines, 1):
        if line.way and line.peer == peer:
            found[line.stream][line.way].append((number, line))
    return found


def _agreed(sender: Path, sent: _Ways, receiver: Path, received: _Ways) -> tuple[int, int]:
    """How many messages arrived, and how many did not; raise unless the first ones that were sent did."""
    doubtful = {line.digest for _, line in sent[DOUBT]}
    left = iter(sent[OUT])
    for number, line in received[IN]:
        at, out = next((one for one in left if one[1].digest not in doubtful - {line.digest}), (0, None))
        if out is None or out.digest != line.digest:
            other = "has none" if out is None else f"has another, a {out.kind} of round {out.round}, in line {at}"
            what = f"it received a {line.kind} of round {line.round}, and {sender} {other}"
            raise BrokenTranscriptError(receiver, number, what)
    return len(received[IN]), len(sent[OUT]) - len(received[IN])


def in_words(lines: Iterable[Line]) -> Iterator[str]:
    arrows = {IN: "<- ", OUT: "-> "}
    for number, line in enumerate(lines, 1):
        parts = [
            f"round {line.round}" if line.round else "",
            "" if line.episodes is None else f"{line.episodes:,} episodes",
            f"confirms round {line.confirmed}" if line.confirmed else "",
            f"misses an answer in round {line.missed}" if line.missed else "",
            f"roster {line.roster[:8]}" if line.roster else "",
            f"{line.bytes:,} bytes" if line.bytes else "",
            f"SHA-256 {line.digest[:8]}" if line.digest else "",
            f"run {line.run}" if line.run else "",
            line.note,
        ]
        told = ", ".join(part for part in parts if part)
        who = f"{arrows.get(line.way, '')}{line.peer} " if line.peer else ""
        yield printable(f"{number} {line.time[:23]} {who}{line.kind}: {told}")


def as_data(lines: Iterable[Line]) -> dict[str, Any]:
    return {"lines": [msgspec.to_builtins(line) for line in lines]}
