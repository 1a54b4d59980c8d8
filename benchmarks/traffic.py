"""What five shops send over the network: counted as the paper does, and what really crosses the line.

A federation of five nodes and a server over TCP on this machine, each node with one shop
(see ``examples/five_shops``), and the simulation it must equal, bit for bit:

    PYTHONPATH=tests/support:examples/five_shops python benchmarks/traffic.py [--episodes 1000] [--json]
"""

from __future__ import annotations

import asyncio

from shops import shops

from fed_ucbvi import FedUCBVI, run
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import Outcome
from measuring import read_options, show
from network import LOOPBACK, Served, assert_same, make_nodes


async def federate(episodes: int) -> Outcome:
    """The five shops, each a node, to the end."""
    world = shops()
    served = Served(plan_for(FedUCBVI(), world, episodes), address=LOOPBACK)
    served.join(*make_nodes(world, [1] * world.agents))
    return await served.finish()


def main() -> None:
    options = read_options(__doc__, episodes=1000, json=False)
    outcome = asyncio.run(federate(options.episodes))
    simulated = run(FedUCBVI(), shops(), options.episodes, driver="episodes", progress=False)
    assert_same(outcome.run, simulated)
    megabytes = {
        f"{what}_megabytes_{way}": getattr(carried, f"bytes_{way}") / 1e6
        for what, carried in (("counted", simulated), ("wire", outcome.wire))
        for way in ("up", "down")
    }
    counted_up, counted_down, wire_up, wire_down = megabytes.values()
    figures = {
        "episodes": options.episodes,
        "rounds": simulated.rounds,
        "seconds": round(outcome.run.wall_seconds, 1),
        **{name: round(value, 1) for name, value in megabytes.items()},
        "wire_over_counted": round((wire_up + wire_down) / (counted_up + counted_down), 3),
    }
    show(figures, options.json)


if __name__ == "__main__":
    main()
