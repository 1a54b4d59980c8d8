"""Two versions of the package, side by side: `python benchmarks/side_by_side.py PATH/TO/OTHER/src [CASE ...]`.

Every case is run by both in turn, in fresh processes on one core, after a first run that compiles. What is printed is
the least processor time of several runs, which other work on the machine disturbs less than the time on the wall.

With `--starts` the first start of `fed-ucbvi run --json` and five later ones are measured instead. Before a first one
there is no compiled code; it may use two cores, so what counts is the time on the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from measuring import print_head, print_row

PROGRAM = (sys.executable, "-c", "from fed_ucbvi.command_line import main; main()")
LATER = 5
"""Later starts after each first one."""
HERE = Path(__file__).resolve().parent.parent / "src"

LARGE = "gridworld(agents=20, rows=50, columns=50, horizon=100)"
TAXI = "from_gymnasium('Taxi-v4', 20, horizon=20)"
CASES: dict[str, tuple[str, str, int, int]] = {
    "GridWorld, M = 20, T = 30 000": ("FedUCBVI()", "gridworld(agents=20)", 30_000, 9),
    "GridWorld, M = 20, T = 10^9": ("FedUCBVI()", "gridworld(agents=20)", 10**9, 9),
    "GridWorld, M = 2 000, T = 30 000": ("FedUCBVI()", "gridworld(agents=2_000)", 30_000, 1),
    "GridWorld, M = 20 000, T = 30 000": ("FedUCBVI()", "gridworld(agents=20_000)", 30_000, 1),
    "50 x 50 grid, H = 100, M = 20, T = 500": ("FedUCBVI()", LARGE, 500, 1),
    "50 x 50 grid, H = 100, M = 20, T = 10 000": ("FedUCBVI()", LARGE, 10_000, 1),
    "Taxi, H = 20, M = 20, T = 3 000": ("FedUCBVI(bonus_scale=0.001)", TAXI, 3_000, 1),
}
"""Algorithm, world, episodes, runs in one process."""
FIRST_CASES = 5
"""As many are measured unless some are named; the others take long, or need Gymnasium."""

CODE = """
import json, resource, time, warnings
warnings.simplefilter("ignore")
from fed_ucbvi import FedUCBVI, from_gymnasium, gridworld, run
algorithm, world = {algorithm}, {world}
run(algorithm, gridworld(agents=20), 30_000, progress=False)
run(algorithm, world, 20, progress=False)
best = float("inf")
for seed in range({runs}):
    began = time.process_time()
    rounds = run(algorithm, world, {episodes}, seed=seed, progress=False).rounds
    best = min(best, time.process_time() - began)
print(json.dumps([best, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, rounds]))
"""


def measure(source: Path, case: str) -> tuple[float, float, int]:
    """Seconds, peak memory in GB and rounds of one version."""
    algorithm, world, episodes, runs = CASES[case]
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_NUM_THREADS": "1"}
    code = CODE.format(algorithm=algorithm, world=world, episodes=episodes, runs=runs)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    seconds, memory, rounds = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), float(memory), int(rounds)


def start(source: Path, cache: str) -> float:
    """Seconds on the wall of one start."""
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    subprocess.run([*PROGRAM, "run", "--json"], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def starts(sources: tuple[Path, Path], repeats: int) -> None:
    """Print the least seconds of first and of later starts."""
    found: dict[tuple[str, Path], list[float]] = defaultdict(list)
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            for what in ("first", *["later"] * LATER):
                for source, cache in zip(sources, (one, two), strict=True):
                    found[what, source].append(start(source, cache))
    print_head("start", "other", "this", "this to other")
    for what in ("first", "later"):
        other, this = (min(found[what, source]) for source in sources)
        print_row(what, f"{other:.3g} s", f"{this:.3g} s", f"{this / other:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the other version's src folder")
    parser.add_argument("cases", nargs="*", default=list(CASES)[:FIRST_CASES], help="some of the cases only")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--starts", action="store_true", help="starts of the command instead of runs")
    arguments = parser.parse_args()
    if arguments.starts:
        starts((arguments.other, HERE), arguments.repeats)
        return
    print_head("case", "other", "this", "ratio", "memory of this")
    for case in arguments.cases:
        pairs = [(measure(arguments.other, case), measure(HERE, case)) for _ in range(arguments.repeats)]
        other, this = (min(seconds[side][0] for seconds in pairs) for side in (0, 1))
        memory = max(pair[1][1] for pair in pairs)
        print_row(case, f"{other:.3g} s", f"{this:.3g} s", f"{other / this:.3g}", f"{memory:.2g} GB")


if __name__ == "__main__":
    main()
