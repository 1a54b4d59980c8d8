"""Speed, growth with the sizes, and shares of the time: `make benchmark` prints the table and draws docs/scaling.png.

Figures are processor seconds, the least of several runs on one core after compilation: other work on the machine
disturbs them less than the wall-clock time. The ratio to the plain NumPy version, `fed_ucbvi.reference`, is measured
side by side in the same process.
`--large` measures the 50 x 50 grid instead, which takes a minute or two.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import resource
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
from matplotlib.axes import Axes

from fed_ucbvi import Caution, Federation, FedUCBVI, Setting, gridworld, run, synthetic
from fed_ucbvi.algorithms import ALGORITHMS
from fed_ucbvi.algorithms.base import Budgets
from fed_ucbvi.charts.axes import draw_curve, draw_points, set_scales, set_texts
from fed_ucbvi.charts.figures import figure_style, new_panels
from fed_ucbvi.core.colours import PALETTE, Marker
from fed_ucbvi.core.indexing import UNREACHABLE
from fed_ucbvi.engine.drivers import make_driver
from fed_ucbvi.engine.drivers.base import Fleet, collect
from fed_ucbvi.engine.simulation import Simulation
from fed_ucbvi.reference import Known, fed_ucbvi, simulate
from measuring import least_seconds, read_options

warnings.simplefilter("ignore", Caution)

PICTURE = Path(__file__).parent.parent / "docs" / "scaling.png"


def seconds(federation: Federation, episodes: int, driver: str = "auto", repeats: int = 3) -> float:
    seeds = itertools.count()
    play = partial(run, FedUCBVI(), federation, episodes, driver=driver, progress=False)
    return least_seconds(lambda: play(seed=next(seeds)), repeats)


def steps_per_second(federation: Federation, episodes: int) -> float:
    """Environment steps per second of the episodes driver alone, in rounds without a synchronisation request."""
    fleet = Fleet.of(federation, 0)
    driver = make_driver("episodes", fleet)
    policy = federation.common.solve().policy
    shape = fleet.visits.shape
    never = Budgets(np.full(shape, UNREACHABLE, dtype=np.int64), np.zeros(shape[1:], dtype=np.int8))
    best = least_seconds(lambda: collect(driver, policy, never, 0, episodes), 5)
    return federation.agents * federation.horizon * episodes / best


def ratio_to_reference(federation: Federation, episodes: int) -> dict[str, float]:
    """Our time and that of plain NumPy, side by side, both with trajectories."""
    M = federation.agents
    H = federation.horizon
    agents = [federation.agent(i) for i in range(M)]
    kernels, rewards = (
        np.stack([np.broadcast_to(table, (H, *table.shape[1:])) for table in tables])
        for tables in ([one.kernel.dense() for one in agents], [one.rewards for one in agents])
    )
    nu = FedUCBVI().facts(Setting.of(federation, episodes, 0, random_rewards=False))["nu"]
    algorithm = partial(fed_ucbvi, nu=nu)
    S = federation.states
    A = federation.actions
    known = Known.by_step(H, S, A)
    laws = kernels.reshape(M, -1, S)
    by_outcome = np.broadcast_to(rewards[..., None], (M, H, S, A, S))
    rng = np.random.default_rng(0)

    def play() -> None:
        for _ in simulate(algorithm, known, laws, by_outcome, federation.initial, episodes, rng):
            pass

    plain = least_seconds(play, 3)
    ours, automatic = (seconds(federation, episodes, driver) for driver in ("episodes", "auto"))
    return {
        "plain_seconds": plain,
        "plain_us_per_step": plain / (M * H * episodes) * 1e6,
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

    algorithm = simulation.algorithm
    driver = simulation.driver

    class Timed:
        """The algorithm with a clock on each of its parts."""

        def __getattr__(self, name: str) -> Any:
            part = getattr(algorithm, name)
            return timed(name, part) if name in ("budgets", "absorb", "synchronise") else part

    party = simulation.party
    clocked = Timed()
    simulation.algorithm = party.algorithm = clocked  # type: ignore[assignment]
    driver.extend = timed("collect", driver.extend)  # type: ignore[method-assign]
    began = time.process_time()
    while not simulation.done:
        simulation.advance()
    whole = time.process_time() - began
    spent["regret and records"] = whole - sum(spent.values())
    return {name: value / whole for name, value in spent.items()}


def growth() -> dict[str, dict[str, list[float]]]:
    """Seconds against T, M (long runs, and short ones of many more agents) and S."""

    def measured(worlds: Iterable[tuple[float, Federation, int, int]]) -> dict[str, list[float]]:
        points = [(float(x), seconds(world, episodes, repeats=repeats)) for x, world, episodes, repeats in worlds]
        return dict(zip(("x", "seconds"), map(list, zip(*points, strict=True)), strict=True))

    grids = [(n, gridworld(agents=20, rows=n, columns=n)) for n in (3, 5, 8, 12, 16, 24)]
    agents = (1, 5, 20, 100, 500, 2_000, 20_000)
    many = (20, 100, 1_000, 10_000, 100_000)
    return {
        "T": measured((T, gridworld(agents=20), T, 3) for T in [10**k for k in range(3, 10)]),
        "M": measured((M, gridworld(agents=M), 30_000, 1 if M > 500 else 3) for M in agents),
        "M, T = 300": measured((M, gridworld(agents=M), 300, 1 if M > 500 else 3) for M in many),
        "S": measured((world.states, world, 3_000, 1 if n > 8 else 3) for n, world in grids),
    }


def every_algorithm() -> dict[str, float]:
    """Seconds of each algorithm on the paper's GridWorld, M = 20 (1 for single-agent ones), T = 30 000."""
    found = {}
    for name, kind in ALGORITHMS.items():
        world = gridworld(agents=1 if kind.single_agent else 20)
        run(kind(), world, 300)  # compile
        found[name] = least_seconds(partial(run, kind(), world, 30_000, progress=False), 3)
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
    with figure_style():
        panels = new_panels(4, columns=4, size=(15.0, 3.6))
        for ax, (names, (label, title)) in zip(panels, titles.items(), strict=False):
            set_scales(ax, x_log=True, y_log=True)
            for name, colour in zip(names, PALETTE, strict=False):
                measured = grown[name]
                text = labels.get(name, "")
                draw_curve(ax, measured["x"], measured["seconds"], colour=colour, label=text, marker="circle")
            found = [second for name in names for second in grown[name]["seconds"]]
            ax.set_ylim(min(0.01, *found) / 2, 2 * max(1.0, *found))
            set_texts(ax, title=title, x_label=label, y_label="seconds")
            if len(names) > 1:
                ax.legend(loc="upper left")
        _draw_shares(panels[3], shares)
    panels.save(PICTURE)


def _draw_shares(ax: Axes, shares: dict[str, dict[str, float]]) -> None:
    """The parts of a round as shares of its time, for each size."""
    parts = list(next(iter(shares.values())))
    markers: tuple[Marker, ...] = ("circle", "square", "triangle")
    for (name, share), colour, marker in zip(shares.items(), PALETTE[2:], markers, strict=False):
        heights = [100 * share[part] for part in parts]
        draw_points(ax, range(len(parts)), heights, colour=colour, marker=marker, label=name)
    ax.set_xticks(range(len(parts)), parts, rotation=35, ha="right")
    ax.set_ylim(bottom=0)
    ax.legend(loc="best")
    set_texts(ax, title="where the time goes", x_label="part of a round", y_label="% of the time")


def main() -> None:
    if read_options(__doc__, large=False).large:
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
        "reference": ratio_to_reference(paper, 1_000),
        "algorithms_seconds": every_algorithm(),
        "growth": grown,
        "shares": shares,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
