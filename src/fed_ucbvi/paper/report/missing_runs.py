"""Runs that a report lacks: the note at its top, and sections without the figures that would be empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.paper.report.content import PageContent, Section
from fed_ucbvi.paper.report.run_figures import eps_text
from fed_ucbvi.results.about import label_of

MAX_MISSING = 20
"""The most cells with missing runs that are named at the top of a report; the provenance lists all."""


def missing_runs(jobs: Iterable[Any]) -> list[str]:
    """Jobs without runs as text, one line per algorithm, environment, M and eps_p."""
    seeds: dict[str, list[int]] = {}
    for job in jobs:
        settings = job.settings
        algorithm = settings["algorithm"]
        if settings["label"] != label_of(algorithm):
            algorithm = f"{algorithm} ({settings['label']})"
        sizes = f"M = {settings['agents']}, {eps_text(settings['eps_p'])}, T = {settings['episodes']:,}"
        cell = f"{algorithm} on {settings['environment']}, {sizes}"
        seeds.setdefault(cell, []).append(job.seed)
    return [f"{cell}: seeds {', '.join(map(str, numbers))}" for cell, numbers in seeds.items()]


def with_note(report: PageContent, folder: Path, missing: Sequence[str]) -> PageContent:
    """The report, with a note on missing runs at its top; an error if there is no finished run."""
    if not report.sections:
        raise InputError(f"{folder} holds no finished run; make some first (--resume).")
    if not missing:
        return report
    named = list(missing[:MAX_MISSING])
    if len(missing) > MAX_MISSING:
        named.append(f"and {len(missing) - MAX_MISSING} more")
    note = (
        f"INCOMPLETE: runs of {len(missing)} cells are missing, and what follows rests on the others. "
        f"Missing: {'; '.join(named)}."
    )
    provenance = {**report.provenance, "missing": list(missing)}
    return replace(report, text=(note, *report.text), provenance=provenance)


def without_gaps(section: Section) -> Section:
    """The section without panels, figures and tables that are empty because their runs are missing."""
    figures = []
    for figure in section.figures:
        panels = [panel for panel in figure.panels if panel.series]
        if panels:
            figures.append(replace(figure, panels=panels))
    tables = [table for table in section.tables if table.rows]
    return replace(section, figures=figures, tables=tables)
