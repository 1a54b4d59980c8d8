"""Values of the learnt policy to the agents themselves, against independent evaluation in NumPy."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import shops

from fed_ucbvi import (
    MDP,
    ByzanUCBVI,
    Federation,
    FedUCBVI,
    Run,
    best_common_policy,
    gridworld,
    reference,
    riverswim,
    run,
)
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.network.run_plan import plan_for
from network import federate, make_nodes
from problems import worth


@pytest.fixture(scope="module")
def fleet() -> Federation:
    return shops.shops()


@pytest.fixture(scope="module")
def result(fleet: Federation) -> Run:
    return run(FedUCBVI(bonus_scale=0.1), fleet, 200, seed=1)


def test_the_five_shops_get_what_their_own_tables_say(result: Run) -> None:
    own = [worth(*shops.shop(mean), result.policy, shops.FIRST) for mean in shops.DEMANDS]
    assert result.by_agent == pytest.approx(own, abs=1e-9)
    agents = result.agents_value
    assert agents.mean == pytest.approx(np.mean(own), abs=1e-9)
    assert agents.worst == pytest.approx(min(own), abs=1e-9)
    assert agents.best == pytest.approx(max(own), abs=1e-9)
    assert agents.worst_agent == own.index(min(own))
    assert agents.best_agent == own.index(max(own))
    assert agents.agents == 5


def test_the_best_shared_policy_of_the_five_shops(fleet: Federation) -> None:
    """Euro a month, computed elsewhere: 120.2 to 121.8."""
    optimum = best_common_policy(fleet)
    assert [round(end, 1) for end in optimum.value] == [120.2, 121.8]
    tables = [shops.shop(mean) for mean in shops.DEMANDS]
    shared = [worth(*table, optimum.policy, shops.FIRST) for table in tables]
    assert optimum.value.lower == pytest.approx(np.mean(shared), abs=1e-9)


def test_the_own_optima_of_the_five_shops(fleet: Federation) -> None:
    """Euro a month, computed elsewhere: 122.3 on average."""
    found = best_common_policy(fleet).own
    tables = [shops.shop(mean) for mean in shops.DEMANDS]
    days = (shops.DAYS, 1, 1, 1)
    own = [reference.evaluate(np.tile(P, days), np.tile(r, days[:3]))[0, shops.FIRST] for P, r in tables]
    assert found == pytest.approx(np.mean(own), abs=1e-9)
    assert round(found, 1) == 122.3


def test_what_agents_that_differ_get_is_printed_before_anything_of_the_common_mdp(
    result: Run,
) -> None:
    title, rows = summary_rows(result)
    assert title.endswith("shops")
    names = [name for name, _ in rows]
    assert names[:2] == ["setting", "value per agent"]
    assert names.index("value per agent") < names.index("in the common MDP") < names.index("regret")
    agents = result.agents_value
    texts = dict(rows)
    assert texts["value per agent"] == (
        f"mean {agents.mean:.4f}, worst {agents.worst:.4f} (agent {agents.worst_agent}), "
        f"best {agents.best:.4f} (agent {agents.best_agent})"
    )
    assert texts["in the common MDP"].startswith(
        f"value {result.value:.4f}, optimum {result.about.optimal_value:.4f}"
    )
    assert "%" not in texts["in the common MDP"], "a month can cost money, so shares of its value mean nothing"


def test_agents_that_are_alike_get_one_line() -> None:
    alike = run(FedUCBVI(), gridworld(agents=3), 200)
    rows = summary_rows(alike)[1]
    assert [name for name, _ in rows][:4] == [
        "setting",
        "recommended policy",
        "gap",
        "regret",
    ]
    assert alike.about.alike
    assert alike.by_agent == pytest.approx([alike.value] * 3, abs=1e-12)
    starts = [MDP(np.full((2, 2, 2), 0.5), [[0.0, 0.0], [1.0, 1.0]], initial=s, horizon=2) for s in (0, 1)]
    apart = run(FedUCBVI(), Federation.from_mdps(starts), 5)
    assert not (apart.about.alike), "starts alone differ"
    assert (apart.about.eps_p) == (0.0), "starts alone differ"
    assert (apart.about.eps_r) == (0.0), "starts alone differ"
    assert apart.by_agent.tolist() == [0.5, 1.5]


def test_every_figure_agrees_with_all_policies_of_a_small_federation() -> None:
    """Two agents, two states, two actions, two steps: sixteen policies, tried one by one."""
    rng = np.random.default_rng(4)
    P = rng.dirichlet([1, 1], size=(2, 2, 2))
    r = rng.random((2, 2, 2))
    federation = Federation.from_mdps([MDP(P[i], r[i], initial=0, horizon=2) for i in (0, 1)])
    result = run(FedUCBVI(), federation, 30)
    policies = [np.array(choice).reshape(2, 2) for choice in itertools.product((0, 1), repeat=4)]
    values = np.array([[worth(P[i], r[i], policy, 0) for i in (0, 1)] for policy in policies])
    chosen = next(k for k, policy in enumerate(policies) if (policy == result.policy).all())
    assert result.by_agent == pytest.approx(values[chosen], abs=1e-12)
    optimum = best_common_policy(federation)
    assert optimum.value == pytest.approx([values.mean(axis=1).max()] * 2, abs=1e-9)
    assert optimum.own == pytest.approx(values.max(axis=0).mean(), abs=1e-12)


def test_liars_do_not_count() -> None:
    federation = gridworld(agents=5, eps_p=0.3).with_liars(0.4, "flip", seed=1)
    result = run(ByzanUCBVI(log_term=0.01), federation, 100)
    lying = list(federation.liars.agents) if federation.liars else []
    assert np.isnan(result.by_agent[lying]).all()
    own = {i: federation.agent(i) for i in federation.honest}
    expected = {i: float(mdp.initial @ mdp.evaluate(result.policy)[0]) for i, mdp in own.items()}
    assert result.by_agent[federation.honest] == pytest.approx(list(expected.values()), abs=1e-12)
    assert result.agents_value.mean == pytest.approx(np.mean(list(expected.values())), abs=1e-12)
    assert expected[result.agents_value.worst_agent] == pytest.approx(min(expected.values()), abs=1e-12)
    assert dict(summary_rows(result)[1])["value per agent"].endswith("; over the 3 honest agents")


def test_two_thousand_agents_have_their_figures_too() -> None:
    federation = riverswim(agents=2000, spread=0.5)
    result = run(FedUCBVI(), federation, 20)
    some = (0, 7, 1999)
    own = [federation.agent(i) for i in some]
    expected = [float(mdp.initial @ mdp.evaluate(result.policy)[0]) for mdp in own]
    assert result.by_agent[list(some)] == pytest.approx(expected, abs=1e-12)
    assert result.agents_value.agents == 2000
    optimum = best_common_policy(federation)
    assert optimum.own >= optimum.value.upper - 1e-9


@pytest.mark.slow
def test_a_run_over_the_network_has_the_figures_of_the_simulation() -> None:
    world = gridworld(agents=3, eps_p=0.3)
    outcome = federate(plan_for(FedUCBVI(), world, 60, seed=2), make_nodes(world, [1, 2]))
    simulated = run(FedUCBVI(), world, 60, seed=2, driver="episodes")
    assert outcome.run.by_agent.tolist() == simulated.by_agent.tolist()
    assert outcome.run.optimistic_value == simulated.optimistic_value


def test_a_run_with_values_by_agent_loads_back_equal(result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == result
    assert Run.from_bytes(result.to_bytes()) == result


def test_values_of_agents_are_in_the_json_summary(result: Run) -> None:
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["agents_value"]["mean"] == result.agents_value.mean
    assert summary["agents_alike"] is False


def test_a_loaded_run_shows_the_values_of_agents(result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    assert summary_rows(Run.load(tmp_path / "run")) == summary_rows(result)
