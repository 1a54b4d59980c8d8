"""Readers of files, each with a valid file and a seeded mutator of it: nothing but an InputError may come out."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from fed_ucbvi import FedKLUCBVI, InputError, Run, Sweep, counts_from_logs, gridworld, load_counts, load_policy, run
from fed_ucbvi.core.files import MANIFEST, manifest_digest
from fed_ucbvi.engine.checkpoint import open_checkpoint
from fed_ucbvi.engine.state_log import DIGEST_BYTES, HEAD
from fed_ucbvi.environments.bins import Bins, Edges, Levels, Whole
from fed_ucbvi.network import messages, node_memory
from fed_ucbvi.network.arrays import WireError
from fed_ucbvi.network.certificates import new_request, read_request
from fed_ucbvi.network.coordinator import Coordinator
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_for, read_spec
from fed_ucbvi.network.server_checkpoint import ServerCheckpoint
from fed_ucbvi.problem.federation import Federation
from fed_ucbvi.results.run import CHECKSUM_PLACEHOLDER, CHECKSUM_PREFIX, RUN
from fed_ucbvi.specifications.problem import ProblemSpec
from fed_ucbvi.specifications.run import RunSpec
from network import Served, make_nodes, tell

SIZES = (3, 2, 2)
"""S, A and H of the logs."""
NUMBERS = (
    b"-1",
    b"0",
    b"1e400",
    b"NaN",
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"[[[[[[]]]]]]",
    b"9" * 20,
    b"9" * 400,
    b"0.5",
)
WORDS = (
    0,
    1,
    0x7F,
    0xFF,
    0x7FFFFFFF,
    0xFFFFFFFF,
    0x7FFFFFFFFFFFFFFF,
    0xFFFFFFFFFFFFFFFF,
)
LOG = {
    "episode": [0, 0, 1, 1],
    "step": [0, 1, 0, 1],
    "state": [0, 1, 0, 2],
    "action": [0, 1, 1, 0],
    "reward": [0.0, 1.0, 0.5, 0.25],
    "next_state": [1, 2, 2, 0],
}
TOML = """name = "few"

[[grid]]
algorithms = ["fed-ucbvi", { name = "fed-ucbvi", bonus_scale = 0.5, label = "half" }]
environments = [{ name = "gridworld", rows = 3 }, "synthetic"]
episodes = [30]
agents = [2, 3]
eps_p = [0.0, 0.1]
seeds = 2
"""


@dataclass(frozen=True)
class Reader:
    """One kind of file: how to read it, a valid one, and which of its files is mutated, how, beside plain bytes."""

    read: Callable[[Path], object]
    make: Callable[[Path], None]
    mutated: str = ""
    """The file in a folder; empty where the reader takes one file."""
    structured: Callable[[bytes, random.Random], bytes] | None = None
    """A mutator that keeps digests and archives whole."""


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One to three changes: bits, bytes, lengths, and numbers in text."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed)) if changed else 0
        kind = rng.randrange(7)
        if kind == 0 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            del changed[at : at + rng.randint(1, 64)]
        elif kind == 3:
            changed[at:at] = rng.randbytes(rng.randint(1, 16))
        elif kind == 4:
            word = rng.choice(WORDS).to_bytes(8, "little")[: rng.choice((1, 2, 4, 8))]
            changed[at : at + len(word)] = word
        elif kind == 5:
            changed[at:at] = changed[at : at + rng.randint(1, 64)] * rng.randint(1, 8)
        else:
            changed = bytearray(mutate_text(bytes(changed), rng))
    return bytes(changed)


def mutate_text(content: bytes, rng: random.Random) -> bytes:
    """A number, a word or a bracket of the text replaced by something that does not belong there."""
    found = list(re.finditer(rb'-?\d+(?:\.\d+)?|"[^"\\]{0,40}"|true|false|null|\[|\{', content))
    if not found:
        return content
    place = rng.choice(found)
    return content[: place.start()] + rng.choice(NUMBERS) + content[place.end() :]


def behind_digest(content: bytes, rng: random.Random) -> bytes:
    """The memory of a node changed behind its digest, which fits again."""
    changed = mutate(content[node_memory.HEAD.size :], rng)
    return node_memory.HEAD.pack(9, len(changed), hashlib.sha256(changed).digest()) + changed


def in_archive(content: bytes, rng: random.Random) -> bytes:
    """One member of an .npz file changed, with a directory that fits."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        names = old.namelist()
        chosen = rng.choice(names)
        for name in names:
            member = old.read(name)
            new.writestr(name, mutate(member, rng) if name == chosen else member)
    return made.getvalue()


