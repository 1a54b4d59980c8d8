"""Rounds that close with those who are there while the others catch up, and what is written down of them.

The log says whose reports were in which sum. Transcripts are whole chains that say what was sent, agree with each
other, and show what was altered.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from absences import Absences, Federated
from commands import call, refusal
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, gridworld, run, synthetic
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.count_table import CountTable
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.client import leave_run, run_node
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.roster import Authority
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.server import Outcome
from fed_ucbvi.network.server_checkpoint import HISTORY, replay
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.network.transcript import FILE, OWN, Line, Transcript, compare_transcripts, read_transcript
from federation_processes import THREE, Processes
from matrices import first_of
from network import InMemoryServer, Served, TLSByName, federate, make_nodes, tell, told_episodes

NAMES = [f"node-{i}" for i in range(5)]
WORLD = synthetic(agents=5, eps_p=0.0, seed=2, states=4, actions=3, horizon=3)
T, SEED = 100, 3
AWAY = {"node-3": (4, 9), "node-4": (6, 12)}
"""Between these rounds they are gone."""
Runs = Callable[[bool], tuple[Path, Outcome]]
PLAIN_REPORT = {"time", "kind", "way", "peer", "stream", "round", "digest", "bytes", "before", "line"}


def run_with_absences(folder: Path, *, secure: bool) -> Outcome:
    """Five nodes with state folders; two are stopped in the middle and started again some rounds later."""
    certs = folder / "certs"
    make_certificates(certs, server="server", nodes=NAMES)
    plan = plan_for(FedKLUCBVI(), WORLD, T, seed=SEED, patience=30.0, quorum=3, wait=0.05, secure_sums=secure)

    async def story() -> Outcome:
        served = Served(plan, folder / "server", lambda name: TLSFiles.of(certs, name))
        nodes = make_nodes(WORLD, [1] * 5, folder, most_failures=20)
        tasks = dict(zip(NAMES, served.join(*nodes), strict=True))
        for number, name in sorted((number, name) for name, both in AWAY.items() for number in both):
            await served.reach(number)
            task = tasks.pop(name, None)
            if task is None:
                served.join(make_nodes(WORLD, [1] * 5, folder, most_failures=20)[NAMES.index(name)])
            else:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                served.joined.remove(task)
        return await served.finish()

    return tell(story(), 100)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The folder and the outcome of a plain run, or of a secure one."""

    @functools.cache
    def made(secure: bool) -> tuple[Path, Outcome]:
        folder = tmp_path_factory.mktemp("run")
        return folder, run_with_absences(folder, secure=secure)

    return made


@pytest.fixture
def secure(runs: Runs) -> Path:
    return runs(True)[0]


both = pytest.mark.parametrize("masked", [False, True], ids=["plain", "secure"])


def authority(folder: Path) -> Authority:
    return Authority((folder / "certs" / "ca.crt").read_bytes())


def chained(objects: list[dict[str, Any]]) -> bytes:
    """A transcript of these lines, with all digests made to fit, as a forger would."""
    text, before = b"", ""
    for one in objects:
        about = {name: value for name, value in one.items() if name not in ("before", "line")}
        body = json.dumps({**about, **({"before": before} if before else {})}, separators=(",", ":")).encode()
        before = hashlib.sha256(body).hexdigest()
        text += body[:-1] + OWN + before.encode() + b'"}\n'
    return text


def objects_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / FILE).read_text().splitlines()]


@both
def test_rounds_close_without_absent_nodes_and_the_log_recomputes_the_run(masked: bool, runs: Runs) -> None:
    folder, outcome = runs(masked)
    records = outcome.run.records
    agents = records["agent_episodes"] // records["length"]
    assert set(agents.tolist()) >= {3, 5}, "some rounds without them, some with all"
    assert outcome.ended
    again = replay(folder / "server")
    assert again.differs == []
    assert again.rounds == len(records["start"])
    assert any(len(used) == 5 for used in again.reports)
    assert any(0 < len(used) < 5 for used in again.reports)
    done = call("replay", str(folder / "server"), "--json")
    assert done.exit_code == 0
    assert '"same": true' in done.stdout.replace("\n", "")


