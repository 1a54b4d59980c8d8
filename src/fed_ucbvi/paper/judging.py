"""How a claim is judged: every seed is a repetition of the experiment, and the verdict is what most seeds say.

A rule turns the runs of one seed, in all cells of an environment, into an outcome. Whether most seeds, of all there
could be, say *holds*, and whether most say at least *holds partly*, is decided by an exact sign test. It looks at
the first 5, 10, 20 and 40 seeds and stops where the count of one answer reaches the bound of that look. The bounds
spend an error of 5 % over the looks (:data:`BOUNDS`): in an environment, an outcome better than the truth has a
probability of at most 5 %, and so has a worse one, whatever the law of regrets, also where rare seeds fail, which
Student's interval of a mean does not see. What the environments say is combined: a claim is said to hold, or not to
hold, wrongly with a probability of at most 5 %; *holds partly* rests on single environments. Where an open
environment could change the verdict, the claim is undecided, and that environment gets further seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from fed_ucbvi.paper.report.content import Outcome, Verdict
from fed_ucbvi.paper.report.traces import Group, Measure, Trace, Traces
from fed_ucbvi.results import run_table
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.run_table import Seeds, Settings
from fed_ucbvi.results.statistics import POWER

LOOKS = (5, 10, 20, 40)
"""Numbers of seeds at which a claim is judged."""
ERROR = 0.05
"""The largest probability of an outcome better than the truth, and likewise of a worse one."""
BOUNDS = (5, 9, 16, 28)
"""The count of equal answers that decides at each look.

Each is the least that spends at most 5/8, 6/8, 7/8 and all of the error up to its look; together they spend 4.49 %.
The probability of ever reaching a bound is largest where half of all seeds say yes; tests compute it exactly.
"""
ANY = 1e-6
NEVER = 2.0
"""Shares of conditions from which on a claim holds partly: if any is met; and not at all."""
RANKS: tuple[Outcome, ...] = ("does not hold", "holds partly", "holds")
ERROR_TERM = (
    "Each seed is judged by itself, in all cells; the outcome in an environment is what most seeds say, by an exact "
    "sign test after 5, 10, 20 and 40 seeds that spends an error of 5 % over these looks."
)
"""The end of every rule that is judged seed by seed."""
OURS = "beyond the paper"
"""Begins the place of a claim of ours, in small or capital letters."""
MINUS = "\N{MINUS SIGN}"


class Majority(NamedTuple):
    """Whether most seeds say yes (None: open), by how many of how many."""

    answer: bool | None
    yes: int
    seeds: int

    @property
    def needed(self) -> int | None:
        """About how many seeds would decide, with probability 80 % if the share found is the true one."""
        from scipy.special import ndtri

        share = self.yes / self.seeds if self.seeds else 0.5
        if share == 0.5:
            return None
        room = ndtri(1 - ERROR) / 2 + ndtri(POWER) * math.sqrt(share * (1 - share))
        enough = math.ceil(float(room / (share - 0.5)) ** 2)
        return max(enough, next((look for look in LOOKS if look > self.seeds), self.seeds + 1))


def majority(answers: Iterable[bool | None]) -> Majority:
    """The answer of the first look that gives one; the seeds after it, or after one that is unknown, do not count.

    >>> majority([True] * 5), majority([True] * 4 + [False, None])
    (Majority(answer=True, yes=5, seeds=5), Majority(answer=None, yes=4, seeds=5))
    """
    known = [*takewhile(lambda answer: answer is not None, answers)]
    for look, bound in zip(LOOKS, BOUNDS, strict=True):
        yes = known[:look].count(True)
        if len(known) >= look and max(yes, look - yes) >= bound:
            return Majority(yes >= bound, yes, look)
    return Majority(None, known.count(True), len(known))


Pairs = run_table.Pairs[Trace]
Cells = Mapping[str, Pairs]
"""What is compared in each cell, by its name."""
Find = Callable[[Traces], "Finding | None"]
"""What runs of one environment say; None if they cannot judge."""


def against(part: Traces, others: Traces, measure: Measure) -> list[Pairs]:
    """Each group of ``part`` beside those of ``others`` in the same cell."""
    both = [group.paired(other, measure) for group in part for other in others.counterparts(group)]
    return [pairs for pairs in both if pairs.seeds]


class Condition(NamedTuple):
    """A question about one cell: whether a figure is at most a limit, or below it, for each seed."""

    where: str
    figures: Mapping[Seeds, float]
    limit: float
    groups: Sequence[Group]
    strictly: bool = False

    def met(self, seeds: Seeds, *, missing: bool) -> bool:
        """The answer of a seed; ``missing`` if it has no run."""
        figure = self.figures.get(seeds)
        if figure is None:
            return missing
        if self.strictly:
            return figure < self.limit
        return figure <= self.limit

    @property
    def yes(self) -> int:
        return sum(self.met(seeds, missing=False) for seeds in self.figures)

    @property
    def divided(self) -> float:
        """The share of seeds in the minority."""
        return min(self.yes, len(self.figures) - self.yes) / len(self.figures)

    @property
    def middle(self) -> float:
        return float(np.median(list(self.figures.values())))

    @property
    def near(self) -> bool:
        """Whether the middle is within 5 % of the limit, which an open figure is then said to be at."""
        return abs(self.middle - self.limit) <= 0.05 * abs(self.limit)


def ratios_at_most(limit: float, cells: Cells, *, strictly: bool = False) -> list[Condition]:
    """For each cell whether a measure of a group is at most ``limit`` times the other's, or below."""
    return [Condition(where, one.ratios, limit, (one.group, one.other), strictly) for where, one in cells.items()]


