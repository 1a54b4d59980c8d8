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

from fed_ucbvi import Run
from fed_ucbvi.engine.parts import split_agents
from federation_processes import SERVER, Parties
from measuring import read_options, show
from saved_states import log_in

PAUSE = 0.5
"""Seconds between looks at a process."""


class Federation(Parties):
    """The processes of one run in a folder."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(folder)
        self._options = options
        self._memory = dict[str, int]()
        sizes = {"states": options.states, "actions": options.actions, "horizon": options.horizon, "branching": 3}
        self._problem = ["--env", "garnet"]
        for name, value in sizes.items():
            self._problem += ["--env-option", f"{name}={value}"]
        self._checkpoint = folder / "checkpoint"

    def start_server(self) -> None:
        self.begin(
            SERVER,
            "serve",
            "--insecure",
            "--listen",
            self.address,
            "--port-file",
            str(self.folder / "port"),
            "--agents",
            str(self._options.agents),
            "--episodes",
            str(self._options.episodes),
            *self._problem,
            "--option",
            "synchronisation=local",
            "--deadline",
            "600",
            "--checkpoint",
            str(self._checkpoint),
            "--out",
            str(self.folder / "run"),
            "--json",
            "--quiet",
        )

    def start_nodes(self) -> None:
        for i, (first, agents) in enumerate(split_agents(self._options.agents, self._options.nodes)):
            name = f"node-{i}"
            self.begin(
                name,
                "join",
                self.address,
                "--insecure",
                "--name",
                name,
                "--json",
                *self._problem,
                "--first-agent",
                str(first),
                "--agents",
                str(agents),
                "--state",
                str(self.folder / name),
            )

    def round(self) -> int:
        """The last round that is kept."""
        return max(0, log_in(self._checkpoint).last) if self._checkpoint.exists() else 0

    def look(self) -> None:
        """Note how much memory processes have taken at most, and wait a moment."""
        for name, party in self.parties.items():
            if party.process.exitcode == 0:
                continue
            if party.process.exitcode is not None:
                raise RuntimeError(f"{name} has ended: {party.words()}")
            status = Path(f"/proc/{party.pid}/status").read_text(encoding="ascii")
            if "VmHWM:" in status:
                megabytes = int(status.partition("VmHWM:")[2].split()[0]) // 1024
                self._memory[name] = max(self._memory.get(name, 0), megabytes)
        time.sleep(PAUSE)

    def run(self, kill_after: int | None) -> dict[str, Any]:
        began = time.perf_counter()
        self.start_server()
        self.start_nodes()
        figures: dict[str, Any] = {}
        if kill_after is not None:
            while self.round() < kill_after:
                self.look()
            self.look()  # into the next round
            self.server.kill()
            figures["killed_after_round"] = self.round()
            again = time.perf_counter()
            self.start_server()
            while self.round() <= figures["killed_after_round"]:
                self.look()
            figures["seconds_until_next_round"] = round(time.perf_counter() - again, 1)
        while self.server.process.is_alive():
            self.look()
        self.end()
        sizes = [path.stat().st_size for path in self._checkpoint.rglob("*") if path.is_file()]
        return {
            **figures,
            "rounds": self.round(),
            "seconds": round(time.perf_counter() - began, 1),
            "checkpoint_megabytes": round(sum(sizes) / 1e6, 1),
            "largest_file_megabytes": round(max(sizes) / 1e6, 1),
            "server_megabytes": self._memory.pop(SERVER),
            "node_megabytes": max(self._memory.values()),
        }


def main() -> None:
    options = read_options(__doc__, agents=70, nodes=2, states=2000, actions=10, horizon=50, episodes=6, json=False)
    logging.disable()  # a log that is read while it is written seems to be cut off
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in ("undisturbed", "killed"):
            folder = Path(name) / kind
            folder.mkdir()
            with Federation(options, folder) as federation:
                found[kind] = federation.run(found["undisturbed"]["rounds"] // 2 if found else None)
        one, other = (Run.load(Path(name) / kind / "run") for kind in found)
    show({**found, "same": one.same_outcome(other)}, options.json)


if __name__ == "__main__":
    main()
