"""Going on over the network, in one process: more episodes, nodes that come later, nodes that leave, a warm start.

What is told of a run is per agent: it divides by the agents that took part in the round.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call
from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, InputError, Interrupted, gridworld, resume, run, synthetic
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.analysis.comparison import compare_runs
from fed_ucbvi.dashboard.metrics import Metrics
from fed_ucbvi.dashboard.state import LiveState, Subject
from fed_ucbvi.engine import simulation as simulation_module
from fed_ucbvi.engine.checkpoint import load_counts
from fed_ucbvi.engine.extension import extended_setting
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network import coordinator as coordinator_module
from fed_ucbvi.network.client import leave_run, run_node
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import LeftError
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint, counts_in
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.round_record import RoundRecord, replay
from fed_ucbvi.results.run_data import learning_curve
from gymnasium_problems import TableEnv
from matrices import first_of
from network import Served, TLSByName, assert_same, federate, live_plan, make_nodes, part_of, played_by_hand, tell
from runs import finished, without_cautions

SHORT, LONG, LONGER, SEED = 40, 100, 150, 4
WORLD = synthetic(agents=4, eps_p=0.2, eps_r=0.2, seed=2, states=3, actions=2, horizon=3)
ALGORITHM = FedUCBVI(nu=30)
VARIANTS: dict[str, tuple[Any, Federation]] = {
    "published": (ALGORITHM, WORLD),
    "server's counts": (FedKLUCBVI(), WORLD),
    "random rewards": (FedKLUCBVI(), WORLD.with_bernoulli_rewards()),
    "model-free": (make_algorithm("fedq-bernstein", {}), WORLD),
}

pytestmark = without_cautions


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_module, "SECONDS_BETWEEN_REPORTS", 0.0)
    monkeypatch.setattr(coordinator_module, "REUNION_SECONDS", 0.5)


def serve(
    folder: Path,
    algorithm: Any,
    world: Federation,
    episodes: int,
    split: Sequence[int],
    tls: TLSByName | None = None,
    on_round: Any = None,
    **rest: Any,
) -> Outcome:
    """From the checkpoint in a folder to the end, with nodes of so many agents, but for those that have left."""
    plan = plan_for(algorithm, world, episodes, seed=SEED, **rest)
    nodes = [node for node in make_nodes(world, split, folder) if node.name not in plan.without]
    return federate(plan, nodes, tls, folder / "server", on_round=on_round)


def assert_played_by_hand(
    outcome: Outcome, algorithm: Any, world: Federation, *phases: tuple[int, Sequence[int], int]
) -> None:
    """Of each phase the agents in the run, who plays, and until which episode."""
    (agents, _, episodes), *later = phases
    settings = [plan_for(algorithm, part_of(world, agents), episodes, seed=SEED).setting]
    for agents, _, episodes in later:
        settings.append(extended_setting(algorithm, settings[-1], episodes=episodes, agents=agents))
    by_hand = [(setting, playing, end) for setting, (_, playing, end) in zip(settings, phases, strict=True)]
    rounds, server = played_by_hand(algorithm, world, SEED, *by_hand)
    assert outcome.run.records["length"].tolist() == [end.length for end in rounds]
    assert np.array_equal(outcome.run.V, server.V)
    assert np.array_equal(outcome.run.exploring_policy, server.policy)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_finished_run_goes_on_with_more_episodes_as_the_simulation_does(variant: str, tmp_path: Path) -> None:
    algorithm, world = VARIANTS[variant]
    run(algorithm, world, SHORT, seed=SEED, driver="episodes", checkpoint=tmp_path / "simulated")
    expected = resume(tmp_path / "simulated", episodes=LONG)
    for episodes in (SHORT, LONG):
        outcome = serve(tmp_path, algorithm, world, episodes, [1, 3])
    assert outcome.events == []
    assert_same(outcome.run, expected, regret=False)
    with pytest.raises(InputError, match=f"with {LONG} episodes; it cannot continue with {SHORT}"):
        ServerCheckpoint(tmp_path / "server", plan_for(algorithm, world, SHORT, seed=SEED))


@pytest.mark.parametrize("algorithm", [ALGORITHM, FedKLUCBVI()], ids=["moments", "counts"])
async def test_nodes_that_stay_connected_come_along_when_their_server_comes_back_with_more_episodes(
    algorithm: FedUCBVI | FedKLUCBVI, tmp_path: Path
) -> None:
    """One node has no state folder. The server is stopped in the middle; where it was is read from its checkpoint."""
    served = Served(plan_for(algorithm, WORLD, SHORT, seed=SEED), tmp_path / "server")
    first, second = make_nodes(WORLD, [2, 2], tmp_path)
    second.folder = None
    served.join(first, second)
    await served.reach(8)
    await served.stop()
    served.restart(plan_for(algorithm, WORLD, LONG, seed=SEED), tmp_path / "server")
    stopped = served.coordinator.round
    outcome = await served.finish()
    assert 0 < stopped < len(outcome.run.records["start"])

    def interrupt(record: Any) -> None:
        if record.round == stopped:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"checkpoint": tmp_path / "simulated", "checkpoint_every": 1}
    with pytest.raises(Interrupted):
        run(algorithm, WORLD, SHORT, seed=SEED, driver="episodes", on_round=interrupt, **options)
    assert_same(outcome.run, resume(tmp_path / "simulated", episodes=LONG), regret=False)


# ---------------------------------------------------------------------------------------------------- who takes part


@pytest.mark.parametrize("variant", ["published", "server's counts", "secure sums"])
@pytest.mark.parametrize("change", ["a node joins", "a node leaves"])
def test_a_run_goes_on_with_those_who_take_part_as_played_by_hand(
    change: str, variant: str, tmp_path: Path, tls_files: TLSByName
) -> None:
    """With the new M in bonus and budgets. The counts of a node that left stay if the server has them."""
    joins, secure = change == "a node joins", variant == "secure sums"
    algorithm, world = VARIANTS["server's counts" if secure else variant]
    rest: dict[str, Any] = {"tls": tls_files, "secure_sums": True} if secure else {}
    short, long = (20, 40) if secure else (SHORT, LONG)
    split = [1] * 4 if secure else [2, 2] if joins else [3, 1]
    others, last = split[:-1], f"node-{len(split) - 1}"
    before, after = (range(sum(others)), range(4)) if joins else (range(4), range(sum(others)))
    serve(tmp_path, algorithm, part_of(world, len(before)), short, others if joins else split, **rest)
    outcome = serve(tmp_path, algorithm, world, long, split, without=() if joins else (last,), **rest)
    assert_played_by_hand(outcome, algorithm, world, (len(before), before, short), (4, after, long))
    kept = "kept" if algorithm.server_counts else "dropped"
    joined = f"joined with {split[-1]} new agents", "takes part from this round on"
    told = joined if joins else ("left for good", f"its counts are {kept}")
    assert [(event["node"], event["what"], event["done"]) for event in outcome.events] == [(last, *told)]
    records = outcome.run.records
    agents = np.where(records["start"] < short, len(before), len(after))
    assert (records["agent_episodes"] == records["length"] * agents).all()
    assert outcome.agent_episodes == (len(before) * short + len(after) * (long - short),) * 2
    assert outcome.run.complete
    if not joins:
        leaving, says = ("node-2", "too few nodes would remain") if secure else ("other", "does not take part")
        with pytest.raises(InputError, match=f"'{leaving}' .*{says}"):
            serve(tmp_path, algorithm, world, 200, split, without=(leaving,), **rest)


async def test_real_environments_go_on_in_one_process_and_new_ones_join_them(tmp_path: Path) -> None:
    """The first node stays connected while its server is stopped, and comes back with more episodes and agents.

    Where nodes stop apart every agent plays all T episodes, whenever it came.
    """
    live = LiveSource(lambda agent: TableEnv(), (-1, 3), 4)

    served = Served(live_plan(2, 600), tmp_path / "server")
    first, second = make_nodes(live, [2, 1], tmp_path)
    served.join(first)
    await served.reach(5)
    await served.stop()
    served.restart(live_plan(3, 620), tmp_path / "server")
    served.join(second)
    outcome = await served.finish()
    assert first.state.experience.visits[:, 0].sum() == 2 * 620
    assert second.state.experience.visits[:, 0].sum() == 620
    assert outcome.agent_episodes == (3 * 620,) * 2
    assert outcome.run.complete
    assert [event["node"] for event in outcome.events] == ["node-1"]


async def with_a_late_node(plan: RunPlan, folder: Path, rounds: int) -> Outcome:
    """Two nodes with two agents each, of which the second comes when the first has played so many rounds."""
    served = Served(plan, folder / "server")
    first, late = make_nodes(WORLD, [2, 2], folder)
    served.join(first)
    await served.reach(served.coordinator.round + rounds)
    served.join(late)
    return await served.finish()


def test_the_others_go_on_while_a_new_node_has_not_come(tmp_path: Path) -> None:
    serve(tmp_path, ALGORITHM, part_of(WORLD, 2), SHORT, [2])
    outcome = tell(with_a_late_node(plan_for(ALGORITHM, WORLD, 4000, seed=SEED), tmp_path, 3))
    records = outcome.run.records
    agents = records["agent_episodes"] // records["length"]
    assert sorted(set(agents.tolist())) == [2, 4]
    assert (np.diff(agents) >= 0).all()
    assert (agents[records["start"] >= SHORT] == 2).sum() >= 3
    assert outcome.run.complete


async def test_a_node_leaves_in_the_middle_and_cannot_come_back(tmp_path: Path) -> None:
    """It is away when it says so, and the server waits for it in the middle of a round."""
    plan = plan_for(ALGORITHM, WORLD, 2000, seed=SEED)
    async with Served(plan, tmp_path / "server") as served:
        address = served.remote()
        with pytest.raises(InputError, match="does not take part in this run"):
            await leave_run("node-1", address)
        away = served.join(*make_nodes(WORLD, [2, 2], tmp_path))[1]
        await served.reach(5)
        away.cancel()
        await asyncio.wait([away])
        served.joined.remove(away)
        policy = await leave_run("node-1", address)
        assert await leave_run("node-1", address) is not None
        assert policy is not None
        with pytest.raises(InputError, match="'node-1' has left this run for good"):
            await run_node(make_nodes(WORLD, [2, 2], tmp_path)[1], address)
        with pytest.raises(InputError, match="too few nodes would remain"):
            await leave_run("node-0", address)
        outcome = await served.finish()
    assert [(event["node"], event["what"]) for event in outcome.events] == [("node-1", "left for good")]
    assert policy.table.shape == (3, 3)
    assert not policy.final
    assert outcome.run.complete
    assert outcome.agent_episodes[0] == outcome.agent_episodes[1] < 4 * 2000


async def test_a_node_that_leaves_is_shown_as_left_and_the_others_as_finished_at_the_end() -> None:
    """It takes part when it leaves: its process ends as it was told to, and nobody waits for it as for one away."""
    plan = plan_for(ALGORITHM, WORLD, 300, seed=SEED)

    def look(coordinator: Coordinator, page: LiveState) -> tuple[dict[str, str], dict[str, float]]:
        states = {node["name"]: node["state"] for node in page.snapshot()["nodes"]}
        text = Metrics(lambda: coordinator.status()).render().decode()
        lines = [re.fullmatch(r'fed_ucbvi_nodes{state="(\w+)"} (\S+)', line) for line in text.splitlines()]
        return states, {found[1]: float(found[2]) for found in lines if found is not None}

    served, page = Served(plan), LiveState(Subject.of_plan(plan))
    coordinator = served.coordinator
    async with page.following(coordinator):
        leaving = served.join(*make_nodes(WORLD, [2, 1, 1]))[1]
        await served.reach(5)
        await leave_run("node-1", served.remote())
        with pytest.raises(LeftError, match="'node-1' has left this run for good"):
            await leaving
        served.joined.remove(leaving)
        page.take_status(coordinator.status())
        during = look(coordinator, page)
        await served.finish()
    after = look(coordinator, page)
    assert during[0] == {"node-0": "present", "node-1": "left", "node-2": "present"}
    assert during[1] == {"present": 2, "finished": 0, "away": 0, "excluded": 0, "left": 1}
    assert after[0] == {"node-0": "finished", "node-1": "left", "node-2": "finished"}
    assert after[1] == {"present": 0, "finished": 2, "away": 0, "excluded": 0, "left": 1}


# --------------------------------------------------------------------------------------------------------- warm start


@pytest.mark.parametrize("variant", first_of(["secure, published", "secure, server's counts", *[*VARIANTS][:-1]]))
def test_a_warm_start_is_that_of_the_simulation(variant: str, tmp_path: Path, tls_files: TLSByName) -> None:
    algorithm, world = VARIANTS[variant.removeprefix("secure, ")]
    run(algorithm, world, 200, seed=1, checkpoint=tmp_path / "earlier")
    counts, secure = load_counts(tmp_path / "earlier"), "secure" in variant
    rest: dict[str, Any] = {"secure_sums": True, "tls": tls_files} if secure else {}
    outcome = serve(tmp_path, algorithm, world, SHORT, [1, 2, 1], counts=counts, **rest)
    simulated: dict[str, Any] = {"driver": "episodes", "warm_start": counts, "checkpoint": tmp_path / "simulated"}
    expected = run(algorithm, world, SHORT, seed=SEED, **simulated)
    assert_same(outcome.run, expected, regret=False, secure=secure)
    outcome = serve(tmp_path, algorithm, world, LONG, [1, 2, 1], **rest)
    expected = resume(tmp_path / "simulated", episodes=LONG)
    if secure:  # a reward is the mean over all that was not confirmed: here also over the last round
        expected.records["reward"][...] = outcome.run.records["reward"]
    assert_same(outcome.run, expected, regret=False, secure=secure)


def test_a_server_that_keeps_counts_has_those_of_all_synchronisations_for_a_later_run(tmp_path: Path) -> None:
    algorithm, world = VARIANTS["server's counts"]
    serve(tmp_path, algorithm, world, SHORT, [1, 3])
    simulation = finished(Simulation(algorithm, world, SHORT, SEED, "episodes"))
    assert counts_in(tmp_path / "server").equals(algorithm.counts_of(simulation.server, None))


def test_what_a_node_had_not_reported_goes_with_its_next_report_whenever_that_is(tmp_path: Path) -> None:
    """The first run ends with a round that nobody reported; in the longer one a node comes late, and is believed."""
    begun = serve(tmp_path, FedKLUCBVI(), WORLD, SHORT, [2, 2])
    assert begun.run.records["requests"][-1] == 0, "the last round must have ended without a synchronisation"
    synchronised = int(counts_in(tmp_path / "server").visits[0].sum())

    plan = plan_for(FedKLUCBVI(), WORLD, 3000, seed=SEED, patience=0.2, on_away="last")
    outcome = tell(with_a_late_node(plan, tmp_path, 2))
    records = outcome.run.records
    both = records["agent_episodes"] // records["length"]
    late = records["start"] >= SHORT
    assert set(both[late].tolist()) == {2, 4}, "the node must have come back"
    asked = records["requests"] > 0
    unreported = int(records["length"][~asked & ~late].sum()) * 4
    played = int((records["agent_episodes"] * (asked & late)).sum())
    assert int(counts_in(tmp_path / "server").visits[0].sum()) == synchronised + unreported + played
    assert [event["what"] for event in outcome.events] == ["away for 0.2 s", "came back"]


def test_a_server_of_masked_counts_has_their_sum_for_a_later_run(tmp_path: Path, tls_files: TLSByName) -> None:
    algorithm, world = VARIANTS["published"]
    serve(tmp_path, algorithm, world, SHORT, [1, 2, 1], tls_files, secure_sums=True)
    simulation, told = Simulation(algorithm, world, SHORT, SEED, "episodes"), CountTable.empty(1, 1, 1)
    while not simulation.done:
        simulation.advance()
        if simulation.rows[-1].requests:
            told = algorithm.counts_of(simulation.server, simulation.agents)
    assert counts_in(tmp_path / "server").equals(told)
    serve(tmp_path / "steps", algorithm, world, SHORT, [1, 3])
    with pytest.raises(InputError, match="does not know what its nodes have counted"):
        counts_in(tmp_path / "steps" / "server")
    with pytest.raises(InputError, match="fed-ucbvi counts DIR --out FILE"):
        load_counts(tmp_path / "steps" / "server")


def test_a_waiting_secure_sum_outlasts_an_extension_to_more_transitions(tmp_path: Path, tls_files: TLSByName) -> None:
    """Reports list the transitions that can be; what the server holds of them is not bound to that list."""

    def world(kernel: Any, agents: int) -> Federation:
        about = {"name": "lane", "agents": agents}
        return Federation.mixture(
            kernel, [kernel] * agents, 0.0, rewards=np.eye(3)[:, :2], initial=0, horizon=3, description=about
        )

    lane = np.repeat((np.eye(3, k=1) + np.diag([0, 0, 1]))[:, None], 2, axis=1)
    narrow, wide = world(lane, 3), world(np.ones((3, 2, 3)) / 3, 4)
    about: dict[str, Any] = {"seed": SEED, "secure_sums": True}
    first = plan_for(FedKLUCBVI(), narrow, 5, **about)
    federate(first, make_nodes(narrow, [1, 1, 1]), tls_files, tmp_path / "server")
    used = counts_in(tmp_path / "server")
    kept = ServerCheckpoint(tmp_path / "server", plan_for(FedKLUCBVI(), wide, LONG, **about))
    plan = kept.plan
    held = coordinator_module.Coordinator(plan, kept).engine.held
    kept.close()
    assert plan.support.numbers > first.support.numbers
    assert held is not None
    assert held.visits.sum() > 0
    assert (held.visits + used.visits).sum() == 3 * 5 * 3
    both = held.visits + 3
    more = plan.read_counts(
        (np.ones((1, plan.support.numbers), dtype=np.int64), np.zeros((1, 3, 3, 2, 1), dtype=np.int64))
    )
    assert np.array_equal(held.merge(more).visits, both)


# ---------------------------------------------------------------------------------- runs that agents joined and left


def joined_then_left(world: Federation, folder: Path, on_round: Any = None) -> list[Any]:
    """Two agents; two more join; the first node leaves."""
    few = serve(folder, ALGORITHM, part_of(world, 2), SHORT, [2], on_round=on_round)
    more = serve(folder, ALGORITHM, world, LONG, [2, 2], on_round=on_round)
    other = serve(folder, ALGORITHM, world, LONGER, [2, 2], on_round=on_round, without=("node-0",))
    return [few.run, more.run, other.run]


def took_part(run: Any) -> list[list[int]]:
    """The agents of each round."""
    return [[0, 1] if at < SHORT else [0, 1, 2, 3] if at < LONG else [2, 3] for at in run.records["start"].tolist()]


def replayed(run: Any, episodes: int) -> list[RoundRecord]:
    """What ``on_round`` was called with, from the records."""
    about, rows = run.about, (run.records, run.recommendations)
    units = Units.of(about.environment)
    return [*replay(*rows, episodes=episodes, rules=about.rules, units=units, horizon=about.horizon)]


def test_what_was_known_stays_true_when_agents_join_and_leave_and_is_shown_everywhere(tmp_path: Path) -> None:
    told: list[RoundRecord] = []
    runs = joined_then_left(gridworld(agents=4), tmp_path, told.append)
    assert [(run.episodes_played, run.complete) for run in runs] == [(SHORT, True), (LONG, True), (LONGER, True)]
    for before, after in itertools.pairwise(runs):
        points = np.arange(before.episodes_played + 1)
        assert np.array_equal(before.regret_at(points), after.regret_at(points))
        assert np.array_equal(before.rounds_at(points), after.rounds_at(points))
    for one in runs:
        assert one.federated_regret.lower == pytest.approx(one.regret, rel=1e-12)
        assert one.federated_regret.upper == pytest.approx(one.regret, rel=1e-12)
        assert one.round_ends.tolist() == (one.records["start"] + one.records["length"]).tolist()
    run = runs[-1]
    assert [len(agents) for agents in took_part(run)] == run.records["agents"].tolist()
    run.save(tmp_path / "run")
    shown = call("show", tmp_path / "run", "--out", tmp_path / "run.png")
    assert shown.exit_code == 0, shown.output
    assert "2 to 4 agents in a round" in shown.stdout
    assert (tmp_path / "run.png").stat().st_size > 0
    table = compare_runs([run], metric="episodes_played").frame
    assert table["mean"].to_list() == [LONGER]
    again = replayed(run, LONGER)
    assert [one.agents for one in again] == run.records["agents"].tolist()
    for name in ("episodes", "agents", "reward", "regret"):
        expected = [getattr(one, name) for one in told]
        assert [getattr(one, name) for one in again] == pytest.approx(expected, rel=1e-12, nan_ok=True), name
    assert (again[-1].episodes, again[-1].planned_episodes) == (LONGER, LONGER)
    assert again[-1].regret == pytest.approx(run.regret, rel=1e-12)


def test_every_round_is_averaged_over_its_own_agents(tmp_path: Path) -> None:
    """By hand, from the policies in the server's history."""
    runs = joined_then_left(WORLD, tmp_path)
    records, agents = runs[-1].records, took_part(runs[-1])
    best = WORLD.common.solve().V[0]
    kept = ServerCheckpoint(tmp_path / "server", plan_for(ALGORITHM, WORLD, LONGER, seed=SEED))
    for number, past in enumerate(kept.past(1, len(agents)) or ()):
        policy, own = np.array(past.arrays["0"]), agents[number]
        common = WORLD.common.evaluate(policy)[0]
        lost = np.mean([WORLD.initial[i] @ (best - common) for i in own])
        worth = np.mean([WORLD.agent(i).initial @ WORLD.agent(i).evaluate(policy)[0] for i in own])
        assert records["regret"][number] == pytest.approx(records["length"][number] * lost, rel=1e-9, abs=1e-12)
        assert records["value"][number] == pytest.approx(worth, rel=1e-9)
    assert number == len(agents) - 1
    assert np.isnan(runs[-1].federated_regret).all(), "the best policy for all is none for those that took part"
    assert not np.isnan(runs[0].federated_regret).any()


