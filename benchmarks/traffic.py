"""Bytes that five shops send over the network: as the paper counts them, and on the line.

A federation of five nodes and a server on this machine, each node with one shop (see ``examples/five_shops``). All
nodes reach the server through a TCP line that counts what it carries: messages, compressed, with the headers of gRPC
and HTTP/2. There is no TLS. The result must equal that of a simulation, bit for bit:

    PYTHONPATH=tests/support:examples/five_shops python benchmarks/traffic.py [--episodes 1000] [--json]
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from shops import shops

from fed_ucbvi import FedKLUCBVI, FedUCBVI, run
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.transport import RemoteServer
from federation_processes import Line
from measuring import read_options, show
from network import LOOPBACK, Served, assert_same, make_nodes


@dataclass(frozen=True)
class Carried:
    """A finished run, and the bytes that the line to its server has carried."""

    outcome: Outcome
    bytes_up: int
    bytes_down: int


async def federate(algorithm: Any, episodes: int) -> Carried:
    """Run the five shops over a line that counts."""
    world = shops()
    served = Served(plan_for(algorithm, world, episodes), address=LOOPBACK)
    with Line(served.server.port) as line:
        remote = RemoteServer(f"127.0.0.1:{line.port}")
        served.begin(*[run_node(node, remote) for node in make_nodes(world, [1] * world.agents)])
        outcome = await served.finish()
        return Carried(outcome=outcome, bytes_up=line.bytes_up, bytes_down=line.bytes_down)


def measure(algorithm: Any, episodes: int) -> dict[str, object]:
    """The figures of one algorithm, in millions of bytes where they are bytes."""
    carried = asyncio.run(federate(algorithm, episodes))
    simulated = run(algorithm, shops(), episodes, driver="episodes", progress=False)
    assert_same(carried.outcome.run, simulated)
    counted = simulated.bytes_up + simulated.bytes_down
    on_the_line = carried.bytes_up + carried.bytes_down
    return {
        "algorithm": algorithm.name,
        "episodes": episodes,
        "rounds": simulated.rounds,
        "seconds": round(carried.outcome.run.wall_seconds, 1),
        "counted_megabytes_up": round(simulated.bytes_up / 1e6, 2),
        "counted_megabytes_down": round(simulated.bytes_down / 1e6, 2),
        "message_megabytes_up": round(carried.outcome.wire.bytes_up / 1e6, 2),
        "message_megabytes_down": round(carried.outcome.wire.bytes_down / 1e6, 2),
        "line_megabytes_up": round(carried.bytes_up / 1e6, 2),
        "line_megabytes_down": round(carried.bytes_down / 1e6, 2),
        "line_over_counted": round(on_the_line / counted, 3),
    }


def main() -> None:
    options = read_options(__doc__, episodes=1000, json=False)
    for algorithm in (FedKLUCBVI(), FedUCBVI()):
        show(measure(algorithm, options.episodes), options.json)


if __name__ == "__main__":
    main()
