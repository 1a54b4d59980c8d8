"""Storms over federations of processes: what is killed, frozen and parted, and whether anything is lost.

    PYTHONPATH=tests/support python benchmarks/storm.py [--seconds 180] [--seed 0] [--json]

For each kind of federation one after the other is run until the time is up, in a storm from its first round on. After
each the accounts are checked (``tests/support/storms.py``): every episode that a node has counted is in the server's
table or still to be reported, and none twice; the server's log gives the run again, bit for bit; in lockstep the run
is the simulation's. The first account that is wrong ends the program.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from measuring import read_options, show
from storms import KINDS, Storm

ADDED_UP = ("rounds", "episodes", "in_table", "closed_without", "failed")


def weather(kind: str, seconds: float, seed: int) -> dict[str, Any]:
    end = time.monotonic() + seconds
    figures = Counter[str]()
    blows = Counter[str]()
    for number in itertools.count(seed):
        with tempfile.TemporaryDirectory() as folder:
            told = Storm(kind, Path(folder), number).blow(1000)
        figures += Counter({name: told[name] for name in ADDED_UP} | {"runs": 1})
        blows += Counter(told["blows"])
        if time.monotonic() > end:
            break
    return {"kind": kind, **{name: figures[name] for name in ("runs", *ADDED_UP)}, "blows": dict(blows)}


def main() -> None:
    options = read_options(__doc__, seconds=180.0, seed=0, json=False)
    for kind in KINDS:
        show(weather(kind, options.seconds, options.seed), options.json)


if __name__ == "__main__":
    main()