@pytest.mark.parametrize("secure", first_of([True, False]))
async def test_a_live_node_that_is_late_loses_nothing(secure: bool, tmp_path: Path, tls_files: TLSByName) -> None:
    """It is too late with some answers: its episodes go with a later report, once."""
    names = NAMES[:4]
    setting = Setting(17, 4, 6, 4, 40, 0.0, SEED, eps_p_known=False)
    rules: dict[str, Any] = {"patience": 300.0, "quorum": 3, "wait": 0.3}
    plan = RunPlan(FedKLUCBVI(min_round_growth=0.1), setting, collection="live", secure_sums=secure, **rules)
    lake = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=6)

    class Late(InMemoryServer):
        """What a node says of its episodes takes a moment; of the last node, every third time, too long."""

        moment, too_long, said = 0.05, 0.05, 0

        @asynccontextmanager
        async def connect(self) -> AsyncIterator[Any]:
            async with super().connect() as line:
                write = line.write

                async def late(data: bytes) -> None:
                    if b"Played" in data[:12]:
                        self.said += 1
                        await asyncio.sleep(self.moment if self.said % 3 else self.too_long)
                    await write(data)

                line.write = late  # type: ignore[method-assign]
                yield line

    served = Served(plan, tmp_path / "server", tls_files)
    nodes = [Node(name, lake, i, 1, tmp_path / name, most_failures=50) for i, name in enumerate(names)]
    lines = [Late(served, tls_files(name)) for name in names]
    lines[3].too_long = 1.0
    tasks = served.begin(*(run_node(node, line) for node, line in zip(nodes, lines, strict=True)))
    outcome = await served.start()
    await asyncio.gather(*tasks[:3])
    tasks[3].cancel()  # it may have been away at the end
    await asyncio.gather(*tasks, return_exceptions=True)
    told = sum(told_episodes(node) for node in nodes)
    visits = int(served.coordinator.engine.server.table.visits[0].sum())
    played = [int(node.own_counts(0).visits[0].sum()) for node in nodes]
    assert played[:3] == [40] * 3
    assert visits + told == sum(played), "every episode is reported or still to be reported, none twice"
    assert any("closes without it" in event["done"] for event in outcome.events)
    assert any("takes part again" in event["done"] for event in outcome.events)
    again = replay(tmp_path / "server")
    assert again.differs == []
    late = [number for number, used in enumerate(again.reports) if used and "node-3" not in used]
    assert late
    assert any("node-3" in used for used in again.reports[late[0] :]), "what it had is in a later sum"


def test_what_the_log_does_not_say_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(FedKLUCBVI(), WORLD, 40, seed=SEED)
    federate(plan, make_nodes(WORLD, [2, 3], tmp_path), folder=tmp_path / "server")
    assert replay(tmp_path / "server").differs == []
    add_counts = FedKLUCBVI.add_counts

    def one_more(algorithm: Any, server: Any, new: CountTable) -> None:
        new.transitions[(*np.argwhere(new.visits)[0], 0)] += 1
        add_counts(algorithm, server, new)

    monkeypatch.setattr(FedKLUCBVI, "add_counts", one_more)
    assert "server.table_visits" in replay(tmp_path / "server").differs
    for log in (tmp_path / "server" / HISTORY).glob("log-*"):
        log.unlink()
    with pytest.raises(InputError, match="does not have all of the run's"):
        replay(tmp_path / "server")


def test_a_quorum_is_for_reports_of_what_is_new() -> None:
    with pytest.raises(InputError, match="needs a report of every node"):
        plan_for(FedUCBVI(), WORLD, T, quorum=2)


