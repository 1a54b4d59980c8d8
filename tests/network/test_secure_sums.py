"""Secure sums: masks that cancel, keys that are signed, and a server that learns the sum and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from commands import refusal
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, gridworld, run, synthetic
from fed_ucbvi.algorithms import exact_sums, make_algorithm
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.client import take_part
from fed_ucbvi.network.copies import Copies
from fed_ucbvi.network.live_agents import LiveSource
from fed_ucbvi.network.messages import (
    Down,
    Played,
    Query,
    Report,
    Roster,
    Seat,
    Start,
    Stop,
    Up,
    decode_up,
    keep_taken,
)
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_calls import FederationStoppedError
from fed_ucbvi.network.roster import Authority, Credentials, fingerprint, make_roster
from fed_ucbvi.network.run_plan import Rules, RunPlan, plan_for
from fed_ucbvi.network.secure_sums import VERSION, Question, framed, mask, masked, pair_key, summed
from fed_ucbvi.network.server import Outcome, Service
from fed_ucbvi.network.transport import TLSFiles
from network import (
    CrashError,
    Fragile,
    Tap,
    assert_run_without_the_first_agent,
    assert_same_but_for_requests,
    federate,
    make_nodes,
)

ALPHA = 1e-6
"""False-alarm rate of each statistical test; keys are fixed, so that they pass always or never."""
NAMES = ["node-0", "node-1", "node-2", "node-3"]
WORLD = synthetic(agents=4, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
SPLIT = [1, 2, 1]
T, SEED = 60, 3
KEYS = [X25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32) for number in range(4)]
QUESTION = Question(3, 1, b"roster", b"query")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certs")
    make_certificates(path, server="server", nodes=NAMES)
    return path


@pytest.fixture
def tls_files(folder: Path) -> Callable[[str], TLSFiles]:
    return lambda name: TLSFiles.of(folder, name)


def pairs_of(i: int, roster: bytes = b"roster", run: str = "the-run") -> dict[str, bytes]:
    """The keys that node i shares with the others."""
    return {
        NAMES[j]: pair_key(KEYS[i], KEYS[j].public_key().public_bytes_raw(), run, roster, (NAMES[i], NAMES[j]))
        for j in range(4)
        if j != i
    }


# ------------------------------------------------------------------------------------------------------------ masks


def chacha20(key: bytes, words: int) -> list[int]:
    """The keystream from the first block on, nonce 0, as in RFC 8439, section 2.3."""

    def quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
        for p, q, r, shift in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) % 2**32
            mixed = x[r] ^ x[p]
            x[r] = ((mixed << shift) | (mixed >> (32 - shift))) % 2**32

    stream = b""
    for block in itertools.count():
        state = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), block, 0, 0, 0]
        x = list(state)
        for _ in range(10):
            for column in range(4):
                quarter(x, column, column + 4, column + 8, column + 12)
            for a, b, c, d in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
                quarter(x, a, b, c, d)
        stream += struct.pack("<16I", *((one + two) % 2**32 for one, two in zip(x, state, strict=True)))
        if len(stream) >= 8 * words:
            return list(struct.unpack(f"<{words}Q", stream[: 8 * words]))
    raise AssertionError


def test_a_mask_is_hkdf_then_blake2b_then_chacha20_worked_out_by_hand() -> None:
    shared = KEYS[0].exchange(KEYS[2].public_key())
    info = framed(VERSION, b"roster", b"node-0", b"node-2")
    extracted = hmac.digest(b"the-run", shared, "sha256")
    pair = hmac.digest(extracted, info + b"\x01", "sha256")
    assert pairs_of(0)["node-2"] == pairs_of(2)["node-0"] == pair
    about = struct.pack("<QQ", 3, 1) + framed(b"roster", hashlib.sha256(b"query").digest())
    key = hashlib.blake2b(about, key=pair, digest_size=32).digest()
    assert mask(pair, QUESTION, 20).tolist() == chacha20(key, 20)


def test_masks_cancel_in_the_sum_and_nowhere_else() -> None:
    """Also for the largest and smallest words, which wrap around modulo 2^64 and back."""
    rng = np.random.default_rng(1)
    ends = np.iinfo(np.int64)
    reports = [
        (rng.integers(ends.min, ends.max, (1, 3, 2)), rng.integers(0, 2, (1, 3, 2, 2)) * ends.max) for _ in range(4)
    ]
    sent = [masked(report, NAMES[i], pairs_of(i), QUESTION) for i, report in enumerate(reports)]
    for place in range(2):
        exact = sum(report[place].astype(object) for report in reports) % 2**64
        assert np.array_equal(summed(sent)[place].view(np.uint64).astype(object), exact)
        for missing in range(4):
            some = summed(one for i, one in enumerate(sent) if i != missing)[place].view(np.uint64)
            assert not (some.astype(object) == exact - reports[missing][place].astype(object) % 2**64).any()


def looks_random(words: np.ndarray[Any, Any]) -> bool:
    """Hypothesis: independent uniform bits. Pearson's chi-square on bytes, and the number of ones, each at ALPHA."""
    data = np.frombuffer(words.astype("<u8").tobytes(), dtype=np.uint8)
    bytes_ok = stats.chisquare(np.bincount(data, minlength=256)).pvalue > ALPHA
    ones, bits = int(np.unpackbits(data).sum()), 8 * data.size
    return bool(bytes_ok and stats.binomtest(ones, bits).pvalue > ALPHA)


