"""What crosses the wire: the paper's messages and nothing else."""

from __future__ import annotations

import tracemalloc
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, gridworld, network
from fed_ucbvi.algorithms.base import Message, exchange_messages
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.engine.rounds import Play, PlayedRound, Request
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network import messages as wire
from fed_ucbvi.network.arrays import MAX_AXES, Changes, DTypeName, PackedArray, WireError
from fed_ucbvi.network.messages import (
    REWARDS_ALONE,
    DeltaCache,
    Played,
    Query,
    Report,
    decode_down,
    decode_up,
    encode,
)
from fed_ucbvi.network.run_plan import plan_for
from network import Tap, assert_simulated, federate, make_nodes

M, T, SEED = 4, 120, 3
DTYPES = get_args(DTypeName)
ALGORITHM = FedUCBVI(synchronisation="local")
WORLD = gridworld(agents=M, eps_p=0.2)


class Overheard(Simulation):
    """A simulation that synchronises message by message and notes the agents' reports."""

    def __init__(self) -> None:
        super().__init__(ALGORITHM, WORLD, T, SEED, "episodes")
        self.reports: dict[tuple[int, int], Message] = {}

    def _answer(self, request: Request) -> PlayedRound | None:
        if isinstance(request, Play):
            return super()._answer(request)
        round_number, first = (len(self.rows), WORLD.horizon) if request.planning else (self.rounds + 1, 0)

        def note(report: Message, exchange: int) -> None:
            self.reports[round_number, first + exchange] = tuple(array.copy() for array in report)

        exchange_messages(self.algorithm, request.server, self.agents, self.setting, note)
        return None


def spelt_out(heard: Iterable[tuple[int, Any, bytes]]) -> Iterator[tuple[Any, bytes]]:
    """The messages of all streams, with their bytes, none of which says anything that the message does not."""
    sent = defaultdict[int, DeltaCache](DeltaCache)
    for stream, message, data in heard:
        assert encode(message, sent[stream]) == data
        yield message, data


