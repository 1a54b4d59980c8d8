"""``fed-ucbvi join``, ``policy`` and ``certs``: a node of a federation, and certificates for all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fed_ucbvi.command_line.flags import NETWORK, OUTPUT, PROBLEM
from fed_ucbvi.command_line.options import (
    JSON,
    SERVER,
    ConnectionOptions,
    LiveOptions,
    Output,
    argument,
    fields,
    option,
)
from fed_ucbvi.command_line.outputs import print_result
from fed_ucbvi.command_line.program import INTERRUPTED, interruptible, say, write_log
from fed_ucbvi.core.errors import InputError, check_integer, check_number
from fed_ucbvi.run_spec import NodeTerms, RunSpec

if TYPE_CHECKING:
    from fed_ucbvi.results.policy import LearntPolicy

DAYS = option(365.0, "N", "How long they are valid.")
MAX_DAYS = 36_525
HOST = option(None, "HOST", "A name or address by which nodes reach the server; may be repeated.")


def join(
    spec: RunSpec = fields(
        "environment agents eps_p env_seed environment_options",
        agents={"value": 1, "help": "Agents on this node.", "default": None},
    ),
    live: LiveOptions = fields(),
    connection: ConnectionOptions = fields(),
    terms: NodeTerms = fields(),
    output: Output = fields("log_format as_json"),
    address: str = SERVER,
    patience: float = option(600.0, "SECONDS", "How long to look for a server that is away.", NETWORK),
    result: Path | None = option(
        None, "FILE", "The signed policy of a run whose end this node has missed; or where it will be.", NETWORK
    ),
    first_agent: int = option(0, "I", "Number of the first of them, from 0.", PROBLEM),
    logs: Path | None = option(
        None,
        "FILE",
        "Episodes recorded before the run (.csv, .parquet); they stay here, their counts are the first report.",
        PROBLEM,
    ),
    state: Path | None = option(
        None, "DIR", "Keep this node's counters here; without it a killed node cannot rejoin.", OUTPUT
    ),
    out: Path | None = option(None, "FILE", "Write the recommended policy here at the end, as .json.", OUTPUT),
    overwrite: bool = option(False, "", "Replace an earlier file in --out.", OUTPUT),
    members: Path | None = option(
        None, "FILE", "Who counts as a contributor: a name, or the SHA-256 of a certificate, on each line.", OUTPUT
    ),
) -> None:
    """Join a federation with one or more agents and take part until the run is over."""
    import asyncio
    import logging
    from contextlib import closing

    write_log(output.log_format, logging.WARNING)
    from fed_ucbvi.network.client import run_node
    from fed_ucbvi.network.node import Node
    from fed_ucbvi.network.sources import check_room
    from fed_ucbvi.results.policy import check_policy_file

    check_number("patience", patience, at_least=0)
    agents = spec.agents or 1
    name = str(connection.name)
    server = connection.server(address)
    check_integer("--first-agent", first_agent)
    if logs is not None and not logs.is_file():
        raise InputError(f"{logs} is no file; --logs takes a .csv or .parquet file with one row for each step.")
    if out is not None:
        check_policy_file(out)
        if out.exists() and not overwrite:
            raise InputError(f"{out} exists; choose another name, or allow overwriting it (--overwrite).")
    if live.live is None and live != LiveOptions():
        raise InputError("--live-kwargs, --reward-range and --horizon are for real environments (--live).")
    if live.live is not None and spec != RunSpec(agents=agents):
        raise InputError("--env, --env-option, --env-seed and --eps-p are for simulated agents, not for --live.")
    if terms.require_secure_sums and connection.insecure:
        raise InputError("--require-secure-sums needs certificates; an insecure federation cannot have them.")
    check_room(first_agent + agents)
    node = Node(
        name,
        spec.source(first_agent + agents) if live.live is None else live.source(),
        first_agent,
        agents,
        state,
        members=None if members is None else read_members(members),
        logs=logs,
        **vars(terms),
    )
    about: dict[str, Any] = {"node": name, "agents": [first_agent, agents]}
    try:
        with interruptible(), closing(node):
            ended = asyncio.run(run_node(node, server, patience=patience, result=result))
    except KeyboardInterrupt:
        again = "" if state is None else "; start the same command again to rejoin"
        say(f"{name}: interrupted after {node.rounds:,} rounds{again}")
        raise typer.Exit(INTERRUPTED) from None
    run, rounds = (node.run, node.rounds) if ended is None else (ended.run, ended.rounds)
    policy, lines = _keep_policy(node.policy, out)
    took = f"took part in run {run} to its end" if ended is None else f"run {run} is over, as {result} says"
    received = "" if policy is None else "; received the recommended policy"
    print_result(
        output.as_json,
        {**about, "run": run, "rounds": rounds, "policy": policy},
        f"{name}: {took}, {rounds:,} rounds{received}",
        *lines,
    )


def read_members(file: Path) -> frozenset[str]:
    """The lines of a file, each a node's name or the fingerprint of its certificate."""
    try:
        lines = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}.") from error
    if not lines:
        raise InputError(f"{file} is empty; write a node's name on each line.")
    return frozenset(line.lower().replace(":", "") if len(line) >= 64 else line for line in lines)


def policy(
    connection: ConnectionOptions = fields(
        "certs name server_name insecure", name={"value": None, "help": "The node, whose certificate is in --certs."}
    ),
    address: str = SERVER,
    out: Path = option(..., "FILE", "Where to write the policy (.json).", OUTPUT),
    as_json: bool = JSON,
) -> None:
    """Ask the server of a federation for the policy that it recommended last; the run is not disturbed."""
    import asyncio

    from fed_ucbvi.network.certificates import check_name
    from fed_ucbvi.network.client import ask_policy
    from fed_ucbvi.results.policy import check_policy_file

    if connection.insecure == (connection.certs is not None) or connection.insecure == (connection.name is not None):
        raise InputError("pass either --certs DIR and --name NODE, or --insecure.")
    check_policy_file(out)
    if connection.name is not None:
        check_name(connection.name)
    with interruptible():
        content, lines = _keep_policy(asyncio.run(ask_policy(connection.server(address))), out)
    print_result(as_json, content or {}, *lines)


def _keep_policy(found: LearntPolicy | None, out: Path | None) -> tuple[dict[str, Any] | None, list[str]]:
    """Save a received policy, if there is one, in ``out``, if given; its description for JSON, and in words."""
    if found is None:
        return None, []
    content = {name: getattr(found, name) for name in ("run", "rounds", "episodes", "final")}
    content |= {"policy_sha256": found.digest, "signed": bool(found.signature)}
    if out is None:
        return {**content, "file": None}, []
    found.save(out)
    sealed = "signed by the server" if found.signature else "unsigned, because the federation is insecure"
    when = "at the end of" if found.final else f"after round {found.rounds:,} of"
    line = f"{out}: the policy recommended {when} run {found.run}, {sealed}, SHA-256 {found.digest[:16]}..."
    return {**content, "file": str(out)}, [line]


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
