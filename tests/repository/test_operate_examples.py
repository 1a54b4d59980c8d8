"""The units and the compose file in examples/operate: they parse, and the program takes their command lines."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from commands import call
from repository import ROOT

FOLDER = ROOT / "examples" / "operate"
PROGRAM = "/opt/fed-ucbvi/bin/fed-ucbvi"
UNITS = ("fed-ucbvi-server.service", "fed-ucbvi-node@.service")


class Unit(RawConfigParser):
    """A unit of systemd; names keep their capitals."""

    def __init__(self, text: str) -> None:
        super().__init__(strict=True, delimiters=("=",), comment_prefixes=("#",))
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read_string(text.replace("\\\n", " "))


def unit(name: str) -> Unit:
    return Unit((FOLDER / name).read_text(encoding="utf-8"))


def unit_commands() -> Iterator[list[str]]:
    """The command lines of server and node, with what systemd would put in."""
    settings = Unit("[env]\n" + (FOLDER / "shop-a.env").read_text(encoding="utf-8"))["env"]
    for name in UNITS:
        text = unit(name)["Service"]["ExecStart"].replace("%i", "shop-a")
        text = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda found: settings[found[1] or found[2]], text)
        program, *words = shlex.split(text)
        assert program == PROGRAM
        yield words


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def compose_commands() -> Iterator[list[str]]:
    for service in compose()["services"].values():
        if "command" in service:
            yield shlex.split(service["command"])


COMMANDS = [*unit_commands(), *compose_commands()]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_nothing_is_wrong_with_a_command_line_but_that_certificates_are_missing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates are read after everything else has been checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    here = [re.sub(r"^/(state|certs|etc)", str(tmp_path), word) for word in words]
    here[here.index("--log-format") + 1] = "text"
    result = call(*here)
    assert result.exit_code == 2
    assert re.search(r"error: .*/ca\.crt is missing; 'fed-ucbvi certs' makes certificates\.$", result.stderr.strip())


def test_nodes_of_the_compose_file_bring_the_servers_agents_and_share_nothing() -> None:
    services = compose()["services"]
    server, *joins = compose_commands()
    names = server[server.index("--nodes") + 1].split(",")
    assert [words[words.index("--name") + 1] for words in joins] == names
    firsts = [int(words[words.index("--first-agent") + 1]) for words in joins]
    assert firsts == list(range(int(server[server.index("--agents") + 1])))
    kept = [service["volumes"][1].partition(":")[0] for name, service in services.items() if name != "prometheus"]
    assert len(set(kept)) == len(kept) == 1 + len(names)
    assert set(kept) < set(compose()["volumes"])
    for name, service in services.items():
        if name != "prometheus":
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
    recipe = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    for file in re.findall(r"^COPY (.*) \S+$", recipe, flags=re.MULTILINE):
        assert all((ROOT / part).exists() for part in file.split())


def test_prometheus_asks_where_the_server_answers() -> None:
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    for words in COMMANDS:
        if words[0] == "serve":
            assert words[words.index("--metrics") + 1] == target


@pytest.mark.parametrize("name", UNITS)
def test_units_do_not_start_again_what_must_be_changed_first(name: str) -> None:
    service = unit(name)["Service"]
    assert service["Restart"] == "on-failure"
    assert (service["RestartPreventExitStatus"], service["SuccessExitStatus"]) == ("2", "130")
    assert "MemoryDenyWriteExecute" not in service, "Numba compiles at run time"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    paths = []
    for name in UNITS:
        paths.append(tmp_path / name.replace("@", "@shop-a"))
        text = (FOLDER / name).read_text(encoding="utf-8")
        paths[-1].write_text(text.replace(PROGRAM, "/bin/true"), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", *map(str, paths)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (said.returncode, said.stderr) == (0, "")
