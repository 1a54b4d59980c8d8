"""The program that reads foreign tables; :mod:`fed_ucbvi.core.foreign_tables` starts it and sends it requests.

It imports nothing of this package, so that it starts fast. A request is a line of JSON and, behind it, the content of
a file. The answer is a line of JSON and, behind it, the table in the format of Arrow.
"""

from __future__ import annotations

import io
import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

import polars as pl


def answer(request: Mapping[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
    """The metadata and the table of a file, or only the number of its rows if there are too many."""
    file = io.BytesIO(content)
    if request["kind"] == "csv":
        frame = pl.read_csv(file, infer_schema=False)
        header = {"metadata": {}, "rows": frame.height, "columns": frame.columns}
        return header, _arrow(frame, request["columns"])
    metadata = {name: text for name, text in pl.read_parquet_metadata(file).items() if name in request["metadata"]}
    schema = pl.read_parquet_schema(file)
    rows = int(pl.scan_parquet(file).select(pl.len()).collect().item())
    if rows > request["most_rows"]:
        return {"metadata": metadata, "rows": rows}, b""
    columns = [name for name in schema if name in request["columns"]]
    for name in columns:
        if schema[name].is_nested():
            raise ValueError(f"the column {name} holds {schema[name]}, expected numbers or text")
    frame = pl.read_parquet(file, columns=columns)
    complete = all(name in columns for name in request["columns"])
    header = {
        "metadata": metadata,
        "rows": rows,
        "columns": columns if complete else list(schema),
    }
    return header, _arrow(frame, columns)


def _arrow(frame: pl.DataFrame, columns: list[str]) -> bytes:
    written = io.BytesIO()
    frame.select(name for name in columns if name in frame.columns).write_ipc(written)
    return written.getvalue()


def serve() -> None:
    """Answer requests until the other side closes; the first argument is the largest memory to take."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(sys.argv[1])
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    requests = sys.stdin.buffer
    answers = sys.stdout.buffer
    while line := requests.readline():
        request = json.loads(line)
        content = requests.read(request["bytes"])
        try:
            header, table = answer(request, content)
        except BaseException as error:
            if not isinstance(error, Exception):  # a panic of Polars, after which nothing is certain
                raise SystemExit(1) from error
            header = {"error": f"{error}"[:1000]}
            table = b""
        header["bytes"] = len(table)
        answers.write(json.dumps(header).encode() + b"\n")
        answers.write(table)
        answers.flush()


if __name__ == "__main__":
    serve()
