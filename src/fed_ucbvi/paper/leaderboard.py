"""The standing comparison: every algorithm on every environment, from one row per run; as a document and as a page.

``leaderboard.toml`` lists the runs, ``leaderboard.csv`` has a row for each of them. All tables and figures follow
from these rows, so that they are made without running anything. Rows of other algorithms can be added to them.
"""

from __future__ import annotations

import json
import math
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.algorithms import class_of
from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.files import reading
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import ENVIRONMENTS, current_name, make_environment
from fed_ucbvi.paper.orders import ROWS
from fed_ucbvi.paper.report.content import Cell, Figure, PageContent, Section, Table
from fed_ucbvi.paper.report.page import cell_text
from fed_ucbvi.paper.report.panels import Panel
from fed_ucbvi.paper.report.run_figures import BYTES_LABEL, FAILING_TEXT, REGRET_LABEL, bars
from fed_ucbvi.paper.report.traces import megabytes, regret, rounds
from fed_ucbvi.paper.sharing import best_common_policy
from fed_ucbvi.problem.units import PER_STEP, Units
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.run_table import RunGroup, RunTable, Settings
from fed_ucbvi.results.statistics import INTERVAL_NAME, Estimate, student_interval
from fed_ucbvi.results.statistics import share_text as failing_share
from fed_ucbvi.sweeps.job import Job
from fed_ucbvi.sweeps.specification import Sweep

DEFINITION = "leaderboard.toml"
TABLE = "leaderboard.csv"
DOCUMENT = "leaderboard.md"
DETAILS = "leaderboard_environments.md"
TITLE = "Leaderboard: every algorithm on every environment"
OVERALL = (
    "algorithm",
    "environments",
    "regret",
    "median",
    "failing",
    "rounds",
    "bytes",
    "share of the best",
)
ENVIRONMENT_COLUMNS = (
    "algorithm",
    "M",
    "regret",
    "median",
    "failing",
    "rounds",
    "MB",
    "share of the best",
)
HOW_TO_ADD = """\
## Add yours

An algorithm of your own is a class that Python can import, say `Mine` in `mine.py`; see
[algorithms.md](algorithms.md#your-own). This makes its runs, on all environments but ICU-Sepsis, and shows them among
the others:

<!-- not run: the algorithm is yours -->
```sh
fed-ucbvi leaderboard --algorithm mine:Mine --store my-runs --out my-board
```

`my-runs` keeps the runs, so that the command can be stopped and repeated. `my-board` holds these documents, a page
with a figure (`index.html`) and one row for each run (`leaderboard.csv`). `--leave-out NAME` leaves an environment
out; `--quick` makes all runs from little data, in a minute or two. `fed-ucbvi compare --env` compares on an
environment of your own.

To change the leaderboard itself, edit `src/fed_ucbvi/paper/leaderboard.toml` and run `make leaderboard`, which makes
all runs. After a change of words only, `make leaderboard-document` is enough."""
BASELINE = "fed-ucbvi"
"""The algorithm of the paper, whose regret is 1 in the overall table."""
QUICK_FACTOR = 50
"""Factor by which a quick comparison has fewer episodes; it has two seeds."""


class Row(NamedTuple):
    """One run.

    ``regret`` is the common regret, ``seed`` that of the run and of the environment. ``value`` is the value of the
    recommended policy to the agents, on average, and ``best`` that of the best shared policy (the upper end where
    only a bracket is known).
    """

    environment: str
    algorithm: str
    agents: int
    episodes: int
    seed: int
    regret: float
    rounds: int
    bytes_up: int
    bytes_down: int
    value: float
    best: float

    @classmethod
    def of(cls, job: Job, run: RunData) -> Row:
        """The row of a run, its rewards per step in [0, 1]; floats have seven digits."""
        rescaled = run.in_units(PER_STEP)
        environment = str(job.problem.environment)
        best = best_shared_value(environment, json.dumps(job.problem.environment_parameters))
        return cls(
            environment=environment,
            algorithm=job.algorithm.name,
            agents=run.about.agents,
            episodes=run.about.episodes,
            seed=run.about.seed,
            regret=_rounded(rescaled.regret),
            rounds=run.rounds,
            bytes_up=run.bytes_up,
            bytes_down=run.bytes_down,
            value=_rounded(rescaled.agents_value.mean),
            best=_rounded(best),
        )

    @property
    def share(self) -> float:
        """The recommended policy's value as a share of the best shared policy's."""
        return self.value / self.best


