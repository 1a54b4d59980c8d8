"""Figures 1, 2 and 3 of the paper: regret against T and against M, and communication rounds against M.

Fed-UCBVI against FedQ-Bernstein, as in the paper, and against FedQ-Advantage, with the constants of the paper's
experiments. Environments are drawn from the run's seed, so that cells differ by nothing but what the axes say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fed_ucbvi.algorithms import ALGORITHMS as REGISTRY
from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.colours import DARK_GREY
from fed_ucbvi.paper.claims import cases, judge, local_slopes, ratios_to
from fed_ucbvi.paper.scale import EPS_P, Scale
from fed_ucbvi.paper.seed_groups import (
    DASHES,
    Measure,
    SeedGroups,
    band_text,
    banded,
    cells_table,
    environments,
    having,
    over_bytes,
    over_episodes,
    over_keys,
    regret,
    rounds,
    seed_groups_of,
    values,
)
from fed_ucbvi.paper.traces import Pair
from fed_ucbvi.paper.wording import eps_text, range_text, signed
from fed_ucbvi.report.content import Figure, Section
from fed_ucbvi.results.style import label_of

NAME = "figures"
TITLE = "The paper's figures"
ALGORITHMS = ("fed-ucbvi", "fedq-bernstein", "fedq-advantage")
EPISODES_LABEL = "Episodes per agent, T"
REGRET_LABEL = "Common regret"
ROUNDS_LABEL = "Communication rounds"
AGENTS_LABEL = "Agents, M"
BYTES_LABEL = "Megabytes sent so far"


def grids(scale: Scale) -> list[dict[str, Any]]:
    """All eps_p for all M; for FedQ only if the scale is ``full``.

    Otherwise FedQ has some eps_p for the base M. M varies at eps_p = 0 for both FedQ algorithms, and at the largest
    eps_p for FedQ-Bernstein, without its slowest runs.
    """
    everywhere = scale.grid(ALGORITHMS, eps_p=scale.eps_p, agents=scale.agents)
    if scale.size == "full":
        return [everywhere]
    own, *others = ALGORITHMS
    return [
        scale.grid(others, eps_p=scale.eps_p if scale.quick else (EPS_P[0], *EPS_P[3::2], EPS_P[-1])),
        scale.grid([own], eps_p=scale.eps_p, agents=scale.agents),
        scale.grid(others, eps_p=scale.eps_p[:1], agents=scale.agents),
        scale.grid(others[:1], eps_p=scale.eps_p[-1:], agents=scale.agents[: -1 if scale.quick else -2]),
    ]


def analyse(pairs: Sequence[Pair], scale: Scale) -> Section:
    """Figures 1 to 3, the cost of heterogeneity, the table behind them, and the claims of Section 5."""
    seed_groups = seed_groups_of(pairs)
    base = having(seed_groups, agents=scale.base_agents)
    drawn = [scale.eps_p[0], *([0.1] if 0.1 in scale.eps_p else []), scale.eps_p[-1]]
    figures = (
        _regret_over_episodes(base, drawn),
        _regret_over_eps_p(base),
        _over_agents(
            seed_groups,
            drawn,
            regret,
            "figure2",
            "Fed-UCBVI's regret against M",
            REGRET_LABEL,
            "Figure 2 of the paper. Dotted grey: in proportion to 1/M, a linear speed-up. Slopes in the title: of "
            "log regret against log M between neighbouring M, of Fed-UCBVI at εₚ = 0.",
            reference=-1,
        ),
        _over_agents(
            seed_groups,
            drawn,
            rounds,
            "figure3",
            "Fed-UCBVI's rounds against M",
            ROUNDS_LABEL,
            "Figure 3 of the paper. Fewer is better; T is the most there can be. Slopes in the title: of log rounds "
            "against log M between neighbouring M, of Fed-UCBVI at εₚ = 0.",
        ),
        bytes_figure(having(base, eps_p=scale.eps_p[0]), "regret_and_bytes"),
    )
    return Section(
        id=NAME,
        title=TITLE,
        text=(
            "Both environments of the paper, H = 10 and T = 30 000 on GridWorld, S = A = H = 5 and T = 3 000 on the "
            "synthetic MDP; Fed-UCBVI's practical bonus and the FedQ constants are those of the paper's experiments. "
            "The MDP and the agents' kernels are drawn from the run's seed and are the same for every M, εₚ and "
            "algorithm.",
        )
        if not scale.quick
        else (
            "A smoke test with short runs and few agents: the figures are drawn, but say nothing about the paper.",
        ),
        verdicts=judge(seed_groups),
        figures=figures,
        tables=[cells_table(seed_groups, "figures", "Every cell of the figures")],
    )


def _regret_over_episodes(seed_groups: SeedGroups, drawn: Sequence[float]) -> Figure:
    panels = []
    for environment in environments(seed_groups):
        series = []
        for dash, eps_p in zip(DASHES, drawn, strict=False):
            for replicates in having(seed_groups, environment=environment, eps_p=eps_p).values():
                label = label_of(replicates[0].about.algorithm) if eps_p == drawn[0] else ""
                series.append(over_episodes(replicates, dash=dash, variant=eps_text(eps_p), label=label))
        if series:
            panels.append(Panel(label_of(environment), EPISODES_LABEL, REGRET_LABEL, series, x_log=True, y_log=True))
    agents = ", ".join(str(m) for m in values(seed_groups, "agents"))
    ratios = ratios_to(having(seed_groups, algorithm=ALGORITHMS[0]), seed_groups, ALGORITHMS[1])
    return Figure(
        "figure1",
        f"Fed-UCBVI ends with {range_text(ratios)} times the regret of FedQ-Bernstein" if ratios else "Regret",
        f"Figure 1 of the paper, M = {agents}. Crosses: Fed-UCBVI, circles: FedQ-Bernstein, squares: FedQ-Advantage. "
        f"{band_text(seed_groups.values())}",
        panels,
    )


def _regret_over_eps_p(seed_groups: SeedGroups) -> Figure:
    """The regret at T against eps_p, relative to eps_p = 0, seed by seed."""
    panels, changes = [], []
    for environment in environments(seed_groups):
        series: list[Series] = []
        for algorithm in ALGORITHMS:
            group = having(seed_groups, environment=environment, algorithm=algorithm)
            by_eps = {
                key.eps_p: {run.about.seed: run.regret for run in replicates} for key, replicates in group.items()
            }
            common = sorted(set.intersection(*(set(row) for row in by_eps.values()))) if by_eps else []
            if 0.0 not in by_eps or not common:
                continue
            order = sorted(by_eps)
            samples = np.array([[by_eps[eps_p][seed] / by_eps[0.0][seed] for eps_p in order] for seed in common])
            names = [f"{eps_p:.2g}" for eps_p in order]
            series.append(banded(algorithm, names, samples, label=label_of(algorithm)))
        if series:
            panels.append(Panel(label_of(environment), "εₚ", "Regret at T, relative to εₚ = 0", series))
            changes.append(f"{series[0].y[-1]:.2f} times on {label_of(environment)}")
    largest = max(values(seed_groups, "eps_p"), default=0.0)
    return Figure(
        "heterogeneity",
        f"What differences between agents do to Fed-UCBVI's regret: {', '.join(changes)} at εₚ = {largest:.2g}",
        "Regret of each seed divided by its regret with identical agents. Weight εₚ of the agents' own kernels. "
        f"{band_text(seed_groups.values())}",
        panels,
    )


def _over_agents(
    seed_groups: SeedGroups,
    drawn: Sequence[float],
    measure: Measure,
    name: str,
    title: str,
    y_label: str,
    place: str,
    reference: int | None = None,
) -> Figure:
    panels = []
    for environment in environments(seed_groups):
        series = []
        for dash, eps_p in zip(DASHES, drawn, strict=False):
            for algorithm in ALGORITHMS:
                group = having(seed_groups, environment=environment, algorithm=algorithm, eps_p=eps_p)
                label = label_of(algorithm) if eps_p == drawn[0] else ""
                curve = over_keys(group, "agents", measure, dash=dash, variant=eps_text(eps_p), label=label)
                if curve is not None and len(curve.x) > 1:
                    series.append(curve)
        if reference is not None and series:
            series.append(straight(series[0], reference))
        if series:
            panels.append(Panel(label_of(environment), AGENTS_LABEL, y_label, series, x_log=True, y_log=True))
    title += _slopes(seed_groups, drawn[0], measure)
    markers = "Crosses: Fed-UCBVI, circles: FedQ-Bernstein, squares: FedQ-Advantage."
    caption = f"{place} {markers} {band_text(seed_groups.values())}"
    return Figure(name, title, caption, panels)


def bytes_figure(seed_groups: SeedGroups, id_: str) -> Figure:
    """Regret against bytes, a curve for each algorithm."""
    panels = []
    for environment in environments(seed_groups):
        group = having(seed_groups, environment=environment)
        order = sorted(group, key=lambda key: list(REGISTRY).index(key.algorithm))
        series = [over_bytes(group[key], label=label_of(key.algorithm), marker="none") for key in order]
        drawn = [curve for curve in series if curve is not None]
        panels.append(Panel(label_of(environment), BYTES_LABEL, REGRET_LABEL, drawn, x_log=True, y_log=True))
    return Figure(
        id_,
        "What a byte buys: the lower and the further left a curve ends, the better",
        "Common regret against what all agents and the server had sent by then; εₚ = 0. "
        + band_text(seed_groups.values()),
        panels,
    )


def _slopes(seed_groups: SeedGroups, eps_p: float, measure: Measure) -> str:
    """How steep the curves are from each M to the next at one eps_p, for a title."""
    texts = []
    for name, group in cases(seed_groups, ALGORITHMS[0]).items():
        steps = list(local_slopes(having(group, eps_p=eps_p), measure).items())
        if len(steps) == 1:
            texts.append(f"{signed(steps[0][1])} on {name}")
        elif steps:
            (first, start), (last, end) = steps[0], steps[-1]
            ends = f"{signed(start)} (M = {first[0]} to {first[1]}) to {signed(end)} (M = {last[0]} to {last[1]})"
            texts.append(f"{ends} on {name}")
    return f": local slope {'; '.join(texts)}" if texts else ""


def straight(like: Series, slope: float) -> Series:
    """A straight line on logarithmic axes through the first point of another."""
    x = [float(value) for value in like.x]
    y = [like.y[0] * (value / x[0]) ** slope for value in x]
    return Series("linear speed-up", DARK_GREY, x, y, dash="dotted", label="linear")
