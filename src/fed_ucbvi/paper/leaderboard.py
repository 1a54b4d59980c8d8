"""The standing comparison: every algorithm on every environment, from one row a run; as a document and as a page.

``leaderboard.toml`` says what is run, ``leaderboard.csv`` holds a row for each run. All tables and figures follow
from these rows, so that they are made without running anything. Rows of one's own algorithms can be added to them.
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
from fed_ucbvi.results.run_table import RunTable
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
HERE = (
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
QUICK = 50
"""A quick comparison has this many times fewer episodes, and two seeds."""


class Row(NamedTuple):
    """One run.

    ``regret`` is the common regret, ``seed`` that of the run and of the environment. ``value`` is what the
    recommended policy is worth to the agents, on average, and ``best`` what the best shared policy is worth to them
    (the upper end where only a bracket is known).
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
        run = run.in_units(PER_STEP)
        environment = str(job.problem.environment)
        best_shared = best_shared_value(environment, json.dumps(job.problem.environment_parameters))
        floats = (run.regret, run.agents_value.mean, best_shared)
        regret, value, best = (float(f"{number:.7g}") for number in floats)
        sent = run.bytes_up, run.bytes_down
        sizes = run.about.agents, run.about.episodes, run.about.seed
        return cls(
            environment,
            job.algorithm.name,
            *sizes,
            regret,
            run.rounds,
            *sent,
            value,
            best,
        )

    @property
    def share(self) -> float:
        """The recommended policy's value as a share of the best shared policy's."""
        return self.value / self.best


@cache
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
    """What is compared.

    ``environments`` are in the order in which they are shown, each with what its grid has besides (``episodes``, and
    ``eps_p`` if it is different) and, where only some algorithms run, the ``options`` of these. ``excluded`` says why
    an environment, or an ``ALGORITHM on ENVIRONMENT``, is left out; ``others`` stands for all that have no options
    where only some run.
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
        grids = self.environments.items()
        shorter = {name: {**grid, "episodes": [max(1, T // QUICK) for T in grid["episodes"]]} for name, grid in grids}
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
        """Why an algorithm does not run on an environment; None if it does."""
        for name in (environment, f"{algorithm} on {environment}"):
            if name in self.excluded:
                return self.excluded[name]
        some = environment in self.for_some and algorithm not in self.environments[environment]["options"]
        return self.excluded[f"others on {environment}"] if some else None

    def sweep(self, algorithms: Sequence[str] = tuple(ROWS)) -> Sweep:
        """All runs of these algorithms; every environment is drawn from each run's seed."""
        grids = []
        for environment, own in self.environments.items():
            grid = {"environments": [environment], "eps_p": [self.eps_p], **own}
            options = grid.pop("options", {})
            for single in (False, True):
                chosen = [
                    {"name": name, **options.get(name, {})}
                    for name in algorithms
                    if class_of(name).single_agent is single and self.why_not(name, environment) is None
                ]
                who = {"algorithms": chosen, "agents": [1 if single else self.agents]}
                grids += [{**who, **grid, "seeds": self.seeds, "env_seed": "seed"}] if chosen else []
        return Sweep(name="leaderboard", grids=grids)

    def in_order(self, rows: Rows) -> list[Row]:
        """The rows by environment, algorithm and seed; algorithms of this package come first."""
        algorithms = [*dict.fromkeys((*ROWS, *(row.algorithm for row in rows)))]
        places = {name: place for names in (self.environments, algorithms) for place, name in enumerate(names)}
        return sorted(
            rows,
            key=lambda row: (places[row.environment], places[row.algorithm], row.seed),
        )


def standing_rows() -> list[Row]:
    return read_rows(Path(str(files(__package__) / TABLE)))


def read_rows(path: Path) -> list[Row]:
    import polars as pl

    with reading(path):
        return [Row(*cells) for cells in pl.read_csv(path, infer_schema_length=None).select(Row._fields).rows()]


def write_rows(rows: Rows, path: Path) -> None:
    import polars as pl

    pl.DataFrame(rows, schema=list(Row._fields), orient="row").write_csv(path)


