"""Commands of federations over the network.

Each of them is registered as an entry point of the group ``fed_ucbvi.commands`` in ``pyproject.toml``.
"""

from __future__ import annotations

from fed_ucbvi.command_line.commands import FEDERATIONS, Command
from fed_ucbvi.network import check_packages

BINS = Command(
    name="bins",
    summary="Learn bins from a few episodes with random actions; 'serve --bins' hands them out to all nodes.",
    module="fed_ucbvi.network.commands.binning",
    function="bins",
    heading=FEDERATIONS,
    examples=("bins CartPole-v1 --horizon 200 --bins 6 --out bins.json",),
)
FEDERATE = Command(
    name="federate",
    summary=("Start a server and nodes on this machine, with certificates made for the occasion, and show the run."),
    module="fed_ucbvi.network.commands.federating",
    function="federate",
    heading=FEDERATIONS,
    examples=(
        "federate --nodes 4",
        "federate --nodes 2 --env synthetic --episodes 1000 --out my-run",
    ),
    requires=check_packages,
)
SERVE = Command(
    name="serve",
    summary="Serve a federation: wait for nodes that bring all M agents, then run to the end.",
    module="fed_ucbvi.network.commands.serving",
    function="serve",
    heading=FEDERATIONS,
    examples=(
        "serve --certs certs --listen 0.0.0.0:50051 --env gridworld --agents 4 --out my-run",
        "serve --certs certs --sizes 8,4,10 --checkpoint kept --metrics 127.0.0.1:9464 --log-format json",
    ),
    requires=check_packages,
)
JOIN = Command(
    name="join",
    summary="Join a federation with one or more agents and take part until the run is over.",
    module="fed_ucbvi.network.commands.joining",
    function="join",
    heading=FEDERATIONS,
    examples=("join hub.example.org:50051 --certs certs --name clinic-a --env gridworld --agents 2",),
    requires=check_packages,
)
POLICY = Command(
    name="policy",
    summary="Ask the server of a federation for the policy that it recommended last; the run is not disturbed.",
    module="fed_ucbvi.network.commands.joining",
    function="policy",
    heading=FEDERATIONS,
    examples=("policy hub.example.org:50051 --certs certs --name clinic-a --out policy.json",),
    requires=check_packages,
)
CERTS = Command(
    name="certs",
    summary=(
        "Make certificates and keys for a whole federation at once; the first call makes the certificate "
        "authority too."
    ),
    module="fed_ucbvi.network.commands.certifying",
    function="certs",
    heading=FEDERATIONS,
    examples=("certs --out certs --server server --host hub.example.org --node clinic-a --node clinic-b",),
    subcommands=(
        Command(
            name="request",
            summary="Make a key, which stays here, and a request to be signed by those who hold the authority.",
            module="fed_ucbvi.network.commands.certifying",
            function="request",
            heading=FEDERATIONS,
            examples=("certs request clinic-c --out mine",),
            requires=check_packages,
        ),
        Command(
            name="sign",
            summary=(
                "Sign a request; compare the fingerprint with its sender's. The first call makes the authority too."
            ),
            module="fed_ucbvi.network.commands.certifying",
            function="sign",
            heading=FEDERATIONS,
            examples=("certs sign mine/clinic-c.csr --out certs",),
            requires=check_packages,
        ),
    ),
    requires=check_packages,
)
