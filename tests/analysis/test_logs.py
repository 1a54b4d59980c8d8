"""Logs become counts, and a bad line is named; plans from counts against SciPy and enumeration, and their bounds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import optimize

from commands import refusal, told
from fed_ucbvi import CountTable, FedKLUCBVI, InputError, counts_from_logs, plan_from_counts, random_mdps, run
from fed_ucbvi.core.types import FloatArray
from fed_ucbvi.problem.mdp import MDP
from matrices import first_of

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
COUNTS = ("counts", "--sizes", "4,2,3", "--reward-range=-1,3", "--from-logs")


def counts(source: Any, **options: Any) -> CountTable:
    return counts_from_logs(source, SIZES, reward_range=RANGE, **options)


def cell_of(row: tuple[Any, ...], stationary: bool) -> tuple[int, int, int]:
    """The cell of a row of :data:`ROWS`: its step (0 if counts are stationary), state and action."""
    _, step, state, action, _, _ = row
    return (0 if stationary else step, state, action)


def rescaled_rewards(cell: tuple[int, int, int], stationary: bool) -> list[float]:
    """The rewards of a cell in units of the range -1 to 3."""
    return [(row[4] + 1) / 4 for row in ROWS if cell_of(row, stationary) == cell]


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("random_rewards", [False, True])
def test_visits_of_a_log_are_those_counted_by_hand(stationary: bool, random_rewards: bool) -> None:
    expected = np.zeros((1 if stationary else 3, 4, 2, 4), dtype=np.int64)
    for row in ROWS:
        next_state = row[5]
        expected[(*cell_of(row, stationary), next_state)] += 1
    table = counts(LOG, stationary=stationary, random_rewards=random_rewards)
    assert np.array_equal(table.dense(), expected)
    assert np.array_equal(table.visits, expected.sum(axis=3))


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("random_rewards", [False, True])
def test_mean_rewards_of_a_log_are_those_computed_by_hand(stationary: bool, random_rewards: bool) -> None:
    table = counts(LOG, stationary=stationary, random_rewards=random_rewards)
    for cell in {cell_of(row, stationary) for row in ROWS}:
        assert table.mean_rewards()[cell] == np.mean(rescaled_rewards(cell, stationary))


def logged_episodes() -> list[dict[str, Any]]:
    """The episodes of :data:`LOG`, with the arrays that Gymnasium-style libraries store."""
    episodes = []
    for part in pl.DataFrame(LOG).partition_by("episode"):
        terminates = part["next_state"].to_list()[-1] == 3
        episode = {
            "observations": [*part["state"], part["next_state"][-1]],
            "actions": part["action"].to_numpy(),
            "rewards": part["reward"].to_list(),
            "terminations": [False] * (len(part) - 1) + [terminates],
        }
        episodes.append(episode)
    return episodes


def test_files_have_the_counts_of_their_rows_in_any_order(tmp_path: Path) -> None:
    frame = pl.DataFrame(LOG)
    frame.reverse().write_csv(tmp_path / "log.csv")
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(tmp_path / "log.parquet")
    for source in (tmp_path / "log.csv", str(tmp_path / "log.parquet"), frame):
        assert counts(source).equals(counts(LOG))


def test_episodes_as_mappings_have_the_counts_of_their_rows() -> None:
    assert counts(logged_episodes()).equals(counts(LOG))


def test_episodes_with_attributes_have_the_counts_of_their_rows() -> None:
    episodes = iter([SimpleNamespace(**episode) for episode in logged_episodes()])  # as in Minari
    assert counts(episodes).equals(counts(LOG))


def test_merged_counts_of_single_episodes_are_those_of_the_log() -> None:
    first, second, third = logged_episodes()
    assert counts(first).merge(counts(second)).merge(counts(third)).equals(counts(LOG))


EPISODE = {
    "observations": [1, 2, 0],
    "actions": [0, 1],
    "rewards": [0, 0],
    "terminations": [0, 1],
}


def test_a_step_that_terminates_goes_to_the_last_state() -> None:
    assert counts(EPISODE).dense()[1, 2, 1].tolist() == [0, 0, 0, 1]
    assert counts({**EPISODE, "terminations": [0, 0]}).dense()[1, 2, 1].tolist() == [
        1,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("line", "column", "value", "message"),
    [
        (3, "state", "4", "line 3: state is 4, expected 0 to 3"),
        (5, "next_state", "-1", "line 5: next_state is -1, expected 0 to 3"),
        (2, "action", "0.5", "line 2: action is 0.5, expected 0 to 1"),
        (6, "step", "3", "line 6: step is 3, expected 0 to 2"),
        (
            4,
            "reward",
            "3.1",
            r"line 4: reward is 3.1, expected -1 to 3 \(reward_range\)",
        ),
        (4, "reward", "nan", "line 4: reward is nan, expected a number"),
        (7, "action", "up", "line 7: action is up, expected a number"),
        (7, "episode", "", "line 7: episode is None, expected a number"),
        (
            6,
            "step",
            "1",
            "line 6: step is 1, expected 2; an episode has each step once, from 0 on",
        ),
        (4, "step", "2", "line 5: step is 1, expected 0"),
        (3, "state", "0", "line 3: state is 0, but the step before it led to 2"),
        (
            6,
            "reward",
            "2",
            "line 6: the reward is not that of another visit to the same state and action",
        ),
    ],
)
def test_a_bad_line_of_a_log_is_named_in_the_error(
    line: int, column: str, value: str, message: str, tmp_path: Path
) -> None:
    lines = [",".join(NAMES), *(",".join(map(str, row)) for row in ROWS)]
    cells = lines[line - 1].split(",")
    cells[NAMES.index(column)] = value
    lines[line - 1] = ",".join(cells)
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"log.csv, {message}"):
        counts_from_logs(
            tmp_path / "log.csv",
            SIZES,
            reward_range=RANGE,
            stationary="another visit" in message,
        )
    words = ["--over-all-steps"] if "another visit" in message else []
    assert "log.csv, line " in refusal(*COUNTS, tmp_path / "log.csv", *words, "--out", tmp_path / "counts.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("log.txt", r"\.csv and \.parquet"),
        ("none.csv", "none.csv is no CSV file that can be read"),
        ({**LOG, "action": [0]}, "one length"),
        (
            {name: column for name, column in LOG.items() if name != "step"},
            "step missing, found episode, state",
        ),
        ({name: [] for name in NAMES}, "no step in the log"),
        ([], "no episode in the log"),
        (
            {**EPISODE, "terminations": [1, 0]},
            "episode 0 goes on after step 0, which terminates it",
        ),
        (
            {**EPISODE, "observations": [1, 2]},
            "episode 0 has 2 observations, 2 actions.*one more observation",
        ),
        (
            {**EPISODE, "rewards": [[0], [0]]},
            "episode 0 needs rewards, one number for each step",
        ),
        (
            [EPISODE, {**EPISODE, "observations": [1, 9, 0]}],
            "episode 1, step 1: state is 9, expected 0 to 3",
        ),
    ],
)
def test_what_is_no_log_is_an_error(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        counts(source)
    with pytest.raises(InputError, match="reward_range must ascend"):
        counts_from_logs(LOG, SIZES, reward_range=(1, 1))


def test_bounds_of_a_plan_are_in_the_units_of_the_log() -> None:
    """Rewards between -1 and 3 a step: the bounds are those of rescaled rewards, converted for the steps left."""
    own = plan_from_counts(counts(LOG), reward_range=RANGE)
    bare = plan_from_counts(counts(LOG))
    left = np.array([3.0, 2.0, 1.0, 0.0])[:, None]
    np.testing.assert_allclose(own.lower, -1 * left + 4 * bare.lower, atol=1e-6)
    np.testing.assert_allclose(own.upper, -1 * left + 4 * bare.upper, atol=1e-6)


@pytest.fixture
def logged_folder(tmp_path: Path) -> Path:
    """A folder with a log, its counts, a plan, and the summary that the command printed."""
    pl.DataFrame(LOG).write_parquet(tmp_path / "log.parquet")
    words = ("--out", tmp_path / "c.npz", "--plan", tmp_path / "plan.json")
    content = told(*COUNTS, tmp_path / "log.parquet", *words)
    (tmp_path / "summary.json").write_text(json.dumps(content))
    return tmp_path


def test_the_command_writes_the_counts_of_a_log(logged_folder: Path) -> None:
    summary = json.loads((logged_folder / "summary.json").read_text())
    assert CountTable.load(logged_folder / "c.npz").equals(counts(LOG))
    assert summary["visits"] == 6


def test_the_command_writes_the_plan_from_the_counts(logged_folder: Path) -> None:
    summary = json.loads((logged_folder / "summary.json").read_text())
    plan = plan_from_counts(CountTable.load(logged_folder / "c.npz"))
    assert summary["plan"]["seen"] == 4
    assert json.loads((logged_folder / "plan.json").read_text())["policy"] == plan.policy.tolist()


def test_a_run_that_starts_from_counts_is_less_optimistic(logged_folder: Path) -> None:
    mdp = MDP(np.full((4, 2, 4), 0.25), np.zeros((4, 2)), 1, 3)
    warm = run(FedKLUCBVI(), mdp, 1, warm_start=logged_folder / "c.npz", progress=False)
    cold = run(FedKLUCBVI(), mdp, 1, progress=False)
    assert warm.optimistic_value < cold.optimistic_value


DELTA = 0.05


def least_mean(p: FloatArray, V: FloatArray, c: float) -> float:
    """``inf { q.V : KL(p, q) <= c }`` over all distributions q, by SciPy's constrained minimisation."""
    seen = p > 0

    def divergence(q: FloatArray) -> float:
        return float(c - (p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-300))).sum())

    start = 0.999 * p + 0.001 / len(p)
    rules = [
        {"type": "ineq", "fun": divergence},
        {"type": "eq", "fun": lambda q: q.sum() - 1.0},
    ]
    exact = {"ftol": 1e-13, "maxiter": 500}
    found = optimize.minimize(
        lambda q: q @ V,
        start,
        bounds=[(0.0, 1.0)] * len(p),
        constraints=rules,
        options=exact,
    )
    return float(found.fun)


