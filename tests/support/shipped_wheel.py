"""The package as it is shipped: the wheel in fresh virtual environments, without the constraints file.

    make check-dist          # or, with some of the environments only:
    python tests/support/shipped_wheel.py dist newest oldest

``newest`` has the newest versions that the bounds admit and no extra, ``extras`` the newest with the extras,
``oldest`` the oldest with the extras. ``later`` is ``newest`` with the latest Python on this machine, for which there
may be later versions of everything. The names and bounds come from the wheel itself. Not part of the test suite:
each environment takes a minute or more to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.metadata import PathDistribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repository import ROOT

ENVIRONMENTS = ("newest", "extras", "oldest", "later")
LEFT_OUT = {
    "dev": "for developers",
    "test": "for developers",
    "docs": "builds the site, from the source alone",
    "gpu": "it brings CUDA along, two gigabytes, for machines that have a GPU",
    "icu-sepsis": "it asks for gym, of which there is no wheel, matplotlib and scikit-learn, for one file of tables",
    "flower": "Flower allows only old versions of packages used here, so it has an environment of its own",
}
SWEEP = """
name = "shipped"

[[grid]]
algorithms = ["fed-ucbvi", "fedq-hoeffding"]
environments = [{ name = "synthetic", states = 4 }]
agents = [2]
episodes = [40]
seeds = 2
"""
LOOK = """
import inspect
import fed_ucbvi
from fed_ucbvi import *
help(fed_ucbvi)
help(learn_bins)
members = dict(inspect.getmembers(fed_ucbvi))
assert set(fed_ucbvi.__all__) <= members.keys()
assert all(members[name] is globals()[name] for name in fed_ucbvi.__all__ if name != "__version__")
"""
"""Looks at all public names, as people and editors do; whatever extras there are, nothing of it may fail."""
EVERY_ALGORITHM = """
from fed_ucbvi import run, synthetic
from fed_ucbvi.algorithms import ALGORITHMS
for name in ALGORITHMS:
    run(name, synthetic(agents=1, states=3, actions=2, horizon=2), 20, progress=False)
