"""The page and its metrics by HTTP: a few addresses, all of them read-only, served by a thread beside the run.

Only this machine has access, or others by TLS and a token.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from fed_ucbvi.charts.picture import javascript_library
from fed_ucbvi.core.addresses import is_loopback
from fed_ucbvi.core.colours import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, on_dark
from fed_ucbvi.core.errors import InputError, missing_package
from fed_ucbvi.dashboard.series import COLUMNS
from fed_ucbvi.dashboard.state import OVER, STOPPED, LiveState, Position

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise missing_package("the live page needs", "starlette and uvicorn", "dashboard") from error

SECONDS_BETWEEN = 0.25
"""Between two events at least, however many rounds there were."""
SHARE, LONGEST_PAUSE = 0.005, 1.0
"""Of the processor time of a run's process, what events for one reader may take, and the longest
pause in seconds until the run has used the rest. On a busy machine events are therefore fewer."""
HEARTBEAT = 5.0
"""Seconds without news after which a reader gets an empty event."""
MAX_READERS = 32
"""Of events, at a time."""
REQUEST_SECONDS, MAX_SILENT = 10.0, 200
"""Seconds for a whole request, and the most connections that may be without one: beyond it those are closed that
have had an answer, then the oldest."""
START_SECONDS, END_SECONDS = 20.0, 3.0
"""Seconds for the start, and for readers to receive the end."""
MIN_TOKEN = 16
"""Characters of a token."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COLOURS = {"blue": BLUE, "vermillion": VERMILLION, "green": GREEN, "orange": ORANGE, "purple": PURPLE}
HEADERS = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
]
"""Of every answer; they keep a browser from doing anything else with it."""


class NotHereError(InputError):
    """An address that other machines can reach, without a certificate and a token."""


