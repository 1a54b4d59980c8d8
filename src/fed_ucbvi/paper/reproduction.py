"""The whole experimental section of the paper: runs, figures, tables, verdicts, one page.

``manifest.json``
    which experiments at which scale;
``sweeps/main``, ``sweeps/wider`` and ``sweeps/tuned``
    the runs, each made once even if several experiments use it; the second and third folder hold runs whose
    parameters depend on earlier runs;
``report``
    what :func:`fed_ucbvi.report.writing.write_report` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.files import new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.paper import ablations, figures, kl, own_sweeps, table1, theory, tuned_comparison, tuning
from fed_ucbvi.paper.scale import Scale
from fed_ucbvi.paper.traces import Pair, Trace, load_pairs
from fed_ucbvi.report.content import PageContent, Section
from fed_ucbvi.results.about import versions
from fed_ucbvi.sweeps.execution import run_sweep
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep
from fed_ucbvi.sweeps.store import FORMAT as SWEEP_FORMAT
from fed_ucbvi.sweeps.store import Store

FORMAT = "fed-ucbvi/reproduction"
FORMAT_VERSION = 3
STAGES = ("sweeps/main", "sweeps/wider", "sweeps/tuned")
"""Where the runs of each stage lie."""
REPORT = "report"
TEXT = (
    "The experiments of the paper, and what they left open, from one command: fed-ucbvi reproduce. Every claim is "
    "judged by the rule that stands beside it."
)
QUICK_TEXT = (
    "A smoke test: every figure is drawn from short runs with few agents, to see that everything works. The figures "
    "say nothing about the paper, so no claim is judged. For verdicts leave out --quick."
)
MAX_MISSING = 20
"""The most cells with missing runs that are named at the top of a report; the provenance lists all."""

Grids = list[dict[str, Any]]


class Experiment(NamedTuple):
    """An experiment: which runs to make, and how they become a section of the report.

    Attributes:
        grids: what to run.
        analyse: makes the section; it must work also if runs are missing.
        further: what to run once the runs of all earlier stages exist, stage by stage.
    """

    grids: Callable[[Scale], Grids]
    analyse: Callable[[Sequence[Pair], Scale], Section]
    further: tuple[Callable[[Sequence[Pair], Scale], Grids], ...] = ()


EXPERIMENTS: dict[str, Experiment] = {
    figures.NAME: Experiment(figures.grids, figures.analyse),
    tuned_comparison.NAME: Experiment(
        tuning.grids, tuned_comparison.analyse, (tuning.wider_grids, tuning.tuned_grids)
    ),
    theory.NAME: Experiment(theory.grids, theory.analyse),
    ablations.NAME: Experiment(ablations.grids, ablations.analyse),
    kl.NAME: Experiment(kl.grids, kl.analyse),
    table1.NAME: Experiment(table1.grids, table1.analyse),
}
"""In the order of the report."""
FULL_ONLY = (table1.NAME,)
"""Run by default only in a full reproduction; ``fed-ucbvi compare`` makes the same table alone."""


def check_names(names: Iterable[str], scale: Scale) -> tuple[str, ...]:
    """The named experiments, in the order of the report; by default all, without those only for ``full``."""
    left_out = FULL_ONLY if scale.size == "default" else ()
    asked = set(names) or set(EXPERIMENTS) - set(left_out)
    for name in asked:
        if name not in EXPERIMENTS:
            raise unknown_name("experiment", name, EXPERIMENTS)
    return tuple(name for name in EXPERIMENTS if name in asked)


@dataclass(frozen=True)
class ReproductionPlan:
    """The experiments and the scale of a reproduction, as stored in its manifest."""

    scale: Scale
    experiments: tuple[str, ...]

    def manifest(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "scale": asdict(self.scale),
            "experiments": list(self.experiments),
            "versions": versions(),
        }

    @classmethod
    def read(cls, folder: Path) -> ReproductionPlan:
        """The plan of a reproduction's folder."""
        manifest = read_manifest(folder, FORMAT)
        if manifest.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{folder} has format version {manifest.get('format_version')}; this program reads {FORMAT_VERSION}. "
                "Reproduce anew with --overwrite."
            )
        with reading(folder):
            scale = Scale(**manifest["scale"])
            return cls(scale, check_names(manifest["experiments"], scale))


def start(out: Path, plan: ReproductionPlan, *, overwrite: bool) -> None:
    """Make a folder with only the plan; ``overwrite`` removes an earlier reproduction."""
    with new_folder(out, FORMAT, overwrite=overwrite) as draft:
        write_manifest(draft, plan.manifest())


@dataclass
class Runs:
    """The runs in the folder of a reproduction; each is read once, even if several experiments need it."""

    folder: Path
    traces: dict[str, Trace] = field(default_factory=dict)

    def pairs(self, jobs: Sequence[Job]) -> list[Pair]:
        """The jobs whose runs exist, with their traces; a run may be in the sweep of any stage."""
        for stage in STAGES:
            unread = [job for job in jobs if job.id not in self.traces]
            if unread and (self.folder / stage).exists():
                self.traces |= {job.id: trace for job, trace in load_pairs(self.folder / stage, unread)}
        return [(job, self.traces[job.id]) for job in jobs if job.id in self.traces]


