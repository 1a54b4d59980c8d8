"""Options of commands, generated from fields that are declared once: what a run is, and what is shown of it.

A command is a function of dataclasses whose fields have flags (:mod:`~fed_ucbvi.command_line.flags`), and of options
of its own; the defaults of its parameters are made by :func:`fields`, :func:`option` and :func:`argument`. Packages
that add commands use these functions, too.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from fed_ucbvi.command_line.flags import (
    FLAGS,
    OUTPUT,
    Flag,
    FlagTable,
    flag,
    flags_of,
    low_and_high,
    read_fields,
    written,
)
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import json_or_text, whole_number

if TYPE_CHECKING:
    import gymnasium

REAL = "Real environments"
REQUIRED = ...


def option(value: Any, metavar: str, help: str, *, panel: str | None = None, **more: Any) -> Any:
    """The default of a command's parameter that is an option: its :class:`Flag`."""
    return Flag(value=value, metavar=metavar, help=help, panel=panel, **more)


def argument(metavar: str, help: str, value: Any = REQUIRED) -> Any:
    """The default of a command's parameter that is an argument."""
    return Flag(value=value, metavar=metavar, help=help, is_argument=True)


class Fields(NamedTuple):
    """The fields of a dataclass that are options of a command.

    Attributes:
        names: names of the fields; all of them if empty.
        table: the flags of a specification that the command line does not know.
        changes: changes of the flags, by name of the field.
    """

    names: list[str]
    table: FlagTable | None
    changes: Mapping[str, Mapping[str, Any]]

    def flags(self, kind: Any) -> dict[str, Flag]:
        """The flags of the chosen fields of ``kind``."""
        known = flags_of(kind, self.table)
        chosen = self.names or list(known)
        return {name: replace(known[name], **self.changes.get(name, {})) for name in chosen}

    def make(self, kind: Any, given: Mapping[str, Any]) -> Any:
        """The dataclass with these values of options; texts are read."""
        if self.table is None and kind not in FLAGS:
            return kind(**given)
        return kind(**read_fields(kind, given, self.table))


