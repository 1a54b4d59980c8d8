"""A federation left to itself: does the memory of its processes, or the number of their descriptors, grow?

A server with page and metrics and three nodes with secure sums, each a process; the nodes play real environments with
a pause after every episode, and a round has twenty episodes, so that rounds come at a steady rate of about one a
second. Somebody follows the page's events, opens the page anew every few seconds, and reads the metrics.

    PYTHONPATH=tests/support python benchmarks/soak.py [--minutes 30] [--pause 0.05] [--json]

Resident memory and descriptors of every process are read every five seconds (Linux). The first third of the time is
left out: what is compiled and imported on first use belongs there. A process is *flat* if its median memory in
the last third is at most 2 % above that in the second third, a line through both thirds grows by less than 4 % of its
memory an hour, and it never has more descriptors in the last third than in the second, but for readers' connections
(four).
"""

from __future__ import annotations

import os
import re
import statistics
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
from federation_processes import SERVER, Parties, Party
from measuring import read_options, show

NODES = 3
EPISODES = 20
HORIZON = 8
"""Episodes of a round."""
SECONDS = 5.0
LOOKS = 3.0
"""Between samples, and between looks at the page."""
MEDIANS = 1.02
HOURLY = 0.04
CONNECTIONS = 4
PAUSE = "SOAK_PAUSE"


@dataclass(frozen=True, kw_only=True)
class FixedRule(SynchronisationRule):
    """A request after so many visits, however many there were before."""

    def limits(self, own: Any, total: CountArray, agents: int) -> CountArray:
        return np.full(total.shape, EPISODES, dtype=np.int64)


@dataclass(frozen=True)
class SteadyKL(fed.FedKLUCBVI):
    """Fed-KL-UCBVI whose rounds do not become longer."""

    name: ClassVar[str] = "fed-kl-steady"
    rules: ClassVar[tuple[str, ...]] = ("fixed",)

    def synchronisation_rule(self, setting: Setting) -> SynchronisationRule:
        return FixedRule()


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pauses before every episode."""

    def reset(self, **options: Any) -> Any:
        time.sleep(float(os.environ[PAUSE]))
        return super().reset(**options)


def make(agent: int) -> gymnasium.Env[Any, Any]:
    return Slow(gymnasium.make("FrozenLake-v1", max_episode_steps=HORIZON))


class Watched:
    """Samples of a process: seconds, resident megabytes, descriptors."""

    def __init__(self, party: Party) -> None:
        self._folder = Path(f"/proc/{party.pid}")
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
    """Number of rounds that have ended, by the server's metrics."""
    found = re.search(r"^fed_ucbvi_rounds(?:_total)? (\S+)", metrics, re.MULTILINE)
    return int(float(found[1])) if found else 0


def main() -> None:
    options = read_options(__doc__, minutes=30.0, pause=0.05, json=False)
    seconds = 60 * options.minutes
    os.environ[PAUSE] = str(options.pause)
    names = [f"node-{i}" for i in range(NODES)]
    code = f"{Path(__file__).stem}:SteadyKL"
    with tempfile.TemporaryDirectory() as name, Parties(Path(name)) as parties:
        folder = parties.folder
        tls = ("--certs", f"{name}/certs", "--algorithm", code)
        make_certificates(folder / "certs", server=SERVER, nodes=names)
        parties.begin(
            SERVER,
            "serve",
            *tls,
            "--listen",
            "127.0.0.1:0",
            "--port-file",
            f"{name}/port",
            "--secure-sums",
            "--collection",
            "live",
            "--sizes",
            f"17,4,{HORIZON}",
            "--agents",
            str(NODES),
            "--nodes",
            ",".join(names),
            "--episodes",
            "10000000",
            "--checkpoint",
            f"{name}/checkpoint",
            "--dashboard",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        )
        parties.wait(lambda: "metrics at" in parties.server.words(), "page and metrics")
        page, metrics = re.findall(r"(?:page:|metrics at) (http://\S+)", parties.server.words())
        for i, node in enumerate(names):
            parties.begin(
                node,
                "join",
                parties.address,
                *tls,
                "--name",
                node,
                "--first-agent",
                str(i),
                "--state",
                f"{name}/{node}",
                "--reward-range",
                "0,1",
                "--live",
                f"{Path(__file__).stem}:make",
                "--horizon",
                str(HORIZON),
            )
        watched = {name: Watched(party) for name, party in parties.parties.items()}
        threading.Thread(target=follow, args=(page,), daemon=True).start()
        parties.wait(lambda: rounds_of(fetch(metrics)), "a round")
        began = time.monotonic()
        looked = 0.0
        sampled = -SECONDS
        while (now := time.monotonic() - began) < seconds:
            if not all(party.process.is_alive() for party in parties.parties.values()):
                raise SystemExit(f"a process has ended:\n{parties.words()[-2000:]}")
            if now >= sampled + SECONDS:
                sampled = now
                for one in watched.values():
                    one.look(now)
            if now >= looked + LOOKS:
                looked = now
                fetch(page)
                rounds = rounds_of(fetch(metrics))
            time.sleep(0.5)
    figures: dict[str, Any] = {name: one.figures(seconds) for name, one in watched.items()}
    flat = all(part["flat"] for part in figures.values())
    figures |= {"minutes": options.minutes, "rounds": rounds, "flat": flat}
    show(figures, options.json)
    sys.exit(not flat)


if __name__ == "__main__":
    main()
