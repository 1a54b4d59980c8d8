"""Commands called in this process or in one of their own, and what they give."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from repository import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer imports names that Click has deprecated
    from typer.testing import CliRunner

    from fed_ucbvi.command_line import app

PUBLISHED = ("--algorithm", "fed-ucbvi")
SMALL = (
    "run",
    *PUBLISHED,
    "--env",
    "synthetic",
    "--agents",
    "3",
    "--episodes",
    "60",
    "--option",
    "nu=50",
)
PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fed_ucbvi.command_line import main; main()"
)


class Terminal(io.StringIO):
    """A terminal that keeps what is written on it."""

    def isatty(self) -> bool:
        return True


class Result(Protocol):
    exit_code: int
    exception: BaseException | None

    @property
    def stdout(self) -> str: ...

    @property
    def stderr(self) -> str: ...

    @property
    def output(self) -> str:
        """Both, in the order in which they were written."""
        ...


def words_of(arguments: Iterable[object]) -> list[str]:
    """Words of a command line; tuples and lists among the arguments stand for their items."""
    words: list[str] = []
    for argument in arguments:
        if isinstance(argument, tuple | list):
            words += words_of(argument)
        else:
            words.append(str(argument))
    return words


def call(*arguments: object, input: str | None = None) -> Result:
    result = CliRunner().invoke(
        app,
        words_of(arguments),
        input=input,
        prog_name="fed-ucbvi",
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def told(*arguments: object) -> dict[str, Any]:
    """The one object that a command prints."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


def refusal(*arguments: object) -> str:
    """The one message of a command that is refused."""
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert "Traceback" not in result.output
    return lines[0]


def executed(
    code: str,
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Code in a process of its own; ``env`` changes its environment, and None takes a variable away."""
    own = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    command = [sys.executable, "-c", code, *words_of(arguments)]
    return subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, timeout=300)


def anew(*arguments: str, cwd: Path, paths: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The program in a new process, in a folder, with these folders for modules besides the package's own."""
    folders = os.pathsep.join(map(str, (ROOT / "src", *paths)))
    code = "from fed_ucbvi.command_line import main; main()"
    return executed(code, *arguments, cwd=cwd, env={"PYTHONPATH": folders, "PYTHONSAFEPATH": "1"})
