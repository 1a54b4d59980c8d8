"""``fed-ucbvi environments`` and ``fed-ucbvi algorithms``: what there is, with parameters and defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def environments(as_json: Json = False) -> None:
    """List the environments and their options."""
    from fed_ucbvi.environments import REGISTRY

    _print(_loaded(REGISTRY), as_json)


def algorithms(as_json: Json = False) -> None:
    """List the algorithms, their rows of the paper's Table 1 and their parameters."""
    from fed_ucbvi.algorithms import REGISTRY, find_algorithm

    found = _loaded(REGISTRY, find_algorithm)
    _print(found, as_json, {name: kind.table._asdict() for name, kind in found.items() if kind.table is not None})


def _loaded(names: Mapping[str, Any], find: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """What is registered; what other packages have registered and cannot be used is told and left out."""
    from fed_ucbvi.command_line.outputs import warn
    from fed_ucbvi.core.errors import InputError

    found = {}
    for name in names:
        try:
            found[name] = (find or names.__getitem__)(name)
        except InputError as error:
            warn(str(error))
    return found


def describe(thing: Any) -> dict[str, Any]:
    """One line about a callable, or a federation as it is, and its parameters, from its docstring and signature.

    >>> def drive(speed: float = 1.0) -> None:
    ...     '''Drive.
    ...
    ...     Args:
    ...         speed: how fast,
    ...             in knots.
    ...     '''
    >>> describe(drive)["parameters"]
    [{'name': 'speed', 'type': 'float', 'default': 1.0, 'description': 'how fast, in knots.'}]
    """
    texts = [_plain_text(layer) for layer in reversed(inspect.getmro(thing))] if inspect.isclass(thing) else []
    text = _plain_text(thing)
    about: dict[str, str] = {}
    for layer in (*texts, text):
        about |= _arguments(layer)
    return {
        "description": text.partition("\n\n")[0].replace("\n", " "),
        "parameters": [
            {
                "name": parameter.name,
                "type": inspect.formatannotation(parameter.annotation).strip("'"),
                "default": None if parameter.default is inspect.Parameter.empty else parameter.default,
                "description": about.get(parameter.name, ""),
            }
            for parameter in (inspect.signature(thing).parameters.values() if callable(thing) else ())
        ],
    }


def _plain_text(thing: Any) -> str:
    """A docstring without its marks."""
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", inspect.cleandoc(thing.__doc__ or "").replace("``", ""))


def _arguments(text: str) -> dict[str, str]:
    """The ``Args`` section of a docstring, by name."""
    _, _, section = text.partition("\nArgs:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line.strip() and not line.startswith("    "):
            break
        start = re.match(r" {4}(\w+): (.*)", line)
        if start:
            name = start[1]
            found[name] = start[2].strip()
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found


def _print(things: Mapping[str, Any], as_json: bool, tables: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    from fed_ucbvi.command_line.outputs import print_json, print_rows

    described = {name: describe(thing) for name, thing in things.items()}
    for name, row in (tables or {}).items():
        described[name]["table_1"] = dict(row)
    if as_json:
        print_json(described)
        return
    for number, (name, content) in enumerate(described.items()):
        if number:
            typer.echo()
        rows = [(item["name"], str(item["default"]), item["description"]) for item in content["parameters"]]
        print_rows(f"{name}: {content['description']}", rows)
        if "table_1" in content:
            row = content["table_1"]
            heterogeneous = "for different agents" if row["heterogeneity"] else "for agents all alike"
            typer.echo(
                f"  Table 1: {row['kind']}, {heterogeneous}; rounds {row['communication']}; regret {row['regret']}"
            )
