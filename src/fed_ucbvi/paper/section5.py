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

from fed_ucbvi.core.colours import DARK_GREY, DASHES
from fed_ucbvi.paper import judging
from fed_ucbvi.paper.experiment import BASE_AGENTS, Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import (
    ANY_CONDITION,
    Claim,
    Condition,
    Find,
    Finding,
    Pairs,
    range_text,
    ratios_at_most,
    signed,
)
from fed_ucbvi.paper.orders import ROWS
from fed_ucbvi.paper.report import run_figures as draw
from fed_ucbvi.paper.report.content import Figure, Section, Verdict
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.paper.report.run_figures import cell_text, eps_text
from fed_ucbvi.paper.report.traces import Group, Measure, Trace, Traces, regret, rounds
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.run_table import Seeds

ALGORITHMS = ("fed-ucbvi", "fedq-bernstein", "fedq-advantage")
MARKERS = "Crosses: Fed-UCBVI, circles: FedQ-Bernstein, squares: FedQ-Advantage."
SLIGHT_INCREASE = 1.25
"""A regret of at most this many times that of identical agents is a slight increase."""
INVERSE = -0.9
"""Slope of log regret against log M up to which the regret is said to fall like 1/M; -1 would be exactly 1/M."""
ROOT = -0.5
"""The slope of the leading term of the regret bound, sqrt(H^3 S A T / M), which the paper calls linear speed-up."""
MARGINAL = 0.1
"""Slope of log rounds against log M up to which rounds are nearly flat: 50 times the agents, 1.5 times the rounds."""
FAR_BELOW = 0.5
"""Ratio up to which one regret is significantly below another."""
FEW = 0.1
"""Share of T up to which rounds are significantly fewer than episodes."""
MOST = 0.5
"""Share of T from which on rounds are a large part of the episodes."""
SIMILAR = 2.0
"""Factor up to which two ratios of regrets are similar."""
EARLY = 0.6
"""Share of an additional regret that may fall into the first half of the episodes if the term is linear in T.

Of a term linear in T it is 1/2, of one that grows like the root of T it is 0.71; this is halfway.
"""
OWN = "fed-ucbvi"


def grids(scale: RunScale) -> Grids:
    """All eps_p for all M and algorithms if the scale is ``full``.

    Otherwise Fed-UCBVI has all eps_p for the base M, and those that are drawn for all M. FedQ-Bernstein has the drawn
    eps_p for the base M, all M but 50 at eps_p = 0, and M up to the base at the largest eps_p. FedQ-Advantage, of
    which the paper claims nothing, has M up to the base, and two eps_p. Fed-UCBVI and FedQ-Bernstein also run with a
    single agent, at every size.
    """
    own, rival, other = ALGORITHMS
    alike = scale.eps_p[:1]
    shown = drawn(scale)
    alone = scale.grid([own, rival], eps_p=alike, agents=(1,))
    if scale.size == "full":
        return [scale.grid(ALGORITHMS, eps_p=scale.eps_p, agents=scale.agents), alone]
    few = tuple(M for M in scale.agents if scale.base_agents >= M)
    return [
        scale.grid([own], eps_p=scale.eps_p),
        scale.grid([own], eps_p=shown, agents=scale.agents),
        scale.grid([rival], eps_p=shown),
        scale.grid([other], eps_p=shown[:2]),
        scale.grid([rival], eps_p=alike, agents=(*few, *scale.agents[-1:])),
        scale.grid([rival], eps_p=shown[-1:], agents=few),
        scale.grid([other], eps_p=alike, agents=few),
        alone,
    ]


def several_agents(table: Traces) -> Traces:
    """The runs of the paper's figures, which have more than one agent."""
    return table.where(lambda group: group["agents"] > 1)


def drawn(scale: RunScale) -> tuple[float, ...]:
    return (scale.eps_p[0], *([0.1] if 0.1 in scale.eps_p else []), scale.eps_p[-1])


