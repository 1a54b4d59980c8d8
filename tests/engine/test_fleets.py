"""Runs whose agents are in fleets elsewhere: the run of one process, bit for bit, also if fleets are lost."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi import Federation, FedQAdvantage, FedUCBVI, InputError, Run, gridworld, run, synthetic
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.engine import play_ahead, ray_fleets
from fed_ucbvi.engine.parts import split_agents
from fed_ucbvi.engine.problems import SimulatedProblem
from fed_ucbvi.engine.ray_fleets import ATTEMPTS, Actors, Fleets, PastRounds
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.results.recommendations import PLANNED
from matrices import first_of
from ray_cluster import needs_ray, two_nodes
from runs import finished, without_cautions

pytestmark = [pytest.mark.slow, without_cautions]

SAME = synthetic(agents=5, eps_p=0.2, seed=3, states=3, actions=2, horizon=3)
OWN_REWARDS = synthetic(agents=5, eps_p=0.2, eps_r=0.3, seed=3, states=3, actions=2, horizon=3)
GRID = gridworld(agents=5, eps_p=0.2, seed=3, rows=2, columns=2, horizon=4)
BERNOULLI = OWN_REWARDS.with_bernoulli_rewards()
"""Every payment is 0 or 1, so that agents are counted in one table."""
OWN_AMOUNTS = replace(OWN_REWARDS, reward_variances=0.5 * OWN_REWARDS.rewards * (1 - OWN_REWARDS.rewards))
"""Payments differ between agents, so that only agents that are alone in a fleet are counted in one table."""


class LostError(Exception):
    """An actor was lost with its node."""


class Cluster:
    """A stand-in for Ray in this process: actors, calls in order, and losses at calls for which ``loses`` is true.

    As on Ray, arguments and answers are copies, and arrays that come to an actor cannot be written to.
    """

    def __init__(self, loses: Callable[[int], bool] = lambda call: False) -> None:
        names = "RayActorError", "ActorUnschedulableError", "ObjectLostError", "WorkerCrashedError", "RayError"
        self.exceptions = SimpleNamespace(**dict.fromkeys(names, LostError))
        self.loses = loses
        self.calls = 0
        self.placed: list[str] = []
        """The nodes of the actors, in order."""
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
        self.util = SimpleNamespace(scheduling_strategies=strategies)

    def nodes(self) -> list[dict[str, Any]]:
        """Two living nodes, with two cores and with none to lend, and one that does not live."""
        cores = [("a", {"CPU": 2.0}, True), ("b", {"CPU": 8.0}, False), ("c", {}, True)]
        return [{"NodeID": name, "Resources": resources, "Alive": alive} for name, resources, alive in cores]

    def remote(self, **options: Any) -> Callable[[type[Any]], Any]:
        assert options["num_cpus"] == 0, "an actor that is made again must find room"

        def placed(kind: type[Any], scheduling_strategy: tuple[str, bool]) -> Any:
            return SimpleNamespace(remote=lambda *arguments: self._actor(kind, arguments, *scheduling_strategy))

        return lambda kind: SimpleNamespace(options=partial(placed, kind))

    def put(self, value: Any) -> Any:
        return _sent(value)

    def get(self, answer: Any) -> Any:
        if isinstance(answer, LostError):
            raise answer
        return answer

    def kill(self, actor: Any) -> None:
        actor.host = None

    def _actor(self, kind: type[Any], arguments: Any, node: str, soft: bool) -> Any:
        assert not soft, "Ray may put it anywhere else"
        self.placed.append(node)
        with mock.patch.object(ray_fleets, "use_one_thread"):  # this process keeps its threads
            return _Actor(self, kind(*arguments))


class _Actor:
    def __init__(self, cluster: Cluster, host: Any) -> None:
        self.cluster = cluster
        self.host = host
        self.answer = SimpleNamespace(remote=self._answer)

    def _answer(self, message: Any) -> Any:
        self.cluster.calls += 1
        if self.cluster.loses(self.cluster.calls):
            self.host = None
        return LostError() if self.host is None else _sent(self.host.answer(message))


def _sent(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        copy = value.copy()
        copy.flags.writeable = False
        return copy
    if isinstance(value, tuple):
        copies = [_sent(part) for part in value]
        return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)
    return value


class OnCluster(SimulatedProblem):
    """A problem whose fleets are actors of a made-up cluster."""

    def __init__(self, federation: Federation, parts: list[tuple[int, int]], cluster: Cluster) -> None:
        super().__init__(federation, "episodes")
        self._parts = parts
        self._cluster = cluster

    def party(self, algorithm: Any, setting: Any) -> Fleets:
        actors = Actors(self._cluster, algorithm, setting, self.known, self._parts)
        return Fleets(algorithm, setting, self.known, self._parts, actors.ask_all, ExitStack())


def run_in_fleets(
    algorithm: Any, federation: Federation, episodes: int, parts: list[tuple[int, int]], cluster: Cluster
) -> Run:
    return finished(Simulation(algorithm, OnCluster(federation, parts, cluster), episodes, 1)).result()


def at_home(algorithm: Any, federation: Federation, episodes: int, seed: int = 1) -> Run:
    return run(algorithm, federation, episodes, seed=seed, driver="episodes")


CASES: dict[str, tuple[str, dict[str, Any], Federation, int]] = {
    "sums": ("fed-ucbvi", {"nu": 40}, SAME, 150),
    "robust means": ("byzan-ucbvi", {}, SAME, 150),
    "trajectories": ("concurrent-ucbvi", {}, SAME, 30),
    "counts of the round": ("fedq-bernstein", {}, SAME, 80),
    "stages": ("fedq-advantage", {}, OWN_REWARDS, 80),
    "advantage": ("concurrent-ucb-advantage", {}, SAME, 30),
    "random ties": ("fed-ucbvi", {"ties": "random"}, SAME, 60),
    "rewards of their own": ("fed-ucbvi", {"nu": 40}, OWN_REWARDS, 150),
    "sets of actions": ("fed-kl-ucbvi", {}, SAME, 150),
    "sets of actions, rewards of their own": ("fed-kl-ucbvi", {}, OWN_REWARDS, 100),
    "sets of actions, small radius": ("fed-kl-ucbvi-fast", {}, SAME, 150),
    "steps together, rounds that grow": ("fed-kl-ucbvi", {"stationary": True, "min_round_growth": 0.3}, GRID, 200),
    "local rule": ("fed-ucbvi", {"synchronisation": "local"}, GRID, 100),
    "random rewards": ("fed-kl-ucbvi", {"min_round_growth": 0.1}, BERNOULLI, 150),
    "random rewards of their own": ("fed-ucbvi", {"nu": 40}, OWN_AMOUNTS, 100),
    "random rewards, robust means": ("byzan-ucbvi", {}, OWN_AMOUNTS, 60),
    "random rewards, counts of the round": ("fedq-bernstein", {}, BERNOULLI, 60),
}


PARTS = {
    "one fleet": [(0, 5)],
    "two fleets": [(0, 1), (1, 4)],
    "three fleets": [(0, 2), (2, 2), (4, 1)],
}


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("case", first_of(list(CASES), 5))
def test_a_run_in_fleets_is_that_of_one_process(case: str, parts: str) -> None:
    name, parameters, federation, episodes = CASES[case]
    algorithm = make_algorithm(name, parameters)
    expected = at_home(algorithm, federation, episodes)
    assert run_in_fleets(algorithm, federation, episodes, PARTS[parts], Cluster()).same_outcome(expected)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("case", first_of(list(CASES), 5))
def test_a_run_whose_fleets_are_lost_is_that_of_one_process(case: str, parts: str) -> None:
    """A tenth of all calls find a fleet lost."""
    name, parameters, federation, episodes = CASES[case]
    algorithm = make_algorithm(name, parameters)
    chance = random.Random(parts)
    cluster = Cluster(lambda call: chance.random() < 0.1)
    result = run_in_fleets(algorithm, federation, episodes, PARTS[parts], cluster)
    assert result.same_outcome(at_home(algorithm, federation, episodes))
    assert len(cluster.placed) > len(PARTS[parts]), "some fleet was started again"


@pytest.mark.parametrize("parts", PARTS)
def test_fleets_are_distributed_over_the_living_nodes_core_by_core(parts: str) -> None:
    cluster = Cluster()
    run_in_fleets(FedUCBVI(), SAME, 10, PARTS[parts], cluster)
    assert cluster.placed == ["a", "c", "a"][: len(PARTS[parts])]


@pytest.mark.parametrize("case", CASES)
def test_cases_with_a_planner_recommend_several_plans(case: str) -> None:
    """Otherwise the runs above would not compare plans in fleets."""
    name, parameters, federation, episodes = CASES[case]
    algorithm = make_algorithm(name, parameters)
    if algorithm.asks_to_plan:
        result = at_home(algorithm, federation, episodes)
        assert result.policy_kind == PLANNED
        assert len(result.recommendations["round"]) > 3


@pytest.mark.parametrize("losses", [0.0, 0.01])
def test_long_rounds_in_many_steps_give_the_run_of_one_process(
    losses: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play_ahead, "FIRST_STEPS", 1)
    monkeypatch.setattr(play_ahead, "MAX_STEPS", 60)
    algorithm = FedUCBVI(synchronisation="global")
    expected = at_home(algorithm, SAME, 2_000)
    assert expected.records["length"].max() > 100
    chance = random.Random(2)
    cluster = Cluster(lambda call: chance.random() < losses)
    assert run_in_fleets(algorithm, SAME, 2_000, [(0, 3), (3, 2)], cluster).same_outcome(expected)


def test_a_fleet_that_is_lost_several_times_in_a_row_ends_the_run() -> None:
    cluster = Cluster(lambda call: call > 40)
    with pytest.raises(InputError, match=rf"agents 0 to 1 was lost {ATTEMPTS} times in a row"):
        run_in_fleets(FedUCBVI(), SAME, 60, split_agents(5, 2), cluster)


def some_broadcast(changed: int, seed: int) -> Message:
    rng = np.random.default_rng(seed)
    integers = np.arange(6, dtype=np.int32).reshape(2, 3) % (1 + changed)
    numbers = rng.choice(np.array([0.0, -0.0, np.nan, 1.5]), size=(2, 2))
    return integers, numbers


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 2**32)), min_size=1, max_size=6))
def test_past_rounds_are_given_back_bit_for_bit(rounds: list[tuple[int, int, int]]) -> None:
    history = PastRounds()
    for changed, length, seed in rounds:
        history.add(some_broadcast(changed, seed), first=seed, length=length)
    for past, (changed, length, seed) in zip(history, rounds, strict=True):
        expected = some_broadcast(changed, seed)
        assert past.first == seed
        assert past.length == length
        assert [array.tobytes() for array in past.broadcast] == [array.tobytes() for array in expected]


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fleets": "mars"}, "unknown place of the fleets 'mars'.*local, ray"),
        ({"address": "127.0.0.1:9"}, "pass fleets='ray'"),
        ({"fleet_count": 2}, "pass fleets='ray'"),
        ({"fleets": "ray", "driver": "counts"}, "cannot play with the driver counts"),
        ({"fleets": "ray", "driver": "dice"}, "unknown driver 'dice'"),
        ({"fleets": "ray", "fleet_count": 6}, "5 agents make at most 5 fleets, not 6"),
        ({"fleets": "ray", "fleet_count": 0}, "fleet_count"),
        ({"fleets": "ray", "checkpoint": "x"}, "has no checkpoint"),
        ({"fleets": "ray", "federation": SAME.with_liars(0.2, "flip", 0)}, "agents that lie"),
        ({"fleets": "ray", "algorithm": FedQAdvantage(forced_synchronisation=False)}, "fleets stop together"),
        pytest.param(
            {"fleets": "ray", "address": "127.0.0.1:9"},
            "no Ray cluster answers at 127.0.0.1:9",
            marks=[needs_ray, pytest.mark.full],
        ),
    ],
)
def test_options_that_fleets_do_not_support_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(**{"algorithm": FedUCBVI(), "federation": SAME, "episodes": 10, **options})


def test_the_error_for_a_missing_ray_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'fed-ucbvi\[ray\]'"):
        run(FedUCBVI(), SAME, 10, fleets="ray")


# ------------------------------------------------------------------------------------------------------ on Ray itself


KILLER = """
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from fed_ucbvi.engine.simulation import Simulation

