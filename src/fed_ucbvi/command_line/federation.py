"""``fed-ucbvi serve`` and ``federate``: a server, and a whole federation on one machine."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from fed_ucbvi.command_line import options, outputs
from fed_ucbvi.command_line.flags import NETWORK, OUTPUT
from fed_ucbvi.command_line.options import Output, fields, option
from fed_ucbvi.command_line.outputs import (
    check_kept,
    finish,
    finish_trackers,
    live_page,
    plain_warnings,
    tracking,
    warn,
)
from fed_ucbvi.command_line.program import interruptible, say, write_log, writes_json
from fed_ucbvi.command_line.running import TABLES, counts_at, incumbent_at
from fed_ucbvi.core import defaults
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.core.memory import check_memory
from fed_ucbvi.engine.progress import waiting_to_explore
from fed_ucbvi.run_spec import AGENTS_SERVED, FederationRules, RunSpec

if TYPE_CHECKING:
    from fed_ucbvi.network.coordinator import Coordinator
    from fed_ucbvi.network.members import FederationStatus
    from fed_ucbvi.network.server import FederationServer

BYTES_PER_NODE = 120_000_000
"""What the process of a node takes in memory."""
SERVED = fields(
    f"{TABLES} sizes bins random_rewards algorithm parameters seed warm_start incumbent loss until_gap "
    f"return_range {' '.join(FederationRules.__annotations__)} checkpoint out overwrite",
    environment={"help": "The environment, if the server may know it; then it scores.", "default": None},
    agents={
        "help": "Agents on all nodes.",
        "default": f"{AGENTS_SERVED}, or that of your own environment",
    },
    eps_p={
        "help": "Heterogeneity, from 0 to below 1; where it is unknown, nu is computed with 0.",
        "default": "0 with --env, else unknown",
    },
    checkpoint={"help": "Keep every finished round here, and resume from it if it is there."},
)


def serve(
    spec: RunSpec = SERVED,
    output: Output = fields("log_format track track_every dashboard as_json quiet"),
    own: options.ConnectionOptions = fields(
        "certs name insecure", name={"value": "server", "help": "The server's certificate in it."}
    ),
    listen: str = option("127.0.0.1:50051", "HOST:PORT", "Where to listen; port 0 uses a free one.", NETWORK),
    port_file: Path | None = option(None, "FILE", "Write the port here once it is open.", NETWORK),
    metrics: str | None = option(
        None, "HOST:PORT", "Serve metrics for Prometheus here; on this machine only.", OUTPUT
    ),
) -> None:
    """Serve a federation: wait for nodes that bring all M agents, then run to the end.

    On the --checkpoint of an earlier server the run is resumed. --episodes may then be larger than before, for
    algorithms that allow it.
    """
    import asyncio

    write_log(output.log_format, logging.WARNING if output.quiet else logging.INFO)
    from fed_ucbvi.network.certificates import TLSFiles
    from fed_ucbvi.network.dashboard.state import LiveState, Subject
    from fed_ucbvi.network.run_plan import plan_of
    from fed_ucbvi.network.server import FederationServer
    from fed_ucbvi.results.run_data import CallbackList

    certs = own.certs
    options.check_certificates(certs, insecure=own.insecure)
    check_kept(spec)
    if spec.secure_sums and own.insecure:
        raise InputError("--secure-sums needs certificates, by which nodes know each other's keys; use --certs.")
    counts = None if spec.warm_start is None else counts_at(spec.warm_start)
    incumbent = None if spec.incumbent is None else incumbent_at(spec.incumbent)
    plan = plan_of(spec, counts=counts, incumbent=incumbent)
    for text in plan.algorithm.cautions(plan.setting):
        warn(text)
    service: FederationServer | None = None

    def status() -> FederationStatus:
        assert service is not None
        return service.coordinator.status()

    counted = None
    if metrics is not None or output.dashboard is not None:
        from fed_ucbvi.network.dashboard.metrics import METRICS, Metrics
        from fed_ucbvi.network.dashboard.server import check_local

        if metrics is not None:
            check_local(metrics, METRICS)
        counted = Metrics(status)

    async def work() -> None:
        nonlocal service
        async with AsyncExitStack() as stack:
            render = None if counted is None else counted.render
            page = stack.enter_context(live_page(output, lambda: LiveState(Subject.of_plan(plan)), render))
            display = stack.enter_context(show_federation(quiet=output.quiet))
            service = FederationServer(
                plan,
                listen,
                None if certs is None else TLSFiles.of(certs, str(own.name)),
                checkpoint=spec.checkpoint,
                report=display.report,
                on_round=CallbackList(page, counted, *trackers) or None,
                on_exchange=None if counted is None else counted.on_exchange,
            )
            if port_file is not None:
                with new_file(port_file) as draft:
                    draft.write_text(f"{service.port}\n", encoding="utf-8")
            display.say(f"listening on port {service.port} for {plan.setting.agents} agents; run {service.plan.run}")
            if counted is not None and metrics is not None:
                display.say(f"metrics at {stack.enter_context(counted.served(metrics))}")
            async with nullcontext() if page is None else page.following(service.coordinator):
                await service.run()
            outcome = service.outcome()
            if page is not None:
                page.finish(outcome.run, ended=outcome.ended)

    with interruptible() as interruption, plain_warnings(), tracking(output) as trackers:
        failure: InputError | None = None
        try:
            asyncio.run(work())
        except KeyboardInterrupt:
            pass
        except InputError as error:
            failure = error
        interruption.saving()
        if service is None:
            raise failure or KeyboardInterrupt
        outcome = service.outcome()
        try:
            finish(outcome.run, spec, output, outcome, failure)
        finally:
            finish_trackers(trackers, outcome.run)


def federate(
    spec: RunSpec = fields(
        f"{TABLES} algorithm parameters seed incumbent loss return_range secure_sums out overwrite",
        agents={
            "help": "Agents on all nodes.",
            "default": "one each, or that of your own environment",
        },
    ),
    output: Output = fields("log_format dashboard as_json quiet"),
    nodes: int = option(4, "N", "Nodes, each a process.", NETWORK),
    logs: str | None = option(
        None, "FILES", "The nodes' logs: a file each, with {} in place of the node's number, from 0.", NETWORK
    ),
    folder: Path | None = option(
        None, "DIR", "Keep certificates, checkpoint and states here; the same command resumes from there.", OUTPUT
    ),
) -> None:
    """Start a server and nodes on this machine, with certificates made for the occasion, and show the run."""
    write_log(output.log_format, logging.WARNING)
    import tempfile

    from fed_ucbvi.network.local import run_locally

    files = [] if logs is None else [logs.replace("{}", str(node)) for node in range(nodes)]
    for file in files:
        if not Path(file).is_file():
            raise InputError(f"{file} is no file; --logs needs one for each node, with {{}} for its number.")
    check_memory(f"A federation of {nodes:,} nodes on one machine", BYTES_PER_NODE * nodes, "Use fewer nodes.")
    agents = spec.make_federation(nodes).agents if spec.agents is None else spec.agents
    environment = spec.environment or defaults.ENVIRONMENT
    problem = ["--env", environment, *options.arguments_of(spec, "eps_p env_seed environment_options")]
    run = options.arguments_of(
        spec, "episodes algorithm parameters seed incumbent loss return_range secure_sums out overwrite"
    )
    shown = options.arguments_of(output, "log_format dashboard as_json quiet")
    own = ["--algorithm", spec.algorithm, "--send-trajectories", "--log-format", output.log_format]
    own += ["--require-secure-sums"] if spec.secure_sums else []
    throw_away = tempfile.TemporaryDirectory(prefix="fed-ucbvi-") if folder is None else nullcontext(folder)
    with interruptible(), throw_away as place:
        code = run_locally(
            Path(place),
            agents=agents,
            nodes=nodes,
            server_arguments=[*problem, *run, *shown],
            node_arguments=lambda node: [*problem, *own, *(["--logs", files[node]] if files else [])],
        )
    if code:
        raise typer.Exit(code if code > 0 else 128 - code)  # a server that was killed, as a shell says it


class Display(NamedTuple):
    """A function to call after every round, and one that prints a line, on a terminal above the figures."""

    report: Callable[[Coordinator], None]
    say: Callable[[str], None]


@contextmanager
def show_federation(*, quiet: bool) -> Iterator[Display]:
    """Keep one line up to date on a terminal, with messages about nodes above it; not where the log is JSON."""
    if quiet or writes_json() or not sys.stderr.isatty():
        yield Display(lambda run: None, say)
        return
    from rich.console import Console
    from rich.logging import RichHandler
    from rich.status import Status

    console = Console(stderr=True)
    root = logging.getLogger()
    root.handlers[:] = [RichHandler(console=console, show_path=False, show_level=False)]
    with Status("waiting for nodes", console=console) as status:

        def report(run: Coordinator) -> None:
            last = run.engine.last_round()
            nobody = "requests are secret" if run.plan.secure_sums else "nobody asked"
            asked = f"agent {last.agent} asked" if last.agent >= 0 else nobody
            known = "" if math.isnan(last.gap) else f", gap {last.gap:,.4g}"
            status.update(
                f"{run.registry.connected} nodes, round {run.round:,}, {last.episodes:,} of "
                f"{last.planned_episodes:,} episodes, {outputs.up_and_down(run.registry.wire)}{known}; "
                f"{waiting_to_explore(last)}{asked}"
            )

        yield Display(report, lambda text: console.print(text, highlight=False, markup=False))
