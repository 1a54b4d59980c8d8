"""What Typer's ``CliRunner`` gives, whichever of its versions is installed."""

from __future__ import annotations

from typing import Protocol


class Result(Protocol):
    """A command that has ended."""

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