def logged(mdp: MDP, episodes: int, rng: np.random.Generator, first: int = 0) -> dict[str, list[float]]:
    """A log of uniformly random actions; what is paid is the mean reward."""
    dense = mdp.kernel.dense()
    H = mdp.horizon
    rows = []
    for episode in range(first, first + episodes):
        s = int(rng.choice(mdp.states, p=mdp.initial))
        for h in range(H):
            a = int(rng.integers(mdp.actions))
            after = int(rng.choice(mdp.states, p=dense[min(h, len(dense) - 1), s, a]))
            rows.append(
                (
                    episode,
                    h,
                    s,
                    a,
                    float(mdp.rewards[min(h, len(mdp.rewards) - 1), s, a]),
                    after,
                )
            )
            s = after
    return dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))


def small_mdp(seed: int, states: int = 3, horizon: int = 3) -> MDP:
    return random_mdps(agents=1, seed=seed, states=states, actions=2, horizon=horizon).common


@pytest.mark.parametrize(("stationary", "support"), first_of([(False, None), (True, 3)]))
def test_it_is_the_best_policy_for_the_least_means_of_scipy(stationary: bool, support: int | None) -> None:
    H = 2
    S = 3
    A = 2
    mdp = small_mdp(4, horizon=H)
    counts = counts_from_logs(logged(mdp, 400, np.random.default_rng(1)), (S, A, H), stationary=stationary)
    plan = plan_from_counts(counts, H, delta=DELTA, support=support)
    dense = counts.dense()
    steps = len(counts.visits)
    K = S if support is None else support
    rewards = counts.mean_rewards()

    def value(policy: FloatArray) -> FloatArray:
        V = np.zeros(S)
        for h in range(H - 1, -1, -1):
            hc = min(h, steps - 1)
            new = np.zeros(S)
            for s in range(S):
                a = int(policy[h, s])
                n = int(dense[hc, s, a].sum())
                if n > 0:
                    beta = np.log(H * S * A / DELTA) + (K - 1) * np.log(np.e * (1 + n / (K - 1)))
                    new[s] = rewards[hc, s, a] + least_mean(dense[hc, s, a] / n, V, beta / n)
            V = new
        return V

    best = np.max(
        [value(np.reshape(p, (H, S))) for p in itertools.product(range(A), repeat=H * S)],
        axis=0,
    )
    np.testing.assert_allclose(plan.lower[0], best, rtol=0, atol=2e-6)
    np.testing.assert_allclose(value(plan.policy.astype(float)), best, rtol=0, atol=2e-6)


