"""Errors between server and nodes."""

from __future__ import annotations

from fed_ucbvi.core.errors import InputError


class ConnectionLostError(Exception):
    """A connection is of no use any more; another may be opened."""


class ConnectionEndedError(ConnectionLostError):
    """It ended without a word: a process died, a line was cut, or gRPC cut off far too long a message."""


class DismissedError(ConnectionLostError):
    """The server has ended the stream and said why; the node may come back."""


class ViolationError(Exception):
    """Something a node sent cannot be true; ``node`` is its name, where several nodes' messages were checked."""

    def __init__(self, what: str, *, node: str = "") -> None:
        super().__init__(what)
        self.node = node


class RejectedError(Exception):
    """A node is not let in; ``retry`` says whether coming back later makes sense."""

    def __init__(self, reason: str, *, retry: bool = False) -> None:
        super().__init__(reason)
        self.retry = retry


class FederationStoppedError(InputError):
    """The run cannot continue; finished rounds are in the checkpoint."""


class RefusedError(InputError):
    """The server does not want this node."""


class DeclinedError(Exception):
    """A node does not answer this roster, and says why; it may answer the next."""
