"""``fed-ucbvi serve``: the central server of a federation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fed_ucbvi.command_line.parameters import USUAL_AGENTS_SERVED, whole_number
from fed_ucbvi.command_line.shared_options import (
    FAULTS,
    NETWORK,
    OUTPUT,
    PROBLEM,
    AlgorithmName,
    AlgorithmOption,
    Certificates,
    Dashboard,
    DashboardCert,
    DashboardToken,
    EnvOption,
    EnvSeed,
    Episodes,
    Exchange,
    Insecure,
    Json,
    Out,
    Overwrite,
    Quiet,
    SecureSums,
    Seed,
    WarmStart,
    environment_flag,
)
from fed_ucbvi.command_line.standard_error import TEXT, LogFormat, write_log
from fed_ucbvi.command_line.tracking import Track, TrackEvery
from fed_ucbvi.core import defaults

if TYPE_CHECKING:
    from fed_ucbvi.dashboard.metrics import Metrics
    from fed_ucbvi.network.status import FederationStatus


def serve(
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.", rich_help_panel=NETWORK),
    ] = "127.0.0.1:50051",
    port_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the port here once it is open.", rich_help_panel=NETWORK),
    ] = None,
    certs: Certificates = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The server's certificate in it.", rich_help_panel=NETWORK)
    ] = "server",
    insecure: Insecure = False,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Nodes that may take part; by default all certified.", rich_help_panel=NETWORK
        ),
    ] = None,
    env: Annotated[
        str | None,
        environment_flag("The environment, if the server may know it; then it scores.", rich_help_panel=PROBLEM),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="S,A,H", help="Or just the sizes of the problem.", rich_help_panel=PROBLEM)
    ] = None,
    bins: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Or the bins ('fed-ucbvi bins') by which all nodes make their real environments finite.",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="M",
            help="Agents on all nodes.",
            show_default=f"{USUAL_AGENTS_SERVED}, or as many as a federation of one's own has",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    episodes: Episodes = 30_000,
    eps_p: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Heterogeneity, from 0 to below 1; where it is unknown, nu is computed with 0.",
            show_default="0 with --env, else unknown",
            rich_help_panel=PROBLEM,
        ),
    ] = None,
    env_seed: EnvSeed = 0,
    env_option: EnvOption = None,
    random_rewards: Annotated[
        bool,
        typer.Option(
            "--random-rewards",
            help="With --sizes or --bins: rewards depend on chance, and the bonus is to cover their spread.",
            rich_help_panel=PROBLEM,
        ),
    ] = False,
    algorithm: AlgorithmName = defaults.ALGORITHM,
    option: AlgorithmOption = None,
    seed: Seed = 0,
    warm_start: WarmStart = None,
    collection: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="lockstep (all agents stop after the same episode) or live (where the stop reaches them).",
            rich_help_panel=NETWORK,
        ),
    ] = "lockstep",
    secure_sums: SecureSums = False,
    exchange: Exchange = "steps",
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", help="For one answer of a node.", rich_help_panel=FAULTS)
    ] = 60.0,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="For a node that is away.", rich_help_panel=FAULTS)
    ] = 600.0,
    gathering: Annotated[
        float, typer.Option(metavar="SECONDS", help="For all nodes to come at first.", rich_help_panel=FAULTS)
    ] = 3600.0,
    on_away: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="wait (then stop), last (go on with its last report) or exclude.",
            rich_help_panel=FAULTS,
        ),
    ] = "wait",
    on_violation: Annotated[
        str, typer.Option(metavar="POLICY", help="stop the run or drop the node.", rich_help_panel=FAULTS)
    ] = "stop",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A node of the run in --checkpoint that has left for good; may be repeated.",
            rich_help_panel=FAULTS,
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep every finished round here; go on from it if it is there.",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve metrics for Prometheus here; on this machine only.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    log_format: LogFormat = TEXT,
    track: Track = None,
    track_every: TrackEvery = 1,
    out: Out = None,
    overwrite: Overwrite = False,
    dashboard: Dashboard = None,
    dashboard_cert: DashboardCert = None,
    dashboard_token: DashboardToken = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve a federation: wait for nodes that bring all M agents, then run to the end.

    On the --checkpoint of an earlier server the run goes on. --episodes and --agents may then be larger than before,
    for algorithms that allow it.
    """
    import asyncio
    import logging

    write_log(log_format, logging.WARNING if quiet else logging.INFO)
    from fed_ucbvi.command_line.counts import counts_at
    from fed_ucbvi.command_line.federation_output import finish_federation, show_federation
    from fed_ucbvi.command_line.interruption import interruptible
    from fed_ucbvi.command_line.live_page import PageOptions, page_of_federation
    from fed_ucbvi.command_line.outputs import check_apart, check_out, warn
    from fed_ucbvi.command_line.parameters import build_algorithm, build_plan
    from fed_ucbvi.command_line.tracking import tracking
    from fed_ucbvi.core.errors import InputError
    from fed_ucbvi.core.files import new_file
    from fed_ucbvi.network.certificates import revoked_names
    from fed_ucbvi.network.names import check_name
    from fed_ucbvi.network.run_plan import Rules
    from fed_ucbvi.network.server import Service
    from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
    from fed_ucbvi.network.status import status_of
    from fed_ucbvi.network.transport import TLSFiles
    from fed_ucbvi.results.round_record import together
    from fed_ucbvi.results.storage import FORMAT

    if insecure == (certs is not None):
        raise InputError("say either --certs DIR ('fed-ucbvi certs' makes one) or --insecure.")
    if out is not None:
        check_out(out, overwrite=overwrite, kind=FORMAT)
        if checkpoint is not None:
            check_apart(out, checkpoint)
    rules = Rules(deadline, patience, on_away, on_violation, gathering)
    chosen = build_algorithm(algorithm, {}, option or ())
    names = None if nodes is None else tuple(check_name(part.strip()) for part in nodes.split(","))
    if secure_sums and insecure:
        raise InputError("--secure-sums needs certificates, by which nodes know each other's keys; use --certs.")
    rest: dict[str, Any] = {"names": names, "rules": rules, "collection": collection}
    rest |= {"secure_sums": secure_sums, "exchange": exchange, "without": tuple(without or ())}
    rest["counts"] = None if warm_start is None else counts_at(warm_start)
    problem = (env, sizes, agents, episodes, eps_p, env_seed, env_option or (), seed)
    plan = build_plan(chosen, *problem, rest, random_rewards=random_rewards, bins=bins)
    for text in chosen.cautions(plan.setting):
        warn(text)
    server_checkpoint = None if checkpoint is None else ServerCheckpoint(checkpoint)

    page_options = PageOptions(dashboard, dashboard_cert, dashboard_token)
    service: Service | None = None

    def status() -> FederationStatus:
        assert service is not None
        return status_of(service.coordinator)

    counted = _metrics(metrics, status) if metrics is not None or dashboard is not None else None

    async def work() -> None:
        nonlocal service
        render = None if counted is None else counted.render
        with page_of_federation(page_options, plan, render) as page, show_federation(quiet=quiet) as display:
            service = Service(
                plan if server_checkpoint is None else server_checkpoint.adopt(plan),
                listen,
                None if certs is None else TLSFiles.of(certs, name),
                server_checkpoint=server_checkpoint,
                revoked=tuple if certs is None else (lambda: revoked_names(certs)),
                report=display.report,
                on_round=together(
                    page.on_round,
                    None if counted is None else counted.on_round,
                    trackers.on_round if track else None,
                ),
                on_exchange=None if counted is None else counted.on_exchange,
            )
            if port_file is not None:
                with new_file(port_file) as draft:
                    draft.write_text(f"{service.port}\n", encoding="utf-8")
            display.say(f"listening on port {service.port} for {plan.setting.agents} agents; run {service.plan.run}")
            with _serving(counted, metrics, display.say):
                async with page.following(service.coordinator):
                    await service.run()
            outcome = service.outcome()
            page.finish(outcome.run, ended=outcome.ended)

    with interruptible() as interruption, tracking(track or (), track_every) as trackers:
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
        trackers.finish(outcome.run)
        finish_federation(
            outcome,
            out=out,
            overwrite=overwrite,
            as_json=as_json,
            quiet=quiet,
            checkpoint=checkpoint,
            failure=failure,
        )


def _metrics(address: str | None, status: Callable[[], FederationStatus]) -> Metrics:
    """The metrics of the run, for an address of their own or for the page's ``/metrics``."""
    from fed_ucbvi.dashboard.metrics import Metrics, check_metrics_address

    if address is not None:
        check_metrics_address(address)
    return Metrics(status)


@contextmanager
def _serving(metrics: Metrics | None, address: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Serve metrics on an address of their own, if one is wanted, while the block lasts."""
    if metrics is None or address is None:
        yield
        return
    from fed_ucbvi.dashboard.metrics import serving

    with serving(metrics, address) as port:
        say(f"metrics at http://{address.rpartition(':')[0]}:{port}/metrics")
        yield
