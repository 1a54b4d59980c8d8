"""The end of a run is on record, and a node that was away when it was told learns it all the same."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import refusal
from faults import SPLIT, WORLD, plan
from fed_ucbvi import InputError, load_policy
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.client import ask_policy, run_node
from fed_ucbvi.network.server_checkpoint import POLICY_FILE
from fed_ucbvi.network.transport import RemoteServer
from fed_ucbvi.results.policy import LearntPolicy
from federation_processes import SERVER, Party, Processes
from network import LOOPBACK, SECONDS, Served, assert_simulation, federate, make_nodes, tell

HOST = "127.0.0.1"


def test_a_node_that_missed_the_end_takes_the_policy_that_the_server_signed(tmp_path: Path, certs: Path) -> None:
    nodes = make_nodes(WORLD, SPLIT, tmp_path)
    file = tmp_path / "checkpoint" / POLICY_FILE
    outcome = federate(plan(), nodes, lambda name: TLSFiles.of(certs, name), tmp_path / "checkpoint")
    policy = load_policy(file, authority=certs / "ca.crt", server=HOST)
    assert (policy.run, policy.episodes, policy.final) == ("the-run", 120, True)
    assert policy.rounds == len(outcome.run.records["length"])
    assert_simulation(outcome, plan())
    assert np.array_equal(policy.table, outcome.run.policy)
    for node in nodes:  # with the end, in the same words
        assert node.policy.to_bytes() == file.read_bytes()

    def look(result: Path) -> tuple[Any, LearntPolicy | None]:
        """A new process, that knows its state folder and finds no server."""
        late = make_nodes(WORLD, SPLIT, tmp_path)[1]
        return late, tell(run_node(late, RemoteServer(f"{HOST}:1", TLSFiles.of(certs, late.name)), result=result))

    late, told = look(file)
    assert told is not None
    assert told.run == "the-run"
    assert late.finished
    assert np.array_equal(late.policy.table, outcome.run.policy)

    key = TLSFiles.of(certs, "server").read()[1:]
    for other, says in (
        (replace(policy, run="another"), "the policy of run another; this node holds the state of run the-run"),
        (replace(policy, final=False), "which was not its last"),
    ):
        other.signed(*key).save(tmp_path / "other.json")
        with pytest.raises(InputError, match=says):
            look(tmp_path / "other.json")


POLICY = LearntPolicy(np.zeros((2, 3), dtype=np.int32), 2, {}, np.nan, "run", 3, 9)


def test_a_policy_that_the_server_has_not_signed_is_not_trusted(tmp_path: Path, certs: Path) -> None:
    theirs = tmp_path / "theirs"
    file = tmp_path / "policy.json"
    make_certificates(theirs, server="server")
    good = POLICY.signed(*TLSFiles.of(certs, "server").read()[1:])

    def read(policy: LearntPolicy, server: str | None = HOST) -> LearntPolicy:
        policy.save(file)
        return load_policy(file, authority=certs / "ca.crt", server=server)

    assert read(good).run == "run"
    assert read(good, None).signature
    forged = (
        (POLICY, HOST, "it is not signed"),
        (good, "hub.example.org", "not for 'hub.example.org'"),
        (POLICY.signed(*TLSFiles.of(certs, "node-0").read()[1:]), None, "damaged, or names no host|lacks serverAuth"),
        (POLICY.signed(*TLSFiles.of(theirs, "server").read()[1:]), HOST, "not of this federation's authority"),
        (replace(good, table=good.table + 1), HOST, "not what the server signed"),
        (replace(good, episodes=10), HOST, "not what the server signed"),
        (replace(good, signature="AAAA"), HOST, "not what the server signed"),
        (replace(good, signature="no base64"), HOST, "not what the server signed"),
        (replace(good, certificate="none"), HOST, "damaged"),
    )
    for policy, server, says in forged:
        with pytest.raises(InputError, match=rf"not to be trusted: .*({says})"):
            read(policy, server)
        assert load_policy(file).states == 3  # whoever does not ask for a signature can read it
    with pytest.raises(InputError, match="is missing"):
        load_policy(file, authority=tmp_path / "none.crt")


def test_a_file_whose_actions_were_changed_is_damaged(tmp_path: Path) -> None:
    content = json.loads(POLICY.to_bytes())
    content["policy"][0][0] = 1
    (tmp_path / "policy.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match="its actions do not have the digest that it gives"):
        load_policy(tmp_path / "policy.json")


async def test_a_node_that_finds_no_server_takes_a_policy_that_comes_meanwhile(tmp_path: Path, certs: Path) -> None:
    node = make_nodes(WORLD, SPLIT)[0]
    tls_files = TLSFiles.of(certs, node.name)
    with pytest.raises(InputError, match=r"no connection .* same command once it is back.* add --result FILE"):
        await run_node(node, RemoteServer(f"{HOST}:1", tls_files), patience=0.01)
    nowhere = RemoteServer(f"{HOST}:1", tls_files)
    looking = asyncio.ensure_future(run_node(node, nowhere, result=tmp_path / POLICY_FILE))
    await asyncio.sleep(0.05)
    POLICY.signed(*TLSFiles.of(certs, "server").read()[1:]).save(tmp_path / POLICY_FILE)
    told = await looking
    assert told is not None
    assert (told.run, told.rounds) == ("run", 3)


def test_a_nodes_policy_replaces_an_earlier_one_only_if_it_may(tmp_path: Path) -> None:
    out = tmp_path / "policy.json"
    join = ("join", "127.0.0.1:1", "--insecure", "--name", "a", "--patience", "0")
    POLICY.save(out)
    earlier = out.read_bytes()
    assert "exists; choose another name, or allow overwriting it (--overwrite)" in refusal(*join, "--out", out)
    assert "no connection" in refusal(*join, "--out", out, "--overwrite")
    assert out.read_bytes() == earlier


async def test_a_node_may_ask_for_the_policy(tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked after every round, by a node that takes part and by one that does not; the run is what it was."""
    asked: list[LearntPolicy] = []
    listed = plan(nodes=("node-0", "node-1", "node-2"))
    served = Served(listed, None, lambda name: TLSFiles.of(certs, name), LOOPBACK)
    advance = served.coordinator._advance

    async def ask(name: str) -> None:
        asked.append(await ask_policy(served.remote(name)))

    async def advance_and_ask() -> Any:
        if served.coordinator.round == 0:
            with pytest.raises(InputError, match="no policy has been recommended yet"):
                await ask("node-0")
        past = await advance()
        await ask("node-0")
        await ask("node-2")
        with pytest.raises(InputError, match="'node-3' is not on the list of nodes"):
            await ask("node-3")
        return past

    monkeypatch.setattr(served.coordinator, "_advance", advance_and_ask)
    served.join(*make_nodes(WORLD, SPLIT))
    outcome = await served.finish()
    assert_simulation(outcome, plan())
    run = outcome.run
    rounds = [policy.rounds for policy in asked]
    assert rounds == sorted(rounds)
    assert set(rounds) == set(run.recommendations["round"].tolist())
    assert [policy.final for policy in asked] == [policy.rounds == rounds[-1] for policy in asked]
    assert all(policy.signature and policy.run == "the-run" for policy in asked)
    assert np.array_equal(asked[-1].table, run.policy)


