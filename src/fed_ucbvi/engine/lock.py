"""One owner: a folder that a run is kept in belongs to one process at a time."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from fed_ucbvi.core.errors import InputError

log = logging.getLogger("fed_ucbvi.engine.checkpoint")

LOCK = "lock"
WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of file systems that have no locks."""


class FolderLock:
    """Holds a folder until it is closed, or the process ends in whatever way.

    The file names the holder for whoever comes second. It stays; what counts is the lock on it.

    Raises:
        InputError: if another process holds the folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._close = weakref.finalize(self, os.close, opened)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(opened, 200, 0).decode(errors="replace").strip() or "another process"
            self.close()
            raise InputError(f"{folder} is in use by {holder}; end that first, or take another folder.") from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            log.warning("%s is on a file system without locks; see to it that no other process uses it", folder)
        os.ftruncate(opened, 0)
        os.pwrite(opened, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def close(self) -> None:
        """Release the folder."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
