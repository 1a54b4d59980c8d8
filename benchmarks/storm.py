"""Storms over federations of processes: what is killed, frozen and parted, and whether anything is lost.

    PYTHONPATH=tests/support python benchmarks/storm.py [--seconds 180] [--seed 0] [--json]

For each kind of federation one after the other is run until the time is up, in a storm from its first round on. After
each the accounts are checked (``tests/support/storms.py``): every episode that a node has counted is in the server's
table or still to be reported, and none twice; the server's log gives the run again, bit for bit; in lockstep the run
is the simulation's. The first account that is wrong ends the program.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from measuring import read_options
from storms import KINDS, Storm

ADDED_UP = ("rounds", "episodes", "in_table", "closed_without", "failed")


def weather(kind: str, seconds: float, seed: int) -> dict[str, Any]:
    """Storms over one kind of federation."""
    end, figures, blows = time.monotonic() + seconds, Counter[str](), Counter[str]()
    for number in itertools.count(seed):
        with tempfile.TemporaryDirectory() as folder:
            told = Storm(kind, Path(folder), number).blow(1000)
        figures += Counter({name: told[name] for name in ADDED_UP} | {"runs": 1})
        blows += Counter(told["blows"])
        if time.monotonic() > end:
            break
    return {"kind": kind, **{name: figures[name] for name in ("runs", *ADDED_UP)}, "blows": dict(blows)}


def main() -> None:
    """Let it blow, print."""
    options = read_options(__doc__, seconds=180.0, seed=0)
    for kind in KINDS:
        told = weather(kind, options.seconds, options.seed)
        if options.json:
            print(json.dumps(told), flush=True)
            continue
        blows = ", ".join(f"{name} {count}" for name, count in sorted(told.pop("blows").items()))
        print(", ".join(f"{name} {value}" for name, value in told.items()), f"({blows})", flush=True)


if __name__ == "__main__":
    main()
