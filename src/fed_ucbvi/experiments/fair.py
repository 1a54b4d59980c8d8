"""The comparison repeated with every algorithm's constants tuned by the same rule on other instances.

The constants of the paper's experiments leave FedQ with bonuses far larger than Fed-UCBVI's, which has no logarithm
in its own. Here each algorithm's bonus is multiplied by each of the same seven factors, 1/64 to 1 (larger ones add
regret), one factor is chosen on tuning instances, and the algorithms meet again on the instances of the others.

*The rule*: the factor whose largest regret over the tuning instances is least. Too small a bonus leaves some runs
with a bad policy for ever; a mean over a few short runs does not see what this costs later, the largest regret does.

*The same grid*: one number is tuned for each algorithm, a factor on its whole bonus, over the same values.
FedQ-Bernstein has a second constant, from how many samples on its variance is used; 1000 in the paper's experiments,
it is 10 here for all factors, in its favour. FedQ-Advantage's bonus is proportional to the root of iota, so a factor
k is iota = k^2. In Concurrent UCBVI the factor applies to ``sqrt(1/N)`` but not to ``(H-h)/N``, which it always has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fed_ucbvi.experiments.claims import Finding, below, eps_text, range_text, ratios_to, verdict_of
from fed_ucbvi.experiments.figures import REGRET_LABEL, ROUNDS_LABEL
from fed_ucbvi.experiments.lots import (
    MARKERS,
    Lots,
    band_text,
    environments,
    having,
    interval,
    lots_of,
    mean,
    regret,
    rounds,
    values,
)
from fed_ucbvi.experiments.scale import Scale
from fed_ucbvi.experiments.traces import Pair
from fed_ucbvi.report.content import Figure, Panel, Section, Series, Table, Verdict
from fed_ucbvi.results.style import colour_of, label_of

NAME = "fair"
TITLE = "The same comparison with everybody's constants tuned"
EPS_P = (0.0, 0.1)
ALIKE_ONLY = ("concurrent-ucbvi", "fedq-hoeffding")
"""Run with identical agents alone; the algorithms of the paper's figures meet different agents too."""
FACTORS = tuple(2.0**power for power in range(-6, 1))
QUICK_FACTORS = (0.25, 1.0)
TUNING_SEEDS = tuple(range(1000, 1006))
"""Seeds of runs and instances for tuning alone."""
TUNING_EPISODES = 3_000
"""T of tuning runs, or that of the experiment if it is shorter."""
TUNED: dict[str, tuple[str, Callable[[float], dict[str, Any]]]] = {
    "fed-ucbvi": ("bonus_scale = k", lambda k: {"bonus_scale": k}),
    "concurrent-ucbvi": ("scale = k", lambda k: {"scale": k}),
    "fedq-hoeffding": ("c = 2k", lambda k: {"c": 2 * k}),
    "fedq-bernstein": (
        "c = c_bernstein = 2k, bernstein_after = 10",
        lambda k: {"c": 2 * k, "c_bernstein": 2 * k, "bernstein_after": 10},
    ),
    "fedq-advantage": ("iota = k²", lambda k: {"iota": k * k}),
}
"""What is tuned: the parameters for a factor k, by algorithm."""
PAPER, BEST = "as in the paper", "tuned"
RIVAL = "fedq-bernstein"


def grids(scale: Scale) -> list[dict[str, Any]]:
    """Every factor on the tuning instances, and the constants of the paper's experiments on the others."""
    factors = QUICK_FACTORS if scale.quick else FACTORS
    tried = [
        {"name": name, "label": _trial(factor), **parameters(factor)}
        for name, (_, parameters) in TUNED.items()
        for factor in factors
    ]
    untuned = [
        scale.grid([{"name": name, "label": PAPER}], eps_p=EPS_P[:1] if name in ALIKE_ONLY else EPS_P)
        for name in TUNED
    ]
    shorter = {name: min(episodes, TUNING_EPISODES) for name, episodes in scale.episodes.items()}
    seeds = list(TUNING_SEEDS[: 2 if scale.quick else None])
    return [scale.grid(tried, seeds=seeds, episodes=shorter), *untuned]