# ---------------------------------------------------------------------- nodes that come and go, as in a benchmark


def test_without_absences_it_is_the_simulation_bit_for_bit() -> None:
    world = gridworld(agents=6)
    everyone = Federated(world, 60, Absences(list(range(6)), 0, 1), 1)
    everyone.run()
    expected = run(FedKLUCBVI(), world, 60, seed=1, progress=False)
    result = everyone.engine.result()
    assert np.array_equal(result.V, expected.V)
    assert np.array_equal(result.policy, expected.policy)
    assert np.array_equal(result.records["length"], expected.records["length"])
    assert everyone.regret_after(360) / 6 == pytest.approx(expected.regret)


def test_thirty_per_cent_away_stall_nobody_lose_nothing_and_cost_little() -> None:
    """Twenty nodes, six away at any time for six rounds each; regret is that after the same number of episodes."""
    nodes, episodes = 20, 150
    world, schedule = gridworld(agents=nodes), Absences.of(nodes, 0.3, 6, 1)
    seen = [schedule.at(number) for number in range(40)]
    assert {len(away) for away in seen} == {6}
    assert set().union(*seen) == set(range(nodes))
    absent = Federated(world, 240, schedule, 1)
    absent.run()
    assert len(absent.reports) == int((absent.engine.records()["requests"] > 0).sum()), "every round has closed"
    assert set(absent.reports) == {13}, "14 were there, and one left before it reported"
    told = int(absent.engine.server.table.visits[0].sum())
    kept = sum(int(absent._report(i)[0].sum()) // world.horizon for i in range(nodes) if not absent.used[i])
    assert told + kept == int(absent.engine.records()["agent_episodes"].sum()), "every episode once"
    assert kept > 0
    lockstep = Federated(world, episodes, Absences(list(range(nodes)), 0, 1), 1)
    lockstep.run()
    assert absent.regret_after(nodes * episodes) <= 1.2 * lockstep.regret_after(nodes * episodes)


# ------------------------------------------------------------------------------------------------------- transcripts


@both
def test_transcripts_are_whole_agree_and_have_every_message_that_was_on_the_wire(masked: bool, runs: Runs) -> None:
    folder, outcome = runs(masked)
    lines = read_transcript(folder / "server", authority(folder))
    ways = Counter(line.way for line in lines if line.kind != "Refusal")
    wire = outcome.wire
    assert (ways["in"], ways["out"]) == (wire.messages_up, wire.messages_down)
    down = sum(line.bytes + 5 for line in lines if line.way == "out" and line.kind != "Refusal")
    up = sum(line.bytes + 5 for line in lines if line.way == "in")
    assert (up, down) == (wire.bytes_up, wire.bytes_down)
    for name in NAMES:
        found = compare_transcripts(folder / "server", folder / name, authority(folder))
        assert found == compare_transcripts(folder / name, folder / "server")
        sent = Counter(line.way for line in read_transcript(folder / name))
        assert found.messages <= sent["in"] + sent["out"]
        assert found.streams == (2 if name in AWAY else 1)
        assert found.lost <= (4 if name in AWAY else 0)
    kinds = Counter(line.kind for line in read_transcript(folder / "node-3"))
    assert kinds["opened"] == 2, "the chain goes on after a restart"


@both
def test_nothing_but_who_when_how_much_and_what_was_signed_is_in_a_transcript(masked: bool, runs: Runs) -> None:
    folder, _ = runs(masked)
    for name in ("server", *NAMES):
        for one in objects_in(folder / name):
            if one["kind"] == "Report":
                assert set(one) == PLAIN_REPORT
            elif one["kind"] == "Played":
                assert set(one) - PLAIN_REPORT == ({"episodes", "signed"} if masked else {"episodes"})
                assert not masked or len(one["signed"]) == 8  # the fields of a Ready


def test_sums_that_were_used_failed_and_confirmed_are_in_it(secure: Path) -> None:
    lines = read_transcript(secure / "server")
    used = {line.round: line.roster for line in lines if line.kind == "used"}
    assert list(used) == [number for number, who in enumerate(replay(secure / "server").reports, 1) if who]
    rosters = {line.digest for line in lines if line.kind == "roster"}
    assert set(used.values()) <= rosters
    for name in NAMES:
        confirmed = {(line.confirmed, line.roster) for line in read_transcript(secure / name) if line.confirmed}
        assert confirmed <= set(used.items())
        assert len(confirmed) > 3
    members = {line.round: str(line.signed) for line in lines if line.kind == "roster"}
    assert any("node-3" not in text for text in members.values())
    assert [line.note for line in lines if line.kind == "event" and line.peer == "node-3"]


def at(place: int, change: Callable[[bytes], list[bytes]]) -> Callable[[bytes], bytes]:
    def altered(text: bytes) -> bytes:
        lines = text.splitlines(keepends=True)
        lines[place : place + 1] = change(lines[place])
        return b"".join(lines)

    return altered


@pytest.mark.parametrize(
    ("place", "change", "line", "words"),
    [
        (0, lambda line: [line.replace(b"20", b"21", 1)], 1, "altered"),
        (30, lambda line: [line.replace(b'"round":', b'"round":1', 1)], 31, "altered"),
        (-1, lambda line: [line.replace(b"kind", b"kine")], None, "altered"),
        (-1, lambda line: [line[:40]], None, "cut off"),
        (30, lambda line: [], 31, "missing"),
        (30, lambda line: [line, line], 32, "others than there were"),
        (0, lambda line: [], 1, "missing"),
    ],
)
def test_verify_names_the_line_that_was_altered_or_before_which_one_is_missing(
    place: int, change: Any, line: int | None, words: str, secure: Path, tmp_path: Path
) -> None:
    text = (secure / "node-1" / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(at(place, change)(text))
    told = refusal("transcript", "verify", tmp_path)
    assert words in told
    assert f"line {line or len(text.splitlines())}:" in told
    done = call("transcript", "verify", tmp_path, "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["line"] == (line or len(text.splitlines()))


def test_what_a_forger_made_fit_differs_from_what_the_other_side_has(secure: Path, tmp_path: Path) -> None:
    honest = objects_in(secure / "node-1")
    report = next(place for place, one in enumerate(honest) if one["kind"] == "Report" and one["round"] == 5)
    start = next(place for place, one in enumerate(honest) if one["kind"] == "Start" and one["round"] == 5)

    def told(objects: list[dict[str, Any]]) -> str:
        (tmp_path / FILE).write_bytes(chained(objects))
        read_transcript(tmp_path, authority(secure))  # the chain alone does not show it
        return refusal("transcript", "verify", secure / "server", tmp_path)

    other = {**honest[report], "digest": "0" * 64}
    assert re.search(r"server/\S+ line \d+: it received a Report of round 5", told([*honest[:report], other]))
    assert "received a Report of round 5" in told([*honest[:report], *honest[report + 1 :]])
    other = {**honest[start], "digest": "0" * 64}
    assert f"{tmp_path / FILE}, line {start + 1}: it received a Start of round 5" in told([*honest[:start], other])
    (tmp_path / FILE).write_bytes(chained(honest[: start + 1]))  # its end is gone
    with pytest.raises(InputError, match=r"of round 5, and .* has none"):
        compare_transcripts(tmp_path, secure / "server")
    with pytest.raises(InputError, match="of a server with that of a node"):
        compare_transcripts(secure / "node-0", secure / "node-1")


def test_a_roster_with_what_nobody_signed_is_found_by_the_authority(secure: Path, tmp_path: Path) -> None:
    objects = objects_in(secure / "node-1")
    place = next(place for place, one in enumerate(objects) if one["kind"] == "roster")
    objects[place]["signed"][3][0][4][1] += 1  # the new episodes of the first node
    (tmp_path / FILE).write_bytes(chained(objects))
    with pytest.raises(InputError, match=rf"line {place + 1}: the roster does not have the digest"):
        read_transcript(tmp_path)
    objects = objects_in(secure / "node-1")
    for one in objects:
        if one["kind"] in ("opened", "Welcome") and "run" in one:
            one["run"] = "another"
    (tmp_path / FILE).write_bytes(chained(objects))
    read_transcript(tmp_path)
    told = refusal("transcript", "verify", tmp_path, "--certs", secure / "certs")
    assert f"line {place + 1}: " in told
    assert "has not signed" in told


def test_show_prints_every_line(secure: Path) -> None:
    lines = read_transcript(secure / "node-2")
    shown = call("transcript", "show", secure / "node-2")
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == len(lines)
    pattern = r"<- server Start: round 2, confirms round 1, roster \w{8}, [\d,]+ bytes, SHA-256 "
    assert re.search(pattern, shown.stdout)
    data = json.loads(call("transcript", "show", secure / "node-2", "--json").stdout)["lines"]
    assert [one["kind"] for one in data] == [line.kind for line in lines]
    assert "'verify' compares two" in refusal("transcript", "show", secure / "node-2", secure / "server")
    assert "have a transcript" in refusal("transcript", "show", secure)


def test_a_line_that_was_not_finished_is_cut_off_and_the_chain_goes_on(tmp_path: Path) -> None:
    for length in (10, 200_000):  # the second is longer than what is read of the end at first
        kept = Transcript(tmp_path, "node-0")
        kept.add("event", note="x" * length)
        kept.close()
        with (tmp_path / FILE).open("ab") as file:
            file.write(b'{"time":"2026')
    Transcript(tmp_path, "node-0").close()
    lines = read_transcript(tmp_path)
    assert ["cut off" in line.note for line in lines if line.kind == "opened"] == [False, True, True]


def test_a_full_disk_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, write = Transcript(tmp_path, "node-0"), os.write

    def full(file: int, data: Any) -> int:
        if len(data) < 50:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, bytes(data[:40]))

    monkeypatch.setattr("fed_ucbvi.network.transcript.os.write", full)
    with pytest.raises(OSError, match="No space left") as error:
        kept.flush()
    assert error.value.filename == str(tmp_path / FILE)
    monkeypatch.undo()
    kept.close()
    assert [line.kind for line in read_transcript(tmp_path)] == ["opened"]


async def test_a_node_that_leaves_by_a_command_has_no_transcript_of_that(tmp_path: Path) -> None:
    served = Served(plan_for(FedKLUCBVI(), WORLD, T, seed=SEED), tmp_path / "server")
    served.join(*make_nodes(WORLD, [1] * 5, tmp_path))
    await served.reach(3)
    await leave_run("node-3", served.remote())
    await served.start()
    await asyncio.gather(*served.joined, return_exceptions=True)
    lines: list[Line] = read_transcript(tmp_path / "server")
    assert [line.note for line in lines if line.kind == "Hello" and line.note] == ["leaves for good"]
    for name in NAMES:
        assert compare_transcripts(tmp_path / "server", tmp_path / name).messages > 10


@pytest.mark.slow
@pytest.mark.full
def test_processes_that_are_killed_have_a_line_for_all_that_the_others_got_from_them(tmp_path: Path) -> None:
    """The server and a node are killed while messages fly; nothing that arrived is missing at its sender."""
    with Processes(tmp_path, secure_sums=True) as parties:
        parties.start("server", *THREE)
        for number, name in ((5, "node-1"), (20, "server"), (40, "node-2")):
            parties.reach(number)
            parties.kill(name)
            parties.start(name)
        parties.finish()
    for name in THREE:
        found = compare_transcripts(tmp_path / "checkpoint", tmp_path / name, authority(tmp_path))
        assert found.streams >= 2
