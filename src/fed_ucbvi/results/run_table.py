"""Runs by setting and seed: the one way in which runs are grouped, named, averaged and compared.

Runs that differ only in seeds form a group; labels name the settings in which groups differ. Runs of two groups form
a pair if all their seeds are equal, also those of the environment: they then had the same agents. A *measure* gives a
number for a run: for a :class:`~fed_ucbvi.results.run_data.RunData`, the trace of one, or a row of a table.
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

``label`` and ``environment_label`` are the labels of the first two.
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
    options = dict(about.environment)
    environment = current_name(str(options.pop("name", "custom")))
    eps_p_option = options.pop("eps_p", about.eps_p)
    if "liars" in options:
        options["liars"] = len(options["liars"])
    settings: dict[str, Any] = {
        "algorithm": about.algorithm,
        "label": about.label or label_of(about.algorithm),
        "environment": environment,
        "environment_label": about.environment_label or label_of(environment),
        "agents": about.agents,
        "episodes": about.episodes,
        "horizon": about.horizon,
        "states": about.states,
        "actions": about.actions,
    }
    if eps_p_option == about.eps_p:
        settings["eps_p"] = about.eps_p
    for name, value in options.items():
        is_size = value == settings.get(name)  # such as horizon, which is a setting already
        if not is_seed(name) and not is_size:
            settings[f"environment.{name}"] = value
    for name, value in about.parameters.items():
        settings[f"algorithm.{name}"] = value
    return settings


def computed_names(about: About) -> set[str]:
    """Names of settings that may have been computed from the seed of the environment: no option gives their value."""
    names = set(DRAWN)
    if "eps_p" not in about.environment:
        names.add("eps_p")
    return names


def seeds_of(about: About) -> Seeds:
    """All seeds: of the run and of its environment. Runs with the same seeds had the same agents."""
    options = sorted((name, value) for name, value in about.environment.items() if is_seed(name))
    return (("run", about.seed), *options)


def key_of(settings: Any) -> str:
    """A text that identifies settings, or the value of one: equal settings have equal keys."""
    return json.dumps(settings, sort_keys=True, default=str)


def shared(groups: Sequence[Settings]) -> dict[str, Any]:
    """The settings that all groups have in common.

    >>> shared([{"algorithm": "ucbvi", "agents": 2}, {"algorithm": "ucbvi", "agents": 5}])
    {'algorithm': 'ucbvi'}
    """
    first = groups[0]
    common = {}
    for name, value in first.items():
        key = key_of(value)
        if all(name in group and key_of(group[name]) == key for group in groups):
            common[name] = value
    return common


def apart(groups: Sequence[Settings]) -> list[dict[str, Any]]:
    """For each group, the settings in which it differs from others; different groups get different ones.

    A parameter is compared among groups with the same algorithm and label, an option or a size of the environment
    among those with the same environment.

    >>> groups = [{"algorithm": "fedq", "algorithm.c": 2.0}]
    >>> groups += [{"algorithm": "ucbvi", "algorithm.scale": scale, "algorithm.ties": "first"} for scale in (1, 2)]
    >>> apart(groups)[::2]
    [{'algorithm': 'fedq'}, {'algorithm': 'ucbvi', 'algorithm.scale': 2}]
    """
    names = all_names(groups)
    values: dict[Comparison, set[str | None]] = {}
    for group in groups:
        for name in names:
            value = key_of(group[name]) if name in group else None
            values.setdefault(_comparison(group, name), set()).add(value)
    found = []
    for group in groups:
        differing = [name for name in group if len(values[_comparison(group, name)]) > 1]
        found.append({name: group[name] for name in differing})
    return found


class Comparison(NamedTuple):
    """The groups among which a setting is compared: those with one algorithm or environment, if it belongs to one."""

    name: str
    owner: Any
    owner_label: Any


def _comparison(group: Settings, name: str) -> Comparison:
    owner = "environment" if name in ENVIRONMENT_SIZES else name.rpartition(".")[0]
    return Comparison(name=name, owner=group.get(owner), owner_label=group.get(LABELS.get(owner, "")))


def all_names(groups: Iterable[Settings]) -> list[str]:
    """The names of the settings of all groups, in order of appearance."""
    return list(dict.fromkeys(name for group in groups for name in group))


def parted(groups: Sequence[Settings], by: By) -> tuple[list[Settings], list[Settings]]:
    """For each group, the settings that ``by`` names, and the others.

    An algorithm includes its label and parameters, an environment its label, options, sizes and eps_p.

    >>> parted([{"algorithm": "ucbvi", "algorithm.scale": 2, "agents": 5}], "algorithm")
    ([{'algorithm': 'ucbvi', 'algorithm.scale': 2}], [{'agents': 5}])
    """
    names = all_names(groups)
    short_names = [name.partition(".")[2] for name in names if "." in name]
    known = dict.fromkeys([*names, *short_names])
    chosen: set[str] = set()
    for wanted in [by] if isinstance(by, str) else by:
        if wanted not in known:
            raise unknown_name("setting", wanted, [name for name in known if "." not in name])
        chosen |= {name for name in names if _belongs_to(name, wanted)}
    parts: list[Settings] = []
    rests: list[Settings] = []
    for group in groups:
        parts.append({name: value for name, value in group.items() if name in chosen})
        rests.append({name: value for name, value in group.items() if name not in chosen})
    return parts, rests


def _belongs_to(name: str, wanted: str) -> bool:
    """Return True if ``wanted`` is the setting ``name``, its name without owner, or the owner itself."""
    owner, _, short_name = name.partition(".")
    if wanted in (name, owner, short_name):
        return True
    if wanted == "environment" and name in (*ENVIRONMENT_SIZES, "eps_p"):
        return True
    return name == LABELS.get(wanted)


def names_of(
    parts: Sequence[Settings], alone: str, write: Write | None = None, own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Labels by the key of each part, different for different parts: the settings in which they differ.

    The label of a single part is its algorithm and environment, or else ``alone``; if that is empty, so is the label.
    For ``write`` see :func:`label`. ``own`` replaces labels, written with ``write`` or without it, by others.

    >>> scales = [{"algorithm": "fed-ucbvi", "algorithm.bonus_scale": scale} for scale in (0.1, 0.2)]
    >>> list(names_of(scales, "").values())
    ['bonus_scale = 0.1', 'bonus_scale = 0.2']
    """
    distinct = {key_of(part): part for part in parts}
    if len(distinct) == 1:
        ((key, part),) = distinct.items()
        return {key: _name_of_single_part(part, alone)}
    replaced = own or {}
    differing = apart(list(distinct.values()))
    written = [label(settings, write) for settings in differing]
    count = Counter(written)
    names = {}
    for place, (key, settings, text) in enumerate(zip(distinct, differing, written, strict=True), 1):
        unique = f"{text} ({place})" if count[text] > 1 else text
        plain = label(settings)
        names[key] = replaced.get(unique, replaced.get(plain, unique))
    return names


