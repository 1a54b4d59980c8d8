"""A party by itself: rounds in any pieces, taken back, kept and recalled; messages are its methods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, LiveParty, Party, SimulatedParty, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.party import AskReport, PlayAhead, PlayUntil, Reached, StartRound, StopRound
from live_world import AGENTS, World

WORLD = synthetic(agents=3, eps_p=0.3, seed=1, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(synchronisation="global")
RESTING = FedKLUCBVI(min_round_growth=0.5)


def simulated(algorithm: Any = ALGORITHM, *, random_rewards: bool = False) -> SimulatedParty:
    world = WORLD.with_bernoulli_rewards() if random_rewards else WORLD
    sizes = world.states, world.actions, world.horizon
    setting = Setting(*sizes, 3, 500, eps_p=0.0, seed=7, random_rewards=random_rewards)
    return SimulatedParty(algorithm, setting, world, pooled=False)


def live() -> LiveParty:
    world = World().live()
    setting = Setting(world.states, world.actions, 4, AGENTS, 500, eps_p=0.0, seed=7, random_rewards=True)
    return LiveParty(ALGORITHM, setting, range(AGENTS), world.make, world.units)


def same(one: Party, other: Party) -> bool:
    mine = one.state()
    theirs = other.state()
    return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("algorithm", [ALGORITHM, RESTING], ids=["at once", "least length"])
def test_a_round_in_pieces_by_messages_or_taken_back_is_the_round_at_once(algorithm: Any) -> None:
    first = 20
    server = algorithm.new_server(simulated().setting)
    broadcast = algorithm.broadcast(server)
    if algorithm is ALGORITHM:
        broadcast = (broadcast[0], np.full_like(broadcast[1], 30))  # visits so far, of which a request takes a share
    whole, pieces, ahead, short = (simulated(algorithm) for _ in range(4))
    end = whole.play_round(broadcast, first, 400)
    length = end.stop.length
    assert 1 < length < 400
    reached = pieces.answer(StartRound(broadcast, first, 1))
    while not reached.asked:
        reached = pieces.answer(PlayUntil(reached.played + 1))
    assert reached == (length, True)
    assert pieces.answer(PlayUntil(400)) == reached, "who has asked plays no further"
    assert pieces.answer(StopRound(length)).stop == end.stop
    assert same(whole, pieces)
    for party in (ahead, short):
        party.start(broadcast, first)
    assert ahead.play(400) == reached
    assert [party.stop(length // 2).stop.requests for party in (ahead, short)] == [0, 0]
    assert same(ahead, short)
    assert not same(ahead, whole)
    query = algorithm.query(server, 0)
    for mine, theirs in zip(whole.report(query, 0), pieces.answer(AskReport(query, 0)), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("make", [simulated, partial(simulated, random_rewards=True), live])
def test_a_round_that_was_kept_is_recalled_with_requests_and_payments(make: Any) -> None:
    party = make()
    again = make()
    broadcast = ALGORITHM.broadcast(ALGORITHM.new_server(party.setting))
    before = {name: array.copy() for name, array in party.state().items()}
    party.start(broadcast, 0)
    length = party.play(400).played
    requests = party.requests()
    party.stop(length)
    kept = {name: array.copy() for name, array in party.counts().items()}
    again.restore(before)
    again.start(broadcast, 0)
    again.recall(party.state(), kept, length)
    assert again.asked
    assert again.requests() == requests != []
    again.stop(length)
    assert same(party, again)
    mine = party.paid()
    theirs = again.paid()
    assert np.array_equal(mine.starts, theirs.starts)
    assert repr(mine._replace(starts=0)) == repr(theirs._replace(starts=0))
    again.restore(before)
    assert all(np.array_equal(array, before[name]) for name, array in again.state().items())
    party.close()


def test_real_environments_take_nothing_back_and_refuse_the_state_of_another_problem() -> None:
    party = live()
    party.start(ALGORITHM.broadcast(ALGORITHM.new_server(party.setting)), 0)
    party.play(1)
    with pytest.raises(InputError, match="cannot play them again"):
        party.stop(0)
    with pytest.raises(InputError, match="what was seen of the problem is something else"):
        party.restore(simulated().state())
    party.close()


def played_ahead(ahead: PlayAhead, requests: Sequence[int | None]) -> list[int]:
    """The steps in which parties play that make a request after so many episodes of the round, or never."""
    steps = []
    for until in ahead:
        steps.append(until)
        reached = [until if request is None else min(request, until) for request in requests]
        asked = [request is not None and request <= until for request in requests]
        ahead.take(Reached(*one) for one in zip(reached, asked, strict=True))
    return steps


@pytest.mark.parametrize("last_length", [0, 700])
def test_parties_that_play_ahead_stop_after_the_earliest_request(last_length: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        requests = [None if rng.random() < 0.3 else int(rng.integers(1, 10**6)) for _ in range(4)]
        ahead = PlayAhead(agents=100, horizon=50, last_length=last_length, most=800_000)
        played_ahead(ahead, requests)
        earliest = min((request for request in requests if request is not None), default=10**9)
        assert ahead.length == min(earliest, 800_000)
        assert ahead.requested == (earliest <= 800_000)


def test_a_round_without_a_request_is_played_in_growing_steps() -> None:
    ahead = PlayAhead(agents=1, horizon=10, last_length=0, most=400_000)
    assert played_ahead(ahead, [None]) == [3276, 9828, 29484, 88452, 265356, 400_000]
    assert (ahead.length, ahead.requested) == (400_000, False)


def test_the_first_step_of_a_round_is_twice_the_last_round() -> None:
    ahead = PlayAhead(agents=100, horizon=50, last_length=700, most=10_000)
    assert played_ahead(ahead, [None])[0] == 1400


def test_a_round_of_no_episodes_is_asked_for_once() -> None:
    ahead = PlayAhead(agents=1, horizon=10, last_length=0, most=0)
    assert played_ahead(ahead, [None, None]) == [0]
    assert ahead.length == 0
