"""Common parts of these programs: options, seconds, and figures as lines or as JSON."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence


def read_options(
    text: str | None, choices: Sequence[str] = (), **defaults: int | float | str | bool
) -> argparse.Namespace:
    """``what``, one of the choices if there are any, and ``--NAME VALUE`` for each default, or a switch if False."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    if choices:
        parser.add_argument("what", choices=choices)
    for name, value in defaults.items():
        if value is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


def show(figures: Mapping[str, object], as_json: bool) -> None:
    print(
        json.dumps(figures) if as_json else "\n".join(f"{name}: {value}" for name, value in figures.items()),
        flush=True,
    )


def print_row(*cells: object) -> None:
    """A line of a table in Markdown."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_head(*cells: str) -> None:
    print_row(*cells)
    print(f"|---|{'---:|' * (len(cells) - 1)}", flush=True)


def least_seconds(
    task: Callable[[], object], times: int = 1, clock: Callable[[], float] = time.process_time
) -> float:
    """The least of several times, by default of the processor."""
    taken = []
    for _ in range(times):
        began = clock()
        task()
        taken.append(clock() - began)
    return min(taken)
