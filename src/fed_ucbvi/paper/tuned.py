"""The comparison repeated with every algorithm's constants tuned by the same rule on other instances.

With the constants of the paper's experiments FedQ's bonuses are far larger than Fed-UCBVI's, which has no logarithm.
Here one factor k on each algorithm's bonus is chosen on tuning instances, the one whose largest regret is least, with
more factors beyond the edge of the grid where it is there. Then the algorithms are compared again on the instances of
the other experiments.

k = 1 is the constant of the paper's experiments, except that FedQ-Bernstein here uses its variance from 10 samples on
instead of 1000; otherwise its Bernstein bonus would never apply at these T. FedQ-Advantage takes the square root of
its constant, so its factor k is iota = k^2. In Concurrent UCBVI the factor applies to ``sqrt(1/N)`` but not to
``(H-h)/N``, which it always has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.core.colours import Marker
from fed_ucbvi.paper.experiment import Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import (
    NOT_PARTLY,
    OURS,
    Claim,
    Finding,
    against,
    carried,
    judge,
    range_text,
    ratios_at_most,
)
from fed_ucbvi.paper.report import run_figures as draw
from fed_ucbvi.paper.report.content import Cell, Figure, Section, Table, Verdict
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.paper.report.traces import Group, Measure, Traces, regret, rounds
from fed_ucbvi.paper.section5 import BELOW, OWN, below, ratios_to
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.looks import look_of
from fed_ucbvi.results.statistics import Estimate

EPS_P = (0.0, 0.1)
ALIKE_ONLY = ("concurrent-ucbvi", "fedq-hoeffding")
"""Run only with identical agents; the algorithms of the paper's figures also run with different agents."""
FACTORS = tuple(2.0**power for power in range(-6, 1))
QUICK_FACTORS = (0.25, 1.0)
FURTHER = 4
"""Number of factors that are tried beyond an edge of the grid, each twice or half the one before."""
TUNING_SEEDS = tuple(range(1000, 1006))
"""Seeds of runs and instances for tuning alone."""
TUNING_EPISODES = 3_000
"""T of tuning runs, or that of the experiment if it is shorter."""


class Tuning(NamedTuple):
    """Parameters that scale the bonus of an algorithm by a factor k, and how the report writes them."""

    text: str
    parameters: Callable[[float], dict[str, Any]]


TUNED = {
    "fed-ucbvi": Tuning("bonus_scale = k", lambda k: {"bonus_scale": k}),
    "concurrent-ucbvi": Tuning("scale = k", lambda k: {"scale": k}),
    "fedq-hoeffding": Tuning("c = 2k", lambda k: {"c": 2 * k}),
    "fedq-bernstein": Tuning(
        "c = c_bernstein = 2k, bernstein_after = 10",
        lambda k: {"c": 2 * k, "c_bernstein": 2 * k, "bernstein_after": 10},
    ),
    "fedq-advantage": Tuning("iota = k²", lambda k: {"iota": k * k}),
}
"""Tuned algorithms, with the parameters for a factor k."""
RIVAL = "fedq-bernstein"
RECOMMENDED = "fed-kl-ucbvi"
PAPER = "as in the paper"
BEST = "tuned"
UNTUNED = "nothing tuned"
MARKERS: dict[str, Marker] = {PAPER: "circle", BEST: "cross", UNTUNED: "diamond"}
TRIAL = "k = "
RANGE_NAME = "from the least run to the largest"


def grids(scale: RunScale) -> Grids:
    """Every factor on the tuning instances, and the constants of the paper's experiments on the others."""
    factors = dict.fromkeys(TUNED, QUICK_FACTORS if scale.quick else FACTORS)
    proved = scale.grid([{"name": RECOMMENDED, "label": UNTUNED}], eps_p=EPS_P)
    untuned = [scale.grid([{"name": name, "label": PAPER}], eps_p=_levels(name)) for name in TUNED]
    return [_tuning_grid(scale, [*scale.episodes], factors), *untuned, proved]


def _levels(algorithm: str) -> tuple[float, ...]:
    return EPS_P[:1] if algorithm in ALIKE_ONLY else EPS_P