class Place(NamedTuple):
    """An algorithm on one environment, or over all: means over seeds with their 95 % intervals.

    Over all, ``agents`` says on how many environments it ran, and regret, rounds and megabytes are geometric means of
    ratios to the baseline, paired by seed. ``failing`` are runs with more than three times the median regret of their
    environment, ``share`` is that of the best shared policy's value.
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
        return (label_of(self.algorithm), self.agents, *self[3:])


def table_of_rows(rows: Rows) -> RunTable[Row]:
    names = ("environment", "algorithm", "agents", "episodes")
    return RunTable.of_rows(({name: getattr(row, name) for name in names}, (("run", row.seed),), row) for row in rows)


def places(rows: Rows, environment: str) -> list[Place]:
    made = []
    for one in table_of_rows(rows).having(environment=environment):
        found, (cost, count, sent) = (
            one.summary(regret),
            (one.estimate(measure) for measure in COSTS),
        )
        share = Estimate.of(student_interval(one.samples(SHARE)))
        figures = (cost, found.median, found.failing_text, count, sent, share)
        made.append(Place(one["algorithm"], one["agents"], len(one), *figures))
    return sorted(made, key=lambda place: place.regret.mean)


def standings(rows: Rows) -> list[Place]:
    """The algorithms over all environments on which they and Fed-UCBVI ran, the least regret first."""
    table = table_of_rows(rows)
    made = []
    base = table.having(algorithm=BASELINE)
    for name, part in table.parts("algorithm").items():
        both = [(one, other) for one in part for other in base.counterparts(one, ("algorithm", "agents"))]
        if not both:
            raise InputError(f"{name} has no run that can be compared with one of {BASELINE}.")
        paired = [[one.paired(other, cost).ratios.values() for one, other in both] for cost in COSTS]
        logs = np.log([[*zip(*ratios, strict=True)] for ratios in paired]).mean(axis=2)  # [cost, seed]
        cost, count, sent = (Estimate.of(np.exp(student_interval(one))) for one in logs)
        cells = [one.summary(regret) for one, _ in both]
        failing = failing_share(sum(one.failing for one in cells), sum(one.runs for one in cells))
        shares = np.mean([*zip(*(one.samples(SHARE) for one, _ in both), strict=True)], axis=1)
        share = Estimate.of(student_interval(shares))
        median = math.exp(float(np.median(logs[0])))
        made.append(
            Place(
                name,
                len(both),
                logs.shape[1],
                cost,
                median,
                failing,
                count,
                sent,
                share,
            )
        )
    return sorted(made, key=lambda place: place.regret.mean)


def summary(rows: Rows) -> dict[str, Any]:
    """All that the tables say, ready for JSON."""

    def plain(place: Place, count: str = "agents") -> dict[str, Any]:
        cells = [cell._asdict() if isinstance(cell, Estimate) else cell for cell in place]
        names = [count if name == "agents" else name for name in place._fields]
        return dict(zip(names, cells, strict=True))

    return {
        "runs": len(rows),
        "overall": [plain(one, "environments") for one in standings(rows)],
        "environments": {name: [plain(one) for one in places(rows, name)] for name in environments_of(rows)},
    }


def explanation(board: LeaderboardPlan, rows: Rows) -> list[str]:
    """What was run and what the columns mean, in paragraphs."""
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
        here = [place.cells() for place in places(rows, name)]
        made.append(Table(f"on_{name}", f"{label_of(name)}, T = {episodes:,}", "", HERE, here))
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
        here = places(rows, name)
        points = [bars(one.algorithm, [one.megabytes.mean], [one.regret], marker="circle") for one in here]
        panels.append(
            Panel(
                label_of(name),
                BYTES_LABEL,
                REGRET_LABEL,
                points,
                x_log=True,
                y_log=True,
            )
        )
    figure = Figure(
        "regret_and_bytes",
        "Regret against bytes: the lower and the further left, the better",
        f"Means over runs; bars are the {INTERVAL_NAME} on a logarithmic scale.",
        panels,
    )
    text = [*left_out(board), *board.notes]
    section = Section("leaderboard", "What was measured", text, figures=[figure], tables=tables(rows))
    return PageContent(TITLE, explanation(board, rows), [section])
