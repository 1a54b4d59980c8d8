"""What crosses the wire: the paper's messages and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import grpc  # type: ignore[import-untyped]
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, gridworld, network, synthetic
from fed_ucbvi.algorithms.base import Message, exchange_messages
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network import messages as wire
from fed_ucbvi.network import transport
from fed_ucbvi.network.arrays import MAX_AXES, DTypeName, PackedArray, WireError
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import ConnectionLostError
from fed_ucbvi.network.messages import (
    REWARDS_ALONE,
    Played,
    Report,
    decode_down,
    decode_up,
    encode,
)
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.transport import Connection, RemoteServer
from federation_processes import Line
from network import LOOPBACK, InMemoryServer, Served, Tap, TLSByName, federate, make_nodes

M = 4
T = 120
SEED = 3
DTYPES = get_args(DTypeName)
ALGORITHM = FedUCBVI(synchronisation="local")
WORLD = gridworld(agents=M, eps_p=0.2)
LARGE = synthetic(agents=3, eps_p=0.2, seed=1, states=20, actions=4, horizon=5)


class Overheard(Simulation):
    """A simulation that synchronises message by message and notes the agents' reports."""

    def __init__(self) -> None:
        super().__init__(ALGORITHM, WORLD, T, SEED, "episodes")
        self.reports: dict[tuple[int, int], Message] = {}

    def _synchronise(self, server: Any) -> None:
        is_planner = server is not self.server
        round_number = len(self.rows) if is_planner else self.rounds + 1
        first_exchange = WORLD.horizon if is_planner else 0

        def note(report: Message, exchange: int) -> None:
            self.reports[round_number, first_exchange + exchange] = tuple(array.copy() for array in report)

        exchange_messages(self.algorithm, server, self.agents, self.setting, note)


def spelt_out(heard: Iterable[tuple[int, Any, bytes]]) -> Iterator[tuple[Any, bytes]]:
    """The messages of all streams, with their bytes, none of which says anything that the message does not."""
    for _, message, data in heard:
        assert encode(message) == data
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
    S = WORLD.states
    A = WORLD.actions
    H = WORLD.horizon
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
    rounds = outcome.run.rounds
    records = len(outcome.run.records["start"])
    answers = (rounds + recommended) * H + records - rounds
    assert seen == {wire.Hello: 2, wire.Joining: 2, Played: 2 * records, Report: 2 * answers}


def test_down_go_the_policy_n_and_v(monkeypatch: pytest.MonkeyPatch) -> None:
    tap = Tap(monkeypatch)
    outcome = federate(plan_for(ALGORITHM, WORLD, 60, seed=SEED), make_nodes(WORLD, [4]))
    S = WORLD.states
    A = WORLD.actions
    H = WORLD.horizon
    kinds: dict[str, list[tuple[tuple[int, ...], ...]]] = {}
    for message, _ in spelt_out(tap.messages(up=False)):
        shapes = tuple(array.shape for array in getattr(message, "arrays", ()))
        kinds.setdefault(type(message).__name__, []).append(shapes)
    records = len(outcome.run.records["start"])
    rounds = outcome.run.rounds
    assert kinds == {
        "Welcome": [()],
        "Start": [((H, S), (H, S, A))] * records,
        "Stop": [()] * rounds,
        "Query": [((S,),)] * (rounds + len(outcome.run.recommendations["round"])) * H,
        "End": [()],  # the policy is a file
    }


# -------------------------------------------------------------------------------------------------------- compression


@dataclass(frozen=True)
class Carried:
    """Bytes of a run's messages, and those that the TCP line between nodes and server carried."""

    messages_up: int
    messages_down: int
    line_up: int
    line_down: int


async def carried_by_a_line(plan: RunPlan, nodes: Sequence[Node], tls_files: TLSByName | None = None) -> Carried:
    """Run over a line that counts."""
    served = Served(plan, tls_files=tls_files, address=LOOPBACK)
    with Line(served.server.port) as line:
        for node in nodes:
            own = None if tls_files is None else tls_files(node.name)
            served.begin(run_node(node, RemoteServer(f"127.0.0.1:{line.port}", own)))
        outcome = await served.finish()
        wire = outcome.wire
        return Carried(wire.bytes_up, wire.bytes_down, line.bytes_up, line.bytes_down)