def more_grids(pairs: Sequence[Pair], scale: Scale) -> list[dict[str, Any]]:
    """The best factor of each algorithm on the instances of the other experiments."""
    found = []
    for (environment, name), factor in best_factors(lots_of(pairs)).items():
        _, parameters = TUNED[name]
        best = {"name": name, "label": BEST, **parameters(factor)}
        episodes = {environment: scale.episodes[environment]}
        eps_p = EPS_P[:1] if name in ALIKE_ONLY else EPS_P
        found.append(scale.grid([best], environments=[environment], episodes=episodes, eps_p=eps_p))
    return found


def _trial(factor: float) -> str:
    return f"k = {factor:g}"


def trials(lots: Lots, environment: str, algorithm: str) -> Lots:
    """The lots of an algorithm's tuning by label, in ascending order of the factor."""
    group = having(lots, environment=environment, algorithm=algorithm)
    chosen = {key: lot for key, lot in group.items() if key.label.startswith("k = ")}
    return dict(sorted(chosen.items(), key=lambda item: _factor(item[0].label)))


def _factor(label: str) -> float:
    return float(label.removeprefix("k = "))


def best_factors(lots: Lots) -> dict[tuple[str, str], float]:
    """The factor whose largest regret on the tuning instances is least, by environment and algorithm."""
    best = {}
    for environment in environments(lots):
        for name in TUNED:
            worst = {
                _factor(key.label): max(run.common_regret for run in lot)
                for key, lot in trials(lots, environment, name).items()
            }
            if worst:
                best[environment, name] = min(worst, key=lambda factor: worst[factor])
    return best


def analyse(pairs: Sequence[Pair], scale: Scale) -> Section:
    """Regret over the factors, both comparisons side by side, and what is left of the claim."""
    lots = lots_of(pairs)
    tuned, paper = having(lots, label=BEST), having(lots, label=PAPER)
    factors = QUICK_FACTORS if scale.quick else FACTORS
    verdicts = [
        below(
            tuned,
            claim="Fed-UCBVI's regret is significantly lower than FedQ-Bernstein's, with both tuned.",
            place="Section 5, Impact of Heterogeneity, after tuning (beyond the paper)",
        ),
        *(
            below(
                tuned,
                other=other,
                claim=f"Fed-UCBVI's regret is significantly lower than {label_of(other)}'s, with both tuned.",
                place="Table 1, after tuning (beyond the paper)",
            )
            for other in ("fedq-hoeffding", "fedq-advantage")
        ),
        fewest_rounds(tuned),
    ]
    return Section(
        id=NAME,
        title=TITLE,
        text=(
            f"Each algorithm's bonus is multiplied by the same factors k = {', '.join(f'{k:g}' for k in factors)}; "
            f"for each environment that k is taken whose largest regret on {len(TUNING_SEEDS)} tuning instances is "
            f"least (εₚ = 0, M = {scale.base_agents}, T = {TUNING_EPISODES:,}, seeds of their own): too small a "
            "bonus leaves some runs with a bad policy for ever, which a mean over short runs would not see. The "
            "instances of the other experiments are seen only afterwards. FedQ-Bernstein uses its variance from 10 "
            "samples on here, instead of 1000.",
        ),
        verdicts=[verdict for verdict in verdicts if verdict is not None],
        figures=[_tuning_figure(lots), *_comparison_figures(paper, tuned)],
        tables=[_table(lots, paper, tuned)],
    )


