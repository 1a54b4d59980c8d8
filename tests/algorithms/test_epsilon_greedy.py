"""The example of an algorithm in one small file: it plans rightly, learns, and is taken wherever algorithms are."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import anew, call
from fed_ucbvi import MDP, Federation, InputError, Run, Sweep, make_environment, run
from fed_ucbvi.algorithms import algorithm_name, make_algorithm
from fed_ucbvi.algorithms.base import FleetTables
from fed_ucbvi.algorithms.one_report import RoundCounts
from fed_ucbvi.core.colours import BLUE
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.paper import table1
from fed_ucbvi.paper.report.sweep_section import sweep_section
from fed_ucbvi.paper.report.traces import Trace, table_of
from model_free import asked, played_rounds, played_steps
from problems import all_policies, brute_force_value, random_federation, random_mdp
from repository import ROOT
from runs import finished

EXAMPLES = ROOT / "examples"
NAME = "epsilon_greedy:EpsilonGreedy"


@pytest.fixture(autouse=True)
def _in_the_folder_of_examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("epsilon_greedy", None)


def epsilon_greedy(epsilon: float = 0.2) -> Any:
    return make_algorithm(NAME, {"epsilon": epsilon})


def test_it_takes_fewer_than_sixty_lines() -> None:
    lines = (EXAMPLES / "epsilon_greedy.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) < 60


def test_summaries_of_a_round_are_those_of_a_loop_over_its_transitions() -> None:
    """The numbers of next states and the rewards."""
    rng = np.random.default_rng(0)
    m = 2
    H = 3
    S = 4
    A = 2
    K = 3
    policy = rng.integers(A, size=(H, S), dtype=np.int32)
    transitions = rng.integers(0, 3, (m, H, S, K))
    counts = RoundCounts(policy, transitions, transitions.sum(axis=3))
    for steps, agents in ((1, 1), (H, m)):
        tables = FleetTables(
            m, rng.integers(S, size=(steps, S, A, K), dtype=np.int32), rng.random((agents, steps, S, A))
        )
        moves = np.zeros((m, H, S, S), dtype=np.int64)
        rewards = np.zeros((m, H, S))
        for i, h, s in np.ndindex(m, H, S):
            a = policy[h, s]
            for k in range(K):
                moves[i, h, s, tables.successors[h % steps, s, a, k]] += transitions[i, h, s, k]
            if counts.visits[i, h, s]:
                rewards[i, h, s] = tables.rewards[i % agents, h % steps, s, a]
        np.testing.assert_array_equal(counts.next_states(tables), moves)
        np.testing.assert_array_equal(counts.rewards(tables), rewards)


def test_its_values_are_the_optimum_of_what_was_counted() -> None:
    """The optimum over all policies, by brute force, of the MDP that all agents' counts make up."""
    federation = random_federation(np.random.default_rng(3), agents=3, states=2, actions=2, horizon=2, zeros=0.0)
    simulation = Simulation(epsilon_greedy(1.0), federation, 400, 1, "episodes")
    N, rewards, moves = (np.zeros(shape) for shape in ((2, 2, 2), (2, 2, 2), (2, 2, 2, 2)))
    for policy in played_rounds(simulation):
        if not asked(simulation):
            break  # the last round is reported only if somebody asks
        for h, s, a, reward, successor in itertools.chain(*played_steps(simulation, policy)):
            N[h, s, a] += 1
            rewards[h, s, a] += reward
            moves[h, s, a, successor] += 1
    assert N.min() > 0
    np.testing.assert_array_equal(simulation.server.arrays()["N"], N)
    counted = MDP(moves / N[..., None], rewards / N, 0, 2)
    for s in range(2):
        best = max(brute_force_value(counted, policy, 0, s) for policy in all_policies(counted))
        np.testing.assert_allclose(simulation.server.V[0, s], best, rtol=1e-12)


