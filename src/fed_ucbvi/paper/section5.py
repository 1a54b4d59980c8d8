"""Section 5 of the paper: figures 1 to 3, and its claims, each judged by a rule fixed here, before anything is run.

The figures are regret against T and against M, and communication rounds against M: Fed-UCBVI against FedQ-Bernstein,
as in the paper, and against FedQ-Advantage, with the constants of the paper's experiments. Environments are drawn
from the run's seed, so that cells differ by nothing but what the axes say.

A rule says what one seed, with its runs in all cells, says of a claim in an environment; the verdict is what most
seeds say (:mod:`fed_ucbvi.paper.judging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from fed_ucbvi.algorithms import ALGORITHMS as REGISTRY
from fed_ucbvi.charts.panels import DASHES, Panel, Series
from fed_ucbvi.core.colours import DARK_GREY
from fed_ucbvi.paper import judging
from fed_ucbvi.paper.experiment import Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import Claim, Condition, Find, Finding, Pairs, range_text, ratios_at_most, signed
from fed_ucbvi.report import run_figures as draw
from fed_ucbvi.report.content import Figure, Section, Verdict
from fed_ucbvi.report.run_figures import cell_text, eps_text
from fed_ucbvi.report.traces import Group, Measure, Trace, Traces, regret, rounds
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.run_table import Seeds

ALGORITHMS = ("fed-ucbvi", "fedq-bernstein", "fedq-advantage")
MARKERS = "Crosses: Fed-UCBVI, circles: FedQ-Bernstein, squares: FedQ-Advantage."
SLIGHT_INCREASE = 1.25
"""A regret of at most this many times that of identical agents is a slight increase."""
LINEAR = -0.9
"""Slope of log regret against log M up to which the speed-up is called linear; -1 would be exactly linear."""
ROOT = -0.5
"""The slope of the leading term of the regret bound, sqrt(H^3 S A T / M)."""
MARGINAL = 0.1
"""Slope of log rounds against log M up to which rounds are nearly flat: 50 times the agents, 1.5 times the rounds."""
FAR_BELOW = 0.5
"""Ratio up to which one regret is significantly below another."""
FEW = 0.1
"""Share of T up to which rounds are significantly fewer than episodes."""
OWN = "fed-ucbvi"


def grids(scale: RunScale) -> Grids:
    """All eps_p for all M and algorithms if the scale is ``full``.

    Otherwise Fed-UCBVI has all eps_p for the base M, and those that are drawn for all M. FedQ-Bernstein has the drawn
    eps_p for the base M, all M but 50 at eps_p = 0, and M up to the base at the largest eps_p. FedQ-Advantage, of
    which the paper claims nothing, has M up to the base, and two eps_p.
    """
    if scale.size == "full":
        return [scale.grid(ALGORITHMS, eps_p=scale.eps_p, agents=scale.agents)]
    own, rival, other = ALGORITHMS
    alike, shown = scale.eps_p[:1], drawn(scale)
    few = tuple(M for M in scale.agents if scale.base_agents >= M)
    return [
        scale.grid([own], eps_p=scale.eps_p),
        scale.grid([own], eps_p=shown, agents=scale.agents),
        scale.grid([rival], eps_p=shown),
        scale.grid([other], eps_p=shown[:2]),
        scale.grid([rival], eps_p=alike, agents=(*few, *scale.agents[-1:])),
        scale.grid([rival], eps_p=shown[-1:], agents=few),
        scale.grid([other], eps_p=alike, agents=few),
    ]


def drawn(scale: RunScale) -> tuple[float, ...]:
    return (scale.eps_p[0], *([0.1] if 0.1 in scale.eps_p else []), scale.eps_p[-1])


def analyse(table: Traces, scale: RunScale) -> Section:
    """Figures 1 to 3, the cost of heterogeneity, the table behind them, and the claims of Section 5."""
    base = table.having(agents=scale.base_agents)
    shown = drawn(scale)
    text = (
        "A smoke test with short runs and few agents: the figures are drawn, but say nothing about the paper."
        if scale.quick
        else "Both environments of the paper, H = 10 and T = 30 000 on GridWorld, S = A = H = 5 and T = 3 000 on the "
        "synthetic MDP; Fed-UCBVI's practical bonus and the FedQ constants are those of the paper's experiments. "
        "The MDP and the agents' kernels are drawn from the run's seed and are the same for every M, εₚ and "
        "algorithm."
    )
    against_agents = [
        Figure(
            f"figure{number}",
            f"Fed-UCBVI's {what} against M{_slopes_text(table, shown[0], measure)}",
            f"Figure {number} of the paper. {note} Slopes in the title: of log {what} against log M between "
            f"neighbouring M, of Fed-UCBVI at εₚ = 0. {MARKERS} {draw.band_text(table)}",
            _against_agents(table, shown, measure, y_label),
        )
        for number, what, measure, y_label, note in (
            (2, "regret", regret, draw.REGRET_LABEL, "Dotted grey: in proportion to 1/M, a linear speed-up."),
            (3, "rounds", rounds, draw.ROUNDS_LABEL, "Fewer is better; T is the most there can be."),
        )
    ]
    over_bytes = bytes_figure(base.having(eps_p=scale.eps_p[0]), "regret_and_bytes")
    figures = (_regret_over_episodes(base, shown), _regret_over_eps_p(base), *against_agents, over_bytes)
    tables = [draw.cells_table(table, "figures", "Every cell of the figures")]
    return Section("figures", "The paper's figures", (text,), figures=figures, tables=tables)


def _regret_over_episodes(table: Traces, shown: Sequence[float]) -> Figure:
    def curves(part: Traces) -> Iterator[Series]:
        for dash, eps_p in zip(DASHES, shown, strict=False):
            for group in part.having(eps_p=eps_p):
                yield draw.over_episodes(group, dash=dash, variant=eps_text(eps_p))

    ratios, agents = ratios_to(table, ALGORITHMS[1]), ", ".join(str(m) for m in table.values("agents"))
    return Figure(
        "figure1",
        f"Fed-UCBVI ends with {range_text(ratios)} times the regret of FedQ-Bernstein" if ratios else "Regret",
        f"Figure 1 of the paper, M = {agents}. {MARKERS} {draw.band_text(table)}",
        draw.panels_of(table, curves, draw.EPISODES_LABEL, draw.REGRET_LABEL, x_log=True, y_log=True),
    )


def _regret_over_eps_p(table: Traces) -> Figure:
    """The regret at T against eps_p, relative to eps_p = 0, seed by seed."""

    def curves(part: Traces) -> Iterator[Series]:
        for algorithm in ALGORITHMS:
            groups = part.having(algorithm=algorithm).ordered("eps_p")
            samples = groups.in_common(regret)
            if samples.size and groups.groups[0]["eps_p"] == 0.0:
                names = [f"{group['eps_p']:.2g}" for group in groups]
                yield draw.banded(algorithm, names, (samples / samples[0]).T)

    panels = draw.panels_of(table, curves, "εₚ", "Regret at T, relative to εₚ = 0")
    changes = ", ".join(f"{panel.series[0].y[-1]:.2f} times on {panel.title}" for panel in panels)
    return Figure(
        "heterogeneity",
        f"What differences between agents do to Fed-UCBVI's regret: {changes} at εₚ = "
        f"{max(table.values('eps_p'), default=0.0):.2g}",
        "Regret of each seed divided by its regret with identical agents. Weight εₚ of the agents' own kernels. "
        f"{draw.band_text(table)}",
        panels,
    )


def _against_agents(table: Traces, shown: Sequence[float], measure: Measure, y_label: str) -> list[Panel]:
    def curves(part: Traces) -> Iterator[Series]:
        first = None
        for dash, eps_p in zip(DASHES, shown, strict=False):
            for algorithm in ALGORITHMS:
                cells = part.having(algorithm=algorithm, eps_p=eps_p)
                curve = draw.over_agents(cells, measure, dash=dash, variant=eps_text(eps_p))
                if curve is not None and len(curve.x) > 1:
                    first = first or curve
                    yield curve
        if measure is regret and first is not None:
            yield inverse_line(first)

    return draw.panels_of(table, curves, draw.AGENTS_LABEL, y_label, x_log=True, y_log=True)


def in_order(table: Iterable[Group]) -> list[Group]:
    """The groups in the order of the registry; algorithms that are not in it come last."""
    names = list(REGISTRY)
    return sorted(table, key=lambda one: names.index(one["algorithm"]) if one["algorithm"] in names else len(names))


def bytes_figure(table: Traces, id_: str) -> Figure:
    def curves(part: Traces) -> list[Series | None]:
        return [draw.over_bytes(group, marker="none") for group in in_order(part)]

    return Figure(
        id_,
        "What a byte buys: the lower and the further left a curve ends, the better",
        f"Common regret against what all agents and the server had sent by then; εₚ = 0. {draw.band_text(table)}",
        draw.panels_of(table, curves, draw.BYTES_LABEL, draw.REGRET_LABEL, x_log=True, y_log=True),
    )


def _slopes_text(table: Traces, eps_p: float, measure: Measure) -> str:
    """How steep the curves are from each M to the next at one eps_p, for a title."""
    texts = []
    for name, part in table.having(algorithm=OWN).parts("environment").items():
        steps = list(local_slopes(part.having(eps_p=eps_p), measure).items())
        if len(steps) == 1:
            texts.append(f"{signed(steps[0][1])} on {label_of(name)}")
        elif steps:
            (first, start), (last, end) = steps[0], steps[-1]
            ends = f"{signed(start)} (M = {first[0]} to {first[1]}) to {signed(end)} (M = {last[0]} to {last[1]})"
            texts.append(f"{ends} on {label_of(name)}")
    return f": local slope {'; '.join(texts)}" if texts else ""


def inverse_line(like: Series) -> Series:
    """A line in proportion to 1/M through the first point of another curve."""
    x = [float(value) for value in like.x]
    y = [like.y[0] * x[0] / value for value in x]
    return Series("linear speed-up", DARK_GREY, x, y, dash="dotted")


HETEROGENEITY = Claim(
    "heterogeneity costs little regret",
    "Increasing εₚ only incurs a slight increase in Fed-UCBVI's regret.",
    "Section 5, Impact of Heterogeneity; Figure 1",
    f"A seed says holds in an environment if its regret at every εₚ > 0 is at most {SLIGHT_INCREASE} times that at "
    "εₚ = 0, for every M; partly if in at least half of these cells.",
)


def _heterogeneity(table: Traces) -> Finding | None:
    cells: dict[str, Pairs] = {}
    for alike in table.having(eps_p=0.0):
        for group in table.having(agents=alike["agents"]):
            found = group.paired(alike, regret)
            if group["eps_p"] > 0 and found.seeds:
                cells[cell_text(group)] = found
    if not cells:
        return None
    worst = max(cells, key=lambda cell: cells[cell].typical)
    largest = max(table.values("eps_p"))
    late = {}
    for eps_p in (0.0, largest):
        runs = table.having(eps_p=eps_p).runs
        late[eps_p] = np.mean([1 - run.regret_at(run.episodes_played / 2) / run.regret for run in runs])
    text = (
        f"regret is {judging.ratios_text(cells)} that at εₚ = 0, most at {worst}; of it "
        f"{late[0.0]:.1%} falls into the second half of the episodes at εₚ = 0 and {late[largest]:.1%} at "
        f"{eps_text(largest)} (of a term linear in T it would be half)"
    )
    line, asked = f"{judging.typical_text(cells)} times the regret at εₚ = 0", ratios_at_most(SLIGHT_INCREASE, cells)
    return Finding(asked, text, line, notes=judging.carried(cells))


def slopes_in_agents(table: Traces, measure: Measure) -> dict[Seeds, float]:
    """Slope of log measure against log M over all M, for each seed that all M have; empty for a single M."""
    order = table.ordered("agents")
    samples = order.in_common(measure)
    if len(table.values("agents")) < 2 or not samples.size:
        return {}
    agents = np.log([group["agents"] for group in order])
    slopes = np.polyfit(agents, np.log(np.maximum(samples, 1e-12)), 1)[0]
    return dict(zip(order.common_seeds(), slopes.tolist(), strict=True))


def local_slopes(table: Traces, measure: Measure) -> dict[tuple[int, int], float]:
    """Slope of log mean measure against log M between neighbouring M, by the pair of M."""
    means = {group["agents"]: max(group.mean(measure), 1e-12) for group in table.ordered("agents")}
    steps = pairwise(means)
    return {(few, many): float(np.log(means[many] / means[few]) / np.log(many / few)) for few, many in steps}


SPEED_UP = Claim(
    "linear speed-up in M",
    "Fed-UCBVI has linear speed-up in the number of agents M, also in high heterogeneity.",
    "Section 5, Fed-UCBVI has linear speed-up; Figure 2",
    f"Slope of log regret against log M, fitted over all M for each seed: {signed(-1)} is linear, {signed(ROOT)} the "
    f"leading term of Theorem 1. A seed says holds in an environment if its slope is at most {signed(LINEAR)} for "
    f"every εₚ; partly if at most {signed(ROOT)} for every εₚ, or at most {signed(LINEAR)} for some.",
)
FLAT_ROUNDS = Claim(
    "rounds hardly grow with M",
    "Fed-UCBVI's communication rounds increase only marginally with the number of agents M.",
    "Section 5, communication complexity; Figure 3",
    "Slope of log rounds against log M, fitted over all M for each seed (0 is flat). A seed says holds in an "
    f"environment if its slope is at most {MARGINAL} for every εₚ; partly if at most {-ROOT} for every εₚ, or at "
    f"most {MARGINAL} for some.",
)
FEW_ROUNDS = Claim(
    "far fewer rounds than episodes",
    "Fed-UCBVI's communication rounds are significantly fewer than the episodes T.",
    "Section 5, communication complexity; Figure 3",
    f"A seed says holds in an environment if its rounds are at most {FEW:.0%} of T in every cell (M, εₚ); partly if "
    "in at least half of them.",
)


def linear(table: Traces) -> Finding | None:
    return _slopes(table, regret, LINEAR, ROOT)


def _slopes(table: Traces, measure: Measure, good: float, fair: float) -> Finding | None:
    """The slope for each eps_p, against the limits for holding and for holding partly."""
    typical, texts, below_good, below_fair = [], [], [], []
    for eps_p, part in table.ordered("eps_p").parts("eps_p").items():
        slopes = slopes_in_agents(part, measure)
        if not slopes:
            continue
        where = f"slope at {eps_text(eps_p)}"
        below_good.append(Condition(where, slopes, good, part.groups))
        below_fair.append(Condition(where, slopes, fair, part.groups))
        typical.append(below_good[-1].middle)
        text = f"slope {signed(typical[-1])} at {eps_text(eps_p)} ({range_text(list(slopes.values()))} over seeds)"
        steps = local_slopes(part, measure)
        if len(steps) > 1:
            (first, start), *_, (last, end) = steps.items()
            text += f"; from M = {first[0]} to {first[1]} it is {signed(start)}, from M = {last[0]} to "
            text += f"{last[1]} it is {signed(end)}"
        texts.append(text)
    if not typical:
        return None
    if len(texts) > 2:
        texts = [texts[0], f"slopes {range_text(typical)} over {len(typical)} values of εₚ", texts[-1]]
    return Finding(below_good, "; ".join(texts), f"slope {range_text(typical)}", judging.ANY, below_fair)


def _few_rounds(table: Traces) -> Finding:
    def share(run: Trace) -> float:
        return run.rounds / run.about.episodes

    asked = [Condition(f"share of T at {cell_text(one)}", one.by_seed(share), FEW, [one]) for one in table]
    shares = [one.middle for one in asked]
    line = f"{min(shares):.2%} to {max(shares):.2%} of T"
    return Finding(asked, f"{line} in {len(shares)} cells", line)


BELOW = Claim(
    "far less regret than FedQ-Bernstein",
    "Fed-UCBVI's regret is significantly lower than FedQ-Bernstein's.",
    "Section 5, Impact of Heterogeneity; Figures 1 and 2",
    f"A seed says holds in an environment if its regret is at most {FAR_BELOW} times the other's in every cell "
    "(M, εₚ); partly if it is lower in every cell, or so much lower in at least half of them.",
)


def below(table: Traces, other: str = "fedq-bernstein", claim: Claim = BELOW, detail: str = "") -> Verdict | None:
    def find(part: Traces) -> Finding | None:
        cells = {cell_text(both.group): both for both in judging.against(part, table.having(algorithm=other), regret)}
        if not cells:
            return None
        far, lower = ratios_at_most(FAR_BELOW, cells), ratios_at_most(1.0, cells, strictly=True)
        text = f"regret is {judging.ratios_text(cells)} that of {label_of(other)} in {len(cells)} cells"
        line = f"{judging.typical_text(cells)} times {label_of(other)}'s"
        return Finding(far, text, line, weaker=lower, notes=judging.carried(cells))

    return judging.judge(claim, table.having(algorithm=OWN), find, detail)


def ratios_to(table: Traces, other: str, measure: Measure = regret) -> list[float]:
    """Fed-UCBVI's measure over that of the other algorithm, of the typical seed in each cell."""
    own, others = table.having(algorithm=OWN), table.having(algorithm=other)
    return [pairs.typical for pairs in judging.against(own, others, measure)]


CLAIMS: dict[Claim, Find] = {
    HETEROGENEITY: _heterogeneity,
    SPEED_UP: linear,
    FLAT_ROUNDS: lambda part: _slopes(part, rounds, MARGINAL, -ROOT),
    FEW_ROUNDS: _few_rounds,
}
"""The claims of the paper's Section 5 about Fed-UCBVI alone, in its order."""


def verdicts(table: Traces) -> Iterator[Verdict | None]:
    for claim, find in CLAIMS.items():
        yield judging.judge(claim, table.having(algorithm=OWN), find)
    yield below(table)


EXPERIMENT = Experiment(grids, verdicts, analyse)
