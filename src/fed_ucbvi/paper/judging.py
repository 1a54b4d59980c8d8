"""How a claim is judged from runs: comparisons paired by seed, with an error term, and a rule that combines them.

A comparison asks whether the mean of x, over seeds, is at most the mean of y. It is answered by the 95 % interval of
the mean of ``x - y`` (:func:`fed_ucbvi.results.statistics.paired_difference`): yes if the interval is at or below 0,
no if it lies above, and *open* if 0 is inside. Each interval is for one comparison. So of many comparisons whose true
difference is at the limit, about one in forty is answered wrongly on either side.

A rule turns the answers into an outcome. It is applied twice: once every open comparison counts as yes, once as no.
If both outcomes are the same, that is the outcome. Otherwise the claim is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fed_ucbvi.report.content import Outcome, Verdict
from fed_ucbvi.results.statistics import paired_difference

DECIDED: tuple[Outcome, ...] = ("holds", "holds partly", "does not hold")
ERROR_TERM = (
    "Every comparison is paired by seed and counts only if the 95 % interval of the mean difference says so. A claim "
    "is undecided if comparisons that are open could change the outcome."
)
"""Part of every rule that compares means."""


class Comparison(NamedTuple):
    """Whether one mean is at most another.

    Attributes:
        answer: None if the interval leaves it open.
        leaning: the answer by the means alone, without the interval.
        seeds: how many pairs there are.
        needed: about how many pairs would give an answer; None if unknown.
        one_run: whether leaving out a single pair reverses which mean is lower.
    """

    answer: bool | None
    leaning: bool
    seeds: int
    needed: int | None
    one_run: bool

    @property
    def open(self) -> bool:
        """Whether there is no answer."""
        return self.answer is None


def compare(x: npt.ArrayLike, y: npt.ArrayLike, *, strictly: bool = False) -> Comparison:
    """Whether the mean of ``x`` is at most that of ``y``, or below it; entry k of both belongs to the same seed.

    >>> compare([1.0, 2.0, 3.0], [4.0, 5.0, 7.0]).answer, compare([1.0, 9.0], [2.0, 3.0]).answer
    (True, None)
    """
    found = paired_difference(x, y)
    apart = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    one_run = False
    if found.seeds > 1:
        without = (apart.sum() - apart) / (found.seeds - 1)
        one_run = bool((np.sign(without) * np.sign(found.estimate) < 0).any())
    leaning = found.estimate < 0 or (found.estimate == 0 and not strictly)
    yes, no = (found.high < 0, found.low >= 0) if strictly else (found.high <= 0, found.low > 0)
    if yes or no:
        return Comparison(yes, leaning, found.seeds, None, one_run)
    needed = found.seeds_needed
    return Comparison(None, leaning, found.seeds, None if needed is None else max(needed, found.seeds + 1), one_run)


class Ruling(NamedTuple):
    """The result of a rule.

    Attributes:
        outcome: by the rule.
        seeds: the smallest and the largest number of pairs of a comparison.
        needed: about how many pairs would decide an undecided outcome; None if unknown.
    """

    outcome: Outcome
    seeds: tuple[int, int]
    needed: int | None = None


def decide(rule: Callable[..., Outcome], *groups: Sequence[Comparison]) -> Ruling:
    """Apply a rule on yes and no to groups of comparisons, some of which may be open.

    The rule must not give a worse outcome when a no becomes a yes. To find how many pairs would decide, open
    comparisons that n pairs would close are given the answer of their means; the smallest n that settles the outcome
    is taken.

    >>> sure, open_ = compare([1, 2], [8, 9]), compare([1, 9], [2, 3])
    >>> decide(grade, [sure, sure]).outcome, decide(grade, [sure, open_]).outcome
    ('holds', 'undecided')
    """
    everything = [one for group in groups for one in group]
    seeds = (min(one.seeds for one in everything), max(one.seeds for one in everything))
    outcome = _outcome(rule, groups)
    if outcome != "undecided":
        return Ruling(outcome, seeds)
    for number in sorted({one.needed for one in everything if one.needed is not None}):
        closed = [
            [
                one._replace(answer=one.leaning) if one.needed is not None and one.needed <= number else one
                for one in group
            ]
            for group in groups
        ]
        if _outcome(rule, closed) != "undecided":
            return Ruling(outcome, seeds, number)
    return Ruling(outcome, seeds)


def _outcome(rule: Callable[..., Outcome], groups: Sequence[Sequence[Comparison]]) -> Outcome:
    worst = rule(*([one.answer is True for one in group] for group in groups))
    best = rule(*([one.answer is not False for one in group] for group in groups))
    return worst if worst == best else "undecided"


def grade(answers: Sequence[bool], *, most: float = 0.5) -> Outcome:
    """Holds if all answers are true, partly if at least the share ``most`` of them is.

    >>> grade([True, True]), grade([True, False]), grade([True, False, False])
    ('holds', 'holds partly', 'does not hold')
    """
    share = sum(answers) / len(answers)
    return "holds" if share == 1 else "holds partly" if share >= most else "does not hold"


def all_or_none(answers: Sequence[bool]) -> Outcome:
    """Holds if all answers are true, and otherwise does not hold."""
    return "holds" if all(answers) else "does not hold"


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """One outcome from those of several environments: what all say, or else "holds partly".

    An undecided environment makes the combined outcome undecided, unless the others settle it in any case.

    >>> combine(["holds", "does not hold"]), combine(["holds", "undecided"]), combine(["holds partly", "undecided"])
    ('holds partly', 'undecided', 'holds partly')
    """
    given = list(outcomes)
    possible: set[Outcome] = set()
    for resolved in product(*(DECIDED if outcome == "undecided" else (outcome,) for outcome in given)):
        possible.add(resolved[0] if len(set(resolved)) == 1 else "holds partly")
    return possible.pop() if len(possible) == 1 else "undecided"


class Finding(NamedTuple):
    """The finding in one environment.

    Attributes:
        ruling: by the rule.
        text: the figures.
        line: the figures in a few words.
        notes: what a reader should know besides.
    """

    ruling: Ruling
    text: str
    line: str
    notes: Sequence[str] = ()

    @property
    def outcome(self) -> Outcome:
        """The outcome."""
        return self.ruling.outcome


def verdict_of(
    claim: str, place: str, rule: str, findings: Mapping[str, Finding | None], *, detail: str = ""
) -> Verdict | None:
    """The verdict on a claim from the findings of all environments; None if there is no finding."""
    known = {name: finding for name, finding in findings.items() if finding is not None}
    if not known:
        return None
    measured = " ".join(f"{name}: {finding.text}." for name, finding in known.items())
    outcomes = [finding.outcome for finding in known.values()]
    if len(set(outcomes)) > 1:
        measured += " So: " + "; ".join(f"{name}: {finding.outcome}" for name, finding in known.items()) + "."
    notes = [f"{name}: {note}." for name, finding in known.items() for note in finding.notes]
    return Verdict(
        claim=claim,
        place=place,
        measured=measured,
        rule=rule,
        outcome=combine(outcomes),
        summary="; ".join(f"{name}: {finding.line}" for name, finding in known.items()),
        seeds=seeds_text(known),
        detail=" ".join([*([detail] if detail else []), *notes]),
    )


def seeds_text(findings: Mapping[str, Finding]) -> str:
    """How many seeds there are, and how many would decide where that is open.

    >>> seeds_text({"GridWorld": Finding(Ruling("undecided", (3, 3), 43), "", "")})
    '3 seeds; about 43 would decide GridWorld'
    """
    counts = [count for finding in findings.values() for count in finding.ruling.seeds]
    parts = [f"{range_of(counts)} seed{'' if max(counts) == 1 else 's'}"]
    for name, finding in findings.items():
        if finding.outcome == "undecided":
            needed = finding.ruling.needed
            parts.append(
                f"about {needed:,} would decide {name}"
                if needed is not None
                else f"how many would decide {name} cannot be said from these"
            )
    return "; ".join(parts)


def range_of(counts: Sequence[int]) -> str:
    """The least and the largest of whole numbers.

    >>> range_of([5]), range_of([3, 4, 5])
    ('5', '3 to 5')
    """
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
