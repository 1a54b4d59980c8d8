"""Reading CSV and Parquet of others, in a process of its own that a damaged file may end.

A damaged Parquet file can make Polars panic, or abort the process. So the file is read elsewhere, under a limit on
memory, and comes back in the format of Arrow. The process is started with the first file and kept for the next ones.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fed_ucbvi.core import memory
from fed_ucbvi.core.errors import InputError, printable

if TYPE_CHECKING:
    import polars as pl

PROGRAM = Path(__file__).with_name("table_process.py")
BYTES_PER_NUMBER = 32
"""What a number of a table takes at most while it is read: twice as a column, and on the way between processes."""


@dataclass(frozen=True)
class ForeignTable:
    """The columns that were asked for, as far as there are, and the metadata by name."""

    frame: pl.DataFrame
    metadata: dict[str, str]
    columns: list[str]


class _Reader:
    """The process that reads; the lock is held while it works on a file."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def ask(self, request: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        """Its answer; an :class:`EOFError` if the process has ended instead."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps({**request, "bytes": len(content)}).encode() + b"\n")
                process.stdin.write(content)
                process.stdin.flush()
                line = process.stdout.readline()
                known: dict[str, Any] = json.loads(line) if line else {"bytes": 1}
                table = process.stdout.read(known["bytes"])
            except (BrokenPipeError, ValueError):
                known = {"bytes": 1}
                table = b""
            if len(table) < known["bytes"]:
                self.close()
                raise EOFError
            return known, table

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            words = [sys.executable, "-P", str(PROGRAM), str(memory.available_memory())]
            pipes = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.DEVNULL,
            }
            self._process = subprocess.Popen(words, **pipes)  # type: ignore[call-overload]
            self._owner = os.getpid()
        assert self._process is not None
        return self._process

    def close(self) -> None:
        process = self._process
        self._process = None
        if process is not None and self._owner == os.getpid():
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        continue
            process.kill()
            process.wait()


_reader = _Reader()
atexit.register(_reader.close)


def read_table(
    content: bytes,
    kind: Literal["csv", "parquet"],
    columns: Sequence[str],
    *,
    metadata: Sequence[str] = (),
    most_rows: int = 1 << 62,
) -> ForeignTable:
    """The columns of these names in the content of a file; raise if they cannot be read, or are too large."""
    import polars as pl

    memory.check_memory("Its content", 3 * len(content), "Use a smaller file.")
    can_be_held = memory.available_memory() // (BYTES_PER_NUMBER * len(columns))
    request = {
        "kind": kind,
        "columns": list(columns),
        "metadata": list(metadata),
        "most_rows": min(most_rows, can_be_held),
    }
    try:
        known, table = _reader.ask(request, content)
    except EOFError:
        raise InputError("it is damaged, or needs more memory than there is.") from None
    if "error" in known:
        raise InputError(f"{printable(known['error']).rstrip('.')}.")
    if known["rows"] > most_rows:
        raise InputError(f"it has {known['rows']:,} rows; at most {most_rows:,} are possible.")
    if not table:
        needed = BYTES_PER_NUMBER * len(columns) * known["rows"]
        memory.check_memory(f"A table of {known['rows']:,} rows", needed, "Use a smaller file.")
        raise InputError(f"it has {known['rows']:,} rows, more than there is memory for.")
    frame = pl.read_ipc(io.BytesIO(table))
    return ForeignTable(frame, known["metadata"], known.get("columns", frame.columns))