@cache
def _rounded(number: float) -> float:
    """A number with seven digits."""
    return float(f"{number:.7g}")


def best_shared_value(environment: str, options: str) -> float:
    """The value of the best shared policy, or the upper end of its bracket, with rewards per step in [0, 1].

    The environment's options are in JSON.
    """
    federation = make_environment(environment, **json.loads(options))
    upper = best_common_policy(federation).value.upper
    return Units.of(federation.description).rescaled_return(upper, federation.horizon)


Rows = Sequence[Row]
COSTS = (regret, rounds, megabytes)
SHARE = attrgetter("share")


@dataclass(frozen=True)
class LeaderboardPlan:
    """Plan of the comparison.

    ``environments`` are in the order in which they are shown, each with the other entries of its grid (``episodes``,
    and ``eps_p`` if it is different) and, where only some algorithms run, the ``options`` of these. ``excluded`` has
    the reason why an environment, or an ``ALGORITHM on ENVIRONMENT``, is left out; ``others`` stands for all that
    have no options where only some run.
    """

    agents: int
    eps_p: float
    seeds: int
    environments: Mapping[str, Mapping[str, Any]]
    excluded: Mapping[str, str]
    notes: Sequence[str] = ()

    @classmethod
    def standing(cls) -> LeaderboardPlan:
        return cls(**tomllib.loads((files(__package__) / DEFINITION).read_text(encoding="utf-8")))

    def quick(self) -> LeaderboardPlan:
        shorter = {}
        for name, grid in self.environments.items():
            episodes = [max(1, T // QUICK_FACTOR) for T in grid["episodes"]]
            shorter[name] = {**grid, "episodes": episodes}
        return replace(self, seeds=2, environments=shorter, notes=())

    def without(self, environments: Mapping[str, str]) -> LeaderboardPlan:
        """This plan without these environments, for the reasons given."""
        reasons = {current_name(name): reason for name, reason in environments.items()}
        for name in reasons:
            if name not in self.environments:
                raise unknown_name("environment of the leaderboard", name, self.environments)
        rest = {name: grid for name, grid in self.environments.items() if name not in reasons}
        if not rest:
            raise InputError("every environment is left out; keep at least one.")
        return replace(self, environments=rest, excluded={**self.excluded, **reasons})

    @property
    def for_some(self) -> list[str]:
        """The environments on which only some algorithms run, with options of their own."""
        return [name for name, grid in self.environments.items() if "options" in grid]

    def missing(self, algorithms: Sequence[str]) -> dict[str, str]:
        """Environments of packages that are not installed, if one of these algorithms would run there; and why."""
        found = {}
        for environment in self.for_some:
            if any(self.why_not(name, environment) is None for name in algorithms):
                try:
                    ENVIRONMENTS[environment](agents=1)
                except InputError as error:
                    found[environment] = str(error).rstrip(".")
        return found

    def why_not(self, algorithm: str, environment: str) -> str | None:
        """The reason why an algorithm does not run on an environment; None if it does."""
        for name in (environment, f"{algorithm} on {environment}"):
            if name in self.excluded:
                return self.excluded[name]
        if environment in self.for_some and algorithm not in self.environments[environment]["options"]:
            return self.excluded[f"others on {environment}"]
        return None

    def sweep(self, algorithms: Sequence[str] = tuple(ROWS)) -> Sweep:
        """All runs of these algorithms; every environment is drawn from each run's seed."""
        grids = []
        for environment in self.environments:
            running = [name for name in algorithms if self.why_not(name, environment) is None]
            federated = [name for name in running if not class_of(name).single_agent]
            single = [name for name in running if class_of(name).single_agent]
            if federated:
                grids.append(self._grid(environment, federated, self.agents))
            if single:
                grids.append(self._grid(environment, single, 1))
        return Sweep(name="leaderboard", grids=grids)

    def _grid(self, environment: str, names: Sequence[str], agents: int) -> dict[str, Any]:
        """The grid of some algorithms on an environment."""
        entries = dict(self.environments[environment])
        options = entries.pop("options", {})
        algorithms = [{"name": name, **options.get(name, {})} for name in names]
        return {
            "algorithms": algorithms,
            "agents": [agents],
            "environments": [environment],
            "eps_p": [self.eps_p],
            **entries,
            "seeds": self.seeds,
            "env_seed": "seed",
        }

    def in_order(self, rows: Rows) -> list[Row]:
        """The rows by environment, algorithm and seed; algorithms of this package come first."""
        environments = list(self.environments)
        algorithms = list(dict.fromkeys([*ROWS, *[row.algorithm for row in rows]]))

        def place(row: Row) -> tuple[int, int, int]:
            return environments.index(row.environment), algorithms.index(row.algorithm), row.seed

        return sorted(rows, key=place)


def standing_rows() -> list[Row]:
    return read_rows(Path(str(files(__package__) / TABLE)))


def read_rows(path: Path) -> list[Row]:
    import polars as pl

    with reading(path):
        frame = pl.read_csv(path, infer_schema_length=None).select(Row._fields)
        return [Row(**cells) for cells in frame.iter_rows(named=True)]


def write_rows(rows: Rows, path: Path) -> None:
    import polars as pl

    pl.DataFrame(rows, schema=list(Row._fields), orient="row").write_csv(path)


class Place(NamedTuple):
    """An algorithm on one environment, or over all: means over seeds with their 95 % intervals.

    Over all, ``agents`` is the number of environments on which it ran, and regret, rounds and megabytes are geometric
    means of ratios to the baseline, paired by seed. ``failing`` are runs with more than three times the median regret
    of their environment, ``share`` is that of the best shared policy's value.
    """

    algorithm: str
    agents: int
    seeds: int
    regret: Estimate
    median: float
    failing: str
    rounds: Estimate
    megabytes: Estimate
    share: Estimate

    def cells(self) -> tuple[Cell, ...]:
        return (
            label_of(self.algorithm),
            self.agents,
            self.regret,
            self.median,
            self.failing,
            self.rounds,
            self.megabytes,
            self.share,
        )


def table_of_rows(rows: Rows) -> RunTable[Row]:
    entries = []
    for row in rows:
        settings: Settings = {
            "environment": row.environment,
            "algorithm": row.algorithm,
            "agents": row.agents,
            "episodes": row.episodes,
        }
        entries.append((settings, (("run", row.seed),), row))
    return RunTable.of_rows(entries)


def places(rows: Rows, environment: str) -> list[Place]:
    """The algorithms on an environment, the least regret first."""
    found = []
    for group in table_of_rows(rows).having(environment=environment):
        summary = group.summary(regret)
        place = Place(
            algorithm=group["algorithm"],
            agents=group["agents"],
            seeds=len(group),
            regret=group.estimate(regret),
            median=summary.median,
            failing=summary.failing_text,
            rounds=group.estimate(rounds),
            megabytes=group.estimate(megabytes),
            share=Estimate.of(student_interval(group.samples(SHARE))),
        )
        found.append(place)
    return sorted(found, key=lambda place: place.regret.mean)


def standings(rows: Rows) -> list[Place]:
    """The algorithms over all environments on which they and Fed-UCBVI ran, the least regret first."""
    table = table_of_rows(rows)
    base = table.having(algorithm=BASELINE)
    found = []
    for name, part in table.parts("algorithm").items():
        both = []  # its group and the baseline's on each environment
        for group in part:
            for other in base.counterparts(group, ("algorithm", "agents")):
                both.append((group, other))
        if not both:
            raise InputError(f"{name} has no run that can be compared with one of {BASELINE}.")
        regrets = _mean_logs(both, regret)
        summaries = [group.summary(regret) for group, _ in both]
        failing = sum(summary.failing for summary in summaries)
        runs = sum(summary.runs for summary in summaries)
        shares = np.mean([group.samples(SHARE) for group, _ in both], axis=0)
        place = Place(
            algorithm=name,
            agents=len(both),
            seeds=len(regrets),
            regret=_geometric_mean(regrets),
            median=math.exp(float(np.median(regrets))),
            failing=failing_share(failing, runs),
            rounds=_geometric_mean(_mean_logs(both, rounds)),
            megabytes=_geometric_mean(_mean_logs(both, megabytes)),
            share=Estimate.of(student_interval(shares)),
        )
        found.append(place)
    return sorted(found, key=lambda place: place.regret.mean)


def _mean_logs(both: Sequence[tuple[RunGroup[Row], RunGroup[Row]]], measure: Callable[[Any], float]) -> FloatArray:
    """For each seed the mean over environments of the logarithm of a measure's ratio to the baseline."""
    ratios = [list(group.paired(other, measure).ratios.values()) for group, other in both]
    if len({len(by_seed) for by_seed in ratios}) > 1:
        raise ValueError("the environments have different numbers of seeds")
    return np.asarray(np.log(ratios).mean(axis=0))


def _geometric_mean(logs: FloatArray) -> Estimate:
    """The geometric mean over seeds with its interval, from logarithms."""
    return Estimate.of(np.exp(student_interval(logs)))


def summary(rows: Rows) -> dict[str, Any]:
    """All figures of the tables, ready for JSON."""
    overall = []
    for place in standings(rows):
        entry = _plain(place)
        overall.append({("environments" if key == "agents" else key): value for key, value in entry.items()})
    environments = {}
    for name in environments_of(rows):
        environments[name] = [_plain(place) for place in places(rows, name)]
    return {"runs": len(rows), "overall": overall, "environments": environments}


def _plain(place: Place) -> dict[str, Any]:
    entry = place._asdict()
    for name, cell in entry.items():
        if isinstance(cell, Estimate):
            entry[name] = cell._asdict()
    return entry


def explanation(board: LeaderboardPlan, rows: Rows) -> list[str]:
    """Description of the runs and the columns, in paragraphs."""
    lengths: dict[int, list[str]] = {}
    for row in rows:
        lengths.setdefault(row.episodes, []).append(label_of(row.environment))
    usual = max(lengths, key=lambda T: len(lengths[T]))
    others = [f"{T:,} in {', '.join(dict.fromkeys(names))}" for T, names in lengths.items() if usual != T]
    apart = f" ({'; '.join(others)})" if others else ""
    seeds = len({row.seed for row in rows})
    but = "".join(f", but in {label_of(name)}" for name in board.for_some)
    return [
        f"Every algorithm has its default parameters{but}; nothing is tuned. There are M = {board.agents} agents "
        f"(one for algorithms that are for a single agent), who differ by \u03b5_p = {board.eps_p:g} and play T = "
        f"{usual:,} episodes each{apart}. Each algorithm has {seeds} runs on each "
        "environment, which is drawn anew from each run's seed, the same for all algorithms. Square brackets, and "
        f"what follows \u00b1, are the {INTERVAL_NAME} over seeds (Student's, on a logarithmic scale). It knows "
        f"nothing of rare runs that fail: see the median and how many do. {FAILING_TEXT}",
        "Regret is the common regret per agent, after T episodes. MB are millions of bytes, both ways, over all "
        "agents. The share of the best is what the policy recommended at the end is worth to the agents, divided by "
        "what the best policy that they can share is worth.",
    ]


def left_out(board: LeaderboardPlan) -> list[str]:
    return [f"{name}: {reason}." for name, reason in board.excluded.items()]


OVERALL_TEXT = (
    f"Ratios to {label_of(BASELINE)}, geometric means over environments on which both ran, paired by seed; below 1 "
    "is better. Of algorithms for a single agent it is the regret of that agent."
)


def environments_of(rows: Rows) -> dict[str, int]:
    return {row.environment: row.episodes for row in rows}


def tables(rows: Rows) -> list[Table]:
    overall = [place.cells() for place in standings(rows)]
    made = [Table("overall", "Over all environments", OVERALL_TEXT, OVERALL, overall)]
    for name, episodes in environments_of(rows).items():
        cells = [place.cells() for place in places(rows, name)]
        table = Table(f"on_{name}", f"{label_of(name)}, T = {episodes:,}", "", ENVIRONMENT_COLUMNS, cells)
        made.append(table)
    return made


def documents(board: LeaderboardPlan, rows: Rows) -> dict[str, str]:
    parts = [
        f"# {TITLE}",
        "This page was written by `fed-ucbvi leaderboard --out DIR`.",
    ]
    parts += [_lines(paragraph) for paragraph in explanation(board, rows)]
    parts += ["Left out:", _items(left_out(board))]
    parts += ["Keep in mind:", _items(board.notes)] if board.notes else []
    overall, *others = tables(rows)
    parts += [
        f"## {overall.title}",
        _lines(overall.caption),
        table_text(overall, ratio_text),
    ]
    parts += [f"[Each environment by itself]({DETAILS})"]
    details = [
        "# Leaderboard: each environment",
        f"What the columns mean is said [with the whole]({DOCUMENT}).",
    ]
    for table in others:
        details += [f"## {table.title}", table_text(table, cell_text)]
    return {
        DOCUMENT: "\n\n".join([*parts, HOW_TO_ADD, ""]),
        DETAILS: "\n\n".join([*details, ""]),
    }


def _lines(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most 118 letters."""
    return textwrap.fill(text, 118, subsequent_indent=indent, break_on_hyphens=False)


def _items(texts: Sequence[str]) -> str:
    return "\n".join(_lines(f"- {text}", "  ") for text in texts)


def table_text(table: Table, text_of: Callable[[Estimate], str]) -> str:
    """A table in Markdown; the last column is a share."""
    lines = [
        f"| {' | '.join(table.columns)} |",
        "|---|" + "---:|" * (len(table.columns) - 1),
    ]
    for *row, share in table.rows:
        assert isinstance(share, Estimate)
        cells = [text_of(cell) if isinstance(cell, Estimate) else cell_text(cell) for cell in row]
        lines.append(f"| {' | '.join([*cells, share_text(share)])} |")
    return "\n".join(lines)


def ratio_text(cell: Estimate) -> str:
    """A ratio and the ends of its interval.

    >>> ratio_text(Estimate(0.251, 0.2, 0.312)), ratio_text(Estimate(1, 1, 1))
    ('0.25 [0.20, 0.31]', '1')
    """
    if cell.low == cell.high == 1:
        return "1"
    if cell.high < 0.1:
        digits = 3
    elif cell.high < 10:
        digits = 2
    elif cell.high < 100:
        digits = 1
    else:
        digits = 0
    return f"{cell.mean:.{digits}f} [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"


def share_text(cell: Estimate) -> str:
    """A share in per cent.

    >>> share_text(Estimate(0.9991, 0.998, 1.0002))
    '99.9 \u00b1 0.1 %'
    """
    return f"{100 * cell.mean:.1f} \u00b1 {100 * (cell.high - cell.mean):.1f} %"


def page(board: LeaderboardPlan, rows: Rows) -> PageContent:
    panels = []
    for name in environments_of(rows):
        points = []
        for place in places(rows, name):
            points.append(bars(place.algorithm, [place.megabytes.mean], [place.regret], marker="circle"))
        panel = Panel(
            label_of(name),
            BYTES_LABEL,
            REGRET_LABEL,
            points,
            x_log=True,
            y_log=True,
        )
        panels.append(panel)
    figure = Figure(
        "regret_and_bytes",
        "Regret against bytes: the lower and the further left, the better",
        f"Means over runs; bars are the {INTERVAL_NAME} on a logarithmic scale.",
        panels,
    )
    text = [*left_out(board), *board.notes]
    section = Section("leaderboard", "What was measured", text, figures=[figure], tables=tables(rows))
    return PageContent(TITLE, explanation(board, rows), [section])
