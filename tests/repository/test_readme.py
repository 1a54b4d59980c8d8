"""The README and pages of the documentation: their Python runs as written and prints what it says; commands exist."""

from __future__ import annotations

import re
import shlex
import tomllib
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from commands import call
from fed_ucbvi import Run, load_runs
from fed_ucbvi.engine.simulation import Caution
from repository import ROOT

README, START, ONE_AGENT, COMPARING, TRACKING = (
    (ROOT / page).read_text(encoding="utf-8")
    for page in (
        "README.md",
        "docs/start.md",
        "docs/one_agent.md",
        "docs/comparing.md",
        "docs/tracking.md",
    )
)


def examples_in(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


EXAMPLES = examples_in(README + START)
COMMANDS = re.findall(r"^fed-ucbvi (.*?)(?: +#.*)?$", README, flags=re.MULTILINE)


def execute(example: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        exec(compile(example, "README.md", "exec"), names)
    return names


def test_the_first_example_of_the_readme_gives_the_run_of_the_first_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = execute(EXAMPLES[0])
    assert Run.load("my-run") == names["result"]
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "20 agents, 30,000 episodes" in capsys.readouterr().out
    assert [command.split()[0] for command in COMMANDS[:2]] == ["run", "show"]
    for command in COMMANDS[:2]:
        result = call(*shlex.split(command))
        assert result.exit_code == 0, result.output
    assert Run.load("grid-run").same_outcome(names["result"]), "Python and shell show the same run"


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_a_print_is_said_to_print_it_prints(
    example: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A comment after ``print`` that begins with a number begins with what is printed, to the letter."""
    monkeypatch.chdir(tmp_path)
    execute(example)
    printed = capsys.readouterr().out.splitlines()
    for promised in re.findall(r"^print\(.*\) +# (\d[^,\s]*)", example, flags=re.MULTILINE):
        assert promised in printed


def test_the_first_page_of_the_site_names_every_extra_that_is_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| (`[^|]*`) \|", START, flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert named == project["optional-dependencies"].keys() - {"docs", "dev", "test"}


def test_the_commands_take_their_words() -> None:
    commands = COMMANDS + re.findall(r"`fed-ucbvi ([a-z].*?)`", README)
    assert len(commands) >= 6
    for command in commands:
        result = call(*shlex.split(command), "--help")  # a word that is none is refused first
        assert result.exit_code == 0, command


def test_the_examples_for_one_agent_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = execute("\n".join(examples_in(ONE_AGENT)))
    # rounding
    machine = names["machine"]
    best = float(names["machine"].solve().V[0, 0]) + 1e-9
    assert names["interval"].lower <= names["result"].value <= min(best, names["interval"].upper)
    assert names["enough"].certificate is not None
    assert best - names["enough"].value <= 1.0
    assert names["enough"].episodes_played < 20_000
    assert names["careful"].certificates[-1].kind == "promotion"
    lower, upper = names["plan"].bounds(0)
    assert lower <= machine.evaluate(names["plan"].policy)[0, 0] <= best <= upper
    assert names["warm"].regret < 1.0 < names["result"].regret
    (command,) = re.findall(r"```sh\nfed-ucbvi (.*?)\n```", ONE_AGENT, flags=re.DOTALL)
    assert call(*shlex.split(command)).exit_code == 0
    assert (tmp_path / "counts.npz").is_file()
    assert (tmp_path / "policy.json").is_file()


def execute_the_one_with(word: str) -> None:
    """The example of the pages on comparing and tracking that mentions this."""
    execute(next(example for example in examples_in(COMPARING + TRACKING) if word in example))


def test_the_comparison_prints_the_table_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    execute_the_one_with("runs.csv")
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 5
    assert "\n".join(table) in COMPARING
    assert pl.read_csv("runs.csv").height == 15
    assert Path("runs.png").read_bytes().startswith(b"\x89PNG")


def test_the_sweep_of_the_readme_makes_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute_the_one_with("small-sweep")
    assert len(load_runs("small-sweep")) == 6


def test_the_tracked_run_of_the_readme_leaves_its_event_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute_the_one_with("make_tracker")
    assert len(list(Path("logs/first").glob("events.out.tfevents.*"))) == 1
