"""Rounds that close with those who are there while the others catch up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from absences import Absences, Federated
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, gridworld, run, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.drivers.live import LiveDriver
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.sources import LiveSource
from network import InMemoryServer, Served, TLSByName, make_nodes, told_episodes
from recomputation import Recorder

NAMES = [f"node-{i}" for i in range(5)]
WORLD = synthetic(agents=5, eps_p=0.0, seed=2, states=4, actions=3, horizon=3)
T = 100
SEED = 3
AWAY = {"node-3": (4, 9), "node-4": (6, 12)}
"""Between these rounds they are gone."""


async def run_with_absences(folder: Path, tls_files: TLSByName, *, secure: bool) -> tuple[Coordinator, Outcome]:
    """Run five nodes with state folders; two are stopped in the middle and started again some rounds later."""
    plan = plan_for(FedKLUCBVI(), WORLD, T, seed=SEED, patience=30.0, quorum=3, wait=0.05, secure_sums=secure)
    served = Served(plan, folder / "server", tls_files)
    nodes = make_nodes(WORLD, [1] * 5, folder)
    tasks = dict(zip(NAMES, served.join(*nodes), strict=True))
    for number, name in sorted((number, name) for name, both in AWAY.items() for number in both):
        await served.reach(number)
        task = tasks.pop(name, None)
        if task is None:
            served.join(make_nodes(WORLD, [1] * 5, folder)[NAMES.index(name)])
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            served.joined.remove(task)
    return served.coordinator, await served.finish()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
async def test_rounds_that_close_without_absent_nodes_are_computed_again_from_their_sums(
    secure: bool, tmp_path: Path, tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch, FedKLUCBVI)
    coordinator, outcome = await run_with_absences(tmp_path, tls_files, secure=secure)
    records = outcome.run.records
    agents = records["agent_episodes"] // records["length"]
    assert set(agents.tolist()) >= {3, 5}, "some rounds without them, some with all"
    assert outcome.ended
    assert sorted(recorder.rounds) == list(range(1, 1 + len(records["start"])))
    assert any(len(one.used) == 5 for one in recorder.rounds.values())
    assert any(0 < len(one.used) < 5 for one in recorder.rounds.values())
    assert recorder.differences(coordinator) == []


@pytest.mark.parametrize("secure", [True, False])
async def test_a_live_node_that_is_late_is_reported_at_most_once(
    secure: bool, tmp_path: Path, tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the open the episodes of a round that it missed are in a later report, under secure sums in none."""
    recorder = Recorder(monkeypatch, FedKLUCBVI)
    play = LiveDriver._play
    played = Counter[int]()

    def play_and_count(driver: LiveDriver, *arguments: Any) -> None:
        played.update(driver._agents)
        play(driver, *arguments)

    monkeypatch.setattr(LiveDriver, "_play", play_and_count)
    names = NAMES[:4]
    setting = Setting(17, 4, 6, 4, 40, 0.0, SEED, eps_p_known=False, random_rewards=True)
    rules: dict[str, Any] = {"patience": 300.0, "quorum": 3, "wait": 0.3}
    plan = RunPlan(
        FedKLUCBVI(min_round_growth=0.1),
        setting,
        rules=FederationRules(collection="live", secure_sums=secure, **rules),
    )
    lake = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=6)

    class Late(InMemoryServer):
        """What a node says of its episodes takes a moment; of the last node, every third time, too long."""

        moment = 0.05
        too_long = 0.05
        said = 0

        @asynccontextmanager
        async def connect(self, *, compressed: bool = True) -> AsyncIterator[Any]:
            async with super().connect(compressed=compressed) as line:
                write = line.write

                async def late(data: bytes) -> None:
                    if b"Played" in data[:12]:
                        self.said += 1
                        await asyncio.sleep(self.moment if self.said % 3 else self.too_long)
                    await write(data)

                line.write = late  # type: ignore[method-assign]
                yield line

    served = Served(plan, tmp_path / "server", tls_files)
    nodes = [Node(name, lake, i, 1, tmp_path / name) for i, name in enumerate(names)]
    lines = [Late(served, tls_files(name)) for name in names]
    lines[3].too_long = 1.0
    tasks = served.begin(*(run_node(node, line) for node, line in zip(nodes, lines, strict=True)))
    outcome = await served.start()
    await asyncio.gather(*tasks[:3])
    tasks[3].cancel()  # it may have been away at the end
    await asyncio.gather(*tasks, return_exceptions=True)
    unreported = sum(told_episodes(node) for node in nodes)
    held = served.coordinator.engine.held
    table = served.coordinator.engine.server.table
    counts = table if held is None else table.copy().merge(held)
    visits = int(counts.visits[0].sum())
    reported = sum(member.reported_episodes for member in served.registry.everyone)
    assert [played[agent] for agent in range(3)] == [40] * 3
    assert visits == reported
    if secure:
        assert visits < played.total()
    else:
        assert visits + unreported == played.total(), "every episode is reported or still to be reported, none twice"
    assert any("closes without it" in event["done"] for event in outcome.events)
    assert any("takes part again" in event["done"] for event in outcome.events)
    assert recorder.differences(served.coordinator) == []
    late = [number for number, one in recorder.rounds.items() if one.used and "node-3" not in one.used]
    assert late
    later = [one.used for number, one in recorder.rounds.items() if number > late[0]]
    assert any("node-3" in used for used in later), "it takes part again"