def fields(names: str = "", *, table: FlagTable | None = None, **changes: Mapping[str, Any]) -> Any:
    """The default of a command's parameter that is a dataclass; see :class:`Fields`."""
    return Fields(names.split(), table, changes)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with a parameter for every option, as Typer reads them."""
    hints = typing.get_type_hints(function)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Fields] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        given = parameter.default
        if isinstance(given, Fields):
            groups[name] = given
            types = typing.get_type_hints(kind)
            for key, flag in given.flags(kind).items():
                parameters.append(_parameter(_key(name, key), types[key], flag, written(key, flag)))
        elif isinstance(given, Flag):
            parameters.append(_parameter(name, kind, given, written(name, given)))
        else:
            parameters.append(parameter.replace(annotation=kind))

    def call(**given: Any) -> None:
        made = {}
        for name, group in groups.items():
            kind = hints[name]
            values = {key: given.pop(_key(name, key)) for key in group.flags(kind)}
            made[name] = group.make(kind, values)
        function(**made, **given)

    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    return call


def _key(group: str, field: str) -> str:
    """Name of the option of a field; fields of several dataclasses may have one name."""
    return f"{group}_{field}"


def _parameter(name: str, hint: Any, flag: Flag, flag_name: str) -> inspect.Parameter:
    """The parameter of one option or argument, with what Typer wants to know of it."""
    value = flag.value
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] or [hint]
    more: dict[str, Any] = {
        "help": flag.help,
        "metavar": flag.metavar or None,
        "autocompletion": flag.names,
        "rich_help_panel": flag.panel,
        "show_default": flag.default or True,
    }
    if int in kinds or list[int] in kinds:
        more["parser"] = _whole
    elif typing.get_origin(hint) is Literal:
        more["autocompletion"] = lambda: list(map(str, kinds))
        hint = str
    elif typing.get_origin(hint) in (tuple, Mapping):  # may be repeated
        hint = list[str]
        value = []
        more["show_default"] = False
    elif any(typing.get_origin(kind) is tuple for kind in kinds):
        hint = str | None
    note = typer.Argument(**more) if flag.is_argument else typer.Option(flag_name, **more)
    default = inspect.Parameter.empty if value is REQUIRED else value
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, note], default=default)


def arguments_of(group: Any, names: str, table: FlagTable | None = None) -> list[str]:
    """Fields of a dataclass as the command line of another process."""
    words: list[str] = []
    flags = flags_of(type(group), table)
    for name in names.split():
        word = written(name, flags[name])
        words += _words(word, getattr(group, name))
    return words


def _words(flag: str, value: Any) -> list[str]:
    """A flag and its value as they are typed; nothing for None."""
    if value is None:
        return []
    if isinstance(value, bool):
        yes, _, no = flag.partition("/")
        chosen = yes if value else no
        return [chosen] if chosen else []
    if isinstance(value, Mapping):
        value = [f"{key}={part if isinstance(part, str) else json.dumps(part)}" for key, part in value.items()]
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    words = []
    for one in value if isinstance(value, list) else [value]:
        words += [flag, str(one)]
    return words


def _whole(text: Any) -> Any:
    try:
        return whole_number("it", text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


JSON = option(False, "", "Print one JSON object.", panel=OUTPUT, name="--json")
CODE = option(
    None,
    "MODULE:ATTRIBUTE",
    "Code of your own that the file names; may be repeated. Files never make code run.",
    panel=OUTPUT,
)
JOBS = option(None, "N", "Runs at a time; by default one per core.")


@dataclass(frozen=True)
class Output:
    """Options of display and output."""

    track: tuple[str, ...] = flag(
        (),
        "TRACKER:PLACE",
        "Send rounds to tensorboard:DIR, mlflow:URI or wandb:PROJECT; may be repeated.",
        panel=OUTPUT,
    )
    track_every: int = flag(1, "K", "With --track: one round in K.", panel=OUTPUT)
    log_format: str = flag(
        "text",
        "FORMAT",
        "On standard error: text, or json (one object per line, with time and level).",
        panel=OUTPUT,
    )
    dashboard: str | None = flag(
        None,
        "HOST:PORT",
        "Serve a live page here, on this machine only; port 0 uses a free one.",
        panel=OUTPUT,
    )
    as_json: bool = flag(False, "", "Print one JSON object.", panel=OUTPUT, name="--json")
    quiet: bool = flag(False, "", "No progress and no summary.", panel=OUTPUT)


@dataclass(frozen=True)
class LiveOptions:
    """Real environments, with bounds and sizes."""

    live: str | None = flag(
        None,
        "ID|MODULE:FUNCTION",
        "Instead of --env: real environments, by Gymnasium id or from a function of the agent's number.",
        panel=REAL,
    )
    live_kwargs: str | None = flag(None, "JSON", "Keyword arguments for a Gymnasium id.", panel=REAL)
    reward_range: str | None = flag(
        None,
        "LOW,HIGH",
        "Range of the rewards; by default the one observed when bins were learnt.",
        panel=REAL,
    )
    horizon: int | None = flag(None, "H", "Steps of an episode; by default max_episode_steps.", panel=REAL)

    def keyword_arguments(self) -> dict[str, Any]:
        """Keyword arguments for a Gymnasium id."""
        given = {} if self.live_kwargs is None else json_or_text("--live-kwargs", self.live_kwargs)
        if not isinstance(given, dict):
            raise InputError(
                f"--live-kwargs takes a JSON object, as '{{\"map_name\": \"8x8\"}}', got '{self.live_kwargs}'."
            )
        return given

    def rewards(self) -> tuple[float, float] | None:
        """The range of rewards, if it is given."""
        return None if self.reward_range is None else low_and_high("--reward-range", self.reward_range)

    def maker(self) -> Callable[[int], gymnasium.Env[Any, Any]]:
        """The function that makes the environment of an agent."""
        from fed_ucbvi.environments.gymnasium_making import named_maker

        return named_maker(self.live or "", self.keyword_arguments(), self.horizon)


def load_code(names: list[str] | None) -> None:
    """Import the code that ``--code`` names, which files may then name, too."""
    from fed_ucbvi.core.plugins import load_attribute

    for name in names or ():
        load_attribute(name)
