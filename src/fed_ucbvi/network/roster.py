"""Who takes part in a secure sum: what every node has signed for the round, and whether it may be believed.

The server relays what nodes sign, so it could put its own keys in their place, leave nodes out, send them different
broadcasts, or let one of them play alone. Hence a node answers a roster only if everything in it is signed, with
the key of a certificate of the federation's authority, for this run, this round and the broadcast that it received.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.signatures import FOR_NODES, check_party_certificate, issued_by
from fed_ucbvi.network.certificates import TLSFiles, check_name
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.federation_spec import MIN_NODES
from fed_ucbvi.network.messages import COUNTS, REWARDS, Denial, Ready, Roster, RosterEntry, Start, encode
from fed_ucbvi.network.secure_sums import VERSION, framed, pair_key

_SIGNATURE = ec.ECDSA(hashes.SHA256())


def new_episodes(roster: Roster) -> dict[str, dict[str, int]]:
    """By part and node, how many episodes of each of its agents are in no confirmed sum."""
    ready = {entry.name: entry.ready for entry in roster.entries}
    return {
        COUNTS: {name: said.episodes + roster.length for name, said in ready.items()},
        REWARDS: {name: said.uncredited + roster.length for name, said in ready.items()},
    }


class Company(NamedTuple):
    """With whom a node lets its numbers be added up.

    Attributes:
        least_episodes: new episodes without which a node does not count as a contributor.
        least_members: so many contributors a sum must have.
        members: names, or fingerprints of certificates, of the nodes that count; None: all.
    """

    least_episodes: int = 1
    least_members: int = MIN_NODES
    members: Collection[str] | None = None

    def counts(self, one: RosterEntry | Denial) -> bool:
        known = self.members
        return known is None or one.name in known or certificate_fingerprint(one.certificate) in known

    def contributors(self, roster: Roster, part: str) -> int:
        """How many nodes that count have enough new episodes."""
        new = new_episodes(roster)[part]
        return sum(self.counts(entry) and new[entry.name] >= self.least_episodes for entry in roster.entries)

    def tells_rewards(self, roster: Roster) -> bool:
        """Whether enough contributors tell their rewards; of fewer one could be known."""
        telling = tuple(entry for entry in roster.entries if entry.ready.rewards)
        return self.contributors(replace(roster, entries=telling), REWARDS) >= self.least_members


ANYONE = Company()


@lru_cache(2)
def fingerprint(roster: Roster) -> bytes:
    """The digest of the whole roster."""
    return hashlib.sha256(framed(VERSION, encode(roster))).digest()


def binding_of(welcome: bytes, start: Start) -> bytes:
    """What a node was sent: a digest of run, epoch and support, the round, the broadcast, and what is judged.

    Were the support, by which numbers are listed, another for one node, its numbers would stand where nobody else
    has any.
    """
    broadcast = start.arrays
    about = (start.round, start.playing, *start.judged)
    arrays = [part for a in broadcast for part in (f"{a.dtype.str} {a.shape}".encode(), a.tobytes())]
    return hashlib.sha256(framed(VERSION, welcome, " ".join(map(str, about)).encode(), *arrays)).digest()


def make_roster(
    number: int, length: int, entries: Sequence[RosterEntry], denials: Sequence[Denial] = (), **asked: bool
) -> Roster:
    return Roster(number, length, tuple(sorted(entries, key=lambda entry: entry.name)), tuple(denials), **asked)


class Authority:
    """Whose certificates count: ``data`` is the authority's as in ``ca.crt``."""

    def __init__(self, data: bytes) -> None:
        self._certificates = x509.load_pem_x509_certificates(data)
        self._key_of = lru_cache(1024)(self._read_key)

    def check(self, one: RosterEntry | Denial, run: str, number: int, at: datetime.datetime | None = None) -> None:
        """Raise unless a node certified now, or ``at`` a time, has signed an entry for this round, or a denial."""
        name = check_name(one.name)
        if isinstance(one, Denial):
            said = _denial(run, name, one.round, one.roster)
            signature = one.signature
        else:
            said = _statement(one, run, number)
            signature = one.ready.signature
        key, begins, ends = self._key_of(name, one.certificate)
        if not begins <= (at or datetime.datetime.now(datetime.UTC)) <= ends:
            raise InputError(f"the certificate of '{name}' in the server's roster is out of date.")
        try:
            key.verify(signature, said, _SIGNATURE)
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