def sealed(content: bytes, rng: random.Random) -> bytes:
    """A changed run with a checksum that fits."""
    start = content.rfind(CHECKSUM_PREFIX)
    plain = content.replace(content[start : start + len(CHECKSUM_PLACEHOLDER)], CHECKSUM_PLACEHOLDER.encode())
    changed = mutate(plain, rng)
    checksum = CHECKSUM_PREFIX + hashlib.sha256(changed).hexdigest().encode()
    return changed.replace(CHECKSUM_PLACEHOLDER.encode(), checksum)


def in_entry(content: bytes, rng: random.Random) -> bytes:
    """The header or the payload of the first entry of a log changed, with lengths and digest that fit.

    The origin of the digests is left at the front, where :func:`as_log` has put it.
    """
    origin = content[:DIGEST_BYTES]
    entry = content[DIGEST_BYTES:]
    magic, header_length, payload_length = HEAD.unpack(entry[: HEAD.size])
    begin = HEAD.size + DIGEST_BYTES
    header = entry[begin : begin + header_length]
    payload = entry[begin + header_length : begin + header_length + payload_length]
    if rng.random() < 0.8:
        if rng.random() < 0.7:
            header = mutate_text(header, rng)
        else:
            header = mutate(header, rng)
    else:
        payload = mutate(payload, rng)
    head = struct.pack(HEAD.format, magic, len(header), len(payload))
    digest = hashlib.blake2b(origin, digest_size=DIGEST_BYTES)
    for part in (head, header, payload):
        digest.update(part)
    return head + digest.digest() + header + payload


def _finished(folder: Path) -> Run:
    return run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False)


def _make_run(path: Path) -> None:
    _finished(path).save(path)


def _make_checkpoint(path: Path) -> None:
    run(FedKLUCBVI(), gridworld(agents=2), 20, progress=False, checkpoint=path)


def _make_counts(path: Path) -> None:
    counts_from_logs(LOG, SIZES, random_rewards=True).save(path)


def _make_bins(path: Path) -> None:
    bins = Bins(
        (Whole("hour", 0, 4), Edges("heat", (18.0, 21.0))),
        (Levels("power", (0.0, 1.0)),),
        24,
        (0.0, 1.0),
    )
    bins.save(path)


def _make_request(path: Path) -> None:
    _, request = new_request("clinic")
    path.write_bytes(request)


@cache
def _plan() -> RunPlan:
    return plan_for(FedKLUCBVI(), gridworld(agents=2), 20)


def _make_federation(server: Path | None, nodes: Path | None) -> None:
    """A run over the network that has ended."""

    async def story() -> None:
        served = Served(_plan(), server)
        served.join(*make_nodes(gridworld(agents=2), [1, 1], nodes))
        await served.finish()

    tell(story())


