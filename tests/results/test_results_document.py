"""The Python in docs/comparing.md and docs/tracking.md runs as written and prints the table shown there."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import polars as pl
import pytest

from fed_ucbvi import load_runs
from fed_ucbvi.engine.simulation import Caution
from repository import ROOT

DOCUMENT, TRACKING = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("comparing.md", "tracking.md"))
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT + TRACKING, flags=re.DOTALL)


def execute(example: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        exec(compile(example, "the document", "exec"), {})


def test_the_comparison_prints_the_table_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    execute(next(example for example in EXAMPLES if "runs.csv" in example))
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 5
    assert "\n".join(table) in DOCUMENT
    assert pl.read_csv("runs.csv").height == 15
    assert Path("runs.png").read_bytes().startswith(b"\x89PNG")


def test_the_sweep_makes_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute(next(example for example in EXAMPLES if "small-sweep" in example))
    assert len(load_runs("small-sweep")) == 6


def test_the_tracked_run_leaves_its_event_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute(next(example for example in EXAMPLES if "make_tracker" in example))
    assert len(list(Path("logs/first").glob("events.out.tfevents.*"))) == 1
