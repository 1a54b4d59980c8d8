"""What it takes to come back, in one process: half-open lines, patience, every algorithm's state, leftovers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from fed_ucbvi import FedUCBVI, run, synthetic
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.network import transport
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import Rules, plan_for
from fed_ucbvi.network.server import FederationServer, Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.transport import RemoteServer
from federation_processes import Line
from network import CrashError, Fragile, assert_same, federate, keep_alive, make_nodes, reach

WORLD = synthetic(agents=3, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(synchronisation="local")
T, SEED = 120, 4
SECONDS = 300

pytestmark = pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")


def assert_simulated(outcome: Outcome) -> None:
    assert outcome.events == []
    assert_same(outcome.run, run(ALGORITHM, WORLD, T, seed=SEED, driver="episodes"), regret=False)


def test_a_line_that_is_dead_without_a_word_is_noticed_by_keep_alives_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server waits for nobody's answer when the line dies, so that no deadline can help; a minute is too long."""
    ten_times_faster = [
        (name, value // 10 if name.endswith("_ms") else value) for name, value in transport._KEEP_ALIVE
    ]
    monkeypatch.setattr(transport, "_KEEP_ALIVE", ten_times_faster)
    monkeypatch.setattr(transport, "KEEP_ALIVE_SECONDS", 1)

    async def story() -> Outcome:
        service = FederationServer(plan_for(ALGORITHM, WORLD, T, seed=SEED), "127.0.0.1:0", None)
        serving = asyncio.ensure_future(service.run())
        first, second = make_nodes(WORLD, [1, 2])
        with Line(service.port) as line:
            joined = [asyncio.ensure_future(run_node(first, RemoteServer(f"127.0.0.1:{line.port}")))]
            while not service.registry.members:
                await asyncio.sleep(0.01)
            stream = service.registry.members["node-0"].stream
            line.stall()
            while "node-0" not in service.registry.members or service.registry.members["node-0"].stream in (
                stream,
                None,
            ):
                await asyncio.sleep(0.01)
            joined.append(asyncio.ensure_future(run_node(second, RemoteServer(f"127.0.0.1:{service.port}"))))
            outcome = await serving
            await asyncio.gather(*joined)
        return outcome

    assert_simulated(asyncio.run(asyncio.wait_for(story(), 50)))


def test_a_nodes_patience_begins_when_it_loses_its_server() -> None:
    """The node waits for the others longer than it would look for a server, and then its line is cut."""
    patience = 1.0

    async def story() -> Outcome:
        service = FederationServer(plan_for(ALGORITHM, WORLD, T, seed=SEED), "127.0.0.1:0", None)
        serving = asyncio.ensure_future(service.run())
        first, second = make_nodes(WORLD, [1, 2])
        with Line(service.port) as line:
            joined = [
                asyncio.ensure_future(run_node(first, RemoteServer(f"127.0.0.1:{line.port}"), patience=patience))
            ]
            while not service.registry.members:
                await asyncio.sleep(0.01)
            await asyncio.sleep(3 * patience)
            line.cut()
            while service.registry.members:
                await asyncio.sleep(0.01)
            joined.append(asyncio.ensure_future(run_node(second, RemoteServer(f"127.0.0.1:{service.port}"))))
            outcome = await serving
            await asyncio.gather(*joined)
        return outcome

    assert_simulated(asyncio.run(asyncio.wait_for(story(), SECONDS)))


@pytest.mark.parametrize(
    "name", ["fedq-hoeffding", "fedq-bernstein", "fedq-advantage", "byzan-ucbvi", "concurrent-ucbvi"]
)
def test_every_algorithms_agents_come_back_from_their_disk(name: str, tmp_path: Path) -> None:
    """The first node dies again and again, after it has worked out an answer and before it has given it."""
    algorithm, episodes = make_algorithm(name, {}), 40
    deaths = [2, 3, 5, 4, 7]

    async def story() -> Outcome:
        service = FederationServer(plan_for(algorithm, WORLD, episodes, seed=SEED), None, None)
        address = reach(service)

        def fragile() -> Node:
            node = Fragile("node-0", lambda M: WORLD, 0, 1, tmp_path / "node-0", trajectories=True)
            node.dies_at, node.after = (deaths.pop(0) if deaths else -1), True
            return node

        steady = make_nodes(WORLD, [1, 2])[1]
        tasks = [
            asyncio.ensure_future(keep_alive(fragile, address)),
            asyncio.ensure_future(run_node(steady, address)),
        ]
        outcome = await service.run()
        await asyncio.gather(*tasks)
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), SECONDS))
    assert deaths == []
    assert_same(outcome.run, run(algorithm, WORLD, episodes, seed=SEED, driver="episodes"), regret=False)


def test_a_live_run_ends_without_a_node_that_never_comes_back(tmp_path: Path) -> None:
    rules = Rules(away="last", patience=0.3)
    task = plan_for(ALGORITHM, WORLD, T, seed=SEED, collection="live", rules=rules)

    async def story() -> Outcome:
        service = FederationServer(task, "127.0.0.1:0", None)
        address = f"127.0.0.1:{service.port}"
        mortal = Fragile("node-0", lambda M: WORLD, 0, 1)
        mortal.dies_at = 10
        steady = asyncio.ensure_future(run_node(make_nodes(WORLD, [1, 2])[1], RemoteServer(address)))

        async def die() -> None:
            with suppress(CrashError):
                await run_node(mortal, RemoteServer(address))

        dying = asyncio.ensure_future(die())
        outcome = await service.run()
        await asyncio.gather(steady, dying)
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), SECONDS))
    (event,) = outcome.events
    assert (event["node"], event["done"]) == ("node-0", "last")
    assert outcome.ended
    assert not outcome.run.complete
    assert 2 * T <= outcome.run.records["agent_episodes"].sum() < 3 * T


def test_what_a_kill_while_writing_has_left_is_swept_up(tmp_path: Path) -> None:
    book = ServerCheckpoint(tmp_path / "checkpoint")
    task = book.adopt(plan_for(ALGORITHM, WORLD, T, seed=SEED))
    drafts = [
        tmp_path / "checkpoint" / ".log-000001.partial-1",
        tmp_path / "node-0" / ".log-000001.partial-2",
    ]
    for draft in drafts:
        draft.parent.mkdir(exist_ok=True)
        draft.write_bytes(b"half")
    assert_simulated(federate(task, make_nodes(WORLD, [3], tmp_path), server_checkpoint=book))
    assert not any(draft.exists() for draft in drafts)


def test_an_insecure_connection_takes_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on port 1; a proxy of this machine's settings would lead elsewhere."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert_simulated(federate(plan_for(ALGORITHM, WORLD, T, seed=SEED), make_nodes(WORLD, [3])))