def _make_node(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _make_federation(None, Path(folder))
        shutil.copytree(Path(folder) / "node-0", path)


def _open_server(path: Path) -> object:
    checkpoint = ServerCheckpoint(path, _plan())
    try:
        return Coordinator(checkpoint.plan, checkpoint).status()
    finally:
        checkpoint.close()


def _open_node(path: Path) -> object:
    node = Node("node-0", lambda agents: gridworld(agents=2), 0, 1, path)
    try:
        joining = node.enter(_plan().welcome())
        node._generations.return_to(joining.rounds[-1])
    finally:
        node.close()
    return joining


def _open(path: Path) -> object:
    store, simulation = open_checkpoint(path)
    with store:
        simulation.close()
    return simulation


def _logs(path: Path) -> object:
    return counts_from_logs(path, SIZES, random_rewards=True)


def _spec(path: Path) -> object:
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError("no JSON") from error
    if not isinstance(data, dict):
        raise InputError("no table")
    return RunSpec.from_data(data)


def _show(path: Path) -> object:
    loaded = Run.load(path)
    return repr(loaded), loaded.summary()


def _use(path: Path) -> object:
    federation = Federation.load(path)
    return repr(federation), federation.agent(0), federation.digest


def _message_up(path: Path) -> object:
    return _decoded(messages.decode_up, path)


def _message_down(path: Path) -> object:
    message = _decoded(messages.decode_down, path)
    if isinstance(message, messages.Welcome):
        read_spec(message.spec)
    return message


def _decoded(decode: Callable[[bytes], object], path: Path) -> object:
    try:
        return decode(path.read_bytes())
    except WireError as error:
        raise InputError(f"{error}") from error


def _make_report(path: Path) -> None:
    arrays = (
        np.arange(6.0).reshape(2, 3),
        np.array([[True, False, True]]),
        np.arange(4),
    )
    path.write_bytes(messages.encode(messages.Report(round=3, exchange=0, arrays=arrays)))


GRIDWORLD = RunSpec(problem=ProblemSpec(environment="gridworld"))


def _make_welcome(path: Path) -> None:
    plan = plan_for(FedKLUCBVI(), gridworld(agents=2), 30)
    path.write_bytes(messages.encode(plan.welcome()))


READERS: dict[str, Reader] = {
    "message.up": Reader(_message_up, _make_report),
    "message.down": Reader(_message_down, _make_welcome),
    "saved run": Reader(_show, _make_run, RUN, sealed),
    "manifest of a saved run": Reader(_show, _make_run, MANIFEST),
    "checkpoint": Reader(_open, _make_checkpoint, "log-000001", in_entry),
    "manifest of a checkpoint": Reader(_open, _make_checkpoint, MANIFEST),
    "checkpoint of a server": Reader(_open_server, lambda path: _make_federation(path, None), "log-000001", in_entry),
    "state of a node": Reader(_open_node, _make_node, "log-000001", in_entry),
    "memory of a node": Reader(_open_node, _make_node, node_memory.FILES[1], behind_digest),
    "policy.json": Reader(load_policy, lambda path: _finished(path).export_policy(path)),
    "counts.npz": Reader(load_counts, _make_counts, structured=in_archive),
    "federation.npz": Reader(
        _use,
        lambda path: gridworld(agents=2, eps_p=0.1).save(path),
        structured=in_archive,
    ),
    "bins.json": Reader(Bins.load, _make_bins),
    "logs.csv": Reader(_logs, lambda path: pl.DataFrame(LOG).write_csv(path)),
    "logs.parquet": Reader(_logs, lambda path: pl.DataFrame(LOG).write_parquet(path)),
    "sweep.toml": Reader(Sweep.from_toml, lambda path: _write(path, TOML)),
    "spec.json": Reader(
        _spec, lambda path: _write(path, RunSpec(problem=ProblemSpec(environment="gridworld")).to_json())
    ),
    "request.csr": Reader(lambda path: read_request(path.read_bytes()), _make_request),
}


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@dataclass
class Mutations:
    """A valid file in a folder, and mutations of it one after the other."""

    reader: Reader
    path: Path

    @classmethod
    def of(cls, name: str, folder: Path) -> Mutations:
        reader = READERS[name]
        path = folder / (name if "." in name else "made")
        reader.make(path)
        return cls(reader, path)

    def __post_init__(self) -> None:
        if self.reader.mutated:
            self.target = self.path / self.reader.mutated
        else:
            self.target = self.path
        self.valid = self.target.read_bytes()
        self.reader.read(self.path)
        self._tidy()
        self._origin = b""
        if self.reader.structured is in_entry:
            record = f"{manifest_digest(self.path)} 1".encode()
            self._origin = hashlib.blake2b(record, digest_size=DIGEST_BYTES).digest()

    def try_one(self, seed: int) -> str:
        """Outcome of reading the mutation with this seed: read, or refused; any other error is raised."""
        rng = random.Random(seed)
        structured = self.reader.structured
        if structured is not None and rng.random() < 0.7:
            content = structured(self._origin + self.valid, rng)
        else:
            content = mutate(self.valid, rng)
        self.target.write_bytes(content)
        try:
            self.reader.read(self.path)
        except InputError:
            return "refused"
        finally:
            self._tidy()
        return "read"

    def _tidy(self) -> None:
        """Leave nothing in the folder that a reader has added."""
        for path in self.target.parent.glob("log-*"):
            if path != self.target and self.target.name.startswith("log-"):
                path.unlink()
