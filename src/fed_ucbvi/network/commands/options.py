"""Options of the commands of federations: connections, real environments and rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fed_ucbvi.command_line.flags import flag
from fed_ucbvi.command_line.options import REQUIRED, LiveOptions, argument
from fed_ucbvi.core.errors import InputError
from fed_ucbvi.network.commands.flags import NETWORK

if TYPE_CHECKING:
    from fed_ucbvi.network.sources import LiveSource
    from fed_ucbvi.network.transport import RemoteServer

SERVER = argument("HOST:PORT", "The server.")


@dataclass(frozen=True)
class ConnectionOptions:
    """Address of the server, and certificate of the node."""

    name: str | None = flag(REQUIRED, "NAME", "This node; its certificate bears the name.", panel=NETWORK)
    certs: Path | None = flag(None, "DIR", "Folder with certificates ('fed-ucbvi certs').", panel=NETWORK)
    server_name: str | None = flag(
        None,
        "NAME",
        "Name in the server's certificate, if it is not HOST.",
        panel=NETWORK,
    )
    insecure: bool = flag(False, "", "No TLS; on this machine only.", panel=NETWORK)

    def server(self, address: str) -> RemoteServer:
        from fed_ucbvi.network.certificates import TLSFiles
        from fed_ucbvi.network.transport import RemoteServer

        check_certificates(self.certs, insecure=self.insecure)
        if self.certs is not None and self.name is None:
            raise InputError("pass --name NODE, whose certificate is in --certs.")
        tls_files = None if self.certs is None else TLSFiles.of(self.certs, str(self.name))
        return RemoteServer(address, tls_files, self.server_name)


def check_certificates(certs: Path | None, *, insecure: bool) -> None:
    """Raise unless a connection is either by certificates or insecure."""
    if insecure == (certs is not None):
        raise InputError("pass either --certs DIR ('fed-ucbvi certs' makes one) or --insecure.")


def live_source(options: LiveOptions) -> LiveSource:
    """Real environments as the source of a node."""
    from fed_ucbvi.network.sources import LiveSource

    return LiveSource.of(
        options.live or "",
        options.keyword_arguments(),
        reward_range=options.rewards(),
        horizon=options.horizon,
    )
