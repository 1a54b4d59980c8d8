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
