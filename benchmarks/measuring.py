"""What these programs share: options, and figures as lines or as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping


def read_options(text: str | None, **defaults: int | float | str) -> argparse.Namespace:
    """``--NAME`` for each default, with a value of its type unless it is False, and ``--json``."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {**defaults, "json": False}.items():
        if value is False:
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


def show(figures: Mapping[str, object], as_json: bool) -> None:
    print(json.dumps(figures) if as_json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
