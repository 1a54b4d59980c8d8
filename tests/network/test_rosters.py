"""Rosters of secure sums: what nodes sign, which rosters they answer, and what their statements cover."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace

from fed_ucbvi import InputError
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.failures import DeclinedError
from fed_ucbvi.network.messages import Ready, RosterEntry, Start, Welcome
from fed_ucbvi.network.roster import (
    OWN_FIELDS,
    SumPolicy,
    broadcast_digest,
    der_of,
    make_roster,
    welcome_digest,
)
from rosters import AGENTS, DIGEST, NAMES, SignedEntry, credentials_of, sign_all

# ---------------------------------------------------------------------------------------------------- what is signed


WELCOME = Welcome(
    protocol=1,
    version="1",
    run="the-run",
    epoch=1,
    spec=b"{}",
    eps_p=0.1,
    grid_bits=1,
    earlier_visits=1,
    bins=b"{}",
    support=b"s",
)
START = Start(
    round=1,
    base=1,
    first=1,
    most=1,
    chunk=1,
    arrays=(np.ones(2), np.ones(3)),
    confirmed=1,
    playing=1,
    judged=(1,),
)


def other_value(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case tuple():
            return value[:-1]
        case bytes():
            return value + b"x"
        case str():
            return value + "x"
        case _:
            return value + 1


@pytest.mark.parametrize("field", Welcome.__struct_fields__)
def test_the_digest_covers_every_field_of_a_welcome_but_the_epoch(field: str) -> None:
    other = replace(WELCOME, **{field: other_value(getattr(WELCOME, field))})
    assert (welcome_digest(other) != welcome_digest(WELCOME)) == (field != "epoch")


@pytest.mark.parametrize("collection", OWN_FIELDS)
@pytest.mark.parametrize("field", Start.__struct_fields__)
def test_the_digest_covers_every_field_of_a_start_but_where_a_node_resumes(field: str, collection: str) -> None:
    other = replace(START, **{field: other_value(getattr(START, field))})
    changed = broadcast_digest(b"", other, collection) != broadcast_digest(b"", START, collection)
    assert changed == (field not in OWN_FIELDS[collection])


def test_the_digest_covers_every_number_of_a_broadcast() -> None:
    policy = np.zeros((2, 3), dtype=np.int32)
    digests = {broadcast_digest(b"", replace(START, arrays=(policy,)), "live")}
    for place in np.ndindex(policy.shape):
        other = policy.copy()
        other[place] = 1
        digests.add(broadcast_digest(b"", replace(START, arrays=(other,)), "live"))
    assert len(digests) == 1 + policy.size


def test_the_digest_covers_the_welcome() -> None:
    assert broadcast_digest(b"one", START, "live") != broadcast_digest(b"other", START, "live")


# ------------------------------------------------------------------------------------------------ rosters of a round


def accept(signed: SignedEntry, entries: Sequence[RosterEntry], number: int = 5) -> dict[str, bytes]:
    """The keys of a node for a roster; raises where it does not accept it."""
    return signed.credentials.pairs(make_roster(number, entries), signed.entry, signed.key, AGENTS)


def test_nodes_that_accept_a_roster_share_one_key_in_pairs(certs: Path) -> None:
    signed = sign_all(certs)
    keys = [accept(one, [other.entry for other in signed]) for one in signed]
    for i, j in itertools.combinations(range(3), 2):
        assert keys[i][NAMES[j]] == keys[j][NAMES[i]]
    assert len({key for one in keys for key in one.values()}) == 3


def test_another_roster_has_other_keys(certs: Path) -> None:
    signed = sign_all(certs)
    both = accept(signed[0], [one.entry for one in signed])
    fewer = accept(signed[0], [one.entry for one in signed[:2]])
    assert both["node-1"] != fewer["node-1"]


Forged = Callable[[Path, RosterEntry, RosterEntry, RosterEntry], list[RosterEntry]]


def with_ready(**content: Any) -> Forged:
    """A roster in which another node's statement is changed."""

    def forge(folder: Path, mine: RosterEntry, one: RosterEntry, two: RosterEntry) -> list[RosterEntry]:
        return [mine, replace(one, ready=replace(one.ready, **content)), two]

    return forge


def with_entry(**content: Any) -> Forged:
    """A roster in which another node's entry is changed."""

    def forge(folder: Path, mine: RosterEntry, one: RosterEntry, two: RosterEntry) -> list[RosterEntry]:
        return [mine, replace(one, **content), two]

    return forge


def with_statement(**said: Any) -> Forged:
    """A roster in which another node has really signed something else."""

    def forge(folder: Path, mine: RosterEntry, one: RosterEntry, two: RosterEntry) -> list[RosterEntry]:
        return [mine, sign_all(folder, **said)[1].entry, two]

    return forge


def with_certificate_of_the_server(
    folder: Path, mine: RosterEntry, one: RosterEntry, two: RosterEntry
) -> list[RosterEntry]:
    entry, _ = credentials_of(folder, "server", 1, 2).sign(5, DIGEST, 2, rewards=True)
    der = der_of((folder / "server.crt").read_bytes())
    return [mine, RosterEntry("node-1", 1, 2, der, entry.ready), two]


