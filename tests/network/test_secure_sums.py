"""Secure sums: masks that cancel, keys that are signed, and a server that learns the sum and nothing else."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace
from scipy import stats

from commands import refusal
from faults import Fragile, Noting, one_vanishes, with_deaths
from fed_ucbvi import FedKLUCBVI, FedUCBVI, InputError, gridworld, synthetic
from fed_ucbvi.algorithms import base, exact_sums, make_algorithm
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.algorithms.exact_sums import make_grid
from fed_ucbvi.network.certificates import TLSFiles, make_certificates
from fed_ucbvi.network.failures import DeclinedError, FederationStoppedError
from fed_ucbvi.network.federation_spec import FederationRules
from fed_ucbvi.network.messages import COUNTS, REWARDS, Denial, Played, Report, RosterEntry, Start
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.node_state_store import NodeStateStore
from fed_ucbvi.network.node_terms import NodeTerms
from fed_ucbvi.network.roster import Company, Credentials, der_of, fingerprint, make_roster, new_episodes
from fed_ucbvi.network.run_plan import RunPlan, plan_for
from fed_ucbvi.network.secure_sums import VERSION, framed, mask, masked, pair_key, summed
from fed_ucbvi.network.sent_sums import SentSums
from fed_ucbvi.network.sources import LiveSource
from network import Tap, TLSByName, assert_simulation, federate, first_broadcast, make_nodes, told_episodes

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


# ---------------------------------------------------------------------------------------------------------- rosters


D = b"d" * 32
"""The binding of a broadcast."""


def signed(folder: Path, run: str = "the-run", **ready: Any) -> tuple[list[Credentials], list[RosterEntry]]:
    """Three nodes, of four agents, and what they have signed for round 5."""
    own = []
    entries = []
    said = {"number": 5, "binding": D, "episodes": (2, 2), "confirmed": (0, 0), **ready}
    for name, first, m in zip(NAMES, (0, 1, 3), SPLIT, strict=False):
        own.append(Credentials(name, first, m, run, TLSFiles.of(folder, name)))
        made = own[-1].ready(*said.values(), rewards=True)
        entries.append(RosterEntry(name, first, m, der_of((folder / f"{name}.crt").read_bytes()), made))
    return own, entries


def test_nodes_that_accept_a_roster_have_the_same_keys_in_pairs(certs: Path) -> None:
    own, entries = signed(certs)
    roster = make_roster(5, 1, entries[::-1])
    keys = [one.pairs(roster, 4) for one in own]
    for i, j in itertools.combinations(range(3), 2):
        assert keys[i][NAMES[j]] == keys[j][NAMES[i]]
    assert len({key for one in keys for key in one.values()}) == 3
    longer = make_roster(5, 2, entries)
    assert not set(own[0].pairs(longer, 4).values()) & set(keys[0].values())
    assert new_episodes(longer) == dict.fromkeys((COUNTS, REWARDS), dict.fromkeys(NAMES[:3], 4))


def forged(
    folder: Path, mine: RosterEntry, one: RosterEntry, two: RosterEntry
) -> Iterator[tuple[list[RosterEntry], str]]:
    """Rosters that no honest server sends, and what node-0 says."""
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    for content in (
        {"key": key},
        {"episodes": 9},
        {"uncredited": 9},
        {"since": (4, 0)},  # the last: what it has confirmed
        {"rewards": False},
        {"signature": b""},
        {"key": b""},
    ):
        yield [mine, replace(one, ready=replace(one.ready, **content)), two], "what it has not signed"
    for other in (replace(one, agents=1), signed(folder, "another run")[1][1], signed(folder, number=6)[1][1]):
        yield [mine, other, two], "what it has not signed"
    yield [mine, signed(folder, binding=b"e" * 32)[1][1], two], "different broadcasts"
    yield [mine, replace(two, name="node-1"), replace(one, name="node-2")], "not this node's"
    files = TLSFiles.of(folder, "server")
    server = Credentials("server", 1, 2, "the-run", files).ready(5, D, (2, 2), (0, 0), rewards=True)
    der = der_of((folder / "server.crt").read_bytes())
    yield [mine, RosterEntry("node-1", 1, 2, der, server), two], "not this node's"
    yield [mine, replace(one, certificate=b""), two], "without a node's certificate"
    yield [mine, one, one], "twice, or is out of order"
    yield [mine, one, replace(two, agents=0)], "an agent twice, or agents that are not"
    yield [mine, one, replace(two, agents=2)], "an agent twice, or agents that are not"
    yield [mine, replace(one, first_agent=0), two], "an agent twice"
    yield [one, two], "does not have what this node has signed"
    yield [replace(mine, ready=replace(mine.ready, episodes=1)), one, two], "what this node has signed"
    yield [signed(folder)[1][0], one, two], "does not have what this node has signed"  # of before


def test_a_roster_that_no_honest_server_sends_ends_the_node(certs: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, nodes=NAMES[:3])
    own, (mine, one, two) = signed(certs)
    foreign = [mine, signed(tmp_path)[1][1], two]
    for roster, says in (*forged(certs, mine, one, two), (foreign, "not of this federation's authority")):
        with pytest.raises(InputError, match=says):
            own[0].pairs(make_roster(5, 1, roster), 4)
    own[0].pairs(make_roster(5, 1, [mine, one, two]), 4)


def test_a_certificate_that_is_out_of_date_does_not_count(tmp_path: Path) -> None:
    make_certificates(tmp_path, nodes=NAMES[:2])
    make_certificates(tmp_path, nodes=NAMES[2:], days=-1)
    own, entries = signed(tmp_path)
    with pytest.raises(InputError, match="out of date"):
        own[0].pairs(make_roster(5, 1, entries), 4)


def test_too_few_contributors_are_declined(certs: Path) -> None:
    """Of three that are needed; of those with enough episodes; of those pinned, by name or by certificate."""
    own, entries = signed(certs)
    roster = make_roster(5, 1, entries)
    print_of = hashlib.sha256(entries[2].certificate).hexdigest()
    for good in ({}, {"least_episodes": 3}, {"members": {*NAMES}}, {"members": {"node-0", "node-1", print_of}}):
        own[0].pairs(roster, 4, Company(**good))
    for bad in ({"least_episodes": 4}, {"least_members": 4}, {"members": {"node-0", "node-1", "node-7"}}):
        with pytest.raises(DeclinedError):
            own[0].pairs(roster, 4, Company(**bad))
    with pytest.raises(DeclinedError, match="2 nodes that count"):
        own[0].pairs(make_roster(5, 1, entries[:2]), 4)


def test_rewards_are_told_where_three_with_new_episodes_tell_them(certs: Path) -> None:
    _, entries = signed(certs)
    assert Company().tells_rewards(make_roster(5, 0, entries))
    silent = replace(entries[2], ready=replace(entries[2].ready, rewards=False))
    idle = replace(entries[2], ready=replace(entries[2].ready, uncredited=0))
    for other in (silent, idle):
        assert not Company().tells_rewards(make_roster(5, 0, [*entries[:2], other]))


# --------------------------------------------------------------------------------------------- what is sent again


def empty_store(folder: Path | None = None) -> NodeStateStore:
    """Of agents without any state."""
    return NodeStateStore(Mock(**{"state.return_value": {}}), {"run": "the-run"}, folder)


class Sender:
    """What ``node-0`` sends, asked by a server that confirms what it likes.

    With a folder ``kept`` its process is started again before every question.
    """

    def __init__(self, folder: Path, most_failures: int = 9, kept: Path | None = None) -> None:
        self.own, self.entries = signed(folder)
        self._most = most_failures
        self._kept = kept
        self._store = empty_store(kept)
        self.used = dict.fromkeys((COUNTS, REWARDS), (0, b""))
        self.asked: dict[int, bytes] = {}

    @property
    def sums(self) -> SentSums:
        store = self._store if self._kept is None else empty_store(self._kept)
        return SentSums(store, "node-0", "the-run", self._most)

    def ask(
        self,
        number: int,
        new: dict[str, tuple[int, int]],
        *parts: str,
        report: int = 0,
        denials: Sequence[Denial] = (),
        used: bool = True,
    ) -> int:
        """Ask for parts of nodes with so many episodes that are not counted and not credited; failures by now."""
        sums = self.sums
        sums.begin(number, self.used, {part: last for part, (last, _) in self.used.items()})
        entries = [
            replace(one, ready=replace(one.ready, episodes=new[one.name[-1]][0], uncredited=new[one.name[-1]][1]))
            for one in self.entries
            if one.name[-1] in new
        ]
        roster = make_roster(number, 0, entries, denials, counts=COUNTS in parts, rewards=REWARDS in parts)
        sums.check(roster, dict.fromkeys(parts, (np.array([report or number]),)), self.own[0].authority)
        self.asked[number] = fingerprint(roster)
        if used:
            self.used |= dict.fromkeys(parts, (number, fingerprint(roster)))
        return sums.failures


def everyone(counted: int, credited: int, names: str = "012") -> dict[str, tuple[int, int]]:
    return dict.fromkeys(names, (counted, credited))


@pytest.mark.parametrize("parts", [(COUNTS, REWARDS), (REWARDS,)], ids=["counts and rewards", "rewards alone"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_what_was_sent_is_sent_again_only_in_the_same_company_or_after_new_episodes(
    certs: Path, tmp_path: Path, on_disk: bool, parts: tuple[str, ...]
) -> None:
    """Also by a process that is started again: the store is opened anew before every question."""
    sender = Sender(certs, 2, tmp_path if on_disk else None)
    own = sender.own
    asked = sender.asked

    def ask(number: int, names: str, episodes: int, report: int, *denials: Denial) -> int:
        new = everyone(episodes, episodes, names)
        return sender.ask(number, new, *parts, report=report, denials=denials, used=False)

    ask(1, "012", 2, 10)
    ask(1, "012", 2, 10)  # the very same
    for other in ((1, "01", 2, 10), (1, "012", 2, 11), (1, "012", 3, 10), (1, "01", 3, 11)):
        with pytest.raises(DeclinedError, match="other company only after new episodes"):
            ask(*other)
    with pytest.raises(DeclinedError, match="after new episodes"):
        ask(2, "01", 2, 10)
    assert sender.sums.failures == 0
    assert ask(2, "01", 3, 12) == 1
    certificate = sender.entries[1].certificate
    missed = asked[2]
    for wrong in ((own[1], "node-1", 1, missed), (own[1], "node-1", 2, asked[1]), (own[2], "node-2", 2, missed)):
        who, name, number, digest = wrong
        denial = Denial(name, number, digest, who.denial(number, digest), certificate)
        with pytest.raises(DeclinedError):  # another roster, or not of that roster
            ask(3, "01", 3, 12, denial)
    with pytest.raises(InputError, match="not signed"):
        ask(3, "01", 3, 12, Denial("node-1", 2, missed, own[2].denial(2, missed), certificate))
    right = Denial("node-1", 2, missed, own[1].denial(2, missed), certificate)
    with pytest.raises(DeclinedError):  # if node-1 lies, node-2's numbers are the difference of two sums
        ask(3, "012", 3, 12, right)
    assert ask(3, "01", 3, 12, right) == 1
    if not on_disk:
        with pytest.raises(InputError, match="has not answered"):
            sender.sums.begin(4, dict.fromkeys((COUNTS, REWARDS), (3, b"another")), {COUNTS: 3, REWARDS: 3})
        sender.used = {part: (3, asked[3]) if part in parts else (-1, b"") for part in (COUNTS, REWARDS)}
        assert ask(4, "01", 1, 1) == 1  # nothing of it was sent before
    assert ask(5, "012", 4, 2) == 2
    with pytest.raises(InputError, match=r"3 synchronisations have failed .* it allows 2"):
        ask(6, "01", 5, 3)
    assert not sender.sums.may_deny(5, asked[5])
    assert not sender.sums.may_deny(4, b"another")
    assert sender.sums.may_deny(5, b"another")
    assert sender.sums.may_deny(6, b"")


def test_counts_are_added_up_over_the_episodes_whose_rewards_were(certs: Path) -> None:
    """A sum of counts over others than the sums of rewards since the last one counts as a failure."""
    honest = Sender(certs)
    assert honest.ask(1, everyone(2, 2), COUNTS, REWARDS) == 0
    assert honest.ask(2, everyone(1, 1), REWARDS) == 0
    assert honest.ask(3, everyone(2, 1), REWARDS) == 0
    assert honest.ask(3, everyone(2, 1), COUNTS) == 0  # for a policy to recommend
    assert honest.ask(4, everyone(3, 3), REWARDS) == 0
    assert honest.ask(5, everyone(4, 1), COUNTS, REWARDS) == 0
    for number, (last, parts) in enumerate(
        [
            (everyone(4, 1, "01"), (COUNTS, REWARDS)),
            (everyone(3, 0, "01"), (COUNTS,)),
            (everyone(4, 1) | {"2": (3, 1)}, (COUNTS, REWARDS)),
            (everyone(4, 1), (COUNTS,)),
        ]
    ):
        sender = Sender(certs)
        assert sender.ask(1, everyone(3, 3), REWARDS) == 0
        assert sender.ask(2, last, *parts) == 1, number
    late = Sender(certs)  # what others have told before it came, it must believe
    assert late.ask(4, everyone(3, 1) | {"0": (1, 1)}, REWARDS) == 0
    assert late.ask(5, everyone(4, 1) | {"0": (2, 1)}, COUNTS, REWARDS) == 0


@pytest.mark.parametrize("part", [COUNTS, REWARDS])
def test_a_sum_that_was_confirmed_to_another_member_is_not_sent_again_on_a_denial(certs: Path, part: str) -> None:
    """If the denial is false, the server has both sums, and the earlier numbers of that member are in one of them."""
    sender = Sender(certs)
    parts = (COUNTS, REWARDS) if part == COUNTS else (REWARDS,)
    first = make_roster(1, 0, sender.entries, counts=COUNTS in parts)
    sender.sums.check(first, dict.fromkeys(parts, (np.array([1]),)), sender.own[0].authority)
    digest = fingerprint(first)
    denial = Denial("node-1", 1, digest, sender.own[1].denial(1, digest), sender.entries[1].certificate)

    def ask(since: int) -> int:
        confirmed = (since, 0) if part == COUNTS else (0, since)
        mine, one, two = sender.entries
        entries = [mine, one, replace(two, ready=replace(two.ready, since=confirmed))]
        roster = make_roster(2, 0, entries, [denial], counts=COUNTS in parts)
        sender.sums.check(roster, dict.fromkeys(parts, (np.array([2]),)), sender.own[0].authority)
        return sender.sums.failures

    with pytest.raises(DeclinedError, match="only after new episodes"):
        ask(1)
    assert ask(0) == 0


def test_a_node_may_deny_one_sum_of_a_round_and_not_another(certs: Path) -> None:
    sender = Sender(certs)
    sender.ask(1, everyone(3, 3), REWARDS)
    (_, answered), other = sender.used[REWARDS], b"of counts"
    assert not sender.sums.may_deny(1, answered)
    assert sender.sums.may_deny(1, other)
    assert sender.sums.may_deny(2, answered)
    sender.ask(1, everyone(3, 3), COUNTS)
    assert not sender.sums.may_deny(1, answered)
    assert not sender.sums.may_deny(1, sender.used[COUNTS][1])


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
def test_masked_runs_are_the_simulation_bit_for_bit_but_for_who_asked(
    variant: str, words: int, tls_files: TLSByName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two messages of a node for each round, and two for the handshake: its episodes, and its report.

    After a last round without a request it reports twice: what that paid, and counts for the policy to recommend.
    """
    algorithm, world = VARIANTS[variant]
    if words == 2:
        monkeypatch.setattr(exact_sums, "ENOUGH_BITS", 50)
        monkeypatch.setattr(base, "make_grid", exact_sums.make_grid.__wrapped__)  # grids are cached
    task = plan(algorithm, world, 20)
    assert algorithm.grid(task.setting).words == words
    outcome = federate(task, make_nodes(world, SPLIT), tls_files)
    assert_simulation(outcome, task, secure=True)
    requests = outcome.run.records["requests"]
    assert (requests[:-1] > 0).all()
    assert outcome.wire.messages_up == 3 * (2 + 2 * len(requests) + (requests[-1] == 0))


