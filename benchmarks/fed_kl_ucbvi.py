"""Fed-KL-UCBVI beside the published algorithm: the tables of docs/kl.md.

    python benchmarks/fed_kl_ucbvi.py regret      # regret and rounds on nine environments
    python benchmarks/fed_kl_ucbvi.py agents      # GridWorld against the number of agents
    python benchmarks/fed_kl_ucbvi.py rounds      # regret and rounds with longer rounds
    python benchmarks/fed_kl_ucbvi.py seeds       # the worst of a thousand seeds, T = 3,000,000
    python benchmarks/fed_kl_ucbvi.py speed       # seconds, side by side

Every table is printed as Markdown: mean, median and worst seed of the regret, and the mean number of rounds.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from fed_ucbvi import run
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.environments import make_environment

PUBLISHED, KL, FAST = "fed-ucbvi", "fed-kl-ucbvi", "fed-kl-ucbvi-fast"
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "published": (PUBLISHED, {}),
    "KL": (KL, {}),
    "KL fast": (FAST, {}),
    "KL, stationary": (KL, {"stationary": True}),
    "KL fast, stationary": (FAST, {"stationary": True}),
}
BY_STEP = ("synthetic", "hard_instance")
"""Environments that depend on the step, where counts over all steps together are not possible."""
CASES = (
    ("gridworld", 20, 30_000),
    ("synthetic", 20, 3_000),
    ("garnet", 5, 3_000),
    ("riverswim", 20, 3_000),
    ("chain", 20, 3_000),
    ("six_arms", 20, 3_000),
    ("hard_instance", 20, 3_000),
    ("deep_sea", 20, 2_000),
)


class Task(NamedTuple):
    """One run."""

    environment: str
    agents: int
    episodes: int
    algorithm: str
    parameters: dict[str, object]
    seed: int


def outcome(task: Task) -> tuple[float, int]:
    """Its regret and its rounds."""
    world = make_environment(task.environment, agents=task.agents, seed=0)
    result = run(
        make_algorithm(task.algorithm, task.parameters), world, task.episodes, seed=task.seed, progress=False
    )
    return float(result.regret), result.rounds


def row(pool: ProcessPoolExecutor, name: str, task: Task, seeds: Iterable[int]) -> None:
    """Print a line of a table."""
    tasks = [task._replace(seed=seed) for seed in seeds]
    found = np.array(list(pool.map(outcome, tasks, chunksize=max(1, len(tasks) // 16))))
    regret, rounds = found[:, 0], found[:, 1].mean()
    median, worst = float(np.median(regret)), float(regret.max())
    bad = int((regret > 10 * median).sum())
    figures = f"{regret.mean():,.4g} | {median:,.4g} | {worst:,.4g} | {worst / median:.2f} | {bad} | {rounds:,.0f}"
    print(
        f"| {task.environment} | {task.agents} | {task.episodes:,} | {name} | {len(tasks)} | {figures} |", flush=True
    )


def header() -> None:
    """Print the head of a table."""
    columns = (
        "environment | M | T | variant | seeds | mean | median | worst | worst/median | above 10 medians | rounds"
    )
    print(f"| {columns} |\n|{'---|' * (columns.count('|') + 1)}", flush=True)


def variants(environment: str, names: Sequence[str] = tuple(VARIANTS)) -> list[str]:
    """The variants that an environment allows."""
    return [name for name in names if not (environment in BY_STEP and "stationary" in name)]


def table(which: str, seeds: int) -> None:
    """Print one of the tables."""
    header()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        if which == "regret":
            for environment, M, T in CASES:
                for name in variants(environment):
                    algorithm, parameters = VARIANTS[name]
                    row(pool, name, Task(environment, M, T, algorithm, parameters, 0), range(seeds))
        elif which == "agents":
            for name, (algorithm, parameters) in VARIANTS.items():
                for M in (1, 5, 20, 100, 500):
                    some = range(seeds if M <= 20 else max(1, seeds // 4))
                    row(pool, name, Task("gridworld", M, 30_000, algorithm, parameters, 0), some)
        elif which == "rounds":
            for M, stationary in ((500, True), (100, True), (20, True), (500, False), (20, False)):
                for rho in (0.0, 0.01, 0.03, 0.1, 0.3):
                    options: dict[str, object] = {"stationary": stationary, "min_round_growth": rho}
                    name = f"{'stationary' if stationary else 'by step'}, growth {rho:g}"
                    row(pool, name, Task("gridworld", M, 30_000, KL, options, 0), range(seeds))
        else:
            for environment, M in (
                ("synthetic", 20),
                ("hard_instance", 20),
                ("gridworld", 20),
                ("six_arms", 5),
                ("six_arms", 20),
            ):
                for name in variants(environment, ("KL", "KL fast", "KL fast, stationary")):
                    algorithm, parameters = VARIANTS[name]
                    row(pool, name, Task(environment, M, 3_000_000, algorithm, parameters, 0), range(seeds))


def speed() -> None:
    """Print seconds of one run each, the best of five in turn."""
    cases = {
        "GridWorld, M = 20, T = 30,000": (make_environment("gridworld", agents=20, seed=0), 30_000),
        "GridWorld, M = 2,000, T = 30,000": (make_environment("gridworld", agents=2_000, seed=0), 30_000),
        "50 x 50 grid, H = 100, M = 20, T = 10,000": (
            make_environment("gridworld", agents=20, seed=0, rows=50, columns=50, horizon=100),
            10_000,
        ),
    }
    print("| case | variant | seconds | rounds | microseconds a round |\n|---|---|---|---|---|")
    for case, (world, T) in cases.items():
        best: dict[str, tuple[float, int]] = {}
        for _ in range(5 if "50" not in case else 1):
            for name, (algorithm, parameters) in VARIANTS.items():
                began = time.perf_counter()
                result = run(make_algorithm(algorithm, parameters), world, T, seed=0, progress=False)
                spent = time.perf_counter() - began
                best[name] = min(best.get(name, (math.inf, 0)), (spent, result.rounds))
        for name, (seconds, rounds) in best.items():
            print(f"| {case} | {name} | {seconds:.3g} | {rounds:,} | {1e6 * seconds / rounds:,.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("regret", "agents", "rounds", "seeds", "speed"))
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    if given.table == "speed":
        speed()
    else:
        table(given.table, given.seeds)
