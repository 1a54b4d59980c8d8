"""Runs by setting and seed: the one way in which runs are grouped, averaged and compared.

Runs that differ only in seeds form a group. Runs of two groups form a pair if all their seeds are equal, also those
of the environment: they then had the same agents. A *measure* is a function that gives a number for a run.

A run is whatever a measure understands: a :class:`~fed_ucbvi.results.run_data.RunData`, the trace of one, or a row of
a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.settings import Seeds, Settings, Write, key_of, names_of, parted, seeds_of, settings_of
from fed_ucbvi.results.statistics import Summary, summarise

R = TypeVar("R")
By = str | Sequence[str]
"""Names of settings; ``algorithm`` and ``environment`` include all that belongs to them (:func:`parted`)."""


@dataclass(frozen=True, eq=False)
class RunGroup(Generic[R]):
    """Runs that differ only in seeds: what they share, and seeds and runs in the same order."""

    settings: Settings
    seeds: Sequence[Seeds]
    runs: Sequence[R]

    def __getitem__(self, name: str) -> Any:
        """A setting; None if there is none of this name."""
        return self.settings.get(name)

    def __len__(self) -> int:
        return len(self.runs)

    def samples(self, measure: Callable[[R], float]) -> FloatArray:
        return np.array([measure(run) for run in self.runs], dtype=np.float64)

    def by_seed(self, measure: Callable[[R], float]) -> dict[Seeds, float]:
        return {seeds: measure(run) for seeds, run in zip(self.seeds, self.runs, strict=True)}

    def summary(self, measure: Callable[[R], float]) -> Summary:
        """Mean, median, spread and share of failing seeds."""
        return summarise(self.samples(measure))

    def paired(self, other: RunGroup[R], measure: Callable[[R], float]) -> tuple[list[float], list[float]]:
        """The measure of this group and of another, over the seeds that both have, in the order of this one."""
        others = dict(zip(other.seeds, other.runs, strict=True))
        both = [(run, others[seeds]) for seeds, run in zip(self.seeds, self.runs, strict=True) if seeds in others]
        return [measure(run) for run, _ in both], [measure(run) for _, run in both]

    def check_seeds(self, name: str) -> None:
        """Raise if two runs have the same seeds; ``name`` is the group's name in the message."""
        seeds, count = Counter(self.seeds).most_common(1)[0]
        if count > 1:
            text = ", ".join(f"{owner} {value}" for owner, value in seeds)
            raise InputError(
                f"two runs of '{name}' have the same seeds ({text}); each seed counts once, so leave one of them out."
            )


class Division(NamedTuple):
    """A group's settings in two parts, and what each part is called among the groups of a table."""

    part: Settings
    name: str
    rest: Settings
    rest_name: str


