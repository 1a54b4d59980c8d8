"""Comparison of groups of runs: means over seeds, and paired differences to a baseline, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fed_ucbvi.analysis.frames import outcomes
from fed_ucbvi.core.errors import InputError, check_choice, unknown_name
from fed_ucbvi.core.text import html_table
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.run_table import RunGroup, RunTable
from fed_ucbvi.results.settings import Settings, label, shared
from fed_ucbvi.results.statistics import (
    FAILING,
    INTERVAL_NAME,
    POWER,
    paired_difference,
    paired_ratio,
    share_interval,
    share_text,
)

if TYPE_CHECKING:
    import polars as pl

LATEX_SIGNS = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\u221e": r"$\infty$",
    "\u2212": "$-$",
    "\u2026": r"\ldots{}",
}
POWER_PERCENT = f"{POWER:.0%}".replace("%", " %")

TEXTS = ("problem", "group", "outcome")
"""Columns of texts; all others are numbers."""
USUAL = ("group", "seeds", "mean", "median", "failing", "difference", "ratio", "lower_in", "outcome", "seeds_needed")
"""The default columns of a table."""
PAIRED = ("difference", "ratio", "lower_in", "outcome", "seeds_needed")
"""Those of them that say something of a group and the baseline."""
HEADERS = {"ratio": "ratio of means"}
GAINS = ("average_reward", "value", "optimal_value", "agents_value", "episodes_played")
"""Metrics of which more is better or nothing; runs fail by the others."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of :func:`compare_runs`.

    Attributes:
        metric: what is compared, a column of :func:`~fed_ucbvi.analysis.frames.runs_frame`.
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
                f"A run fails if it has more than {FAILING:g} times the median of its group; square brackets behind "
                "the count hold the 95 % interval of the share."
            )
        if carried := self._carried():
            parts.append(f"Few runs carry the mean of {', '.join(carried)}: compare the medians.")
        if shown & {*PAIRED}:
            parts.append(f"Differences and ratios are to {self.baseline}, paired over common seeds.")
        if shown & {"outcome", "seeds_needed"}:
            parts.append(
                "A comparison is undecided while the interval of the difference holds 0 or, where runs fail, while "
                "an exact sign test over the seeds is undecided; as many as the seeds needed would decide it with "
                f"probability {POWER_PERCENT} if the true difference were the one found."
            )
        return " ".join(parts)

    def to_markdown(self, columns: Sequence[str] | None = None) -> str:
        """The table and its caption as Markdown; with these columns, see :meth:`texts`."""
        header, rows = self.texts(columns)
        lines = [header, ["---"] * len(header), *([text.replace("|", "\\|") for text in row] for row in rows)]
        return (
            "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{self.caption_of(self._chosen(columns))}\n"
        )

    def to_latex(self, columns: Sequence[str] | None = None) -> str:
        """The table and its caption as a LaTeX ``table``, which needs no package; for columns see :meth:`texts`."""
        header, rows = self.texts(columns)
        names = self._chosen(columns)
        lines = [" & ".join(_latex(text) for text in row) + r" \\" for row in (header, *rows)]
        body = "\n".join([r"\hline", lines[0], r"\hline", *lines[1:], r"\hline"])
        sides = "".join("l" if name in TEXTS else "r" for name in names)
        return (
            f"\\begin{{table}}\n\\centering\n\\begin{{tabular}}{{{sides}}}\n{body}\n\\end{{tabular}}\n"
            f"\\caption{{{_latex(self.caption_of(names))}}}\n\\end{{table}}\n"
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
        header = [HEADERS.get(name, name.replace("_", " ")) for name in names]
        header = [f"mean {self.metric}" if name == "mean" else text for name, text in zip(names, header, strict=True)]
        return header, [[_cell(row, name) for name in names] for row in self.frame.iter_rows(named=True)]

    def _chosen(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            several = self.frame["problem"].n_unique() > 1
            left_out = ("failing",) if self.metric in GAINS else ()
            return [*(["problem"] if several else []), *(name for name in USUAL if name not in left_out)]
        for name in columns:
            check_choice("column", name, self.frame.columns)
        if not columns:
            raise InputError("a table needs at least one column; leave columns out to get the usual ones.")
        return list(columns)

    def _carried(self) -> list[str]:
        """The groups with failing runs."""
        named = self.frame.filter(self.frame["failing"] > 0).select("problem", "group").rows()
        return [f"{group} ({problem})" if problem else group for problem, group in named]

    def __repr__(self) -> str:
        found = self.frame["outcome"].drop_nulls().to_list()
        counts = [
            f"{found.count(kind)} {kind}" for kind in ("lower", "higher", "equal", "undecided") if kind in found
        ]
        groups, problems = self.frame["group"].n_unique(), self.frame["problem"].n_unique()
        where = f" on {problems} problems" if problems > 1 else ""
        return (
            f"<Comparison of {self.metric}: {groups} group{'s' * (groups != 1)}{where}, baseline {self.baseline}"
            f"{': ' if counts else ''}{', '.join(counts)}>"
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
    agents and so on. Two runs form a pair if all their seeds are equal, also those of the environment: they then have
    the same agents. See :mod:`~fed_ucbvi.results.statistics` for the intervals, which are not corrected for multiple
    comparisons.

    Args:
        runs: complete runs.
        by: what is compared: ``"algorithm"`` (with its parameters), ``"environment"`` (with its options and
            sizes), ``"agents"``, ``"episodes"``, the name of one parameter or option; or several of these.
        metric: a number that :func:`~fed_ucbvi.analysis.frames.runs_frame` has for each run.
        baseline: the group to compare with: its label, or a value that no other group has; the first by default.
        labels: what to call an algorithm, a group or a problem, by its name or by what it would be called otherwise.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> world, scales = synthetic(agents=2), (1, 0.1)
    >>> runs = [run(FedUCBVI(nu=50, bonus_scale=b), world, 30, seed=s) for b in scales for s in (1, 2)]
    >>> compare_runs(runs, baseline=1).frame.select("group", "seeds", "pairs").rows()
    [('bonus_scale = 1', 2, None), ('bonus_scale = 0.1', 2, 2)]
    """
    import polars as pl

    table = RunTable.of(runs, labels)
    names = table.divide(by, ("all runs", ""))
    for group, named in zip(table, names, strict=True):
        group.check_seeds(named.name or named.rest_name)
    known, cost = {id(run): _measure(run, metric) for run in table.runs}, metric not in GAINS
    chosen = _baseline(baseline, {named.name: named.part for named in names})
    bases = {named.rest_name: group for group, named in zip(table, names, strict=True) if named.name == chosen}
    order = [*dict.fromkeys(named.rest_name for named in names)]
    rows = [
        {"problem": problem, "group": named.name, **_row(group, bases.get(problem), lambda run: known[id(run)], cost)}
        for problem in order
        for group, named in zip(table, names, strict=True)
        if named.rest_name == problem
    ]
    title = label({name: value for name, value in shared(table.settings).items() if "." not in name})
    return Comparison(metric, chosen, title, pl.DataFrame(rows, schema=_SCHEMA))


def _measure(run: RunData, metric: str) -> float:
    found = outcomes(run)
    check_choice("metric", metric, [name for name in found if name != "complete"])
    where = f"{run.about.algorithm} with seed {run.about.seed}"
    if not run.complete:
        raise InputError(f"the run of {where} was interrupted; a comparison needs complete runs.")
    if not math.isfinite(found[metric]):
        raise InputError(
            f"the {metric} of the run of {where} is unknown; use another metric, such as average_reward."
        )
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


_SCHEMA: dict[str, Any] = {"problem": str, "group": str, "seeds": int}
_SCHEMA |= dict.fromkeys(("mean", "mean_low", "mean_high", "deviation", "median"), float)
_SCHEMA |= {"failing": int, "failing_low": float, "failing_high": float, "pairs": int}
_SCHEMA |= dict.fromkeys(("difference", "difference_low", "difference_high", "difference_median"), float)
_SCHEMA |= {"lower_in": int} | dict.fromkeys(("ratio", "ratio_low", "ratio_high", "ratio_of_medians"), float)
_SCHEMA |= {"outcome": str, "seeds_needed": int}


def _row(
    group: RunGroup[RunData], base: RunGroup[RunData] | None, measure: Callable[[RunData], float], cost: bool
) -> dict[str, Any]:
    """The figures of a group, and of its pairs with the baseline where it has one."""
    found = group.summary(measure)
    row: dict[str, Any] = {"seeds": found.runs, "mean": found.mean, "median": found.median}
    if cost:
        row |= {"failing": found.failing, "failing_low": found.failing_low, "failing_high": found.failing_high}
    if len(group) > 1:
        row |= {"mean_low": found.low, "mean_high": found.high, "deviation": found.deviation}
    if base is group:
        return row | {"outcome": "baseline"}
    pairs = ([], []) if base is None else group.paired(base, measure)
    if not pairs[0]:
        return row
    difference, ratio = paired_difference(*pairs), paired_ratio(*pairs)
    outcome = difference.outcome
    if cost and (found.failing or (base is not None and base.summary(measure).failing)):
        low, high = share_interval(
            difference.lower, difference.seeds
        )  # Student's interval does not see rare failures
        agrees = low > 0.5 if outcome == "lower" else high < 0.5
        outcome = outcome if agrees else "undecided"
    row |= {"pairs": difference.seeds, "lower_in": difference.lower, "seeds_needed": difference.seeds_needed}
    row |= {"difference": difference.estimate, "difference_median": difference.median, "outcome": outcome}
    row |= {"ratio": ratio.estimate, "ratio_of_medians": ratio.median}
    row |= {"difference_low": difference.low, "difference_high": difference.high}
    row |= {"ratio_low": ratio.low, "ratio_high": ratio.high}
    return {name: None if isinstance(cell, float) and not math.isfinite(cell) else cell for name, cell in row.items()}


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if value is None:
        return ""
    if name == "failing":
        return share_text(value, row["seeds"])
    if name == "lower_in":
        return f"{value} of {row['pairs']}"
    if f"{name}_low" in row:
        return _interval(row, name)
    return f"{value:,}" if isinstance(value, int) else value if isinstance(value, str) else _number(value)


def _interval(row: dict[str, Any], name: str) -> str:
    """An estimate and its interval; infinite ends mean that the interval is unbounded."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None:
        return _number(row[name]) if name == "mean" else f"{_number(row[name])} [\u2212\u221e, \u221e]"
    return f"{_number(row[name])} [{_number(low)}, {_number(high)}]"


def _number(value: float) -> str:
    """A number in four digits, with a true minus sign."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "\u2212")


def _latex(text: str) -> str:
    return "".join(LATEX_SIGNS.get(sign, sign) for sign in text)
