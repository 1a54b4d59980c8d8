"""Secure sums: masks that cancel, keys that are signed, and a server that learns the sum and nothing else."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace
from scipy import stats

from commands import refusal
from faults import CrashError, Fragile, Noting, failing, one_vanishes, with_deaths
from fed_ucbvi import ByzanUCBVI, FedKLUCBVI, FedQBernstein, FedUCBVI, InputError, gridworld, run, synthetic
from fed_ucbvi.algorithms import base, exact_sums
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.network import client
from fed_ucbvi.network.certificates import TLSFiles
from fed_ucbvi.network.failures import FederationStoppedError
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.messages import Played, Report
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.registry import NodeRegistry
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.secure_sums import VERSION, framed, mask, masked, pair_key, summed
from fed_ucbvi.network.sources import LiveSource
from fed_ucbvi.network.summing import SecureSum
from network import Served, Tap, TLSByName, assert_same, assert_simulation, federate, make_nodes

ALPHA = 1e-6
"""False-alarm rate of each statistical test; keys are fixed, so that they pass always or never."""
NAMES = ["node-0", "node-1", "node-2", "node-3"]
WORLD = synthetic(agents=4, eps_p=0.2, seed=2, states=3, actions=2, horizon=3)
SPLIT = [1, 2, 1]
T = 60
SEED = 3
KEYS = [X25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32) for number in range(4)]
ROSTER = b"roster"


def pairs_of(i: int, roster: bytes = ROSTER, run: str = "the-run", nodes: int = 4) -> dict[str, bytes]:
    """The keys that node i shares with the others."""
    return {
        NAMES[j]: pair_key(KEYS[i], KEYS[j].public_key().public_bytes_raw(), run, roster, (NAMES[i], NAMES[j]))
        for j in range(nodes)
        if j != i
    }


# ------------------------------------------------------------------------------------------------------------ masks


CIPHER_KEY = "83e643174ae526ccebfe5337c16e3ef4be9e202ed5a6597ff85b92b3be04cc32"
KEYSTREAM = (
    "7890cbf3b8e86ea50127d897e974a1ff795e8d49127b0559f4dd23917aa35f58d9ccc73b582fd308"
    "915a6c8d902293b5b915720a888850cf1bdfd97db7c3c39bfcc3295e038fe1590e8087f62e6d56e2"
)
"""The first block of RFC 8439's ChaCha20 and the beginning of the second, nonce 0, by its quarter rounds in loops."""


def test_a_mask_is_hkdf_then_blake2b_then_chacha20_worked_out_by_hand() -> None:
    shared = KEYS[0].exchange(KEYS[2].public_key())
    info = framed(VERSION, b"roster", b"node-0", b"node-2")
    extracted = hmac.digest(b"the-run", shared, "sha256")
    pair = hmac.digest(extracted, info + b"\x01", "sha256")
    assert pairs_of(0)["node-2"] == pairs_of(2)["node-0"] == pair
    assert hashlib.blake2b(b"roster", key=pair, digest_size=32).hexdigest() == CIPHER_KEY
    assert mask(pair, ROSTER, 10).astype("<u8").tobytes().hex() == KEYSTREAM


def test_masks_cancel_in_the_sum_and_nowhere_else() -> None:
    """Also for the largest and smallest words, which wrap around modulo 2^64 and back."""
    rng = np.random.default_rng(1)
    ends = np.iinfo(np.int64)
    reports = [
        (rng.integers(ends.min, ends.max, (1, 3, 2)), rng.integers(0, 2, (1, 3, 2, 2)) * ends.max) for _ in range(4)
    ]
    sent = [masked(report, NAMES[i], pairs_of(i), ROSTER) for i, report in enumerate(reports)]
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
    ones = int(np.unpackbits(data).sum())
    bits = 8 * data.size
    return bool(bytes_ok and stats.binomtest(ones, bits).pvalue > ALPHA)


