"""Judgement of claims: every seed is a repetition of the experiment, and the verdict is the answer of most seeds.

A rule turns the runs of one seed, in all cells of an environment, into an outcome. An exact sign test decides if the
answer of most seeds, of all that are possible, is *holds*, and if it is at least *holds partly*. It looks at
the first 5, 10, 20 and 40 seeds and stops where the count of one answer reaches the bound of that look. The bounds
spend an error of 5 % over the looks (:data:`BOUNDS`): in an environment, an outcome better than the truth has a
probability of at most 5 %, and so has a worse one, whatever the law of regrets, also where rare seeds fail, for which
Student's interval of a mean does not account. The outcomes of environments are combined: *holds* and *does not hold*
are wrong with a probability of at most 5 %; *holds partly* rests on single environments. Where an open
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
The probability of ever reaching a bound is largest where half of all seeds meet the condition; tests compute it.
"""
ANY_CONDITION = 1e-6
NOT_PARTLY = 2.0
"""Shares of conditions from which on a claim holds partly: if any is met; and never."""
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
    """The answer of most seeds (None: open), with the number of those that say yes and of all."""

    answer: bool | None
    yes: int
    seeds: int

    @property
    def needed(self) -> int | None:
        """Approximate number of seeds that would decide, with probability 80 % if the observed share is true."""
        from scipy.special import ndtri

        share = self.yes / self.seeds if self.seeds else 0.5
        if share == 0.5:
            return None
        distance = ndtri(1 - ERROR) / 2 + ndtri(POWER) * math.sqrt(share * (1 - share))
        enough = math.ceil(float(distance / (share - 0.5)) ** 2)
        later_looks = [look for look in LOOKS if look > self.seeds]
        next_look = later_looks[0] if later_looks else self.seeds + 1
        return max(enough, next_look)


def majority(answers: Iterable[bool | None]) -> Majority:
    """The answer of the first look that decides; seeds after it, or after an unknown one, do not count.

    >>> majority([True] * 5), majority([True] * 4 + [False, None])
    (Majority(answer=True, yes=5, seeds=5), Majority(answer=None, yes=4, seeds=5))
    """
    known = list(takewhile(lambda answer: answer is not None, answers))
    for look, bound in zip(LOOKS, BOUNDS, strict=True):
        yes = known[:look].count(True)
        if len(known) >= look and max(yes, look - yes) >= bound:
            return Majority(answer=yes >= bound, yes=yes, seeds=look)
    return Majority(answer=None, yes=known.count(True), seeds=len(known))


Pairs = run_table.Pairs[Trace]
Cells = Mapping[str, Pairs]
"""The compared groups in each cell, by its name."""
Find = Callable[[Traces], "Finding | None"]
"""The finding from the runs of one environment; None if they cannot judge."""


def against(part: Traces, others: Traces, measure: Measure) -> list[Pairs]:
    """Each group of ``part`` beside those of ``others`` in the same cell."""
    found = []
    for group in part:
        for other in others.counterparts(group):
            pairs = group.paired(other, measure)
            if pairs.seeds:
                found.append(pairs)
    return found


class Condition(NamedTuple):
    """A condition on one cell: for each seed, a figure is at most a limit, or below it."""

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
        """True if the middle is within 5 % of the limit; an open figure is then reported as at the limit."""
        return abs(self.middle - self.limit) <= 0.05 * abs(self.limit)


def ratios_at_most(limit: float, cells: Cells, *, strictly: bool = False) -> list[Condition]:
    """For each cell the condition that a measure of a group is at most ``limit`` times the other's, or below."""
    conditions = []
    for where, pairs in cells.items():
        condition = Condition(
            where=where,
            figures=pairs.ratios,
            limit=limit,
            groups=(pairs.group, pairs.other),
            strictly=strictly,
        )
        conditions.append(condition)
    return conditions


class Judged(NamedTuple):
    """The outcome in an environment, the majority that decided it, and the seeds whose answer is not known."""

    outcome: Outcome
    majority: Majority
    unknown: Sequence[Seeds] = ()


class Claim(NamedTuple):
    """A claim: in a few words, in a sentence, its place, and the rule by which it is judged."""

    name: str
    text: str
    place: str
    rule: str


