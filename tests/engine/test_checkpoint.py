"""Checkpoints: a resumed run is the uninterrupted one, simulated or live; what cannot be resumed is refused."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from commands import refusal
from fed_ucbvi import (
    FedUCBVI,
    InputError,
    Interrupted,
    LiveFederation,
    Run,
    from_gymnasium,
    gridworld,
    resume,
    run,
    synthetic,
)
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.engine import state_store
from fed_ucbvi.engine.drivers import live as live_driver
from fed_ucbvi.problem.federation import Federation
from live_world import AGENTS, World
from live_world import EPISODES as LIVE_EPISODES
from problems import random_federation, random_mdp
from repository import ROOT
from runs import interrupt_after
from saved_states import log_files, saved_in

DRIVERS = ("episodes", "counts", "auto")
EPISODES = 3000
LOCAL = FedUCBVI(synchronisation="local")
FEDERATIONS = ("grid", "rewards of their own", "mean kernel", "stationary")


def federation_called(name: str) -> Federation:
    rng = np.random.default_rng(1)
    if name == "grid":
        return gridworld(agents=3, eps_p=0.1)
    if name == "rewards of their own":
        return synthetic(agents=2, eps_p=0.2, eps_r=0.3)
    if name == "mean kernel":
        mdps = [random_mdp(rng, zeros=0.5) for _ in range(3)]
        return Federation.from_mdps(mdps, reference="mean", description={"name": "three of a kind"})
    return random_federation(rng, stationary=True, own_starts=True)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", FEDERATIONS)
def test_a_resumed_run_equals_an_uninterrupted_one(driver: str, name: str, tmp_path: Path) -> None:
    """Both rules apply, and random ties, which depend on the number of updates."""
    algorithm = FedUCBVI(nu=200.0, ties="random", bonus_scale=0.5 if driver == "auto" else 1.0)
    federation = federation_called(name)
    whole = run(algorithm, federation, EPISODES, seed=4, driver=driver)
    rng = np.random.default_rng([2, DRIVERS.index(driver)])
    for attempt, stop in enumerate(rng.integers(1, whole.rounds, size=3).tolist()):
        folder = tmp_path / str(attempt)
        halfway = stop + (whole.rounds - stop) // 2
        with pytest.raises(Interrupted) as caught:
            run(
                algorithm,
                federation,
                EPISODES,
                seed=4,
                driver=driver,
                on_round=interrupt_after(rounds=stop),
                checkpoint=folder,
                checkpoint_every=int(rng.integers(1, 30)),
            )
        assert not caught.value.partial.same_outcome(whole)
        with pytest.raises(Interrupted):
            resume(folder, on_round=interrupt_after(rounds=halfway))
        assert resume(folder).same_outcome(whole)


def test_a_finished_run_is_resumed_to_itself(tmp_path: Path) -> None:
    result = run(LOCAL, gridworld(agents=2), 200, seed=4, checkpoint=tmp_path / "checkpoint")
    assert resume(tmp_path / "checkpoint").same_outcome(result)


def test_an_interruption_during_writing_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = gridworld(agents=2)
    folder = tmp_path / "checkpoint"
    whole = run(LOCAL, federation, 1000, seed=6)
    append_bytes = state_store.append_bytes
    written = 0

    def interrupted(*arguments: Any, **options: Any) -> int:
        nonlocal written
        written += 1
        size = append_bytes(*arguments, **options)
        if written == 5:  # once
            raise KeyboardInterrupt
        return size

    monkeypatch.setattr(state_store, "append_bytes", interrupted)
    with pytest.raises(Interrupted):
        run(LOCAL, federation, 1000, seed=6, checkpoint=folder, checkpoint_every=10)
    expected = ["federation.npz", "lock", "log-000001", "log-000002", "manifest.json"]
    assert sorted(path.name for path in folder.iterdir()) == expected
    assert saved_in(folder).round == 30
    assert resume(folder).same_outcome(whole)


# --------------------------------------------------------------------------------------------- what is refused


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A checkpoint of a run that was interrupted."""
    kept: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": 5}
    world = synthetic(agents=2, states=3, actions=2, horizon=2)
    with pytest.raises(Interrupted):
        run(LOCAL, world, 500, on_round=interrupt_after(rounds=15), **kept)
    return tmp_path / "checkpoint"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_an_existing_folder_is_refused_without_a_change(stopped: Path) -> None:
    before = contents(stopped)
    with pytest.raises(InputError, match="exists"):
        run(LOCAL, synthetic(agents=2), 100, checkpoint=stopped)
    assert contents(stopped) == before


