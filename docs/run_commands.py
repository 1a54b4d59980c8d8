"""Run the shell commands of the documents as they stand, each page in an empty folder; ``make check-docs``.

A block of commands that cannot be run here follows a comment that says why: ``<!-- not run: three hosts -->``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(?:<!-- not run: (?P<why>[^>]+) -->\n+)?```(?P<kind>sh|python)\n(?P<text>.*?)```", re.DOTALL)
SAVED_AS = re.compile(r"# (\w+\.py)\n")
"""The first line of a block of Python that is to be saved, for commands that use it."""

SECONDS = 300
"""For one block."""


class Block(NamedTuple):
    """A block of a page: commands to run, or Python to save under a name."""

    page: Path
    text: str
    name: str = ""


def blocks_of(page: Path) -> list[Block]:
    """What is to be saved and run, in order."""
    found = []
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        saved = SAVED_AS.match(match["text"])
        if match["kind"] == "sh" and match["why"] is None:
            found.append(Block(page, match["text"]))
        elif match["kind"] == "python" and saved is not None:
            found.append(Block(page, match["text"], saved[1]))
    return found


def _run(commands: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of commands that may leave processes behind; all of them end in time."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return 124, f"{said}\nnot over after {SECONDS} s"
    return process.returncode, said


def run_page(page: Path) -> bool:
    """Run a page's commands in a folder of its own; say how it went."""
    blocks, good = blocks_of(page), True
    if not any(not block.name for block in blocks):
        return True
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        for block in blocks:
            if block.name:
                (Path(folder) / block.name).write_text(block.text, encoding="utf-8")
                continue
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            code, said = _run(block.text, Path(folder), {**os.environ, "PATH": path})
            if code:
                good = False
                sys.stderr.write(f"{page.name}: exit code {code}\n{block.text}\n{said[-3000:]}\n")
                break
    sys.stdout.write(f"{page.name}: {'commands run' if good else 'FAILED'}, {time.monotonic() - began:.0f} s\n")
    sys.stdout.flush()
    return good


def main() -> None:
    """Run all pages, or those that are named."""
    wanted = sys.argv[1:]
    pages = [page for page in PAGES if not wanted or page.name in wanted]
    failed = [page for page in pages if not run_page(page)]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
