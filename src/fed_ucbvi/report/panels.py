"""One panel of a picture: curves, bands and axes, and the labels beside them. All lengths are in points."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fed_ucbvi.report.content import Panel, Series
from fed_ucbvi.report.scales import Scale, categories, positions, power_of_ten, short, x_scale, y_scale
from fed_ucbvi.results.labels import spread
from fed_ucbvi.results.style import LINE_STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

DASHES = dict(zip(("solid", "dashed", "dotted", "dashdot"), LINE_STYLES, strict=True))
MARKERS = {"cross": "X", "circle": "o", "square": "s", "diamond": "D", "triangle": "^", "none": ""}

SMALL = 7.5
"""Size of labels and legends."""
LINE = 11.0
"""Height of a line of text."""
CHARACTER = 4.6
"""Width of a character of a title, about."""
LEAST_WIDTH = 95.0
"""Of axes; where panels side by side would have less, they are put into more rows."""
LEADER = 14.0
"""From the axes to the labels beside them."""
LABEL_CHARACTERS = 18
MOST_NUMBERS = 5
"""Along a linear axis."""
NUMBER_WIDTH = 42.0
FEW_POINTS = 12
"""Up to so many, every point of a curve is marked; else marks keep a distance, as a share of the axes:"""
MARKS_APART = 0.16
FEW_CURVES = 6
"""Up to so many are drawn in full width."""


class Label(NamedTuple):
    """A text beside axes and the last points it names, as shares (x, y) of the axes."""

    text: Text
    colour: str
    ends: list[tuple[float, float]]

    @property
    def height(self) -> float:
        """Where it would best stand, as a share of the axes."""
        return sum(y for _, y in self.ends) / len(self.ends)


class DrawnPanel:
    """Axes with all that is drawn in them; :mod:`fed_ucbvi.report.pictures` gives them their place.

    Attributes:
        left: what stands left of the axes, the label of the vertical axis (``y_label_width``) included.
        labels: beside the axes, from the lowest up.
    """

    def __init__(self, picture: Figure, panel: Panel) -> None:
        self.axes: Axes = picture.add_axes((0.1, 0.1, 0.3, 0.5))
        self.panel = panel
        self.x, self.y = x_scale(panel), y_scale(panel)
        self._grouped = bool(categories(panel))
        places = positions(panel)
        for number, (series, xs) in enumerate(zip(panel.series, places, strict=True)):
            _draw_series(self.axes, series, xs, self.y, number, len(panel.series), grouped=self._grouped)
        _set_axis(self.axes, "x", self.x)
        _set_axis(self.axes, "y", self.y)
        self.axes.set_xlabel(panel.x_label, parse_math=False)
        self.axes.set_ylabel(panel.y_label, parse_math=False)
        self._title = self.axes.set_title(panel.title, parse_math=False, pad=6)
        self.labels = self._make_labels(places)
        self._below = self._beyond = 0.0
        self.fit(LEAST_WIDTH)
        self._measure_below()
        beside = self.axes.yaxis.get_tightbbox()
        self.left = 0.0 if beside is None else self.axes.bbox.x0 - beside.x0
        self.y_label_width = size(self.axes.yaxis.label)[0] + 4

    def _make_labels(self, places: Sequence[Sequence[float]]) -> list[Label]:
        ends: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for series, xs in zip(self.panel.series, places, strict=True):
            if series.label:
                end = (self.x.share(xs[-1]), self.y.share(float(series.y[-1])))
                ends.setdefault((series.label, series.colour), []).append(end)
        labels = []
        for (label, colour), points in ends.items():
            text = self.axes.text(0, 0, "\n".join(textwrap.wrap(label, LABEL_CHARACTERS)), parse_math=False)
            text.set(color=colour, fontsize=SMALL, va="center", ha="left", linespacing=1.0, gid="label")
            labels.append(Label(text, colour, points))
        return sorted(labels, key=lambda label: label.height)

    def _measure_below(self) -> None:
        """Find what stands below the axes and beyond their right end."""
        box = self.axes.xaxis.get_tightbbox()
        if box is not None:
            self._below = self.axes.bbox.y0 - box.y0
            self._beyond = max(0.0, box.x1 - self.axes.bbox.x1)

    def drop_labels(self) -> None:
        """Leave the labels to a neighbour."""
        for label in self.labels:
            label.text.remove()
        self.labels = []

    def drop_y_label(self) -> None:
        """Leave the label of the vertical axis to a neighbour."""
        self.left -= self.y_label_width
        self.axes.set_ylabel("")

    @property
    def least_width(self) -> float:
        """What axes with so many categories need at least."""
        return LEAST_WIDTH if not self._grouped else max(LEAST_WIDTH, LINE * (self.x.high - self.x.low))

    @property
    def right(self) -> float:
        """What stands right of the axes."""
        return max(self._beyond, *(LEADER + size(label.text)[0] for label in self.labels), 4.0)

    @property
    def label_heights(self) -> list[float]:
        """Of the labels, with a little room."""
        return [size(label.text)[1] + 2 for label in self.labels]

    def fit(self, width: float) -> tuple[float, float]:
        """Break texts for axes of that width; what then stands below and above them."""
        lines = textwrap.wrap(self.panel.title, max(12, int(width / CHARACTER)))
        self._title.set_text("\n".join(lines))
        if self._grouped:
            self._write_categories(width / (self.x.high - self.x.low))
            self._measure_below()
        elif self.x.ticks is not None:
            self._write_numbers(self.x.ticks, width)
        elif not self.x.log:
            self.axes.locator_params(axis="x", nbins=max(1, min(MOST_NUMBERS, int(width / NUMBER_WIDTH))))
        return self._below, LINE * len(lines) + 6 if lines else 2.0

    def _write_numbers(self, ticks: Sequence[tuple[float, str]], width: float) -> None:
        """Numbers along x, but those that would touch the one before."""
        texts, end = [], -LINE
        for place, text in ticks:
            centre, half = width * self.x.share(place), CHARACTER * len(text) / 2 + 1
            texts.append(text if centre - half >= end else "")
            end = centre + half if texts[-1] else end
        self.axes.set_xticks([place for place, _ in ticks], texts)

    def _write_categories(self, room: float) -> None:
        """Texts along x: broken into lines where that gives them room, upright where it does not."""
        names = [text for _, text in self.x.ticks or ()]
        most = max(1, int(room / CHARACTER))
        lines = [textwrap.wrap(name, most, break_long_words=False) for name in names]
        upright = max(len(line) for name in lines for line in name) > most
        self.axes.set_xticks(range(len(names)), names if upright else ["\n".join(name) for name in lines])
        for label in self.axes.get_xticklabels():
            label.set(rotation=90 if upright else 0, parse_math=False)

    def place_labels(self, width: float, height: float) -> None:
        """Put labels beside axes of that size, with thin lines from points that lie elsewhere."""
        centres = spread(
            [height * label.height for label in self.labels], self.label_heights, low=-LINE, high=height + 4
        )
        for label, centre in zip(self.labels, centres, strict=True):
            x, y = 1 + LEADER / width, centre / height
            label.text.set(transform=self.axes.transAxes, position=(x, y))
            for end_x, end_y in label.ends:
                if abs(y - end_y) * height > 2 or (x - end_x) * width > 2 * LEADER:
                    knots = [(end_x, end_y), (max(end_x, 1 + 3 / width), end_y), (x - 2 / width, y)]
                    (line,) = self.axes.plot(*zip(*knots, strict=True), transform=self.axes.transAxes, gid="leader")
                    line.set(color=label.colour, linewidth=0.5, alpha=0.7, clip_on=False, zorder=1)


def _draw_series(
    axes: Axes, series: Series, xs: Sequence[float], y: Scale, number: int, count: int, *, grouped: bool
) -> None:
    """A curve with its band, or points with their intervals."""
    marks: dict[str, Any] = {"marker": MARKERS[series.marker], "markersize": 4.5, "markeredgewidth": 0}
    if len(xs) > FEW_POINTS and series.line:
        marks["markevery"] = (MARKS_APART * (number % 4) / 4, MARKS_APART)
    elif len(xs) == 1 and series.marker == "none":
        marks["marker"] = "o"
    axes.plot(
        xs,
        [float(value) for value in series.y],
        color=series.colour,
        linestyle=DASHES[series.dash] if series.line else "none",
        linewidth=1.6 if count <= FEW_CURVES else 1.1,
        label=series.full_name,
        clip_on=False,
        zorder=3,
        **marks,
    )
    if series.low is None or series.high is None:
        return
    low = [y.within(float(value)) for value in series.low]
    high = [y.within(float(value)) for value in series.high]
    if series.line and len(xs) > 1 and not grouped:
        alpha = 0.18 if count <= FEW_CURVES else 0.1
        axes.fill_between(xs, low, high, color=series.colour, alpha=alpha, linewidth=0, zorder=2)
    else:
        axes.vlines(xs, low, high, color=series.colour, linewidth=1.1, zorder=2)


def _set_axis(axes: Axes, which: str, scale: Scale) -> None:
    """Kind, ends and ticks of an axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log" if scale.log else "linear")
    (axes.set_xlim if which == "x" else axes.set_ylim)(scale.low, scale.high)
    written = short
    if scale.ticks is not None:
        axis.set_ticks([place for place, _ in scale.ticks], [text for _, text in scale.ticks], parse_math=False)
        axis.set_minor_locator(NullLocator())
        return
    if scale.log:
        axis.set_major_locator(LogLocator(numticks=6))
        written = power_of_ten if scale.high >= 1e5 or scale.low < 1e-3 else short
        axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=60))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(MOST_NUMBERS, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))


def size(text: Any) -> tuple[float, float]:
    """Width and height of something with text: in points, as a picture has 72 dots an inch while it is laid out."""
    box = text.get_window_extent()
    return box.width, box.height
