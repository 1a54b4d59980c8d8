"""Data never make code run: specifications, checkpoints and descriptions of environments name code in vain."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import refusal
from fed_ucbvi import InputError, RunSpec, from_gymnasium, gridworld, load_counts, resume, run
from fed_ucbvi.environments import recorded_options

FORGED = "forged_module:Algorithm"


@pytest.mark.parametrize(
    "data",
    [
        {"algorithm": FORGED},
        {"environment": FORGED},
        {"environment": "from_gymnasium", "environment_options": {"id": "forged_module:Name-v0"}},
    ],
)
class TestCodeInData:
    def test_code_that_the_user_has_not_named_is_refused(self, data: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="code that is not run because a file names it"):
            RunSpec.from_data(data)

    def test_code_that_the_user_has_named_is_accepted(self, data: dict[str, Any]) -> None:
        spec = RunSpec.from_data(data, code=[FORGED, "forged_module:Name-v0"])
        assert spec.to_data().items() >= data.items()


CODE = """
from dataclasses import dataclass
from fed_ucbvi import FedUCBVI

@dataclass(frozen=True)
class Algorithm(FedUCBVI):
    name = "forged"

open("code-ran", "w").close()
"""


def forged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of an algorithm whose module leaves a file behind whenever it is imported."""
    (folder / "forged_module.py").write_text(CODE)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    run(FORGED, gridworld(agents=2), 20, checkpoint=folder / "kept", progress=False)
    del sys.modules["forged_module"]
    (folder / "code-ran").unlink()
    return folder / "kept"


@pytest.mark.parametrize("read", [resume, load_counts])
def test_no_code_of_a_forged_checkpoint_runs(
    read: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = forged(tmp_path, monkeypatch)
    with pytest.raises(InputError, match="not run because a file names it"):
        read(kept)
    assert not (tmp_path / "code-ran").exists()


@pytest.mark.parametrize(
    "command",
    [
        "resume kept",
        "counts kept --out counts.npz",
        "run --agents 2 --driver episodes --warm-start kept",
    ],
)
def test_no_command_runs_the_code_of_a_forged_checkpoint(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged(tmp_path, monkeypatch)
    assert "not run because a file names it" in refusal(*command.split())
    assert not (tmp_path / "code-ran").exists()


def test_play_makes_no_gymnasium_environment_that_brings_code_along(tmp_path: Path) -> None:
    description = {**from_gymnasium("FrozenLake-v1", horizon=5).description, "id": "forged_module:Name-v0"}
    with pytest.raises(InputError, match=r"not run because a file names it.*--env forged_module:Name-v0"):
        recorded_options(description)
    with pytest.raises(InputError, match="not run because a file names it"):
        recorded_options(description, "from_gymnasium")
    assert recorded_options(description, "forged_module:Name-v0")[0] == "from_gymnasium"
