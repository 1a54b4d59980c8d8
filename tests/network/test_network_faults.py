"""What happens when nodes or the server go away, come back, stay away, or send what cannot be true."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
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
from fed_ucbvi.engine.log_records import GenerationWriter
from fed_ucbvi.network import client, coordinator
from fed_ucbvi.network.client import take_part
from fed_ucbvi.network.messages import Down, Report, Up
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_calls import FederationStoppedError
from fed_ucbvi.network.rounds import Round
from fed_ucbvi.network.run_plan import Rules, RunPlan, plan_for
from fed_ucbvi.network.server import Outcome, Service
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from network import (
    CrashError,
    Fragile,
    assert_run_without_the_first_agent,
    assert_same,
    federate,
    keep_alive,
    make_nodes,
)

WORLD = synthetic(agents=3, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(nu=30)
T, SEED = 120, 4
SPLIT = [1, 2]


def plan(algorithm: FedUCBVI = ALGORITHM, **rules: Any) -> RunPlan:
    return plan_for(algorithm, WORLD, T, seed=SEED, run="the-run", rules=Rules(**{"patience": 20.0, **rules}))


def simulated(algorithm: FedUCBVI = ALGORITHM) -> Any:
    return run(algorithm, WORLD, T, seed=SEED, driver="episodes")


async def with_restarts(task: RunPlan, folder: Path, deaths: list[int], *, after: bool) -> Outcome:
    """A run in which node-0 dies again and again, each time after so many answers."""
    service = Service(task, "127.0.0.1:0", None)
    address = f"127.0.0.1:{service.port}"
    left = list(deaths)

    def fragile() -> Node:
        node = Fragile("node-0", lambda M: WORLD, 0, 1, folder / "node-0")
        node.dies_at, node.after = (left.pop(0) if left else -1), after
        return node

    _, steady = make_nodes(WORLD, SPLIT)
    tasks = [
        asyncio.ensure_future(keep_alive(fragile, address)),
        asyncio.ensure_future(take_part(steady, address, None)),
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
    outcome = asyncio.run(asyncio.wait_for(with_restarts(plan(algorithm), tmp_path, deaths, after=after), 100))
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
        "in the middle of a synchronisation": (Round, "exchange"),
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
        address = "127.0.0.1:0"
        tasks: list[asyncio.Future[Any]] = []
        while True:
            server_checkpoint = ServerCheckpoint(tmp_path / "checkpoint")
            service = Service(
                server_checkpoint.adopt(replace(plan(), run="another")),
                address,
                None,
                server_checkpoint=server_checkpoint,
            )
            if not tasks:
                address = f"127.0.0.1:{service.port}"
                tasks = [asyncio.ensure_future(take_part(node, address, None)) for node in nodes]
            with suppress(CrashError):
                outcome = await service.run()
                await asyncio.gather(*tasks)
                return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 100))
    assert calls > 20
    assert_same(outcome.run, simulated(), regret=False)


def test_a_full_disk_is_waited_for_on_either_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, original = 0, GenerationWriter._add_record

    def full(*arguments: Any) -> int:
        nonlocal writes
        writes += 1
        size = original(*arguments)
        if writes in (4, 5, 9, 10, 11, 20):
            raise OSError(errno.ENOSPC, "No space left on device")
        return size

    monkeypatch.setattr(GenerationWriter, "_add_record", full)
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
        asyncio.run(asyncio.wait_for(with_restarts_and_lost_state(task, tmp_path), 60))


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
        service = Service(
            server_checkpoint.adopt(task), "127.0.0.1:0", None, server_checkpoint=server_checkpoint, report=die
        )
        address = f"127.0.0.1:{service.port}"
        deaths = [14, 60]

        def forgetful() -> Node:
            node = Fragile("node-0", lambda M: WORLD, 0, 1, trajectories=True)
            node.dies_at = deaths.pop(0) if deaths else -1
            return node

        tasks = [
            asyncio.ensure_future(keep_alive(forgetful, address)),
            asyncio.ensure_future(take_part(make_nodes(WORLD, SPLIT, tmp_path)[1], address, None)),
        ]
        with pytest.raises(CrashError):
            await service.run()
        tasks[0].cancel()
        server_checkpoint = ServerCheckpoint(tmp_path / "checkpoint")
        service = Service(server_checkpoint.adopt(task), address, None, server_checkpoint=server_checkpoint)
        tasks[0] = asyncio.ensure_future(keep_alive(forgetful, address))
        outcome = await service.run()
        await asyncio.gather(*tasks)
        assert deaths == []
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 60))
    assert_same(outcome.run, run(algorithm, WORLD, 40, seed=SEED, driver="episodes"), regret=False)


async def with_restarts_and_lost_state(task: RunPlan, folder: Path) -> Outcome:
    service = Service(task, "127.0.0.1:0", None)
    address = f"127.0.0.1:{service.port}"
    first, steady = make_nodes(WORLD, SPLIT)
    fragile = Fragile("node-0", lambda M: WORLD, 0, 1)
    fragile.dies_at = 14

    async def story() -> None:
        with suppress(CrashError):
            await take_part(fragile, address, None)
        with pytest.raises(InputError, match="must go on after round"):
            await take_part(first, address, None)

    tasks = [asyncio.ensure_future(story()), asyncio.ensure_future(take_part(steady, address, None, patience=0.5))]
    try:
        return await service.run()
    finally:
        await tasks[0]
        with pytest.raises(InputError, match="no connection"):
            await tasks[1]


# ------------------------------------------------------------------------------------------- nodes that stay away


async def with_departure(task: RunPlan, dies_at: int, folder: Path, *, back: bool = False) -> Outcome:
    """node-0 dies; if ``back``, it comes back once the others have gone on without it."""
    service = Service(task, "127.0.0.1:0", None)
    address = f"127.0.0.1:{service.port}"
    _, steady = make_nodes(WORLD, SPLIT)

    async def story() -> None:
        node = Fragile("node-0", lambda M: WORLD, 0, 1, folder)
        node.dies_at = dies_at
        with suppress(CrashError):
            await take_part(node, address, None)
        if back:
            while not service.coordinator.records.events:
                await asyncio.sleep(0.01)
            await take_part(Node("node-0", lambda M: WORLD, 0, 1, folder), address, None)

    tasks = [asyncio.ensure_future(story()), asyncio.ensure_future(take_part(steady, address, None))]
    outcome = await service.run()
    await asyncio.gather(*tasks)
    return outcome


@pytest.mark.parametrize("away", ["last", "exclude"])
def test_the_run_goes_on_without_a_node_that_stays_away_and_says_so(away: str, tmp_path: Path) -> None:
    task = plan(away=away, patience=0.3)
    outcome = asyncio.run(asyncio.wait_for(with_departure(task, 23, tmp_path), 60))
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
    outcome = asyncio.run(asyncio.wait_for(with_departure(task, 23, tmp_path, back=True), 60))
    assert [event["done"] for event in outcome.events] == ["last", "takes part again"]
    left, returned = (event["round"] for event in outcome.events)
    shares = outcome.run.records["agent_episodes"] / outcome.run.records["length"]
    assert (shares == np.where(np.isin(np.arange(1, len(shares) + 1), np.arange(left, returned)), 2, 3)).all()
    assert (outcome.run.records["agents"] == shares).all()


def test_a_node_excluded_from_the_start_leaves_the_run_of_the_others(tmp_path: Path) -> None:
    algorithm = FedUCBVI(synchronisation="local")
    task = plan_for(algorithm, WORLD, T, seed=SEED, rules=Rules(away="exclude", patience=0.2))
    outcome = asyncio.run(asyncio.wait_for(with_departure(task, 1, tmp_path), 60))
    assert_run_without_the_first_agent(outcome.run, task)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_only_algorithms_that_report_counts_may_go_on_without_all_their_agents(name: str) -> None:
    algorithm = make_algorithm(name, {})
    federation = synthetic(agents=1 if algorithm.single_agent else 3, states=3, actions=2, horizon=3)
    task = plan_for(algorithm, federation, 10, rules=Rules(away="exclude"))

    async def build() -> None:
        Service(task, "127.0.0.1:0", None)

    if name in ("ucbvi", "concurrent-ucbvi", "ucb-advantage", "concurrent-ucb-advantage"):
        with pytest.raises(InputError, match="cannot go on without all its agents"):
            asyncio.run(build())
    else:
        asyncio.run(build())


# ------------------------------------------------------------------------------------------------ what cannot be true


class Liar(Node):
    """A node that changes its reports from some round on."""

    lie: Callable[[list[Any]], None]

    def answer(self, message: Down) -> Up | None:
        answer = super().answer(message)
        if isinstance(answer, Report) and answer.round >= 3:
            arrays: list[Any] = [array.copy() for array in answer.arrays]
            self.lie(arrays)
            return Report(answer.round, answer.exchange, tuple(arrays))
        return answer


def _set(place: int, index: Any, value: Any) -> Callable[[list[Any]], None]:
    def lie(arrays: list[Any]) -> None:
        arrays[place][index] = value

    return lie


def _swap(arrays: list[Any]) -> None:
    arrays[0], arrays[1] = arrays[1], arrays[0]


def _flatten(arrays: list[Any]) -> None:
    arrays[2] = arrays[2].reshape(-1)


def _floats(arrays: list[Any]) -> None:
    arrays[1] = arrays[1].astype(np.float64)


def _claim_values(arrays: list[Any]) -> None:
    arrays[1][..., 0] += arrays[0] == 0


def _move(arrays: list[Any]) -> None:
    s, a = np.argwhere(arrays[0][0] > 0)[0]
    arrays[0][0, s, a] -= 1
    arrays[0][0, s, 1 - a] += 1


LIES: dict[str, tuple[Callable[[list[Any]], None], str]] = {
    "a sum of values too large": (_set(1, (0, 2, 0), 2**60), "agent 0: X .* outside n times"),
    "a sum of squares too large": (_set(2, (0, 2, 0, 1), 2**60), "agent 0: Y .* outside n times"),
    "a sum of squares with too large a low word": (_set(2, (0, 2, 0, 0), 2**62), "agent 0: Y .* low word too large"),
    "rewards above one": (_set(3, (0, 2, 0), 2**60), "agent 0: Z .* outside n times"),
    "negative rewards": (_set(3, (0, 2, 0), -1), "agent 0: Z .* negative"),
    "values without visits": (_claim_values, "agent 0: X .* outside n times"),
    "a negative count": (_set(0, (0, 1, 1), -1), "agent 0: n .* negative"),
    "too many visits": (_set(0, (0, 1, 1), 10**9), "agent 0: n .* does not add up"),
    "visits that move": (_move, "agent 0: n .* (smaller than before|changed where the policy did not go)"),
    "types exchanged": (_swap, r"agent 0: n is int64 \(1, 3, 2, 1\)"),
    "another shape": (_flatten, "agent 0: Y is int64"),
    "another type": (_floats, "agent 0: X is float64"),
    "one array fewer": (lambda arrays: arrays.pop(), "agent 0: 3 arrays, expected 4"),
}


@pytest.mark.parametrize("kind", LIES)
def test_a_report_that_cannot_be_true_is_refused_by_agent_and_field(kind: str) -> None:
    lie, says = LIES[kind]
    nodes = make_nodes(WORLD, SPLIT)
    liar = Liar("node-0", lambda M: WORLD, 0, 1)
    liar.lie = lie
    dropped = plan(violation="drop")

    async def story() -> Outcome:
        service = Service(dropped, "127.0.0.1:0", None)
        address = f"127.0.0.1:{service.port}"
        lying = asyncio.ensure_future(take_part(liar, address, None))
        honest = asyncio.ensure_future(take_part(nodes[1], address, None))
        outcome = await service.run()
        await honest
        with pytest.raises(InputError, match="turned 'node-0' away"):
            await lying
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 60))
    (event,) = outcome.events
    assert (event["node"], event["round"], event["done"]) == ("node-0", 3, "drop")
    assert re.search(says, event["what"]), event["what"]
    assert outcome.ended
    assert not outcome.run.complete
    assert (outcome.run.records["agent_episodes"][2:] == 2 * outcome.run.records["length"][2:]).all()


def test_a_violation_stops_the_run_if_that_is_the_policy(tmp_path: Path) -> None:
    liar, steady = Liar("node-0", lambda M: WORLD, 0, 1, tmp_path / "node-0"), make_nodes(WORLD, SPLIT, tmp_path)[1]
    liar.lie = LIES["a negative count"][0]
    book = ServerCheckpoint(tmp_path / "checkpoint")
    with pytest.raises(FederationStoppedError, match="'node-0' broke the rules in round 3: agent 0: n"):
        federate(book.adopt(plan()), [liar, steady], server_checkpoint=book)
    again = ServerCheckpoint(tmp_path / "checkpoint")
    honest = federate(again.adopt(plan()), make_nodes(WORLD, SPLIT, tmp_path), server_checkpoint=again)
    assert_same(honest.run, simulated(), regret=False)


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
