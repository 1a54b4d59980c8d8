"""A transport inside one process, without sockets or TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.failures import ConnectionEndedError, ConnectionLostError, RejectedError
from fed_ucbvi.network.transport import Connection, StreamHandler


class _MemoryEnd:
    def __init__(self, peer: str, certificate: bytes) -> None:
        self.peer, self.certificate = peer, certificate
        self._arriving: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: _MemoryEnd
        self.closed = asyncio.Event()

    async def read(self) -> bytes:
        data = None if self.closed.is_set() else await self._arriving.get()
        if data is None:
            self.closed.set()
            raise ConnectionEndedError("the other side has closed the stream")
        return data

    async def write(self, data: bytes) -> None:
        if self.closed.is_set() or self.other.closed.is_set():
            raise ConnectionLostError("the stream is closed")
        self.other._arriving.put_nowait(data)

    async def finish(self) -> None:
        await self.closed.wait()

    def end(self) -> None:
        """End the stream; the other side still reads what has been written."""
        self.other._arriving.put_nowait(None)
        self.closed.set()


@dataclass
class InMemoryServer:
    """A server in this very process, without sockets or TLS; a node shows its certificate all the same."""

    server: StreamHandler
    tls_files: TLSFiles | None = None
    address: str = "here"
    host: str = "localhost"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        certificate = b"" if self.tls_files is None else self.tls_files.read()[1]
        own, other = _MemoryEnd(self.address, b""), _MemoryEnd("here", certificate)
        own.other, other.other = other, own
        session = asyncio.ensure_future(self._serve(other))
        try:
            yield own
        finally:
            own.end()
            session.cancel()
            await asyncio.wait([session])  # whoever cancels the node meanwhile is not missed
            if not session.cancelled() and (error := session.exception()) is not None:
                raise error

    async def _serve(self, end: _MemoryEnd) -> None:
        try:
            await self.server.session(end)
        finally:
            end.end()

    async def policy(self) -> bytes:
        try:
            return await self.server.policy(b"" if self.tls_files is None else self.tls_files.read()[1])
        except RejectedError as refused:
            raise ConnectionLostError(str(refused)) from refused
