"""What a page shows: thinned points, increments that add up, in bounded memory; secure sums keep figures secret."""

from __future__ import annotations

import gc
import itertools
import json
import math
import random
import threading
import time
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, RoundRecord, gridworld, run
from fed_ucbvi.network.dashboard.series import COLUMNS, MAX_POINTS, RoundSeries
from fed_ucbvi.network.dashboard.state import BATCH, OVER, RUNNING, STOPPED, WAITING, LiveState, Position, Subject
from fed_ucbvi.network.members import FederationStatus
from fed_ucbvi.network.transport import WireCount
from fed_ucbvi.results.grid import policy_arrows
from page_reader import apply, new_mirror
from rounds import made_up_node, made_up_rounds

SUBJECT = Subject(
    "a run",
    {"name": "fed-ucbvi"},
    {"name": "nowhere"},
    4,
    8,
    3,
    5,
    nodes=("a", "b", "c"),
)


def by_hand(records: list[RoundRecord], stride: int) -> list[list[float | None]]:
    """One point for every ``stride`` rounds, computed from the rounds themselves."""
    points: list[list[float | None]] = []
    for start in range(0, len(records), stride):
        group = records[start : start + stride]
        last = group[-1]
        paid = [one for one in group if not math.isnan(one.reward)]
        stood = [
            one for one in records[: start + stride] if one.playing == "incumbent" and not math.isnan(one.reward)
        ]
        stood_for = sum(one.length for one in stood)
        played = sum(one.length for one in paid)
        point = {
            **last._asdict(),
            "reward": sum(one.reward * one.length for one in paid) / played if paid else math.nan,
            "length": sum(one.length for one in group) / len(group),
            "incumbent": sum(one.reward * one.length for one in stood) / stood_for if stood else math.nan,
        }
        values = [float(point[name]) for name in COLUMNS]
        points.append([None if math.isnan(value) else value for value in values])
    return points


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [2, 7, 50])
def test_points_are_those_of_the_rounds_however_they_came(seed: int, most: int) -> None:
    chance = random.Random(seed)
    records = list(made_up_rounds(seed, count=333))
    series = RoundSeries(most)
    left = iter(records)
    series.extend([])
    assert (series.size, series.points()) == (0, [])
    seen = 0
    while batch := list(itertools.islice(left, chance.choice((1, 2, 30, 100)))):
        series.extend(batch)
        seen += len(batch)
        assert series.size <= most
        assert series.stride == 1 or series.size > most // 2, "no more is thrown away than must be"
        expected = by_hand(records[:seen], series.stride)
        found = series.points()
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            for value, same in zip(one, other, strict=True):
                assert value == (None if same is None else pytest.approx(same, rel=1e-12))
    assert series.points(series.size - 1) == series.points()[-1:]


def status(secure: bool, *names: str) -> FederationStatus:
    nodes = [
        made_up_node("a", "present", 0, episodes=17, latency=0.25, wire=WireCount(1, 2, 3, 4)),
        made_up_node("b", "away", 1, 2, episodes=17, wire=WireCount(1, 2, 5, 6)),
        made_up_node("d", "excluded", 3, episodes=9, latency=0.5),
    ]
    events = ({"round": 3, "node": "d", "what": "stayed away", "done": "excluded"},)
    chosen = tuple(node for node in nodes if not names or node.name in names)
    return FederationStatus("r1", secure, chosen, WireCount(3, 4, 8, 10), 2, events)


@pytest.mark.parametrize("seed", range(2))
def test_increments_add_up_to_the_snapshot_for_every_reader(seed: int) -> None:
    chance = random.Random(seed)
    rounds = made_up_rounds(seed)
    state = LiveState(SUBJECT)
    readers: list[tuple[dict[str, Any], Position]] = [(new_mirror(), Position()) for _ in range(2)]
    for _ in range(25):
        for _ in range(chance.choice((0, 1, 5, 400))):
            state(next(rounds))
        if chance.random() < 0.3:
            state.take_status(status(False, *chance.sample("abd", 2)))
        for place, (mirror, position) in enumerate(readers):
            if chance.random() < 0.5:
                increment, position = state.increment(position)
                mirror = apply(mirror, json.loads(json.dumps(increment, allow_nan=False)))
                assert mirror == state.snapshot()
                assert state.increment(position)[0] == {}, "nothing is told twice"
                readers[place] = (mirror, position)
    assert state.snapshot()["stride"] > 1, "points have been merged on the way"
    latest, position = state.increment(Position())
    state(next(rounds))
    assert len(state.increment(position)[0]["points"]) <= 2 < len(latest["points"])


def test_many_rounds_leave_no_more_behind_than_a_few() -> None:
    state = LiveState(SUBJECT)
    for record in made_up_rounds(1, count=30_000):
        state(record)
    assert sum(isinstance(thing, RoundRecord) for thing in gc.get_objects()) <= BATCH + 100
    content = state.snapshot()
    assert sum(isinstance(thing, RoundRecord) for thing in gc.get_objects()) <= 100
    assert len(content["points"]) <= MAX_POINTS
    assert content["points"][-1][0] == content["now"]["round"] == 30_000
    assert sum(content["requests"]["rules"].values()) == content["now"]["synchronisations"]
    assert len(json.dumps(content)) < 1e6


