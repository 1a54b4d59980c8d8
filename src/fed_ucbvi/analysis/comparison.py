"""Tables of runs: a row for each run, the curves of groups, and groups compared in pairs, with intervals."""

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
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results import statistics
from fed_ucbvi.results.run_data import CURVES, RunData
from fed_ucbvi.results.run_table import (
    LABELS,
    Pairs,
    RunGroup,
    RunTable,
    Settings,
    apart,
    checked_runs,
    label,
    shared,
)
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
    checked = checked_runs(runs)
    sizes_of_runs = [_sizes(run) for run in checked]
    settings_of_runs = [_settings(run) for run in checked]
    results_of_runs = [outcomes(run) for run in checked]
    for size in SIZES:
        option = f"environment.{size}"
        pairs = zip(sizes_of_runs, settings_of_runs, strict=True)
        superfluous = all(settings.get(option) in (None, sizes[size]) for sizes, settings in pairs)
        if superfluous:
            for settings in settings_of_runs:
                settings.pop(option, None)
    taken = [*sizes_of_runs[0], *results_of_runs[0]]
    headers = _headers(_names(settings_of_runs), taken)
    columns = []
    for name in _names(sizes_of_runs):
        columns.append(column(name, [sizes.get(name) for sizes in sizes_of_runs]))
    for name, header in headers.items():
        columns.append(column(header, [settings.get(name) for settings in settings_of_runs]))
    for name in _names(results_of_runs):
        columns.append(column(name, [results.get(name) for results in results_of_runs]))
    return pl.DataFrame(columns)


def _sizes(run: RunData) -> dict[str, Any]:
    """The first columns of a run: algorithm, environment, sizes, seed and driver."""
    about = run.about
    sizes: dict[str, Any] = {
        "algorithm": about.algorithm,
        "environment": about.environment.get("name", "custom"),
    }
    for name in (*SIZES, "seed", "driver"):
        sizes[name] = getattr(about, name)
    return sizes


def _settings(run: RunData) -> dict[str, Any]:
    """The parameters of a run's algorithm and the options of its environment, each with its owner's name."""
    settings: dict[str, Any] = {}
    for name, value in run.about.parameters.items():
        settings[f"algorithm.{name}"] = value
    for name, value in run.about.environment.items():
        if name != "name":
            settings[f"environment.{name}"] = value
    return settings


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names in any of these rows, in the order of their first appearance."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return list(names)


def outcomes(run: RunData) -> dict[str, float | int | bool]:
    """The results of a run: ``regret`` is the common regret, bytes are those of all agents, values are per episode.

    ``value`` and ``simple_regret`` are the recommended policy's in the common MDP, ``agents_value`` is its value to
    the agents on average.
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
    chosen_points = None
    if episodes is not None:
        chosen_points = [check_positive_integer("a number of episodes", number) for number in episodes]
    differing = []
    for settings in apart(table.settings):
        differing.append({name: value for name, value in settings.items() if name not in LABELS.values()})
    headers = _headers(_names(differing), ["group", "runs", *FIGURES])
    if "episodes" in headers:
        headers["episodes"] = "planned_episodes"
    rows: list[dict[str, Any]] = []
    named_groups = table.divide((), ("", "all runs"))
    for group, named, settings in zip(table, named_groups, differing, strict=True):
        last = min(run.episodes_played for run in group.runs)
        points = _points(last, chosen_points)
        samples = np.array([CURVES[metric](run, points) for run in group.runs], dtype=np.float64)
        mean, low, high = statistics.mean_interval(samples)
        lower_quartile, median, upper_quartile = np.quantile(samples, [0.25, 0.5, 0.75], axis=0)
        for index, point in enumerate(points.tolist()):
            row = {
                "group": named.rest_name,
                "episodes": point,
                "runs": len(group),
                "mean": float(mean[index]),
                "lower_quartile": float(lower_quartile[index]),
                "median": float(median[index]),
                "upper_quartile": float(upper_quartile[index]),
            }
            if len(group) > 1:  # a single run has no interval
                row["mean_low"] = float(low[index])
                row["mean_high"] = float(high[index])
            for name, value in settings.items():
                row[headers[name]] = value
            rows.append(row)
    if not rows:
        raise InputError("no group of runs has played that many episodes; choose smaller numbers.")
    columns = ["group", *headers.values(), "episodes", "runs", *FIGURES]
    return pl.DataFrame([column(name, [row.get(name) for row in rows]) for name in columns])


def _points(last: int, chosen: Sequence[int] | None) -> CountArray:
    """The chosen numbers of episodes up to ``last``, each once; by default numbers even on a logarithmic axis."""
    if chosen is None:
        chosen = np.geomspace(min(1, last), last, POINTS).round().tolist()
    points = [point for point in dict.fromkeys(chosen) if 0 < point <= last]
    return np.array(points, dtype=np.int64)


def _headers(settings: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Names of the columns of settings: their own, with their owner's where such a name is taken."""
    short_names = {name: name.rpartition(".")[2] for name in settings}
    uses = Counter([*short_names.values(), *taken])
    headers = {}
    for name, short_name in short_names.items():
        headers[name] = name.replace(".", "_") if uses[short_name] > 1 else short_name
    return headers


