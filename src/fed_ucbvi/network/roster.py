"""Who takes part in a secure sum: the nodes' keys, each signed with the key of the node's certificate.

The server relays the keys, so it could put its own in their place. Hence every node checks that each key is signed,
for this run and this name, by a certificate of the federation's authority that bears the name.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.signatures import issued_by
from fed_ucbvi.network.messages import Roster, Seat
from fed_ucbvi.network.names import check_name
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.secure_sums import KEY_BYTES, MIN_NODES, VERSION, framed, pair_key
from fed_ucbvi.network.transport import TLSFiles

with needed("cryptography"):
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MAX_BYTES = 8192
"""Of a certificate or a signature in a roster."""
_SIGNATURE = ec.ECDSA(hashes.SHA256())


class Authority:
    """Whose certificates count.

    Args:
        data: the authority's certificate as in ``ca.crt``.
    """

    def __init__(self, data: bytes) -> None:
        self._certificates = x509.load_pem_x509_certificates(data)

    def check(self, seat: Seat, run: str) -> None:
        """Raise unless the key in this entry is signed for this run by a certified node of this name."""
        name = check_name(seat.name)
        if len(seat.key) != KEY_BYTES or max(len(seat.certificate), len(seat.signature)) > MAX_BYTES:
            raise InputError(f"'{name}' has no key for secure sums.")
        try:
            certificate = x509.load_der_x509_certificate(seat.certificate)
            names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (ValueError, x509.ExtensionNotFound) as error:
            raise InputError(f"the key of '{name}' for secure sums comes without a node's certificate.") from error
        now = datetime.datetime.now(datetime.UTC)
        if (
            not any(issued_by(certificate, authority) for authority in self._certificates)
            or not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
            or [entry.value for entry in names] != [name]
            or ExtendedKeyUsageOID.CLIENT_AUTH not in usage
        ):
            raise InputError(
                f"the key of '{name}' for secure sums comes with a certificate that is not this node's, not of this "
                "federation's authority, or out of date."
            )
        key = certificate.public_key()
        try:
            if not isinstance(key, ec.EllipticCurvePublicKey):
                raise InvalidSignature
            key.verify(seat.signature, _statement(run, name, seat.key), _SIGNATURE)
        except InvalidSignature:
            raise InputError(f"the key of '{name}' for secure sums is not signed by it for this run.") from None


def _statement(run: str, name: str, key: bytes) -> bytes:
    """What a node signs."""
    return framed(VERSION, run.encode(), name.encode(), key)


def fingerprint(roster: Roster) -> bytes:
    """A hash of who takes part, with which agents and keys, and of the server's epoch."""
    parts = (f"{seat.name} {seat.first_agent} {seat.agents} {seat.key.hex()}".encode() for seat in roster.seats)
    return hashlib.sha256(framed(VERSION, str(roster.epoch).encode(), *parts)).digest()


def make_roster(epoch: int, seats: Sequence[Seat]) -> Roster:
    """A roster in order of names."""
    return Roster(epoch, tuple(sorted(seats, key=lambda seat: seat.name)))


class Credentials:
    """A node's own keys: that of its certificate, and one for secure sums that lives as long as the process.

    A node that is started again has another key, so no mask outlives the process that made it; the roster changes,
    and the synchronisation that was under way is repeated.
    """

    def __init__(self, name: str, tls_files: TLSFiles) -> None:
        authority, certificate, key = tls_files.read()
        try:
            self._authority = Authority(authority)
            self._certificate = x509.load_pem_x509_certificate(certificate)
            signer = serialization.load_pem_private_key(key, None)
        except ValueError as error:
            raise InputError(f"the certificate of '{name}' cannot be read: {error}.") from error
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise InputError(f"the key of '{name}' is not one that 'fed-ucbvi certs' makes; secure sums need such.")
        self._name, self._signer = name, signer
        self._key = X25519PrivateKey.generate()

    def seat(self, run: str, first_agent: int, agents: int) -> Seat:
        """This node in the roster of a run."""
        key = self._key.public_key().public_bytes_raw()
        signature = self._signer.sign(_statement(run, self._name, key), _SIGNATURE)
        certificate = self._certificate.public_bytes(serialization.Encoding.DER)
        return Seat(self._name, first_agent, agents, key, signature, certificate)

    def pairs(self, roster: Roster, run: str, agents: int, *, all_of_them: bool) -> dict[str, bytes]:
        """The keys shared with every other node of a roster, by name; raise unless the roster is right.

        Args:
            roster: as the server relays it.
            run: the run's id.
            agents: M.
            all_of_them: whether all M agents must be on it.
        """
        names = [seat.name for seat in roster.seats]
        if names != sorted(set(names)):
            raise InputError("the server's roster for secure sums is out of order.")
        own = [seat for seat in roster.seats if seat.name == self._name]
        if [seat.key for seat in own] != [self._key.public_key().public_bytes_raw()]:
            raise InputError("the server's roster for secure sums does not have this node's own key.")
        if len(names) < MIN_NODES:
            raise InputError(f"secure sums need {MIN_NODES} nodes; the server's roster has {len(names)}.")
        seated = sorted(
            agent for seat in roster.seats for agent in (seat.first_agent, seat.first_agent + seat.agents)
        )
        count = sum(seat.agents for seat in roster.seats)
        if min(seat.agents for seat in roster.seats) < 1 or seated[-1] > agents or count > agents:
            raise InputError("the server's roster for secure sums has agents that are not in the run.")
        if all_of_them and count != agents:
            raise InputError(
                f"the server's roster for secure sums has {count} of {agents} agents, in a run that excludes nobody."
            )
        for seat in roster.seats:
            self._authority.check(seat, run)
        return {
            seat.name: pair_key(self._key, seat.key, run, fingerprint(roster), (self._name, seat.name))
            for seat in roster.seats
            if seat.name != self._name
        }
