"""Print a server's memory in kilobytes before and after a node sends it 10^8 zeros in one message.

They are compressed to less than the limit. The node is a process of its own, so that its memory does not count. It
is this program, with the server's port and the number of zeros.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from contextlib import suppress

from fed_ucbvi.network.failures import ConnectionLostError
from fed_ucbvi.network.transport import Connection, Listener, RemoteServer


class Reader:
    """Reads one message of every stream."""

    async def session(self, connection: Connection) -> None:
        with suppress(ConnectionLostError):
            await connection.read()

    async def policy(self, certificate: bytes) -> bytes:
        return certificate


async def send(port: int, size: int) -> None:
    """Send so many zeros in one message."""
    with suppress(ConnectionLostError):
        async with RemoteServer(f"127.0.0.1:{port}").connect() as connection:
            await connection.write(bytes(size))
            await connection.read()


async def serve() -> None:
    listener = Listener(Reader(), "127.0.0.1:0", None)
    await listener.start()
    for size in (1000, 10**8):
        sender = await asyncio.create_subprocess_exec(sys.executable, __file__, str(listener.port), str(size))
        await sender.wait()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # noqa: T201
    await listener.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(send(int(sys.argv[1]), int(sys.argv[2])))
    else:
        asyncio.run(serve())
