"""The README's Python runs as written."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from fed_ucbvi import Run
from fed_ucbvi.simulation import Caution

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


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


def test_the_federation_of_clinics_has_the_heterogeneity_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    execute(EXAMPLES[1])
    assert float(capsys.readouterr().out) == pytest.approx(0.2)
