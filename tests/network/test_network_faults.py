"""What happens when nodes or the server go away, come back, stay away, or send what cannot be true."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, InputError, run, synthetic
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.base import FleetTables, Setting
from fed_ucbvi.algorithms.fed_kl_ucbvi import FedKLUCBVI
from fed_ucbvi.engine import state_store
from fed_ucbvi.network import client, coordinator
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import FederationStoppedError
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.rounds import ExchangeCall
from fed_ucbvi.network.run_plan import Rules, RunPlan, plan_for
from fed_ucbvi.network.server import FederationServer, Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from in_memory import InMemoryServer
from network import (
    CrashError,
    Fragile,
    assert_run_without_the_first_agent,
    assert_same,
    federate,
    keep_alive,
    make_nodes,
    reach,
)

WORLD = synthetic(agents=3, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(nu=30)
T, SEED = 120, 4
SPLIT = [1, 2]


def plan(algorithm: FedUCBVI = ALGORITHM, **rules: Any) -> RunPlan:
    return plan_for(algorithm, WORLD, T, seed=SEED, run="the-run", rules=Rules(**{"patience": 300.0, **rules}))


def simulated(algorithm: FedUCBVI = ALGORITHM) -> Any:
    return run(algorithm, WORLD, T, seed=SEED, driver="episodes")


async def with_restarts(task: RunPlan, folder: Path, deaths: list[int], *, after: bool) -> Outcome:
    """A run in which node-0 dies again and again, each time after so many answers."""
    service = FederationServer(task, None, None)
    address = reach(service)
    left = list(deaths)

    def fragile() -> Node:
        node = Fragile("node-0", lambda M: WORLD, 0, 1, folder / "node-0")
        node.dies_at, node.after = (left.pop(0) if left else -1), after
        return node

    _, steady = make_nodes(WORLD, SPLIT)
    tasks = [
        asyncio.ensure_future(keep_alive(fragile, address)),
        asyncio.ensure_future(run_node(steady, address)),
    ]
    outcome = await service.run()
    await asyncio.gather(*tasks)
    assert left == []
    return outcome


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize(
    "algorithm", [ALGORITHM, FedKLUCBVI(min_round_growth=0.2)], ids=lambda algorithm: algorithm.name
)
def test_a_node_that_dies_again_and_again_rejoins_and_nothing_changes(
    algorithm: FedUCBVI, after: bool, tmp_path: Path
) -> None:
    """Deaths fall on starts, stops and queries: of those a round has three, and six where a
    policy is planned."""
    deaths = [1, 2, 3, 4, 5, 6, 7, 1, 13, 29]
    outcome = asyncio.run(asyncio.wait_for(with_restarts(plan(algorithm), tmp_path, deaths, after=after), 300))
    assert_same(outcome.run, simulated(algorithm), regret=False)
    assert outcome.events == []


@pytest.mark.parametrize("moment", ["before a round", "in the middle of a synchronisation", "before its checkpoint"])
def test_a_server_that_dies_goes_on_from_its_checkpoint(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes live on: they find the new server at the old address and take back what it does not know of."""
    calls = 0
    place, name = {
        "before a round": (coordinator.Coordinator, "_advance"),
        "in the middle of a synchronisation": (ExchangeCall, "__init__"),
        "before its checkpoint": (coordinator.Coordinator, "_keep"),
    }[moment]
    original = getattr(place, name)

    def dying(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (3, 11, 12, 20):
            raise CrashError
        return original(*arguments)

    monkeypatch.setattr(place, name, dying)
    monkeypatch.setattr(client, "MAX_PAUSE", 0.3)

    async def story() -> Outcome:
        nodes = make_nodes(WORLD, SPLIT, tmp_path)
        address: InMemoryServer | None = None
        tasks: list[asyncio.Future[Any]] = []
        while True:
            server_checkpoint = ServerCheckpoint(tmp_path / "checkpoint")
            service = FederationServer(
                server_checkpoint.adopt(replace(plan(), run="another")),
                None,
                None,
                server_checkpoint=server_checkpoint,
            )
            address = address or reach(service)
            address.server = service
            tasks = tasks or [asyncio.ensure_future(run_node(node, address)) for node in nodes]
            with suppress(CrashError):
                outcome = await service.run()
                await asyncio.gather(*tasks)
                return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 300))
    assert calls > 20
    assert_same(outcome.run, simulated(), regret=False)


