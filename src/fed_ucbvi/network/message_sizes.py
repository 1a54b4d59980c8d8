"""Sizes of the largest messages of a run, with which a message is compared before it is decoded.

gRPC has one limit for all messages of a connection, which is the same in every run. The limits of this module follow
from the sizes of the run: each side knows the shapes of the arrays that the other side may send, and how many nodes
and agents there can be. A message of at most :data:`~fed_ucbvi.network.messages.PART_BYTES` is never too long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.environments.bins import MAX_BYTES as MAX_BINS_BYTES
from fed_ucbvi.network.arrays import WireError, packed_bytes
from fed_ucbvi.network.checks import ReportSchema
from fed_ucbvi.network.messages import (
    MAX_SIGNED_BYTES,
    PART_BYTES,
    Down,
    End,
    Played,
    Query,
    Report,
    Roster,
    Start,
    Up,
    Welcome,
    kind_of,
)
from fed_ucbvi.network.run_plan import MAX_NUMBERS, MAX_SPEC_BYTES
from fed_ucbvi.results.policy import longest_file

Form = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of an array."""

HEAD_BYTES = 1024
"""A message without its arrays, lists and files: its name, its numbers, names, digests and keys."""
ARRAY_HEAD_BYTES = 64
"""An array without its data: its type and its shape."""
REQUEST_BYTES = 1 + 5 * 9
"""The longest request: its five numbers."""
WELCOME_BYTES = HEAD_BYTES + MAX_SPEC_BYTES + MAX_BINS_BYTES + 8 * MAX_NUMBERS
"""The longest welcome. Compressed, the support takes fewer than 8 bytes for each of its transitions."""
BEFORE_WELCOME: Mapping[str, int] = {Welcome.__name__: WELCOME_BYTES}
"""Limits of a node that does not know the run yet."""


def up_limits(schema: ReportSchema, agents: int) -> Mapping[str, int]:
    """Bytes of the longest messages of a node with so many agents, by kind."""
    rows = agents if schema.grid is None else 1
    reports = [arrays_bytes(((rows, *form.shape), form.dtype) for form in forms) for forms in schema.forms]
    both_judged = schema.rewards._replace(judged=(1, 2))
    rewards = arrays_bytes([((1, both_judged.numbers), np.dtype(np.int64))])
    return _limits(
        {
            Report: max(reports) + rewards,
            Played: agents * REQUEST_BYTES,
        }
    )


def down_limits(
    setting: Setting, starts: Sequence[Sequence[Form]], queries: Sequence[Sequence[Form]]
) -> Mapping[str, int]:
    """Bytes of the longest messages of a run's server after the welcome, by kind.

    Args:
        setting: the sizes of the run.
        starts: the forms that the arrays of a start may have.
        queries: those of the queries of a synchronisation.
    """
    entry = 2 * MAX_SIGNED_BYTES + HEAD_BYTES
    nodes = setting.agents
    entries = setting.horizon * setting.states * setting.actions
    return _limits(
        {
            Welcome: WELCOME_BYTES,
            Start: max(map(arrays_bytes, starts)),
            Query: max(map(arrays_bytes, queries), default=0),
            Roster: nodes * entry,
            End: longest_file(entries),
        }
    )


def _limits(contents: Mapping[type[Up | Down], int]) -> Mapping[str, int]:
    return {kind.__name__: max(PART_BYTES, HEAD_BYTES + content) for kind, content in contents.items()}


def arrays_bytes(forms: Iterable[Form]) -> int:
    """Bytes of arrays in a message."""
    return sum(ARRAY_HEAD_BYTES + packed_bytes(math.prod(shape), dtype) for shape, dtype in forms)


def limit_of(data: bytes, limits: Mapping[str, int]) -> int:
    """Bytes that a message which begins with ``data`` may have; where no limit is given, few."""
    return limits.get(kind_of(data), PART_BYTES)


def check_size(data: bytes, limits: Mapping[str, int]) -> None:
    """Raise :class:`WireError` if a message is longer than one of its kind can be."""
    limit = limit_of(data, limits)
    if len(data) > limit:
        raise WireError(f"the server sent a message of {len(data)} bytes, above the limit of {limit}.")
