"""Comparison of groups of runs: means over seeds, and paired differences to a baseline, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fed_ucbvi.analysis.run_table import outcomes
from fed_ucbvi.core.errors import InputError, check_choice, unknown_name
from fed_ucbvi.core.notebook import html_table
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import (
    Settings,
    check_own_labels,
    checked_runs,
    key_of,
    label,
    names_of,
    parted,
    relabelled,
    seeds_of,
    settings_of,
    shared,
)
from fed_ucbvi.results.statistics import INTERVAL_NAME, POWER, mean_interval, paired_difference, paired_ratio

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
USUAL = ("group", "seeds", "mean", "median", "difference", "ratio", "lower_in", "outcome", "seeds_needed")
"""Columns of a table where nobody chooses others."""
PAIRED = ("difference", "ratio", "lower_in", "outcome", "seeds_needed")
"""Those of them that say something of a group and the baseline."""
HEADERS = {"ratio": "ratio of means"}

Seeds = tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of :func:`compare_runs`.

    Attributes:
        metric: what is compared, a column of :func:`~fed_ucbvi.analysis.run_table.runs_frame`.
        baseline: label of the group that others are compared with.
        title: what all runs share, in words.
        frame: a Polars frame with one row for each group in each problem. ``problem`` and ``group`` say which;
            ``seeds``, ``mean``, ``mean_low``, ``mean_high``, ``deviation`` (standard), ``median`` are the group's
            own. The rest is about the seeds that group and baseline share: ``pairs`` (how many), ``difference``
            with ``_low``, ``_high`` and ``_median``, ``lower_in`` (in how many the group is lower), ``ratio`` (of
            means) with ``_low`` and ``_high``, ``ratio_of_medians``, ``outcome`` (lower, higher, equal, undecided or
            baseline) and ``seeds_needed``. A cell is null where there is no such number.
    """

    metric: str
    baseline: str
    title: str
    frame: pl.DataFrame

    @property
    def caption(self) -> str:
        """What the table shows, and what its intervals are."""
        return self.caption_of(USUAL)

    def caption_of(self, columns: Iterable[str]) -> str:
        """The caption of a table with these columns."""
        about = f" ({self.title})" if self.title else ""
        shown = set(columns)
        parts = [f"{self.metric}{about}."]
        if shown & {"mean", "difference", "ratio"}:
            parts.append(f"Square brackets hold the {INTERVAL_NAME} (Student's).")
        if shown & {*PAIRED}:
            parts.append(f"Differences and ratios are to {self.baseline}, paired over common seeds.")
        if shown & {"outcome", "seeds_needed"}:
            parts.append(
                "A comparison is undecided while the interval of the difference holds 0; as many as the seeds needed "
                f"would decide it with probability {POWER_PERCENT} if the true difference were the one found."
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
                their intervals, ``lower_in`` the number of pairs. By default what is needed for a verdict.
        """
        names = self._chosen(columns)
        header = [HEADERS.get(name, name.replace("_", " ")) for name in names]
        header = [f"mean {self.metric}" if name == "mean" else text for name, text in zip(names, header, strict=True)]
        return header, [[_cell(row, name) for name in names] for row in self.frame.iter_rows(named=True)]

    def _chosen(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            several = self.frame["problem"].n_unique() > 1
            return [*(["problem"] if several else []), *USUAL]
        for name in columns:
            check_choice("column", name, self.frame.columns)
        if not columns:
            raise InputError("a table needs at least one column; leave columns out to get the usual ones.")
        return list(columns)

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
        return html_table(self.caption, rows, header)


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
        metric: a number that :func:`~fed_ucbvi.analysis.run_table.runs_frame` has for each run.
        baseline: the group to compare with: its label, or a value that no other group has; the first by default.
        labels: what to call an algorithm, a group or a problem, by its name or by what it would be called otherwise.

    >>> from fed_ucbvi import FedUCBVI, run, synthetic
    >>> world, scales = synthetic(agents=2), (1, 0.1)
    >>> runs = [run(FedUCBVI(nu=50, bonus_scale=b), world, 30, seed=s) for b in scales for s in (1, 2)]
    >>> compare_runs(runs, baseline=1).frame.select("group", "seeds", "pairs").rows()
    [('bonus_scale = 1', 2, None), ('bonus_scale = 0.1', 2, 2)]
    """
    import polars as pl

    found = checked_runs(runs)
    settings = relabelled([settings_of(run.about) for run in found], labels or {})
    sides, problems = parted(settings, by)
    side_names, problem_names = names_of(sides, "all runs", own=labels), names_of(problems, "", own=labels)
    check_own_labels(labels, settings, [*side_names.values(), *problem_names.values()])
    cells: dict[tuple[str, str], dict[Seeds, float]] = {}
    for run, side, problem in zip(found, sides, problems, strict=True):
        place = (problem_names[key_of(problem)], side_names[key_of(side)])
        lot = cells.setdefault(place, {})
        if seeds_of(run.about) in lot:
            raise InputError(
                f"two runs of '{place[1] or place[0]}' have the same seeds ({_seed_text(seeds_of(run.about))}); "
                "each seed counts once, so leave one of them out."
            )
        lot[seeds_of(run.about)] = _measure(run, metric)
    chosen = _baseline(baseline, {side_names[key_of(side)]: side for side in sides})
    order = sorted(cells, key=lambda place: [*problem_names.values()].index(place[0]))
    rows = [_row(place, cells[place], cells.get((place[0], chosen)), place[1] == chosen) for place in order]
    title = label({name: value for name, value in shared(settings).items() if "." not in name})
    return Comparison(metric, chosen, title, pl.DataFrame(rows, schema=_SCHEMA))


def _measure(run: RunData, metric: str) -> float:
    found = outcomes(run)
    check_choice("metric", metric, [name for name in found if name != "complete"])
    where = f"{run.about.algorithm} with seed {run.about.seed}"
    if not run.complete:
        raise InputError(f"the run of {where} was interrupted; a comparison needs complete runs.")
    if not math.isfinite(found[metric]):
        raise InputError(f"the {metric} of the run of {where} is unknown; take another metric, as average_reward.")
    return float(found[metric])


def _seed_text(seeds: Seeds) -> str:
    return ", ".join(f"{name} {value}" for name, value in seeds)


def _baseline(wanted: object, groups: dict[str, Settings]) -> str:
    """The label of the baseline group."""
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
_SCHEMA |= dict.fromkeys(("mean", "mean_low", "mean_high", "deviation", "median"), float) | {"pairs": int}
_SCHEMA |= dict.fromkeys(("difference", "difference_low", "difference_high", "difference_median"), float)
_SCHEMA |= {"lower_in": int} | dict.fromkeys(("ratio", "ratio_low", "ratio_high", "ratio_of_medians"), float)
_SCHEMA |= {"outcome": str, "seeds_needed": int}


def _row(
    place: tuple[str, str], mine: dict[Seeds, float], base: dict[Seeds, float] | None, is_base: bool
) -> dict[str, Any]:
    values = np.array(list(mine.values()))
    mean, low, high = (float(end) for end in mean_interval(values))
    row: dict[str, Any] = dict.fromkeys(_SCHEMA)
    row |= {"problem": place[0], "group": place[1], "seeds": len(values), "mean": mean, "median": np.median(values)}
    if len(values) > 1:
        row |= {"mean_low": low, "mean_high": high, "deviation": values.std(ddof=1)}
    if is_base:
        return row | {"outcome": "baseline"}
    common = [seeds for seeds in mine if base is not None and seeds in base]
    if base is None or not common:
        return row
    x, y = ([side[seeds] for seeds in common] for side in (mine, base))
    difference, ratio = paired_difference(x, y), paired_ratio(x, y)
    row |= {"pairs": difference.seeds, "lower_in": difference.lower, "seeds_needed": difference.seeds_needed}
    row |= {"difference": difference.estimate, "difference_median": difference.median, "outcome": difference.outcome}
    row |= {"ratio": ratio.estimate, "ratio_of_medians": ratio.median}
    row |= {"difference_low": difference.low, "difference_high": difference.high}
    row |= {"ratio_low": ratio.low, "ratio_high": ratio.high}
    return {name: None if isinstance(cell, float) and not math.isfinite(cell) else cell for name, cell in row.items()}


def _cell(row: dict[str, Any], name: str) -> str:
    """One cell in words."""
    value = row[name]
    if value is None:
        return ""
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
