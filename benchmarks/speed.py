"""How fast, how it grows, and where the time goes: `make benchmark` prints the table and draws docs/scaling.png.

Figures are processor seconds, the least of several runs on one core after compilation: other work on the machine
disturbs them less than the time on the wall. The ratio to the peer is measured side by side in the same process.
`--large` measures the 50 x 50 grid instead, which takes a minute or two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np

from fed_ucbvi import Caution, Federation, FedUCBVI, gridworld, run, synthetic
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.charts.panels import Panel, Series, log_scale
from fed_ucbvi.charts.picture import Picture
from fed_ucbvi.core.colours import BLUE, PALETTE, Marker
from fed_ucbvi.engine.simulation import Simulation
from peer import run_plainly

warnings.simplefilter("ignore", Caution)

PICTURE = Path(__file__).parent.parent / "docs" / "scaling.png"


def seconds(federation: Federation, episodes: int, driver: str = "auto", repeats: int = 3) -> float:
    """The least processor time of several runs."""
    return min(_processor_seconds(FedUCBVI(), federation, episodes, k, driver) for k in range(repeats))


def _processor_seconds(
    algorithm: Algorithm[Any, Any], federation: Federation, episodes: int, seed: int = 0, driver: str = "auto"
) -> float:
    began = time.process_time()
    run(algorithm, federation, episodes, seed=seed, driver=driver, progress=False)
    return time.process_time() - began


def steps_per_second(federation: Federation, episodes: int) -> float:
    """Environment steps per second of the episodes driver alone, in rounds nobody ends."""
    from fed_ucbvi.algorithms.base import Budgets
    from fed_ucbvi.engine.drivers import make_driver
    from fed_ucbvi.engine.drivers.base import Fleet, collect
    from fed_ucbvi.problem.liars import NEVER

    fleet = Fleet.of(federation, 0)
    driver = make_driver("episodes", fleet)
    policy = federation.common.solve().policy
    shape = fleet.visits.shape
    never = Budgets(np.full(shape, NEVER, dtype=np.int64), np.zeros(shape[1:], dtype=np.int8))
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        collect(driver, policy, never, 0, episodes)
        best = min(best, time.process_time() - began)
    return federation.agents * federation.horizon * episodes / best


def ratio_to_peer(federation: Federation, episodes: int) -> dict[str, float]:
    """Our time and the plain implementation's, side by side, both with trajectories."""
    began = time.process_time()
    run_plainly(federation, episodes, 0)
    plain = time.process_time() - began
    steps = federation.agents * federation.horizon * episodes
    ours, automatic = (seconds(federation, episodes, driver) for driver in ("episodes", "auto"))
    return {
        "plain_seconds": plain,
        "plain_us_per_step": plain / steps * 1e6,
        "ours_over_plain_episodes": ours / plain,
        "ours_over_plain_auto": automatic / plain,
    }


def where_time_goes(federation: Federation, episodes: int) -> dict[str, float]:
    """Share of a run's time by part of a round."""
    simulation = Simulation(FedUCBVI(), federation, episodes, 0, "auto")
    spent: dict[str, float] = {}

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            began = time.process_time()
            result = call(*arguments, **keywords)
            spent[name] = spent.get(name, 0.0) + time.process_time() - began
            return result

        return wrapper

    algorithm, driver = simulation.algorithm, simulation.driver

    class Timed:
        """The algorithm with a clock on each of its parts."""

        def __getattr__(self, name: str) -> Any:
            part = getattr(algorithm, name)
            return timed(name, part) if name in ("budgets", "absorb", "synchronise") else part

    party, clocked = simulation.party, Timed()
    simulation.algorithm = party.algorithm = party._contract._algorithm = clocked  # type: ignore[assignment]
    driver.extend = timed("collect", driver.extend)  # type: ignore[method-assign]
    began = time.process_time()
    while not simulation.done:
        simulation.advance()
    whole = time.process_time() - began
    spent["regret and records"] = whole - sum(spent.values())
    return {name: value / whole for name, value in spent.items()}