def test_bounds_of_a_cautious_plan_hold_as_often_as_promised() -> None:
    """Hypothesis: each fails with probability at most 5 %; 200 runs, at most 21 failures, false alarm 1 in 1000."""
    lower = 0
    upper = 0
    for seed in range(200):
        mdp = small_mdp(seed)
        counts = counts_from_logs(
            logged(mdp, 30, np.random.default_rng(seed)),
            (3, 2, 3),
            stationary=bool(seed % 2),
        )
        plan = plan_from_counts(counts, 3, delta=DELTA)
        lower += bool((plan.lower > mdp.evaluate(plan.policy) + 1e-9).any())
        upper += bool((plan.upper < mdp.solve().V - 1e-9).any())
    assert max(lower, upper) <= 21


def test_random_rewards_have_lower_bounds_too() -> None:
    log = {
        "episode": range(40),
        "step": 0,
        "state": 0,
        "action": 0,
        "reward": [0.0, 1.0] * 20,
        "next_state": 0,
    }
    counts = counts_from_logs(log, (2, 2, 1), random_rewards=True)
    beta = np.log(2 * 4 / DELTA) + np.log(2) + 0.5 * np.log(41)

    def divergence(x: float) -> float:
        return float(20 * np.log(0.5 / x) + 20 * np.log(0.5 / (1 - x)) - beta)

    least = optimize.brentq(divergence, 1e-9, 0.5)
    plan = plan_from_counts(counts, 1, delta=DELTA, random_rewards=True)
    assert plan.lower[0, 0] == pytest.approx(least, abs=1e-6)


