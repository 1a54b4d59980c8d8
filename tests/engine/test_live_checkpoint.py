"""Live runs that stop in the middle and go on from their checkpoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import refusal
from fed_ucbvi import FedUCBVI, InputError, Interrupted, Run, from_gymnasium, gridworld, resume, run
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.engine.drivers import live as live_driver
from fed_ucbvi.engine.live import LiveFederation
from live_world import AGENTS, EPISODES, World
from repository import ROOT
from saved_states import log_files, saved_in

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "keeps its experience": ("fed-ucbvi", {}),
    "sets of actions": ("fed-kl-ucbvi", {"min_round_growth": 0.2}),
    "sets of actions, all steps together": ("fed-kl-ucbvi", {"stationary": True}),
    "forgets it after the round": ("fedq-bernstein", {"bernstein_after": 10}),
    "each agent on its own": ("fedq-advantage", {"forced_synchronisation": False, "reference_after": 20}),
}


def stop_in(episode: int) -> Callable[[int, int], None]:
    """Ctrl-C in the middle of an episode of the last agent."""

    def before_step(agent: int, now: int) -> None:
        if (agent, now) == (AGENTS - 1, episode):
            raise KeyboardInterrupt

    return before_step


def clock(folder: Path) -> Any:
    """How many episodes of each agent the checkpoint has."""
    return saved_in(folder).arrays["clock"]


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_driver, "FIRST_WIDTH", 1)


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("episode", [0, 9, 41])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_interrupted_and_resumed_live_run_equals_the_uninterrupted_one_to_the_bit(
    variant: str, episode: int, every: int, tmp_path: Path
) -> None:
    """Supports begin with one slot, so that they have widened at some of the interruptions."""
    name, parameters = VARIANTS[variant]
    algorithm = make_algorithm(name, parameters)
    whole = run(algorithm, World().live(), EPISODES, seed=4, progress=False)
    folder, live = tmp_path / "checkpoint", World(before_step=stop_in(episode)).live()
    with pytest.raises(Interrupted) as stop:
        run(algorithm, live, EPISODES, seed=4, progress=False, checkpoint=folder, checkpoint_every=every)
    kept = clock(folder)
    assert kept[-1] <= episode
    if every == 1:
        assert stop.value.partial.episodes_played == int(kept.mean())
    resumed = resume(folder, World(kept).live(), progress=False)
    assert resumed.same_outcome(whole)
    assert resumed.complete


def test_a_killed_live_run_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    program = ROOT / "tests" / "support" / "live_world.py"
    done = subprocess.run([sys.executable, str(program), str(folder), "30"], check=False, timeout=300)
    assert done.returncode == -9
    kept = clock(folder)
    assert 0 < kept.max() <= 30
    whole = run(FedUCBVI(), World().live(), EPISODES, seed=4, progress=False)
    assert resume(folder, World(kept).live(), progress=False).same_outcome(whole)


def finished(folder: Path, world: World | None = None, **options: Any) -> Run:
    live = (world or World()).live(**options)
    return run(FedUCBVI(), live, 20, seed=4, progress=False, checkpoint=folder)


def test_a_finished_live_run_is_given_again_without_a_step(tmp_path: Path) -> None:
    result = finished(tmp_path / "checkpoint")
    again = resume(tmp_path / "checkpoint", World(before_step=stop_in(0)).live(), progress=False)
    assert again.same_outcome(result)


def test_other_environments_than_those_of_the_checkpoint_are_refused(tmp_path: Path) -> None:
    finished(tmp_path / "checkpoint")
    lake = LiveFederation.from_gymnasium("FrozenLake-v1", 3, horizon=4, reward_range=(-2, 4))
    others = {
        "horizon was 4, and is 5 now": World().live(horizon=5),
        "reward_scale was 6.0, and is 7.0 now": World().live(reward_range=(-2.0, 5.0)),
        "eps_p was None, and is 0.1 now": World().live(eps_p=0.1),
        "name was custom, and is elsewhere now": World().live(description={"name": "elsewhere"}),
        "agents was 3, and is 2 now": replace(World().live(), agents=2),
        "states was 4, and is 17 now": lake,
    }
    for message, other in others.items():
        with pytest.raises(InputError, match=f"other environments: {message}"):
            resume(tmp_path / "checkpoint", other, progress=False)
    scored, table = tmp_path / "scored", from_gymnasium("FrozenLake-v1", 3, horizon=4, reward_range=(-2, 4))
    run(FedUCBVI(), lake, 5, progress=False, checkpoint=scored, score_with=table)
    with pytest.raises(InputError, match="scored was True, and is False now"):
        resume(scored, lake, progress=False)
    assert resume(scored, lake, progress=False, score_with=table).value > 0


def test_live_and_simulated_checkpoints_are_told_apart(tmp_path: Path) -> None:
    finished(tmp_path / "live")
    with pytest.raises(InputError, match=r"live run, which needs its environments.*resume\("):
        resume(tmp_path / "live")
    assert "checkpoint of a live run" in refusal("resume", str(tmp_path / "live"))
    run(FedUCBVI(), gridworld(agents=3), 20, checkpoint=tmp_path / "simulated")
    with pytest.raises(InputError, match=r"checkpoint of a simulation; continue it with resume\("):
        resume(tmp_path / "simulated", World().live(), progress=False)


def test_a_live_checkpoint_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    finished(tmp_path / "checkpoint")
    for file in log_files(tmp_path / "checkpoint"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="is damaged"):
        resume(tmp_path / "checkpoint", World().live(), progress=False)
