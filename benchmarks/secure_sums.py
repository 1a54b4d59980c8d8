"""What secure sums cost: a server and four nodes, each a process, on this machine.

The time of a run with secure sums over that of the same run without, in turns, several times:

    python benchmarks/secure_sums.py [--episodes 1000] [--repeats 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

PROGRAM = (sys.executable, "-c", "from fed_ucbvi.command_line import main; main()")
NODES = 4


def seconds_of(episodes: int, *flags: str) -> tuple[float, Any]:
    """The run time of a federation of processes, start-up left out, and the policy's estimated value."""
    command = [*PROGRAM, "federate", "--nodes", str(NODES), "--episodes", str(episodes), "--json", "--quiet"]
    command += ["--algorithm", "fed-kl-ucbvi", *flags]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    summary = json.loads(done.stdout)
    return summary["wall_seconds"], (summary["rounds"], summary["regret"])


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = {"plain": (), "secure": ("--secure-sums",)}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    results = set()
    for _ in range(options.repeats):
        for kind, flags in kinds.items():
            taken, result = seconds_of(options.episodes, *flags)
            seconds[kind].append(taken)
            results.add(result)
    medians = {kind: statistics.median(taken) for kind, taken in seconds.items()}
    figures = {
        "episodes": options.episodes,
        "repeats": options.repeats,
        "seconds": {kind: round(value, 2) for kind, value in medians.items()},
        "secure_over_plain": round(medians["secure"] / medians["plain"], 2),
        "same_result": len(results) == 1,
    }
    if options.json:
        print(json.dumps(figures))
        return
    for kind, value in medians.items():
        print(f"{kind:>14}: {value:6.2f} s ({value / medians['plain']:.2f} times plain), {options.repeats} runs")
    print(f"    same result: {'yes' if len(results) == 1 else 'NO'}")


if __name__ == "__main__":
    main()