"""
TELL_VERSION = "import sys, ensurepip; print(sys.version.split()[0])"
RUN = (
    "run",
    "--env",
    "gridworld",
    "--agents",
    "3",
    "--episodes",
    "200",
    "--out",
    "run",
)
GOOD: tuple[tuple[str, ...], ...] = (
    RUN,
    ("show", "run"),
    ("sweep", "sweep.toml", "--out", "sweep"),
    ("report", "sweep"),
    ("inspect", "--env", "riverswim"),
    ("plan", "--env", "gridworld"),
    ("environments",),
    ("algorithms",),
    ("leaderboard",),
)
BAD: dict[tuple[str, ...], str] = {
    ("run", "--bogus"): "No such option",
    ("run", "--episodes", "many"): "--episodes",
    ("run", "--eps-p", "2"): "eps_p",
    ("run", "--env", "gridwrld"): "did you mean 'gridworld'?",
    ("run", "--algorithm", "fed-ucbv"): "did you mean 'fed-ucbvi'?",
    ("rnu",): "did you mean 'run'?",
    ("show",): "DIR",
    ("show", "nowhere"): "nowhere",
}
NEEDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("network", ("certs", "--out", "certificates", "--node", "a")),
    ("network", ("federate", "--nodes", "2", "--env", "synthetic", "--episodes", "30")),
    (
        "gymnasium",
        (
            "run",
            "--env",
            "from_gymnasium",
            "--agents",
            "2",
            "--episodes",
            "30",
            "--out",
            "lake",
        ),
    ),
    ("gymnasium", ("play", "run", "--episodes", "2", "--out", "run.gif")),
    ("ray", ("sweep", "sweep.toml", "--out", "ray", "--executor", "ray")),
)
"""Commands that need an extra, each with its name: without it they say so, with it they work."""
NEEDED_TO_WAIT = (
    ("network", ("serve", "--insecure", "--env", "gridworld")),
    (
        "network",
        (
            "join",
            "127.0.0.1:1",
            "--insecure",
            "--name",
            "a",
            "--agents",
            "1",
            "--env",
            "gridworld",
        ),
    ),
)
"""Commands that would wait for others: they are called only where the extra is missing."""


def about(wheel: Path) -> PathDistribution:
    """Metadata of a wheel."""
    (folder,) = (entry for entry in zipfile.Path(wheel).iterdir() if entry.name.endswith(".dist-info"))
    return PathDistribution(folder)


def oldest(wheel: Path, extras: Sequence[str]) -> list[str]:
    """``name==version`` for every lower bound of what it needs, the extras of the package itself followed."""
    pins = []
    for requirement in map(Requirement, about(wheel).requires or []):
        marker = requirement.marker
        wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if wanted and canonicalize_name(requirement.name) != canonicalize_name(about(wheel).name):
            bounds = [one.version for one in requirement.specifier if one.operator in (">=", "==")]
            if len(bounds) != 1:
                raise SystemExit(f"{requirement} has no lower bound; give it the oldest version that works")
            pins.append(f"{requirement.name}=={bounds[0]}")
    return pins


class BadWheelError(Exception):
    """A check that failed, with what was printed."""


@dataclass
class Environment:
    """A virtual environment with the wheel in it and a folder to work in."""

    kind: str
    folder: Path
    extras: list[str]
    lines: list[str] = field(default_factory=list)

    def install(self, wheel: Path) -> None:
        if self.kind == "later":
            python = latest_python(wheel)
        else:
            python = Path(sys.executable)
        subprocess.run([python, "-m", "venv", "venv"], cwd=self.folder, check=True)
        self.lines.append(f"  Python {self._call('python', '-c', TELL_VERSION).stdout.strip()}")
        chosen = f"[{','.join(self.extras)}]" if self.extras else ""
        command = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ]
        if self.kind == "oldest":
            pins = oldest(wheel, self.extras)
            (self.folder / "oldest.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
            self.lines.append(f"  {', '.join(pins)}")
            command += ["--constraint", "oldest.txt"]
        self._call("python", *command, f"{wheel.resolve()}{chosen}")
        self._call("python", "-m", "pip", "check")
        (self.folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")

    def check(self, version: str) -> None:
        printed = self.good("--version")
        if printed.strip() != f"fed-ucbvi {version}":
            raise BadWheelError(f"--version says {printed!r}, the wheel {version}")
        names = (
            "from fed_ucbvi.command_line import all_commands; print('\\n'.join(one.name for one in all_commands()))"
        )
        for name in ("", *self._call("python", "-c", names).stdout.splitlines()):
            if "Usage" not in self.good(*name.split(), "--help"):
                raise BadWheelError(f"{name} --help gives no usage")
        self._call("python", "-c", LOOK)
        if self.kind == "later":
            self._call("python", "-c", EVERY_ALGORITHM)
        for words in GOOD:
            self.good(*words)
        for words, part in BAD.items():
            self.refused(words, part)
        for extra, words in (*NEEDED, *NEEDED_TO_WAIT):
            if extra not in self.extras:
                self.refused(words, f"'fed-ucbvi[{extra}]'")
            elif (extra, words) in NEEDED:
                self.good(*words)

    def good(self, *words: str) -> str:
        return self._call("fed-ucbvi", *words).stdout

    def refused(self, words: Sequence[str], part: str) -> None:
        """Exit code 2 and one message, which holds ``part``."""
        ended = self._call("fed-ucbvi", *words, code=2)
        lines = ended.stderr.splitlines()
        if ended.stdout or len(lines) != 1 or not lines[0].startswith("error: ") or part not in lines[0]:
            raise BadWheelError(f"{' '.join(words)}: not one message with {part!r}:\n{ended.stdout}{ended.stderr}")

    def _call(self, program: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        own = ("PYTHON", "NUMBA", "VIRTUAL")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        command = [str(self.folder / "venv" / "bin" / program), *words]
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env=clean,
            capture_output=True,
            text=True,
            timeout=900,
        )
        if ended.returncode != code:
            what = f"{program} {' '.join(words)}: exit code {ended.returncode}, not {code}"
            raise BadWheelError(f"{what}:\n{ended.stdout}{ended.stderr}")
        return ended


def latest_python(wheel: Path) -> Path:
    """The latest interpreter for which the wheel is meant: in the search path, or beside this one as with pyenv."""
    start = "Programming Language :: Python :: 3."
    classifiers = about(wheel).metadata.get_all("Classifier") or []
    versions = [int(text.removeprefix(start)) for text in classifiers if text.startswith(start)]
    for version in sorted(versions, reverse=True):
        named = shutil.which(f"python3.{version}")
        beside = Path(sys.base_prefix).parent.glob(f"3.{version}.*/bin/python3")
        for path in (*beside, *([] if named is None else [Path(named)])):
            if subprocess.run([path, "-c", TELL_VERSION], capture_output=True).returncode == 0:
                return path
    return Path(sys.executable)


def check_environment(kind: str, wheel: Path) -> tuple[bool, str]:
    """Make one environment and check the program in it; gives whether all was well, and what to print."""
    own = about(wheel).metadata.get_all("Provides-Extra") or []
    if kind in ("newest", "later"):
        extras = []
    else:
        extras = [extra for extra in own if extra not in LEFT_OUT]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fed-ucbvi-wheel-") as name:
        environment = Environment(kind, Path(name), extras)
        lines = environment.lines
        if extras:
            lines += [f"  without [{extra}]: {why}" for extra, why in LEFT_OUT.items()]
        try:
            environment.install(wheel)
            installed = time.monotonic()
            environment.check(about(wheel).version)
        except BadWheelError as failure:
            return False, "\n".join([f"{kind} {extras}: FAILED", *lines, str(failure)])
    seconds = f"{installed - began:.0f} s to install, {time.monotonic() - installed:.0f} s to check"
    return True, "\n".join([f"{kind} {extras}: well; {seconds}", *lines])


IN_THE_WHEEL = (
    "fed_ucbvi/py.typed",
    "fed_ucbvi/__init__.pyi",
    "fed_ucbvi/charts/figures.mplstyle",
    "fed_ucbvi/paper/report/page.html",
    "fed_ucbvi/paper/report/page.css",
    "fed_ucbvi/paper/report/page.js",
    "fed_ucbvi/paper/leaderboard.toml",
    "fed_ucbvi/paper/leaderboard.csv",
    "*.dist-info/licenses/LICENSE",
    "*.dist-info/entry_points.txt",
)
"""Files without which something fails only once it is used."""
TOPS = ("fed_ucbvi/*", "fed_ucbvi-*.dist-info/*")
"""All that a wheel may put among a user's packages: no tests, no documents."""