def test_it_learns_the_optimum_of_small_mdps() -> None:
    """Values and greedy policies against the optimum over all policies, by brute force, on 20 random MDPs.

    If at most one MDP in 20 is not learnt to 0.01, fewer than 15 of 20 are with probability 3.3e-4; seeds are fixed.
    """
    learnt = 0
    for seed in range(20):
        mdp = random_mdp(np.random.default_rng(seed), states=2, actions=3, horizon=2, fixed_start=True, zeros=0.0)
        start = int(mdp.initial.argmax())
        made = finished(Simulation(epsilon_greedy(), Federation.from_mdps([mdp] * 4), 100_000, seed, "counts"))
        tables = made.server.arrays()
        V = made.server.V
        Q = (tables["rewards"] + np.einsum("hsay,hy->hsa", tables["moves"], V[1:])) / np.maximum(tables["N"], 1)
        greedy = Q.argmax(axis=2).astype(np.int32)
        best = max(brute_force_value(mdp, policy, 0, start) for policy in all_policies(mdp))
        learnt += best - brute_force_value(mdp, greedy, 0, start) < 0.01 and abs(V[0, start] - best) < 0.01
    assert learnt >= 15


def test_without_exploring_it_stays_with_the_first_thing_that_pays() -> None:
    """One state, one step, and two actions that pay 0.1 and 1: the optimum is 1."""
    mdp = MDP(np.ones((1, 2, 1)), np.array([[0.1, 1.0]]), 0, 1)
    federation = Federation.from_mdps([mdp] * 2)
    seed = next(k for k in range(99) if run(epsilon_greedy(0.0), federation, 1, seed=k).policy[0, 0] == 0)
    stuck, learnt = (run(epsilon_greedy(epsilon), federation, 2000, seed=seed) for epsilon in (0.0, 0.5))
    assert (stuck.value, float(stuck.V[0, 0])) == (0.1, 0.1)
    assert float(learnt.V[0, 0]) == 1.0


def test_a_run_over_the_network_is_the_simulated_one() -> None:
    pytest.importorskip("grpc")
    from fed_ucbvi.network.node import Node
    from fed_ucbvi.network.run_plan import plan_for
    from network import assert_same, federate

    world = make_environment("gridworld", agents=3, eps_p=0.1)
    nodes = [Node(f"node-{i}", lambda M: world, i, 1 + i, terms=NodeTerms(algorithm=NAME)) for i in range(2)]
    outcome = federate(plan_for(epsilon_greedy(), world, 120, seed=4), nodes)
    assert_same(outcome.run, run(epsilon_greedy(), world, 120, seed=4, driver="episodes"))


@pytest.mark.slow
def test_a_run_can_be_read_in_a_new_process(tmp_path: Path) -> None:
    assert algorithm_name(epsilon_greedy()) == NAME
    few = ("--env", "synthetic", "--agents", "2", "--episodes", "50")
    made = call("run", *few, "--algorithm", NAME, "--option", "epsilon=0.5", "--out", tmp_path / "run", "--json")
    assert json.loads(made.stdout)["parameters"] == {"epsilon": 0.5}
    shown = anew("show", str(tmp_path / "run"), "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["algorithm"] == NAME, shown.stderr
    assert Run.load(tmp_path / "run").about.parameters == {"epsilon": 0.5}


def test_a_parameter_beyond_its_bounds_is_an_error() -> None:
    with pytest.raises(InputError, match=r"epsilon must be a number in \[0, 1\], got 2"):
        epsilon_greedy(2)


def test_results_of_a_sweep_show_it_under_its_label() -> None:
    """The runs of a sweep, and what ``compare`` and ``report`` make of them."""
    grid = {"algorithms": [NAME, "fed-ucbvi"], "environments": ["synthetic"], "agents": [2], "episodes": [50]}
    pairs = [(job, Trace.of(job.run())) for job in Sweep(name="both", grids=[{**grid, "seeds": 2}]).jobs()]
    assert [job.algorithm.name for job, _ in pairs] == [NAME] * 2 + ["fed-ucbvi"] * 2
    summary = table1.tabulate(table_of(pairs))
    rows = {row["algorithm"]: row for row in summary["tables"]["synthetic"]}
    assert (rows[NAME]["heterogeneity"], rows["fed-ucbvi"]["heterogeneity"]) == (None, True)
    assert f"| {NAME} | \u2013 | \u2013 |" in table1.markdown(summary)
    section = sweep_section(table_of(pairs), "both")
    drawn = {(one.name, one.colour) for figure in section.figures for panel in figure.panels for one in panel.series}
    colours = dict(drawn)
    assert colours.keys() == {"Fed-UCBVI", "ε-greedy"}
    assert colours["Fed-UCBVI"] == BLUE
    assert colours["ε-greedy"] not in (BLUE, "")