def test_what_a_node_sends_looks_random_whatever_it_has_counted() -> None:
    counts = (np.zeros((1, 40, 50, 16), dtype=np.int64),)
    assert not looks_random(counts[0].view(np.uint64))
    assert not looks_random(np.random.default_rng(0).integers(0, 2**20, 32_000))
    for i in range(4):
        (sent,) = masked(counts, NAMES[i], pairs_of(i), QUESTION)
        assert looks_random(sent.view(np.uint64))
        assert (sent != 0).all()


def test_only_the_same_question_has_the_same_mask() -> None:
    """Two words of different masks agree with probability 2^-64; of 1 000 none may."""
    report = (np.arange(1000).reshape(1, 10, 100),)
    first = masked(report, "node-1", pairs_of(1), QUESTION)[0]
    assert np.array_equal(masked(report, "node-1", pairs_of(1), QUESTION)[0], first)
    others = [
        masked(report, "node-1", pairs_of(1), QUESTION._replace(**change))[0]
        for change in ({"round": 4}, {"exchange": 2}, {"roster": b"other"}, {"query": b"querz"})
    ]
    others += [
        masked(report, "node-1", pairs_of(1, run="another"), QUESTION)[0],
        masked(report, "node-1", pairs_of(1, roster=b"other"), QUESTION)[0],
        masked(report, "node-2", pairs_of(2), QUESTION)[0],
    ]
    for one, other in itertools.combinations([first, *others], 2):
        assert not (one == other).any()
        assert looks_random((one - other).view(np.uint64))


@pytest.mark.parametrize(("agents", "episodes", "horizon"), [(20, 30_000, 10), (1000, 10**9, 100), (3, 10, 2)])
@pytest.mark.parametrize("random_rewards", [False, True])
def test_the_largest_sums_wrap_nowhere(agents: int, episodes: int, horizon: int, random_rewards: bool) -> None:
    """All agents spend all visits on one pair, with the largest value: each word of the sum is below 2^63."""
    visits = agents * episodes
    grid = make_grid(agents, visits, horizon, random_rewards=random_rewards)
    value = (horizon + random_rewards) << grid.bits
    for number, words in ((episodes * value, grid.words), (episodes * value**2, 2)):
        if words == 1:
            assert agents * number < 2**63
            continue
        low, high = number % 2**grid.base, number >> grid.base
        assert max(agents * low, agents * (2**grid.base - 1), agents * (high + 1)) < 2**63
        reports = [(np.array([low, high]),) for _ in range(3)]
        sent = [
            masked(one, NAMES[i], {k: v for k, v in pairs_of(i).items() if k != "node-3"}, QUESTION)
            for i, one in enumerate(reports)
        ]
        assert summed(sent)[0].tolist() == [3 * low, 3 * high]


