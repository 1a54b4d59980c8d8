"""Options of commands, generated from fields that are declared once: what a run is, and what is shown of it.

A command is a function of dataclasses whose fields have flags (:mod:`~fed_ucbvi.command_line.flags`), and of options
of its own; the defaults of its parameters are made by :func:`fields`, :func:`option` and :func:`argument`.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from fed_ucbvi.command_line.flags import (
    NETWORK,
    OUTPUT,
    Flag,
    flag,
    flags_of,
    low_and_high,
    read_fields,
    written,
)
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import json_or_text, whole_number

if TYPE_CHECKING:
    from fed_ucbvi.network.sources import LiveSource
    from fed_ucbvi.network.transport import RemoteServer

REAL = "Real environments"
REQUIRED = ...


def option(*given: Any, **more: Any) -> Any:
    """The default of a command's parameter that is an option: its :class:`Flag`."""
    return Flag(*given, **more)


def argument(metavar: str, help: str, value: Any = REQUIRED) -> Any:
    """The default of a command's parameter that is an argument."""
    return Flag(value, metavar, help, is_argument=True)


class Fields(NamedTuple):
    """The fields of a dataclass that are options of a command (by default all), and changes of their flags."""

    names: list[str]
    changes: Mapping[str, Mapping[str, Any]]


