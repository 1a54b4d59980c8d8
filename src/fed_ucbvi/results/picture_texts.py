"""Titles and labels that pictures of runs share, and their axis of episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from fed_ucbvi.charts.axes import plain_numbers
from fed_ucbvi.core.numbers import number
from fed_ucbvi.problem.units import PER_STEP
from fed_ucbvi.results import run_table
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.run_table import LABELS, label

LOG_FROM = 100
"""From this many episodes on the axis is logarithmic."""
EPISODES = "Episodes per agent"
REWARD = "Mean reward per episode"
ROUNDS = "Communication rounds"


def set_episodes(ax: Axes, played: int) -> None:
    """Episodes along x, from 1; from 0 if none was played."""
    if played >= LOG_FROM:
        ax.set_xscale("log")
        ax.set_xlim(1, played)
    else:
        ax.set_xlim(min(1, played), max(played, 2))
    plain_numbers(ax.xaxis)


def regret_label(runs: Sequence[RunData]) -> str:
    """Label of an axis of regret, with its unit on a second line."""
    units = {run.units for run in runs}
    return f"Common regret\n({PER_STEP if units == {PER_STEP} else 'units of reward'})"


def setting_text(name: str, value: Any) -> str:
    """A setting in a title or a legend.

    >>> setting_text("episodes", 2000), setting_text("eps_p", 0.1)
    ('T = 2,000', 'εₚ = 0.1')
    """
    if name == "episodes":
        return f"T = {number(value)}"
    text = run_table.setting_text(name, value)
    return text.replace("eps_p = ", "εₚ = ") if name == "eps_p" else text


def title(settings: Mapping[str, Any]) -> str:
    """Algorithm, environment, sizes and eps_p, as far as they are settings."""
    who = label({name: settings[name] for name in (*LABELS, *LABELS.values()) if name in settings})
    sizes = ("agents", "episodes", "horizon", "eps_p")
    numbers = label({name: settings[name] for name in sizes if name in settings}, setting_text)
    return ": ".join(part for part in (who, numbers) if part)
