"""Beyond the paper: the bonus of the theorem, for T long enough to see it work.

With the constants of the theory the regret is still linear at the paper's T. Drawing counts instead of playing
episodes makes a billion episodes affordable, so that regret, speed-up and rounds can be compared with the proved
bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.colours import DARK_GREY
from fed_ucbvi.paper.claims import linear_speed_up, local_slopes
from fed_ucbvi.paper.figures import AGENTS_LABEL, EPISODES_LABEL, REGRET_LABEL, ROUNDS_LABEL, straight
from fed_ucbvi.paper.judging import Finding, Ruling, verdict_of
from fed_ucbvi.paper.scale import Scale
from fed_ucbvi.paper.seed_groups import (
    DASHES,
    Key,
    SeedGroups,
    band_text,
    banded,
    episodes_grid,
    having,
    interval,
    mean,
    over_episodes,
    over_keys,
    regret,
    rounds,
    seed_groups_of,
    values,
)
from fed_ucbvi.paper.traces import Pair, Trace
from fed_ucbvi.paper.wording import range_text
from fed_ucbvi.report.content import Cell, Figure, Section, Table, Verdict
from fed_ucbvi.results.style import label_of
from fed_ucbvi.theory.bounds import regret_bound
from fed_ucbvi.theory.constants import most_rounds

NAME = "theory"
TITLE = "The constants of the theorem"
ALGORITHM, ENVIRONMENT = "fed-ucbvi", "gridworld"
BONUSES = {"bonus as printed": "theory", "bonus as the proof needs it": "corrected"}
AGENTS = (1, 5, 20, 100)
QUICK_AGENTS = (1, 5)
EPISODES = 10**9
QUICK_EPISODES = 10**6
MAX_SEEDS = 3
"""The most seeds; more change nothing at these T, so only ``full`` has as many as other experiments."""
LINEAR_UNTIL = 0.5
"""The regret is no longer linear once its mean per episode is below this share of its initial value."""
FIRST_EPISODES = 1000


def grids(scale: Scale) -> list[dict[str, Any]]:
    """Both bonuses of the theory on GridWorld, identical agents, for a billion episodes."""
    variants = [{"name": ALGORITHM, "label": label, "bonus": bonus} for label, bonus in BONUSES.items()]
    return [
        scale.grid(
            variants,
            environments=[ENVIRONMENT],
            episodes=[QUICK_EPISODES if scale.quick else EPISODES],
            agents=QUICK_AGENTS if scale.quick else AGENTS,
            seeds=list(range(scale.seeds if scale.size == "full" else min(scale.seeds, MAX_SEEDS))),
        )
    ]


def analyse(pairs: Sequence[Pair], scale: Scale) -> Section:
    """Regret and rounds beside the proved bounds, and the speed-up with the constants of the theory."""
    seed_groups = seed_groups_of(pairs)
    verdicts = [
        linear_speed_up(
            seed_groups,
            "With the constants of the theory and identical agents, Fed-UCBVI has linear speed-up in M.",
            "Theorem 1 (beyond the paper's experiments)",
        ),
        rounds_within_bound(seed_groups),
    ]
    return Section(
        id=NAME,
        title=TITLE,
        text=(
            "GridWorld with identical agents (εₚ = 0) and the bonus of the theory, as printed and with the factor H "
            "that the proof of optimism needs. The paper's T = 30 000 is too short for it: with one agent the regret "
            "is still that of learning nothing.",
            _where_the_bound_begins(seed_groups),
        ),
        verdicts=[verdict for verdict in verdicts if verdict is not None],
        figures=[_regret(seed_groups), _speed_up(seed_groups), _rounds(seed_groups), _beside_the_bound(seed_groups)],
        tables=[_table(seed_groups)],
    )


def agents_text(agents: int) -> str:
    """How a number of agents is written."""
    return f"M = {agents}"


def bound_on_regret(run: Trace, episodes: float) -> float:
    """Theorem 1 with its constants as printed, at T = ``episodes`` for the run's problem."""
    about = run.about
    sizes = (about.states, about.actions, about.horizon, about.agents)
    delta = float(about.parameters["delta"])
    return regret_bound(*sizes, int(episodes), about.eps_p, about.eps_r, delta, proof="printed")


def bound_on_rounds(run: Trace, episodes: float) -> float:
    """R_max of the communication lemma with log2, at T = ``episodes`` for the run's problem."""
    about = run.about
    sizes = (about.states, about.actions, about.horizon, about.agents)
    return most_rounds(*sizes, int(episodes), about.eps_p, float(about.parameters["delta"]))


