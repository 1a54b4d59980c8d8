"""Fed-UCBVI with one part changed at a time; the authors' code has these options, the paper does not show them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from fed_ucbvi.core.colours import Marker
from fed_ucbvi.paper.experiment import Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import ANY_CONDITION, Claim, Finding, Pairs, judge, ratios_at_most
from fed_ucbvi.paper.report import run_figures as draw
from fed_ucbvi.paper.report.content import Figure, Section, Verdict
from fed_ucbvi.paper.report.panels import Series
from fed_ucbvi.paper.report.traces import Measure, Traces, regret, rounds

ALGORITHM = "fed-ucbvi"
MARKERS: dict[float, Marker] = {0.0: "cross", 0.1: "circle"}
"""The marker of each eps_p that is run."""
PAPER = "as in the paper"
LOCAL = "local rule only"
GLOBAL = "global rule only"
VARIANTS: dict[str, dict[str, Any]] = {
    PAPER: {},
    LOCAL: {"synchronisation": "local"},
    GLOBAL: {"synchronisation": "global"},
    "> instead of ≥": {"strict": True},
    "theory bonus": {"bonus": "theory"},
    "corrected bonus": {"bonus": "corrected"},
}
TEXT = (
    "M = {}. Every variant differs from the paper's in one thing: "
    "only one of the two rules that ask for a synchronisation; rules that ask once counters have more than doubled, "
    "as in the main text, not once they have doubled; or the bonus of the theory, as printed and with the factor H "
    "that the proof of optimism needs.",
    "The mixture of the two rules applies the global one where N ≥ 14 εₚ T H M + 182 M βᶜ. No pair is visited more "
    "than M T times, so where 14 εₚ H + 182 βᶜ/T ≥ 1 (on GridWorld at every εₚ ≥ 0.01, on the synthetic MDP at every "
    "εₚ) it cannot fire, and the mixture is the local rule.",
)


def grids(scale: RunScale) -> Grids:
    """Every variant on both environments, with identical and with different agents."""
    variants = [{"name": ALGORITHM, "label": label, **changes} for label, changes in VARIANTS.items()]
    return [scale.grid(variants, eps_p=tuple(MARKERS))]


def analyse(table: Traces, scale: RunScale) -> Section:
    panels = draw.panels_of(table, partial(_points, regret), "", draw.REGRET_LABEL, y_log=True)
    panels += draw.panels_of(table, partial(_points, rounds), "", draw.ROUNDS_LABEL, y_log=True)
    figure = Figure(
        "ablations",
        "The bonus decides the regret; the rules for synchronisation hardly matter to it",
        f"Regret above, communication rounds below. {draw.band_text(table)}",
        panels,
    )
    shown = (
        "environment",
        "εₚ",
        ("variant", "label"),
        "runs",
        "regret",
        "median",
        "failing",
        "rounds",
    )
    cells = draw.table_of_groups("ablations", "Every variant", table, shown)
    text = (TEXT[0].format(scale.base_agents), TEXT[1])
    return Section(
        "ablations",
        "One part changed at a time",
        text,
        figures=[figure],
        tables=[cells],
    )


GLOBAL_RULE = Claim(
    "few rounds because of the global rule",
    "The reduced communication results from triggering rounds by local estimates of global counters.",
    "Section 5, communication complexity",
    "A seed says holds in an environment if the mixture of both rules takes fewer rounds than the local rule alone "
    "at every εₚ; partly if at some.",
)


def verdicts(table: Traces) -> list[Verdict | None]:
    return [judge(GLOBAL_RULE, table, _global_rule)]


def _global_rule(table: Traces) -> Finding | None:
    cells: dict[str, Pairs] = {}
    texts = []
    lines = []
    for eps_p in table.values("eps_p"):
        by_label = {group["label"]: group for group in table.having(eps_p=eps_p)}
        if PAPER not in by_label or LOCAL not in by_label:
            continue
        paper = by_label[PAPER]
        local = by_label[LOCAL]
        where = draw.eps_text(eps_p)
        cells[where] = paper.paired(local, rounds)
        local_runs = {run.about.seed: run.fingerprint for run in local.runs}
        same = sum(local_runs.get(run.about.seed) == run.fingerprint for run in paper.runs)
        fired = sum(run.rules_fired.get("global", 0) for run in paper.runs)
        rounds_of_both = paper.mean(rounds)
        rounds_of_local = local.mean(rounds)
        text = (
            f"at {where} {rounds_of_both:,.0f} rounds with both rules, {rounds_of_local:,.0f} with the local rule "
            f"alone; {same} of {len(cells[where].seeds)} runs are the same round by round, and the global rule fired "
            f"{fired} times"
        )
        if GLOBAL in by_label:
            alone = by_label[GLOBAL]
            text += (
                f" (alone it would take {alone.mean(rounds):,.0f} rounds, for a regret of "
                f"{alone.mean(regret):,.0f} instead of {paper.mean(regret):,.0f})"
            )
        texts.append(text)
        both_rules = f"{rounds_of_both:,.0f} rounds"
        lines.append(f"{both_rules} against {rounds_of_local:,.0f} with the local rule alone at {where}")
    conditions = ratios_at_most(1.0, cells, strictly=True)
    if not conditions:
        return None
    return Finding(
        conditions=conditions,
        text="; ".join(texts),
        line=lines[0],
        partly=ANY_CONDITION,
    )


def _points(measure: Measure, table: Traces) -> Iterator[Series]:
    for eps_p, marker in MARKERS.items():
        spreads = {group["label"]: group.estimate(measure) for group in table.having(eps_p=eps_p)}
        if labels := [label for label in VARIANTS if label in spreads]:
            points = [spreads[label] for label in labels]
            yield draw.bars(ALGORITHM, labels, points, marker=marker, variant=draw.eps_text(eps_p))


EXPERIMENT = Experiment(grids, verdicts, analyse)
