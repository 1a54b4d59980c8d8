"""Flower brings server and nodes together; the run itself is the simulation's, bit for bit."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fed_ucbvi import FedUCBVI, InputError, ProblemSpec, Run, run, synthetic
from fed_ucbvi.algorithms import make_algorithm
from fed_ucbvi.algorithms.base import Setting
from fed_ucbvi.engine.parts import part_of
from fed_ucbvi.network.flower import hosting
from fed_ucbvi.network.flower.hosting import AGAIN_SECONDS, InvitedNodes, gather, hold
from fed_ucbvi.network.flower.invitation import (
    ERROR,
    LOST,
    REQUEST,
    Invitation,
    Record,
    RunAuthority,
    answer,
    node_name,
)
from fed_ucbvi.network.flower.settings import NodeSettings, RunSettings
from fed_ucbvi.network.node import Node
from fed_ucbvi.network.run_plan import RunPlan, plan_of
from fed_ucbvi.network.server import FederationServer, Outcome
from flower_processes import CONNECTION, Flower, flower
from network import assert_same, federate
from repository import ROOT

APP = ROOT / "examples" / "flower"
SPLIT = (3, 1)
"""Agents of the two nodes, as only they know."""
EPISODES = 100
SEED = 5
NU = 40
PAUSE = 1.0
"""Seconds between looks at a log: Flower's command takes a core for seconds, which those it looks for need."""


PROBLEM = synthetic(agents=4, eps_p=0.2, eps_r=0.1, seed=7, states=5, actions=3, horizon=4)


@pytest.fixture(scope="module")
def simulated() -> Run:
    return run(FedUCBVI(nu=NU), PROBLEM, EPISODES, seed=SEED, driver="episodes", progress=False)


def run_config(**changes: Any) -> dict[str, Any]:
    """The example's configuration for the problem of these tests, as Flower would hand it over."""
    task = {"agents": 4, "episodes": EPISODES, "seed": SEED, "eps-p": 0.2, "sizes": "5,3,4", "option": f"nu={NU}"}
    own = {key.replace("_", "-"): value for key, value in changes.items()}
    return {**app_config(), **task, "listen": "127.0.0.1:0", **own}


def app_config() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
    config: dict[str, Any] = table["config"]
    return config


def assert_simulated(run: Run, expected: Run) -> None:
    """Equal policies, values, rounds, counts and bytes; what is worth what, the server was not told."""
    unknown = ("regret", "value", "reward_sd")
    assert_same(run, expected, *unknown, "estimated_value", "estimated", "optimistic")
    assert all(np.isnan(run.records[name]).all() for name in unknown)
    assert run.rounds == expected.rounds > 10
    assert run.about.environment == {"name": "custom"}
    assert np.isnan(run.value)


def save_shares(folder: Path) -> list[Path]:
    """The agents of each node as a file of its own, which holds no others."""
    files = [folder / f"own-{number}.npz" for number in range(len(SPLIT))]
    for file, first, agents in zip(files, (0, SPLIT[0]), SPLIT, strict=True):
        part_of(PROBLEM, first, agents).save(file)
    return files


# ------------------------------------------------------------------------------------------------- without Flower


class FakePost:
    """Carries invitations to nodes on the same event loop, and everything nodes say back.

    The nodes in ``lost`` are lost once each, with their keys, when they have just been sent a certificate.
    """

    def __init__(self, nodes: dict[int, NodeSettings], lost: Iterable[int] = ()) -> None:
        self.nodes = nodes
        self.lost = set(lost)
        self.keys: dict[int, dict[str, bytes]] = {number: {} for number in nodes}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.invited: list[tuple[int, Invitation]] = []
        self.tasks: dict[str, Any] = {}
        self.lost_with: list[str] = []

    def online(self) -> Iterable[int]:
        return list(self.nodes)

    def invite(self, node_id: int, invitation: Invitation) -> str:
        self.invited.append((node_id, invitation))
        message = f"message {len(self.invited)}"
        carried = Invitation.of(vars(invitation))
        if node_id in self.lost and carried.certificate:
            self.lost.remove(node_id)
            self.keys[node_id].clear()
            self.lost_with.append(message)
        elif self.loop is not None:
            work = answer(carried, self.nodes[node_id], self.keys[node_id])
            self.tasks[message] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return message

    def answers(self, messages: Sequence[str]) -> Iterable[tuple[str, Record]]:
        for name in messages:
            if name in self.lost_with:
                yield name, {LOST: "Node is unavailable"}
            if name in self.tasks and self.tasks[name].done():
                error = self.tasks[name].exception()
                yield name, self.tasks[name].result() if error is None else {ERROR: str(error)}


