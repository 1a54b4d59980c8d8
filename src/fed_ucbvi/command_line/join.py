"""``fed-ucbvi join``: a node of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fed_ucbvi.command_line.live_options import REAL, Horizon, LiveKwargs, RewardRange, live_source
from fed_ucbvi.command_line.parameters import whole_number
from fed_ucbvi.command_line.shared_options import (
    ALGORITHM,
    NETWORK,
    OUTPUT,
    PROBLEM,
    Certificates,
    EnvOption,
    EnvSeed,
    EpsP,
    Insecure,
    Json,
    NodeName,
    ServerAddress,
    ServerName,
    algorithm_flag,
    environment_flag,
)
from fed_ucbvi.command_line.standard_error import TEXT, LogFormat, say, write_log
from fed_ucbvi.core import defaults

if TYPE_CHECKING:
    from fed_ucbvi.engine.hosted_problem import Source
    from fed_ucbvi.network.live_agents import LiveSource


def join(
    address: ServerAddress,
    name: NodeName,
    certs: Certificates = None,
    server_name: ServerName = None,
    insecure: Insecure = False,
    patience: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long to look for a server that is away.", rich_help_panel=NETWORK),
    ] = 600.0,
    result: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The signed policy of a run whose end this node has missed; or where it will be.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    env: Annotated[str | None, environment_flag(show_default=defaults.ENVIRONMENT, rich_help_panel=PROBLEM)] = None,
    agents: Annotated[
        int, typer.Option(parser=whole_number, metavar="N", help="Agents on this node.", rich_help_panel=PROBLEM)
    ] = 1,
    first_agent: Annotated[
        int,
        typer.Option(
            parser=whole_number, metavar="I", help="Number of the first of them, from 0.", rich_help_panel=PROBLEM
        ),
    ] = 0,
    eps_p: EpsP = 0.0,
    env_seed: EnvSeed = 0,
    env_option: EnvOption = None,
    algorithm: Annotated[
        str | None,
        algorithm_flag(
            "Take part in runs of this algorithm only; one that is not registered must be named.",
            show_default="any that is registered",
            rich_help_panel=ALGORITHM,
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            metavar="ID|MODULE:FUNCTION",
            help="Instead of --env: real environments, by Gymnasium id or from a function of the agent's number.",
            rich_help_panel=REAL,
        ),
    ] = None,
    live_kwargs: LiveKwargs = None,
    reward_range: RewardRange = None,
    horizon: Horizon = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep this node's counters here; without it a killed node cannot come back.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the recommended policy here at the end, .json or .npz.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier file in --out.", rich_help_panel=OUTPUT)
    ] = False,
    advice: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write here, at the end, which policy each agent should use: the shared one, its own, or a blend.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    send_trajectories: Annotated[
        bool,
        typer.Option(
            "--send-trajectories", help="Agree to algorithms that send trajectories.", rich_help_panel=OUTPUT
        ),
    ] = False,
    require_secure_sums: Annotated[
        bool,
        typer.Option(
            "--require-secure-sums",
            help="Take part only where the server learns sums over all nodes.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    no_rewards: Annotated[
        bool,
        typer.Option("--no-rewards", help="Do not tell what every round paid.", rich_help_panel=OUTPUT),
    ] = False,
    share_counts: Annotated[
        bool,
        typer.Option(
            "--share-counts", help="Agree to send transition counts without secure sums.", rich_help_panel=OUTPUT
        ),
    ] = False,
    log_format: LogFormat = TEXT,
    as_json: Json = False,
) -> None:
    """Join a federation with one or more agents and take part until the run is over."""
    import asyncio
    import logging
    from contextlib import closing

    write_log(log_format, logging.WARNING)
    from fed_ucbvi.command_line.advice import advice_lines, advise_node
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.outputs import print_json
    from fed_ucbvi.command_line.parameters import build_source
    from fed_ucbvi.command_line.policy import policy_line, policy_summary
    from fed_ucbvi.command_line.program import INTERRUPTED
    from fed_ucbvi.core.errors import InputError, check_integer, check_positive_integer
    from fed_ucbvi.network.client import LeftError, take_part
    from fed_ucbvi.network.node import Node
    from fed_ucbvi.network.transport import TLSFiles
    from fed_ucbvi.results.policy import check_policy_file

    if insecure == (certs is not None):
        raise InputError("say either --certs DIR ('fed-ucbvi certs' makes one) or --insecure.")
    check_positive_integer("--agents", agents)
    check_integer("--first-agent", first_agent)
    if out is not None:
        check_policy_file(out)
        if out.exists() and not overwrite:
            raise InputError(f"{out} exists; choose another name, or allow overwriting it (--overwrite).")
    if live is not None:
        if env is not None or env_option or eps_p or env_seed:
            raise InputError("--env, --env-option, --env-seed and --eps-p are for simulated agents, not for --live.")
        source: Source | LiveSource = live_source(live, live_kwargs, reward_range, horizon)
    elif (live_kwargs, reward_range, horizon) != (None, None, None):
        raise InputError("--live-kwargs, --reward-range and --horizon are for real environments (--live).")
    else:
        source = build_source(env or defaults.ENVIRONMENT, first_agent + agents, eps_p, env_seed, env_option or ())
    if require_secure_sums and insecure:
        raise InputError("--require-secure-sums needs certificates; an insecure federation cannot have them.")
    node = Node(
        name,
        source,
        first_agent,
        agents,
        state,
        trajectories=send_trajectories,
        algorithm=algorithm,
        require_secure_sums=require_secure_sums,
        share_counts=share_counts,
        rewards=not no_rewards,
    )
    tls_files = None if certs is None else TLSFiles.of(certs, name)
    try:
        with interruptible(), closing(node):
            told = asyncio.run(
                take_part(node, address, tls_files, server_name=server_name, patience=patience, result=result)
            )
    except LeftError:
        left = {"node": name, "run": node.run, "agents": [first_agent, agents], "rounds": node.rounds, "left": True}
        if as_json:
            print_json(left)
        else:
            typer.echo(f"{name}: has left run {node.run} for good, after {node.rounds:,} rounds")
        return
    except KeyboardInterrupt:
        again = "" if state is None else "; start the same command again to come back"
        say(f"{name}: interrupted after {node.rounds:,} rounds{again}")
        raise typer.Exit(INTERRUPTED) from None
    run, rounds = (node.run, node.rounds) if told is None else (told.run, told.rounds)
    policy = node.policy
    if out is not None and policy is not None:
        policy.save(out)
    found = None if advice is None else advise_node(node, advice)
    summary = {"node": name, "run": run, "agents": [first_agent, agents], "rounds": rounds}
    if as_json:
        told_of = {"policy": None if policy is None else policy_summary(policy, out), "advice": found}
        print_json({**summary, **told_of})
        return
    took = f"took part in run {run} to its end" if told is None else f"run {run} is over, as {result} says"
    received = "" if policy is None else "; received the recommended policy"
    typer.echo(f"{name}: {took}, {rounds:,} rounds{received}")
    if out is not None and policy is not None:
        typer.echo(policy_line(policy, out))
    for line in () if found is None else advice_lines(found):
        typer.echo(line)
