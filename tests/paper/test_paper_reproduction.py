"""The whole reproduction, small: what it writes is what its runs say, and it can be taken up again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from commands import call, refusal, told
from fed_ucbvi import InputError
from fed_ucbvi.paper import ablations, reproduction, section5, theory, tuned
from fed_ucbvi.paper.commands.reporting import report_on_sweep
from fed_ucbvi.paper.experiment import AGENTS, EPISODES, EPS_P, QUICK_SEEDS, RunScale
from fed_ucbvi.paper.kl import MANY_SEEDS
from fed_ucbvi.paper.report.content import PageContent, Section, check_report
from fed_ucbvi.paper.report.missing_runs import without_gaps
from fed_ucbvi.paper.report.panels import Series
from fed_ucbvi.paper.report.traces import Traces
from fed_ucbvi.paper.reproduction import EXPERIMENTS, ReproductionPlan, Runs, report_on
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.run import Run
from fed_ucbvi.sweeps.execution import SweepInterrupted, SweepOutcome
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep
from fed_ucbvi.sweeps.store import Store, load_runs
from matrices import first_of
from sweeps import made_sweep

pytestmark = pytest.mark.slow

Made = tuple[Path, dict[str, object]]
"""A reproduction's folder, and what the command printed."""
Figures = list[tuple[Job, float, int]]
"""Job, regret and rounds of every run on disk."""
QUICK = RunScale("quick", QUICK_SEEDS)
FEW = {
    ablations.PAPER: ablations.VARIANTS[ablations.PAPER],
    ablations.LOCAL: ablations.VARIANTS[ablations.LOCAL],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    out = tmp_path_factory.mktemp("reproduction") / "results"
    return out, told("reproduce", "--quick", "--out", out, "--jobs", "2")


@pytest.fixture(scope="module")
def report(made: Made) -> PageContent:
    return report_on(made[0])


@pytest.fixture(scope="module")
def runs(made: Made) -> Figures:
    everything = [pair for name in ("main", "tuned") for pair in load_runs(made[0] / "sweeps" / name)]
    return [(job, run.regret, run.rounds) for job, run in everything]


def first_runs(out: Path, name: str) -> Traces:
    """The first runs of an experiment in a quick reproduction."""
    return Runs(out).table(Sweep(name=name, grids=EXPERIMENTS[name].grids(QUICK)).jobs())


def section(report: PageContent, name: str) -> Section:
    return next(section for section in report.sections if section.id == name)


def series_of(report: PageContent, figure: str, panel: str) -> list[Series]:
    found = next(one for section in report.sections for one in section.figures if one.id == figure)
    return list(next(one for one in found.panels if one.title == panel).series)


def test_the_default_is_the_papers_setting() -> None:
    assert EPISODES == {"gridworld": 30_000, "synthetic": 3_000}
    assert AGENTS == (2, 5, 10, 20, 50, 100)
    assert pytest.approx([0, *(10 ** np.arange(-3, 0, 0.5))], abs=1e-6) == EPS_P
    jobs = Sweep(name="figures", grids=section5.grids(RunScale())).jobs()
    assert {job.seed for job in jobs} == set(range(5))
    assert {(job.problem.eps_p, job.problem.agents) for job in jobs if job.algorithm.name == "fed-ucbvi"} == {
        *((eps_p, 20) for eps_p in EPS_P),
        *((eps_p, agents) for eps_p in (0.0, 0.1, EPS_P[-1]) for agents in AGENTS),
        (0.0, 1),
    }
    full = Sweep(name="figures", grids=section5.grids(RunScale("full"))).jobs()
    with_one_agent = 2 * 2 * 5
    assert len(full) == 2 * 3 * len(EPS_P) * len(AGENTS) * 5 + with_one_agent


def test_the_papers_cell_agrees_with_the_independent_implementations() -> None:
    """Means of 20 seeds there: 311.5 +- 6.5 without and 245.7 +- 6.1 with differences between agents; two runs here.

    Hypothesis: the laws agree. The ranges are four standard errors of a mean of two and more on each side.
    """
    jobs = Sweep(name="figures", grids=section5.grids(RunScale(seeds=2))).jobs()
    for eps_p, low, high in ((0.0, 290, 335), (0.1, 225, 270)):
        cell = ("fed-ucbvi", "gridworld", 20, eps_p)
        replicates = [
            job
            for job in jobs
            if (job.algorithm.name, job.problem.environment, job.problem.agents, job.problem.eps_p) == cell
        ]
        assert len(replicates) == 2
        assert low < np.mean([job.run().regret for job in replicates]) < high


@pytest.mark.parametrize("size", first_of(["quick", "default", "full"]))
def test_every_run_meets_the_environment_of_its_seed(size: str) -> None:
    scale = RunScale(size, 2)
    for experiment in EXPERIMENTS.values():
        for job in Sweep(name="x", grids=experiment.grids(scale)).jobs():
            assert job.problem.env_seed == (0 if job.algorithm.label.endswith(MANY_SEEDS) else job.seed)


def test_only_the_table_of_all_algorithms_is_left_to_a_full_reproduction() -> None:
    assert reproduction.check_names([], RunScale("full")) == reproduction.check_names([], RunScale("quick"))
    assert reproduction.check_names([], RunScale("full")) == tuple(EXPERIMENTS)
    assert set(EXPERIMENTS) - set(reproduction.check_names([], RunScale())) == {"table1"}
    assert reproduction.check_names(["table1"], RunScale()) == ("table1",)


@pytest.mark.full
def test_runs_that_experiments_share_are_made_once(runs: Figures) -> None:
    requested = [job for one in EXPERIMENTS.values() for job in Sweep(name="x", grids=one.grids(QUICK)).jobs()]
    made = [job.id for job, _, _ in runs]
    assert len(set(made)) == len(made) < len(requested)
    assert {job.id for job in requested} <= set(made)


def test_tuning_instances_are_never_evaluated_on() -> None:
    first, *evaluation = tuned.grids(QUICK)
    assert len(evaluation) == len({*tuned.TUNED, tuned.RECOMMENDED})
    for grid in evaluation:
        assert set(first["seeds"]).isdisjoint(grid["seeds"])
    assert set(first["seeds"]) <= set(tuned.TUNING_SEEDS)
    sizes = {name: len([a for a in first["algorithms"] if a["name"] == name]) for name in tuned.TUNED}
    assert len(set(sizes.values())) == 1, "every algorithm has the same number of trials"


@pytest.mark.full
def test_every_part_of_the_report_is_written(made: Made, report: PageContent) -> None:
    out, printed = made
    folder = out / "report"
    assert printed["sections"] == list(EXPERIMENTS)
    ids = [figure.id for part in report.sections for figure in part.figures]
    assert {
        "figure1",
        "figure2",
        "figure3",
        "heterogeneity",
        "fair_regret",
        "theory_regret",
        "ablations",
    } <= set(ids)
    assert printed["figures"] == ids
    for id_ in ids:
        assert (folder / "figures" / f"{id_}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / "figures" / f"{id_}.pdf").read_bytes().startswith(b"%PDF-")
        assert pl.read_parquet(folder / "figures" / f"{id_}.parquet").height > 0
    for table in (table for part in report.sections for table in part.tables):
        assert pl.read_csv(folder / "tables" / f"{table.id}.csv").height == len(table.rows)
    assert "<html" in (folder / "index.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        "report",
        "sweeps",
    ]


@pytest.mark.full
def test_figures_show_the_means_of_the_runs_on_disk(report: PageContent, runs: Figures) -> None:
    compared = 0
    for figure in ("figure2", "figure3"):
        for series in series_of(report, figure, "GridWorld"):
            algorithm = {
                "Fed-UCBVI": "fed-ucbvi",
                "FedQ-Bernstein": "fedq-bernstein",
            }.get(series.name)
            for x, y in zip(series.x, series.y, strict=True):
                wanted = (algorithm, algorithm, "gridworld", x, series.variant)
                replicates = [
                    regret if figure == "figure2" else rounds
                    for job, regret, rounds in runs
                    if (
                        job.algorithm.name,
                        job.algorithm.label,
                        job.problem.environment,
                        job.problem.agents,
                        f"εₚ = {job.problem.eps_p:.2g}",
                    )
                    == wanted
                    and job.seed < QUICK_SEEDS
                ]
                if replicates:
                    assert y == pytest.approx(np.mean(replicates))
                    compared += 1
    assert compared >= 2 * 2 * 3


@pytest.mark.full
def test_curves_agree_with_the_table_of_cells(
    report: PageContent,
) -> None:
    table = section(report, "figures").tables[0]
    place = {name: number for number, name in enumerate(table.columns)}
    keys = [place[name] for name in ("environment", "algorithm", "M", "εₚ")]
    rows = {tuple(row[key] for key in keys): row[place["regret"]] for row in table.rows}
    for series in series_of(report, "figure1", "synthetic MDP"):
        spread = rows["synthetic MDP", series.name, 10, series.variant.removeprefix("εₚ = ")]
        assert series.y[-1] == pytest.approx(spread.mean)  # type: ignore[union-attr]
    for series in series_of(report, "heterogeneity", "GridWorld"):
        assert (series.x[0]) == ("0"), "relative to identical agents"
        assert (series.y[0]) == (1.0), "relative to identical agents"
    markers = {series.name: series.marker for series in series_of(report, "figure1", "GridWorld")}
    assert markers["Fed-UCBVI"] == "cross"
    assert markers["FedQ-Bernstein"] == "circle"


@pytest.mark.full
def test_where_the_global_rule_cannot_fire_the_mixture_is_the_local_rule(made: Made, report: PageContent) -> None:
    (verdict,) = ablations.EXPERIMENT.judge(first_runs(made[0], "ablations"))
    assert f"{QUICK_SEEDS} of {QUICK_SEEDS} runs are the same round by round" in verdict.measured
    table = section(report, "ablations").tables[0]
    assert [row[2] for row in table.rows[: len(ablations.VARIANTS)]] != []
    assert {row[2] for row in table.rows} == set(ablations.VARIANTS)


@pytest.mark.full
def test_tuned_runs_have_the_factor_that_was_best_in_tuning(report: PageContent, runs: Figures) -> None:
    regrets: dict[tuple[str, str, float], list[float]] = {}
    for job, regret, _ in runs:
        if job.algorithm.label.startswith("k = ") and job.seed in tuned.TUNING_SEEDS:
            factor = float(job.algorithm.label.removeprefix("k = "))
            regrets.setdefault((str(job.problem.environment), job.algorithm.name, factor), []).append(regret)
    names = {"GridWorld": "gridworld", "synthetic MDP": "synthetic"}
    for row in section(report, "fair").tables[0].rows:
        algorithm = next(name for name in tuned.TUNED if label_of(name) == row[1])
        cell = (names[str(row[0])], algorithm)
        tried = {key[2]: max(replicates) for key, replicates in regrets.items() if key[:2] == cell}
        assert float(str(row[3])) == min(tried, key=lambda factor: tried[factor])


@pytest.mark.full
def test_regret_is_linear_first_with_the_theorys_constants(made: Made, report: PageContent) -> None:
    verdicts = theory.EXPERIMENT.judge(first_runs(made[0], "theory"))
    assert verdicts[-1].name == "rounds below their proved bound"
    assert verdicts[-1].outcome == "holds"
    drawn = series_of(report, "theory_regret", next(iter(theory.BONUSES)))
    curves = {series.variant or series.name: series for series in drawn}
    worst = curves["nothing earned"]
    for label in ("M = 1", "M = 5"):
        ratio = np.array(curves[label].y) / worst.y
        assert ratio[0] > 0.9
        assert ratio[-1] < 0.5


@pytest.mark.full
def test_a_quick_reproduction_judges_no_claim(made: Made, report: PageContent) -> None:
    assert made[1]["verdicts"] == []
    assert all(not part.verdicts for part in report.sections)
    assert json.loads((made[0] / "report/verdicts.json").read_text()) == []
    assert all(words in report.text[0] for words in ("smoke test", "no claim is judged"))
    assert "does not hold" not in call("report", made[0], "--out", made[0].parent / "again").output


@pytest.mark.full
def test_titles_of_figures_against_agents_have_the_slopes_of_their_curves(
    report: PageContent,
) -> None:
    found = {figure.id: figure for part in report.sections for figure in part.figures}
    for name in ("figure2", "figure3"):
        curve = next(one for one in series_of(report, name, "GridWorld") if one.name == "Fed-UCBVI")
        assert curve.variant == "εₚ = 0"
        x = np.log([float(value) for value in curve.x])
        y = np.log(curve.y)
        first, *_, last = np.diff(y) / np.diff(x)
        shown = f"{first:.2f} (M = 2 to 5) to {last:.2f} (M = 5 to 10) on GridWorld".replace("-", "\N{MINUS SIGN}")
        assert f"local slope {shown}" in found[name].title


@pytest.mark.full
def test_every_run_of_a_reproduction_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read = Store.read

    def counted(store: Store, job: Job) -> Run:
        reads.append(job.id)
        return read(store, job)

    monkeypatch.setattr(Store, "read", counted)
    monkeypatch.setattr(ablations, "VARIANTS", FEW)
    requested = ["--only", "ablations", "--only", "fair", "--only", "figures"]
    told("reproduce", "--quick", *requested, "--seeds", 1, "--out", tmp_path / "out")
    files = list((tmp_path / "out/sweeps").rglob("*.parquet"))
    assert sorted(reads) == sorted(path.stem for path in files)


@pytest.mark.parametrize("name", list(EXPERIMENTS))
@pytest.mark.full
def test_whatever_runs_are_missing_there_is_a_section_that_can_be_drawn(name: str, made: Made) -> None:
    table = first_runs(made[0], name)
    rng = np.random.default_rng(5)
    subsets = [table.where(lambda _, share=share: rng.random() < share) for share in (0.9, 0.5, 0.2, 0.05)]  # type: ignore[misc]
    subsets += [table.having(label=label) for label in table.values("label")]
    subsets += [table.having(agents=agents) for agents in (1, 2, 5, 10)]
    for subset in subsets:
        if len(subset):
            part = without_gaps(EXPERIMENTS[name].analyse(subset, QUICK))
            check_report(PageContent("some", (), [part]))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablations with two variants only."""
    monkeypatch.setattr(ablations, "VARIANTS", FEW)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reproduction of the ablations alone, with two variants."""
    out = tmp_path_factory.mktemp("small") / "small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablations, "VARIANTS", FEW)
        told("reproduce", "--quick", "--only", "ablations", "--seeds", 1, "--out", out)
    return out


@pytest.fixture
def small(whole: Path, tmp_path: Path, few: None) -> Path:
    """The reproduction with the runs of one variant lost."""
    out = tmp_path / "small"
    shutil.copytree(whole, out)
    for job, _ in load_runs(out / "sweeps/main"):
        if job.algorithm.label == ablations.LOCAL:
            (out / "sweeps/main/runs" / f"{job.id}.parquet").unlink()
    return out


@pytest.mark.full
def test_a_second_report_is_equal_to_the_first(whole: Path, tmp_path: Path, few: None) -> None:
    told("report", whole, "--out", tmp_path / "again")
    written = [path for path in sorted((whole / "report").rglob("*")) if path.is_file()]
    assert len(written) >= 8
    for path in written:
        assert (tmp_path / "again" / path.relative_to(whole / "report")).read_bytes() == path.read_bytes()


@pytest.mark.full
def test_an_incomplete_reproduction_is_completed_by_resuming(
    small: Path,
) -> None:
    printed = call("report", small, "--json")
    missing = json.loads(printed.stdout)["missing"]
    assert len(missing) == 4
    assert all(text.startswith(f"fed-ucbvi ({ablations.LOCAL}) on ") and text.endswith("seeds 0") for text in missing)
    assert "INCOMPLETE: runs of 4 cells are missing" in printed.stderr
    assert "INCOMPLETE" in (small / "report/index.html").read_text(encoding="utf-8")
    resumed = told("reproduce", "--out", small, "--resume")
    assert (resumed["missing"], resumed["verdicts"]) == ([], [])


def test_a_reproduction_without_a_single_run_is_refused(small: Path) -> None:
    shutil.rmtree(small / "sweeps")
    assert "no finished run" in refusal("report", small)


def test_an_interrupted_reproduction_explains_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise SweepInterrupted(SweepOutcome("main", tmp_path, 10, 3, 0, {}, (), 1.0))

    monkeypatch.setattr(reproduction, "run_sweep", stop)
    result = call("reproduce", "--quick", "--out", tmp_path / "results")
    assert result.exit_code == 130
    assert "3 of 10 runs" in result.stderr
    assert "--resume" in result.stderr
    assert ReproductionPlan.read(tmp_path / "results").scale == RunScale("quick", QUICK_SEEDS)


def test_failed_runs_are_told(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> SweepOutcome:
        return SweepOutcome("main", small, 8, 0, 4, {"abc": "MemoryError: too large"}, (), 1.0)

    monkeypatch.setattr(reproduction, "run_sweep", fail)
    result = call("reproduce", "--out", small, "--resume")
    assert result.exit_code == 1
    assert "run abc failed: MemoryError: too large" in result.stderr


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep whose problems differ by an option and whose algorithms differ by parameters, some without a label."""
    folder = tmp_path_factory.mktemp("variants") / "sweep"
    changes: list[dict[str, object]] = [
        {},
        {"bonus_scale": 0.5},
        {"bonus": "theory", "label": "theory"},
    ]
    algorithms = [{"name": "fed-ucbvi", **changed} for changed in changes]
    worlds = [{"name": "synthetic", "states": states} for states in (3, 4)]
    grid = {
        "algorithms": algorithms,
        "environments": worlds,
        "agents": [2, 4],
        "episodes": [60],
        "seeds": 2,
    }
    return made_sweep(folder, Sweep(name="variants", grids=[grid]))


def test_any_sweep_can_be_reported_on(variants: Path) -> None:
    """Titles say what sets problems and curves apart."""
    (part,) = report_on_sweep(variants).sections
    assert [figure.id for figure in part.figures] == [
        f"{id_}_{k}" for k in (1, 2) for id_ in ("regret", "bytes", "agents")
    ]
    titles = {f"synthetic MDP, S = {states}, T = 60: common regret against episodes" for states in (3, 4)}
    assert titles <= {figure.title for figure in part.figures}
    panels = [panel for figure in part.figures for panel in figure.panels]
    assert max(len(text) for panel in panels for text in (panel.x_label, panel.y_label)) <= 24, "short enough"
    names = {(series.name, series.colour) for panel in panels for series in panel.series}
    assert len({colour for _, colour in names}) == 3
    assert {name for name, _ in names} == {
        "Fed-UCBVI, bonus_scale = 1",
        "Fed-UCBVI, bonus_scale = 0.5",
        "theory",
    }


@pytest.mark.full
def test_the_report_of_a_sweep_names_missing_runs(variants: Path, tmp_path: Path) -> None:
    shutil.copytree(variants, tmp_path / "sweep")
    lost = Store.open(variants).sweep.jobs()[0]
    (tmp_path / "sweep/runs" / f"{lost.id}.parquet").unlink()
    printed = told("report", tmp_path / "sweep", "--out", tmp_path / "report")
    assert printed["missing"] == ["fed-ucbvi on synthetic, M = 2, εₚ = 0, T = 60: seeds 0"]
    assert printed["verdicts"] == []
    table = pl.read_csv(tmp_path / "report/tables/sweep.csv")
    names = ["environment", "states", "algorithm", "label", "bonus", "bonus_scale", "M"]
    assert table.select(names).unique().height == table.height == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "figure"], "did you mean 'figures'?"),
        (["--quick", "--full"], "exclude each other"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--jobs", "0"], "jobs must be at least 1"),
        (["--resume", "--quick"], "--resume uses the options of the reproduction"),
        (["--resume"], "it is not something fed-ucbvi saved"),
    ],
)
def test_what_reproduce_cannot_do_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in refusal("reproduce", "--out", tmp_path / "results", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_only_an_earlier_reproduction_is_overwritten(tmp_path: Path) -> None:
    reproduction.start(
        tmp_path / "old",
        ReproductionPlan(RunScale("quick"), ("figures",)),
        overwrite=False,
    )
    assert "exists" in refusal("reproduce", "--quick", "--out", tmp_path / "old")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/thesis.tex").write_text("precious")
    refusal("reproduce", "--quick", "--out", tmp_path / "foreign", "--overwrite")
    assert (tmp_path / "foreign/thesis.tex").read_text() == "precious"


def test_what_no_report_is_about_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "fed-ucbvi/run"}))
    for folder, message in (
        (tmp_path, "holds a fed-ucbvi/run"),
        (tmp_path / "nothing", "is not a folder"),
    ):
        assert message in refusal("report", folder)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": reproduction.FORMAT, "format_version": 1}))
    with pytest.raises(InputError, match="format version"):
        report_on(tmp_path)
