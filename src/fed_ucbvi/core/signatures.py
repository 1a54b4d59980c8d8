"""Signatures by the key of a server's certificate, and their check with the certificate of the authority."""

from __future__ import annotations

import base64
import datetime

from fed_ucbvi.core.addresses import ip_of
from fed_ucbvi.core.errors import InputError, missing_package, printable

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError as error:
    raise missing_package("signatures need", "cryptography", "network") from error

FOR_SERVERS = ExtendedKeyUsageOID.SERVER_AUTH
FOR_NODES = ExtendedKeyUsageOID.CLIENT_AUTH
_ALGORITHM = ec.ECDSA(hashes.SHA256())
MIN_RSA_BITS = 2048
CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
HASHES = (hashes.SHA256, hashes.SHA384, hashes.SHA512)


def sign(text: str, private_key: bytes) -> str:
    """The signature under a text: ECDSA with SHA-256, as base64."""
    key = serialization.load_pem_private_key(private_key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError("the private key is not one that this program made.")
    return base64.b64encode(key.sign(text.encode(), _ALGORITHM)).decode()


def check_signature(
    text: str,
    signature: str,
    certificate: str,
    authority: bytes,
    host: str | None = None,
) -> None:
    """Raise unless a server of this authority (for ``host``, if it is given) has signed the text."""
    key = check_server_certificate(certificate.encode(), authority, host).public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError("it is not signed with a key of the kind that servers have.")
        key.verify(base64.b64decode(signature, validate=True), text.encode(), _ALGORITHM)
    except (InvalidSignature, ValueError) as error:
        raise InputError("it is not what the server signed.") from error


def check_usage(certificate: x509.Certificate, usage: x509.ObjectIdentifier) -> None:
    """Raise unless the certificate is for servers, or nodes, by its extended key usage; without one it is neither."""
    try:
        allowed = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, ValueError):
        allowed = []
    if usage not in allowed:
        kind = "nodes"
        name = "clientAuth"
        if usage == FOR_SERVERS:
            kind = "servers"
            name = "serverAuth"
        raise InputError(f"the certificate is not one for {kind} (its extended key usage lacks {name}).")


def check_strength(
    signed: x509.Certificate | x509.CertificateSigningRequest,
    what: str = "the certificate",
) -> None:
    """Raise if ``what`` has a key or a signature that can be forged.

    Accepted are RSA keys of :data:`MIN_RSA_BITS` and more, elliptic keys on :data:`CURVES`, Ed25519 and Ed448, and
    signatures with :data:`HASHES`.
    """
    try:
        key = signed.public_key()
        signature_hash = signed.signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{what} has a key or a signature of an unknown kind.") from error
    if isinstance(key, rsa.RSAPublicKey):
        weak = key.key_size < MIN_RSA_BITS
        kind = f"an RSA key of {key.key_size} bits"
    elif isinstance(key, ec.EllipticCurvePublicKey):
        weak = not isinstance(key.curve, CURVES)
        kind = f"a key on the curve {key.curve.name}"
    else:
        weak = not isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey)
        kind = "a key of another kind"
    if weak:
        raise InputError(
            f"{what} has {kind}; RSA keys need {MIN_RSA_BITS} bits or more, and other keys must be on P-256, P-384, "
            "P-521, Ed25519 or Ed448."
        )
    if signature_hash is not None and not isinstance(signature_hash, HASHES):
        raise InputError(f"{what} is signed with {signature_hash.name}; it must be SHA-256, SHA-384 or SHA-512.")


def check_party_certificate(certificate: x509.Certificate, usage: x509.ObjectIdentifier) -> None:
    """Raise unless a certificate is that of a server, or of a node, is strong, and is not an authority's."""
    check_strength(certificate)
    try:
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        authority = False
    except ValueError as error:
        raise InputError("the certificate has extensions that cannot be read.") from error
    if authority:
        raise InputError("the certificate may sign others (CA:true); a server or a node needs one that may not.")
    check_usage(certificate, usage)


def check_server_certificate(pem: bytes, authority: bytes, host: str | None = None) -> x509.Certificate:
    """The certificate of a server of this authority (for ``host``, if it is given) that is valid today; or raise."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        authorities = x509.load_pem_x509_certificates(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise InputError("the server's certificate is damaged, or names no host.") from error
    if not any(issued_by(certificate, one) for one in authorities):
        raise InputError("the server's certificate is not of this federation's authority.")
    start = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    if not start <= datetime.datetime.now(datetime.UTC) <= end:
        raise InputError(f"the server's certificate is good until {end:%Y-%m-%d} only.")
    if host is not None and alternative_name(host) not in names:
        raise InputError(f"the server's certificate is not for '{printable(host[:80])}'.")
    check_party_certificate(certificate, FOR_SERVERS)
    return certificate


def alternative_name(host: str) -> x509.GeneralName:
    """A host as it is written in certificates: its IP address, or its name."""
    ip = ip_of(host)
    if ip is not None:
        return x509.IPAddress(ip)
    if not host or not host.isascii():
        raise InputError(f"'{printable(host)}' is no host; write names of other scripts as IDNA does (xn--...).")
    return x509.DNSName(host)


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """True if the authority has signed the certificate itself."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
