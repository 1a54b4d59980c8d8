"""A party by itself: rounds in pieces, taken back and recalled, by methods and by messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, LiveParty, Party, SimulatedParty, synthetic
from fed_ucbvi.algorithms.base import Array, Message, Setting
from fed_ucbvi.engine.drivers.base import RoundEnd
from fed_ucbvi.engine.play_ahead import AskReport, PlayAhead, PlayUntil, Reached, StartRound, StopRound
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
    """True if two parties have the same state."""
    mine = one.state()
    theirs = other.state()
    return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)


def copies(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


class WholeRound(NamedTuple):
    """A party after a round of at most 400 episodes that was played at once."""

    algorithm: Any
    broadcast: Message
    party: SimulatedParty
    stop: RoundEnd


FIRST = 20
"""Number of the first episode of the round."""


@pytest.fixture(params=[ALGORITHM, RESTING], ids=["at once", "least length"])
def whole(request: pytest.FixtureRequest) -> WholeRound:
    algorithm = request.param
    party = simulated(algorithm)
    broadcast = algorithm.broadcast(algorithm.new_server(party.setting))
    if algorithm is ALGORITHM:
        visits_so_far = np.full_like(broadcast[1], 30)  # agents make a request after a share of them
        broadcast = (broadcast[0], visits_so_far)
    stop = party.play_round(broadcast, FIRST, 400).stop
    assert 1 < stop.length < 400
    return WholeRound(algorithm, broadcast, party, stop)


def play_in_pieces(whole: WholeRound) -> SimulatedParty:
    """A party that plays the round by messages, one episode after the other."""
    party = simulated(whole.algorithm)
    reached = party.answer(StartRound(whole.broadcast, FIRST, 1))
    while not reached.asked:
        reached = party.answer(PlayUntil(reached.played + 1))
    assert reached == (whole.stop.length, True)
    return party


def test_a_round_in_pieces_is_the_round_at_once(whole: WholeRound) -> None:
    party = play_in_pieces(whole)
    assert party.answer(StopRound(whole.stop.length)).stop == whole.stop
    assert same(party, whole.party)


def test_a_party_with_a_request_plays_no_further(whole: WholeRound) -> None:
    party = play_in_pieces(whole)
    assert party.answer(PlayUntil(400)) == (whole.stop.length, True)


def test_episodes_after_the_end_of_a_round_are_taken_back(whole: WholeRound) -> None:
    half = whole.stop.length // 2
    ahead = simulated(whole.algorithm)
    ahead.start(whole.broadcast, FIRST)
    assert ahead.play(400) == (whole.stop.length, True)
    assert ahead.stop(half).stop.requests == 0
    short = simulated(whole.algorithm)
    short.start(whole.broadcast, FIRST)
    assert short.stop(half).stop.requests == 0
    assert same(ahead, short)
    assert not same(ahead, whole.party)


def test_a_report_by_message_is_that_of_the_method(whole: WholeRound) -> None:
    query = whole.algorithm.query(whole.algorithm.new_server(whole.party.setting), 0)
    expected = whole.party.report(query, 0)
    answer = whole.party.answer(AskReport(query, 0))
    assert len(answer) == len(expected)
    for one, other in zip(answer, expected, strict=True):
        assert np.array_equal(one, other)


class RecalledRound(NamedTuple):
    """A party that has played a round, another that has recalled it, and the state before."""

    played: Party
    recalled: Party
    before: dict[str, Array]
    requests: list[RoundEnd]
    length: int


@pytest.fixture(params=[simulated, partial(simulated, random_rewards=True), live], ids=["fixed", "random", "live"])
def recalled_round(request: pytest.FixtureRequest) -> Iterator[RecalledRound]:
    party = request.param()
    again = request.param()
    broadcast = ALGORITHM.broadcast(ALGORITHM.new_server(party.setting))
    before = copies(party.state())
    party.start(broadcast, 0)
    length = party.play(400).played
    requests = party.requests()
    party.stop(length)
    again.restore(before)
    again.start(broadcast, 0)
    again.recall(party.state(), copies(party.counts()), length)
    yield RecalledRound(party, again, before, requests, length)
    party.close()


def test_a_recalled_round_has_its_requests(recalled_round: RecalledRound) -> None:
    assert recalled_round.recalled.asked
    assert recalled_round.requests
    assert recalled_round.recalled.requests() == recalled_round.requests


def test_a_recalled_round_gives_the_same_state(recalled_round: RecalledRound) -> None:
    recalled_round.recalled.stop(recalled_round.length)
    assert same(recalled_round.played, recalled_round.recalled)


def test_a_recalled_round_has_its_payments(recalled_round: RecalledRound) -> None:
    recalled_round.recalled.stop(recalled_round.length)
    played = recalled_round.played.paid()
    recalled = recalled_round.recalled.paid()
    nothing = np.zeros(0, dtype=np.int64)
    assert np.array_equal(played.starts, recalled.starts)
    assert repr(played._replace(starts=nothing)) == repr(recalled._replace(starts=nothing))


def test_a_party_can_return_to_the_state_before_a_recalled_round(recalled_round: RecalledRound) -> None:
    recalled_round.recalled.stop(recalled_round.length)
    recalled_round.recalled.restore(recalled_round.before)
    for name, array in recalled_round.recalled.state().items():
        assert np.array_equal(array, recalled_round.before[name]), name


@pytest.fixture
def live_party() -> Iterator[LiveParty]:
    party = live()
    yield party
    party.close()


def test_episodes_in_real_environments_cannot_be_taken_back(live_party: LiveParty) -> None:
    live_party.start(ALGORITHM.broadcast(ALGORITHM.new_server(live_party.setting)), 0)
    live_party.play(1)
    with pytest.raises(InputError, match="cannot play them again"):
        live_party.stop(0)


def test_a_live_party_refuses_the_state_of_a_simulated_one(live_party: LiveParty) -> None:
    with pytest.raises(InputError, match="what was seen of the problem is something else"):
        live_party.restore(simulated().state())


def played_ahead(ahead: PlayAhead, requests: Sequence[int | None]) -> list[int]:
    """The steps in which parties play that make a request after so many episodes of the round, or never."""
    steps = []
    for until in ahead:
        steps.append(until)
        answers = []
        for request in requests:
            if request is not None and request <= until:
                answers.append(Reached(request, asked=True))
            else:
                answers.append(Reached(until, asked=False))
        ahead.take(answers)
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
    assert ahead.length == 400_000
    assert not ahead.requested


def test_the_first_step_of_a_round_is_twice_the_last_round() -> None:
    ahead = PlayAhead(agents=100, horizon=50, last_length=700, most=10_000)
    assert played_ahead(ahead, [None])[0] == 1400


def test_a_round_of_no_episodes_takes_one_step() -> None:
    ahead = PlayAhead(agents=1, horizon=10, last_length=0, most=0)
    assert played_ahead(ahead, [None, None]) == [0]
    assert ahead.length == 0
