"""Examples for operators: units and compose file in examples/operate, and how docs/operate.md reaches the page."""

from __future__ import annotations

import base64
import logging
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from configparser import RawConfigParser
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from commands import call
from fed_ucbvi.network.certificates import make_certificates
from fed_ucbvi.network.dashboard.server import PageServer, is_local_name
from fed_ucbvi.network.dashboard.state import LiveState, Subject
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
    assert re.search(
        r"error: .*/ca\.crt is missing; 'fed-ucbvi certs' makes certificates\.$",
        result.stderr.strip(),
    )


def test_nodes_of_the_compose_file_have_the_names_that_the_server_expects() -> None:
    server, *joins = compose_commands()
    names = server[server.index("--nodes") + 1].split(",")
    assert [words[words.index("--name") + 1] for words in joins] == names


def test_nodes_of_the_compose_file_bring_the_servers_agents() -> None:
    server, *joins = compose_commands()
    agents = int(server[server.index("--agents") + 1])
    assert [int(words[words.index("--first-agent") + 1]) for words in joins] == list(range(agents))


def test_services_of_the_compose_file_share_no_volume() -> None:
    services = compose()["services"]
    volumes = []
    for name, service in services.items():
        if name != "prometheus":
            volumes.append(service["volumes"][1].partition(":")[0])
    assert len(volumes) == len(list(compose_commands()))
    assert len(set(volumes)) == len(volumes)
    assert set(volumes) < set(compose()["volumes"])


def test_services_of_the_compose_file_have_no_privileges() -> None:
    for name, service in compose()["services"].items():
        if name != "prometheus":
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]


def test_files_that_the_recipe_of_the_image_copies_exist() -> None:
    recipe = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    for files in re.findall(r"^COPY (.*) \S+$", recipe, flags=re.MULTILINE):
        for file in files.split():
            assert (ROOT / file).exists()


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
    assert service["RestartPreventExitStatus"] == "2"
    assert service["SuccessExitStatus"] == "130"
    assert "MemoryDenyWriteExecute" not in service, "Numba compiles at run time"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    paths = []
    for name in UNITS:
        paths.append(tmp_path / name.replace("@", "@shop-a"))
        text = (FOLDER / name).read_text(encoding="utf-8")
        paths[-1].write_text(text.replace(PROGRAM, "/bin/true"), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")


# ------------------------------------------------------------------------------------- the page from another machine

OPERATE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
SERVED = "127.0.0.1:8080"
"""Where docs/operate.md serves the page."""


def example(language: str, beginning: str) -> str:
    """The block of docs/operate.md that begins in this way."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", OPERATE, flags=re.MULTILINE | re.DOTALL)
    (block,) = (one for one in blocks if one.startswith(beginning))
    return str(block)


def test_the_forwarded_port_leads_to_the_page_by_a_name_that_it_answers() -> None:
    assert f"`--dashboard {SERVED}`" in OPERATE
    words = shlex.split(example("sh", "ssh -N -L"), comments=True)
    own_port, _, target = words[words.index("-L") + 1].partition(":")
    assert target == SERVED
    (address,) = re.findall(r"http://(\S+)/", example("sh", "ssh -N -L"))
    assert address == f"localhost:{own_port}"
    assert is_local_name(address)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_ssh_understands_the_forwarded_port() -> None:
    """With -G it prints its settings and connects to nobody."""
    program, *words = shlex.split(example("sh", "ssh -N -L"), comments=True)
    printed = subprocess.run([program, "-G", *words], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "localforward 8080 [127.0.0.1]:8080" in printed.splitlines()


def test_the_proxy_sends_a_host_that_the_page_answers() -> None:
    """nginx sends the target of proxy_pass unless it is told otherwise."""
    settings = example("nginx", "server {")
    (target,) = re.findall(r"proxy_pass http://([^;/]+);", settings)
    assert target == SERVED
    assert "proxy_set_header" not in settings
    assert is_local_name(target)
    assert not is_local_name("hub.example.org")


@contextmanager
def nginx(settings: str, folder: Path) -> Iterator[None]:
    """Run nginx with these settings of one server until the block ends."""
    places = "".join(
        f"{kind}_temp_path {folder / kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    errors = folder / "errors"
    process_settings = f"daemon off; master_process off; pid {folder / 'pid'}; error_log {errors}; events {{}}"
    text = f"{process_settings} http {{ access_log off; {places}\n{settings}\n}}\n"
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    process = subprocess.Popen(["nginx", "-p", str(folder), "-e", str(errors), "-c", "nginx.conf"])
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx here")
def test_nginx_serves_the_page_with_a_password_only(
    tmp_path: Path,
) -> None:
    make_certificates(tmp_path, server="fed-ucbvi", hosts=["hub.example.org"])
    (tmp_path / "fed-ucbvi.htpasswd").write_text("reader:{PLAIN}sesame\n", encoding="utf-8")
    state = LiveState(Subject("a run", {"name": "fed-ucbvi"}, {"name": "nowhere"}, 4, 8, 3, 5))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with PageServer(state, "127.0.0.1:0") as page:
        settings = example("nginx", "server {").replace("/etc/nginx", str(tmp_path))
        settings = settings.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        settings = settings.replace(f"http://{SERVED}", page.url.rstrip("/"))
        context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        word = base64.b64encode(b"reader:sesame").decode()

        def ask(path: str, **headers: str) -> Any:
            request = urllib.request.Request(f"https://localhost:{port}{path}", headers=headers)
            return urllib.request.urlopen(request, timeout=60, context=context)

        with nginx(settings, tmp_path):
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            named = {"Host": "hub.example.org", "Authorization": f"Basic {word}"}
            with ask("/state.json", **named) as answer:
                assert b'"a run"' in answer.read()
            with ask("/events", **named) as events:
                assert events.readline() == b"retry: 1000\n"
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask("/state.json", Host="hub.example.org")