def _name_of_single_part(part: Settings, alone: str) -> str:
    if not alone:
        return ""
    named = {name: part[name] for name in (*LABELS, *LABELS.values()) if name in part}
    return label(named) or alone


def label(settings: Settings, write: Write | None = None) -> str:
    """Settings in words, each by ``write`` or by :func:`setting_text`; control characters are escaped.

    >>> label({"algorithm": "fed-ucbvi", "agents": 20, "algorithm.bonus_scale": 0.1})
    'Fed-UCBVI, M = 20, bonus_scale = 0.1'
    >>> label({"algorithm": "fed-ucbvi", "label": "ours", "environment": "gridworld"})
    'ours on GridWorld'
    """
    write = write or setting_text
    owners = []
    for name, label_name in LABELS.items():
        value = settings.get(name, "")
        text = settings.get(label_name, "")
        if value or text:
            owners.append(str(text or label_of(value)))
    parts = [" on ".join(owners)]
    for name, value in settings.items():
        if name not in LABELS and name not in LABELS.values():
            parts.append(write(name, value))
    text = ", ".join(part for part in parts if part)
    return one_line(text)


def setting_text(name: str, value: Any) -> str:
    """One setting in words.

    >>> setting_text("episodes", 30_000), setting_text("environment.success", 0.8)
    ('T = 30,000', 'success = 0.8')
    """
    if isinstance(value, float):
        text = "unknown" if math.isnan(value) else f"{value:g}"
    elif isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    else:
        text = str(value)
    short_name = name.partition(".")[2] or name
    return f"{LETTERS.get(name, short_name)} = {shortened(text, 24)}"


