"""A large federation whose server is killed and goes on: memory, seconds, bytes of the checkpoint.

    PYTHONPATH=tests/support python benchmarks/large_federation.py [--agents 70] [--nodes 2] [--states 2000]
        [--actions 10] [--horizon 50] [--episodes 6] [--json]

Server and nodes are processes of their own, on loopback without TLS; the agents are alike and play a Garnet MDP with
three next states. The run is made twice: once undisturbed, and once with a server that is killed (``SIGKILL``) after
half of the rounds, in the middle of the next one, and started again. Both must give the same bits.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fed_ucbvi import Run
from fed_ucbvi.engine.party import split_agents
from federation_processes import Party
from measuring import read_options, show
from saved_states import log_in

PAUSE = 0.5
"""Seconds between looks at a process."""


class Federation:
    """The processes of one run in a folder."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options, self.folder, self._port = options, folder, 0
        self._memory: dict[str, int] = {}
        sizes = {"states": options.states, "actions": options.actions, "horizon": options.horizon, "branching": 3}
        self._problem = ["--env", "garnet"]
        for name, value in sizes.items():
            self._problem += ["--env-option", f"{name}={value}"]

    def serve(self) -> Party:
        """Start the server, for the first time or again."""
        file = self.folder / "port"
        server = Party(
            *("serve", "--insecure", "--listen", f"127.0.0.1:{self._port}", "--port-file", str(file)),
            *("--agents", str(self._options.agents), "--episodes", str(self._options.episodes), *self._problem),
            *("--option", "synchronisation=local", "--deadline", "600", "--checkpoint", str(self.checkpoint)),
            *("--out", str(self.folder / "run"), "--json", "--quiet"),
        )
        while not file.exists():
            self.look(server=server)
        self._port = int(file.read_text(encoding="utf-8"))
        return server

    def join(self) -> dict[str, Party]:
        """Start the nodes."""
        shares = split_agents(self._options.agents, self._options.nodes)
        return {
            f"node-{i}": Party(
                *("join", f"127.0.0.1:{self._port}", "--insecure", "--name", f"node-{i}", "--json", *self._problem),
                *("--first-agent", str(first), "--agents", str(agents), "--state", str(self.folder / f"node-{i}")),
            )
            for i, (first, agents) in enumerate(shares)
        }

    @property
    def checkpoint(self) -> Path:
        """The server's."""
        return self.folder / "checkpoint"

    def round(self) -> int:
        """The last round that is kept."""
        return max(0, log_in(self.checkpoint).last) if self.checkpoint.exists() else 0

    def look(self, **parties: Party) -> None:
        """Note how much memory processes have taken at most, and wait a moment."""
        for name, party in parties.items():
            if party.process.exitcode == 0:
                continue
            if party.process.exitcode is not None:
                raise RuntimeError(f"{name} has ended: {party.words()}")
            status = Path(f"/proc/{party.pid}/status")
            found = [line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM")]
            self._memory[name] = max([self._memory.get(name, 0), *(int(line.split()[1]) // 1024 for line in found)])
        time.sleep(PAUSE)

    def run(self, kill_after: int | None) -> dict[str, Any]:
        """From the start to the end; the figures."""
        began = time.perf_counter()
        server = self.serve()
        nodes = self.join()
        figures: dict[str, Any] = {}
        if kill_after is not None:
            while self.round() < kill_after:
                self.look(server=server, **nodes)
            self.look(server=server, **nodes)  # into the next round
            server.kill()
            figures["killed_after_round"] = self.round()
            again = time.perf_counter()
            server = self.serve()
            while self.round() <= figures["killed_after_round"]:
                self.look(server=server, **nodes)
            figures["seconds_until_next_round"] = round(time.perf_counter() - again, 1)
        while server.process.is_alive():
            self.look(server=server, **nodes)
        for party in (server, *nodes.values()):
            if party.end() != 0:
                raise RuntimeError(party.words())
        files = [path for path in self.checkpoint.rglob("*") if path.is_file()]
        return {
            **figures,
            "rounds": self.round(),
            "seconds": round(time.perf_counter() - began, 1),
            "checkpoint_megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
            "largest_file_megabytes": round(max(path.stat().st_size for path in files) / 1e6, 1),
            "server_megabytes": self._memory["server"],
            "node_megabytes": max(self._memory[name] for name in nodes),
        }


def same(one: Path, other: Path) -> bool:
    """Whether two saved runs have the same records and recommend the same policy."""
    a, b = Run.load(one), Run.load(other)
    records = all(np.array_equal(a.records[name], b.records[name], equal_nan=True) for name in a.records)
    return records and np.array_equal(a.policy, b.policy)


def main() -> None:
    """Measure and print."""
    options = read_options(__doc__, agents=70, nodes=2, states=2000, actions=10, horizon=50, episodes=6)
    logging.disable()  # a log that is read while it is written seems to be cut off
    with tempfile.TemporaryDirectory() as name:
        runs = {kind: Federation(options, Path(name) / kind) for kind in ("undisturbed", "killed")}
        for federation in runs.values():
            federation.folder.mkdir()
        found: dict[str, Any] = {"undisturbed": runs["undisturbed"].run(None)}
        found["killed"] = runs["killed"].run(found["undisturbed"]["rounds"] // 2)
        found["same"] = same(*(federation.folder / "run" for federation in runs.values()))
    show(found, options.json)


if __name__ == "__main__":
    main()
