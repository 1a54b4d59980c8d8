"""Certificates: who is let in, and what the files look like."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AttributeOID, NameOID

from commands import call
from fed_ucbvi import FedUCBVI, InputError, synthetic
from fed_ucbvi.network.certificates import TLSFiles, make_certificates, read_request
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import RemoteServer
from network import LOOPBACK, federate, make_nodes

WORLD = synthetic(agents=1, states=2, actions=2, horizon=2)


def test_keys_are_private_and_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    written = make_certificates(
        tmp_path, server="registry", hosts=["registry.example.org", "10.0.0.7"], nodes=["a", "b"]
    )
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


def said(*arguments: str) -> tuple[int, str]:
    done = call(*arguments)
    return done.exit_code, done.output


def test_every_party_makes_its_own_key_and_takes_part_with_what_the_authority_signed(tmp_path: Path) -> None:
    authority, own = tmp_path / "authority", tmp_path / "own"
    for name, more in (("server", ("--server", "--host", "127.0.0.1")), ("node-0", ())):
        code, text = said("certs", "request", name, "--out", str(own), "--json")
        asked = json.loads(text)
        assert (code, asked["name"]) == (0, name)
        request, key = (Path(path) for path in asked["written"])
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert b"PRIVATE" not in request.read_bytes()
        code, text = said("certs", "sign", str(request), "--out", str(authority), *more, "--json")
        assert code == 0, text
        assert json.loads(text)["fingerprint"] == asked["fingerprint"]
        shutil.copy(authority / f"{name}.crt", own)
    shutil.copy(authority / "ca.crt", own)
    assert {path.name for path in authority.iterdir()} == {"ca.crt", "ca.key", "node-0.crt", "server.crt"}
    plan = plan_for(FedUCBVI(nu=10), WORLD, 5)
    assert federate(plan, make_nodes(WORLD, [1]), partial(TLSFiles.of, own), address=LOOPBACK).run.complete
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
        code, text = said("certs", *arguments)
        assert (code, says in text) == (2, True), (arguments, text)
    assert not (tmp_path / "new").exists()
    code, text = said("certs", "--out", str(authority), "request", "x", "--out", str(own))
    assert (code, "put options behind" in text) == (2, True)


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
        (node,) = make_nodes(WORLD, [1])
        with pytest.raises(InputError, match="--insecure is for this machine alone"):
            asyncio.run(run_node(node, RemoteServer(address)))


def test_the_commands_make_revoke_and_refuse(tmp_path: Path) -> None:
    folder = str(tmp_path / "certs")
    code, text = said("certs", "--out", folder, "--server", "registry", "--node", "a", "--node", "b", "--json")
    assert code == 0
    assert len(json.loads(text)["written"]) == 8
    code, text = said("certs", "--out", folder, "--revoke", "b", "--json")
    assert (code, json.loads(text)["revoked"]) == (0, ["b"])
    for arguments, says in (
        (("certs", "--out", folder), "nothing to do"),
        (("certs", "--out", folder, "--node", "a"), "'a' already"),
        (("certs", "--out", folder, "--revoke", "z"), "no certificate 'z'"),
        (("certs", "--out", folder, "--host", "x", "--node", "y"), "name the --server"),
        (("serve", "--env", "gridworld"), "either --certs DIR"),
        (("serve", "--insecure", "--listen", "0.0.0.0:1", "--env", "gridworld"), "this machine alone"),
        (("serve", "--insecure"), "one of --env NAME"),
        (("serve", "--insecure", "--sizes", "3,x,4"), "three whole numbers"),
        (("serve", "--certs", folder, "--name", "nobody", "--sizes", "3,2,4"), "nobody.crt is missing"),
        (("serve", "--insecure", "--sizes", "3,2,4", "--on-away", "hope"), "unknown on_away"),
        (("join", "localhost:1", "--name", "a", "--insecure", "--env", "nowhere:at_all"), "cannot load"),
        (("join", "localhost", "--name", "a", "--insecure"), "HOST:PORT"),
        (("join", "localhost:1", "--name", "nobody", "--certs", folder), "nobody.crt is missing"),
        (("join", "localhost:1", "--name", "a", "--certs", folder, "--env", "x.npz"), "x.npz is not a file"),
    ):
        code, text = said(*arguments)
        assert code == 2, arguments
        assert says in text