def run_experiments(
    runs: Runs,
    plan: ReproductionPlan,
    *,
    jobs: int | None = None,
    report: Callable[[int, int, int], None] | None = None,
) -> dict[str, str]:
    """Make every run that is missing, stage by stage; returns the errors of failed runs, by id."""
    failed: dict[str, str] = {}
    asked: set[str] = set()
    for stage, place in enumerate(STAGES):
        grids = [
            grid
            for name in plan.experiments
            for grid in _stage_grids(name, plan.scale, stage, runs)
            if not {job.id for job in _jobs(name, [grid])} <= asked
        ]
        if grids:
            sweep, folder = Sweep(name=Path(place).name, grids=grids), runs.folder / place
            asked |= {job.id for job in sweep.jobs()}
            failed |= run_sweep(sweep, folder, jobs=jobs, resume=folder.exists(), report=report).failed
    return failed


def _stage_grids(name: str, scale: Scale, stage: int, runs: Runs) -> Grids:
    """The grids of an experiment at a stage, which may depend on its runs of earlier stages."""
    experiment = EXPERIMENTS[name]
    if stage == 0:
        return experiment.grids(scale)
    if stage > len(experiment.further):
        return []
    before = [job for earlier in range(stage) for job in _jobs(name, _stage_grids(name, scale, earlier, runs))]
    return experiment.further[stage - 1](runs.pairs(before), scale)


def _jobs(name: str, grids: Grids) -> tuple[Job, ...]:
    return Sweep(name=name, grids=grids).jobs() if grids else ()


def report_on(folder: Path, runs: Runs | None = None) -> PageContent:
    """The report on a reproduction or a sweep, complete or not; ``runs`` are those already read, if any."""
    kind = read_manifest(folder).get("format")
    if kind == FORMAT:
        return _report_on_reproduction(folder, runs or Runs(folder))
    if kind == SWEEP_FORMAT:
        return _report_on_sweep(folder)
    raise InputError(f"{folder} holds a {kind}; a report is about a sweep or a reproduction.")


def _report_on_reproduction(folder: Path, runs: Runs) -> PageContent:
    plan = ReproductionPlan.read(folder)
    sections, missing = [], []
    for name in plan.experiments:
        jobs = [
            job for stage in range(len(STAGES)) for job in _jobs(name, _stage_grids(name, plan.scale, stage, runs))
        ]
        pairs = runs.pairs(jobs)
        missing += missing_runs(jobs, pairs)
        if pairs:
            section = without_gaps(EXPERIMENTS[name].analyse(pairs, plan.scale))
            sections.append(replace(section, verdicts=()) if plan.scale.quick else section)
    text = (QUICK_TEXT if plan.scale.quick else TEXT,)
    provenance = {**plan.manifest(), "sweeps": [name for name in STAGES if (folder / name).exists()]}
    title = "Fed-UCBVI: a smoke test of the evidence" if plan.scale.quick else "Fed-UCBVI: the evidence"
    return _checked(PageContent(title, text, sections, provenance), folder, missing)


def _report_on_sweep(folder: Path) -> PageContent:
    store = Store.open(folder)
    jobs = store.sweep.jobs()
    pairs = load_pairs(folder, jobs)
    sections = [without_gaps(own_sweeps.analyse(pairs, store.sweep.name))] if pairs else []
    provenance = {"sweep": store.sweep.content(), "digest": store.sweep.digest, "versions": versions()}
    return _checked(PageContent(store.sweep.name, (), sections, provenance), folder, missing_runs(jobs, pairs))


def without_gaps(section: Section) -> Section:
    """The section without panels, figures and tables that are empty because their runs are missing."""
    figures = [
        replace(figure, panels=[panel for panel in figure.panels if panel.series]) for figure in section.figures
    ]
    return replace(
        section,
        figures=[figure for figure in figures if figure.panels],
        tables=[table for table in section.tables if table.rows],
    )


def missing_runs(jobs: Sequence[Job], pairs: Sequence[Pair]) -> list[str]:
    """The missing runs in words, a line for each algorithm, environment, M and eps_p."""
    there = {job.id for job, _ in pairs}
    lacking: dict[str, list[int]] = {}
    for job in jobs:
        if job.id not in there:
            name = job.algorithm if job.label == job.algorithm else f"{job.algorithm} ({job.label})"
            cell = f"{name} on {job.environment}, M = {job.agents}, εₚ = {job.eps_p:.2g}, T = {job.episodes:,}"
            lacking.setdefault(cell, []).append(job.seed)
    return [f"{cell}: seeds {', '.join(map(str, seeds))}" for cell, seeds in lacking.items()]


def _checked(report: PageContent, folder: Path, missing: Sequence[str]) -> PageContent:
    """The report, with a note on missing runs at its top; an error if there is no finished run."""
    if not report.sections:
        raise InputError(f"{folder} holds no finished run; make some first (--resume).")
    if not missing:
        return report
    shown = [
        *missing[:MAX_MISSING],
        *([f"and {len(missing) - MAX_MISSING} more"] if len(missing) > MAX_MISSING else []),
    ]
    note = f"INCOMPLETE: runs of {len(missing)} cells are missing, and what follows rests on the others. Missing: "
    provenance = {**report.provenance, "missing": list(missing)}
    return replace(report, text=(note + "; ".join(shown) + ".", *report.text), provenance=provenance)
