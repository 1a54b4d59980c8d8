"""Commands of the network that are refused, each with a reason, and certificates and how they are made."""

from __future__ import annotations

import asyncio
import base64
import datetime
import shlex
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import AttributeOID, NameOID

from commands import refusal, told
from faults import WORLD, unusual_certificate
from fed_ucbvi import FedUCBVI, InputError
from fed_ucbvi.network.certificates import TLSFiles, make_certificates, node_name, read_request, write_request
from fed_ucbvi.network.client import run_node
from fed_ucbvi.network.messages import Ready, RosterEntry
from fed_ucbvi.network.roster import Authority, der_of
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.server import FederationServer
from fed_ucbvi.network.transport import RemoteServer
from network import LOOPBACK, federate, make_nodes

JOIN = "join 127.0.0.1:1 --insecure --name a"
LIVE = f"{JOIN} --live FrozenLake-v1"
SECURE = "serve --certs c --sizes 3,2,3 --secure-sums"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("certs --out CERTS", "nothing to do"),
        ("certs --out CERTS --node node-0", "'node-0' already"),
        ("certs --out CERTS --host x --node y", "name the --server"),
        ("serve --env gridworld", "either --certs DIR"),
        ("serve --insecure --listen 0.0.0.0:1 --env gridworld", "this machine alone"),
        ("serve --insecure", "one of --env NAME"),
        ("serve --insecure --sizes 3,x,4", "three whole numbers"),
        ("serve --certs CERTS --name nobody --sizes 3,2,4", "nobody.crt is missing"),
        ("serve --insecure --sizes 3,2,3 --quorum many", "whole number"),
        ("serve --insecure --sizes 500,2,10 --algorithm fed-kl-ucbvi", "numbers a message"),
        ("serve --insecure --env gridworld --secure-sums", "needs certificates"),
        ("serve --certs c --nodes a,b --env gridworld --secure-sums", "at least 3 nodes"),
        (
            f"{SECURE} --algorithm fed-ucbvi",
            "does not report what agents count in one round, which secure sums add up",
        ),
        (
            f"{SECURE} --algorithm byzan-ucbvi",
            "does not report what agents count in one round, which secure sums add up",
        ),
        ("join localhost:1 --name a --insecure --env nowhere:at_all", "cannot load"),
        ("join localhost --name a --insecure", "HOST:PORT"),
        ("join 127.0.0.1:abc --certs CERTS --name node-0", "'127.0.0.1:abc' is not of the form HOST:PORT."),
        ("join localhost:1 --name nobody --certs CERTS", "nobody.crt is missing"),
        ("join localhost:1 --name node-0 --certs CERTS --env x.npz", "x.npz is not a file"),
        (f"{JOIN} --agents 1000000000 --env synthetic", "1,000,000,000 agents on this node take at least"),
        (f"{LIVE} --agents 1000000000 --horizon 8 --reward-range 0,1", "take at least"),
        (f"{JOIN} --env gridworld --logs no.csv", "is not a file"),
        (f"{JOIN} --require-secure-sums", "needs certificates"),
        ("join 127.0.0.1:1 --certs CERTS --name node-0 --least-members 2", "at least 3"),
        ("join 127.0.0.1:1 --certs CERTS --name node-0 --members nowhere.txt", "cannot be read"),
        (f"{LIVE} --reward-range 1", "takes two numbers as LOW,HIGH, got '1'"),
        (f"{LIVE} --reward-range 1,0", "reward_range: high must be"),
        (f"{JOIN} --live CliffWalking-v1 --reward-range -100,0", "horizon is missing"),
        (f"{JOIN} --live Nothing-v0 --reward-range 0,1", "cannot make 'Nothing-v0'"),
        (f"{JOIN} --live nothing:make --reward-range 0,1", "cannot load nothing:make"),
        (f"{LIVE} --reward-range 0,1 --live-kwargs [1]", "takes a JSON object"),
        (f"{LIVE} --reward-range 0,1 --env gridworld", "are for simulated agents"),
        (f"{JOIN} --horizon 3", "are for real environments"),
    ],
)
def test_commands_refuse_with_a_reason(command: str, says: str, certs: Path) -> None:
    assert says in refusal(*shlex.split(command.replace("CERTS", str(certs))))


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
    for host in ("", "h\u00fcb"):
        with pytest.raises(InputError, match="is no host"):
            make_certificates(tmp_path / "other", server="hub", hosts=[host])


