"""Examples for the help of every command, in the order in which one would try them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "run --env gridworld --agents 20 --episodes 30000 --out my-run",
        "run --env riverswim --eps-p 0.1 --algorithm fedq-bernstein --json",
        "run --env-option rows=5 --bonus theory --checkpoint kept",
    ),
    "resume": ("resume kept --out my-run", "resume kept --episodes 60000 --out my-longer-run"),
    "counts": ("counts kept --out counts.npz",),
    "show": ("show my-run", "show my-run --out my-run.pdf"),
    "play": ("play my-run --episodes 1 --render text", "play my-run --agent 3 --out my-run.gif"),
    "sweep": ("sweep examples/sweep.toml --out sweep", "sweep examples/sweep.toml --out sweep --resume"),
    "reproduce": ("reproduce --out results", "reproduce --quick --out quick"),
    "report": ("report sweep",),
    "compare": ("compare --seeds 3 --out comparison.md",),
    "plan": ("plan --env gridworld --eps-p 0.001",),
    "inspect": ("inspect riverswim --agents 5 --eps-p 0.1 --plot agents.png",),
    "environments": ("environments", "environments --json"),
    "algorithms": ("algorithms", "algorithms --json"),
    "federate": ("federate --nodes 4", "federate --nodes 2 --env synthetic --episodes 1000 --out my-run"),
    "serve": ("serve --certs certs --listen 0.0.0.0:50051 --env gridworld --agents 4 --out my-run",),
    "join": ("join hub.example.org:50051 --certs certs --name clinic-a --env gridworld --agents 2",),
    "leave": ("leave hub.example.org:50051 --certs certs --name clinic-a",),
    "certs": (
        "certs --out certs --server server --host hub.example.org --node clinic-a --node clinic-b",
        "certs request clinic-c --out mine",
        "certs sign mine/clinic-c.csr --out certs",
    ),
}
"""By command, without the program's name."""


def epilogue(command: str) -> str:
    """What is printed below the options; empty lines make Typer begin a new line."""
    return "\n\n".join(["Examples:", *(f"fed-ucbvi {words}" for words in EXAMPLES[command])])
