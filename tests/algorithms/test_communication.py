"""Messages and bytes in closed form; test_contract.py weighs every message on its way."""

from __future__ import annotations

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedUCBVI, gridworld, run, synthetic


@pytest.mark.parametrize(("M", "episodes"), [(6, 300), (1, 1), (1, 151), (2, 152)])
def test_the_totals_are_those_of_the_message_formats(M: int, episodes: int) -> None:
    """In closed form: policies are 4-byte, counts and values 8-byte numbers; up go n, P V, P V^2 and Q."""
    S, A, H = 5, 4, 3
    federation = synthetic(agents=M, states=S, actions=A, horizon=H)
    result = run(FedUCBVI(synchronisation="local"), federation, episodes, seed=2)
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
    federation = gridworld(agents=4, eps_p=0.1)
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
