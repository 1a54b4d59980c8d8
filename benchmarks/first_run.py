"""The first start and later ones, of two versions in turn: `python benchmarks/first_run.py PATH/TO/OTHER/src`.

A start is `fed-ucbvi run --json`. Before a first one there is no compiled code; it may use two cores, so what counts
is the time on the wall. What is printed is the least of several.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent / "src"
PROGRAM = "from fed_ucbvi.command_line import main; main()"


def start(source: Path, cache: Path) -> float:
    """Seconds on the wall of one start."""
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", "--json"], env=environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - began


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the other version's src folder")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--later", type=int, default=5, help="later starts after each first one")
    arguments = parser.parse_args()
    sources = (arguments.other, HERE)
    first: dict[Path, list[float]] = {source: [] for source in sources}
    later: dict[Path, list[float]] = {source: [] for source in sources}
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory() as folder:
            caches = {source: Path(folder) / str(number) for number, source in enumerate(sources)}
            for source, cache in caches.items():
                first[source].append(start(source, cache))
            for _ in range(arguments.later):
                for source, cache in caches.items():
                    later[source].append(start(source, cache))
    print("| start | other | this | this to other |\n|---|---|---|---|")
    for what, seconds in (("first", first), ("later", later)):
        other, this = (min(seconds[source]) for source in sources)
        print(f"| {what} | {other:.3g} s | {this:.3g} s | {this / other:.2f} |")


if __name__ == "__main__":
    main()
