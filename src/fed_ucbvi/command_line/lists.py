"""``fed-ucbvi environments`` and ``algorithms``: lists of what has a name, with options and parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from fed_ucbvi.command_line.flags import algorithm_names, environment_names
from fed_ucbvi.command_line.options import JSON, argument
from fed_ucbvi.command_line.outputs import print_json, print_rows, warn
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.parameters import parameter_help, plain_docstring


def environments(names: list[str] | None = argument("NAME", "Only these.", None), as_json: bool = JSON) -> None:
    """List the environments and their options, which --env-option sets."""
    from fed_ucbvi.environments import REGISTRY, find_environment

    find = (lambda name: find_environment(name).made) if names else REGISTRY.__getitem__
    _list(names, environment_names, find, as_json)


def algorithms(names: list[str] | None = argument("NAME", "Only these.", None), as_json: bool = JSON) -> None:
    """List the algorithms and their parameters, which --option sets."""
    from fed_ucbvi.algorithms import find_algorithm

    _list(names, algorithm_names, find_algorithm, as_json)


def describe(thing: Any) -> dict[str, Any]:
    """The first paragraph of the docstring of a callable, or of a federation as it is, and its parameters."""
    first = plain_docstring(thing).partition("\n\n")[0].replace("\n", " ")
    return {"description": first, "parameters": [parameter._asdict() for parameter in parameter_help(thing)]}


def _list(names: list[str] | None, known: Callable[[], list[str]], find: Callable[[str], Any], as_json: bool) -> None:
    """Describe those of these names, or all but those of other packages that cannot be used."""
    described = {}
    for name in names or known():
        try:
            found = find(name)
            described[name] = describe(found)
        except InputError as error:
            if names:
                raise
            warn(str(error))
    if as_json:
        print_json(described)
        return
    for number, (name, content) in enumerate(described.items()):
        if number:
            typer.echo()
        rows = [(item["name"], str(item["default"]), item["description"]) for item in content["parameters"]]
        print_rows(f"{name}: {content['description']}", rows)