def _statement(entry: RosterEntry, run: str, number: int) -> bytes:
    ready = entry.ready
    new = ready.episodes, ready.uncredited, *ready.since
    about = "ready", number, entry.first_agent, entry.agents, *new, int(ready.rewards)
    said = " ".join(map(str, about)).encode()
    return framed(VERSION, run.encode(), entry.name.encode(), said, ready.binding, ready.key)


def _denial(run: str, name: str, number: int, roster: bytes) -> bytes:
    return framed(VERSION, run.encode(), name.encode(), f"did not answer {number}".encode(), roster)


def certificate_fingerprint(data: bytes) -> str:
    """SHA-256 of a certificate, by which ``join --members`` may name a node."""
    return hashlib.sha256(data).hexdigest()


def der_of(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)


class Credentials:
    """A node's own keys: that of its certificate, and the one of its last :class:`Ready`, which is never on disk."""

    def __init__(self, name: str, first_agent: int, agents: int, run: str, tls_files: TLSFiles) -> None:
        authority, certificate, key = tls_files.read()
        try:
            self.authority = Authority(authority)
            self._certificate = der_of(certificate)
            signer = serialization.load_pem_private_key(key, None)
        except ValueError as error:
            raise InputError(f"the certificate of '{name}' cannot be read: {error}.") from error
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise InputError(f"the key of '{name}' is not one that 'fed-ucbvi certs' makes; secure sums need such.")
        self._name = name
        self._agents = (first_agent, agents)
        self._run = run
        self._signer = signer
        self._key: X25519PrivateKey | None = None
        self._entry: RosterEntry | None = None

    def ready(
        self, number: int, binding: bytes, episodes: tuple[int, int], since: tuple[int, int], *, rewards: bool
    ) -> Ready:
        """Sign that this node is ready, with a new key; what was signed before is of no use any more."""
        self._key = X25519PrivateKey.generate()
        ready = Ready(binding, *episodes, since, rewards, self._key.public_key().public_bytes_raw(), b"")
        entry = RosterEntry(self._name, *self._agents, self._certificate, ready)
        signature = self._signer.sign(_statement(entry, self._run, number), _SIGNATURE)
        self._entry = replace(entry, ready=replace(ready, signature=signature))
        return self._entry.ready

    def denial(self, number: int, roster: bytes) -> bytes:
        """The signature under "I did not answer this roster"; the caller knows that it is true."""
        return self._signer.sign(_denial(self._run, self._name, number, roster), _SIGNATURE)

    def pairs(self, roster: Roster, agents: int, company: Company = ANYONE) -> dict[str, bytes]:
        """The keys shared with every other node of a roster of a run with so many agents, by name.

        Raises:
            DeclinedError: if too few contribute to the sum.
            InputError: if no honest server would send this roster.
        """
        names = [entry.name for entry in roster.entries]
        if not roster.parts:
            raise InputError("the server's roster asks for nothing.")
        if names != sorted(set(names)):
            raise InputError("the server's roster names a node twice, or is out of order.")
        key = self._key
        own = self._entry
        if key is None or own is None or own not in roster.entries:
            raise InputError("the server's roster does not have what this node has signed.")
        end = 0
        for first, count in sorted((entry.first_agent, entry.agents) for entry in roster.entries):
            if count < 1 or first < end or first + count > agents:
                raise InputError("the server's roster has an agent twice, or agents that are not in the run.")
            end = first + count
        if any(entry.ready.binding != own.ready.binding for entry in roster.entries):
            raise InputError(
                "the server has sent different broadcasts to different nodes, or of another round; this node answers "
                "no more."
            )
        others = [entry for entry in roster.entries if entry.name != self._name]
        for entry in others:
            self.authority.check(entry, self._run, roster.round)
        least, needed, _ = company
        if (count := min(company.contributors(roster, part) for part in roster.parts)) < needed:
            raise DeclinedError(
                f"{count} nodes that count would contribute {least} new episodes or more, and {needed} are needed, "
                "so that no node's numbers stand out"
            )
        digest = fingerprint(roster)
        return {
            entry.name: pair_key(key, entry.ready.key, self._run, digest, (self._name, entry.name))
            for entry in others
        }
