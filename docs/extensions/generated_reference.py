"""Pages that follow from the code: every public name from its docstring, every command from its help."""

from __future__ import annotations

import ast
import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import fed_ucbvi

PACKAGE = Path(__file__).parents[2] / "src" / "fed_ucbvi"
WIDTH = "88"
"""Columns of the help texts: what the text of a page is wide."""

GROUPS = {
    "algorithms": "Algorithms",
    "authors": "For authors of algorithms",
    "run_spec": "What a run is",
    "engine": "Running",
    "results": "Results",
    "analysis": "Before and after a run",
    "environments": "Environments",
    "problem": "Problems",
    "sweeps": "Sweeps",
    "theory": "Bounds",
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
        "analysis.inspection.plot_inspection",
        "results.run_data.learning_curve",
        "charts.picture.Picture",
        "charts.panels.Panel",
        "charts.panels.Series",
        "core.colours.BLUE",
    ),
    "Inside a run": (
        "A run in progress, who plays it, and who looks on.",
        "engine.simulation.Simulation",
        "engine.progress.progress_bar",
        "dashboard.server.PageServer",
        "dashboard.server.Access",
        "dashboard.state.LiveState",
        "dashboard.state.Subject",
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
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_pages(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    for name, text in {"api.md": _names_page(), "commands.md": _commands_page()}.items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:  # what has not changed is not built again
            page.write_text(text, encoding="utf-8")


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
    from fed_ucbvi.command_line import COMMANDS

    lines = ["# Commands", "", "What `fed-ucbvi COMMAND --help` says, for every command.", ""]
    for words in ((), *((name,) for name in COMMANDS)):
        lines += [f"## {' '.join(('fed-ucbvi', *words))}", "", "```text", _help(*words), "```", ""]
    return "\n".join(lines)


def _help(*words: str) -> str:
    plain = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-c", "from fed_ucbvi.command_line import main; main()", *words, "--help"]
    said = subprocess.run(command, env={**os.environ, **plain}, capture_output=True, text=True, check=True).stdout
    return "\n".join(line.rstrip() for line in said.strip().splitlines())
