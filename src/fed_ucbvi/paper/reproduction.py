"""The whole experimental section of the paper: runs, figures, tables, verdicts, one page.

``manifest.json``
    which experiments at which scale;
``sweeps/main``, ``sweeps/wider`` and ``sweeps/tuned``
    the runs, each made once even if several experiments use it; the second and third folder hold runs whose
    parameters depend on earlier runs;
``sweeps/seeds-10`` and so on
    further seeds for the claims that were open after fewer;
``report``
    what :func:`fed_ucbvi.paper.report.writing.write_report` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from fed_ucbvi.core.errors import unknown_name
from fed_ucbvi.core.files import check_version, new_folder, read_manifest, reading, write_manifest
from fed_ucbvi.paper import ablations, kl, section5, table1, theory, tuned
from fed_ucbvi.paper.experiment import Experiment, Grids, RunScale
from fed_ucbvi.paper.judging import LOOKS
from fed_ucbvi.paper.report.content import Outcome, PageContent, Verdict
from fed_ucbvi.paper.report.missing_runs import missing_runs, with_note, without_gaps
from fed_ucbvi.paper.report.traces import Trace, Traces, table_of
from fed_ucbvi.results.about import versions
from fed_ucbvi.results.run_table import key_of
from fed_ucbvi.sweeps.execution import run_sweep
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep
from fed_ucbvi.sweeps.store import Store

FORMAT = "fed-ucbvi/reproduction"
FORMAT_VERSION = 3
STAGES = ("sweeps/main", "sweeps/wider", "sweeps/tuned")
"""Where the runs of each stage lie."""
FURTHER = ("sweeps/seeds-{}", "sweeps/seeds-{}-rest")
"""Where further seeds lie, by their number: in cells that are in dispute, and in others."""
MORE_RUNS = 300
"""The most runs with further seeds."""
REPORT = "report"
QUICK_TEXT = (
    "A smoke test: every figure is drawn from short runs with few agents, to see that everything works. The figures "
    "say nothing about the paper, so no claim is judged. For verdicts leave out --quick."
)
OTHER_OUTCOMES: dict[Outcome, str] = {
    "holds partly": "these hold partly",
    "at the limit": "these are at the limit",
    "undecided": "these are undecided",
    "does not hold": "these do not hold",
}
EXPERIMENTS: dict[str, Experiment] = {
    "figures": section5.EXPERIMENT,
    "fair": tuned.EXPERIMENT,
    "theory": theory.EXPERIMENT,
    "ablations": ablations.EXPERIMENT,
    "kl": kl.EXPERIMENT,
    "table1": table1.EXPERIMENT,
}
"""In the order of the report."""


def check_names(names: Iterable[str], scale: RunScale) -> tuple[str, ...]:
    """The named experiments, in the order of the report; by default all, but ``table1`` at the default size.

    ``fed-ucbvi compare`` makes the same table alone.
    """
    chosen = set(names)
    if not chosen:
        chosen = set(EXPERIMENTS)
        if scale.size == "default":
            chosen.remove("table1")
    for name in chosen:
        if name not in EXPERIMENTS:
            raise unknown_name("experiment", name, EXPERIMENTS)
    return tuple(name for name in EXPERIMENTS if name in chosen)


@dataclass(frozen=True)
class ReproductionPlan:
    """The experiments and the scale of a reproduction, as stored in its manifest."""

    scale: RunScale
    experiments: tuple[str, ...]

    def manifest(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "scale": asdict(self.scale),
            "experiments": list(self.experiments),
            "versions": versions(),
        }

    @classmethod
    def read(cls, folder: Path) -> ReproductionPlan:
        manifest = read_manifest(folder, FORMAT)
        check_version(folder, manifest, FORMAT_VERSION)
        with reading(folder):
            scale = RunScale(**manifest["scale"])
            return cls(scale, check_names(manifest["experiments"], scale))


def start(out: Path, plan: ReproductionPlan, *, overwrite: bool) -> None:
    """Make a folder with only the plan; ``overwrite`` removes an earlier reproduction."""
    with new_folder(out, FORMAT, overwrite=overwrite) as draft:
        write_manifest(draft, plan.manifest())


Make = Callable[[str, Grids], object]
"""Makes the runs of grids in a folder."""


@dataclass
class Runs:
    """The runs in the folder of a reproduction; each is read once, even if several experiments need it."""

    folder: Path
    traces: dict[str, Trace] = field(default_factory=dict)

    def table(self, jobs: Iterable[Job]) -> Traces:
        """The jobs whose runs exist; a run may be in the sweep of any stage."""
        wanted = list(jobs)
        further_stages = [place.format(look) for look in LOOKS for place in FURTHER]
        for stage in [*STAGES, *further_stages]:
            unread = [job for job in wanted if job.id not in self.traces]
            if unread and (self.folder / stage).exists():
                store = Store.open(self.folder / stage)
                for job in unread:
                    if store.path(job).exists():
                        self.traces[job.id] = Trace.of(store.read(job))
        return table_of((job, self.traces[job.id]) for job in wanted if job.id in self.traces)

    def jobs(self, plan: ReproductionPlan, make: Make = lambda place, grids: None) -> dict[str, list[Job]]:
        """All jobs by experiment; ``make`` makes the runs of a stage, on which those of later stages may depend."""
        jobs: dict[str, list[Job]] = {name: [] for name in plan.experiments}
        known: set[str] = set()
        for stage, place in enumerate(STAGES):
            grids: Grids = []
            for name in plan.experiments:
                of_stage: dict[str, Job] = {}
                for grid in EXPERIMENTS[name].grids_at(stage, self.table(jobs[name]), plan.scale):
                    of_grid = {job.id: job for job in Sweep(name=name, grids=[grid]).jobs()}
                    if of_grid.keys() - known:
                        grids.append(grid)
                    known |= of_grid.keys()
                    for id_, job in of_grid.items():
                        of_stage.setdefault(id_, job)
                jobs[name] += of_stage.values()
            if grids:
                make(place, grids)
        if not plan.scale.quick:
            self._add_seeds(jobs, known, make)
        return jobs

    def _add_seeds(self, jobs: dict[str, list[Job]], known: set[str], make: Make) -> None:
        """Add further seeds to ``jobs`` for every open claim, look by look, while there are runs to spend.

        They go first to the cells on which seeds are divided, and then, of seeds whose answer is still unknown, to
        the other cells. A claim at its limit gets none beyond the second look.
        """
        left = MORE_RUNS
        undecided = dict(jobs)
        for look, place in product(LOOKS, FURTHER):
            grids: Grids = []
            for name, several in list(undecided.items()):
                verdicts = self._open_verdicts(name, several, look)
                if not verdicts:
                    del undecided[name]
                for verdict in verdicts:
                    wanted = {key_of(cell): seeds or range(look) for cell, seeds in verdict.open}
                    lacking = _lacking(several, wanted)
                    new = {job.id for of_cell in lacking for job in of_cell} - known
                    if len(new) > left:
                        continue
                    left -= len(new)
                    known |= new
                    for of_cell in lacking:
                        several += of_cell
                        fresh = [job for job in of_cell if job.id in new]
                        if fresh:
                            grids.append(_grid_of(fresh))
            if grids:
                make(place.format(look), grids)

    def _open_verdicts(self, name: str, jobs: Iterable[Job], look: int) -> list[Verdict]:
        """The verdicts of an experiment that further seeds would decide at a look."""
        found = []
        for verdict in EXPERIMENTS[name].judge(self.table(jobs)):
            if verdict.open and (verdict.outcome == "undecided" or look <= LOOKS[1]):
                found.append(verdict)
        return found


def _lacking(jobs: Iterable[Job], wanted: Mapping[str, Iterable[int]]) -> list[list[Job]]:
    """The jobs that cells lack to have these seeds, by cell."""
    there: dict[str, dict[int, Job]] = {}
    for job in jobs:
        there.setdefault(key_of(job.settings), {})[job.seed] = job
    lacking = []
    for cell, known in there.items():
        if cell in wanted:
            one = next(iter(known.values()))
            lacking.append([_with_seed(one, seed) for seed in wanted[cell] if seed not in known])
    return lacking


def _with_seed(job: Job, seed: int) -> Job:
    """The job with another seed, of the run and of its environment."""
    return replace(job, problem=replace(job.problem, env_seed=seed), seed=seed)


def _grid_of(jobs: Sequence[Job]) -> dict[str, Any]:
    job = jobs[0]
    problem = job.problem
    algorithm = job.algorithm
    return {
        "algorithms": [{"name": algorithm.name, "label": algorithm.label, **algorithm.parameters}],
        "environments": [{"name": problem.environment, **problem.environment_options}],
        "eps_p": [problem.eps_p],
        "agents": [problem.agents],
        "episodes": [job.episodes],
        "seeds": [one.seed for one in jobs],
        "env_seed": "seed",
    }


def run_experiments(
    runs: Runs,
    plan: ReproductionPlan,
    jobs: int | None,
    report: Callable[[int, int, int], None],
) -> dict[str, str]:
    """Make every run that is missing, stage by stage; returns the errors of failed runs, by id."""
    failed: dict[str, str] = {}

    def make(place: str, grids: Grids) -> None:
        sweep = Sweep(name=Path(place).name, grids=grids)
        folder = runs.folder / place
        failed.update(run_sweep(sweep, folder, jobs=jobs, resume=folder.exists(), report=report).failed)

    runs.jobs(plan, make)
    return failed


def in_two_sentences(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    names: dict[Outcome, list[str]] = {}
    for verdict in verdicts:
        if not verdict.ours:
            names.setdefault(verdict.outcome, []).append(verdict.name)
    count = sum(map(len, names.values()))
    holds = "; ".join(names.pop("holds", [])) or "none"
    rest = ", and ".join(f"{OTHER_OUTCOMES[outcome]}: {'; '.join(several)}" for outcome, several in names.items())
    found = (
        f"Of the paper's {count} claims these hold: {holds}.",
        f"{rest[:1].upper()}{rest[1:]}.",
    )
    return found[: 1 + bool(rest)] if count else ()


def report_on(folder: Path, runs: Runs | None = None) -> PageContent:
    """The report on a reproduction, complete or not; ``runs`` are those already read, if any."""
    plan = ReproductionPlan.read(folder)
    runs = runs or Runs(folder)
    sections = []
    missing = []
    for name, jobs in runs.jobs(plan).items():
        table = runs.table(jobs)
        missing += missing_runs(job for job in jobs if job.id not in runs.traces)
        if len(table):
            if plan.scale.quick:
                verdicts = []
            else:
                verdicts = EXPERIMENTS[name].judge(table)
            section = without_gaps(EXPERIMENTS[name].analyse(table, plan.scale))
            sections.append(replace(section, verdicts=verdicts))
    judged = [verdict for section in sections for verdict in section.verdicts]
    text = (QUICK_TEXT,) if plan.scale.quick else in_two_sentences(judged)
    provenance = {
        **plan.manifest(),
        "sweeps": sorted(f"sweeps/{one.name}" for one in (folder / "sweeps").glob("*")),
    }
    if plan.scale.quick:
        title = "Fed-UCBVI: a smoke test of the evidence"
    else:
        title = "Fed-UCBVI: the evidence"
    return with_note(PageContent(title, text, sections, provenance), folder, missing)
