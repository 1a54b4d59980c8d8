"""gRPC channels and servers: mutual TLS, keep-alives, limits."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.schema import PACKAGE

with needed("grpcio"):
    import grpc  # type: ignore[import-untyped]

SERVICE, METHOD = f"{PACKAGE}.Federation", "Session"
MAX_BYTES = 256 << 20
"""The largest message a node accepts from its server."""
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
    address: str, session: Callable[[Any, Any], Awaitable[None]], tls_files: TLSFiles | None, *, most_bytes: int
) -> tuple[Any, int]:
    """A gRPC server that hands every stream to ``session``, not yet started, and its port; no tls_files: insecure."""
    check_address(address)
    credentials = None
    if tls_files is None:
        _check_insecure(address)
    else:
        authority, certificate, key = tls_files.read()
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    options = (
        *_KEEP_ALIVE,
        ("grpc.http2.min_ping_interval_without_data_ms", 500 * KEEP_ALIVE_SECONDS),
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", 4),
        ("grpc.so_reuseport", 0),
    )
    server = grpc.aio.server(options=options)
    handler = grpc.stream_stream_rpc_method_handler(session)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
    try:
        port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise InputError(f"cannot listen on {address}: {error}.") from error
    return server, int(port)


def open_channel(address: str, tls_files: TLSFiles | None, *, server_name: str | None = None) -> Any:
    """A gRPC channel to ``HOST:PORT``; ``server_name`` is the one in its certificate, if it is not the host."""
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
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate), options)


def open_stream(channel: Any) -> Any:
    """The stream of a node; messages are bytes."""
    return channel.stream_stream(f"/{SERVICE}/{METHOD}")()
