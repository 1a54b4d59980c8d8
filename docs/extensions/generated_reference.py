"""Pages that follow from the code: every public name from its docstring, every command from its help."""

from __future__ import annotations

import ast
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import fed_ucbvi
from fed_ucbvi.core.parameters import parameter_help

PACKAGE = Path(__file__).parents[2] / "src" / "fed_ucbvi"
WIDTH = "88"
"""Columns of the help texts: what the text of a page is wide."""

GROUPS = {
    "algorithms": "Algorithms",
    "authors": "For authors of algorithms",
    "specifications": "Specifications of runs",
    "engine": "Running",
    "results": "Results",
    "analysis": "Before and after a run",
    "environments": "Environments",
    "problem": "Problems",
    "sweeps": "Sweeps",
    "paper": "The paper, bounds and baselines",
    "core": "Errors and version",
}
"""Headings of the reference by the package that a name comes from, in this order; others follow by their own name."""

AUTHORS = tuple(f"fed_ucbvi.{name}" for name in ("core.parameters", "core.types")) + tuple(
    f"fed_ucbvi.algorithms.{name}" for name in ("base", "fields", "kernels", "one_report")
)
"""Modules whose public names are for those who write an algorithm."""

MORE = {
    "For pictures": (
        "What pictures are made of.",
        "paper.inspection_picture.plot_inspection",
        "results.run_data.learning_curve",
        "charts.figures.Panels",
        "core.colours.BLUE",
    ),
    "Inside a run": (
        "A run in progress, who plays it, and who looks on.",
        "engine.simulation.Simulation",
        "engine.progress.progress_bar",
        "network.dashboard.server.PageServer",
        "network.dashboard.state.LiveState",
        "network.dashboard.state.Subject",
        "environments.ENVIRONMENTS",
        "environments.find_environment",
    ),
}
"""Sections for names of the documents that are not imported from ``fed_ucbvi`` itself: a sentence, then the names."""
OUTSIDERS = ("BaseModel", "Enum", "Exception", "KeyboardInterrupt", "UserWarning", "str", "tuple")
"""Classes of others; what our classes inherit from them is not shown."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx reads any."""
    app.connect("builder-inited", _write_pages)
    app.connect("autodoc-process-signature", _with_plain_types)
    app.connect("autodoc-process-docstring", _with_arguments, priority=400)  # before Napoleon reads the arguments
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_pages(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    for name, text in {"api.md": _names_page(), "commands.md": _commands_page()}.items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:  # what has not changed is not built again
            page.write_text(text, encoding="utf-8")


NOTE = re.compile(r""", (?:[\w.]+\.)?(?:Bounds|Help)\((?:[^()'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*\)""")
"""The interval in which a number must lie, or the help text of a parameter, as autodoc writes them in a type."""
MARK = "\0"
"""Stands for a note that has been taken out of a type."""
NOTED = re.compile(r"~?(?:typing\.)?Annotated\[((?:[^][\0]|\[(?:[^][\0]|\[[^][\0]*\])*\])*)\0+\]")
"""A type, with brackets of two levels at most, whose notes have been taken out."""


def plain_types(signature: str) -> str:
    """A signature without intervals and help texts, which the descriptions of the arguments have.

    >>> plain_types("(width: Annotated[Annotated[float, Bounds(at_least=0)] | None, Help(text='In (m).')] = None)")
    '(width: float | None = None)'
    >>> plain_types("(delta: Annotated[float, Bounds(at_least=-inf, below=1, above=0, at_most=inf, why='')] = 0.1)")
    '(delta: float = 0.1)'
    """
    plain = NOTE.sub(MARK, signature)
    while (simpler := NOTED.sub(r"\1", plain)) != plain:
        plain = simpler
    return plain


def _with_arguments(_app: Sphinx, _what: str, _name: str, thing: object, _options: object, lines: list[str]) -> None:
    """Describe the parameters of a class or function by the help texts of their types."""
    if not inspect.isclass(thing) and not inspect.isfunction(thing):
        return
    try:
        inspect.signature(thing)
    except ValueError:  # a class whose constructor is written in C has no signature
        return
    described = [parameter for parameter in parameter_help(thing) if parameter.description]
    if described:
        lines += ["", "Args:"]
        lines += [f"    {one.name}: {one.description}" for one in described]
        lines.append("")


def _with_plain_types(
    _app: Sphinx,
    _what: str,
    _name: str,
    _thing: object,
    _options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    return signature and plain_types(signature), returned and plain_types(returned)


def _public_names() -> dict[str, list[str]]:
    """The names of the facade by the package that holds them."""
    names: dict[str, list[str]] = {group: [] for group in GROUPS}
    for line in ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body:
        if isinstance(line, ast.ImportFrom) and line.module is not None:
            group = "authors" if line.module in AUTHORS else line.module.split(".")[1]
            names.setdefault(group, []).extend(alias.asname or alias.name for alias in line.names)
    return names


def _names_page() -> str:
    lines = [
        "# Python",
        "",
        "Every public name is imported from `fed_ucbvi`. What is not here may change.",
        "",
    ]
    for group, names in _public_names().items():
        lines += [f"## {GROUPS.get(group, group.capitalize())}", ""] if names else []
        for name in sorted(names, key=str.lower):
            lines += _entry(name, getattr(fed_ucbvi, name))
    for heading, (about, *paths) in MORE.items():
        lines += [f"## {heading}", "", f"{about} These are imported from modules, and may move.", ""]
        for path in paths:
            lines += _entry(path, pkgutil.resolve_name(f"fed_ucbvi.{path}"), whole=True)
    return "\n".join(lines)


def _entry(path: str, thing: object, whole: bool = False) -> list[str]:
    """A class, a function or a value; ``whole`` classes are shown with all members of their own."""
    if isinstance(thing, type):
        directive = [f".. autoclass:: fed_ucbvi.{path}", *(["   :members:"] if whole else _members(thing))]
    elif inspect.isroutine(thing):
        directive = [f".. autofunction:: fed_ucbvi.{path}"]
    else:  # a value is documented in its module
        home = vars(fed_ucbvi)["_HOMES"].get(path, "fed_ucbvi")
        directive = [f".. autodata:: {home}.{path}", "   :no-value:"]
    return ["```{eval-rst}", *directive, "```", ""]


def _members(thing: type) -> list[str]:
    """What is shown of a class; of an algorithm its constructors alone, the rest is the same for all of them."""
    from fed_ucbvi.algorithms.base import Algorithm

    if issubclass(thing, Algorithm) and not inspect.isabstract(thing):
        made = [name for name, member in vars(thing).items() if isinstance(member, classmethod)]
        return [f"   :members: {', '.join(made)}"] if made else []
    return ["   :members:", f"   :inherited-members: {', '.join(OUTSIDERS)}"]


def _commands_page() -> str:
    from fed_ucbvi.command_line import all_commands

    lines = ["# Commands", "", "What `fed-ucbvi COMMAND --help` says, for every command.", ""]
    names = [""]
    for command in all_commands():
        names.append(command.name)
        names += [f"{command.name} {part.name}" for part in command.subcommands]
    for name in names:
        title = f"fed-ucbvi {name}".rstrip()
        lines += [f"## {title}", "", "```text", _help(*name.split()), "```", ""]
    return "\n".join(lines)


def _help(*words: str) -> str:
    plain = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-c", "from fed_ucbvi.command_line import main; main()", *words, "--help"]
    said = subprocess.run(command, env={**os.environ, **plain}, capture_output=True, text=True, check=True).stdout
    return "\n".join(line.rstrip() for line in said.strip().splitlines())
