"""Runs that agents joined or left: what is per agent divides by the agents that took part in the round."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from commands import call
from fed_ucbvi import Federation, FedUCBVI, RoundRecord, Run, compare_runs, gridworld, synthetic
from fed_ucbvi.network import coordinator as coordinator_module
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.round_record import replay
from fed_ucbvi.results.run_data import learning_curve
from gymnasium_problems import TableEnv
from network import federate, live_plan, make_nodes, part_of
from runs import without_cautions

SHORT, LONG, LONGER, SEED = 40, 60, 90, 4
ALGORITHM = FedUCBVI(nu=30)
ALIKE = gridworld(agents=4)
UNLIKE = synthetic(agents=4, eps_p=0.2, eps_r=0.2, seed=2, states=3, actions=2, horizon=3)
PAYING = synthetic(agents=4, seed=2, states=3, actions=2, horizon=3)

pytestmark = without_cautions


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "REUNION_SECONDS", 0.5)


class Story:
    """A run that is served again and again from one checkpoint; ``told`` is what its rounds said of themselves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[RoundRecord] = []
        self.nodes: list[Node] = []

    def serve(self, plan: RunPlan, nodes: list[Node]) -> Outcome:
        self.nodes = nodes
        return federate(plan, nodes, folder=self.folder / "server", on_round=self.told.append)

    def policies(self, rounds: int) -> list[np.ndarray]:
        """What was played in every round, from the server's history."""
        kept = ServerCheckpoint(self.folder / "server", plan_for(ALGORITHM, UNLIKE, LONGER, seed=SEED))
        policies = [np.array(past.arrays["0"]) for past in kept.past(1, rounds) or ()]
        kept.close()
        return policies


def joined_then_left(world: Federation, folder: Path) -> tuple[Story, list[Run]]:
    """Two agents; two more join; the first node leaves."""
    story = Story(folder)
    few = plan_for(ALGORITHM, part_of(world, 2), SHORT, seed=SEED)
    runs = [story.serve(few, make_nodes(world, [2], folder)).run]
    runs.append(story.serve(plan_for(ALGORITHM, world, LONG, seed=SEED), make_nodes(world, [2, 2], folder)).run)
    without = plan_for(ALGORITHM, world, LONGER, seed=SEED, without=("node-0",))
    runs.append(story.serve(without, make_nodes(world, [2, 2], folder)[1:]).run)
    return story, runs


def took_part(run: Run) -> list[list[int]]:
    """The agents of each round."""
    return [[0, 1] if at < SHORT else [0, 1, 2, 3] if at < LONG else [2, 3] for at in run.records["start"].tolist()]


def test_what_was_known_stays_true_when_agents_join_and_leave(tmp_path: Path) -> None:
    _, runs = joined_then_left(ALIKE, tmp_path)
    assert [(run.episodes_played, run.complete) for run in runs] == [(SHORT, True), (LONG, True), (LONGER, True)]
    for before, after in itertools.pairwise(runs):
        points = np.arange(before.episodes_played + 1)
        assert np.array_equal(before.regret_at(points), after.regret_at(points))
        assert np.array_equal(before.rounds_at(points), after.rounds_at(points))
    for run in runs:
        assert run.federated_regret.lower == pytest.approx(run.regret, rel=1e-12)
        assert run.federated_regret.upper == pytest.approx(run.regret, rel=1e-12)
        assert run.round_ends.tolist() == (run.records["start"] + run.records["length"]).tolist()
    assert [len(agents) for agents in took_part(runs[-1])] == runs[-1].records["agents"].tolist()


def test_every_round_is_averaged_over_its_own_agents(tmp_path: Path) -> None:
    """By hand, from the policies in the server's history."""
    story, runs = joined_then_left(UNLIKE, tmp_path)
    run = runs[-1]
    records, agents = run.records, took_part(run)
    best = UNLIKE.common.solve().V[0]
    for number, policy in enumerate(story.policies(len(agents))):
        common, own = UNLIKE.common.evaluate(policy)[0], agents[number]
        lost = np.mean([UNLIKE.initial[i] @ (best - common) for i in own])
        worth = np.mean([UNLIKE.agent(i).initial @ UNLIKE.agent(i).evaluate(policy)[0] for i in own])
        assert records["regret"][number] == pytest.approx(records["length"][number] * lost, rel=1e-9, abs=1e-12)
        assert records["value"][number] == pytest.approx(worth, rel=1e-9)
    assert np.isnan(run.federated_regret).all(), "the best policy for all is none for those that took part"
    assert not np.isnan(runs[0].federated_regret).any()


def test_rewards_add_up_to_what_the_agents_were_paid(tmp_path: Path) -> None:
    """While nobody has left, the nodes' counts are of all episodes."""
    story = Story(tmp_path)
    few = plan_for(ALGORITHM, part_of(PAYING, 2), SHORT, seed=SEED)
    story.serve(few, make_nodes(PAYING, [2], tmp_path))
    run = story.serve(plan_for(ALGORITHM, PAYING, LONG, seed=SEED), make_nodes(PAYING, [2, 2], tmp_path)).run
    visits = sum(node.state.experience.visits.sum(axis=0) for node in story.nodes)
    paid = float((visits * PAYING.rewards[0]).sum())
    assert paid > 0
    assert (run.records["reward"] * run.records["agents"]).sum() == pytest.approx(paid, rel=1e-9)
    curve = learning_curve(run, bins=1)
    assert curve.mean[0] == pytest.approx(paid / run.records["agent_episodes"].sum(), rel=1e-9)
    assert run.average_reward == pytest.approx(run.records["reward"].sum() / LONG)


def replayed(run: Run, episodes: int) -> list[RoundRecord]:
    """What ``on_round`` was called with, from the records."""
    about, rows = run.about, (run.records, run.recommendations)
    units = Units.of(about.environment)
    return [*replay(*rows, episodes=episodes, rules=about.rules, units=units, horizon=about.horizon)]


def test_a_run_that_agents_joined_and_left_is_shown_everywhere(tmp_path: Path) -> None:
    story, runs = joined_then_left(ALIKE, tmp_path)
    run = runs[-1]
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
        told = [getattr(one, name) for one in story.told]
        assert [getattr(one, name) for one in again] == pytest.approx(told, rel=1e-12, nan_ok=True), name
    assert (again[-1].episodes, again[-1].planned_episodes) == (LONGER, LONGER)
    assert again[-1].regret == pytest.approx(run.regret, rel=1e-12)


def test_agents_that_join_a_live_run_do_not_change_what_came_before(tmp_path: Path) -> None:
    """Every agent plays T episodes of its own, so that there are more than T per agent."""
    live, story = LiveSource(lambda agent: TableEnv(), (-1, 3), 4), Story(tmp_path)

    before = story.serve(live_plan(2, SHORT), make_nodes(live, [2], tmp_path)).run
    after = story.serve(live_plan(3, LONG), make_nodes(live, [2, 1], tmp_path)).run
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
    last = story.told[-1]
    assert (last.episodes, last.planned_episodes) == (after.episodes_played,) * 2
    again = replayed(after, LONG)
    assert [one.episodes for one in again] == [one.episodes for one in story.told]
    assert [one.reward for one in again] == pytest.approx([one.reward for one in story.told], nan_ok=True)
