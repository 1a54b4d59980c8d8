"""Flags of the command line: names, placeholders and headings of the fields of a run, and the reading of texts.

Defaults and help texts stand beside the fields, in :mod:`fed_ucbvi.run_spec`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import Any

from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import declared, help_of, json_or_text
from fed_ucbvi.run_spec import AGENTS, FederationRules, NodeTerms, RunSpec

PROBLEM = "The problem"
ALGORITHM = "The algorithm"
PROMISES = "Do no harm, prove the gain"
CLUSTER = "Cluster"
NETWORK = "The network"
FAULTS = "When things go wrong"
OUTPUT = "Running and results"
NAME = "NAME|FILE|MODULE:ATTRIBUTE"
USUAL_AGENTS = f"{AGENTS}, or that of your own environment"


@dataclass(frozen=True)
class Flag:
    """How a field, an option or an argument of a command is written, explained, and read.

    Args:
        value: the default.
        metavar: the placeholder for the value in help; empty for a switch.
        help: the help text.
        panel: the heading in help.
        name: the flag, if it is not the field's name.
        default: the default in words, where the value does not say it.
        read: the function from the text that was given to the field's value, where Typer does not convert it.
        names: the names that shells complete.
        is_argument: True for an argument, False for an option.
    """

    value: Any
    metavar: str
    help: str
    panel: str | None = None
    name: str = ""
    default: str | None = None
    read: Callable[[Any], Any] | None = None
    names: Callable[[], list[str]] | None = None
    is_argument: bool = False


def flag(value: Any, *given: Any, **more: Any) -> Any:
    """A field of a dataclass of options with its default and its :class:`Flag`."""
    return field(default=value, metadata={"flag": Flag(value, *given, **more)})


def shown(metavar: str, panel: str, **more: Any) -> Flag:
    """The flag of a field whose default and help text are declared elsewhere."""
    return Flag(None, metavar, "", panel, **more)


def flags_of(kind: Any) -> dict[str, Flag]:
    """The flag of each field of a dataclass, from the tables below or, for options of commands, from the field."""
    if kind not in FLAGS:
        return {one.name: one.metadata["flag"] for one in fields(kind)}
    hints = declared(kind)
    flags = {}
    for one in fields(kind):
        value = None if one.default is MISSING else one.default
        flags[one.name] = replace(FLAGS[kind][one.name], value=value, help=help_of(hints[one.name]))
    return flags


def read_fields(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of fields from texts of the command line or of a configuration; other values are left as they are.

    >>> read_fields(RunSpec, {"sizes": "8,4,10", "parameters": ["nu=none"], "agents": 3})
    {'sizes': (8, 4, 10), 'parameters': {'nu': 'none'}, 'agents': 3}
    """
    flags = FLAGS.get(kind, {})
    values = dict(given)
    for name, value in given.items():
        read = flags[name].read if name in flags else None
        if read is not None and isinstance(value, str | list):
            values[name] = read(value)
    return values


def written(name: str, flag: Flag) -> str:
    """The flag of a field as it is typed."""
    return flag.name or f"--{name.removesuffix('_').replace('_', '-')}"


def environment_names() -> list[str]:
    from fed_ucbvi.environments import REGISTRY

    return list(REGISTRY)


def algorithm_names() -> list[str]:
    from fed_ucbvi.algorithms import REGISTRY

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


def _sizes(text: str) -> tuple[int, ...]:
    """``S,A,H`` as three numbers."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 3 or min(numbers) < 1:
        raise InputError(f"--sizes takes three whole numbers above 0 as S,A,H, got '{text}'.")
    return numbers


def _names(text: str) -> tuple[str, ...]:
    """``A,B,...`` as a tuple."""
    return tuple(part.strip() for part in text.split(","))


def _environment_options(texts: Iterable[str]) -> dict[str, object]:
    """``KEY=JSON`` texts as a dictionary."""
    return {key: json_or_text(key, text) for key, text in pairs("--env-option", texts).items()}


RUN_FLAGS: Mapping[str, Flag] = {
    "environment": shown(NAME, PROBLEM, name="--env", default=defaults.ENVIRONMENT, names=environment_names),
    "environment_options": shown("KEY=JSON", PROBLEM, name="--env-option", read=_environment_options),
    "sizes": shown("S,A,H", PROBLEM, read=_sizes),
    "bins": shown("FILE", PROBLEM),
    "agents": shown("M", PROBLEM, default=USUAL_AGENTS),
    "episodes": shown("T", PROBLEM),
    "eps_p": shown("X", PROBLEM, default="0"),
    "env_seed": shown("N", PROBLEM),
    "random_rewards": shown(
        "", PROBLEM, name="--random-rewards/--fixed-rewards", default="random with --collection live"
    ),
    "liars": shown("X", PROBLEM),
    "attack": shown("NAME", PROBLEM),
    "algorithm": shown("NAME|MODULE:ATTRIBUTE", ALGORITHM, names=algorithm_names),
    "parameters": shown("KEY=VALUE", ALGORITHM, name="--option", read=partial(pairs, "--option")),
    "seed": shown("N", ALGORITHM),
    "label": shown("TEXT", ALGORITHM),
    "warm_start": shown("PATH", PROBLEM),
    "incumbent": shown("FILE|MODULE:ATTRIBUTE", PROMISES),
    "loss": shown("X", PROMISES, default="0.05"),
    "until_gap": shown("X", PROMISES),
    "return_range": shown("LOW,HIGH", PROMISES, read=partial(low_and_high, "--return-range")),
    "driver": shown("NAME", OUTPUT),
    "fleets": shown("NAME", CLUSTER),
    "address": shown("HOST:PORT", CLUSTER, default="Ray is started on this machine"),
    "fleet_count": shown("N", CLUSTER, default="one a core"),
    "checkpoint": shown("DIR", OUTPUT),
    "checkpoint_every": shown("K", OUTPUT),
    "out": shown("DIR", OUTPUT),
    "overwrite": shown("", OUTPUT),
    "collection": shown("HOW", NETWORK),
    "nodes": shown("A,B,...", NETWORK, read=_names),
    "secure_sums": shown("", NETWORK),
    "least_episodes": shown("N", NETWORK),
    "least_members": shown("N", NETWORK),
    "deadline": shown("SECONDS", FAULTS),
    "patience": shown("SECONDS", FAULTS),
    "gathering": shown("SECONDS", FAULTS),
    "quorum": shown("K", FAULTS, default="all nodes, and a violation stops the run"),
    "wait": shown("SECONDS", FAULTS),
}
"""The fields of :class:`~fed_ucbvi.run_spec.RunSpec`, and thus of its federation's rules."""
NODE_FLAGS: Mapping[str, Flag] = {
    "algorithm": shown("NAME|MODULE:ATTRIBUTE", ALGORITHM, default="any that is registered", names=algorithm_names),
    "send_trajectories": shown("", OUTPUT),
    "require_secure_sums": shown("", OUTPUT),
    "least_episodes": shown("N", OUTPUT),
    "least_members": shown("N", OUTPUT),
    "most_failures": shown("N", OUTPUT),
    "no_rewards": shown("", OUTPUT),
}
"""The fields of :class:`~fed_ucbvi.run_spec.NodeTerms`."""
FLAGS: Mapping[Any, Mapping[str, Flag]] = {
    RunSpec: RUN_FLAGS,
    FederationRules: RUN_FLAGS,
    NodeTerms: NODE_FLAGS,
}
