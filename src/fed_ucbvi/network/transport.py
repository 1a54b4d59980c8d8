"""Transport of messages: gRPC with mutual TLS, keep-alives and limits.

A transport hands the server one :class:`Connection` for each stream that a node opens, and the node the other end. It
knows nothing of what the bytes mean. gRPC compresses messages in both directions, except those of nodes that mask
their reports. Its limits on the size of a message hold before and after decompression.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_health.v1.health import aio as health  # type: ignore[import-untyped]

from fed_ucbvi.core.addresses import check_address, host_of, is_loopback
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.signatures import check_server_certificate
from fed_ucbvi.network.certificates import TLSFiles, check_pair
from fed_ucbvi.network.failures import ConnectionEndedError, ConnectionLostError, RejectedError
from fed_ucbvi.network.messages import PART_BYTES

log = logging.getLogger("fed_ucbvi.federation")

SERVICE = "fed_ucbvi.v1.Federation"
METHOD = "Session"
CERTIFICATE = "Certificate"
POLICY = "Policy"
COMPRESSION = grpc.Compression.Gzip
"""Compression of single messages. gRPC sends a message as it is where this would not make it shorter."""
MAX_BYTES = 256 << 20
"""The largest message a node accepts from its server."""
MAX_BYTES_UP = 2 * PART_BYTES
"""The longest piece that gRPC passes to a server, so that a somewhat longer one is read and refused by name."""
MAX_BYTES_WAITING = 1 << 20
"""Bytes that can wait on a stream that the server does not read; also what travels in one round trip."""
HANDSHAKE_SECONDS = 20
IDLE_SECONDS = 60
"""For TLS, and for a connection without a stream."""
ANSWER_SECONDS = 60.0
"""For the server's certificate, and for the policy."""
KEEP_ALIVE_SECONDS = 10
KEEP_ALIVE_PATIENCE_SECONDS = 5
AHEAD = 4
"""Messages that a node reads before it has taken them; an honest server has fewer under way."""
GRACE = 2.0
"""Seconds that nodes have to hear of the end before the server exits."""

WRITE_FAILED = "Internal error from Core"
"""In gRPC's words where a stream has ended before something was written to it."""
BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""Errors that gRPC raises on a stream that has ended."""
_KEEP_ALIVE = (
    ("grpc.keepalive_time_ms", 1000 * KEEP_ALIVE_SECONDS),
    ("grpc.keepalive_timeout_ms", 1000 * KEEP_ALIVE_PATIENCE_SECONDS),
    ("grpc.http2.ping_timeout_ms", 1000 * KEEP_ALIVE_PATIENCE_SECONDS),  # by default a minute, whatever the one above
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass
class WireCount:
    """Messages, and their bytes before compression.

    gRPC's header of five bytes for each message is included; HTTP/2, TLS and TCP are not. Under secure sums almost
    all bytes are masked reports, which are not compressed.
    """

    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class Connection(Protocol):
    """One end of a stream: messages as bytes, both ways; a server's end says whose certificate it has (PEM).

    Reading and writing raise :class:`ConnectionLostError` where that is no longer possible, and
    :class:`ConnectionEndedError` where the other side has ended the stream.
    """

    peer: str = ""
    certificate: bytes = b""

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...


class StreamHandler(Protocol):
    """Handler of the streams of a transport."""

    async def session(self, connection: Connection) -> None:
        """Handle one stream from its first message to its end."""

    async def policy(self, certificate: bytes) -> bytes:
        """The policy recommended last, as a file; raises :class:`RejectedError`."""


class _ServerEnd(Connection):
    def __init__(self, context: Any) -> None:
        self._context = context
        self.peer = context.peer()
        self.certificate = _certificate(context)

    async def read(self) -> bytes:
        try:
            data = await self._context.read()
        except BROKEN as error:
            raise ConnectionLostError(f"cannot read: {error}") from error
        if data is grpc.aio.EOF:
            raise ConnectionEndedError("it has ended; the node has gone, or sent what gRPC does not let through")
        return bytes(data)

    async def write(self, data: bytes) -> None:
        try:
            await self._context.write(data)
        except BROKEN as error:
            raise ConnectionLostError(f"cannot write: {error}") from error


def _certificate(context: Any) -> bytes:
    return next(iter(context.auth_context().get("x509_pem_cert", ())), b"")


class _NodeEnd(Connection):
    """A node's end. It always has a read under way: gRPC gives nothing any more once a write has failed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._arrived: asyncio.Queue[bytes | ConnectionLostError] = asyncio.Queue(AHEAD)
        self.reading = asyncio.ensure_future(self._read_ahead())

    async def read(self) -> bytes:
        data = await self._arrived.get()
        if isinstance(data, ConnectionLostError):
            self._arrived.put_nowait(data)
            raise data
        return data

    async def _read_ahead(self) -> None:
        try:
            while (data := await self._stream.read()) is not grpc.aio.EOF:
                await self._arrived.put(bytes(data))
            lost: ConnectionLostError = ConnectionEndedError(
                await self._stream.details() or "the server has closed the stream"
            )
        except BROKEN as error:
            lost = ConnectionLostError(_reason(error))
        await self._arrived.put(lost)

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except BROKEN as error:
            raise ConnectionLostError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    details = error.details() if isinstance(error, grpc.aio.AioRpcError) else ""
    closed = "the server has closed this stream, or the connection to it is lost"
    return closed if details in ("", None, WRITE_FAILED) else details


class _Health(health.HealthServicer):  # type: ignore[misc]
    """gRPC's health service: serving until the run is over, then not serving."""

    async def Watch(self, request: Any, context: Any) -> None:
        with suppress(asyncio.CancelledError):  # whoever watched has gone; gRPC would log it as an error
            await super().Watch(request, context)


