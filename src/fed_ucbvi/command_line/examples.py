"""Examples for the help of every command, in the order in which one would try them."""

from __future__ import annotations

from collections.abc import Iterable

from fed_ucbvi.command_line.program import EXIT_CODES

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "run --env gridworld --agents 20 --episodes 30000 --out my-run",
        "run --env riverswim --eps-p 0.1 --algorithm fedq-bernstein --json",
        "run --env-option rows=5 --option bonus=theory --checkpoint kept",
    ),
    "resume": ("resume kept --out my-run", "resume kept --episodes 60000 --out my-longer-run"),
    "counts": (
        "counts kept --out counts.npz",
        "counts --from-logs log.csv --sizes 8,4,10 --over-all-steps --out counts.npz --plan policy.json",
    ),
    "show": ("show my-run", "show my-run --out my-run.pdf", "show sweep --format latex --columns group,mean,ratio"),
    "watch": ("watch my-run", "watch sweep --json", "watch http://127.0.0.1:8080/"),
    "play": ("play my-run --episodes 1 --render text", "play my-run --agent 3 --out my-run.gif"),
    "act": ("act my-run --step 0 --state 3", "act policy.json --certs certs --step 0 --state 3"),
    "sweep": ("sweep examples/sweep.toml --out sweep", "sweep examples/sweep.toml --out sweep --resume"),
    "reproduce": ("reproduce --out results", "reproduce --quick --out quick"),
    "report": ("report sweep",),
    "compare": ("compare --seeds 3 --out comparison.md",),
    "leaderboard": (
        "leaderboard",
        "leaderboard --algorithm mine:Mine --store my-runs --out my-board",
        "leaderboard --again --store runs --out board",
    ),
    "advise": ("advise --states 21 --actions 6 --horizon 30 --agents 5", "advise --live CartPole-v1 --episodes 2000"),
    "plan": ("plan --env gridworld --eps-p 0.001",),
    "inspect": ("inspect --env riverswim --agents 5 --eps-p 0.1 --plot agents.png",),
    "environments": ("environments", "environments --json"),
    "algorithms": ("algorithms", "algorithms fed-kl-ucbvi", "algorithms --json"),
    "bins": ("bins CartPole-v1 --horizon 200 --bins 6 --out bins.json",),
    "federate": ("federate --nodes 4", "federate --nodes 2 --env synthetic --episodes 1000 --out my-run"),
    "serve": (
        "serve --certs certs --listen 0.0.0.0:50051 --env gridworld --agents 4 --out my-run",
        "serve --certs certs --sizes 8,4,10 --checkpoint kept --metrics 127.0.0.1:9464 --log-format json",
    ),
    "replay": ("replay kept",),
    "transcript": ("transcript show kept", "transcript verify kept clinic-a --certs certs"),
    "join": ("join hub.example.org:50051 --certs certs --name clinic-a --env gridworld --agents 2",),
    "policy": ("policy hub.example.org:50051 --certs certs --name clinic-a --out policy.json",),
    "leave": ("leave hub.example.org:50051 --certs certs --name clinic-a",),
    "certs": (
        "certs --out certs --server server --host hub.example.org --node clinic-a --node clinic-b",
        "certs request clinic-c --out mine",
        "certs sign mine/clinic-c.csr --out certs",
    ),
}
"""By command, without the program's name."""


FIRST = ("run --episodes 3000", "run --episodes 3000 --out my-run", "show my-run", "environments")
"""For the help of the program itself."""


def epilogue(command: str) -> str:
    """What is printed below the options of a command, or of a part of one (``certs sign``)."""
    return _paragraphs([words for words in EXAMPLES[command.split()[0]] if words.startswith(command)])


def program_epilogue() -> str:
    completion = "Your shell completes commands, options and names after: fed-ucbvi --install-completion"
    each = "Every command has examples in its own help: fed-ucbvi COMMAND --help"
    codes = (f"{code}: {meaning}" for code, meaning in EXIT_CODES.items())
    return "\n\n".join([_paragraphs(FIRST), each, completion, "Exit codes:", *codes])


def _paragraphs(examples: Iterable[str]) -> str:
    """Empty lines make Typer begin a new line."""
    return "\n\n".join(["Examples:", *(f"fed-ucbvi {words}" for words in examples)])
