"""``fed-ucbvi act``: what a policy does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import ServerName


def act(
    path: Annotated[Path, typer.Argument(metavar="POLICY", help="A policy file, or the folder of a saved run.")],
    step: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="h", help="The step, from 0.", show_default=False)
    ] = None,
    state: Annotated[
        int | None, typer.Option(parser=whole_number, metavar="s", help="The state, from 0.", show_default=False)
    ] = None,
    certs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Take only a policy signed under the authority in it (ca.crt)."),
    ] = None,
    server_name: ServerName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object for each answer.")] = False,
) -> None:
    """Print the action of a policy; without --step and --state, one for each line 'h s' of standard input."""
    import json

    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.results.policy import load_policy

    if (step is None) != (state is None):
        raise InputError("say both --step and --state, or neither and write lines 'h s' to standard input.")
    if server_name is not None and certs is None:
        raise InputError("--server-name says whose signature is wanted; it needs --certs DIR.")
    policy = load_policy(path, authority=None if certs is None else certs / "ca.crt", server=server_name)
    asked = _lines() if step is None or state is None else iter([(step, state)])
    for h, s in asked:
        action = policy.act(h, s)
        answer = json.dumps({"step": h, "state": s, "action": action}) if as_json else str(action)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()  # whoever asks line by line waits for it


def _lines() -> Iterator[tuple[int, int]]:
    """What standard input asks for, line by line."""
    from fed_ucbvi.core.errors import InputError

    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        parts = line.split()
        if len(parts) != 2 or not all(part.isdecimal() and part.isascii() for part in parts):
            raise InputError(
                f"line {number} of standard input is {line.strip()!r}; expected a step and a state, 'h s'."
            )
        yield int(parts[0]), int(parts[1])