def in_the_open(algorithm: Any, setting: Setting, *sums: list[Any]) -> Any:
    """A server fed with what nodes would have sent without masks."""
    server = algorithm.new_server(setting)
    for reports in sums:
        algorithm.aggregate(server, tuple(np.concatenate(arrays) for arrays in zip(*reports, strict=True)), 0)
    return server


@pytest.mark.parametrize("random_rewards", [False, True])
def test_a_live_run_with_masks_learns_what_its_nodes_sums_say(random_rewards: bool, tls_files: TLSByName) -> None:
    """Such a run depends on timing; so its nodes note what they reported, and a server is fed with it in the open.

    What nodes have to themselves at the end, because fewer than three had anything new, is not in it.
    """
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
    asked = {i + 1 for i, requests in enumerate(outcome.run.records["requests"]) if requests}
    summed_in = sorted(number for number in nodes[0].reports if number in asked)
    assert len(summed_in) > 3
    server = in_the_open(algorithm, setting, *([node.reports[number] for node in nodes] for number in summed_in))
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


@pytest.mark.parametrize("dies_at", [2, 3, 4, 12])
def test_a_node_that_returns_with_a_new_key_changes_nothing(
    dies_at: int, tls_files: TLSByName, tmp_path: Path
) -> None:
    """In a round it is sent a start, a stop and a roster. The others answer the next roster, of the same nodes."""
    task = plan(FedKLUCBVI(), patience=20.0)
    outcome = with_deaths(task, WORLD, SPLIT, tmp_path, [dies_at], tls_files=tls_files)
    assert_simulation(outcome, task, secure=True)


