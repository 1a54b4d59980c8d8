"""Reading CSV and Parquet files of others, in a process of its own, which a damaged file may end.

A damaged Parquet file can make Polars panic, or abort the process. So the file is read in another process, under a
limit on memory, and returned in the format of Arrow. The process is started with the first file and kept for others.
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
"""Largest memory of a number of a table while it is read: twice as a column, and on the way between processes."""


@dataclass(frozen=True)
class ForeignTable:
    """The requested columns, as far as they exist, and the metadata by name."""

    frame: pl.DataFrame
    metadata: dict[str, str]
    columns: list[str]


class _Reader:
    """The process that reads; the lock is held while it works on a file."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def request(self, request: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        """The answer to a request; an :class:`EOFError` if the process has ended instead."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            header = {**request, "bytes": len(content)}
            try:
                process.stdin.write(json.dumps(header).encode() + b"\n")
                process.stdin.write(content)
                process.stdin.flush()
                line = process.stdout.readline()
                answer: dict[str, Any] = json.loads(line) if line else {"bytes": 1}
                table = process.stdout.read(answer["bytes"])
            except (BrokenPipeError, ValueError):
                answer = {"bytes": 1}
                table = b""
            if len(table) < answer["bytes"]:
                self.close()
                raise EOFError
            return answer, table

    def _started(self) -> subprocess.Popen[bytes]:
        process = self._process
        is_own = self._owner == os.getpid()
        if process is None or not is_own or process.poll() is not None:
            process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(memory.available_memory())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._process = process
            self._owner = os.getpid()
        return process

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
    memory_for_rows = memory.available_memory() // (BYTES_PER_NUMBER * len(columns))
    request = {
        "kind": kind,
        "columns": list(columns),
        "metadata": list(metadata),
        "most_rows": min(most_rows, memory_for_rows),
    }
    try:
        answer, table = _reader.request(request, content)
    except EOFError:
        raise InputError("it is damaged, or needs more memory than there is.") from None
    if "error" in answer:
        raise InputError(f"{printable(answer['error']).rstrip('.')}.")
    rows = answer["rows"]
    if rows > most_rows:
        raise InputError(f"it has {rows:,} rows; at most {most_rows:,} are possible.")
    if not table:
        needed = BYTES_PER_NUMBER * len(columns) * rows
        memory.check_memory(f"A table of {rows:,} rows", needed, "Use a smaller file.")
        raise InputError(f"it has {rows:,} rows, more than there is memory for.")
    frame = pl.read_ipc(io.BytesIO(table))
    return ForeignTable(
        frame=frame,
        metadata=answer["metadata"],
        columns=answer.get("columns", frame.columns),
    )
