"""Costs of secure sums: a server and four nodes, each a process, on this machine.

The time of a run with secure sums over that of the same run without, in turns, several times; and processor time,
start-up included, for machines that are not idle:

    python benchmarks/secure_sums.py [--episodes 1000] [--repeats 3] [--json]

Then what one round of secure sums takes by part, all processes together: a signature and a one-time key for every
node, a verification of every signature by the server and by every other node, and a key and a mask for every pair, by
both of the two; the last line is the node's record of what it has sent.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fed_ucbvi import FedKLUCBVI, gridworld
from fed_ucbvi.engine.state_arrays import SavedState
from fed_ucbvi.engine.state_store import StateStore
from fed_ucbvi.network.local import PROGRAM
from fed_ucbvi.network.run_plan import plan_for
from fed_ucbvi.network.secure_sums import mask, pair_key
from measuring import read_options, show

NODES = 4
TIMES = 500


def measure(episodes: int, *flags: str) -> tuple[float, float, Any]:
    """The run time of a federation of processes, start-up left out, their processor time, and what came of it."""
    command = [*PROGRAM, "federate", "--nodes", str(NODES), "--episodes", str(episodes), "--json", "--quiet"]
    command += ["--algorithm", "fed-kl-ucbvi", *flags]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = json.loads(done.stdout)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return summary["wall_seconds"], used, (summary["rounds"], summary["regret"])


def milliseconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(TIMES):
        work()
    return 1000 * (time.process_time() - began) / TIMES


def parts() -> dict[str, float]:
    """Milliseconds of processor time that a round of secure sums takes, by part."""
    signer = ec.generate_private_key(ec.SECP256R1())
    algorithm = ec.ECDSA(hashes.SHA256())
    text = bytes(250)
    signature = signer.sign(text, algorithm)
    key = X25519PrivateKey.generate()
    other = X25519PrivateKey.generate().public_key().public_bytes_raw()
    public = signer.public_key()
    plan = plan_for(FedKLUCBVI(), gridworld(agents=NODES), 1000)
    words = plan.support.numbers + gridworld().horizon * gridworld().states * gridworld().actions
    both = NODES * (NODES - 1)
    with tempfile.TemporaryDirectory() as name:
        notes = StateStore(Path(name), "0" * 64)
        sent = {"sent": ["0" * 64] * 4 * NODES}
        return {
            "signatures": NODES * milliseconds(lambda: signer.sign(text, algorithm)),
            "one-time keys": NODES * milliseconds(lambda: X25519PrivateKey.generate().public_key()),
            "verifications": NODES**2 * milliseconds(lambda: public.verify(signature, text, algorithm)),
            "keys of pairs": both * milliseconds(lambda: pair_key(key, other, "run", bytes(32), ("a", "b"))),
            "masks": both * milliseconds(lambda: mask(bytes(32), bytes(32), words)),
            "records": NODES * milliseconds(lambda: notes.write(SavedState(1, sent, {}, {}))),
        }


def main() -> None:
    options = read_options(__doc__, episodes=1000, repeats=3, json=False)
    kinds: dict[str, tuple[str, ...]] = {"plain": (), "secure": ("--secure-sums",)}
    for flags in kinds.values():
        measure(20, *flags)  # compiles
    found = [[measure(options.episodes, *flags) for flags in kinds.values()] for _ in range(options.repeats)]
    wall, used = (
        {kind: statistics.median(pair[k][i] for pair in found) for k, kind in enumerate(kinds)} for i in (0, 1)
    )
    results = {one[2] for pair in found for one in pair}
    rounds = next(iter(results))[0]
    figures = {
        "episodes": options.episodes,
        "repeats": options.repeats,
        "rounds": rounds,
        "seconds": {kind: round(value, 2) for kind, value in wall.items()},
        "secure_over_plain": round(wall["secure"] / wall["plain"], 2),
        "processor_seconds": {kind: round(value, 2) for kind, value in used.items()},
        "more_processor_ms_a_round": round(1000 * (used["secure"] - used["plain"]) / rounds, 2),
        "parts_ms_a_round": {name: round(value, 3) for name, value in parts().items()},
        "same_result": len(results) == 1,
    }
    show(figures, options.json)


if __name__ == "__main__":
    main()
