"""The page as a web application: four addresses, all of them read-only."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from fed_ucbvi.dashboard.access import Access
from fed_ucbvi.dashboard.packages import needed
from fed_ucbvi.dashboard.page import page
from fed_ucbvi.dashboard.state import LiveState, Position

with needed("starlette"):
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route

SECONDS_BETWEEN = 0.25
"""Between two events at least, however many rounds there were."""
SHARE, LONGEST_PAUSE = 0.005, 1.0
"""Of the processor time of a run's process, what making events for a reader may take; and seconds that it waits at
most for the run to have worked so long. On a busy machine events are therefore fewer."""
HEARTBEAT = 5.0
"""Seconds after which a reader is told that there is nothing new."""
MOST_READERS = 32
"""Of events, at a time."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Readers:
    """Those who follow the events, and whether the server is about to end."""

    def __init__(self) -> None:
        self.count, self.closing = 0, False


def make_app(
    state: LiveState, access: Access, readers: Readers, metrics: Callable[[], bytes] | None = None
) -> Starlette:
    """The application.

    Args:
        state: what to show.
        access: who may look.
        readers: of events; to be told when the server ends.
        metrics: what ``/metrics`` answers, in Prometheus' text format; there is no such address without it.
    """
    html, policy = page()

    def root(request: Request) -> Response:
        return Response(html, media_type="text/html", headers={"Content-Security-Policy": policy})

    def snapshot(request: Request) -> Response:
        return Response(_json(state.snapshot()), media_type="application/json")

    def events(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if readers.count >= MOST_READERS:
            return PlainTextResponse("too many readers; close a page\n", 503)
        return StreamingResponse(_events(state, readers), media_type="text/event-stream")

    def figures(request: Request) -> Response:
        assert metrics is not None
        return Response(metrics(), headers={"Content-Type": METRICS_TYPE})

    routes = [Route("/", root), Route("/state.json", snapshot), Route("/events", events)]
    routes += [] if metrics is None else [Route("/metrics", figures)]
    return Starlette(routes=routes, middleware=[Middleware(Guard, access=access)])


class Guard:
    """Turns away who may not look, and puts headers on every answer that keep a browser from doing anything else."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                fixed = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *fixed]
            await send(message)

        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refused(self, request: Request) -> Response | None:
        """The answer to somebody who may not look; None for others."""
        access = self._access
        if not access.knows(Headers(scope=request.scope).get("host", "")):
            return PlainTextResponse("this page is served to this machine, by its own name\n", 421)
        if access.token is None:
            return None
        cookie = f"fed-ucbvi-{request.scope['server'][1]}"  # browsers do not tell ports apart
        kind, _, word = request.headers.get("authorization", "").partition(" ")
        if access.allows(word if kind.lower() == "bearer" else None, request.cookies.get(cookie)):
            return None
        if access.allows(request.query_params.get("token"), None):
            answer = RedirectResponse(request.url.path, 303)
            answer.set_cookie(
                cookie, access.session, httponly=True, samesite="lax", secure=access.certificate is not None
            )
            return answer
        return PlainTextResponse("a token is needed: open the page once as /?token=...\n", 401)


async def _events(state: LiveState, readers: Readers) -> AsyncIterator[str]:
    """Increments as server-sent events, until the reader or the server goes; the first one is everything."""
    readers.count += 1
    try:
        position, told = Position(), 0.0
        yield "retry: 1000\n\n"
        while True:
            closing, name = readers.closing, "everything" if position == Position() else "increment"
            began, cost = time.thread_time(), 0.0
            increment, position = state.increment(position)
            now = time.monotonic()
            if increment:
                text, told = _json(increment), now
                cost = time.thread_time() - began
                yield f"event: {name}\ndata: {text}\n\n"
            elif now - told >= HEARTBEAT:
                told = now
                yield "event: nothing\ndata: {}\n\n"
            if closing:
                return
            until = time.process_time() + cost / SHARE
            await asyncio.sleep(SECONDS_BETWEEN)
            while time.process_time() < until and time.monotonic() < now + LONGEST_PAUSE and not readers.closing:
                await asyncio.sleep(SECONDS_BETWEEN / 2)
    finally:
        readers.count -= 1


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)
