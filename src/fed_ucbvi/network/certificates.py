"""Names, certificates and keys, and the small certificate authority of a federation.

A node's certificate bears its name as common name, and that is the name it takes part under. It says what it is for:
a server's for servers, a node's for nodes, and each side insists on it. The authority's key stays where certificates
are signed; a party that makes its own key sends a signing request, and nobody else ever has the key.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fed_ucbvi.core.errors import InputError, check_number, printable
from fed_ucbvi.core.signatures import (
    FOR_NODES,
    FOR_SERVERS,
    alternative_name,
    check_party_certificate,
    check_strength,
)

AUTHORITY = "ca"
DAYS = 365.0
MAX_REQUEST_BYTES = 16 << 10
MAX_SHOWN_CHARACTERS = 80
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
SKEW = datetime.timedelta(hours=1)
"""Certificates are valid from a little before they are made, because clocks may be late."""

PEM = serialization.Encoding.PEM


def check_name(name: str) -> str:
    """Return ``name``, or raise unless it can stand in a certificate and a file name.

    >>> check_name("clinic-3")
    'clinic-3'
    """
    if not NAME.fullmatch(name):
        raise InputError(
            f"'{printable(name[:MAX_SHOWN_CHARACTERS])}' cannot be a node's name; use 1 to 63 letters, digits, dots, "
            "dashes and underscores."
        )
    return name


@dataclass(frozen=True)
class TLSFiles:
    """Files of a party: the authority's certificate, its own, and its key."""

    authority: Path
    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        for path in (self.authority, self.certificate, self.key):
            if not path.is_file():
                raise InputError(f"{path} is missing; 'fed-ucbvi certs' makes certificates.")
        return self.authority.read_bytes(), self.certificate.read_bytes(), self.key.read_bytes()

    @classmethod
    def of(cls, folder: Path, name: str) -> TLSFiles:
        return cls(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


def node_name(pem: bytes) -> str:
    """Return the name in a node's certificate.

    Raises:
        InputError: if it is not a certificate for nodes with one name that a node can have, or not a strong one.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        name = _one_name(certificate.subject)
    except ValueError as error:
        raise InputError(f"the certificate cannot be used: {str(error).rstrip('.')}.") from error
    check_party_certificate(certificate, FOR_NODES)
    return name


def check_pair(certificate: bytes, key: bytes) -> None:
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        own = serialization.load_pem_private_key(key, None).public_key()
    except (ValueError, TypeError) as error:
        raise InputError(f"a certificate or its key is damaged: {error}.") from error
    if public != own:
        raise InputError("the key is not that of the certificate.")


def _one_name(subject: x509.Name) -> str:
    """The one name of a subject; raises ``ValueError`` if it has none or several, or one that no node can have."""
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1:
        raise ValueError(f"it bears {len(names)} names where one is needed")
    return check_name(names[0])


# --------------------------------------------------------------------------------------------------- the authority


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class SigningRequest(NamedTuple):
    """Content of a signing request that has been checked."""

    name: str
    key: ec.EllipticCurvePublicKey

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key, to be compared by those who sent and who sign the request."""
        der = self.key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        digits = hashlib.sha256(der).hexdigest()
        return " ".join(digits[i : i + 8] for i in range(0, len(digits), 8))


def make_certificates(
    folder: Path,
    *,
    server: str | None = None,
    hosts: Sequence[str] = (),
    nodes: Sequence[str] = (),
    days: float = DAYS,
) -> list[Path]:
    """Write ``NAME.crt`` and ``NAME.key`` for server and nodes, and the authority too if there is none yet.

    ``ca.crt`` is what everyone needs, ``ca.key`` what nobody else may have. Nodes reach the server at ``hosts``,
    names or addresses. Certificates are good for so many ``days``; negative: they have expired already. Returns the
    files written.
    """
    check_number("days", days)
    names = [check_name(name) for name in (*([] if server is None else [server]), *nodes)]
    for name in names:
        if name == AUTHORITY or names.count(name) > 1 or (folder / f"{name}.crt").exists():
            raise InputError(f"there is a certificate '{name}' already; choose another name.")
    authority, written = _authority(folder, days)
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        own = SigningRequest(name, key.public_key())
        signed = sign(authority, own, days=days, server=name == server, hosts=hosts)
        written += _write(folder, name, "crt", signed, _private(key))
    return written


def new_request(name: str, private: bytes | None = None) -> tuple[bytes, bytes]:
    """A private key, by default a new one, and a request for a certificate that says ``name``; both as PEM."""
    given = None if private is None else serialization.load_pem_private_key(private, None)
    key = given if isinstance(given, ec.EllipticCurvePrivateKey) else ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(_subject(check_name(name)))
    return _private(key), request.sign(key, hashes.SHA256()).public_bytes(PEM)


def write_request(folder: Path, name: str) -> list[Path]:
    """Write ``NAME.key``, which stays here, and ``NAME.csr``, which goes to the authority."""
    private, request = new_request(name)
    if name == AUTHORITY or (folder / f"{name}.key").exists():
        raise InputError(
            f"there is a key '{name}' in {folder} already. Have its request {name}.csr signed again, or remove the "
            "key or choose another folder for a new one."
        )
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder, name, "csr", request, private)


