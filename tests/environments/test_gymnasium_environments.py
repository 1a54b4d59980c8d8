"""Our environments as Gymnasium has them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy import stats

from fed_ucbvi import InputError, make_environment
from fed_ucbvi.core.colours import BLUE, rgb
from fed_ucbvi.environments import ENVIRONMENTS
from fed_ucbvi.environments.gymnasium_environments import draw_picture, draw_text, layout_of
from fed_ucbvi.gymnasium_environments import TabularEnv, register
from fed_ucbvi.problem.units import Units
from problems import OF_OTHER_PACKAGES, row_of

IDS = register()


def test_every_environment_of_ours_is_registered_once() -> None:
    assert register() == IDS
    assert {f"fed_ucbvi/{name}-v0" for name in set(ENVIRONMENTS) - set(OF_OTHER_PACKAGES)} == set(IDS)
    assert set(IDS) <= set(gymnasium.registry)


@pytest.mark.parametrize("id", IDS)
def test_every_environment_passes_gymnasiums_checker(id: str) -> None:
    check_env(gymnasium.make(id, agent=1, agents=2, seed=1).unwrapped)


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("agent", [0, 1, None])
def test_the_environment_has_the_agents_own_tables(id: str, agent: int | None) -> None:
    env: Any = gymnasium.make(id, agent=agent, agents=2, eps_p=0.2, seed=1).unwrapped
    federation = make_environment(id.removeprefix("fed_ucbvi/").removesuffix("-v0"), agents=2, eps_p=0.2, seed=1)
    units = Units.of(federation.description)
    mdp = federation.common if agent is None else federation.agent(agent)
    assert np.array_equal(env.initial_state_distrib, mdp.initial)
    for h in {0, mdp.horizon - 1}:
        table = env.table(h)
        for s, a in np.ndindex(mdp.states, mdp.actions):
            assert {y: p for p, y, _, _ in table[s][a]} == row_of(mdp.kernel, h, s, a)
            rescaled = float(mdp.rewards[min(h, len(mdp.rewards) - 1), s, a])
            assert {r for _, _, r, _ in table[s][a]} == {units.offset + units.scale * rescaled}
    if hasattr(env, "P"):
        assert env.P == env.table(0) == env.table(mdp.horizon - 1)


def test_steps_of_a_tabular_environment_follow_its_mdp() -> None:
    """Hypothesis: next states of (h,s,a) come from the kernel; chi-square, false alarm 1 in 1000 (fixed seed)."""
    env: Any = gymnasium.make("fed_ucbvi/synthetic-v0", agents=1, states=4, actions=2, horizon=3).unwrapped
    rng = np.random.default_rng(0)
    seen: Counter[tuple[int, int, int, int]] = Counter()
    first: Counter[int] = Counter()
    env.reset(seed=0)
    for _ in range(8000):
        s, _ = env.reset()
        first[s] += 1
        for h in range(3):
            a = int(rng.integers(2))
            y, reward, terminated, truncated, _ = env.step(a)
            assert reward == env.mdp.rewards[h, s, a]
            assert not (terminated)
            assert truncated == (h == 2)
            seen[h, s, a, y] += 1
            s = y
    statistic = stats.chisquare([first[s] for s in range(4)]).statistic
    freedom = 3
    dense = env.mdp.kernel.dense()
    for h, s, a in np.ndindex(3, 4, 2):
        counts = np.array([seen[h, s, a, y] for y in range(4)])
        statistic += stats.chisquare(counts, counts.sum() * dense[h, s, a]).statistic
        freedom += 3
    assert stats.chi2.sf(statistic, freedom) > 1e-3


def test_the_same_seed_gives_the_same_episode() -> None:
    def episode(seed: int) -> list[Any]:
        env = gymnasium.make("fed_ucbvi/gridworld-v0")
        return [env.reset(seed=seed)[0], *(env.step(1 + h % 2)[:2] for h in range(10))]

    assert episode(3) == episode(3)
    assert len({str(episode(seed)) for seed in range(5)}) > 1


def test_the_text_marks_only_the_agents_square() -> None:
    layout: Any = make_environment("gridworld").layout
    assert draw_text(layout, 3) == " S  .  .\n[.] #  .\n .  .  G"
    for state, (row, column) in enumerate(layout["cells"]):
        lines = draw_text(layout, state).split("\n")
        assert [line.count("[") for line in lines] == [int(r == row) for r in range(3)]
        assert lines[row][3 * column] == "["


def test_the_picture_has_the_agents_disc_only_in_its_square() -> None:
    drawn: list[tuple[Any, int]] = [
        (make_environment("gridworld").layout, 8),
        (layout_of(None, 47), 47),
    ]
    for layout, states in drawn:
        for state in range(states):
            picture = draw_picture(layout, state)
            height = picture.shape[0] // layout["rows"]
            width = picture.shape[1] // layout["columns"]
            rows, columns = np.nonzero((picture == list(rgb(BLUE))).all(axis=2))
            squares = {(int(r) // height, int(c) // width) for r, c in zip(rows, columns, strict=True)}
            assert squares == {tuple(layout["cells"][state])}
            assert len(rows) > 0.2 * height * width


def test_a_state_without_a_square_is_drawn_nowhere() -> None:
    rooms = make_environment("n_room")
    assert rooms.layout is not None
    assert "[" not in draw_text(rooms.layout, rooms.states - 1)
    assert not (draw_picture(rooms.layout, rooms.states - 1) == list(rgb(BLUE))).all(axis=2).any()


def test_states_without_a_layout_are_drawn_row_by_row() -> None:
    env = TabularEnv("synthetic", render_mode="ansi", states=45, actions=2, horizon=2, agents=1)
    env.reset(seed=0)
    text = str(env.render()).split("\n")
    assert text[0] == "step 0 of 2, paid 0"
    assert [sum(sign != "#" for sign in line.split()) for line in text[1:]] == [
        20,
        20,
        5,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agent": 2, "agents": 2}, "agent must be at most 1"),
        ({"agent": -1}, "agent must be at least 0"),
        ({"rws": 3}, "unknown option of gridworld 'rws'; did you mean 'rows'"),
        ({"render_mode": "human"}, "unknown render mode"),
    ],
)
def test_bad_options_are_refused_in_plain_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TabularEnv("gridworld", **options)


def test_a_step_out_of_turn_is_refused() -> None:
    env = TabularEnv("gridworld", agents=1, horizon=1)
    with pytest.raises(InputError, match=r"call reset\(\)"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"an action must be 0\.\.3"):
        env.step(4)
    env.step(0)
    with pytest.raises(InputError, match="the episode is over"):
        env.step(0)
