"""Flags of the command line: names, placeholders and headings of fields, and the reading of their texts.

Defaults and help texts of specifications stand beside their fields, in :mod:`fed_ucbvi.specifications`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any

from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import declared, help_of, json_or_text
from fed_ucbvi.specifications.algorithm import AlgorithmSpec
from fed_ucbvi.specifications.problem import AGENTS, ProblemSpec
from fed_ucbvi.specifications.run import RunOptions
from fed_ucbvi.specifications.texts import read_field, read_parameters

PROBLEM = "The problem"
ALGORITHM = "The algorithm"
PROMISES = "Do no harm, prove the gain"
CLUSTER = "Cluster"
OUTPUT = "Running and results"
ENVIRONMENT_METAVAR = "NAME|FILE|MODULE:ATTRIBUTE"
ALGORITHM_METAVAR = "NAME|MODULE:ATTRIBUTE"
DEFAULT_AGENTS = f"{AGENTS}, or that of your own environment"


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Spelling, help text and parser of a field, an option or an argument of a command.

    Args:
        value: the default.
        metavar: the placeholder for the value in help; empty for a switch.
        help: the help text.
        panel: the heading in help.
        name: the flag, if it is not the field's name.
        default: the default in words, where the value does not say it.
        read: the function from the text that was given to the field's value, where its type does not say how.
        names: the names that shells complete.
        is_argument: True for an argument, False for an option.
    """

    value: Any = None
    metavar: str = ""
    help: str = ""
    panel: str | None = None
    name: str = ""
    default: str | None = None
    read: Callable[[Any], Any] | None = None
    names: Callable[[], list[str]] | None = None
    is_argument: bool = False


FlagTable = Mapping[str, Flag]
"""Flags of the fields of a specification, by name; defaults and help texts are taken from the fields."""


def flag(value: Any, metavar: str, help: str, *, panel: str | None = None, **more: Any) -> Any:
    """A field of a dataclass of options with its default and its :class:`Flag`."""
    made = Flag(value=value, metavar=metavar, help=help, panel=panel, **more)
    return field(default=value, metadata={"flag": made})


def flags_of(kind: Any, table: FlagTable | None = None) -> dict[str, Flag]:
    """The flag of each field of a dataclass.

    Args:
        kind: a specification, or a dataclass whose fields are made by :func:`flag`.
        table: the flags of a specification that is not part of :data:`FLAGS`.
    """
    if table is None and kind not in FLAGS:
        return {one.name: one.metadata["flag"] for one in fields(kind)}
    written_as = FLAGS[kind] if table is None else table
    hints = declared(kind)
    flags = {}
    for one in fields(kind):
        value = None if one.default is MISSING else one.default
        flags[one.name] = replace(written_as[one.name], value=value, help=help_of(hints[one.name]))
    return flags


def read_fields(kind: Any, given: Mapping[str, Any], table: FlagTable | None = None) -> dict[str, Any]:
    """Values of the fields of a specification from texts; other values are left as they are.

    >>> read_fields(ProblemSpec, {"sizes": "8,4,10", "agents": "3"})
    {'sizes': (8, 4, 10), 'agents': 3}
    >>> read_fields(AlgorithmSpec, {"name": "fed-ucbvi", "parameters": ["nu=none"]})
    {'name': 'fed-ucbvi', 'parameters': {'nu': None}}
    """
    flags = FLAGS[kind] if table is None else table
    values = dict(given)
    for name, value in given.items():
        read = flags[name].read
        if read is not None and isinstance(value, str | list):
            values[name] = read(value)
        elif isinstance(value, str):
            values[name] = read_field(kind, name, value)
    if kind is AlgorithmSpec and values.get("parameters"):
        algorithm = values.get("name", defaults.ALGORITHM)
        values["parameters"] = read_parameters(algorithm, values["parameters"])
    return values


def written(name: str, flag: Flag) -> str:
    """The flag of a field as it is typed."""
    return flag.name or f"--{name.removesuffix('_').replace('_', '-')}"


def environment_names() -> list[str]:
    from fed_ucbvi.environments import REGISTRY

    return list(REGISTRY)


def algorithm_names() -> list[str]:
    from fed_ucbvi.algorithms import ALGORITHMS as REGISTRY

    return list(REGISTRY)


def pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dictionary; dashes in keys may stand for underscores.

    >>> pairs("--option", ["bonus-scale=2"])
    {'bonus_scale': '2'}
    """
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not sign or not key:
            raise InputError(f"{flag} takes KEY=VALUE, got '{text}'.")
        if key in values:
            raise InputError(f"{flag} gives {key} twice.")
        values[key] = value.strip()
    return values


def low_and_high(flag: str, text: str) -> tuple[float, float]:
    """``LOW,HIGH`` as two numbers.

    >>> low_and_high("--reward-range", "-1,1")
    (-1.0, 1.0)
    """
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError(f"{flag} takes two numbers as LOW,HIGH, got '{text}'.") from None
    return low, high


def names_in(text: str) -> tuple[str, ...]:
    """``A,B,...`` as a tuple.

    >>> names_in("a, b")
    ('a', 'b')
    """
    return tuple(part.strip() for part in text.split(","))


def _sizes(text: str) -> tuple[int, ...]:
    """``S,A,H`` as three numbers."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 3 or min(numbers) < 1:
        raise InputError(f"--sizes takes three whole numbers above 0 as S,A,H, got '{text}'.")
    return numbers


def _environment_options(texts: Iterable[str]) -> dict[str, object]:
    """``KEY=JSON`` texts as a dictionary."""
    return {key: json_or_text(key, text) for key, text in pairs("--env-option", texts).items()}


PROBLEM_FLAGS: FlagTable = {
    "environment": Flag(
        metavar=ENVIRONMENT_METAVAR,
        panel=PROBLEM,
        name="--env",
        default=defaults.ENVIRONMENT,
        names=environment_names,
    ),
    "environment_options": Flag(
        metavar="KEY=JSON",
        panel=PROBLEM,
        name="--env-option",
        read=_environment_options,
    ),
    "sizes": Flag(metavar="S,A,H", panel=PROBLEM, read=_sizes),
    "bins": Flag(metavar="FILE", panel=PROBLEM),
    "agents": Flag(metavar="M", panel=PROBLEM, default=DEFAULT_AGENTS),
    "eps_p": Flag(metavar="X", panel=PROBLEM, default="0"),
    "env_seed": Flag(metavar="N", panel=PROBLEM),
    "random_rewards": Flag(
        panel=PROBLEM,
        name="--random-rewards/--fixed-rewards",
        default="random with --collection live",
    ),
    "liars": Flag(metavar="X", panel=PROBLEM),
    "attack": Flag(metavar="NAME", panel=PROBLEM),
}
ALGORITHM_FLAGS: FlagTable = {
    "name": Flag(metavar=ALGORITHM_METAVAR, panel=ALGORITHM, name="--algorithm", names=algorithm_names),
    "parameters": Flag(
        metavar="KEY=VALUE",
        panel=ALGORITHM,
        name="--option",
        read=partial(pairs, "--option"),
    ),
    "label": Flag(metavar="TEXT", panel=ALGORITHM),
}
RUN_FLAGS: FlagTable = {
    "episodes": Flag(metavar="T", panel=PROBLEM),
    "seed": Flag(metavar="N", panel=ALGORITHM),
    "warm_start": Flag(metavar="PATH", panel=PROBLEM),
    "incumbent": Flag(metavar="FILE|MODULE:ATTRIBUTE", panel=PROMISES),
    "loss": Flag(metavar="X", panel=PROMISES, default="0.05"),
    "until_gap": Flag(metavar="X", panel=PROMISES),
    "return_range": Flag(
        metavar="LOW,HIGH",
        panel=PROMISES,
        read=partial(low_and_high, "--return-range"),
    ),
    "driver": Flag(metavar="NAME", panel=OUTPUT),
    "fleets": Flag(metavar="NAME", panel=CLUSTER),
    "address": Flag(metavar="HOST:PORT", panel=CLUSTER, default="Ray is started on this machine"),
    "fleet_count": Flag(metavar="N", panel=CLUSTER, default="one per core"),
    "checkpoint": Flag(metavar="DIR", panel=OUTPUT),
    "checkpoint_every": Flag(metavar="K", panel=OUTPUT),
    "out": Flag(metavar="DIR", panel=OUTPUT),
    "overwrite": Flag(panel=OUTPUT),
}
FLAGS: Mapping[Any, FlagTable] = {
    ProblemSpec: PROBLEM_FLAGS,
    AlgorithmSpec: ALGORITHM_FLAGS,
    RunOptions: RUN_FLAGS,
}
