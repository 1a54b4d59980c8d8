"""Going on, as it is asked for on the command line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import SMALL, refusal, told
from fed_ucbvi import FedKLUCBVI, Run
from fed_ucbvi.algorithms import ALGORITHMS, make_algorithm
from fed_ucbvi.environments import make_environment
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import plan_for
from federation_processes import SERVER, Parties
from network import federate
from repository import ROOT


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a finished run."""
    folder = tmp_path_factory.mktemp("going-on") / "kept"
    assert told(SMALL, "--checkpoint", folder)["episodes"] == 60
    return folder


@pytest.fixture(scope="module")
def counts(kept: Path) -> Path:
    """The counts of the same run in a file."""
    file = kept.parent / "counts.npz"
    told("counts", kept, "--out", file)
    return file


def test_finished_run_is_extended_to_more_episodes(kept: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(kept, tmp_path / "kept")
    summary = told("resume", copy, "--episodes", "200", "--out", tmp_path / "longer")
    assert (summary["episodes"], summary["complete"]) == (200, True)
    assert Run.load(tmp_path / "longer").episodes_played == 200


def test_run_is_not_shortened(kept: Path) -> None:
    assert "cannot continue with 10" in refusal("resume", kept, "--episodes", "10")


def test_counts_have_every_visit_of_the_run(kept: Path, tmp_path: Path) -> None:
    about = told("counts", kept, "--out", tmp_path / "counts.npz")
    assert about["visits"] == 3 * 60 * about["steps"]


def test_warm_start_lowers_the_regret(counts: Path) -> None:
    assert told(SMALL, "--warm-start", counts)["regret"] < told(SMALL)["regret"]


def test_warm_start_from_a_checkpoint_is_that_from_its_counts(kept: Path, counts: Path) -> None:
    from_file = told(SMALL, "--warm-start", counts)
    assert told(SMALL, "--warm-start", kept)["regret"] == from_file["regret"]


def test_missing_counts_are_refused(tmp_path: Path) -> None:
    assert "is not a file" in refusal(SMALL, "--warm-start", tmp_path / "missing.npz")


def test_file_of_another_kind_is_refused_as_counts(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no counts at all", encoding="utf-8")
    words = refusal(SMALL, "--warm-start", tmp_path / "text.txt")
    assert "is not a .npz file of counts that fed-ucbvi saved" in words


def test_algorithm_that_cannot_start_from_counts_refuses_them(counts: Path) -> None:
    words = ("run", "--env", "synthetic", "--agents", "1", "--algorithm", "ucbvi", "--warm-start", counts)
    assert "cannot start from the counts" in refusal(words)


def test_folder_without_a_checkpoint_has_no_counts(tmp_path: Path) -> None:
    assert "holds no manifest.json" in refusal("counts", tmp_path, "--out", tmp_path / "counts.npz")


def test_the_document_says_of_every_algorithm_what_it_allows() -> None:
    text = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    table = text[text.index("| algorithm | more episodes") :].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    found = {name: row[1:] for row in rows for name in re.findall(r"`([a-z-]+)`", row[0])}
    assert set(found) == set(ALGORITHMS)
    for name, cells in found.items():
        reasons = make_algorithm(name, {}).extension
        assert [cell.startswith("yes") for cell in cells] == [not reasons.episodes, not reasons.warm_start], name


@pytest.mark.network
@pytest.mark.slow
def test_federation_of_processes_is_extended_then_starts_another_from_its_counts(
    tmp_path: Path,
) -> None:
    """The first run is begun in this process. The second one has three agents on two nodes in place of two on one."""
    world = make_environment("synthetic", agents=2, eps_p=0.0, seed=0)
    node = Node("node-0", lambda M: world, 0, 2, tmp_path / "node-0")
    federate(plan_for(FedKLUCBVI(), world, 50), [node], folder=tmp_path / "server")

    problem = ("--env", "synthetic")
    task = ("--insecure", "--listen", "127.0.0.1:0", *problem, "--algorithm", "fed-kl-ucbvi")
    counts = tmp_path / "counts.npz"

    def play(folder: Path, nodes: dict[str, tuple[int, int]], *more: str) -> dict[str, Any]:
        """A server that listens, and its nodes, to the end; the server's result."""
        with Parties(folder) as parties:
            parties.begin(SERVER, "serve", *task, "--port-file", str(folder / "port"), "--json", *more)
            for name, (first, agents) in nodes.items():
                own = ("--name", name, "--first-agent", str(first), "--agents", str(agents))
                state = ("--state", str(folder / name))
                parties.begin(name, "join", parties.address, "--insecure", *own, *state, *problem)
            parties.end()
            result: dict[str, Any] = json.loads("".join(parties.server.said["stdout"]))
            return result

    kept = ("--checkpoint", str(tmp_path / "server"))
    longer = play(tmp_path, {"node-0": (0, 2)}, "--agents", "2", "--episodes", "200", *kept)
    assert (longer["episodes"], longer["complete"]) == (200, True)
    about = told("counts", tmp_path / "server", "--out", counts)
    assert about["visits"] > 2 * world.horizon * 50
    (tmp_path / "next").mkdir()
    three = {"node-0": (0, 2), "node-1": (2, 1)}
    again = play(tmp_path / "next", three, "--agents", "3", "--episodes", "50", "--warm-start", str(counts))
    assert (again["agents"], again["complete"]) == (3, True)
