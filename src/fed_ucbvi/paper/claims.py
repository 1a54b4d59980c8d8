"""The paper's claims, each judged by a rule that is fixed here, before anything is run.

A rule says what one seed, with its runs in all cells, says of a claim in an environment. The outcomes of
environments are combined: holds if it holds in all, does not hold if it fails in all, and holds partly otherwise.
The verdict is what most seeds say (:mod:`fed_ucbvi.paper.judging`). If the runs cannot judge a claim, the result is
None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from fed_ucbvi.paper.judging import (
    ERROR_TERM,
    Claim,
    Condition,
    Finding,
    Pairs,
    against,
    all_or_none,
    carried,
    grade,
    pairs_of,
    range_text,
    ratio_at_most,
    ratios_text,
    signed,
    verdict_of,
)
from fed_ucbvi.report.content import Outcome, Verdict
from fed_ucbvi.report.run_figures import cell_text, eps_text
from fed_ucbvi.report.traces import Group, Measure, Trace, Traces, mean, regret, rounds
from fed_ucbvi.results.settings import Seeds
from fed_ucbvi.results.style import label_of

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
FEW_ROUNDS = 0.1
"""Share of T up to which rounds are significantly fewer than episodes."""
OWN = "fed-ucbvi"


def cases(table: Traces, algorithm: str) -> dict[str, Traces]:
    """The groups of an algorithm, divided by everything except M and eps_p, with a name for each part."""
    own = table.having(algorithm=algorithm)
    parts = own.split_rest(("agents", "eps_p"))
    firsts = [part.groups[0] for part in parts]
    names = [label_of(group["environment"]) for group in firsts]
    if len(set(names)) < len(names):
        names = [f"{label_of(group['environment'])}, {group['label']}" for group in firsts]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return dict(zip(names, parts, strict=True))


def _judged(
    table: Traces, claim: Claim, rule: str, find: Callable[[Traces], Finding | None], detail: str = ""
) -> Verdict | None:
    """The verdict on a claim about Fed-UCBVI."""
    findings = {name: find(part) for name, part in cases(table, OWN).items()}
    return verdict_of(claim, f"{rule} {ERROR_TERM}", findings, detail)


# ------------------------------------------------------------------------------------------- heterogeneity


def heterogeneity_costs_little(table: Traces) -> Verdict | None:
    return _judged(
        table,
        Claim(
            "heterogeneity costs little regret",
            "Increasing εₚ only incurs a slight increase in Fed-UCBVI's regret.",
            "Section 5, Impact of Heterogeneity; Figure 1",
        ),
        f"A seed says holds in an environment if its regret at every εₚ > 0 is at most {SLIGHT_INCREASE} times "
        "that at εₚ = 0, for every M; partly if in at least half of these cells.",
        _heterogeneity,
    )


def _heterogeneity(table: Traces) -> Finding | None:
    cells: dict[str, Pairs] = {}
    for alike in table.having(eps_p=0.0):
        for group in table.having(agents=alike["agents"]):
            found = pairs_of(group, alike, regret)
            if group["eps_p"] > 0 and found.seeds:
                cells[cell_text(group)] = found
    if not cells:
        return None
    worst = max(cells, key=lambda cell: cells[cell].typical)
    largest = max(table.values("eps_p"))
    halves = {eps_p: _late_share(table.having(eps_p=eps_p)) for eps_p in (0.0, largest)}
    text = (
        f"regret is {ratios_text(list(cells.values()))} that at εₚ = 0, most at {worst}; of it "
        f"{halves[0.0]:.1%} falls into the second half of the episodes at εₚ = 0 and {halves[largest]:.1%} at "
        f"{eps_text(largest)} (of a term linear in T it would be half)"
    )
    line = f"{range_text([pairs.typical for pairs in cells.values()])} times the regret at εₚ = 0"
    asked = [ratio_at_most(SLIGHT_INCREASE, pairs, where) for where, pairs in cells.items()]
    return Finding(grade, [asked], text, line, carried(cells))


def _late_share(table: Traces) -> float:
    """The share of the regret that falls into the second half of the episodes."""
    return float(np.mean([1 - run.regret_at(run.episodes_played / 2) / run.regret for run in table.runs]))


# -------------------------------------------------------------------------------------- speed-up and rounds


def slopes_in_agents(table: Traces, measure: Measure) -> dict[Seeds, float]:
    """Slope of log measure against log M over all M, for each seed that all M have; empty for a single M."""
    order = sorted(table, key=lambda group: group["agents"])
    samples = Traces(order).in_common(measure)
    if len(table.values("agents")) < 2 or not samples.size:
        return {}
    agents = np.log([group["agents"] for group in order])
    slopes = np.polyfit(agents, np.log(np.maximum(samples, 1e-12)), 1)[0]
    return dict(zip(Traces(order).common_seeds(), slopes.tolist(), strict=True))


def local_slopes(table: Traces, measure: Measure) -> dict[tuple[int, int], float]:
    """Slope of log mean measure against log M between neighbouring M, by the pair of M."""
    order = sorted(table, key=lambda group: group["agents"])
    means = {group["agents"]: max(mean(group, measure), 1e-12) for group in order}
    return {
        (few, many): float(np.log(means[many] / means[few]) / np.log(many / few)) for few, many in pairwise(means)
    }


SPEED_UP = Claim(
    "linear speed-up in M",
    "Fed-UCBVI has linear speed-up in the number of agents M, also in high heterogeneity.",
    "Section 5, Fed-UCBVI has linear speed-up; Figure 2",
)


def linear_speed_up(table: Traces, claim: Claim = SPEED_UP) -> Verdict | None:
    return _judged(
        table,
        claim,
        f"Slope of log regret against log M, fitted over all M for each seed: {signed(-1)} is linear, {signed(ROOT)} "
        "the leading term of Theorem 1. A seed says holds in an environment if its slope is at most "
        f"{signed(LINEAR)} for every εₚ; partly if at most {signed(ROOT)} for every εₚ, or at most {signed(LINEAR)} "
        "for some.",
        lambda part: _slopes(part, regret, LINEAR, ROOT),
    )


def flat_communication(table: Traces) -> Verdict | None:
    return _judged(
        table,
        Claim(
            "rounds hardly grow with M",
            "Fed-UCBVI's communication rounds increase only marginally with the number of agents M.",
            "Section 5, communication complexity; Figure 3",
        ),
        "Slope of log rounds against log M, fitted over all M for each seed (0 is flat). A seed says holds in an "
        f"environment if its slope is at most {MARGINAL} for every εₚ; partly if at most {-ROOT} for every εₚ, or at "
        f"most {MARGINAL} for some.",
        lambda part: _slopes(part, rounds, MARGINAL, -ROOT),
    )


def _slopes(table: Traces, measure: Measure, good: float, fair: float) -> Finding | None:
    """The slope for each eps_p, against the limits for holding and for holding partly."""
    typical, texts, below_good, below_fair = [], [], [], []
    for eps_p in table.values("eps_p"):
        part = table.having(eps_p=eps_p)
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
    return Finding(_steep, [below_good, below_fair], "; ".join(texts), f"slope {range_text(typical)}")


def _steep(steep: Sequence[bool], half: Sequence[bool]) -> Outcome:
    return "holds" if all(steep) else "holds partly" if any(steep) or all(half) else "does not hold"


def few_rounds(table: Traces) -> Verdict | None:
    """The other half of claim (c)."""
    return _judged(
        table,
        Claim(
            "far fewer rounds than episodes",
            "Fed-UCBVI's communication rounds are significantly fewer than the episodes T.",
            "Section 5, communication complexity; Figure 3",
        ),
        f"A seed says holds in an environment if its rounds are at most {FEW_ROUNDS:.0%} of T in every cell (M, εₚ); "
        "partly if in at least half of them.",
        _few_rounds,
    )


def _few_rounds(table: Traces) -> Finding:
    asked = [
        Condition(f"share of T at {cell_text(one)}", one.by_seed(_share_of_episodes), FEW_ROUNDS, [one])
        for one in table
    ]
    shares = [one.middle for one in asked]
    line = f"{min(shares):.2%} to {max(shares):.2%} of T"
    return Finding(grade, [asked], f"{line} in {len(shares)} cells", line)


def _share_of_episodes(run: Trace) -> float:
    return run.rounds / run.about.episodes


# ---------------------------------------------------------------------------------------------- comparison


BELOW = Claim(
    "far less regret than FedQ-Bernstein",
    "Fed-UCBVI's regret is significantly lower than FedQ-Bernstein's.",
    "Section 5, Impact of Heterogeneity; Figures 1 and 2",
)


def below(table: Traces, other: str = "fedq-bernstein", claim: Claim = BELOW, detail: str = "") -> Verdict | None:
    return _judged(
        table,
        claim,
        f"A seed says holds in an environment if its regret is at most {FAR_BELOW} times the other's in every cell "
        "(M, εₚ); partly if it is lower in every cell, or so much lower in at least half of them.",
        lambda part: _below(part, table, other),
        detail,
    )


def _below(part: Traces, table: Traces, other: str) -> Finding | None:
    cells = {cell_text(pairs.group): pairs for pairs in against(part, table.having(algorithm=other), regret)}
    if not cells:
        return None
    far = [ratio_at_most(FAR_BELOW, pairs, where) for where, pairs in cells.items()]
    lower = [ratio_at_most(1.0, pairs, where, strictly=True) for where, pairs in cells.items()]
    text = f"regret is {ratios_text(list(cells.values()))} that of {label_of(other)} in {len(cells)} cells"
    line = f"{range_text([pairs.typical for pairs in cells.values()])} times {label_of(other)}'s"
    return Finding(_far_or_lower, [far, lower], text, line, carried(cells))


def _far_or_lower(far: Sequence[bool], lower: Sequence[bool]) -> Outcome:
    outcome = grade(far)
    return "holds partly" if outcome == "does not hold" and all(lower) else outcome


def ratios_to(table: Traces, other: str, measure: Measure = regret) -> list[float]:
    """Fed-UCBVI's measure over that of the other algorithm, of the typical seed in each cell."""
    return [pairs.typical for pairs in against(table.having(algorithm=OWN), table.having(algorithm=other), measure)]


