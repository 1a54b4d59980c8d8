"""Rules for requests: those of the paper, compiled or not, and one of one's own in every kind of run."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import DoublingRule, Federation, FedKLUCBVI, FedUCBVI, InputError, run, synthetic
from fed_ucbvi.algorithms.synchronisation_rules import global_limit, is_local, local_limit
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import plan_for
from network import assert_same, federate
from repository import ROOT
from runs import counted_apart, finished


@pytest.fixture(scope="module")
def own_rule() -> Any:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module("own_rule")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def small() -> Federation:
    return synthetic(agents=4, eps_p=0.2, eps_r=0.1, seed=4, states=4, actions=3, horizon=4)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["mixture", "local", "global"])
def test_the_compiled_limits_are_those_of_the_rule(name: str, strict: bool) -> None:
    rule = DoublingRule.named(name, 40.0, strict=strict)
    M = 3
    own, total = np.random.default_rng(1).integers(0, 90, (2, 500))
    total[:3] = 0, 40, 41
    numbers = rule.numbers(M)
    expected = [
        local_limit.py_func(n, numbers) if is_local.py_func(N, numbers) else global_limit.py_func(N, numbers)  # type: ignore[attr-defined]
        for n, N in zip(own.tolist(), total.tolist(), strict=True)
    ]
    assert rule.limits(own, total, M).tolist() == expected
    assert rule.kinds(total).tolist() == [0 if is_local.py_func(N, numbers) else 1 for N in total]  # type: ignore[attr-defined]
    assert rule.shared == (name == "global")


def test_rounds_cannot_shrink() -> None:
    with pytest.raises(InputError, match="min_round_growth"):
        DoublingRule(min_round_growth=-1.0)


@pytest.mark.parametrize("name", ["RootRuleKL", "RootRuleUCBVI"])
def test_a_rule_of_ones_own_gives_the_budgets_of_every_round(own_rule: Any, small: Federation, name: str) -> None:
    algorithm = getattr(own_rule, name)()
    together = Simulation(algorithm, small, 150, 3, "episodes")
    apart = Simulation(algorithm, counted_apart(small), 150, 3)
    while not together.done:
        before = apart.agents.own_visits.copy()
        broadcast = algorithm.broadcast(together.server)
        limits = algorithm.budgets(together.agents, broadcast).limits.copy()
        expected = own_rule.RootRule().limits(before, broadcast[1], small.agents)
        if name == "RootRuleUCBVI":
            expected = np.take_along_axis(expected, broadcast[0][None, ..., None], axis=3)[..., 0]
        assert np.array_equal(limits, expected)
        together.advance()
        apart.advance()
        assert together.rows[-1] == apart.rows[-1]
    assert len(together.rows) > 20


@pytest.mark.parametrize("name", ["RootRuleKL", "RootRuleUCBVI"])
def test_a_rule_of_ones_own_gives_the_same_run_over_the_network(own_rule: Any, small: Federation, name: str) -> None:
    algorithm = getattr(own_rule, name)()
    simulation = finished(Simulation(algorithm, small, 150, 3, "episodes"))
    code = f"own_rule:{name}"  # a node runs such code only where its owner has named it
    nodes = [
        Node(f"node-{first}", lambda _: small, first, agents, terms=NodeTerms(algorithm=code))
        for first, agents in ((0, 1), (1, 3))
    ]
    outcome = federate(plan_for(algorithm, small, 150, seed=3), nodes)
    assert_same(outcome.run, simulation.result(), regret=False)


def test_a_rule_of_ones_own_is_another_one(own_rule: Any, small: Federation) -> None:
    pairs = ((own_rule.RootRuleKL(), FedKLUCBVI()), (own_rule.RootRuleUCBVI(), FedUCBVI()))
    for mine, usual in pairs:
        assert run(mine, small, 150, seed=3).rounds != run(usual, small, 150, seed=3).rounds
