"""The end of a run is on record, and a node that was away when it was told learns it all the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from enemies import SECONDS, SPLIT, WORLD, plan, simulated
from fed_ucbvi import InputError
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.client import take_part
from fed_ucbvi.network.server import Service
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.network.signed_result import FILE, SignedResult, read_result, write_result
from fed_ucbvi.network.transport import TLSFiles
from federation_processes import SERVER, Party, Processes
from network import federate, make_nodes

HOST = "127.0.0.1"


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    make_certificates(folder, server="server", nodes=["node-0", "node-1"])
    return folder


def test_a_server_signs_the_result_and_a_node_that_missed_the_end_takes_it_from_there(
    tmp_path: Path, certs: Path
) -> None:
    checkpoint = ServerCheckpoint(tmp_path / "checkpoint")
    nodes = make_nodes(WORLD, SPLIT, tmp_path)
    outcome = federate(checkpoint.adopt(plan()), nodes, lambda name: TLSFiles.of(certs, name), checkpoint)
    file = checkpoint.folder / FILE
    result = read_result(file, (certs / "ca.crt").read_bytes(), HOST)
    assert (result.run, result.episodes) == ("the-run", 120)
    assert result.rounds == len(outcome.run.records["length"])
    assert np.array_equal(result.policy, simulated().policy)

    late = make_nodes(WORLD, SPLIT, tmp_path)[1]  # a new process that knows its state folder
    told = asyncio.run(take_part(late, f"{HOST}:1", TLSFiles.of(certs, late.name), result=file))
    assert told is not None
    assert told.run == "the-run"
    assert late.finished
    assert late.recommended is not None
    assert np.array_equal(late.recommended, outcome.run.policy)

    other = write_result(tmp_path, result._replace(run="another"), TLSFiles.of(certs, "server"))
    late = make_nodes(WORLD, SPLIT, tmp_path)[1]
    with pytest.raises(InputError, match="the result of run another; this node holds the state of run the-run"):
        asyncio.run(take_part(late, f"{HOST}:1", TLSFiles.of(certs, late.name), result=other))


def test_a_result_that_the_server_has_not_signed_does_not_count(tmp_path: Path, certs: Path) -> None:
    theirs = tmp_path / "theirs"
    make_certificates(theirs, server="server")
    authority = (certs / "ca.crt").read_bytes()
    result = SignedResult("run", 3, 9, np.zeros((2, 3), dtype=np.int32))
    file = write_result(tmp_path, result, TLSFiles.of(certs, "server"))
    good = json.loads(file.read_text(encoding="utf-8"))
    assert read_result(file, authority, HOST).run == "run"
    with pytest.raises(InputError, match=r"does not count: .* not for 'hub.example.org'"):
        read_result(file, authority, "hub.example.org")
    for party, says in (("node-0", "lacks serverAuth"), ("server", "not of this federation's authority")):
        write_result(tmp_path, result, TLSFiles.of(certs if party == "node-0" else theirs, party))
        with pytest.raises(InputError, match=says):
            read_result(file, authority, "node-0" if party == "node-0" else HOST)
    for changes, says in (
        ({"signed": good["signed"].replace("[0, 0, 0]", "[1, 0, 0]")}, "not what the server signed"),
        ({"signature": ""}, "not what the server signed"),
        ({"signature": 7}, "no signed result"),
        ({"certificate": "none"}, "damaged"),
    ):
        file.write_text(json.dumps({**good, **changes}), encoding="utf-8")
        with pytest.raises(InputError, match=says):
            read_result(file, authority, HOST)
    file.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="no signed result"):
        read_result(file, authority, HOST)


def test_a_node_that_finds_no_server_says_what_to_do_and_takes_a_result_that_comes_while_it_looks(
    tmp_path: Path, certs: Path
) -> None:
    node = make_nodes(WORLD, SPLIT)[0]
    tls_files = TLSFiles.of(certs, node.name)

    async def story() -> SignedResult | None:
        with pytest.raises(InputError, match=r"no connection .* same command once it is back.* add --result FILE"):
            await take_part(node, f"{HOST}:1", tls_files, patience=0.01)
        looking = asyncio.ensure_future(take_part(node, f"{HOST}:1", tls_files, result=tmp_path / FILE))
        await asyncio.sleep(0.05)
        write_result(
            tmp_path, SignedResult("run", 3, 9, np.zeros((3, 3), dtype=np.int32)), TLSFiles.of(certs, "server")
        )
        return await looking

    told = asyncio.run(asyncio.wait_for(story(), SECONDS))
    assert told is not None
    assert (told.run, told.rounds) == ("run", 3)


def test_a_node_that_is_away_at_the_end_is_told_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word goes to a stream that is opened after the other node has heard it and left."""
    monkeypatch.setattr("fed_ucbvi.network.server.FAREWELL_SECONDS", SECONDS)

    async def story() -> None:
        service = Service(plan(), f"{HOST}:0", None)
        registry, address = service.registry, f"{HOST}:{service.port}"
        away, steady = make_nodes(WORLD, SPLIT)
        leaving = asyncio.ensure_future(take_part(away, address, None))
        staying = asyncio.ensure_future(take_part(steady, address, None))

        async def last_round() -> None:
            await registry.wait_until(lambda: registry.complete, SECONDS)
            registry.begun = True
            leaving.cancel()
            await registry.wait_until(lambda: registry.connected == 1, SECONDS)

        monkeypatch.setattr(service.coordinator, "run", last_round)
        serving = asyncio.ensure_future(service.run())
        await staying
        assert not serving.done()
        again = make_nodes(WORLD, SPLIT)[0]
        await take_part(again, address, None)
        await serving
        assert again.finished
        assert again.recommended is not None

    asyncio.run(asyncio.wait_for(story(), SECONDS))


def test_processes_started_after_the_end_learn_it_from_the_file_or_from_the_server_started_again(
    tmp_path: Path, certs: Path
) -> None:
    with Processes(tmp_path, "--overwrite", certs=certs) as processes:
        processes.start(SERVER, "node-0", "node-1")
        run, _ = processes.finish()
        words = processes._join("node-0", None)
        told = Party(*words, "--result", str(tmp_path / "checkpoint" / FILE))
        assert told.end() == 0, told.words()
        assert json.loads("".join(told.said["stdout"]))["policy_received"]
        processes.start(SERVER, "node-0", "node-1")  # each again by the command it had
        again, _ = processes.finish()
    assert run.complete
    assert np.array_equal(again.policy, run.policy)
