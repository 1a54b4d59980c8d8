"""Runs by setting and seed: the one way in which runs are grouped, named, averaged and compared.

Runs that differ only in seeds form a group; labels say in what groups differ. Runs of two groups form a pair if all
their seeds are equal, also those of the environment: they then had the same agents. A *measure* gives a number for a
run: for a :class:`~fed_ucbvi.results.run_data.RunData`, the trace of one, or a row of a table.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from fed_ucbvi.core.errors import InputError, unknown_name
from fed_ucbvi.core.text import one_line, shortened
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.environments import current_name
from fed_ucbvi.results.about import About, label_of
from fed_ucbvi.results.run_data import RunData
from fed_ucbvi.results.statistics import Estimate, Summary, mean_interval, summarise

R = TypeVar("R")
By = str | Sequence[str]
"""Names of settings; ``algorithm`` and ``environment`` include all that belongs to them (:func:`parted`)."""
Settings = Mapping[str, Any]
"""Algorithm, environment and sizes by name; parameters are ``algorithm.NAME``, options ``environment.NAME``.

``label`` and ``environment_label`` say how the first two are written.
"""

Seeds = tuple[tuple[str, int], ...]
"""The seed of a run (``run``) and those of its environment, by name."""

Write = Callable[[str, Any], str]
"""One setting in words, from its name and value."""

LETTERS = {"agents": "M", "episodes": "T", "horizon": "H", "states": "S", "actions": "A"}
ENVIRONMENT_SIZES = ("horizon", "states", "actions")
LABELS = {"algorithm": "label", "environment": "environment_label"}
DRAWN = ("environment.best", "environment.reward_range", "environment.reward_offset", "environment.reward_scale")
"""Options that an environment computes from its seed where they are not given."""


def is_seed(name: str) -> bool:
    return name == "seed" or name.endswith("_seed")


def settings_of(about: About) -> dict[str, Any]:
    """Everything that is recorded about a run except seeds and driver.

    Where agents differ by other means than eps_p (such as ``spread``), eps_p is not a setting but an outcome, which
    changes with the seed of the environment. Which agents lie also depends on a seed, but their number is a setting.
    """
    environment = dict(about.environment)
    given = environment.pop("eps_p", about.eps_p)
    name = current_name(str(environment.pop("name", "custom")))
    settings: dict[str, Any] = {"algorithm": about.algorithm, "label": about.label or label_of(about.algorithm)}
    settings |= {"environment": name, "environment_label": about.environment_label or label_of(name)}
    settings |= {name: getattr(about, name) for name in ("agents", "episodes", *ENVIRONMENT_SIZES)}
    if given == about.eps_p:
        settings["eps_p"] = about.eps_p
    if "liars" in environment:
        environment["liars"] = len(environment["liars"])
    options = {name: value for name, value in environment.items() if not is_seed(name)}
    settings |= {f"environment.{name}": value for name, value in options.items() if value != settings.get(name)}
    return settings | {f"algorithm.{name}": value for name, value in about.parameters.items()}


def computed_names(about: About) -> set[str]:
    """Names of settings that may have been computed from the seed of the environment: no option gives their value."""
    return {*DRAWN, *(() if "eps_p" in about.environment else ("eps_p",))}


def seeds_of(about: About) -> Seeds:
    """All seeds: of the run and of its environment. Runs with the same seeds had the same agents."""
    options = sorted((name, value) for name, value in about.environment.items() if is_seed(name))
    return (("run", about.seed), *options)


def key_of(settings: Any) -> str:
    """A text that identifies settings, or the value of one: equal for equal ones."""
    return json.dumps(settings, sort_keys=True, default=str)


def shared(groups: Sequence[Settings]) -> dict[str, Any]:
    """The settings that all groups have in common.

    >>> shared([{"algorithm": "ucbvi", "agents": 2}, {"algorithm": "ucbvi", "agents": 5}])
    {'algorithm': 'ucbvi'}
    """
    first, *others = groups
    everywhere = [name for name in first if all(name in group for group in others)]
    return {name: first[name] for name in everywhere if len({key_of(group[name]) for group in groups}) == 1}


def apart(groups: Sequence[Settings]) -> list[dict[str, Any]]:
    """For each group the settings in which it differs from others; different groups get different ones.

    A parameter is compared among groups with the same algorithm and label, an option or a size of the environment
    among those with the same environment.

    >>> groups = [{"algorithm": "fedq", "algorithm.c": 2.0}]
    >>> groups += [{"algorithm": "ucbvi", "algorithm.scale": scale, "algorithm.ties": "first"} for scale in (1, 2)]
    >>> apart(groups)[::2]
    [{'algorithm': 'fedq'}, {'algorithm': 'ucbvi', 'algorithm.scale': 2}]
    """
    names = dict.fromkeys(name for group in groups for name in group)
    kinds: dict[tuple[Any, ...], set[str | None]] = {}
    for group in groups:
        for name in names:
            kinds.setdefault(_among(group, name), set()).add(key_of(group[name]) if name in group else None)
    return [{name: group[name] for name in group if len(kinds[_among(group, name)]) > 1} for group in groups]


def _among(group: Settings, name: str) -> tuple[Any, ...]:
    """Alike for groups among which a setting is compared."""
    owner = "environment" if name in ENVIRONMENT_SIZES else name.rpartition(".")[0]
    return (name, group.get(owner), group.get(LABELS.get(owner, "")))


def parted(groups: Sequence[Settings], by: str | Sequence[str]) -> tuple[list[Settings], list[Settings]]:
    """Of each group the settings that ``by`` names, and the others.

    An algorithm includes its label and parameters, an environment its label, options, sizes and eps_p.

    >>> parted([{"algorithm": "ucbvi", "algorithm.scale": 2, "agents": 5}], "algorithm")
    ([{'algorithm': 'ucbvi', 'algorithm.scale': 2}], [{'agents': 5}])
    """
    names = list(dict.fromkeys(name for one in groups for name in one))
    known = dict.fromkeys([*names, *(name.partition(".")[2] for name in names if "." in name)])
    chosen: set[str] = set()
    for wanted in [by] if isinstance(by, str) else by:
        if wanted not in known:
            raise unknown_name("setting", wanted, [name for name in known if "." not in name])
        its_own = {LABELS.get(wanted), *((*ENVIRONMENT_SIZES, "eps_p") if wanted == "environment" else ())}
        chosen |= {name for name in names if name in its_own or wanted in (name, *name.split(".", 1))}
    return (
        [{name: value for name, value in one.items() if name in chosen} for one in groups],
        [{name: value for name, value in one.items() if name not in chosen} for one in groups],
    )


def names_of(
    parts: Sequence[Settings], alone: str, write: Write | None = None, own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """By the key of each part its label, different for different parts: the settings that set it apart.

    The label of a single part is its algorithm and environment, or else ``alone``; if that is empty, so is the label.
    For ``write`` see :func:`label`. ``own`` replaces labels, written with ``write`` or without it, by others.

    >>> scales = [{"algorithm": "fed-ucbvi", "algorithm.bonus_scale": scale} for scale in (0.1, 0.2)]
    >>> list(names_of(scales, "").values())
    ['bonus_scale = 0.1', 'bonus_scale = 0.2']
    """
    distinct = {key_of(part): part for part in parts}
    given = own or {}
    if len(distinct) == 1:
        ((key, part),) = distinct.items()
        who = label({name: part[name] for name in (*LABELS, *LABELS.values()) if name in part}) if alone else ""
        return {key: who or alone}
    differing = apart(list(distinct.values()))
    texts = [label(one, write) for one in differing]
    count = Counter(texts)
    texts = [f"{text} ({place})" if count[text] > 1 else text for place, text in enumerate(texts, 1)]
    plain = [label(one) for one in differing]
    written = zip(distinct, texts, plain, strict=True)
    return {key: given.get(text, given.get(other, text)) for key, text, other in written}


def label(settings: Settings, write: Write | None = None) -> str:
    """Settings in words, each by ``write`` or by :func:`setting_text`; control characters are escaped.

    >>> label({"algorithm": "fed-ucbvi", "agents": 20, "algorithm.bonus_scale": 0.1})
    'Fed-UCBVI, M = 20, bonus_scale = 0.1'
    >>> label({"algorithm": "fed-ucbvi", "label": "ours", "environment": "gridworld"})
    'ours on GridWorld'
    """
    names = [*LABELS, *LABELS.values()]
    known = [(settings.get(name, ""), settings.get(written, "")) for name, written in LABELS.items()]
    who = " on ".join(str(written or label_of(name)) for name, written in known if name or written)
    write = write or setting_text
    others = [write(name, settings[name]) for name in settings if name not in names]
    text = ", ".join(part for part in (who, *others) if part)
    return one_line(text)


def setting_text(name: str, value: Any) -> str:
    """One setting in words.

    >>> setting_text("episodes", 30_000), setting_text("environment.success", 0.8)
    ('T = 30,000', 'success = 0.8')
    """
    if isinstance(value, float):
        text = f"{value:g}" if value == value else "unknown"
    else:
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return f"{LETTERS.get(name, name.partition('.')[2] or name)} = {shortened(text, 24)}"


class Pairs(NamedTuple, Generic[R]):
    """A measure of a group, x, and of another, y, over the seeds that both have, in the order of the first."""

    group: RunGroup[R]
    other: RunGroup[R]
    seeds: Sequence[Seeds]
    x: Sequence[float]
    y: Sequence[float]

    @property
    def ratios(self) -> dict[Seeds, float]:
        both = zip(self.seeds, self.x, self.y, strict=True)
        return {seeds: x / y if y else math.inf if x else 1.0 for seeds, x, y in both}

    @property
    def typical(self) -> float:
        return float(np.median(list(self.ratios.values())))

    @property
    def of_means(self) -> float:
        return float(np.sum(self.x) / np.sum(self.y)) if np.sum(self.y) else math.inf


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

    def mean(self, measure: Callable[[R], float]) -> float:
        return float(self.samples(measure).mean())

    def estimate(self, measure: Callable[[R], float]) -> Estimate:
        """The mean with its 95 % interval as on a logarithmic axis."""
        return Estimate.of(mean_interval(self.samples(measure)))

    def summary(self, measure: Callable[[R], float]) -> Summary:
        return summarise(self.samples(measure))

    def paired(self, other: RunGroup[R], measure: Callable[[R], float]) -> Pairs[R]:
        mine = self.by_seed(measure)
        others = other.by_seed(measure)
        both = [seeds for seeds in mine if seeds in others]
        return Pairs(self, other, both, [mine[seeds] for seeds in both], [others[seeds] for seeds in both])

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
        """A table from settings, seeds and run of each row; groups, and runs in a group, keep the order of rows.

        ``labels`` say what to call an algorithm or a group, by its name or by what it would be called otherwise.
        """
        own = labels or {}
        if len(set(own.values())) < len(own):
            raise InputError("two of the given labels are the same; give each algorithm or group one of its own.")
        groups: dict[str, RunGroup[R]] = {}
        for settings, seeds, run in rows:
            known = [settings[name] for name in ("algorithm", "label") if settings.get(name) in own]
            named = {**settings, "label": own[known[0]]} if known else settings
            group = groups.setdefault(key_of(settings), RunGroup(named, [], []))
            group.seeds.append(seeds)  # type: ignore[attr-defined]
            group.runs.append(run)  # type: ignore[attr-defined]
        return cls(list(groups.values()), own)

    @staticmethod
    def of(
        runs: Iterable[RunData], labels: Mapping[str, str] | None = None, by: By | None = None
    ) -> RunTable[RunData]:
        """A table of finished runs; for labels see :meth:`of_rows`.

        What an environment computes from its seed, such as the eps_p of a list of MDPs, does not separate groups,
        unless ``by`` names it or two runs with the same seeds differ in it.
        """
        found = checked_runs(runs)
        named = [by] if isinstance(by, str) else by or ()
        return RunTable.of_rows(zip(_given_settings(found, named), _all_seeds(found), found, strict=True), labels)

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

    def parts(self, name: str) -> dict[Any, RunTable[R]]:
        """The groups by the value of a setting, in the order in which values appear."""
        return {value: self.having(**{name: value}) for value in dict.fromkeys(group[name] for group in self.groups)}

    def ordered(self, name: str) -> RunTable[R]:
        return RunTable(sorted(self.groups, key=lambda group: group[name]), self.own_labels)

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
        figures = [group.by_seed(measure) for group in self.groups]
        common = self.common_seeds()
        return np.array([[one[seeds] for seeds in common] for one in figures], dtype=np.float64)

    def common_seeds(self) -> list[Seeds]:
        """The seeds that all groups have, in the order of the first."""
        several = [set(group.seeds) for group in self.groups]
        return [seeds for seeds in self.groups[0].seeds if all(seeds in one for one in several)] if several else []

    def divide(self, by: By, alone: tuple[str, str] = ("", ""), write: Write | None = None) -> list[Division]:
        """For each group what ``by`` names and the rest, each with a label that says in what groups differ.

        ``alone`` are the labels where there is only one part, or only one rest; see :func:`names_of`. A label that a
        user gives must be that of an algorithm, of a part or of a rest.
        """
        both = parted(self.settings, by)
        sides = zip(both, alone, strict=True)
        names, rest_names = (names_of(parts, other, write, self.own_labels) for parts, other in sides)
        found = {*names.values(), *rest_names.values(), *(group["label"] for group in self.groups)}
        for key, text in self.own_labels.items():
            if text not in found:
                algorithms = {group["algorithm"] for group in self.groups}
                raise unknown_name("algorithm or group", key, algorithms | found)
        pairs = zip(*both, strict=True)
        return [Division(part, names[key_of(part)], rest, rest_names[key_of(rest)]) for part, rest in pairs]


def _all_seeds(runs: Sequence[RunData]) -> list[Seeds]:
    return [seeds_of(run.about) for run in runs]


def _given_settings(runs: Sequence[RunData], named: Sequence[str]) -> list[dict[str, Any]]:
    """The settings of each run without those computed from seeds, but for those that are ``named``."""
    every = [settings_of(run.about) for run in runs]
    given: list[dict[str, Any]] = []
    problems: list[str] = []
    values: dict[tuple[str, str, Seeds], set[str]] = {}
    chosen: set[str] = set()
    for run, settings in zip(runs, every, strict=True):
        computed = {name for name in computed_names(run.about) if not {name, name.partition(".")[2]} & {*named}}
        plain = {name: value for name, value in settings.items() if name not in computed}
        problem = key_of({name: plain[name] for name in plain if not _is_of_algorithm(name)})
        found = values.setdefault((problem, key_of(plain), seeds_of(run.about)), set())
        found.add(key_of({name: settings[name] for name in settings if name in computed}))
        if len(found) > 1:  # the seeds are the same, so somebody has chosen the values
            chosen.add(problem)
        given.append(plain)
        problems.append(problem)
    both = zip(problems, every, given, strict=True)
    return [settings if problem in chosen else plain for problem, settings, plain in both]


def _is_of_algorithm(name: str) -> bool:
    return name in ("algorithm", "label") or name.startswith("algorithm.")


def checked_runs(runs: Iterable[Any]) -> list[RunData]:
    """The runs as a list; an error if it is empty or holds anything else."""
    found = list(runs)
    if not found:
        raise InputError("the list of runs is empty; at least one run is needed.")
    for entry in found:
        if not isinstance(entry, RunData):
            hint = "; load_runs gives pairs, of which the second is the run" if isinstance(entry, tuple) else ""
            raise InputError(f"a list of runs is needed, but it holds a {type(entry).__name__}{hint}.")
    if len({run.units for run in found}) > 1:
        raise InputError("the figures of these runs are in different units; pass each of them through Run.in_units.")
    return found