def test_rewards_add_up_to_what_the_agents_were_paid(tmp_path: Path) -> None:
    """While nobody has left, the nodes' counts are of all episodes."""
    world = synthetic(agents=4, seed=2, states=3, actions=2, horizon=3)
    serve(tmp_path, ALGORITHM, part_of(world, 2), SHORT, [2])
    nodes = make_nodes(world, [2, 2], tmp_path)
    run = federate(plan_for(ALGORITHM, world, LONG, seed=SEED), nodes, folder=tmp_path / "server").run
    visits = sum(node.state.experience.visits.sum(axis=0) for node in nodes)
    paid = float((visits * world.rewards[0]).sum())
    assert paid > 0
    assert (run.records["reward"] * run.records["agents"]).sum() == pytest.approx(paid, rel=1e-9)
    curve = learning_curve(run, bins=1)
    assert curve.mean[0] == pytest.approx(paid / run.records["agent_episodes"].sum(), rel=1e-9)
    assert run.average_reward == pytest.approx(run.records["reward"].sum() / LONG)


def test_agents_that_join_a_live_run_do_not_change_what_came_before(tmp_path: Path) -> None:
    """Every agent plays T episodes of its own, so that there are more than T per agent."""
    live, told = LiveSource(lambda agent: TableEnv(), (-1, 3), 4), list[RoundRecord]()
    about: dict[str, Any] = {"folder": tmp_path / "server", "on_round": told.append}
    before = federate(live_plan(2, SHORT), make_nodes(live, [2], tmp_path), **about).run
    after = federate(live_plan(3, LONG), make_nodes(live, [2, 1], tmp_path), **about).run
    rounds = len(before.records["start"])
    for name, column in before.records.items():
        if name not in ("messages_down", "bytes_down"):  # the last round told the policy
            assert np.array_equal(after.records[name][:rounds], column, equal_nan=True), name
    assert (after.records["agents"] == np.where(np.arange(len(after.records["start"])) < rounds, 2, 3)).all()
    assert after.complete
    assert after.episodes_played == SHORT + (2 * (LONG - SHORT) + LONG) // 3
    assert np.diff(after.round_ends).min() >= 0
    paid, episodes = after.records["reward"] * after.records["agents"], after.records["agent_episodes"]
    mean = Units.of(after.about.environment).original_return(paid.sum() / episodes.sum(), after.about.horizon)
    assert learning_curve(after, bins=1).mean[0] == pytest.approx(mean)
    assert (paid[episodes > 0] / episodes[episodes > 0] <= 4).all(), "an episode has four steps, each paid at most 1"
    assert after.plot().panels
    last = told[-1]
    assert (last.episodes, last.planned_episodes) == (after.episodes_played,) * 2
    again = replayed(after, LONG)
    assert [one.episodes for one in again] == [one.episodes for one in told]
    assert [one.reward for one in again] == pytest.approx([one.reward for one in told], nan_ok=True)
