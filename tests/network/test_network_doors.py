"""Doors: who is let in before anything is read, how much a peer may send, certificates and how they are made.

The health service that probes know is behind the same TLS as everything else.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import logging
import shutil
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AttributeOID, NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from commands import call, refusal
from enemies import SPLIT, WORLD, Arriving, hello_of, long_fault, outcome_of, plan, simulated, without_usage
from fed_ucbvi import FedUCBVI, InputError, synthetic
from fed_ucbvi.network import server, transport
from fed_ucbvi.network.certificates import (
    TLSFiles,
    make_certificates,
    read_request,
    revoke,
    revoked_names,
    sign_request,
    write_request,
)
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.failures import ViolationError
from fed_ucbvi.network.members import NodeStream
from fed_ucbvi.network.messages import PART_BYTES, Fault, Part, encode, in_parts
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import SERVICE, RemoteServer, WireCount
from network import LOOPBACK, Served, assert_same, assert_simulated, federate, make_nodes


def served(certs: Path, name: str = "server") -> Served:
    """A server that waits for nodes."""

    def files(party: str) -> TLSFiles:
        return TLSFiles.of(certs, name if party == "server" else party)

    return Served(plan(), None, files, LOOPBACK, revoked=lambda: revoked_names(certs))


# ------------------------------------------------------------------------------------------------- before reading


async def test_nothing_is_read_from_the_revoked_and_little_from_those_not_yet_let_in(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["lost", "node-0"])
    revoke(tmp_path, ["lost"])
    long = in_parts(long_fault(2 * PART_BYTES))
    async with served(tmp_path) as hub:
        for messages in ([], long):
            assert "has been revoked" in await outcome_of(hub.remote("lost"), messages)
        assert vars(hub.registry.wire) == vars(WireCount())
        assert "above the limit of 65536" in await outcome_of(hub.remote("node-0"), long[:1])
        assert hub.registry.wire.bytes_up < 2 * PART_BYTES


async def test_a_certificate_that_does_not_say_what_it_is_for_opens_no_door(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["node-0"])
    without_usage(tmp_path, "vague", "node-0")
    (node,) = make_nodes(WORLD, [3])
    async with served(tmp_path) as hub:
        told = await outcome_of(hub.remote("vague"), [hello_of(node)])
        assert told == "the certificate is not one for nodes (its extended key usage lacks clientAuth)"
        assert vars(hub.registry.wire) == vars(WireCount())
    async with served(tmp_path, "vague") as hub:
        remote = RemoteServer(f"localhost:{hub.server.port}", TLSFiles.of(tmp_path, "node-0"))
        with pytest.raises(InputError, match=r"not one for servers \(its extended key usage lacks serverAuth\)"):
            await run_node(node, remote, patience=0.1)


async def test_a_server_that_shows_anothers_certificate_is_left_before_a_word_is_said(tmp_path: Path) -> None:
    """It has a certificate that does not say what it is for, and shows the real server's, whose key it has not."""
    make_certificates(tmp_path, server="server", nodes=["node-0"])
    vague = without_usage(tmp_path, "vague", "server")
    streams = []

    async def session(_: Any, context: Any) -> None:
        streams.append(context)

    async def show(_: Any, context: Any) -> bytes:
        return (tmp_path / "server.crt").read_bytes()

    authority, certificate, key = vague.read()
    server = grpc.aio.server()
    handlers = {
        transport.METHOD: grpc.stream_stream_rpc_method_handler(session),
        transport.CERTIFICATE: grpc.unary_unary_rpc_method_handler(show),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    (node,) = make_nodes(WORLD, [3])
    try:
        with pytest.raises(InputError) as failure:
            await run_node(node, RemoteServer(f"localhost:{port}", TLSFiles.of(tmp_path, "node-0")), patience=0.1)
    finally:
        await server.stop(None)
    assert "no connection" in str(failure.value)
    assert streams == []


async def test_a_name_with_line_breaks_is_logged_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_certificates(tmp_path, server="server")
    without_usage(tmp_path, "forged", "x\nroot: all is well\x1b[31m")
    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        async with served(tmp_path) as hub:
            told = await outcome_of(hub.remote("forged"), [])
    assert r"'x\nroot: all is well\x1b[31m' cannot be a node's name" in told
    assert all(message.isprintable() for message in caplog.messages)
    assert told in caplog.text


async def test_one_name_may_open_so_many_streams_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_certificates(tmp_path, server="server", nodes=["node-0", "node-1", "flood"])
    monkeypatch.setattr(server, "MAX_ATTEMPTS", 3)
    async with served(tmp_path) as hub:
        told = [await outcome_of(hub.remote("flood"), [b""]) for _ in range(5)]
        assert ["no message" in reason for reason in told] == [True, True, True, False, False]
        assert told[3] == told[4] == "too many streams in 60 s"
        assert hub.registry.wire.messages_up == 3
        await asyncio.gather(*hub.join(*make_nodes(WORLD, SPLIT)))


# ------------------------------------------------------------------------------------------------- messages in parts


def received(frames: Sequence[bytes], most_bytes: int = 1 << 20) -> Any:
    """What a server's stream makes of these."""
    stream = NodeStream(Arriving(*frames), WireCount())
    stream.most_bytes = most_bytes
    return asyncio.run(stream.receive())


def test_a_long_message_is_put_together_and_one_that_cannot_be_is_a_violation() -> None:
    fault = long_fault(3 * PART_BYTES)
    parts = in_parts(fault)
    assert [len(part) <= PART_BYTES + 16 for part in parts] == 4 * [True]
    assert isinstance(received(parts), Fault)
    assert in_parts(fault[:PART_BYTES]) == [fault[:PART_BYTES]]
    endless = encode(Part(b"x" * PART_BYTES, more=True))
    for frames, limit, says in (
        (parts, 3 * PART_BYTES, "above the limit of 196608"),
        (100 * [endless], 3 * PART_BYTES, "above the limit of 196608"),
        ([fault], 1 << 30, "above the limit of 65552"),
        (100 * [encode(Part(b"", more=True))], 1 << 20, "a part of 0 bytes where 65536 are due"),
        ([endless, encode(Fault("no"))], 1 << 20, "a Fault among the parts of another message"),
        ([endless, encode(Part(b"x", more=False))], 1 << 20, "no message of this protocol"),
        ([encode(Part(parts[-1], more=False))], 1 << 20, "parts of parts"),
    ):
        with pytest.raises(ViolationError, match=says):
            received(frames, limit)


def test_a_run_whose_reports_travel_in_parts_is_the_simulation() -> None:
    """A report has four numbers a pair: 77 kB."""
    world = synthetic(agents=2, eps_p=0.1, seed=1, states=300, actions=8, horizon=2)
    assert_simulated(FedUCBVI(synchronisation="local"), world, 3, 2, [1, 1])


# ------------------------------------------------------------------------------------------------- while a run lasts


async def test_a_revoked_nodes_open_stream_is_closed_and_the_node_told_why(tmp_path: Path) -> None:
    make_certificates(tmp_path, server="server", nodes=["node-0"])
    async with served(tmp_path) as hub:
        (joined,) = hub.join(make_nodes(WORLD, SPLIT)[0])
        await hub.meet()
        revoke(tmp_path, ["node-0"])
        with pytest.raises(InputError, match="the certificate of 'node-0' has been revoked"):
            await joined
        assert not hub.registry.members


async def test_certificates_are_renewed_while_a_run_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The node's old one is revoked under its open stream; the node comes back with the new one by itself."""
    ours, own = tmp_path / "ours", tmp_path / "own"
    for name in ("server", "node-0", "node-1"):
        request, _ = write_request(own, name)
        sign_request(ours, read_request(request.read_bytes()), server=name == "server")
        shutil.copy(ours / f"{name}.crt", own)
    shutil.copy(ours / "ca.crt", own)

    def renew(name: str, *, server: bool = False) -> None:
        """A new certificate for a new key, put in place of the old ones."""
        request, key = write_request(tmp_path / "fresh", name)
        sign_request(ours, read_request(request.read_bytes()), server=server, renew=True)
        shutil.copy(key, own)
        shutil.copy(ours / f"{name}.crt", own)

    with caplog.at_level(logging.WARNING, "fed_ucbvi.federation"):
        hub = Served(plan(), None, lambda name: TLSFiles.of(own, name), LOOPBACK, revoked=lambda: revoked_names(ours))
        registry, probe = hub.registry, RemoteServer(f"127.0.0.1:{hub.server.port}", TLSFiles.of(own, "node-1"))
        nodes = make_nodes(WORLD, SPLIT)
        hub.join(nodes[0])
        await hub.meet()
        before = registry.members["node-0"].stream
        renew("node-0")
        revoke(ours, ["node-0"], replaced=True)
        while registry.connected == 0 or registry.members["node-0"].stream is before:
            await asyncio.sleep(0.01)

        old = await probe.certificate()
        good = (own / "server.key").read_bytes()
        (own / "server.key").write_bytes((own / "node-1.key").read_bytes())  # half of a change
        assert await probe.certificate() == old
        (own / "server.key").write_bytes(good)
        renew("server", server=True)
        assert await probe.certificate() == (own / "server.crt").read_bytes() != old
        hub.join(nodes[1])
        outcome = await hub.finish()
        assert_same(outcome.run, simulated(), regret=False)
    assert "keeps the certificate it has: the key is not that of the certificate" in caplog.text
    assert len(revoked_names(ours)) == 1
    assert revoked_names(ours)[0].startswith("node-0 ")


# ------------------------------------------------------------------------------------------------------------ health

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def asking(service: str = "") -> Any:
    return health_pb2.HealthCheckRequest(service=service)


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call that is refused ends."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def test_a_monitor_with_a_certificate_is_told_and_a_stranger_is_not(tmp_path: Path) -> None:
    """The monitor is not on the list of nodes. It watches from before the first node comes to the end of the run."""
    names = ("node-0", "node-1")
    make_certificates(tmp_path, server="server", nodes=[*names, "monitor"])
    hub = Served(plan(nodes=names), None, partial(TLSFiles.of, tmp_path), LOOPBACK)
    own = TLSFiles.of(tmp_path, "monitor")
    hub.start()
    address, authority = f"127.0.0.1:{hub.server.port}", own.authority.read_bytes()
    async with (
        RemoteServer(address, own).open() as channel,
        grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority)) as stranger,
    ):
        monitor = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            assert (await monitor.Check(asking(name))).status == SERVING
        assert await code_of(monitor.Check(asking("grpc.health.v1.Other"))) == grpc.StatusCode.NOT_FOUND
        refused = health_pb2_grpc.HealthStub(stranger).Check(asking(), timeout=300)
        assert await code_of(refused) == grpc.StatusCode.UNAVAILABLE
        watch = monitor.Watch(asking())
        assert (await watch.read()).status == SERVING
        hub.join(*make_nodes(WORLD, SPLIT))
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        await hub.finish()


