"""An algorithm of one's own that reports counts has secure sums, a quorum, incumbents, warm starts and logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fed_ucbvi import (
    CountingAlgorithm,
    FedQHoeffding,
    InputError,
    Interrupted,
    LiveFederation,
    Run,
    RunExtension,
    evaluate,
    gridworld,
    load_counts,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.engine.promises import Promises
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.gymnasium_environments import TabularEnv
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.results.round_record import INCUMBENT
from network import TLSByName, assert_same, federate, make_nodes
from problems import all_policies, brute_force_value
from repository import ROOT
from runs import counted_apart, finished, interrupt_after

NAME = "hoeffding:Hoeffding"
WORLD = synthetic(agents=4, seed=2, states=3, actions=2, horizon=3)
SPLIT = (1, 1, 2)
SEED = 5


@pytest.fixture(autouse=True)
def _in_the_folder_of_examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("hoeffding", None)


def hoeffding(**parameters: Any) -> Any:
    return make_algorithm(NAME, parameters)


def simulated(episodes: int, **options: Any) -> Run:
    return run(hoeffding(), WORLD, episodes, seed=SEED, driver="episodes", progress=False, **options)


def nodes() -> list[Any]:
    return make_nodes(WORLD, SPLIT, terms=NodeTerms(algorithm=NAME))


def test_it_finds_an_optimal_policy() -> None:
    """The best of all 512 policies, by the sum over all paths."""
    result = run(hoeffding(), WORLD, 3000, seed=SEED, progress=False)
    mdp = WORLD.common
    starts = [s for s in range(WORLD.states) if mdp.initial[s] > 0]
    values = [
        sum(mdp.initial[s] * brute_force_value(mdp, policy, 0, s) for s in starts) for policy in all_policies(mdp)
    ]
    assert result.value == pytest.approx(max(values), abs=1e-9)


@pytest.mark.parametrize("driver", ["counts", "episodes"])
def test_agents_counted_together_or_apart_give_the_same_run(driver: str) -> None:
    """To the last bit, but for the rounding of regret, a sum over agents."""
    together = finished(Simulation(hoeffding(), WORLD, 200, SEED, driver)).result()
    apart = finished(Simulation(hoeffding(), counted_apart(WORLD, driver), 200, SEED)).result()
    assert np.array_equal(together.V, apart.V)
    assert np.array_equal(together.policy, apart.policy)
    for name in together.records.keys() - {"regret"}:
        np.testing.assert_array_equal(together.records[name], apart.records[name], name)
    assert together.regret == pytest.approx(apart.regret, rel=1e-9)


def test_over_the_network_it_is_the_simulation() -> None:
    outcome = federate(plan_for(hoeffding(), WORLD, 200, seed=SEED), nodes())
    assert_same(outcome.run, simulated(200), regret=False)


def test_with_secure_sums_it_is_the_simulation(tls_files: TLSByName) -> None:
    plan = plan_for(hoeffding(), WORLD, 200, seed=SEED, secure_sums=True)
    outcome = federate(plan, nodes(), tls_files)
    assert_same(outcome.run, simulated(200), regret=False, secure=True)


def incumbent() -> Any:
    """The worst action of the optimal Q, in the first step, and optimal ones afterwards."""
    policy = WORLD.common.solve().policy.copy()
    policy[0] = 1 - policy[0]
    return policy


def test_exploring_keeps_its_promise_to_an_incumbent() -> None:
    result = simulated(2000, incumbent=incumbent(), loss=0.2)
    records = result.records
    playing = records["playing"]
    assert set(playing.tolist()) > {INCUMBENT}
    assert (records["cost"] <= records["allowed"] + 1e-9)[playing != INCUMBENT].all()


@pytest.mark.parametrize("secure", [False, True])
def test_with_an_incumbent_nodes_play_as_the_simulation_does(secure: bool, tls_files: TLSByName) -> None:
    sizes = WORLD.horizon, WORLD.states, WORLD.actions
    promises = Promises.of(incumbent(), 0.2, None, sizes)
    plan = plan_for(hoeffding(), WORLD, 300, seed=SEED, promises=promises, secure_sums=secure)
    outcome = federate(plan, nodes(), tls_files)
    expected = simulated(300, incumbent=incumbent(), loss=0.2)
    assert set(expected.records["playing"].tolist()) >= {INCUMBENT}
    assert_same(outcome.run, expected, "cost", secure=secure, regret=False)
    np.testing.assert_allclose(outcome.run.records["cost"], expected.records["cost"], rtol=1e-6, atol=1e-9)


def test_with_loss_0_it_gives_the_interval_of_the_incumbent() -> None:
    (one,) = simulated(100, incumbent=incumbent(), loss=0).certificates
    expected = evaluate(incumbent(), WORLD, 100, seed=SEED)
    assert (one.at_least, one.compared_with) == (expected.lower, expected.upper)


def test_a_quorum_closes_rounds_of_it() -> None:
    plan = plan_for(hoeffding(), WORLD, 100, seed=SEED, quorum=2, wait=60.0)
    assert federate(plan, nodes()).run.complete


def test_in_real_environments_it_learns() -> None:
    live = LiveFederation(lambda i: TabularEnv("gridworld", agent=i, agents=3), 3, 10, (0.0, 1.0))
    table = gridworld(agents=3)
    result = run(hoeffding(), live, 1500, seed=1, score_with=table, progress=False)
    assert result.value > 0.8 * float(table.common.initial @ table.common.solve().V[0])


def test_a_checkpoint_has_the_counts_of_all_agents(tmp_path: Path) -> None:
    simulated(200, checkpoint=tmp_path / "earlier")
    assert load_counts(tmp_path / "earlier").visits.sum() == 200 * WORLD.agents * WORLD.horizon


def test_a_warm_start_has_less_regret(tmp_path: Path) -> None:
    simulated(200, checkpoint=tmp_path / "earlier")
    warm = simulated(100, warm_start=load_counts(tmp_path / "earlier"))
    cold = simulated(100)
    assert warm.regret < cold.regret


def test_a_run_can_be_extended_with_more_episodes_than_planned(tmp_path: Path) -> None:
    simulated(200, checkpoint=tmp_path / "earlier")
    assert resume(tmp_path / "earlier", episodes=300, progress=False).episodes_played == 300


def test_a_resumed_run_is_that_of_one_go(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        simulated(200, checkpoint=tmp_path / "kept", checkpoint_every=1, on_round=interrupt_after(episodes=100))
    assert resume(tmp_path / "kept", progress=False).same_outcome(simulated(200))


H = 3
S = 3
A = 2
ACTIONS = np.zeros((H, S), dtype=np.int32)
VALUES = np.zeros((H + 1, S))


WRONG_PLANS: dict[str, tuple[Any, str]] = {
    "no values": (ACTIONS, r"wrong: plan\(\) must return a policy and its values, got ndarray"),
    "a step less": ((ACTIONS[1:], VALUES), r"policy of plan\(\) must be .* got int32 \(2, 3\)"),
    "broken actions": ((ACTIONS + 0.5, VALUES), r"policy of plan\(\) must be .* got float64 \(3, 3\)"),
    "values of fewer steps": ((ACTIONS, VALUES[1:]), r"values of plan\(\) must be floats .* got float64 \(3, 3\)"),
    "a list": ((ACTIONS, VALUES.tolist()), r"values of plan\(\) must be floats .* got list"),
    "no such action": ((ACTIONS + 2, VALUES), "has no action for some state: step 0, state 0"),
    "NaN": ((ACTIONS, VALUES * np.nan), "its V has nan"),
}


@dataclass(frozen=True)
class Wrong(CountingAlgorithm):
    """It plans one of these, or always the first action."""

    name: ClassVar[str] = "wrong"

    kind: str = ""

    def plan(self, setting: Any, counts: Any, *, explore: bool) -> Any:
        return WRONG_PLANS[self.kind][0] if self.kind else (ACTIONS, VALUES)


@pytest.mark.parametrize("kind", WRONG_PLANS)
def test_a_plan_of_another_form_is_an_error(kind: str) -> None:
    with pytest.raises(InputError, match=WRONG_PLANS[kind][1]):
        run(Wrong(kind), WORLD, 10, progress=False)


def test_a_plan_of_single_actions_can_be_used() -> None:
    assert run(Wrong(), WORLD, 10, progress=False).complete


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_refused_extension_needs_a_reason(reason: str) -> None:
    with pytest.raises(InputError, match=r"warm_start of RunExtension must be the reason .* or None"):
        RunExtension(episodes=None, warm_start=reason)


def test_a_declared_warm_start_without_an_implementation_is_an_error() -> None:
    @dataclass(frozen=True)
    class Declares(FedQHoeffding):
        name: ClassVar[str] = "declares"
        extension = RunExtension(episodes=None, warm_start=None)

    nothing: Any = None
    with pytest.raises(InputError, match="it does not implement counts_of and start_from"):
        Declares().counts_of(nothing, None)