# ------------------------------------------------------------------------------------------------------------- keys


def credentials(folder: Path, run: str = "the-run") -> tuple[list[Credentials], list[Seat]]:
    """Three nodes, of four agents."""
    own = [Credentials(name, TLSFiles.of(folder, name)) for name in NAMES[:3]]
    return own, [one.seat(run, first, m) for one, first, m in zip(own, (0, 1, 3), SPLIT, strict=True)]


def test_nodes_that_accept_a_roster_have_the_same_keys_in_pairs(folder: Path) -> None:
    own, seats = credentials(folder)
    roster = make_roster(1, seats[::-1])
    keys = [one.pairs(roster, "the-run", 4, all_of_them=True) for one in own]
    for i, j in itertools.combinations(range(3), 2):
        assert keys[i][NAMES[j]] == keys[j][NAMES[i]]
    assert len({key for one in keys for key in one.values()}) == 3
    later = make_roster(2, seats)
    assert not set(own[0].pairs(later, "the-run", 4, all_of_them=True).values()) & set(keys[0].values())


def forged(folder: Path) -> Iterator[tuple[str, list[Seat], str]]:
    """Rosters with which a server would be in the middle, and what node-0 says."""
    _, seats = credentials(folder)
    server = Credentials("server", TLSFiles.of(folder, "server")).seat("the-run", 1, 2)
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    yield "another key", [seats[0], replace(seats[1], key=key), seats[2]], "is not signed by it"
    yield "no signature", [seats[0], replace(seats[1], signature=b""), seats[2]], "is not signed by it"
    swapped = [seats[0], replace(seats[2], name="node-1"), replace(seats[1], name="node-2")]
    yield "swapped", swapped, "certificate that is not this node's"
    keys = [seats[0], replace(seats[1], key=seats[2].key), replace(seats[2], key=seats[1].key)]
    yield "swapped keys", keys, "is not signed by it"
    other = credentials(folder, "another run")[1][1]
    yield "another run", [seats[0], other, seats[2]], "is not signed by it for this run"
    yield "the server's own", [seats[0], seats[2], server], "certificate that is not this node's"
    as_node = [seats[0], replace(server, name="node-1"), seats[2]]
    yield "the server as a node", as_node, "certificate that is not this node's"
    yield "no certificate", [seats[0], replace(seats[1], certificate=b""), seats[2]], "without a node's certificate"
    yield "no key", [seats[0], replace(seats[1], key=b""), seats[2]], "has no key"
    yield "two nodes", seats[:2], "need 3 nodes; the server's roster has 2"
    yield "twice", [seats[0], seats[1], seats[1]], "out of order"
    yield "an agent less", [seats[0], seats[1], replace(seats[2], agents=0)], "agents that are not in the run"
    yield "too many agents", [seats[0], seats[1], replace(seats[2], agents=2)], "agents that are not in the run"
    yield "agents missing", [seats[0], replace(seats[1], agents=1), seats[2]], "3 of 4 agents"


def test_a_forged_swapped_or_unsigned_key_is_refused(folder: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, nodes=NAMES[:3])
    make_certificates(folder, nodes=["late"], days=-1)
    own, seats = credentials(folder)
    for what, roster, says in forged(folder):
        mine = [seats[0] if seat.name == "node-0" else seat for seat in roster]
        with pytest.raises(InputError, match=says):
            own[0].pairs(make_roster(1, mine), "the-run", 4, all_of_them=True)
        assert what
    with pytest.raises(InputError, match="does not have this node's own key"):
        own[0].pairs(make_roster(1, credentials(folder)[1]), "the-run", 4, all_of_them=True)
    stranger = credentials(tmp_path)[1][1]
    with pytest.raises(InputError, match="not of this federation's authority"):
        own[0].pairs(make_roster(1, [seats[0], stranger, seats[2]]), "the-run", 4, all_of_them=True)
    late = Credentials("late", TLSFiles.of(folder, "late")).seat("the-run", 1, 2)
    with pytest.raises(InputError, match="out of date"):
        Authority((folder / "ca.crt").read_bytes()).check(late, "the-run")


# --------------------------------------------------------------------------------------------------------- whole runs