raylet, plain = int(sys.argv.pop(1)), Simulation.advance
tasks = Path(f"/proc/{raylet}/task")


def advance(simulation):
    if simulation.rounds == 20 and tasks.exists():
        workers = [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
        assert workers, "a fleet is there"
        for process in (raylet, *map(int, workers)):  # a machine that dies takes its workers along
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    plain(simulation)


Simulation.advance = advance
from fed_ucbvi.command_line import main

main()
"""
"""The program, which kills a node after twenty rounds."""


@needs_ray
@pytest.mark.full
def test_a_run_on_a_cluster_whose_node_is_killed_is_that_of_one_process(tmp_path: Path) -> None:
    """Two nodes on this machine, a fleet on each; the second node is killed in the middle of the run."""
    command = [sys.executable, "-c", KILLER]
    options = [
        "--algorithm",
        "fed-ucbvi",
        "--agents",
        "4",
        "--eps-p",
        "0.1",
        "--episodes",
        "60",
        "--seed",
        "3",
        "--json",
    ]
    output = ["--out", str(tmp_path / "run")]
    with two_nodes() as cluster:
        fleets = ["--fleets", "ray", "--address", cluster.address, "--fleet-count", "2"]
        done = subprocess.run(
            [*command, str(cluster.raylet), "run", *options, *fleets, *output],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    lost = r"the fleet of agents (0 to 1|2 to 3) was lost \(Actor(Died|Unavailable)Error\) and is made again"
    assert re.search(lost, done.stderr)
    expected = at_home(FedUCBVI(), gridworld(agents=4, eps_p=0.1), 60, seed=3)
    assert expected.rounds > 30
    assert Run.load(tmp_path / "run").same_outcome(expected)
    assert json.loads(done.stdout)["regret"] == expected.regret, "output of Ray is not in the JSON"
