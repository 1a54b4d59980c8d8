"""A run as a value: it saves and loads back equal, or is refused."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
import pytest

from fed_ucbvi import Federation, FedUCBVI, InputError, Interrupted, Run, gridworld, run, synthetic
from fed_ucbvi.core.bracket import Bracket
from fed_ucbvi.engine import simulation as simulation_module
from fed_ucbvi.engine.progress import Progress
from fed_ucbvi.results.records import COLUMNS

ALGORITHM = FedUCBVI(nu=9.0, bonus_scale=0.3)
"""Both rules fire."""


@pytest.fixture(scope="module")
def result() -> Run:
    return run(ALGORITHM, gridworld(agents=3, eps_p=0.1), 1500, seed=2**63 + 1)


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# ------------------------------------------------------------------------------------------------ save and load


@pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")
@pytest.mark.parametrize(
    ("algorithm", "federation", "episodes"),
    [
        (ALGORITHM, gridworld(agents=3, eps_p=0.1), 700),
        (FedUCBVI(), synthetic(agents=2, eps_r=0.25), 300),
        (FedUCBVI(bonus="corrected", strict=True), gridworld(agents=1, rows=2, columns=4), 50),
        (FedUCBVI(delta=1 / 3, ties="random"), synthetic(agents=1, states=1, actions=1, horizon=1), 1),
    ],
)
def test_a_run_loads_back_equal(algorithm: FedUCBVI, federation: Federation, episodes: int, tmp_path: Path) -> None:
    saved = run(algorithm, federation, episodes, seed=5)
    saved.save(tmp_path / "deep" / "run")
    assert sorted(contents(tmp_path / "deep" / "run")) == ["manifest.json", "rounds.parquet"]
    loaded = Run.load(tmp_path / "deep" / "run")
    assert loaded == saved
    assert loaded.same_outcome(saved)
    assert loaded.about == saved.about
    assert loaded.summary() == saved.summary()
    assert repr(loaded) == repr(saved)
    for name, column in saved.records.items():
        assert loaded.records[name].dtype == column.dtype
        assert loaded.records[name].tobytes() == column.tobytes()
    assert (loaded.policy.dtype, loaded.V.dtype) == (saved.policy.dtype, saved.V.dtype)
    assert loaded.V.tobytes() == saved.V.tobytes()
    assert (loaded.value, loaded.wall_seconds, loaded.complete) == (saved.value, saved.wall_seconds, True)


def test_equality_sees_every_part(result: Run) -> None:
    assert result == replace(result)
    other_policy = result.policy.copy()
    other_policy[0, 0] += 1
    others = [
        replace(result, policy=other_policy),
        replace(result, V=result.V + 1e-16 + result.V * 1e-15),
        replace(result, value=math.nextafter(result.value, 9)),
        replace(result, complete=False),
        replace(result, about=replace(result.about, seed=1)),
        replace(result, about=replace(result.about, best_common_value=Bracket(3.0, 4.0))),
        replace(result, about=replace(result.about, parameters={**result.about.parameters, "bonus": "theory"})),
        *(
            replace(result, records={**result.records, name: np.nan_to_num(result.records[name]) + 1})
            for name in COLUMNS
        ),
    ]
    for other in others:
        assert not result.same_outcome(other)
        assert result != other
    slower = replace(result, wall_seconds=result.wall_seconds + 1)
    elsewhere = replace(result, about=replace(result.about, versions={}))
    for other in (slower, elsewhere):
        assert result.same_outcome(other)
        assert result != other
    assert result != "a run"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"seed": np.int64(3)}, id="NumPy seed"),
        pytest.param({"seed": 3.0}, id="float seed"),
        pytest.param({"episodes": 1e2}, id="float episodes"),
        pytest.param({"episodes": np.int32(100)}, id="NumPy episodes"),
    ],
)
def test_whole_numbers_of_any_type_run_and_save(settings: dict[str, Any], tmp_path: Path) -> None:
    plain = run(FedUCBVI(synchronisation="local"), synthetic(agents=1), episodes=100, seed=3)
    given = run(FedUCBVI(synchronisation="local"), synthetic(agents=1), **{"episodes": 100, "seed": 3, **settings})
    given.save(tmp_path / "run")
    assert Run.load(tmp_path / "run").same_outcome(plain)


@pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")
@pytest.mark.parametrize(
    "nu",
    [
        50,
        np.float64(50),
        pytest.param(np.int64(50), id="NumPy integer"),
        math.inf,
    ],
)
def test_every_nu_that_is_accepted_also_saves(nu: float, tmp_path: Path) -> None:
    try:
        algorithm = FedUCBVI(nu=nu)
    except InputError:
        return  # refused at the door is as good
    saved = run(algorithm, synthetic(agents=1), 100)
    saved.save(tmp_path / "run")
    assert Run.load(tmp_path / "run") == saved


# ------------------------------------------------------------------------------------------------- overwriting


def test_an_existing_result_is_kept_unless_overwriting_is_said(result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    kept = contents(tmp_path / "run")
    other = replace(result, value=0.25)
    with pytest.raises(InputError, match="exists"):
        other.save(tmp_path / "run")
    assert contents(tmp_path / "run") == kept
    other.save(tmp_path / "run", overwrite=True)
    assert Run.load(tmp_path / "run") == other
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_somebody_else_wrote_is_never_overwritten(result: Run, tmp_path: Path) -> None:
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter.tex").write_text("all my work")
    (tmp_path / "file").write_text("all my data")
    for target in (mine, tmp_path / "file"):
        with pytest.raises(InputError):
            result.save(target, overwrite=True)
    assert (mine / "chapter.tex").read_text() == "all my work"
    assert (tmp_path / "file").read_text() == "all my data"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_save_that_fails_leaves_nothing_behind_and_keeps_the_old_result(
    error: type[BaseException], result: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result.save(tmp_path / "old")

    def fail(*arguments: object) -> NoReturn:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("fed_ucbvi.results.storage.write_manifest", fail)
        for target, overwrite in (("new", False), ("old", True)):
            with pytest.raises(error):
                replace(result, value=0.25).save(tmp_path / target, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert Run.load(tmp_path / "old") == result


# ---------------------------------------------------------------------------------------------- what is refused


def test_folders_that_hold_no_run_are_refused(result: Run, tmp_path: Path) -> None:
    def refused(path: Path, why: str) -> None:
        with pytest.raises(InputError, match=why):
            Run.load(path)

    refused(tmp_path / "absent", "not a folder")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "not a folder")
    folder = tmp_path / "folder"
    folder.mkdir()
    refused(folder, "holds no manifest.json")
    for text in ("", "{", "[]", "3", '"fed-ucbvi/run"', "{}", '{"format": 3}', '{"format": "other/run"}'):
        (folder / "manifest.json").write_text(text)
        refused(folder, "damaged|another program")
    (folder / "manifest.json").write_bytes(b"\xff\xfe\x00")
    refused(folder, "damaged")
    (folder / "manifest.json").write_text('{"format": "fed-ucbvi/checkpoint", "format_version": 2}')
    refused(folder, "holds a fed-ucbvi/checkpoint")


@pytest.mark.parametrize("name", ["rounds.parquet", "manifest.json"])
def test_missing_and_truncated_files_are_refused(name: str, result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    file = tmp_path / "run" / name
    whole = file.read_bytes()
    for kept in (0, 1, len(whole) // 2, len(whole) - 3):
        file.write_bytes(whole[:kept])
        with pytest.raises(InputError):
            Run.load(tmp_path / "run")
    file.unlink()
    with pytest.raises(InputError):
        Run.load(tmp_path / "run")


def test_every_flipped_bit_of_the_table_is_noticed(result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    file = tmp_path / "run" / "rounds.parquet"
    whole = file.read_bytes()
    rng = np.random.default_rng(1)
    for position in rng.integers(len(whole), size=40).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            Run.load(tmp_path / "run")
    file.write_bytes(whole)
    assert Run.load(tmp_path / "run") == result


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format_version", 1),
        ("format_version", "2"),
        ("rounds_sha256", "0" * 64),
        ("rounds_sha256", None),
        ("about", None),
        ("about", {}),
        ("about", "nothing"),
        ("policy", None),
        ("policy", [[0, 1], [2]]),
        ("policy", [["left"]]),
        ("V", {"a": 1}),
        ("V", "high"),
        ("value", None),
        ("value", "much"),
        ("wall_seconds", []),
    ],
)
def test_an_edited_manifest_is_refused(key: str, value: object, result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    edit_manifest(tmp_path / "run", lambda manifest: manifest.update({key: value}))
    with pytest.raises(InputError):
        Run.load(tmp_path / "run")
    edit_manifest(tmp_path / "run", lambda manifest: manifest.pop(key))
    with pytest.raises(InputError):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize("key", ["extra", "agents"])
def test_a_manifest_with_too_much_or_too_little_about_the_run_is_refused(
    key: str, result: Run, tmp_path: Path
) -> None:
    result.save(tmp_path / "run")

    def change(manifest: dict[str, Any]) -> None:
        if manifest["about"].pop(key, None) is None:
            manifest["about"][key] = 1

    edit_manifest(tmp_path / "run", change)
    with pytest.raises(InputError, match="damaged"):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize("policy", [[[2**40]], [[1e300]], [[0]]])
def test_a_policy_that_cannot_be_one_is_refused(policy: list[list[float]], result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    edit_manifest(tmp_path / "run", lambda manifest: manifest.update(policy=policy))
    with pytest.raises(InputError):
        Run.load(tmp_path / "run")


@pytest.mark.parametrize("broken", ["a column is missing", "a column holds words", "not a table at all"])
def test_another_table_under_a_matching_manifest_is_refused(broken: str, result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    file = tmp_path / "run" / "rounds.parquet"
    frame = pl.read_parquet(file)
    if broken == "a column is missing":
        frame.drop("length").write_parquet(file)
    elif broken == "a column holds words":
        frame.with_columns(pl.lit("many").alias("length")).write_parquet(file)
    else:
        file.write_bytes(b"PAR1 nothing PAR1")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    edit_manifest(tmp_path / "run", lambda manifest: manifest.update(rounds_sha256=digest))
    with pytest.raises(InputError, match="damaged"):
        Run.load(tmp_path / "run")


# ------------------------------------------------------------------------------------------------------ figures


def test_regret_at_the_ends_of_rounds_is_the_cumulative_sum_and_linear_between(result: Run) -> None:
    ends = np.cumsum(result.records["length"])
    totals = np.cumsum(result.records["regret"])
    assert result.regret_at(ends) == pytest.approx(totals, rel=1e-14)
    assert result.regret_at(0) == 0.0
    assert float(result.regret_at(1500)) == result.regret
    starts, slopes = result.records["start"], result.records["regret"] / result.records["length"]
    for k in np.flatnonzero(result.records["length"] > 2).tolist():
        before = totals[k] - result.records["regret"][k]
        assert float(result.regret_at(starts[k] + 1)) == pytest.approx(before + slopes[k], abs=1e-9)
        assert float(result.regret_at(starts[k] + 1.5)) == pytest.approx(before + 1.5 * slopes[k], abs=1e-9)
    assert result.regret_at([]).shape == (0,)
    for outside in (-1, 1501, [0, 1501]):
        with pytest.raises(InputError, match=r"0\.\.1500"):
            result.regret_at(outside)


def test_rounds_at_counts_the_synchronisations_so_far(result: Run) -> None:
    ends = np.cumsum(result.records["length"])
    asked = ends[result.records["askers"] > 0]
    for t in (0, 1, 10, 100, 777, 1500):
        assert result.rounds_at(t) == sum(1 for end in asked.tolist() if end <= t)
    assert result.rounds_at([0, 1500]).tolist() == [0, result.rounds]


def test_the_frame_has_the_records_and_running_totals(result: Run) -> None:
    frame = result.to_frame()
    assert frame.columns == [*COLUMNS, "episodes", "cumulative_regret", "rounds"]
    assert frame.height == len(result.records["start"])
    for name in COLUMNS:
        if name != "rule":
            assert np.array_equal(frame[name].to_numpy(), result.records[name], equal_nan=True)
    names = [None if rule < 0 else ("local", "global")[rule] for rule in result.records["rule"].tolist()]
    assert frame["rule"].to_list() == names
    assert set(names) == {None, "local", "global"}
    assert frame["episodes"].to_list() == np.cumsum(result.records["length"]).tolist()
    assert frame["cumulative_regret"].to_list() == pytest.approx(np.cumsum(result.records["regret"]).tolist())
    assert frame["rounds"].to_list() == np.cumsum(result.records["askers"] > 0).tolist()


def test_the_summary_is_the_run_in_figures(result: Run) -> None:
    summary = result.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["regret"] == result.regret
    regret = summary["federated_regret"]
    assert regret == {"lower": result.federated_regret.lower, "upper": result.federated_regret.upper, "exact": True}
    assert summary["rounds"] == result.rounds == sum(result.rules_fired.values())
    assert summary["rules_fired"] == result.rules_fired
    assert min(result.rules_fired.values()) > 0
    assert (summary["agents"], summary["episodes"], summary["episodes_played"]) == (3, 1500, 1500)
    assert (summary["env"], summary["eps_p"], summary["nu"]) == ("gridworld", 0.1, 9.0)
    assert summary["average_reward"] == pytest.approx(result.records["reward"].sum() / 1500)
    assert summary["value"] <= summary["optimal_value"] + 1e-12
    assert summary["complete"] is True
    assert "3 agents" in repr(result)


def test_an_interrupted_run_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulation_module, "SECONDS_BETWEEN_REPORTS", 0.0)
    with pytest.raises(Interrupted) as caught:
        run(ALGORITHM, gridworld(agents=3), 1500, progress=interrupt)
    partial = caught.value.partial
    assert "interrupted after 1" in repr(partial)
    assert partial.summary()["complete"] is False
    assert partial.summary()["episodes_played"] == partial.episodes_played == 1
    with pytest.raises(InputError):
        partial.regret_at(2)
