"""Messages and bytes: the records against every message, caught on its way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from by_agent import ByAgent
from fed_ucbvi import FedKLUCBVI, FedUCBVI, gridworld, run, synthetic
from fed_ucbvi.algorithms.base import Array, Message, Setting, exchange_messages
from fed_ucbvi.algorithms.communication import Traffic
from fed_ucbvi.algorithms.fed_ucbvi import FedUCBVIByRows
from fed_ucbvi.algorithms.fed_ucbvi_agents import Agents
from fed_ucbvi.algorithms.fed_ucbvi_server import Server
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.recommendations import table_of
from fed_ucbvi.results.round_record import COLUMNS

INTEGER = 8
"""Bytes of an integer in a header or a request."""


@dataclass
class Line:
    """What has crossed it, message by message: sizes in bytes."""

    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)


def bytes_of(arrays: Iterable[Array]) -> int:
    """What the arrays take when written out one after the other, truth values as bits."""
    whole = [np.packbits(array) if array.dtype == np.bool_ else np.ascontiguousarray(array) for array in arrays]
    return sum(len(array.tobytes()) for array in whole)


@dataclass(frozen=True)
class Overheard(FedUCBVIByRows):
    """Fed-UCBVI with the paper's reports that notes every message of every agent."""

    agents_listening: int = 0
    line: Line = field(default_factory=Line)

    name: ClassVar[str] = "overheard"

    def broadcast(self, server: Server) -> Message:
        message = super().broadcast(server)
        header = 2 * INTEGER  # round and episode number
        self.line.down.extend([header + bytes_of(message)] * self.agents_listening)
        return message

    def query(self, server: Server, exchange: int) -> Message:
        message = super().query(server, exchange)
        self.line.down.extend([bytes_of(message)] * self.agents_listening)
        return message

    def report(self, agents: Agents, query: Message, exchange: int) -> Message:
        message = super().report(agents, query, exchange)
        for i in range(len(message[0])):
            self.line.up.append(bytes_of(array[i] for array in message))
        return message

    def synchronise(self, server: Server, agents: Agents) -> None:
        H, S, A = server.estimates.Q.shape
        setting = Setting(S, A, H, self.agents_listening, episodes=1, eps_p=0.0, seed=0)
        exchange_messages(self, server, agents, setting)


FEDERATIONS: dict[str, Federation] = {
    "synthetic": synthetic(agents=3, eps_p=0.1),
    "grid": gridworld(agents=4, eps_p=0.1),
    "one agent": synthetic(agents=1, states=2, actions=3, horizon=4),
    "rewards of their own": synthetic(agents=2, eps_r=0.3, horizon=2),
}


@pytest.mark.parametrize("name", FEDERATIONS)
@pytest.mark.parametrize("episodes", [1, 151, 152])
def test_the_records_count_every_message_and_byte_that_crosses_the_line(name: str, episodes: int) -> None:
    federation = FEDERATIONS[name]
    M = federation.agents
    algorithm = Overheard(synchronisation="local", agents_listening=M)
    simulation = ByAgent(algorithm, federation, episodes, 1, "episodes")
    while not simulation.done:
        algorithm.line.up.clear()
        algorithm.line.down.clear()
        simulation.advance()
        up, down = algorithm.line.up, algorithm.line.down
        record = dict(zip(COLUMNS, simulation.rows[-1], strict=True))
        recommended = [row for row in simulation.recommendations if row[0] == len(simulation.rows)]
        more = {name: int(column.sum()) for name, column in table_of(recommended).items()}
        requesters = int(record["requests"])
        up.extend([6 * INTEGER] * requesters)  # round, episode, step, state, action, rule
        if requesters:
            down.extend([2 * INTEGER] * M)  # the server forwards the stop to everyone
        if simulation.played == episodes:
            assert simulation.recommended is not None
            policy = bytes_of([simulation.recommended.policy])
            down.extend([2 * INTEGER + policy] * M)  # the end of training, and the policy to deploy
        found = {name: record[name] + more[name] for name in Traffic._fields}
        assert tuple(found.values()) == Traffic(len(up), len(down), sum(up), sum(down))


