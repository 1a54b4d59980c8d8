"""What cannot go on says so: nodes given up, logs that are missing, agents that cannot be, full disks."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import shutil
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, InputError, resume, run, synthetic
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import FederationStoppedError, RefusedError
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from federation_processes import Processes
from network import LOOPBACK, Served, TLSByName, federate, make_nodes

WORLD = synthetic(agents=2, eps_p=0.0, seed=2, states=4, actions=3, horizon=3)
PLAN = plan_for(FedKLUCBVI(), WORLD, 60, seed=3)


# ------------------------------------------------------------------------------------------------- nodes given up


async def test_a_node_that_was_excluded_is_told_why() -> None:
    plan = plan_for(FedKLUCBVI(), WORLD, 100_000, seed=3, patience=0.2, deadline=5.0, on_away="exclude")
    served = Served(plan)
    first, second = served.join(*make_nodes(WORLD, [1, 1]))
    await served.reach(3)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    while not served.registry.members["node-1"].out:
        await asyncio.sleep(0.01)
    with pytest.raises(RefusedError) as excluded:
        await run_node(make_nodes(WORLD, [1, 1])[1], served.remote())
    first.cancel()
    ends = await asyncio.gather(first, served.start(), return_exceptions=True)
    assert re.search(r"'node-1' has been excluded from this run in round \d+: away for 0.2 s", str(excluded.value))
    assert isinstance(ends[1], FederationStoppedError)


async def test_nodes_hear_why_their_server_has_stopped(caplog: pytest.LogCaptureFixture) -> None:
    plan = plan_for(FedKLUCBVI(), WORLD, 100_000, seed=3, patience=0.3, on_away="wait")
    with caplog.at_level(logging.WARNING):
        served = Served(plan)
        first, second = served.join(*make_nodes(WORLD, [1, 1]), patience=2.0)
        await served.reach(3)
        second.cancel()
        ends = await asyncio.gather(first, served.start(), return_exceptions=True)
    why = r"the server has stopped: 'node-1' has stayed away, or has not answered, for 0.3 s in round \d+"
    assert re.search(f"node-0: the server has ended the stream: {why}", caplog.text)
    assert re.search(f"Before that: the server has ended the stream: {why}", str(ends[0]))


@pytest.mark.slow
@pytest.mark.full
def test_a_process_that_was_frozen_and_excluded_learns_why_when_it_wakes(tmp_path: Path) -> None:
    with Processes(tmp_path, "--deadline", "4", "--patience", "5", "--on-away", "exclude") as parties:
        parties.start("server", "node-0", "node-1")
        parties.reach(3)
        parties.signal("node-1", signal.SIGSTOP)
        parties.reach(8)
        parties.signal("node-1", signal.SIGCONT)
        assert parties.parties["node-1"].end() == 2
        said = parties.parties["node-1"].words()
    assert "Internal error" not in said
    assert re.search(r"'node-1' has been excluded from this run in round \d+: away for 5 s|no connection to", said)


# ------------------------------------------------------------------------------------------------------ missing logs


@pytest.mark.parametrize("lost", ["a simulation", "a server", "node-0", "node-0/memory"])
def test_what_has_lost_its_log_is_not_begun_anew(lost: str, tmp_path: Path) -> None:
    folder = tmp_path / lost

    def go_on() -> None:
        if lost == "a simulation":
            resume(folder)
        elif lost == "a server":
            ServerCheckpoint(folder, PLAN)
        else:
            make_nodes(WORLD, [1, 1], tmp_path)[0].enter(PLAN.welcome())

    if lost == "a simulation":
        run(FedUCBVI(), WORLD, 30, checkpoint=folder)
    else:
        federate(PLAN, make_nodes(WORLD, [1, 1], tmp_path), folder=folder if lost == "a server" else None)
    if lost.startswith("node"):
        go_on()
    if lost == "node-0/memory":
        shutil.rmtree(folder)
    else:
        for path in folder.glob("log-*"):
            path.unlink()
    with pytest.raises(InputError, match="its log is missing"):
        go_on()


@pytest.mark.parametrize("step", ["before the state", "between state and manifest"])
def test_a_node_killed_while_it_makes_its_folder_can_begin(step: str, tmp_path: Path, monkeypatch: Any) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    where = "StateStore.write" if step == "before the state" else "write_manifest"
    with monkeypatch.context() as patch:
        patch.setattr(f"fed_ucbvi.network.node_state_store.{where}", die)
        with pytest.raises(Killed):
            make_nodes(WORLD, [1, 1], tmp_path)[0].enter(PLAN.welcome())
    make_nodes(WORLD, [1, 1], tmp_path)[0].enter(PLAN.welcome())


# -------------------------------------------------------------------------------------------------- too many agents


def test_agents_that_cannot_be_are_refused_before_memory_is_taken() -> None:
    with pytest.raises(InputError, match="agents on this node take at least"):
        Node("a", lambda M: WORLD, 0, 10**9)
    many = plan_for(FedKLUCBVI(), WORLD, 60, seed=3)
    asked: list[int] = []

    def source(M: int) -> Federation:
        asked.append(M)
        return WORLD

    node = Node("a", source, 0, 1)
    spec = many.welcome().spec.replace(b'"agents": 2', b'"agents": 1000000000')
    assert b"1000000000" in spec
    with pytest.raises(InputError, match="1,000,000,000 agents of the server's run take at least"):
        node.enter(replace(many.welcome(), spec=spec))
    assert asked == []


# ------------------------------------------------------------------------------------------------ endless handshakes


async def test_endless_tls_handshakes_keep_no_node_out(tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fed_ucbvi.network.transport.HANDSHAKE_SECONDS", 3)
    served = Served(PLAN, None, tls_files, LOOPBACK)
    served.start()
    await asyncio.sleep(0.1)
    idle = [socket.create_connection(("127.0.0.1", served.server.port), timeout=60) for _ in range(200)]
    for one in idle[::2]:
        one.sendall(b"\x16\x03\x01\x02\x00\x01")
    first, last = make_nodes(WORLD, [1, 1])
    served.join(first)
    await asyncio.wait_for(served.meet(), 60)
    for one in idle:
        with suppress(ConnectionError), one:
            await asyncio.to_thread(one.recv, 100)  # ends, or the test does
    served.join(last)
    await served.finish()


# ------------------------------------------------------------------------------------------------------- full disks


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_named_and_leaves_nothing_half_written(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(FedUCBVI(), WORLD, 30, checkpoint=tmp_path / "kept")
    before = {path: path.read_bytes() for path in (tmp_path / "kept").iterdir()}

    def full(*_: object) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("fed_ucbvi.engine.state_store.os.fsync", full)
        patch.setattr("fed_ucbvi.core.files.Path.write_bytes", full)
        with pytest.raises(OSError, match=os.strerror(number)) as error:
            done.save(tmp_path / "out")
        assert error.value.filename == str(tmp_path / "out")
        store = StateStore.open(tmp_path / "kept", "fed-ucbvi/checkpoint", 7, durable=True)
        with store, pytest.raises(OSError, match=os.strerror(number)) as error:
            store.begin(store.read())
        assert re.fullmatch(r"log-\d+", Path(error.value.filename).name)
    left = {path: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert left == before
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
