"""A small certificate authority: one for the federation, a certificate for the server and one for each node.

A node's certificate bears its name as common name, and that is the name it takes part under. The authority's key
stays where the certificates are made; nobody else needs it.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fed_ucbvi.core.errors import InputError, check_number
from fed_ucbvi.network.names import check_name
from fed_ucbvi.network.packages import needed

with needed("cryptography"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY = "ca"
REVOKED = "revoked.txt"
DAYS = 365.0
SKEW = datetime.timedelta(hours=1)
"""Certificates count from a little before they are made, for clocks that are late."""


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(
    folder: Path,
    *,
    server: str | None = None,
    hosts: Sequence[str] = (),
    nodes: Sequence[str] = (),
    days: float = DAYS,
) -> list[Path]:
    """Write certificates into ``folder``, and the authority too if there is none yet.

    Args:
        folder: for ``NAME.crt`` and ``NAME.key``; ``ca.crt`` is what everyone needs, ``ca.key`` what nobody else may
            have.
        server: name of the server's certificate; none: no certificate for a server.
        hosts: names and addresses by which nodes reach the server.
        nodes: names of nodes.
        days: how long the certificates are good; negative: they have expired already.

    Returns:
        The files written.

    Raises:
        InputError: if a certificate of that name is there already.
    """
    check_number("days", days)
    names = [check_name(name) for name in (*nodes, *([] if server is None else [server]))]
    for name in names:
        if name == AUTHORITY or names.count(name) > 1 or (folder / f"{name}.crt").exists():
            raise InputError(f"there is a certificate '{name}' already; choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    if not (folder / f"{AUTHORITY}.crt").exists():
        authority = _issue("fed-ucbvi federation", None, max(days, DAYS), authority=True)
        written += _write(folder, AUTHORITY, authority)
    else:
        authority = _read_authority(folder)
    if server is not None:
        alternatives = [_alternative(host) for host in dict.fromkeys([*hosts, server, "localhost", "127.0.0.1"])]
        written += _write(folder, server, _issue(server, authority, days, alternatives=alternatives, server=True))
    for name in nodes:
        issued = _issue(name, authority, days, alternatives=[x509.DNSName(name)])
        written += _write(folder, name, issued)
    return written


def revoke(folder: Path, names: Sequence[str]) -> None:
    """Add names to the list of those that are turned away though certified."""
    known = {path.stem for path in folder.glob("*.crt")}
    for name in names:
        if name not in known:
            raise InputError(f"{folder} holds no certificate '{name}'.")
    with (folder / REVOKED).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}\n" for name in names)


def revoked_names(folder: Path) -> list[str]:
    """The names that have been revoked so far."""
    path = folder / REVOKED
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issue(
    name: str,
    by: Issued | None,
    days: float,
    *,
    alternatives: Sequence[x509.GeneralName] = (),
    authority: bool = False,
    server: bool = False,
) -> Issued:
    """A certificate for ``name``, signed by the authority ``by`` or, for the authority itself, by its own key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    signer = Issued(None, key) if by is None else by  # type: ignore[arg-type]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - SKEW)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=authority,
                crl_sign=authority,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    if not authority:
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return Issued(builder.sign(signer.key, hashes.SHA256()), key)


def _write(folder: Path, name: str, issued: Issued) -> list[Path]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    private = issued.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    handle = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(private)
    certificate.write_bytes(issued.certificate.public_bytes(serialization.Encoding.PEM))
    return [certificate, key]


def _read_authority(folder: Path) -> Issued:
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
    return Issued(certificate, key)
