"""Beyond the paper: the bonus of the theorem, for T long enough to see it work.

With the constants of the theory the regret is still linear at the paper's T. Drawing counts instead of playing
episodes makes a billion episodes affordable, so that regret, speed-up and rounds can be compared with the proved
bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fed_ucbvi.core.colours import DARK_GREY, DASHES, Dash
from fed_ucbvi.paper.bounds import most_rounds, regret_bound
from fed_ucbvi.paper.experiment import Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import Claim, fact, range_text, verdict_of
from fed_ucbvi.paper.report import run_figures as draw
from fed_ucbvi.paper.report.content import Cell, Figure, Section, Table, Verdict
from fed_ucbvi.paper.report.panels import Panel, Series
from fed_ucbvi.paper.report.traces import Group, Trace, Traces, regret
from fed_ucbvi.paper.section5 import INVERSE_SPEED_UP, OWN, SPEED_UP, inverse, inverse_line, linear, local_slopes
from fed_ucbvi.results.about import label_of

ENVIRONMENT = "gridworld"
PRINTED = "bonus as printed"
BONUSES = {PRINTED: "theory", "bonus as the proof needs it": "corrected"}
AGENTS = (1, 5, 20, 100)
QUICK_AGENTS = (1, 5)
EPISODES = 10**9
QUICK_EPISODES = 10**6
FIRST_EPISODES = 1000


def grids(scale: RunScale) -> Grids:
    """Both bonuses of the theory on GridWorld, identical agents, for a billion episodes."""
    variants = [{"name": OWN, "label": label, "bonus": bonus} for label, bonus in BONUSES.items()]
    agents: Sequence[int] = AGENTS
    T = EPISODES
    if scale.quick:
        agents = QUICK_AGENTS
        T = QUICK_EPISODES
    return [scale.grid(variants, environments=[ENVIRONMENT], episodes=[T], agents=agents)]


def verdicts(table: Traces) -> Iterator[Verdict | None]:
    claim = SPEED_UP._replace(
        name="linear speed-up with the theory's constants",
        text="With the constants of the theory and identical agents, Fed-UCBVI has linear speed-up in M.",
        place="Theorem 1; not among the paper's experiments",
    )
    stricter = INVERSE_SPEED_UP._replace(
        name="regret falls like 1/M with the theory's constants",
        text="With the constants of the theory and identical agents, Fed-UCBVI's regret falls like 1/M.",
        place="Beyond the paper: stricter than Theorem 1, whose factor is 1/√M",
    )
    by_bonus = {f"{label_of(ENVIRONMENT)}, {label}": part for label, part in table.parts("label").items()}
    yield verdict_of(claim, {name: linear(part) for name, part in by_bonus.items()})
    yield verdict_of(stricter, {name: inverse(part) for name, part in by_bonus.items()})
    yield rounds_within_bound(table)


def analyse(table: Traces, scale: RunScale) -> Section:
    return Section(
        "theory",
        "The theorem's constants",
        (
            "GridWorld with identical agents (εₚ = 0) and the bonus of the theory, as printed and with the factor H "
            "that the proof of optimism needs. The paper's T = 30 000 is too short for it: with one agent the regret "
            "is still that of learning nothing.",
            _where_the_bound_begins(table),
        ),
        figures=[_regret(table), _speed_up(table), _rounds(table)],
        tables=[_table(table)],
    )


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
    left = np.flatnonzero(rate < 0.5 * rate[0])
    return float(points[left[0]]) if len(left) else float(run.episodes_played)


def rounds_within_bound(table: Traces) -> Verdict | None:
    """The verdict that rounds stay below the proved bound.

    There is no such verdict on regret, because its bound is above the largest possible regret at every T run here.
    """
    shares: dict[str, float] = {}
    for group in table:
        points = draw.episodes_grid(group)
        for run in group.runs:
            reached = (run.rounds_at(points) / np.array([bound_on_rounds(run, T) for T in points])).max()
            shares[group["label"]] = max(reached, shares.get(group["label"], 0.0))
    return fact(
        Claim(
            "rounds below their proved bound",
            "Rounds stay below R_max of the communication lemma.",
            "Lemma 1 with its explicit constants and logarithms to base 2, as its proof counts",
            "It holds for a bonus if no run exceeds the bound at any T of a logarithmic grid from 10. It is about "
            "every run, not about means, so there is no error term.",
        ),
        {label: (share <= 1, f"at most {share:.1%} of R_max") for label, share in shares.items()},
        f"{len(table.runs)} runs",
        "There is no such verdict for the regret, because none could fail: at these T the bound of Theorem 1 "
        "exceeds what can be lost at all.",
    )


def _where_the_bound_begins(table: Traces) -> str:
    """From which T on the bound is below T times the optimal value, which no regret exceeds."""
    first = []
    for group in table.having(label=PRINTED):
        run = group.runs[0]
        known = [p for p in np.arange(3, 25, 0.05) if bound_on_regret(run, 10**p) < run.about.optimal_value * 10**p]
        first += known[:1]
    return (
        "The bound of Theorem 1 falls below the trivial one, T times the optimal value, only from T = 10^"
        f"{range_text(first or [0.0], 1)} on: below that its second term, of order H³S²A and free of M, is larger "
        "than anything that can be lost. The regret itself is smaller by many orders of magnitude."
    )


def _by_agents(table: Traces) -> list[tuple[Dash, str, Group]]:
    order = zip(DASHES, table.ordered("agents"), strict=False)
    return [(dash, f"M = {group['agents']}", group) for dash, group in order]


def _panel(title: str, x_label: str, y_label: str, series: list[Series]) -> Panel:
    return Panel(title, x_label, y_label, series, x_log=True, y_log=True)


def _regret(table: Traces) -> Figure:
    panels = []
    for label in BONUSES:
        order = _by_agents(table.having(label=label))
        series = [draw.over_episodes(one, dash=dash, variant=name, marker="none") for dash, name, one in order]
        if series:
            points = [float(x) for x in series[0].x]
            worst = [table.runs[0].about.optimal_value * T for T in points]
            series.append(Series("nothing earned", DARK_GREY, points, worst, dash="dotted"))
            panels.append(_panel(label, draw.EPISODES_LABEL, draw.REGRET_LABEL, series))
    ends = [group.mean(linear_until) for group in table]
    return Figure(
        "theory_regret",
        f"With the theory's constants the regret is linear until T = {_rounded(min(ends))} to {_rounded(max(ends))}",
        f"GridWorld, εₚ = 0. Dotted: the regret of earning nothing. {draw.band_text(table)}",
        panels,
    )


def _rounded(number: float) -> str:
    power = 10 ** max(0, int(math.log10(number)) - 1)
    return f"{round(number / power) * power:,}"


def _rounds(table: Traces) -> Figure:
    part = table.having(label=PRINTED)
    series = []
    shares = []
    for dash, name, group in _by_agents(part):
        points = draw.episodes_grid(group)
        counts = [run.rounds_at(points) for run in group.runs]
        series.append(draw.banded(OWN, points.tolist(), counts, dash=dash, variant=name, marker="none"))
        bound = [bound_on_rounds(group.runs[0], T) for T in points]
        shares.append(series[-1].y[-1] / bound[-1])
        series.append(Series("R_max", DARK_GREY, points.tolist(), bound, dash=dash, variant=name))
    return Figure(
        "theory_rounds",
        f"Rounds grow like log T and end at {range_text(shares or [0], 3)} of the bound of the communication lemma",
        f"Bonus as printed, εₚ = 0. Grey: R_max, with log2, for the same T and M. {draw.band_text(part)}",
        [_panel(label_of(ENVIRONMENT), draw.EPISODES_LABEL, draw.ROUNDS_LABEL, series)],
    )


def _speed_up(table: Traces) -> Figure:
    steps = [slope for label in BONUSES for slope in local_slopes(table.having(label=label), regret).values()]
    looks = [{"dash": dash, "variant": label} for dash, label in zip(DASHES, BONUSES, strict=False)]
    curves = [draw.over_agents(table.having(label=look["variant"]), regret, **look) for look in looks]
    series = [curve for curve in curves if curve is not None]
    series += [inverse_line(curve) for curve in series[:1]]
    return Figure(
        "theory_speed_up",
        "With the constants of the theory the regret falls like 1/M"
        + (f": from each M to the next the slope is {range_text(steps)}" if steps else ""),
        f"Common regret after T = {max(table.values('episodes')):,} episodes, εₚ = 0. Dotted grey: in proportion to "
        f"1/M. {draw.band_text(table)}",
        [_panel(label_of(ENVIRONMENT), draw.AGENTS_LABEL, draw.REGRET_LABEL, series)],
    )


def _table(table: Traces) -> Table:
    powers = [power for power in range(4, 10) if 10**power <= max(table.values("episodes"))]

    def at(power: int) -> Callable[[Group], Cell]:
        return lambda group: group.estimate(lambda run: float(run.regret_at(10**power)))

    linear: draw.Column = ("linear until T", lambda group: group.estimate(linear_until))
    shown = (
        ("bonus", "label"),
        "M",
        linear,
        *((f"regret at 10^{power}", at(power)) for power in powers),
        "rounds",
    )
    caption = (
        "Linear until: where the mean regret per episode has fallen to half of what it was over the first "
        f"{FIRST_EPISODES:,} episodes."
    )
    return draw.table_of_groups("theory", "Regret with the constants of the theory", table, shown, caption)


EXPERIMENT = Experiment(grids, verdicts, analyse)
