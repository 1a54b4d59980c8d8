"""Algorithms by name: which modules a run imports, and how the paper's part is registered."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fed_ucbvi import FedKLUCBVI, FedQHoeffding
from fed_ucbvi.algorithms import ALGORITHMS, OWN, algorithm_name, find_algorithm
from fed_ucbvi.paper.orders import ROWS

RUN = """
import json, sys
from fed_ucbvi import run, synthetic
run({name!r}, synthetic(agents=2), episodes=20, progress=False)
print(json.dumps(sorted(name for name in sys.modules if name.startswith("fed_ucbvi."))))
"""


def modules_of_a_run(name: str) -> list[str]:
    """Modules of this package that a process has imported after a run."""
    done = subprocess.run([sys.executable, "-c", RUN.format(name=name)], capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return modules


@pytest.mark.slow
def test_a_run_imports_the_module_of_its_algorithm_only() -> None:
    modules = modules_of_a_run("fed-kl-ucbvi")
    assert "fed_ucbvi.algorithms.fed_kl_ucbvi" in modules
    assert "fed_ucbvi.algorithms.fed_ucbvi" not in modules


@pytest.mark.slow
def test_a_run_of_the_core_imports_the_core_only() -> None:
    modules = modules_of_a_run("fed-ucbvi")
    assert not [name for name in modules if name.startswith(("fed_ucbvi.paper", "fed_ucbvi.network"))]


def test_the_algorithms_of_the_papers_table_are_registered() -> None:
    assert set(ALGORITHMS) == set(ROWS)


def test_an_algorithm_of_the_core_is_recorded_by_its_name() -> None:
    assert algorithm_name(FedKLUCBVI()) == "fed-kl-ucbvi"


def test_an_algorithm_registered_by_an_entry_point_is_recorded_by_its_name() -> None:
    assert algorithm_name(FedQHoeffding()) == "fedq-hoeffding"


def test_listing_names_imports_no_algorithm() -> None:
    code = "import sys; from fed_ucbvi.algorithms import ALGORITHMS; list(ALGORITHMS); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "fed_ucbvi.algorithms.fed_kl_ucbvi" not in done.stdout.split()


@pytest.mark.parametrize("name", OWN)
def test_a_name_of_the_core_stands_for_the_class_with_this_name(name: str) -> None:
    found = find_algorithm(name)
    assert isinstance(found, type)
    assert vars(found)["name"] == name