def test_synchronising_message_by_message_is_the_same_run() -> None:
    federation = FEDERATIONS["synthetic"]
    by_messages = ByAgent(Overheard(synchronisation="local", agents_listening=3), federation, 500, 1, "episodes")
    while not by_messages.done:
        by_messages.advance()
    at_once = run(FedUCBVIByRows(synchronisation="local"), federation, 500, seed=1, driver="episodes")
    for column, expected in at_once.records.items():
        assert np.array_equal(by_messages.records()[column], expected, equal_nan=expected.dtype.kind == "f")
    policy: IndexArray = by_messages.server.policy
    assert np.array_equal(policy, at_once.exploring_policy)


def test_the_totals_are_those_of_the_message_formats() -> None:
    """In closed form: policies are 4-byte, counts and values 8-byte numbers; up go n, P V, P V^2 and Q."""
    S, A, H, M = 5, 4, 3, 6
    federation = synthetic(agents=M, states=S, actions=A, horizon=H)
    result = run(FedUCBVI(synchronisation="local"), federation, 300, seed=2)
    rounds, records = result.rounds, result.records
    requests = int(records["requests"].sum())
    start = 16 + 4 * H * S + 8 * H * S * A
    played = len(records["start"])
    assert result.bytes_down == M * (played * start + rounds * (16 + H * 8 * S) + 16)
    assert result.bytes_up == requests * 48 + rounds * M * H * 4 * 8 * S * A
    assert records["messages_down"].sum() == M * (played + rounds * (1 + H) + 1)
    assert records["messages_up"].sum() == requests + rounds * M * H
    summary = result.summary()
    assert summary["bytes_up"] == result.bytes_up == records["bytes_up"].sum()
    assert summary["bytes_down"] == result.bytes_down == records["bytes_down"].sum()
    assert summary["messages_up"] == records["messages_up"].sum()
    assert summary["messages_down"] == records["messages_down"].sum()


@pytest.mark.parametrize("stationary", [False, True])
def test_the_totals_of_sets_of_actions_and_counts_are_those_of_the_message_formats(stationary: bool) -> None:
    """Down go sets as bits, N and a number. Up go a place and a number for each transition and reward that a round
    of L episodes can have: at most L H, and at most as many as there are.
    """
    federation = FEDERATIONS["grid"]
    S, A, H, M = federation.states, federation.actions, federation.horizon, federation.agents
    algorithm = FedKLUCBVI(stationary=stationary, min_round_growth=0.2)
    result = run(algorithm, federation, 1000, seed=2)
    records, steps = result.records, 1 if stationary else H
    requests, rounds, played = int(records["requests"].sum()), result.rounds, len(records["start"])
    asked = records["requests"] > 0
    assert rounds == asked.sum()
    assert not asked[-1]
    start = 16 + -(-H * S * A // 8) + 8 * steps * S * A + 8
    assert result.bytes_down == M * (played * start + rounds * (16 + 8) + 16)
    visits = records["length"][asked] * H
    up = 16 * (np.minimum(visits, steps * S * A * S) + np.minimum(visits, steps * S * A))
    assert (visits > steps * S * A).any()
    assert result.bytes_up == requests * 48 + M * up.sum()
    assert records["messages_down"].sum() == M * (played + 2 * rounds + 1)
    assert records["messages_up"].sum() == requests + rounds * M


def test_a_round_cut_short_sends_nothing_up() -> None:
    federation = gridworld(agents=2)
    whole = run(FedUCBVI(synchronisation="local"), federation, 400, seed=5, driver="episodes")
    long = int(np.argmax(whole.records["length"]))
    T = int(whole.records["start"][long]) + int(whole.records["length"][long]) - 1
    cut = run(FedUCBVI(synchronisation="local"), federation, T, seed=5, driver="episodes")
    assert cut.records["requests"][-1] == 0
    assert cut.records["bytes_up"][-1] == cut.records["messages_up"][-1] == 0
    assert cut.records["messages_down"][-1] == 2 * 2  # start and end, to each of two agents
