"""``fed-ucbvi policy``: a node asks for the recommended policy while the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fed_ucbvi.command_line.shared_options import (
    NETWORK,
    OUTPUT,
    Certificates,
    Insecure,
    Json,
    ServerAddress,
    ServerName,
)

if TYPE_CHECKING:
    from fed_ucbvi.results.policy import LearntPolicy


def policy(
    address: ServerAddress,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write the policy, .json or .npz.", rich_help_panel=OUTPUT)
    ],
    certs: Certificates = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The node, whose certificate is in --certs.", rich_help_panel=NETWORK),
    ] = None,
    server_name: ServerName = None,
    insecure: Insecure = False,
    as_json: Json = False,
) -> None:
    """Ask the server of a federation for the policy that it recommended last; the run is not disturbed."""
    import asyncio

    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.network.client import ask_policy
    from fed_ucbvi.network.names import check_name
    from fed_ucbvi.network.transport import TLSFiles
    from fed_ucbvi.results.policy import check_policy_file

    if insecure == (certs is not None) or insecure == (name is not None):
        raise InputError("say either --certs DIR and --name NODE, or --insecure.")
    check_policy_file(out)
    tls_files = None if certs is None or name is None else TLSFiles.of(certs, check_name(name))
    with interruptible():
        found = asyncio.run(ask_policy(address, tls_files, server_name=server_name))
    found.save(out)
    if as_json:
        print_json(policy_summary(found, out))
    else:
        typer.echo(policy_line(found, out))


def policy_summary(found: LearntPolicy, out: Path | None) -> dict[str, Any]:
    """What is known of a policy that came from a server, ready for JSON."""
    return {
        "run": found.run,
        "rounds": found.rounds,
        "episodes": found.episodes,
        "final": found.final,
        "policy_sha256": found.digest,
        "signed": bool(found.signature),
        "file": None if out is None else str(out),
    }


def policy_line(found: LearntPolicy, out: Path) -> str:
    """The same in a sentence."""
    sealed = "signed by the server" if found.signature else "unsigned, because the federation is insecure"
    when = "at the end of" if found.final else f"after round {found.rounds:,} of"
    return f"{out}: the policy recommended {when} run {found.run}, {sealed}, SHA-256 {found.digest[:16]}..."
