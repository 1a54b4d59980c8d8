"""The comparison repeated with every algorithm's constants tuned by the same rule on other instances.

With the constants of the paper's experiments FedQ's bonuses are far larger than Fed-UCBVI's, which has no logarithm.
Here one factor on each algorithm's bonus is chosen on tuning instances (:mod:`.tuning`), and the algorithms are
compared again on the instances of the other experiments.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.colours import Marker
from fed_ucbvi.paper.claims import against, below, ratios_to
from fed_ucbvi.paper.figures import REGRET_LABEL, ROUNDS_LABEL
from fed_ucbvi.paper.judging import ERROR_TERM, Finding, all_or_none, compare, decide, verdict_of
from fed_ucbvi.paper.scale import Scale
from fed_ucbvi.paper.seed_groups import (
    SeedGroups,
    band_text,
    environments,
    having,
    interval,
    mean,
    regret,
    rounds,
    seed_groups_of,
    values,
)
from fed_ucbvi.paper.traces import Pair
from fed_ucbvi.paper.tuning import (
    BEST,
    FACTORS,
    FURTHER,
    PAPER,
    QUICK_FACTORS,
    RECOMMENDED,
    TUNED,
    TUNING_EPISODES,
    TUNING_SEEDS,
    UNTUNED,
    best_factors,
    factor_of,
    trials,
    tuning_text,
)
from fed_ucbvi.paper.wording import eps_text, range_text
from fed_ucbvi.report.content import Figure, Section, Table, Verdict
from fed_ucbvi.results.style import colour_of, label_of, marker_of

NAME = "fair"
TITLE = "The same comparison with everybody's constants tuned"
RIVAL = "fedq-bernstein"
RANGE_NAME = "from the least run to the largest"


def analyse(pairs: Sequence[Pair], scale: Scale) -> Section:
    """Regret against the factor, both comparisons side by side, and the verdicts with tuned constants."""
    seed_groups = seed_groups_of(pairs)
    tuned, paper = having(seed_groups, label=BEST), having(seed_groups, label=PAPER)
    untuned = having(seed_groups, label=UNTUNED)
    factors = QUICK_FACTORS if scale.quick else FACTORS
    return Section(
        id=NAME,
        title=TITLE,
        text=(
            f"Each algorithm's bonus is multiplied by the same factors k = {', '.join(f'{k:g}' for k in factors)}; "
            f"for each environment that k is taken whose largest regret on {len(TUNING_SEEDS)} tuning instances is "
            f"least (εₚ = 0, M = {scale.base_agents}, T = {TUNING_EPISODES:,}, seeds of their own): too small a "
            "bonus leaves some runs with a bad policy for ever, which a mean over short runs would not see. The "
            "instances of the other experiments are seen only afterwards. Where the best k is the least or the "
            f"largest, {FURTHER} more are tried beyond it. FedQ-Bernstein uses its variance from 10 samples on here, "
            "instead of 1000.",
            "Fed-KL-UCBVI stands beside them with nothing tuned.",
        ),
        verdicts=verdicts(seed_groups),
        figures=[_tuning_figure(seed_groups), *_comparison_figures(paper, tuned, untuned)],
        tables=[_table(seed_groups, paper, tuned)],
    )


def verdicts(seed_groups: SeedGroups) -> list[Verdict]:
    """The verdicts on the claims once every algorithm is tuned, each with how tuning was done."""
    tuned = having(seed_groups, label=BEST)
    found = [
        below(
            tuned,
            claim="Fed-UCBVI's regret is significantly lower than FedQ-Bernstein's, with both tuned.",
            place="Section 5, Impact of Heterogeneity, after tuning (beyond the paper)",
            detail=tuning_text(seed_groups, ("fed-ucbvi", RIVAL)),
        ),
        *(
            below(
                tuned,
                other=other,
                claim=f"Fed-UCBVI's regret is significantly lower than {label_of(other)}'s, with both tuned.",
                place="Table 1, after tuning (beyond the paper)",
                detail=tuning_text(seed_groups, ("fed-ucbvi", other)),
            )
            for other in ("fedq-hoeffding", "fedq-advantage")
        ),
        fewest_rounds(tuned, detail=tuning_text(seed_groups, tuple(TUNED))),
        kl_is_lowest(seed_groups, detail=tuning_text(seed_groups, tuple(TUNED))),
    ]
    return [verdict for verdict in found if verdict is not None]


def fewest_rounds(seed_groups: SeedGroups, detail: str = "") -> Verdict | None:
    """Whether Fed-UCBVI needs the fewest rounds of all tuned algorithms."""
    findings: dict[str, Finding | None] = {}
    for environment in environments(seed_groups):
        group = having(seed_groups, environment=environment)
        own = having(group, algorithm="fed-ucbvi")
        cells = [
            (key.eps_p, other, x, y)
            for other in dict.fromkeys(key.algorithm for key in group if key.algorithm != "fed-ucbvi")
            for key, x, y in against(own, group, other, rounds)
        ]
        if cells:
            eps_p, other, x, y = min(cells, key=lambda cell: float(np.mean(cell[3]) / np.mean(cell[2])))
            line = f"{np.mean(x):,.0f} rounds, next {label_of(other)} with {np.mean(y):,.0f}"
            found = [compare(x, y, strictly=True) for _, _, x, y in cells]
            text = f"{line} (at {eps_text(eps_p)}), closest of {len(cells)} comparisons"
            findings[label_of(environment)] = Finding(decide(all_or_none, found), text, line)
    return verdict_of(
        "Fed-UCBVI takes the fewest rounds, with the constants of all tuned.",
        "Section 5, communication complexity, after tuning (beyond the paper)",
        f"It holds in an environment if its mean rounds are below those of every other at every εₚ run. {ERROR_TERM}",
        findings,
        detail=detail,
    )


def kl_is_lowest(seed_groups: SeedGroups, detail: str = "") -> Verdict | None:
    """Whether Fed-KL-UCBVI, not tuned, has less regret than all tuned algorithms."""
    findings: dict[str, Finding | None] = {}
    for environment in environments(seed_groups):
        group = having(seed_groups, environment=environment)
        own, tuned = having(group, label=UNTUNED), having(group, label=BEST)
        cells = [
            (key.eps_p, other, x, y)
            for other in dict.fromkeys(key.algorithm for key in tuned)
            for key, x, y in against(own, tuned, other, regret)
        ]
        if cells:
            eps_p, other, x, y = min(cells, key=lambda cell: float(np.mean(cell[3]) / np.mean(cell[2])))
            line = f"{np.mean(x):,.1f}, next {label_of(other)} with {np.mean(y):,.1f}"
            found = [compare(x, y, strictly=True) for _, _, x, y in cells]
            text = f"{line} (at {eps_text(eps_p)}), closest of {len(cells)} comparisons"
            findings[label_of(environment)] = Finding(decide(all_or_none, found), text, line)
    return verdict_of(
        "Fed-KL-UCBVI, proved and with nothing tuned, has less regret than everybody else tuned.",
        "beyond the paper",
        f"It holds in an environment if its mean regret is below that of every other at every εₚ run. {ERROR_TERM}",
        findings,
        detail=detail,
    )


def _tuning_figure(seed_groups: SeedGroups) -> Figure:
    panels = []
    for environment in environments(seed_groups):
        series = []
        for name in TUNED:
            group = trials(seed_groups, environment, name)
            if group:
                spreads = [sorted(run.regret for run in replicates) for replicates in group.values()]
                series.append(
                    Series(
                        label_of(name),
                        colour_of(name),
                        [factor_of(key) for key in group],
                        [float(np.median(spread)) for spread in spreads],
                        [spread[0] for spread in spreads],
                        [spread[-1] for spread in spreads],
                        marker=marker_of(name),
                        label=label_of(name),
                        band=RANGE_NAME,
                    )
                )
        if series:
            panels.append(
                Panel(label_of(environment), "Factor k on the bonus", REGRET_LABEL, series, x_log=True, y_log=True)
            )
    return Figure(
        "fair_tuning",
        "How the size of the bonus decides the regret: too large costs much, too small fails now and then",
        "Tuning instances, εₚ = 0; k = 1 is the constant of the paper's experiments (FedQ-Bernstein: with "
        "the variance used from 10 samples on). Median over the tuning instances, band: from least to largest.",
        panels,
    )


def _comparison_figures(paper: SeedGroups, tuned: SeedGroups, untuned: SeedGroups) -> list[Figure]:
    figures = []
    for measure, y_label, id_, what in (
        (regret, REGRET_LABEL, "fair_regret", "regret"),
        (rounds, ROUNDS_LABEL, "fair_rounds", "rounds"),
    ):
        title = f"The {what} of all, as in the paper and tuned"
        gaps = [
            ratios_to(having(seed_groups, algorithm="fed-ucbvi"), seed_groups, RIVAL, measure)
            for seed_groups in (paper, tuned)
        ]
        if all(gaps):
            title = f"Fed-UCBVI's {what} over FedQ-Bernstein's: {range_text(gaps[0])} as in the paper, "
            title += f"{range_text(gaps[1])} tuned"
        panels = []
        for environment in environments(paper):
            for eps_p in values(paper, "eps_p"):
                series = []
                shown: list[tuple[Marker, str, SeedGroups]] = [
                    ("circle", PAPER, paper),
                    ("cross", BEST, tuned),
                    ("diamond", UNTUNED, untuned),
                ]
                for marker, variant, seed_groups in shown:
                    group = {
                        key.algorithm: replicates
                        for key, replicates in having(seed_groups, environment=environment, eps_p=eps_p).items()
                    }
                    for name in (*TUNED, RECOMMENDED):
                        if name in group:
                            found = [measure(run) for run in group[name]]
                            series.append(
                                Series(
                                    label_of(name),
                                    colour_of(name),
                                    [label_of(name)],
                                    [mean(group[name], measure)],
                                    [min(found)],
                                    [max(found)],
                                    marker=marker,
                                    line=False,
                                    variant=variant,
                                    band=RANGE_NAME,
                                )
                            )
                panels.append(Panel(f"{label_of(environment)}, {eps_text(eps_p)}", "", y_label, series, y_log=True))
        figures.append(
            Figure(
                id_,
                title,
                "Circles: constants as in the paper; crosses: tuned; diamonds: nothing to tune. Mean, and from "
                "the least to the largest run.",
                panels,
            )
        )
    return figures


def _table(seed_groups: SeedGroups, paper: SeedGroups, tuned: SeedGroups) -> Table:
    best = best_factors(seed_groups)
    columns = (
        "environment",
        "algorithm",
        "tuned",
        "best k",
        "at the edge",
        "εₚ",
        "regret, paper",
        "regret, tuned",
        "median, tuned",
        "rounds, paper",
        "rounds, tuned",
    )
    rows = []
    for key, replicates in paper.items():
        found = best.get((key.environment, key.algorithm))
        match = list(having(tuned, environment=key.environment, algorithm=key.algorithm, eps_p=key.eps_p).values())
        rows.append(
            (
                label_of(key.environment),
                label_of(key.algorithm),
                TUNED[key.algorithm][0],
                None if found is None else f"{found.factor:g}",
                None if found is None else f"the {found.edge} tried" if found.edge else "no",
                f"{key.eps_p:g}",
                interval(replicates, regret),
                interval(match[0], regret) if match else None,
                float(np.median([regret(run) for run in match[0]])) if match else None,
                interval(replicates, rounds),
                interval(match[0], rounds) if match else None,
            )
        )
    return Table("fair", "As in the paper, and tuned", band_text(paper.values()), columns, rows)