def test_an_existing_file_is_refused_without_a_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="not a folder"):
        run(LOCAL, synthetic(agents=2), 100, checkpoint=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("every", [0, -3, 1.5])
def test_checkpoints_are_a_positive_number_of_rounds_apart(every: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="checkpoint_every"):
        run(FedUCBVI(), synthetic(), 10, checkpoint=tmp_path / "c", checkpoint_every=every)  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


def refuses(folder: Path) -> None:
    with pytest.raises(InputError):
        resume(folder)
    gc.collect(1)  # a file left open is reported here, not in the next test


def test_an_absent_folder_is_refused(tmp_path: Path) -> None:
    refuses(tmp_path / "absent")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    refuses(tmp_path)


def test_a_folder_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "somebody else"}')
    refuses(tmp_path)


def test_a_saved_run_is_refused_as_a_checkpoint(tmp_path: Path) -> None:
    run(LOCAL, synthetic(agents=1), 10).save(tmp_path / "run")
    refuses(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["federation.npz", "manifest.json"])
def test_damage_to_a_file_that_is_written_once_is_refused(name: str, stopped: Path) -> None:
    file = stopped / name
    rng = np.random.default_rng(3)
    whole = file.read_bytes()
    damaged = [whole[:length] for length in (1, 10, len(whole) // 2, len(whole) - 30)]
    for position in rng.integers(len(whole), size=10).tolist():
        flipped = bytearray(whole)
        flipped[position] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(flipped))
    for content in damaged:
        file.write_bytes(content)
        refuses(stopped)


@pytest.mark.parametrize("name", ["federation.npz", "manifest.json"])
def test_a_missing_file_of_a_checkpoint_is_refused(name: str, stopped: Path) -> None:
    (stopped / name).unlink()
    refuses(stopped)


@pytest.mark.parametrize("length", [100, 0, None])
def test_a_checkpoint_without_a_readable_log_is_refused(length: int | None, stopped: Path) -> None:
    """Files that are left open would be reported as warnings."""
    for file in log_files(stopped):
        content = file.read_bytes()
        file.unlink()
        if length is not None:
            file.write_bytes(content[:length])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refuses(stopped)
    assert [str(warning.message) for warning in caught] == []


MANIFEST_KEYS = {"format_version": 99, "driver": "train", "parameters": None}


@pytest.mark.parametrize("key", MANIFEST_KEYS)
def test_a_manifest_that_was_changed_is_refused(key: str, stopped: Path) -> None:
    path = stopped / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest[key] = MANIFEST_KEYS[key]
    path.write_text(json.dumps(manifest))
    refuses(stopped)


@pytest.mark.parametrize("key", MANIFEST_KEYS)
def test_a_manifest_without_a_key_is_refused(key: str, stopped: Path) -> None:
    path = stopped / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))
    refuses(stopped)


def test_a_failure_to_create_a_checkpoint_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> NoReturn:
        raise OSError("disk full")

    monkeypatch.setattr("fed_ucbvi.engine.checkpoint.write_manifest", fail)
    with pytest.raises(OSError, match="disk full"):
        run(LOCAL, synthetic(agents=2), 100, checkpoint=tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------------- live runs


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "keeps its counts": ("fed-ucbvi", {}),
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
    """The number of episodes of each agent in the checkpoint."""
    return saved_in(folder).arrays["clock"]


@pytest.fixture
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_driver, "FIRST_WIDTH", 1)


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("episode", [0, 9, 41])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_resumed_live_run_equals_an_uninterrupted_one(
    variant: str, episode: int, every: int, tmp_path: Path
) -> None:
    """Supports begin with one slot, so that they have widened at some of the interruptions."""
    name, parameters = VARIANTS[variant]
    algorithm = make_algorithm(name, parameters)
    whole = run(algorithm, World().live(), LIVE_EPISODES, seed=4)
    folder = tmp_path / "checkpoint"
    live = World(before_step=stop_in(episode)).live()
    with pytest.raises(Interrupted) as stop:
        run(algorithm, live, LIVE_EPISODES, seed=4, checkpoint=folder, checkpoint_every=every)
    kept = clock(folder)
    assert kept[-1] <= episode
    if every == 1:
        assert stop.value.partial.episodes_played == int(kept.mean())
    resumed = resume(folder, World(kept).live())
    assert resumed.same_outcome(whole)
    assert resumed.complete


