"""Figures in the style of this package, without pyplot, and their files.

The style sheet ``figures.mplstyle`` is applied inside :func:`figure_style` only, so matplotlib's settings stay those
of the user.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from fed_ucbvi.charts.axes import plain_text
from fed_ucbvi.charts.picture_files import PNG_DPI, Size, check_picture, check_size
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file

STYLE = "fed_ucbvi.charts.figures"
PANEL_WIDTH = 4.2
PANEL_HEIGHT = 3.1
HEADING_HEIGHT = 0.6
"""Inches of a panel, with its labels, and of the heading of a figure."""
LEGEND_LINE = 0.18
"""Inches of a line of a legend."""
CHARACTER = 0.078
HEADING_CHARACTER = 0.096
SWATCH = 0.55
"""Approximate inches of a character in a legend, of one in a heading, and of a curve's sample with its margins."""
SCREEN_DPI = 96
"""Dots per inch of a figure in a notebook."""
WITHOUT_DATES: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
"""Metadata that differ from one run of the program to the next are left out."""


@contextmanager
def figure_style() -> Iterator[None]:
    """Use the style sheet of this package inside a ``with`` block."""
    with matplotlib.style.context(STYLE):
        yield


class Panels(tuple[Axes, ...]):
    """Axes of a picture with several panels, in reading order; a notebook shows their figure."""

    __slots__ = ()

    @property
    def figure(self) -> Figure:
        figure = self[0].get_figure(root=True)
        assert figure is not None, "axes belong to a figure"
        return figure

    def save(self, path: str | Path) -> None:
        """Write the whole figure to a ``.png``, ``.svg`` or ``.pdf`` file."""
        save_figure(self.figure, path)

    def __repr__(self) -> str:
        titles = ", ".join(ax.get_title("left") or "untitled" for ax in self)
        return f"<Panels: {titles}>"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = self.figure.get_size_inches()
        shown_size = {
            "width": round(SCREEN_DPI * width),
            "height": round(SCREEN_DPI * height),
        }
        return figure_content(self.figure, "png"), shown_size


def new_panels(count: int, *, columns: int, size: Size | None = None, legend: Sequence[str] = ()) -> Panels:
    """Axes of a new figure, row by row; ``legend`` are the texts for which the default size leaves room."""
    rows = math.ceil(count / columns)
    if size is None:
        width = PANEL_WIDTH * columns
        legend_lines = math.ceil(len(legend) / legend_columns(legend, width)) if legend else 0
        height = HEADING_HEIGHT + PANEL_HEIGHT * rows + LEGEND_LINE * legend_lines
        size = (width, height)
    figure = Figure(figsize=check_size(size), layout="constrained")
    return Panels(figure.add_subplot(rows, columns, place) for place in range(1, count + 1))


def given_panels(axes: Iterable[Axes], count: int) -> Panels:
    """``axes`` as panels; an error unless there are ``count`` of them. An array of axes is read row by row."""
    flat = getattr(axes, "flat", axes)
    panels = Panels(flat)
    if len(panels) != count:
        raise InputError(f"axes must be {count} matplotlib axes, one for each panel, got {len(panels)}.")
    return panels


def one_axes(ax: Axes | None) -> Axes:
    """``ax``, or the axes of a new figure of one panel."""
    return new_panels(1, columns=1)[0] if ax is None else ax


def legend_columns(texts: Sequence[str], width: float) -> int:
    """Number of columns in which a legend with these texts fits into ``width`` inches."""
    longest = max(len(text) for text in texts)
    entry_width = SWATCH + CHARACTER * longest
    columns = min(len(texts), int(width / entry_width))
    return max(1, columns)


def figure_legend(panels: Panels) -> None:
    """A legend below the panels with the labelled curves of all of them, each label once."""
    labelled: dict[str, Artist] = {}
    for ax in panels:
        handles, texts = ax.get_legend_handles_labels()
        for handle, text in zip(handles, texts, strict=True):
            labelled.setdefault(text, handle)
    if not labelled:
        return
    figure = panels.figure
    names = list(labelled)
    legend = figure.legend(
        list(labelled.values()),
        names,
        loc="outside lower center",
        ncols=legend_columns(names, figure.get_figwidth()),
    )
    without_tex(legend)


def without_tex(legend: Legend) -> None:
    """Show the texts of a legend as they are."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def set_heading(panels: Panels, text: str) -> None:
    """The title of a figure, at its left, in as many lines as its width needs."""
    figure = panels.figure
    characters = max(1, int(figure.get_figwidth() / HEADING_CHARACTER))
    lines: list[str] = []
    for part in plain_text(text).splitlines():
        lines += textwrap.wrap(part, characters)
    figure.suptitle("\n".join(lines), x=0.01, ha="left", parse_math=False)


def figure_content(figure: Figure, format_: str) -> bytes:
    """The content of a picture file; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with figure_style():
        figure.savefig(buffer, format=format_, dpi=PNG_DPI, metadata=WITHOUT_DATES[format_])
    return buffer.getvalue()


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a ``.png``, ``.svg`` or ``.pdf`` file, wholly or not at all."""
    format_ = check_picture(path)
    path = Path(path)
    content = figure_content(figure, format_)
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as draft:
        draft.write_bytes(content)
