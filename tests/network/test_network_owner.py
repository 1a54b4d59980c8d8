"""Real processes and one folder: second servers and nodes, old copies, damage."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from test_network_server_faults import assert_undisturbed

from commands import refusal
from fed_ucbvi import FedUCBVI, gridworld, run
from fed_ucbvi.engine.state_store import FolderLock
from federation_processes import SERVER, Party, Processes
from saved_states import log_files


@pytest.mark.full
def test_one_owner_old_copies_and_a_damaged_end_change_nothing(tmp_path: Path) -> None:
    """A second server and a second node are refused; then the server goes on from a copy of its checkpoint, which the
    nodes are rounds ahead of, and then from a log whose end is damaged, with a node that has lost its state.
    """
    checkpoint = tmp_path / "checkpoint"
    with Processes(tmp_path) as processes:
        processes.start(SERVER, "node-1")
        processes.wait((tmp_path / "node-1" / "lock").exists, "node-1 to begin")
        seconds = {SERVER: Party(*processes._serve()), "node-1": Party(*processes._join("node-1", None))}
        for holder, refused in seconds.items():
            assert refused.end() == 2
            assert f"in use by process {processes.parties[holder].process.pid} on " in refused.words()
        processes.start("node-0")
        processes.reach(10)
        processes.signal(SERVER, signal.SIGSTOP)
        shutil.copytree(checkpoint, tmp_path / "copy")
        processes.signal(SERVER, signal.SIGCONT)
        held = processes.round()
        processes.reach(held + 15)
        processes.kill(SERVER)
        shutil.rmtree(checkpoint)
        (tmp_path / "copy").rename(checkpoint)
        assert processes.round() <= held
        processes.start(SERVER)
        processes.reach(held + 30)
        processes.kill(SERVER, "node-0")
        last = log_files(checkpoint)[-1]
        content = bytearray(last.read_bytes())
        content[-1000] ^= 4
        last.write_bytes(content)
        shutil.rmtree(tmp_path / "node-0")
        processes.start(SERVER, "node-0")
        processes.hear(SERVER, "node-0: has lost its state after round 0; plays up to round [0-9]+ again")
        processes.hear(SERVER, "an entry is not what was written")
        assert_undisturbed(processes.finish(), processes)


def test_a_checkpoint_in_use_is_refused_by_resume(tmp_path: Path) -> None:
    run(FedUCBVI(), gridworld(agents=2), 5, checkpoint=tmp_path / "kept", progress=False)
    with FolderLock(tmp_path / "kept"):
        assert re.search(f"in use by process {os.getpid()} on ", refusal("resume", str(tmp_path / "kept")))
