"""Sizes before memory: what is needed is known before it is built, and too much is refused in one sentence."""

from __future__ import annotations

import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from commands import refusal
from fed_ucbvi import FedKLUCBVI, InputError, Sweep, run
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.algorithms.base import FleetTables, Setting, VisitedCells
from fed_ucbvi.algorithms.state_memory import agents_bytes, array_bytes, server_bytes
from fed_ucbvi.core import memory
from fed_ucbvi.core.memory import ProblemSize, available_memory, check_memory
from fed_ucbvi.environments import ENVIRONMENTS, family, make_environment
from fed_ucbvi.environments.gridworlds import gridworld

HUGE: dict[str, dict[str, Any]] = {
    "gridworld": {"rows": 99999999999999999999},
    "n_room": {"rooms": 99999999},
    "windy_cliff": {"columns": 10**9},
    "deep_sea": {"size": 10**6},
    "riverswim": {"states": 10**10},
    "chain": {"length": 10**10},
    "hard_instance": {"depth": 10**9, "horizon": 3 * 10**9},
    "synthetic": {"states": 10**5},
    "garnet": {"states": 10**9, "branching": 10**3},
    "random_mdps": {"states": 10**6},
    "from_gymnasium": {"agents": 10**12, "horizon": 20},
    "six_arms": {"agents": 10**12},
    "two_state_chain": {"agents": 10**12},
}
"""Options that nobody has the memory for; icu_sepsis has one size, and needs a package."""
MODERATE: dict[str, dict[str, Any]] = {
    "gridworld": {"rows": 30, "columns": 30},
    "n_room": {"rooms": 20, "spread": 0.2},
    "windy_cliff": {"rows": 30, "columns": 30},
    "deep_sea": {"size": 30},
    "riverswim": {"states": 2000},
    "chain": {"length": 2000},
    "hard_instance": {"depth": 6, "horizon": 40},
    "synthetic": {"states": 30, "horizon": 10},
    "garnet": {"states": 500, "eps_p": 0.1},
    "random_mdps": {"states": 100},
}
FAKE = 100_000_000
FACTOR = 2.5
"""Largest factor between predicted and used memory, in either direction."""


def test_every_environment_is_tried() -> None:
    assert {*HUGE, "icu_sepsis"} == {*ENVIRONMENTS}


@pytest.mark.parametrize("name", HUGE)
def test_environment_too_large_for_memory_is_refused_before_it_is_built(
    name: str,
) -> None:
    with pytest.raises(InputError, match=r"of memory, and .* are available"):
        make_environment(name, **HUGE[name])


@pytest.mark.parametrize("name", MODERATE)
def test_memory_said_of_an_environment_is_about_what_it_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    predictions: list[int] = []

    def keep(_: str, size: ProblemSize, agents: int, horizon: int, *, alike: bool) -> None:
        predictions.append(size.bytes(agents, alike=alike))

    monkeypatch.setattr(family, "check_problem", keep)
    tracemalloc.start()
    try:
        make_environment(name, agents=20, **MODERATE[name])
        _, taken = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / FACTOR < predictions[0] < taken * FACTOR


@pytest.mark.parametrize("name", ALGORITHMS)
def test_predicted_memory_is_the_size_of_the_arrays(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    agents = 1 if algorithm.single_agent else 5
    setting = Setting(states=40, actions=4, horizon=12, agents=agents, episodes=500, eps_p=0.0, seed=0)
    assert server_bytes(algorithm, setting) == array_bytes(algorithm.new_server(setting))
    world = gridworld(agents=agents, rows=8, columns=5, horizon=12)
    tables = FleetTables(agents, world.successors, world.rewards)
    shape = algorithm.counting.shape(12, 40, 4)
    pooled = algorithm.grid(setting) is not None
    touched = VisitedCells.empty(agents, shape) if pooled else None
    made = algorithm.new_agents(setting, tables._replace(touched=touched))
    taken = array_bytes(made) - array_bytes(tables._replace(touched=touched))
    assert agents_bytes(algorithm, setting, tables, pooled=pooled) == taken


def test_run_with_too_many_agents_is_refused_before_their_tables_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = gridworld(agents=1_000_000)
    monkeypatch.setattr(memory, "available_memory", lambda: FAKE)
    with pytest.raises(
        InputError,
        match=r"1,000,000 agents .*needs .* of memory, and 100 MB are available",
    ):
        run(FedKLUCBVI(), world, 10, progress=False)


def test_run_on_a_long_horizon_is_refused_before_the_server_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = gridworld(agents=2, horizon=50_000)
    monkeypatch.setattr(memory, "available_memory", lambda: FAKE)
    with pytest.raises(
        InputError,
        match="A run of fed-kl-ucbvi with S = 8, A = 4, H = 50,000 and 2 agents needs",
    ):
        run(FedKLUCBVI(), world, 10, progress=False)


def test_sweep_of_too_many_runs_is_refused() -> None:
    grid = {
        "algorithms": ["fed-ucbvi"],
        "environments": ["gridworld"],
        "episodes": [30],
        "seeds": 10**12,
    }
    with pytest.raises(InputError, match=r"A sweep of 1,000,000,000,000 seeds needs .* of memory"):
        Sweep(name="endless", grids=[grid])


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--env-option", "rows=99999999999999999999"),
        ("run", "--agents", "1e12", "--episodes", "10"),
        ("run", "--agents", "1e10", "--episodes", "10"),
        ("run", "--env-option", "horizon=1e10"),
        ("run", "--env", "n_room", "--env-option", "rooms=99999999"),
        ("inspect", "--agents", "1e11"),
        ("plan", "--env", "riverswim", "--env-option", "states=1e11"),
        ("federate", "--nodes", "1e9"),
        (
            "serve",
            "--insecure",
            "--listen",
            "127.0.0.1:0",
            "--sizes",
            "1000000,1000000,1000",
            "--agents",
            "2",
        ),
    ],
)
def test_command_with_sizes_beyond_memory_says_so(words: tuple[str, ...], tmp_path: Path) -> None:
    assert "of memory, and" in refusal(*words)


def test_memory_of_a_process_with_a_limit_is_what_the_limit_leaves() -> None:
    code = "from fed_ucbvi.core.memory import available_memory; print(available_memory())"
    limit = 2**30

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    words = [sys.executable, "-c", code]
    left = int(subprocess.run(words, preexec_fn=limited, capture_output=True, text=True, check=True).stdout)
    assert 0 < left < min(limit, available_memory() + limit)


def test_group_with_a_limit_leaves_what_it_does_not_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (
        ("memory.max", "1000"),
        ("memory.current", "700"),
        ("memory.stat", "inactive_file 100\n"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    monkeypatch.setattr(memory, "group_lines", lambda: ["0::/"])
    assert available_memory() == 400


def test_what_is_needed_is_compared_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: FAKE)
    check_memory("A table", FAKE, "Use less.")
    with pytest.raises(
        InputError,
        match=r"^A table needs 200 MB of memory, and 100 MB are available\. Use less\.$",
    ):
        check_memory("A table", 2 * FAKE, "Use less.")


def test_problem_too_large_says_that_its_agents_differ() -> None:
    with pytest.raises(InputError, match=r"1,000,000,000 agents that differ needs 7\.26 TB of memory"):
        make_environment("gridworld", agents=10**9, eps_p=0.1)
