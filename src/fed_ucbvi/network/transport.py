"""gRPC channels and servers: mutual TLS, keep-alives, limits."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.signatures import check_server_certificate
from fed_ucbvi.network.certificate_checks import check_pair
from fed_ucbvi.network.health import Health
from fed_ucbvi.network.messages import PART_BYTES
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.schema import PACKAGE

with needed("grpcio"):
    import grpc  # type: ignore[import-untyped]

log = logging.getLogger("fed_ucbvi.federation")

SERVICE, METHOD, CERTIFICATE, POLICY = f"{PACKAGE}.Federation", "Session", "Certificate", "Policy"
MAX_BYTES = 256 << 20
"""The largest message a node accepts from its server."""
MAX_BYTES_UP = 2 * PART_BYTES
"""The longest piece that gRPC passes to a server, so that a somewhat longer one is read and refused by name."""
MAX_BYTES_WAITING = 1 << 20
"""Bytes that can wait on a stream that the server does not read; also what travels in one round trip."""
HANDSHAKE_SECONDS, IDLE_SECONDS = 20, 60
"""For TLS, and for a connection without a stream."""
ANSWER_SECONDS = 60.0
"""For the server's certificate, and for the policy."""
KEEP_ALIVE_SECONDS = 10
KEEP_ALIVE_PATIENCE_SECONDS = 5

_KEEP_ALIVE = (
    ("grpc.keepalive_time_ms", 1000 * KEEP_ALIVE_SECONDS),
    ("grpc.keepalive_timeout_ms", 1000 * KEEP_ALIVE_PATIENCE_SECONDS),
    ("grpc.http2.ping_timeout_ms", 1000 * KEEP_ALIVE_PATIENCE_SECONDS),  # by default a minute, whatever the one above
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True)
class TLSFiles:
    """Files of a party: the authority's certificate, its own, and its key."""

    authority: Path
    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """What is in them."""
        content = []
        for path in (self.authority, self.certificate, self.key):
            if not path.is_file():
                raise InputError(f"{path} is missing; 'fed-ucbvi certs' makes certificates.")
            content.append(path.read_bytes())
        return content[0], content[1], content[2]

    @classmethod
    def of(cls, folder: Path, name: str) -> TLSFiles:
        """Those of ``name`` in a folder that ``fed-ucbvi certs`` made."""
        return cls(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


class _ServerFiles:
    """A server's TLS files, read again for a new connection when they have changed."""

    def __init__(self, tls_files: TLSFiles) -> None:
        self._files = tls_files
        self._stamp = self._stamps()
        self.authority, self.certificate, self._key = tls_files.read()
        check_pair(self.certificate, self._key)

    def _stamps(self) -> list[tuple[int, int]]:
        """What shows whether the files have changed; none where they are missing."""
        paths = (self._files.authority, self._files.certificate, self._files.key)
        found = [path.stat() for path in paths if path.is_file()]
        return [(file.st_mtime_ns, file.st_ino) for file in found]

    def configuration(self) -> Any:
        """As gRPC takes it."""
        return grpc.ssl_server_certificate_configuration([(self._key, self.certificate)], self.authority)

    def renewed(self) -> Any:
        """The configuration if the files are others than before; files that do not fit change nothing."""
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            authority, certificate, key = self._files.read()
            check_pair(certificate, key)
        except (InputError, OSError) as error:
            log.warning("the server goes on with the certificate it has: %s", error)
            return None
        self.authority, self.certificate, self._key = authority, certificate, key
        log.warning("the server's certificate has been read again")
        return self.configuration()


def is_loopback(address: str) -> bool:
    """Whether ``HOST:PORT`` names this very machine.

    >>> is_loopback("localhost:50051"), is_loopback("[::1]:1"), is_loopback("0.0.0.0:50051")
    (True, True, False)
    """
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(address: str) -> str:
    """Return ``HOST:PORT``, or raise."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"'{address}' is not of the form HOST:PORT.")
    return address


def _check_insecure(address: str) -> None:
    if not is_loopback(address):
        raise InputError(
            f"--insecure is for this machine alone (localhost, 127.0.0.1); {address} is not. Use certificates."
        )


def open_server(
    address: str,
    session: Callable[[Any, Any], Awaitable[None]],
    tls_files: TLSFiles | None,
    health: Health,
    policy: Callable[[Any, Any], Awaitable[bytes]],
) -> tuple[Any, int]:
    """A gRPC server, not yet started, and its port; no tls_files: insecure.

    It hands every stream to ``session``, and answers with ``policy`` who asks for the recommended policy. It
    also says how it is (``health``), to everyone who gets past TLS.
    """
    check_address(address)
    credentials = None
    handlers = {
        METHOD: grpc.stream_stream_rpc_method_handler(session),
        POLICY: grpc.unary_unary_rpc_method_handler(policy),
    }
    if tls_files is None:
        _check_insecure(address)
    else:
        own = _ServerFiles(tls_files)
        credentials = grpc.dynamic_ssl_server_credentials(own.configuration(), own.renewed, True)

        async def tell_certificate(_: Any, context: Any) -> bytes:
            return own.certificate

        handlers[CERTIFICATE] = grpc.unary_unary_rpc_method_handler(tell_certificate)
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
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    health.add_to(server)
    try:
        port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise InputError(f"cannot listen on {address}: {error}.") from error
    return server, int(port)


def open_channel(
    address: str, tls_files: TLSFiles | None, *, server_name: str | None = None, server: bytes | None = None
) -> Any:
    """A gRPC channel to ``HOST:PORT``; ``server_name`` is the one in its certificate, if it is not the host.

    With the certificate ``server`` to this very server alone; else to any that the authority has certified.
    """
    check_address(address)
    options: list[tuple[str, object]] = [
        *_KEEP_ALIVE,
        ("grpc.max_receive_message_length", MAX_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),  # every node a connection of its own
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5000),
    ]
    if tls_files is None:
        _check_insecure(address)
        options.append(("grpc.enable_http_proxy", 0))  # it would lead off this machine
        return grpc.aio.insecure_channel(address, options)
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    authority, certificate, key = tls_files.read()
    credentials = grpc.ssl_channel_credentials(server or authority, key, certificate)
    return grpc.aio.secure_channel(address, credentials, options)


async def ask_certificate(address: str, tls_files: TLSFiles, *, server_name: str | None = None) -> bytes:
    """The certificate of the server at ``HOST:PORT``; raise unless it is one for servers.

    gRPC accepts a certificate that does not say what it is for, and does not show it. So the server is asked for its
    certificate. The next channel accepts this certificate alone, so it checks that the server has the key.
    """
    channel = open_channel(address, tls_files, server_name=server_name)
    try:
        pem: bytes = await channel.unary_unary(f"/{SERVICE}/{CERTIFICATE}")(b"", timeout=ANSWER_SECONDS)
    finally:
        await channel.close()
    check_server_certificate(pem, tls_files.read()[0])
    return pem


async def ask_policy_file(channel: Any) -> bytes:
    """The policy that the server recommended last, as a file; raises what gRPC raises."""
    content: bytes = await channel.unary_unary(f"/{SERVICE}/{POLICY}")(b"", timeout=ANSWER_SECONDS)
    return content


def open_stream(channel: Any) -> Any:
    """The stream of a node; messages are bytes."""
    return channel.stream_stream(f"/{SERVICE}/{METHOD}")()
