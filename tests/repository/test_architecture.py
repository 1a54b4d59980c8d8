"""docs/architecture.md and its picture are what the contracts and the code say."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from repository import ROOT


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_floors", ROOT / "docs" / "draw_floors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_up_to_date(drawing: ModuleType) -> None:
    text = drawing.PAGE.read_text(encoding="utf-8")
    assert drawing.page(text) == text, "run make architecture"


def test_the_picture_has_every_package_on_its_floor(drawing: ModuleType) -> None:
    shown = re.findall(r'font-weight="bold">(\w+)<', drawing.PICTURE.read_text(encoding="utf-8"))
    assert shown == [package for level in drawing.floors() for package in level]
    packages = {path.parent.name for path in (ROOT / "src" / "fed_ucbvi").glob("*/__init__.py")}
    assert set(shown) == packages


def test_every_file_that_the_pages_for_contributors_name_exists() -> None:
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"):
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./]+)`", text))
        assert len(named) > 3
        assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
