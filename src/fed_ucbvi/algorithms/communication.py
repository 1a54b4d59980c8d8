"""Messages and bytes between agents and server, in closed form.

A round is: start (down: the broadcast with round and episode number), a request from every agent that makes one (up),
stop (down), then for each exchange a query (down) and a report (up). The last round ends with the end-of-training
signal instead. Down-messages go to each of the M agents and are counted M times. A query without arrays is no
message: the stop says all the agents need. Recommendations (:mod:`fed_ucbvi.results.recommendations`) are counted
apart.

What is counted is the paper's: every agent sends its own message, with a number for each mean (for Fed-UCBVI n,
``P V``, ``P V^2`` and Q), however agents are grouped and whatever form reports are sent in. Each algorithm states
the sizes of its messages (:meth:`~fed_ucbvi.algorithms.base.Algorithm.message_sizes`). What a run over the
network really sends is recorded beside it (:class:`fed_ucbvi.network.transport.WireCount`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Array, Message, MessageSizes

HEADER = np.zeros(2, dtype=np.int64)
"""Round and episode number; also the whole of the stop and of the end signal."""
REQUEST = np.zeros(6, dtype=np.int64)
"""Round, episode, step, state, action and rule of a request for synchronisation."""


class Traffic(NamedTuple):
    """Messages and bytes, up (agents to server) and down."""

    messages_up: int
    messages_down: int
    bytes_up: int
    bytes_down: int


def size(message: Message) -> int:
    """Bytes of a message's arrays; truth values, such as a policy's sets of actions, are bits."""
    return sum((array.size + 7) // 8 if array.dtype == np.bool_ else array.nbytes for array in message)


class Meter:
    """Counts the messages and bytes of a run from the sizes of its algorithm's messages."""

    def __init__(self, sizes: MessageSizes, horizon: int) -> None:
        self._sizes = sizes
        self._horizon = horizon
        self._start = HEADER.nbytes + sizes.broadcast
        self._queries = sizes.exchanges if sizes.query else 0
        self._query_bytes = sizes.exchanges * sizes.query

    def round(self, agents: int, *, requesters: int, last: bool, episodes: int) -> Traffic:
        """The traffic of a round of some agents that ended with this many requests; ``last`` adds the end signal."""
        M = agents
        messages_up = 0
        bytes_up = 0
        messages_down = M
        bytes_down = M * self._start
        if requesters:
            messages_up += requesters + M * self._sizes.exchanges
            bytes_up += requesters * REQUEST.nbytes + M * self._sizes.reports_after(episodes * self._horizon)
            messages_down += M + M * self._queries
            bytes_down += M * HEADER.nbytes + M * self._query_bytes
        if last:
            messages_down += M
            bytes_down += M * HEADER.nbytes
        return Traffic(messages_up, messages_down, bytes_up, bytes_down)

    def recommendation(self, agents: int, policy: Array, *, asked: bool, last: bool, episodes: int) -> Traffic:
        """The traffic of a recommendation: one more synchronisation if agents are ``asked``.

        The ``last`` is sent to all with the end signal, so that it is no message of its own.
        """
        M = agents
        sent = policy.nbytes if last else 0
        if not asked:
            return Traffic(0, 0, 0, M * sent)
        return Traffic(
            messages_up=M * self._sizes.exchanges,
            messages_down=M * self._queries,
            bytes_up=M * self._sizes.reports_after(episodes * self._horizon),
            bytes_down=M * (self._query_bytes + sent),
        )