@dataclass(frozen=True)
class Access:
    """Where the page is served, and who has access.

    Args:
        host: a name or an address of this machine.
        port: 0 means a free one.
        certificate: a file with the certificate in PEM; with it the page is served by TLS only.
        token: required of readers; None where everybody on this machine has access.
    """

    host: str
    port: int
    certificate: Path | None = None
    token: str | None = None
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """The cookie of a browser that has shown the token."""

    @classmethod
    def parse(cls, address: str, certificate: Path | None = None, token_file: Path | None = None) -> Access:
        """From ``HOST:PORT`` and files; the key lies beside the certificate, with the ending ``.key``.

        >>> Access.parse("localhost:8080").url(8080)
        'http://localhost:8080/'
        >>> Access.parse("0.0.0.0:8080")
        Traceback (most recent call last):
        fed_ucbvi.dashboard.server.NotHereError: 0.0.0.0:8080 can be reached from other machines, so the page needs a
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
        for file in () if certificate is None else (certificate, certificate.with_suffix(".key")):
            if not file.is_file():
                raise InputError(f"{file} is missing; the page needs a certificate and, beside it, its key (.key).")
        return cls(host, int(port), certificate, None if token_file is None else read_token(token_file))

    def tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context, key = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), self.certificate.with_suffix(".key")
        try:
            context.load_cert_chain(self.certificate, key)
        except (ssl.SSLError, OSError) as error:
            raise InputError(f"{self.certificate} and {key} are no certificate and its key: {error}.") from error
        return context

    def url(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{port}/"

    def knows(self, host_header: str) -> bool:
        """Whether a request with this ``Host`` was meant for this server.

        Without a token the page is for this machine alone. A page from elsewhere can make a browser call this
        machine by a name of its own (DNS rebinding); that name is in ``Host``, and is refused.
        """
        return self.token is not None or is_loopback(re.sub(r":\d*$", "", host_header).strip("[]"))

    def allows(self, given: str | None, session: str | None = None) -> bool:
        """Whether this token, or this session, gives access."""
        return self.token is None or _same(given, self.token) or _same(session, self.session)


def read_token(file: Path) -> str:
    """The token in a file: one line, long enough not to be guessed."""
    if not file.is_file():
        raise InputError(f"{file} is missing; write a long random word into it, as 'openssl rand -hex 32' gives.")
    token = file.read_text(encoding="utf-8").strip()
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{file} must hold one word of at least {MIN_TOKEN} characters, as 'openssl rand -hex 32'.")
    return token


def _same(given: str | None, expected: str) -> bool:
    """Compare in constant time."""
    return given is not None and secrets.compare_digest(given.encode(), expected.encode())


@cache
def page() -> tuple[str, str]:
    """The document, and its content security policy: its script and style, and its own server."""
    light, dark = (
        " ".join(f"--{name}: {change(colour)};" for name, colour in COLOURS.items()) for change in (str, on_dark)
    )
    scheme = f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    style = scheme + _asset("page.css")
    script = _asset("page.js").replace("/* columns */ []", json.dumps(COLUMNS))
    html = _asset("page.html").replace("/* style */", style).replace("/* script */", script)
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files("fed_ucbvi.dashboard").joinpath(name).read_text(encoding="utf-8")


class _EventStream(StreamingResponse):
    """Increments of a state as server-sent events, to at most :data:`MAX_READERS` at a time."""

    def __init__(self, state: LiveState, server: PageServer) -> None:
        super().__init__(_events(state, server), media_type="text/event-stream")
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._server.readers >= MAX_READERS:
            await PlainTextResponse("too many readers; close a page\n", 503)(scope, receive, send)
            return
        self._server.readers += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._server.readers -= 1


async def _events(state: LiveState, server: PageServer) -> AsyncIterator[str]:
    """Events until the reader or the server goes; the first one is everything."""
    position, sent = Position(), 0.0
    yield "retry: 1000\n\n"
    while True:
        closing, name = server.closing, "everything" if position == Position() else "increment"
        began, cost = time.thread_time(), 0.0
        increment, position = state.increment(position)
        now = time.monotonic()
        if increment:
            text, sent = _json(increment), now
            cost = time.thread_time() - began
            yield f"event: {name}\ndata: {text}\n\n"
        elif now - sent >= HEARTBEAT:
            sent = now
            yield "event: nothing\ndata: {}\n\n"
        if closing:
            return
        until = time.process_time() + cost / SHARE
        await asyncio.sleep(SECONDS_BETWEEN)
        while time.process_time() < until and time.monotonic() < now + LONGEST_PAUSE and not server.closing:
            await asyncio.sleep(SECONDS_BETWEEN / 2)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def guarded(app: ASGIApp, access: Access) -> ASGIApp:

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await (_refusal(Request(scope), access) or app)(scope, receive, send)

    return answer


def _refusal(request: Request, access: Access) -> Response | None:
    """The answer to a request without access; None for others."""
    if not access.knows(request.headers.get("host", "")):
        return PlainTextResponse("this page is served to this machine, by its own name\n", 421)
    cookie = f"fed-ucbvi-{request.scope['server'][1]}"  # browsers do not tell ports apart
    kind, _, word = request.headers.get("authorization", "").partition(" ")
    if access.allows(word if kind.lower() == "bearer" else None, request.cookies.get(cookie)):
        return None
    if access.allows(request.query_params.get("token")):
        answer = RedirectResponse("/" + request.scope["path"].lstrip("/\\"), 303)  # //host would lead elsewhere
        secure = access.certificate is not None
        answer.set_cookie(cookie, access.session, httponly=True, samesite="lax", secure=secure)
        return answer
    return PlainTextResponse("a token is needed: open the page once as /?token=...\n", 401)


def _protocol(tls: ssl.SSLContext | None) -> type[H11Protocol]:
    """The class of HTTP connections in which a request must come soon.

    TLS begins here: uvicorn knows nothing of connections whose handshake never ends.
    """
    silent: dict[Any, asyncio.TimerHandle] = {}

    class Protocol(H11Protocol):
        """Closes connections that have sent no request, or half of one, for :data:`REQUEST_SECONDS`."""

        _early: bytearray | None = None
        """Bytes that arrive by TLS before uvicorn knows of the connection."""

        def connection_made(self, transport: Any) -> None:
            if tls is None:
                super().connection_made(transport)
            else:
                self.transport, self._early = transport, bytearray()
                transport.pause_reading()
                self._handshake = self.loop.create_task(self._secure(transport, tls))
            self._watch()

        async def _secure(self, transport: Any, tls: ssl.SSLContext) -> None:
            try:
                secured = await self.loop.start_tls(transport, self, tls, server_side=True)
            except OSError:  # it was not TLS
                secured = None
            if secured is None or secured.is_closing():
                self._drop()
            else:
                super().connection_made(secured)
                early, self._early = self._early, None
                if early:
                    self.data_received(bytes(early))

        def data_received(self, data: bytes) -> None:
            if self._early is not None:
                self._early += data
                return
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _watch(self) -> None:
            cycle: Any = self.cycle  # None before the first request
            if cycle is not None and not cycle.response_complete:
                self._forget()
            elif self not in silent and not self.transport.is_closing():
                silent[self] = self.loop.call_later(REQUEST_SECONDS, self._drop)
                if len(silent) > MAX_SILENT:
                    answered = (one for one in silent if one.cycle is not None)
                    next(answered, next(iter(silent)))._drop()

        def _forget(self) -> None:
            if (timer := silent.pop(self, None)) is not None:
                timer.cancel()

        def _drop(self) -> None:
            self._forget()
            self.transport.abort()

    return Protocol


class PageServer:
    """Serves from a thread, from when it is made until it is closed: the page of a state, metrics, or both.

    If the run has not ended when a ``with`` block ends, the page shows it as stopped.

    Args:
        state: what to show; None if there are only metrics.
        access: where, and to whom.
        metrics: the content of ``/metrics`` in Prometheus' text format; without it there is no such address.

    Attributes:
        url: of the page.
        readers: the number of open event streams.
        closing: whether the server is about to end.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> from fed_ucbvi.dashboard.state import Subject
    >>> algorithm, world = FedUCBVI(nu=100), synthetic(agents=2)
    >>> state = LiveState(Subject.of_run(algorithm, world))
    >>> with PageServer(state, Access.parse("127.0.0.1:0")) as page:
    ...     state.finish(run(algorithm, world, 50, on_round=state))
    >>> state.snapshot()["now"]["episodes"], state.phase
    (50, 'over')
    """

    def __init__(self, state: LiveState | None, access: Access, metrics: Callable[[], bytes] | None = None) -> None:
        self.state, self.readers, self.closing, tls = state, 0, False, access.tls()
        try:
            family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
            self._socket = socket.create_server((access.host, access.port), family=family)
        except OSError as error:
            what = "metrics" if state is None else "the page"
            raise InputError(
                f"{what} cannot be served at {access.host}:{access.port}: {error.strerror or error}. Use another "
                "address or port (0 means a free one)."
            ) from error
        self.url = access.url(int(self._socket.getsockname()[1]))
        config = uvicorn.Config(
            guarded(Starlette(routes=[*self._routes(state, metrics)]), access),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            http=_protocol(tls),
            loop="asyncio",
            server_header=False,
            headers=HEADERS,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="live page", daemon=True
        )
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.005)

    def _routes(self, state: LiveState | None, metrics: Callable[[], bytes] | None) -> Iterator[Route]:
        def fixed(path: str, content: Callable[[], str | bytes], kind: str, **headers: str) -> Route:
            return Route(path, lambda request: Response(content(), media_type=kind, headers=headers))

        if metrics is not None:
            yield fixed("/metrics", metrics, METRICS_TYPE)
        if state is None:
            return

        async def events(request: Request) -> Response:
            head = request.method == "HEAD"
            return Response(media_type="text/event-stream") if head else _EventStream(state, self)

        html, policy = page()
        yield fixed("/", lambda: html, "text/html", **{"Content-Security-Policy": policy})
        yield fixed("/state.json", lambda: _json(state.snapshot()), "application/json")
        yield fixed("/vega.js", javascript_library, "text/javascript")
        yield Route("/events", events)

    def close(self) -> None:
        """Send readers the last event, then end."""
        self.closing = True
        end = time.monotonic() + END_SECONDS
        while self.readers and time.monotonic() < end:
            time.sleep(0.01)
        self._server.should_exit = True
        self._thread.join(END_SECONDS)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.state is not None and self.state.phase not in (OVER, STOPPED):
            why = str(error) if isinstance(error, InputError) else "The program ended before the run."
            self.state.end(why, complete=False)
        self.close()
