"""What certificates of nodes say: whom they are for, and whether a key is theirs."""

from __future__ import annotations

from typing import Any, NamedTuple

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.signatures import FOR_NODES, check_usage
from fed_ucbvi.network.names import check_name
from fed_ucbvi.network.packages import needed

with needed("cryptography"):
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import NameOID


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
