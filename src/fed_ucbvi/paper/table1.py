"""Table 1 of the paper made empirical: regret, rounds and bytes of every algorithm side by side.

Every registered algorithm runs with its default parameters at the paper's settings; single-agent ones with one agent.
No constant is tuned. Claims about orderings are judged by comparisons of means, paired by seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, NamedTuple

from fed_ucbvi.algorithms import ALGORITHMS, algorithm_name, class_of
from fed_ucbvi.algorithms.base import TableRow
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.paper.claims import ordered
from fed_ucbvi.paper.figures import bytes_figure
from fed_ucbvi.paper.scale import Scale
from fed_ucbvi.paper.seed_groups import (
    Measure,
    SeedGroups,
    band_text,
    environments,
    having,
    interval,
    mean,
    megabytes,
    paired,
    regret,
    rounds,
    seed_groups_of,
)
from fed_ucbvi.paper.traces import Pair, Trace
from fed_ucbvi.report.content import Section, Table, Verdict
from fed_ucbvi.results.style import label_of

NAME = "table1"
TITLE = "Table 1 of the paper, measured"


class Ordering(NamedTuple):
    """A reported ordering: ``measure`` grows along ``algorithms``."""

    text: str
    measure: str
    algorithms: tuple[str, ...]


ORDERINGS = (
    Ordering("Fed-UCBVI's regret is below FedQ-Bernstein's", "regret", ("fed-ucbvi", "fedq-bernstein")),
    Ordering("Fed-UCBVI takes fewer rounds than FedQ-Advantage", "rounds", ("fed-ucbvi", "fedq-advantage")),
    Ordering("FedQ-Advantage takes fewer rounds than FedQ-Bernstein", "rounds", ("fedq-advantage", "fedq-bernstein")),
    Ordering(
        "FedQ-Bernstein takes fewer rounds than the concurrent", "rounds", ("fedq-bernstein", "concurrent-ucbvi")
    ),
)
UNSTATED = TableRow("\u2013", None, "\u2013", "\u2013")
"""The row of an algorithm that has none."""
HETEROGENEITY = {True: "yes", False: "no", None: "\u2013"}
MEASURES: dict[str, Measure] = {"regret": regret, "rounds": rounds}


def grids(scale: Scale, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Every algorithm with its defaults, identical agents; single-agent ones with one agent."""
    chosen = list(ALGORITHMS) if names is None else list(names)
    alone = [name for name in chosen if class_of(name).single_agent]
    together = [name for name in chosen if name not in alone]
    found = []
    if together:
        found.append(scale.grid(together))
    if alone:
        found.append(scale.grid(alone, agents=[1]))
    return found


def analyse(pairs: Sequence[Pair], scale: Scale) -> Section:
    """A table for each environment, regret against bytes, and the orderings."""
    seed_groups = seed_groups_of(pairs)
    return Section(
        id=NAME,
        title=TITLE,
        text=(
            "Every algorithm of the paper's Table 1, and MVP beyond it, with its default constants, nothing tuned; "
            f"M = {scale.base_agents} identical agents (one for single-agent algorithms). Byzan-UCBVI, FedQ-"
            "EarlySettled-LowCost and MVP keep the constants of their theory and do not leave the linear regime at "
            "these T.",
        ),
        verdicts=orderings(seed_groups),
        figures=[bytes_figure(seed_groups, "table1_bytes")],
        tables=[_table(seed_groups, environment) for environment in environments(seed_groups)],
    )


def orderings(seed_groups: SeedGroups) -> list[Verdict]:
    """Each ordering that the runs can judge."""
    verdicts = []
    for ordering in ORDERINGS:
        rows: dict[str, list[Sequence[Trace]]] = {}
        measure = MEASURES[ordering.measure]
        for environment in environments(seed_groups):
            group = {
                key.algorithm: replicates for key, replicates in having(seed_groups, environment=environment).items()
            }
            row = [group[name] for name in ordering.algorithms if name in group]
            if len(row) == len(ordering.algorithms) and all(paired(*two, measure)[0] for two in pairwise(row)):
                rows[label_of(environment)] = row
        if rows:
            verdicts.append(ordered(f"{ordering.text}.", "Table 1", rows, measure))
    return verdicts


def _rows(seed_groups: SeedGroups, environment: str) -> list[tuple[str, Sequence[Trace]]]:
    """The groups of an environment in the order of the registry; algorithms that are not in it come last."""
    group = {key.algorithm: replicates for key, replicates in having(seed_groups, environment=environment).items()}
    return [(name, group[name]) for name in dict.fromkeys((*ALGORITHMS, *group)) if name in group]


