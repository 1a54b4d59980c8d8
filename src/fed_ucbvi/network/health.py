"""gRPC's health service, ``grpc.health.v1.Health``, for probes: serving until the run is over, then not serving."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from fed_ucbvi.network.packages import needed

with needed("grpcio-health-checking"):
    import grpc  # type: ignore[import-untyped]
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

MAX_WATCHERS = 16
"""Calls of ``Watch`` that may be open at one time."""

Response = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """How a server is, as a whole (the service with the empty name) and under the names of its services."""

    def __init__(self, services: Collection[str]) -> None:
        self._services = {"", *services}
        self._over = asyncio.Event()
        self._watchers = 0

    def add_to(self, server: Any) -> None:
        """Answer on this server, beside its other services and behind the same TLS."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    def end(self) -> None:
        """From now on: not serving."""
        self._over.set()

    @property
    def _status(self) -> Any:
        return Response(status=Response.NOT_SERVING if self._over.is_set() else Response.SERVING)

    async def Check(self, request: Any, context: Any) -> Any:
        """How a service is now."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._status

    async def Watch(self, request: Any, context: Any) -> None:
        """How a service is now and, when the run is over, once more; then the call ends."""
        if self._watchers >= MAX_WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHERS} others watch already")
        self._watchers += 1
        try:
            known = request.service in self._services
            await context.write(self._status if known else Response(status=Response.SERVICE_UNKNOWN))
            if not self._over.is_set():
                await self._over.wait()
                if known:
                    await context.write(self._status)
        except asyncio.CancelledError:  # whoever watched has gone; gRPC would log it as an error
            pass
        finally:
            self._watchers -= 1
