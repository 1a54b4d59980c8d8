"""The protobuf classes, made at run time from ``federation.binpb``, what ``make proto`` compiles the schema to.

A descriptor is the same for every version of protobuf. Python code written by protoc is not: it refuses runtimes
older than the compiler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fed_ucbvi.network.packages import needed

with needed("protobuf"):
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message,
        message_factory,
    )

SCHEMA = Path(__file__).with_name("federation.proto")
DESCRIPTOR = Path(__file__).with_name("federation.binpb")
PACKAGE = "fed_ucbvi.v1"

DecodeError: type[Exception] = message.DecodeError


def _classes() -> dict[str, Any]:
    """All messages of the schema by name."""
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    names = [kind.name for file in files.file for kind in file.message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names}


CLASSES = _classes()