class Pairs(NamedTuple, Generic[R]):
    """A measure of a group, x, and of another, y, over the seeds of both, in the order of the first."""

    group: RunGroup[R]
    other: RunGroup[R]
    seeds: Sequence[Seeds]
    x: Sequence[float]
    y: Sequence[float]

    @property
    def ratios(self) -> dict[Seeds, float]:
        """``x / y`` by seeds; two zeros have the ratio 1."""
        found = {}
        for seeds, x, y in zip(self.seeds, self.x, self.y, strict=True):
            if y:
                found[seeds] = x / y
            else:
                found[seeds] = math.inf if x else 1.0
        return found

    @property
    def typical(self) -> float:
        """Median of the ratios."""
        return float(np.median(list(self.ratios.values())))

    @property
    def of_means(self) -> float:
        """Ratio of the means."""
        total = np.sum(self.y)
        return float(np.sum(self.x) / total) if total else math.inf


@dataclass(frozen=True, eq=False)
class RunGroup(Generic[R]):
    """Runs that differ only in seeds: their common settings, and seeds and runs in the same order."""

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
        """A measure of this group and of another one, over the seeds of both."""
        mine = self.by_seed(measure)
        others = other.by_seed(measure)
        both = [seeds for seeds in mine if seeds in others]
        return Pairs(
            group=self,
            other=other,
            seeds=both,
            x=[mine[seeds] for seeds in both],
            y=[others[seeds] for seeds in both],
        )

    def check_seeds(self, name: str) -> None:
        """Raise if two runs have the same seeds; ``name`` is the group's name in the message."""
        seeds, count = Counter(self.seeds).most_common(1)[0]
        if count > 1:
            text = ", ".join(f"{owner} {value}" for owner, value in seeds)
            raise InputError(
                f"two runs of '{name}' have the same seeds ({text}); each seed counts once, so leave one of them out."
            )


