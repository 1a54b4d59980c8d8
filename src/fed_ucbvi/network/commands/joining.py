"""``fed-ucbvi join`` and ``policy``: a node of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fed_ucbvi.command_line.flags import OUTPUT, PROBLEM
from fed_ucbvi.command_line.options import JSON, LiveOptions, Output, fields, option
from fed_ucbvi.command_line.outputs import print_result
from fed_ucbvi.command_line.program import INTERRUPTED, interruptible, say, write_log
from fed_ucbvi.core.errors import InputError, check_integer, check_number
from fed_ucbvi.network.commands.flags import NETWORK, TERM_FLAGS
from fed_ucbvi.network.commands.options import SERVER, ConnectionOptions, live_source
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.specifications.problem import ProblemSpec

if TYPE_CHECKING:
    from fed_ucbvi.results.policy import LearntPolicy


def join(
    problem: ProblemSpec = fields(
        "environment agents eps_p env_seed environment_options",
        agents={"value": 1, "help": "Agents on this node.", "default": None},
    ),
    live: LiveOptions = fields(),
    connection: ConnectionOptions = fields(),
    terms: NodeTerms = fields(table=TERM_FLAGS),
    output: Output = fields("log_format as_json"),
    address: str = SERVER,
    patience: float = option(600.0, "SECONDS", "How long to look for a server that is away.", panel=NETWORK),
    result: Path | None = option(
        None,
        "FILE",
        "The signed policy of a run whose end this node has missed; or where it will be.",
        panel=NETWORK,
    ),
    first_agent: int = option(0, "I", "Number of the first of them, from 0.", panel=PROBLEM),
    logs: Path | None = option(
        None,
        "FILE",
        "Episodes recorded before the run (.csv, .parquet); they stay here, their counts are the first report.",
        panel=PROBLEM,
    ),
    state: Path | None = option(
        None,
        "DIR",
        "Keep this node's counters here; without it a killed node cannot rejoin.",
        panel=OUTPUT,
    ),
    out: Path | None = option(
        None,
        "FILE",
        "Write the recommended policy here at the end, as .json.",
        panel=OUTPUT,
    ),
    overwrite: bool = option(False, "", "Replace an earlier file in --out.", panel=OUTPUT),
    members: Path | None = option(
        None,
        "FILE",
        "Who counts as a contributor: a name, or the SHA-256 of a certificate, on each line.",
        panel=OUTPUT,
    ),
) -> None:
    """Join a federation with one or more agents and take part until the run is over."""
    import asyncio
    import logging
    from contextlib import closing

    write_log(output.log_format, logging.WARNING)
    from fed_ucbvi.network.client import run_node
    from fed_ucbvi.network.node import Node
    from fed_ucbvi.network.sources import check_room, simulated_source
    from fed_ucbvi.results.policy import check_policy_file

    check_number("patience", patience, at_least=0)
    agents = problem.agents or 1
    name = str(connection.name)
    server = connection.server(address)
    check_integer("--first-agent", first_agent)
    if logs is not None and not logs.is_file():
        raise InputError(f"{logs} is not a file; --logs takes a .csv or .parquet file with one row for each step.")
    if out is not None:
        check_policy_file(out)
        if out.exists() and not overwrite:
            raise InputError(f"{out} exists; choose another name, or allow overwriting it (--overwrite).")
    if live.live is None and live != LiveOptions():
        raise InputError("--live-kwargs, --reward-range and --horizon are for real environments (--live).")
    if live.live is not None and problem != ProblemSpec(agents=agents):
        raise InputError("--env, --env-option, --env-seed and --eps-p are for simulated agents, not for --live.")
    if terms.require_secure_sums and connection.insecure:
        raise InputError("--require-secure-sums needs certificates; an insecure federation cannot have them.")
    check_room(first_agent + agents)
    node = Node(
        name,
        simulated_source(problem, first_agent + agents) if live.live is None else live_source(live),
        first_agent,
        agents,
        state,
        members=None if members is None else read_members(members),
        logs=logs,
        terms=terms,
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
    out: Path = option(..., "FILE", "Where to write the policy (.json).", panel=OUTPUT),
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