def column(name: str, values: list[Any]) -> pl.Series:
    """A column of whole numbers, numbers, truth values or texts; values of several kinds become texts."""
    cells = [None if isinstance(value, float) and math.isnan(value) else value for value in values]
    kinds = {type(cell) for cell in cells if cell is not None}
    if not kinds:
        return pl.Series(name, cells, dtype=pl.String)
    if kinds == {bool}:
        return pl.Series(name, cells, dtype=pl.Boolean)
    if kinds == {int}:
        return pl.Series(name, cells, dtype=pl.Int64)
    if kinds <= {int, float}:
        return pl.Series(name, cells, dtype=pl.Float64)
    texts = []
    for cell in cells:
        is_text = cell is None or isinstance(cell, str)
        texts.append(cell if is_text else json.dumps(cell, default=str))
    return pl.Series(name, texts, dtype=pl.String)


# ------------------------------------------------------------------------------------------------------ comparisons
LATEX_SIGNS = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\u221e": r"$\infty$",
        "\u2212": "$-$",
        "\u2026": r"\ldots{}",
    }
)
TEXT_COLUMNS = ("problem", "group", "outcome")
COUNT_COLUMNS = ("seeds", "failing", "pairs", "lower_in", "seeds_needed")
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
"""Columns of the frame of a comparison: texts, counts, and all of them."""
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
"""Metrics whose ratios are meaningful only where rewards cannot be negative; elsewhere ratios are left empty."""
PAIRED = ("difference", "ratio", "lower_in", "outcome", "seeds_needed")
"""Columns about the pairs of a group and the baseline."""
GAINS = ("average_reward", "value", "optimal_value", "agents_value", "episodes_played")
"""Metrics that are not a cost: runs do not fail by them."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of :func:`compare_runs`.

    Attributes:
        metric: the compared figure, a column of :func:`runs_frame`.
        baseline: label of the group that others are compared with.
        title: settings that all runs share, in words.
        frame: a Polars frame with one row for each group in each problem, named by ``problem`` and ``group``.
            The group's own are ``seeds``, ``mean``, ``mean_low``, ``mean_high``, ``deviation`` (standard),
            ``median``, and ``failing``: the number with more than three times the median, with the 95 % interval of
            their share from ``failing_low`` to ``failing_high``. The rest is about the seeds that group and
            baseline share: ``pairs`` (their number), ``difference`` with ``_low``, ``_high`` and ``_median``,
            ``lower_in`` (pairs in which the group is lower), ``ratio`` (of means) with ``_low`` and ``_high``,
            ``ratio_of_medians``, ``outcome`` (lower, higher, equal, undecided or baseline) and ``seeds_needed``. A
            cell is null where there is no such number.
    """

    metric: str
    baseline: str
    title: str
    frame: pl.DataFrame

    def caption_of(self, columns: Iterable[str] = USUAL) -> str:
        """Caption of a table with these columns, which explains its intervals."""
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
            groups = [f"{group} ({problem})" if problem else group for problem, group in failing]
            parts.append(f"Few runs carry the mean of {', '.join(groups)}: compare the medians.")
        if shown & set(PAIRED):
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
        lines = [_markdown_row(header), _markdown_row(["---"] * len(header))]
        for row in rows:
            lines.append(_markdown_row([text.replace("|", "\\|") for text in row]))
        table = "\n".join(lines)
        return f"{table}\n\n{self.caption_of(self._chosen(columns))}\n"

    def to_latex(self, columns: Sequence[str] | None = None) -> str:
        """The table, its caption and a label as a LaTeX ``table`` for the package booktabs.

        For columns see :meth:`texts`. The label is ``tab:`` and the metric.
        """
        header, rows = self.texts(columns)
        names = self._chosen(columns)
        alignment = "".join("l" if name in TEXT_COLUMNS else "r" for name in names)
        caption = self.caption_of(names).translate(LATEX_SIGNS)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _latex_row(header),
            r"\midrule",
            *[_latex_row(row) for row in rows],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{self.metric.replace('_', '-')}}}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_csv(self, columns: Sequence[str] | None = None) -> str:
        """The frame as CSV, with full numbers; with these columns and the ends of their intervals."""
        if columns is None:
            return self.frame.write_csv()
        selected = []
        for name in self._chosen(columns):
            with_ends = (name, f"{name}_low", f"{name}_high")
            selected += [part for part in with_ends if part in self.frame.columns]
        return self.frame.select(selected).write_csv()

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
        rows = []
        for row in self.frame.iter_rows(named=True):
            rows.append([_cell(row, name) for name in names])
        return header, rows

    def _chosen(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            usual = list(USUAL)
            if self.metric in GAINS:
                usual.remove("failing")
            several_problems = self.frame["problem"].n_unique() > 1
            return ["problem", *usual] if several_problems else usual
        for name in columns:
            check_choice("column", name, self.frame.columns)
        if not columns:
            raise InputError("a table needs at least one column; leave columns out to get the usual ones.")
        return list(columns)

    def __repr__(self) -> str:
        outcomes = self.frame["outcome"].drop_nulls().to_list()
        kinds = ("lower", "higher", "equal", "undecided")
        counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in kinds if kind in outcomes)
        number = self.frame["group"].n_unique()
        groups = "1 group" if number == 1 else f"{number} groups"
        problems = self.frame["problem"].n_unique()
        where = f" on {problems} problems" if problems > 1 else ""
        result = f": {counts}" if counts else ""
        return f"<Comparison of {self.metric}: {groups}{where}, baseline {self.baseline}{result}>"

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
    named_groups = list(zip(table, table.divide(by, ("all runs", "")), strict=True))
    for group, named in named_groups:
        group.check_seeds(named.name or named.rest_name)
    measures = {id(run): _measure(run, metric) for run in table.runs}
    baseline_name = _baseline(baseline, {named.name: named.part for _, named in named_groups})
    rows = []
    for problem in dict.fromkeys(named.rest_name for _, named in named_groups):
        groups = {named.name: group for group, named in named_groups if named.rest_name == problem}
        for name, group in groups.items():
            from_zero = all(Units.of(run.about.environment).shares for run in group.runs)
            row = _row(
                group,
                groups.get(baseline_name),
                lambda run: measures[id(run)],
                is_cost=metric not in GAINS,
                with_ratios=metric not in VALUES or from_zero,
            )
            row["problem"] = problem
            row["group"] = name
            rows.append(row)
    common = {name: value for name, value in shared(table.settings).items() if "." not in name}
    return Comparison(
        metric=metric,
        baseline=baseline_name,
        title=label(common),
        frame=pl.DataFrame(rows, schema=_schema()),
    )


