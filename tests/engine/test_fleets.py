"""A run whose agents are in fleets elsewhere is the run of one process, bit for bit, also if fleets are lost."""

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
from fed_ucbvi.engine import party, ray_fleets
from fed_ucbvi.engine.party import split_agents
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
"""What is paid, if it is paid, is 1: agents are counted in one table."""
OWN_AMOUNTS = replace(OWN_REWARDS, reward_variances=0.5 * OWN_REWARDS.rewards * (1 - OWN_REWARDS.rewards))
"""What is paid differs from agent to agent: only those who are alone in a fleet are."""


class LostError(Exception):
    """An actor has gone with its node."""


class Cluster:
    """Ray's part in a run, in this process: actors, calls in order, and losses at calls that ``loses`` names.

    As on Ray, arguments and answers are copies, and arrays that come to an actor cannot be written to.
    """

    def __init__(self, loses: Callable[[int], bool] = lambda call: False) -> None:
        names = "RayActorError", "ActorUnschedulableError", "ObjectLostError", "WorkerCrashedError", "RayError"
        self.exceptions = SimpleNamespace(**dict.fromkeys(names, LostError))
        self.loses = loses
        self.calls = 0
        self.placed: list[str] = []
        """The nodes that actors were given, in order."""
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
        self.util = SimpleNamespace(scheduling_strategies=strategies)

    def nodes(self) -> list[dict[str, Any]]:
        """Two that live, with two cores and with none to lend, and one that does not."""
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
    "uniform weights": ("fed-ucbvi", {"aggregation": "uniform"}, OWN_REWARDS, 60),
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


@pytest.mark.parametrize("case", first_of(list(CASES), 5))
def test_every_algorithm_gives_the_run_of_one_process_in_fleets_of_any_size_of_which_any_may_be_lost(
    case: str,
) -> None:
    name, parameters, federation, episodes = CASES[case]
    algorithm = make_algorithm(name, parameters)
    expected = at_home(algorithm, federation, episodes)
    if algorithm.asks_to_plan:
        assert expected.policy_kind == PLANNED
        assert len(expected.recommendations["round"]) > 3
    for seed, parts in enumerate(([(0, 5)], [(0, 1), (1, 4)], [(0, 2), (2, 2), (4, 1)])):
        quiet = Cluster()
        assert run_in_fleets(algorithm, federation, episodes, parts, quiet).same_outcome(expected)
        assert quiet.placed == ["a", "c", "a"][: len(parts)], "dealt out over the nodes that live, core by core"
        chance = random.Random(seed)
        shaky = Cluster(lambda call, chance=chance: chance.random() < 0.03)  # type: ignore[misc]
        assert run_in_fleets(algorithm, federation, episodes, parts, shaky).same_outcome(expected)
        assert len(shaky.placed) > len(parts)


def test_long_rounds_are_played_in_growing_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party, "FIRST_STEPS", 1)
    monkeypatch.setattr(party, "MAX_STEPS", 60)
    algorithm = FedUCBVI(synchronisation="global")
    expected = at_home(algorithm, SAME, 2_000)
    assert expected.records["length"].max() > 100
    chance = random.Random(2)
    parts = [(0, 3), (3, 2)]
    for cluster in (Cluster(), Cluster(lambda _: chance.random() < 0.01)):
        assert run_in_fleets(algorithm, SAME, 2_000, parts, cluster).same_outcome(expected)


def test_a_fleet_that_is_lost_again_and_again_ends_the_run_by_its_agents() -> None:
    cluster = Cluster(lambda call: call > 40)
    with pytest.raises(InputError, match=rf"agents 0 to 1 was lost {ATTEMPTS} times in a row"):
        run_in_fleets(FedUCBVI(), SAME, 60, split_agents(5, 2), cluster)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 2**32)), min_size=1, max_size=6))
def test_a_history_gives_back_its_rounds(rounds: list[tuple[int, int, int]]) -> None:
    def broadcast(changed: int, seed: int) -> Message:
        rng = np.random.default_rng(seed)
        values = np.array([0.0, -0.0, np.nan, 1.5])
        return np.arange(6, dtype=np.int32).reshape(2, 3) % (1 + changed), rng.choice(values, size=(2, 2))

    history = PastRounds()
    expected = []
    for changed, length, seed in rounds:
        expected.append((broadcast(changed, seed), seed, length))
        history.add(*expected[-1])
    for (found, first, length), (arrays, *numbers) in zip(history, expected, strict=True):
        assert [first, length] == numbers
        assert [array.tobytes() for array in found] == [array.tobytes() for array in arrays]


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
def test_what_fleets_cannot_do_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(**{"algorithm": FedUCBVI(), "federation": SAME, "episodes": 10, **options})


def test_a_missing_ray_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_run_on_a_cluster_goes_on_when_a_node_is_killed_and_gives_the_same_bits(tmp_path: Path) -> None:
    """Two nodes on this machine, a fleet on each; the second node is killed in the middle of the run."""
    arguments = ("--agents", "4", "--eps-p", "0.1", "--episodes", "60", "--seed", "3", "--json")
    with two_nodes() as cluster:
        done = subprocess.run(
            (
                sys.executable,
                "-c",
                KILLER,
                str(cluster.raylet),
                "run",
                *arguments,
                "--fleets",
                "ray",
                "--address",
                cluster.address,
                "--fleet-count",
                "2",
                "--out",
                str(tmp_path / "run"),
            ),
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    lost = r"the fleet of agents (0 to 1|2 to 3) was lost \(Actor(Died|Unavailable)Error\) and is made again"
    assert re.search(lost, done.stderr), "whichever was there, and whatever Ray knew of it by then"
    expected = at_home(FedUCBVI(), gridworld(agents=4, eps_p=0.1), 60, seed=3)
    assert expected.rounds > 30
    assert Run.load(tmp_path / "run").same_outcome(expected)
    assert json.loads(done.stdout)["regret"] == expected.regret, "what Ray says is not in the JSON"
