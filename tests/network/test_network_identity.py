"""A lock-step federation over the network is the simulation, bit for bit, however the agents are spread."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands import anew
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, Run, gridworld, run, synthetic
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.engine import play_ahead
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.problem.federation import Federation
from matrices import in_turn
from network import TLSByName, assert_same, assert_simulated, federate, make_nodes
from problems import random_federation
from runs import counted_apart, finished, without_cautions

SPLITS = ([8], [4, 4], [1] * 8, [3, 1, 4])
CASES: dict[str, tuple[str, dict[str, object], int]] = {
    "fed-ucbvi": ("fed-ucbvi", {"nu": 40}, 150),
    "local rule": ("fed-ucbvi", {"synchronisation": "local", "bonus": "theory", "ties": "random"}, 100),
    "global rule": ("fed-ucbvi", {"synchronisation": "global", "strict": True}, 100),
    "kl": ("fed-kl-ucbvi", {}, 60),
    "kl fast": ("fed-kl-ucbvi-fast", {}, 80),
    "kl, long rounds": ("fed-kl-ucbvi", {"min_round_growth": 0.3}, 150),
    "kl, stationary": ("fed-kl-ucbvi", {"stationary": True}, 60),
    "kl fast, stationary, long rounds": ("fed-kl-ucbvi-fast", {"stationary": True, "min_round_growth": 0.3}, 150),
    "fedq-bernstein": ("fedq-bernstein", {"bernstein_after": 10}, 60),
    "fedq-advantage": ("fedq-advantage", {}, 60),
    "fedq-advantage, random rewards": ("fedq-advantage", {}, 60),
    "byzan-ucbvi": ("byzan-ucbvi", {"log_term": 0.05}, 80),
    "concurrent-ucbvi": ("concurrent-ucbvi", {}, 20),
}

pytestmark = without_cautions


SMALL = synthetic(agents=8, eps_p=0.2, eps_r=0.1, seed=4, states=4, actions=3, horizon=4)
RANDOM = SMALL.with_bernoulli_rewards()
SMALL_STARTS = synthetic(agents=2, states=3, actions=2, horizon=2)
"""Episodes begin in any state."""
STATIONARY = random_federation(
    np.random.default_rng(8), 8, 4, 3, 4, stationary=True, own_rewards=True, own_starts=True
)


@pytest.mark.parametrize(
    ("case", "split"),
    [
        *in_turn([(case,) for case in CASES if not case.startswith("kl")], SPLITS),
        *in_turn([(case,) for case in CASES if case.startswith("kl")], SPLITS[2:]),
    ],
)
def test_the_network_gives_the_simulations_run_however_agents_are_spread(case: str, split: list[int]) -> None:
    name, parameters, episodes = CASES[case]
    algorithm = make_algorithm(name, parameters)
    seed = len(split)
    world = STATIONARY if "stationary" in case else RANDOM if "random rewards" in case else SMALL
    simulation = finished(Simulation(algorithm, world, episodes, seed, "episodes"))
    nodes = make_nodes(world, split)
    outcome = federate(plan_for(algorithm, world, episodes, seed=seed), nodes)
    assert_same(outcome.run, simulation.result(), regret=False)
    for node in nodes:
        assert np.array_equal(node.policy.table, outcome.run.policy)
    assert outcome.run.about.agents == 8
    assert outcome.events == []
    if algorithm.grid(simulation.setting) is not None:
        simulation = finished(Simulation(algorithm, counted_apart(world), episodes, seed))
    expected = simulation.agents.arrays()
    for array_name, array in expected.items():
        if "own_visits" in expected and not array_name.startswith("own_"):
            continue  # added up over the agents of a fleet
        rows = [node.state.arrays()[array_name] for node in nodes]
        shared = array.shape[0] != 8  # what all agents have been sent alike
        assert np.array_equal(rows[0] if shared else np.concatenate(rows), array), array_name


@pytest.mark.parametrize("world", [gridworld(agents=2, eps_p=0.3), SMALL_STARTS], ids=["one start", "random starts"])
@pytest.mark.parametrize("name", ["fed-kl-ucbvi", "fed-ucbvi"])
def test_regret_is_that_of_the_simulation_bit_for_bit(name: str, world: Federation) -> None:
    """Nodes tell in which states their episodes began."""
    algorithm = make_algorithm(name, {})
    simulated = run(algorithm, world, 150, seed=3, driver="episodes")
    outcome = federate(plan_for(algorithm, world, 150, seed=3), make_nodes(world, [1, 1]))
    assert np.array_equal(outcome.run.records["regret"], simulated.records["regret"])
    assert outcome.run.regret == simulated.regret


def test_regret_is_that_of_the_simulation_but_for_rounding_where_agents_are_added_up_one_by_one() -> None:
    algorithm = make_algorithm("fedq-hoeffding", {})
    simulated = run(algorithm, SMALL_STARTS, 150, seed=3, driver="episodes")
    outcome = federate(plan_for(algorithm, SMALL_STARTS, 150, seed=3), make_nodes(SMALL_STARTS, [1, 1]))
    np.testing.assert_allclose(outcome.run.records["regret"], simulated.records["regret"], rtol=1e-9, atol=1e-12)


def test_regret_of_secure_sums_is_that_of_the_simulation_bit_for_bit(tls_files: TLSByName) -> None:
    world = synthetic(agents=3, states=3, actions=2, horizon=2)
    algorithm = make_algorithm("fed-kl-ucbvi", {})
    simulated = run(algorithm, world, 60, seed=3, driver="episodes")
    plan = plan_for(algorithm, world, 60, seed=3, secure_sums=True)
    outcome = federate(plan, make_nodes(world, [1, 1, 1]), tls_files)
    assert np.array_equal(outcome.run.records["regret"], simulated.records["regret"])


@pytest.mark.parametrize("algorithm", [FedUCBVI(synchronisation="global"), FedKLUCBVI(min_round_growth=0.3)])
def test_long_rounds_are_played_in_growing_chunks_and_cut_at_the_same_episode(
    algorithm: FedUCBVI | FedKLUCBVI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play_ahead, "FIRST_STEPS", 1)
    monkeypatch.setattr(play_ahead, "MAX_STEPS", 256)
    outcome = assert_simulated(algorithm, SMALL, 2_000, 1, [5, 3])
    assert outcome.run.records["length"].max() > 256


def test_one_agent_and_single_agent_algorithms_run_too() -> None:
    alone = synthetic(agents=1, states=3, actions=2, horizon=3)
    for name in ("ucbvi", "ucb-advantage", "fedq-hoeffding", "fed-ucbvi", "fed-kl-ucbvi"):
        assert_simulated(make_algorithm(name, {}), alone, 25, 2, [1])


def test_with_one_step_all_steps_together_are_still_no_step() -> None:
    bandit = random_federation(np.random.default_rng(9), 3, 2, 3, 1, stationary=True)
    outcome = assert_simulated(FedKLUCBVI(stationary=True), bandit, 40, 2, [2, 1])
    assert set(outcome.run.records["step"].tolist()) == {-1}


def test_a_server_that_knows_only_sizes_says_what_it_does_not_know(tmp_path: Path) -> None:
    algorithm = make_algorithm("fed-ucbvi", {"nu": 40})
    known = plan_for(algorithm, SMALL, 60, seed=1)
    outcome = federate(RunPlan(algorithm, known.setting), make_nodes(SMALL, [8]))
    simulated = run(algorithm, SMALL, 60, seed=1, driver="episodes")
    assert np.array_equal(outcome.run.policy, simulated.policy)
    assert np.array_equal(outcome.run.records["bytes_up"], simulated.records["bytes_up"])
    summary = outcome.run.summary()
    assert summary["regret"] is summary["value"] is summary["optimal_value"] is summary["eps_r"] is None
    outcome.run.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == outcome.run


def test_agents_that_each_stop_by_themselves_are_refused() -> None:
    algorithm = make_algorithm("fedq-advantage", {"forced_synchronisation": False})
    with pytest.raises(InputError, match="all agents stop together"):
        plan_for(algorithm, SMALL, 10)


def test_trajectories_leave_a_node_only_with_its_consent() -> None:
    nodes = make_nodes(SMALL, [8], terms=NodeTerms(send_trajectories=False))
    with pytest.raises(InputError, match="sends trajectories"):
        nodes[0].enter(plan_for(make_algorithm("concurrent-ucbvi", {}), SMALL, 10).welcome())
    nodes[0].enter(plan_for(make_algorithm("fed-ucbvi", {}), SMALL, 10).welcome())


@pytest.mark.full
def test_separate_processes_with_certificates_give_the_simulations_run(tmp_path: Path) -> None:
    done = anew(
        "federate",
        "--nodes",
        "2",
        "--agents",
        "3",
        "--episodes",
        "200",
        "--seed",
        "5",
        "--eps-p",
        "0.1",
        "--algorithm",
        "fed-ucbvi",
        "--option",
        "synchronisation=local",
        "--out",
        "run",
        "--json",
        "--quiet",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    algorithm = make_algorithm("fed-ucbvi", {"synchronisation": "local"})
    simulated = run(algorithm, gridworld(agents=3, eps_p=0.1), 200, seed=5, driver="episodes")
    result = Run.load(tmp_path / "run")
    assert_same(result, simulated)
    assert result.about.driver == "network"
    summary = json.loads(done.stdout)
    assert summary["regret"] == simulated.regret
    assert summary["events"] == []
    assert summary["bytes_up"] == simulated.bytes_up
    less = summary["wire"]["bytes_up"]
    assert less < simulated.bytes_up, "two rows for three agents"
