"""Bundles from an https server, and results to it: its certificate, its size, its redirects, and who gets the token."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuprov.host_code.pull import config, results, web
from gpuprov.host_code.pull.refused import Refused, Unfetched

DRIBBLES = {
    "status": (b"HTTP/1.1 2", b"0"),
    "header": (b"HTTP/1.1 200 OK\r\nX-A: ", b"x"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-A: x\r\n"),
    "content": (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b"x"),
    "endless": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
    "trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x"),
}
SEEN: list[tuple[str, str, str, bytes]] = []


class Server(BaseHTTPRequestHandler):
    """Answers by the path."""

    def do_GET(self) -> None:
        SEEN.append(("GET", self.path, self.headers.get("Authorization", ""), b""))
        if self.path.endswith(tuple(DRIBBLES)):
            self._dribble(*DRIBBLES[self.path.rpartition("/")[2]])
            return
        if self.path.endswith("/reason"):
            self.wfile.write(b"HTTP/1.1 500 \x1b]0;OWNED\x07##vso[task.setvariable]x\r\nContent-Length: 0\r\n\r\n")
            return
        if self.path.endswith("/words"):
            self.wfile.write(b"##vso[task.setvariable]x\r\n\r\n")
            return
        if self.path.endswith("/away"):
            self.send_response(302)
            self.send_header("Location", "https://elsewhere.example/away")
            self.end_headers()
            return
        data = b"" if self.path.endswith("/none") else b"x" * 5000
        self.send_response(404 if self.path.endswith("/none") else 200)
        self.send_header("Content-Length", str(len(data) + 10 * self.path.endswith("/cut")))
        self.end_headers()
        self.wfile.write(data)

    def _dribble(self, head: bytes, word: bytes) -> None:
        """A byte or so twenty times a second, for as long as somebody listens: no read ever times out."""
        with suppress(OSError):
            self.wfile.write(head)
            while True:
                self.wfile.write(word)
                time.sleep(0.05)

    def do_PUT(self) -> None:
        if "slow" in self.path:
            self._dribble(b"HTTP/1.1 201 Cre", b"a")
            return
        data = self.rfile.read(int(self.headers["Content-Length"]))
        SEEN.append(("PUT", self.path, self.headers.get("Authorization", ""), data))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key, and its certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "ca.pem"
    words = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split()
    words += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *words], check=True, capture_output=True)
    return key, certificate


@pytest.fixture
def served(tmp_path: Path, pair: tuple[Path, Path]) -> Iterator[config.Config]:
    """A server with a certificate of its own, and the configuration that knows it."""
    key, certificate = pair
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    token.chmod(0o600)
    place = f"https://localhost:{server.server_port}"
    SEEN.clear()
    yield config.Config(
        "gpu1",
        f"{place}/b",
        results=f"{place}/r",
        result="gpu%31.json",
        ca_file=str(certificate),
        token_file=str(token),
    )
    server.shutdown()
    server.server_close()


def test_files_are_fetched_and_results_put(served: config.Config) -> None:
    assert web.get(served, "gpu1.bundle", 5000) == b"x" * 5000
    results.upload(served, b"{}")
    assert SEEN == [
        ("GET", "/b/gpu1.bundle", "Bearer s3cret-token", b""),
        ("PUT", "/r/gpu%2531.json", "Bearer s3cret-token", b"{}"),
    ]


def test_what_is_not_as_it_should_be_is_refused(served: config.Config) -> None:
    with pytest.raises(Refused, match="more than 4999 bytes"):
        web.get(served, "big", 4999)
    with pytest.raises(Unfetched, match="answers 404"):
        web.get(served, "none", 5000)
    with pytest.raises(Unfetched, match="answers 302"):
        web.get(served, "away", 5000)
    with pytest.raises(Unfetched, match=r"early|IncompleteRead"):
        web.get(served, "cut", 6000)
    with pytest.raises(Unfetched, match="CERTIFICATE_VERIFY_FAILED"):
        web.get(served._replace(ca_file=""), "gpu1.bundle", 5000)
    Path(served.token_file).chmod(0o622)
    with pytest.raises(Refused, match="others may write it"):
        web.get(served, "gpu1.bundle", 5000)


@pytest.mark.install
@pytest.mark.parametrize("where", DRIBBLES)
def test_a_server_that_dribbles_is_given_up(served: config.Config, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FETCH", 0.4)
    began = time.monotonic()
    with pytest.raises(Unfetched, match=rf"{where}: it did not come within 0\.4 s"):
        web.get(served, where, 1 << 20)
    assert time.monotonic() - began < 3


@pytest.mark.install
def test_a_result_that_is_taken_slowly_is_given_up(served: config.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FETCH", 0.4)
    with pytest.raises(Unfetched, match=r"did not come within 0\.4 s"):
        results.upload(served._replace(result="slow.json"), b"{}")


@pytest.mark.parametrize("words", ["reason", "words"])
def test_nothing_of_a_servers_words_is_told(served: config.Config, words: str) -> None:
    with pytest.raises(Unfetched) as refused:
        web.get(served, words, 5000)
    assert not [word for word in ("vso", "OWNED", "\x1b") if word in refused.value.message]


TOKENS = {
    "two lines": (b"s3cret\nCANARY\n", "has 2 lines"),
    "Latin-1": (b"CANARY\xfc\n", "has characters that no token has"),
    "a blank": (b"Bearer CANARY\n", "has characters that no token has"),
    "a NUL": (b"CANARY\0", "has characters that no token has"),
    "nothing": (b"\n", "is empty"),
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_that_is_none_is_refused_and_not_repeated(served: config.Config, name: str) -> None:
    data, told = TOKENS[name]
    Path(served.token_file).write_bytes(data)
    with pytest.raises(Refused) as refused:
        web.get(served, "gpu1.bundle", 5000)
    assert told in refused.value.message
    assert "CANARY" not in refused.value.message + refused.value.fix
    assert refused.value.code == 2
    assert not SEEN


PLACES = {
    "source": [
        "https://bob:CANARY@mirror.example/b",
        "http://bob:CANARY@h/b",
        "https://CANARY@h/b",
        "https://h/b?sig=CANARY",
    ],
    "results": ["https://bob:CANARY@mirror.example/r", "rsync:rsync://bob:CANARY@h/r", "rsync:bob:CANARY@h::r"],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in PLACES.items() for place in places])
def test_a_password_in_a_place_is_refused_and_not_repeated(tmp_path: Path, name: str, place: str) -> None:
    file = tmp_path / "pull.json"
    file.write_text(json.dumps({"name": "gpu1", "source": "/srv", name: place}))
    with pytest.raises(Refused) as refused:
        config.read(str(file))
    assert f"{name} " in refused.value.message
    assert "allowed: an absolute path" in refused.value.message
    assert "CANARY" not in refused.value.message


def test_places_without_a_password_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "pull.json"
    for source in ("/srv/b", "https://h/b", "https://h:8443", "https://[fd00::1]:8443/b/c"):
        for results_ in (
            "",
            "/srv/r",
            "https://h/r",
            "rsync:h::r",
            "rsync:bob@h::r",
            "rsync:rsync://bob@h/r",
            "rsync:h:/r",
        ):
            file.write_text(json.dumps({"name": "gpu1", "source": source, "results": results_}))
            assert config.read(str(file)).source == source


def by_rsync(folder: Path, to: str) -> config.Config:
    (folder / "results").mkdir()
    (folder / "results" / "gpu1.json").write_bytes(b"{}")
    return config.Config("gpu1", "/srv", results=f"rsync:{to}", result="gpu1.json", state=str(folder))


@pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")
def test_rsync_takes_a_result_where_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    results.upload(by_rsync(tmp_path, f"{tmp_path}/to"), b"{}")
    assert (tmp_path / "to" / "gpu1.json").read_bytes() == b"{}"


def test_what_rsync_cannot_do_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unfetched, match=r"rsync|cannot be put into"):
        results.upload(by_rsync(tmp_path, f"{tmp_path}/no/where"), b"{}")
