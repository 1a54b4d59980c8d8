"""The page and its metrics by HTTP: a few addresses, all of them read-only, served by a thread beside the run.

The server listens on a loopback address only. From another machine the page is reached by a forwarded port or a
reverse proxy (docs/operate.md), which bring encryption and passwords of their own.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Self

from fed_ucbvi.core.addresses import check_address, host_of, is_loopback
from fed_ucbvi.core.colours import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, on_dark
from fed_ucbvi.core.errors import InputError, missing_package
from fed_ucbvi.network.dashboard.series import COLUMNS
from fed_ucbvi.network.dashboard.state import OVER, STOPPED, LiveState, Position

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as error:
    raise missing_package("the live page needs", "starlette and uvicorn", "dashboard") from error

SECONDS_BETWEEN = 0.25
"""At least between two events, however many rounds there were."""
SHARE = 0.005
LONGEST_PAUSE = 1.0
"""Share of the processor time of a run's process that events for one reader may take, and the longest
pause in seconds until the run has used the rest. On a busy machine events are therefore fewer."""
HEARTBEAT = 5.0
"""Seconds without news after which a reader gets an empty event."""
START_SECONDS = 20.0
"""Seconds for the start."""
END_SECONDS = 3
"""Seconds for readers to receive the end."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COLOURS = {
    "blue": BLUE,
    "vermillion": VERMILLION,
    "green": GREEN,
    "orange": ORANGE,
    "purple": PURPLE,
}
HEADERS = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
]
"""The headers of every answer; they keep a browser from any other use of it."""


def check_local(address: str, what: str = "the page") -> str:
    """Return ``HOST:PORT``, or raise if other machines could reach it; ``what`` is to be served there.

    >>> check_local("localhost:8080")
    'localhost:8080'
    >>> check_local("0.0.0.0:8080")
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: the page is served on this machine only, as 127.0.0.1:PORT, not on 0.0.0.0:8080.
    To read it from another machine, forward the port ('ssh -L 8080:127.0.0.1:8080 HOST') or put a reverse proxy with
    a password in front of it (docs/operate.md).
    """
    if not is_loopback(host_of(check_address(address))):
        raise InputError(
            f"{what} is served on this machine only, as 127.0.0.1:PORT, not on {address}. To read it from another "
            "machine, forward the port ('ssh -L 8080:127.0.0.1:8080 HOST') or put a reverse proxy with a password in "
            "front of it (docs/operate.md)."
        )
    return address


class LocalHostOnly:
    """Middleware that answers only requests whose ``Host`` is ``localhost`` or a loopback address, with any port.

    A page from elsewhere can make a browser send requests to this machine by a name of its own (DNS rebinding). That
    name is in ``Host``, and no browser lets a page choose another. A reverse proxy on this machine therefore has to
    send the address to which it passes requests on as ``Host``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        if is_local_name(host):
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse(
            "This page answers requests for localhost and 127.0.0.1 only. A reverse proxy must send its own target "
            "as Host.\n",
            status_code=421,
        )
        await refusal(scope, receive, send)


def is_local_name(host_header: str) -> bool:
    """Return True if a ``Host`` header, with or without port, names this machine's loopback interface.

    >>> is_local_name("localhost:8080"), is_local_name("[::1]:8080"), is_local_name("page.example.org")
    (True, True, False)
    """
    return is_loopback(re.sub(r":\d*$", "", host_header).strip("[]"))


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
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return files("fed_ucbvi.network.dashboard").joinpath(name).read_text(encoding="utf-8")


async def _events(state: LiveState, server: PageServer) -> AsyncIterator[str]:
    """Server-sent events until the reader or the server closes; the first one has everything."""
    position = Position()
    sent = 0.0
    yield "retry: 1000\n\n"
    while True:
        closing = server.closing
        name = "everything" if position == Position() else "increment"
        began = time.thread_time()
        cost = 0.0
        increment, position = state.increment(position)
        now = time.monotonic()
        if increment:
            text = _json(increment)
            sent = now
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


class PageServer:
    """Serves from a thread, from when it is made until it is closed: the page of a state, metrics, or both.

    If the run has not ended when a ``with`` block ends, the page shows it as stopped.

    Args:
        state: what to show; None if there are only metrics.
        address: ``HOST:PORT`` on this machine's loopback interface; port 0 means a free one.
        metrics: the content of ``/metrics`` in Prometheus' text format; without it there is no such address.

    Attributes:
        url: of the page.
        closing: whether the server is about to end.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> from fed_ucbvi.network.dashboard.state import Subject
    >>> algorithm, world = FedUCBVI(nu=100), synthetic(agents=2)
    >>> state = LiveState(Subject.of_run(algorithm, world))
    >>> with PageServer(state, "127.0.0.1:0") as page:
    ...     state.finish(run(algorithm, world, 50, on_round=state))
    >>> state.snapshot()["now"]["episodes"], state.phase
    (50, 'over')
    """

    def __init__(
        self,
        state: LiveState | None,
        address: str,
        metrics: Callable[[], bytes] | None = None,
    ) -> None:
        check_local(address)
        self.state = state
        self.closing = False
        host = host_of(address)
        port = int(address.rpartition(":")[2])
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            what = "metrics" if state is None else "the page"
            raise InputError(
                f"{what} cannot be served at {address}: {error.strerror or error}. Use another address or port (0 "
                "means a free one)."
            ) from error
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._socket.getsockname()[1]}/"
        routes = [*self._routes(state, metrics)]
        config = uvicorn.Config(
            Starlette(routes=routes, middleware=[Middleware(LocalHostOnly)]),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            loop="asyncio",
            server_header=False,
            headers=HEADERS,
            proxy_headers=False,
            timeout_graceful_shutdown=END_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="live page",
            daemon=True,
        )
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.005)

    def _routes(self, state: LiveState | None, metrics: Callable[[], bytes] | None) -> Iterator[Route]:
        def fixed(path: str, content: Callable[[], str | bytes], kind: str, **headers: str) -> Route:
            return Route(
                path,
                lambda request: Response(content(), media_type=kind, headers=headers),
            )

        if metrics is not None:
            yield fixed("/metrics", metrics, METRICS_TYPE)
        if state is None:
            return

        async def events(request: Request) -> Response:
            if request.method == "HEAD":
                return Response(media_type="text/event-stream")
            return StreamingResponse(_events(state, self), media_type="text/event-stream")

        html, policy = page()
        yield fixed("/", lambda: html, "text/html", **{"Content-Security-Policy": policy})
        yield fixed("/state.json", lambda: _json(state.snapshot()), "application/json")
        yield Route("/events", events)

    def close(self) -> None:
        """Send readers the last event, then end."""
        self.closing = True
        self._server.should_exit = True
        self._thread.join(2 * END_SECONDS)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.state is not None and self.state.phase not in (OVER, STOPPED):
            if isinstance(error, InputError):
                why = str(error)
            else:
                why = "The program ended before the run."
            self.state.end(why, complete=False)
        self.close()
