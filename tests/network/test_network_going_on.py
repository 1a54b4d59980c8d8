"""Continuing a run over the network, in one process: more episodes, warm starts, and nodes that miss rounds.

Figures per agent are divided by the number of agents that took part in the round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call
from fed_ucbvi import (
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    InputError,
    Interrupted,
    Run,
    federated_regret,
    gridworld,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.engine import simulation as simulation_module
from fed_ucbvi.engine.checkpoint import load_counts
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network import coordinator as coordinator_module
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint, counts_in
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.round_record import RoundRecord, replay
from fed_ucbvi.results.run_data import learning_curve
from gymnasium_problems import TableEnv
from matrices import first_of
from network import Served, TLSByName, assert_same, federate, live_plan, make_nodes, part_of, tell
from runs import finished, without_cautions

SHORT = 40
LONG = 100
SEED = 4
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
    **rest: Any,
) -> Outcome:
    """Run from the checkpoint in a folder to the end, with nodes of so many agents."""
    plan = plan_for(algorithm, world, episodes, seed=SEED, **rest)
    return federate(plan, make_nodes(world, split, folder), tls, folder / "server")


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


async def test_real_environments_go_on_with_more_episodes_in_one_process(tmp_path: Path) -> None:
    """The first node stays connected while its server is stopped; the second one is started again."""
    live = LiveSource(lambda agent: TableEnv(), (-1, 3), 4)
    served = Served(live_plan(3, 600), tmp_path / "server")
    first, second = make_nodes(live, [2, 1], tmp_path)
    stopping = served.join(first, second)[1]
    await served.reach(5)
    await served.stop()
    stopping.cancel()
    await asyncio.wait([stopping])
    served.joined.remove(stopping)
    served.restart(live_plan(3, 620), tmp_path / "server")
    again = make_nodes(live, [2, 1], tmp_path)[1]
    served.join(again)
    outcome = await served.finish()
    assert first.state.table.visits[0].sum() == 2 * 620
    assert again.state.table.visits[0].sum() == 620
    assert outcome.run.complete


def test_a_run_cannot_continue_with_another_number_of_agents(tmp_path: Path) -> None:
    serve(tmp_path, ALGORITHM, part_of(WORLD, 2), SHORT, [2])
    with pytest.raises(InputError, match="holds another run"):
        serve(tmp_path, ALGORITHM, WORLD, LONG, [2, 2])


# --------------------------------------------------------------------------------------------------------- warm start


@pytest.mark.parametrize("variant", first_of(["secure, server's counts", *[*VARIANTS][:-1]]))
def test_a_warm_start_is_that_of_the_simulation(variant: str, tmp_path: Path, tls_files: TLSByName) -> None:
    algorithm, world = VARIANTS[variant.removeprefix("secure, ")]
    run(algorithm, world, 200, seed=1, checkpoint=tmp_path / "earlier")
    counts = load_counts(tmp_path / "earlier")
    secure = "secure" in variant
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


def test_another_set_of_nodes_is_a_new_run_that_starts_from_the_counts_of_the_first(tmp_path: Path) -> None:
    algorithm, world = VARIANTS["server's counts"]
    serve(tmp_path / "four", algorithm, world, SHORT, [1, 3])
    counts = counts_in(tmp_path / "four" / "server")
    three = part_of(world, 3)
    outcome = serve(tmp_path / "three", algorithm, three, SHORT, [1, 2], counts=counts)
    expected = run(algorithm, three, SHORT, seed=SEED, driver="episodes", warm_start=counts)
    assert_same(outcome.run, expected, regret=False)


def test_a_server_that_keeps_counts_has_those_of_all_synchronisations_for_a_later_run(tmp_path: Path) -> None:
    algorithm, world = VARIANTS["server's counts"]
    serve(tmp_path, algorithm, world, SHORT, [1, 3])
    simulation = finished(Simulation(algorithm, world, SHORT, SEED, "episodes"))
    assert counts_in(tmp_path / "server").equals(algorithm.counts_of(simulation.server, None))


async def with_a_late_node(plan: RunPlan, folder: Path, rounds: int) -> Outcome:
    """Two nodes with two agents each, of which the second comes when the first has played so many rounds."""
    served = Served(plan, folder / "server")
    first, late = make_nodes(WORLD, [2, 2], folder)
    served.join(first)
    await served.reach(served.coordinator.round + rounds)
    served.join(late)
    return await served.finish()


def test_what_a_node_had_not_reported_goes_with_its_next_report_whenever_that_is(tmp_path: Path) -> None:
    """The first run ends with a round that nobody reported; in the longer one a node comes late, and is believed."""
    begun = serve(tmp_path, FedKLUCBVI(), WORLD, SHORT, [2, 2])
    assert begun.run.records["requests"][-1] == 0, "the last round must have ended without a synchronisation"
    synchronised = int(counts_in(tmp_path / "server").visits[0].sum())

    plan = plan_for(FedKLUCBVI(), WORLD, 3000, seed=SEED, quorum=1, wait=0.2)
    outcome = tell(with_a_late_node(plan, tmp_path, 2))
    records = outcome.run.records
    both = records["agent_episodes"] // records["length"]
    late = records["start"] >= SHORT
    assert set(both[late].tolist()) == {2, 4}, "the node must have come back"
    asked = records["requests"] > 0
    unreported = int(records["length"][~asked & ~late].sum()) * 4
    played = int((records["agent_episodes"] * (asked & late)).sum())
    assert int(counts_in(tmp_path / "server").visits[0].sum()) == synchronised + unreported + played
    assert [event["what"] for event in outcome.events] == ["has not answered", "came back"]


def test_a_server_of_masked_counts_has_their_sum_for_a_later_run(tmp_path: Path, tls_files: TLSByName) -> None:
    algorithm, world = VARIANTS["server's counts"]
    serve(tmp_path, algorithm, world, SHORT, [1, 2, 1], tls_files, secure_sums=True)
    simulation = Simulation(algorithm, world, SHORT, SEED, "episodes")
    told = CountTable.empty(1, 1, 1)
    while not simulation.done:
        simulation.advance()
        if simulation.rows[-1].requests:
            told = algorithm.counts_of(simulation.server, simulation.agents)
    assert counts_in(tmp_path / "server").equals(told)


def test_a_server_of_sums_does_not_know_the_counts_of_its_nodes(tmp_path: Path) -> None:
    algorithm, world = VARIANTS["published"]
    serve(tmp_path / "steps", algorithm, world, SHORT, [1, 3])
    with pytest.raises(InputError, match="does not know the counts of its nodes"):
        counts_in(tmp_path / "steps" / "server")
    with pytest.raises(InputError, match="fed-ucbvi counts DIR --out FILE"):
        load_counts(tmp_path / "steps" / "server")


# ----------------------------------------------------------------------------- runs whose agents have missed rounds


async def with_an_absence(plan: RunPlan, problem: Any, folder: Path, on_round: Any = None) -> Run:
    """Two agents each on two nodes, the second of which is stopped after round 3 and started again after round 9."""
    served = Served(plan, folder / "server", on_round=on_round)
    gone = served.join(*make_nodes(problem, [2, 2], folder))[1]
    await served.reach(3)
    gone.cancel()
    await asyncio.wait([gone])
    served.joined.remove(gone)
    await served.reach(9)
    served.join(make_nodes(problem, [2, 2], folder)[1])
    return (await served.finish()).run


def absent_plan(world: Federation) -> RunPlan:
    return plan_for(FedKLUCBVI(), world, LONG, seed=SEED, quorum=1, wait=0.05)


def took_part(run: Run) -> list[list[int]]:
    """The agents of each round."""
    return [[0, 1] if agents == 2 else [0, 1, 2, 3] for agents in run.records["agents"].tolist()]


def replayed(run: Run, episodes: int) -> list[RoundRecord]:
    """What ``on_round`` was called with, from the records."""
    return [
        *replay(
            run.records,
            run.recommendations,
            episodes=episodes,
            rules=run.about.rules,
            units=Units(),
            horizon=run.about.horizon,
        )
    ]


def test_rounds_that_an_agent_has_missed_are_shown_everywhere(tmp_path: Path) -> None:
    told: list[RoundRecord] = []
    world = gridworld(agents=4)
    run = tell(with_an_absence(absent_plan(world), world, tmp_path, told.append))
    assert set(run.records["agents"].tolist()) == {2, 4}
    assert (run.episodes_played, run.complete) == (LONG, False)
    run.save(tmp_path / "run")
    shown = call("show", tmp_path / "run", "--out", tmp_path / "run.png")
    assert shown.exit_code == 0, shown.output
    assert "2 to 4 agents in a round" in shown.stdout
    again = replayed(run, LONG)
    for name in ("agents", "episodes", "planned_episodes", "reward", "regret"):
        expected = [getattr(one, name) for one in told]
        assert [getattr(one, name) for one in again] == pytest.approx(expected, rel=1e-12, nan_ok=True), name
    assert (again[-1].episodes, again[-1].planned_episodes) == (LONG, LONG)
    assert again[-1].regret == pytest.approx(run.regret, rel=1e-12)


def test_every_round_is_averaged_over_its_own_agents(tmp_path: Path) -> None:
    """By hand, from the policies in the server's history, where all episodes begin in one state."""
    world = gridworld(agents=4, eps_p=0.2)
    run = tell(with_an_absence(absent_plan(world), world, tmp_path))
    agents = took_part(run)
    assert len(set(map(len, agents))) == 2
    best = world.common.solve().V[0]
    kept = ServerCheckpoint(tmp_path / "server", absent_plan(world))
    for number, past in enumerate(kept.past(1, len(agents)) or ()):
        policy = np.array(past.arrays["0"])
        common = world.common.evaluate(policy)[0]
        lost = np.mean([world.initial[i] @ (best - common) for i in agents[number]])
        worth = np.mean([world.agent(i).initial @ world.agent(i).evaluate(policy)[0] for i in agents[number]])
        length = run.records["length"][number]
        assert run.records["regret"][number] == pytest.approx(length * lost, rel=1e-9, abs=1e-12)
        assert run.records["value"][number] == pytest.approx(worth, rel=1e-9)
    kept.close()
    assert number == len(agents) - 1
    assert np.isnan(federated_regret(run, world)).all(), "the best policy for all is none for those that took part"


