"""The folder of compiled code, its lock, and settings of Numba that cannot work."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fed_ucbvi
from commands import executed
from fed_ucbvi.algorithms.kernels import choose_action
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
    shutil.copytree(
        Path(fed_ucbvi.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (package / "__pycache__").touch()
    return package.parent


def execute(code: str, *arguments: str, **settings: str | None) -> subprocess.CompletedProcess[str]:
    usual: dict[str, str | None] = {key: None for key in os.environ if key.startswith("NUMBA")}
    return executed(code, *arguments, env={**usual, "NUMBA_NUM_THREADS": "1", **settings})


def test_compiled_code_is_kept_in_the_home_folder_if_the_package_cannot_be_written(
    sealed: Path,
) -> None:
    home = sealed.parent / "home"
    ended = execute(VISITS, PYTHONPATH=str(sealed), HOME=str(home))
    assert ended.returncode == 0
    assert ended.stdout == "1.25\n"
    assert ended.stderr == ""
    assert list((home / ".cache" / "fed-ucbvi" / "compiled").rglob("*.nbc"))


@pytest.mark.parametrize(
    ("before", "settings"),
    first_of(
        [
            ("", {"HOME": "/dev/null"}),
            (NO_PASSWORD_ENTRY, {"HOME": None}),
            ("", {"NUMBA_CACHE_DIR": "/dev/null/here"}),
        ]
    ),
    ids=[
        "home that cannot be written",
        "no home at all",
        "a folder of one's own that cannot be written",
    ],
)
def test_without_a_writable_folder_a_warning_names_the_variable(
    sealed: Path, before: str, settings: dict[str, str | None]
) -> None:
    ended = execute(before + VISITS, PYTHONPATH=str(sealed), **settings)
    assert ended.returncode == 0
    assert ended.stdout == "1.25\n"
    assert len(ended.stderr.splitlines()) == 1
    assert "NUMBA_CACHE_DIR" in ended.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    first_of(
        [
            ("NUMBA_NUM_THREADS", "0"),
            ("NUMBA_DISABLE_JIT", "1"),
            ("NUMBA_NUM_THREADS", "-3"),
        ]
    ),
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
known = compiling._LockedIndex._load_index
compiling._LockedIndex._load_index = lambda self: (known(self), time.sleep(0.5))[0]
compiling._LockedIndex(sys.argv[1], "function", "stamp").save(sys.argv[2], f"code for {sys.argv[2]}")
"""


def test_two_processes_that_save_at_the_same_moment_do_not_mix_up_types(
    tmp_path: Path,
) -> None:
    """Savers that know of no code yet would all call theirs number 1."""
    kinds = ["16 bits", "32 bits"]
    with ThreadPoolExecutor(len(kinds)) as savers:
        ended = list(savers.map(lambda kind: execute(SAVE_SLOWLY, str(tmp_path), kind), kinds))
    assert [one.stderr for one in ended] == ["", ""]
    cache = compiling._LockedIndex(str(tmp_path), "function", "stamp")
    assert [cache.load(types) for types in kinds] == [f"code for {types}" for types in kinds]


def test_kernels_use_the_lock() -> None:
    assert isinstance(choose_action._cache._cache_file, compiling._LockedIndex)  # type: ignore[attr-defined]


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


def test_a_function_of_ones_own_is_cached_where_numba_would_cache_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "theirs.py").write_text("import numba\n\n@numba.njit(cache=True)\ndef double(x):\n    return 2 * x\n")
    code = "import fed_ucbvi.core.sampling.philox, theirs; print(theirs.double(4))"
    ended = execute(code, PYTHONPATH=str(tmp_path))
    assert (ended.stdout, ended.stderr) == ("8\n", "")
    assert list((tmp_path / "__pycache__").glob("theirs.double-*.nbi"))


def test_importing_the_package_changes_nothing_in_numba_or_in_the_process() -> None:
    ended = execute(f"import gc; GC = gc.get_threshold(){UNTOUCHED}")
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def module_name(path: Path) -> str:
    return ".".join(["fed_ucbvi", *path.relative_to(compiling.PACKAGE).with_suffix("").parts])


DECORATORS = {
    "compiled",
    "inner",
    "embedded",
    "inlined",
    "compiled_parallel",
    "intrinsic",
}


def foreign_names(path: Path, known: set[str]) -> list[str]:
    """Names of this package that kernels in a file use but that come from files without kernels."""
    tree = ast.parse(path.read_text())
    imported: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("fed_ucbvi"):
            for name in statement.names:
                imported[name.asname or name.name] = str(statement.module)
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        decorators = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
        if not decorators & DECORATORS:
            continue
        for body in function.body:
            used = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
            found += [f"{function.name}: {name}" for name in used & imported.keys() if imported[name] not in known]
    return found


def test_kernels_use_only_files_whose_edits_are_noticed() -> None:
    sources = compiling.kernel_sources()
    known = {module_name(path) for path in sources}
    foreign = {module_name(path): foreign_names(path, known) for path in sources}
    assert {name: names for name, names in foreign.items() if names} == {}


def test_a_foreign_constant_in_a_kernel_is_found(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("from fed_ucbvi.a import X\n\n@compiled\ndef f():\n    return X\n")
    assert foreign_names(path, {"fed_ucbvi.b"}) == ["f: X"]


@pytest.mark.full
def test_an_edit_of_a_kernel_changes_the_cache_folder(tmp_path: Path) -> None:
    package = tmp_path / "fed_ucbvi"
    shutil.copytree(
        Path(fed_ucbvi.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    code = "from fed_ucbvi.core.compiling import SOURCES; print(SOURCES)"

    def sources() -> str:
        return execute(code, PYTHONPATH=str(tmp_path)).stdout

    before = sources()
    with (package / "core" / "sampling" / "philox.py").open("a") as file:
        file.write("# edited\n")
    after = sources()
    assert before != after


@pytest.mark.full
def test_an_edit_of_a_file_without_kernels_keeps_the_cache_folder(
    tmp_path: Path,
) -> None:
    package = tmp_path / "fed_ucbvi"
    shutil.copytree(
        Path(fed_ucbvi.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    code = "from fed_ucbvi.core.compiling import SOURCES; print(SOURCES)"
    before = execute(code, PYTHONPATH=str(tmp_path)).stdout
    with (package / "core" / "text.py").open("a") as file:
        file.write("# edited\n")
    assert execute(code, PYTHONPATH=str(tmp_path)).stdout == before


def test_old_cache_folders_are_removed(tmp_path: Path) -> None:
    folders = [tmp_path / f"digest-{i}" for i in range(compiling.KEPT_FOLDERS + 2)]
    for age, folder in enumerate(folders):
        folder.mkdir()
        os.utime(folder, (1_000_000 - age, 1_000_000 - age))
    compiling._remove_old_folders(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(folders[: compiling.KEPT_FOLDERS])
