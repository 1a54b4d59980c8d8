"""The page's server by plain HTTP: what it says, to whom, and that it changes nothing."""

from __future__ import annotations

import itertools
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from fed_ucbvi import InputError
from fed_ucbvi.dashboard import server as server_module
from fed_ucbvi.dashboard.server import MAX_READERS, Access, PageServer, page
from fed_ucbvi.dashboard.state import LiveState, Subject
from matrices import first_of
from page_reader import connect, follow
from rounds import made_up_rounds

TOKEN = "0123456789abcdef0123456789abcdef"
SUBJECT = Subject("a run", {"name": "fed-ucbvi"}, {"name": "nowhere"}, agents=4, states=8, actions=3, horizon=5)
Answer = tuple[int, Mapping[str, str], str]


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    state = LiveState(SUBJECT)
    for record in made_up_rounds(1, count=50):
        state(record)
    with PageServer(state, Access.parse("127.0.0.1:0"), metrics=lambda: b"rounds 50\n") as server:
        yield server


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = connect(server.url)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_the_page_is_one_document_that_may_load_nothing(server: PageServer) -> None:
    status, headers, html = ask(server, "/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "*" not in policy
    assert set(re.findall(r"(\S+-src) ([^;]*)", policy)) >= {("connect-src", "'self'"), ("img-src", "data:")}
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", html) == ["data:,", "vega.js"], "nothing from elsewhere"
    assert ask(server, "/vega.js")[0] == 200
    outside = re.findall(r"https?://[^\"'\s)]+", html)
    assert outside == ["http://www.w3.org/2000/svg"], "the name of a language, not an address to load"
    assert "@import" not in html
    assert "url(" not in html
    assert " style=" not in html, "the policy would not let it be"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert (html, policy) == page()


def test_the_snapshot_is_the_state(server: PageServer) -> None:
    status, headers, text = ask(server, "/state.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert server.state is not None
    assert json.loads(text) == server.state.snapshot()


@pytest.mark.parametrize("path", ["/", "/state.json", "/events", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(server: PageServer, path: str, method: str) -> None:
    assert ask(server, path, method)[0] == 405


def test_head_has_no_body_and_other_addresses_are_unknown(server: PageServer) -> None:
    assert ask(server, "/events", "HEAD")[::2] == (200, "")
    assert ask(server, "/metrics")[::2] == (200, "rounds 50\n")
    assert ask(server, "/elsewhere")[0] == 404


STRANGE = ("evil.example", "evil.example:80", "127.0.0.1.evil.example:8080", "192.0.2.7", "")
OWN = ("localhost", "localhost:9", "127.0.0.1", "[::1]", "[::1]:80")


@pytest.mark.parametrize("host", [*STRANGE, *OWN])
def test_only_browsers_that_know_this_machine_by_its_own_names_are_answered(server: PageServer, host: str) -> None:
    assert ask(server, "/state.json", Host=host)[0] == (421 if host in STRANGE else 200)


def test_events_add_up_to_the_snapshot_and_come_at_their_own_pace() -> None:
    state, rounds = LiveState(SUBJECT), made_up_rounds(3)
    with PageServer(state, Access.parse("127.0.0.1:0")) as server:
        events = played = 0
        for mirror in follow(server.url):
            events += 1
            if mirror.get("now", {"round": 0})["round"] < played:
                continue
            assert mirror == state.snapshot()
            if played == 3_000:
                break
            for record in list(itertools.islice(rounds, 1_000)):
                state(record)
            played += 1_000
    assert events <= 7, "at most two for a thousand rounds that were there at once"


def test_a_reader_hears_of_the_end_before_the_server_goes() -> None:
    state = LiveState(SUBJECT)
    server = PageServer(state, Access.parse("127.0.0.1:0"))
    reader = follow(server.url)
    assert next(reader)["status"]["phase"] == "waiting"
    state(next(made_up_rounds(1)))
    state.end()
    server.close()
    assert [content["status"]["phase"] for content in reader][-1] == "over"


def test_exactly_so_many_readers_are_let_in_at_once_and_others_when_they_leave() -> None:
    with PageServer(LiveState(SUBJECT), Access.parse("127.0.0.1:0")) as server:
        connections = [connect(server.url) for _ in range(2 * MAX_READERS)]
        for connection in connections:
            connection.request("GET", "/events")
        answers = [connection.getresponse() for connection in connections]
        statuses = [answer.status for answer in answers]
        assert (statuses.count(200), statuses.count(503)) == (MAX_READERS, MAX_READERS)
        assert ask(server, "/state.json")[0] == 200
        for answer, connection in zip(answers, connections, strict=True):
            answer.close()
            connection.close()
        while server.readers:
            time.sleep(0.02)
        assert next(follow(server.url))["subject"]["title"] == "a run"


def silent(port: int, first: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=300)
    with suppress(ConnectionError):  # on a busy machine the server may already have given it up
        made.sendall(first)
    return made


@pytest.mark.parametrize(
    "first", first_of([b"GET / HTTP/1.1\r\nHost: loc", b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\nGE", b""])
)
def test_half_requests_keep_nobody_out_and_are_given_up(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 3.0)
    monkeypatch.setattr(server_module, "MAX_SILENT", 40)
    with PageServer(LiveState(SUBJECT), Access.parse("127.0.0.1:0")) as server, ExitStack() as stack:
        port = urlsplit(server.url).port or 0
        idle = [stack.enter_context(silent(port, first)) for _ in range(120)]
        assert ask(server, "/state.json")[0] == 200
        for one in idle:
            with suppress(ConnectionError):
                while one.recv(4096):
                    pass


def test_idle_connections_by_tls_keep_nobody_out(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 3.0)
    monkeypatch.setattr(server_module, "MAX_SILENT", 80)
    access = Access.parse("127.0.0.1:0", files / "server.crt", files / "token")
    context = ssl.create_default_context(cafile=files / "ca.crt")
    with PageServer(LiveState(SUBJECT), access) as server, ExitStack() as stack:
        port = urlsplit(server.url).port or 0
        first = (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n")
        never = [stack.enter_context(silent(port, first[i % 3])) for i in range(120)]  # no handshake ends
        plain = [stack.enter_context(silent(port)) for _ in range(60)]
        idle = [stack.enter_context(context.wrap_socket(one, server_hostname="127.0.0.1")) for one in plain]
        assert watched(server, files)["subject"]["title"] == "a run"
        for one in idle:
            with suppress(ConnectionError, ssl.SSLEOFError):
                assert one.recv(10) == b""
        for silently in never:
            with suppress(ConnectionError):
                while silently.recv(4096):
                    pass
        assert watched(server, files)["subject"]["title"] == "a run"


# ----------------------------------------------------------------------------------------------------- other machines


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fed_ucbvi.network.certificates import make_certificates

    folder = tmp_path_factory.mktemp("access") / "certs"
    make_certificates(folder, server="server", nodes=["a"], days=2)
    (folder / "token").write_text(TOKEN + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:8080", "[::]:0", "example.org:80"])
def test_off_loopback_the_page_is_refused_without_certificate_and_token(address: str, files: Path) -> None:
    for given in ((None, None), (files / "server.crt", None), (None, files / "token")):
        with pytest.raises(InputError, match="certificate and a token"):
            Access.parse(address, *given)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:70000", "127.0.0.1:x", ""])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        Access.parse(address)


def test_a_token_must_be_long_and_a_key_must_be_there(files: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("secret", encoding="utf-8")
    with pytest.raises(InputError, match="at least 16"):
        Access.parse("0.0.0.0:0", files / "server.crt", short)
    with pytest.raises(InputError, match="missing"):
        Access.parse("0.0.0.0:0", files / "server.crt", tmp_path / "none")
    alone = tmp_path / "alone.crt"
    alone.write_bytes((files / "server.crt").read_bytes())
    with pytest.raises(InputError, match=r"alone\.key is missing"):
        Access.parse("0.0.0.0:0", alone, files / "token")
    (tmp_path / "alone.key").write_text("no key", encoding="utf-8")
    with pytest.raises(InputError, match="no certificate and its key"):
        PageServer(LiveState(SUBJECT), Access.parse("127.0.0.1:0", alone, files / "token"))


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="cannot be served"):
        PageServer(LiveState(SUBJECT), Access.parse(f"127.0.0.1:{taken.getsockname()[1]}"))


def watched(server: PageServer, files: Path) -> Any:
    """What somebody sees who has the token, and trusts the authority."""
    request = Request(f"{server.url}state.json", headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=60, context=ssl.create_default_context(cafile=files / "ca.crt")) as answer:
        return json.load(answer)


def test_by_tls_and_token_other_machines_may_look(files: Path) -> None:
    access = Access.parse("127.0.0.1:0", files / "server.crt", files / "token")
    with PageServer(LiveState(SUBJECT), access) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert server.state is not None
        assert watched(server, files) == server.state.snapshot()
        with pytest.raises(HTTPError, match="401"):
            urlopen(server.url, timeout=60, context=ssl.create_default_context(cafile=files / "ca.crt"))


def test_a_browser_shows_the_token_once_and_keeps_a_cookie_that_is_not_the_token(files: Path) -> None:
    access = Access.parse("127.0.0.1:0", None, files / "token")
    with PageServer(LiveState(SUBJECT), access) as server:
        for path in ("/", "/state.json", "/events", "/?token=", "/?token=" + TOKEN[:-1], "/?token=%C3%A9"):
            assert ask(server, path)[0] == 401
        status, headers, _ = ask(server, f"/?token={TOKEN}")
        assert (status, headers["location"]) == (303, "/"), "the token does not stay in the address"
        for path in ("//evil.example/", "///evil.example", "/%5Cevil.example/"):
            assert ask(server, f"{path}?token={TOKEN}")[1]["location"].startswith("/evil.example")
        cookie = headers["set-cookie"]
        assert "httponly" in cookie.lower()
        assert "samesite=lax" in cookie.lower()
        assert TOKEN not in cookie
        kept = cookie.partition(";")[0]
        assert ask(server, "/state.json", Cookie=kept)[0] == 200
        assert ask(server, "/state.json", Cookie=kept[:-1])[0] == 401
        assert ask(server, "/state.json", Authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(server, "/state.json", Authorization=f"Basic {TOKEN}")[0] == 401
        assert ask(server, "/state.json", Host="hub.example.org", Cookie=kept)[0] == 200, "the token is enough"
