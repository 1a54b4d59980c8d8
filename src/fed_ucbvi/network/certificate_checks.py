"""What certificates say: whom they are for, what they may be used for, and whether a key is theirs."""

from __future__ import annotations

import datetime
import ipaddress
from typing import Any, NamedTuple

from fed_ucbvi.core.errors import InputError, printable
from fed_ucbvi.network.names import check_name
from fed_ucbvi.network.packages import needed

with needed("cryptography"):
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FOR_SERVERS, FOR_NODES = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class Certified(NamedTuple):
    """Whom a stream's certificate is for, and which of that name's certificates it is."""

    name: str
    serial: str

    @property
    def revocations(self) -> set[str]:
        """The lines of the list that would turn it away."""
        return {self.name, f"{self.name} {self.serial}"}


def certified_node(context: Any) -> Certified:
    """Whom a stream's certificate is for; raise unless it is one for nodes, with one name that a node can have."""
    pem = next(iter(context.auth_context().get("x509_pem_cert", ())), b"")
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        name = one_name(certificate.subject)
    except ValueError as error:
        raise InputError(f"the certificate cannot be used: {str(error).rstrip('.')}.") from error
    check_usage(certificate, FOR_NODES)
    return Certified(name, serial_of(certificate))


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


def check_pair(certificate: bytes, key: bytes) -> None:
    """Raise unless a key is that of a certificate."""
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        own = serialization.load_pem_private_key(key, None).public_key()
    except (ValueError, TypeError) as error:
        raise InputError(f"a certificate or its key is damaged: {error}.") from error
    if public != own:
        raise InputError("the key is not that of the certificate.")


def one_name(subject: x509.Name) -> str:
    """The one name of a subject; raises ``ValueError`` if it has none or several, or one that no node can have."""
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1:
        raise ValueError(f"it bears {len(names)} names where one is needed")
    return check_name(names[0])


def serial_of(certificate: x509.Certificate) -> str:
    """The serial number, in hexadecimal digits."""
    return f"{certificate.serial_number:x}"


def alternative_name(host: str) -> x509.GeneralName:
    """A host as certificates name it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority has signed the certificate itself."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
