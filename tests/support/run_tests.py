"""``python tests/support/run_tests.py -m MARKS``: tests in several processes; up to three that fail are tried again.

Some tests start processes and wait for them, so a machine that is busy with other things can make one fail. Whatever
fails twice has failed. What needed a second try is named at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SPREAD = (
    "--numprocesses",
    "auto",
    "--dist",
    "loadfile",
    "--no-loadscope-reorder",
    "--cache-clear",
)
MAX_AGAIN = 3
FAILED = Path(".pytest_cache") / "v" / "cache" / "lastfailed"


def main(*chosen: str) -> int:
    """Run the chosen tests; the exit code is pytest's."""
    command = [sys.executable, "-m", "pytest", *chosen]
    code = subprocess.call([*command, *SPREAD])
    if code == 1:
        failed = list(json.loads(FAILED.read_text(encoding="utf-8")))
    else:
        failed = []
    if 0 < len(failed) <= MAX_AGAIN:
        code = subprocess.call([*command, "--last-failed"])
        sys.stderr.write(f"{'passed' if code == 0 else 'failed'} at the second try, alone: {', '.join(failed)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
