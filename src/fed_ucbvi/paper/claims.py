"""The paper's claims, each judged by a rule that is fixed here, before anything is run.

A claim is judged for each environment, and the outcomes are combined. It holds if it holds in all of them, does not
hold if it fails in all of them, and holds partly otherwise. Comparisons have an error term, so a claim may also be
undecided (:mod:`fed_ucbvi.paper.judging`). If the runs cannot judge a claim, the result is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.paper.judging import ERROR_TERM, Finding, all_or_none, compare, decide, grade, verdict_of
from fed_ucbvi.paper.seed_groups import Key, Measure, SeedGroups, having, mean, paired, regret, rounds, values
from fed_ucbvi.paper.traces import Trace
from fed_ucbvi.paper.wording import answers_text, eps_text, range_text, signed
from fed_ucbvi.report.content import Outcome, Verdict
from fed_ucbvi.results.statistics import PairedRatio, mean_interval, paired_ratio
from fed_ucbvi.results.style import label_of

SLIGHT = 1.25
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


def cases(seed_groups: SeedGroups, algorithm: str) -> dict[str, dict[Key, Sequence[Trace]]]:
    """The groups of an algorithm, divided by everything except M and eps_p, with a name for each part."""
    groups: dict[tuple[str, str, str, str, int], dict[Key, Sequence[Trace]]] = {}
    for key, replicates in having(seed_groups, algorithm=algorithm).items():
        groups.setdefault((key.environment, key.label, key.options, key.parameters, key.episodes), {})[key] = (
            replicates
        )
    names = [label_of(environment) for environment, *_ in groups]
    if len(set(names)) < len(names):
        names = [f"{label_of(environment)}, {label_of(label)}" for environment, label, *_ in groups]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return dict(zip(names, groups.values(), strict=True))


# ------------------------------------------------------------------------------------------- heterogeneity


def heterogeneity_costs_little(seed_groups: SeedGroups) -> Verdict | None:
    """Claim (a)."""
    return verdict_of(
        "Increasing εₚ only incurs a slight increase in Fed-UCBVI's regret.",
        "Section 5, Impact of Heterogeneity; Figure 1",
        f"In an environment it holds if the mean regret at every εₚ > 0 is at most {SLIGHT} times that at εₚ = 0, "
        f"for every M; partly if in at least half of the cells. {ERROR_TERM}",
        {name: _heterogeneity(group) for name, group in cases(seed_groups, "fed-ucbvi").items()},
    )


def _heterogeneity(group: SeedGroups) -> Finding | None:
    cells: dict[tuple[int, float], tuple[list[float], list[float]]] = {}
    for agents in values(group, "agents"):
        by_eps = {key.eps_p: replicates for key, replicates in having(group, agents=agents).items()}
        for eps_p in sorted(set(by_eps) - {0.0}) if 0.0 in by_eps else []:
            pair = paired(by_eps[eps_p], by_eps[0.0], regret)
            if pair[0]:
                cells[agents, eps_p] = pair
    if not cells:
        return None
    ratios = {cell: float(np.mean(x) / np.mean(y)) for cell, (x, y) in cells.items()}
    found = {cell: compare(x, SLIGHT * np.array(y)) for cell, (x, y) in cells.items()}
    worst = max(ratios, key=lambda cell: ratios[cell])
    text = (
        f"regret is {range_text(list(ratios.values()))} times that at εₚ = 0, most at M = {worst[0]} and "
        f"{eps_text(worst[1])}; at most {SLIGHT} times {answers_text(list(found.values()))}"
    )
    if ratios[worst] <= 1.02:
        text += ", so it does not rise at all: the agents' own noise explores for them"
    largest = max(eps_p for _, eps_p in ratios)
    halves = {eps_p: _late_share(having(group, eps_p=eps_p)) for eps_p in (0.0, largest)}
    text += (
        f". Of the regret, {halves[0.0]:.1%} falls into the second half of the episodes at εₚ = 0 and "
        f"{halves[largest]:.1%} at {eps_text(largest)} (of a term linear in T it would be half)"
    )
    notes = [
        f"at M = {agents} and {eps_text(eps_p)} one run decides: the ratio of means is {ratios[agents, eps_p]:.2f}, "
        f"that of medians {_medians(*cells[agents, eps_p]):.2f}"
        for (agents, eps_p), one in found.items()
        if one.one_run
    ]
    line = f"{range_text(list(ratios.values()))} times the regret at εₚ = 0"
    return Finding(decide(grade, list(found.values())), text, line, notes)


def _medians(x: Sequence[float], y: Sequence[float]) -> float:
    return float(np.median(x) / np.median(y))


def _late_share(group: SeedGroups) -> float:
    """The share of the regret that falls into the second half of the episodes."""
    runs = [run for replicates in group.values() for run in replicates]
    return float(np.mean([1 - run.regret_at(run.episodes_played / 2) / run.regret for run in runs]))


# -------------------------------------------------------------------------------------- speed-up and rounds


def slopes_in_agents(group: SeedGroups, measure: Measure) -> FloatArray | None:
    """Slope of log measure against log M over all M, for each seed that all M have in common; None for a single M."""
    order = sorted(group, key=lambda key: key.agents)
    if len({key.agents for key in order}) < 2:
        return None
    common = set.intersection(*({run.about.seed for run in group[key]} for key in order))
    if not common:
        return None
    table = np.array([[measure(run) for run in group[key] if run.about.seed in common] for key in order])
    return np.asarray(np.polyfit(np.log([key.agents for key in order]), np.log(np.maximum(table, 1e-12)), 1)[0])


def local_slopes(group: SeedGroups, measure: Measure) -> dict[tuple[int, int], float]:
    """Slope of log mean measure against log M between neighbouring M, by the pair of M."""
    means = {
        key.agents: mean(replicates, measure)
        for key, replicates in sorted(group.items(), key=lambda item: item[0].agents)
    }
    return {
        (few, many): float(np.log(max(means[many], 1e-12) / max(means[few], 1e-12)) / np.log(many / few))
        for few, many in pairwise(means)
    }


def linear_speed_up(
    seed_groups: SeedGroups,
    claim: str = "Fed-UCBVI has linear speed-up in the number of agents M, also in high heterogeneity.",
    place: str = "Section 5, Fed-UCBVI has linear speed-up; Figure 2",
) -> Verdict | None:
    """Claim (b)."""
    return verdict_of(
        claim,
        place,
        f"Slope of log regret against log M, fitted over all M for each seed: {signed(-1)} is linear, {signed(ROOT)} "
        "the leading term of Theorem 1. It holds in an environment if the mean slope is at most "
        f"{signed(LINEAR)} for every εₚ; partly if at most {signed(ROOT)} for every εₚ, or at most {signed(LINEAR)} "
        f"for some. {ERROR_TERM}",
        {name: _slopes(group, regret, LINEAR, ROOT) for name, group in cases(seed_groups, "fed-ucbvi").items()},
    )


def flat_communication(seed_groups: SeedGroups) -> Verdict | None:
    """Claim (c)."""
    return verdict_of(
        "Fed-UCBVI's communication rounds increase only marginally with the number of agents M.",
        "Section 5, communication complexity; Figure 3",
        "Slope of log rounds against log M, fitted over all M for each seed (0 is flat). It holds in an environment "
        f"if the mean slope is at most {MARGINAL} for every εₚ; partly if at most {-ROOT} for every εₚ, or at most "
        f"{MARGINAL} for some. {ERROR_TERM}",
        {name: _slopes(group, rounds, MARGINAL, -ROOT) for name, group in cases(seed_groups, "fed-ucbvi").items()},
    )


def _slopes(group: SeedGroups, measure: Measure, good: float, fair: float) -> Finding | None:
    """The slope for each eps_p, against the limits for holding and for holding partly."""
    means, texts = [], []
    below_good, below_fair = [], []
    for eps_p in values(group, "eps_p"):
        seed_groups = having(group, eps_p=eps_p)
        slopes = slopes_in_agents(seed_groups, measure)
        if slopes is None:
            continue
        below_good.append(compare(slopes, np.full_like(slopes, good)))
        below_fair.append(compare(slopes, np.full_like(slopes, fair)))
        middle, low, high = (float(end) for end in mean_interval(slopes))
        means.append(middle)
        steps = local_slopes(seed_groups, measure)
        text = f"slope {signed(middle)} at {eps_text(eps_p)}"
        if len(slopes) > 1:
            text += f" (95 % interval {signed(low)} to {signed(high)})"
        if len(steps) > 1:
            first, last = next(iter(steps)), list(steps)[-1]
            text += f"; from M = {first[0]} to {first[1]} it is {signed(steps[first])}, from M = {last[0]} to "
            text += f"{last[1]} it is {signed(steps[last])}"
        texts.append(text)
    if not means:
        return None
    line = f"slope {range_text(means)}"
    if len(texts) > 2:
        texts = [texts[0], f"slopes {range_text(means)} over {len(means)} values of εₚ", texts[-1]]

    def rule(steep: Sequence[bool], half: Sequence[bool]) -> Outcome:
        return "holds" if all(steep) else "holds partly" if any(steep) or all(half) else "does not hold"

    return Finding(decide(rule, below_good, below_fair), "; ".join(texts), line)


def few_rounds(seed_groups: SeedGroups) -> Verdict | None:
    """The other half of claim (c)."""
    return verdict_of(
        "Fed-UCBVI's communication rounds are significantly fewer than the episodes T.",
        "Section 5, communication complexity; Figure 3",
        f"It holds in an environment if mean rounds are at most {FEW_ROUNDS:.0%} of T in every cell (M, εₚ); partly "
        f"if in at least half of them. {ERROR_TERM}",
        {name: _few_rounds(group) for name, group in cases(seed_groups, "fed-ucbvi").items()},
    )


def _few_rounds(group: SeedGroups) -> Finding | None:
    found, shares = [], []
    for key, replicates in group.items():
        counts = [rounds(run) for run in replicates]
        found.append(compare(counts, np.full(len(replicates), FEW_ROUNDS * key.episodes)))
        shares.append(float(np.mean(counts)) / key.episodes)
    line = f"{min(shares):.2%} to {max(shares):.2%} of T"
    return Finding(decide(grade, found), f"{line} in {len(shares)} cells", line)


# ---------------------------------------------------------------------------------------------- comparison


def below(
    seed_groups: SeedGroups,
    other: str = "fedq-bernstein",
    claim: str = "Fed-UCBVI's regret is significantly lower than FedQ-Bernstein's.",
    place: str = "Section 5, Impact of Heterogeneity; Figures 1 and 2",
    detail: str = "",
) -> Verdict | None:
    """Claim (d)."""
    return verdict_of(
        claim,
        place,
        f"It holds in an environment if the mean regret is at most {FAR_BELOW} times the other's in every cell "
        f"(M, εₚ); partly if it is lower in every cell, or so much lower in at least half of them. {ERROR_TERM}",
        {name: _below(group, seed_groups, other) for name, group in cases(seed_groups, "fed-ucbvi").items()},
        detail=detail,
    )


def _below(group: SeedGroups, seed_groups: SeedGroups, other: str) -> Finding | None:
    far, lower, ratios, medians, notes = [], [], [], [], []
    won, played = 0, 0
    for key, x, y in against(group, seed_groups, other):
        far.append(compare(x, FAR_BELOW * np.array(y)))
        lower.append(compare(x, y, strictly=True))
        ratio = paired_ratio(x, y)
        ratios.append(ratio.estimate)
        medians.append(ratio.median)
        wins = sum(one < two for one, two in zip(x, y, strict=True))
        won, played = won + wins, played + len(x)
        one_run = far[-1].one_run or lower[-1].one_run
        if one_run or (ratio.estimate < 1) != (ratio.median < 1):
            notes.append(
                f"at M = {key.agents} and {eps_text(key.eps_p)} "
                f"{'one run decides' if one_run else 'means and medians disagree'}: the ratio of means is "
                f"{ratio.estimate:.2f}{_ends(ratio)}, that of medians {ratio.median:.2f}, and it is lower with "
                f"{wins} of {len(x)} seeds"
            )
    if not ratios:
        return None

    def rule(half: Sequence[bool], less: Sequence[bool]) -> Outcome:
        outcome = grade(half)
        return "holds partly" if outcome == "does not hold" and all(less) else outcome

    line = f"{range_text(ratios)} times {label_of(other)}'s"
    text = (
        f"{range_text(ratios)} times the regret of {label_of(other)} by means, {range_text(medians)} by medians, "
        f"at most {FAR_BELOW} times {answers_text(far)}, lower {answers_text(lower)} and with {won} of {played} seeds"
    )
    return Finding(decide(rule, far, lower), text, line, notes)


def _ends(ratio: PairedRatio) -> str:
    """The interval of a ratio, if it is bounded."""
    if not (math.isfinite(ratio.low) and math.isfinite(ratio.high)):
        return " (no interval: these runs allow any)"
    return f" (95 % interval {signed(ratio.low)} to {signed(ratio.high)})"


def against(
    group: SeedGroups, seed_groups: SeedGroups, other: str, measure: Measure = regret
) -> list[tuple[Key, list[float], list[float]]]:
    """A measure of each group of runs in ``group`` and of the other algorithm in the same cell, paired by seed."""
    found = []
    for key, replicates in group.items():
        same = {part: getattr(key, part) for part in ("environment", "options", "agents", "eps_p", "episodes")}
        for rival in having(seed_groups, algorithm=other, **same).values():
            x, y = paired(replicates, rival, measure)
            if x:
                found.append((key, x, y))
    return found


def ratios_to(group: SeedGroups, seed_groups: SeedGroups, other: str, measure: Measure = regret) -> list[float]:
    """The mean measure of each group of runs in ``group``, divided by that of the other algorithm in its cell."""
    return [float(np.mean(x) / np.mean(y)) for _, x, y in against(group, seed_groups, other, measure)]


def ordered(claim: str, place: str, rows: Mapping[str, Sequence[Sequence[Trace]]], measure: Measure) -> Verdict:
    """A claim that the mean of a measure grows along a list of algorithms, for each environment."""
    findings: dict[str, Finding | None] = {}
    for name, row in rows.items():
        found = [compare(*paired(low, high, measure), strictly=True) for low, high in pairwise(row)]
        line = " against ".join(f"{mean(replicates, measure):,.0f}" for replicates in row)
        findings[name] = Finding(decide(all_or_none, found), line, line)
    rule = f"It holds in an environment if the means are in this order. {ERROR_TERM}"
    verdict = verdict_of(claim, place, rule, findings)
    assert verdict is not None, "an ordering is judged from figures"
    return verdict


CLAIMS: tuple[Callable[[SeedGroups], Verdict | None], ...] = (
    heterogeneity_costs_little,
    linear_speed_up,
    flat_communication,
    few_rounds,
    below,
)
"""The claims of the paper's Section 5, in its order."""


def judge(seed_groups: SeedGroups) -> list[Verdict]:
    """Every claim of Section 5 that the runs can judge."""
    verdicts = (claim(seed_groups) for claim in CLAIMS)
    return [verdict for verdict in verdicts if verdict is not None]
