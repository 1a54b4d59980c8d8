"""The standing comparison as a document and as a page; both say the same and follow from the rows alone."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from fed_ucbvi.charts.panels import Panel, Series
from fed_ucbvi.core.defaults import ALGORITHM
from fed_ucbvi.paper.figures import BYTES_LABEL, REGRET_LABEL
from fed_ucbvi.paper.leaderboard import Board, Place, Rows, places, standings
from fed_ucbvi.paper.seed_groups import log_bars
from fed_ucbvi.report.content import Cell, Figure, Interval, PageContent, Section, Table
from fed_ucbvi.results.statistics import INTERVAL_NAME
from fed_ucbvi.results.style import colour_of, label_of

DOCUMENT = "leaderboard.md"
TITLE = "Leaderboard: every algorithm on every environment"
OVERALL = ("algorithm", "environments", "regret", "rounds", "bytes", "share of the best")
HERE = ("algorithm", "M", "regret", "rounds", "MB", "share of the best")
HOW_TO_ADD = """\
## Add yours

An algorithm of your own is a class that Python can import, say `Mine` in `mine.py`; see
[algorithms.md](algorithms.md#your-own). This makes its runs, and shows them among the others:

<!-- not run: the algorithm is yours -->
```sh
fed-ucbvi leaderboard --algorithm mine:Mine --store my-runs --out my-board
```

`my-runs` keeps the runs, so that the command can be stopped and given again. `my-board` holds this document, a page
with a figure (`index.html`) and one row for each run (`leaderboard.csv`). `--leave-out NAME` leaves an environment
out. With `--quick` all runs of all algorithms are made from little data, in a minute or two. `fed-ucbvi
compare --env` compares on an environment of your own.

To change the leaderboard itself, edit `src/fed_ucbvi/paper/leaderboard.toml` and give `make leaderboard`. It makes
all runs, and writes the rows to `src/fed_ucbvi/paper/leaderboard.csv` and this document. After a change of words
only, `make leaderboard-document` is enough: nothing is run."""


def explanation(board: Board, rows: Rows) -> list[str]:
    """What was run and what the columns mean, in paragraphs."""
    lengths: dict[int, list[str]] = {}
    for row in rows:
        lengths.setdefault(row.episodes, []).append(label_of(row.environment))
    usual = max(lengths, key=lambda T: len(lengths[T]))
    others = [f"{T:,} in {', '.join(dict.fromkeys(names))}" for T, names in lengths.items() if usual != T]
    apart = f" ({'; '.join(others)})" if others else ""
    seeds = len({row.seed for row in rows})
    return [
        f"Every algorithm has its default parameters; nothing is tuned. There are M = {board.agents} agents (one for "
        f"algorithms that are for a single agent), who differ by \u03b5_p = {board.eps_p:g} and play T = {usual:,} "
        f"episodes each{apart}. Each algorithm has {seeds} runs on each "
        "environment, which is drawn anew from each run's seed, the same for all algorithms. What follows \u00b1, or "
        f"stands in brackets, is the {INTERVAL_NAME}.",
        "Regret is the common regret per agent, after T episodes. MB are millions of bytes, both ways, over all "
        "agents. The share of the best is what the policy recommended at the end is worth to the agents, divided by "
        "what the best policy that they can share is worth.",
    ]


def left_out(board: Board) -> list[str]:
    """What is not run, with the reasons."""
    return [f"{name}: {reason}." for name, reason in board.excluded.items()]


OVERALL_TEXT = (
    f"Ratios to {label_of(ALGORITHM)}, geometric means over environments, paired by seed; below 1 is better. Of "
    "algorithms for a single agent it is the regret of that agent."
)


def overall_rows(rows: Rows) -> list[tuple[Cell, ...]]:
    """A row for each algorithm over all environments."""
    return [
        (label_of(one.algorithm), one.environments, one.regret, one.rounds, one.megabytes, one.share)
        for one in standings(rows)
    ]


def place_rows(found: Sequence[Place]) -> list[tuple[Cell, ...]]:
    """A row for each algorithm on one environment."""
    return [(label_of(one.algorithm), one.agents, one.regret, one.rounds, one.megabytes, one.share) for one in found]


def environments_of(rows: Rows) -> dict[str, int]:
    """The environments in their order, with T."""
    return {row.environment: row.episodes for row in rows}


# ---------------------------------------------------------------------------------------------------- the document


def markdown(board: Board, rows: Rows) -> str:
    """The document."""
    parts = [f"# {TITLE}", "This page was written by `fed-ucbvi leaderboard --out DIR`."]
    parts += [_lines(paragraph) for paragraph in explanation(board, rows)]
    parts += ["Left out:", _items(left_out(board))]
    parts += ["Keep in mind:", _items(board.notes)] if board.notes else []
    parts += ["## Over all environments", _lines(OVERALL_TEXT), table_text(OVERALL, overall_rows(rows), ratio_text)]
    for environment, episodes in environments_of(rows).items():
        parts += [f"## {label_of(environment)}, T = {episodes:,}"]
        parts += [table_text(HERE, place_rows(places(rows, environment)), mean_text)]
    return "\n\n".join([*parts, HOW_TO_ADD, ""])


def _lines(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most 118 letters."""
    return textwrap.fill(text, 118, subsequent_indent=indent, break_on_hyphens=False)


def _items(texts: Sequence[str]) -> str:
    return "\n".join(_lines(f"- {text}", "  ") for text in texts)


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Cell]], text_of: Callable[[Interval], str]) -> str:
    """A table in Markdown; the last column is a share."""
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    for row in rows:
        cells = [text_of(cell) if isinstance(cell, Interval) else str(cell) for cell in row[:-1]]
        assert isinstance(row[-1], Interval)
        lines.append(f"| {' | '.join([*cells, share_text(row[-1])])} |")
    return "\n".join(lines)


