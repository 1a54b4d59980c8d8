"""Axes with round numbers in plain text, and curves with bands on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import Formatter, Locator, NullFormatter, NullLocator

from fed_ucbvi.core.colours import Dash, Marker
from fed_ucbvi.core.numbers import power_of_ten, short
from fed_ucbvi.core.text import one_line

MARKERS: Mapping[Marker, str] = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle": "^",
    "cross": "X",
    "none": "None",
}
"""Markers by their name in matplotlib."""
FEW_POINTS = 12
MARKERS_OF_MANY = 6
"""Up to so many points of a curve are all marked; of more points, about the second number are."""
FEW_CURVES = 6
BAND_OPACITY = 0.18
FAINT_BAND_OPACITY = 0.1
"""Opacity of bands of up to ``FEW_CURVES`` curves in a panel, and of more."""
DECADES = 2.5
"""From so many powers of ten on, a logarithmic axis names powers of ten only."""
MOST_POWERS = 6
MOST_TICKS = 12
TICK_STEPS: Sequence[Sequence[float]] = (
    (1, 2, 5),
    (1, 1.5, 2, 3, 4, 5, 6, 8),
    [step / 10 for step in range(10, 100)],
)
"""Multiples of powers of ten at which an axis has ticks: the first of these with three ticks on the axis."""


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: up to six powers of ten, or, below 2.5 decades, 3 to 12 round numbers.

    >>> log_ticks(0.4, 30), log_ticks(2.9, 3.4)
    ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [2.9, 3.0, 3.1, 3.2, 3.3, 3.4])
    >>> log_ticks(0.7, 2e10)
    [1.0, 100.0, 10000.0, 1000000.0, 100000000.0, 10000000000.0]
    """
    if math.log10(high / low) >= DECADES:
        return every_nth(ticks_between(low, high, (1,)), MOST_POWERS)
    for steps in TICK_STEPS:
        ticks = ticks_between(low, high, steps)
        if len(ticks) >= 3:
            return every_nth(ticks, MOST_TICKS)
    return [low, high]


def ticks_between(low: float, high: float, steps: Sequence[float]) -> list[float]:
    """The multiples of powers of ten by ``steps``, from ``low`` to ``high``."""
    lowest = math.floor(math.log10(low))
    highest = math.ceil(math.log10(high))
    ticks = []
    for power in range(lowest, highest + 1):
        for step in steps:
            tick = float(f"{step}e{power}")
            if low <= tick <= high:
                ticks.append(tick)
    return ticks


def every_nth(ticks: Sequence[float], most: int) -> list[float]:
    """At most so many of the ticks, evenly from the first.

    >>> every_nth([1, 2, 3, 4, 5], most=3)
    [1, 3, 5]
    """
    step = math.ceil(len(ticks) / most)
    return list(ticks[::step])


class LogLocator(Locator):
    """Places of :func:`log_ticks`, for the limits that the axis has when it is drawn."""

    def __call__(self) -> Sequence[float]:
        assert self.axis is not None, "matplotlib sets the axis of a locator"
        low, high = sorted(float(end) for end in self.axis.get_view_interval())
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        return log_ticks(vmin, vmax)


class NumberFormatter(Formatter):
    """Numbers as text: with commas, or as powers of ten where a logarithmic axis spans many of them."""

    def __init__(self, *, powers: bool = False) -> None:
        self.powers = powers

    def __call__(self, x: float, pos: int | None = None) -> str:
        assert self.axis is not None, "matplotlib sets the axis of a formatter"
        low, high = sorted(float(end) for end in self.axis.get_view_interval())
        if self.powers and high / low >= 10**DECADES and (high >= 1e5 or low < 1e-3):
            return power_of_ten(x)
        rounded = float(f"{x:.9g}")
        return short(rounded)


def plain_numbers(axis: Axis) -> None:
    """Plain numbers at the ticks of an axis, logarithmic or linear, without a common factor beside it."""
    log = axis.get_scale() == "log"
    if log:
        axis.set_major_locator(LogLocator())
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(NumberFormatter(powers=log))


def set_scales(ax: Axes, *, x_log: bool, y_log: bool) -> None:
    """Logarithmic or linear axes, both with plain numbers."""
    ax.set_xscale("log" if x_log else "linear")
    ax.set_yscale("log" if y_log else "linear")
    plain_numbers(ax.xaxis)
    plain_numbers(ax.yaxis)


def plain_text(text: str) -> str:
    r"""Lines of text without characters that no file of a picture can hold.

    >>> print(plain_text("one\x1b[31m"))
    one\x1b[31m
    """
    return "\n".join(map(one_line, text.splitlines()))


def set_texts(ax: Axes, *, title: str, x_label: str, y_label: str) -> None:
    """Title, at the left, and labels of axes, as they are: without TeX."""
    ax.set_title(plain_text(title), loc="left", parse_math=False)
    ax.set_xlabel(plain_text(x_label), parse_math=False)
    ax.set_ylabel(plain_text(y_label), parse_math=False)


def start_at_zero(ax: Axes, heights: npt.ArrayLike) -> None:
    """Let a linear vertical axis start at 0 if the smallest of ``heights`` is less than half the largest one."""
    values = np.asarray(heights, dtype=np.float64)
    if values.size == 0 or values.min() < 0:
        return
    if values.max() == 0:
        ax.set_ylim(bottom=0, top=1)
    elif values.min() < values.max() / 2:
        ax.set_ylim(bottom=0)


def curve_label(text: str) -> str:
    """The label of a curve in the legend; matplotlib leaves out labels that begin with an underscore.

    >>> curve_label(""), curve_label("_mine")
    ('_nolegend_', ' _mine')
    """
    if not text:
        return "_nolegend_"
    plain = plain_text(text)
    return f" {plain}" if plain.startswith("_") else plain


def draw_curve(
    ax: Axes,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    colour: str,
    label: str = "",
    dash: Dash = "solid",
    marker: Marker = "none",
    steps: bool = False,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    band_opacity: float = BAND_OPACITY,
) -> None:
    """One curve; between ``low`` and ``high``, if they are given, a band of its colour."""
    count = np.size(x)
    every = 1 if count <= FEW_POINTS else math.ceil(count / MARKERS_OF_MANY)
    ax.plot(
        x,
        y,
        color=colour,
        linestyle=dash,
        marker=MARKERS[marker],
        markevery=every,
        drawstyle="steps-post" if steps else "default",
        label=curve_label(label),
    )
    if low is not None and high is not None:
        ax.fill_between(x, low, high, color=colour, alpha=band_opacity, linewidth=0)


def draw_points(
    ax: Axes, x: npt.ArrayLike, y: npt.ArrayLike, *, colour: str, marker: Marker, label: str = "", **style: Any
) -> None:
    """Points that no line connects."""
    ax.plot(x, y, color=colour, linestyle="None", marker=MARKERS[marker], label=curve_label(label), **style)
