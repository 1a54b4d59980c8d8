"""Figures 1, 2 and 3 of the paper: regret against T and against M, and communication rounds against M.

Fed-UCBVI against FedQ-Bernstein, as in the paper, and against FedQ-Advantage, with the constants of the paper's
experiments. Environments are drawn from the run's seed, so that cells differ by nothing but what the axes say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fed_ucbvi.algorithms import ALGORITHMS as REGISTRY
from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.colours import DARK_GREY
from fed_ucbvi.paper.claims import cases, judge, local_slopes, ratios_to
from fed_ucbvi.paper.experiment import Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import range_text, signed
from fed_ucbvi.report import run_figures as draw
from fed_ucbvi.report.content import Figure, Section
from fed_ucbvi.report.traces import Measure, Traces, regret, rounds

ALGORITHMS = ("fed-ucbvi", "fedq-bernstein", "fedq-advantage")
MARKERS = "Crosses: Fed-UCBVI, circles: FedQ-Bernstein, squares: FedQ-Advantage."
SLOPES = "Slopes in the title: of {} against log M between neighbouring M, of Fed-UCBVI at εₚ = 0."


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
    """The eps_p of curves."""
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
    speed_up = _against_agents(table, shown, regret, draw.REGRET_LABEL, reference=True)
    communication = _against_agents(table, shown, rounds, draw.ROUNDS_LABEL)
    figures = (
        _regret_over_episodes(base, shown),
        _regret_over_eps_p(base),
        Figure(
            "figure2",
            f"Fed-UCBVI's regret against M{_slopes(table, shown[0], regret)}",
            "Figure 2 of the paper. Dotted grey: in proportion to 1/M, a linear speed-up. "
            f"{SLOPES.format('log regret')} {MARKERS} {draw.band_text(table)}",
            speed_up,
        ),
        Figure(
            "figure3",
            f"Fed-UCBVI's rounds against M{_slopes(table, shown[0], rounds)}",
            "Figure 3 of the paper. Fewer is better; T is the most there can be. "
            f"{SLOPES.format('log rounds')} {MARKERS} {draw.band_text(table)}",
            communication,
        ),
        bytes_figure(base.having(eps_p=scale.eps_p[0]), "regret_and_bytes"),
    )
    tables = [draw.cells_table(table, "figures", "Every cell of the figures")]
    return Section("figures", "The paper's figures", (text,), judge(table), figures, tables)


def _regret_over_episodes(table: Traces, shown: Sequence[float]) -> Figure:
    def curves(part: Traces) -> Iterator[Series]:
        for dash, eps_p in zip(draw.DASHES, shown, strict=False):
            for group in part.having(eps_p=eps_p):
                yield draw.over_episodes(group, dash=dash, variant=draw.eps_text(eps_p))

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
            groups = sorted(part.having(algorithm=algorithm), key=lambda group: group["eps_p"])
            samples = Traces(groups).in_common(regret)
            if samples.size and groups[0]["eps_p"] == 0.0:
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


def _against_agents(
    table: Traces, shown: Sequence[float], measure: Measure, y_label: str, *, reference: bool = False
) -> list[Panel]:
    def curves(part: Traces) -> Iterator[Series]:
        first = None
        for dash, eps_p in zip(draw.DASHES, shown, strict=False):
            for algorithm in ALGORITHMS:
                cells = part.having(algorithm=algorithm, eps_p=eps_p)
                curve = draw.over_agents(cells, measure, dash=dash, variant=draw.eps_text(eps_p))
                if curve is not None and len(curve.x) > 1:
                    first = first or curve
                    yield curve
        if reference and first is not None:
            yield inverse_line(first)

    return draw.panels_of(table, curves, draw.AGENTS_LABEL, y_label, x_log=True, y_log=True)


def bytes_figure(table: Traces, id_: str) -> Figure:
    """Regret against bytes, a curve for each algorithm."""

    def curves(part: Traces) -> Iterator[Series | None]:
        for group in sorted(part, key=lambda group: list(REGISTRY).index(group["algorithm"])):
            yield draw.over_bytes(group, marker="none")

    return Figure(
        id_,
        "What a byte buys: the lower and the further left a curve ends, the better",
        f"Common regret against what all agents and the server had sent by then; εₚ = 0. {draw.band_text(table)}",
        draw.panels_of(table, curves, draw.BYTES_LABEL, draw.REGRET_LABEL, x_log=True, y_log=True),
    )


def _slopes(table: Traces, eps_p: float, measure: Measure) -> str:
    """How steep the curves are from each M to the next at one eps_p, for a title."""
    texts = []
    for name, part in cases(table, ALGORITHMS[0]).items():
        steps = list(local_slopes(part.having(eps_p=eps_p), measure).items())
        if len(steps) == 1:
            texts.append(f"{signed(steps[0][1])} on {name}")
        elif steps:
            (first, start), (last, end) = steps[0], steps[-1]
            ends = f"{signed(start)} (M = {first[0]} to {first[1]}) to {signed(end)} (M = {last[0]} to {last[1]})"
            texts.append(f"{ends} on {name}")
    return f": local slope {'; '.join(texts)}" if texts else ""


def inverse_line(like: Series) -> Series:
    """A line in proportion to 1/M through the first point of another curve."""
    x = [float(value) for value in like.x]
    y = [like.y[0] * x[0] / value for value in x]
    return Series("linear speed-up", DARK_GREY, x, y, dash="dotted")


EXPERIMENT = Experiment(grids, judge, analyse)
