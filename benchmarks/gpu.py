"""Gains of a GPU: steps per second, whole runs, the ratio to the processors of the same machine.

    python benchmarks/gpu.py              # the tables of docs/performance.md
    python benchmarks/gpu.py --million 3  # regret and rounds against M with three seeds, to benchmarks/million.json
    python benchmarks/gpu.py --draw       # docs/million.png from that file

Measuring needs a GPU and numba-cuda. Everything is timed after compilation, on the paper's GridWorld with T = 30 000.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

if not hasattr(np, "row_stack"):
    vars(np)["row_stack"] = np.vstack  # NumPy 2.5 has none, and numba-cuda 0.30 looks for it

from numba import cuda

from fed_ucbvi import Federation, FedKLUCBVI, FedUCBVI, Run, gridworld, run
from fed_ucbvi.algorithms.base import Algorithm, Budgets
from fed_ucbvi.charts.axes import draw_curve, set_scales, set_texts
from fed_ucbvi.charts.figures import figure_legend, figure_style, new_panels, set_heading
from fed_ucbvi.core.colours import BLUE, GREEN, VERMILLION
from fed_ucbvi.engine.drivers.base import Driver, collect
from fed_ucbvi.engine.simulation import Simulation
from measuring import least_seconds, read_options

T = 30_000
ALGORITHMS: dict[str, Algorithm[Any, Any]] = {
    "published": FedUCBVI(),
    "KL": FedKLUCBVI(),
    "KL, stationary": FedKLUCBVI(stationary=True),
}
COLOURS = {"published": BLUE, "KL": VERMILLION, "KL, stationary": GREEN}
NEVER = 1 << 40
"""A budget that no agent reaches."""
LONG_ROUNDS = ((10_000, 10_000, 0.0), (100_000, 10_000, 0.0), (1_000_000, 2_000, 0.0), (100_000, 10_000, 0.1))
"""M, episodes and eps_p."""
FIGURES = Path(__file__).parent / "million.json"
PICTURE = Path(__file__).parent.parent / "docs" / "million.png"


@cache
def world(agents: int, eps_p: float) -> Federation:
    """The federation of a case, made once: with eps_p > 0 every agent has its own kernel, which takes a while."""
    return gridworld(agents=agents, eps_p=eps_p)


def play(
    algorithm: Algorithm[Any, Any], agents: int, driver: str, episodes: int = T, seed: int = 0, eps_p: float = 0.0
) -> Run:
    return run(algorithm, world(agents, eps_p), episodes, seed=seed, driver=driver, progress=False)


def same(one: Run, other: Run) -> bool:
    """Return True if two runs agree in everything but the driver, to the last bit."""
    return replace(one, about=other.about).same_outcome(other)


def seconds(task: Callable[[], object]) -> float:
    """The shortest of three times."""

    def finished() -> None:
        task()
        cuda.synchronize()

    return least_seconds(finished, 3, time.perf_counter)


def long_round(algorithm: Algorithm[Any, Any], agents: int, driver: str, episodes: int, eps_p: float = 0.0) -> float:
    """Steps per second in a round that no agent ends, with the policy at the end of a short run."""
    simulation = Simulation(algorithm, world(agents, eps_p), T, 0, driver)
    while simulation.played < 300:
        simulation.advance()
    policy = simulation.algorithm.broadcast(simulation.server)[0]
    shape = (1, *simulation.algorithm.counting.shape(10, 8, 4))
    never = Budgets(np.full(shape, NEVER), np.ones(shape[1:], dtype=np.int8))
    collector: Driver = simulation.driver
    took = seconds(lambda: collect(collector, policy, never, 1000, episodes))
    return agents * episodes * 10 / took


def tables() -> None:
    """The tables of docs/performance.md; first the GPU, because threads that have just played slow its host down."""
    print(cuda.get_current_device().name)
    print("\nwhole runs")
    gpu = {}
    for name, algorithm in ALGORITHMS.items():
        play(algorithm, 1000, "cuda", 100)  # compile
        for M in (1_000, 10_000, 100_000, 1_000_000):
            gpu[name, M] = result = play(algorithm, M, "cuda")
            short = int((result.records["length"] <= 1).sum())
            print(
                f"  {name}, M = {M:,}: {result.wall_seconds:.2f} s, {result.rounds:,} rounds ({short:,} of one "
                f"episode), regret {result.regret:.1f}",
                flush=True,
            )
    result = play(ALGORITHMS["published"], 10_000, "cuda", eps_p=0.1)
    print(f"  published, M = 10,000, eps_p = 0.1: {result.wall_seconds:.2f} s, {result.rounds:,} rounds")
    print("\nlong rounds, billion steps a second")
    for name, algorithm in ALGORITHMS.items():
        for M, episodes, eps_p in LONG_ROUNDS:
            speed = long_round(algorithm, M, "cuda", episodes, eps_p) / 1e9
            print(f"  {name}, M = {M:,}, eps_p = {eps_p}: {speed:.1f}")
    print("\na round of one episode, milliseconds")
    for name, algorithm in ALGORITHMS.items():
        for M in (10_000, 1_000_000):
            print(f"  {name}, M = {M:,}: {1e3 * 10 * M / long_round(algorithm, M, 'cuda', 1):.3f}")
    print("\nprocessors")
    for name, algorithm in ALGORITHMS.items():
        play(algorithm, 1000, "episodes", 1000)  # compile
        for M in (1_000, 10_000):
            cpu = play(algorithm, M, "episodes")
            ratio = cpu.wall_seconds / gpu[name, M].wall_seconds
            alike = same(gpu[name, M], cpu)
            print(f"  {name}, M = {M:,}: {cpu.wall_seconds:.2f} s, {ratio:.1f} times as long; the same bits: {alike}")
        speed = long_round(algorithm, 10_000, "episodes", 200) / 1e9
        print(f"  {name}, long rounds: {speed:.2f} billion steps a second")


def million(path: Path, seeds: int) -> None:
    rows = []
    for name, algorithm in ALGORITHMS.items():
        for M in [10**k for k in range(7)]:
            for seed in range(seeds):
                result = play(algorithm, M, "cuda", seed=seed)
                rows.append([name, M, seed, result.regret, result.rounds])
                print(*rows[-1], f"{result.wall_seconds:.2f} s", flush=True)
    about = {"environment": "gridworld", "episodes": T, "device": cuda.get_current_device().name}
    columns = ["algorithm", "agents", "seed", "regret", "rounds"]
    text = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    path.write_text(json.dumps({**about, "columns": columns})[:-1] + f', "rows": [\n{text}\n]}}\n')


def draw() -> None:
    """docs/million.png, from what :func:`million` measured."""
    found = json.loads(FIGURES.read_text())
    measured = pl.DataFrame(found["rows"], schema=found["columns"], orient="row")
    measures = [("regret", "Regret", "common regret of an agent"), ("rounds", "Rounds", "rounds")]
    with figure_style():
        panels = new_panels(2, columns=2, size=(9.0, 3.8))
        for ax, (column, title, label) in zip(panels, measures, strict=True):
            value = pl.col(column)
            set_scales(ax, x_log=True, y_log=True)
            for name, colour in COLOURS.items():
                by_agents = measured.filter(algorithm=name).group_by("agents", maintain_order=True)
                shown = by_agents.agg(
                    value.mean().alias("mean"), value.min().alias("least"), value.max().alias("most")
                )
                draw_curve(
                    ax,
                    shown["agents"].to_numpy(),
                    shown["mean"].to_numpy(),
                    colour=colour,
                    label=name,
                    marker="circle",
                    low=shown["least"].to_numpy(),
                    high=shown["most"].to_numpy(),
                )
            set_texts(ax, title=title, x_label="agents M (bands: least to most of the seeds)", y_label=label)
        set_heading(panels, f"GridWorld, T = {T:,}: up to a million agents")
        figure_legend(panels)
    panels.save(PICTURE)


def main() -> None:
    options = read_options(__doc__, million=0, draw=False, out=str(FIGURES))
    if options.draw:
        draw()
    elif options.million:
        million(Path(options.out), options.million)
    else:
        tables()


if __name__ == "__main__":
    main()