async def test_a_server_that_is_stopped_says_so_and_watchers_may_leave(caplog: pytest.LogCaptureFixture) -> None:
    """No error is logged about one that leaves."""
    hub = Served(plan(), address=LOOPBACK)
    run = hub.start()
    async with RemoteServer(f"127.0.0.1:{hub.server.port}").open() as channel:
        monitor = health_pb2_grpc.HealthStub(channel)
        watches = [monitor.Watch(asking(SERVICE)), monitor.Watch(asking("other"))]
        assert [(await watch.read()).status for watch in watches] == [SERVING, UNKNOWN]
        watches.pop().cancel()
        run.cancel()
        assert (await watches[0].read()).status == NOT_SERVING
        watches[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


# ------------------------------------------------------------------------------------------------------- certificates


def test_keys_are_private_and_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    names = ["registry.example.org", "10.0.0.7"]
    written = make_certificates(tmp_path, server="registry", hosts=names, nodes=["a", "b"])
    names = [f"{name}.{kind}" for name in ("ca", "registry", "a", "b") for kind in ("crt", "key")]
    assert [path.name for path in written] == names
    for path in written:
        if path.suffix == ".key":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    for name in ("registry", "a"):
        certificate = x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes())
        certificate.verify_directly_issued_by(authority)
        assert certificate.subject.rfc4514_string() == f"CN={name}"
        life = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        assert 364 < life.days + 1 < 366
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert [oid._name for oid in usage] == ["serverAuth" if name == "registry" else "clientAuth"]
    registry = x509.load_pem_x509_certificate((tmp_path / "registry.crt").read_bytes())
    hosts = registry.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "registry.example.org" in hosts.get_values_for_type(x509.DNSName)
    assert "10.0.0.7" in map(str, hosts.get_values_for_type(x509.IPAddress))