def test_a_full_disk_is_waited_for_on_either_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, original = 0, state_store.append_bytes

    def full(*arguments: Any, **options: Any) -> int:
        nonlocal writes
        writes += 1
        size = original(*arguments, **options)
        if writes in (4, 5, 9, 10, 11, 20):
            raise OSError(errno.ENOSPC, "No space left on device")
        return size

    monkeypatch.setattr(state_store, "append_bytes", full)
    monkeypatch.setattr(coordinator, "DISK_PAUSE", 0.01)
    monkeypatch.setattr(client, "DISK_PAUSE", 0.01)
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)
    book = ServerCheckpoint(tmp_path / "checkpoint")
    outcome = federate(book.adopt(plan()), make_nodes(WORLD, SPLIT, tmp_path), server_checkpoint=book)
    assert writes > 20
    assert_same(outcome.run, simulated(), regret=False)


def test_a_node_without_its_state_is_turned_away_from_a_run_in_progress(tmp_path: Path) -> None:
    task = plan(patience=1.0)
    with pytest.raises(FederationStoppedError, match="'node-0' has stayed away"):
        asyncio.run(asyncio.wait_for(with_restarts_and_lost_state(task, tmp_path), 300))


@pytest.mark.parametrize("name", ["fed-ucbvi", "fedq-bernstein", "concurrent-ucbvi"])
def test_a_node_that_has_lost_its_state_plays_all_its_rounds_again(name: str, tmp_path: Path) -> None:
    """Twice; in between the server begins anew as well. The node is brought back by the server's history."""
    algorithm = make_algorithm(name, {})
    task = plan_for(algorithm, WORLD, 40, seed=SEED)

    def die(run: coordinator.Coordinator) -> None:
        if run.round == 12:
            raise CrashError

    async def story() -> Outcome:
        server_checkpoint = ServerCheckpoint(tmp_path / "checkpoint")
        service = FederationServer(
            server_checkpoint.adopt(task), None, None, server_checkpoint=server_checkpoint, report=die
        )
        address = reach(service)
        deaths = [14, 60]

        def forgetful() -> Node:
            node = Fragile("node-0", lambda M: WORLD, 0, 1, trajectories=True)
            node.dies_at = deaths.pop(0) if deaths else -1
            return node

        tasks = [
            asyncio.ensure_future(keep_alive(forgetful, address)),
            asyncio.ensure_future(run_node(make_nodes(WORLD, SPLIT, tmp_path)[1], address)),
        ]
        with pytest.raises(CrashError):
            await service.run()
        tasks[0].cancel()
        server_checkpoint = ServerCheckpoint(tmp_path / "checkpoint")
        service = address.server = FederationServer(
            server_checkpoint.adopt(task), None, None, server_checkpoint=server_checkpoint
        )
        tasks[0] = asyncio.ensure_future(keep_alive(forgetful, address))
        outcome = await service.run()
        await asyncio.gather(*tasks)
        assert deaths == []
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 300))
    assert_same(outcome.run, run(algorithm, WORLD, 40, seed=SEED, driver="episodes"), regret=False)


async def with_restarts_and_lost_state(task: RunPlan, folder: Path) -> Outcome:
    service = FederationServer(task, None, None)
    address = reach(service)
    first, steady = make_nodes(WORLD, SPLIT)
    fragile = Fragile("node-0", lambda M: WORLD, 0, 1)
    fragile.dies_at = 14

    async def story() -> None:
        with suppress(CrashError):
            await run_node(fragile, address)
        with pytest.raises(InputError, match="must resume after round"):
            await run_node(first, address)

    tasks = [asyncio.ensure_future(story()), asyncio.ensure_future(run_node(steady, address, patience=0.5))]
    try:
        return await service.run()
    finally:
        await tasks[0]
        with pytest.raises(InputError, match="no connection"):
            await tasks[1]


# ------------------------------------------------------------------------------------------- nodes that stay away


