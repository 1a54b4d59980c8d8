"""What crosses the wire: the paper's messages and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import FedUCBVI, gridworld, run
from fed_ucbvi.algorithms.base import Message, exchange_messages
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.deployment import schema
from fed_ucbvi.deployment.arrays import DTYPES, WireError, pack, unpack
from fed_ucbvi.deployment.messages import (
    Fault,
    Hello,
    Played,
    Ready,
    Report,
    Request,
    decode_down,
    decode_up,
    encode,
)
from fed_ucbvi.deployment.plan import plan_for
from fed_ucbvi.deployment.schema import CLASSES
from fed_ucbvi.simulation import Simulation
from network import Tap, federate, make_nodes

M, T, SEED = 4, 120, 3
ALGORITHM = FedUCBVI(synchronisation="local")
WORLD = gridworld(agents=M, eps_p=0.2)


class Overheard(Simulation):
    """A simulation that synchronises message by message and notes the agents' reports."""

    def __init__(self) -> None:
        super().__init__(ALGORITHM, WORLD, T, SEED, "episodes")
        self.reports: dict[tuple[int, int], Message] = {}

    def _synchronise(self) -> None:
        def note(report: Message, exchange: int) -> None:
            self.reports[self.rounds + 1, exchange] = tuple(array.copy() for array in report)

        exchange_messages(self.algorithm, self.server, self.agents, self.setting, note)

    def _exchange_messages(self, server: Any) -> None:
        def note(report: Message, exchange: int) -> None:
            self.reports[len(self.rows), WORLD.horizon + exchange] = tuple(array.copy() for array in report)

        exchange_messages(self.algorithm, server, self.agents, self.setting, note)


def test_only_the_papers_messages_go_up_and_no_trajectory_or_transition_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    for data in tap.up:
        message = decode_up(data)
        assert encode(message) == data
        seen[type(message)] = seen.get(type(message), 0) + 1
        if isinstance(message, Report):
            sums.setdefault((message.round, message.exchange), []).append(message.arrays)
            expected = simulated.reports[message.round, message.exchange]
            assert len(message.arrays) == len(expected) == 4
            for array, whole in zip(message.arrays, expected, strict=True):
                assert array.shape[:3] == (1, S, A), "one row, whether the node has three agents or one"
                assert array.size <= 2 * S * A
                assert array.dtype == whole.dtype
        elif isinstance(message, Played):
            assert len(data) < 40 * (1 + len(message.requests))
        else:
            assert isinstance(message, Hello | Ready)
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
    assert seen == {Hello: 2, Ready: 2, Played: 2 * records, Report: 2 * (rounds + recommended) * H}


def test_down_go_the_policy_n_and_v(monkeypatch: pytest.MonkeyPatch) -> None:
    tap = Tap(monkeypatch)
    outcome = federate(plan_for(ALGORITHM, WORLD, 60, seed=SEED), make_nodes(WORLD, [4]))
    S, A, H = WORLD.states, WORLD.actions, WORLD.horizon
    kinds: dict[str, list[tuple[tuple[int, ...], ...]]] = {}
    for data in tap.down:
        message = decode_down(data)
        assert encode(message) == data
        shapes = tuple(array.shape for array in getattr(message, "arrays", ()))
        kinds.setdefault(type(message).__name__, []).append(shapes)
    records, rounds = len(outcome.run.records["start"]), outcome.run.rounds
    assert kinds == {
        "Welcome": [()],
        "Start": [((H, S), (H, S, A))] * records,
        "Stop": [()] * rounds,
        "Query": [((S,),)] * (rounds + len(outcome.run.recommendations["round"])) * H,
        "End": [((H, S),)],
    }


@pytest.mark.parametrize("algorithm", [ALGORITHM, FedUCBVI.sharp()], ids=lambda algorithm: algorithm.name)
def test_what_really_crosses_the_line_is_within_ten_per_cent_of_what_is_accounted_for(algorithm: FedUCBVI) -> None:
    """One agent a node, so that nothing is sent once for several of them."""
    outcome = federate(plan_for(algorithm, WORLD, 100, seed=1), make_nodes(WORLD, [1] * M))
    simulated = run(algorithm, WORLD, 100, seed=1, driver="episodes")
    wire = outcome.wire
    for name in ("bytes_up", "bytes_down"):
        real, more = getattr(wire, name), getattr(simulated.recommendation_traffic, name)
        accounted = getattr(simulated, name) + more
        assert accounted < real < 1.1 * accounted


# ---------------------------------------------------------------------------------------------- arrays and messages


@given(
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 2**32),
)
def test_arrays_come_back_equal_writable_and_of_the_same_type(code: int, shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 2 if code == 1 else 100, size=shape).astype(DTYPES[code])
    back = unpack(CLASSES["Array"].FromString(pack(array).SerializeToString()))
    assert back.shape == array.shape
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    assert back.flags.writeable
    assert len(pack(array).data) == (-(-array.size // 8) if code == 1 else array.nbytes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dtype": 0}, "unknown type"),
        ({"dtype": 77}, "unknown type"),
        ({"shape": [3, 2]}, "takes 48 bytes, got 32"),
        ({"shape": [2**31, 2**31, 2**31]}, "got 32"),
        ({"shape": [1] * 7}, "7 axes"),
        ({"data": b"short"}, "got 5"),
        ({"dtype": 1, "shape": [3, 3], "data": b"\0"}, "takes 2 bytes, got 1"),
        ({"dtype": 1, "shape": [2**31, 2**31, 2**31]}, "got 32"),
    ],
)
def test_an_array_that_contradicts_itself_is_no_array(change: dict[str, object], says: str) -> None:
    content = {"dtype": 5, "shape": [2, 2], "data": b"\0" * 32, **change}
    with pytest.raises(WireError, match=says):
        unpack(CLASSES["Array"](**content))


@given(st.binary(max_size=200))
def test_random_bytes_are_no_message_or_one_that_can_be_sent_again(data: bytes) -> None:
    for decode in (decode_up, decode_down):
        try:
            message = decode(data)
        except WireError:
            continue
        assert decode(encode(message)) == message


def test_messages_come_back_equal() -> None:
    for message in (
        Hello(1, "0.1.0", "clinic", b"x" * 16, 2, 3, ""),
        Played(7, 12, (Request(3, 0, 1, 2, 0), Request(4, 5, 0, 0, 1))),
        Ready(8, 4, 10, b"d" * 32, (0, 6, 7)),
        Fault("no room"),
    ):
        assert decode_up(encode(message)) == message


def test_the_compiled_schema_is_that_of_the_source(tmp_path: Path) -> None:
    compiled = tmp_path / "federation.binpb"
    command = (
        *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={schema.SCHEMA.parent}"),
        *(f"--descriptor_set_out={compiled}", schema.SCHEMA.name),
    )
    subprocess.run(command, check=True, timeout=60)
    assert compiled.read_bytes() == schema.DESCRIPTOR.read_bytes()