def hold_here(post: FakePost, config: dict[str, Any], stop: Sequence[Path] = ()) -> tuple[Outcome, dict[str, Record]]:
    """A run by invitation inside this process; stopped once all the files ``stop`` are there, if any are named."""
    outcomes: list[Outcome] = []

    async def run() -> dict[str, Record]:
        post.loop = asyncio.get_running_loop()
        settings = RunSettings.of(config)
        holding = asyncio.ensure_future(hold(post, settings, "flower-1", done=lambda made, _: outcomes.append(made)))
        while not all(path.exists() for path in stop):
            await asyncio.sleep(0.005)
        if stop:
            holding.cancel()
        try:
            return await asyncio.wait_for(holding, 300)
        finally:
            await asyncio.to_thread(futures.wait, list(post.tasks.values()), 60)

    figures = asyncio.run(run())
    return outcomes[0], figures


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "LOOK_SECONDS", 0.02)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.full
def test_a_run_by_invitation_begun_again_is_the_simulation(simulated: Run, tmp_path: Path) -> None:
    saved = tmp_path / "all.npz"
    checkpoint = tmp_path / "checkpoint"
    PROBLEM.save(saved)
    nodes = {
        number: NodeSettings(ProblemSpec(environment=str(saved)), state=str(tmp_path / f"state-{number}"))
        for number in (30, 20, 10)
    }
    config = run_config(nodes=3, checkpoint=str(checkpoint))
    stopped = FakePost(nodes)
    with pytest.raises(InputError, match="the run has been stopped"):
        hold_here(stopped, config, [tmp_path / f"state-{number}" / "flower-1" / "log-000001" for number in nodes])
    begun = [task for task in stopped.tasks.values() if not task.cancelled()]  # others had not even begun
    joined = [task for task in begun if task.exception() is not None]
    assert joined
    for task in joined:
        assert "the run has been stopped" in str(task.exception())  # no node waits for what does not come
    post = FakePost(nodes, lost=[20])
    outcome, figures = hold_here(post, config)
    assert len(post.lost_with) == 1  # a node lost between invitation and joining is invited again
    assert_simulated(outcome.run, simulated)
    shares = [(name, own["first_agent"], own["agents"]) for name, own in sorted(figures.items())]
    assert shares == [("node-10", 0, 1), ("node-20", 1, 1), ("node-30", 2, 2)]
    assert {own["run"] for own in figures.values()} == {"flower-1"}
    assert (tmp_path / "state-20" / "flower-1").is_dir()


@pytest.mark.usefixtures("_impatient")
def test_a_node_that_cannot_come_stops_the_run_and_says_why() -> None:
    settings = {
        1: NodeSettings(ProblemSpec(environment="gridworld")),
        2: NodeSettings(ProblemSpec(environment="gridworld")),
    }
    with pytest.raises(InputError, match=r"node-\d cannot take part: .* = \(5, 3, 4\), this node's \(8, 4, 10\)"):
        hold_here(FakePost(settings), run_config())