def analyse(table: Traces, scale: RunScale) -> Section:
    """Figures 1 to 3, the cost of heterogeneity, the table behind them, and the claims of Section 5."""
    every = table
    table = several_agents(every)
    base = table.having(agents=scale.base_agents)
    shown = drawn(scale)
    if scale.quick:
        text = "A smoke test with short runs and few agents: the figures are drawn, but say nothing about the paper."
    else:
        text = (
            "Both environments of the paper, H = 10 and T = 30 000 on GridWorld, S = A = H = 5 and T = 3 000 on the "
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
            (
                2,
                "regret",
                regret,
                draw.REGRET_LABEL,
                "Dotted grey: in proportion to 1/M.",
            ),
            (
                3,
                "rounds",
                rounds,
                draw.ROUNDS_LABEL,
                "Fewer is better; T is the most there can be.",
            ),
        )
    ]
    over_bytes = bytes_figure(base.having(eps_p=scale.eps_p[0]), "regret_and_bytes")
    figures = (
        _regret_over_episodes(base, shown),
        _regret_over_eps_p(base),
        *against_agents,
        over_bytes,
    )
    tables = [draw.cells_table(every, "figures", "Every cell of the figures, and the runs with one agent")]
    return Section("figures", "The paper's figures", (text,), figures=figures, tables=tables)


