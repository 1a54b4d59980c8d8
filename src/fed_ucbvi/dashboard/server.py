"""The server of the page: a thread beside the run."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.dashboard.access import Access
from fed_ucbvi.dashboard.app import Readers, make_app
from fed_ucbvi.dashboard.packages import needed
from fed_ucbvi.dashboard.state import LiveState

with needed("uvicorn"):
    import uvicorn

START_SECONDS, END_SECONDS = 20.0, 3.0
"""What starting may take, and how long the end waits for readers to hear of it."""


class PageServer:
    """Serves the page of a state from a thread, from when it is made until it is closed.

    Args:
        state: what to show.
        access: where, and to whom.
        metrics: as for :func:`fed_ucbvi.dashboard.app.make_app`.

    Attributes:
        url: where to look.
    """

    def __init__(self, state: LiveState, access: Access, metrics: Callable[[], bytes] | None = None) -> None:
        self.state = state
        try:
            family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
            self._socket = socket.create_server((access.host, access.port), family=family)
        except OSError as error:
            raise InputError(
                f"the page cannot be served at {access.host}:{access.port}: {error.strerror or error}. Take another "
                "address or port (0 takes a free one)."
            ) from error
        port = int(self._socket.getsockname()[1])
        self.url, self._readers = access.url(port), Readers()
        config = uvicorn.Config(
            make_app(state, access, self._readers, metrics),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=100,
            timeout_graceful_shutdown=1,
            ssl_certfile=access.certificate,
            ssl_keyfile=access.key,
        )
        try:
            config.load()
        except (ssl.SSLError, OSError) as error:
            self._socket.close()
            raise InputError(
                f"{access.certificate} and {access.key} are no certificate and its key: {error}."
            ) from error
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="live page", daemon=True
        )
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.005)

    @property
    def readers(self) -> int:
        """How many follow the events."""
        return self._readers.count

    def close(self) -> None:
        """Let readers have what is new, then end."""
        self._readers.closing = True
        end = time.monotonic() + END_SECONDS
        while self._readers.count and time.monotonic() < end:
            time.sleep(0.01)
        self._server.should_exit = True
        self._thread.join(END_SECONDS)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
