"""Settings shared by all tests: the same examples on every machine, and marks by what a test needs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from fed_ucbvi.network.certificates import TLSFiles

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50, database=None)
settings.load_profile("repeatable")

MARKED_FOLDERS = {"network": "network", "network/flower": "flower", "paper": "full"}
"""Marks of all tests in a folder. The paper's experiments, baselines and bounds are finished, and rarely change."""
SECONDS = 300
"""What a test that is a coroutine may take at most."""
HERE = Path(__file__).parent


@pytest.hookimpl(optionalhook=True)  # without xdist, as in the GPU simulator, nobody asks
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests of servers, nodes and browsers wait a good part of their time."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and those that open a browser by their fixture."""
    for item in items:
        for folder, mark in MARKED_FOLDERS.items():
            if HERE / folder in item.path.parents:
                item.add_marker(mark)
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    items.sort(key=_lasts_long, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay to the end: look for garbage neither while they are made nor ever among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    story = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(asyncio.wait_for(story, SECONDS))
    return True


def _lasts_long(item: pytest.Item) -> bool:
    """Whether a test is in a file that takes long: those go first, so that no core waits for the other at the end."""
    module = item.getparent(pytest.Module)
    marks = () if module is None else module.own_markers
    return any(HERE / folder in item.path.parents for folder in MARKED_FOLDERS) or "slow" in {m.name for m in marks}


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TLSFiles]:
    """Certificates of a server and of node-0, node-1, ..., by name; no test changes them."""
    from fed_ucbvi.network.certificates import TLSFiles, make_certificates

    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, server="server", nodes=[f"node-{i}" for i in range(5)])
    return lambda name: TLSFiles.of(folder, name)


@pytest.fixture
def certs(tls_files: Callable[[str], TLSFiles]) -> Path:
    """Where they are, with their authority's key."""
    return tls_files("server").certificate.parent
