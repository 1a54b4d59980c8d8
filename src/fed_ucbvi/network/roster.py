"""Rosters of secure sums: the statements that nodes sign for a round, and the checks of a roster.

The server relays what nodes sign, so it could put its own keys in their place, leave nodes out, send them different
broadcasts, or let one of them play alone. Hence a node answers a roster only if everything in it is signed, with
the key of a certificate of the federation's authority, for this run, this round and the broadcast that it received.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import NameOID
from msgspec.msgpack import Encoder
from msgspec.structs import replace

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.signatures import FOR_NODES, check_party_certificate, issued_by
from fed_ucbvi.network.certificates import TLSFiles, check_name
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.federation_spec import MIN_NODES
from fed_ucbvi.network.messages import Ready, Roster, RosterEntry, Start, Welcome, encode
from fed_ucbvi.network.secure_sums import VERSION, framed, pair_key

_SIGNATURE = ec.ECDSA(hashes.SHA256())
_ENTRY = Encoder()
OWN_FIELDS: Mapping[str, tuple[str, ...]] = {
    "lockstep": ("base", "chunk", "confirmed"),
    "live": ("base", "chunk", "confirmed", "first", "most"),
}
"""By collection, the fields of a start that may differ between nodes: where a node resumes and how far it plays.

In a live collection the agents have played different numbers of episodes before a round.
"""


def welcome_digest(welcome: Welcome) -> bytes:
    """Digest of a welcome: of all that is said about the run.

    The epoch is left out. It is the time at which a server process was started, and a server that is started again in
    the middle of a round must be able to finish the sum of that round.
    """
    return hashlib.sha256(framed(VERSION, encode(replace(welcome, epoch=0)))).digest()


def broadcast_digest(welcome: bytes, start: Start, collection: str) -> bytes:
    """Digest of a welcome (its digest) and of a broadcast: of all that nodes whose numbers are added up must share.

    It covers every field of the start but those of :data:`OWN_FIELDS`.
    """
    shared = replace(start, **dict.fromkeys(OWN_FIELDS[collection], 0))
    return hashlib.sha256(framed(VERSION, welcome, encode(shared))).digest()


@lru_cache(2)
def fingerprint(roster: Roster) -> bytes:
    """Digest of a whole roster."""
    return hashlib.sha256(framed(VERSION, encode(roster))).digest()


def make_roster(number: int, entries: Sequence[RosterEntry]) -> Roster:
    """Roster of a round with the entries in the order of their names."""
    return Roster(number, tuple(sorted(entries, key=lambda entry: entry.name)))


class SumPolicy(NamedTuple):
    """Minimum number of contributors to a sum, and the nodes that count as contributors.

    Attributes:
        least_episodes: number of episodes of the round from which on a node is a contributor.
        least_members: smallest number of contributors.
        members: names, or fingerprints of certificates, of the nodes that count; None: all.
    """

    least_episodes: int = 1
    least_members: int = MIN_NODES
    members: Collection[str] | None = None

    def counts(self, entry: RosterEntry) -> bool:
        """True if a node may be a contributor."""
        known = self.members
        return known is None or entry.name in known or certificate_fingerprint(entry.certificate) in known

    def contributors(self, entries: Sequence[RosterEntry]) -> int:
        """Number of contributors among these entries."""
        return sum(self.counts(entry) and entry.ready.episodes >= self.least_episodes for entry in entries)

    def sums_rewards(self, roster: Roster) -> bool:
        """True if rewards are part of the sum: if there are enough contributors that report them.

        All nodes of a run decide alike, so a node's own list of members does not matter here.
        """
        everyone = self._replace(members=None)
        return everyone.contributors(_with_rewards(roster)) >= self.least_members

    def check(self, roster: Roster) -> None:
        """Raise :class:`DeclinedError` unless every part of the sum has enough contributors."""
        parts = [roster.entries]
        if self.sums_rewards(roster):
            parts.append(_with_rewards(roster))
        contributors = min(self.contributors(entries) for entries in parts)
        if contributors < self.least_members:
            raise DeclinedError(
                f"{contributors} nodes that count would contribute {self.least_episodes} episodes or more, and "
                f"{self.least_members} are needed, so that no node's numbers stand out"
            )


DEFAULT_SUM_POLICY = SumPolicy()


def _with_rewards(roster: Roster) -> tuple[RosterEntry, ...]:
    """Entries of the nodes that report rewards."""
    return tuple(entry for entry in roster.entries if entry.ready.rewards)


class Authority:
    """Whose certificates count: ``data`` is the authority's as in ``ca.crt``."""

    def __init__(self, data: bytes) -> None:
        self._certificates = x509.load_pem_x509_certificates(data)
        self._key_of = lru_cache(1024)(self._read_key)

    def check(self, entry: RosterEntry, run: str, at: datetime.datetime | None = None) -> None:
        """Raise unless a node that is certified now, or ``at`` a time, has signed this entry."""
        name = check_name(entry.name)
        key, begins, ends = self._key_of(name, entry.certificate)
        if not begins <= (at or datetime.datetime.now(datetime.UTC)) <= ends:
            raise InputError(f"the certificate of '{name}' in the server's roster is out of date.")
        try:
            key.verify(entry.ready.signature, _statement(entry, run), _SIGNATURE)
        except InvalidSignature:
            raise InputError(f"the server's roster has of '{name}' what it has not signed for this round.") from None

    def _read_key(
        self, name: str, data: bytes
    ) -> tuple[ec.EllipticCurvePublicKey, datetime.datetime, datetime.datetime]:
        """The key of a node's certificate and when it is good; raise unless it is that node's, of this authority."""
        try:
            certificate = x509.load_der_x509_certificate(data)
            names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            key = certificate.public_key()
        except (ValueError, UnsupportedAlgorithm) as error:
            raise InputError(f"'{name}' is in the server's roster without a node's certificate.") from error
        if (
            not any(issued_by(certificate, authority) for authority in self._certificates)
            or [one.value for one in names] != [name]
            or not isinstance(key, ec.EllipticCurvePublicKey)
        ):
            raise InputError(
                f"'{name}' is in the server's roster with a certificate that is not this node's, or not of this "
                "federation's authority."
            )
        try:
            check_party_certificate(certificate, FOR_NODES)
        except InputError as error:
            raise InputError(
                f"'{name}' is in the server's roster with a certificate that no node has: {error}"
            ) from error
        return key, certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _statement(entry: RosterEntry, run: str) -> bytes:
    """Bytes that a node signs: the whole entry but the certificate and the signature itself."""
    unsigned = replace(entry, certificate=b"", ready=replace(entry.ready, signature=b""))
    return framed(VERSION, run.encode(), _ENTRY.encode(unsigned))