class Judged(NamedTuple):
    """What most seeds say in an environment, the count that says it, and the seeds of which it is not known."""

    outcome: Outcome
    majority: Majority
    unknown: Sequence[Seeds] = ()


class Claim(NamedTuple):
    """What is judged: in a few words, in a sentence, where it is claimed, and when it holds."""

    name: str
    text: str
    place: str
    rule: str


class Finding(NamedTuple):
    """What is found in one environment: the figures as a text, and in a few words as a line; notes on them.

    A seed that meets all ``conditions`` says *holds*. One that meets at least the share ``partly`` of them says
    *holds partly*, and so does one that meets all ``weaker`` conditions, if there are any.
    """

    conditions: Sequence[Condition]
    text: str
    line: str
    partly: float = 0.5
    weaker: Sequence[Condition] = ()
    notes: Sequence[str] = ()

    @property
    def asked(self) -> list[Condition]:
        return [*self.conditions, *self.weaker]

    def rank(self, seeds: Seeds, *, missing: bool) -> int:
        """What a seed says, as a place in :data:`RANKS`, if conditions whose runs are missing are met, or not."""
        met, weaker = ([one.met(seeds, missing=missing) for one in part] for part in (self.conditions, self.weaker))
        if all(met):
            return 2
        return int(sum(met) >= self.partly * len(met) or (len(weaker) > 0 and all(weaker)))

    def judged(self) -> Judged:
        """What most seeds say. A seed that lacks runs counts where they could not change its answer."""
        every = dict.fromkeys(seeds for one in self.asked for seeds in one.figures)
        least, most = ([self.rank(seeds, missing=missing) for seeds in every] for missing in (False, True))
        for rank in (1, 2):
            both = [(low >= rank, high >= rank) for low, high in zip(least, most, strict=True)]
            answers = [low if low == high else None for low, high in both]
            found = majority(answers)
            if found.answer is None:
                unknown = tuple(seeds for seeds, answer in zip(every, answers, strict=True) if answer is None)
                return Judged("undecided", found, unknown)
            if not found.answer:
                return Judged(RANKS[rank - 1], found)
        return Judged("holds", found)

    def wanted(self, unknown: Sequence[Seeds]) -> list[tuple[Settings, tuple[int, ...]]]:
        """Where further runs would decide: all cells of the seeds that are unknown, or else those in dispute."""
        divided = [one for one in self.asked if one.divided] or self.asked
        if unknown:
            asked, seeds = (self.asked, tuple(dict(one)["run"] for one in unknown))
        else:
            asked, seeds = (divided, ())
        return [(group.settings, seeds) for one in asked for group in one.groups]


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """One outcome from those of several environments: what all say, or else "holds partly".

    An undecided environment makes the combined outcome undecided, unless the others settle it in any case.

    >>> combine(["holds", "does not hold"]), combine(["holds", "undecided"]), combine(["holds partly", "undecided"])
    ('holds partly', 'undecided', 'holds partly')
    """
    decided = {*outcomes}
    if "undecided" not in decided:
        return decided.pop() if len(decided) == 1 else "holds partly"
    decided.remove("undecided")
    if len(decided) > 1 or decided == {"holds partly"}:
        return "holds partly"
    return "undecided"


def judge(claim: Claim, table: Traces, find: Find, detail: str = "") -> Verdict | None:
    findings = {label_of(name): find(part) for name, part in table.parts("environment").items()}
    return verdict_of(claim, findings, detail)


