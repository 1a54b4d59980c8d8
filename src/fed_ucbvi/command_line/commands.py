"""Commands: what the table of a package says about each of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

RUNS = "Runs"
PAPER = "The paper"
FEDERATIONS = "Federations"
HEADINGS = (RUNS, PAPER, FEDERATIONS)
"""Headings in the help of the program, in this order; others follow."""
GROUP = "fed_ucbvi.commands"
"""The group of entry points in which packages register commands, each a :class:`Command` under its name."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of the program, ``fed-ucbvi NAME``.

    Its module is imported when the command runs or shows its help; its function imports what it needs. The function's
    docstring is the help, and its parameters are the options (:mod:`fed_ucbvi.command_line.options`).

    Args:
        name: the word after ``fed-ucbvi``.
        summary: the first paragraph of the function's docstring, for the list of commands, which imports no module.
        module: the module that defines the command.
        function: the name of the function in it.
        heading: the heading in the help of the program.
        examples: command lines without ``fed-ucbvi``, for the end of the command's help.
        subcommands: commands whose names follow the name of this one.
        requires: a function that raises if a package that the command needs is not installed; it is called when the
            command is called, so that its help works without the package.
    """

    name: str
    summary: str
    module: str
    function: str
    heading: str
    examples: tuple[str, ...]
    subcommands: tuple[Command, ...] = ()
    requires: Callable[[], None] | None = None

    def load(self) -> Callable[..., None]:
        """Import the module and return the function, which checks first that everything it needs is installed."""
        function: Callable[..., None] = getattr(import_module(self.module), self.function)
        check = self.requires
        if check is None:
            return function

        @functools.wraps(function)
        def checked(**given: object) -> None:
            check()
            function(**given)

        return checked