def mean_text(cell: Interval) -> str:
    """A mean and its margin, three digits at least.

    >>> mean_text(Interval(312.4, 308.4, 316.4)), mean_text(Interval(30_000, 30_000, 30_000))
    ('312.4 \u00b1 4.0', '30,000 \u00b1 0')
    """
    digits = 0 if cell.mean >= 1000 else 1 if cell.mean >= 10 else 2
    return f"{cell.mean:,.{digits}f} \u00b1 {cell.high - cell.mean:,.{digits}f}"


def ratio_text(cell: Interval) -> str:
    """A ratio and the ends of its interval.

    >>> ratio_text(Interval(0.251, 0.2, 0.312)), ratio_text(Interval(1, 1, 1))
    ('0.25 [0.20, 0.31]', '1')
    """
    if cell.low == cell.high == 1:
        return "1"
    digits = 3 if cell.high < 0.1 else 2 if cell.high < 10 else 1 if cell.high < 100 else 0
    return f"{cell.mean:.{digits}f} [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"


def share_text(cell: Interval) -> str:
    """A share in per cent.

    >>> share_text(Interval(0.9991, 0.998, 1.0002))
    '99.9 \u00b1 0.1 %'
    """
    return f"{100 * cell.mean:.1f} \u00b1 {100 * (cell.high - cell.mean):.1f} %"


# --------------------------------------------------------------------------------------------------------- the page


def page(board: Board, rows: Rows) -> PageContent:
    """The same as a page, with regret against bytes on every environment."""
    kept = environments_of(rows)
    tables = [Table("overall", "Over all environments", OVERALL_TEXT, OVERALL, overall_rows(rows))]
    panels = []
    for environment, episodes in kept.items():
        found, label = places(rows, environment), label_of(environment)
        tables.append(Table(f"on_{environment}", f"{label}, T = {episodes:,}", "", HERE, place_rows(found)))
        panels.append(Panel(label, BYTES_LABEL, REGRET_LABEL, [_point(one) for one in found], x_log=True, y_log=True))
    figure = Figure(
        "regret_and_bytes",
        "Regret against bytes: the lower and the further left, the better",
        f"Means over runs; bars are the {INTERVAL_NAME}.",
        panels,
    )
    section = Section(
        "leaderboard", "What was measured", [*left_out(board), *board.notes], figures=[figure], tables=tables
    )
    return PageContent(TITLE, explanation(board, rows), [section])


def _point(place: Place) -> Series:
    return Series(
        label_of(place.algorithm),
        colour_of(place.algorithm),
        [place.megabytes.mean],
        **log_bars([place.regret]),
        marker="circle",
        line=False,
        band=INTERVAL_NAME,
    )
