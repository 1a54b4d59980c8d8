"""Time that the live page adds to a run: the same runs with and without it, in turn, with a page connected.

A reader in a process of its own follows the events, as a browser does. Processor time of the run's process is
compared, which the page's server is a thread of, so that other work on the machine matters little. The median of the
ratios of neighbours is given, and the ratio of the least times. Two runs of the same work differ by more than the
page costs on most machines. So the share that the page's own threads use, as Linux counts it, is given too:

    python benchmarks/dashboard.py [--pairs 9] [--json]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fed_ucbvi import Federation, FedUCBVI, gridworld, run, synthetic
from fed_ucbvi.network.dashboard.server import PageServer
from fed_ucbvi.network.dashboard.state import LiveState, Subject
from fed_ucbvi.results.round_record import OnRound
from measuring import read_options, show

READER = """
import sys
import urllib.request
events = urllib.request.urlopen(sys.argv[1] + "events")
events.readline()
print("connected", flush=True)
for line in events:
    pass
"""
CASES: dict[str, tuple[Callable[[], Federation], int]] = {
    "GridWorld 6 x 6, H = 15": (lambda: gridworld(agents=20, eps_p=0.1, rows=6, columns=6, horizon=15), 100_000),
    "synthetic, S = 30, A = 8, H = 10": (
        lambda: synthetic(agents=20, eps_p=0.1, states=30, actions=8, horizon=10),
        10_000,
    ),
}
"""Twenty agents; of both, rounds are about a millisecond long."""


def seconds_of(algorithm: FedUCBVI, world: Federation, episodes: int, on_round: OnRound | None) -> tuple[float, int]:
    """Processor seconds of one run, and its number of rounds."""
    began = time.process_time()
    result = run(algorithm, world, episodes, progress=False, on_round=on_round)
    return time.process_time() - began, len(result.records["start"])


def other_threads() -> float:
    """Processor seconds of all threads of this process but the one that runs."""
    own = str(threading.get_native_id())
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != own]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(world: Federation, episodes: int, pairs: int) -> dict[str, Any]:
    """Runs with and without the page, in turn."""
    algorithm = FedUCBVI()
    seconds_of(algorithm, world, episodes, None)  # compiled, and in the cache
    alone = []
    watched = []
    shares = []
    rounds = 0
    for _ in range(pairs):
        spent, rounds = seconds_of(algorithm, world, episodes, None)
        alone.append(spent)
        state = LiveState(Subject.of_run(algorithm, world))
        with PageServer(state, "127.0.0.1:0") as page:
            reader = subprocess.Popen([sys.executable, "-c", READER, page.url], stdout=subprocess.PIPE)
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"connected\n"
            before = other_threads()
            watched.append(seconds_of(algorithm, world, episodes, state)[0])
            shares.append((other_threads() - before) / watched[-1])
        reader.wait()
    ratios = [one / other for one, other in zip(watched, alone, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "rounds": rounds,
        "rounds_per_second": round(rounds / statistics.median(alone)),
        "seconds_alone": round(statistics.median(alone), 3),
        "ratio": round(statistics.median(ratios), 4),
        "quartiles": [round(low, 4), round(high, 4)],
        "ratio_of_least": round(min(watched) / min(alone), 4),
        "share_of_threads": round(statistics.median(shares), 4),
    }


def main() -> None:
    options = read_options(__doc__, pairs=9, json=False)
    show({name: measure(make(), episodes, options.pairs) for name, (make, episodes) in CASES.items()}, options.json)


if __name__ == "__main__":
    main()
