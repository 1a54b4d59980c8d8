"""Certificates as other programs make them, which do not say what they are for."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fed_ucbvi.network import certificates
from fed_ucbvi.network.certificates import PEM, SigningRequest, TLSFiles, read_authority


def without_usage(folder: Path, name: str, common_name: str) -> TLSFiles:
    """A certificate of the federation's authority that does not say what it is for."""
    authority, key = read_authority(folder), ec.generate_private_key(ec.SECP256R1())
    request = SigningRequest(common_name, key.public_key())
    host = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = certificates._signed(request, authority.certificate.subject, authority.key, 1, host)
    own = TLSFiles.of(folder, name)
    certificates._write(own.certificate, made.public_bytes(PEM), own.key, certificates._private(key))
    return own
