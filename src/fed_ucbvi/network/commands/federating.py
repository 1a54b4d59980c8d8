"""``fed-ucbvi federate``: a server and its nodes on this machine."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path

import typer

from fed_ucbvi.command_line.flags import OUTPUT
from fed_ucbvi.command_line.options import Output, arguments_of, fields, option
from fed_ucbvi.command_line.program import interruptible, write_log
from fed_ucbvi.command_line.running import TABLES
from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.memory import check_memory
from fed_ucbvi.network.commands.flags import NETWORK, RULE_FLAGS
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.specifications.algorithm import AlgorithmSpec
from fed_ucbvi.specifications.problem import ProblemSpec
from fed_ucbvi.specifications.run import RunOptions

BYTES_PER_NODE = 120_000_000
"""Memory of the process of a node."""


def federate(
    problem: ProblemSpec = fields(
        TABLES,
        agents={
            "help": "Agents on all nodes.",
            "default": "one each, or that of your own environment",
        },
    ),
    algorithm: AlgorithmSpec = fields("name parameters"),
    run: RunOptions = fields("episodes seed incumbent loss return_range out overwrite"),
    rules: FederationRules = fields("secure_sums", table=RULE_FLAGS),
    output: Output = fields("log_format dashboard as_json quiet"),
    nodes: int = option(4, "N", "Nodes, each a process.", panel=NETWORK),
    logs: str | None = option(
        None,
        "FILES",
        "The nodes' logs: a file each, with {} in place of the node's number, from 0.",
        panel=NETWORK,
    ),
    folder: Path | None = option(
        None,
        "DIR",
        "Keep certificates, checkpoint and states here; the same command resumes from there.",
        panel=OUTPUT,
    ),
) -> None:
    """Start a server and nodes on this machine, with certificates made for the occasion, and show the run."""
    write_log(output.log_format, logging.WARNING)
    import tempfile

    from fed_ucbvi.network.local import run_locally

    files = [] if logs is None else [logs.replace("{}", str(node)) for node in range(nodes)]
    for file in files:
        if not Path(file).is_file():
            raise InputError(f"{file} is not a file; --logs needs one for each node, with {{}} for its number.")
    check_memory(f"A federation of {nodes:,} nodes on one machine", BYTES_PER_NODE * nodes, "Use fewer nodes.")
    agents = problem.make_federation(nodes).agents if problem.agents is None else problem.agents
    environment = ["--env", problem.environment or defaults.ENVIRONMENT]
    environment += arguments_of(problem, "eps_p env_seed environment_options")
    server_arguments = [
        *environment,
        *arguments_of(algorithm, "name parameters"),
        *arguments_of(run, "episodes seed incumbent loss return_range out overwrite"),
        *arguments_of(rules, "secure_sums", RULE_FLAGS),
        *arguments_of(output, "log_format dashboard as_json quiet"),
    ]

    def node_arguments(node: int) -> list[str]:
        words = [*environment, "--algorithm", algorithm.name, "--send-trajectories"]
        words += arguments_of(output, "log_format")
        if rules.secure_sums:
            words.append("--require-secure-sums")
        if files:
            words += ["--logs", files[node]]
        return words

    throw_away = tempfile.TemporaryDirectory(prefix="fed-ucbvi-") if folder is None else nullcontext(folder)
    with interruptible(), throw_away as place:
        code = run_locally(
            Path(place),
            agents=agents,
            nodes=nodes,
            server_arguments=server_arguments,
            node_arguments=node_arguments,
        )
    if code:
        raise typer.Exit(code if code > 0 else 128 - code)  # the code that a shell gives a killed process
