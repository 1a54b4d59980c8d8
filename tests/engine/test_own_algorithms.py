"""Faulty algorithms of users: every result is checked, with an error that names the fault instead of a crash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from fed_ucbvi import FedKLUCBVI, FedQHoeffding, InputError, run, synthetic
from fed_ucbvi.algorithms.base import Array, Budgets, Message, Setting, needs_checks
from fed_ucbvi.engine.drivers import DRIVERS
from fed_ucbvi.engine.simulated_party import SimulatedParty
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.network.messages import Query, Start, Stop
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.run_plan import RunPlan
from live_world import World
from network import assert_same, federate

WORLD = synthetic(agents=4, eps_p=0.2, eps_r=0.2, states=3, actions=2, horizon=3)

Change = Callable[[Any], Any]


def entry(value: float) -> Change:
    """Change the first entry of an array, as when a division fails in the middle of a run."""

    def change(array: Array) -> Array:
        array.flat[0] = value
        return array

    return change


def budget(**fields: Change) -> Change:
    return lambda asks: asks._replace(**{name: change(getattr(asks, name)) for name, change in fields.items()})


def after_policy(change: Change) -> Change:
    return lambda message: (message[0], change(message[1].astype(np.float64)), *message[2:])


FAULTS_OF: dict[str, dict[str, tuple[Change, str]]] = {
    "policy": {
        "no such action": (entry(-1), r"its policy takes actions that do not exist: -1 at step 0 in state 0, .*"),
        "beyond the last action": (entry(2), r"do not exist: 2 at step 0 in state 0, where there are 0 to 1\."),
        "broken numbers": (lambda policy: policy + 0.5, r"policy must be actions, integers of shape .* float64"),
        "one step less": (lambda policy: policy[1:], r"of shape \(H, S\) = \(3, 3\), got int32 \(2, 3\)"),
        "no array": (lambda policy: policy.tolist(), "its policy must be actions, .*, got list"),
    },
    "V": {
        "NaN in V": (entry(np.nan), r"its V has nan at \(0, 0\), where finite numbers belong"),
        "infinite V": (entry(np.inf), r"its V has inf at \(0, 0\), where finite numbers belong"),
        "V without its last row": (lambda V: V[:-1], r"its V must be numbers, .* \(4, 3\), got float64 \(3, 3\)"),
        "V by rounded numbers": (lambda V: V.astype(int), r"its V must be numbers, floats of shape .*, got int64"),
    },
    "broadcast": {
        "another policy": (lambda message: (message[0] - 2, *message[1:]), r"policy that broadcast\(\) .* not exist"),
        "NaN in the broadcast": (after_policy(entry(np.nan)), r"broadcast\(\) has nan at \(0, 0\)"),
        "text in the broadcast": (lambda message: (*message, "N"), r"broadcast\(\) must consist of arrays .*str"),
        "no message": (lambda message: message[0], r"broadcast\(\) must return a tuple .*, got int32"),
        "nothing to broadcast": (lambda message: (), r"broadcast\(\) must return a tuple .*, got tuple"),
    },
    "budgets": {
        "budget 0": (budget(limits=entry(0)), r"at least 1 visit, got 0 for agent 0 at \(0, 0\). Use np.maximum"),
        "budgets in floats": (budget(limits=lambda limits: limits + 0.5), "must be integers of shape .* float64"),
        "budgets of some agents": (budget(limits=lambda limits: limits[:-1]), r"integers of shape \(1, 3, 3\) or"),
        "budgets of fewer steps": (budget(limits=lambda limits: limits[:, 1:]), "limits of its budgets must be"),
        "rules of fewer steps": (budget(rule=lambda rule: rule[1:]), "the rule of its budgets must be integers"),
        "no such rule": (budget(rule=entry(7)), "a rule of its budgets must be 0 to 1, .*, got 7"),
        "growth that is none": (budget(growth=lambda _: np.nan), "growth of its budgets must be .*, got nan"),
        "budgets alone": (lambda asks: asks.limits, r"budgets\(\) must return a Budgets, got int64"),
    },
    "report": {
        "NaN in a report": (lambda report: (*report[:-1], report[-1] * np.nan), r"report\(\) has nan at"),
    },
}
"""Faults by the result that they change."""
FAULTS = {name: (what, *fault) for what, faults in FAULTS_OF.items() for name, fault in faults.items()}


@dataclass(frozen=True)
class Broken(FedQHoeffding):
    """Q-learning with a fault; that of policy and V begins after five episodes, when no policy is recommended."""

    name: ClassVar[str] = "broken"

    fault: str = ""

    def _changed(self, what: str, value: Any) -> Any:
        where, change, _ = FAULTS.get(self.fault, ("", None, ""))
        return change(value) if change is not None and where == what else value

    def aggregate(self, server: Any, report: Message, exchange: int) -> None:
        super().aggregate(server, report, exchange)
        if server.estimates.N[0].sum() >= 5 * len(report[0]):
            policy, V = (self._changed(name, getattr(server, name)) for name in ("policy", "V"))
            server.estimates = server.estimates._replace(policy=policy, V=V)

    def broadcast(self, server: Any) -> Any:
        return self._changed("broadcast", super().broadcast(server))

    def budgets(self, agents: Any, broadcast: Message) -> Budgets:
        asks: Budgets = self._changed("budgets", super().budgets(agents, broadcast))
        return asks

    def report(self, agents: Any, query: Message, exchange: int) -> Any:
        return self._changed("report", super().report(agents, query, exchange))


@dataclass(frozen=True)
class NoSets(FedKLUCBVI):
    """It plays sets of actions, and one of them is empty after the first synchronisation."""

    name: ClassVar[str] = "no-sets"

    def synchronise(self, server: Any, agents: Any, setting: Any) -> None:
        super().synchronise(server, agents, setting)
        server.policy[1, 2] = False


@dataclass(frozen=True)
class OneBudget(FedQHoeffding):
    """One row of budgets for all agents, as is allowed where they stop together."""

    name: ClassVar[str] = "one-budget"

    def budgets(self, agents: Any, broadcast: Message) -> Budgets:
        asks = super().budgets(agents, broadcast)
        return asks._replace(limits=asks.limits[:1])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("driver", DRIVERS)
def test_results_of_an_algorithm_are_checked_with_every_driver(fault: str, driver: str) -> None:
    with pytest.raises(InputError, match=f"^broken: .*{FAULTS[fault][2]}"):
        run(Broken(fault=fault), WORLD, 200, driver=driver, progress=False)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_policy_without_an_action_in_some_state_is_an_error(driver: str) -> None:
    with pytest.raises(InputError, match=r"^no-sets: its policy has no action for some state: step 1, state 2"):
        run(NoSets(), WORLD, 200, driver=driver, progress=False)


def test_checks_do_not_change_a_correct_algorithm() -> None:
    assert needs_checks(Broken())
    assert not needs_checks(FedQHoeffding())
    checked = run(Broken(), WORLD, 200, progress=False)
    unchecked = run(FedQHoeffding(), WORLD, 200, progress=False)
    assert np.array_equal(checked.V, unchecked.V)
    assert np.array_equal(checked.policy, unchecked.policy)


@pytest.mark.parametrize("fault", ["no such action", "NaN in V", "budget 0", "NaN in a report"])
def test_results_of_an_algorithm_are_checked_in_live_environments(fault: str) -> None:
    with pytest.raises(InputError, match=f"^broken: .*{FAULTS[fault][2]}"):
        run(Broken(fault=fault), World().live(), 60, progress=False)


class BrokenAgents(NamedTuple):
    """Agents whose algorithm is broken, a correct broadcast for them, and the error."""

    algorithm: Broken
    setting: Setting
    broadcast: Message
    message: str


@pytest.fixture(params=["budget 0", "budgets of some agents", "NaN in a report"])
def broken_agents(request: pytest.FixtureRequest) -> BrokenAgents:
    good = Broken()
    setting = Simulation(good, WORLD, 40, 0, "episodes").setting
    return BrokenAgents(
        algorithm=Broken(fault=request.param),
        setting=setting,
        broadcast=tuple(good.broadcast(good.new_server(setting))),
        message=f"^broken: .*{FAULTS[request.param][2]}",
    )


def test_fleets_check_what_their_agents_return(broken_agents: BrokenAgents) -> None:
    """Results of the server are checked by the loop over rounds, which is the same for all."""
    fleet = SimulatedParty(broken_agents.algorithm, broken_agents.setting, WORLD)

    def play_round() -> None:
        fleet.start(broken_agents.broadcast, 0)
        fleet.play(5)
        fleet.stop(5)
        fleet.report((), 0)

    with pytest.raises(InputError, match=broken_agents.message):
        play_round()


def test_nodes_check_what_their_agents_return(broken_agents: BrokenAgents) -> None:
    terms = NodeTerms(algorithm=f"{__name__}:Broken", send_trajectories=True)
    node = Node("a", lambda M: WORLD, 0, 4, terms=terms)
    node.enter(RunPlan(broken_agents.algorithm, broken_agents.setting).welcome())

    def play_round() -> None:
        node.answer(Start(1, 0, 0, 40, 5, broken_agents.broadcast))
        node.answer(Stop(1, 5))
        node.answer(Query(1, 0, (), rewards=False))

    with pytest.raises(InputError, match=broken_agents.message):
        play_round()


def test_a_node_takes_one_budget_for_all_its_agents() -> None:
    algorithm = OneBudget()
    expected = run(algorithm, WORLD, 200, driver="episodes", progress=False)
    setting = Simulation(algorithm, WORLD, 200, 0, "episodes").setting
    plan = RunPlan(algorithm, setting, federation=WORLD)
    terms = NodeTerms(algorithm=f"{__name__}:OneBudget", send_trajectories=True)
    nodes = [Node(f"node-{i}", lambda M: WORLD, 2 * i, 2, terms=terms) for i in range(2)]
    assert_same(federate(plan, nodes).run, expected, regret=False)


def test_actions_far_beyond_the_tables_do_not_crash_the_process() -> None:
    """In a process of its own, which ends by a signal if nothing is checked."""
    code = (
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "from fed_ucbvi import FedQHoeffding, run, synthetic\n"
        "@dataclass(frozen=True)\n"
        "class Far(FedQHoeffding):\n"
        "    name: ClassVar[str] = 'far'\n"
        "    def aggregate(self, server, report, exchange):\n"
        "        super().aggregate(server, report, exchange)\n"
        "        server.policy[:] = -(10**8)\n"
        "run(Far(), synthetic(agents=2), 50, driver='episodes', progress=False)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1, ended.stderr
    assert (
        "InputError: far: the policy that it recommends takes actions that do not exist: -100000000" in ended.stderr
    )
