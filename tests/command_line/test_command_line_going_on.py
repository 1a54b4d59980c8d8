"""Going on, as it is asked for on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from commands import SMALL, call, refusal
from fed_ucbvi import FedUCBVI, Run
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from federation_processes import Party
from repository import ROOT


def told(*arguments: object) -> dict[str, Any]:
    """The one object that a command prints."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


def test_a_run_goes_on_and_another_starts_from_its_counts(tmp_path: Path) -> None:
    kept, counts = tmp_path / "kept", tmp_path / "counts.npz"
    assert told(*SMALL, "--checkpoint", kept)["episodes"] == 60
    summary = told("resume", kept, "--episodes", "200", "--out", tmp_path / "longer")
    assert (summary["episodes"], summary["complete"]) == (200, True)
    assert Run.load(tmp_path / "longer").episodes_played == 200
    about = told("counts", kept, "--out", counts)
    assert about["visits"] == 3 * 200 * about["horizon"]
    cold, warm = told(*SMALL), told(*SMALL, "--warm-start", counts)
    assert warm["regret"] < cold["regret"]
    assert warm["facts"]["earlier_visits"] == about["most_visits"] if "facts" in warm else True
    assert told(*SMALL, "--warm-start", kept)["regret"] == warm["regret"]
    assert "cannot go on with 100" in refusal("resume", kept, "--episodes", "100")
    assert "is not a file" in refusal(*SMALL, "--warm-start", tmp_path / "missing.npz")
    assert "cannot start from the counts" in refusal(*SMALL[:7], "--algorithm", "ucbvi", "--warm-start", counts)
    assert "holds no manifest.json" in refusal("counts", tmp_path, "--out", counts)


def test_the_document_says_of_every_algorithm_what_it_allows() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = text[text.index("| algorithm | more episodes") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    found = {name: row[1:] for row in rows for name in re.findall(r"`([a-z-]+)`", row[0])}
    assert set(found) == set(ALGORITHMS)
    for name, cells in found.items():
        reasons = make_algorithm(name, {}).going_on
        assert [cell.startswith("yes") for cell in cells] == [reason == "" for reason in reasons], name
    assert all(FedUCBVI(aggregation="uniform").going_on[1:])


@pytest.mark.network
@pytest.mark.slow
def test_a_federation_of_processes_goes_on_grows_and_loses_a_node(tmp_path: Path) -> None:
    problem = ("--env", "synthetic", "--env-option", "states=3", "--env-option", "horizon=3")

    def serve(*arguments: str) -> tuple[Party, str]:
        (tmp_path / "port").unlink(missing_ok=True)
        server = Party(
            *("serve", "--insecure", "--listen", "127.0.0.1:0", "--port-file", str(tmp_path / "port"), *problem),
            *("--checkpoint", str(tmp_path / "server"), "--exchange", "model", "--json", *arguments),
        )
        while not (tmp_path / "port").exists():
            assert server.process.poll() is None, server.words()
        return server, f"127.0.0.1:{(tmp_path / 'port').read_text().strip()}"

    def join(address: str, first: int) -> Party:
        own = ("--name", f"node-{first}", "--first-agent", str(first), "--state", str(tmp_path / f"node-{first}"))
        return Party("join", address, "--insecure", "--share-counts", *own, *problem, "--json")

    server, address = serve("--agents", "2", "--episodes", "50")
    nodes = [join(address, 0), join(address, 1)]
    assert [server.end(), *(node.end() for node in nodes)] == [0, 0, 0], server.words()

    server, address = serve("--agents", "3", "--episodes", "100000")
    nodes = [join(address, first) for first in range(3)]
    while "takes part from this round on" not in server.words():
        assert server.process.poll() is None, server.words()
    leaving = Party("leave", address, "--insecure", "--name", "node-1", "--json")
    assert leaving.end() == 0, leaving.words()
    assert json.loads("".join(leaving.said["stdout"]))["left"]
    assert nodes[1].end() == 2
    assert "'node-1' has left this run for good" in nodes[1].words()
    server.kill()
    for node in nodes:
        node.kill()
    about = told("counts", tmp_path / "server", "--out", tmp_path / "counts.npz")
    assert about["visits"] > 3 * 3 * 50
