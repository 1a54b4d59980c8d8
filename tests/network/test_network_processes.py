"""Real processes that are killed, frozen, cut off, refused, flooded and out of disk: the run is as it should be."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from commands import refusal
from faults import outcome_of
from fed_ucbvi import FedUCBVI, gridworld, run
from fed_ucbvi.engine.folder_lock import folder_lock
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.messages import PART_BYTES, Part, encode
from fed_ucbvi.network.transport import RemoteServer
from federation_processes import AGENTS, SERVER, THREE, Line, Party, Processes, simulated
from network import SECONDS, assert_same
from saved_states import log_files
from storms import KINDS, Storm

NODES = tuple(AGENTS)


def assert_undisturbed(processes: Processes, *, secure: bool = False) -> None:
    """At the end: the simulation's run, no event, nothing left lying about."""
    result, summary = processes.finish()
    assert_same(result, simulated(secure=secure), regret=False, secure=secure)
    assert summary["events"] == []
    assert processes.leftovers() == []


def test_killing_anyone_at_any_moment_again_and_again_changes_nothing(tmp_path: Path) -> None:
    """With secure sums on, where a node that comes back signs anew and the same nodes are asked again.

    Moments are some milliseconds after a round was put on record, by seeded chance; restarts in any order.
    """
    chance = random.Random(20)
    nodes = tuple(THREE)
    victims = [("node-0",), (SERVER, "node-1"), (SERVER, *nodes)]
    chance.shuffle(victims)
    with Processes(tmp_path, secure_sums=True) as processes:
        processes.start(SERVER, *nodes)
        for dying in victims:
            before = processes.round() + chance.randrange(1, 15)
            processes.reach(before)
            time.sleep(chance.uniform(0, 0.03))
            processes.kill(*dying)
            assert processes.round() >= before
            processes.start(*chance.sample(dying, len(dying)))
        assert_undisturbed(processes, secure=True)


@pytest.mark.full
def test_frozen_nodes_and_lines_that_break_crawl_or_stall_change_nothing(tmp_path: Path) -> None:
    """Frozen and stalled ones are given up at the deadline, and are welcome when they thaw."""
    given_up = "stream closed: no answer within 3 s"
    with Processes(tmp_path, "--deadline", "3") as processes:
        processes.start(SERVER)
        with Line(processes.port) as line:
            processes.lines["node-1"] = line
            processes.start("node-0", "node-1")
            for moment in (5, 10, 11):
                processes.reach(moment)
                line.cut()
            processes.reach(15)
            line.delay = 0.005
            processes.reach(25)
            line.stall()
            processes.hear(SERVER, f"node-1: {given_up}")
            line.delay = 0.0
            line.restore()
            processes.reach(35)
            processes.signal("node-0", signal.SIGSTOP)
            processes.hear(SERVER, f"node-0: {given_up}")
            processes.signal("node-0", signal.SIGCONT)
            assert_undisturbed(processes)
        heard = processes.parties["node-0"].words()
        assert "Internal error" not in heard
        assert re.search("node-0: the server has (ended the stream: no answer within|closed this stream)", heard)


@pytest.mark.full
def test_a_full_disk_on_either_side_is_waited_for_and_loses_nothing(tmp_path: Path) -> None:
    """If it stays full, the server stops, and goes on from its checkpoint another time."""
    with Processes(tmp_path, "--patience", "4") as processes:
        processes.start(SERVER, *NODES)
        processes.reach(10)
        processes.limit_files(SERVER, 100)
        processes.hear(SERVER, r"round \d+ cannot be kept: .*checkpoint/.*log-\d+'; trying again")
        held = processes.round()
        processes.limit_files(SERVER, -1)
        processes.reach(held + 5)
        processes.limit_files("node-1", 100)
        processes.hear(SERVER, "node-1: stream closed: the node cannot continue: cannot keep its state: .*/node-1/")
        processes.limit_files("node-1", -1)
        processes.reach(held + 10)
        processes.limit_files(SERVER, 100)
        assert processes.server.end() == 2
        assert re.search("round [0-9]+ cannot be kept in .*checkpoint", processes.server.words())
        assert processes.round() >= held + 10
        assert not (tmp_path / "run").exists()
        processes.start(SERVER)
        assert_undisturbed(processes)


