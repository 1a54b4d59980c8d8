"""Questions that a node allows a server: one for each (round, exchange), and only those of an honest server.

Sums of values that the server chooses tell it about a node's transitions, so every question costs some privacy. An
honest server asks each question once in a round, with values of its algorithm. A server that was started again
repeats a synchronisation from its start, and says so by another *epoch*. These checks bound what a server can ask of
a node in the open. Against questions that are plausible only secure sums help.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Algorithm, Array, Message, Setting
from fed_ucbvi.algorithms.contract import checked_broadcast
from fed_ucbvi.algorithms.state_memory import check_server_memory
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.message_sizes import Form, down_limits
from fed_ucbvi.network.messages import Query, Start
from fed_ucbvi.network.rewards import judged_in
from fed_ucbvi.problem.policies import PROBABILITIES, TYPES, check_actions

MAX_EPOCHS = 1000
"""Largest number of epochs of the server that one process of a node accepts."""
MAX_REPEATS = 1000
"""Times in a round that a node repeats an answer, on streams that broke, before it gives up."""


class QueryGuard:
    """The questions of a run, as one node sees them."""

    def __init__(self, algorithm: Algorithm[Any, Any], setting: Setting) -> None:
        self._algorithm = algorithm
        self.change(setting)
        check_server_memory(algorithm, setting)
        server = algorithm.new_server(setting)  # what it sends looks like what the run's server sends
        broadcast = _forms(checked_broadcast(algorithm, setting, server))
        policy, *others = broadcast
        drawn = policy[0], TYPES[PROBABILITIES]
        self._starts = broadcast, [drawn, *others]
        """Forms of the arrays of a start: with the algorithm's policy, or with one that draws its actions."""
        self._queries = [
            _forms(algorithm.query(server, e)) for e in range(algorithm.message_sizes(setting).exchanges)
        ]
        self._values: tuple[int, Array] | None = None
        self._epochs: set[int] = set()
        self._round = -1
        self._answers = 0
        self._asked: dict[int, tuple[Message, Message]] = {}

    @property
    def limits(self) -> Mapping[str, int]:
        """The most bytes of a message of the server, by its kind."""
        return down_limits(self._setting, self._starts, self._queries)

    def change(self, setting: Setting) -> None:
        """The run goes on with another setting; what was asked so far stays asked."""
        self._setting, self._grid = setting, self._algorithm.grid(setting)

    def begin(self, epoch: int) -> None:
        """A server welcomes the node; what a new one asks is asked anew."""
        if epoch in self._epochs:
            return
        if len(self._epochs) >= MAX_EPOCHS:
            raise InputError(
                f"the server has begun again {MAX_EPOCHS} times, and each time may ask everything anew. If you know "
                "why, start the node again."
            )
        self._epochs.add(epoch)
        self._round = -1

    def check_start(self, start: Start) -> None:
        """Raise if the start of a round does not fit the run, or its values cannot be those of its algorithm."""
        number = start.round
        setting = self._setting
        fitting = self._starts if start.playing else self._starts[:1]
        if _forms(start.arrays) not in fitting or start.first + start.most > setting.episodes:
            raise InputError(f"the server's start of round {number} does not fit the run.")
        if len(start.judged) not in (0, 2) or (start.playing and judged_in(start) == 0):
            raise InputError(f"the server's start of round {number} does not say which policy is judged.")
        check_actions("the server's policy", start.arrays[0], setting.actions)
        sent = self._algorithm.sent_values
        if sent.broadcast is None:
            return
        V = start.arrays[sent.broadcast]
        for step, row in enumerate(V):
            self._check_values(row, step, -np.inf)
        before = self._values
        if sent.monotone and before is not None and before[0] < number and (before[1] < V).any():
            raise InputError(
                f"the server's values of round {number} have risen, which {self._algorithm.name}'s never do."
            )
        self._values = number, V

    def exchange_of(self, query: Query) -> int:
        """Which exchange of a synchronisation a query begins; raise if it does not fit the run."""
        E = len(self._queries)
        known = 2 * E if self._algorithm.asks_to_plan else E
        exchange = query.exchange % E
        if query.exchange >= known or _forms(query.arrays) != self._queries[exchange]:
            raise InputError(f"the server's query {query.exchange} does not fit the run.")
        return exchange

    def check(self, asked: Query, answer: Message) -> None:
        """Raise unless a query may be answered in this way; the same question must get the same answer."""
        number = asked.round
        exchange = asked.exchange
        query = asked.arrays
        exchanges = len(self._queries)
        place = self._algorithm.sent_values.query
        if query and place is not None:
            self._check_values(query[place], self._setting.horizon - exchange % exchanges, 0.0)
        if number != self._round:
            if number < self._round:
                raise InputError(f"the server asks about round {number} after round {self._round}.")
            self._round = number
            self._asked = {}
            self._answers = 0
        before = self._asked.setdefault(exchange, (query, answer))
        if not _same(before[0], query):
            raise InputError(
                f"the server asks a second question in round {number}, exchange {exchange}. An honest server asks "
                "one; this node answers no more."
            )
        if not _same(before[1], answer):
            raise InputError(
                f"the server asks about round {number} again, after it has had this or an earlier round played in "
                "another way."
            )
        self._answers += 1
        if self._answers > 2 * exchanges + MAX_REPEATS:
            raise InputError(f"the server has asked {self._answers} times in round {number}.")

    def _check_values(self, V: Array, step: int, least: float) -> None:
        most = float(self._setting.horizon) if step < self._setting.horizon else 0.0
        # NaN if there is one
        low = float(np.minimum.reduce(V))
        high = float(np.maximum.reduce(V))
        fits = least <= low and high <= most and math.isfinite(low)
        if step == self._setting.horizon:
            fits = low == high == 0.0
        if fits and self._grid is not None:
            scaled = V * 2.0**self._grid.bits
            fits = scaled.tobytes() == np.floor(scaled).tobytes()
        if not fits:
            raise InputError(
                f"the server asks about values at step {step + 1} that cannot be {self._algorithm.name}'s: they lie "
                f"between 0 and {most:g}, on the run's grid."
            )


def _same(one: Message, other: Message) -> bool:
    """True if arrays, whose shapes and types are known, are the same to the bit."""
    return one is other or [array.tobytes() for array in one] == [array.tobytes() for array in other]


def _forms(arrays: Message) -> list[Form]:
    """Shapes and types."""
    return [(array.shape, array.dtype) for array in arrays]
