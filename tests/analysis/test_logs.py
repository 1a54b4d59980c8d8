"""Logs become counts: the same from files, columns and episodes; a bad line is named and leaves nothing behind."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from fed_ucbvi import CountTable, FedKLUCBVI, InputError, counts_from_logs, plan_from_counts, run
from fed_ucbvi.command_line import app
from fed_ucbvi.problem.mdp import MDP

SIZES = (4, 2, 3)
ROWS = [  # episode, step, state, action, reward, next state; rewards from -1 to 3
    ("b", 0, 1, 0, -1.0, 2),
    ("b", 1, 2, 1, 3.0, 1),
    ("a", 0, 1, 0, -1.0, 3),
    ("a", 1, 3, 1, 1.0, 3),
    ("a", 2, 3, 1, 1.0, 0),
    ("c", 0, 1, 0, -1.0, 2),
]
NAMES = ("episode", "step", "state", "action", "reward", "next_state")
LOG: dict[str, list[Any]] = dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True))
RANGE = (-1.0, 3.0)


def counts(source: Any, **options: Any) -> CountTable:
    return counts_from_logs(source, SIZES, reward_range=RANGE, **options)


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("random_rewards", [False, True])
def test_visits_transitions_and_rewards_are_those_that_counting_by_hand_gives(
    stationary: bool, random_rewards: bool
) -> None:
    table = counts(LOG, stationary=stationary, random_rewards=random_rewards)
    seen = Counter((0 if stationary else h, s, a, y) for _, h, s, a, _, y in ROWS)
    expected = np.zeros((1 if stationary else 3, 4, 2, 4), dtype=np.int64)
    for place, n in seen.items():
        expected[place] = n
    assert np.array_equal(table.dense(), expected)
    assert np.array_equal(table.visits, expected.sum(axis=3))
    for h, s, a in {(0 if stationary else h, s, a) for _, h, s, a, _, _ in ROWS}:
        paid = [(r + 1) / 4 for _, g, x, b, r, _ in ROWS if (0 if stationary else g, x, b) == (h, s, a)]
        assert table.mean_rewards()[h, s, a] == np.mean(paid)
        if random_rewards:
            high, low = (int(word) for word in table.squares[h, s, a])
            assert (high * 2**64 + low) / 2**80 == sum(x * x for x in paid)


def test_files_columns_and_episodes_give_the_same_table_in_any_order_of_rows(tmp_path: Path) -> None:
    frame, table = pl.DataFrame(LOG), counts(LOG)
    frame.reverse().write_csv(tmp_path / "log.csv")
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(tmp_path / "log.parquet")
    episodes = []
    for part in frame.partition_by("episode"):
        ends, n = part["next_state"].to_list()[-1] == 3, len(part)
        keys = {"observations": [*part["state"], part["next_state"][-1]], "actions": part["action"].to_numpy()}
        keys |= {"rewards": part["reward"].to_list(), "terminations": [False] * (n - 1) + [ends]}
        episodes.append(keys)
    assert all(
        counts(source).equals(table) for source in (tmp_path / "log.csv", str(tmp_path / "log.parquet"), frame)
    )
    assert counts(episodes).equals(table)
    assert counts(iter([SimpleNamespace(**episode) for episode in episodes])).equals(table)  # as Minari has them
    assert counts(episodes[0]).merge(counts(episodes[1])).merge(counts(episodes[2])).equals(table)


def test_a_step_that_terminates_goes_to_the_last_state() -> None:
    episode = {"observations": [1, 2, 0], "actions": [0, 1], "rewards": [0, 0], "terminations": [0, 1]}
    assert counts(episode).dense()[1, 2, 1].tolist() == [0, 0, 0, 1]
    assert counts({**episode, "terminations": [0, 0]}).dense()[1, 2, 1].tolist() == [1, 0, 0, 0]
    with pytest.raises(InputError, match="episode 0 goes on after step 0, which terminates it"):
        counts({**episode, "terminations": [1, 0]})
    with pytest.raises(
        InputError, match=r"episode 0 has 2 observations, 2 actions.*one more observation than actions"
    ):
        counts({**episode, "observations": [1, 2]})
    with pytest.raises(InputError, match="episode 0 needs rewards, one number for each step"):
        counts({**episode, "rewards": [[0], [0]]})
    with pytest.raises(InputError, match=r"episode 1, step 1: state is 9, expected 0 to 3"):
        counts([episode, {**episode, "observations": [1, 9, 0]}])


@pytest.mark.parametrize(
    ("line", "column", "value", "message"),
    [
        (3, "state", "4", "line 3: state is 4, expected 0 to 3"),
        (5, "next_state", "-1", "line 5: next_state is -1, expected 0 to 3"),
        (2, "action", "0.5", "line 2: action is 0.5, expected 0 to 1"),
        (6, "step", "3", "line 6: step is 3, expected 0 to 2"),
        (4, "reward", "3.1", r"line 4: reward is 3.1, expected -1 to 3 \(reward_range\)"),
        (4, "reward", "nan", "line 4: reward is nan, expected a number"),
        (7, "action", "up", "line 7: action is up, expected a number"),
        (7, "episode", "", "line 7: episode is None, expected a number"),
        (6, "step", "1", "line 6: step is 1, expected 2; an episode has each step once, from 0 on"),
        (4, "step", "2", "line 5: step is 1, expected 0"),
        (3, "state", "0", "line 3: state is 0, but the step before it led to 2"),
        (6, "reward", "2", "line 6: the reward is not that of another visit to the same state and action"),
    ],
)
def test_a_bad_line_is_named_and_leaves_nothing_behind(
    line: int, column: str, value: str, message: str, tmp_path: Path
) -> None:
    lines = [",".join(NAMES), *(",".join(map(str, row)) for row in ROWS)]
    cells = lines[line - 1].split(",")
    cells[NAMES.index(column)] = value
    lines[line - 1] = ",".join(cells)
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"log.csv, {message}"):
        counts_from_logs(tmp_path / "log.csv", SIZES, reward_range=RANGE, stationary="another visit" in message)
    words = ["counts", "--from-logs", str(tmp_path / "log.csv"), "--sizes", "4,2,3", "--reward-range=-1,3"]
    words += ["--over-all-steps"] if "another visit" in message else []
    ended = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "counts.npz")])
    assert ended.exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("log.txt", r"\.csv and \.parquet"),
        ("none.csv", "none.csv is no CSV file that can be read"),
        ({**LOG, "action": [0]}, "one length"),
        ({name: column for name, column in LOG.items() if name != "step"}, "step missing, found episode, state"),
        ({name: [] for name in NAMES}, "no step in the log"),
        ([], "no episode in the log"),
    ],
)
def test_what_is_no_log_is_an_error(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        counts(source)
    with pytest.raises(InputError, match="reward_range must ascend"):
        counts_from_logs(LOG, SIZES, reward_range=(1, 1))


def test_the_command_writes_counts_that_a_run_starts_from_and_a_plan(tmp_path: Path) -> None:
    pl.DataFrame(LOG).write_parquet(tmp_path / "log.parquet")
    words = ["counts", "--from-logs", str(tmp_path / "log.parquet"), "--sizes", "4,2,3", "--reward-range=-1,3"]
    words += ["--out", str(tmp_path / "c.npz"), "--plan", str(tmp_path / "plan.json"), "--json"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    table = CountTable.load(tmp_path / "c.npz")
    assert table.equals(counts(LOG))
    assert (told["visits"], told["plan"]["seen"]) == (6, 4)
    assert json.loads((tmp_path / "plan.json").read_text())["policy"] == plan_from_counts(table).policy.tolist()
    mdp = MDP(np.full((4, 2, 4), 0.25), np.zeros((4, 2)), 1, 3)
    warm = run(FedKLUCBVI(), mdp, 1, warm_start=tmp_path / "c.npz", progress=False)
    assert warm.optimistic_value < run(FedKLUCBVI(), mdp, 1, progress=False).optimistic_value
