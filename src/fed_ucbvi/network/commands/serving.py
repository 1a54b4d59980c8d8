"""``fed-ucbvi serve``: the server of a federation."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from fed_ucbvi.command_line.flags import OUTPUT
from fed_ucbvi.command_line.options import Output, fields, option
from fed_ucbvi.command_line.outputs import (
    check_kept,
    finish_trackers,
    plain_warnings,
    tracking,
    warn,
)
from fed_ucbvi.command_line.program import interruptible, write_log
from fed_ucbvi.command_line.running import TABLES, counts_at, incumbent_at
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.network.commands.flags import NETWORK, RULE_FLAGS
from fed_ucbvi.network.commands.options import ConnectionOptions, check_certificates
from fed_ucbvi.network.commands.outputs import finish_federation, show_federation
from fed_ucbvi.network.federation_spec import AGENTS_SERVED, FederationRules, FederationSpec
from fed_ucbvi.specifications.algorithm import AlgorithmSpec
from fed_ucbvi.specifications.problem import ProblemSpec
from fed_ucbvi.specifications.run import RunOptions, RunSpec

if TYPE_CHECKING:
    from fed_ucbvi.network.members import FederationStatus
    from fed_ucbvi.network.server import FederationServer


def serve(
    problem: ProblemSpec = fields(
        f"{TABLES} sizes bins random_rewards",
        environment={"help": "The environment, if the server may know it; then it scores.", "default": None},
        agents={
            "help": "Agents on all nodes.",
            "default": f"{AGENTS_SERVED}, or that of your own environment",
        },
        eps_p={
            "help": "Heterogeneity, from 0 to below 1; where it is unknown, nu is computed with 0.",
            "default": "0 with --env, else unknown",
        },
    ),
    algorithm: AlgorithmSpec = fields("name parameters"),
    run: RunOptions = fields(
        "episodes seed warm_start incumbent loss until_gap return_range checkpoint out overwrite",
        checkpoint={"help": "Keep every finished round here, and resume from it if it is there."},
    ),
    rules: FederationRules = fields(table=RULE_FLAGS),
    output: Output = fields("log_format track track_every dashboard as_json quiet"),
    own: ConnectionOptions = fields(
        "certs name insecure",
        name={"value": "server", "help": "The server's certificate in --certs."},
    ),
    listen: str = option(
        "127.0.0.1:50051",
        "HOST:PORT",
        "Where to listen; port 0 uses a free one.",
        panel=NETWORK,
    ),
    port_file: Path | None = option(None, "FILE", "Write the port here once it is open.", panel=NETWORK),
    metrics: str | None = option(
        None,
        "HOST:PORT",
        "Serve metrics for Prometheus here; on this machine only.",
        panel=OUTPUT,
    ),
) -> None:
    """Serve a federation: wait for nodes that bring all M agents, then run to the end.

    On the --checkpoint of an earlier server the run is resumed. --episodes may then be larger than before, for
    algorithms that allow it.
    """
    import asyncio

    write_log(output.log_format, logging.WARNING if output.quiet else logging.INFO)
    from fed_ucbvi.network.certificates import TLSFiles
    from fed_ucbvi.network.run_plan import plan_of
    from fed_ucbvi.network.server import FederationServer
    from fed_ucbvi.results.run_data import CallbackList

    certs = own.certs
    check_certificates(certs, insecure=own.insecure)
    check_kept(run)
    if rules.secure_sums and own.insecure:
        raise InputError("--secure-sums needs certificates, by which nodes know each other's keys; use --certs.")
    spec = FederationSpec(run=RunSpec(problem=problem, algorithm=algorithm, options=run), rules=rules)
    plan = plan_of(
        spec,
        counts=None if run.warm_start is None else counts_at(run.warm_start),
        incumbent=None if run.incumbent is None else incumbent_at(run.incumbent),
    )
    for text in plan.algorithm.cautions(plan.setting):
        warn(text)
    service: FederationServer | None = None

    def status() -> FederationStatus:
        assert service is not None
        return service.coordinator.status()

    counted = None
    if metrics is not None or output.dashboard is not None:
        from fed_ucbvi.network.dashboard.metrics import METRICS, Metrics
        from fed_ucbvi.network.dashboard.pages import serve_federation
        from fed_ucbvi.network.dashboard.server import check_local

        if metrics is not None:
            check_local(metrics, METRICS)
        counted = Metrics(status)

    async def work() -> None:
        nonlocal service
        async with AsyncExitStack() as stack:
            page = None
            if output.dashboard is not None and counted is not None:
                page = stack.enter_context(serve_federation(output.dashboard, plan, counted.render))
            display = stack.enter_context(show_federation(quiet=output.quiet))
            service = FederationServer(
                plan,
                listen,
                None if certs is None else TLSFiles.of(certs, str(own.name)),
                checkpoint=run.checkpoint,
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
            finish_federation(outcome, run, output, secure_sums=rules.secure_sums, failure=failure)
        finally:
            finish_trackers(trackers, outcome.run)
