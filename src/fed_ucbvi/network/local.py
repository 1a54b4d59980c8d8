"""A whole federation on one machine: the server and every node a process of its own, with throw-away certificates."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.engine.parts import split_agents
from fed_ucbvi.network.certificates import make_certificates

PROGRAM = (sys.executable, "-c", "from fed_ucbvi.command_line import main; main()")
SECONDS_TO_LISTEN = 120.0
SECONDS_TO_END = 10.0


def run_locally(
    folder: Path,
    *,
    agents: int,
    nodes: int,
    server_arguments: Sequence[str],
    node_arguments: Callable[[int], Sequence[str]],
) -> int:
    """Start everything, wait for the server to end, and give its exit code; node i has arguments of its own."""
    shares = split_agents(agents, nodes)
    names = [f"node-{i}" for i in range(nodes)]
    folder.mkdir(parents=True, exist_ok=True)
    certificates = folder / "certs"
    if not certificates.exists():
        make_certificates(certificates, server="server", nodes=names, days=7)
    port_file = folder / "port"
    port_file.unlink(missing_ok=True)
    tls_files = ("--certs", str(certificates))
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, output: int | None = None) -> subprocess.Popen[bytes]:
        started = subprocess.Popen([*PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=output)
        processes.append(started)
        return started

    server = start(
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--port-file",
        str(port_file),
        *tls_files,
        "--nodes",
        ",".join(names),
        "--agents",
        str(agents),
        "--checkpoint",
        str(folder / "checkpoint"),
        *server_arguments,
    )
    try:
        address = f"127.0.0.1:{_wait_for_port(port_file, server)}"
        for i, (name, (first, count)) in enumerate(zip(names, shares, strict=True)):
            own = ("--name", name, "--first-agent", str(first), "--agents", str(count), "--state", str(folder / name))
            start("join", address, *tls_files, *own, *node_arguments(i), output=subprocess.DEVNULL)
        return server.wait()
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            _end(process)


def _wait_for_port(file: Path, server: subprocess.Popen[bytes]) -> int:
    """The port the server has opened; its own message has told why if it has not."""
    end = time.monotonic() + SECONDS_TO_LISTEN
    while time.monotonic() < end:
        if file.exists():
            return int(file.read_text(encoding="utf-8"))
        if server.poll() is not None:
            raise InputError("the server could not start.")
        time.sleep(0.02)
    raise InputError(f"the server did not listen within {SECONDS_TO_LISTEN:g} s.")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Give a process a moment to end by itself, then ask it to, then make it."""
    for force in (process.terminate, process.kill):
        try:
            process.wait(SECONDS_TO_END)
            return
        except subprocess.TimeoutExpired:
            force()
    process.wait()
