"""A server with many nodes: milliseconds for an exchange with all of them, and the server's memory.

    python benchmarks/many_nodes.py [--nodes 200] [--episodes 40] [--algorithm fed-ucbvi] [--echo] [--json]

The server is this process. The nodes, one agent each, share a second process; each has its own certificate and
connection over mutual TLS on loopback. An exchange is a message to every node and an answer from every node. With
fed-ucbvi a synchronisation takes H of them, with fed-kl-ucbvi one.
Processor time is that of either process from the end of the first round on, its gRPC threads included. Both look for
garbage as seldom as `fed-ucbvi serve` and `join` do. Run it twice: the first run compiles.

``--echo`` measures gRPC by itself: the same connections carry messages of the same mean sizes, and neither side does
anything else.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import tempfile
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from fed_ucbvi import gridworld
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.failures import ConnectionEndedError
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import Connection, Listener, RemoteServer
from measuring import read_options, show

ECHOES = 200
WARM_UP = 20
"""Exchanges of an echo, and how many of them are not counted."""
DOWN = bytes(80)
UP = bytes(240)
"""About the mean messages of a run with 200 nodes and 12 episodes."""


def processor_seconds(process: int) -> float:
    """Processor seconds that a process has used so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def play(nodes: int, address: str, folder: Path, echo: bool) -> None:
    """All nodes, in this process."""
    world = gridworld(agents=nodes, eps_p=0.1)

    async def play_one(i: int) -> None:
        node = Node(f"node-{i}", lambda agents: world, i, 1)
        server = RemoteServer(address, TLSFiles.of(folder, node.name))
        if not echo:
            await run_node(node, server)
            return
        async with server.connect() as stream:
            with suppress(ConnectionEndedError):
                await stream.write(UP)
                while await stream.read():
                    await stream.write(UP)

    async def together() -> None:
        await asyncio.gather(*map(play_one, range(nodes)))

    asyncio.run(together())


def start_nodes(nodes: int, port: int, folder: Path, *, echo: bool = False) -> BaseProcess:
    """All nodes, in a second process."""
    address = f"127.0.0.1:{port}"
    playing = multiprocessing.get_context("spawn").Process(target=play, args=(nodes, address, folder, echo))
    playing.start()
    return playing


async def serve(nodes: int, episodes: int, algorithm: str, folder: Path) -> dict[str, float]:
    """One run; the figures."""
    world = gridworld(agents=nodes, eps_p=0.1)
    plan = plan_for(make_algorithm(algorithm, {}), world, episodes)
    marks: list[tuple[float, ...]] = []

    def mark(run: Coordinator) -> None:
        """Messages so far, and processor seconds of server and nodes."""
        if run.round == 1 or run.done:
            used = (processor_seconds(process or 0) for process in (os.getpid(), playing.pid))
            marks.append((run.registry.wire.messages_up, *used))

    service = FederationServer(plan, "127.0.0.1:0", TLSFiles.of(folder, "server"), report=mark)
    playing = start_nodes(nodes, service.port, folder)
    began = time.perf_counter()
    outcome = await service.run()
    whole = time.perf_counter() - began
    playing.join()
    exchanges = outcome.wire.messages_up / nodes
    later, server, others = (after - before for before, after in zip(*marks, strict=True))
    return {
        "nodes": nodes,
        "rounds": outcome.run.rounds,
        "exchanges": round(exchanges, 1),
        "ms_per_round": round(1000 * outcome.run.wall_seconds / outcome.run.rounds, 1),
        "ms_per_exchange": round(1000 * outcome.run.wall_seconds / exchanges, 1),
        "server_processor_ms_per_exchange": round(1000 * server * nodes / later, 1),
        "nodes_processor_ms_per_exchange": round(1000 * others * nodes / later, 1),
        "seconds": round(outcome.run.wall_seconds, 1),
        "seconds_with_joining": round(whole, 1),
        "server_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


async def serve_echo(nodes: int, folder: Path) -> dict[str, float]:
    """Messages to and fro, and nothing else; the figures."""
    streams: list[Connection] = []
    complete = asyncio.Event()
    over = asyncio.Event()

    class Echo:
        async def session(self, connection: Connection) -> None:
            await connection.read()
            streams.append(connection)
            if len(streams) == nodes:
                complete.set()
            await over.wait()

        async def policy(self, certificate: bytes) -> bytes:
            return b""

    async def ask(stream: Connection) -> None:
        await stream.write(DOWN)
        await stream.read()

    server = Listener(Echo(), "127.0.0.1:0", TLSFiles.of(folder, "server"))
    await server.start()
    playing = start_nodes(nodes, server.port, folder, echo=True)
    await complete.wait()
    marks = []
    for exchange in range(ECHOES + 1):
        if exchange in (WARM_UP, ECHOES):
            used = (processor_seconds(process or 0) for process in (os.getpid(), playing.pid))
            marks.append((time.perf_counter(), *used))
        await asyncio.gather(*(ask(stream) for stream in streams))
    over.set()
    await server.stop()
    playing.join()
    names = ("ms_per_exchange", "server_processor_ms_per_exchange", "nodes_processor_ms_per_exchange")
    differences = (after - before for before, after in zip(*marks, strict=True))
    each = {name: round(1000 * taken / (ECHOES - WARM_UP), 1) for name, taken in zip(names, differences, strict=True)}
    return {"nodes": nodes, "exchanges": ECHOES - WARM_UP, **each}


def main() -> None:
    options = read_options(__doc__, nodes=200, episodes=40, algorithm="fed-ucbvi", echo=False, json=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "certs"
        make_certificates(folder, server="server", nodes=[f"node-{i}" for i in range(options.nodes)])
        if options.echo:
            found = asyncio.run(serve_echo(options.nodes, folder))
        else:
            found = asyncio.run(serve(options.nodes, options.episodes, options.algorithm, folder))
    show(found, options.json)


if __name__ == "__main__":
    main()
