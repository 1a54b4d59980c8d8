"""Compiled code is kept where it may be, and what Numba is told that cannot work ends in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fed_ucbvi
from commands import executed
from fed_ucbvi.core import compiling
from matrices import first_of

pytestmark = pytest.mark.slow

VISITS = (
    "from fed_ucbvi import MDP; "
    "mdp = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [1.0]], initial=0, horizon=3); "
    "print(float(mdp.occupancy([[0, 0]] * 3)[:, 1].sum()))"
)
NO_PASSWORD_ENTRY = """
import pwd
def nobody(uid):
    raise KeyError(uid)
pwd.getpwuid = nobody
"""
PROGRAM = "from fed_ucbvi.command_line import main; main()"


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A copy of the package in which not even root can keep compiled code: a file is where the folder goes."""
    package = tmp_path / "sealed" / "fed_ucbvi"
    shutil.copytree(Path(fed_ucbvi.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__pycache__").touch()
    (tmp_path / "temporary").mkdir()
    return package.parent


def execute(code: str, *arguments: str, **settings: str | None) -> subprocess.CompletedProcess[str]:
    usual: dict[str, str | None] = {key: None for key in os.environ if key.startswith("NUMBA")}
    return executed(code, *arguments, env={**usual, "NUMBA_NUM_THREADS": "1", **settings})


@pytest.mark.parametrize(
    ("before", "settings"),
    first_of(
        [
            ("", {"HOME": "/dev/null"}),
            (NO_PASSWORD_ENTRY, {"HOME": None}),
            ("", {"NUMBA_CACHE_DIR": "/dev/null/here"}),
        ]
    ),
    ids=["home that cannot be written", "no home at all", "a folder of one's own that cannot be written"],
)
def test_without_a_usual_place_code_is_kept_in_a_temporary_one(
    sealed: Path, before: str, settings: dict[str, str | None]
) -> None:
    temporary = sealed.parent / "temporary"
    ended = execute(before + VISITS, PYTHONPATH=str(sealed), TMPDIR=str(temporary), **settings)
    folder = temporary / f"fed-ucbvi-{os.getuid()}"
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (0, "1.25\n", 1)
    assert f"is kept in {folder}" in ended.stderr
    assert folder.stat().st_mode & 0o077 == 0
    assert list(folder.rglob("*.nbc"))


@pytest.mark.parametrize("others_can_write", first_of([False, True]))
def test_without_a_place_to_trust_one_line_says_that_nothing_is_kept(sealed: Path, others_can_write: bool) -> None:
    """A file is where the temporary folder goes, or a folder that others can write."""
    folder = sealed.parent / "temporary" / f"fed-ucbvi-{os.getuid()}"
    if others_can_write:
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.touch()
    ended = execute(VISITS, PYTHONPATH=str(sealed), HOME="/dev/null", TMPDIR=str(folder.parent))
    assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (0, "1.25\n", 1)
    assert "compiled anew in every process" in ended.stderr
    assert not list(folder.glob("*"))


@pytest.mark.parametrize(
    ("name", "value"), first_of([("NUMBA_NUM_THREADS", "0"), ("NUMBA_DISABLE_JIT", "1"), ("NUMBA_NUM_THREADS", "-3")])
)
def test_settings_of_numba_that_cannot_work_give_one_line(name: str, value: str) -> None:
    ended = execute(PROGRAM, "run", "--episodes", "5", **{name: value})
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert name in line


SAVE_SLOWLY = """
import sys, time
from fed_ucbvi.core import compiling
known = compiling._LockedFile._load_index
compiling._LockedFile._load_index = lambda self: (known(self), time.sleep(0.5))[0]
compiling._LockedFile(sys.argv[1], "function", "stamp").save(sys.argv[2], f"code for {sys.argv[2]}")
"""


def test_code_for_different_types_that_is_saved_at_the_same_moment_is_not_mixed_up(tmp_path: Path) -> None:
    """Savers that know of no code yet would all call theirs number 1."""
    kinds = ["16 bits", "32 bits"]
    with ThreadPoolExecutor(len(kinds)) as savers:
        ended = list(savers.map(lambda kind: execute(SAVE_SLOWLY, str(tmp_path), kind), kinds))
    assert [one.stderr for one in ended] == ["", ""]
    cache = compiling._LockedFile(str(tmp_path), "function", "stamp")
    assert [cache.load(types) for types in kinds] == [f"code for {types}" for types in kinds]


UNTOUCHED = """
import inspect, sys
import numba
from numba.core import caching, dispatcher
from numba.np import linalg

def state():
    settings = {name: value for name, value in vars(numba.config).items() if name.isupper()}
    classes = [kind for _, kind in inspect.getmembers(caching, inspect.isclass)] + [dispatcher.Dispatcher]
    return settings, [dict(vars(kind)) for kind in classes], linalg.ensure_blas, sys.getswitchinterval()

def own(x):
    return x + 1

before = state()
import fed_ucbvi
for name in dir(fed_ucbvi):
    getattr(fed_ucbvi, name)
from fed_ucbvi.engine.drivers.auto import AutoDriver
assert state() == before
assert numba.njit(cache=False)(own)(1) == 2
assert type(numba.njit(own)._cache) is caching.NullCache
import gc
print(gc.get_threshold() == GC)
"""


def test_a_function_of_ones_own_is_cached_where_numba_would_cache_it(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("import numba\n\n@numba.njit(cache=True)\ndef double(x):\n    return 2 * x\n")
    code = "import fed_ucbvi.core.sampling.philox, theirs; print(theirs.double(4))"
    ended = execute(code, PYTHONPATH=str(tmp_path))
    assert (ended.stdout, ended.stderr) == ("8\n", "")
    assert list((tmp_path / "__pycache__").glob("theirs.double-*.nbi"))


def test_importing_the_package_changes_nothing_in_numba_or_in_the_process() -> None:
    ended = execute(f"import gc; GC = gc.get_threshold(){UNTOUCHED}")
    assert (ended.stdout, ended.stderr) == ("True\n", "")


@pytest.mark.full
def test_an_edit_compiles_anew_what_may_depend_on_it_and_nothing_else(tmp_path: Path) -> None:
    package = tmp_path / "fed_ucbvi"
    shutil.copytree(Path(fed_ucbvi.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    kernels = [package / "engine" / "drivers" / "episodes.py", package / "algorithms" / "mvp.py"]
    code = "import sys; from pathlib import Path; from fed_ucbvi.core.compiling import code_digest; "
    code += "print(*(code_digest(Path(file)) for file in sys.argv[1:]))"

    def digests() -> list[str]:
        return execute(code, *map(str, kernels), PYTHONPATH=str(tmp_path)).stdout.split()

    before = digests()
    with kernels[1].open("a") as file:
        file.write("# edited\n")
    after_one = digests()
    with (package / "core" / "sampling" / "philox.py").open("a") as file:
        file.write("# edited\n")
    after_both = digests()
    assert (len(before), [one == other for one, other in zip(before, after_one, strict=True)]) == (2, [True, False])
    assert not {*after_one} & {*after_both}