def test_certificates_are_never_replaced(tmp_path: Path) -> None:
    make_certificates(tmp_path, nodes=["a"])
    before = (tmp_path / "ca.key").read_bytes()
    with pytest.raises(InputError, match="'a' already"):
        make_certificates(tmp_path, nodes=["a"])
    make_certificates(tmp_path, nodes=["b"])
    assert (tmp_path / "ca.key").read_bytes() == before
    (tmp_path / "ca.key").unlink()
    with pytest.raises(InputError, match="where the authority's key is"):
        make_certificates(tmp_path, nodes=["c"])
    for name in ("", "a/b", "..", "x" * 64, "ca"):
        with pytest.raises(InputError):
            make_certificates(tmp_path / "other", nodes=[name])


def told(*arguments: object) -> Any:
    """What a command gives as JSON."""
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_every_party_makes_its_own_key_and_takes_part_with_what_the_authority_signed(tmp_path: Path) -> None:
    authority, own = tmp_path / "authority", tmp_path / "own"
    for name, more in (("server", ("--server", "--host", "127.0.0.1")), ("node-0", ())):
        asked = told("certs", "request", name, "--out", own)
        assert asked["name"] == name
        request, key = (Path(path) for path in asked["written"])
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert b"PRIVATE" not in request.read_bytes()
        signed = told("certs", "sign", request, "--out", authority, *more)
        assert signed["fingerprint"] == asked["fingerprint"]
        shutil.copy(authority / f"{name}.crt", own)
    shutil.copy(authority / "ca.crt", own)
    assert {path.name for path in authority.iterdir()} == {"ca.crt", "ca.key", "node-0.crt", "server.crt"}
    plan = plan_for(FedUCBVI(), WORLD, 5)
    assert federate(plan, make_nodes(WORLD, [3]), partial(TLSFiles.of, own), address=LOOPBACK).run.complete
    request_file = str(own / "node-0.csr")
    for arguments, says in (
        (("request", "node-0", "--out", str(own)), "there is a key 'node-0'"),
        (("request", "a b", "--out", str(own)), "cannot be a node's name"),
        (("request", "ca", "--out", str(own)), "there is a key 'ca'"),
        (("sign", request_file, "--out", str(authority)), "already; --renew makes another"),
        (("sign", request_file, "--out", str(tmp_path / "new"), "--renew"), "no certificate 'node-0'"),
        (("sign", request_file, "--out", str(authority), "--host", "x"), "pass --server"),
        (("sign", request_file, "--out", str(own)), "already"),
        (("sign", str(own / "none.csr"), "--out", str(authority)), "No such file"),
    ):
        assert says in refusal("certs", *arguments)
    assert not (tmp_path / "new").exists()
    assert "put options behind" in refusal("certs", "--out", authority, "request", "x", "--out", own)