def plan(algorithm: FedUCBVI | FedKLUCBVI, world: Any = WORLD, episodes: int = T, **rest: Any) -> RunPlan:
    return plan_for(algorithm, world, episodes, seed=SEED, secure_sums=True, **rest)


STATIONARY = gridworld(agents=4, eps_p=0.2)
VARIANTS: dict[str, tuple[FedUCBVI | FedKLUCBVI, Any]] = {
    "published": (FedUCBVI(nu=30), WORLD),
    "random rewards": (FedUCBVI(nu=30), WORLD.with_bernoulli_rewards()),
    "uniform": (FedUCBVI(aggregation="uniform"), WORLD),
    "sets": (FedKLUCBVI(), WORLD),
    "sets, stationary": (FedKLUCBVI(stationary=True), STATIONARY),
    "sets, random rewards": (FedKLUCBVI(), WORLD.with_bernoulli_rewards()),
}


@pytest.mark.parametrize(
    ("variant", "exchange", "words"),
    [
        *((name, "steps", 1) for name in VARIANTS),
        *((name, "model", 1) for name, (algorithm, _) in VARIANTS.items() if algorithm.has_models),
        ("published", "steps", 2),
        ("sets", "steps", 2),
        ("sets, random rewards", "steps", 2),
        ("published", "model", 2),
        ("random rewards", "model", 2),
    ],
)
def test_masked_runs_are_the_simulation_bit_for_bit_but_for_who_asked(
    variant: str, exchange: str, words: int, tls_files: Callable[[str], TLSFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, world = VARIANTS[variant]
    if words == 2:
        monkeypatch.setattr(exact_sums, "ENOUGH_BITS", 50)
    task = plan(algorithm, world, 20, exchange=exchange)
    assert exact_sums.Grid(*algorithm.grid(task.setting) or ()).words == words
    outcome = federate(task, make_nodes(world, SPLIT), tls_files)
    assert_same_but_for_requests(outcome.run, run(algorithm, world, 20, seed=SEED, driver="episodes"))
    records, last = outcome.run.records, outcome.run.recommendations
    asked = outcome.run.rounds * task.exchanges
    if algorithm.server_counts:  # a planner asks only where the last round was not reported
        planned = int(records["askers"][-1] == 0)
    else:
        planned = 0 if exchange == "model" else len(last["round"]) * world.horizon
    alone = int(exchange == "model" and records["askers"][-1] == 0)
    assert outcome.wire.messages_up == 3 * (2 + len(records["start"]) + asked + planned + alone) + 3 * int(
        records["askers"][-1] == 0
    )


class Candid(Node):
    """A node that notes what it would have sent without masks; it dies after the ``last`` (round, exchange)."""

    last: tuple[int, int] | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reports: dict[tuple[int, int], Any] = {}

    def answer(self, message: Down) -> Up | None:
        answer = super().answer(message)
        if isinstance(message, Query):
            own = self._plan.report(self.state, message.arrays, message.exchange % self._plan.exchanges)
            self.reports[message.round, message.exchange] = message.arrays, tuple(array.copy() for array in own)
            if (message.round, message.exchange) == self.last:
                raise CrashError
        return answer


def in_the_open(algorithm: Any, setting: Setting, nodes: Callable[[int], list[Candid]]) -> Any:
    """A server fed with what the nodes of each round would have sent without masks, asked about its own values."""
    server = algorithm.new_server(setting)
    for number, exchange in sorted(nodes(0)[0].reports):
        if exchange < algorithm.exchanges(setting):
            told = [node.reports[number, exchange] for node in nodes(number)]
            (sent,) = algorithm.query(server, exchange)
            assert all(np.array_equal(sent, asked[0]) for asked, _ in told)
            rows = tuple(np.concatenate(arrays) for arrays in zip(*(report for _, report in told), strict=True))
            algorithm.aggregate(server, rows, exchange)
    return server


@pytest.mark.parametrize("random_rewards", [False, True])
@pytest.mark.parametrize("algorithm", [FedUCBVI(synchronisation="global"), FedKLUCBVI()], ids=["moments", "counts"])
def test_a_live_run_with_masks_learns_what_its_nodes_sums_say(
    algorithm: FedUCBVI | FedKLUCBVI, random_rewards: bool, tls_files: Callable[[str], TLSFiles]
) -> None:
    """Such a run depends on timing; so its nodes note what they reported, and a server is fed with it in the open."""
    setting = Setting(17, 4, 6, 4, 40, 0.0, SEED, eps_p_known=False, random_rewards=random_rewards)
    task = RunPlan(algorithm, setting, collection="live", secure_sums=True)
    source = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=6)
    firsts = (0, 1, 3)
    nodes = [Candid(NAMES[i], source, firsts[i], SPLIT[i], require_secure_sums=True) for i in range(3)]
    outcome = federate(task, nodes, tls_files)
    assert outcome.run.complete
    assert outcome.run.records["agent_episodes"].sum() == 4 * 40
    server = in_the_open(algorithm, setting, lambda _: nodes)
    assert np.array_equal(outcome.run.V, server.V)
    assert np.array_equal(outcome.run.exploring_policy, server.policy)
    assert outcome.run.rounds == len({number for number, _ in nodes[0].reports if _ == 0})
    for name in ("agent", "step", "state", "action", "rule"):
        assert (outcome.run.records[name] == -1).all()


def test_what_crosses_the_wire_looks_random_and_names_no_asker(
    tls_files: Callable[[str], TLSFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reports of three nodes in a whole run; keys are drawn anew, so it fails by chance with rate 6 ALPHA."""
    tap = Tap(monkeypatch)
    federate(plan(FedUCBVI(nu=30)), make_nodes(WORLD, SPLIT), tls_files)
    words: dict[int, list[Any]] = {}
    taken = defaultdict[int, Copies](Copies)
    for stream, data in tap.up:
        message = decode_up(data, taken[stream])
        keep_taken(message, taken[stream])
        if isinstance(message, Played):
            assert message.requests == ()
        if isinstance(message, Report):
            words.setdefault(stream, []).extend(array.reshape(-1) for array in message.arrays)
    assert len(words) == 3
    for sent in words.values():
        numbers = np.concatenate(sent).view(np.uint64)
        assert len(numbers) > 3_000
        assert looks_random(numbers)


# ---------------------------------------------------------------------------------------------------- deaths, enemies


async def with_a_death(
    task: RunPlan, tls_files: Callable[[str], TLSFiles], folder: Path, dies_at: int, *, comes_back: bool
) -> Outcome:
    """A run in which node-0 dies when it has been asked so often, and is started again or not."""
    service = Service(task, "127.0.0.1:0", tls_files("server"))
    address = f"127.0.0.1:{service.port}"
    first, *others = make_nodes(WORLD, SPLIT)
    mortal = Fragile("node-0", lambda M: WORLD, 0, 1, folder / "node-0")
    mortal.dies_at = dies_at

    async def live() -> None:
        try:
            await take_part(mortal, address, tls_files("node-0"))
        except CrashError:
            if comes_back:
                again = Node("node-0", lambda M: WORLD, 0, 1, folder / "node-0")
                await take_part(again, address, tls_files("node-0"))

    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(live())]
    tasks += [asyncio.ensure_future(take_part(node, address, tls_files(node.name))) for node in others]
    assert first.name == "node-0"
    outcome = await service.run()
    await asyncio.gather(*tasks)
    return outcome


@pytest.mark.parametrize("dies_at", [2, 5, 6, 14])
def test_a_node_that_comes_back_with_another_key_changes_nothing(
    dies_at: int, tls_files: Callable[[str], TLSFiles], tmp_path: Path
) -> None:
    """In the first round it is sent a start, a stop, a roster and then queries; the second such message kills it."""
    task = plan(FedUCBVI(nu=30), rules=Rules(patience=20.0))
    outcome = asyncio.run(asyncio.wait_for(with_a_death(task, tls_files, tmp_path, dies_at, comes_back=True), 60))
    assert_same_but_for_requests(outcome.run, run(FedUCBVI(nu=30), WORLD, T, seed=SEED, driver="episodes"))
    assert outcome.events == []


def test_a_node_that_vanishes_is_excluded_and_the_synchronisation_done_again_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has answered one query of the first synchronisation; no trace of its counts may be left."""
    certs = tmp_path / "certs"
    make_certificates(certs, server="server", nodes=NAMES)
    task = plan(FedUCBVI(synchronisation="local"), rules=Rules(patience=0.3, away="exclude"))

    async def story() -> Outcome:
        service = Service(task, "127.0.0.1:0", TLSFiles.of(certs, "server"))
        address = f"127.0.0.1:{service.port}"
        mortal = Fragile("node-0", lambda M: WORLD, 0, 1)
        mortal.dies_at = 5
        others = [Node(NAMES[i], lambda M: WORLD, i, 1) for i in (1, 2, 3)]
        tasks = [
            asyncio.ensure_future(take_part(node, address, TLSFiles.of(certs, node.name)))
            for node in (mortal, *others)
        ]
        outcome = await service.run()
        assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[0], CrashError)
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 60))
    assert_run_without_the_first_agent(outcome.run, task, requests=False)
    assert [event["done"] for event in outcome.events] == ["exclude"]
    assert "the synchronisation is done again" in caplog.text
    assert not outcome.run.complete
    assert outcome.run.records["agent_episodes"].sum() == 3 * T