def _schema() -> dict[str, type]:
    """The type of each column of a comparison."""
    schema: dict[str, type] = {}
    for name in COLUMNS:
        if name in TEXT_COLUMNS:
            schema[name] = str
        elif name in COUNT_COLUMNS:
            schema[name] = int
        else:
            schema[name] = float
    return schema


def _measure(run: RunData, metric: str) -> float:
    results = outcomes(run)
    check_choice("metric", metric, [name for name in results if name != "complete"])
    where = f"{run.about.algorithm} with seed {run.about.seed}"
    if not run.complete:
        raise InputError(f"the run of {where} was interrupted; a comparison needs complete runs.")
    if not math.isfinite(results[metric]):
        raise InputError(f"the {metric} of the run of {where} is unknown; use another one, such as average_reward.")
    return float(results[metric])


def _baseline(baseline: object, groups: dict[str, Settings]) -> str:
    """The name of the group that a label or a value stands for; the first by default."""
    if baseline is None:
        return next(iter(groups))
    text = str(baseline)
    if text in groups:
        return text
    fitting = []
    for name, settings in groups.items():
        if any(value == baseline or str(value) == text for value in settings.values()):
            fitting.append(name)
    if len(fitting) > 1:
        raise InputError(f"several groups fit the baseline '{text}'; give one of these: {', '.join(fitting)}.")
    if not fitting:
        raise unknown_name("baseline", text, groups)
    return fitting[0]


