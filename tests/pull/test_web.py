"""Bundles from an https server, and results to it: its certificate, its size, its redirects, and who gets the token."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuprov.onhost.pull import config, results, web
from gpuprov.onhost.pull.refused import Refused, Unfetched

SEEN: list[tuple[str, str, str, bytes]] = []


class Server(BaseHTTPRequestHandler):
    """Answers by the path."""

    def do_GET(self) -> None:
        SEEN.append(("GET", self.path, self.headers.get("Authorization", ""), b""))
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

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        SEEN.append(("PUT", self.path, self.headers.get("Authorization", ""), data))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[config.Config]:
    """A server with a certificate of its own, and the configuration that knows it."""
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    words = [
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    words += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *words], check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
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
