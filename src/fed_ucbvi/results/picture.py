"""Figures that belong to no global state, and that a notebook shows by themselves."""

from __future__ import annotations

import io

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fed_ucbvi.results.style import METADATA, SETTINGS

NOTEBOOK_DPI = 110
"""Dots per inch in a notebook, where twice as many as in print would be too wide."""


class Picture(Figure):
    """A matplotlib figure that shows itself in a notebook; ``%matplotlib inline`` is not needed."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with matplotlib.rc_context(SETTINGS):
            self.savefig(content, format="png", dpi=NOTEBOOK_DPI, metadata=METADATA["png"])
        return content.getvalue()