def _row(
    group: RunGroup[RunData],
    base: RunGroup[RunData] | None,
    measure: Callable[[RunData], float],
    *,
    is_cost: bool,
    with_ratios: bool,
) -> dict[str, Any]:
    """The figures of a group, and of its pairs with the baseline where it has one."""
    summary = group.summary(measure)
    row: dict[str, Any] = {
        "seeds": summary.runs,
        "deviation": summary.deviation,
        "median": summary.median,
        "mean": summary.mean,
    }
    if len(group) > 1:
        row["mean_low"] = summary.low
        row["mean_high"] = summary.high
    if is_cost:
        row["failing"] = summary.failing
        row["failing_low"] = summary.failing_low
        row["failing_high"] = summary.failing_high
    if base is group:
        row["outcome"] = "baseline"
    elif base is not None:
        runs_fail = is_cost and bool(summary.failing or base.summary(measure).failing)
        row |= _paired_figures(group.paired(base, measure), runs_fail=runs_fail, with_ratios=with_ratios)
    finite = {}
    for name, cell in row.items():
        finite[name] = None if isinstance(cell, float) and not math.isfinite(cell) else cell
    return finite


def _paired_figures(pairs: Pairs[RunData], *, runs_fail: bool, with_ratios: bool) -> dict[str, Any]:
    """The figures of the pairs of a group and the baseline; none if there are no pairs."""
    if not pairs.seeds:
        return {}
    difference = statistics.paired_difference(pairs.x, pairs.y)
    outcome = difference.outcome
    if runs_fail:  # Student's interval does not account for rare failures
        low, high = statistics.share_interval(difference.lower, difference.seeds)
        sign_test_agrees = low > 0.5 if outcome == "lower" else high < 0.5
        if not sign_test_agrees:
            outcome = "undecided"
    figures: dict[str, Any] = {
        "difference": difference.mean,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "difference_median": difference.median,
        "outcome": outcome,
        "pairs": difference.seeds,
        "lower_in": difference.lower,
        "seeds_needed": difference.seeds_needed,
    }
    if with_ratios:
        ratio = statistics.paired_ratio(pairs.x, pairs.y)
        figures["ratio"] = ratio.mean
        figures["ratio_low"] = ratio.low
        figures["ratio_high"] = ratio.high
        baseline_median = float(np.median(pairs.y))
        if baseline_median:
            figures["ratio_of_medians"] = float(np.median(pairs.x)) / baseline_median
    return figures


def _markdown_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _latex_row(texts: Iterable[str]) -> str:
    return " & ".join(text.translate(LATEX_SIGNS) for text in texts) + r" \\"


def _cell(row: dict[str, Any], name: str) -> str:
    """The text of a cell; infinite ends mean that the interval is unbounded."""
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
        high = row[f"{name}_high"]
        return f"{_number(value)} [{_number(low)}, {_number(high)}]"
    if name in ("difference", "ratio"):
        return f"{_number(value)} [\u2212\u221e, \u221e]"
    return _number(value)


def _number(value: float) -> str:
    """A number in four digits, with a true minus sign."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "\u2212")
