"""The page for one agent: its Python and its command run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fed_ucbvi.command_line import app
from repository import ROOT

PAGE = (ROOT / "docs" / "one_agent.md").read_text(encoding="utf-8")


def test_what_the_page_for_one_agent_shows_runs_and_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)), "one_agent.md", "exec"), names)
    machine, best = names["machine"], float(names["machine"].solve().V[0, 0]) + 1e-9  # rounding
    assert names["interval"].lower <= names["result"].value <= min(best, names["interval"].upper)
    assert names["enough"].certificate is not None
    assert best - names["enough"].value <= 1.0
    assert names["enough"].episodes_played < 20_000
    assert names["careful"].certificates[-1].kind == "promotion"
    lower, upper = names["plan"].bounds(0)
    assert lower <= machine.evaluate(names["plan"].policy)[0, 0] <= best <= upper
    assert names["warm"].regret < 1.0 < names["result"].regret
    (command,) = re.findall(r"```sh\nfed-ucbvi (.*?)\n```", PAGE, flags=re.DOTALL)
    assert CliRunner().invoke(app, shlex.split(command)).exit_code == 0
    assert (tmp_path / "counts.npz").is_file()
    assert (tmp_path / "policy.json").is_file()
