"""``fed-ucbvi leave``: a node leaves a federation for good."""

from __future__ import annotations

from typing import Annotated

import typer

from fed_ucbvi.command_line.shared_options import NETWORK, Certificates, Insecure, Json


def leave(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server.")],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="This node; its certificate bears the name.", rich_help_panel=NETWORK)
    ],
    certs: Certificates = None,
    server_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="In the server's certificate, if not HOST.", rich_help_panel=NETWORK),
    ] = None,
    insecure: Insecure = False,
    patience: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long to try to reach the server.", rich_help_panel=NETWORK),
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Leave a federation for good: the others go on without this node, and it cannot come back."""
    import asyncio

    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.network.client import leave_run
    from fed_ucbvi.network.transport import TLSFiles

    if insecure == (certs is not None):
        raise InputError("say either --certs DIR ('fed-ucbvi certs' makes one) or --insecure.")
    tls_files = None if certs is None else TLSFiles.of(certs, name)
    with interruptible():
        policy = asyncio.run(leave_run(name, address, tls_files, server_name=server_name, patience=patience))
    if as_json:
        print_json({"node": name, "left": True, "policy": None if policy is None else policy.tolist()})
    else:
        typer.echo(f"{name}: has left the run for good")