def certificate_fingerprint(data: bytes) -> str:
    """SHA-256 of a certificate, by which ``join --members`` may name a node."""
    return hashlib.sha256(data).hexdigest()


def der_of(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)


class Credentials:
    """A node's own certificate and keys, with which it signs entries of rosters."""

    def __init__(self, name: str, first_agent: int, agents: int, run: str, tls_files: TLSFiles) -> None:
        authority, certificate, key = tls_files.read()
        try:
            self.authority = Authority(authority)
            self.certificate = der_of(certificate)
            signer = serialization.load_pem_private_key(key, None)
        except ValueError as error:
            raise InputError(f"the certificate of '{name}' cannot be read: {error}.") from error
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise InputError(f"the key of '{name}' is not one that 'fed-ucbvi certs' makes; secure sums need such.")
        self.name = name
        self.run = run
        self._first_agent = first_agent
        self._agents = agents
        self._signer = signer

    def sign(self, number: int, digest: bytes, episodes: int, *, rewards: bool) -> tuple[RosterEntry, bytes]:
        """A signed entry for a round with a new one-time key, and the private part of that key."""
        key = X25519PrivateKey.generate()
        ready = Ready(
            round=number,
            digest=digest,
            episodes=episodes,
            rewards=rewards,
            key=key.public_key().public_bytes_raw(),
            signature=b"",
        )
        entry = RosterEntry(
            name=self.name,
            first_agent=self._first_agent,
            agents=self._agents,
            certificate=self.certificate,
            ready=ready,
        )
        signature = self._signer.sign(_statement(entry, self.run), _SIGNATURE)
        return replace(entry, ready=replace(ready, signature=signature)), key.private_bytes_raw()

    def pairs(self, roster: Roster, own: RosterEntry, key: bytes, agents: int) -> dict[str, bytes]:
        """The keys shared with every other node of a roster of a run with so many agents, by name.

        Args:
            roster: the roster.
            own: the entry that this node has signed for the round.
            key: the private part of the one-time key of that entry.
            agents: number of agents of the run.

        Raises:
            InputError: if no honest server would send this roster.
        """
        names = [entry.name for entry in roster.entries]
        if names != sorted(set(names)):
            raise InputError("the server's roster names a node twice, or is out of order.")
        if own not in roster.entries or own.ready.round != roster.round:
            raise InputError("the server's roster does not have what this node has signed.")
        end = 0
        for first, count in sorted((entry.first_agent, entry.agents) for entry in roster.entries):
            if count < 1 or first < end or first + count > agents:
                raise InputError("the server's roster has an agent twice, or agents that are not in the run.")
            end = first + count
        if any(entry.ready.digest != own.ready.digest for entry in roster.entries):
            raise InputError(
                "the server has sent different broadcasts to different nodes, or of another round; this node answers "
                "no more."
            )
        if any(entry.ready.round != roster.round for entry in roster.entries):
            raise InputError("the server's roster has what nodes have signed for another round.")
        others = [entry for entry in roster.entries if entry.name != self.name]
        for entry in others:
            self.authority.check(entry, self.run)
        private = X25519PrivateKey.from_private_bytes(key)
        digest = fingerprint(roster)
        return {
            entry.name: pair_key(private, entry.ready.key, self.run, digest, (self.name, entry.name))
            for entry in others
        }