@pytest.mark.parametrize(
    ("algorithm", "exchange"), [(FedUCBVI(synchronisation="global"), 1), (FedKLUCBVI(), 0)], ids=["moments", "counts"]
)
def test_a_live_run_goes_on_without_a_node_that_vanishes_in_a_synchronisation(
    algorithm: FedUCBVI | FedKLUCBVI, exchange: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has answered a query; what the others learn is what a server learns from their reports in the open."""
    certs = tmp_path / "certs"
    make_certificates(certs, server="server", nodes=NAMES)
    setting = Setting(17, 4, 6, 4, 30, 0.0, SEED, eps_p_known=False)
    rules = Rules(patience=0.3, away="exclude")
    task = RunPlan(algorithm, setting, collection="live", secure_sums=True, rules=rules)
    source = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=6)
    mortal, *others = (Candid(NAMES[i], source, i, 1, require_secure_sums=True) for i in range(4))
    mortal.last = 2, exchange

    async def story() -> Outcome:
        service = Service(task, "127.0.0.1:0", TLSFiles.of(certs, "server"))
        address = f"127.0.0.1:{service.port}"
        taking = [take_part(node, address, TLSFiles.of(certs, node.name)) for node in (mortal, *others)]
        tasks = [asyncio.ensure_future(one) for one in taking]
        outcome = await service.run()
        assert isinstance((await asyncio.gather(*tasks, return_exceptions=True))[0], CrashError)
        return outcome

    outcome = asyncio.run(asyncio.wait_for(story(), 60))
    assert [(event["round"], event["node"], event["done"]) for event in outcome.events] == [(2, "node-0", "exclude")]
    assert "the synchronisation is done again" in caplog.text
    assert (2, exchange) in mortal.reports
    assert all(node.finished for node in others)
    own = "own_visits" if algorithm.server_counts else "visits"
    assert sum(node.state.arrays()[own][:, 0].sum() for node in others) == 3 * 30
    server = in_the_open(algorithm, setting, lambda number: [mortal, *others] if number == 1 else others)
    assert np.array_equal(outcome.run.V, server.V)
    assert np.array_equal(outcome.run.exploring_policy, server.policy)


def test_with_two_nodes_left_the_run_stops(tls_files: Callable[[str], TLSFiles], tmp_path: Path) -> None:
    task = plan(FedUCBVI(), rules=Rules(patience=0.3, away="exclude"))
    with pytest.raises(FederationStoppedError, match="secure sums need 3 nodes, and 2 take part"):
        asyncio.run(asyncio.wait_for(with_a_death(task, tls_files, tmp_path, 5, comes_back=False), 60))


class Liar(Node):
    """It claims a visit more than there was, under its masks."""

    def answer(self, message: Down) -> Up | None:
        answer = super().answer(message)
        if isinstance(answer, Report):
            answer.arrays[0][0, 0, 0] += 1
        return answer


def test_a_sum_that_cannot_be_true_stops_the_run_and_nobody_is_named(tls_files: Callable[[str], TLSFiles]) -> None:
    nodes = [Liar("node-0", lambda M: WORLD, 0, 1), *make_nodes(WORLD, SPLIT)[1:]]
    with pytest.raises(
        FederationStoppedError, match=r"add up to what cannot be true: all agents.*hide which"
    ) as stop:
        federate(plan(FedUCBVI(), rules=Rules(violation="drop")), nodes, tls_files)
    assert "node-0" not in str(stop.value)


# ----------------------------------------------------------------------------------------------------- what cannot be


def ready_node(folder: Path, task: RunPlan, seats: list[Seat]) -> tuple[Node, Roster]:
    """Node-0 before the first query, with two others who need not be there."""
    node = Node("node-0", lambda M: WORLD, 0, 1)
    node.identify(TLSFiles.of(folder, "node-0"), "127.0.0.1")
    ready = node.enter(task.welcome())
    own = Seat("node-0", 0, 1, ready.key, ready.signature, ready.certificate)
    roster = make_roster(task.epoch, [own, *seats[1:]])
    start_round(node, task)
    return node, roster


def start_round(node: Node, task: RunPlan, length: int = 1) -> None:
    broadcast = tuple(np.array(array) for array in task.algorithm.broadcast(task.algorithm.new_server(task.setting)))
    node.answer(Start(1, 0, 0, T, 1, broadcast))
    node.answer(Stop(1, length))


def test_a_node_never_answers_two_questions_with_one_mask(folder: Path) -> None:
    """The same question, the same numbers; a round begun or ended anew, an old roster, another query: no answer."""
    task = plan(FedUCBVI(), run="the-run")
    seats = credentials(folder)[1]
    zero = Query(1, 0, (np.zeros(3),))
    node, roster = ready_node(folder, task, seats)
    with pytest.raises(InputError, match="before it has said whose sum"):
        node.answer(zero)
    node.answer(roster)
    first = node.answer(zero)
    assert isinstance(first, Report)
    again = node.answer(zero)
    assert isinstance(again, Report)
    assert all(np.array_equal(one, other) for one, other in zip(first.arrays, again.arrays, strict=True))
    start_round(node, task, 2)
    with pytest.raises(InputError, match="after it has had this or an earlier round played in"):
        node.answer(zero)
    start_round(node, task)
    node.answer(Query(1, 1, (np.full(3, 1.0),)))
    with pytest.raises(InputError, match="a second question in round 1, exchange 1"):
        node.answer(Query(1, 1, (np.full(3, 0.5),)))
    node.answer(Query(1, 4, (np.full(3, 0.5),)))
    with pytest.raises(InputError, match="a second question in round 1, exchange 4"):
        node.answer(Query(1, 4, (np.full(3, 0.25),)))
    other = make_roster(
        task.epoch, [*(seat for seat in roster.seats if seat.name != "node-1"), credentials(folder)[1][1]]
    )
    assert fingerprint(other) != fingerprint(roster)
    node.answer(other)
    masked_anew = node.answer(zero)
    assert isinstance(masked_anew, Report)
    assert not any((one == two).any() for one, two in zip(first.arrays, masked_anew.arrays, strict=True))
    with pytest.raises(InputError, match="gone back to an earlier roster"):
        node.answer(roster)
    with pytest.raises(InputError, match="does not belong to the run"):
        node.answer(replace(roster, epoch=1))


def test_a_round_played_anew_under_a_later_one_does_not_get_the_same_mask(folder: Path) -> None:
    """Round 2 begins and ends as before, but round 1 under it does not: the difference would be this node's own."""
    task = plan(FedUCBVI(), run="the-run")
    node, roster = ready_node(folder, task, credentials(folder)[1])
    node.answer(roster)
    broadcast = tuple(np.array(array) for array in task.algorithm.broadcast(task.algorithm.new_server(task.setting)))
    second, zero = Start(2, 1, 1, T - 1, 0, broadcast), Query(2, 0, (np.zeros(3),))
    node.answer(second)
    node.answer(Stop(2, 1))
    node.answer(zero)
    start_round(node, task, 2)
    node.answer(second)
    node.answer(Stop(2, 1))
    with pytest.raises(InputError, match="after it has had this or an earlier round played in"):
        node.answer(zero)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"names": ("a", "b")}, "at least 3 nodes"),
        ({"rules": Rules(away="last")}, "do not go with --on-away last"),
    ],
)
def test_plans_that_sums_cannot_hide_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan(FedUCBVI(), **changes)


