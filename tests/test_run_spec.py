"""What a run is: one declaration, checked, with views as data; data never make code run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import refusal
from fed_ucbvi import FedUCBVI, InputError, RunSpec, from_gymnasium, gridworld, load_counts, resume, run
from fed_ucbvi.environments import recorded_options

FORGED = "forged_module:Algorithm"


def test_a_spec_survives_json_with_every_field() -> None:
    fields: dict[str, Any] = {
        "environment": "gridworld",
        "environment_options": {"rows": 5, "walls": [[1, 1]]},
        "agents": "2",
        "episodes": "1e4",
        "eps_p": "0.1",
        "algorithm": "fed-ucbvi",
        "parameters": {"bonus": "theory", "nu": "none"},
        "nodes": ["a", "b"],
        "quorum": "2",
        "checkpoint": "kept",
    }
    spec = RunSpec(**fields)
    assert RunSpec.from_data(json.loads(spec.to_json())) == spec
    assert hash(replace(spec)) == hash(spec)
    assert (spec.agents, spec.episodes, spec.eps_p, spec.nodes) == (2, 10_000, 0.1, ("a", "b"))
    assert spec.quorum == 2
    assert (spec.environment_options, spec.checkpoint) == ({"rows": 5, "walls": [[1, 1]]}, Path("kept"))
    algorithm = spec.make_algorithm()
    federation = spec.make_federation()
    assert algorithm == FedUCBVI(bonus="theory")
    world = gridworld(rows=5, walls=[(1, 1)])
    assert (federation.agents, federation.eps_p, federation.states) == (2, 0.1, world.states)
    setting = spec.setting(federation)
    assert (setting.agents, setting.episodes, setting.eps_p) == (2, 10_000, 0.1)


def test_sizes_alone_give_a_setting_in_which_eps_p_may_be_unknown() -> None:
    setting = RunSpec.from_data({"sizes": [8, 4, 10], "random_rewards": True}).setting()
    assert (setting.states, setting.actions, setting.horizon, setting.agents) == (8, 4, 10, 4)
    assert (setting.eps_p_known, setting.random_rewards) == (False, True)
    assert RunSpec(sizes=(8, 4, 10), eps_p=0.2).setting().eps_p_known


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agents": 0}, "agents must be at least 1, got 0"),
        ({"episodes": "many"}, "episodes must be a whole number, got 'many'"),
        ({"episodes": 2**53, "agents": 2}, r"agents x episodes is 2 x 9007199254740992 = .* up to 2\^53"),
        ({"eps_p": 1}, r"eps_p must be a number in \[0, 1\)"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"sizes": [8, 4]}, r"sizes must be a list of 3 values, got \[8, 4\]"),
        ({"sizes": [8, 4, 0]}, "sizes must be at least 1, got 0"),
        ({"return_range": "0,1"}, "return_range must be a list of 2 values, got '0,1'"),
        ({"nodes": [1]}, "nodes must be text, got 1"),
        ({"driver": "fast"}, "unknown driver 'fast'. Known: auto, counts, cuda, episodes"),
        ({"collection": "hope"}, "unknown collection 'hope'. Known: live, lockstep"),
        ({"deadline": 0}, r"deadline must be a number in \(0"),
        ({"secure_sums": "maybe"}, "secure_sums must be true or false"),
        ({"parameters": ["bonus"]}, r"parameters must be a table of names and values, got \['bonus'\]"),
        ({"environment_options": {"agents": 3}}, "agents is not an option of the environment; give it as agents"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_names_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunSpec(**fields)


def test_unknown_fields_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="unknown field of a run 'episode'; did you mean 'episodes'"):
        RunSpec.from_data({"episode": 3})


@pytest.mark.parametrize(
    "data",
    [
        {"algorithm": FORGED},
        {"environment": FORGED},
        {"environment": "from_gymnasium", "environment_options": {"id": "forged_module:Name-v0"}},
    ],
)
def test_data_name_code_only_where_the_person_named_it(data: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="code that is not run because a file names it"):
        RunSpec.from_data(data)
    assert RunSpec.from_data(data, code=[FORGED, "forged_module:Name-v0"]).to_data().items() >= data.items()


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


def test_a_forged_checkpoint_makes_no_code_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = forged(tmp_path, monkeypatch)
    for read in (resume, load_counts):
        with pytest.raises(InputError, match="not run because a file names it"):
            read(kept)
    for words in (
        ("resume", "kept"),
        ("counts", "kept", "--out", "counts.npz"),
        ("run", "--agents", "2", "--driver", "episodes", "--warm-start", "kept"),
    ):
        assert "not run because a file names it" in refusal(*words)
    assert not (tmp_path / "code-ran").exists()


def test_play_makes_no_gymnasium_environment_that_brings_code_along(tmp_path: Path) -> None:
    description = {**from_gymnasium("FrozenLake-v1", horizon=5).description, "id": "forged_module:Name-v0"}
    with pytest.raises(InputError, match=r"not run because a file names it.*--env forged_module:Name-v0"):
        recorded_options(description)
    with pytest.raises(InputError, match="not run because a file names it"):
        recorded_options(description, "from_gymnasium")
    assert recorded_options(description, "forged_module:Name-v0")[0] == "from_gymnasium"