async def test_a_sum_that_is_not_the_one_recorded_changes_what_is_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder(monkeypatch, FedKLUCBVI)
    served = Served(plan_for(FedKLUCBVI(), WORLD, 40, seed=SEED))
    served.join(*make_nodes(WORLD, [2, 3]))
    await served.finish()
    assert recorder.differences(served.coordinator) == []
    (first, *_) = [one.sums for one in recorder.rounds.values() if one.sums]
    first[0]["transitions"][0] += 1
    assert "server.table_visits" in recorder.differences(served.coordinator)


def test_a_quorum_is_for_reports_of_what_is_new() -> None:
    with pytest.raises(InputError, match="needs a report of every node"):
        plan_for(FedUCBVI(), WORLD, T, quorum=2)


# ---------------------------------------------------------------------- nodes that come and go, as in a benchmark


def test_without_absences_it_is_the_simulation_bit_for_bit() -> None:
    world = gridworld(agents=6)
    everyone = Federated(world, 60, Absences(list(range(6)), 0, 1), 1)
    everyone.run()
    expected = run(FedKLUCBVI(), world, 60, seed=1, progress=False)
    result = everyone.engine.result()
    assert np.array_equal(result.V, expected.V)
    assert np.array_equal(result.policy, expected.policy)
    assert np.array_equal(result.records["length"], expected.records["length"])
    assert everyone.regret_after(360) / 6 == pytest.approx(expected.regret)


def test_thirty_per_cent_away_stall_nobody_lose_nothing_and_cost_little() -> None:
    """Twenty nodes, six away at any time for six rounds each; regret is that after the same number of episodes."""
    nodes = 20
    episodes = 150
    world = gridworld(agents=nodes)
    schedule = Absences.of(nodes, 0.3, 6, 1)
    seen = [schedule.at(number) for number in range(40)]
    assert {len(away) for away in seen} == {6}
    assert set().union(*seen) == set(range(nodes))
    absent = Federated(world, 240, schedule, 1)
    absent.run()
    assert len(absent.reports) == int((absent.engine.records()["requests"] > 0).sum()), "every round has closed"
    assert set(absent.reports) == {13}, "14 were there, and one left before it reported"
    told = int(absent.engine.server.table.visits[0].sum())
    kept = sum(int(absent._report(i)[0].sum()) // world.horizon for i in range(nodes) if not absent.used[i])
    assert told + kept == int(absent.engine.records()["agent_episodes"].sum()), "every episode once"
    assert kept > 0
    lockstep = Federated(world, episodes, Absences(list(range(nodes)), 0, 1), 1)
    lockstep.run()
    assert absent.regret_after(nodes * episodes) <= 1.2 * lockstep.regret_after(nodes * episodes)