def test_rounds_from_one_thread_are_all_there_for_readers_in_others() -> None:
    state = LiveState(SUBJECT)
    done = threading.Event()
    seen: list[dict[str, Any]] = []

    def read() -> None:
        mirror = new_mirror()
        position = Position()
        while True:
            last = done.is_set()
            increment, position = state.increment(position)
            apply(mirror, increment)
            if last:
                break
        seen.append(mirror)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for record in made_up_rounds(2, count=3_000):
        state(record)
    done.set()
    for reader in readers:
        reader.join()
    assert seen == [state.snapshot()] * 3
    assert seen[0]["now"]["round"] == 3_000


def test_phases_follow_the_run() -> None:
    state = LiveState(SUBJECT)
    assert state.phase == WAITING
    state(next(made_up_rounds(0)))
    assert state.snapshot()["status"]["phase"] == RUNNING
    state.end("no more", complete=False)
    assert state.snapshot()["status"] == {"phase": STOPPED, "text": "no more"}
    state.end()
    assert state.phase == OVER


def test_nodes_are_present_away_excluded_or_expected() -> None:
    state = LiveState(SUBJECT)
    state.take_status(status(False))
    content = state.snapshot()
    states = {"a": "present", "b": "away", "d": "excluded", "c": "expected"}
    assert {node["name"]: node["state"] for node in content["nodes"]} == states
    assert content["nodes"][0] == {
        **{
            "name": "a",
            "state": "present",
            "first_agent": 0,
            "agents": 1,
            "episodes": 17,
        },
        **{"latency": 0.25, "bytes_up": 3, "bytes_down": 4},
    }
    assert content["network"]["nodes"] == {
        **dict.fromkeys(states.values(), 1),
        "finished": 0,
    }
    assert content["network"]["latency"] == 0.25
    assert content["network"]["violations"] == 2


def test_events_of_the_page_have_the_time_of_their_observation() -> None:
    """Nodes that are away at first, and events that an earlier server recorded, happened at an unknown time."""
    state = LiveState(SUBJECT)
    first = status(False)
    began = time.time()
    state.take_status(first)
    *_, d = first.nodes
    back = first._replace(nodes=(made_up_node("a", "away"), made_up_node("b", "present", 1, 2), d))
    state.take_status(back._replace(events=(*first.events, {**first.events[0], "what": "silent"})))
    events = state.snapshot()["events"]
    assert [(event["node"], event["what"], event["done"]) for event in events] == [
        ("a", "connected", ""),
        (*(first.events[0][name] for name in ("node", "what")), "excluded"),
        ("a", "disconnected", ""),
        ("b", "connected again", ""),
        (first.events[0]["node"], "silent", "excluded"),
    ]
    times = [event["time"] for event in events]
    assert times.pop(1) is None
    assert began <= times[0] <= times[-1] <= time.time()


def test_under_secure_sums_the_page_shows_only_names_of_nodes() -> None:
    state = LiveState(SUBJECT)
    state.take_status(status(True))
    content = state.snapshot()
    assert all(node.keys() == {"name", "state"} for node in content["nodes"])
    assert content["network"]["bytes_up"] == 8, "the sum over nodes may be told"


def test_of_many_nodes_those_that_are_missing_are_listed() -> None:
    states = {777: "away", 778: "finished"}
    nodes = tuple(made_up_node(f"n{i}", states.get(i, "present"), i, latency=0.1) for i in range(1_000))
    state = LiveState(SUBJECT._replace(nodes=()))
    state.take_status(FederationStatus("r", False, nodes, WireCount(), 0, ()))
    content = state.snapshot()
    assert content["nodes"][0] == {
        **content["nodes"][0],
        "name": "n777",
        "state": "away",
    }
    assert len(content["nodes"]) == 200
    assert content["network"]["nodes"]["present"] == 998


def test_the_policy_is_drawn_where_there_is_a_grid() -> None:
    world = gridworld(agents=2)
    state = LiveState(Subject.of_run(FedUCBVI(), world))
    assert "policy" not in state.snapshot()
    result = run(FedUCBVI(), world, 200, on_round=state)
    assert world.layout is not None
    content = state.snapshot()
    arrows = policy_arrows(world.layout, result.policy)
    assert {(row, column): (down, right) for row, column, down, right in content["policy"]} == arrows
    assert content["subject"]["grid"]["cells"] == [list(cell) for cell in world.layout["cells"]]  # type: ignore[attr-defined]
    nowhere = LiveState(SUBJECT)
    nowhere.take_policy(np.zeros((5, 8), dtype=np.int32))
    assert "policy" not in nowhere.snapshot()
