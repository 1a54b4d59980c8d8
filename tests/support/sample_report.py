"""A report such as an analysis makes: three algorithms, four εₚ, every outcome, and names that would break a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fed_ucbvi.core.colours import Dash, Marker
from fed_ucbvi.paper.report.content import Cell, Figure, PageContent, Section, Table, Verdict
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.results.about import colour_of, label_of
from fed_ucbvi.results.statistics import Estimate

NASTY = "<b>&\"'</script><script>window.broken = 1</script> $x$ %{y}"
ALGORITHMS = ("fed-ucbvi", "fedq-bernstein", "fedq-advantage")
EPS_P: dict[float, tuple[Dash, Marker]] = {
    0.0: ("solid", "none"),
    0.1: ("dashed", "circle"),
    0.2: ("dotted", "square"),
    0.3: ("dashdot", "triangle"),
}
EPISODES = [round(10 ** (k / 20)) for k in range(20, 101)]
AGENTS = [1, 2, 5, 10, 20, 50]


def curve(algorithm: str, eps_p: float, *, scale: float, power: float) -> Series:
    rank = ALGORITHMS.index(algorithm)
    y = [scale * (1 + rank) * episodes ** (power + 0.1 * rank) * (1 + 2 * eps_p) for episodes in EPISODES]
    low, high = ([value * factor for value in y] for factor in (0.9, 1.1))
    dash, marker = EPS_P[eps_p]
    return Series(
        label_of(algorithm),
        colour_of(algorithm),
        EPISODES,
        y,
        low,
        high,
        dash,
        marker,
        variant=f"εₚ = {eps_p:g}",
        band="95 % interval of the mean",
    )


def many_curves() -> Figure:
    panels = []
    for title, y_label, scale, power, y_log in (
        ("Regret grows as √T", "Common regret (units of reward)", 2.0, 0.5, True),
        ("Rounds grow as log T", "Communication rounds so far", 4.0, 0.25, False),
    ):
        series = [curve(name, eps_p, scale=scale, power=power) for name in ALGORITHMS for eps_p in EPS_P]
        panels.append(Panel(title, "Episodes per agent", y_label, series, x_log=True, y_log=y_log))
    finding = "Fed-UCBVI has the least regret and needs the fewest rounds, whatever the heterogeneity"
    caption = "Mean of 20 runs and 95 % intervals; M = 20, H = 10. Figure 1 of the paper."
    return Figure("regret", finding, caption, panels)


def speed_up() -> Figure:
    def points(name: str, power: float) -> Series:
        y = [4000 * agents**power for agents in AGENTS]
        low, high = ([value + move for value in y] for move in (-600, 600))
        return Series(label_of(name), colour_of(name), AGENTS, y, low, high, marker="circle")

    ideal = Series(
        "1/√M",
        "#000000",
        AGENTS,
        [4000 / math.sqrt(agents) for agents in AGENTS],
        dash="dashed",
    )
    series = [points("fed-ucbvi", -0.5), points("fedq-bernstein", -0.45), ideal]
    panel = Panel(
        "Regret of an agent falls as 1/√M",
        "Agents M",
        "Common regret",
        series,
        x_log=True,
        y_log=True,
    )
    caption = "Intervals reach below zero for many agents."
    return Figure("speed-up", "Twenty agents learn √20 times faster", caption, [panel])


def by_environment() -> Figure:
    environments = ["GridWorld", "synthetic MDP", NASTY]
    series = []
    for k, name in enumerate(ALGORITHMS):
        y = [1.0 + k, 2.0 + k, 3.0 - k]
        low = [0.8 + k, 1.7 + k, -0.5]
        high = [1.2 + k, 2.3 + k, 3.5 - k]
        look: dict[str, Any] = {"marker": "circle", "line": False}
        series.append(Series(label_of(name), colour_of(name), environments, y, low, high, **look))
    series.append(Series(NASTY, "#000000", environments[:2], [0.3, 0.6], marker="cross", line=False))
    panel = Panel(NASTY, "Environment", "Regret, relative to Fed-UCBVI", series, y_log=True)
    return Figure("environments", f"The order is the same everywhere {NASTY}", NASTY, [panel])


def small_panels() -> Figure:
    panels = []
    for k, eps_p in enumerate((0.0, 0.1, 0.2, 0.3, 0.3)):
        series = [curve(name, eps_p, scale=1.0 + k, power=0.5) for name in ALGORITHMS]
        title = f"{'ABCDE'[k]}: εₚ = {eps_p:g}"
        panels.append(Panel(title, "Episodes per agent", "Common regret", series, x_log=True))
    return Figure("panels", "Five panels go into two rows", "One panel for each εₚ.", panels)


def sample_report() -> PageContent:
    rows: list[list[Cell]] = [
        ["Fed-UCBVI", Estimate(312.04, 304.9, 319.2), 62, 0.5034, None],
        ["FedQ-Bernstein", Estimate(4012.5, 3900.0, 4125.0), 33_154, 0.71, NASTY],
        ["FedQ-Advantage", Estimate(900.0, 850.0, 950.0), 750, None, "between"],
    ]
    columns = ["Algorithm", "Regret", "Rounds", "Slope", "Note"]
    table = Table("final", "After the last episode", "95 % intervals of the mean.", columns, rows)
    measured = "312 [305, 319] against 4,013"
    rule = "holds if intervals are disjoint"
    least = Verdict(
        "Regret is least",
        "Figure 1",
        measured,
        rule,
        "holds",
        summary="312 against 4,013",
    )
    rule = "holds if R² > 0.95, partly if > 0.9"
    slow = Verdict("Rounds grow as log T", "Theorem 2", "R² = 0.93", rule, "holds partly")
    measured = "by 0.1 [-0.2, 0.4]"
    seeds = "20 seeds would decide"
    agree = Verdict(
        "Agents agree",
        "Section 4",
        measured,
        "holds if above 0",
        "undecided",
        "",
        seeds,
        ours=True,
    )
    broken = Verdict(NASTY, "Section 5", NASTY, "never", "does not hold")
    figures = [many_curves(), speed_up()]
    others = [by_environment(), small_panels()]
    return PageContent(
        "Federated UCBVI, measured",
        ["Every claim of the paper, measured anew.", NASTY],
        [
            Section(
                "regret",
                "Regret and rounds",
                ["Twelve curves."],
                [least, slow, agree],
                figures,
                [table],
            ),
            Section("others", f"Other environments {NASTY}", [NASTY], [broken], others),
        ],
        {"parameters": {"nu": 60, "text": NASTY}, "versions": {"numpy": "2.4.6"}},
    )


SAMPLES = {
    "many curves": many_curves(),
    "few points": speed_up(),
    "categories": by_environment(),
    "many panels": small_panels(),
}


def one_panel(series: Sequence[Series], **axes: Any) -> Figure:
    return Figure("one", "One panel", "", [Panel("A panel", "along", "up", series, **axes)])