def test_only_the_papers_messages_go_up_no_trajectory_or_transition_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte a node sends belongs to a known field, and all arrays are the reports of the paper.

    A message that equals its own decoding and encoding has no unknown fields; reports must add up to those of the
    simulation, of shape (1, S, A) in one or two words; all other messages hold no arrays. A table of transitions
    would have S x A x K entries a step, a trajectory H + 1 states an episode.
    """
    tap = Tap(monkeypatch)
    outcome = federate(plan_for(ALGORITHM, WORLD, T, seed=SEED), make_nodes(WORLD, [3, 1]))
    simulated = Overheard()
    while not simulated.done:
        simulated.advance()
    recommended = len(simulated.result().recommendations["round"])
    S, A, H = WORLD.states, WORLD.actions, WORLD.horizon
    seen: dict[type, int] = {}
    sums: dict[tuple[int, int], list[Message]] = {}
    for message, data in spelt_out(tap.messages()):
        seen[type(message)] = seen.get(type(message), 0) + 1
        if isinstance(message, Report):
            paper = message.arrays
            if message.exchange in (0, REWARDS_ALONE):  # beside the paper's: what was paid, and where episodes began
                paper = paper[:-1]
                assert message.arrays[-1].shape == (1, 4 + S)
            if message.exchange == REWARDS_ALONE:
                assert not paper
                continue
            sums.setdefault((message.round, message.exchange), []).append(paper)
            expected = simulated.reports[message.round, message.exchange]
            assert len(paper) == len(expected) == 4
            for array, whole in zip(paper, expected, strict=True):
                assert array.shape[:3] == (1, S, A), "one row, whether the node has three agents or one"
                assert array.size <= 2 * S * A
                assert array.dtype == whole.dtype
        elif isinstance(message, Played):
            assert len(data) < 40 * (1 + len(message.requests))
        else:
            assert isinstance(message, wire.Hello | wire.Joining)
            assert len(data) < 200
    assert sums.keys() == simulated.reports.keys()
    for key, reports in sums.items():
        for arrays in zip(*reports, simulated.reports[key], strict=True):
            *of_nodes, pooled = (array.sum(axis=0) for array in arrays)
            grid = make_grid(M, M * T, H)
            words = [sum(of_nodes), pooled]
            if pooled.ndim == 3 and pooled.shape[-1] == 2:  # carry what the low words of several agents add up to
                words = [np.stack([w[..., 0] % 2**grid.base, w[..., 1] + w[..., 0] // 2**grid.base]) for w in words]
            assert np.array_equal(*words)
    rounds, records = outcome.run.rounds, len(outcome.run.records["start"])
    answers = (rounds + recommended) * H + records - rounds
    assert seen == {wire.Hello: 2, wire.Joining: 2, Played: 2 * records, Report: 2 * answers}


def test_down_go_the_policy_n_and_v(monkeypatch: pytest.MonkeyPatch) -> None:
    tap = Tap(monkeypatch)
    outcome = federate(plan_for(ALGORITHM, WORLD, 60, seed=SEED), make_nodes(WORLD, [4]))
    S, A, H = WORLD.states, WORLD.actions, WORLD.horizon
    kinds: dict[str, list[tuple[tuple[int, ...], ...]]] = {}
    for message, _ in spelt_out(tap.messages(up=False)):
        shapes = tuple(array.shape for array in getattr(message, "arrays", ()))
        kinds.setdefault(type(message).__name__, []).append(shapes)
    records, rounds = len(outcome.run.records["start"]), outcome.run.rounds
    assert kinds == {
        "Welcome": [()],
        "Start": [((H, S), (H, S, A))] * records,
        "Stop": [()] * rounds,
        "Query": [((S,),)] * (rounds + len(outcome.run.recommendations["round"])) * H,
        "End": [()],  # the policy is a file
    }


def test_what_is_counted_is_the_papers_and_what_really_crosses_the_line_is_less_than_half_of_it() -> None:
    """One agent a node, so that nothing is spared by sending one row for several of them.

    New counts take less than half of what the paper's messages of as many rounds would.
    """
    counts = assert_simulated(FedKLUCBVI(), WORLD, 100, 1, [1] * M)
    S, A, H = WORLD.states, WORLD.actions, WORLD.horizon
    assert counts.wire.bytes_up < 0.5 * counts.run.rounds * M * H * 4 * 8 * S * A
    outcome = assert_simulated(ALGORITHM, WORLD, 100, 1, [1] * M)
    for name in ("bytes_up", "bytes_down"):
        real, more = getattr(outcome.wire, name), getattr(outcome.run.recommendation_traffic, name)
        accounted = getattr(outcome.run, name) + more
        assert 0.05 * accounted < real < 0.5 * accounted


def test_pairs_that_nobody_visits_are_sent_once_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first report of an exchange a pair travels only if it has been visited; others never change."""
    tap = Tap(monkeypatch)
    federate(plan_for(ALGORITHM, WORLD, 60, seed=SEED), make_nodes(WORLD, [M]))
    first = set[int]()
    for _, message, data in tap.messages():
        if not isinstance(message, Report):
            continue
        sent = msgspec.msgpack.decode(data)[3]
        assert (message.exchange in first) == isinstance(sent, dict)
        if isinstance(sent, dict):
            n = message.arrays[0].reshape(-1)
            words = sum(array.size for array in message.arrays)
            bits = np.unpackbits(np.frombuffer(sent["c"], np.uint8), count=words, bitorder="little")
            start = 0
            for array in message.arrays[:4]:  # a fifth are rewards
                assert not bits[start : start + array.size].reshape(n.size, -1)[n == 0].any()
                start += array.size
        first.add(message.exchange)


