"""Settings shared by all tests: the same examples on every machine, and marks by what a test needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("repeatable")

MARKED_FOLDERS = ("network", "flower")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of the network and of Flower by their folder, and those that open a browser by their fixture."""
    for item in items:
        for folder in MARKED_FOLDERS:
            if HERE / folder in item.path.parents:
                item.add_marker(folder)
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
