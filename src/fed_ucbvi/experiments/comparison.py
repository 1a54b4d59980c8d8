"""Table 1 of the paper made empirical: regret, rounds and bytes of every algorithm side by side.

Every registered algorithm runs with its default parameters at the paper's settings; single-agent ones with one agent.
No constant is tuned. Claims about orderings are judged from the means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from fed_ucbvi.errors import InputError, check_positive_integer
from fed_ucbvi.results.run import Run

AGENTS = 20
EPS_P = 0.0
ENV_SEED = 0
SEEDS = 5
EPISODES = {"gridworld": 30_000, "synthetic": 3_000}
"""The paper's environments and their T."""


class Claim(NamedTuple):
    """A reported ordering: ``measure`` grows along ``algorithms``."""

    text: str
    measure: str
    algorithms: tuple[str, ...]


CLAIMS = (
    Claim("Fed-UCBVI's regret is far below FedQ-Bernstein's", "common_regret", ("fed-ucbvi", "fedq-bernstein")),
    Claim("Fed-UCBVI takes fewer rounds than FedQ-Advantage", "rounds", ("fed-ucbvi", "fedq-advantage")),
    Claim("FedQ-Advantage takes fewer rounds than FedQ-Bernstein", "rounds", ("fedq-advantage", "fedq-bernstein")),
    Claim("FedQ-Bernstein takes fewer rounds than the concurrent", "rounds", ("fedq-bernstein", "concurrent-ucbvi")),
)


def run_all(
    names: Sequence[str] | None = None,
    *,
    seeds: int = SEEDS,
    episodes: dict[str, int] | None = None,
    report: Callable[[int, int], None] | None = None,
) -> list[Run]:
    """One run for each environment, algorithm and seed.

    Args:
        names: algorithms; by default all that are registered.
        seeds: runs of each.
        episodes: T by environment; by default the paper's.
        report: called with the number of finished runs and of all runs.
    """
    from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
    from fed_ucbvi.environments import make_environment
    from fed_ucbvi.simulation import Caution, run

    check_positive_integer("seeds", seeds)
    lengths = EPISODES if episodes is None else episodes
    chosen = list(ALGORITHMS) if names is None else list(names)
    todo = [(env, name, seed) for env in lengths for name in chosen for seed in range(seeds)]
    runs = []
    for done, (env, name, seed) in enumerate(todo):
        if report is not None:
            report(done, len(todo))
        algorithm = make_algorithm(name, {})
        agents = 1 if algorithm.single_agent else AGENTS
        federation = make_environment(env, agents=agents, eps_p=EPS_P, seed=ENV_SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Caution)
            runs.append(run(algorithm, federation, lengths[env], seed=seed, progress=False))
    return runs


def tabulate(runs: Sequence[Run]) -> dict[str, Any]:
    """Means and standard deviations by environment and algorithm, the theory's orders, and the claims judged."""
    from fed_ucbvi.algorithms import ALGORITHMS

    tables: dict[str, list[dict[str, Any]]] = {}
    for env in dict.fromkeys(str(run.about.environment["name"]) for run in runs):
        rows = []
        mine = [run for run in runs if run.about.environment["name"] == env]
        for name in dict.fromkeys(run.about.algorithm for run in mine):
            lot = [run for run in mine if run.about.algorithm == name]
            theory = ALGORITHMS[name].table
            rows.append(
                {
                    "algorithm": name,
                    "kind": theory.kind,
                    "heterogeneity": theory.heterogeneity,
                    "communication_order": theory.communication,
                    "regret_order": theory.regret,
                    "agents": lot[0].about.agents,
                    "episodes": lot[0].about.episodes,
                    "seeds": len(lot),
                    "common_regret": _spread([run.common_regret for run in lot]),
                    "rounds": _spread([run.rounds for run in lot]),
                    "megabytes_up": _spread([run.bytes_up / 1e6 for run in lot]),
                    "megabytes_down": _spread([run.bytes_down / 1e6 for run in lot]),
                }
            )
        tables[env] = rows
    return {"tables": tables, "claims": {env: judge(rows) for env, rows in tables.items()}}


def judge(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each claim with the figures it rests on and whether it holds; claims about absent algorithms are left out."""
    by_name = {row["algorithm"]: row for row in rows}
    judged = []
    for claim in CLAIMS:
        if not all(name in by_name for name in claim.algorithms):
            continue
        figures = [by_name[name][claim.measure]["mean"] for name in claim.algorithms]
        holds = all(low < high for low, high in pairwise(figures))
        judged.append({"claim": claim.text, "figures": figures, "holds": holds})
    return judged


def _spread(values: Sequence[float]) -> dict[str, float]:
    import numpy as np

    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": deviation}


def markdown(summary: dict[str, Any]) -> str:
    """The tables and verdicts as Markdown."""
    lines = [
        "# Every algorithm side by side",
        "",
        "Written by `fed-ucbvi compare --out FILE.md`. Default parameters, nothing tuned; mean ± standard deviation",
        "over seeds. Orders are those of the papers, for agents all alike, without constants and logarithms.",
        "",
    ]
    for env, rows in summary["tables"].items():
        if not rows:
            raise InputError(f"no runs for {env}.")
        lines += [
            f"## {env}: T = {rows[0]['episodes']:,}, M = {AGENTS} (1 for single-agent algorithms), "
            f"eps_p = {EPS_P:g}, {rows[0]['seeds']} seeds",
            "",
            "| algorithm | type | heterogeneity | regret | rounds | MB up | MB down "
            "| order of rounds | order of regret |",
            "|---|---|---|---:|---:|---:|---:|---|---|",
        ]
        for row in rows:
            cells = [
                row["algorithm"],
                row["kind"],
                "yes" if row["heterogeneity"] else "no",
                _cell(row["common_regret"]),
                _cell(row["rounds"]),
                f"{row['megabytes_up']['mean']:,.1f}",
                f"{row['megabytes_down']['mean']:,.1f}",
                row["communication_order"],
                row["regret_order"],
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", "| claim | figures | verdict |", "|---|---|---|"]
        for judged in summary["claims"][env]:
            figures = " < ".join(f"{figure:,.0f}" for figure in judged["figures"])
            lines.append(f"| {judged['claim']} | {figures}? | {'holds' if judged['holds'] else 'does not hold'} |")
        lines.append("")
    return "\n".join(lines)


def _cell(spread: dict[str, float]) -> str:
    digits = 1 if spread["mean"] < 1000 else 0
    return f"{spread['mean']:,.{digits}f} ± {spread['std']:,.{digits}f}"