def test_a_killed_live_run_can_be_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    program = ROOT / "tests" / "support" / "live_world.py"
    done = subprocess.run([sys.executable, str(program), str(folder), "30"], check=False, timeout=300)
    assert done.returncode == -9
    kept = clock(folder)
    assert 0 < kept.max() <= 30
    whole = run(FedUCBVI(), World().live(), LIVE_EPISODES, seed=4)
    assert resume(folder, World(kept).live()).same_outcome(whole)


def finished_live(folder: Path) -> Run:
    return run(FedUCBVI(), World().live(), 20, seed=4, checkpoint=folder)


def test_a_finished_live_run_is_resumed_without_a_step(tmp_path: Path) -> None:
    result = finished_live(tmp_path / "checkpoint")
    again = resume(tmp_path / "checkpoint", World(before_step=stop_in(0)).live())
    assert again.same_outcome(result)


def lake() -> LiveFederation:
    return LiveFederation.from_gymnasium("FrozenLake-v1", 3, horizon=4, reward_range=(-2, 4))


OTHER_ENVIRONMENTS: dict[str, Callable[[], LiveFederation]] = {
    "horizon was 4, and is 5 now": lambda: World().live(horizon=5),
    "reward_scale was 6.0, and is 7.0 now": lambda: World().live(reward_range=(-2.0, 5.0)),
    "eps_p was None, and is 0.1 now": lambda: World().live(eps_p=0.1),
    "name was custom, and is elsewhere now": lambda: World().live(description={"name": "elsewhere"}),
    "agents was 3, and is 2 now": lambda: replace(World().live(), agents=2),
    "states was 4, and is 17 now": lake,
}


@pytest.mark.parametrize("message", OTHER_ENVIRONMENTS)
def test_other_environments_than_those_of_the_checkpoint_are_refused(message: str, tmp_path: Path) -> None:
    finished_live(tmp_path / "checkpoint")
    other = OTHER_ENVIRONMENTS[message]()
    with pytest.raises(InputError, match=f"other environments: {message}"):
        resume(tmp_path / "checkpoint", other)


def test_a_live_run_that_was_scored_is_resumed_with_its_table_only(tmp_path: Path) -> None:
    folder = tmp_path / "scored"
    table = from_gymnasium("FrozenLake-v1", 3, horizon=4, reward_range=(-2, 4))
    run(FedUCBVI(), lake(), 5, checkpoint=folder, score_with=table)
    with pytest.raises(InputError, match="scored was True, and is False now"):
        resume(folder, lake())
    assert resume(folder, lake(), score_with=table).value == pytest.approx(
        0.0, abs=1e-12
    )  # the goal is six steps away


def test_a_live_checkpoint_is_refused_without_environments(tmp_path: Path) -> None:
    finished_live(tmp_path / "live")
    with pytest.raises(InputError, match=r"live run, which needs its environments.*resume\("):
        resume(tmp_path / "live")


def test_the_command_line_refuses_a_live_checkpoint(tmp_path: Path) -> None:
    finished_live(tmp_path / "live")
    assert "checkpoint of a live run" in refusal("resume", str(tmp_path / "live"))


def test_a_checkpoint_of_a_simulation_is_refused_with_environments(tmp_path: Path) -> None:
    run(FedUCBVI(), gridworld(agents=3), 20, checkpoint=tmp_path / "simulated")
    with pytest.raises(InputError, match=r"checkpoint of a simulation; continue it with resume\("):
        resume(tmp_path / "simulated", World().live())
