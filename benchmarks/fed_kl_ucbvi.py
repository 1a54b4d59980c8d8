"""Fed-KL-UCBVI beside the published algorithm: the tables of docs/kl.md.

    python benchmarks/fed_kl_ucbvi.py regret      # regret and rounds on eight environments
    python benchmarks/fed_kl_ucbvi.py random      # the same with random rewards, and a lock
    python benchmarks/fed_kl_ucbvi.py agents      # GridWorld against the number of agents
    python benchmarks/fed_kl_ucbvi.py rounds      # regret and rounds with longer rounds
    python benchmarks/fed_kl_ucbvi.py seeds       # the worst of a thousand seeds, T = 3,000,000
    python benchmarks/fed_kl_ucbvi.py speed       # seconds, side by side

Every table is printed as Markdown: mean, median and worst seed of the regret, and the mean number of rounds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from fed_ucbvi import MDP, Federation, run
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.environments import make_environment
from measuring import print_head, print_row, read_options

PUBLISHED = "fed-ucbvi"
KL = "fed-kl-ucbvi"
FAST = "fed-kl-ucbvi-fast"
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


LOCK = "lock"
RANDOM_CASES = (
    ("gridworld", 20, 3_000),
    ("synthetic", 20, 3_000),
    ("garnet", 5, 3_000),
    ("riverswim", 20, 3_000),
    ("deep_sea", 20, 2_000),
    (LOCK, 20, 3_000),
)


class Task(NamedTuple):
    """Runs of an algorithm, called ``name`` in the table, with so many seeds."""

    environment: str
    agents: int
    episodes: int
    name: str
    algorithm: str
    parameters: dict[str, object]
    seeds: int
    random_rewards: bool = False


def lock(agents: int) -> Federation:
    """A combination lock: 5 positions with one right action each of 4; a wrong action ends in a trap.

    The trap pays 0.1 per step, and the right action at the last position 1, both as Bernoulli rewards.
    """
    positions = 5
    actions = 4
    trap = positions
    kernel = np.zeros((positions + 1, actions, positions + 1))
    rewards = np.zeros((positions + 1, actions))
    right = np.random.default_rng(0).integers(actions, size=positions)
    kernel[:, :, trap] = 1.0
    for position in range(positions - 1):
        kernel[position, right[position]] = np.eye(positions + 1)[position + 1]
    rewards[positions - 1, right[positions - 1]] = 1.0
    rewards[trap] = 0.1
    mdp = MDP(kernel, rewards, initial=0, horizon=positions)
    return Federation.from_mdps([mdp] * agents).with_bernoulli_rewards()


def world_of(task: Task) -> Federation:
    if task.environment == LOCK:
        return lock(task.agents)
    world = make_environment(task.environment, agents=task.agents, seed=0)
    return world.with_bernoulli_rewards() if task.random_rewards else world


def outcome(task: Task, seed: int) -> tuple[float, int]:
    """The regret and the rounds of one seed."""
    world = world_of(task)
    algorithm = make_algorithm(task.algorithm, task.parameters)
    result = run(algorithm, world, task.episodes, seed=seed, progress=False)
    return float(result.regret), result.rounds


def variants(environment: str, names: Iterable[str] = VARIANTS) -> Iterator[tuple[str, str, dict[str, object]]]:
    """The variants that an environment allows."""
    for name in names:
        if not (environment in BY_STEP and "stationary" in name):
            yield name, *VARIANTS[name]


def tasks(which: str, seeds: int) -> Iterator[Task]:
    if which == "regret":
        for environment, M, T in CASES:
            yield from (Task(environment, M, T, *variant, seeds) for variant in variants(environment))
    elif which == "random":
        for environment, M, T in RANDOM_CASES:
            for variant in variants(environment):
                yield Task(environment, M, T, *variant, seeds, random_rewards=True)
    elif which == "agents":
        for variant in variants("gridworld"):
            for M in (1, 5, 20, 100, 500):
                yield Task("gridworld", M, 30_000, *variant, seeds if M <= 20 else max(1, seeds // 4))
    elif which == "rounds":
        for M, stationary in ((500, True), (100, True), (20, True), (500, False), (20, False)):
            for rho in (0.0, 0.01, 0.03, 0.1, 0.3):
                name = f"{'stationary' if stationary else 'by step'}, growth {rho:g}"
                yield Task(
                    "gridworld", M, 30_000, name, KL, {"stationary": stationary, "min_round_growth": rho}, seeds
                )
    else:
        for environment, M in (
            ("synthetic", 20),
            ("hard_instance", 20),
            ("gridworld", 20),
            ("six_arms", 5),
            ("six_arms", 20),
        ):
            for variant in variants(environment, ("KL", "KL fast", "KL fast, stationary")):
                yield Task(environment, M, 3_000_000, *variant, seeds)


def table(which: str, seeds: int) -> None:
    shown = ("environment", "M", "T", "variant", "seeds", "mean", "median", "worst", "worst/median")
    print_head(*shown, "above 10 medians", "rounds")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for task in tasks(which, seeds):
            chunk = max(1, task.seeds // 16)
            found = np.array(list(pool.map(partial(outcome, task), range(task.seeds), chunksize=chunk)))
            regret = found[:, 0]
            rounds = found[:, 1].mean()
            median = float(np.median(regret))
            worst = float(regret.max())
            figures = [f"{value:,.4g}" for value in (regret.mean(), median, worst)]
            figures += [f"{worst / median:.2f}", str((regret > 10 * median).sum()), f"{rounds:,.0f}"]
            print_row(task.environment, task.agents, f"{task.episodes:,}", task.name, task.seeds, *figures)


def speed() -> None:
    """Print seconds of one run each, the best of five in turn."""
    large = make_environment("gridworld", agents=20, seed=0, rows=50, columns=50, horizon=100)
    cases = {
        "GridWorld, M = 20, T = 30,000": (make_environment("gridworld", agents=20, seed=0), 30_000, 5),
        "GridWorld, M = 2,000, T = 30,000": (make_environment("gridworld", agents=2_000, seed=0), 30_000, 5),
        "50 x 50 grid, H = 100, M = 20, T = 10,000": (large, 10_000, 1),
    }
    print_head("case", "variant", "seconds", "rounds", "microseconds a round")
    for case, (world, T, times) in cases.items():
        best: dict[str, tuple[float, int]] = {}
        for _ in range(times):
            for name, (algorithm, parameters) in VARIANTS.items():
                result = run(make_algorithm(algorithm, parameters), world, T, seed=0, progress=False)
                best[name] = min(best.get(name, (math.inf, 0)), (result.wall_seconds, result.rounds))
        for name, (seconds, rounds) in best.items():
            print_row(case, name, f"{seconds:.3g}", f"{rounds:,}", f"{1e6 * seconds / rounds:,.0f}")


if __name__ == "__main__":
    options = read_options(__doc__, ("regret", "random", "agents", "rounds", "seeds", "speed"), seeds=20)
    if options.what == "speed":
        speed()
    else:
        table(options.what, options.seeds)
