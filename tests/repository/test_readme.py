"""The README's Python runs as written and prints what it says; its commands exist."""

from __future__ import annotations

import re
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest

from fed_ucbvi import Run
from fed_ucbvi.engine.simulation import Caution
from repository import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer imports names that Click has deprecated
    from typer.testing import CliRunner

    from fed_ucbvi.command_line import app

README, START = ROOT / "README.md", ROOT / "docs" / "start.md"
EXAMPLES = [
    example
    for page in (README, START)
    for example in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
]
COMMANDS = re.findall(r"^fed-ucbvi (.*?)(?: +#.*)?$", README.read_text(encoding="utf-8"), flags=re.MULTILINE)


def execute(example: str) -> dict[str, object]:
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        exec(compile(example, "README.md", "exec"), names)
    return names


def test_the_first_example_runs_and_leaves_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = execute(EXAMPLES[0])
    assert Run.load("my-run") == names["result"]
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "20 agents, 30,000 episodes" in capsys.readouterr().out


@pytest.mark.parametrize("example", EXAMPLES)
def test_what_a_print_is_said_to_print_it_prints(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comment after ``print`` that begins with a number begins with what is printed, to the letter."""
    monkeypatch.chdir(tmp_path)
    execute(example)
    printed = capsys.readouterr().out.splitlines()
    for promised in re.findall(r"^print\(.*\) +# (\d[^,\s]*)", example, flags=re.MULTILINE):
        assert promised in printed


def test_the_federation_of_clinics_has_the_heterogeneity_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    execute(EXAMPLES[-1])
    assert capsys.readouterr().out == "0.200\n"


def test_the_first_commands_run_where_the_first_example_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    execute(EXAMPLES[0])
    assert [command.split()[0] for command in COMMANDS[:2]] == ["run", "show"]
    for command in COMMANDS[:2]:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, result.output


def test_the_first_page_of_the_site_names_every_extra_that_is_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = re.findall(r"^\| (`[^|]*`) \|", START.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert named == project["optional-dependencies"].keys() - {"docs", "dev"}


def test_the_commands_take_their_words() -> None:
    commands = COMMANDS + re.findall(r"`fed-ucbvi ([a-z].*?)`", README.read_text(encoding="utf-8"))
    assert len(commands) >= 6
    for command in commands:
        result = CliRunner().invoke(app, [*shlex.split(command), "--help"])  # a word that is none is refused first
        assert result.exit_code == 0, command
