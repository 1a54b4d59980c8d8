"""What secure sums cost, and what one trip saves on a slow line.

First, four nodes and a server, each a process, on this machine: the time of a run with secure sums over that of the
same run without, in turns, several times. Then, in one process, the time of a round on a line with a delay, asked
step by step and asked for counts at once (the policies that are recommended in some rounds included):

    PYTHONPATH=tests/support python benchmarks/secure_sums.py [--episodes 1000] [--repeats 3] [--delay 0.05] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fed_ucbvi import FedUCBVI, gridworld
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.client import take_part
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import Outcome, Service
from fed_ucbvi.network.transport import TLSFiles
from federation_processes import Line

PROGRAM = (sys.executable, "-c", "from fed_ucbvi.command_line import main; main()")
NODES = 4
SLOW_EPISODES = 12


def seconds_of(episodes: int, *flags: str) -> tuple[float, Any]:
    """The run time of a federation of processes, start-up left out, and the policy's estimated value."""
    command = [*PROGRAM, "federate", "--nodes", str(NODES), "--episodes", str(episodes), "--json", "--quiet"]
    command += ["--option", "synchronisation=local", *flags]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    summary = json.loads(done.stdout)
    return summary["wall_seconds"], (summary["rounds"], summary["regret"])


async def on_a_slow_line(delay: float, exchange: str, folder: Path) -> Outcome:
    """A run with secure sums whose nodes are half of ``delay`` away from the server, there and back."""
    world = gridworld(agents=NODES)
    plan = plan_for(FedUCBVI(synchronisation="local"), world, SLOW_EPISODES, secure_sums=True, exchange=exchange)
    service = Service(plan, "127.0.0.1:0", TLSFiles.of(folder, "server"))
    with Line(service.port) as line:
        line.delay = delay / 2
        nodes = [Node(f"node-{i}", lambda _: world, i, 1) for i in range(NODES)]
        address = f"127.0.0.1:{line.port}"
        joined = asyncio.gather(*(take_part(node, address, TLSFiles.of(folder, node.name)) for node in nodes))
        outcome = await service.run()
        await joined
    return outcome


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = {"plain": (), "secure": ("--secure-sums",), "secure, model": ("--secure-sums", "--exchange", "model")}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    results = set()
    for _ in range(options.repeats):
        for kind, flags in kinds.items():
            taken, result = seconds_of(options.episodes, *flags)
            seconds[kind].append(taken)
            results.add(result)
    medians = {kind: statistics.median(taken) for kind, taken in seconds.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificates(folder, server="server", nodes=[f"node-{i}" for i in range(NODES)], days=1)
        slow = {}
        for exchange in ("steps", "model"):
            run = asyncio.run(on_a_slow_line(options.delay, exchange, folder)).run
            slow[exchange] = run.wall_seconds / len(run.records["start"])
    figures = {
        "episodes": options.episodes,
        "repeats": options.repeats,
        "seconds": {kind: round(value, 2) for kind, value in medians.items()},
        "secure_over_plain": round(medians["secure"] / medians["plain"], 2),
        "same_result": len(results) == 1,
        "delay": options.delay,
        "seconds_a_round_on_a_slow_line": {exchange: round(value, 3) for exchange, value in slow.items()},
    }
    if options.json:
        print(json.dumps(figures))
        return
    for kind, value in medians.items():
        print(f"{kind:>14}: {value:6.2f} s ({value / medians['plain']:.2f} times plain), {options.repeats} runs")
    print(f"    same result: {'yes' if len(results) == 1 else 'NO'}")
    for exchange, value in slow.items():
        print(
            f"with {1000 * options.delay:g} ms there and back, --exchange {exchange}: {1000 * value:.0f} ms a round"
        )


if __name__ == "__main__":
    main()