def linear_until(run: Trace) -> float:
    """The number of episodes after which the mean regret per episode has halved; T if it has not."""
    points = np.geomspace(FIRST_EPISODES, run.episodes_played, 400)
    rate = run.regret_at(points) / points
    left = np.flatnonzero(rate < LINEAR_UNTIL * rate[0])
    return float(points[left[0]]) if len(left) else float(run.episodes_played)


def rounds_within_bound(seed_groups: SeedGroups) -> Verdict | None:
    """Whether rounds stay below the proved bound.

    There is no such verdict on regret, because its bound is above the largest possible regret at every T run here.
    """
    findings: dict[str, Finding | None] = {}
    for label in BONUSES:
        group = having(seed_groups, label=label)
        runs = [run for replicates in group.values() for run in replicates]
        if runs:
            share = max(_largest_share_of_rounds(run) for run in runs)
            sizes = [len(replicates) for replicates in group.values()]
            line = f"at most {share:.1%} of R_max"
            ruling = Ruling("holds" if share <= 1 else "does not hold", (min(sizes), max(sizes)))
            findings[label] = Finding(ruling, f"{line}, at any T, in {len(runs)} runs", line)
    return verdict_of(
        "Rounds stay below R_max of the communication lemma.",
        "Lemma 1 with its explicit constants and logarithms to base 2, as its proof counts",
        "It holds for a bonus if no run exceeds the bound at any T of a logarithmic grid from 10. It is about every "
        "run, not about means, so there is no error term.",
        findings,
        detail="There is no such verdict for the regret, because none could fail: at these T the bound of Theorem 1 "
        "exceeds what can be lost at all.",
    )


def _largest_share_of_rounds(run: Trace) -> float:
    points = episodes_grid([run])
    return float((run.rounds_at(points) / np.array([bound_on_rounds(run, T) for T in points])).max())


def _largest_share_of_regret(run: Trace) -> float:
    points = episodes_grid([run])
    return float((run.regret_at(points) / [bound_on_regret(run, T) for T in points]).max())


def _where_the_bound_begins(seed_groups: SeedGroups) -> str:
    """From which T on the bound is below T times the optimal value, which no regret exceeds."""
    first = []
    for replicates in having(seed_groups, label=next(iter(BONUSES))).values():
        run = replicates[0]
        known = [p for p in np.arange(3, 25, 0.05) if bound_on_regret(run, 10**p) < run.about.optimal_value * 10**p]
        first += known[:1]
    return (
        "The bound of Theorem 1 falls below the trivial one, T times the optimal value, only from T = 10^"
        f"{range_text(first or [0.0], 1)} on: below that its second term, of order H³S²A and free of M, is larger "
        "than anything that can be lost. The regret itself is smaller by many orders of magnitude."
    )


def _by_agents(seed_groups: SeedGroups) -> list[tuple[Any, Key, Sequence[Trace]]]:
    order = sorted(seed_groups, key=lambda key: key.agents)
    return [(dash, key, seed_groups[key]) for dash, key in zip(DASHES, order, strict=False)]


def _regret(seed_groups: SeedGroups) -> Figure:
    panels = []
    for label in BONUSES:
        series = []
        for dash, key, replicates in _by_agents(having(seed_groups, label=label)):
            style = {
                "dash": dash,
                "variant": agents_text(key.agents),
                "label": agents_text(key.agents),
                "marker": "none",
            }
            series.append(over_episodes(replicates, **style))
        if series:
            points = [float(x) for x in series[0].x]
            optimum = next(iter(seed_groups.values()))[0].about.optimal_value
            worst = [optimum * T for T in points]
            series.append(Series("nothing earned", DARK_GREY, points, worst, dash="dotted", label="nothing earned"))
            panels.append(Panel(label, EPISODES_LABEL, REGRET_LABEL, series, x_log=True, y_log=True))
    ends = [mean(replicates, linear_until) for replicates in seed_groups.values()]
    return Figure(
        "theory_regret",
        f"With the theory's constants the regret is linear until T = {_rounded(min(ends))} to {_rounded(max(ends))}",
        f"GridWorld, εₚ = 0. Dotted: the regret of earning nothing. {band_text(seed_groups.values())}",
        panels,
    )


def _rounded(number: float) -> str:
    """Two digits of a large number."""
    power = 10 ** max(0, int(math.log10(number)) - 1)
    return f"{round(number / power) * power:,}"


