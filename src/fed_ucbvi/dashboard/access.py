"""Who may look at the page: this machine alone, or others by TLS and a token."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from fed_ucbvi.core.addresses import is_loopback
from fed_ucbvi.core.errors import InputError

MIN_TOKEN = 16
"""Characters of a token."""


class NotHereError(InputError):
    """An address that other machines can reach, without a certificate and a token."""


@dataclass(frozen=True)
class Access:
    """Where the page is served and what a reader needs.

    Args:
        host: a name or an address of this machine.
        port: 0 means a free one.
        certificate: a file with the certificate in PEM; with it the page is served by TLS only.
        key: a file with its key.
        token: what readers must know; None where everybody on this machine may look.
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    token: str | None = None
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """What a browser keeps once it has shown the token."""

    @classmethod
    def parse(cls, address: str, certificate: Path | None = None, token_file: Path | None = None) -> Access:
        """From ``HOST:PORT`` and files; the key lies beside the certificate, with the ending ``.key``.

        >>> Access.parse("localhost:8080").url(8080)
        'http://localhost:8080/'
        >>> Access.parse("0.0.0.0:8080")
        Traceback (most recent call last):
        fed_ucbvi.dashboard.access.NotHereError: 0.0.0.0:8080 can be reached from other machines, so the page needs a
        certificate and a token (--dashboard-cert FILE, --dashboard-token FILE); or use 127.0.0.1.
        """
        name, colon, port = address.rpartition(":")
        host = name.strip("[]")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise InputError(f"'{address}' is not of the form HOST:PORT, as 127.0.0.1:8080.")
        if not is_loopback(host) and (certificate is None or token_file is None):
            raise NotHereError(
                f"{address} can be reached from other machines, so the page needs a certificate and a token "
                "(--dashboard-cert FILE, --dashboard-token FILE); or use 127.0.0.1."
            )
        key = None if certificate is None else certificate.with_suffix(".key")
        for file in (certificate, key):
            if file is not None and not file.is_file():
                raise InputError(f"{file} is missing; the page needs a certificate and, beside it, its key (.key).")
        return cls(host, int(port), certificate, key, None if token_file is None else read_token(token_file))

    def url(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{port}/"

    def knows(self, host_header: str) -> bool:
        """Whether a browser that says this in ``Host`` was meant to come here.

        Without a token the page is for this machine alone. A page from elsewhere can make a browser call this
        machine by a name of its own (DNS rebinding); that name is in ``Host``, and is refused.
        """
        host = host_header.rpartition(":")[0] if not host_header.endswith("]") else ""
        return self.token is not None or is_loopback((host or host_header).strip("[]"))

    def allows(self, given: str | None, session: str | None) -> bool:
        """Whether somebody who has shown this token, or keeps this session, may look."""
        if self.token is None:
            return True
        return _same(given, self.token) or _same(session, self.session)


def read_token(file: Path) -> str:
    """The token in a file: one line, long enough not to be guessed."""
    if not file.is_file():
        raise InputError(f"{file} is missing; write a long random word into it, as 'openssl rand -hex 32' gives.")
    token = file.read_text(encoding="utf-8").strip()
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{file} must hold one word of at least {MIN_TOKEN} characters, as 'openssl rand -hex 32'.")
    return token


def _same(given: str | None, expected: str) -> bool:
    """Compare in a time that does not tell how much is right."""
    return given is not None and secrets.compare_digest(given.encode(), expected.encode())
