"""``fed-ucbvi leave``: a node leaves a federation for good."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.shared_options import (
    NETWORK,
    OUTPUT,
    Certificates,
    Insecure,
    Json,
    NodeName,
    ServerAddress,
    ServerName,
)


def leave(
    address: ServerAddress,
    name: NodeName,
    certs: Certificates = None,
    server_name: ServerName = None,
    insecure: Insecure = False,
    patience: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long to try to reach the server.", rich_help_panel=NETWORK),
    ] = 60.0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write the policy recommended so far (.json, .npz).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Leave a federation for good: the others go on without this node, and it cannot come back."""
    import asyncio

    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json
    from fed_ucbvi.command_line.policy import policy_line, policy_summary
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.network.client import leave_run
    from fed_ucbvi.network.transport import TLSFiles
    from fed_ucbvi.results.policy import check_policy_file

    if out is not None:
        check_policy_file(out)
    if insecure == (certs is not None):
        raise InputError("say either --certs DIR ('fed-ucbvi certs' makes one) or --insecure.")
    tls_files = None if certs is None else TLSFiles.of(certs, name)
    with interruptible():
        policy = asyncio.run(leave_run(name, address, tls_files, server_name=server_name, patience=patience))
    if out is not None and policy is not None:
        policy.save(out)
    if as_json:
        told = None if policy is None else policy_summary(policy, out)
        print_json({"node": name, "left": True, "policy": told})
        return
    typer.echo(f"{name}: has left the run for good")
    if out is not None and policy is not None:
        typer.echo(policy_line(policy, out))
