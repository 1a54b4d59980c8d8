"""The available memory, and the check of the needed memory against it, before anything is built or unpacked."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.numbers import byte_count

ALWAYS_AVAILABLE = 1 << 24
"""Bytes that are not compared with anything: less than the program itself takes."""
JSON_FACTOR = 32
"""Largest memory of one byte of JSON as Python values; short lists and numbers take most."""
GROUPS = Path("/sys/fs/cgroup")


KERNEL_COPIES = 5
"""Tables of the size of a kernel that are held for every agent with tables of its own while they are put together."""
BUILT_COPIES = 8
"""Tables of the size of a kernel that are held once."""
BYTES_PER_ROW = 600
"""Memory of a row of a kernel, P(.|s,a), as Python values."""
BYTES_PER_CELL = 8
"""Memory of the value of an (h,s,a), of which the optimal policy needs a table."""
BYTES_PER_AGENT = 64
"""Memory of an agent of which nothing is known but its number."""


@dataclass(frozen=True)
class ProblemSize:
    """Sizes of a problem, known before anything of it is built.

    Attributes:
        states: S.
        actions: A.
        next_states: K, the most next states of a state and an action.
        steps: 1, or H where kernel or rewards depend on the step.
        by_row: true if it is built row by row in Python, and not as arrays.
        own_tables: true if all agents have tables of their own also where they are alike.
        scratch: bytes that are needed beside the tables while they are drawn.
    """

    states: int
    actions: int
    next_states: int
    steps: int = 1
    by_row: bool = True
    own_tables: bool = False
    scratch: int = 0

    def bytes(self, agents: int, *, alike: bool) -> int:
        """Memory while it is built for so many agents; where they are ``alike``, one kernel serves all of them."""
        rows = self.steps * self.states * self.actions
        kernel = 8 * rows * self.next_states
        kernels = agents if self.own_tables or not alike else 1
        arrays = kernel * (BUILT_COPIES + KERNEL_COPIES * kernels)
        python_values = BYTES_PER_ROW * rows if self.by_row else 0
        return arrays + python_values + self.scratch + BYTES_PER_AGENT * agents


def check_problem(name: str, size: ProblemSize, agents: int, horizon: int, *, alike: bool) -> None:
    """Raise unless there is enough memory to build the environment with so many agents, and to solve it."""
    sizes = f"S = {_short(size.states)}, A = {_short(size.actions)}, H = {_short(horizon)}"
    solution = horizon * size.states * size.actions * BYTES_PER_CELL
    needed = size.bytes(agents, alike=alike) + solution
    who = "agents" if alike else "agents that differ"
    check_memory(f"{name} with {sizes} and {_short(agents)} {who}", needed, SMALLER)


def _short(count: int) -> str:
    if count < 10**15:
        return f"{count:,}"
    return f"{count:.3g}"


SMALLER = "Use a smaller problem, or a machine with more memory."


def check_memory(what: str, needed: int, instead: str) -> None:
    """Raise if more memory is needed than is available; ``what`` begins the sentence, ``instead`` is the advice.

    >>> check_memory("A table of 3 numbers", 24, "Use fewer.")
    >>> check_memory("A table of 10^30 numbers", 8 * 10**30, "Use fewer.")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fed_ucbvi.core.errors.InputError: A table of 10^30 numbers needs 8e+18 TB of memory, and ... available. Use fewer.
    """
    if needed <= ALWAYS_AVAILABLE:
        return
    available = available_memory()
    if needed > available:
        raise InputError(
            f"{what} needs {byte_count(needed)} of memory, and {byte_count(available)} are available. {instead}"
        )


def available_memory() -> int:
    """Bytes that this process can still take: of the machine, of its control groups and by its own limits."""
    left = [_left_on_machine()]
    left += _left_in_groups()
    left += _left_by_limits()
    return max(0, min(left))


def _left_on_machine() -> int:
    for name, value in _fields(Path("/proc/meminfo")):
        if name == "MemAvailable:":
            return value * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _left_in_groups() -> Iterator[int]:
    """Memory that each control group of this process, and each group around it, leaves."""
    for line in group_lines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root = GROUPS
            limit = "memory.max"
            usage = "memory.current"
            cache = "inactive_file"
        elif "memory" in controllers.split(","):
            root = GROUPS / "memory"
            limit = "memory.limit_in_bytes"
            usage = "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        inner = root / path.lstrip("/")
        for folder in (inner, *inner.parents):
            most = _number(folder / limit)
            used = _number(folder / usage)
            if most is not None and used is not None:
                reclaimable = dict(_fields(folder / "memory.stat")).get(cache, 0)
                yield most - used + reclaimable
            if folder == root:
                break


def group_lines() -> list[str]:
    """The control groups of this process, one per line: number, controllers and path."""
    try:
        return Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _left_by_limits() -> Iterator[int]:
    """Memory that the limits on this process leave: on its addresses, and on its data."""
    usage = dict(_fields(Path("/proc/self/status")))
    for kind, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            yield limit - usage.get(used, 0) * 1024


def _number(path: Path) -> int | None:
    """The number in a file; None if there is no file, or no number, as where a group has no limit."""
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _fields(path: Path) -> Iterator[tuple[str, int]]:
    """Names and whole numbers of the lines of a file of the kernel's."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[1].isdigit():
            yield words[0], int(words[1])
