"""Messages and bytes between agents and server, counted from the messages themselves.

A round is: start (down: the broadcast with round and episode number), a request from every agent that makes one (up),
stop (down), then for each exchange a query (down) and a report (up). The last round ends with the end-of-training
signal instead. Down-messages go to each of the M agents and are counted M times. A query without arrays is no
message: the stop says all the agents need. Recommendations (:mod:`fed_ucbvi.results.recommendations`) are counted
apart.

What is counted is the paper's: every agent sends its own message, with a number for each mean (for Fed-UCBVI n,
``P V``, ``P V^2`` and Q), however agents are grouped and whatever form reports are sent in. What a run over the
network really sends is recorded beside it (:class:`fed_ucbvi.network.transport.WireCount`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, FleetTables, Message, Setting

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
    """The sizes of one algorithm's messages, taken from the arrays it sends where every agent reports a row."""

    def __init__(self, algorithm: Algorithm[Any, Any], setting: Setting) -> None:
        self.agents = setting.agents
        self._algorithm, self._setting = algorithm, setting
        known = algorithm.report_bytes(setting, 0) is not None
        counted = algorithm if known else algorithm.with_agent_reports()
        server = counted.new_server(setting)
        self.start = HEADER.nbytes + size(counted.broadcast(server))
        self.exchanges = counted.exchanges(setting)
        queries = [counted.query(server, exchange) for exchange in range(self.exchanges)]
        self.queries, self.asked = sum(map(size, queries)), sum(len(query) > 0 for query in queries)
        self.reports = 0
        if not known:
            agent = counted.new_agents(setting, FleetTables.placeholder(setting))
            self.reports = sum(size(counted.empty_report(agent, query, e)) for e, query in enumerate(queries))

    def _reports(self, episodes: int) -> int:
        """Bytes of one agent's reports after a round of so many episodes."""
        return self._algorithm.report_bytes(self._setting, episodes) or self.reports

    def round(self, requesters: int, last: bool, episodes: int) -> Traffic:
        """The traffic of a round that ended with this many requests; ``last`` adds the end signal."""
        M = self.agents
        messages_up = bytes_up = 0
        messages_down, bytes_down = M, M * self.start
        if requesters:
            messages_up += requesters + M * self.exchanges
            bytes_up += requesters * REQUEST.nbytes + M * self._reports(episodes)
            messages_down += M + M * self.asked
            bytes_down += M * HEADER.nbytes + M * self.queries
        if last:
            messages_down += M
            bytes_down += M * HEADER.nbytes
        return Traffic(messages_up, messages_down, bytes_up, bytes_down)

    def recommendation(self, policy: Array, *, asked: bool, last: bool, episodes: int) -> Traffic:
        """The traffic of a recommendation: one more synchronisation if agents are ``asked``.

        The ``last`` is sent to all with the end signal, so that it is no message of its own.
        """
        M, sent = self.agents, policy.nbytes if last else 0
        if not asked:
            return Traffic(0, 0, 0, M * sent)
        return Traffic(M * self.exchanges, M * self.asked, M * self._reports(episodes), M * (self.queries + sent))
