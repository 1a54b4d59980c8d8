"""A federation left to itself: does the memory of its processes, or the number of their descriptors, grow?

A server with page and metrics and three nodes with secure sums, each a process; the nodes play real environments with
a pause after every episode, and a round has twenty episodes, so that rounds come at a steady rate of about one a
second. Somebody follows the page's events, opens the page anew every few seconds, and reads the metrics.

    python benchmarks/soak.py [--minutes 30] [--pause 0.05] [--json]

Resident memory and descriptors of every process are read every five seconds (Linux). The first third of the time is
left out: what is compiled and imported on first use belongs there. A process is *flat* if its median memory in
the last third is at most 2 % above that in the second third, a line through both thirds grows by less than 4 % of its
memory an hour, and it never has more descriptors in the last third than in the second, but for readers' connections
(four).
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np

import fed_ucbvi as fed
from fed_ucbvi import CountArray, Setting, SynchronisationRule
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.local import PROGRAM
from measuring import read_options, show

NODES, EPISODES, HORIZON = 3, 20, 8
"""Episodes of a round."""
SECONDS, LOOKS = 5.0, 3.0
"""Between samples, and between looks at the page."""
MEDIANS, HOURLY, CONNECTIONS = 1.02, 0.04, 4
PAUSE = "SOAK_PAUSE"


@dataclass(frozen=True, kw_only=True)
class FixedRule(SynchronisationRule):
    """A request after so many visits, however many there were before."""

    def limits(self, own: Any, total: CountArray, agents: int) -> CountArray:
        """The same everywhere."""
        return np.full(total.shape, EPISODES, dtype=np.int64)


@dataclass(frozen=True)
class SteadyKL(fed.FedKLUCBVI):
    """Fed-KL-UCBVI whose rounds do not become longer."""

    name: ClassVar[str] = "fed-kl-steady"
    rules: ClassVar[tuple[str, ...]] = ("fixed",)

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        """One rule for all settings."""
        return FixedRule()


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pauses before every episode."""

    def reset(self, **options: Any) -> Any:
        """Wait, and begin."""
        time.sleep(float(os.environ[PAUSE]))
        return super().reset(**options)


def make(agent: int) -> gymnasium.Env[Any, Any]:
    """The environment of an agent."""
    return Slow(gymnasium.make("FrozenLake-v1", max_episode_steps=HORIZON))


class Watched:
    """Samples of a process: seconds, resident megabytes, descriptors."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name, self._folder = name, Path(f"/proc/{process.pid}")
        self.samples: list[tuple[float, float, int]] = []

    def look(self, now: float) -> None:
        """Take one sample, unless the process is over."""
        with suppress(OSError):
            status = (self._folder / "status").read_text()
            memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
            self.samples.append((now, memory, len(list((self._folder / "fd").iterdir()))))

    def figures(self, seconds: float) -> dict[str, Any]:
        """The last third against the second."""
        second = [sample for sample in self.samples if seconds / 3 <= sample[0] < 2 * seconds / 3]
        last = [sample for sample in self.samples if sample[0] >= 2 * seconds / 3]
        when, memory, _ = (np.array(column, dtype=float) for column in zip(*second, *last, strict=True))
        slope = float(np.polyfit(when, memory, 1)[0]) * 3600
        before, after = (statistics.median(sample[1] for sample in part) for part in (second, last))
        open_before, open_after = (max(sample[2] for sample in part) for part in (second, last))
        flat = after <= MEDIANS * before and slope <= HOURLY * before and open_after <= open_before + CONNECTIONS
        return {
            "megabytes_second_third": round(before, 1),
            "megabytes_last_third": round(after, 1),
            "megabytes_an_hour": round(slope, 2),
            "descriptors_second_third": open_before,
            "descriptors_last_third": open_after,
            "flat": flat,
        }


def follow(url: str) -> None:
    """Read the page's events until there are no more."""
    with suppress(OSError, ValueError), urllib.request.urlopen(f"{url}events") as events:
        while events.readline():
            pass


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def rounds_of(metrics: str) -> int:
    """How many rounds the server says are over."""
    found = re.search(r"^fed_ucbvi_rounds(?:_total)? (\S+)", metrics, re.MULTILINE)
    return int(float(found[1])) if found else 0


def addresses(log: Path, server: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Where the server says that page and metrics are."""
    while server.poll() is None:
        text = log.read_text()
        found = [re.search(rf"{what}\S* (?:is )?(?:at )?(http://\S+)", text) for what in ("page", "metrics")]
        if all(found):
            page, metrics = (one[1] for one in found if one)
            return page, metrics
        time.sleep(0.1)
    raise SystemExit(f"the server has not started:\n{log.read_text()}")


def main() -> None:
    """Start, watch, stop, print."""
    options = read_options(__doc__, minutes=30.0, pause=0.05)
    seconds = 60 * options.minutes
    own = Path(__file__).resolve()
    found = os.pathsep.join([str(own.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, PAUSE: str(options.pause), "PYTHONPATH": found}
    names, code = [f"node-{i}" for i in range(NODES)], f"{own.stem}:SteadyKL"
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificates(folder / "certs", server="server", nodes=names)

        def start(log: Path, *arguments: str) -> subprocess.Popen[bytes]:
            with log.open("wb") as file:
                running.append(subprocess.Popen([*PROGRAM, *arguments], stdout=file, stderr=file, env=environment))
            return running[-1]

        try:
            log, tls = folder / "server.log", ("--certs", str(folder / "certs"))
            serve = ["serve", *tls, "--listen", "127.0.0.1:0", "--port-file", str(folder / "port"), "--secure-sums"]
            serve += ["--collection", "live", "--sizes", f"17,4,{HORIZON}", "--agents", str(NODES), "--nodes"]
            serve += [",".join(names), "--episodes", "10000000", "--algorithm", code, "--dashboard", "127.0.0.1:0"]
            server = start(log, *serve, "--metrics", "127.0.0.1:0", "--checkpoint", str(folder / "checkpoint"))
            page, metrics = addresses(log, server)
            address = f"127.0.0.1:{(folder / 'port').read_text().strip()}"
            watched = [Watched("server", server)]
            for i, node in enumerate(names):
                join = ["join", address, *tls, "--name", node, "--first-agent", str(i), "--live", f"{own.stem}:make"]
                join += ["--horizon", str(HORIZON), "--reward-range", "0,1", "--algorithm", code, "--state"]
                watched.append(Watched(node, start(folder / f"{node}.log", *join, str(folder / node))))
            threading.Thread(target=follow, args=(page,), daemon=True).start()
            while not rounds_of(fetch(metrics)):
                time.sleep(1)
            began, looked, sampled = time.monotonic(), 0.0, -SECONDS
            while (now := time.monotonic() - began) < seconds:
                if any(process.poll() is not None for process in running):
                    raise SystemExit(f"a process has ended:\n{log.read_text()[-2000:]}")
                if now >= sampled + SECONDS:
                    sampled = now
                    for one in watched:
                        one.look(now)
                if now >= looked + LOOKS:
                    looked = now
                    fetch(page)
                    rounds = rounds_of(fetch(metrics))
                time.sleep(0.5)
        finally:
            for process in running:
                process.send_signal(signal.SIGINT)
            for process in running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()
        figures: dict[str, Any] = {one.name: one.figures(seconds) for one in watched}
    flat = all(part["flat"] for part in figures.values())
    figures |= {"minutes": options.minutes, "rounds": rounds, "flat": flat}
    show(figures, options.json)
    sys.exit(not flat)


if __name__ == "__main__":
    main()
