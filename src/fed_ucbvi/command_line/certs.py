"""``fed-ucbvi certs``: a certificate authority and certificates for a server and its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def certs(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for certificates and keys; may hold some already.")
    ],
    server: Annotated[str | None, typer.Option(metavar="NAME", help="Make a certificate for the server.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A name or address by which nodes reach the server; may be repeated."),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Make a certificate for this node; may be repeated.")
    ] = None,
    days: Annotated[float, typer.Option(metavar="N", help="How long they are good.")] = 365.0,
    revoke: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Turn this node away from now on; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make certificates for a federation; the first call makes the certificate authority too."""
    from fed_ucbvi.command_line.outputs import print_json
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.network.certificates import make_certificates, revoked_names
    from fed_ucbvi.network.certificates import revoke as turn_away

    if server is None and not node and not revoke:
        raise InputError("nothing to do: name a --server, a --node or whom to --revoke.")
    if host and server is None:
        raise InputError("--host belongs to a server's certificate; name the --server.")
    if days <= 0:
        raise InputError(f"days must be above 0, got {days:g}.")
    written = []
    if server is not None or node:
        written = make_certificates(out, server=server, hosts=host or (), nodes=node or (), days=days)
    if revoke:
        turn_away(out, revoke)
    if as_json:
        print_json({"written": [str(path) for path in written], "revoked": revoked_names(out)})
        return
    for path in written:
        typer.echo(path)
    for name in revoke or ():
        typer.echo(f"revoked: {name}")
