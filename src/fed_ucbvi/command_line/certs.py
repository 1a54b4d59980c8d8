"""``fed-ucbvi certs``: a certificate authority and certificates for a server and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fed_ucbvi.command_line.examples import epilogue

certs_app = typer.Typer()
"""The command and, below it, those by which every party makes its own key."""

Days = Annotated[float, typer.Option(metavar="N", help="How long they are good.")]
Host = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="A name or address by which nodes reach the server; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@certs_app.callback(invoke_without_command=True, epilog=epilogue("certs"))
def certs(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for certificates and keys; may hold some already.")
    ] = None,
    server: Annotated[str | None, typer.Option(metavar="NAME", help="Make a certificate for the server.")] = None,
    host: Host = None,
    node: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Make a certificate for this node; may be repeated.")
    ] = None,
    days: Days = 365.0,
    revoke: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Turn this node away from now on; may be repeated.")
    ] = None,
    revoke_replaced: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Turn away its certificates but the newest; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make certificates and keys for a whole federation at once; the first call makes the certificate authority too.

    Where every party is to make its own key, use the commands below.
    """
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.network import certificates

    if context.invoked_subcommand is not None:
        if out is not None or server or host or node or revoke or revoke_replaced:
            raise InputError(f"put options behind 'certs {context.invoked_subcommand}', not before it.")
        return
    if out is None:
        raise InputError("name the folder for certificates (--out DIR).")
    if server is None and not node and not revoke and not revoke_replaced:
        raise InputError("nothing to do: name a --server, a --node or whom to --revoke.")
    if host and server is None:
        raise InputError("--host belongs to a server's certificate; name the --server.")
    _check_days(days)
    written = []
    if server is not None or node:
        written = certificates.make_certificates(out, server=server, hosts=host or (), nodes=node or (), days=days)
    if revoke:
        certificates.revoke(out, revoke)
    if revoke_replaced:
        certificates.revoke_replaced(out, revoke_replaced)
    lines = [f"revoked: {name}" for name in revoke or ()]
    lines += [f"revoked, but for the newest certificate: {name}" for name in revoke_replaced or ()]
    _tell(written, lines, as_json, revoked=certificates.revoked_names(out))


@certs_app.command(epilog=epilogue("certs request"))
def request(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the node, or of the server.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for NAME.key and NAME.csr.")],
    as_json: Json = False,
) -> None:
    """Make a key, which stays here, and a request to be signed by those who hold the authority."""
    from fed_ucbvi.network.certificates import read_request, write_request

    written = write_request(out, name)
    fingerprint = read_request(written[0].read_bytes()).fingerprint
    _tell(written, [f"fingerprint of the key: {fingerprint}"], as_json, name=name, fingerprint=fingerprint)


@certs_app.command(epilog=epilogue("certs sign"))
def sign(
    request_file: Annotated[Path, typer.Argument(metavar="REQUEST", help="NAME.csr, as it was sent.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The authority's folder; gets NAME.crt.")],
    server: Annotated[bool, typer.Option("--server", help="It is the server's request, not a node's.")] = False,
    host: Host = None,
    days: Days = 365.0,
    renew: Annotated[
        bool, typer.Option("--renew", help="Beside the certificate of that name that there is.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Sign a request; compare the fingerprint with its sender's. The first call makes the authority too."""
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.network.certificates import read_request, sign_request

    if host and not server:
        raise InputError("--host belongs to a server's certificate; say --server.")
    _check_days(days)
    asked = read_request(request_file.read_bytes())
    written = sign_request(out, asked, server=server, hosts=host or (), days=days, renew=renew)
    lines = [f"fingerprint of the key: {asked.fingerprint}"]
    _tell(written, lines, as_json, name=asked.name, fingerprint=asked.fingerprint)


def _check_days(days: float) -> None:
    from fed_ucbvi.core.errors import InputError

    if days <= 0:
        raise InputError(f"days must be above 0, got {days:g}.")


def _tell(written: Sequence[Path], lines: Sequence[str], as_json: bool, **rest: object) -> None:
    """Say what was written, and more."""
    from fed_ucbvi.command_line.outputs import print_json

    if as_json:
        print_json({"written": [str(path) for path in written], **rest})
        return
    for line in (*map(str, written), *lines):
        typer.echo(line)
