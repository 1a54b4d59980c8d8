"""Table 1 of the paper made empirical: regret, rounds and bytes of every algorithm side by side.

Every registered algorithm runs with its default parameters at the paper's settings; single-agent ones with one agent.
No constant is tuned. Claims about orderings are judged seed by seed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import algorithm_name, class_of
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.paper.experiment import Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import NOT_PARTLY, Claim, Finding, judge, ratios_at_most
from fed_ucbvi.paper.orders import ROWS, TableRow, row_of
from fed_ucbvi.paper.report.content import Section, Table, Verdict
from fed_ucbvi.paper.report.page import cell_text
from fed_ucbvi.paper.report.run_figures import FAILING_TEXT, Column, band_text, table_of_groups
from fed_ucbvi.paper.report.traces import Group, Measure, Trace, Traces, megabytes, regret, rounds
from fed_ucbvi.paper.section5 import bytes_figure, in_order
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.statistics import Estimate


class Ordering(NamedTuple):
    """A reported ordering: ``measure`` grows along ``algorithms``."""

    text: str
    measure: str
    algorithms: tuple[str, ...]


ORDERINGS = (
    Ordering(
        "Fed-UCBVI's regret is below FedQ-Bernstein's",
        "regret",
        ("fed-ucbvi", "fedq-bernstein"),
    ),
    Ordering(
        "Fed-UCBVI takes fewer rounds than FedQ-Advantage",
        "rounds",
        ("fed-ucbvi", "fedq-advantage"),
    ),
    Ordering(
        "FedQ-Advantage takes fewer rounds than FedQ-Bernstein",
        "rounds",
        ("fedq-advantage", "fedq-bernstein"),
    ),
    Ordering(
        "FedQ-Bernstein takes fewer rounds than the concurrent",
        "rounds",
        ("fedq-bernstein", "concurrent-ucbvi"),
    ),
)
HETEROGENEITY = {True: "yes", False: "no", None: "\u2013"}
FROM_MEMORY = (
    "Two algorithms are partly written from memory: the bonuses of UCB-Advantage and of its concurrent version, and "
    "in FedQ-Advantage the lower-order term of the published bonus, the logarithm, the initial values and what is "
    "broadcast. Do not quote their figures as the authors'."
)
"""A note beside all results of these algorithms."""


def grids(scale: RunScale, names: Sequence[str] | None = None) -> Grids:
    """Every algorithm with its defaults, identical agents; single-agent ones with one agent."""
    chosen = list(ROWS) if names is None else names
    single = [name for name in chosen if class_of(name).single_agent]
    federated = [name for name in chosen if not class_of(name).single_agent]
    found = []
    if federated:
        found.append(scale.grid(federated))
    if single:
        found.append(scale.grid(single, agents=[1]))
    return found


def analyse(table: Traces, scale: RunScale) -> Section:
    text = (
        "Every algorithm of the paper's Table 1 with its default constants, nothing tuned; "
        f"M = {scale.base_agents} identical agents (one for single-agent algorithms). Byzan-UCBVI keeps the "
        "constants of its theory and does not leave the linear regime at these T."
    )
    tables = [_table(part) for part in table.parts("environment").values()]
    figures = [bytes_figure(table, "table1_bytes")]
    return Section(
        "table1",
        "Table 1 of the paper, measured",
        (text, FROM_MEMORY),
        figures=figures,
        tables=tables,
    )


def ordered(ordering: Ordering, table: Traces) -> Verdict | None:
    measure: Measure = attrgetter(ordering.measure)

    def find(part: Traces) -> Finding | None:
        groups = {group["algorithm"]: group for group in part}
        row = [groups[name] for name in ordering.algorithms if name in groups]
        cells = {}
        for low, high in pairwise(row):
            pairs = low.paired(high, measure)
            cells[f"{label_of(low['algorithm'])} over {label_of(high['algorithm'])}"] = pairs
        if len(row) < len(ordering.algorithms) or not all(pairs.seeds for pairs in cells.values()):
            return None
        line = " against ".join(f"{np.median(group.samples(measure)):,.0f}" for group in row)
        return Finding(
            conditions=ratios_at_most(1.0, cells, strictly=True),
            text=line,
            line=line,
            partly=NOT_PARTLY,
        )

    rule = "A seed says holds in an environment if the figures are in this order."
    return judge(Claim(ordering.text, f"{ordering.text}.", "Table 1", rule), table, find)


def _stated(group: Group) -> TableRow:
    return row_of(group["algorithm"])


COLUMNS: tuple[Column, ...] = (
    "algorithm",
    ("type", lambda group: _stated(group).kind),
    ("heterogeneity", lambda group: HETEROGENEITY[_stated(group).heterogeneity]),
    "regret",
    "median",
    "failing",
    "rounds",
    ("MB up", lambda group: group.estimate(megabytes_up)),
    ("MB down", lambda group: group.estimate(megabytes_down)),
    ("order of rounds", lambda group: _stated(group).communication),
    ("order of regret", lambda group: _stated(group).regret),
)


def _table(table: Traces) -> Table:
    environment, (episodes,) = table.groups[0]["environment"], table.values("episodes")
    caption = "Orders are those of the papers, for agents all alike, without constants and logarithms."
    title = f"{label_of(environment)}, T = {episodes:,}"
    return table_of_groups(f"table1_{environment}", title, in_order(table), COLUMNS, caption)


def megabytes_up(run: Trace) -> float:
    return run.bytes_up / 1e6


def megabytes_down(run: Trace) -> float:
    return run.bytes_down / 1e6


def tabulate(table: Traces) -> dict[str, Any]:
    """The tables and orderings as plain values, ready for JSON."""
    tables = {}
    for environment, part in table.parts("environment").items():
        tables[environment] = [_plain(group) for group in in_order(part)]
    claims = []
    for verdict in EXPERIMENT.judge(table):
        entry = {
            "claim": verdict.claim,
            "measured": verdict.measured,
            "outcome": verdict.outcome,
            "seeds": verdict.seeds,
        }
        claims.append(entry)
    return {
        "tables": tables,
        "claims": claims,
        "spread": band_text(table),
        "eps_p": sorted({run.about.eps_p for run in table.runs}),
    }


def _plain(group: Group) -> dict[str, Any]:
    theory = _stated(group)
    return {
        "algorithm": group["algorithm"],
        "kind": theory.kind,
        "heterogeneity": theory.heterogeneity,
        "communication_order": theory.communication,
        "regret_order": theory.regret,
        "agents": group["agents"],
        "episodes": group["episodes"],
        "seeds": len(group),
        "regret": group.estimate(regret)._asdict(),
        "median": group.summary(regret).median,
        "failing": group.summary(regret).failing_text,
        "rounds": group.estimate(rounds)._asdict(),
        "megabytes_up": group.mean(megabytes_up),
        "megabytes_down": group.mean(megabytes_down),
        "megabytes": group.mean(megabytes),
    }


def markdown(summary: dict[str, Any]) -> str:
    text = f"""\
