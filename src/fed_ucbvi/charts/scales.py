"""Where things go along the axes of a panel: ends, ticks and what is written at them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from fed_ucbvi.charts.panels import Panel, Scale
from fed_ucbvi.core.numbers import power_of_ten, short
from fed_ucbvi.core.text import shortened

MARGIN = 0.04
"""Left free beyond the outermost points, as a share of the axis."""
CATEGORY_WIDTH = 0.6
"""The share of the distance between two categories that the points of one category take."""
MAX_TICKS = 8
"""Up to this many different x, each is written under the axis if there is room."""
FEW_DECADES = 2.5
"""From this many decades on a logarithmic axis has ticks at powers of ten only."""
MAX_POWERS = 6
"""The most powers of ten along an axis; on longer axes some are left out."""
MIN_TICKS = 3
CROWD = 12
"""The most ticks along an axis; where there are more, some are left out."""
LONGEST = 30
"""Characters of a category under an axis; longer ones are cut."""
MIN_DISTANCE = 0.09
"""Between two such x, as a share of the axis."""


def categories(panel: Panel) -> list[str]:
    """The texts along x in order of appearance; empty for a panel with numbers."""
    return list(dict.fromkeys(x for series in panel.series for x in series.x if isinstance(x, str)))


def positions(panel: Panel) -> list[list[float]]:
    """The x of every series as numbers; categories count from 0, and loose points in one stand side by side."""
    names = {name: float(number) for number, name in enumerate(categories(panel))}
    if not names:
        return [[float(x) for x in series.x] for series in panel.series]
    loose = [number for number, series in enumerate(panel.series) if not series.line]
    moves = {
        number: CATEGORY_WIDTH * ((place + 0.5) / len(loose) - 0.5) if len(loose) > 1 else 0.0
        for place, number in enumerate(loose)
    }
    return [[names[str(x)] + moves.get(number, 0.0) for x in series.x] for number, series in enumerate(panel.series)]


def x_scale(panel: Panel) -> Scale:
    if panel.x_axis is not None:
        return panel.x_axis
    names = categories(panel)
    if names:
        ticks = tuple((float(number), shortened(name, LONGEST)) for number, name in enumerate(names))
        return Scale(-0.5, len(names) - 0.5, log=False, ticks=ticks, categories=True)
    values = sorted({x for series in positions(panel) for x in series})
    marked = any(series.marker != "none" for series in panel.series)
    low, high = _widened(values[0], values[-1], panel.x_log, MARGIN if marked else 0.0)
    scale = Scale(low, high, panel.x_log)
    if len(values) <= MAX_TICKS and _apart([scale.share(value) for value in values]):
        return Scale(low, high, panel.x_log, tuple((value, short(value)) for value in values))
    return log_scale(low, high) if panel.x_log else scale


def y_scale(panel: Panel) -> Scale:
    """The vertical axis: all points, and of intervals what the axis can hold; from 0 up where that hides nothing."""
    if panel.y_axis is not None:
        return panel.y_axis
    heights = [y for one in panel.series for part in (one.y, one.low, one.high) if part is not None for y in part]
    values = [float(y) for y in heights if y > 0 or not panel.y_log]
    low, high = min(values), max(values)
    if panel.y_log:
        return log_scale(*_widened(low, high, log=True, margin=MARGIN))
    if 0 <= low < high / 2 or low == high == 0:
        return Scale(0.0, high * (1 + MARGIN) or 1.0, log=False)
    return Scale(*_widened(low, high, log=False, margin=MARGIN), log=False)


def log_scale(low: float, high: float) -> Scale:
    """A logarithmic axis; if it is short, with round numbers finer than powers of ten.

    >>> [text for _, text in log_scale(0.4, 30).ticks], [text for _, text in log_scale(2.9, 3.4).ticks]
    (['0.5', '1', '2', '5', '10', '20'], ['2.9', '3', '3.1', '3.2', '3.3', '3.4'])
    >>> [text for _, text in log_scale(0.7, 2e10).ticks]
    ['1', '10²', '10⁴', '10⁶', '10⁸', '10¹⁰']
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if math.log10(high / low) >= FEW_DECADES:
        whole = [power for power in powers if low <= 10.0**power <= high]
        written = power_of_ten if high >= 1e5 or low < 1e-3 else short
        values = [float(f"1e{power}") for power in whole[:: -(-len(whole) // MAX_POWERS)]]
        return Scale(low, high, log=True, ticks=tuple((value, written(value)) for value in values))
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8), [step / 10 for step in range(10, 100)]):
        ticks = [float(f"{step}e{power}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= MIN_TICKS:
            some = ticks[:: -(-len(ticks) // CROWD)]
            return Scale(low, high, log=True, ticks=tuple((tick, short(tick)) for tick in some))
    return Scale(low, high, log=True, ticks=((low, short(low)), (high, short(high))))


def _widened(low: float, high: float, log: bool, margin: float) -> tuple[float, float]:
    if log:
        factor = (high / low) ** margin if high > low else 2.0
        return low / factor, high * factor
    step = margin * (high - low) if high > low else max(1.0, abs(low)) / 2
    return low - step, high + step


def _apart(shares: Sequence[float]) -> bool:
    return all(above - below >= MIN_DISTANCE for below, above in pairwise(shares))