# ------------------------------------------------------------------------------------------------ changes of arrays


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4)), max_size=4),
    st.integers(0, 2**32),
)
def test_arrays_come_back_from_their_changes_which_are_short(forms: list[tuple[str, list[int]]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = tuple(rng.integers(0, 2 if code == "b1" else 100, size=shape).astype(code) for code, shape in forms)
    arrays = tuple(np.where(rng.random(old.shape) < 0.5, old, old.dtype.type(1)).astype(old.dtype) for old in before)
    kept = [old.copy() for old in before]
    changes = Changes.of(arrays, before, 1)
    for back, array, old, same in zip(changes.made_to(before), arrays, before, kept, strict=True):
        assert (back.dtype, back.shape, back.flags.writeable) == (array.dtype, array.shape, True)
        assert np.array_equal(back, array)
        assert np.array_equal(old, same)
    words = sum(-(-array.nbytes // 8) for array in arrays)
    assert len(changes.data) <= 8 * sum(int((array != old).sum()) for array, old in zip(arrays, before, strict=True))
    assert len(changes.changed) <= -(-words // 8)
    assert Changes.of(before, before, 1) == Changes(1, b"", b"")


def test_what_differs_in_a_bit_is_a_change_and_nan_is_not() -> None:
    before, array = np.array([0.0, np.nan, 1.0]), np.array([-0.0, np.nan, 1.0])
    changes = Changes.of((array,), (before,), 1)
    assert (changes.changed, len(changes.data)) == (b"\x01", 8)
    (back,) = changes.made_to((before,))
    assert np.signbit(back).tolist() == [True, bool(np.signbit(np.nan)), False]


@pytest.mark.parametrize(
    ("changed", "data", "says"),
    [
        (b"\x03", b"\7" * 8, "2 changed words take 16 bytes, got 8"),
        (b"\x20", b"\7" * 8, "beyond the 5 words"),
        (b"\x01\x01", b"\7" * 16, "beyond the 5 words"),
        (b"", b"\7" * 8, "0 changed words take 0 bytes, got 8"),
        (b"\x01", b"\7" * 7, "1 changed words take 8 bytes, got 7"),
        (b"\x10", b"\2" + b"\0" * 7, "neither true nor false"),
    ],
)
def test_changes_that_contradict_themselves_or_the_past_are_refused(changed: bytes, data: bytes, says: str) -> None:
    before = np.arange(4).reshape(2, 2), np.array([True, False, True])
    numbers, truths = Changes(1, b"\x14", b"\7" + b"\0" * 7 + b"\0\1\1" + b"\0" * 5).made_to(before)
    assert (numbers.tolist(), truths.tolist()) == ([[0, 1], [7, 3]], [False, True, True])
    with pytest.raises(WireError, match=says):
        Changes(1, changed, data).made_to(before)


def test_what_is_mostly_zero_says_only_what_is_not() -> None:
    """Reports of what is new: a few transitions of many, others in every round."""
    rng, sent, taken = np.random.default_rng(8), DeltaCache(), DeltaCache()
    for number in range(1, 6):
        counts = np.zeros((1, 100_000), dtype=np.int64)
        counts[0, rng.integers(0, 100_000, 50)] = rng.integers(1, 9, 50)
        data = encode(Report(number, 0, (counts,)), sent)
        assert number == 1 or len(data) < 50 * 8 + 600
        message: Any = decode_up(data, taken)
        assert np.array_equal(message.arrays[0], counts)
        taken.keep(message)
    for bad in (b"no zlib", zlib.compress(bytes(10**7) + b"1")):
        with pytest.raises(WireError):
            Changes(0, bad, bytes(8), packed=True).made_to((counts,))


def test_changes_are_told_from_late_copies_and_from_changes_of_what_is_not_here() -> None:
    sent, taken = DeltaCache(), DeltaCache()
    first, second, third = (Report(r, 0, (np.array([r, 1, 5]),)) for r in (1, 2, 4))
    data = [encode(message, sent) for message in (first, second, third)]
    for i, message in enumerate((first, second, third)):
        back: Any = decode_up(data[i], taken)
        assert np.array_equal(back.arrays[0], message.arrays[0])
        taken.keep(back)
    for late in data[1:]:
        assert decode_up(late, taken).arrays == ()  # type: ignore[union-attr]
    with pytest.raises(WireError, match="changes since round 1, of which nothing is known"):
        decode_up(data[1], DeltaCache())


def test_a_message_to_many_is_the_same_bytes_as_to_each() -> None:
    """Streams that have carried the same, one that has missed a round, and one that is new; and again."""
    one, other, third = ([Query(r, e, (np.arange(4.0) * r + e,)) for e in (0, 1)] for r in (1, 2, 3))
    shared, alone = [DeltaCache() for _ in range(4)], [DeltaCache() for _ in range(4)]
    for streams, messages in (((0, 1, 2), one), ((0, 1), other), ((0, 1, 2, 3), third), ((0, 1, 2, 3), third)):
        for message in messages:
            many = wire.ToMany(message)
            data = [many.encode(shared[i]) for i in streams]
            assert data == [encode(message, alone[i]) for i in streams]
    assert all(len({id(copies.last(third[e])) for copies in shared}) == 1 for e in (0, 1))
    roster = wire.ToMany(wire.Roster(1, 2, ()))
    assert len({id(roster.encode(copies)) for copies in shared}) == 1


# ---------------------------------------------------------------------------------------------- arrays and messages


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4), st.integers(0, 2**32))
def test_arrays_come_back_equal_writable_and_of_the_same_type(code: str, shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 2 if code == "b1" else 100, size=shape).astype(code)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(PackedArray.of(array)), type=PackedArray).unpacked()
    assert back.shape == array.shape
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    assert back.flags.writeable
    assert len(PackedArray.of(array).data) == (-(-array.size // 8) if code == "b1" else array.nbytes)


WHOLE = {"dtype": "f8", "shape": [2, 2], "data": b"\0" * 32}
MUCH = 2**31


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ([WHOLE | {"dtype": "O8"}], "Invalid enum value 'O8'"),
        ([WHOLE | {"dtype": 4}], "Expected `str`, got `int`"),
        ([WHOLE | {"shape": [3, 2]}], "takes 48 bytes, got 32"),
        ([WHOLE | {"shape": [MUCH] * 3}], "got 32"),
        ([WHOLE | {"shape": [-2, -2]}], "Expected `int` >= 0"),
        ([WHOLE | {"shape": [1] * (MAX_AXES + 1)}], "length <= 6"),
        ([WHOLE | {"data": b"short"}], "got 5"),
        ([WHOLE | {"data": "text"}], "Expected `bytes`"),
        ([WHOLE | {"more": 1}], "at most length 3"),
        ([WHOLE | {"dtype": "b1", "shape": [3, 3], "data": b"\0"}], "takes 2 bytes, got 1"),
        ([WHOLE | {"dtype": "b1", "shape": [MUCH] * 3}], "got 32"),
        ([WHOLE] * (wire.MAX_ARRAYS + 1), f"length <= {wire.MAX_ARRAYS}"),
    ],
)
def test_an_array_that_contradicts_itself_is_no_array(arrays: list[dict[str, object]], says: str) -> None:
    data = msgspec.msgpack.encode(["Report", 1, 0, [list(array.values()) for array in arrays]])
    with pytest.raises(WireError, match=says):
        decode_up(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x95\xa5Ready" + b"\x01" * 3 + b"\xc4\x00\xdd" + b"\xff" * 4,  # rounds without end
        b"\x94\xa6Played\x01\x01\xdd" + b"\xff" * 4,  # requests
        b"\x94\xa6Report\x01\x00\xdd" + b"\xff" * 4,  # arrays
        b"\x94\xa6Report\x01\x00\x91\x93\xa2i8\xdd" + b"\xff" * 4,  # axes
        b"\x93\xa4Part\xc6" + b"\xff" * 4,  # bytes
        b"\xdd\xff\xff\xff\xff\xa4Part",  # fields
        b"\x92\xa5Fault\xdb\xff\xff\xff\xff",  # a text
        b"\x91" * 50_000,
    ],
)
def test_a_message_that_claims_to_be_enormous_takes_no_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode_up(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200))
def test_random_bytes_are_no_message_or_one_that_can_be_sent_again(data: bytes) -> None:
    for decode in (decode_up, decode_down):
        try:
            message = decode(data)
        except WireError:
            continue
        assert decode(encode(message)) == message


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(network.PACKAGES, "carrier_pigeon", "carrier-pigeon")
    with pytest.raises(InputError, match=r"need carrier-pigeon, which is not installed: run pip .*\[network\]"):
        network.check_packages()
