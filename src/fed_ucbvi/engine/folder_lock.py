"""A lock on a folder, which keeps two processes from writing to it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fed_ucbvi.core.errors import InputError

log = logging.getLogger("fed_ucbvi.engine.checkpoint")

LOCK_FILE = "lock"
ERRORS_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems that have no locks."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder until the context is left, or the process ends in whatever way.

    The lock file names the process that holds the lock, for the error of a second process. It is not removed.

    Raises:
        InputError: if another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read(200).decode(errors="replace").strip() or "another process"
            raise InputError(f"{folder} is in use by {holder}; end that first, or use another folder.") from error
        except OSError as error:
            if error.errno not in ERRORS_WITHOUT_LOCKS:
                raise
            log.warning("%s is on a file system without locks; see to it that no other process uses it", folder)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
