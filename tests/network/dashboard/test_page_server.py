"""The page's server by plain HTTP: what it says, to whom, and that it changes nothing."""

from __future__ import annotations

import itertools
import json
import re
import socket
from collections.abc import Iterator, Mapping
from urllib.request import urlopen

import pytest

from fed_ucbvi import InputError
from fed_ucbvi.core.addresses import host_of
from fed_ucbvi.network.dashboard.server import PageServer, page
from fed_ucbvi.network.dashboard.state import LiveState, Subject
from page_reader import connect, follow
from rounds import made_up_rounds

HERE = "127.0.0.1:0"
SUBJECT = Subject(
    "a run",
    {"name": "fed-ucbvi"},
    {"name": "nowhere"},
    agents=4,
    states=8,
    actions=3,
    horizon=5,
)
Answer = tuple[int, Mapping[str, str], str]


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    state = LiveState(SUBJECT)
    for record in made_up_rounds(1, count=50):
        state(record)
    with PageServer(state, HERE, metrics=lambda: b"rounds 50\n") as server:
        yield server


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = connect(server.url)
    try:
        connection.request(
            method,
            path,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
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
    assert set(re.findall(r"(\S+-src) ([^;]*)", policy)) >= {
        ("connect-src", "'self'"),
        ("img-src", "data:"),
    }
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", html) == ["data:,"], "nothing from elsewhere"
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
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert server.state is not None
    assert json.loads(text) == server.state.snapshot()


@pytest.mark.parametrize("path", ["/", "/state.json", "/events", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(server: PageServer, path: str, method: str) -> None:
    assert ask(server, path, method)[0] == 405


def test_the_answer_to_head_has_no_body(server: PageServer) -> None:
    status, _, body = ask(server, "/events", "HEAD")
    assert status == 200
    assert body == ""


def test_metrics_are_served_beside_the_page(server: PageServer) -> None:
    status, _, body = ask(server, "/metrics")
    assert status == 200
    assert body == "rounds 50\n"


def test_other_addresses_are_unknown(server: PageServer) -> None:
    assert ask(server, "/elsewhere")[0] == 404


@pytest.mark.parametrize("path", ["/", "/state.json", "/events", "/metrics", "/elsewhere"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example:8080", "192.0.2.7", ""],
)
def test_a_request_by_another_host_name_is_refused(server: PageServer, path: str, host: str) -> None:
    status, _, text = ask(server, path, Host=host)
    assert status == 421
    assert "A reverse proxy must send its own target as Host" in text


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:9", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:80"],
)
def test_a_request_by_a_loopback_name_is_answered(server: PageServer, host: str) -> None:
    assert ask(server, "/state.json", Host=host)[0] == 200


def test_events_add_up_to_the_snapshot() -> None:
    state = LiveState(SUBJECT)
    rounds = made_up_rounds(3)
    with PageServer(state, HERE) as server:
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
    server = PageServer(state, HERE)
    reader = follow(server.url)
    assert next(reader)["status"]["phase"] == "waiting"
    state(next(made_up_rounds(1)))
    state.end()
    server.close()
    assert [content["status"]["phase"] for content in reader][-1] == "over"


def test_many_readers_follow_at_once() -> None:
    with PageServer(LiveState(SUBJECT), HERE) as server:
        readers = [follow(server.url) for _ in range(40)]
        assert [next(reader)["subject"]["title"] for reader in readers] == ["a run"] * 40
        for reader in readers:
            reader.close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:8080", "[::]:0", "example.org:80"])
def test_an_address_that_other_machines_can_reach_is_refused(address: str) -> None:
    with pytest.raises(
        InputError,
        match=r"on this machine only.*ssh -L 8080:127\.0\.0\.1:8080.*reverse proxy",
    ):
        PageServer(LiveState(SUBJECT), address)


@pytest.mark.parametrize("address", ["localhost:0", "127.0.0.1:0", "[::1]:0"])
def test_every_name_of_the_loopback_interface_can_be_listened_on(address: str) -> None:
    if ":" in host_of(address) and not has_ipv6_loopback():
        pytest.skip("no IPv6 here")
    with (
        PageServer(LiveState(SUBJECT), address) as server,
        urlopen(f"{server.url}state.json", timeout=60) as answer,
    ):
        assert json.load(answer)["subject"]["title"] == "a run"


def has_ipv6_loopback() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:70000", "127.0.0.1:x", ""])
def test_an_address_without_a_host_or_a_port_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        PageServer(LiveState(SUBJECT), address)


def test_a_port_that_is_taken_is_said_so() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match="cannot be served"),
    ):
        PageServer(LiveState(SUBJECT), f"127.0.0.1:{taken.getsockname()[1]}")