def verdict_of(claim: Claim, findings: Mapping[str, Finding | None], detail: str = "") -> Verdict | None:
    known = {name: finding for name, finding in findings.items() if finding is not None}
    if not known:
        return None
    judged = {name: finding.judged() for name, finding in known.items()}
    outcome = combine(found.outcome for found in judged.values())
    summary = in_a_line({name: finding.line for name, finding in known.items()})
    seeds = f"{range_text([found.majority.seeds for found in judged.values()], 0)} seeds"
    open_ = [name for name, found in judged.items() if found.outcome == outcome == "undecided"]
    disputed = [max(known[name].asked, key=lambda one: one.divided) for name in open_]
    for name, which in zip(open_, disputed, strict=True):
        needed = judged[name].majority.needed
        summary += f". Open: {name}, {which.where}, {signed(which.middle)} against {signed(which.limit)}, met by "
        summary += f"{which.yes} of {len(which.figures)} seeds"
        seeds += f"; about {needed:,} would decide {name}" if needed else f"; on {name} they are divided evenly"
    if open_ and all(one.near for one in disputed):
        outcome = "at the limit"
    notes = [f"{name}: {note}." for name, finding in known.items() for note in finding.notes]
    measured = " ".join(f"{name}: {finding.text} ({_count(judged[name])})." for name, finding in known.items())
    first = min(open_, key=lambda name: judged[name].majority.needed or math.inf, default=None)
    wanted = () if first is None else known[first].wanted(judged[first].unknown)
    said = (
        f"{claim.rule} {ERROR_TERM}",
        outcome,
        summary,
        seeds,
        " ".join([*([detail] if detail else []), *notes]),
    )
    return Verdict(
        claim.text,
        claim.place,
        measured,
        *said,
        claim.name,
        OURS in claim.place.lower(),
        wanted,
    )


def fact(claim: Claim, found: Mapping[str, tuple[bool, str]], runs: str, detail: str = "") -> Verdict | None:
    """The verdict on a claim about all runs that were made, which needs no test: by environment, with the figures."""
    if not found:
        return None
    line = in_a_line({name: text for name, (_, text) in found.items()})
    outcome = combine("holds" if holds else "does not hold" for holds, _ in found.values())
    said = (claim.rule, outcome, line, runs, detail)
    return Verdict(
        claim.text,
        claim.place,
        f"{line}.",
        *said,
        claim.name,
        OURS in claim.place.lower(),
    )


def _count(found: Judged) -> str:
    _, yes, seeds = found.majority
    if found.outcome == "undecided":
        return f"undecided, {yes} of {seeds} seeds for the better outcome"
    return f"{found.outcome} with {max(yes, seeds - yes)} of {seeds} seeds"


def in_a_line(texts: Mapping[str, str]) -> str:
    """What is found in each environment; words that all texts end with are written once.

    >>> in_a_line({"GridWorld": "2 times FedQ's", "chain": "3 times FedQ's"})
    "GridWorld: 2; chain: 3 times FedQ's"
    """
    words = [text.split(" ") for text in texts.values()]
    same = 0
    while len(words) > 1 and same < min(map(len, words)) - 1 and len({one[-1 - same] for one in words}) == 1:
        same += 1
    short = [f"{name}: {' '.join(one[: len(one) - same])}" for name, one in zip(texts, words, strict=True)]
    return " ".join(["; ".join(short), *words[0][len(words[0]) - same :]])


def typical_text(cells: Cells) -> str:
    return range_text([pairs.typical for pairs in cells.values()])


def ratios_text(cells: Cells) -> str:
    means = range_text([pairs.of_means for pairs in cells.values()])
    return f"{typical_text(cells)} times (by means {means})"


def carried(cells: Cells) -> list[str]:
    """A note on the cell in which a few runs carry the ratio of means, if there is one."""

    def apart(pairs: Pairs) -> float:
        return abs(math.log(max(pairs.of_means, 1e-12) / max(pairs.typical, 1e-12)))

    where, worst = max(cells.items(), key=lambda cell: apart(cell[1]))
    if apart(worst) < math.log(1.25):
        return []
    lower = sum(ratio < 1 for ratio in worst.ratios.values())
    return [
        f"a few runs carry the means: at {where} their ratio is {worst.of_means:.2f}, that of the typical seed "
        f"{worst.typical:.2f}, and {lower} of {len(worst.seeds)} seeds are below 1"
    ]


def range_text(numbers: Sequence[float], digits: int = 2) -> str:
    """The least and the largest of some numbers.

    >>> range_text([0.25, 0.5]), range_text([3, 5, 4], 0)
    ('0.25 to 0.50', '3 to 5')
    """
    low = signed(min(numbers), digits)
    high = signed(max(numbers), digits)
    return low if low == high else f"{low} to {high}"


def signed(number: float, digits: int = 2) -> str:
    return f"{number:.{digits}f}".replace("-", MINUS)