def test_a_request_that_asks_for_more_than_a_name_or_is_not_its_keys_own_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())

    def subject(*names: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])

    def pem(builder: x509.CertificateSigningRequestBuilder, by: Any = key) -> bytes:
        return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    builder = x509.CertificateSigningRequestBuilder()
    plain = builder.subject_name(subject("node-0"))
    assert read_request(pem(plain)).name == "node-0"
    der = bytearray(x509.load_pem_x509_csr(pem(plain)).public_bytes(serialization.Encoding.DER))
    place = der.index(b"node-0")
    der[place : place + 6] = b"node-1"
    forged = b"-----BEGIN CERTIFICATE REQUEST-----\n%s-----END CERTIFICATE REQUEST-----\n" % base64.encodebytes(der)
    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "clinic")
    for request, says in (
        (forged, "not signed with its own key"),
        (pem(plain.add_extension(x509.SubjectAlternativeName([x509.DNSName("hub")]), critical=False)), "more than a"),
        (pem(plain.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)), "more than a"),
        (pem(plain.add_attribute(AttributeOID.CHALLENGE_PASSWORD, b"sesame")), "more than a name"),
        (pem(builder.subject_name(x509.Name([*subject("node-0"), organisation]))), "more than a name"),
        (pem(builder.subject_name(subject())), "0 names where one is needed"),
        (pem(builder.subject_name(subject("a", "b"))), "2 names where one is needed"),
        (pem(builder.subject_name(subject("../node"))), "cannot be a node's name"),
        (pem(builder.subject_name(subject("ca"))), "the authority's own name"),
        (pem(plain, ec.generate_private_key(ec.SECP384R1())), "not of the kind P-256"),
        (b"hello", "no signing request"),
        (b"x" * 20_000, "more than 16384 bytes"),
    ):
        with pytest.raises(InputError, match=says):
            read_request(request)


def test_insecure_is_refused_off_loopback() -> None:
    for address in ("0.0.0.0:0", "10.1.2.3:5", "[::]:5", "example.org:1"):
        with pytest.raises(InputError, match="--insecure is for this machine alone"):
            FederationServer(plan_for(FedUCBVI(), WORLD, 5), address, None)
        (node,) = make_nodes(WORLD, [3])
        with pytest.raises(InputError, match="--insecure is for this machine alone"):
            asyncio.run(run_node(node, RemoteServer(address)))


def test_the_commands_make_and_revoke(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    made = told("certs", "--out", folder, "--server", "registry", "--node", "a", "--node", "b")
    assert len(made["written"]) == 8
    assert told("certs", "--out", folder, "--revoke", "b")["revoked"] == ["b"]