async def with_departure(task: RunPlan, dies_at: int, folder: Path, *, back: bool = False) -> Outcome:
    """node-0 dies; if ``back``, it comes back once the others have gone on without it."""
    service = FederationServer(task, None, None)
    address = reach(service)
    _, steady = make_nodes(WORLD, SPLIT)

    async def story() -> None:
        node = Fragile("node-0", lambda M: WORLD, 0, 1, folder)
        node.dies_at = dies_at
        with suppress(CrashError):
            await run_node(node, address)
        if back:
            while not service.coordinator.engine.events:
                await asyncio.sleep(0.01)
            await run_node(Node("node-0", lambda M: WORLD, 0, 1, folder), address)

    tasks = [asyncio.ensure_future(story()), asyncio.ensure_future(run_node(steady, address))]
    outcome = await service.run()
    await asyncio.gather(*tasks)
    return outcome


@pytest.mark.parametrize("away", ["last", "exclude"])
def test_the_run_goes_on_without_a_node_that_stays_away_and_says_so(away: str, tmp_path: Path) -> None:
    task = plan(away=away, patience=0.3)
    outcome = asyncio.run(asyncio.wait_for(with_departure(task, 23, tmp_path), 300))
    (event,) = outcome.events
    assert event["node"] == "node-0"
    assert event["done"] == away
    records = outcome.run.records
    missing = records["agent_episodes"] == 2 * records["length"]
    assert (missing == (np.arange(len(missing)) + 1 >= event["round"])).all()
    assert (records["agents"] == np.where(missing, 2, 3)).all()
    assert outcome.run.episodes_played == task.setting.episodes
    assert outcome.ended
    assert not outcome.run.complete
    assert outcome.run.unfinished == "agents have missed episodes"
    assert (records["agent"][missing][1:] != 0).all()


def test_a_node_that_comes_back_takes_part_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)
    task = replace(plan(away="last", patience=0.2), setting=replace(plan().setting, episodes=3_000))
    outcome = asyncio.run(asyncio.wait_for(with_departure(task, 23, tmp_path, back=True), 300))
    assert [event["done"] for event in outcome.events] == ["last", "takes part again"]
    left, returned = (event["round"] for event in outcome.events)
    shares = outcome.run.records["agent_episodes"] / outcome.run.records["length"]
    assert (shares == np.where(np.isin(np.arange(1, len(shares) + 1), np.arange(left, returned)), 2, 3)).all()
    assert (outcome.run.records["agents"] == shares).all()


def test_a_node_excluded_from_the_start_leaves_the_run_of_the_others(tmp_path: Path) -> None:
    algorithm = FedUCBVI(synchronisation="local")
    task = plan_for(algorithm, WORLD, T, seed=SEED, rules=Rules(away="exclude", patience=0.2))
    outcome = asyncio.run(asyncio.wait_for(with_departure(task, 1, tmp_path), 300))
    assert_run_without_the_first_agent(outcome.run, task)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_only_algorithms_that_report_counts_may_go_on_without_all_their_agents(name: str) -> None:
    algorithm = make_algorithm(name, {})
    federation = synthetic(agents=1 if algorithm.single_agent else 3, states=3, actions=2, horizon=3)
    task = plan_for(algorithm, federation, 10, rules=Rules(away="exclude"))

    async def build() -> None:
        FederationServer(task, None, None)

    if name in ("ucbvi", "concurrent-ucbvi", "ucb-advantage", "concurrent-ucb-advantage"):
        with pytest.raises(InputError, match="needs all its agents"):
            asyncio.run(build())
    else:
        asyncio.run(build())


# ------------------------------------------------------------------------------------------------ what cannot be true


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
    for exchange in range(algorithm.exchanges(setting)):
        query = algorithm.query(server, exchange)
        first = [array.copy() for array in algorithm.report(agents, query, exchange)]
        again = algorithm.report(agents, query, exchange)
        assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))


# --------------------------------------------------------------------------------------------------------------- live


def test_live_nodes_stop_where_the_signal_reaches_them_and_all_play_t_episodes() -> None:
    task = plan_for(ALGORITHM, WORLD, T, seed=SEED, collection="live")
    nodes = make_nodes(WORLD, [1, 1, 1])
    outcome = federate(task, nodes)
    records = outcome.run.records
    assert outcome.run.complete
    assert records["agent_episodes"].sum() == 3 * T
    assert (records["agent_episodes"] <= 3 * records["length"]).all()
    assert outcome.run.rounds > 5
    for node in nodes:
        assert (node.state.arrays()["visits"].sum(axis=(2, 3)) == T).all()
    assert outcome.run.value > 0.8 * outcome.run.about.optimal_value
