"""Going on, as it is asked for on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commands import SMALL, refusal, told
from fed_ucbvi import FedKLUCBVI, FedUCBVI, Run
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.environments import make_environment
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from federation_processes import SERVER, Parties, Party
from network import federate
from repository import ROOT


def test_a_run_goes_on_and_another_starts_from_its_counts(tmp_path: Path) -> None:
    kept, counts = tmp_path / "kept", tmp_path / "counts.npz"
    assert told(*SMALL, "--checkpoint", kept)["episodes"] == 60
    summary = told("resume", kept, "--episodes", "200", "--out", tmp_path / "longer")
    assert (summary["episodes"], summary["complete"]) == (200, True)
    assert Run.load(tmp_path / "longer").episodes_played == 200
    about = told("counts", kept, "--out", counts)
    assert about["visits"] == 3 * 200 * about["steps"]
    cold, warm = told(*SMALL), told(*SMALL, "--warm-start", counts)
    assert warm["regret"] < cold["regret"]
    assert told(*SMALL, "--warm-start", kept)["regret"] == warm["regret"]
    assert "cannot continue with 100" in refusal("resume", kept, "--episodes", "100")
    assert "is not a file" in refusal(*SMALL, "--warm-start", tmp_path / "missing.npz")
    (tmp_path / "text.txt").write_text("no counts at all", encoding="utf-8")
    words = refusal(*SMALL, "--warm-start", tmp_path / "text.txt")
    assert "is not a .npz file of counts that fed-ucbvi saved" in words
    assert "pickle" not in words
    assert "cannot start from the counts" in refusal(*SMALL[:7], "--algorithm", "ucbvi", "--warm-start", counts)
    assert "holds no manifest.json" in refusal("counts", tmp_path, "--out", counts)


def test_the_document_says_of_every_algorithm_what_it_allows() -> None:
    text = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    table = text[text.index("| algorithm | more episodes") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    found = {name: row[1:] for row in rows for name in re.findall(r"`([a-z-]+)`", row[0])}
    assert set(found) == set(ALGORITHMS)
    for name, cells in found.items():
        reasons = make_algorithm(name, {}).extension
        assert [cell.startswith("yes") for cell in cells] == [reason == "" for reason in reasons], name
    assert all(FedUCBVI(aggregation="uniform").extension[1:])


@pytest.mark.network
@pytest.mark.slow
def test_a_federation_of_processes_goes_on_grows_and_loses_a_node(tmp_path: Path) -> None:
    """It was begun in this process, by one node with two agents.

    Its problem takes thousands of rounds, so that it is not over when the node leaves, however slow the machine is.
    """
    sizes = {"states": 10, "actions": 5, "horizon": 5}
    world = make_environment("synthetic", agents=2, eps_p=0.0, seed=0, **sizes)
    begun = plan_for(FedKLUCBVI(), world, 50)
    node = Node("node-0", lambda M: world, 0, 2, tmp_path / "node-0")
    federate(begun, [node], folder=tmp_path / "server")

    problem = ("--env", "synthetic", *(part for name in sizes for part in ("--env-option", f"{name}={sizes[name]}")))
    listen = ("--insecure", "--listen", "127.0.0.1:0", "--port-file", str(tmp_path / "port"))
    more = ("--algorithm", "fed-kl-ucbvi", "--agents", "3", "--episodes", "10000000000", "--json")
    with Parties(tmp_path) as parties:
        parties.begin(SERVER, "serve", *listen, *problem, "--checkpoint", str(tmp_path / "server"), *more)
        for first, agents in ((0, 2), (2, 1)):
            own = ("--name", f"node-{first}", "--first-agent", str(first), "--agents", str(agents))
            state = ("--state", str(tmp_path / f"node-{first}"))
            parties.begin(f"node-{first}", "join", parties.address, "--insecure", *own, *state, *problem)
        parties.wait(lambda: "takes part from this round on" in parties.server.words(), "the node's first round")
        leaving = Party("leave", parties.address, "--insecure", "--name", "node-2", "--json")
        assert leaving.end() == 0, leaving.words()
        assert json.loads("".join(leaving.said["stdout"]))["left"]
        assert parties.parties["node-2"].end() == 0
        assert "left" in "".join(parties.parties["node-2"].said["stdout"])
    assert told("counts", tmp_path / "server", "--out", tmp_path / "counts.npz")["visits"] > 2 * 5 * 50