def test_only_the_same_roster_has_the_same_mask() -> None:
    """Two words of different masks agree with probability 2^-64; of 1 000 none may."""
    report = (np.arange(1000).reshape(1, 10, 100),)
    first = masked(report, "node-1", pairs_of(1), ROSTER)[0]
    assert np.array_equal(masked(report, "node-1", pairs_of(1), ROSTER)[0], first)
    others = [
        masked(report, "node-1", pairs_of(1), b"other")[0],
        masked(report, "node-1", pairs_of(1, run="another"), ROSTER)[0],
        masked(report, "node-1", pairs_of(1, roster=b"other"), ROSTER)[0],
        masked(report, "node-2", pairs_of(2), ROSTER)[0],
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
        low = number % 2**grid.base
        high = number >> grid.base
        assert max(agents * low, agents * (2**grid.base - 1), agents * (high + 1)) < 2**63
        sent = [masked((np.array([low, high]),), NAMES[i], pairs_of(i, nodes=3), ROSTER) for i in range(3)]
        assert summed(sent)[0].tolist() == [3 * low, 3 * high]


# --------------------------------------------------------------------------------------------------------- whole runs


def plan(algorithm: Any, world: Any = WORLD, episodes: int = T, **rest: Any) -> RunPlan:
    return plan_for(algorithm, world, episodes, seed=SEED, secure_sums=True, **rest)


VARIANTS: dict[str, tuple[FedKLUCBVI, Any]] = {
    "by step": (FedKLUCBVI(), WORLD),
    "stationary": (FedKLUCBVI(stationary=True), gridworld(agents=4, eps_p=0.2)),
    "random rewards": (FedKLUCBVI(), WORLD.with_bernoulli_rewards()),
}


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_masked_run_is_the_simulation_bit_for_bit_except_for_requests(
    variant: str, words: int, tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three messages of a node for each round, and two for the handshake: its episodes, its signature, its report."""
    algorithm, world = VARIANTS[variant]
    if words == 2:
        monkeypatch.setattr(exact_sums, "ENOUGH_BITS", 50)
        monkeypatch.setattr(base, "make_grid", exact_sums.make_grid.__wrapped__)  # grids are cached
    task = plan(algorithm, world, 20)
    assert exact_sums.Grid(*algorithm.grid(task.setting)).words == words
    outcome = federate(task, make_nodes(world, SPLIT), tls_files)
    assert_simulation(outcome, task, secure=True)
    requests = outcome.run.records["requests"]
    assert (requests[:-1] > 0).all()
    assert outcome.wire.messages_up == 3 * (2 + 3 * len(requests))


def in_the_open(algorithm: Any, setting: Setting, *sums: list[Any]) -> Any:
    """A server fed with what nodes would have sent without masks."""
    server = algorithm.new_server(setting)
    for reports in sums:
        algorithm.aggregate(server, tuple(np.concatenate(arrays) for arrays in zip(*reports, strict=True)), 0)
    return server


@pytest.mark.parametrize("random_rewards", [False, True])
def test_a_live_run_with_masks_learns_what_the_sums_of_its_nodes_say(
    random_rewards: bool, tls_files: TLSByName
) -> None:
    """Such a run depends on timing; so its nodes note what they reported, and a server is fed with it in the open."""
    algorithm = FedKLUCBVI()
    setting = Setting(
        states=17,
        actions=4,
        horizon=6,
        agents=4,
        episodes=40,
        eps_p=0.0,
        seed=SEED,
        eps_p_known=False,
        random_rewards=random_rewards,
        starts_known=False,
    )
    task = RunPlan(algorithm, setting, rules=FederationRules(collection="live", secure_sums=True))
    source = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=6)
    nodes = make_nodes(source, SPLIT, kind=Noting, terms=NodeTerms(require_secure_sums=True))
    outcome = federate(task, nodes, tls_files)
    assert outcome.run.complete
    assert outcome.run.records["agent_episodes"].sum() == 4 * 40
    missing = {event["round"] for event in outcome.events}
    summed_in = [number for number in sorted(nodes[0].reports) if number not in missing]
    assert len(summed_in) > 3
    last_request = 1 + max(i for i, requests in enumerate(outcome.run.records["requests"]) if requests)
    used = [number for number in summed_in if number <= last_request]
    server = in_the_open(algorithm, setting, *([node.reports[number] for node in nodes] for number in used))
    assert np.array_equal(outcome.run.V, server.V)
    assert np.array_equal(outcome.run.exploring_policy, server.policy)
    for name in ("agent", "step", "state", "action", "rule"):
        assert (outcome.run.records[name] == -1).all()


def test_what_is_sent_looks_random_and_names_nobody(tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch) -> None:
    """All reports of three nodes in a whole run; keys are drawn anew, so it fails by chance with rate 6 ALPHA."""
    assert not looks_random(np.zeros(32_000, dtype=np.uint64))
    assert not looks_random(np.random.default_rng(0).integers(0, 2**20, 32_000))
    tap = Tap(monkeypatch)
    federate(plan(FedKLUCBVI()), make_nodes(WORLD, SPLIT), tls_files)
    words: dict[int, list[Any]] = {}
    for stream, message, _ in tap.messages():
        if isinstance(message, Played):
            assert message.requests == ()
        if isinstance(message, Report):
            words.setdefault(stream, []).extend(array.reshape(-1) for array in message.arrays)
    assert len(words) == 3
    for sent in words.values():
        numbers = np.concatenate(sent).view(np.uint64)
        assert len(numbers) > 1_000
        assert looks_random(numbers)
        assert (numbers != 0).all()


# ---------------------------------------------------------------------------------------------------- deaths, enemies


@pytest.mark.parametrize("dies_at", range(1, 10))
@pytest.mark.parametrize("after", [False, True], ids=["before work", "after work"])
def test_a_node_that_is_killed_and_comes_back_changes_nothing(
    dies_at: int, after: bool, tls_files: TLSByName, tmp_path: Path
) -> None:
    """In a round it is sent a start, a stop, a request to sign and a roster. The others answer one roster."""
    task = plan(FedKLUCBVI(), patience=20.0)
    outcome = with_deaths(task, WORLD, SPLIT, tmp_path, [dies_at], after, tls_files=tls_files)
    assert_simulation(outcome, task, secure=True)


@pytest.mark.parametrize("dies_in", ["_to_sign", "_roster_of", "_to_answer", "_take_sum"])
async def test_a_server_that_is_killed_in_a_sum_loses_nothing(
    dies_in: str, tls_files: TLSByName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again with the roster that it had written down, and nodes send the same bytes."""
    monkeypatch.setattr(client, "MAX_PAUSE", 0.3)
    monkeypatch.setattr(NodeRegistry, "record", lambda *_: None)
    failing(monkeypatch, SecureSum, dies_in, (2, 7), CrashError(), after=True)
    task = plan(FedKLUCBVI(), episodes=15, patience=20.0)
    served = Served(task, tmp_path / "server", tls_files)
    served.join(*make_nodes(WORLD, SPLIT, tmp_path))
    outcome = await served.finish_after(CrashError, task, tmp_path / "server")
    simulated = run(task.algorithm, WORLD, 15, seed=SEED, driver="episodes", progress=False)
    assert_same(outcome.run, simulated, secure=True)


@pytest.mark.parametrize("collection", ["lockstep", "live"])
@pytest.mark.parametrize("silent", [False, True], ids=["after it has answered", "before it answers"])
def test_a_sum_is_lost_if_a_node_of_its_roster_vanishes(collection: str, silent: bool, tls_files: TLSByName) -> None:
    """The counts of that round are in no later sum."""
    algorithm = FedKLUCBVI()
    rules: dict[str, Any] = {"quorum": 3, "wait": 0.3}
    if collection == "live":
        setting = Setting(17, 4, 6, 4, 30, 0.0, SEED, eps_p_known=False)
        task = RunPlan(algorithm, setting, rules=FederationRules(collection="live", secure_sums=True, **rules))
        source: Any = LiveSource.of("FrozenLake-v1", reward_range=(0, 1), horizon=6)
    else:
        task = plan(algorithm, **rules)
        source = WORLD
    mortal, *others = make_nodes(source, [1] * 4, kind=Noting, terms=NodeTerms(require_secure_sums=True))
    mortal.dies_in = 2
    mortal.after = not silent
    outcome = one_vanishes(task, [mortal, *others], tls_files)
    lost = [event["round"] for event in outcome.events if event["what"].startswith("no sum")]
    assert lost[0] == 2, "a process that dies takes its answer along: the stream is gone before it is read"
    assert [event["done"] for event in outcome.events if event["node"] == "node-0"] == ["the round closes without it"]
    records = outcome.run.records
    asked = [i + 1 for i, requests in enumerate(records["requests"]) if requests]
    used = [number for number in sorted(others[0].reports) if number <= asked[-1] and number not in lost]
    server = in_the_open(
        algorithm,
        task.setting,
        *([node.reports[n] for node in ([mortal, *others] if n == 1 else others)] for n in used),
    )
    assert np.array_equal(outcome.run.V, server.V)


def test_without_a_quorum_the_run_stops_if_a_node_vanishes(tls_files: TLSByName) -> None:
    task = plan(FedKLUCBVI(), patience=0.3)
    nodes = make_nodes(WORLD, SPLIT, kind=Fragile)
    nodes[0].dies_at = 5
    with pytest.raises(FederationStoppedError, match=r"'node-0' has stayed away, or has not answered, for 0\.3 s"):
        one_vanishes(task, nodes, tls_files)


class Boaster(Node):
    """It claims more episodes than there are."""

    def answer(self, message: Any) -> Any:
        answer = super().answer(message)
        if isinstance(answer, Played) and answer.round == 3:
            return replace(answer, played=10 * T)
        return answer


def test_with_two_nodes_left_of_a_quorum_of_two_the_run_stops(tls_files: TLSByName) -> None:
    nodes = [Boaster("node-0", lambda M: WORLD, 0, 1), *make_nodes(WORLD, SPLIT)[1:]]
    with pytest.raises(FederationStoppedError, match="secure sums need 3 nodes, and 2 take part"):
        federate(plan(FedKLUCBVI(), quorum=2), nodes, tls_files)


class Liar(Node):
    """It claims a visit more than there was, under its masks."""

    def answer(self, message: Any) -> Any:
        answer = super().answer(message)
        if isinstance(answer, Report):
            answer.arrays[0][0, 0] += 1
        return answer


def test_a_sum_that_cannot_be_true_stops_the_run_and_nobody_is_named(tls_files: TLSByName) -> None:
    nodes = [Liar("node-0", lambda M: WORLD, 0, 1), *make_nodes(WORLD, SPLIT)[1:]]
    with pytest.raises(FederationStoppedError, match=r"up to what cannot be true: all agents.*hide which") as stop:
        federate(plan(FedKLUCBVI()), nodes, tls_files)
    assert "node-0" not in str(stop.value)


# ----------------------------------------------------------------------------------------------------- what cannot be


NO_COUNTS = "does not report what agents count in one round, which secure sums add up"


@pytest.mark.parametrize(
    ("algorithm", "world", "changes", "says"),
    [
        (FedKLUCBVI(), WORLD, {"nodes": ("a", "b")}, "at least 3 nodes"),
        (FedKLUCBVI(), WORLD, {"least_members": 5}, "at least 5 nodes"),
        (FedKLUCBVI(), WORLD, {"least_members": 2}, "least_members must be at least 3"),
        (FedKLUCBVI(), synthetic(agents=2), {}, "at least 3 nodes"),
        (FedKLUCBVI(optimism="drawn"), WORLD, {}, "plays several policies in a round"),
        (ByzanUCBVI(), WORLD, {}, NO_COUNTS),
        (FedQBernstein(), WORLD, {}, NO_COUNTS),
        (FedUCBVI(), WORLD, {}, NO_COUNTS),
    ],
)
def test_plans_sums_cannot_hide_are_refused(algorithm: Any, world: Any, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan(algorithm, world, **changes)


@pytest.mark.parametrize(
    ("algorithm", "states", "rest", "says"),
    [
        (FedKLUCBVI(), 500, {}, r"be 5,000,000 numbers .* at most 4,194,304\. Use fewer states"),
        (FedKLUCBVI(stationary=True), 2000, {}, r"be 8,000,000 numbers .* at most 4,194,304\. Use fewer states"),
    ],
)
def test_counts_above_a_message_are_refused(algorithm: Any, states: int, rest: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        _ = RunPlan(algorithm, Setting(states, 2, 10, 3, 10, 0.0, 0), rules=FederationRules(**rest)).support
    _ = RunPlan(algorithm, Setting(states // 2, 2, 10, 3, 10, 0.0, 0), rules=FederationRules(**rest)).support


def test_nodes_refuse_what_they_have_not_agreed_to(certs: Path) -> None:
    node = Node("node-0", lambda M: WORLD, 0, 1, terms=NodeTerms(require_secure_sums=True))
    with pytest.raises(InputError, match="secure sums only"):
        node.enter(plan_for(FedUCBVI(), WORLD, T).welcome())
    with pytest.raises(InputError, match="need certificates"):
        node.enter(plan(FedKLUCBVI()).welcome())
    for least in ((1, 4), (2, 3)):
        node = Node("node-0", lambda M: WORLD, 0, 1, terms=NodeTerms(least_episodes=least[0], least_members=least[1]))
        node.identify(TLSFiles.of(certs, "node-0"), "127.0.0.1")
        with pytest.raises(InputError, match=r"this node wants . or more; serve it with --least-"):
            node.enter(plan(FedKLUCBVI()).welcome())


def test_join_says_in_which_company_a_node_takes_part(certs: Path, tmp_path: Path, monkeypatch: Any) -> None:
    made: list[Node] = []

    async def join(node: Node, *_: Any, **options: Any) -> None:
        made.append(node)
        raise InputError("enough")

    monkeypatch.setattr("fed_ucbvi.network.client.run_node", join)
    (tmp_path / "members.txt").write_text("node-1\n" + ":".join(["AB"] * 32), encoding="utf-8")
    company = ("--members", tmp_path / "members.txt", "--least-members", "4", "--least-episodes", "2")
    own = ("--name", "node-0", "--certs", certs, "--no-rewards")
    assert "enough" in refusal("join", "127.0.0.1:1", *own, *company)
    (node,) = made
    assert node.members == {"node-1", "ab" * 32}
    assert node.terms == NodeTerms(least_members=4, least_episodes=2, no_rewards=True)
