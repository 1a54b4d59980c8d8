"""Commands as processes of their own that begin with everything imported, forked from a process that has done so.

A command's imports take a second of processor time, and tests start dozens of commands. The process that is forked
has imported modules and nothing else: it has no threads, no connections and no compiled code in use.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

MODULES = (
    "fed_ucbvi.command_line.program",
    "fed_ucbvi.command_line.federation",
    "fed_ucbvi.command_line.nodes",
    "fed_ucbvi.network.server",
    "fed_ucbvi.network.client",
    "fed_ucbvi.engine.simulation",
)


class WarmProcess:
    """A process that was forked; what is used of :class:`subprocess.Popen`, and no more."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        ends = [os.pipe(), os.pipe()]
        self._line = _parent().ask(arguments, [write for _, write in ends])
        for _, write in ends:
            os.close(write)
        self.stdout, self.stderr = (os.fdopen(read, encoding="utf-8") for read, _ in ends)
        self.pid = int(self._line.readline())
        self.returncode: int | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        with self._line:
            self.returncode = int(self._line.readline())
        self._ended.set()

    def poll(self) -> int | None:
        """The exit code, if it has ended; minus the signal, if one ended it."""
        return self.returncode

    def wait(self, seconds: float) -> int:
        """Wait for the end."""
        if not self._ended.wait(seconds):
            raise subprocess.TimeoutExpired("a command", seconds)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # ended, and not yet told of
                os.kill(self.pid, number)

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The process that forks, on the other end of a socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        theirs.close()

    def ask(self, arguments: tuple[str, ...], outputs: list[int]) -> Any:
        """Start a command; lines with its number and, at its end, its exit code."""
        read, write = os.pipe()
        socket.send_fds(self._socket, [json.dumps(arguments).encode()], [*outputs, write])
        os.close(write)
        return os.fdopen(read, encoding="ascii")


@functools.cache
def _parent() -> _Parent:
    """One for the tests of this process; it ends with it."""
    return _Parent()


def _fork_on_demand(asked: socket.socket) -> None:
    """Import, then fork as often as asked. A signal tells when a child ends: no waiting thread survives a fork."""
    for module in MODULES:
        __import__(module)
    children: dict[int, int] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([asked, woken], [], [])
        if woken in ready:
            woken.recv(1 << 16)
            _bury(children)
        if asked in ready:
            message, given, _, _ = socket.recv_fds(asked, 1 << 16, 3)
            if not message:
                return
            pid = os.fork()
            if pid == 0:
                own = [end.detach() for end in (asked, woken, wake)]
                _become(json.loads(message), given, [*own, *children.values()])
            os.write(given[2], f"{pid}\n".encode())
            children[pid] = given[2]
            for output in given[:2]:
                os.close(output)


def _bury(children: dict[int, int]) -> None:
    """Tell of each child that has ended."""
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            told = children.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                os.write(told, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(told)


def _become(arguments: list[str], given: list[int], others: list[int]) -> None:
    """In the child: run the command with these outputs, and end; ``@module:function`` is called instead of it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, output in enumerate(given[:2], start=1):
        os.dup2(output, place)
    for number in (*given, *others):
        os.close(number)
    from fed_ucbvi.command_line import main

    command: Callable[[], None] = main
    if arguments[0].startswith("@"):
        module, _, name = arguments.pop(0)[1:].partition(":")
        command = functools.partial(getattr(importlib.import_module(module), name), arguments)
    sys.argv = ["fed-ucbvi", *arguments]
    code: object = 1
    try:
        command()
        code = 0
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    _fork_on_demand(socket.socket(fileno=int(sys.argv[1])))
