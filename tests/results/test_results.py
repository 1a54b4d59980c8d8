"""A run as a value: its figures and rounds; as a folder or a file it saves and loads back equal, or is refused."""

from __future__ import annotations

import errno
import io
import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from commands import call
from fed_ucbvi import FedQAdvantage, FedQHoeffding, FedUCBVI, InputError, Run, gridworld, run, synthetic
from fed_ucbvi.algorithms.base import Algorithm
from fed_ucbvi.core.types import CountArray
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.problem.units import Units
from fed_ucbvi.results.round_record import COLUMNS, RoundRecord, episodes_per_agent, replay
from fed_ucbvi.results.run import CHECKSUM_KEY, FORMAT_VERSION, MANIFEST_KEY, manifest_of

ALGORITHM = FedUCBVI(nu=9.0, bonus_scale=0.3)
"""Both rules fire."""


@pytest.fixture(scope="module")
def result() -> Run:
    return run(ALGORITHM, gridworld(agents=3, eps_p=0.1), 1500, seed=2**63 + 1)


@pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")
@pytest.mark.parametrize(
    ("algorithm", "federation", "episodes"),
    [
        (ALGORITHM, gridworld(agents=3, eps_p=0.1), 700),
        (FedUCBVI(), synthetic(agents=2, eps_r=0.25), 300),
        (
            FedUCBVI(bonus="corrected", strict=True),
            gridworld(agents=1, rows=2, columns=4),
            50,
        ),
        (
            FedUCBVI(delta=1 / 3, ties="random"),
            synthetic(agents=1, states=1, actions=1, horizon=1),
            1,
        ),
    ],
)
def test_a_run_loads_back_equal(algorithm: FedUCBVI, federation: Federation, episodes: int, tmp_path: Path) -> None:
    saved = run(algorithm, federation, episodes, seed=5)
    saved.save(tmp_path / "deep" / "run")
    assert {path.name for path in (tmp_path / "deep" / "run").iterdir()} == {
        "manifest.json",
        "run.parquet",
    }
    loaded = Run.load(tmp_path / "deep" / "run")
    assert loaded == saved
    assert loaded.summary() == saved.summary()
    assert repr(loaded) == repr(saved)
    for name, column in {**saved.records, "policy": saved.policy, "V": saved.V}.items():
        if name in COLUMNS:
            other = loaded.records[name]
        else:
            other = getattr(loaded, name)
        assert other.dtype == column.dtype
        assert other.tobytes() == column.tobytes()
    assert loaded.wall_seconds == saved.wall_seconds
    assert loaded.to_bytes() == saved.to_bytes() == (tmp_path / "deep" / "run" / "run.parquet").read_bytes()


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
        replace(result, about=replace(result.about, optimal_value=3.0)),
        replace(
            result,
            about=replace(result.about, parameters={**result.about.parameters, "bonus": "theory"}),
        ),
        *(
            replace(
                result,
                records={
                    **result.records,
                    name: np.nan_to_num(result.records[name]) + 1,
                },
            )
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


@pytest.mark.filterwarnings("ignore::fed_ucbvi.engine.simulation.Caution")
@pytest.mark.parametrize(
    "given",
    [
        {"seed": np.int64(3)},
        {"seed": 3.0},
        {"episodes": 1e2},
        {"nu": np.float64(50)},
        {"nu": np.int64(50)},
    ],
    ids=repr,
)
def test_a_run_with_numbers_of_any_type_can_be_saved(given: dict[str, Any], tmp_path: Path) -> None:
    def made(nu: Any = 50, episodes: Any = 100, seed: Any = 3) -> Run:
        return run(FedUCBVI(nu=nu), synthetic(agents=1), episodes, seed=seed)

    made(**given).save(tmp_path / "run")
    assert Run.load(tmp_path / "run").same_outcome(made())


def test_runs_are_written_whole_or_not_at_all(result: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a run in a folder only if that is said; over one in a file always."""
    folder = tmp_path / "folder"
    file = tmp_path / "file"
    other = replace(result, value=0.25)
    result.save(folder)
    result.write_file(file)
    with pytest.raises(InputError, match="exists"):
        other.save(folder)

    def half(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", half)
        for write, path in (
            (partial(other.save, overwrite=True), folder),
            (other.write_file, file),
        ):
            for target in (path, tmp_path / "new"):
                with pytest.raises(OSError, match="No space left"):
                    write(target)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}
    assert Run.load(folder) == Run.read_file(file) == result
    other.save(folder, overwrite=True)
    other.write_file(file)
    assert Run.load(folder) == Run.read_file(file) == other
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "folder holds no manifest.json"),
        ("{", "damaged"),
        (
            '{"format": "fed-ucbvi/checkpoint", "format_version": 2}',
            "holds a fed-ucbvi/checkpoint",
        ),
    ],
)
def test_folders_that_hold_no_run_are_refused(text: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        Run.load(tmp_path / "folder")
    (tmp_path / "folder").mkdir()
    if text is not None:
        (tmp_path / "folder" / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=message):
        Run.load(tmp_path / "folder")


@pytest.mark.parametrize("name", ["run.parquet", "manifest.json"])
def test_damaged_files_of_a_run_are_refused(name: str, result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    file = tmp_path / "run" / name
    whole = file.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 3, None):
        file.unlink()
        if length is not None:
            file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=name):
            Run.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("key", "value"),
    [("format_version", 1), ("format_version", "2"), ("summary", {}), ("more", 1)],
)
def test_an_edited_manifest_is_refused(key: str, value: Any, result: Run, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), key: value}))
    with pytest.raises(InputError):
        Run.load(tmp_path / "run")


def test_regret_at_the_ends_of_rounds_is_the_cumulative_sum(
    result: Run,
) -> None:
    ends = np.cumsum(result.records["length"])
    totals = np.cumsum(result.records["regret"])
    assert result.regret_at(ends) == pytest.approx(totals, rel=1e-14)
    assert result.regret_at(0) == 0.0


def test_regret_is_linear_within_a_round(result: Run) -> None:
    totals = np.cumsum(result.records["regret"])
    assert float(result.regret_at(1500)) == result.regret
    starts = result.records["start"]
    slopes = result.records["regret"] / result.records["length"]
    for k in np.flatnonzero(result.records["length"] > 2).tolist():
        before = totals[k] - result.records["regret"][k]
        assert float(result.regret_at(starts[k] + 1)) == pytest.approx(before + slopes[k], abs=1e-9)
        assert float(result.regret_at(starts[k] + 1.5)) == pytest.approx(before + 1.5 * slopes[k], abs=1e-9)


def test_regret_outside_the_run_is_refused(result: Run) -> None:
    assert result.regret_at([]).shape == (0,)
    for outside in (-1, 1501, [0, 1501]):
        with pytest.raises(InputError, match=r"0\.\.1500"):
            result.regret_at(outside)


def without_rewards(result: Run, rounds: slice) -> Run:
    """The run with unknown rewards of these rounds."""
    rewards = result.records["reward"].copy()
    rewards[rounds] = math.nan
    return replace(result, records={**result.records, "reward": rewards})


def episode_by_episode(result: Run) -> list[float]:
    """The mean reward of every episode per agent; NaN where it is unknown."""
    lengths = result.records["length"].tolist()
    rewards = result.records["reward"].tolist()
    return [reward / length for length, reward in zip(lengths, rewards, strict=True) for _ in range(length)]


@pytest.mark.parametrize("rounds", [slice(1, 2), slice(0, 3), slice(-1, None)], ids=["one", "first", "last"])
def test_the_average_reward_is_over_the_episodes_whose_reward_is_known(rounds: slice, result: Run) -> None:
    partly = without_rewards(result, rounds)
    each = episode_by_episode(partly)
    known = [reward for reward in each if not math.isnan(reward)]
    assert len(known) < len(each)
    assert partly.average_reward == pytest.approx(sum(known) / len(known), rel=1e-12)
    assert partly.rewarded_episodes == pytest.approx(len(known))


def test_the_recent_reward_is_over_the_known_episodes_of_the_last_tenth(
    result: Run,
) -> None:
    partly = without_rewards(result, slice(-2, -1))
    each = episode_by_episode(partly)
    tenth = each[round(0.9 * len(each)) :]
    known = [reward for reward in tenth if not math.isnan(reward)]
    assert len(each) % 10 == 0
    assert 0 < len(known) < len(tenth)
    assert partly.recent_reward == pytest.approx(sum(known) / len(known), rel=1e-9)


def test_the_mean_reward_so_far_leaves_out_episodes_whose_reward_is_unknown(
    result: Run,
) -> None:
    partly = without_rewards(result, slice(0, 1))
    each = episode_by_episode(partly)
    first = int(partly.records["length"][0])
    points = [first, first + 1, len(each)]
    expected = [math.nan, each[first], np.nanmean(each)]
    assert partly.mean_reward_at(points) == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_without_any_known_reward_the_average_is_unknown(result: Run) -> None:
    nothing = without_rewards(result, slice(None))
    assert math.isnan(nothing.average_reward)
    assert math.isnan(nothing.recent_reward)
    assert nothing.rewarded_episodes == 0.0


def test_rewards_that_are_all_known_are_averaged_over_all_episodes(result: Run) -> None:
    assert result.average_reward == float(result.records["reward"].sum()) / result.episodes_played
    assert result.rewarded_episodes == result.episodes_played


def test_show_says_how_many_episodes_the_average_reward_is_of(result: Run, tmp_path: Path) -> None:
    own_units = replace(
        result.about,
        environment={**result.about.environment, **Units(-1.0, 2.0).description()},
    )
    partly = replace(without_rewards(result, slice(0, 1)), about=own_units)
    partly.save(tmp_path / "run")
    shown = " ".join(call("show", tmp_path / "run").stdout.split())
    assert f"known for {partly.rewarded_episodes:,.4g} of {result.episodes_played:,} episodes" in shown


def test_rounds_at_counts_the_synchronisations_so_far(result: Run) -> None:
    ends = np.cumsum(result.records["length"])
    requested_at = ends[result.records["requests"] > 0]
    for t in (0, 1, 10, 100, 777, 1500):
        assert result.rounds_at(t) == sum(1 for end in requested_at.tolist() if end <= t)
    assert result.rounds_at([0, 1500]).tolist() == [0, result.rounds]


def test_the_frame_has_the_records(result: Run) -> None:
    frame = result.to_frame()
    assert frame.columns == [*COLUMNS, "episodes", "cumulative_regret", "rounds"]
    assert frame.height == len(result.records["start"])
    for name in COLUMNS:
        if name not in ("rule", "playing"):
            assert np.array_equal(frame[name].to_numpy(), result.records[name], equal_nan=True)


def test_the_frame_names_the_rule_of_each_round(result: Run) -> None:
    frame = result.to_frame()
    names = [None if rule < 0 else ("local", "global")[rule] for rule in result.records["rule"].tolist()]
    assert frame["rule"].to_list() == names
    assert set(names) == {None, "local", "global"}


def test_the_frame_has_running_totals(result: Run) -> None:
    frame = result.to_frame()
    assert frame["episodes"].to_list() == np.cumsum(result.records["length"]).tolist()
    assert frame["cumulative_regret"].to_list() == pytest.approx(np.cumsum(result.records["regret"]).tolist())
    assert frame["rounds"].to_list() == np.cumsum(result.records["requests"] > 0).tolist()


def test_the_summary_is_the_run_in_figures(result: Run) -> None:
    summary = result.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["regret"] == result.regret
    assert summary["rounds"] == result.rounds == sum(result.rules_fired.values())
    assert summary["rules_fired"] == result.rules_fired
    assert min(result.rules_fired.values()) > 0
    assert summary["agents"] == 3
    assert summary["episodes"] == 1500
    assert summary["episodes_played"] == 1500
    assert summary["env"] == "gridworld"
    assert summary["eps_p"] == 0.1
    assert summary["nu"] == 9.0
    assert summary["average_reward"] == pytest.approx(result.records["reward"].sum() / 1500)
    assert summary["value"] <= summary["optimal_value"] + 1e-12
    assert summary["complete"] is True
    assert "3 agents" in repr(result)


def test_any_reader_of_parquet_sees_the_records(result: Run) -> None:
    content = io.BytesIO(result.to_bytes())
    frame = pl.read_parquet(content)
    assert frame.columns == list(COLUMNS)
    assert frame["regret"].sum() == pytest.approx(result.regret)
    manifest = json.loads(pl.read_parquet_metadata(content)[MANIFEST_KEY])
    assert manifest["summary"] == json.loads(json.dumps(result.summary()))


def test_every_flipped_bit_is_noticed(result: Run) -> None:
    whole = result.to_bytes()
    rng = np.random.default_rng(1)
    for position in rng.integers(len(whole), size=200).tolist():
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        with pytest.raises(InputError):
            Run.from_bytes(bytes(damaged))
    assert Run.from_bytes(whole) == result


def test_other_parquet_files_are_refused(result: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    frame = pl.DataFrame(dict(result.records))
    frame.write_parquet(path)
    with pytest.raises(InputError, match="no run of fed-ucbvi's"):
        Run.read_file(path)
    frame.write_parquet(path, metadata={MANIFEST_KEY: "{}", CHECKSUM_KEY: "sha256:none"})
    with pytest.raises(InputError, match="checksum"):
        Run.read_file(path)
    for other in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match=f"{other.name} is not a file"):
            Run.read_file(other)


def test_a_later_format_is_refused_by_its_version(result: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("fed_ucbvi.results.run.FORMAT_VERSION", FORMAT_VERSION + 1)
        content = result.to_bytes()
    with pytest.raises(
        InputError,
        match=f"format version {FORMAT_VERSION + 1}; this program reads {FORMAT_VERSION}",
    ):
        Run.from_bytes(content, "theirs")


NONSENSE: dict[str, tuple[Any, ...]] = {
    "about": (None, {}, "nothing"),
    "policy": (None, [[0, 1], [2]], [["left"]], [[2**40]], [[1e300]], [[0]]),
    "V": ({"a": 1}, "high"),
    "value": (None, "much"),
    "wall_seconds": ([],),
}


@pytest.mark.parametrize("key", NONSENSE)
def test_a_sealed_file_with_nonsense_in_it_is_refused(key: str, result: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    content = manifest_of(result)
    less = {name: part for name, part in content.items() if name != key}
    about = content["about"]
    fewer = {name: part for name, part in about.items() if name != "agents"}
    wrong = [less, *({**content, key: value} for value in NONSENSE[key])]
    for manifest in (
        *wrong,
        {**content, "about": {**about, "extra": 1}},
        {**content, "about": fewer},
    ):
        with monkeypatch.context() as broken:
            broken.setattr(
                "fed_ucbvi.results.run.manifest_of",
                lambda run, manifest=manifest: manifest,
            )
            sealed = result.to_bytes()
        with pytest.raises(InputError, match="theirs is damaged"):
            Run.from_bytes(sealed, "theirs")


@pytest.mark.parametrize("column", [None, "many"])
def test_a_sealed_file_with_other_records_is_refused(column: str | None, result: Run) -> None:
    records: dict[str, Any] = {name: known for name, known in result.records.items() if name != "length"}
    records |= {} if column is None else {"length": [column] * len(result.records["length"])}
    with pytest.raises(InputError, match="theirs is damaged"):
        Run.from_bytes(replace(result, records=records).to_bytes(), "theirs")


WORLDS = {
    "short rounds": (FedUCBVI(nu=100), synthetic(agents=3), 200),
    "a grid": (FedUCBVI(), gridworld(agents=2), 60),
    "no planner": (FedQHoeffding(), synthetic(agents=2), 60),
    "other units": (
        FedUCBVI(),
        replace(synthetic(agents=2), description=Units(-2.0, 5.0).description()),
        60,
    ),
}


def replayed_rounds(result: Run) -> list[RoundRecord]:
    about = result.about
    rows = result.records, result.recommendations
    return [
        *replay(
            *rows,
            episodes=about.episodes,
            rules=about.rules,
            units=Units(),
            horizon=about.horizon,
        )
    ]


@pytest.mark.parametrize(("algorithm", "world", "episodes"), WORLDS.values(), ids=WORLDS.keys())
def test_replayed_rounds_are_those_played(algorithm: Algorithm[Any, Any], world: Federation, episodes: int) -> None:
    records: list[RoundRecord] = []
    result = run(algorithm, world, episodes, on_round=records.append)
    again = replayed_rounds(result)
    assert all(math.isnan(record.seconds) for record in again)
    assert len(records) > 3
    for one, other in zip(records, again, strict=True):
        for name in set(RoundRecord._fields) - {"seconds"}:
            expected = getattr(one, name)
            if isinstance(expected, float):
                expected = pytest.approx(expected, rel=1e-12, nan_ok=True)
            assert getattr(other, name) == expected, name
    for name in ("optimistic_value", "estimated_value", "gap"):
        now = getattr(records[-1], "recommended_value" if name == "estimated_value" else name)
        assert now == pytest.approx(getattr(result, name), rel=1e-9, nan_ok=True)
    assert records[-1].regret == pytest.approx(result.regret, rel=1e-9)
    weights = result.records["agent_episodes"]
    assert np.average([record.reward for record in records], weights=weights) == pytest.approx(result.average_reward)


def test_replayed_rounds_of_agents_that_stop_apart_have_their_episodes() -> None:
    records: list[RoundRecord] = []
    apart = FedQAdvantage(forced_synchronisation=False)
    result = run(apart, synthetic(agents=3, eps_p=0.1), 200, on_round=records.append)
    counted, before = (
        [(record.episodes, record.planned_episodes, record.agents) for record in records]
        for records in (replayed_rounds(result), records)
    )
    assert counted == before
    assert counted[-1] == (200, 200, 3)
    assert (result.records["start"] + result.records["length"]).max() > 200, "some end before others"
    assert len(result.plot()) > 0


def drawn(seed: int, agents: list[int]) -> dict[str, CountArray]:
    rng = np.random.default_rng(seed)
    return {
        "agents": np.array(agents),
        "agent_episodes": np.array([rng.integers(0, 10 * m + 1) for m in agents]),
    }


@pytest.mark.parametrize("seed", range(5))
def test_every_round_adds_the_mean_over_its_agents(seed: int) -> None:
    agents = np.repeat(np.random.default_rng(seed).integers(1, 9, size=12), 5).tolist()
    records = drawn(seed, agents)
    parts = [Fraction(int(n), int(m)) for n, m in zip(records["agent_episodes"], records["agents"], strict=True)]
    exact = [float(total) for total in itertools.accumulate(parts)]
    assert episodes_per_agent(records) == pytest.approx(exact, rel=1e-14)


def test_with_one_number_of_agents_nothing_is_rounded_twice() -> None:
    records = drawn(1, [7] * 300)
    exact = np.cumsum(records["agent_episodes"]) / 7
    assert episodes_per_agent(records).tobytes() == exact.tobytes()
    assert len(episodes_per_agent({name: column[:0] for name, column in records.items()})) == 0


def test_a_run_says_in_which_way_it_is_not_complete() -> None:
    whole = run(FedUCBVI(), synthetic(agents=2), 30)
    assert whole.unfinished == ""
    missed = replace(whole, complete=False)
    assert missed.unfinished == "agents have missed episodes"
    first = replace(missed, records={name: column[:3] for name, column in whole.records.items()})
    assert first.unfinished == f"interrupted after {first.episodes_played} episodes"
    assert first.unfinished in repr(first)
    summary = first.summary()
    assert not (summary["complete"])
    assert summary["episodes_played"] == first.episodes_played
    with pytest.raises(
        InputError,
        match=f"regret is known after 0..{first.episodes_played} episodes only",
    ):
        first.regret_at(first.episodes_played + 1)
