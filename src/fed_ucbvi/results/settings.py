"""The settings of runs. Runs that differ only in seeds form a group; labels say in what groups differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fed_ucbvi.core.errors import unknown_name
from fed_ucbvi.core.text import shortened
from fed_ucbvi.environments import current_name
from fed_ucbvi.results.about import About
from fed_ucbvi.results.style import label_of

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
MAX_VALUE = 24
"""Characters of a value in a label."""


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
    settings |= {name: getattr(about, name) for name in ("agents", "episodes", "horizon", "states", "actions")}
    if given == about.eps_p:
        settings["eps_p"] = about.eps_p
    if "liars" in environment:
        environment["liars"] = len(environment["liars"])
    settings |= {
        f"environment.{name}": value
        for name, value in environment.items()
        if not is_seed(name) and value != settings.get(name)
    }
    return settings | {f"algorithm.{name}": value for name, value in about.parameters.items()}


def seeds_of(about: About) -> Seeds:
    """All seeds: of the run and of its environment. Runs with the same seeds had the same agents."""
    options = sorted((name, value) for name, value in about.environment.items() if is_seed(name))
    return (("run", about.seed), *options)


def key_of(settings: Settings) -> str:
    """A text that identifies settings: equal for equal ones."""
    return json.dumps(settings, sort_keys=True, default=str)


def shared(groups: Sequence[Settings]) -> dict[str, Any]:
    """The settings that all groups have in common.

    >>> shared([{"algorithm": "ucbvi", "agents": 2}, {"algorithm": "ucbvi", "agents": 5}])
    {'algorithm': 'ucbvi'}
    """
    return {name: value for name, value in groups[0].items() if all(_same(g, name, value) for g in groups)}


def apart(groups: Sequence[Settings]) -> list[dict[str, Any]]:
    """For each group the settings in which it differs from others; different groups get different ones.

    A parameter is compared among groups with the same algorithm and label, an option or a size of the environment
    among those with the same environment.

    >>> groups = [{"algorithm": "fedq", "algorithm.c": 2.0}]
    >>> groups += [{"algorithm": "ucbvi", "algorithm.scale": scale, "algorithm.ties": "first"} for scale in (1, 2)]
    >>> apart(groups)[::2]
    [{'algorithm': 'fedq'}, {'algorithm': 'ucbvi', 'algorithm.scale': 2}]
    """
    texts = [{name: key_of({name: value}) for name, value in group.items()} for group in groups]
    names = dict.fromkeys(name for group in groups for name in group)
    kinds: dict[tuple[Any, ...], set[str | None]] = {}
    for group, known in zip(groups, texts, strict=True):
        for name in names:
            kinds.setdefault(_among(group, name), set()).add(known.get(name))
    return [{name: group[name] for name in group if len(kinds[_among(group, name)]) > 1} for group in groups]


def _among(group: Settings, name: str) -> tuple[Any, ...]:
    """Alike for groups among which a setting is compared."""
    owner = "environment" if name in ENVIRONMENT_SIZES else name.rpartition(".")[0]
    return (name, group.get(owner), group.get(LABELS.get(owner, "")))


def _same(group: Settings, name: str, value: Any) -> bool:
    return name in group and key_of({name: group[name]}) == key_of({name: value})


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
        chosen |= {name for name in names if wanted in (name, name.partition(".")[2])}
        chosen |= {name for name in names if name == LABELS.get(wanted) or name.startswith(f"{wanted}.")}
        chosen |= {name for name in names if wanted == "environment" and name in (*ENVIRONMENT_SIZES, "eps_p")}
    return (
        [{name: value for name, value in one.items() if name in chosen} for one in groups],
        [{name: value for name, value in one.items() if name not in chosen} for one in groups],
    )


def names_of(
    parts: Sequence[Settings], alone: str, write: Write | None = None, own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The label of each part, by its key; for a single part its algorithm and environment, or else ``alone``.

    An empty ``alone`` is the label of a single part in any case.
    """
    distinct = {key_of(part): part for part in parts}
    if len(distinct) > 1:
        return dict(zip(distinct, labels(list(distinct.values()), write, own), strict=True))
    ((key, part),) = distinct.items()
    who = label({name: part[name] for name in (*LABELS, *LABELS.values()) if name in part}) if alone else ""
    return {key: who or alone}


def labels(groups: Sequence[Settings], write: Write | None = None, own: Mapping[str, str] | None = None) -> list[str]:
    """Different labels for different groups: the settings that set them apart; for ``write`` see :func:`label`.

    ``own`` replaces labels by others; they may be written with or without ``write``.

    >>> labels([{"algorithm": "fed-ucbvi", "algorithm.bonus_scale": scale} for scale in (0.1, 0.2)])
    ['bonus_scale = 0.1', 'bonus_scale = 0.2']
    """
    differing, given = apart(groups), own or {}
    texts, plain = [label(one, write) for one in differing], [label(one) for one in differing]
    count = Counter(texts)
    texts = [f"{text} ({place})" if count[text] > 1 else text for place, text in enumerate(texts, 1)]
    return [given.get(text, given.get(other, text)) for text, other in zip(texts, plain, strict=True)]


def label(settings: Settings, write: Write | None = None) -> str:
    """Settings in words, each by ``write`` or by :func:`setting_text`; characters that do not print are replaced.

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
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def setting_text(name: str, value: Any) -> str:
    """One setting in words.

    >>> setting_text("episodes", 30_000), setting_text("environment.success", 0.8)
    ('T = 30,000', 'success = 0.8')
    """
    if isinstance(value, float):
        text = f"{value:g}" if value == value else "unknown"
    else:
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return f"{LETTERS.get(name, name.partition('.')[2] or name)} = {shortened(text, MAX_VALUE)}"
