"""Admission: whose streams the server reads at all, decided before anything is read, and how many at a time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.certificate_checks import Certified, certified_node
from fed_ucbvi.network.node_stream import NodeStream
from fed_ucbvi.network.violation import ViolationError

HANDSHAKE_SECONDS = 120.0
"""Time until a node is ready; it may have to build a large problem and compile first."""
MAX_HANDSHAKES, MAX_STREAMS = 64, 8
"""Streams at one time: in the handshake, and with certificates of one name."""
MAX_ATTEMPTS, ATTEMPTS_SECONDS = 120, 60.0
"""Streams that one name may open in this time; an honest node pauses too long between attempts to reach it."""


class TurnedAwayError(Exception):
    """A node is not let in; ``retry`` says whether coming back later makes sense."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class Door:
    """Streams that are open, and by whose certificate.

    Args:
        names: of the nodes that may join; None for every node with a certificate.
        revoked: gives the names, and names with a serial number, that are turned away though they have a certificate;
            called for every stream.
        certified: whether streams bear certificates.
    """

    def __init__(
        self, names: Collection[str] | None, revoked: Callable[[], Iterable[str]], *, certified: bool
    ) -> None:
        self._names, self._revoked, self._certified = names, revoked, certified
        self.streams: dict[NodeStream, Certified | None] = {}
        self._handshakes = 0
        self._attempts: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MAX_ATTEMPTS))

    def holder(self, context: Any) -> Certified | None:
        """Whose stream it is, before anything is read from it; raise unless the certificate lets it in."""
        if not self._certified:
            return None
        try:
            certified = certified_node(context)
        except InputError as error:
            raise TurnedAwayError(str(error).rstrip(".")) from error
        self.check(certified)
        return certified

    def check(self, certified: Certified) -> None:
        """Raise unless it is on the list and has not been revoked."""
        if self._names is not None and certified.name not in self._names:
            raise TurnedAwayError(f"'{certified.name}' is not on the list of nodes")
        if certified.revocations & set(self._revoked()):
            raise TurnedAwayError(_revoked(certified))

    def close_revoked(self) -> None:
        """Let go of streams whose certificates have been revoked since they were opened."""
        revoked = set(self._revoked())
        for stream, certified in self.streams.items():
            if certified is not None and certified.revocations & revoked:
                stream.close(_revoked(certified))

    @asynccontextmanager
    async def handshake(self, stream: NodeStream, certified: Certified | None) -> AsyncIterator[None]:
        """Hold a handshake, within the limits on its time and on the number of streams."""
        self._check_room(certified)
        self.streams[stream] = certified
        self._handshakes += 1
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                yield
        except TimeoutError:
            raise TurnedAwayError("the handshake took too long", retry=True) from None
        except ViolationError as violation:
            raise TurnedAwayError(str(violation)) from violation
        finally:
            self._handshakes -= 1

    def _check_room(self, certified: Certified | None) -> None:
        """Raise if there are too many streams, of everybody or of one name."""
        own = 0
        if certified is not None:
            attempts, now = self._attempts[certified.name], time.monotonic()
            if len(attempts) == MAX_ATTEMPTS and now - attempts[0] < ATTEMPTS_SECONDS:
                raise TurnedAwayError(f"too many streams in {ATTEMPTS_SECONDS:g} s", retry=True)
            attempts.append(now)
            own = sum(other is not None and other.name == certified.name for other in self.streams.values())
        if own >= MAX_STREAMS or self._handshakes >= MAX_HANDSHAKES:
            raise TurnedAwayError("too many streams at one time", retry=True)


def _revoked(certified: Certified) -> str:
    return f"the certificate of '{certified.name}' has been revoked"
