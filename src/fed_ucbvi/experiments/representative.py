"""A representative experiment: Fed-UCBVI on the paper's GridWorld, alike and different agents, a few seeds.

The agents' kernels are drawn once (seed 0); runs differ by the seed of trajectories, first policy and ties.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fed_ucbvi.errors import InputError, check_positive_integer
from fed_ucbvi.files import new_folder, read_manifest, write_manifest
from fed_ucbvi.results.run import Run

FORMAT = "fed-ucbvi/reproduction"
FORMAT_VERSION = 1

ALGORITHM = "fed-ucbvi"
ENVIRONMENT = "gridworld"
AGENTS = 20
EPISODES = 30_000
HORIZON = 10
EPS_P = (0.0, 0.1)
ENV_SEED = 0
SEEDS = 5
DRIVER = "auto"

FIGURE = "regret_and_communication"
SUMMARY = "summary.json"
RUNS = "runs"


class Plan(NamedTuple):
    """One run of the experiment."""

    eps_p: float
    seed: int
    episodes: int

    @property
    def id(self) -> str:
        """The name of the run.

        >>> Plan(0.1, 3, 30_000).id
        'fed-ucbvi_gridworld_M20_T30000_eps0.1_seed3'
        """
        return f"{ALGORITHM}_{ENVIRONMENT}_M{AGENTS}_T{self.episodes}_eps{self.eps_p:g}_seed{self.seed}"


def plans(seeds: int = SEEDS, episodes: int = EPISODES) -> list[Plan]:
    """All runs of the experiment, in order."""
    check_positive_integer("seeds", seeds)
    check_positive_integer("episodes", episodes)
    return [Plan(eps_p, seed, episodes) for eps_p in EPS_P for seed in range(seeds)]


def run_plan(plan: Plan) -> Run:
    """One run; its cautions are on record in the result."""
    from fed_ucbvi.algorithms import make_algorithm
    from fed_ucbvi.environments import make_environment
    from fed_ucbvi.simulation import Caution, run

    federation = make_environment(ENVIRONMENT, agents=AGENTS, eps_p=plan.eps_p, seed=ENV_SEED, horizon=HORIZON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        return run(
            make_algorithm(ALGORITHM, {}), federation, plan.episodes, seed=plan.seed, driver=DRIVER, progress=False
        )


def analyse(runs: Sequence[Run]) -> dict[str, Any]:
    """Mean, 95 % margin and single values of each eps_p's figures (no margin for a single run), ready for JSON."""
    first = runs[0].about
    levels = list(dict.fromkeys(run.about.eps_p for run in runs))
    results = []
    for eps_p in levels:
        lot = [run for run in runs if run.about.eps_p == eps_p]
        results.append(
            {
                "eps_p": eps_p,
                "seeds": [run.about.seed for run in lot],
                "common_regret": _figures([run.common_regret for run in lot]),
                "rounds": _figures([run.rounds for run in lot]),
                "bytes_up": _figures([run.bytes_up for run in lot]),
                "bytes_down": _figures([run.bytes_down for run in lot]),
                "value": _figures([run.value for run in lot]),
                "optimal_value": lot[0].about.optimal_value,
                "wall_seconds": sum(run.wall_seconds for run in lot),
            }
        )
    return {
        "experiment": "representative",
        "settings": {
            "algorithm": first.algorithm,
            "parameters": dict(first.parameters),
            "environment": first.environment.get("name"),
            "agents": first.agents,
            "episodes": first.episodes,
            "horizon": first.horizon,
            "eps_p": levels,
            "seeds": sum(run.about.eps_p == levels[0] for run in runs),
            "env_seed": ENV_SEED,
            "driver": first.driver,
        },
        "results": results,
        "warnings": list(
            dict.fromkeys(f"eps_p = {run.about.eps_p:g}: {text}" for run in runs for text in run.about.cautions)
        ),
        "versions": dict(first.versions),
    }


def _figures(values: Sequence[float]) -> dict[str, Any]:
    from fed_ucbvi.results.intervals import mean_and_margin

    mean, margin = mean_and_margin(values)
    return {"mean": float(mean), "margin": float(margin) if len(values) > 1 else None, "values": list(values)}


def reproduce(
    out: Path,
    *,
    seeds: int = SEEDS,
    episodes: int = EPISODES,
    overwrite: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Run everything and write the folder ``out``: runs, figures, ``summary.json``; all of it or nothing.

    Args:
        out: a new folder, or with ``overwrite`` one that an earlier reproduction wrote.
        seeds: runs for each eps_p.
        episodes: T, the paper's by default.
        overwrite: replace an earlier reproduction.
        report: called with the number of finished runs and of all runs.

    Returns:
        The summary.
    """
    from fed_ucbvi.results.plotting import plot_runs

    todo = plans(seeds, episodes)
    runs = []
    with new_folder(out, FORMAT, overwrite=overwrite) as draft:
        for done, plan in enumerate(todo):
            if report is not None:
                report(done, len(todo))
            runs.append(run_plan(plan))
            runs[-1].save(draft / RUNS / plan.id)
        summary = analyse(runs)
        for suffix in ("png", "pdf"):
            plot_runs(runs, draft / f"{FIGURE}.{suffix}")
        (draft / SUMMARY).write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "experiment": summary["experiment"],
            "runs": [f"{RUNS}/{plan.id}" for plan in todo],
            "files": [f"{FIGURE}.png", f"{FIGURE}.pdf", SUMMARY],
        }
        write_manifest(draft, manifest)
    return summary


def load(out: Path) -> list[Run]:
    """The runs of a reproduction, read back."""
    names = read_manifest(out, FORMAT).get("runs")
    if not isinstance(names, list):
        raise InputError(f"{out} is damaged: its manifest names no runs.")
    return [Run.load(out / str(name)) for name in names]
