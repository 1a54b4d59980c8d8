"""Attacks on secure sums, carried out with real processes: what a server tried to read stays unread.

A malicious server (``tests/support/malicious_server.py``) or an honest but curious one, and ``fed-ucbvi join`` over
TLS. Every attack is carried out twice: against nodes as they are, and against nodes in which exactly one check is
taken out. Then the server reads the victim's numbers, so the check is what keeps them secret.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fed_ucbvi.network.certificates import make_certificates
from federation_processes import PROBLEM as MANY_CELLS
from federation_processes import SECONDS, SERVER, Parties
from malicious_server import ALL, ATTACKS, GHOSTS, LOGGED, NAMES, PROBLEM, STEPS, VICTIM, carry_out
from matrices import first_of
from unchecked_nodes import AS_IT_IS

Arrays = list[np.ndarray[Any, Any]]


with_and_without = pytest.mark.parametrize(
    "cured", [True, pytest.param(False, marks=pytest.mark.full)], ids=["as it is", "without it"]
)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("authority") / "certs"
    make_certificates(path, server="server", nodes=[*NAMES, *GHOSTS])
    return path


@pytest.fixture
def parties(certs: Path, tmp_path: Path) -> Iterator[Parties]:
    (tmp_path / "certs").symlink_to(certs)
    with Parties(tmp_path) as parties:
        yield parties


def joining(parties: Parties, name: str, *options: str, problem: Sequence[str] = PROBLEM) -> tuple[str, ...]:
    own = ("--certs", str(parties.folder / "certs"), "--name", name, "--first-agent", name[-1], *problem)
    return ("join", parties.address, *own, "--patience", "60", *options)


def write_log(path: Path) -> None:
    """Episodes of the victim: always action 0, and always state 0."""
    rows = [f"{episode},{step},0,0,0.5,0" for episode in range(LOGGED) for step in range(STEPS)]
    path.write_text("\n".join(["episode,step,state,action,reward,next_state", *rows]), encoding="utf-8")


def noting(check: str, folder: Path, command: Sequence[str], seconds: float = 0.0) -> tuple[str, ...]:
    """The command, without one check; it notes what it sends."""
    return ("@unchecked_nodes:take_part", check, str(folder), str(seconds), *command)


def sent(folder: Path, name: str) -> list[Arrays]:
    """What a node has noted, in order."""
    files = sorted(folder.glob(f"{name}.*.npz"), key=lambda file: int(file.name.split(".")[1]))
    return [list(np.load(file).values()) for file in files]


@with_and_without
@pytest.mark.parametrize("name", first_of(list(ATTACKS)))
async def test_a_node_is_read_only_if_a_check_is_missing(
    name: str, cured: bool, parties: Parties, tmp_path: Path
) -> None:
    case = ATTACKS[name]
    (tmp_path / "members.txt").write_text("\n".join(NAMES), encoding="utf-8")
    write_log(tmp_path / "log.csv")

    def command(node: str) -> tuple[str, ...]:
        options = [*case.options.get(ALL, ()), *case.options.get(node, ())]
        if not cured and not case.check:  # the option is the cure
            options = []
        files = {"members.txt": "members.txt", "log.csv": "log.csv", "state": f"state-{node}"}
        placed = [str(tmp_path / files[option]) if option in files else option for option in options]
        whole = joining(parties, node, *placed, problem=case.problem)
        return whole if cured else noting(case.check or AS_IT_IS, tmp_path, whole)

    def begin(port: int) -> None:
        parties.port = port
        for node in case.nodes:
            parties.begin(node, *command(node))

    def restart(nodes: Sequence[str]) -> None:
        for node in nodes:
            parties.parties[node].kill()
            parties.begin(node, *command(node))

    read, said = await asyncio.wait_for(carry_out(case, tmp_path, begin, restart), SECONDS)
    if cured:
        assert read is None
        if case.says:
            while not any(case.says in words for words in (*(answer for *_, answer in said), parties.words())):
                await asyncio.sleep(0.01)
        return
    assert read is not None, said
    truth = case.part(tuple(sent(tmp_path, VICTIM)[0]))
    assert truth[0].any()
    for numbers, true in zip(read, truth, strict=False):
        assert np.abs(numbers - true).sum() <= case.tolerance


def serving(folder: Path, *options: str) -> tuple[str, ...]:
    return (
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--port-file",
        str(folder / "port"),
        "--certs",
        str(folder / "certs"),
        "--algorithm",
        "fed-kl-ucbvi",
        "--collection",
        "live",
        "--secure-sums",
        "--agents",
        "4",
        "--checkpoint",
        str(folder / "server"),
        "--json",
        *options,
    )


@pytest.mark.parametrize("cured", [True], ids=["as it is"])
@pytest.mark.full
def test_slower_nodes_stay_unread_by_server_and_nodes(cured: bool, parties: Parties, tmp_path: Path) -> None:
    """The server remembers every sum. Nodes are told N, which grows by the sum, and know their own part of it.

    Sums would be of the two fast nodes while the others take their time, and of the slowest in the end.
    """
    (reader, victim), (episodes, pace) = NAMES[2:], (24, 0.1) if cured else (12, 0.5)
    paces = {reader: pace, victim: 2 * pace}
    command = serving(tmp_path, "--episodes", str(episodes), *MANY_CELLS)
    parties.begin(SERVER, *noting(AS_IT_IS if cured else "a server's rule of three", tmp_path, command))
    check = AS_IT_IS if cured else "three contributors"
    for name in NAMES:
        whole = joining(parties, name, problem=MANY_CELLS)
        parties.begin(name, *noting(check, tmp_path, whole, paces.get(name, 0.0)))
    parties.end()
    sums = [total[0] for total in sent(tmp_path, "sum")]
    assert len(sums) > 5
    told = {name: [report[0] for report in sent(tmp_path, name) if report[0].any()] for name in NAMES}
    single = {name: {report.tobytes() for report in reports} for name, reports in told.items()}
    by_server = sum(total.tobytes() in single[victim] for total in sums)
    by_node = sum(
        (total - own).tobytes() in single[other]
        for one, other in (NAMES[:2], (reader, victim))
        for total, own in itertools.product(sums, told[one])
    )
    assert (by_server > 0, by_node > 0) == (not cured, not cured), (by_server, by_node)


@with_and_without
@pytest.mark.full
def test_an_environments_error_reaches_the_server_by_kind_only(cured: bool, parties: Parties, tmp_path: Path) -> None:
    parties.begin(SERVER, *serving(tmp_path, "--episodes", "9", "--sizes", "4,2,3"))
    live = ("--horizon", "3", "--reward-range", "-1,3", "--live", "gymnasium_problems:clinic")
    check = AS_IT_IS if cured else "the kind of errors alone"
    for name in NAMES:
        parties.begin(name, *noting(check, tmp_path, joining(parties, name, *live, problem=())))
    server = parties.server
    victim = parties.parties[VICTIM]
    parties.wait(lambda: "the node cannot continue" in server.words(), "a node to say why it ends")
    assert victim.end() == 2
    assert "patient 4711" in victim.words(), "its owner may know"
    assert ("4711" in server.words()) is not cured
    assert "the node cannot continue: ValueError" in server.words() or not cured