def test_a_live_node_whose_line_breaks_in_a_round_signs_anew(tls_files: TLSByName) -> None:
    """What it signed before is of no use: the key went with the stream."""
    task = plan(FedKLUCBVI(), collection="live", run="the-run")
    start = Start(1, 0, 0, 5, 1, first_broadcast(task))
    entries = []
    nodes = make_nodes(WORLD, SPLIT)
    for node in (*nodes, nodes[0]):
        if node.welcome is None:
            node.identify(tls_files(node.name), "127.0.0.1")
        node.enter(task.welcome())
        played: Any = node.answer(start)
        while played is None:
            played = node.play_on()
        assert played.ready is not None
        certificate = der_of(tls_files(node.name).read()[1])
        entries.append(RosterEntry(node.name, node.first_agent, node.agents, certificate, played.ready))
    with pytest.raises(InputError, match="does not have what this node has signed"):
        nodes[0].answer(make_roster(1, 0, entries[:3]))
    answers = [node.answer(make_roster(1, 0, entries[1:])) for node in nodes]
    total = summed(answer.arrays for answer in answers if isinstance(answer, Report))
    assert total[0].sum() == sum(entry.agents * entry.ready.episodes for entry in entries[1:]) * WORLD.horizon


@pytest.mark.parametrize("collection", ["lockstep", "live"])
@pytest.mark.parametrize("silent", [False, True], ids=["after it has answered", "before it answers"])
def test_nothing_is_lost_if_a_node_vanishes_in_a_sum(collection: str, silent: bool, tls_files: TLSByName) -> None:
    """What the others had to report goes with their next report, once, and they count one failure.

    If the vanished node had answered, the sum is used.
    """
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
    T = task.setting.episodes
    failed = [event["round"] for event in outcome.events if "synchronisation failed" in event["what"]]
    assert failed == [2]  # a process that dies takes its answer along: the stream is gone before it is read
    assert [event["done"] for event in outcome.events if event["node"] == "node-0"] == ["the round closes without it"]
    assert all(node.finished and node._sent.failures == 1 for node in others)
    records = outcome.run.records
    asked = [i + 1 for i, requests in enumerate(records["requests"]) if requests]
    used = sorted(number for number in others[0].reports if number in asked and number != 2)
    server = in_the_open(
        algorithm,
        task.setting,
        *([node.reports[n] for node in ([mortal, *others] if n == 1 else others)] for n in used),
    )
    assert np.array_equal(outcome.run.V, server.V)
    for node in others:
        new = sum(told_episodes(node, node.reports[number]) for number in used)
        assert new <= T
        later = [told_episodes(node, node.reports[n]) for n in (2, 3)]
        assert later[1] > later[0] > 0


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


NO_COUNTS = "does not report new counts"


@pytest.mark.parametrize(
    ("algorithm", "world", "changes", "says"),
    [
        (FedKLUCBVI(), WORLD, {"nodes": ("a", "b")}, "at least 3 nodes"),
        (FedKLUCBVI(), WORLD, {"least_members": 5}, "at least 5 nodes"),
        (FedKLUCBVI(), WORLD, {"least_members": 2}, "least_members must be at least 3"),
        (FedKLUCBVI(), synthetic(agents=2), {}, "at least 3 nodes"),
        (make_algorithm("byzan-ucbvi", {}), WORLD, {}, NO_COUNTS),
        (make_algorithm("fedq-bernstein", {}), WORLD, {}, NO_COUNTS),
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
    own = ("--name", "node-0", "--certs", certs, "--most-failures", "0", "--no-rewards")
    assert "enough" in refusal("join", "127.0.0.1:1", *own, *company)
    (node,) = made
    assert node.members == {"node-1", "ab" * 32}
    assert node.terms == NodeTerms(least_members=4, least_episodes=2, most_failures=0, no_rewards=True)