@pytest.mark.full
def test_one_owner_old_copies_and_a_damaged_end_change_nothing(tmp_path: Path) -> None:
    """A second server and a second node are refused; then the server goes on from a copy of its checkpoint, which the
    nodes are rounds ahead of, and then from a log whose end is damaged, with a node that has lost its state.
    """
    checkpoint = tmp_path / "checkpoint"
    with Processes(tmp_path) as processes:
        processes.start(SERVER, "node-1")
        processes.wait((tmp_path / "node-1" / "lock").exists, "node-1 to begin")
        seconds = {SERVER: Party(*processes.serving()), "node-1": Party(*processes.joining("node-1"))}
        for holder, refused in seconds.items():
            assert refused.end() == 2
            assert f"in use by process {processes.parties[holder].pid} on " in refused.words()
        processes.start("node-0")
        processes.reach(10)
        processes.signal(SERVER, signal.SIGSTOP)
        shutil.copytree(checkpoint, tmp_path / "copy")
        processes.signal(SERVER, signal.SIGCONT)
        held = processes.round()
        processes.reach(held + 15)
        processes.kill(SERVER)
        shutil.rmtree(checkpoint)
        (tmp_path / "copy").rename(checkpoint)
        assert processes.round() <= held
        processes.start(SERVER)
        processes.reach(held + 30)
        processes.kill(SERVER, "node-0")
        last = log_files(checkpoint)[-1]
        content = bytearray(last.read_bytes())
        content[-1000] ^= 4
        last.write_bytes(content)
        shutil.rmtree(tmp_path / "node-0")
        processes.start(SERVER, "node-0")
        processes.hear(SERVER, "node-0: has lost its state after round 0; plays up to round [0-9]+ again")
        processes.hear(SERVER, "an entry is not what was written")
        assert_undisturbed(processes)


def test_a_checkpoint_in_use_is_refused_by_resume(tmp_path: Path) -> None:
    run(FedUCBVI(), gridworld(agents=2), 5, checkpoint=tmp_path / "kept", progress=False)
    with folder_lock(tmp_path / "kept"):
        assert re.search(f"in use by process {os.getpid()} on ", refusal("resume", str(tmp_path / "kept")))


LARGE = ("--sizes", "500,6,10", "--agents", "200")
"""A run whose reports may be large: 200 agents' are 38 MB."""
ENDLESS = [encode(Part(b"x" * PART_BYTES, more=True))] * 200
"""13 MB that seem to be the beginning of one message."""
MOST_MEGABYTES = 60
"""By which the server may grow: of 16 streams at most 1 MiB each waits unread, and gRPC takes some for itself."""


def megabytes(party: Party) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{party.pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert found
    return int(found[1]) // 1024


def test_streams_that_are_not_let_in_fill_no_memory(tmp_path: Path) -> None:
    """Eight streams of a node that is not listed, and eight of one that never says hello, send all they can."""
    certs = tmp_path / "certs"
    make_certificates(certs, server=SERVER, nodes=["node-0", "stranger"])

    async def flood(address: str, name: str) -> list[str]:
        streams = (outcome_of(RemoteServer(address, TLSFiles.of(certs, name)), ENDLESS) for _ in range(8))
        return await asyncio.wait_for(asyncio.gather(*streams), SECONDS)

    with Processes(tmp_path, certs=certs, problem=LARGE) as processes:
        processes.start(SERVER)
        server = processes.server
        address = processes.address
        before = megabytes(server)
        asyncio.run(flood(address, "stranger"))
        asyncio.run(flood(address, "node-0"))
        assert megabytes(server) - before < MOST_MEGABYTES
        processes.hear(SERVER, "rejected: 'stranger' is not on the list of nodes")
        processes.hear(SERVER, "rejected: it sent a message of [0-9]+ bytes or more, above the limit of 65536")
        assert "joined" not in server.words()
        assert server.process.is_alive()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "blows"), [("secure, quorum", 4), *((kind, 15) for kind in KINDS)])
def test_nothing_is_lost_in_a_storm(kind: str, blows: int, tmp_path: Path) -> None:
    figures = Storm(kind, tmp_path, seed=blows).blow(blows)
    assert figures["blows"]
    assert 0 < figures["in_table"] <= figures["episodes"]
