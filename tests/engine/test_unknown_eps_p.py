"""Where nobody knows how different agents are, nothing says that they are alike."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from fed_ucbvi import FedUCBVI, LiveFederation, Run, RunSpec, gridworld, run
from fed_ucbvi.command_line.outputs import summary_rows
from fed_ucbvi.network.run_plan import plan_of
from fed_ucbvi.theory.bounds import threshold_nu
from network import federate, make_nodes

Make = Callable[[float | None], Run]


def live(eps_p: float | None = None, nu: float | None = None) -> Run:
    fleet = LiveFederation.from_gymnasium("FrozenLake-v1", 3, horizon=6, reward_range=(0, 1), eps_p=eps_p)
    return run(FedUCBVI(nu=nu), fleet, 20, progress=False)


def network(eps_p: float | None) -> Run:
    plan = plan_of(RunSpec(sizes=(8, 4, 10), agents=3, episodes=20, eps_p=eps_p))
    return federate(plan, make_nodes(gridworld(agents=3, eps_p=0.2), [1, 2])).run


@pytest.mark.parametrize("make", [live, network])
def test_an_unknown_eps_p_is_unknown_everywhere_and_nu_says_what_it_assumes(make: Make, tmp_path: Path) -> None:
    result = make(None)
    about = result.about
    assert math.isnan(about.eps_p)
    nu = threshold_nu(about.states, about.actions, about.horizon, 3, 20, 0.0, 0.05)
    assert about.facts["nu"] == nu
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert (summary["eps_p"], summary["eps_p_assumed"], summary["nu"]) == (None, 0.0, nu)
    texts = dict(summary_rows(result)[1])
    assert "eps_p unknown" in texts["setting"]
    assert "eps_p =" not in texts["setting"]
    assert texts["nu"] == f"{nu:,.0f} (with eps_p = 0, as if agents were identical)"
    result.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == result
    result.plot(tmp_path / "run.png")


@pytest.mark.parametrize("make", [live, network])
def test_an_eps_p_that_is_given_is_used_and_printed(make: Make) -> None:
    result = make(0.25)
    about = result.about
    assert about.facts["nu"] == threshold_nu(about.states, about.actions, about.horizon, 3, 20, 0.25, 0.05)
    assert (about.eps_p, result.summary()["eps_p_assumed"]) == (0.25, None)
    texts = dict(summary_rows(result)[1])
    assert "eps_p = 0.25" in texts["setting"]
    assert "alike" not in texts["nu"]


def test_a_nu_that_is_given_assumes_nothing() -> None:
    result = live(nu=7.0)
    summary = result.summary()
    assert (summary["eps_p"], summary["eps_p_assumed"], result.about.facts["nu"]) == (None, None, 7.0)
    assert dict(summary_rows(result)[1])["nu"] == "7"


def test_a_server_that_knows_the_environment_knows_its_eps_p() -> None:
    plan = plan_of(RunSpec(environment="gridworld", agents=3, episodes=20))
    assert (plan.setting.eps_p, plan.setting.eps_p_known) == (0.0, True)
