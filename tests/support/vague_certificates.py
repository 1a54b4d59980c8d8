"""Certificates as other programs make them, which do not say what they are for."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fed_ucbvi.network.certificates import TLSFiles, read_authority


def without_usage(folder: Path, name: str, common_name: str) -> TLSFiles:
    """A certificate of the federation's authority that does not say what it is for, as other programs make them."""
    authority = read_authority(folder)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(private)
    return TLSFiles.of(folder, name)
