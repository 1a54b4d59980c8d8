"""``fed-ucbvi certs``: certificates and keys of a federation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from fed_ucbvi.command_line.options import JSON, argument, option
from fed_ucbvi.command_line.outputs import print_result
from fed_ucbvi.core.errors import InputError, check_number

DAYS = option(365.0, "N", "How long they are valid.")
MAX_DAYS = 36_525
HOST = option(None, "HOST", "A name or address by which nodes reach the server; may be repeated.")


def certs(
    context: typer.Context,
    out: Path | None = option(None, "DIR", "Folder for certificates and keys; may hold some already."),
    server: str | None = option(None, "NAME", "Make a certificate for the server."),
    host: list[str] | None = HOST,
    node: list[str] | None = option(None, "NAME", "Make a certificate for this node; may be repeated."),
    days: float = DAYS,
    as_json: bool = JSON,
) -> None:
    """Make certificates and keys for a whole federation at once; the first call makes the certificate authority too.

    Where every party is to make its own key, use the commands below.
    """
    if context.invoked_subcommand is not None:
        if out is not None or server or host or node:
            raise InputError(f"put options behind 'certs {context.invoked_subcommand}', not before it.")
        return
    from fed_ucbvi.network.certificates import make_certificates

    if out is None:
        raise InputError("name the folder for certificates (--out DIR).")
    if server is None and not node:
        raise InputError("nothing to do: name a --server or a --node.")
    if host and server is None:
        raise InputError("--host belongs to a server's certificate; name the --server.")
    check_number("days", days, above=0, at_most=MAX_DAYS)
    written = make_certificates(out, server=server, hosts=host or (), nodes=node or (), days=days)
    files = [str(path) for path in written]
    print_result(as_json, {"written": files}, *files)


def request(
    name: str = argument("NAME", "Of the node, or of the server."),
    out: Path = option(..., "DIR", "Folder for NAME.key and NAME.csr."),
    as_json: bool = JSON,
) -> None:
    """Make a key, which stays here, and a request to be signed by those who hold the authority."""
    from fed_ucbvi.network.certificates import read_request, write_request

    written = write_request(out, name)
    _print_written(written, name, read_request(written[0].read_bytes()).fingerprint, as_json)


def sign(
    request_file: Path = argument("REQUEST", "NAME.csr, as it was sent."),
    out: Path = option(..., "DIR", "The authority's folder; gets NAME.crt."),
    server: bool = option(False, "", "It is the server's request, not a node's."),
    host: list[str] | None = HOST,
    days: float = DAYS,
    as_json: bool = JSON,
) -> None:
    """Sign a request; compare the fingerprint with its sender's. The first call makes the authority too."""
    from fed_ucbvi.network.certificates import read_request, sign_request

    if host and not server:
        raise InputError("--host belongs to a server's certificate; pass --server.")
    check_number("days", days, above=0, at_most=MAX_DAYS)
    asked = read_request(request_file.read_bytes())
    written = sign_request(out, asked, server=server, hosts=host or (), days=days)
    _print_written(written, asked.name, asked.fingerprint, as_json)


def _print_written(written: Sequence[Path], name: str, fingerprint: str, as_json: bool) -> None:
    files = [str(path) for path in written]
    content = {"written": files, "name": name, "fingerprint": fingerprint}
    print_result(as_json, content, *files, f"fingerprint of the key: {fingerprint}")