def read_request(data: bytes) -> SigningRequest:
    """Raise unless it is a request of :func:`new_request`'s kind."""
    wrong = "this is no signing request that 'fed-ucbvi certs request' made"
    if len(data) > MAX_REQUEST_BYTES:
        raise InputError(f"{wrong}: it has more than {MAX_REQUEST_BYTES} bytes.")
    try:
        request = x509.load_pem_x509_csr(data)
        signed = request.is_signature_valid
        extras = len(request.attributes)
        key = request.public_key()
        name = _one_name(request.subject)
    except Exception as error:  # whatever a parser raises about bytes from elsewhere
        raise InputError(f"{wrong}: {printable(str(error)[:200])}.") from error
    if not signed:
        raise InputError(f"{wrong}: it is not signed with its own key.")
    if extras or len(request.subject) != 1:
        raise InputError(
            f"{wrong}: it asks for more than a name. What a certificate may be used for is said when it is signed."
        )
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError(f"{wrong}: its key is not of the kind P-256.")
    check_strength(request, "the signing request")
    if name == AUTHORITY:
        raise InputError(f"'{AUTHORITY}' is the authority's own name; choose another.")
    return SigningRequest(name, key)


def sign_request(
    folder: Path,
    request: SigningRequest,
    *,
    server: bool = False,
    hosts: Sequence[str] = (),
    days: float = DAYS,
) -> list[Path]:
    """Sign a request with the authority in ``folder``, which is made if there is none; gives the files written.

    The certificate is for a ``server`` that nodes reach at ``hosts``, else for a node.
    """
    path = folder / f"{request.name}.crt"
    if path.exists():
        raise InputError(
            f"there is a certificate '{request.name}' in {folder} already; to sign another one for the same name, "
            f"remove {path.name} first."
        )
    authority, written = _authority(folder, days)
    content = sign(authority, request, days=days, server=server, hosts=hosts)
    path.write_bytes(content)
    return [*written, path]


def sign(
    authority: Issued, request: SigningRequest, *, days: float, server: bool = False, hosts: Sequence[str] = ()
) -> bytes:
    own = [*hosts, request.name, "localhost", "127.0.0.1"] if server else [request.name]
    alternatives = [alternative_name(host) if server else x509.DNSName(host) for host in dict.fromkeys(own)]
    usage = x509.ExtendedKeyUsage([FOR_SERVERS if server else FOR_NODES])
    extensions = [x509.SubjectAlternativeName(alternatives), usage]
    return _signed(request, authority.certificate.subject, authority.key, days, *extensions).public_bytes(PEM)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _authority(folder: Path, days: float) -> tuple[Issued, list[Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / f"{AUTHORITY}.crt").exists():
        return read_authority(folder), []
    key = ec.generate_private_key(ec.SECP256R1())
    name = "fed-ucbvi federation"
    own = SigningRequest(name, key.public_key())
    certificate = _signed(own, _subject(name), key, max(days, DAYS), authority=True)
    return Issued(certificate, key), _write(folder, AUTHORITY, "crt", certificate.public_bytes(PEM), _private(key))


def _signed(
    request: SigningRequest,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    days: float,
    *extensions: x509.ExtensionType,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(request.name))
        .issuer_name(issuer)
        .public_key(request.key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - SKEW)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(request.key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, authority, authority, False, False), critical=True
        )  # to sign, and for an authority certificates
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _write(folder: Path, name: str, kind: str, content: bytes, private: bytes) -> list[Path]:
    """Write a key that only its owner can read, and then what was made with it."""
    path = folder / f"{name}.{kind}"
    key = folder / f"{name}.key"
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    path.write_bytes(content)
    return [path, key]


def read_authority(folder: Path) -> Issued:
    key_file = folder / f"{AUTHORITY}.key"
    if not key_file.is_file():
        raise InputError(f"{key_file} is missing; certificates are made where the authority's key is.")
    try:
        certificate = x509.load_pem_x509_certificate((folder / f"{AUTHORITY}.crt").read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except ValueError as error:
        raise InputError(f"the authority in {folder} is damaged: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{key_file} is not a key that this program made.")
    check_strength(certificate, f"the authority in {folder}")
    return Issued(certificate, key)
