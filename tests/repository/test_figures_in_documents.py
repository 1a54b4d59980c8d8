"""Figures in the documents: those of a program beside it are what the program gives, and text and tables agree."""

from __future__ import annotations

import pytest

from fed_ucbvi import FedKLUCBVI, FedUCBVI, federated_regret, gridworld, run
from fed_ucbvi.paper.leaderboard import LeaderboardPlan
from fed_ucbvi.paper.table1 import FROM_MEMORY
from repository import ROOT


def page(name: str) -> str:
    """A page of the documentation, with every line end as a space."""
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_the_federated_regret_on_its_page_is_that_of_the_program_on_the_page() -> None:
    world = gridworld(agents=20, eps_p=0.1)
    result = run(FedUCBVI(), world, 30_000, progress=False)
    bracket = federated_regret(result, world)
    assert bracket.exact
    text = page("federated_regret.md")
    assert f"the common regret is {result.regret:.2f} and the federated regret {bracket.lower:.2f}." in text
    assert f"`{bracket}`" in text


@pytest.mark.full
def test_figures_of_seed_1_on_the_page_about_the_regret_are_those_of_the_default_driver() -> None:
    runs = [
        run(
            FedKLUCBVI(stationary=stationary),
            gridworld(agents=20),
            10**8,
            seed=1,
            progress=False,
        )
        for stationary in (False, True)
    ]
    by_step, stationary = runs
    text = page("kl_regret.md")
    assert f"took {by_step.rounds} rounds (seed 1)" in text
    assert f"with stationary counts {stationary.rounds}," in text
    assert f"had regret {by_step.regret:.0f}, and {stationary.regret:.0f} with stationary counts (seed 1)" in text


def row(name: str) -> list[list[str]]:
    """Regret and rounds in a row of the table about longer rounds, as they are written."""
    lines = (ROOT / "docs" / "kl.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {name} |")]
    return [cell.strip().split(" / ") for cell in line.strip("|").split("|")[1:]]


@pytest.mark.parametrize(
    ("name", "column", "sentence"),
    [
        (
            "M = 500, by step",
            1,
            "({rounds} in place of {first_rounds}) with regret {regret} in place of {first_regret}",
        ),
        (
            "M = 500, by step",
            3,
            "With 0.1 it takes {rounds} rounds with regret {regret}.",
        ),
        (
            "M = 20, by step",
            3,
            "{rounds} rounds in place of {first_rounds}, with regret {regret} in place of",
        ),
    ],
)
def test_text_about_longer_rounds_has_the_figures_of_its_table(name: str, column: int, sentence: str) -> None:
    cells = row(name)
    assert len(cells) == 5
    (first_regret, first_rounds), (regret, rounds) = cells[0], cells[column]
    expected = sentence.format(
        regret=regret,
        rounds=rounds,
        first_regret=first_regret,
        first_rounds=first_rounds,
    )
    assert expected in page("kl.md")


@pytest.mark.parametrize("name", ["table1.md", "leaderboard.md", "algorithms.md"])
def test_pages_with_results_name_the_algorithms_that_are_written_from_memory(
    name: str,
) -> None:
    text = page(name)
    assert "from memory" in text
    assert "UCB-Advantage" in text
    assert "FedQ-Advantage" in text


def test_the_notes_on_what_is_from_memory_agree() -> None:
    assert FROM_MEMORY in page("table1.md")
    assert any("from memory" in note for note in LeaderboardPlan.standing().notes)
