"""Runs as tables: a row for each run, the curves of groups, and groups compared in pairs, with intervals."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fed_ucbvi.core.errors import InputError, check_choice, check_positive_integer, unknown_name
from fed_ucbvi.core.text import html_table
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results import statistics
from fed_ucbvi.results.run_data import CURVES, RunData
from fed_ucbvi.results.run_table import LABELS, RunGroup, RunTable, Settings, apart, checked_runs, label, shared
from fed_ucbvi.results.statistics import INTERVAL_NAME

POINTS = 50
"""Numbers of episodes of a curve where none are chosen."""
FIGURES = (
    "mean",
    "mean_low",
    "mean_high",
    "lower_quartile",
    "median",
    "upper_quartile",
)
SIZES = ("agents", "states", "actions", "horizon", "episodes", "eps_p", "eps_r")


def runs_frame(runs: Iterable[RunData]) -> pl.DataFrame:
    """A Polars frame with one row for each run; ``.to_pandas()`` and ``.write_csv(path)`` work on it.

    The first columns are algorithm, environment, sizes, seed and driver. Then come the algorithm's parameters and the
    environment's options, each under its name; a cell is null if the run has no such parameter. The results
    (:func:`outcomes`) come last. Where a name is taken, the parameter is called ``algorithm_NAME`` and the option
    ``environment_NAME``. An option that equals another column in every run (such as the number of agents) is left
    out. Lists are written as JSON texts. Unknown values are null.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> frame = runs_frame(run(FedUCBVI(nu=50), synthetic(agents=2), 30, seed=seed) for seed in (1, 2))
    >>> frame.select("algorithm", "environment", "nu", "environment_seed", "seed").rows()
    [('fed-ucbvi', 'synthetic', 50, 0, 1), ('fed-ucbvi', 'synthetic', 50, 0, 2)]
    """
    found = checked_runs(runs)
    abouts = [run.about for run in found]
    results = [outcomes(run) for run in found]
    made = [
        {
            "algorithm": about.algorithm,
            "environment": about.environment.get("name", "custom"),
        }
        | {name: getattr(about, name) for name in (*SIZES, "seed", "driver")}
        for about in abouts
    ]
    owned: list[dict[str, Any]] = [
        {f"algorithm.{name}": value for name, value in about.parameters.items()}
        | {f"environment.{name}": value for name, value in about.environment.items() if name != "name"}
        for about in abouts
    ]
    for size in SIZES:
        if all(row.get(f"environment.{size}") in (None, here[size]) for here, row in zip(made, owned, strict=True)):
            for row in owned:
                row.pop(f"environment.{size}", None)
    headers = _headers(dict.fromkeys(name for row in owned for name in row), {*made[0], *results[0]})
    parts = (
        made,
        [{headers[name]: value for name, value in row.items()} for row in owned],
        results,
    )
    columns = {name: part for part in parts for name in dict.fromkeys(name for row in part for name in row)}
    return pl.DataFrame([column(name, [row.get(name) for row in part]) for name, part in columns.items()])


def outcomes(run: RunData) -> dict[str, float | int | bool]:
    """The results of a run: ``regret`` is the common regret, bytes are those of all agents, values are per episode.

    ``value`` and ``simple_regret`` are the recommended policy's in the common MDP, ``agents_value`` is what it is
    worth to the agents on average.
    """
    return {
        "episodes_played": run.episodes_played,
        "complete": run.complete,
        "regret": run.regret,
        "average_reward": run.average_reward,
        "value": run.value,
        "optimal_value": run.about.optimal_value,
        "simple_regret": run.simple_regret,
        "agents_value": run.agents_value.mean,
        "rounds": run.rounds,
        "bytes": run.bytes_up + run.bytes_down,
        "bytes_up": run.bytes_up,
        "bytes_down": run.bytes_down,
        "wall_seconds": run.wall_seconds,
    }


def curves_frame(
    runs: Iterable[RunData],
    episodes: Sequence[int] | None = None,
    *,
    metric: str = "regret",
    labels: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """A Polars frame with one row for each group of runs and each number of episodes: their curves.

    Runs that differ only in seeds form a group. ``group`` is its label; each setting in which groups differ has a
    column of its own, too. ``runs`` is how many there are, ``mean`` is their mean with its 95 % interval from
    ``mean_low`` to ``mean_high`` (null for a single run). Half of the runs lie between ``lower_quartile`` and
    ``upper_quartile``, on both sides of the ``median``.

    Args:
        runs: runs with at least one round each.
        episodes: per agent; a group has no row for what not all its runs have played. By default 50 numbers, even on
            a logarithmic axis.
        metric: ``regret`` or ``rounds`` so far, or ``reward``, the mean of an episode so far.
        labels: what to call an algorithm or a group, by its name or by what it would be called otherwise.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> runs = [run(FedUCBVI(nu=50), synthetic(agents=M), 30, seed=seed) for M in (2, 3) for seed in (1, 2)]
    >>> curves_frame(runs, [10, 30], metric="rounds").select("group", "agents", "episodes", "runs").rows()
    [('M = 2', 2, 10, 2), ('M = 2', 2, 30, 2), ('M = 3', 3, 10, 2), ('M = 3', 3, 30, 2)]
    """
    check_choice("metric", metric, CURVES)
    table = RunTable.of(runs, labels)
    if episodes is None:
        given = None
    else:
        given = [check_positive_integer("a number of episodes", one) for one in episodes]
    differing = [{name: one[name] for name in one if name not in LABELS.values()} for one in apart(table.settings)]
    headers = _headers(
        dict.fromkeys(name for one in differing for name in one),
        {"group", "runs", *FIGURES},
    )
    headers |= {"episodes": "planned_episodes"} if "episodes" in headers else {}
    rows: list[dict[str, Any]] = []
    for group, named, others in zip(table, table.divide((), ("", "all runs")), differing, strict=True):
        known = {
            "group": named.rest_name,
            **{headers[name]: value for name, value in others.items()},
        }
        last = min(run.episodes_played for run in group.runs)
        even = np.geomspace(min(1, last), last, POINTS).round()
        grid = even.tolist() if given is None else given
        known_points = [point for point in dict.fromkeys(grid) if 0 < point <= last]
        points = np.array(known_points, dtype=np.int64)
        samples = np.array([CURVES[metric](run, points) for run in group.runs], dtype=np.float64)
        quartiles = np.quantile(samples, [0.25, 0.5, 0.75], axis=0)
        figures = np.vstack([*statistics.mean_interval(samples), quartiles])
        if len(group) == 1:
            figures[1:3] = math.nan  # a single run has no interval
        for point, values in zip(points.tolist(), figures.T.tolist(), strict=True):
            rows.append(
                {
                    **known,
                    "episodes": point,
                    "runs": len(group),
                    **dict(zip(FIGURES, values, strict=True)),
                }
            )
    if not rows:
        raise InputError("no group of runs has played that many episodes; choose smaller numbers.")
    columns = ["group", *headers.values(), "episodes", "runs", *FIGURES]
    return pl.DataFrame([column(name, [row.get(name) for row in rows]) for name in columns])


def _headers(settings: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """What the columns of settings are called: by their names, with their owner's where such a name is taken."""
    names = list(settings)
    used = Counter([*(name.rpartition(".")[2] for name in names), *taken])
    return {name: name.replace(".", "_") if used[short := name.rpartition(".")[2]] > 1 else short for name in names}