def test_sums_that_are_not_those_of_equal_rewards_need_random_rewards() -> None:
    log = {"episode": range(3), "step": 0, "state": 0, "action": 0, "reward": [0.0, 1.0, 1.0], "next_state": 0}
    counts = counts_from_logs(log, (2, 2, 1), random_rewards=True)
    with pytest.raises(InputError, match=r"\(0, 0, 0\) differ\. Pass random_rewards=True"):
        plan_from_counts(counts, 1)


def test_the_plan_of_hospitals_together_is_that_of_their_pooled_logs_bit_for_bit() -> None:
    mdp = small_mdp(7, states=5, horizon=4)
    rng = np.random.default_rng(2)
    logs = [logged(mdp, 20, rng, first=100 * i) for i in range(3)]
    apart = [counts_from_logs(log, (5, 2, 4)) for log in logs]
    together = {name: sum((log[name] for log in reversed(logs)), list[float]()) for name in logs[0]}
    pooled = counts_from_logs(together, (5, 2, 4))
    merged = CountTable.empty(4, 5, 2)
    for table in apart:
        merged = merged.merge(table)
    assert merged.equals(pooled)
    one = plan_from_counts(merged)
    other = plan_from_counts(pooled)
    names = ("policy", "lower", "upper", "thin")
    assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_it_says_where_the_logs_are_too_thin_to_judge() -> None:
    log: dict[str, Any] = {"episode": range(300), "step": 0, "state": 0}
    log |= {"action": [0, 1, 1] * 100, "reward": [0, 1, 1] * 100}
    plan = plan_from_counts(counts_from_logs({**log, "next_state": 0}, (2, 2, 1)), 1)
    # both actions were seen, their rewards are known; state 1 never was
    assert plan.thin[0].tolist() == [False, True]
    assert plan.seen[0].tolist() == [True, False]
    assert plan.bounds(0) == pytest.approx((1.0, 1.0))
    assert plan.bounds([0.0, 1.0]) == (0.0, 1.0)
    one = {name: np.broadcast_to(column, 300)[1:3] for name, column in log.items()}
    assert plan_from_counts(counts_from_logs({**one, "next_state": 0}, (2, 2, 1)), 1).thin[0, 0]  # action 0 never was
    assert plan.summary(0)["certain"] == 1


def test_of_actions_that_guarantee_nothing_the_one_seen_most_is_taken() -> None:
    log = {
        "episode": range(5),
        "step": 0,
        "state": 0,
        "action": [0, 1, 1, 2, 2],
        "reward": 0,
        "next_state": 0,
    }
    assert plan_from_counts(counts_from_logs(log, (1, 4, 1)), 1).policy[0, 0] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass horizon=H"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 2, "delta": 1.0}, "delta must be a number"),
        ({"horizon": 2, "support": 1}, "support must be at least 2"),
    ],
)
def test_what_cannot_be_planned_says_why(options: dict[str, float], message: str) -> None:
    log = {
        "episode": [0, 1],
        "step": 0,
        "state": 0,
        "action": 0,
        "reward": 0,
        "next_state": [0, 1],
    }
    counts = counts_from_logs(log, (2, 1, 2), stationary=True)
    with pytest.raises(InputError, match=message):
        plan_from_counts(counts, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="have H = 2, got horizon = 3"):
        plan_from_counts(counts_from_logs(log, (2, 1, 2)), 3)


class FrameLikePandas:
    """A stand-in for a pandas frame, as readers of its columns see it."""

    iloc = None

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return np.array(self._columns[name])


def test_a_pandas_frame_is_read_by_its_columns() -> None:
    assert np.array_equal(counts(FrameLikePandas(LOG)).dense(), counts(LOG).dense())


def test_a_pandas_frame_without_a_column_is_refused_by_the_name_of_the_column() -> None:
    columns = {name: column for name, column in LOG.items() if name != "reward"}
    with pytest.raises(
        InputError,
        match="reward missing, found episode, step, state, action, next_state",
    ):
        counts(FrameLikePandas(columns))