def test_rows_liars_and_few_agents_are_refused() -> None:
    for name in ("byzan-ucbvi", "fedq-bernstein", "ucbvi-ch"):
        if name in ("byzan-ucbvi", "fedq-bernstein"):
            with pytest.raises(InputError, match="needs every agent's report by itself"):
                plan(make_algorithm(name, {}))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs every agent's report by itself"):
        plan(FedUCBVI(), WORLD.with_liars(0.25, "flip"))
    with pytest.raises(InputError, match="at least 3 nodes"):
        plan(FedUCBVI(), synthetic(agents=2))
    with pytest.raises(InputError, match="does not work from counts"):
        plan(FedUCBVI(aggregation="uniform"), exchange="model")


@pytest.mark.parametrize(
    ("algorithm", "states", "rest", "says"),
    [
        (
            FedUCBVI(),
            500,
            {"exchange": "model"},
            r"be 5,000,000 numbers .* at most 4,194,304\. Use --exchange steps\.",
        ),
        (FedKLUCBVI(), 500, {}, r"be 5,000,000 numbers .* at most 4,194,304\. Use stationary=True or fed-ucbvi\."),
        (FedKLUCBVI(stationary=True), 2000, {}, r"be 8,000,000 numbers .* at most 4,194,304\. Use fed-ucbvi\."),
    ],
)
def test_counts_that_do_not_fit_a_message_are_refused(
    algorithm: FedUCBVI | FedKLUCBVI, states: int, rest: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        RunPlan(algorithm, Setting(states, 2, 10, 3, 10, 0.0, 0), **rest)
    RunPlan(algorithm, Setting(states // 2, 2, 10, 3, 10, 0.0, 0), **rest)


def test_nodes_refuse_what_they_have_not_agreed_to(folder: Path) -> None:
    node = Node("node-0", lambda M: WORLD, 0, 1, require_secure_sums=True)
    with pytest.raises(InputError, match="secure sums only"):
        node.enter(plan_for(FedUCBVI(), WORLD, T).welcome())
    with pytest.raises(InputError, match="need certificates"):
        node.enter(plan(FedUCBVI()).welcome())
    with pytest.raises(InputError, match="--share-counts"):
        Node("node-0", lambda M: WORLD, 0, 1).enter(plan_for(FedUCBVI(), WORLD, T, exchange="model").welcome())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("serve", "--insecure", "--env", "gridworld", "--secure-sums"), "needs certificates"),
        (("serve", "--certs", "c", "--nodes", "a,b", "--env", "gridworld", "--secure-sums"), "at least 3 nodes"),
        (
            ("serve", "--certs", "c", "--sizes", "3,2,3", "--secure-sums", "--on-away", "last"),
            "do not go with --on-away last",
        ),
        (
            ("serve", "--certs", "c", "--sizes", "3,2,3", "--secure-sums", "--algorithm", "byzan-ucbvi"),
            "every agent's report by itself",
        ),
        (("serve", "--insecure", "--sizes", "500,2,10", "--exchange", "model"), "numbers a message"),
        (("serve", "--insecure", "--sizes", "500,2,10", "--algorithm", "fed-kl-ucbvi"), "numbers a message"),
        (("serve", "--insecure", "--sizes", "3,2,3", "--exchange", "all"), "unknown way of exchanging 'all'"),
        (("join", "127.0.0.1:1", "--insecure", "--name", "a", "--require-secure-sums"), "needs certificates"),
    ],
)
def test_commands_refuse_with_a_reason(arguments: tuple[str, ...], says: str) -> None:
    assert says in refusal(*arguments)