def column(name: str, values: list[Any]) -> pl.Series:
    """A column of whole numbers, numbers, truth values or texts; values of several kinds become texts."""
    cells = [None if isinstance(value, float) and math.isnan(value) else value for value in values]
    kinds = {type(cell) for cell in cells if cell is not None}
    for wanted, kind in (
        ({bool}, pl.Boolean),
        ({int}, pl.Int64),
        ({int, float}, pl.Float64),
    ):
        if kinds and kinds <= wanted:
            return pl.Series(name, cells, dtype=kind)
    texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell, default=str) for cell in cells]
    return pl.Series(name, texts, dtype=pl.String)


# ------------------------------------------------------------------------------------------------------ comparisons
LATEX_SIGNS = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"\u221e": r"$\infty$", "\u2212": "$-$", "\u2026": r"\ldots{}"}
)
TEXTS = ("problem", "group", "outcome")
COUNTS = ("seeds", "failing", "pairs", "lower_in", "seeds_needed")
COLUMNS = (
    "problem",
    "group",
    "seeds",
    "mean",
    "mean_low",
    "mean_high",
    "deviation",
    "median",
    "failing",
    "failing_low",
    "failing_high",
    "pairs",
    "difference",
    "difference_low",
    "difference_high",
    "difference_median",
    "lower_in",
    "ratio",
    "ratio_low",
    "ratio_high",
    "ratio_of_medians",
    "outcome",
    "seeds_needed",
)
"""Of the frame of a comparison: texts, counts, and all others numbers."""
USUAL = (
    "group",
    "seeds",
    "mean",
    "median",
    "failing",
    "difference",
    "ratio",
    "lower_in",
    "outcome",
    "seeds_needed",
)
"""The default columns of a table."""
VALUES = ("average_reward", "value", "optimal_value", "agents_value")
"""Metrics whose ratios mean something only where rewards cannot be negative; elsewhere ratios are left empty."""
PAIRED = ("difference", "ratio", "lower_in", "outcome", "seeds_needed")
"""Those of them that say something of a group and the baseline."""
GAINS = ("average_reward", "value", "optimal_value", "agents_value", "episodes_played")
"""Metrics of which more is better or nothing; runs fail by the others."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of :func:`compare_runs`.

    Attributes:
        metric: what is compared, a column of :func:`runs_frame`.
        baseline: label of the group that others are compared with.
        title: what all runs share, in words.
        frame: a Polars frame with one row for each group in each problem. ``problem`` and ``group`` say which.
            The group's own are ``seeds``, ``mean``, ``mean_low``, ``mean_high``, ``deviation`` (standard),
            ``median``, and ``failing``: how many have more than three times the median, with the 95 % interval of
            their share from ``failing_low`` to ``failing_high``. The rest is about the seeds that group and
            baseline share: ``pairs`` (how many), ``difference`` with ``_low``, ``_high`` and ``_median``,
            ``lower_in`` (in how many the group is lower), ``ratio`` (of means) with ``_low`` and ``_high``,
            ``ratio_of_medians``, ``outcome`` (lower, higher, equal, undecided or baseline) and ``seeds_needed``. A
            cell is null where there is no such number.
    """

    metric: str
    baseline: str
    title: str
    frame: pl.DataFrame

    def caption_of(self, columns: Iterable[str] = USUAL) -> str:
        """What a table with these columns shows, and what its intervals are."""
        about = f" ({self.title})" if self.title else ""
        shown = set(columns)
        parts = [f"{self.metric}{about}."]
        if shown & {"mean", "difference", "ratio"}:
            parts.append(f"Square brackets hold the {INTERVAL_NAME}.")
        if "failing" in shown:
            parts.append(
                f"A run fails if it has more than {statistics.FAILING:g} times the median of its group; square "
                "brackets behind the count hold the 95 % interval of the share."
            )
        failing = self.frame.filter(self.frame["failing"] > 0).select("problem", "group").rows()
        if failing:
            carried = [f"{group} ({problem})" if problem else group for problem, group in failing]
            parts.append(f"Few runs carry the mean of {', '.join(carried)}: compare the medians.")
        if shown & {*PAIRED}:
            parts.append(f"Differences and ratios are to {self.baseline}, paired over common seeds.")
        if shown & {"outcome", "seeds_needed"}:
            parts.append(
                "A comparison is undecided while the interval of the difference holds 0 or, where runs fail, while "
                "an exact sign test over the seeds is undecided; as many as the seeds needed would decide it with "
                f"probability {100 * statistics.POWER:.0f} % if the true difference were the one found."
            )
        return " ".join(parts)

    def to_markdown(self, columns: Sequence[str] | None = None) -> str:
        """The table and its caption as Markdown; with these columns, see :meth:`texts`."""
        header, rows = self.texts(columns)
        lines = [
            header,
            ["---"] * len(header),
            *([text.replace("|", "\\|") for text in row] for row in rows),
        ]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.caption_of(self._chosen(columns))}\n"

    def to_latex(self, columns: Sequence[str] | None = None) -> str:
        """The table, its caption and a label as a LaTeX ``table`` for the package booktabs.

        For columns see :meth:`texts`. The label is ``tab:`` and the metric.
        """
        header, rows = self.texts(columns)
        names = self._chosen(columns)
        lines = [" & ".join(text.translate(LATEX_SIGNS) for text in row) + r" \\" for row in (header, *rows)]
        body = "\n".join([r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
        sides = "".join("l" if name in TEXTS else "r" for name in names)
        return (
            f"\\begin{{table}}\n\\centering\n\\begin{{tabular}}{{{sides}}}\n{body}\n\\end{{tabular}}\n"
            f"\\caption{{{self.caption_of(names).translate(LATEX_SIGNS)}}}\n"
            f"\\label{{tab:{self.metric.replace('_', '-')}}}\n\\end{{table}}\n"
        )

    def to_csv(self, columns: Sequence[str] | None = None) -> str:
        """The frame as CSV, with full numbers; with these columns and the ends of their intervals."""
        if columns is None:
            return self.frame.write_csv()
        ends = [(name, f"{name}_low", f"{name}_high") for name in self._chosen(columns)]
        return self.frame.select(one for some in ends for one in some if one in self.frame.columns).write_csv()

    def texts(self, columns: Sequence[str] | None = None) -> tuple[list[str], list[list[str]]]:
        """The header and the rows, as they are printed.

        Args:
            columns: names of columns of the frame, in this order; ``mean``, ``difference`` and ``ratio`` include
                their intervals, ``lower_in`` the number of pairs, ``failing`` that of seeds. By default what is
                needed for a verdict.
        """
        names = self._chosen(columns)
        special = {"mean": f"mean {self.metric}", "ratio": "ratio of means"}
        header = [special.get(name, name.replace("_", " ")) for name in names]
        return header, [[_cell(row, name) for name in names] for row in self.frame.iter_rows(named=True)]

    def _chosen(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            several = self.frame["problem"].n_unique() > 1
            left_out = ("failing",) if self.metric in GAINS else ()
            return [
                *(["problem"] if several else []),
                *(name for name in USUAL if name not in left_out),
            ]
        for name in columns:
            check_choice("column", name, self.frame.columns)
        if not columns:
            raise InputError("a table needs at least one column; leave columns out to get the usual ones.")
        return list(columns)

    def __repr__(self) -> str:
        found = self.frame["outcome"].drop_nulls().to_list()
        kinds = ("lower", "higher", "equal", "undecided")
        counts = ", ".join(f"{found.count(kind)} {kind}" for kind in kinds if kind in found)
        groups = self.frame["group"].n_unique()
        problems = self.frame["problem"].n_unique()
        where = f" on {problems} problems" if problems > 1 else ""
        return (
            f"<Comparison of {self.metric}: {groups} group{'s' * (groups != 1)}{where}, baseline {self.baseline}"
            f"{': ' if counts else ''}{counts}>"
        )

    def _repr_html_(self) -> str:
        header, rows = self.texts()
        return html_table(self.caption_of(), rows, header)


def compare_runs(
    runs: Iterable[RunData],
    *,
    by: str | Sequence[str] = "algorithm",
    metric: str = "regret",
    baseline: object = None,
    labels: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare groups of runs that differ in ``by``, over seeds and in pairs, separately on each problem.

    Runs with the same ``by`` form a group. Any other difference between runs defines separate problems. So by default
    each algorithm (with its parameters) is compared with the baseline separately for each environment, number of
    agents and so on. A number that an environment computes from its seed, such as the eps_p of a list of MDPs,
    defines no problem unless ``by`` names it. Two runs form a pair if all their seeds are equal, also those of the
    environment: they then have the same agents. See :mod:`~fed_ucbvi.results.statistics` for the intervals, which are
    not corrected for multiple comparisons.

    Args:
        runs: complete runs.
        by: what is compared: ``"algorithm"`` (with its parameters), ``"environment"`` (with its options and
            sizes), ``"agents"``, ``"episodes"``, the name of one parameter or option; or several of these.
        metric: a number that :func:`runs_frame` has for each run.
        baseline: the group to compare with: its label, or a value that no other group has; the first by default.
        labels: what to call an algorithm, a group or a problem, by its name or by what it would be called otherwise.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> world, scales = synthetic(agents=2), (1, 0.1)
    >>> runs = [run(FedUCBVI(nu=50, bonus_scale=b), world, 30, seed=s) for b in scales for s in (1, 2)]
    >>> compare_runs(runs, baseline=1).frame.select("group", "seeds", "pairs").rows()
    [('bonus_scale = 1', 2, None), ('bonus_scale = 0.1', 2, 2)]
    """
    table = RunTable.of(runs, labels, by)
    sides = list(zip(table, table.divide(by, ("all runs", "")), strict=True))
    for group, named in sides:
        group.check_seeds(named.name or named.rest_name)
    known = {id(run): _measure(run, metric) for run in table.runs}
    cost = metric not in GAINS
    rows = []
    chosen = _baseline(baseline, {named.name: named.part for _, named in sides})
    for problem in dict.fromkeys(named.rest_name for _, named in sides):
        groups = {named.name: group for group, named in sides if named.rest_name == problem}
        for name, group in groups.items():
            shares = metric not in VALUES or all(Units.of(run.about.environment).shares for run in group.runs)
            figures = _row(group, groups.get(chosen), lambda run: known[id(run)], cost, shares)
            rows.append({"problem": problem, "group": name, **figures})
    title = label({name: value for name, value in shared(table.settings).items() if "." not in name})
    schema = {name: str if name in TEXTS else int if name in COUNTS else float for name in COLUMNS}
    return Comparison(metric, chosen, title, pl.DataFrame(rows, schema=schema))


def _measure(run: RunData, metric: str) -> float:
    found = outcomes(run)
    check_choice("metric", metric, [name for name in found if name != "complete"])
    where = f"{run.about.algorithm} with seed {run.about.seed}"
    if not run.complete:
        raise InputError(f"the run of {where} was interrupted; a comparison needs complete runs.")
    if not math.isfinite(found[metric]):
        raise InputError(f"the {metric} of the run of {where} is unknown; use another one, such as average_reward.")
    return float(found[metric])


def _baseline(wanted: object, groups: dict[str, Settings]) -> str:
    if wanted is None:
        return next(iter(groups))
    if str(wanted) in groups:
        return str(wanted)
    fitting = [
        name
        for name, settings in groups.items()
        if any(value == wanted or str(value) == str(wanted) for value in settings.values())
    ]
    if len(fitting) > 1:
        raise InputError(f"several groups fit the baseline '{wanted}'; give one of these: {', '.join(fitting)}.")
    if not fitting:
        raise unknown_name("baseline", str(wanted), groups)
    return fitting[0]


def _row(
    group: RunGroup[RunData],
    base: RunGroup[RunData] | None,
    measure: Callable[[RunData], float],
    cost: bool,
    ratios: bool,
) -> dict[str, Any]:
    """The figures of a group, and of its pairs with the baseline where it has one."""
    found = group.summary(measure)
    row: dict[str, Any] = {
        "seeds": found.runs,
        "deviation": found.deviation,
        "median": found.median,
    }
    row |= {"mean": found.mean, "mean_low": found.low, "mean_high": found.high}
    if len(group) == 1:
        row |= {"mean_low": None, "mean_high": None}
    if cost:
        row |= {
            "failing": found.failing,
            "failing_low": found.failing_low,
            "failing_high": found.failing_high,
        }
    if base is group:
        row["outcome"] = "baseline"
    elif base is not None and (pairs := group.paired(base, measure)).seeds:
        difference = statistics.paired_difference(pairs.x, pairs.y)
        ratio = statistics.paired_ratio(pairs.x, pairs.y)
        outcome = difference.outcome
        if cost and (found.failing or base.summary(measure).failing):
            # Student's interval does not see rare failures
            low, high = statistics.share_interval(difference.lower, difference.seeds)
            agrees = low > 0.5 if outcome == "lower" else high < 0.5
            outcome = outcome if agrees else "undecided"
        row |= {
            "difference": difference.mean,
            "difference_low": difference.low,
            "difference_high": difference.high,
        }
        row["outcome"] = outcome
        if ratios:
            median = float(np.median(pairs.x))
            other = float(np.median(pairs.y))
            row |= {
                "ratio": ratio.mean,
                "ratio_low": ratio.low,
                "ratio_high": ratio.high,
            }
            row["ratio_of_medians"] = median / other if other else None
        row["difference_median"] = difference.median
        row |= {
            "pairs": difference.seeds,
            "lower_in": difference.lower,
            "seeds_needed": difference.seeds_needed,
        }
    return {name: None if isinstance(cell, float) and not math.isfinite(cell) else cell for name, cell in row.items()}


def _cell(row: dict[str, Any], name: str) -> str:
    """A cell as it is printed; infinite ends mean that the interval is unbounded."""
    value = row[name]
    low = row.get(f"{name}_low")
    if value is None or isinstance(value, str):
        return value or ""
    if name == "failing":
        return statistics.share_text(value, row["seeds"])
    if name == "lower_in":
        return f"{value} of {row['pairs']}"
    if isinstance(value, int):
        return f"{value:,}"
    if low is not None:
        return f"{_number(value)} [{_number(low)}, {_number(row[f'{name}_high'])}]"
    if name in ("difference", "ratio"):
        return f"{_number(value)} [\u2212\u221e, \u221e]"
    return _number(value)


def _number(value: float) -> str:
    """A number in four digits, with a true minus sign."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "\u2212")