def check_contents(wheel: Path) -> None:
    """Raise unless the wheel holds what the package needs, every module of the source, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        held = archive.namelist()
    foreign = [name for name in held if not any(fnmatch(name, top) for top in TOPS) or "__pycache__" in name]
    missing = [pattern for pattern in IN_THE_WHEEL if not any(fnmatch(name, pattern) for name in held)]
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    missing += sorted(modules - set(held))
    if foreign or missing:
        raise SystemExit(f"{wheel.name} lacks {missing} and should not hold {foreign}")


def check_source(archive: Path) -> None:
    """Raise unless the sdist holds every file that git knows."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    with tarfile.open(archive) as content:
        held = {member.name.partition("/")[2] for member in content}
    missing = sorted(set(listed.stdout.splitlines()) - held)  # none is listed outside a repository
    if missing:
        raise SystemExit(f"{archive.name} lacks {', '.join(missing)}")


def main(dist: str, *kinds: str) -> int:
    """Check the sdist and the wheel in ``dist``; gives the exit code."""
    (wheel,) = Path(dist).glob("*.whl")
    (source,) = Path(dist).glob("*.tar.gz")
    check_source(source)
    check_contents(wheel)
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes = [pool.submit(check_environment, kind, wheel) for kind in kinds or ENVIRONMENTS]
        for outcome in outcomes:
            print(outcome.result()[1], flush=True)  # noqa: T201
    return 0 if all(outcome.result()[0] for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
