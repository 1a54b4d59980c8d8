"""Fed-UCBVI with one part changed at a time; the authors' code has these options, the paper does not show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.colours import Marker
from fed_ucbvi.paper.figures import REGRET_LABEL, ROUNDS_LABEL
from fed_ucbvi.paper.judging import ERROR_TERM, Finding, compare, decide, verdict_of
from fed_ucbvi.paper.scale import Scale
from fed_ucbvi.paper.seed_groups import (
    Measure,
    SeedGroups,
    band_text,
    environments,
    having,
    interval,
    log_bars,
    mean,
    paired,
    regret,
    rounds,
    seed_groups_of,
    values,
)
from fed_ucbvi.paper.traces import Pair
from fed_ucbvi.paper.wording import eps_text
from fed_ucbvi.report.content import Figure, Outcome, Section, Table, Verdict
from fed_ucbvi.results.statistics import INTERVAL_NAME
from fed_ucbvi.results.style import colour_of, label_of

NAME = "ablations"
TITLE = "One part of Fed-UCBVI changed at a time"
ALGORITHM = "fed-ucbvi"
EPS_P = (0.0, 0.1)
PAPER, LOCAL, GLOBAL = "as in the paper", "local rule only", "global rule only"
VARIANTS: dict[str, dict[str, Any]] = {
    PAPER: {},
    "uniform weights": {"aggregation": "uniform"},
    LOCAL: {"synchronisation": "local"},
    GLOBAL: {"synchronisation": "global"},
    "> instead of ≥": {"strict": True},
    "theory bonus": {"bonus": "theory"},
    "corrected bonus": {"bonus": "corrected"},
}
MARKERS: tuple[Marker, ...] = ("cross", "circle")


def grids(scale: Scale) -> list[dict[str, Any]]:
    """Every variant on both environments, with identical and with different agents."""
    variants = [{"name": ALGORITHM, "label": label, **changes} for label, changes in VARIANTS.items()]
    return [scale.grid(variants, eps_p=EPS_P)]


def analyse(pairs: Sequence[Pair], scale: Scale) -> Section:
    """Regret and rounds of every variant, and whether the global rule is what saves communication."""
    seed_groups = seed_groups_of(pairs)
    verdict = global_rule_saves(seed_groups)
    return Section(
        id=NAME,
        title=TITLE,
        text=(
            f"M = {scale.base_agents}. Every variant differs from the paper's in one thing: agents weighted evenly "
            "instead of by their visits; only one of the two rules that ask for a synchronisation; rules that ask "
            "once counters have more than doubled, as in the main text, not once they have doubled; or the bonus of "
            "the theory, as printed and with the factor H that the proof of optimism needs.",
            "The mixture of the two rules applies the global one where N ≥ 14 εₚ T H M + 182 M βᶜ. No pair is "
            "visited more than M T times, so where 14 εₚ H + 182 βᶜ/T ≥ 1 (on GridWorld at every εₚ ≥ 0.01, on the "
            "synthetic MDP at every εₚ) it cannot fire, and the mixture is the local rule.",
        ),
        verdicts=[] if verdict is None else [verdict],
        figures=[_figure(seed_groups)],
        tables=[_table(seed_groups)],
    )


def global_rule_saves(seed_groups: SeedGroups) -> Verdict | None:
    """Whether the mixture of rules takes fewer rounds than the local rule alone."""
    return verdict_of(
        "The reduced communication results from triggering rounds by local estimates of global counters.",
        "Section 5, communication complexity",
        "It holds in an environment if the mixture of both rules takes fewer rounds on average than the local rule "
        f"alone at every εₚ; partly if at some. {ERROR_TERM}",
        {label_of(name): _global_rule(having(seed_groups, environment=name)) for name in environments(seed_groups)},
    )


def _global_rule(seed_groups: SeedGroups) -> Finding | None:
    found, texts, lines = [], [], []
    for eps_p in values(seed_groups, "eps_p"):
        by_label = {key.label: replicates for key, replicates in having(seed_groups, eps_p=eps_p).items()}
        if not {PAPER, LOCAL} <= by_label.keys():
            continue
        counts = paired(by_label[PAPER], by_label[LOCAL], rounds)
        if not counts[0]:
            continue
        found.append(compare(*counts, strictly=True))
        prints = {run.about.seed: run.fingerprint for run in by_label[LOCAL]}
        same = sum(prints.get(run.about.seed) == run.fingerprint for run in by_label[PAPER])
        fired = sum(run.rules_fired.get("global", 0) for run in by_label[PAPER])
        both, local = (mean(by_label[label], rounds) for label in (PAPER, LOCAL))
        text = (
            f"at {eps_text(eps_p)} {both:,.0f} rounds with both rules, {local:,.0f} with the local rule alone; "
            f"{same} of {len(counts[0])} runs are the same round by round, and the global rule fired {fired} times"
        )
        if GLOBAL in by_label:
            alone = by_label[GLOBAL]
            text += f" (alone it would take {mean(alone, rounds):,.0f} rounds, for a regret of "
            text += f"{mean(alone, regret):,.0f} instead of {mean(by_label[PAPER], regret):,.0f})"
        texts.append(text)
        lines.append(f"{both:,.0f} rounds against {local:,.0f} with the local rule alone at {eps_text(eps_p)}")
    if not found:
        return None
    return Finding(decide(_some, found), "; ".join(texts), lines[0])


def _some(answers: Sequence[bool]) -> Outcome:
    return "holds" if all(answers) else "holds partly" if any(answers) else "does not hold"


def _figure(seed_groups: SeedGroups) -> Figure:
    panels = [
        Panel(
            label_of(environment),
            "",
            label,
            _points(having(seed_groups, environment=environment), measure),
            y_log=True,
        )
        for measure, label in ((regret, REGRET_LABEL), (rounds, ROUNDS_LABEL))
        for environment in environments(seed_groups)
    ]
    return Figure(
        "ablations",
        "The bonus decides the regret; the rules for synchronisation hardly matter to it",
        f"Regret above, communication rounds below. {band_text(seed_groups.values())}",
        panels,
    )


def _points(seed_groups: SeedGroups, measure: Measure) -> list[Series]:
    series = []
    for marker, eps_p in zip(MARKERS, EPS_P, strict=True):
        spreads = {
            key.label: interval(replicates, measure) for key, replicates in having(seed_groups, eps_p=eps_p).items()
        }
        labels = [label for label in VARIANTS if label in spreads]
        if labels:
            series.append(
                Series(
                    label_of(ALGORITHM),
                    colour_of(ALGORITHM),
                    labels,
                    **log_bars([spreads[label] for label in labels]),
                    marker=marker,
                    line=False,
                    variant=eps_text(eps_p),
                    band=INTERVAL_NAME,
                )
            )
    return series


def _table(seed_groups: SeedGroups) -> Table:
    rows = [
        (
            label_of(key.environment),
            f"{key.eps_p:g}",
            key.label,
            interval(replicates, regret),
            interval(replicates, rounds),
        )
        for key, replicates in seed_groups.items()
    ]
    columns = ("environment", "εₚ", "variant", "regret", "rounds")
    return Table("ablations", "Every variant", band_text(seed_groups.values()), columns, rows)