def _regret_over_episodes(table: Traces, shown: Sequence[float]) -> Figure:
    def curves(part: Traces) -> Iterator[Series]:
        for dash, eps_p in zip(DASHES, shown, strict=False):
            for group in part.having(eps_p=eps_p):
                yield draw.over_episodes(group, dash=dash, variant=eps_text(eps_p))

    ratios = ratios_to(table, ALGORITHMS[1])
    agents = ", ".join(str(m) for m in table.values("agents"))
    return Figure(
        "figure1",
        f"Fed-UCBVI ends with {range_text(ratios)} times the regret of FedQ-Bernstein" if ratios else "Regret",
        f"Figure 1 of the paper, M = {agents}. {MARKERS} {draw.band_text(table)}",
        draw.panels_of(
            table,
            curves,
            draw.EPISODES_LABEL,
            draw.REGRET_LABEL,
            x_log=True,
            y_log=True,
        ),
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
    names = list(ROWS)
    return sorted(
        table,
        key=lambda one: names.index(one["algorithm"]) if one["algorithm"] in names else len(names),
    )


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
    """Slopes of the curves from each M to the next at one eps_p, for a title."""
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
    return Series("in proportion to 1/M", DARK_GREY, x, y, dash="dotted")


HETEROGENEITY = Claim(
    "heterogeneity costs little regret",
    "Increasing εₚ only incurs a slight increase in Fed-UCBVI's regret.",
    "Section 5, Impact of Heterogeneity; Figure 1",
    f"Figure 1 has M = {BASE_AGENTS} agents. A seed says holds in an environment if with so many agents its regret "
    f"at every εₚ > 0 is at most {SLIGHT_INCREASE} times that at εₚ = 0; partly if in at least half of these cells.",
)
HETEROGENEITY_EVERY_M = Claim(
    "heterogeneity costs little regret for every M",
    "Increasing εₚ only incurs a slight increase in Fed-UCBVI's regret, for every number of agents.",
    "Beyond the paper: stricter than Section 5, whose Figure 1 has one M",
    f"A seed says holds in an environment if its regret at every εₚ > 0 is at most {SLIGHT_INCREASE} times that at "
    "εₚ = 0, for every M; partly if in at least half of these cells.",
)
LINEAR_TERM = Claim(
    "the increase is a term linear in T",
    "The increase of Fed-UCBVI's regret with εₚ is due to an additional term that scales linearly with T.",
    "Section 5, Impact of Heterogeneity; Figure 1",
    f"The additional regret is that at εₚ minus that at εₚ = 0, with M = {BASE_AGENTS} as in Figure 1. Of a term "
    "linear in T, 1/2 falls into the first half of the episodes, and of one that grows like √T, 0.71. A seed says "
    "holds in an environment if at every εₚ > 0 there is additional regret after T episodes and at most "
    f"{EARLY} of it falls into the first half; partly if at some εₚ. Without additional regret the share is taken as "
    "1.",
)


def _pairs_with_alike(table: Traces) -> Iterator[tuple[Group, Group]]:
    """Each group whose agents differ, with that of identical agents."""
    for alike in table.having(eps_p=0.0):
        for group in table.having(agents=alike["agents"]):
            if group["eps_p"] > 0:
                yield group, alike


def _linear_term(table: Traces) -> Finding | None:
    conditions: list[Condition] = []
    for group, alike in _pairs_with_alike(_of_figure_1(table)):
        differing = dict(zip(group.seeds, group.runs, strict=True))
        identical = dict(zip(alike.seeds, alike.runs, strict=True))
        shares = {
            seeds: _early_share(differing[seeds], identical[seeds]) for seeds in differing if seeds in identical
        }
        if shares:
            conditions.append(Condition(f"first half at {cell_text(group)}", shares, EARLY, [group, alike]))
    if not conditions:
        return None
    middle = range_text([one.middle for one in conditions])
    line = f"{middle} of the additional regret in the first half"
    met = sum(one.yes for one in conditions)
    count = sum(len(one.figures) for one in conditions)
    return Finding(
        conditions,
        f"{line}, over {len(conditions)} values of εₚ; {met} of {count} runs meet the limit",
        line,
        ANY_CONDITION,
    )


def _early_share(run: Trace, alike: Trace) -> float:
    """The share of the additional regret that falls into the first half of the episodes; 1 if there is none."""
    episodes = run.episodes_played
    additional = run.regret - alike.regret
    if additional <= 0:
        return 1.0
    halfway = float(run.regret_at(episodes / 2) - alike.regret_at(episodes / 2))
    return halfway / additional


def _of_figure_1(table: Traces) -> Traces:
    """The runs with the number of agents of Figure 1."""
    return table.having(agents=BASE_AGENTS)


def _heterogeneity(table: Traces) -> Finding | None:
    cells: dict[str, Pairs] = {}
    for group, alike in _pairs_with_alike(table):
        found = group.paired(alike, regret)
        if found.seeds:
            cells[cell_text(group)] = found
    if not cells:
        return None
    worst = max(cells, key=lambda cell: cells[cell].typical)
    largest = max(table.values("eps_p"))
    late = {}
    for eps_p in (0.0, largest):
        runs = table.having(eps_p=eps_p).runs
        shares = [1 - run.regret_at(run.episodes_played / 2) / run.regret for run in runs]
        late[eps_p] = np.mean(shares)
    text = (
        f"regret is {judging.ratios_text(cells)} that at εₚ = 0, most at {worst}; of it "
        f"{late[0.0]:.1%} falls into the second half of the episodes at εₚ = 0 and {late[largest]:.1%} at "
        f"{eps_text(largest)} (of a term linear in T it would be half)"
    )
    line = f"{judging.typical_text(cells)} times the regret at εₚ = 0"
    conditions = ratios_at_most(SLIGHT_INCREASE, cells)
    return Finding(conditions, text, line, notes=judging.carried(cells))


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
    slopes = {}
    for few, many in pairwise(means):
        slopes[few, many] = float(np.log(means[many] / means[few]) / np.log(many / few))
    return slopes


SPEED_UP = Claim(
    "linear speed-up in M",
    "Fed-UCBVI has linear speed-up in the number of agents M, also in high heterogeneity.",
    "Section 5, Fed-UCBVI has linear speed-up; Figure 2",
    "The paper calls the factor 1/√M of Theorem 1 linear speed-up. Slope of log regret against log M, fitted over "
    f"all M for each seed: {signed(ROOT)} is 1/√M. A seed says holds in an environment if its slope is at most "
    f"{signed(ROOT)} for every εₚ; partly if at most 0 for every εₚ, or at most {signed(ROOT)} for some.",
)
INVERSE_SPEED_UP = Claim(
    "regret falls like 1/M",
    "Fed-UCBVI's regret falls like 1/M with the number of agents M, also in high heterogeneity.",
    "Beyond the paper: stricter than Section 5, whose linear speed-up is 1/√M",
    f"Slope of log regret against log M, fitted over all M for each seed: {signed(-1)} is 1/M, {signed(ROOT)} the "
    f"leading term of Theorem 1. A seed says holds in an environment if its slope is at most {signed(INVERSE)} for "
    f"every εₚ; partly if at most {signed(ROOT)} for every εₚ, or at most {signed(INVERSE)} for some.",
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


HIGH_ROUNDS = Claim(
    "FedQ-Bernstein's rounds are consistently high",
    "FedQ-Bernstein exhibits consistently high communication complexity.",
    "Section 5, communication complexity; Figure 3",
    "The paper says it in contrast to rounds that are significantly fewer than the episodes. A seed says holds in an "
    f"environment if FedQ-Bernstein's rounds are more than {FEW:.0%} of T in every cell (M, εₚ); partly if in at "
    "least half of them.",
)
MOST_ROUNDS = Claim(
    "FedQ-Bernstein's rounds are most of the episodes",
    "FedQ-Bernstein takes a round for at least half of the episodes.",
    "Beyond the paper: stricter than Section 5, which says consistently high",
    f"A seed says holds in an environment if FedQ-Bernstein's rounds are at least {MOST:.0%} of T in every cell (M, "
    "εₚ); partly if in at least half of them.",
)
SIMILAR_GAPS = Claim(
    "gaps as in the single-agent setting",
    "The gap between the regrets of Fed-UCBVI and FedQ-Bernstein is similar to that in the single-agent setting.",
    "Section 5, Impact of Heterogeneity; Figure 1",
    f"The gap is the ratio of Fed-UCBVI's regret to FedQ-Bernstein's, at εₚ = 0: with M = {BASE_AGENTS} as in Figure "
    "1, and with one agent, for which they are UCBVI and Q-learning. A seed says holds in an environment if the "
    f"larger of the two ratios is at most {SIMILAR:g} times the smaller one; partly if both ratios are at most "
    f"{FAR_BELOW}.",
)


def linear(table: Traces) -> Finding | None:
    return _slopes(table, regret, ROOT, 0.0)


def inverse(table: Traces) -> Finding | None:
    return _slopes(table, regret, INVERSE, ROOT)


def _slopes(table: Traces, measure: Measure, good: float, fair: float) -> Finding | None:
    """The slope for each eps_p, against the limits for holding and for holding partly."""
    typical = []
    texts = []
    below_good = []
    below_fair = []
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
        texts = [
            texts[0],
            f"slopes {range_text(typical)} over {len(typical)} values of εₚ",
            texts[-1],
        ]
    return Finding(
        conditions=below_good,
        text="; ".join(texts),
        line=f"slope {range_text(typical)}",
        partly=judging.ANY_CONDITION,
        weaker=below_fair,
    )


def _few_rounds(table: Traces) -> Finding:
    conditions = [
        Condition(
            f"share of T at {cell_text(one)}",
            one.by_seed(share_of_episodes),
            FEW,
            [one],
        )
        for one in table
    ]
    line = _shares_text([one.middle for one in conditions])
    return Finding(conditions, f"{line} in {len(conditions)} cells", line)


def share_of_episodes(run: Trace) -> float:
    """Rounds divided by T."""
    return run.rounds / run.about.episodes


def _shares_text(shares: Sequence[float]) -> str:
    return f"{min(shares):.2%} to {max(shares):.2%} of T"


def _high_rounds(table: Traces) -> Finding:
    return _rounds_above(table, FEW, strictly=True)


def _most_rounds(table: Traces) -> Finding:
    return _rounds_above(table, MOST, strictly=False)


def _rounds_above(table: Traces, least: float, *, strictly: bool) -> Finding:
    """The finding that rounds are at least this share of T, or ``strictly`` more, judged by the remaining share."""

    def remaining(run: Trace) -> float:
        return 1.0 - share_of_episodes(run)

    conditions = [
        Condition(
            f"share without a round at {cell_text(one)}",
            one.by_seed(remaining),
            1.0 - least,
            [one],
            strictly,
        )
        for one in table
    ]
    line = _shares_text([1.0 - one.middle for one in conditions])
    return Finding(conditions, f"{line} in {len(conditions)} cells", line)


def similar_gaps(table: Traces) -> Finding | None:
    """The ratio of regrets with the base number of agents beside that with one agent, seed by seed."""
    own = table.having(algorithm=OWN, eps_p=0.0)
    rival = table.having(algorithm=ALGORITHMS[1], eps_p=0.0)
    together = judging.against(_of_figure_1(own), _of_figure_1(rival), regret)
    alone = judging.against(own.having(agents=1), rival.having(agents=1), regret)
    if not together or not alone:
        return None
    gaps = together[0].ratios
    single = alone[0].ratios
    both = [seeds for seeds in gaps if seeds in single]
    if not both:
        return None
    groups = [together[0].group, together[0].other, alone[0].group, alone[0].other]
    factors = {seeds: max(gaps[seeds], single[seeds]) / min(gaps[seeds], single[seeds]) for seeds in both}
    larger = {seeds: max(gaps[seeds], single[seeds]) for seeds in both}
    line = f"{together[0].typical:.2f} times FedQ-Bernstein's regret with M = {BASE_AGENTS}"
    line += f", {alone[0].typical:.2f} alone"
    return Finding(
        conditions=[Condition("larger gap over smaller gap", factors, SIMILAR, groups)],
        text=f"{line}; the larger ratio is {range_text(list(factors.values()), 1)} times the smaller one",
        line=line,
        partly=judging.NOT_PARTLY,
        weaker=[Condition("larger of the two ratios", larger, FAR_BELOW, groups)],
    )


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
        far = ratios_at_most(FAR_BELOW, cells)
        lower = ratios_at_most(1.0, cells, strictly=True)
        text = f"regret is {judging.ratios_text(cells)} that of {label_of(other)} in {len(cells)} cells"
        line = f"{judging.typical_text(cells)} times {label_of(other)}'s"
        return Finding(far, text, line, weaker=lower, notes=judging.carried(cells))

    return judging.judge(claim, table.having(algorithm=OWN), find, detail)


def ratios_to(table: Traces, other: str, measure: Measure = regret) -> list[float]:
    """Fed-UCBVI's measure over that of the other algorithm, of the typical seed in each cell."""
    own = table.having(algorithm=OWN)
    others = table.having(algorithm=other)
    return [pairs.typical for pairs in judging.against(own, others, measure)]


def _flat_rounds(table: Traces) -> Finding | None:
    return _slopes(table, rounds, MARGINAL, -ROOT)


def _heterogeneity_of_figure_1(table: Traces) -> Finding | None:
    return _heterogeneity(_of_figure_1(table))


CLAIMS: dict[Claim, Find] = {
    HETEROGENEITY: _heterogeneity_of_figure_1,
    HETEROGENEITY_EVERY_M: _heterogeneity,
    LINEAR_TERM: _linear_term,
    SPEED_UP: linear,
    INVERSE_SPEED_UP: inverse,
    FLAT_ROUNDS: _flat_rounds,
    FEW_ROUNDS: _few_rounds,
}
"""The claims of the paper's Section 5 about Fed-UCBVI alone, in its order; some have a stricter one of ours next."""
RIVAL_CLAIMS: dict[Claim, Find] = {HIGH_ROUNDS: _high_rounds, MOST_ROUNDS: _most_rounds}
"""Claims about FedQ-Bernstein alone."""


def verdicts(table: Traces) -> Iterator[Verdict | None]:
    figures = several_agents(table)
    for claim, find in CLAIMS.items():
        yield judging.judge(claim, figures.having(algorithm=OWN), find)
    for claim, find in RIVAL_CLAIMS.items():
        yield judging.judge(claim, figures.having(algorithm=ALGORITHMS[1]), find)
    yield below(figures)
    yield judging.judge(SIMILAR_GAPS, table, similar_gaps)


EXPERIMENT = Experiment(grids, verdicts, analyse)