def test_a_nodes_key_stays_on_the_node_and_its_certificate_is_for_its_own_name(tmp_path: Path) -> None:
    authority = RunAuthority.make(tmp_path, "127.0.0.1")
    invitations = authority.invitations("run", "127.0.0.1:1", [5, 3], 3, 60)
    first = invitations[5]
    second = invitations[3]
    shares = [(one.name, one.first_agent, one.agents) for one in (first, second)]
    assert shares == [("node-5", 0, 1), ("node-3", 1, 2)]
    assert not (tmp_path / "ca.key").exists()
    keys: dict[str, bytes] = {"earlier": b"key"}
    request = asyncio.run(answer(first, NodeSettings(), keys))[REQUEST]
    assert list(keys) == ["run"]
    whole = replace(first, certificate=authority.sign(request, first.name))
    assert whole.is_for(keys["run"])
    asked_again = asyncio.run(answer(first, NodeSettings(), keys))[REQUEST]
    again = replace(first, certificate=authority.sign(asked_again, "node-5"))
    assert again.is_for(keys["run"]), "a slow node is invited again, and both certificates fit its key"
    assert whole.is_for(keys["run"])
    assert not first.is_for(keys["run"])
    assert not any(b"PRIVATE" in part for part in (request, *vars(whole).values()) if isinstance(part, bytes))
    assert "CERTIFICATE" not in repr(whole)
    assert Invitation.of(vars(whole)) == whole
    with pytest.raises(InputError, match="asks for a certificate for 'node-5'"):
        authority.sign(request, second.name)
    assert asyncio.run(answer(whole, NodeSettings(), {}))[REQUEST] != request  # it has lost its key and asks anew
    folder = tmp_path / "node"
    folder.mkdir()
    tls_files = whole.write_tls_files(folder, keys["run"])
    assert tls_files.read() == (whole.authority, whole.certificate, keys["run"])
    assert tls_files.key.stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="has no certificate"):
        Invitation.of({key: value for key, value in vars(whole).items() if key != "certificate"})


def test_a_node_invited_to_a_run_that_was_stopped_leaves_the_next_runs_server_alone(tmp_path: Path) -> None:
    """The next run listens at the same address, with an authority of its own."""
    old, new = (RunAuthority.make(tmp_path / name, "127.0.0.1") for name in ("old", "new"))
    keys: dict[str, bytes] = {}

    async def story() -> None:
        service = FederationServer(plan_of(RunSettings.of(run_config()).spec), "127.0.0.1:0", new.server)
        serving = asyncio.ensure_future(service.run())
        (invitation,) = old.invitations("run", f"127.0.0.1:{service.port}", [1], 4, 600).values()
        settings = NodeSettings(ProblemSpec(environment="gridworld"))
        request = (await answer(invitation, settings, keys))[REQUEST]
        try:
            with pytest.raises(InputError, match="this run is over: another one is served at"):
                await answer(replace(invitation, certificate=old.sign(request, "node-1")), settings, keys)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(asyncio.wait_for(story(), 300))


def test_certificates_are_handed_out_in_the_open_on_this_machine_only() -> None:
    point = "10.0.0.7:50051"
    away = RunSettings.of(run_config(listen="0.0.0.0:50051", address=point))
    with pytest.raises(InputError, match="superlink-tls=true"):
        away.meeting_point()
    known = RunSettings.of(run_config(listen="0.0.0.0:50051", address=point, superlink_tls=True))
    assert known.meeting_point() == point
    assert RunSettings.of(run_config()).meeting_point() == "127.0.0.1:0"
    with pytest.raises(InputError, match="nodes cannot find"):
        RunSettings.of(run_config(listen="0.0.0.0:50051", superlink_tls=True)).meeting_point()


