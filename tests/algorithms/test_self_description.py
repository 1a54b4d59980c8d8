"""An algorithm is one file and an environment is one file: they say it all, and nobody else knows their names."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fed_ucbvi
from fed_ucbvi import InputError
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.algorithms.base import FleetTables, Setting
from fed_ucbvi.algorithms.fields import Meaning, has_trajectories, meanings_of
from fed_ucbvi.command_line.lists import describe
from fed_ucbvi.environments import ENVIRONMENTS, current_name, find_environment, make_environment
from fed_ucbvi.paper.orders import ROWS
from fed_ucbvi.results.about import label_of
from fed_ucbvi.results.looks import look_of

PACKAGE = Path(fed_ucbvi.__file__).parent
REGISTRIES = {
    "__init__.pyi",  # the facade: every public name, once
    "algorithms/__init__.py",
    "environments/__init__.py",
}
THE_PAPER = "paper/"
"""What the paper ran and claims, by name."""
EXCEPTIONS = {
    "core/defaults.py": "what a command takes when nobody says must have a name, and here it has it once",
    "core/version.py": "the package is called like its first algorithm",
    "algorithms/known_dynamics.py": "the same algorithm with known dynamics, on record by the same name",
    "analysis/advise.py": "it advises which algorithm to take, so it must name them",
    "analysis/play.py": "the other half of the adapter to Gymnasium: it steps what from_gymnasium reads tables of",
    "engine/live.py": "the other half of the adapter to Gymnasium",
    "results/looks.py": "has the colours of the algorithms of the core",
    "environments/gymnasium_environments.py": "gives Gymnasium all environments but those that are its own",
}


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


HOMES = {
    **{kind.__name__: kind.__module__ for kind in ALGORITHMS.values()},
    **{name: kind.__module__ for name, kind in ALGORITHMS.items()},
    **{name: builder.__module__ for name, builder in ENVIRONMENTS.items()},
}
"""By name: the module that alone may use it."""


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """The words of a module that may name something: texts, what is imported, and attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, str(node.module)
            for alias in node.names:
                yield from ((node.lineno, word) for word in (alias.name, f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Attribute) and node.attr in {kind.__name__ for kind in ALGORITHMS.values()}:
            yield node.lineno, node.attr


def strangers(path: Path, source: str) -> list[str]:
    """Where a module names an algorithm or an environment of another module, or imports such a module."""
    here = file_of(module_of(path))
    found = []
    for line, word in names_in(source):
        home = HOMES.get(word) or file_of(word)
        if home not in (None, here):
            found.append(f"{path.relative_to(PACKAGE)}:{line}: {word}")
    return found


def file_of(module: str) -> str | None:
    """The algorithm's or environment's module that a module is, or is a part of, as fed_ucbvi_server of fed_ucbvi."""
    homes = [home for home in HOMES.values() if module == home or module.startswith(f"{home}_")]
    return max(homes, key=len, default=None)


FILES = sorted(path for path in PACKAGE.rglob("*.py*") if path.suffix in (".py", ".pyi"))
ALLOWED = {*REGISTRIES, *EXCEPTIONS}


def test_nobody_else_names_an_algorithm_or_an_environment() -> None:
    names = {path: path.relative_to(PACKAGE).as_posix() for path in FILES}
    others = [path for path, name in names.items() if name not in ALLOWED and not name.startswith(THE_PAPER)]
    assert len(others) > 100
    assert [one for path in others for one in strangers(path, path.read_text(encoding="utf-8"))] == []


def test_no_exception_is_idle() -> None:
    for name in ALLOWED:
        path = PACKAGE / name
        assert strangers(path, path.read_text(encoding="utf-8")), f"{name} needs no exception"


@pytest.mark.parametrize(
    "source",
    [
        "from fed_ucbvi.paper.algorithms.fedq import Report",
        "from fed_ucbvi.algorithms import fed_ucbvi_server",
        "from fed_ucbvi.algorithms.fed_ucbvi_server import Rows",
        "from fed_ucbvi.algorithms import base, FedUCBVI",
        "import fed_ucbvi.paper.algorithms.ucbvi",
        "import fed_ucbvi\nfed_ucbvi.FedQBernstein()",
        "COLOURS = {'fedq-bernstein': 1}",
        "make('hard_instance')",
        "from fed_ucbvi.environments.chains import chain",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert strangers(PACKAGE / "results" / "style.py", source)
    assert strangers(PACKAGE / "paper" / "algorithms" / "byzan_ucbvi.py", source)
    home = PACKAGE / "paper" / "algorithms" / "fedq.py"
    assert not strangers(home, "class FedQBernstein:\n    name = 'fedq-bernstein'")


# ------------------------------------------------------------------------------------------ what algorithms say


SETTING = Setting(states=3, actions=2, horizon=4, agents=1, episodes=50, eps_p=0.0, seed=0)
TABLES = FleetTables(1, np.zeros((1, 3, 2, 2), dtype=np.int32), np.zeros((1, 1, 3, 2)))


def reports_of(algorithm: Any) -> list[Any]:
    server = algorithm.new_server(SETTING)
    agents = algorithm.new_agents(SETTING, TABLES)
    return [
        algorithm.report(agents, algorithm.query(server, e), e)
        for e in range(algorithm.message_sizes(SETTING).exchanges)
    ]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_says_what_every_number_in_its_reports_means(name: str) -> None:
    for report in reports_of(make_algorithm(name, {})):
        assert tuple(meanings_of(type(report))) == report._fields


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_report_type_declares_if_reports_have_trajectories(name: str) -> None:
    algorithm = make_algorithm(name, {})
    meanings = set[Any]()
    for report in reports_of(algorithm):
        meanings.update(meanings_of(type(report)).values())
    assert has_trajectories(algorithm.report_type) == (Meaning.STATE in meanings)


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if kind.single_agent])
def test_an_algorithm_for_a_single_agent_refuses_several(name: str) -> None:
    algorithm = make_algorithm(name, {})
    with pytest.raises(InputError, match=f"{name} is for a single agent, and this federation has 2"):
        algorithm.new_server(dataclasses.replace(SETTING, agents=2))


def test_every_algorithm_has_a_label_of_its_own() -> None:
    labels = {kind.label for kind in ALGORITHMS.values()}
    assert len(labels) == len(ALGORITHMS)


def test_every_algorithm_has_a_colour_of_its_own() -> None:
    colours = {look_of(kind.name).colour for kind in ALGORITHMS.values()}
    assert len(colours) == len(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_label_is_the_name_as_its_authors_write_it(name: str) -> None:
    kind = ALGORITHMS[name]
    assert kind.name == name
    label = kind.label.lower().replace(" ", "").replace("-", "")
    assert label == name.replace("-", "")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_row_in_the_papers_table(name: str) -> None:
    assert name in ROWS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_parameter_is_documented(name: str) -> None:
    parameters = describe(ALGORITHMS[name])["parameters"]
    assert [one["name"] for one in parameters if not one["description"]] == []


# --------------------------------------------------------------------------------------- what environments say


OPTIONS: dict[str, dict[str, object]] = {"from_gymnasium": {"id": "FrozenLake-v1"}, "two_state_chain": {"leave": 0.1}}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_is_called_what_its_function_is_called(name: str) -> None:
    if name == "from_gymnasium":
        pytest.importorskip("gymnasium")
    if name == "icu_sepsis" and find_spec("icu_sepsis") is None:
        pytest.skip("its tables are not installed")
    made = make_environment(name, agents=1, **OPTIONS.get(name, {}))
    assert made.description["name"] == name == ENVIRONMENTS[name].__name__
    assert getattr(fed_ucbvi, name) is ENVIRONMENTS[name]
    assert label_of(name) != name or name == "chain"
    assert [one["name"] for one in describe(ENVIRONMENTS[name])["parameters"] if not one["description"]] == []


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if "_" in name])
def test_hyphens_may_replace_underscores(name: str) -> None:
    spelling = name.replace("_", "-")
    assert find_environment(spelling).name == current_name(spelling) == name
    assert label_of(spelling) == label_of(name)


# -------------------------------------------------------------------------------------------------- the facade


def test_the_facade_has_exactly_the_public_names() -> None:
    names = vars(fed_ucbvi)["__all__"]
    assert names == sorted(dir(fed_ucbvi)) == sorted(set(names))
    for name in names:
        assert getattr(fed_ucbvi, name) is not None
    for name, kind in ALGORITHMS.items():
        assert getattr(fed_ucbvi, kind.__name__) is ALGORITHMS[name]
    with pytest.raises(AttributeError, match="module 'fed_ucbvi' has no attribute 'FedUcbvi'"):
        fed_ucbvi.FedUcbvi  # type: ignore[attr-defined]  # noqa: B018
