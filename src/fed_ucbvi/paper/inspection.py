"""A federation before any run: how different its agents are, and what sharing one policy costs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi.charts.panels import Board, Panel, Scale, Series
from fed_ucbvi.charts.picture import Picture
from fed_ucbvi.core.colours import BLUE, VERMILLION
from fed_ucbvi.core.numbers import Bracket, number_text
from fed_ucbvi.core.text import Tabled
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import FederationLike, as_federation
from fed_ucbvi.paper.sharing import price_of_sharing
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.heterogeneity import Distances, distances, overlap
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.grid import grid_board, grid_squares
from fed_ucbvi.results.plotting import WIDE, saved

UNSHARED = "Shade: mass not shared, 1 \u2212 \u03a3\u209b\u2032 min\u1d62 P\u2071(s\u2032)"
MAX_LABELS = 12
"""Axes with more agents, steps or states than this name only some of them."""
MAX_SQUARES = 120
"""The most squares along an axis of a board; where there are more, neighbours are merged."""


@dataclass(frozen=True, eq=False)
class Inspection(Tabled):
    """The result of :func:`inspect_federation`; values are in the environment's own units.

    Attributes:
        eps_p: the eps_p of Assumption 1 with which it was made.
        eps_p_least: the smallest eps_p for which Assumption 1 holds; at most ``eps_p``.
        eps_r: of Assumption 2, as a share of the range of a reward.
        missing: ``(steps, S, A)``, ``1 - sum_s' min_i P^i(s')``; its largest entry is ``eps_p_least``.
        distances: L1 distances between the kernels.
        own: ``(M,)``, the value of each agent's own optimal policy in its own MDP.
        shared: ``(M,)``, the value of the common MDP's optimal policy in each agent's MDP.
        common_value: of that policy in the common MDP.
        price: the price of sharing, ``mean_i V^{i,*} - max_pi mean_i V^{i,pi}``.
    """

    federation: Federation
    eps_p: float
    eps_p_least: float
    eps_r: float
    missing: FloatArray
    distances: Distances
    own: FloatArray
    shared: FloatArray
    common_value: float
    price: Bracket

    def __repr__(self) -> str:
        federation = self.federation
        ends = dict.fromkeys(number_text(end) for end in self.price)
        return (
            f"<Inspection of {federation.description.get('name', 'custom')}, {federation.agents:,} agents: eps_p = "
            f"{number_text(self.eps_p)} (least {number_text(self.eps_p_least)}), eps_r = {number_text(self.eps_r)}, "
            f"price of sharing {' to '.join(ends)}>"
        )

    def summary(self) -> dict[str, Any]:
        """The figures, without the arrays."""
        federation = self.federation
        gaps = self.distances
        M = federation.agents
        others = ~np.eye(M, dtype=bool)
        worst, mean = (float(table[others].max()) if M > 1 else 0.0 for table in (gaps.worst, gaps.mean))
        h, s, a = (int(i) for i in np.unravel_index(int(self.missing.argmax()), self.missing.shape))
        return {
            "env": federation.description.get("name", "custom"),
            **{name: getattr(federation, name) for name in ("agents", "states", "actions", "horizon")},
            "stationary_kernel": self.missing.shape[0] == 1,
            "eps_p": self.eps_p,
            "eps_p_least": self.eps_p_least,
            "eps_p_least_at": {"step": h, "state": s, "action": a},
            "eps_r": self.eps_r,
            "l1_between_agents": {"worst": worst, "largest_mean": mean},
            "tv_between_agents": {"worst": worst / 2, "largest_mean": mean / 2},
            "l1_to_common": float(gaps.to_common.max()),
            "tv_to_common": float(gaps.to_common.max()) / 2,
            "own_optimum": {
                "mean": float(self.own.mean()),
                "by_agent": self.own.tolist(),
            },
            "shared_policy": {
                "mean": float(self.shared.mean()),
                "by_agent": self.shared.tolist(),
            },
            "common_optimum": self.common_value,
            "price_of_sharing": self.price.summary(),
        }


def inspect_federation(
    federation: FederationLike,
    *,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Inspection:
    """Distances, heterogeneity and values of a federation; each agent's MDP is solved exactly.

    An environment's name, an MDP or a list of MDPs will do.
    ``report`` is called with the number of agents done and of all of them.

    >>> from fed_ucbvi import synthetic
    >>> found = inspect_federation(synthetic(agents=3, eps_p=0.1))
    >>> found.eps_p_least <= found.eps_p
    True
    """
    federation = as_federation(federation)
    units = Units.of(federation.description)
    shared = overlap(federation.probabilities)
    best = federation.common.solve()
    own = np.zeros(federation.agents)
    together = np.zeros(federation.agents)
    for i in range(federation.agents):
        agent = federation.agent(i)
        own[i] = units.original_return(float(agent.initial @ agent.solve().V[0]), agent.horizon)
        together[i] = units.original_return(float(agent.initial @ agent.evaluate(best.policy)[0]), agent.horizon)
        report(i + 1, federation.agents)
    eps = (federation.eps_p, shared.eps_p, federation.eps_r)
    missing = np.maximum(1.0 - shared.mass, 0.0)
    apart = distances(federation.probabilities, federation.common.kernel.probabilities)
    common = units.original_return(float(federation.common.initial @ best.V[0]), federation.horizon)
    price = price_of_sharing(federation)
    return Inspection(federation, *eps, missing, apart, own, together, common, price)


# ------------------------------------------------------------------------------------------------------ the picture
def plot_inspection(found: Inspection, path: str | Path | None = None) -> Picture:
    """Where kernels differ, which agents differ, and what sharing one policy costs each of them.

    The first panel shows ``1 - sum_s' min_i P^i(s')``, whose largest value is the smallest possible eps_p. If there
    is a grid, each square shows the largest value over steps and actions. Otherwise the panel shows values by step
    and (state, action), or by state and action where kernels do not depend on the step.

    Args:
        found: what :func:`inspect_federation` found.
        path: where to write the picture, ``.png``, ``.svg``, ``.pdf`` or ``.html``; nowhere if None.
    """
    federation = found.federation
    if federation.layout is None:
        where = _table(found.missing)
    else:
        where = _grid(found.missing, federation.layout)
    name = label_of(str(federation.description.get("name", "custom")))
    title = (
        f"{name}: M = {federation.agents:,}, H = {federation.horizon:,}, \u03b5\u209a = {found.eps_p:.3g} "
        f"(least: {found.eps_p_least:.3g}), \u03b5\u1d63 = {found.eps_r:.3g}"
    )
    return saved(Picture([where, _pairs(found), _values(found)], title, WIDE), path)


def _some(count: int) -> list[int]:
    """Which of the numbers 0, 1, ..., ``count - 1`` are written along an axis."""
    return list(range(0, count, -(-count // MAX_LABELS)))


def _board(
    title: str,
    x_label: str,
    y_label: str,
    table: FloatArray,
    shade: str,
    group: int = 1,
    *,
    even: bool = True,
) -> Board:
    """A board of a table; where there are too many entries, neighbours are merged and show their largest.

    ``shade`` says what the figures are, and is written below; ``group`` columns at a time belong together.
    """
    rows, columns = table.shape
    down, along = (-(-size // MAX_SQUARES) for size in (rows, columns))
    padded = np.full((-(-rows // down) * down, -(-columns // along) * along), -np.inf)
    padded[:rows, :columns] = np.where(np.isnan(table), -np.inf, table)
    pooled = padded.reshape(-1, down, padded.shape[1] // along, along).max(axis=(1, 3))
    shades = np.where(np.isinf(pooled), np.nan, pooled)
    if down == along == 1:
        note = []
    else:
        note = [f"Squares: the largest of {down} \u00d7 {along}"]
    return Board(
        title,
        [x_label, shade, *note],
        y_label,
        shades.shape[0],
        shades.shape[1],
        shades.tolist(),
        x_ticks=[((n * group + (group - 1) / 2) / along, f"{n}") for n in _some(columns // group)],
        y_ticks=[(n / down, f"{n}") for n in _some(rows)],
        lines=(0, group if group > 1 and along == 1 else 0),
        even=even,
    )


def _table(missing: FloatArray) -> Board:
    """By step and (state, action); by state and action where there is one step."""
    steps, S, A = missing.shape
    title = "Where kernels differ"
    if steps == 1:
        return _board(
            title,
            "State (from 0)",
            "Action (from 0)",
            missing[0].T,
            UNSHARED,
            even=False,
        )
    x_label = f"State (from 0), with its {A} actions side by side"
    return _board(
        title,
        x_label,
        "Step (from 0)",
        missing.reshape(steps, S * A),
        UNSHARED,
        A,
        even=False,
    )


def _grid(missing: FloatArray, layout: Mapping[str, Any]) -> Board:
    """The largest over steps and actions, square by square."""
    table = np.full((int(layout["rows"]), int(layout["columns"])), np.nan)
    for (row, column), value in zip(layout["cells"], missing.max(axis=(0, 2)), strict=False):  # others have no square
        table[row, column] = value
    caption = ["The largest over steps and actions", UNSHARED]
    return grid_board(
        layout,
        "Where kernels differ",
        caption,
        grid_squares(layout, fill=False),
        table.tolist(),
    )


def _pairs(found: Inspection) -> Board:
    """The largest total variation between each two agents."""
    table = found.distances.worst / 2
    np.fill_diagonal(table, np.nan)
    agents = "Agent (from 0)"
    return _board(
        "Which agents differ",
        agents,
        agents,
        table,
        "Shade: largest total variation over (h, s, a)",
    )


def _values(found: Inspection) -> Panel:
    """Each agent's own optimum and its value under the shared policy; agents are sorted by what they lose."""
    order = np.argsort(found.own - found.shared, kind="stable")
    own = found.own[order]
    shared = found.shared[order]
    rank = list(range(len(order)))
    axis = Scale(
        -0.7,
        len(order) - 0.3,
        log=False,
        ticks=tuple((float(n), f"{order[n]}") for n in _some(len(order))),
    )
    low = np.minimum(own, shared).tolist()
    high = np.maximum(own, shared).tolist()
    series = [
        Series(
            "its own optimal policy",
            BLUE,
            rank,
            own.tolist(),
            low,
            high,
            "solid",
            "circle",
            line=False,
        ),
        Series(
            "the common MDP's optimal policy",
            VERMILLION,
            rank,
            shared.tolist(),
            marker="triangle",
            line=False,
        ),
    ]
    x_label = "Agent (from 0), by what it loses"
    y_label = "Value in the agent's own MDP (units of reward)"
    return Panel("What sharing costs", x_label, y_label, series, x_axis=axis)
