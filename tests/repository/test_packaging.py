"""Declared dependencies are those that are imported, and the source archive is complete."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from commands import executed
from repository import ROOT
from shipped_wheel import LOOK

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: Mapping[str, list[str]] = PROJECT["project"]["optional-dependencies"]
ELSEWHERE = {"flwr": {"flwr"}}
"""Packages that are not installed with the tests."""
BY_OTHERS = {"pandas", "pyarrow", "numba-cuda", "icu-sepsis"}
"""Packages that a dependency imports when it is asked to: Polars for ``.to_pandas()``, Numba for ``numba.cuda``; and
one of which only a file is read."""
KNOWN = {**packages_distributions(), **ELSEWHERE}


def names(requirements: list[str]) -> set[str]:
    """Distributions that requirements name, the package's own extras followed."""
    found = set()
    for requirement in requirements:
        match = re.match(r"([\w.-]+)(?:\[([^]]*)\])?", requirement)
        assert match is not None
        if match[1] == "fed-ucbvi":
            found |= names([text for extra in match[2].split(",") for text in EXTRAS[extra.strip()]])
        else:
            found.add(plain(match[1]))
    return found


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: Path) -> Iterator[tuple[str, Path]]:
    """Packages imported below a folder, wherever in a file, that are neither Python's nor its own modules."""
    own = {path.stem for path in folder.rglob("*.py")} | {"fed_ucbvi"}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                found = [node.module]
            else:
                continue
            for module in found:
                top = module.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in own:
                    yield top, path


def distributions(package: str) -> set[str]:
    return {plain(name) for name in KNOWN.get(package, {package})}


def declared(extras: Iterable[str] = ()) -> set[str]:
    return names(PROJECT["project"]["dependencies"]).union(*(names(EXTRAS[extra]) for extra in extras))


@pytest.mark.full
@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_every_package_that_is_imported_is_declared(folder: str) -> None:
    # tests/support/rlberry_reference.py says how to get it
    known = declared(("dev", "test"))
    own = {"rlberry"}
    for path in PROJECT["tool"]["pytest"]["ini_options"]["pythonpath"]:
        own |= {file.stem for file in (ROOT / path).glob("*.py")}
    if folder == "src":
        known = declared(EXTRAS.keys() - {"dev", "test"})
        own = set()
    for package, path in imported(ROOT / folder):
        assert package in own or distributions(package) & known, f"{path} imports {package}, not declared"


def test_all_public_names_can_be_looked_at_without_any_extra() -> None:
    """``help``, ``import *`` and ``inspect.getmembers``, as editors use it, with all packages of extras kept away."""
    extra = {package for package, _ in imported(ROOT / "src") if not distributions(package) & declared()}
    assert "gymnasium" in extra
    absent = f"import sys\nsys.modules.update(dict.fromkeys({sorted(extra)}))\n"  # None: it cannot be imported
    looked = executed(absent + LOOK)
    assert looked.returncode == 0, looked.stderr
    assert "learn_bins(" in looked.stdout
    refused = executed(absent + "import fed_ucbvi\nfed_ucbvi.learn_bins(None)")
    assert "InputError: this needs the package gymnasium" in refused.stderr


@pytest.mark.full
def test_every_declared_package_is_imported() -> None:
    used = set().union(*(distributions(package) for package, _ in imported(ROOT / "src")))
    known = declared(EXTRAS.keys() - {"dev", "docs", "test"})
    assert known <= used | BY_OTHERS, f"declared and not imported: {sorted(known - used)}"


def test_every_bound_has_a_lower_end() -> None:
    for requirement in [
        *PROJECT["project"]["dependencies"],
        *(text for texts in EXTRAS.values() for text in texts),
    ]:
        assert ">=" in requirement or requirement.startswith("fed-ucbvi["), requirement


def test_the_source_archive_takes_every_file_that_git_knows() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    patterns = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for path in listed.splitlines():
        top = path.partition("/")[0]
        assert top == "pyproject.toml" or any(fnmatch(f"/{top}", pattern) for pattern in patterns), path