async def test_a_node_that_is_away_at_the_end_is_told_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word goes to a stream that is opened after the other node has heard it and left."""
    monkeypatch.setattr("fed_ucbvi.network.server.FAREWELL_SECONDS", SECONDS)
    served = Served(plan())
    registry = served.registry
    leaving, staying = served.join(*make_nodes(WORLD, SPLIT))

    async def last_round() -> None:
        await registry.wait_until(lambda: registry.complete(), SECONDS)
        served.coordinator.begun = True
        leaving.cancel()
        await registry.wait_until(lambda: registry.connected == 1, SECONDS)

    monkeypatch.setattr(served.coordinator, "run", last_round)
    serving = served.start()
    await staying
    assert not serving.done()
    again = make_nodes(WORLD, SPLIT)[0]
    await run_node(again, served.remote())
    await serving
    assert again.finished
    assert not again.policy.signature


@pytest.mark.full
def test_processes_started_after_the_end_learn_it_from_file_or_server(tmp_path: Path, certs: Path) -> None:
    with Processes(tmp_path, "--overwrite", certs=certs) as processes:
        processes.start(SERVER, "node-0", "node-1")
        run, _ = processes.finish()
        words = processes.joining("node-0")
        out = tmp_path / "mine" / "policy.json"
        told = Party(*words, "--result", str(tmp_path / "checkpoint" / POLICY_FILE), "--out", str(out))
        assert told.end() == 0, told.words()
        policy = json.loads("".join(told.said["stdout"]))["policy"]
        assert (policy["final"], policy["signed"], policy["file"]) == (True, True, str(out))
        assert load_policy(out, authority=certs / "ca.crt", server=HOST).digest == policy["policy_sha256"]
        processes.start(SERVER, "node-0", "node-1")  # each again by the command it had
        again, _ = processes.finish()
    assert run.complete
    assert np.array_equal(again.policy, run.policy)
