"""Small figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sample_report
from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.report.content import Figure

SAMPLES = {
    "many curves": sample_report.many_curves(),
    "few points": sample_report.speed_up(),
    "categories": sample_report.by_environment(),
    "many panels": sample_report.small_panels(),
}


def one_panel(series: Sequence[Series], **axes: Any) -> Figure:
    return Figure("one", "One panel", "", [Panel("A panel", "along", "up", series, **axes)])


def check_schema(specification: dict[str, Any]) -> None:
    """Raise unless a picture, or the layers of one panel, keep to the schema of Vega-Lite."""
    import altair  # a quarter of a second, in every process that collects tests

    (altair.VConcatChart if "vconcat" in specification else altair.LayerChart).from_dict(specification)