class Listener:
    """A gRPC server in front of a handler, not yet started; without ``tls_files`` insecure, on this machine only.

    It reports its health by gRPC's health service to everyone who gets past TLS.
    """

    def __init__(self, handler: StreamHandler, address: str, tls_files: TLSFiles | None) -> None:
        check_address(address)
        self._handler = handler
        self._health = _Health()
        authority, self._own_certificate, key = (b"", b"", b"") if tls_files is None else tls_files.read()
        if tls_files is None:
            _check_insecure(address)
        else:
            check_pair(self._own_certificate, key)
        handlers = {
            METHOD: grpc.stream_stream_rpc_method_handler(self._session),
            POLICY: grpc.unary_unary_rpc_method_handler(self._policy),
            CERTIFICATE: grpc.unary_unary_rpc_method_handler(self._certificate),
        }
        options = (
            *_KEEP_ALIVE,
            ("grpc.http2.min_ping_interval_without_data_ms", 500 * KEEP_ALIVE_SECONDS),
            ("grpc.max_receive_message_length", MAX_BYTES_UP),
            ("grpc.http2.lookahead_bytes", MAX_BYTES_WAITING),
            ("grpc.http2.bdp_probe", 0),  # it would raise the line above
            ("grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE_SECONDS),
            ("grpc.max_connection_idle_ms", 1000 * IDLE_SECONDS),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", 4),
            ("grpc.so_reuseport", 0),
        )
        self._server = grpc.aio.server(options=options, compression=COMPRESSION)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        try:
            if tls_files is None:
                self.port = int(self._server.add_insecure_port(address))
            else:
                pair = key, self._own_certificate
                credentials = grpc.ssl_server_credentials([pair], authority, require_client_auth=True)
                self.port = int(self._server.add_secure_port(address, credentials))
        except RuntimeError as error:
            raise InputError(f"cannot listen on {address}: {error}.") from error

    async def start(self) -> None:
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def end(self) -> None:
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        await self.end()
        await self._server.stop(GRACE)

    async def _session(self, _: Any, context: Any) -> None:
        await self._handler.session(_ServerEnd(context))

    async def _certificate(self, _: Any, context: Any) -> bytes:
        return self._own_certificate

    async def _policy(self, _: Any, context: Any) -> bytes:
        try:
            return await self._handler.policy(_certificate(context))
        except RejectedError as refused:
            code = grpc.StatusCode.FAILED_PRECONDITION if refused.retry else grpc.StatusCode.PERMISSION_DENIED
            await context.abort(code, str(refused))
        return b""


@dataclass
class RemoteServer:
    """A server at ``HOST:PORT`` as its nodes see it, over gRPC; without a node's ``tls_files`` insecure, here only.

    The files are read once. ``server_name`` is the name in the server's certificate, if it is not the host.
    """

    address: str
    tls_files: TLSFiles | None = None
    server_name: str | None = None
    host: str = field(init=False)

    def __post_init__(self) -> None:
        check_address(self.address)
        self.host = self.server_name or host_of(self.address)
        self._content = None if self.tls_files is None else self.tls_files.read()

    @asynccontextmanager
    async def connect(self, *, compressed: bool = True) -> AsyncIterator[Connection]:
        """Open a stream. Unless what the node sends is random, such as masked reports, gRPC should compress it."""
        compression = COMPRESSION if compressed else grpc.Compression.NoCompression
        async with await self._channel() as channel:
            end = _NodeEnd(channel.stream_stream(f"/{SERVICE}/{METHOD}")(compression=compression))
            try:
                yield end
            finally:
                end.reading.cancel()

    async def policy(self) -> bytes:
        """The policy recommended last, as a file; raises :class:`ConnectionLostError`."""
        async with await self._channel() as channel:
            return await _ask(channel, POLICY)

    async def certificate(self) -> bytes:
        """The certificate that the server shows now, as PEM."""
        async with self.open() as channel:
            return await _ask(channel, CERTIFICATE)

    async def _channel(self) -> Any:
        """A channel to a server whose certificate is one for servers.

        gRPC accepts a certificate that does not say what it is for, and does not show it. So the server is asked for
        its certificate. The next channel accepts this certificate alone, so it checks that the server has the key.
        """
        if self._content is None:
            return self.open()
        pem = await self.certificate()
        try:
            check_server_certificate(pem, self._content[0])
        except InputError as error:
            raise ConnectionLostError(str(error)) from error
        return self.open(pem)

    def open(self, server: bytes = b"") -> Any:
        """A gRPC channel; with the certificate ``server`` to this very server alone, else to any certified one."""
        options: list[tuple[str, object]] = [
            *_KEEP_ALIVE,
            ("grpc.max_receive_message_length", MAX_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # every node a connection of its own
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 5000),
        ]
        if self._content is None:
            _check_insecure(self.address)
            options.append(("grpc.enable_http_proxy", 0))  # it would lead off this machine
            return grpc.aio.insecure_channel(self.address, options)
        if self.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        authority, certificate, key = self._content
        credentials = grpc.ssl_channel_credentials(server or authority, key, certificate)
        return grpc.aio.secure_channel(self.address, credentials, options)


async def _ask(channel: Any, method: str) -> bytes:
    try:
        content: bytes = await channel.unary_unary(f"/{SERVICE}/{method}")(b"", timeout=ANSWER_SECONDS)
    except BROKEN as error:
        raise ConnectionLostError(_reason(error)) from error
    return content


def _check_insecure(address: str) -> None:
    if not is_loopback(host_of(address)):
        raise InputError(
            f"--insecure is for this machine alone (localhost, 127.0.0.1); {address} is not. Use certificates."
        )
