"""The health service that probes know, behind the same TLS as everything else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from fed_ucbvi import FedUCBVI, synthetic
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import SERVICE, RemoteServer
from network import make_nodes

WORLD = synthetic(agents=4, eps_p=0.2, states=3, actions=2, horizon=3)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def plan(**rest: Any) -> RunPlan:
    return plan_for(FedUCBVI(nu=30), WORLD, 40, seed=1, **rest)


def asking(service: str = "") -> Any:
    return health_pb2.HealthCheckRequest(service=service)


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call that is refused ends."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def test_a_monitor_with_a_certificate_is_told_and_a_stranger_is_not(tmp_path: Path) -> None:
    """The monitor is not on the list of nodes. It watches from before the first node comes to the end of the run."""
    names = ("node-0", "node-1")
    make_certificates(tmp_path, server="server", nodes=[*names, "monitor"])
    files = {name: TLSFiles.of(tmp_path, name) for name in (*names, "monitor", "server")}
    service = FederationServer(plan(nodes=names), "127.0.0.1:0", files["server"])
    address = f"127.0.0.1:{service.port}"
    run = asyncio.ensure_future(service.run())
    authority = files["monitor"].authority.read_bytes()
    async with (
        RemoteServer(address, files["monitor"]).open() as channel,
        grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority)) as stranger,
    ):
        monitor = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            assert (await monitor.Check(asking(name))).status == SERVING
        assert await code_of(monitor.Check(asking("grpc.health.v1.Other"))) == grpc.StatusCode.NOT_FOUND
        refused = health_pb2_grpc.HealthStub(stranger).Check(asking(), timeout=300)
        assert await code_of(refused) == grpc.StatusCode.UNAVAILABLE
        watch = monitor.Watch(asking())
        told = [(await watch.read()).status]
        nodes = [run_node(node, RemoteServer(address, files[node.name])) for node in make_nodes(WORLD, (2, 2))]
        joined = asyncio.gather(*nodes)
        told.append((await watch.read()).status)
        watch.cancel()
        await joined
        await run
    assert told == [SERVING, NOT_SERVING]


async def test_a_server_that_is_stopped_says_so_and_watchers_may_leave(caplog: pytest.LogCaptureFixture) -> None:
    """No error is logged about one that leaves."""
    service = FederationServer(plan(), "127.0.0.1:0", None)
    run = asyncio.ensure_future(service.run())
    async with RemoteServer(f"127.0.0.1:{service.port}").open() as channel:
        monitor = health_pb2_grpc.HealthStub(channel)
        watches = [monitor.Watch(asking(SERVICE)), monitor.Watch(asking("other"))]
        assert [(await watch.read()).status for watch in watches] == [SERVING, UNKNOWN]
        watches.pop().cancel()
        run.cancel()
        assert (await watches[0].read()).status == NOT_SERVING
        watches[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