def _tuning_grid(scale: RunScale, names: Sequence[str], factors: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Each algorithm with each of its factors on the tuning instances."""
    algorithms = []
    for name, several in factors.items():
        for factor in several:
            parameters = TUNED[name].parameters(factor)
            algorithms.append({"name": name, "label": f"{TRIAL}{factor:g}", **parameters})
    return scale.grid(
        algorithms,
        seeds=TUNING_SEEDS[:2] if scale.quick else TUNING_SEEDS,
        environments=names,
        episodes={name: min(scale.episodes[name], TUNING_EPISODES) for name in names},
    )


def wider_grids(table: Traces, scale: RunScale) -> Grids:
    """More factors beyond the edge of the grid, for algorithms whose best is at the edge; none if ``quick``."""
    if scale.quick:
        return []
    steps = {"least": 0.5, "largest": 2.0}
    grids = []
    for (environment, name), (factor, edge) in best_factors(table).items():
        if edge is not None:
            further = [factor * steps[edge] ** k for k in range(1, FURTHER + 1)]
            grids.append(_tuning_grid(scale, [environment], {name: further}))
    return grids


def tuned_grids(table: Traces, scale: RunScale) -> Grids:
    """Runs with the best factor of each algorithm on the instances of the other experiments."""
    grids = []
    for (environment, name), (factor, _) in best_factors(table).items():
        algorithm = {"name": name, "label": BEST, **TUNED[name].parameters(factor)}
        grid = scale.grid(
            [algorithm],
            environments=[environment],
            episodes={environment: scale.episodes[environment]},
            eps_p=_levels(name),
        )
        grids.append(grid)
    return grids


def _trials(table: Traces, **wanted: str) -> list[Group]:
    """The groups of tuning runs, in ascending order of the factor."""
    tried = table.having(**wanted).where(lambda group: group["label"].startswith(TRIAL))
    return sorted(tried, key=factor_of)


def factor_of(group: Group) -> float:
    return float(group["label"].removeprefix(TRIAL))


class Best(NamedTuple):
    """A factor, and its place at an edge of the grid: the ``least`` or the ``largest`` that was tried (else None)."""

    factor: float
    edge: str | None


def best_factors(table: Traces) -> dict[tuple[str, str], Best]:
    """The factor whose largest regret on the tuning instances is smallest, by environment and algorithm.

    Of factors that do equally well the largest is taken.
    """
    best = {}
    for environment, part in table.parts("environment").items():
        for name in TUNED:
            worst = {}
            for group in _trials(part, algorithm=name):
                worst[factor_of(group)] = float(group.samples(regret).max())
            if not worst:
                continue
            factor = min(worst, key=lambda factor: (worst[factor], -factor))
            edge = None
            if len(worst) > 1 and factor == min(worst):
                edge = "least"
            elif len(worst) > 1 and factor == max(worst):
                edge = "largest"
            best[environment, name] = Best(factor, edge)
    return best


def tuning_text(table: Traces, algorithms: Sequence[str]) -> str:
    """Description of the tuning of these algorithms, for a verdict: the instances, and best factors at an edge."""
    tried = Traces(_trials(table))
    tuned = table.having(label=BEST)
    seeds = {run.about.seed for run in tried.runs}
    others = {run.about.seed for run in tuned.runs}
    if not seeds or not others:
        return ""
    relation = "others" if seeds.isdisjoint(others) else "that are not all others"
    text = (
        f"Tuned on {len(seeds)} instances (seeds {min(seeds)} to {max(seeds)}), evaluated on {len(others)} "
        f"{relation} (seeds {min(others)} to {max(others)})."
    )
    for environment in table.parts("environment"):
        short = max(tried.having(environment=environment).values("episodes"), default=0)
        long = max(tuned.having(environment=environment).values("episodes"), default=0)
        if 0 < short < long:
            text += f" {label_of(environment)}: tuned with T = {short:,}, evaluated with T = {long:,}."
    edges = []
    for (environment, name), (factor, edge) in best_factors(table).items():
        if edge is not None and name in algorithms:
            where = f"{label_of(name)} on {label_of(environment)}"
            edges.append(f"{where} (k = {factor_text(factor)}, the {edge} tried)")
    if edges:
        return f"{text} At the edge of the grid: {', '.join(edges)}."
    return f"{text} No best k is at the edge."


def factor_text(factor: float) -> str:
    """A factor, as a fraction where it is below one.

    >>> factor_text(0.25), factor_text(2.0)
    ('1/4', '2')
    """
    return f"1/{1 / factor:g}" if factor < 1 else f"{factor:g}"


def analyse(table: Traces, scale: RunScale) -> Section:
    factors = QUICK_FACTORS if scale.quick else FACTORS
    return Section(
        "fair",
        "With everybody tuned",
        (
            f"Each algorithm's bonus is multiplied by the same factors k = {', '.join(f'{k:g}' for k in factors)}; "
            f"for each environment that k is taken whose largest regret on {len(TUNING_SEEDS)} tuning instances is "
            f"least (εₚ = 0, M = {scale.base_agents}, T = {TUNING_EPISODES:,}, seeds of their own): too small a "
            "bonus leaves some runs with a bad policy for ever, which a mean over short runs would not see. The "
            "instances of the other experiments are seen only afterwards. Where the best k is the least or the "
            f"largest, {FURTHER} more are tried beyond it. FedQ-Bernstein uses its variance from 10 samples on here, "
            "instead of 1000.",
            "Fed-KL-UCBVI stands beside them with nothing tuned.",
        ),
        figures=[_tuning_figure(table), *_comparison_figures(table)],
        tables=[_table(table)],
    )


FEWEST_ROUNDS = Claim(
    "fewest rounds, all tuned",
    "Fed-UCBVI takes the fewest rounds, with the constants of all tuned.",
    f"Section 5, communication complexity, after tuning ({OURS})",
    "A seed says holds in an environment if its rounds are below those of every other at every εₚ.",
)
KL_IS_LOWEST = Claim(
    "Fed-KL-UCBVI has less regret than all tuned",
    "Fed-KL-UCBVI, proved and with nothing tuned, has less regret than everybody else tuned.",
    OURS,
    "A seed says holds in an environment if its regret is below that of every other at every εₚ.",
)


def verdicts(table: Traces) -> Iterator[Verdict | None]:
    tuned = table.having(label=BEST)
    everybody = tuning_text(table, tuple(TUNED))
    places = {
        RIVAL: "Section 5, Impact of Heterogeneity",
        "fedq-hoeffding": "Table 1",
        "fedq-advantage": "Table 1",
    }
    for other, place in places.items():
        claim = BELOW._replace(
            name=f"far less regret than {label_of(other)}, both tuned",
            text=f"Fed-UCBVI's regret is significantly lower than {label_of(other)}'s, with both tuned.",
            place=f"{place}, after tuning ({OURS})",
        )
        yield below(tuned, other, claim, tuning_text(table, (OWN, other)))
    yield judge(FEWEST_ROUNDS, tuned, fewest_rounds, everybody)
    yield judge(KL_IS_LOWEST, table, _kl_is_lowest, everybody)


def fewest_rounds(table: Traces) -> Finding | None:
    own = table.having(algorithm=OWN)
    others = table.where(lambda group: group["algorithm"] != OWN)
    return _lowest(own, others, rounds, "{:,.0f} rounds, next {} with {:,.0f}")


def _kl_is_lowest(table: Traces) -> Finding | None:
    return _lowest(
        table.having(label=UNTUNED),
        table.having(label=BEST),
        regret,
        "{:,.1f}, next {} with {:,.1f}",
    )


def _lowest(own: Traces, others: Traces, measure: Measure, words: str) -> Finding | None:
    """Finding that a measure is below that of all others; the words name the medians of the closest comparison."""
    cells = {}
    for other in dict.fromkeys(group["algorithm"] for group in others):
        for pairs in against(own, others.having(algorithm=other), measure):
            cells[f"{draw.eps_text(pairs.group['eps_p'])}, over {label_of(other)}"] = pairs
    if not cells:
        return None
    where, closest = max(cells.items(), key=lambda cell: cell[1].typical)
    line = words.format(np.median(closest.x), label_of(closest.other["algorithm"]), np.median(closest.y))
    return Finding(
        conditions=ratios_at_most(1.0, cells, strictly=True),
        text=f"{line} in the median (at {where}), closest of {len(cells)} comparisons",
        line=line,
        partly=NOT_PARTLY,
        notes=carried(cells),
    )


def _tuning_figure(table: Traces) -> Figure:
    def curves(part: Traces) -> Iterator[Series]:
        for name in TUNED:
            if tried := _trials(part, algorithm=name):
                spreads = [_range(one, regret, np.median) for one in tried]
                look = {"line": True, "marker": look_of(name).marker, "band": RANGE_NAME}
                yield draw.bars(name, [*map(factor_of, tried)], spreads, **look)

    return Figure(
        "fair_tuning",
        "How the size of the bonus decides the regret: too large costs much, too small fails now and then",
        "Tuning instances, εₚ = 0; k = 1 is the constant of the paper's experiments (FedQ-Bernstein: with "
        "the variance used from 10 samples on). Median over the tuning instances, band: from least to largest.",
        draw.panels_of(
            table,
            curves,
            "Factor k on the bonus",
            draw.REGRET_LABEL,
            x_log=True,
            y_log=True,
        ),
    )


def _comparison_figures(table: Traces) -> list[Figure]:
    figures = []
    for measure, y_label, what in (
        (regret, draw.REGRET_LABEL, "regret"),
        (rounds, draw.ROUNDS_LABEL, "rounds"),
    ):
        title = f"The {what} of all, as in the paper and tuned"
        gaps = [ratios_to(table.having(label=label), RIVAL, measure) for label in (PAPER, BEST)]
        if all(gaps):
            before, after = map(range_text, gaps)
            title = f"Fed-UCBVI's {what} over FedQ-Bernstein's: {before} as in the paper, {after} tuned"
        paper = table.having(label=PAPER)
        panels = []
        for environment, eps_p in product(paper.parts("environment"), paper.values("eps_p")):
            points = _points(table.having(environment=environment, eps_p=eps_p), measure)
            where = f"{label_of(environment)}, {draw.eps_text(eps_p)}"
            panels.append(Panel(where, "", y_label, points, y_log=True))
        caption = (
            "Circles: constants as in the paper; crosses: tuned; diamonds: nothing to tune. Mean, and from the least "
            "to the largest run."
        )
        figures.append(Figure(f"fair_{what}", title, caption, panels))
    return figures


def _range(group: Group, measure: Measure, middle: Callable[..., Any]) -> Estimate:
    samples = group.samples(measure)
    return Estimate(
        mean=float(middle(samples)),
        low=float(np.min(samples)),
        high=float(np.max(samples)),
    )


def _points(table: Traces, measure: Measure) -> list[Series]:
    series: list[Series] = []
    for (variant, marker), name in product(MARKERS.items(), (*TUNED, RECOMMENDED)):
        look = {"marker": marker, "variant": variant, "band": RANGE_NAME}
        spreads = [_range(group, measure, np.mean) for group in table.having(label=variant, algorithm=name)]
        series += [draw.bars(name, [label_of(name)], [spread], **look) for spread in spreads]
    return series


def _table(table: Traces) -> Table:
    best = best_factors(table)
    tuned = table.having(label=BEST)

    def of_best(cell: Callable[[Best], Cell]) -> Callable[[Group], Cell]:
        known = {where: cell(found) for where, found in best.items()}
        return lambda group: known.get((group["environment"], group["algorithm"]))

    def of_tuned(cell: Callable[[Group], Cell]) -> Callable[[Group], Cell]:
        def found(group: Group) -> Cell:
            same = {name: group[name] for name in ("environment", "algorithm", "eps_p")}
            return next((cell(one) for one in tuned.having(**same)), None)

        return found

    shown: list[draw.Column] = [
        "environment",
        "algorithm",
        ("tuned", lambda group: TUNED[group["algorithm"]].text),
        ("best k", of_best(lambda found: f"{found.factor:g}")),
        (
            "at the edge",
            of_best(lambda found: f"the {found.edge} tried" if found.edge else "no"),
        ),
        "εₚ",
        ("regret, paper", "regret"),
        *((f"{name}, tuned", of_tuned(draw.COLUMNS[name])) for name in ("regret", "median", "failing")),
        ("rounds, paper", "rounds"),
        ("rounds, tuned", of_tuned(draw.COLUMNS["rounds"])),
    ]
    return draw.table_of_groups("fair", "As in the paper, and tuned", table.having(label=PAPER), shown)


EXPERIMENT = Experiment(grids, verdicts, analyse, (wider_grids, tuned_grids))
