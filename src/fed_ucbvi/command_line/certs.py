"""``fed-ucbvi certs``: a certificate authority and certificates for a server and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from fed_ucbvi.command_line.options import JSON, argument, option
from fed_ucbvi.command_line.outputs import print_result
from fed_ucbvi.core.errors import InputError

DAYS = option(365.0, "N", "How long they are valid.")
HOST = option(None, "HOST", "A name or address by which nodes reach the server; may be repeated.")


def certs(
    context: typer.Context,
    out: Path | None = option(None, "DIR", "Folder for certificates and keys; may hold some already."),
    server: str | None = option(None, "NAME", "Make a certificate for the server."),
    host: list[str] | None = HOST,
    node: list[str] | None = option(None, "NAME", "Make a certificate for this node; may be repeated."),
    days: float = DAYS,
    revoke: list[str] | None = option(None, "NAME", "Reject this node from now on; may be repeated."),
    revoke_replaced: list[str] | None = option(
        None, "NAME", "Reject its certificates but the newest; may be repeated."
    ),
    as_json: bool = JSON,
) -> None:
    """Make certificates and keys for a whole federation at once; the first call makes the certificate authority too.

    Where every party is to make its own key, use the commands below.
    """
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
    content = {"written": _texts(written), "revoked": certificates.revoked_names(out)}
    print_result(as_json, content, *_texts(written), *lines)


def request(
    name: str = argument("NAME", "Of the node, or of the server."),
    out: Path = option(..., "DIR", "Folder for NAME.key and NAME.csr."),
    as_json: bool = JSON,
) -> None:
    """Make a key, which stays here, and a request to be signed by those who hold the authority."""
    from fed_ucbvi.network.certificates import read_request, write_request

    written = write_request(out, name)
    _tell(written, name, read_request(written[0].read_bytes()).fingerprint, as_json)


def sign(
    request_file: Path = argument("REQUEST", "NAME.csr, as it was sent."),
    out: Path = option(..., "DIR", "The authority's folder; gets NAME.crt."),
    server: bool = option(False, "", "It is the server's request, not a node's."),
    host: list[str] | None = HOST,
    days: float = DAYS,
    renew: bool = option(False, "", "Beside the certificate of that name that there is."),
    as_json: bool = JSON,
) -> None:
    """Sign a request; compare the fingerprint with its sender's. The first call makes the authority too."""
    from fed_ucbvi.network.certificates import read_request, sign_request

    if host and not server:
        raise InputError("--host belongs to a server's certificate; pass --server.")
    _check_days(days)
    asked = read_request(request_file.read_bytes())
    written = sign_request(out, asked, server=server, hosts=host or (), days=days, renew=renew)
    _tell(written, asked.name, asked.fingerprint, as_json)


def _check_days(days: float) -> None:
    if days <= 0:
        raise InputError(f"days must be above 0, got {days:g}.")


def _tell(written: Sequence[Path], name: str, fingerprint: str, as_json: bool) -> None:
    content = {"written": _texts(written), "name": name, "fingerprint": fingerprint}
    print_result(as_json, content, *_texts(written), f"fingerprint of the key: {fingerprint}")


def _texts(paths: Sequence[Path]) -> list[str]:
    return [str(path) for path in paths]
