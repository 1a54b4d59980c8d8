"""Commands of the network that are refused, each with a reason, before anything is connected."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from commands import refusal
from fed_ucbvi.network.certificates import make_certificates

JOIN = "join 127.0.0.1:1 --insecure --name a"
LIVE = f"{JOIN} --live FrozenLake-v1"
SECURE = "serve --certs c --sizes 3,2,3 --secure-sums"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, server="registry", nodes=["a", "b"])
    return folder


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("certs --out CERTS", "nothing to do"),
        ("certs --out CERTS --node a", "'a' already"),
        ("certs --out CERTS --revoke z", "no certificate 'z'"),
        ("certs --out CERTS --host x --node y", "name the --server"),
        ("serve --env gridworld", "either --certs DIR"),
        ("serve --insecure --listen 0.0.0.0:1 --env gridworld", "this machine alone"),
        ("serve --insecure", "one of --env NAME"),
        ("serve --insecure --sizes 3,x,4", "three whole numbers"),
        ("serve --certs CERTS --name nobody --sizes 3,2,4", "nobody.crt is missing"),
        ("serve --insecure --sizes 3,2,4 --on-away hope", "unknown on_away"),
        ("serve --insecure --sizes 3,2,3 --quorum many", "whole number"),
        ("serve --insecure --sizes 500,2,10 --algorithm fed-kl-ucbvi", "numbers a message"),
        ("serve --insecure --env gridworld --secure-sums", "needs certificates"),
        ("serve --certs c --nodes a,b --env gridworld --secure-sums", "at least 3 nodes"),
        (f"{SECURE} --option aggregation=uniform", "one node's history"),
        (f"{SECURE} --algorithm byzan-ucbvi", "every agent's report by itself"),
        ("join localhost:1 --name a --insecure --env nowhere:at_all", "cannot load"),
        ("join localhost --name a --insecure", "HOST:PORT"),
        ("join 127.0.0.1:abc --certs CERTS --name a --patience 0", "'127.0.0.1:abc' is not of the form HOST:PORT."),
        ("leave 127.0.0.1:abc --certs CERTS --name a --patience 0", "'127.0.0.1:abc' is not of the form HOST:PORT."),
        ("join localhost:1 --name nobody --certs CERTS", "nobody.crt is missing"),
        ("join localhost:1 --name a --certs CERTS --env x.npz", "x.npz is not a file"),
        (f"{JOIN} --agents 1000000000 --env synthetic", "1,000,000,000 agents on this node take at least"),
        (f"{LIVE} --agents 1000000000 --horizon 8 --reward-range 0,1", "take at least"),
        (f"{JOIN} --env gridworld --logs no.csv", "is no file"),
        (f"{JOIN} --require-secure-sums", "needs certificates"),
        ("join 127.0.0.1:1 --certs c --name a --least-members 2", "at least 3"),
        ("join 127.0.0.1:1 --certs c --name a --members nowhere.txt", "cannot be read"),
        (f"{LIVE} --reward-range 1", "takes two numbers as LOW,HIGH, got '1'"),
        (f"{LIVE} --reward-range 1,0", "reward_range: high must be"),
        (f"{JOIN} --live CliffWalking-v1 --reward-range -100,0", "horizon is missing"),
        (f"{JOIN} --live Nothing-v0 --reward-range 0,1", "cannot make 'Nothing-v0'"),
        (f"{JOIN} --live nothing:make --reward-range 0,1", "cannot load nothing:make"),
        (f"{LIVE} --reward-range 0,1 --live-kwargs [1]", "takes a JSON object"),
        (f"{LIVE} --reward-range 0,1 --env gridworld", "are for simulated agents"),
        (f"{JOIN} --horizon 3", "are for real environments"),
    ],
)
def test_commands_refuse_with_a_reason(command: str, says: str, certs: Path) -> None:
    assert says in refusal(*shlex.split(command.replace("CERTS", str(certs))))