def fewest_rounds(lots: Lots) -> Verdict | None:
    """Whether Fed-UCBVI needs the fewest rounds of all, tuned."""
    findings: dict[str, Finding | None] = {}
    for environment in environments(lots):
        group = having(lots, environment=environment)
        own = [mean(lot, rounds) for lot in having(group, algorithm="fed-ucbvi").values()]
        others = {
            key.algorithm: min(mean(lot, rounds) for lot in having(group, algorithm=key.algorithm).values())
            for key in group
            if key.algorithm != "fed-ucbvi"
        }
        if own and others:
            next_best = min(others, key=lambda name: others[name])
            text = (
                f"at most {max(own):,.0f} rounds, next {label_of(next_best)} with at least {others[next_best]:,.0f}"
            )
            findings[label_of(environment)] = Finding(
                "holds" if max(own) < others[next_best] else "does not hold", text
            )
    return verdict_of(
        "Fed-UCBVI takes the fewest rounds, with the constants of all tuned.",
        "Section 5, communication complexity, after tuning (beyond the paper)",
        "It holds in an environment if its mean rounds are below those of every other at every εₚ run.",
        findings,
    )


def _tuning_figure(lots: Lots) -> Figure:
    panels = []
    for environment in environments(lots):
        series = []
        for name in TUNED:
            group = trials(lots, environment, name)
            if group:
                spreads = [sorted(run.common_regret for run in lot) for lot in group.values()]
                series.append(
                    Series(
                        label_of(name),
                        colour_of(name),
                        [_factor(key.label) for key in group],
                        [float(np.median(spread)) for spread in spreads],
                        [spread[0] for spread in spreads],
                        [spread[-1] for spread in spreads],
                        marker=MARKERS.get(name, "none"),
                        label=label_of(name),
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


def _comparison_figures(paper: Lots, tuned: Lots) -> list[Figure]:
    figures = []
    for measure, y_label, id_, what in (
        (regret, REGRET_LABEL, "fair_regret", "regret"),
        (rounds, ROUNDS_LABEL, "fair_rounds", "rounds"),
    ):
        title = f"The {what} of all, as in the paper and tuned"
        gaps = [ratios_to(having(lots, algorithm="fed-ucbvi"), lots, RIVAL, measure) for lots in (paper, tuned)]
        if all(gaps):
            title = f"Fed-UCBVI's {what} over FedQ-Bernstein's: {range_text(gaps[0])} as in the paper, "
            title += f"{range_text(gaps[1])} tuned"
        panels = []
        for environment in environments(paper):
            for eps_p in values(paper, "eps_p"):
                series = []
                for marker, variant, lots in (("circle", PAPER, paper), ("cross", BEST, tuned)):
                    group = {
                        key.algorithm: lot for key, lot in having(lots, environment=environment, eps_p=eps_p).items()
                    }
                    for name in TUNED:
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
                                    marker=marker,  # type: ignore[arg-type]
                                    line=False,
                                    variant=variant,
                                )
                            )
                panels.append(Panel(f"{label_of(environment)}, {eps_text(eps_p)}", "", y_label, series, y_log=True))
        figures.append(
            Figure(
                id_,
                title,
                "Circles: constants as in the paper; crosses: tuned. Mean, and from the least to the largest run.",
                panels,
            )
        )
    return figures


def _table(lots: Lots, paper: Lots, tuned: Lots) -> Table:
    best = best_factors(lots)
    columns = (
        "environment",
        "algorithm",
        "tuned",
        "best k",
        "εₚ",
        "regret, paper",
        "regret, tuned",
        "rounds, paper",
        "rounds, tuned",
    )
    rows = []
    for key, lot in paper.items():
        factor = best.get((key.environment, key.algorithm))
        match = list(having(tuned, environment=key.environment, algorithm=key.algorithm, eps_p=key.eps_p).values())
        rows.append(
            (
                label_of(key.environment),
                label_of(key.algorithm),
                TUNED[key.algorithm][0],
                None if factor is None else f"{factor:g}",
                f"{key.eps_p:g}",
                interval(lot, regret),
                interval(match[0], regret) if match else None,
                interval(lot, rounds),
                interval(match[0], rounds) if match else None,
            )
        )
    return Table("fair", "As in the paper, and tuned", band_text(paper.values()), columns, rows)