def growth() -> dict[str, dict[str, list[float]]]:
    """Seconds against T, M (long runs, and short ones of many more agents) and S."""
    episodes = [10**k for k in range(3, 10)]
    agents, many = [1, 5, 20, 100, 500, 2_000, 20_000], [20, 100, 1_000, 10_000, 100_000]
    sides = [3, 5, 8, 12, 16, 24]
    return {
        "T": {
            "x": [float(T) for T in episodes],
            "seconds": [seconds(gridworld(agents=20), T) for T in episodes],
        },
        "M": {
            "x": [float(M) for M in agents],
            "seconds": [seconds(gridworld(agents=M), 30_000, repeats=1 if M > 500 else 3) for M in agents],
        },
        "M, T = 300": {
            "x": [float(M) for M in many],
            "seconds": [seconds(gridworld(agents=M), 300, repeats=1 if M > 500 else 3) for M in many],
        },
        "S": {
            "x": [float(gridworld(agents=1, rows=n, columns=n).states) for n in sides],
            "seconds": [
                seconds(gridworld(agents=20, rows=n, columns=n), 3_000, repeats=1 if n > 8 else 3) for n in sides
            ],
        },
    }


def every_algorithm() -> dict[str, float]:
    """Seconds of each algorithm on the paper's GridWorld, M = 20 (1 for single-agent ones), T = 30 000."""
    from fed_ucbvi.algorithms import ALGORITHMS

    found = {}
    for name, kind in ALGORITHMS.items():
        world = gridworld(agents=1 if kind.single_agent else 20)
        run(kind(), world, 300)  # compile
        found[name] = min(_processor_seconds(kind(), world, 30_000) for _ in range(3))
    return found


def large_grid() -> dict[str, float]:
    """50 x 50 squares, H = 100, M = 20, T = 10 000: seconds and peak memory."""
    result = run(FedUCBVI(), gridworld(agents=20, rows=50, columns=50, horizon=100), 10_000)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": result.wall_seconds, "peak_GB": peak, "rounds": float(result.rounds)}


def draw(grown: dict[str, dict[str, list[float]]], shares: dict[str, dict[str, float]]) -> None:
    """One picture: time against T, M and S, and the parts of a round."""
    titles = {
        ("T",): ("episodes T", "GridWorld, M = 20"),
        ("M", "M, T = 300"): ("agents M", "GridWorld"),
        ("S",): ("states S", "n x n grid, M = 20, T = 3 000"),
    }
    labels = {"M": "T = 30 000", "M, T = 300": "T = 300"}
    panels = []
    for names, (label, title) in titles.items():
        found = [second for name in names for second in grown[name]["seconds"]]
        series = [
            Series(labels.get(name, ""), colour, grown[name]["x"], grown[name]["seconds"], marker="circle")
            for name, colour in zip(names, (BLUE, PALETTE[1]), strict=False)
        ]
        y_axis = log_scale(min(0.01, *found) / 2, 2 * max(1.0, *found))
        panels.append(Panel(title, label, "seconds", series, x_log=True, y_log=True, y_axis=y_axis))
    markers: tuple[Marker, ...] = ("circle", "square", "triangle")
    parts = [
        Series(name, colour, list(share), [100 * part for part in share.values()], marker=marker, line=False)
        for (name, share), colour, marker in zip(shares.items(), PALETTE[2:], markers, strict=False)
    ]
    panels.append(Panel("where the time goes", "part of a round", "% of the time", parts))
    Picture(panels, width=1500).save(PICTURE)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="only the 50 x 50 grid")
    arguments = parser.parse_args()
    if arguments.large:
        print(json.dumps(large_grid(), indent=1))
        return
    paper = gridworld(agents=20)
    run(FedUCBVI(), paper, 30_000)  # compile
    run(FedUCBVI(), paper, 300, driver="episodes")
    run(FedUCBVI(), synthetic(agents=20), 300)
    grown = growth()
    shares = {
        "M = 20, T = 30 000": where_time_goes(paper, 30_000),
        "M = 20, T = 10⁹": where_time_goes(paper, 10**9),
        "M = 1 000, T = 3 000": where_time_goes(gridworld(agents=1000), 3_000),
    }
    draw(grown, shares)
    report = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}, one thread",
        "gridworld_auto_seconds": seconds(paper, 30_000, repeats=7),
        "gridworld_episodes_seconds": seconds(paper, 30_000, "episodes", repeats=7),
        "episodes_driver_million_steps_per_second": steps_per_second(paper, 50_000) / 1e6,
        "billion_episodes_seconds": seconds(paper, 10**9, repeats=5),
        "billion_over_million": seconds(paper, 10**9, repeats=5) / seconds(paper, 10**6, repeats=5),
        "peer": ratio_to_peer(paper, 1_000),
        "algorithms_seconds": every_algorithm(),
        "growth": grown,
        "shares": shares,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
