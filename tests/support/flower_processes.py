"""A SuperLink and its SuperNodes as processes on this machine, with TLS and node keys, stopped whatever happens."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fed_ucbvi.network.certificates import make_certificates

SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
CONNECTION = "here"
PR_SET_PDEATHSIG = 1


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _end_with_the_tests() -> None:
    """In a new process: ask the kernel to end it with its parent, should the tests be killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Flower:
    """Starts processes of Flower's virtual environment ``venv``; everything they write is below ``folder``."""

    def __init__(self, venv: Path, folder: Path) -> None:
        self.bin = venv / "bin"
        self.folder = folder
        self.port = free_port()
        self.certificates = folder / "certificates"
        make_certificates(self.certificates, server="superlink", hosts=["127.0.0.1"])
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        home = self._home("cli")
        root = self.certificates / "ca.crt"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{root}"\n',
            encoding="utf-8",
        )

    def _home(self, name: str) -> Path:
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _environment(self, name: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return {
            **inherited,
            **SETTINGS,
            "PATH": path,
            "FLWR_HOME": str(self._home(name)),
            **(extra or {}),
        }

    def _start(self, name: str, *command: str, extra: Mapping[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(self.bin / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home(name),
                env=self._environment(name, extra),
                start_new_session=True,
                preexec_fn=_end_with_the_tests,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def command(self, *arguments: str) -> dict[str, Any]:
        """Run ``flwr ... --format json`` to its end; gives its JSON object."""
        answer: dict[str, Any] = json.loads(self._flwr(*arguments, "--format", "json"))
        return answer

    def _flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.bin / "flwr"), *arguments],
            capture_output=True,
            text=True,
            env=self._environment("cli"),
            cwd=self._home("cli"),
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_superlink(self) -> None:
        tls_files = self.certificates
        self._start(
            "superlink",
            "flower-superlink",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--ssl-ca-certfile",
            str(tls_files / "ca.crt"),
            "--ssl-certfile",
            str(tls_files / "superlink.crt"),
            "--ssl-keyfile",
            str(tls_files / "superlink.key"),
            "--enable-supernode-auth",
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.running["superlink"].poll() is None, self.log("superlink")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(self.log("superlink"))

    def register(self, name: str) -> int:
        """Make a key for a SuperNode and register it; gives the node's number."""
        key = ec.generate_private_key(ec.SECP384R1())
        encoding = serialization.Encoding
        file = self._home(name) / "key"
        openssh = serialization.PrivateFormat.OpenSSH
        file.write_bytes(key.private_bytes(encoding.PEM, openssh, serialization.NoEncryption()))
        public = file.with_suffix(".pub")
        public.write_bytes(key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH))
        return int(self.command("supernode", "register", str(public), CONNECTION)["node-id"])

    def start_supernode(self, name: str, config: str, extra: Mapping[str, str] | None = None) -> None:
        self._start(
            name,
            "flower-supernode",
            "--superlink",
            f"127.0.0.1:{self.port}",
            "--port",
            str(free_port()),
            "--root-certificates",
            str(self.certificates / "ca.crt"),
            "--node-config",
            config,
            "--auth-supernode-private-key",
            str(self._home(name) / "key"),
            extra=extra,
        )

    def status(self, run: str) -> str:
        """State of a run: ``running``, ``finished:completed``, ..."""
        (found,) = self.command("list", "--run-id", run, CONNECTION)["runs"]
        return str(found["status"])

    def wait_for_file(self, path: Path, seconds: float) -> None:
        """Wait until there is ``path``, or for so long, while the processes live."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not path.exists():
            for name, process in self.running.items():
                assert process.poll() is None, self.log(name)
            time.sleep(0.1)

    def server_log(self, run: str) -> str:
        return self._flwr("log", "--show", run, CONNECTION)

    def stop(self) -> None:
        """End every process that was started here, and what they started."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in self.running.values():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
            end = time.monotonic() + 5
            while time.monotonic() < end and any(process.poll() is None for process in self.running.values()):
                time.sleep(0.05)


@contextmanager
def flower(venv: Path, folder: Path) -> Iterator[Flower]:
    processes = Flower(venv, folder)
    try:
        yield processes
    finally:
        processes.stop()