def test_every_party_makes_its_own_key_and_takes_part_with_what_the_authority_signed(tmp_path: Path) -> None:
    authority = tmp_path / "authority"
    own = tmp_path / "own"
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
        (("sign", request_file, "--out", str(authority)), "already; to sign another one for the same name, remove"),
        (("sign", request_file, "--out", str(authority), "--host", "x"), "pass --server"),
        (("sign", request_file, "--out", str(own)), "already"),
        (("sign", str(own / "none.csr"), "--out", str(authority)), "No such file"),
    ):
        assert says in refusal("certs", *arguments)
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


WEAK = [
    ({"key": rsa.generate_private_key(65537, 1024)}, "an RSA key of 1024 bits"),
    ({"key": ec.generate_private_key(ec.SECP192R1())}, "a key on the curve secp192r1"),
    ({"key": dsa.generate_private_key(2048)}, "a key of another kind"),
    ({"digest": hashes.SHA224()}, "signed with sha224"),
    ({"authority": True}, r"may sign others \(CA:true\)"),
]


@pytest.mark.parametrize(("unusual", "says"), WEAK, ids=["RSA 1024", "P-192", "DSA", "SHA-224", "CA:true"])
def test_a_certificate_that_can_be_forged_or_can_forge_others_is_no_partys(
    unusual: dict[str, Any], says: str, tmp_path: Path
) -> None:
    make_certificates(tmp_path)
    files = unusual_certificate(tmp_path, "a", **unusual)
    with pytest.raises(InputError, match=says):
        node_name(files.certificate.read_bytes())


def test_a_roster_with_a_nodes_weak_certificate_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    files = unusual_certificate(tmp_path, "a", authority=True)
    authority = Authority(files.authority.read_bytes())
    ready = Ready(1, bytes(32), 1, True, bytes(32), b"")
    entry = RosterEntry("a", 0, 1, der_of(files.certificate.read_bytes()), ready)
    with pytest.raises(InputError, match=r"with a certificate that no node has: .*CA:true"):
        authority.check(entry, "a run")


@pytest.mark.parametrize(("unusual", "says"), WEAK[:4], ids=["RSA 1024", "P-192", "DSA", "SHA-224"])
def test_a_weak_signing_request_is_refused(unusual: dict[str, Any], says: str) -> None:
    key = unusual.get("key", ec.generate_private_key(ec.SECP256R1()))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(key, unusual.get("digest", hashes.SHA256()))
    with pytest.raises(InputError, match=f"{says}|not of the kind P-256"):
        read_request(signed.public_bytes(serialization.Encoding.PEM))


def test_a_weak_authority_signs_nothing(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    weak = ec.generate_private_key(ec.SECP192R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fed-ucbvi federation")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, weak.public_key(), 1, now, now + datetime.timedelta(days=1))
    (tmp_path / "ca.crt").write_bytes(builder.sign(weak, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    private = weak.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())
    (tmp_path / "ca.key").write_bytes(private)
    write_request(tmp_path / "own", "a")
    assert "a key on the curve secp192r1" in refusal("certs", "sign", tmp_path / "own" / "a.csr", "--out", tmp_path)
    assert not (tmp_path / "a.crt").exists()


def test_insecure_is_refused_off_loopback() -> None:
    for address in ("0.0.0.0:0", "10.1.2.3:5", "[::]:5", "example.org:1"):
        with pytest.raises(InputError, match="--insecure is for this machine alone"):
            FederationServer(plan_for(FedUCBVI(), WORLD, 5), address, None)
        (node,) = make_nodes(WORLD, [3])
        with pytest.raises(InputError, match="--insecure is for this machine alone"):
            asyncio.run(run_node(node, RemoteServer(address)))


def test_one_command_makes_all_certificates(tmp_path: Path) -> None:
    made = told("certs", "--out", tmp_path / "certs", "--server", "registry", "--node", "a", "--node", "b")
    assert len(made["written"]) == 8
