"""Real processes that are killed, frozen, cut off and out of disk: the run is the simulation's, or as announced."""

from __future__ import annotations

import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import Run
from fed_ucbvi.network.certificates import make_certificates
from federation_processes import AGENTS, SERVER, THREE, Line, Processes, T, simulated
from network import assert_same, assert_same_but_for_requests

NODES = tuple(AGENTS)


def assert_undisturbed(finished: tuple[Run, dict[str, Any]], processes: Processes) -> None:
    """The simulation's run, no event, nothing left lying about."""
    result, summary = finished
    assert_same(result, simulated(), regret=False)
    assert summary["events"] == []
    assert processes.leftovers() == []


def test_killing_anyone_at_any_moment_again_and_again_changes_nothing(tmp_path: Path) -> None:
    """With secure sums on, where a node that comes back signs anew and the same nodes are asked again.

    Moments are some milliseconds after a round was put on record, by seeded chance; restarts in any order.
    """
    chance, nodes = random.Random(20), tuple(THREE)
    certs = tmp_path / "certs"
    make_certificates(certs, server=SERVER, nodes=nodes)
    victims = [("node-0",), (SERVER, "node-1"), (SERVER, *nodes)]
    chance.shuffle(victims)
    with Processes(tmp_path, certs=certs, secure_sums=True) as processes:
        processes.start(SERVER, *nodes)
        for dying in victims:
            before = processes.round() + chance.randrange(1, 15)
            processes.reach(before)
            time.sleep(chance.uniform(0, 0.03))
            processes.kill(*dying)
            assert processes.round() >= before
            processes.start(*chance.sample(dying, len(dying)))
        result, summary = processes.finish()
    assert_same_but_for_requests(result, simulated(secure=True))
    assert summary["events"] == []
    assert processes.leftovers() == []


@pytest.mark.full
def test_frozen_nodes_and_lines_that_break_crawl_or_stall_change_nothing(tmp_path: Path) -> None:
    """Frozen and stalled ones are given up at the deadline, and are welcome when they thaw."""
    given_up = "stream closed: no answer within 3 s"
    with Processes(tmp_path, "--deadline", "3") as processes:
        processes.start(SERVER)
        with Line(processes.port) as line:
            processes.start("node-0")
            processes.start("node-1", port=line.port)
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
            assert_undisturbed(processes.finish(), processes)
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
        assert processes.parties[SERVER].end() == 2
        assert re.search("round [0-9]+ cannot be kept in .*checkpoint", processes.parties[SERVER].words())
        assert processes.round() >= held + 10
        assert not (tmp_path / "run").exists()
        processes.start(SERVER)
        assert_undisturbed(processes.finish(), processes)


@pytest.mark.parametrize("away", ["last", "exclude"])
@pytest.mark.full
def test_a_node_that_stays_away_is_done_without_and_the_result_says_when(away: str, tmp_path: Path) -> None:
    """The server is killed as well, after the node: what it has decided is in its checkpoint."""
    with Processes(tmp_path, "--on-away", away, "--patience", "1") as processes:
        processes.start(SERVER, *NODES)
        processes.reach(15)
        processes.kill("node-0")
        del processes.parties["node-0"]
        processes.hear(SERVER, f"node-0: away for 1 s: {away}")
        processes.reach(processes.round() + 1)
        processes.kill(SERVER)
        held = processes.round()
        processes.start(SERVER)
        if away == "exclude":
            processes.start("node-0")
            assert processes.parties["node-0"].end() == 2
            assert "'node-0' has been excluded from this run" in processes.parties.pop("node-0").words()
        result, summary = processes.finish()
    events = [event for event in summary["events"] if event["node"] == "node-0"]
    assert events == summary["events"]
    assert {event["done"] for event in events} == {away}
    first = events[0]["round"]
    assert 15 < first <= held
    assert events[0]["what"] == "away for 1 s"
    assert not result.complete
    assert (
        summary["agent_episodes"]
        == result.records["agent_episodes"].sum()
        < summary["agent_episodes_planned"]
        == 3 * T
    )
    assert result.records["length"].sum() == T
    expected = simulated().records
    for name in ("length", "bytes_up", "requests", "agent", "state"):
        assert np.array_equal(result.records[name][: first - 1], expected[name][: first - 1])
    shares = result.records["agent_episodes"] / result.records["length"]
    assert (shares[: first - 1] == 3).all()
    assert shares[first - 1] in (2, 3)  # it may have played the round and gone away in its synchronisation
    assert (shares[first:] == 2).all()
    assert (result.records["agent"][first:] != 0).all()


@pytest.mark.full
def test_live_nodes_play_t_episodes_each_though_one_and_the_server_are_killed(tmp_path: Path) -> None:
    with Processes(tmp_path, "--collection", "live") as processes:
        processes.start(SERVER, *NODES)
        processes.reach(10)
        processes.kill(SERVER, "node-0")
        processes.start(SERVER, "node-0")
        result, summary = processes.finish()
    assert result.complete
    assert summary["events"] == []
    assert result.records["agent_episodes"].sum() == 3 * T
