"""What a server signs with the key of its certificate, and how it is checked with that of the authority."""

from __future__ import annotations

import base64
import datetime

from fed_ucbvi.core.addresses import ip_of
from fed_ucbvi.core.errors import InputError, missing_package, printable

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError as error:
    raise missing_package("signatures need", "cryptography", "network") from error

FOR_SERVERS, FOR_NODES = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
_ALGORITHM = ec.ECDSA(hashes.SHA256())


def sign(text: str, private_key: bytes) -> str:
    """The signature under a text: ECDSA with SHA-256, as base64."""
    key = serialization.load_pem_private_key(private_key, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError("the private key is not one that this program made.")
    return base64.b64encode(key.sign(text.encode(), _ALGORITHM)).decode()


def check_signature(text: str, signature: str, certificate: str, authority: bytes, host: str | None = None) -> None:
    """Raise unless a server of this authority (for ``host``, if that is said) has signed the text."""
    key = check_server_certificate(certificate.encode(), authority, host).public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError("it is not signed with a key of the kind that servers have.")
        key.verify(base64.b64decode(signature, validate=True), text.encode(), _ALGORITHM)
    except (InvalidSignature, ValueError) as error:
        raise InputError("it is not what the server signed.") from error


def check_usage(certificate: x509.Certificate, usage: x509.ObjectIdentifier) -> None:
    """Raise unless the certificate says that it is for servers, or nodes; one that says nothing is for neither."""
    try:
        allowed = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except (x509.ExtensionNotFound, ValueError):
        allowed = []
    if usage not in allowed:
        kind, named = ("servers", "serverAuth") if usage == FOR_SERVERS else ("nodes", "clientAuth")
        raise InputError(f"the certificate is not one for {kind} (its extended key usage lacks {named}).")


def check_server_certificate(pem: bytes, authority: bytes, host: str | None = None) -> x509.Certificate:
    """The certificate of a server of this authority, for ``host`` if that is said, that is good today; or raise."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        authorities = x509.load_pem_x509_certificates(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise InputError("the server's certificate is damaged, or names no host.") from error
    if not any(issued_by(certificate, one) for one in authorities):
        raise InputError("the server's certificate is not of this federation's authority.")
    if not certificate.not_valid_before_utc <= datetime.datetime.now(datetime.UTC) <= certificate.not_valid_after_utc:
        raise InputError(f"the server's certificate is good until {certificate.not_valid_after_utc:%Y-%m-%d} only.")
    if host is not None and alternative_name(host) not in names:
        raise InputError(f"the server's certificate is not for '{printable(host[:80])}'.")
    check_usage(certificate, FOR_SERVERS)
    return certificate


def alternative_name(host: str) -> x509.GeneralName:
    ip = ip_of(host)
    if ip is None and not (host and host.isascii()):
        raise InputError(f"'{printable(host)}' is no host; write names of other scripts as IDNA does (xn--...).")
    return x509.DNSName(host) if ip is None else x509.IPAddress(ip)


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority has signed the certificate itself."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
