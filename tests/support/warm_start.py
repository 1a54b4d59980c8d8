"""Commands as processes of their own that begin with everything imported, forked from a process that has done so.

A command's imports take a second of processor time, and tests start dozens of commands. The process that is forked
has imported modules and nothing else: it has no threads, no connections and no compiled code in use.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(
    [
        "fed_ucbvi.command_line.program",
        "fed_ucbvi.network.commands.serving",
        "fed_ucbvi.network.commands.joining",
        "fed_ucbvi.network.server",
        "fed_ucbvi.network.client",
        "fed_ucbvi.engine.simulation",
    ]
)


def run_command(arguments: Sequence[str], *outputs: Connection) -> None:
    """In the new process: run the command with these outputs; ``@module:function`` is called instead of it."""
    for place, output in enumerate(outputs, start=1):
        os.dup2(output.fileno(), place)
        output.close()
    from fed_ucbvi.command_line import main

    command: Callable[[], None] = main
    first, *rest = arguments
    if first.startswith("@"):
        module, _, name = first[1:].partition(":")
        command = functools.partial(getattr(importlib.import_module(module), name), rest)
    sys.argv = ["fed-ucbvi", *arguments]
    command()
