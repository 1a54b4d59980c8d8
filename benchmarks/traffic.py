"""What five shops send over the network: counted as the paper does, and what really crosses the line.

A federation of five nodes and a server over TCP on this machine, each node with one shop
(see ``examples/five_shops``), and the simulation it must equal:

    PYTHONPATH=tests/support:examples/five_shops python benchmarks/traffic.py [--episodes 1000] [--json]
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict

import numpy as np
from shops import shops

from fed_ucbvi import FedUCBVI, run
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import FederationServer, Outcome
from fed_ucbvi.network.transport import RemoteServer
from measuring import read_options


async def federate(episodes: int) -> Outcome:
    """The five shops, each a node, to the end."""
    federation = shops()
    service = FederationServer(plan_for(FedUCBVI(), federation, episodes), "127.0.0.1:0", None)
    nodes = [Node(f"shop-{i}", lambda _: federation, i, 1) for i in range(federation.agents)]
    joined = asyncio.gather(*(run_node(node, RemoteServer(f"127.0.0.1:{service.port}")) for node in nodes))
    outcome = await service.run()
    await joined
    return outcome


def main() -> None:
    """Measure, compare, print."""
    options = read_options(__doc__, episodes=1000)
    began = time.perf_counter()
    outcome = asyncio.run(federate(options.episodes))
    seconds = time.perf_counter() - began
    simulated = run(FedUCBVI(), shops(), options.episodes, driver="episodes", progress=False)
    same = all(
        np.array_equal(column, outcome.run.records[name], equal_nan=True)
        for name, column in simulated.records.items()
        if name != "reward"  # nodes report it on a grid
    )
    same = (
        same and np.array_equal(simulated.policy, outcome.run.policy) and np.array_equal(simulated.V, outcome.run.V)
    )
    wire = asdict(outcome.wire)
    counted, crossed = simulated.bytes_up + simulated.bytes_down, wire["bytes_up"] + wire["bytes_down"]
    if options.json:
        figures = {"episodes": options.episodes, "rounds": simulated.rounds, "counted": counted, "wire": wire}
        print(json.dumps({**figures, "same_as_simulation": same, "seconds": round(seconds, 1)}))
        return
    print(f"five shops, {options.episodes:,} episodes, {simulated.rounds:,} rounds, {seconds:.0f} s")
    print(f"as the paper counts    {simulated.bytes_up / 1e6:8.1f} MB up {simulated.bytes_down / 1e6:8.1f} MB down")
    print(f"on the wire            {wire['bytes_up'] / 1e6:8.1f} MB up {wire['bytes_down'] / 1e6:8.1f} MB down")
    print(f"{crossed / 1e6:.1f} of {counted / 1e6:.1f} MB: {crossed / counted:.3f}")
    print("the same run as in simulation, bit for bit" if same else "NOT the run of the simulation")


if __name__ == "__main__":
    main()