class Finding(NamedTuple):
    """The finding in one environment: the figures as a text, and in a few words as a line; notes on them.

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
    def all_conditions(self) -> list[Condition]:
        return [*self.conditions, *self.weaker]

    @property
    def most_disputed(self) -> Condition:
        """The condition on which the seeds are divided most evenly."""
        return max(self.all_conditions, key=lambda condition: condition.divided)

    def rank(self, seeds: Seeds, *, missing: bool) -> int:
        """The answer of a seed, as an index into :data:`RANKS`; conditions without a run count as ``missing``."""
        met = [condition.met(seeds, missing=missing) for condition in self.conditions]
        if all(met):
            return 2
        weaker = [condition.met(seeds, missing=missing) for condition in self.weaker]
        meets_weaker = len(weaker) > 0 and all(weaker)
        meets_share = sum(met) >= self.partly * len(met)
        return int(meets_share or meets_weaker)

    def judged(self) -> Judged:
        """The answer of most seeds. A seed that lacks runs counts where they could not change its answer."""
        every: dict[Seeds, None] = {}
        for condition in self.all_conditions:
            every.update(dict.fromkeys(condition.figures))
        least = {seeds: self.rank(seeds, missing=False) for seeds in every}
        most = {seeds: self.rank(seeds, missing=True) for seeds in every}
        for rank in (1, 2):
            answers: dict[Seeds, bool | None] = {}
            for seeds in every:
                is_certain = (least[seeds] >= rank) == (most[seeds] >= rank)
                answers[seeds] = least[seeds] >= rank if is_certain else None
            found = majority(answers.values())
            if found.answer is None:
                unknown = tuple(seeds for seeds, answer in answers.items() if answer is None)
                return Judged(outcome="undecided", majority=found, unknown=unknown)
            if not found.answer:
                return Judged(outcome=RANKS[rank - 1], majority=found)
        return Judged(outcome="holds", majority=found)

    def wanted(self, unknown: Sequence[Seeds]) -> list[tuple[Settings, tuple[int, ...]]]:
        """Further runs that would decide: all cells of the seeds that are unknown, or else those in dispute."""
        run_seeds = tuple(dict(seeds)["run"] for seeds in unknown)
        conditions = self.all_conditions
        if not unknown:
            conditions = [condition for condition in conditions if condition.divided] or conditions
        wanted = []
        for condition in conditions:
            for group in condition.groups:
                wanted.append((group.settings, run_seeds))
        return wanted


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """One outcome from those of several environments: the one that all have, or else "holds partly".

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
    numbers_of_seeds = [found.majority.seeds for found in judged.values()]
    seeds_text = f"{range_text(numbers_of_seeds, 0)} seeds"
    # Environments that leave the claim open, and the conditions in dispute there.
    open_names = []
    if outcome == "undecided":
        open_names = [name for name, found in judged.items() if found.outcome == "undecided"]
    disputed = {name: known[name].most_disputed for name in open_names}
    for name, condition in disputed.items():
        summary += (
            f". Open: {name}, {condition.where}, {signed(condition.middle)} against {signed(condition.limit)}, "
            f"met by {condition.yes} of {len(condition.figures)} seeds"
        )
        needed = judged[name].majority.needed
        if needed:
            seeds_text += f"; about {needed:,} would decide {name}"
        else:
            seeds_text += f"; on {name} they are divided evenly"
    if disputed and all(condition.near for condition in disputed.values()):
        outcome = "at the limit"
    # The environment that fewest further seeds would decide gets them.
    wanted: Sequence[tuple[Settings, tuple[int, ...]]] = ()
    if open_names:
        first = min(open_names, key=lambda name: judged[name].majority.needed or math.inf)
        wanted = known[first].wanted(judged[first].unknown)
    measured = []
    notes = [detail] if detail else []
    for name, finding in known.items():
        measured.append(f"{name}: {finding.text} ({_count(judged[name])}).")
        notes += [f"{name}: {note}." for note in finding.notes]
    return Verdict(
        claim=claim.text,
        place=claim.place,
        measured=" ".join(measured),
        rule=f"{claim.rule} {ERROR_TERM}",
        outcome=outcome,
        summary=summary,
        seeds=seeds_text,
        detail=" ".join(notes),
        name=claim.name,
        ours=OURS in claim.place.lower(),
        open=wanted,
    )


def fact(claim: Claim, found: Mapping[str, tuple[bool, str]], runs: str, detail: str = "") -> Verdict | None:
    """The verdict on a claim about all runs that were made, which needs no test: by environment, with the figures."""
    if not found:
        return None
    line = in_a_line({name: text for name, (_, text) in found.items()})
    outcome = combine("holds" if holds else "does not hold" for holds, _ in found.values())
    return Verdict(
        claim=claim.text,
        place=claim.place,
        measured=f"{line}.",
        rule=claim.rule,
        outcome=outcome,
        summary=line,
        seeds=runs,
        detail=detail,
        name=claim.name,
        ours=OURS in claim.place.lower(),
    )


def _count(found: Judged) -> str:
    _, yes, seeds = found.majority
    if found.outcome == "undecided":
        return f"undecided, {yes} of {seeds} seeds for the better outcome"
    return f"{found.outcome} with {max(yes, seeds - yes)} of {seeds} seeds"


def in_a_line(texts: Mapping[str, str]) -> str:
    """The texts of all environments in one line; words that all texts end with are written once.

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
