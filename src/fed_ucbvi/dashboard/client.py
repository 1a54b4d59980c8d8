"""Following a page from a program: its content now, and after every event."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.dashboard.access import read_token
from fed_ucbvi.dashboard.state import apply, new_mirror

PATIENCE = 15.0
"""Seconds without a word from the server, which says at least every five that there is nothing new."""
LOST = (OSError, http.client.HTTPException)
"""What is raised when the server cannot be reached, or has gone."""


class Target(NamedTuple):
    """A page on this machine or another.

    Attributes:
        host: its name or address.
        port: where it listens.
        secure: whether by TLS.
        token_file: a file with the token that it wants, if it does.
        authority: a file with the certificate of the authority that signed the page's, where the system knows none.
    """

    host: str
    port: int
    secure: bool
    token_file: Path | None = None
    authority: Path | None = None

    @classmethod
    def parse(cls, url: str, token_file: Path | None = None, authority: Path | None = None) -> Target:
        """From ``http://HOST:PORT/``.

        >>> Target.parse("http://127.0.0.1:8080/")[:3]
        ('127.0.0.1', 8080, False)
        """
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.path not in ("", "/"):
            raise InputError(f"'{url}' is no address of a page; it is of the form http://HOST:PORT/.")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), secure, token_file, authority)

    def snapshot(self) -> dict[str, Any]:
        """Everything that the page shows now."""
        with closing(self._connection()) as connection:
            content: dict[str, Any] = json.loads(self._ask(connection, "/state.json").read())
            return content

    def follow(self) -> Iterator[dict[str, Any]]:
        """Everything that the page shows, after each event; ends when the server does."""
        with closing(self._connection()) as connection:
            answer, kind, mirror = self._ask(connection, "/events"), "", new_mirror()
            while line := answer.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    mirror = apply(new_mirror() if kind == "everything" else mirror, json.loads(value))
                    yield mirror

    def _connection(self) -> http.client.HTTPConnection:
        if not self.secure:
            return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        context = ssl.create_default_context(cafile=self.authority)
        return http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=context)

    def _ask(self, connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
        headers = {} if self.token_file is None else {"Authorization": f"Bearer {read_token(self.token_file)}"}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise InputError(f"{self.host}:{self.port} answers {answer.status}: {answer.read(500).decode().strip()}.")
        return answer
