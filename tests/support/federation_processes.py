"""A federation of real processes on loopback, to be killed, frozen, filled up and started again; and a bad line."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from fed_ucbvi import FedKLUCBVI, FedUCBVI, Run, run, synthetic
from fed_ucbvi.network.certificates import make_certificates
from saved_states import log_in
from warm_start import WARM, run_command

SECONDS = 300.0
"""Longest wait in seconds; a machine that takes longer is taken to hang."""
SIZES: dict[str, Any] = {"states": 8, "actions": 5, "horizon": 3}
AGENTS = {"node-0": (0, 1), "node-1": (1, 2)}
"""First agent and number of agents of each node."""
THREE = {"node-0": (0, 1), "node-1": (1, 1), "node-2": (2, 1)}
"""These agents on as many nodes as secure sums need."""
SERVER = "server"
PUBLISHED_LOCAL = ("--algorithm", "fed-ucbvi", "--option", "synchronisation=local")
T = 120
SEED = 4
ENV_SEED = 2
EPS_P = 0.2
"""109 rounds, of some milliseconds each."""
PROBLEM = (
    "--env",
    "synthetic",
    "--eps-p",
    str(EPS_P),
    "--env-seed",
    str(ENV_SEED),
    *(part for name, value in SIZES.items() for part in ("--env-option", f"{name}={value}")),
)


def simulated(*, secure: bool = False) -> Run:
    """The run that all this must give; secure sums are of what is new, which Fed-KL-UCBVI reports."""
    world = synthetic(agents=3, eps_p=EPS_P, seed=ENV_SEED, **SIZES)
    algorithm = FedKLUCBVI() if secure else FedUCBVI(synchronisation="local")
    return run(algorithm, world, T, seed=SEED, driver="episodes")


class Party:
    """One process; what it says is read as it comes."""

    def __init__(self, *arguments: str) -> None:
        ends = [WARM.Pipe(duplex=False) for _ in range(2)]
        self.process = WARM.Process(target=run_command, args=(arguments, *(end for _, end in ends)), daemon=True)
        self.process.start()
        self.said: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._readers = []
        for name, (near, far) in zip(self.said, ends, strict=True):
            far.close()
            self._readers.append(threading.Thread(target=self._listen, args=(name, near), daemon=True))
            self._readers[-1].start()

    def _listen(self, name: str, end: Connection) -> None:
        with end, open(end.fileno(), encoding="utf-8", closefd=False) as lines:
            for line in lines:
                self.said[name].append(line)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def words(self) -> str:
        return "".join(self.said["stderr"])

    def end(self) -> int:
        """Wait for its own end; the exit code."""
        self.process.join(SECONDS)
        assert self.process.exitcode is not None, "a command does not end"
        for reader in self._readers:
            reader.join(SECONDS)
        return self.process.exitcode

    def kill(self) -> None:
        """As ``kill -9`` does, frozen or not."""
        self.process.kill()
        self.end()


class Parties:
    """Processes by name, one of which is a server that leaves its port in the folder; all are killed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.parties: dict[str, Party] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for name, party in self.parties.items():
            party.kill()
            if error is not None:
                sys.stderr.write(f"--- {name}:\n{party.words()}")

    def begin(self, name: str, *arguments: str) -> None:
        """Begin a process, for the first time or again; a server listens when this returns."""
        self.parties[name] = Party(*arguments)
        if name == SERVER and self.port == 0:
            file = self.folder / "port"
            self.wait(file.exists, "the server's port")
            self.port = int(file.read_text(encoding="utf-8"))

    @property
    def server(self) -> Party:
        return self.parties[SERVER]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def words(self) -> str:
        return "".join(party.words() for party in self.parties.values())

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until ``condition()``; the server must live."""
        end = time.monotonic() + SECONDS
        while not condition():
            assert self.server.process.is_alive(), f"the server ended before {what}: {self.server.words()}"
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(0.02)

    def end(self) -> None:
        """Wait for the end of all, in which none has failed."""
        codes = {name: party.end() for name, party in self.parties.items()}
        assert codes == dict.fromkeys(codes, 0), self.words()


class Processes(Parties):
    """``fed-ucbvi serve`` and two ``fed-ucbvi join``, or three with secure sums.

    Args:
        folder: for checkpoint, states and result.
        rules: further arguments of the server.
        certs: a folder with certificates; none: insecure, but with secure sums they are made.
        secure_sums: nodes require them.
        problem: what the server is told of the problem, by default all of it.
        nodes: first agent and number of agents of each; then with Fed-KL-UCBVI, as with secure sums.
        joining: further arguments of all nodes.
    """

    def __init__(
        self,
        folder: Path,
        *rules: str,
        certs: Path | None = None,
        secure_sums: bool = False,
        problem: Sequence[str] = ("--agents", "3", *PROBLEM),
        nodes: Mapping[str, tuple[int, int]] | None = None,
        joining: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self._problem = problem
        self._joining = joining
        self._rules = rules
        self.nodes = nodes or (THREE if secure_sums else AGENTS)
        self._secure = secure_sums
        self._increments = secure_sums or nodes is not None
        if secure_sums and certs is None:
            certs = folder / "certs"
            make_certificates(certs, server=SERVER, nodes=[*self.nodes])
        self._tls_files = ["--insecure"]
        if certs is not None:
            self._tls_files = ["--certs", str(certs)]
        self.logs: dict[str, Path] = {}
        """Logs of the nodes that have one."""
        self.lines: dict[str, Line] = {}
        """Lines of the nodes that do not connect to the server directly."""

    def start(self, *names: str) -> None:
        """Start parties, for the first time or again."""
        for name in names:
            self.begin(name, *(self.serving() if name == SERVER else self.joining(name)))

    def serving(self) -> Sequence[str]:
        return (
            "serve",
            "--listen",
            self.address,
            "--port-file",
            str(self.folder / "port"),
            *self._tls_files,
            "--nodes",
            ",".join(self.nodes),
            "--episodes",
            str(T),
            "--seed",
            str(SEED),
            *self._problem,
            *(("--algorithm", "fed-kl-ucbvi") if self._increments else PUBLISHED_LOCAL),
            "--checkpoint",
            str(self.folder / "checkpoint"),
            "--out",
            str(self.folder / "run"),
            "--json",
            "--quiet",
            *self._rules,
            *(("--secure-sums",) if self._secure else ()),
        )

    def joining(self, name: str) -> Sequence[str]:
        first, agents = self.nodes[name]
        port = self.lines[name].port if name in self.lines else self.port
        return (
            "join",
            f"127.0.0.1:{port}",
            "--name",
            name,
            *self._tls_files,
            *PROBLEM,
            "--first-agent",
            str(first),
            "--agents",
            str(agents),
            "--state",
            str(self.folder / name),
            "--json",
            *(("--require-secure-sums",) if self._secure else ()),
            *(("--logs", str(self.logs[name])) if name in self.logs else ()),
            *self._joining,
        )

    def kill(self, *names: str) -> None:
        for name in names:
            self.parties[name].process.kill()
        for name in names:
            self.parties[name].end()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.parties[name].pid, number)

    def limit_files(self, name: str, size: int) -> None:
        """No file of this process may grow beyond so many bytes: writing fails as on a full disk; -1 lifts it."""
        pid = self.parties[name].pid
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size < 0 else size, hard))

    def round(self) -> int:
        """The last finished round, from the checkpoint, which must be intact at any moment."""
        folder = self.folder / "checkpoint"
        return max(0, log_in(folder).last) if folder.exists() else 0

    def reach(self, number: int) -> None:
        self.wait(lambda: self.round() >= number, f"round {number}")

    def hear(self, name: str, pattern: str) -> None:
        party = self.parties[name]
        self.wait(lambda: re.search(pattern, party.words()), f"{name} to say '{pattern}'")

    def finish(self) -> tuple[Run, dict[str, Any]]:
        """Wait for the end of server and nodes: the saved run and the printed summary."""
        self.end()
        for name in self.parties.keys() - {SERVER}:
            assert json.loads("".join(self.parties[name].said["stdout"]))["policy"]["final"]
        summary = json.loads("".join(self.server.said["stdout"]))
        return Run.load(self.folder / "run"), summary

    def leftovers(self) -> list[str]:
        """Drafts that nobody has swept up."""
        return [name for _, _, names in os.walk(self.folder) for name in names if "partial" in name]


class Line:
    """A TCP line to a port of this machine that can be cut, stalled half-open, and slowed down.

    Attributes:
        port: where it can be reached.
        delay: seconds by which it holds up every piece.
        bytes_up: carried to the target so far, with all headers but those of TCP.
        bytes_down: carried back so far.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.delay = 0.0
        self.bytes_up = 0
        self.bytes_down = 0
        self._counting = threading.Lock()
        self._wires: list[tuple[socket.socket, socket.socket, threading.Event]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections; new ones may be opened."""
        wires = self._wires
        self._wires = []
        for near, far, flowing in wires:
            for end in (near, far):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            flowing.set()

    def stall(self) -> None:
        """Nothing crosses the open connections any more, and neither side is told; new ones may be opened."""
        for _, _, flowing in self._wires:
            flowing.clear()

    def restore(self) -> None:
        """Let the messages that were held up pass."""
        for _, _, flowing in self._wires:
            flowing.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                flowing = threading.Event()
                flowing.set()
                self._wires.append((near, far, flowing))
                for source, sink, count in (
                    (near, far, self._count_up),
                    (far, near, self._count_down),
                ):
                    pump = threading.Thread(
                        target=self._pump,
                        args=(source, sink, flowing, count),
                        daemon=True,
                    )
                    pump.start()

    def _count_up(self, size: int) -> None:
        with self._counting:
            self.bytes_up += size

    def _count_down(self, size: int) -> None:
        with self._counting:
            self.bytes_down += size

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        flowing: threading.Event,
        count: Callable[[int], None],
    ) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                flowing.wait()
                count(len(data))
                if self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
