"""What happens when nodes or the server go away, come back, stay away, or find a disk full."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from msgspec import structs

from faults import SEED, SPLIT, WORLD, CrashError, T, failing, keep_alive, mortal, with_deaths
from fed_ucbvi import FedUCBVI, InputError, resume, run
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.base import FleetTables, Setting
from fed_ucbvi.algorithms.fed_kl_ucbvi import FedKLUCBVI
from fed_ucbvi.engine import checkpoint, state_store
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.network import client, coordinator, node_memory, transport
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import FederationStoppedError
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.reporting import OpenReports
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.transport import RemoteServer
from federation_processes import Line
from matrices import first_of
from network import LOOPBACK, Served, TLSByName, assert_run_of_the_others, assert_simulation, federate, make_nodes
from runs import without_cautions

ALGORITHM = FedUCBVI(nu=30)
LOCAL = FedUCBVI(synchronisation="local")

pytestmark = without_cautions


def plan(algorithm: Any = ALGORITHM, episodes: int = T, **rules: Any) -> RunPlan:
    return plan_for(algorithm, WORLD, episodes, seed=SEED, run="the-run", **{"patience": 300.0, **rules})


DEATHS = [1, 2, 3, 4, 5, 6, 7, 1, 13, 29]
"""They fall on starts, stops and queries: of those a round has three, and six where a policy is planned."""
LONG_ROUNDS = FedKLUCBVI(min_round_growth=0.2)
OTHERS = ("fedq-hoeffding", "fedq-bernstein", "fedq-advantage", "byzan-ucbvi", "concurrent-ucbvi")


@pytest.mark.parametrize(
    ("algorithm", "episodes", "deaths", "after"),
    [
        *((algorithm, T, DEATHS, after) for algorithm in (ALGORITHM, LONG_ROUNDS) for after in (False, True)),
        *((make_algorithm(name, {}), 40, [2, 3, 5, 4, 7], True) for name in OTHERS),
    ],
)
def test_a_node_that_dies_again_and_again_changes_nothing(
    algorithm: Any, episodes: int, deaths: list[int], after: bool, tmp_path: Path
) -> None:
    """Before its work, or after it and before it has given its answer."""
    task = plan(algorithm, episodes)
    assert_simulation(with_deaths(task, WORLD, SPLIT, tmp_path, deaths, after), task)


@pytest.mark.parametrize("moment", ["before a round", "in the middle of a synchronisation", "before its checkpoint"])
async def test_a_server_that_dies_goes_on(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes live on: they find the new server at the old address and take back what it does not know of."""
    place, name = {
        "before a round": (coordinator.Coordinator, "_advance"),
        "in the middle of a synchronisation": (OpenReports, "_to_report"),
        "before its checkpoint": (coordinator.Coordinator, "_keep"),
    }[moment]
    calls = failing(monkeypatch, place, name, (3, 11, 12, 20), CrashError())
    monkeypatch.setattr(client, "MAX_PAUSE", 0.3)
    served = Served(plan(), tmp_path / "checkpoint")
    served.join(*make_nodes(WORLD, SPLIT, tmp_path))
    outcome = await served.finish_after(CrashError, replace(plan(), run="another"), tmp_path / "checkpoint")
    assert len(calls) > 20
    assert_simulation(outcome, plan())


def test_a_full_disk_is_waited_for_on_either_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    writes = failing(monkeypatch, state_store, "append_bytes", (4, 5, 9, 10, 11, 20), full, after=True)
    monkeypatch.setattr(coordinator, "DISK_PAUSE", 0.01)
    monkeypatch.setattr(client, "DISK_PAUSE", 0.01)
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)
    assert_simulation(federate(plan(), make_nodes(WORLD, SPLIT, tmp_path), folder=tmp_path / "checkpoint"), plan())
    assert len(writes) > 20


async def test_a_node_without_its_state_is_turned_away_from_a_run_in_progress() -> None:
    served = Served(plan(patience=1.0))
    first, steady = make_nodes(WORLD, SPLIT)

    async def come_back() -> None:
        with suppress(CrashError):
            await run_node(mortal(WORLD, SPLIT, None, [14])(), served.remote())
        with pytest.raises(InputError, match="must resume after round"):
            await run_node(first, served.remote())

    (coming,) = served.begin(come_back())
    (staying,) = served.join(steady, patience=0.5)
    with pytest.raises(FederationStoppedError, match="'node-0' has stayed away"):
        await served.start()
    await coming
    with pytest.raises(InputError, match="no connection"):
        await staying