def _table(seed_groups: SeedGroups, environment: str) -> Table:
    columns = (
        "algorithm",
        "type",
        "heterogeneity",
        "regret",
        "rounds",
        "MB up",
        "MB down",
        "order of rounds",
        "order of regret",
    )
    rows = []
    for name, replicates in _rows(seed_groups, environment):
        theory = class_of(name).table or UNSTATED
        rows.append(
            (
                label_of(name),
                theory.kind,
                HETEROGENEITY[theory.heterogeneity],
                interval(replicates, regret),
                interval(replicates, rounds),
                interval(replicates, megabytes_up),
                interval(replicates, megabytes_down),
                theory.communication,
                theory.regret,
            )
        )
    (episodes,) = {key.episodes for key in having(seed_groups, environment=environment)}
    caption = (
        "Orders are those of the papers, for agents all alike, without constants and logarithms. "
        f"{band_text(having(seed_groups, environment=environment).values())}"
    )
    return Table(f"table1_{environment}", f"{label_of(environment)}, T = {episodes:,}", caption, columns, rows)


def megabytes_up(run: Trace) -> float:
    """From agents to server, in millions of bytes."""
    return run.bytes_up / 1e6


def megabytes_down(run: Trace) -> float:
    """From server to agents, in millions of bytes."""
    return run.bytes_down / 1e6


# ------------------------------------------------------------------------------------------ fed-ucbvi compare


def tabulate(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The tables and orderings as plain values, ready for JSON."""
    seed_groups = seed_groups_of(pairs)
    tables: dict[str, list[dict[str, Any]]] = {}
    for environment in environments(seed_groups):
        tables[environment] = []
        for name, replicates in _rows(seed_groups, environment):
            theory = class_of(name).table or UNSTATED
            tables[environment].append(
                {
                    "algorithm": name,
                    "kind": theory.kind,
                    "heterogeneity": theory.heterogeneity,
                    "communication_order": theory.communication,
                    "regret_order": theory.regret,
                    "agents": replicates[0].about.agents,
                    "episodes": replicates[0].about.episodes,
                    "seeds": len(replicates),
                    "regret": asdict(interval(replicates, regret)),
                    "rounds": asdict(interval(replicates, rounds)),
                    "megabytes_up": mean(replicates, megabytes_up),
                    "megabytes_down": mean(replicates, megabytes_down),
                    "megabytes": mean(replicates, megabytes),
                }
            )
    verdicts = [
        {"claim": verdict.claim, "measured": verdict.measured, "outcome": verdict.outcome, "seeds": verdict.seeds}
        for verdict in orderings(seed_groups)
    ]
    levels = sorted({run.about.eps_p for replicates in seed_groups.values() for run in replicates})
    return {"tables": tables, "claims": verdicts, "spread": band_text(seed_groups.values()), "eps_p": levels}


def markdown(summary: dict[str, Any]) -> str:
    """The tables and verdicts as Markdown."""
    lines = [
        "# Every algorithm side by side",
        "",
        "This page was written by `fed-ucbvi compare --out FILE.md`. Every algorithm has its default parameters;",
        "nothing is tuned. With the same seed all algorithms run on the same environment. How much agents differ:",
        f"eps_p = {', '.join(f'{level:.3g}' for level in summary['eps_p'])} (0: not at all). {summary['spread']}",
        "",
        "The two last columns of a table are the orders proved in the papers, without constants and logarithms, for",
        "agents that are all alike: S states, A actions, H steps per episode, M agents, T episodes per agent.",
        "",
    ]
    for environment, rows in summary["tables"].items():
        most = max(row["agents"] for row in rows)
        lines += [
            f"## {environment}: T = {rows[0]['episodes']:,}, M = {most} (1 for single-agent algorithms)",
            "",
            "| algorithm | type | heterogeneity | regret | rounds | MB up | MB down "
            "| order of rounds | order of regret |",
            "|---|---|---|---:|---:|---:|---:|---|---|",
        ]
        for row in rows:
            cells = [
                row["algorithm"],
                row["kind"],
                HETEROGENEITY[row["heterogeneity"]],
                _cell(row["regret"]),
                _cell(row["rounds"]),
                f"{row['megabytes_up']:,.1f}",
                f"{row['megabytes_down']:,.1f}",
                row["communication_order"],
                row["regret_order"],
            ]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    if summary["claims"]:
        lines += ["| claim | figures | verdict |", "|---|---|---|"]
    lines += [
        f"| {claim['claim']} | {claim['measured']} | {claim['outcome']} ({claim['seeds']}) |"
        for claim in summary["claims"]
    ]
    return "\n".join([*lines, ""])


def _cell(spread: dict[str, float]) -> str:
    digits = 1 if spread["mean"] < 1000 else 0
    half = spread["high"] - spread["mean"]
    return f"{spread['mean']:,.{digits}f} ± {half:,.{digits}f}"


def check_names(names: Sequence[str]) -> None:
    """Raise unless every name is an algorithm's."""
    if len({algorithm_name(class_of(name)) for name in names}) < len(names):
        raise InputError("an algorithm is named twice; name each once.")