async def test_messages_are_compressed_in_both_directions() -> None:
    carried = await carried_by_a_line(plan_for(FedKLUCBVI(), LARGE, 20, seed=SEED), make_nodes(LARGE, [1, 1, 1]))
    assert carried.line_up < 0.5 * carried.messages_up
    assert carried.line_down < 0.5 * carried.messages_down


async def test_the_count_of_bytes_is_that_of_messages_without_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without compression the line carries what was counted, and the headers of HTTP/2."""
    monkeypatch.setattr(transport, "COMPRESSION", grpc.Compression.NoCompression)
    carried = await carried_by_a_line(plan_for(FedKLUCBVI(), LARGE, 20, seed=SEED), make_nodes(LARGE, [1, 1, 1]))
    assert carried.messages_up <= carried.line_up < 1.05 * carried.messages_up
    assert carried.messages_down <= carried.line_down < 1.05 * carried.messages_down


async def test_masked_reports_are_random_and_stay_as_long_as_they_are(tls_files: TLSByName) -> None:
    plan = plan_for(FedKLUCBVI(), LARGE, 20, seed=SEED, secure_sums=True)
    carried = await carried_by_a_line(plan, make_nodes(LARGE, [1, 1, 1]), tls_files)
    assert carried.messages_up <= carried.line_up < 1.1 * carried.messages_up


@pytest.mark.parametrize("required", [True, False])
async def test_a_node_that_knows_that_it_masks_its_reports_asks_for_no_compression(
    required: bool, tls_files: TLSByName, tmp_path: Path
) -> None:
    """It knows from its own terms, or once the server has told it."""
    asked: list[bool] = []

    class Noting(InMemoryServer):
        @asynccontextmanager
        async def connect(self, *, compressed: bool = True) -> AsyncIterator[Connection]:
            asked.append(compressed)
            async with super().connect() as connection:
                yield connection
                if len(asked) == 1:
                    raise ConnectionLostError("the line is cut")

    plan = plan_for(FedKLUCBVI(), WORLD, 5, seed=SEED, secure_sums=True)
    served = Served(plan, tls_files=tls_files)
    first, *others = make_nodes(WORLD, [1, 1, M - 2], tmp_path, terms=NodeTerms(require_secure_sums=required))
    joining = served.begin(run_node(first, Noting(served, tls_files(first.name))))[0]
    await served.meet()
    stream = served.registry.members[first.name].stream
    assert stream is not None
    stream.close("come back")
    while len(asked) < 2:
        await asyncio.sleep(0.01)
    served.join(*others)
    await served.finish()
    await joining
    assert asked == [not required, False]


async def test_a_server_takes_no_message_that_is_too_long_after_decompression() -> None:
    """A hundred million zeros are less than the limit on the line."""
    async with (
        Served(plan_for(FedKLUCBVI(), WORLD, 5), address=LOOPBACK) as served,
        RemoteServer(f"127.0.0.1:{served.server.port}").connect() as connection,
    ):
        await connection.write(bytes(10**8))
        with pytest.raises(ConnectionLostError, match="Decompressed message larger than max"):
            await connection.read()
        assert served.registry.wire.bytes_up == 0


async def test_a_node_takes_no_message_that_is_too_long_after_decompression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_BYTES", 1 << 20)

    class Bomber:
        async def session(self, connection: Connection) -> None:
            await connection.write(bytes(10**8))
            await connection.read()

        async def policy(self, certificate: bytes) -> bytes:
            return b""

    listener = transport.Listener(Bomber(), LOOPBACK, None)
    await listener.start()
    async with RemoteServer(f"127.0.0.1:{listener.port}").connect() as connection:
        with pytest.raises(ConnectionLostError, match="Decompressed message larger than max"):
            await connection.read()
    await listener.stop()


@pytest.mark.full
def test_a_message_that_is_too_long_after_decompression_takes_no_memory() -> None:
    """A process with a server alone, before and after a node has sent a hundred million zeros."""
    program = Path(__file__).parents[1] / "support" / "decompression_bomb.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after - before < 10 << 10, "in kilobytes"


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