def test_rewards_add_up_to_what_the_agents_were_paid(tmp_path: Path) -> None:
    world = synthetic(agents=4, seed=2, states=3, actions=2, horizon=3)
    nodes = make_nodes(world, [2, 2], tmp_path)
    run = federate(plan_for(ALGORITHM, world, LONG, seed=SEED), nodes).run
    visits = sum(node.state.table.visits for node in nodes)
    paid = float((visits * world.rewards[0]).sum())
    assert paid > 0
    assert (run.records["reward"] * run.records["agents"]).sum() == pytest.approx(paid, rel=1e-9)
    curve = learning_curve(run, bins=1)
    assert curve.mean[0] == pytest.approx(paid / run.records["agent_episodes"].sum(), rel=1e-9)
    assert run.average_reward == pytest.approx(run.records["reward"].sum() / LONG)


def test_agents_of_a_live_run_that_miss_rounds_still_play_all_their_episodes(tmp_path: Path) -> None:
    """Every agent plays T episodes, so that there may be more than T per agent, as rounds count them."""
    live = LiveSource(lambda agent: TableEnv(), (-1, 3), 4)
    told = list[RoundRecord]()
    setting = Setting(4, 2, 4, 4, LONG, 0.0, SEED, random_rewards=True)
    algorithm = FedKLUCBVI(min_round_growth=0.0)
    plan = RunPlan(algorithm, setting, rules=FederationRules(collection="live", quorum=1, wait=0.05))
    run = tell(with_an_absence(plan, live, tmp_path, told.append))
    assert set(run.records["agents"].tolist()) == {2, 4}
    assert run.complete
    assert run.records["agent_episodes"].sum() == 4 * LONG
    last = told[-1]
    assert last.episodes == last.planned_episodes == run.episodes_played >= LONG
    again = replayed(run, LONG)
    assert [one.episodes for one in again] == [one.episodes for one in told]
    assert [one.reward for one in again] == pytest.approx([one.reward for one in told], nan_ok=True)
