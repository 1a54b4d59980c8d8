"""A Ray cluster of two nodes on this machine, one of which can be killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra 'ray')")

SCRIPT = """
import sys

from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
node = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, node.all_processes["raylet"][0].process.pid, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@dataclass(frozen=True)
class TwoNodes:
    address: str
    raylet: int

    def at_work(self, title: str) -> bool:
        """True if a process of the second node has a title with this beginning."""
        for process in Path("/proc").iterdir():
            with suppress(OSError, IndexError, ValueError):
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                found = (process / "cmdline").read_bytes().decode(errors="replace")
                if parent == self.raylet and found.startswith(title):
                    return True
        return False

    def kill_second(self) -> None:
        """End the second node without notice; its workers end with it."""
        os.kill(self.raylet, signal.SIGKILL)


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as name:
        cluster = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "RAY_TMPDIR": name,
                "RAY_USAGE_STATS_ENABLED": "0",
            },
        )
        try:
            assert cluster.stdout is not None
            address, raylet = cluster.stdout.readline().split()
            yield TwoNodes(address, int(raylet))
        finally:
            cluster.communicate("end\n", timeout=300)


def wait_for(what: str, happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline, f"{what} has not happened"
        time.sleep(0.01)
