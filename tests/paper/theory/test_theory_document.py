"""The pages on theory name code that exists and slips that are checked."""

from __future__ import annotations

import importlib
import re

import pytest

from repository import ROOT

PAGES = ("theory", "kl_proofs", "kl_regret", "paper_slips")
TEXT = "".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)
HOMES = "algorithms|problem|theory|results|engine"
NAMES = sorted(set(re.findall(rf"`((?:{HOMES})\.[\w.]+)`", TEXT)))


def resolve(name: str) -> object:
    """A dotted name relative to the package: as much of it as is a module, then attributes or fields."""
    parts = name.split(".")
    found: object = importlib.import_module(f"fed_ucbvi.{parts[0]}")
    for k, part in enumerate(parts[1:], start=1):
        if hasattr(found, part):
            found = getattr(found, part)
        elif part in getattr(found, "__annotations__", {}):
            found = None
        else:
            found = importlib.import_module(f"fed_ucbvi.{'.'.join(parts[: k + 1])}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_document_is_in_the_code(name: str) -> None:
    resolve(name)


def test_every_listed_slip_has_a_test() -> None:
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", TEXT, flags=re.MULTILINE)}
    checks = (ROOT / "tests" / "paper" / "theory" / "test_paper_slips.py").read_text(encoding="utf-8")
    tested = {int(number) for number in re.findall(r"^def test_(\d+)_", checks, flags=re.MULTILINE)}
    assert listed == set(range(1, 26))
    assert tested == listed


def test_the_figures_of_the_document_are_those_of_the_code() -> None:
    from fed_ucbvi.paper.bounds import most_rounds, nontrivial_from, regret_bound_terms, rounds_bound

    mended, printed = (nontrivial_from(8, 4, 10, 20, 0, 0, 0.05, proof=proof) for proof in ("mended", "printed"))
    assert mended == pytest.approx(3.7e10, rel=0.01)
    assert printed == pytest.approx(2.5e12, rel=0.02)
    assert regret_bound_terms(8, 4, 10, 20, 10**8, 0, 0, 0.05).common == pytest.approx(2.5e11, rel=0.02)
    assert round(most_rounds(8, 4, 10, 20, 10**8, 0, 0.05)) == 131_176
    assert round(rounds_bound(8, 4, 10, 20, 10**8, 0, 0.05)) == 99_300
