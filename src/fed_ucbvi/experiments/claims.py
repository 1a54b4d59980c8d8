"""The paper's claims, each judged by a rule that is stated here, before anything is run.

A claim is judged for each environment and then combined: it holds if it holds everywhere, does not hold if it holds
nowhere even in part, and holds partly otherwise. A claim that the runs cannot judge gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fed_ucbvi.experiments.lots import Key, Lots, Measure, having, mean, regret, rounds, values
from fed_ucbvi.experiments.traces import Trace
from fed_ucbvi.report.content import Outcome, Verdict
from fed_ucbvi.results.statistics import mean_interval
from fed_ucbvi.results.style import label_of

SLIGHT = 1.25
"""Regret at most so many times that of identical agents: a slight increase."""
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

MINUS = "\N{MINUS SIGN}"


class Finding(NamedTuple):
    """What one environment says."""

    outcome: Outcome
    text: str


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """One verdict from several.

    >>> combine(["holds", "does not hold"]), combine(["holds", "holds"]), combine(["does not hold"])
    ('holds partly', 'holds', 'does not hold')
    """
    distinct = set(outcomes)
    return distinct.pop() if len(distinct) == 1 else "holds partly"


def grade(shares: Sequence[bool], *, most: float = 0.5) -> Outcome:
    """Holds if true everywhere, partly if true in at least ``most`` of the cases.

    >>> grade([True, True]), grade([True, False]), grade([True, False, False])
    ('holds', 'holds partly', 'does not hold')
    """
    share = sum(shares) / len(shares)
    return "holds" if share == 1 else "holds partly" if share >= most else "does not hold"


def cases(lots: Lots, algorithm: str) -> dict[str, dict[Key, Sequence[Trace]]]:
    """The lots of an algorithm by everything but M and eps_p, under a name for each."""
    groups: dict[tuple[str, str, str, str, int], dict[Key, Sequence[Trace]]] = {}
    for key, lot in having(lots, algorithm=algorithm).items():
        groups.setdefault((key.environment, key.label, key.options, key.parameters, key.episodes), {})[key] = lot
    names = [label_of(environment) for environment, *_ in groups]
    if len(set(names)) < len(names):
        names = [f"{label_of(environment)}, {label_of(label)}" for environment, label, *_ in groups]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return dict(zip(names, groups.values(), strict=True))


def verdict_of(claim: str, place: str, rule: str, findings: Mapping[str, Finding | None]) -> Verdict | None:
    """The verdict on a claim from what each environment says; None if none of them says anything."""
    known = {name: finding for name, finding in findings.items() if finding is not None}
    if not known:
        return None
    measured = " ".join(f"{name}: {finding.text}." for name, finding in known.items())
    outcomes = [finding.outcome for finding in known.values()]
    if len(set(outcomes)) > 1:
        measured += " So: " + "; ".join(f"{name}: {finding.outcome}" for name, finding in known.items()) + "."
    return Verdict(claim=claim, place=place, measured=measured, rule=rule, outcome=combine(outcomes))


# ------------------------------------------------------------------------------------------- heterogeneity


def heterogeneity_costs_little(lots: Lots) -> Verdict | None:
    """Claim (a)."""
    return verdict_of(
        "Increasing εₚ only incurs a slight increase in Fed-UCBVI's regret.",
        "Section 5, Impact of Heterogeneity; Figure 1",
        f"In an environment it holds if the mean regret at every εₚ > 0 is at most {SLIGHT} times that at εₚ = 0, "
        "for every M; partly if in at least half of the cells.",
        {name: _heterogeneity(group) for name, group in cases(lots, "fed-ucbvi").items()},
    )


def _heterogeneity(group: Lots) -> Finding | None:
    ratios: dict[tuple[int, float], float] = {}
    for agents in values(group, "agents"):
        by_eps = {key.eps_p: lot for key, lot in having(group, agents=agents).items()}
        for eps_p in sorted(set(by_eps) - {0.0}) if 0.0 in by_eps else []:
            ratios[agents, eps_p] = mean(by_eps[eps_p], regret) / mean(by_eps[0.0], regret)
    if not ratios:
        return None
    worst = max(ratios, key=lambda cell: ratios[cell])
    few = sum(ratio <= SLIGHT for ratio in ratios.values())
    text = (
        f"regret is {range_text(list(ratios.values()))} times that at εₚ = 0, most at M = {worst[0]} and "
        f"{eps_text(worst[1])}; at most {SLIGHT} times in {few} of {len(ratios)} cells"
    )
    if ratios[worst] <= 1.02:
        text += ", so it does not rise at all: the agents' own noise explores for them"
    largest = max(eps_p for _, eps_p in ratios)
    halves = {eps_p: _late_share(having(group, eps_p=eps_p)) for eps_p in (0.0, largest)}
    text += (
        f". Of the regret, {halves[0.0]:.1%} falls into the second half of the episodes at εₚ = 0 and "
        f"{halves[largest]:.1%} at {eps_text(largest)} (of a term linear in T it would be half)"
    )
    return Finding(grade([ratio <= SLIGHT for ratio in ratios.values()]), text)


def _late_share(group: Lots) -> float:
    """The share of the regret that falls into the second half of the episodes."""
    runs = [run for lot in group.values() for run in lot]
    return float(np.mean([1 - run.regret_at(run.episodes_played / 2) / run.common_regret for run in runs]))


# -------------------------------------------------------------------------------------- speed-up and rounds


def slope_in_agents(group: Lots, measure: Measure) -> tuple[float, float] | None:
    """Slope of log measure against log M, fitted for each seed: mean and half-width of its band."""
    order = sorted(group, key=lambda key: key.agents)
    if len({key.agents for key in order}) < 2:
        return None
    common = set.intersection(*({run.about.seed for run in group[key]} for key in order))
    if not common:
        return None
    table = np.array([[measure(run) for run in group[key] if run.about.seed in common] for key in order])
    slopes = np.polyfit(np.log([key.agents for key in order]), np.log(np.maximum(table, 1e-12)), 1)[0]
    middle, low, high = mean_interval(slopes)
    return float(middle), float(high - low) / 2


def linear_speed_up(
    lots: Lots,
    claim: str = "Fed-UCBVI has linear speed-up in the number of agents M, also in high heterogeneity.",
    place: str = "Section 5, Fed-UCBVI has linear speed-up; Figure 2",
) -> Verdict | None:
    """Claim (b)."""
    return verdict_of(
        claim,
        place,
        f"Slope of log regret against log M over all M run: {signed(-1)} is linear, {signed(ROOT)} the leading term "
        f"of Theorem 1. It holds in an environment if the slope is at most {signed(LINEAR)} for every εₚ; partly if "
        f"at most {signed(ROOT)} for every εₚ, or at most {signed(LINEAR)} for some.",
        {name: _speed_up(group) for name, group in cases(lots, "fed-ucbvi").items()},
    )


def _speed_up(group: Lots) -> Finding | None:
    found = _slopes(group, regret)
    if found is None:
        return None
    slopes, text = found
    steep = [slope <= LINEAR for slope in slopes]
    partly = any(steep) or all(slope <= ROOT for slope in slopes)
    outcome: Outcome = "holds" if all(steep) else "holds partly" if partly else "does not hold"
    return Finding(outcome, text)


def flat_communication(lots: Lots) -> Verdict | None:
    """Claim (c)."""
    return verdict_of(
        "Fed-UCBVI's communication rounds increase only marginally with the number of agents M.",
        "Section 5, communication complexity; Figure 3",
        "Slope of log rounds against log M over all M run (0 is flat). It holds in an environment if the slope is "
        f"at most {MARGINAL} for every εₚ; partly if at most {-ROOT} for every εₚ, or at most {MARGINAL} for some.",
        {name: _flatness(group) for name, group in cases(lots, "fed-ucbvi").items()},
    )


def _flatness(group: Lots) -> Finding | None:
    found = _slopes(group, rounds)
    if found is None:
        return None
    slopes, text = found
    flat = [slope <= MARGINAL for slope in slopes]
    partly = any(flat) or all(slope <= -ROOT for slope in slopes)
    outcome: Outcome = "holds" if all(flat) else "holds partly" if partly else "does not hold"
    return Finding(outcome, text)


def _slopes(group: Lots, measure: Measure) -> tuple[list[float], str] | None:
    """The slope for each eps_p, and in words with the ratio of the ends and the slope of the last step."""
    slopes, texts = [], []
    for eps_p in values(group, "eps_p"):
        lots = having(group, eps_p=eps_p)
        fit = slope_in_agents(lots, measure)
        if fit is None:
            continue
        slopes.append(fit[0])
        means = {key.agents: mean(lot, measure) for key, lot in sorted(lots.items(), key=lambda item: item[0].agents)}
        (first, *_, (before, last)) = [next(iter(means)), *pairwise(means)]
        text = f"slope {signed(fit[0])} ± {fit[1]:.2f} at {eps_text(eps_p)} (M = {last} against {first}: "
        text += f"{means[last] / means[first]:.3g} times"
        if len(means) > 2:
            step = np.log(means[last] / means[before]) / np.log(last / before)
            text += f"; from M = {before} to {last} the slope is {signed(float(step))}"
        texts.append(text + ")")
    if not slopes:
        return None
    if len(texts) > 2:
        texts = [texts[0], f"slopes {range_text(slopes)} over {len(slopes)} values of εₚ", texts[-1]]
    return slopes, ", ".join(texts)


def few_rounds(lots: Lots) -> Verdict | None:
    """The other half of claim (c)."""
    return verdict_of(
        "Fed-UCBVI's communication rounds are significantly fewer than the episodes T.",
        "Section 5, communication complexity; Figure 3",
        f"It holds in an environment if rounds are at most {FEW_ROUNDS:.0%} of T in every cell (M, εₚ); partly if in "
        "at least half of them.",
        {name: _few_rounds(group) for name, group in cases(lots, "fed-ucbvi").items()},
    )


def _few_rounds(group: Lots) -> Finding | None:
    shares = [mean(lot, rounds) / key.episodes for key, lot in group.items()]
    text = f"{min(shares):.2%} to {max(shares):.2%} of T in {len(shares)} cells"
    return Finding(grade([share <= FEW_ROUNDS for share in shares]), text)


# ---------------------------------------------------------------------------------------------- comparison


def below(
    lots: Lots,
    other: str = "fedq-bernstein",
    claim: str = "Fed-UCBVI's regret is significantly lower than FedQ-Bernstein's.",
    place: str = "Section 5, Impact of Heterogeneity; Figures 1 and 2",
) -> Verdict | None:
    """Claim (d)."""
    return verdict_of(
        claim,
        place,
        f"It holds in an environment if the mean regret is at most {FAR_BELOW} times the other's in every cell "
        "(M, εₚ); partly if it is lower in every cell, or so much lower in at least half of them.",
        {name: _below(group, lots, other) for name, group in cases(lots, "fed-ucbvi").items()},
    )


def _below(group: Lots, lots: Lots, other: str) -> Finding | None:
    ratios = ratios_to(group, lots, other)
    if not ratios:
        return None
    outcome = grade([ratio <= FAR_BELOW for ratio in ratios])
    if outcome == "does not hold" and all(ratio < 1 for ratio in ratios):
        outcome = "holds partly"
    lower = sum(ratio < 1 for ratio in ratios)
    text = f"{range_text(ratios)} times the regret of {label_of(other)}; lower in {lower} of {len(ratios)} cells"
    return Finding(outcome, text)


def ratios_to(group: Lots, lots: Lots, other: str, measure: Measure = regret) -> list[float]:
    """The mean measure of each lot in ``group`` over that of the other algorithm in the same cell."""
    ratios = []
    for key, lot in group.items():
        same = {part: getattr(key, part) for part in ("environment", "options", "agents", "eps_p", "episodes")}
        rivals = having(lots, algorithm=other, **same).values()
        ratios += [mean(lot, measure) / mean(rival, measure) for rival in rivals]
    return ratios


def ordered(claim: str, place: str, figures: Mapping[str, Sequence[float]], what: str) -> Verdict:
    """A claim that some measure grows strictly along algorithms, judged from means, for each environment."""
    findings: dict[str, Finding | None] = {}
    for name, row in figures.items():
        outcome: Outcome = "holds" if all(low < high for low, high in pairwise(row)) else "does not hold"
        findings[name] = Finding(outcome, " < ".join(f"{figure:,.0f}" for figure in row) + "? " + outcome)
    verdict = verdict_of(claim, place, f"It holds in an environment if {what} are in this order.", findings)
    assert verdict is not None, "an ordering is judged from figures"
    return verdict


CLAIMS: tuple[Callable[[Lots], Verdict | None], ...] = (
    heterogeneity_costs_little,
    linear_speed_up,
    flat_communication,
    few_rounds,
    below,
)
"""The claims of the paper's Section 5, in its order."""


def judge(lots: Lots) -> list[Verdict]:
    """Every claim of Section 5 that the runs can judge."""
    verdicts = (claim(lots) for claim in CLAIMS)
    return [verdict for verdict in verdicts if verdict is not None]


def eps_text(eps_p: float) -> str:
    """How a heterogeneity is written.

    >>> eps_text(0.316228)
    'εₚ = 0.32'
    """
    return f"εₚ = {eps_p:.2g}"


def range_text(numbers: Sequence[float], digits: int = 2) -> str:
    """The least and the largest of some numbers.

    >>> range_text([0.25, 0.5]), range_text([2.0])
    ('0.25 to 0.50', '2.00')
    """
    low, high = signed(min(numbers), digits), signed(max(numbers), digits)
    return low if low == high else f"{low} to {high}"


def signed(number: float, digits: int = 2) -> str:
    """A number with a proper minus sign."""
    return f"{number:.{digits}f}".replace("-", MINUS)