@dataclass(frozen=True, eq=False)
class RunTable(Generic[R]):
    """Groups of runs, in the order in which their settings first appear.

    >>> rows = [({"algorithm": name, "agents": M}, (("run", seed),), 10 * M + seed)
    ...     for name in ("fedq", "ucbvi") for M in (2, 5) for seed in (1, 2)]
    >>> table = RunTable.of_rows(rows)
    >>> table.values("agents"), [group.summary(float).mean for group in table.having(agents=5)]
    ([2, 5], [51.5, 51.5])
    >>> [[group["agents"] for group in part] for part in table.split_rest("agents")]
    [[2, 5], [2, 5]]
    """

    groups: Sequence[RunGroup[R]]
    own_labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_rows(
        cls, rows: Iterable[tuple[Settings, Seeds, R]], labels: Mapping[str, str] | None = None
    ) -> RunTable[R]:
        """A table from settings, seeds and run of each row.

        Args:
            rows: in the order that groups, and runs in a group, are to have.
            labels: what to call an algorithm or a group, by its name or by what it would be called otherwise.
        """
        own = labels or {}
        if len(set(own.values())) < len(own):
            raise InputError("two of the given labels are the same; give each algorithm or group one of its own.")
        groups: dict[str, RunGroup[R]] = {}
        for settings, seeds, run in rows:
            group = groups.setdefault(key_of(settings), RunGroup(_relabelled(settings, own), [], []))
            group.seeds.append(seeds)  # type: ignore[attr-defined]
            group.runs.append(run)  # type: ignore[attr-defined]
        return cls(list(groups.values()), own)

    @staticmethod
    def of(runs: Iterable[RunData], labels: Mapping[str, str] | None = None) -> RunTable[RunData]:
        """A table of finished runs; for labels see :meth:`of_rows`."""
        found = checked_runs(runs)
        return RunTable.of_rows(((settings_of(run.about), seeds_of(run.about), run) for run in found), labels)

    def __iter__(self) -> Iterator[RunGroup[R]]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def settings(self) -> list[Settings]:
        return [group.settings for group in self.groups]

    @property
    def runs(self) -> list[R]:
        return [run for group in self.groups for run in group.runs]

    def having(self, **wanted: Any) -> RunTable[R]:
        return self.where(lambda group: all(group[name] == value for name, value in wanted.items()))

    def where(self, condition: Callable[[RunGroup[R]], bool]) -> RunTable[R]:
        return RunTable([group for group in self.groups if condition(group)], self.own_labels)

    def values(self, name: str) -> list[Any]:
        """The values that a setting takes, in ascending order."""
        return sorted({group[name] for group in self.groups})

    def split_rest(self, by: By) -> list[RunTable[R]]:
        """Tables of the groups that differ in nothing but what ``by`` names."""
        found: dict[str, list[RunGroup[R]]] = {}
        for group, rest in zip(self.groups, parted(self.settings, by)[1] if self.groups else (), strict=True):
            found.setdefault(key_of(rest), []).append(group)
        return [RunTable(groups, self.own_labels) for groups in found.values()]

    def counterparts(self, group: RunGroup[R], by: By = "algorithm") -> list[RunGroup[R]]:
        """The groups of this table that differ from ``group`` in nothing but what ``by`` names."""
        _, (mine, *others) = parted([group.settings, *self.settings], by)
        return [other for other, rest in zip(self.groups, others, strict=True) if key_of(rest) == key_of(mine)]

    def in_common(self, measure: Callable[[R], float]) -> FloatArray:
        """``[group, seed]``: the measure, over the seeds that all groups have, in the order of the first group."""
        figures, common = [group.by_seed(measure) for group in self.groups], self.common_seeds()
        return np.array([[one[seeds] for seeds in common] for one in figures], dtype=np.float64)

    def common_seeds(self) -> list[Seeds]:
        """The seeds that all groups have, in the order of the first."""
        several = [set(group.seeds) for group in self.groups]
        return [seeds for seeds in self.groups[0].seeds if all(seeds in one for one in several)] if several else []

    def divide(self, by: By, alone: tuple[str, str] = ("", ""), write: Write | None = None) -> list[Division]:
        """For each group what ``by`` names and the rest, each with a label that says in what groups differ.

        Args:
            by: names of settings.
            alone: the labels where there is only one part, or only one rest; see :func:`names_of`.
            write: how a setting is written.
        """
        both = parted(self.settings, by)
        names, rest_names = (
            names_of(parts, other, write, self.own_labels) for parts, other in zip(both, alone, strict=True)
        )
        self._check_labels({*names.values(), *rest_names.values()})
        return [
            Division(part, names[key_of(part)], rest, rest_names[key_of(rest)])
            for part, rest in zip(*both, strict=True)
        ]

    def _check_labels(self, names: set[str]) -> None:
        """Raise if a label that a user gives belongs to no algorithm, and is none of these ``names`` of groups."""
        found = {*names, *(group["label"] for group in self.groups)}
        for key, text in self.own_labels.items():
            if text not in found:
                known = {*(group["algorithm"] for group in self.groups), *found}
                raise unknown_name("algorithm or group", key, known)


def checked_runs(runs: Iterable[Any]) -> list[RunData]:
    """The runs as a list; an error if it is empty or holds anything else."""
    found = list(runs)
    if not found:
        raise InputError("the list of runs is empty; at least one run is needed.")
    for entry in found:
        if not isinstance(entry, RunData):
            hint = "; load_runs gives pairs, of which the second is the run" if isinstance(entry, tuple) else ""
            raise InputError(f"a list of runs is needed, but it holds a {type(entry).__name__}{hint}.")
    return found


def _relabelled(settings: Settings, own: Mapping[str, str]) -> Settings:
    """The settings with the label that a user gives to the algorithm, by its name or by the label it has."""
    found = dict(settings)
    for name in ("algorithm", "label"):
        if found.get(name) in own:
            found["label"] = own[found[name]]
    return found