def ordered(claim: Claim, rows: Mapping[str, Sequence[Group]], measure: Measure) -> Verdict | None:
    """A claim that a measure grows along a list of algorithms, for each environment."""
    findings: dict[str, Finding | None] = {}
    for name, row in rows.items():
        steps = [pairs_of(low, high, measure) for low, high in pairwise(row)]
        names = [f"{label_of(one.group['algorithm'])} over {label_of(one.other['algorithm'])}" for one in steps]
        asked = [ratio_at_most(1.0, one, where, strictly=True) for one, where in zip(steps, names, strict=True)]
        line = " against ".join(f"{np.median(group.samples(measure)):,.0f}" for group in row)
        findings[name] = Finding(all_or_none, [asked], line, line)
    rule = f"A seed says holds in an environment if the figures are in this order. {ERROR_TERM}"
    return verdict_of(claim, rule, findings)


CLAIMS: tuple[Callable[[Traces], Verdict | None], ...] = (
    heterogeneity_costs_little,
    linear_speed_up,
    flat_communication,
    few_rounds,
    below,
)
"""The claims of the paper's Section 5, in its order."""


def judge(table: Traces) -> list[Verdict]:
    """Every claim of Section 5 that the runs can judge."""
    return [verdict for claim in CLAIMS if (verdict := claim(table)) is not None]
