"""Federations over the network: server and nodes on different machines exchange messages; docs/federation.md."""

from importlib.util import find_spec

from fed_ucbvi.core.errors import missing_package

PACKAGES = {
    "msgspec": "msgspec",
    "cryptography": "cryptography",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
}
"""Modules that this package imports, each with the name of its distribution."""


def check_packages() -> None:
    """Raise unless everything that federations need is installed."""
    for module, package in PACKAGES.items():
        if find_spec(module) is None:
            raise missing_package("federations over the network need", package, "network")