def fields(names: str = "", **changes: Mapping[str, Any]) -> Any:
    """The default of a command's parameter that is a dataclass."""
    return Fields(names.split(), changes)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The function with a parameter for every option, as Typer reads them."""
    hints = typing.get_type_hints(function)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        given = parameter.default
        if isinstance(given, Fields):
            types = typing.get_type_hints(kind)
            flags = flags_of(kind)
            chosen = {key: replace(flags[key], **given.changes.get(key, {})) for key in given.names or flags}
            parameters += [_parameter(key, types[key], flag) for key, flag in chosen.items()]
            groups[name] = kind, [*chosen]
        elif isinstance(given, Flag):
            parameters.append(_parameter(name, kind, given))
        else:
            parameters.append(parameter.replace(annotation=kind))

    def call(**given: Any) -> None:
        made = {}
        for name, (kind, keys) in groups.items():
            texts = {key: given.pop(key) for key in keys}
            made[name] = kind(**read_fields(kind, texts))
        function(**made, **given)

    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    return call


def _parameter(name: str, hint: Any, flag: Flag) -> inspect.Parameter:
    value = flag.value
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)] or [hint]
    more: dict[str, Any] = {"help": flag.help, "metavar": flag.metavar or None, "autocompletion": flag.names}
    more |= {"rich_help_panel": flag.panel, "show_default": flag.default or True}
    if int in kinds or list[int] in kinds:
        more["parser"] = _whole
    elif typing.get_origin(hint) is Literal:
        more["autocompletion"] = lambda: list(map(str, kinds))
        hint = str
    elif typing.get_origin(hint) in (tuple, Mapping):  # may be repeated
        hint, value, more["show_default"] = list[str], [], False
    elif any(typing.get_origin(kind) is tuple for kind in kinds):
        hint = str | None
    note = typer.Argument(**more) if flag.is_argument else typer.Option(written(name, flag), **more)
    default = inspect.Parameter.empty if value is REQUIRED else value
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, note], default=default)


def arguments_of(group: Any, names: str) -> list[str]:
    """Fields of a dataclass as the command line of another process."""
    words: list[str] = []
    flags = flags_of(type(group))
    for name in names.split():
        value = getattr(group, name)
        word = written(name, flags[name])
        if isinstance(value, Mapping):
            value = [f"{key}={part if isinstance(part, str) else json.dumps(part)}" for key, part in value.items()]
        if isinstance(value, tuple):
            value = ",".join(map(str, value))
        if isinstance(value, bool):
            yes, _, no = word.partition("/")
            words += [yes] if value else [no] * bool(no)
        else:
            many = value if isinstance(value, list) else [] if value is None else [value]
            for one in many:
                words += [word, str(one)]
    return words


def _whole(text: Any) -> Any:
    try:
        return whole_number("it", text)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


JSON = option(False, "", "Print one JSON object.", OUTPUT, name="--json")
CODE = option(
    None,
    "MODULE:ATTRIBUTE",
    "Code of your own that the file names; may be repeated. Files never make code run.",
    OUTPUT,
)
JOBS = option(None, "N", "Runs at a time; by default one a core.")


@dataclass(frozen=True)
class Output:
    """Options of display and output."""

    track: tuple[str, ...] = flag(
        (), "TRACKER:PLACE", "Send rounds to tensorboard:DIR, mlflow:URI or wandb:PROJECT; may be repeated.", OUTPUT
    )
    track_every: int = flag(1, "K", "With --track: one round in K.", OUTPUT)
    log_format: str = flag(
        "text", "FORMAT", "On standard error: text, or json (one object a line, with time and level).", OUTPUT
    )
    dashboard: str | None = flag(
        None, "HOST:PORT", "Serve a live page here, on this machine only; port 0 uses a free one.", OUTPUT
    )
    as_json: bool = flag(False, "", "Print one JSON object.", OUTPUT, name="--json")
    quiet: bool = flag(False, "", "No progress and no summary.", OUTPUT)


@dataclass(frozen=True)
class LiveOptions:
    """Real environments, with bounds and sizes."""

    live: str | None = flag(
        None,
        "ID|MODULE:FUNCTION",
        "Instead of --env: real environments, by Gymnasium id or from a function of the agent's number.",
        REAL,
    )
    live_kwargs: str | None = flag(None, "JSON", "Keyword arguments for a Gymnasium id.", REAL)
    reward_range: str | None = flag(
        None,
        "LOW,HIGH",
        "Between which every reward lies; if not given, the one observed when bins were learnt.",
        REAL,
    )
    horizon: int | None = flag(None, "H", "Steps of an episode; by default max_episode_steps.", REAL)

    def source(self) -> LiveSource:
        from fed_ucbvi.network.sources import LiveSource

        options = {} if self.live_kwargs is None else json_or_text("--live-kwargs", self.live_kwargs)
        if not isinstance(options, dict):
            raise InputError(
                f"--live-kwargs takes a JSON object, as '{{\"map_name\": \"8x8\"}}', got '{self.live_kwargs}'."
            )
        ends = None if self.reward_range is None else low_and_high("--reward-range", self.reward_range)
        return LiveSource.of(self.live or "", options, reward_range=ends, horizon=self.horizon)


@dataclass(frozen=True)
class ConnectionOptions:
    """How a node reaches its server, and with which certificate."""

    name: str | None = flag(REQUIRED, "NAME", "This node; its certificate bears the name.", NETWORK)
    certs: Path | None = flag(None, "DIR", "Folder with certificates ('fed-ucbvi certs').", NETWORK)
    server_name: str | None = flag(None, "NAME", "In the server's certificate, if not HOST.", NETWORK)
    insecure: bool = flag(False, "", "No TLS; on this machine only.", NETWORK)

    def server(self, address: str) -> RemoteServer:
        from fed_ucbvi.network.certificates import TLSFiles
        from fed_ucbvi.network.transport import RemoteServer

        check_certificates(self.certs, insecure=self.insecure)
        if self.certs is not None and self.name is None:
            raise InputError("pass --name NODE, whose certificate is in --certs.")
        tls_files = None if self.certs is None else TLSFiles.of(self.certs, str(self.name))
        return RemoteServer(address, tls_files, self.server_name)


SERVER = argument("HOST:PORT", "The server.")


def check_certificates(certs: Path | None, *, insecure: bool) -> None:
    if insecure == (certs is not None):
        raise InputError("pass either --certs DIR ('fed-ucbvi certs' makes one) or --insecure.")


def load_code(names: list[str] | None) -> None:
    """Import the code that ``--code`` names, which files may then name, too."""
    from fed_ucbvi.core.plugins import load_attribute

    for name in names or ():
        load_attribute(name)