NOT_SIGNED = "what it has not signed"
NOT_OWN = "does not have what this node has signed"
FORGED: dict[str, tuple[Forged, str]] = {
    "another key": (with_ready(key=X25519PrivateKey.generate().public_key().public_bytes_raw()), NOT_SIGNED),
    "more episodes": (with_ready(episodes=9), NOT_SIGNED),
    "no rewards": (with_ready(rewards=False), NOT_SIGNED),
    "no signature": (with_ready(signature=b""), NOT_SIGNED),
    "no key": (with_ready(key=b""), NOT_SIGNED),
    "fewer agents": (with_entry(agents=1), NOT_SIGNED),
    "of another run": (with_statement(run="another run"), NOT_SIGNED),
    "of another round": (with_statement(number=6), "signed for another round"),
    "another broadcast": (with_statement(digest=b"e" * 32), "different broadcasts"),
    "names exchanged": (
        lambda folder, mine, one, two: [mine, replace(two, name="node-1"), replace(one, name="node-2")],
        "not this node's",
    ),
    "the server's certificate": (with_certificate_of_the_server, "not this node's"),
    "no certificate": (with_entry(certificate=b""), "without a node's certificate"),
    "a node twice": (lambda folder, mine, one, two: [mine, one, one], "twice, or is out of order"),
    "a node without agents": (with_entry(agents=0), "an agent twice, or agents that are not"),
    "more agents than there are": (
        lambda folder, mine, one, two: [mine, one, replace(two, agents=2)],
        "an agent twice, or agents that are not",
    ),
    "an agent twice": (with_entry(first_agent=0), "an agent twice"),
    "without this node": (lambda folder, mine, one, two: [one, two], NOT_OWN),
    "this node with fewer episodes": (
        lambda folder, mine, one, two: [replace(mine, ready=replace(mine.ready, episodes=1)), one, two],
        NOT_OWN,
    ),
    "an older statement of this node": (
        lambda folder, mine, one, two: [sign_all(folder)[0].entry, one, two],
        NOT_OWN,
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_roster_that_no_honest_server_sends_is_refused(name: str, certs: Path) -> None:
    forge, says = FORGED[name]
    signed = sign_all(certs)
    with pytest.raises(InputError, match=says):
        accept(signed[0], forge(certs, *(one.entry for one in signed)))


def test_a_node_of_another_authority_is_refused(certs: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, nodes=NAMES)
    signed = sign_all(certs)
    foreign = sign_all(tmp_path)[1].entry
    with pytest.raises(InputError, match="not of this federation's authority"):
        accept(signed[0], [signed[0].entry, foreign, signed[2].entry])


def test_a_certificate_that_is_out_of_date_is_refused(tmp_path: Path) -> None:
    make_certificates(tmp_path, nodes=NAMES[:2])
    make_certificates(tmp_path, nodes=NAMES[2:], days=-1)
    signed = sign_all(tmp_path)
    with pytest.raises(InputError, match="out of date"):
        accept(signed[0], [one.entry for one in signed])


# ------------------------------------------------------------------------------------------------------ contributors


@pytest.mark.parametrize("episodes", [(2, 2, 2), (5, 2, 9)])
def test_three_nodes_with_enough_episodes_are_enough(episodes: Sequence[int], certs: Path) -> None:
    roster = make_roster(5, [one.entry for one in sign_all(certs, episodes=episodes)])
    SumPolicy(least_episodes=2).check(roster)


@pytest.mark.parametrize(
    ("policy", "episodes"),
    [
        (SumPolicy(least_episodes=3), (3, 3, 2)),
        (SumPolicy(), (3, 3, 0)),
        (SumPolicy(least_members=4), (3, 3, 3)),
        (SumPolicy(members={"node-0", "node-1", "node-7"}), (3, 3, 3)),
    ],
    ids=["too few episodes", "no episodes", "too few nodes", "a node that does not count"],
)
def test_too_few_contributors_are_declined(policy: SumPolicy, episodes: Sequence[int], certs: Path) -> None:
    roster = make_roster(5, [one.entry for one in sign_all(certs, episodes=episodes)])
    with pytest.raises(DeclinedError, match="are needed"):
        policy.check(roster)


def test_a_node_counts_by_the_fingerprint_of_its_certificate(certs: Path) -> None:
    entries = [one.entry for one in sign_all(certs)]
    fingerprint = hashlib.sha256(entries[2].certificate).hexdigest()
    SumPolicy(members={"node-0", "node-1", fingerprint}).check(make_roster(5, entries))


def test_rewards_are_summed_if_three_nodes_with_episodes_report_them(certs: Path) -> None:
    assert SumPolicy().sums_rewards(make_roster(5, [one.entry for one in sign_all(certs)]))


@pytest.mark.parametrize("said", [{"rewards": (True, True, False)}, {"episodes": (2, 2, 0)}])
def test_rewards_of_fewer_nodes_are_not_summed(said: dict[str, Any], certs: Path) -> None:
    assert not SumPolicy().sums_rewards(make_roster(5, [one.entry for one in sign_all(certs, **said)]))


def test_a_node_declines_if_rewards_would_be_those_of_nodes_that_do_not_count(certs: Path) -> None:
    """All three report rewards, so they are part of the sum; by its own list this node sees two contributors."""
    roster = make_roster(5, [one.entry for one in sign_all(certs)])
    with pytest.raises(DeclinedError):
        SumPolicy(members={"node-0", "node-1"}).check(roster)


def test_a_statement_is_the_same_for_all_who_read_it(certs: Path) -> None:
    """Every field of a statement is signed."""
    signed = sign_all(certs)[1]
    entry = signed.entry
    for field in Ready.__struct_fields__:
        if field == "signature":
            continue
        other = getattr(entry.ready, field)
        changed = (not other) if isinstance(other, bool) else other_value(other)
        forged = replace(entry, ready=replace(entry.ready, **{field: changed}))
        with pytest.raises(InputError, match=NOT_SIGNED):
            signed.credentials.authority.check(forged, "the-run")
    signed.credentials.authority.check(entry, "the-run")