class Division(NamedTuple):
    """A group's settings in two parts, and the name of each part among the groups of a table."""

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

        ``labels`` replace the labels of algorithms and groups, by the name or the label that they would have.
        """
        own = labels or {}
        if len(set(own.values())) < len(own):
            raise InputError("two of the given labels are the same; give each algorithm or group one of its own.")
        settings_by_key: dict[str, Settings] = {}
        seeds_by_key: dict[str, list[Seeds]] = {}
        runs_by_key: dict[str, list[R]] = {}
        for settings, seeds, run in rows:
            key = key_of(settings)
            settings_by_key.setdefault(key, _with_own_label(settings, own))
            seeds_by_key.setdefault(key, []).append(seeds)
            runs_by_key.setdefault(key, []).append(run)
        groups = [
            RunGroup(settings=settings, seeds=seeds_by_key[key], runs=runs_by_key[key])
            for key, settings in settings_by_key.items()
        ]
        return cls(groups, own)

    @staticmethod
    def of(
        runs: Iterable[RunData], labels: Mapping[str, str] | None = None, by: By | None = None
    ) -> RunTable[RunData]:
        """A table of finished runs; for labels see :meth:`of_rows`.

        A value that an environment computes from its seed, such as the eps_p of a list of MDPs, does not separate
        groups, unless ``by`` names it or two runs with the same seeds differ in it.
        """
        found = checked_runs(runs)
        named = [by] if isinstance(by, str) else by or ()
        settings = _chosen_settings(found, named)
        seeds = [seeds_of(run.about) for run in found]
        return RunTable.of_rows(zip(settings, seeds, found, strict=True), labels)

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
        if not self.groups:
            return []
        _, rests = parted(self.settings, by)
        found: dict[str, list[RunGroup[R]]] = {}
        for group, rest in zip(self.groups, rests, strict=True):
            found.setdefault(key_of(rest), []).append(group)
        return [RunTable(groups, self.own_labels) for groups in found.values()]

    def counterparts(self, group: RunGroup[R], by: By = "algorithm") -> list[RunGroup[R]]:
        """The groups of this table that differ from ``group`` in nothing but what ``by`` names."""
        _, rests = parted([group.settings, *self.settings], by)
        wanted = key_of(rests[0])
        return [other for other, rest in zip(self.groups, rests[1:], strict=True) if key_of(rest) == wanted]

    def in_common(self, measure: Callable[[R], float]) -> FloatArray:
        """``[group, seed]``: the measure, over the seeds that all groups have, in the order of the first group."""
        common = self.common_seeds()
        rows = []
        for group in self.groups:
            figures = group.by_seed(measure)
            rows.append([figures[seeds] for seeds in common])
        return np.array(rows, dtype=np.float64)

    def common_seeds(self) -> list[Seeds]:
        """The seeds that all groups have, in the order of the first."""
        if not self.groups:
            return []
        common = set.intersection(*(set(group.seeds) for group in self.groups))
        return [seeds for seeds in self.groups[0].seeds if seeds in common]

    def divide(self, by: By, alone: tuple[str, str] = ("", ""), write: Write | None = None) -> list[Division]:
        """For each group the part that ``by`` names and the rest, with labels that name the differences.

        ``alone`` are the labels where there is only one part, or only one rest; see :func:`names_of`. A label that a
        user gives must be that of an algorithm, of a part or of a rest.
        """
        parts, rests = parted(self.settings, by)
        name_alone, rest_name_alone = alone
        names = names_of(parts, name_alone, write, self.own_labels)
        rest_names = names_of(rests, rest_name_alone, write, self.own_labels)
        self._check_own_labels({*names.values(), *rest_names.values()})
        divisions = []
        for part, rest in zip(parts, rests, strict=True):
            division = Division(
                part=part,
                name=names[key_of(part)],
                rest=rest,
                rest_name=rest_names[key_of(rest)],
            )
            divisions.append(division)
        return divisions

    def _check_own_labels(self, names: set[str]) -> None:
        """Raise unless each label that a user gives has replaced one, in ``names`` or of an algorithm."""
        found = names | {group["label"] for group in self.groups}
        for name, text in self.own_labels.items():
            if text not in found:
                algorithms = {group["algorithm"] for group in self.groups}
                raise unknown_name("algorithm or group", name, algorithms | found)


def _with_own_label(settings: Settings, own: Mapping[str, str]) -> Settings:
    """Settings with the label that a user gives to the algorithm, by its name or its label."""
    for name in ("algorithm", "label"):
        if settings.get(name) in own:
            return {**settings, "label": own[settings[name]]}
    return settings


def _chosen_settings(runs: Sequence[RunData], named: Sequence[str]) -> list[dict[str, Any]]:
    """The settings of each run without those computed from seeds, but for those that are ``named``.

    Where two runs with the same seeds and the same other settings differ in such a value, somebody has chosen it, and
    all runs of the problem keep theirs.
    """
    all_settings = []
    plain_settings = []
    problems = []
    computed_values: dict[tuple[str, Seeds], set[str]] = {}
    problems_with_choice: set[str] = set()
    for run in runs:
        settings = settings_of(run.about)
        names = {name for name in computed_names(run.about) if not _is_named(name, named)}
        plain = {name: value for name, value in settings.items() if name not in names}
        computed = {name: value for name, value in settings.items() if name in names}
        problem = key_of({name: value for name, value in plain.items() if not _is_of_algorithm(name)})
        values = computed_values.setdefault((key_of(plain), seeds_of(run.about)), set())
        values.add(key_of(computed))
        if len(values) > 1:
            problems_with_choice.add(problem)
        all_settings.append(settings)
        plain_settings.append(plain)
        problems.append(problem)
    found = []
    for settings, plain, problem in zip(all_settings, plain_settings, problems, strict=True):
        found.append(settings if problem in problems_with_choice else plain)
    return found


def _is_named(name: str, named: Sequence[str]) -> bool:
    """Return True if ``named`` has a setting, with its owner or without."""
    return name in named or name.partition(".")[2] in named


def _is_of_algorithm(name: str) -> bool:
    return name in ("algorithm", "label") or name.startswith("algorithm.")


def checked_runs(runs: Iterable[Any]) -> list[RunData]:
    """The runs as a list; an error if it is empty or contains anything else."""
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