# Every algorithm side by side

This page was written by `fed-ucbvi compare --out FILE.md`. Every algorithm has its default parameters;
nothing is tuned. With the same seed all algorithms run on the same environment. How much agents differ:
eps_p = {", ".join(f"{level:.3g}" for level in summary["eps_p"])} (0: not at all). {summary["spread"]}
{FAILING_TEXT}

The two last columns of a table are the orders proved in the papers, without constants and logarithms, for
agents that are all alike: S states, A actions, H steps per episode, M agents, T episodes per agent.

{textwrap.fill(FROM_MEMORY, 118)}

"""
    columns = [column if isinstance(column, str) else column[0] for column in COLUMNS]
    for environment, rows in summary["tables"].items():
        most = max(row["agents"] for row in rows)
        text += f"## {environment}: T = {rows[0]['episodes']:,}, M = {most} (1 for single-agent algorithms)\n\n"
        text += f"| {' | '.join(columns)} |\n|---|---|---|---:|---:|---:|---:|---:|---:|---|---|\n"
        for row in rows:
            cells = [
                row["algorithm"],
                row["kind"],
                HETEROGENEITY[row["heterogeneity"]],
                cell_text(Estimate(**row["regret"])),
                cell_text(row["median"]),
                row["failing"],
                cell_text(Estimate(**row["rounds"])),
                f"{row['megabytes_up']:,.1f}",
                f"{row['megabytes_down']:,.1f}",
                row["communication_order"],
                row["regret_order"],
            ]
            text += f"| {' | '.join(cells)} |\n"
        text += "\n"
    if summary["claims"]:
        text += "| claim | figures | verdict |\n|---|---|---|\n"
    for claim in summary["claims"]:
        text += f"| {claim['claim']} | {claim['measured']} | {claim['outcome']} ({claim['seeds']}) |\n"
    return text


def check_names(names: Sequence[str]) -> None:
    if len({algorithm_name(class_of(name)) for name in names}) < len(names):
        raise InputError("an algorithm is named twice; name each once.")


EXPERIMENT = Experiment(grids, lambda table: [ordered(ordering, table) for ordering in ORDERINGS], analyse)
