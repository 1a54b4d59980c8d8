"""What a GPU brings: steps a second, whole runs, the ratio to the processors of the same machine.

    python benchmarks/gpu.py                     # the tables of docs/performance.md
    python benchmarks/gpu.py --million FILE.json # regret and rounds against M, for docs/million.png

Needs a GPU and numba-cuda. Everything is timed after compilation, on the paper's GridWorld with T = 30 000.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # type: ignore[attr-defined] # NumPy 2.5 has none, and numba-cuda 0.30 looks for it

from numba import cuda

from fed_ucbvi import Federation, FedUCBVI, Run, gridworld, run
from fed_ucbvi.algorithms.base import Budgets
from fed_ucbvi.engine.drivers.base import Driver
from fed_ucbvi.engine.simulation import Simulation

T = 30_000
ALGORITHMS = {"published": FedUCBVI(), "sharp": FedUCBVI.sharp()}
NEVER = 1 << 40
"""A budget that nobody reaches."""


@cache
def world(agents: int, eps_p: float) -> Federation:
    """Made once: with eps_p > 0 every agent has a kernel of its own, which takes a while."""
    return gridworld(agents=agents, eps_p=eps_p)


def play(algorithm: FedUCBVI, agents: int, driver: str, episodes: int = T, seed: int = 0, eps_p: float = 0.0) -> Run:
    """One run."""
    return run(algorithm, world(agents, eps_p), episodes, seed=seed, driver=driver, progress=False)


def same(one: Run, other: Run) -> bool:
    """Whether two runs have every record, both policies and V in common, to the last bit."""
    tables = [
        (getattr(one, name), getattr(other, name)) for name in ("policy", "exploring_policy", "V", "by_agent")
    ] + [(one.records[name], other.records[name]) for name in one.records]
    return all(np.array_equal(a, b, equal_nan=True) for a, b in tables)


def seconds(task: Callable[[], object], times: int = 3) -> float:
    """The least of several."""
    least = np.inf
    for _ in range(times):
        began = time.perf_counter()
        task()
        cuda.synchronize()
        least = min(least, time.perf_counter() - began)
    return least


def long_round(algorithm: FedUCBVI, agents: int, driver: str, episodes: int, eps_p: float = 0.0) -> float:
    """Steps a second in a round that nobody ends, with the policy at the end of a short run."""
    simulation = Simulation(algorithm, world(agents, eps_p), T, 0, driver)
    while simulation.played < 300:
        simulation.advance()
    policy = simulation.algorithm.broadcast(simulation.server)[0]
    shape = (1, *simulation.algorithm.counting.shape(10, 8, 4))
    never = Budgets(np.full(shape, NEVER), np.ones(shape[1:], dtype=np.int8))
    collector: Driver = simulation.driver
    took = seconds(lambda: collector.collect(policy, never, 1000, episodes))
    return agents * episodes * 10 / took


def tables() -> None:
    """What docs/performance.md has."""
    print(f"{cuda.get_current_device().name.decode()}")
    for name, algorithm in ALGORITHMS.items():
        play(algorithm, 1000, "cuda", 100)
        play(algorithm, 1000, "episodes", 100)
        gpu, cpu = (play(algorithm, 1000, driver) for driver in ("cuda", "episodes"))
        print(f"{name}: M = 1,000, T = {T:,}: the same in every record: {same(gpu, cpu)}; {gpu.rounds:,} rounds")
    print("\nlong rounds, billion steps a second")
    for name, algorithm in ALGORITHMS.items():
        for eps_p in (0.0, 0.1):
            speeds = [
                f"M = {M:,}: {long_round(algorithm, M, 'cuda', episodes, eps_p) / 1e9:.1f}"
                for M, episodes in ((10_000, 10_000), (100_000, 10_000), (1_000_000, 2_000))
                if eps_p == 0.0 or M <= 100_000
            ]
            print(f"  {name}, eps_p = {eps_p}: {', '.join(speeds)}")
        print(f"  {name}, processors: {long_round(algorithm, 10_000, 'episodes', 200) / 1e9:.2f}")
    print("\nwhole runs")
    for name, algorithm in ALGORITHMS.items():
        for M in (10_000, 100_000, 1_000_000):
            result = play(algorithm, M, "cuda")
            short = result.records["length"] <= 1
            print(
                f"  {name}, M = {M:,}: {result.wall_seconds:.2f} s, {result.rounds:,} rounds ({short.sum():,} of one "
                f"episode), regret {result.common_regret:.1f}, {M * T * 10 / result.wall_seconds / 1e9:.1f} billion "
                "steps a second",
                flush=True,
            )
            if M == 10_000:
                cpu = play(algorithm, M, "episodes")
                ratio = cpu.wall_seconds / result.wall_seconds
                print(
                    f"    processors: {cpu.wall_seconds:.2f} s, {ratio:.1f} times as long; same: {same(result, cpu)}"
                )
    result = play(ALGORITHMS["published"], 10_000, "cuda", eps_p=0.1)
    print(f"  published, M = 10,000, eps_p = 0.1: {result.wall_seconds:.2f} s, {result.rounds:,} rounds")
    print("\na round of one episode, milliseconds")
    for name, algorithm in ALGORITHMS.items():
        for M in (10_000, 1_000_000):
            print(f"  {name}, M = {M:,}: {1e3 * 10 * M / long_round(algorithm, M, 'cuda', 1):.3f}")


def million(path: Path, seeds: int) -> None:
    """Regret and rounds against M."""
    rows = []
    for name, algorithm in ALGORITHMS.items():
        for M in [10**k for k in range(7)]:
            for seed in range(seeds):
                result = play(algorithm, M, "cuda", seed=seed)
                rows.append([name, M, seed, result.common_regret, result.rounds, round(result.wall_seconds, 3)])
                print(*rows[-1], flush=True)
    about = {"environment": "gridworld", "episodes": T, "device": cuda.get_current_device().name.decode()}
    columns = ["algorithm", "agents", "seed", "regret", "rounds", "seconds"]
    path.write_text(json.dumps({**about, "columns": columns, "rows": rows}, indent=1) + "\n")


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--million", type=Path, metavar="FILE", help="write regret and rounds against M")
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    if given.million is None:
        tables()
    else:
        million(given.million, given.seeds)


if __name__ == "__main__":
    main()