def _beside_the_bound(seed_groups: SeedGroups) -> Figure:
    """Regret and bound for the fewest and the most agents."""
    group = having(seed_groups, label=next(iter(BONUSES)))
    order = sorted(group, key=lambda key: key.agents)
    series = []
    for dash, key in zip(DASHES, dict.fromkeys((*order[:1], *order[-1:])), strict=False):
        name = agents_text(key.agents)
        style = {"dash": dash, "variant": name, "label": f"regret, {name}", "marker": "none"}
        series.append(over_episodes(group[key], **style))
        points = [float(x) for x in series[-1].x]
        bound = [bound_on_regret(group[key][0], T) for T in points]
        series.append(Series("Theorem 1", DARK_GREY, points, bound, dash=dash, variant=name, label=f"bound, {name}"))
    panel = Panel(label_of(ENVIRONMENT), EPISODES_LABEL, REGRET_LABEL, series, x_log=True, y_log=True)
    share = max((_largest_share_of_regret(run) for replicates in group.values() for run in replicates), default=0.0)
    return Figure(
        "theory_bound",
        "The bound of Theorem 1 is too large to be tested"
        + (f": the regret never exceeds one part in {_rounded(1 / share)} of it" if share > 0 else ""),
        "Bonus as printed, εₚ = 0. The bound's second term does not depend on M and is larger than its first at "
        f"these T. {band_text(group.values())}",
        [panel],
    )


def _rounds(seed_groups: SeedGroups) -> Figure:
    group = having(seed_groups, label=next(iter(BONUSES)))
    series, shares = [], []
    for dash, key, replicates in _by_agents(group):
        points = episodes_grid(replicates)
        counts = [run.rounds_at(points) for run in replicates]
        name = agents_text(key.agents)
        series.append(banded(ALGORITHM, points.tolist(), counts, dash=dash, variant=name, label=name, marker="none"))
        bound = [bound_on_rounds(replicates[0], T) for T in points]
        shares.append(series[-1].y[-1] / bound[-1])
        series.append(
            Series("R_max", DARK_GREY, points.tolist(), bound, dash=dash, variant=name, label=f"R_max, {name}")
        )
    panel = Panel(label_of(ENVIRONMENT), EPISODES_LABEL, ROUNDS_LABEL, series, x_log=True, y_log=True)
    return Figure(
        "theory_rounds",
        f"Rounds grow like log T and end at {range_text(shares or [0], 3)} of the bound of the communication lemma",
        f"Bonus as printed, εₚ = 0. Grey: R_max, with log2, for the same T and M. {band_text(group.values())}",
        [panel],
    )


def _speed_up(seed_groups: SeedGroups) -> Figure:
    series: list[Series] = []
    steps = [slope for label in BONUSES for slope in local_slopes(having(seed_groups, label=label), regret).values()]
    last = max(values(seed_groups, "episodes"))
    for dash, label in zip(DASHES, BONUSES, strict=False):
        curve = over_keys(having(seed_groups, label=label), "agents", regret, dash=dash, variant=label, label=label)
        if curve is not None:
            series.append(curve)
    if series:
        series.append(straight(series[0], -1))
    panel = Panel(label_of(ENVIRONMENT), AGENTS_LABEL, REGRET_LABEL, series, x_log=True, y_log=True)
    return Figure(
        "theory_speed_up",
        "With the constants of the theory the regret falls like 1/M"
        + (f": from each M to the next the slope is {range_text(steps)}" if steps else ""),
        f"Common regret after T = {last:,} episodes, εₚ = 0. Dotted grey: in proportion to 1/M. "
        f"{band_text(seed_groups.values())}",
        [panel],
    )


def _regret_at(episodes: int, run: Trace) -> float:
    return float(run.regret_at(episodes))


def _table(seed_groups: SeedGroups) -> Table:
    powers = [power for power in range(4, 10) if 10**power <= max(values(seed_groups, "episodes"))]
    rows: list[tuple[Cell, ...]] = []
    for key, replicates in seed_groups.items():
        at = [interval(replicates, partial(_regret_at, 10**power)) for power in powers]
        rows.append((key.label, key.agents, interval(replicates, linear_until), *at, interval(replicates, rounds)))
    columns = ("bonus", "M", "linear until T", *(f"regret at 10^{power}" for power in powers), "rounds")
    caption = (
        f"Linear until: where the mean regret per episode has fallen to half of what it was over the first "
        f"{FIRST_EPISODES:,} episodes. {band_text(seed_groups.values())}"
    )
    return Table("theory", "Regret with the constants of the theory", caption, columns, rows)