@pytest.mark.parametrize("name", ["fed-ucbvi", "fedq-bernstein", "concurrent-ucbvi"])
async def test_a_node_that_has_lost_its_state_plays_all_its_rounds_again(name: str, tmp_path: Path) -> None:
    """Twice; in between the server begins anew as well. The node is brought back by the server's history."""
    task = plan(make_algorithm(name, {}), 40)
    kept = tmp_path / "checkpoint"
    deaths = [14, 60]

    def die(run: coordinator.Coordinator) -> None:
        if run.round == 12:
            raise CrashError

    served = Served(task, kept, report=die)
    (forgetful,) = served.begin(keep_alive(mortal(WORLD, SPLIT, None, deaths), served.remote()))
    served.join(make_nodes(WORLD, SPLIT, tmp_path)[1])
    with pytest.raises(CrashError):
        await served.start()
    served.joined.remove(forgetful)
    forgetful.cancel()
    served.restart(task, kept)
    served.begin(keep_alive(mortal(WORLD, SPLIT, None, deaths), served.remote()))
    outcome = await served.finish()
    assert deaths == []
    assert_simulation(outcome, task)


@pytest.mark.parametrize(
    ("secure", "copied"),
    [(False, 4), (True, 1), (True, 4), (True, 8)],
    ids=["plain", "secure 1", "secure", "secure 8"],
)
async def test_an_old_copy_of_a_nodes_state_is_brought_up_to_date(
    secure: bool, copied: int, tmp_path: Path, tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After nine rounds a node starts again from a copy of its folder from an earlier round."""
    task = plan_for(FedKLUCBVI(), WORLD, 120, seed=4, patience=300.0, secure_sums=secure)
    own = tmp_path / "states" / "node-0"
    copy = tmp_path / "copy"
    served = Served(task, tmp_path / "run", tls_files)
    first, *_ = served.join(*make_nodes(WORLD, [1, 1, 1], own.parent))
    advance = served.coordinator._advance

    async def advance_and_go_back() -> Any:
        past = await advance()
        if served.coordinator.round == copied:
            shutil.copytree(own, copy)
        if served.coordinator.round == 9:
            served.joined.remove(first)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            shutil.rmtree(own)
            copy.rename(own)
            served.join(make_nodes(WORLD, [1], own.parent)[0])
        return past

    monkeypatch.setattr(served.coordinator, "_advance", advance_and_go_back)
    assert_simulation(await served.finish(), task, secure=secure)


def test_what_a_kill_while_writing_has_left_is_swept_up(tmp_path: Path) -> None:
    ServerCheckpoint(tmp_path / "checkpoint", plan()).close()
    drafts = [tmp_path / "checkpoint" / ".log-000001.partial-1", tmp_path / "node-0" / ".log-000001.partial-2"]
    for draft in drafts:
        draft.parent.mkdir(exist_ok=True)
        draft.write_bytes(b"half")
    assert_simulation(federate(plan(), make_nodes(WORLD, [3], tmp_path), folder=tmp_path / "checkpoint"), plan())
    assert not any(draft.exists() for draft in drafts)


@pytest.mark.parametrize("fault", first_of(["stalled", "cut"]))
async def test_a_line_that_breaks_while_nobody_speaks_is_mended(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stalled one is dead without a word. The server waits for nobody's answer then, so that no deadline can help;
    keep-alives on both sides notice it. If it is cut, the node has waited for the others longer than it would look
    for a server: its patience begins when it loses the server.
    """
    patience = 1.0
    if fault == "stalled":
        times = transport._KEEP_ALIVE
        ten_times_faster = [(name, value // 10 if name.endswith("_ms") else value) for name, value in times]
        monkeypatch.setattr(transport, "_KEEP_ALIVE", ten_times_faster)
        monkeypatch.setattr(transport, "KEEP_ALIVE_SECONDS", 1)
    async with asyncio.timeout(50 if fault == "stalled" else 300):
        served = Served(plan(LOCAL), address=LOOPBACK)
        first, second = make_nodes(WORLD, [1, 2])
        with Line(served.server.port) as line:
            far = RemoteServer(f"127.0.0.1:{line.port}")
            served.begin(run_node(first, far, patience=patience if fault == "cut" else 600.0))
            await served.meet()
            stream = served.registry.members["node-0"].stream
            members = served.registry.members
            if fault == "stalled":
                line.stall()
                while "node-0" not in members or members["node-0"].stream in (stream, None):
                    await asyncio.sleep(0.01)
            else:
                await asyncio.sleep(3 * patience)
                line.cut()
                while members:
                    await asyncio.sleep(0.01)
            served.join(second)
            outcome = await served.finish()
    assert_simulation(outcome, plan(LOCAL))


def test_an_insecure_connection_takes_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on port 1; a proxy of this machine's settings would lead elsewhere."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert_simulation(federate(plan(), make_nodes(WORLD, [3]), address=LOOPBACK), plan())


# ------------------------------------------------------------------------------------------- nodes that stay away


async def with_departure(
    task: RunPlan,
    dies_at: int,
    folder: Path | None = None,
    *,
    back: bool = False,
    address: str | None = None,
    kept: Path | None = None,
) -> Outcome:
    """node-0 dies; if ``back``, it comes back once the others have gone on without it.

    If its checkpoint is ``kept``, the server dies as well, as soon as it has decided what to do without the node.
    """
    deaths = []

    def die(run: coordinator.Coordinator) -> None:
        if kept is not None and run.engine.events:
            deaths.append(run.round)
            raise CrashError

    served = Served(task, kept, address=address, report=die)

    async def depart() -> None:
        with suppress(CrashError):
            await run_node(mortal(WORLD, SPLIT, folder, [dies_at])(), served.remote())
        if back:
            while not served.coordinator.engine.events:
                await asyncio.sleep(0.01)
            await run_node(make_nodes(WORLD, SPLIT, folder)[0], served.remote())

    served.begin(depart())
    served.join(make_nodes(WORLD, SPLIT)[1])
    outcome = await (served.finish() if kept is None else served.finish_after(CrashError, task, kept))
    assert len(deaths) == (kept is not None)
    return outcome


WITHOUT = "the round closes without it"


async def test_with_a_quorum_the_run_goes_on_without_a_node_that_stays_away_and_says_so(tmp_path: Path) -> None:
    task = plan(FedKLUCBVI(), quorum=1, wait=0.3)
    outcome = await with_departure(task, 23, tmp_path, kept=tmp_path / "checkpoint")
    (event,) = outcome.events
    assert (event["node"], event["done"]) == ("node-0", WITHOUT)
    records = outcome.run.records
    missing = records["agent_episodes"] == 2 * records["length"]
    assert (missing == (np.arange(len(missing)) + 1 >= event["round"])).all()
    assert (records["agents"] == np.where(missing, 2, 3)).all()
    expected = run(FedKLUCBVI(), WORLD, T, seed=SEED, driver="episodes").records
    assert not missing[0]
    for name in ("length", "bytes_up", "requests", "agent", "state"):
        assert np.array_equal(records[name][~missing], expected[name][: np.count_nonzero(~missing)])
    assert outcome.run.episodes_played == task.setting.episodes
    assert outcome.ended
    assert not outcome.run.complete
    assert outcome.run.unfinished == "agents have missed episodes"
    assert (records["agent"][missing][1:] != 0).all()


async def test_a_node_that_comes_back_takes_part_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)
    task = plan(FedKLUCBVI(min_round_growth=0.0), episodes=3_000, quorum=1, wait=0.2)
    outcome = await with_departure(task, 23, tmp_path, back=True)
    assert [event["done"] for event in outcome.events] == [WITHOUT, "takes part again"]
    left, returned = (event["round"] for event in outcome.events)
    shares = outcome.run.records["agent_episodes"] / outcome.run.records["length"]
    assert (shares == np.where(np.isin(np.arange(1, len(shares) + 1), np.arange(left, returned)), 2, 3)).all()
    assert (outcome.run.records["agents"] == shares).all()


async def test_with_a_quorum_a_node_away_from_the_start_leaves_the_run_of_the_others(tmp_path: Path) -> None:
    task = plan(FedKLUCBVI(), quorum=1, wait=0.2)
    outcome = await with_departure(task, 1, tmp_path)
    assert_run_of_the_others(outcome.run, task)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_asking_for_a_report_twice_gives_the_same(name: str) -> None:
    """That is what makes queries idempotent."""
    algorithm = make_algorithm(name, {})
    setting = Setting(3, 2, 3, 1, 50, 0.0, 1)
    agents = algorithm.new_agents(setting, FleetTables(1, WORLD.successors, WORLD.rewards))
    server = algorithm.new_server(setting)
    broadcast = algorithm.broadcast(server)
    algorithm.budgets(agents, broadcast)
    visits = np.zeros((1, *algorithm.counting.shape(3, 3, 2)), dtype=np.int64)
    transitions = np.zeros((*visits.shape, WORLD.successors.shape[3]), dtype=np.int64)
    visits.reshape((visits.shape[1], -1))[:, 0] = 1  # one agent: the first state, and the first action of its set
    transitions.reshape((visits.shape[1], -1))[:, 0] = 1
    algorithm.absorb(agents, broadcast[0], transitions, visits)
    for exchange in range(algorithm.message_sizes(setting).exchanges):
        query = algorithm.query(server, exchange)
        first = tuple(array.copy() for array in algorithm.report(agents, query, exchange))
        np.testing.assert_equal(algorithm.report(agents, query, exchange), first)


def test_live_nodes_stop_where_the_signal_reaches_them_and_all_play_t_episodes() -> None:
    nodes = make_nodes(WORLD, [1, 1, 1])
    outcome = federate(plan(collection="live"), nodes)
    records = outcome.run.records
    assert outcome.run.complete
    assert records["agent_episodes"].sum() == 3 * T
    assert (records["agent_episodes"] <= 3 * records["length"]).all()
    assert outcome.run.rounds > 5
    for node in nodes:
        assert (node.state.arrays()["own_visits"].sum(axis=(2, 3)) == T).all()
    assert outcome.run.value > 0.8 * outcome.run.about.optimal_value


async def test_a_live_run_ends_without_a_node_that_never_comes_back() -> None:
    task = plan(FedKLUCBVI(), collection="live", quorum=1, wait=0.3)
    outcome = await with_departure(task, 10, address=LOOPBACK)
    (event,) = outcome.events
    assert (event["node"], event["done"]) == ("node-0", WITHOUT)
    assert outcome.ended
    assert not outcome.run.complete
    assert 2 * T <= outcome.run.records["agent_episodes"].sum() < 3 * T


# ----------------------------------------------------------------------------------------- what cannot go on says so


async def without_the_second(served: Served, **options: Any) -> asyncio.Future[Any]:
    """Two nodes begin a run, and one of them goes in its third round; the other one."""
    first, second = served.join(*make_nodes(WORLD, SPLIT), **options)
    await served.reach(3)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    return first


async def test_nodes_hear_why_their_server_has_stopped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        served = Served(plan(episodes=100_000, patience=0.3))
        first = await without_the_second(served, patience=2.0)
        ends = await asyncio.gather(first, served.start(), return_exceptions=True)
    why = r"the server has stopped: 'node-1' has stayed away, or has not answered, for 0.3 s in round \d+"
    assert re.search(f"node-0: the server has ended the stream: {why}", caplog.text)
    assert re.search(f"Before that: the server has ended the stream: {why}", str(ends[0]))


@pytest.mark.parametrize("lost", ["a simulation", "a server", "node-0", "node-0/memory"])
def test_what_has_lost_its_log_is_not_begun_anew(lost: str, tmp_path: Path) -> None:
    folder = tmp_path / lost

    def go_on() -> None:
        if lost == "a simulation":
            resume(folder)
        elif lost == "a server":
            ServerCheckpoint(folder, plan())
        else:
            make_nodes(WORLD, SPLIT, tmp_path)[0].enter(plan().welcome())

    if lost == "a simulation":
        run(ALGORITHM, WORLD, 30, checkpoint=folder)
    else:
        federate(plan(), make_nodes(WORLD, SPLIT, tmp_path), folder=folder if lost == "a server" else None)
    if lost.startswith("node"):
        go_on()
    if lost == "node-0/memory":
        for name in node_memory.FILES:
            (folder.parent / name).unlink(missing_ok=True)
    for path in folder.glob("log-*"):
        path.unlink()
    with pytest.raises(InputError, match="its log is missing"):
        go_on()


@pytest.mark.parametrize("place", ["StateStore.write", "write_manifest"])
def test_a_node_killed_while_it_makes_its_folder_can_begin(place: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Before the state is written, or between state and manifest."""
    with monkeypatch.context() as patch:
        patch.setattr(f"fed_ucbvi.network.node_state_store.{place}", Mock(side_effect=SystemExit))
        with pytest.raises(SystemExit):
            make_nodes(WORLD, SPLIT, tmp_path)[0].enter(plan().welcome())
    make_nodes(WORLD, SPLIT, tmp_path)[0].enter(plan().welcome())


def test_agents_that_cannot_be_are_refused_before_memory_is_taken() -> None:
    source = Mock()
    welcome = plan().welcome()
    spec = welcome.spec.replace(b'"agents": 3', b'"agents": 1000000000')
    assert b"1000000000" in spec
    with pytest.raises(InputError, match="1,000,000,000 agents of the server's run take at least"):
        Node("a", source, 0, 1).enter(structs.replace(welcome, spec=spec))
    assert not source.called


def test_a_full_disk_is_named_and_leaves_nothing_half_written(tmp_path: Path, monkeypatch: Any) -> None:
    done = run(ALGORITHM, WORLD, 30, checkpoint=tmp_path / "kept")
    before = {path: path.read_bytes() for path in (tmp_path / "kept").iterdir()}

    def full(*_: object) -> Any:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    with monkeypatch.context() as patch:
        patch.setattr("fed_ucbvi.engine.state_store.os.fsync", full)
        patch.setattr("fed_ucbvi.core.files.Path.write_bytes", full)
        with pytest.raises(OSError, match="File too large") as error:
            done.save(tmp_path / "out")
        assert error.value.filename == str(tmp_path / "out")
        store = StateStore.open(tmp_path / "kept", checkpoint.FORMAT, checkpoint.FORMAT_VERSION, durable=True)
        with store, pytest.raises(OSError, match="File too large") as error:
            store.begin(store.read())
        assert re.fullmatch(r"log-\d+", Path(error.value.filename).name)
    assert {path: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
