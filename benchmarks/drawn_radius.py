"""Regret with a drawn radius beside the certain radius and the published algorithm, seed by seed in one run.

    python benchmarks/drawn_radius.py                      # all settings, 20 seeds each
    python benchmarks/drawn_radius.py --seeds 5 riverswim  # some of them

A row has mean, median and worst regret of each algorithm, the mean number of rounds, and the processor time of a run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fed_ucbvi import (
    Federation,
    FedKLUCBVI,
    FedUCBVI,
    chain,
    deep_sea,
    garnet,
    gridworld,
    hard_instance,
    riverswim,
    run,
    six_arms,
    synthetic,
)


@dataclass(frozen=True)
class Task:
    """A setting in which algorithms are compared.

    Args:
        make: makes the federation of a seed.
        episodes: episodes per agent.
        stationary: True if visits are counted over all steps together.
    """

    make: Callable[[int], Federation]
    episodes: int
    stationary: bool = False


TASKS: dict[str, Task] = {
    "gridworld M=20": Task(lambda seed: gridworld(agents=20), 30_000),
    "gridworld M=20, eps_p=0.1": Task(lambda seed: gridworld(agents=20, eps_p=0.1, seed=seed), 30_000),
    "gridworld M=20, eps_p=0.32": Task(lambda seed: gridworld(agents=20, eps_p=0.32, seed=seed), 30_000),
    "gridworld M=5": Task(lambda seed: gridworld(agents=5), 30_000),
    "gridworld M=100, T=3000": Task(lambda seed: gridworld(agents=100), 3_000),
    "gridworld M=1": Task(lambda seed: gridworld(agents=1), 30_000),
    "synthetic M=20": Task(lambda seed: synthetic(agents=20), 3_000),
    "garnet M=5": Task(lambda seed: garnet(agents=5), 3_000),
    "riverswim M=20": Task(lambda seed: riverswim(agents=20), 3_000),
    "riverswim M=1": Task(lambda seed: riverswim(agents=1), 3_000),
    "sixarms M=20": Task(lambda seed: six_arms(agents=20), 3_000),
    "deepsea M=20": Task(lambda seed: deep_sea(agents=20), 3_000),
    "chain M=20": Task(lambda seed: chain(agents=20), 3_000),
    "hard M=20": Task(lambda seed: hard_instance(agents=20), 3_000),
    "hard M=1": Task(lambda seed: hard_instance(agents=1), 3_000),
    "stationary gridworld M=20": Task(lambda seed: gridworld(agents=20), 30_000, stationary=True),
    "stationary sixarms M=20": Task(lambda seed: six_arms(agents=20), 3_000, stationary=True),
    "stationary riverswim M=20": Task(lambda seed: riverswim(agents=20), 3_000, stationary=True),
    "stationary garnet M=5": Task(lambda seed: garnet(agents=5), 3_000, stationary=True),
}


def algorithms(task: Task) -> dict[str, Any]:
    """The algorithms that are compared; the published one counts by step only."""
    compared: dict[str, Any] = {} if task.stationary else {"published": FedUCBVI()}
    compared["certain"] = FedKLUCBVI(stationary=task.stationary)
    compared["drawn"] = FedKLUCBVI(stationary=task.stationary, optimism="drawn")
    return compared


def compare(name: str, seeds: int) -> None:
    """Print a row for each algorithm."""
    task = TASKS[name]
    for label, algorithm in algorithms(task).items():
        began = time.process_time()
        runs = [run(algorithm, task.make(seed), task.episodes, seed=seed, progress=False) for seed in range(seeds)]
        seconds = (time.process_time() - began) / seeds
        regrets = [one.regret for one in runs]
        rounds = statistics.mean(one.rounds for one in runs)
        print(
            f"{name:28} {label:10} mean {statistics.mean(regrets):9.2f}  median {statistics.median(regrets):9.2f}  "
            f"worst {max(regrets):9.2f}  rounds {rounds:7.0f}  {seconds:6.2f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Regret with a drawn radius.")
    parser.add_argument("tasks", nargs="*", help="parts of the names of settings; by default all")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of each setting")
    options = parser.parse_args()
    for name in TASKS:
        if not options.tasks or any(part in name for part in options.tasks):
            compare(name, options.seeds)


if __name__ == "__main__":
    main()