def test_nothing_private_of_flower_is_used() -> None:
    """What Flower's objects keep behind an underscore may change from one version to the next."""
    for path in (ROOT / "src" / "fed_ucbvi" / "flower").glob("*_app.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                assert isinstance(node.value, ast.Name)
                assert node.value.id == "self"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "getattr"


def test_nodes_are_gathered_by_name_or_number_and_strangers_are_not_taken() -> None:
    post = FakePost(dict.fromkeys((9, 4), NodeSettings()))

    def found(**changes: Any) -> tuple[int, ...]:
        return asyncio.run(gather(post, RunSettings.of(run_config(**changes))))

    assert found(nodes=2) == (4, 9)
    assert found(nodes=2, node_ids="9, 4") == (9, 4)
    assert found(nodes=1, node_ids="9") == (9,)
    with pytest.raises(InputError, match=r"2 SuperNodes are there for a run of 1; name by node-ids .*: 4, 9"):
        found(nodes=1)
    with pytest.raises(InputError, match=r"1 of 2 SuperNodes connected within 0\.01 s; missing: 5"):
        found(nodes=2, node_ids="5 4", gathering=0.01)
    with pytest.raises(InputError, match="must name 2 different"):
        found(nodes=2, node_ids="9 9")


def test_a_node_without_a_stream_is_invited_again_once_it_is_there() -> None:
    now = 0.0
    post = FakePost({1: NodeSettings(), 2: NodeSettings()})
    member = SimpleNamespace(stream=object(), status="taking part")
    registry = SimpleNamespace(members={node_name(1): member, node_name(2): member})
    invitations = dict.fromkeys((1, 2), Invitation("run", "node", "127.0.0.1:1", 0, 1, 60.0, b""))
    invited_nodes = InvitedNodes(post, registry, invitations, lambda *_: b"", lambda: now)  # type: ignore[arg-type]

    async def after(seconds: float) -> list[int]:
        nonlocal now
        now += seconds
        before = len(post.invited)
        await invited_nodes.invite_lost()
        return [node_id for node_id, _ in post.invited[before:]]

    async def story() -> None:
        for number in (1, 2):
            await invited_nodes.invite(number)
        assert await after(10 * AGAIN_SECONDS) == []  # both have their streams
        registry.members[node_name(2)] = SimpleNamespace(stream=None, status="taking part")
        assert await after(AGAIN_SECONDS / 2) == []
        assert await after(AGAIN_SECONDS) == [2]
        assert await after(AGAIN_SECONDS / 2) == []  # it has had no time yet
        del post.nodes[2]
        assert await after(AGAIN_SECONDS) == []  # it is not there
        post.nodes[2] = NodeSettings()
        assert await after(0) == [2]
        registry.members[node_name(2)].status = "excluded"
        assert await after(2 * AGAIN_SECONDS) == []

    asyncio.run(story())


def test_every_setting_can_be_overridden_and_what_cannot_be_meant_is_refused() -> None:
    assert set(app_config()) == set(RunSettings.keys())  # Flower lets a run override what the app names, nothing else
    plan_of(RunSettings.of(app_config()).spec)
    with pytest.raises(InputError, match="this run cannot be used: episodes must be a whole number"):
        RunSettings.of(run_config(episodes="many"))
    with pytest.raises(InputError, match="this node cannot be used: unknown key 'colour'"):
        NodeSettings.of({"colour": "red"})
    with pytest.raises(InputError, match="go together"):
        NodeSettings.of({"agents": 2}).share(0, 1)
    node = NodeSettings.of({"env-option": "rows=4 'walls=[[1, 1]]'", "agents": 2, "first-agent": 3})
    assert node.problem.environment_options == {"rows": 4, "walls": [[1, 1]]}
    assert node.share(0, 1) == (3, 2)


# ------------------------------------------------------------------------------------------------- with Flower


def registry_answers(folder: Path) -> bool:
    """Whether a small package that Flower has nothing to do with can be had."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps", "iniconfig"]
    return subprocess.run([*command, "--dest", str(folder)], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def flower_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flower's own virtual environment, made if it is not there or is out of date."""
    command = ["make", "--no-print-directory", "flower-venv", f"PYTHON={sys.executable}"]
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL")}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if made.returncode and not registry_answers(tmp_path_factory.mktemp("download")):
        pytest.skip("Flower cannot be installed: the package registry does not answer")
    assert made.returncode == 0, made.stdout + made.stderr
    return ROOT / ".venv-flower"


@contextmanager
def two_supernodes(venv: Path, folder: Path) -> Iterator[tuple[Flower, list[int]]]:
    """A SuperLink and two SuperNodes; one has its agents in a file, the other in a module of its own."""
    names = [f"node-{number}" for number in range(2)]
    with flower(venv, folder) as processes:
        processes.start_superlink()
        with futures.ThreadPoolExecutor() as pool:
            node_ids = list(pool.map(processes.register, names))
        files = save_shares(folder)
        private = folder / "private"
        private.mkdir()
        (private / "clinic.py").write_text(
            "from fed_ucbvi import Federation\n\n\n"
            f"def patients(agents):\n    return Federation.load({str(files[1])!r})\n",
            encoding="utf-8",
        )
        processes.start_supernode(names[0], f"env='{files[0]}' first-agent=0 agents={SPLIT[0]}")
        processes.start_supernode(
            names[1],
            f"env='clinic:patients' first-agent={SPLIT[0]} agents={SPLIT[1]} state='{folder / 'state'}'",
            {"PYTHONPATH": str(private)},
        )
        yield processes, node_ids


@pytest.mark.full
def test_a_run_under_flower_is_the_simulation_and_environments_stay_on_their_nodes(
    flower_venv: Path, simulated: Run, tmp_path: Path
) -> None:
    """Real SuperLink and SuperNodes, with TLS and node keys; a run that is stopped at once does not hold up the next.

    The server is told sizes alone, each node's problem exists in a file of that node alone, and exactly as many
    messages and bytes crossed the line as cross it without Flower (tests/network/test_network_wire.py shows those).
    """
    out = tmp_path / "out"
    with two_supernodes(flower_venv, tmp_path) as (processes, node_ids):
        words = run_config(node_ids=" ".join(map(str, node_ids)))
        said = " ".join(f"{key}={json.dumps(value)}" for key, value in words.items() if value != app_config()[key])
        stopped = processes.command("run", str(APP), CONNECTION, "--run-config", said)["run-id"]
        end = time.monotonic() + 180
        while "nodes connect to" not in processes.server_log(stopped):  # invited, and not yet there
            assert time.monotonic() < end, processes.log("superlink")
            time.sleep(PAUSE)
        processes.command("stop", stopped, CONNECTION)
        said = f"{said} out={json.dumps(str(out))}"
        end = time.monotonic() + 180
        number = processes.command("run", str(APP), CONNECTION, "--run-config", said)["run-id"]
        while not (status := processes.status(number)).startswith("finished"):
            assert time.monotonic() < end, processes.log("superlink")
            processes.wait_for_file(out, 10)
        told = processes.server_log(number)
        assert status == "finished:completed", told
        assert (tmp_path / "state" / f"flower-{number}").is_dir()
    assert_simulated(Run.load(out), simulated)

    names = [node_name(node_id) for node_id in node_ids]
    for name, first, agents in zip(names, (0, SPLIT[0]), SPLIT, strict=True):
        assert f"{name}: agents {first} to {first + agents - 1} took part to the end" in told
    wire = json.loads(told[told.index("{\n") : told.rindex("\n}") + 2])["wire"]
    setting = Setting(5, 3, 4, 4, EPISODES, 0.2, SEED)
    plan = RunPlan(make_algorithm("fed-ucbvi", {"nu": float(NU)}), setting, run=f"flower-{number}")
    shares = zip(names, (0, SPLIT[0]), SPLIT, strict=True)
    plain = federate(plan, [Node(name, lambda M: PROBLEM, first, agents) for name, first, agents in shares])
    expected = vars(plain.wire)
    signed = wire.pop("bytes_down") - expected.pop("bytes_down")  # of the policy, with a certificate
    assert wire == expected
    assert 0 < signed < 2 * 2_000
