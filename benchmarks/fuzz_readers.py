"""100,000 mutated files for each reader, under 1 GB of memory: nothing may come out but an InputError.

Each reader works in a process of its own, whose data may take 1 GB (RLIMIT_DATA). If the process ends, or shows
anything but an ``InputError``, the seed is printed and the next process goes on behind it::

    python benchmarks/fuzz_readers.py                          # all readers, hours on one core
    python benchmarks/fuzz_readers.py --inputs 2000 bins.json  # some of them
"""

from __future__ import annotations

import argparse
import logging
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

MOST_BYTES = 1_000_000_000
BASELINE = 100
"""Mutations between two lines of progress."""


def work(name: str, first: int, last: int) -> None:
    """Try the mutations ``first`` to ``last - 1`` in this process, and print how far it is."""
    from mutated_files import Mutations

    logging.disable(logging.CRITICAL)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        mutations = Mutations.of(name, Path(folder))
        for seed in range(first, last):
            try:
                found[mutations.try_one(seed)] += 1
            except Exception:
                found["traceback"] += 1
                print(f"{name}, seed {seed}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            if (seed + 1 - first) % BASELINE == 0 or seed + 1 == last:
                own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                other = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
                figures = (seed + 1, found["read"], found["refused"], found["traceback"], max(own, other))
                print(*figures, flush=True)
                found.clear()


def fuzz(name: str, inputs: int) -> None:
    """Try so many mutations, in as many processes as it takes, and print what came of them."""
    done = 0
    ended = 0
    most = 0
    found = [0, 0, 0]
    began = time.perf_counter()
    while done < inputs:
        words = [sys.executable, __file__, "--work", name, str(done), str(inputs)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                reached, *outcomes, kilobytes = map(int, line.split())
                found = [known + new for known, new in zip(found, outcomes, strict=True)]
                done = reached
                most = max(most, kilobytes)
        if process.returncode:
            ended += 1
            done += BASELINE
            print(f"{name}: the process ended with {process.returncode} after seed {done - BASELINE}", flush=True)
    read, refused, tracebacks = found
    seconds = time.perf_counter() - began
    print(
        f"{name:26} {done:>8,} inputs: {read:>7,} read, {refused:>8,} refused, {tracebacks} tracebacks, "
        f"{ended} processes ended, at most {most / 1000:.0f} MB, {seconds:.0f} s",
        flush=True,
    )


def main() -> None:
    from mutated_files import READERS

    parser = argparse.ArgumentParser(description="Mutated files for every reader.")
    parser.add_argument("readers", nargs="*", help=f"of {', '.join(READERS)}; by default all")
    parser.add_argument("--inputs", type=int, default=100_000, help="mutations of each file; by default 100,000")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        name, first, last = options.work
        work(name, int(first), int(last))
        return
    for name in options.readers or READERS:
        fuzz(name, options.inputs)


if __name__ == "__main__":
    main()
