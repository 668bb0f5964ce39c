"""The proxy for apt: forwards, counts, keeps, fails, refuses; against a small server of its own."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.e2e.mirror import Mirror

BODY = b"x" * 200_000


class Archive(BaseHTTPRequestHandler):
    """An archive in which every path exists."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(304 if "If-Modified-Since" in self.headers else 200)
        self.send_header("Content-Length", "0" if "If-Modified-Since" in self.headers else str(len(BODY)))
        self.end_headers()
        if "If-Modified-Since" not in self.headers:
            self.wfile.write(BODY)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  http.server's name
        pass


@pytest.fixture
def archive() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Archive)
    Archive.asked.clear()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def get(mirror: Mirror, url: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", mirror.port, timeout=5)
    try:
        connection.request("GET", url, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_forwards_and_counts_each_package_once(archive: str) -> None:
    with Mirror() as mirror:
        for path in ("/dists/x/InRelease", "/pool/a_1.deb", "/pool/a_1.deb", "/pool/b_1.deb"):
            assert get(mirror, archive + path) == (200, BODY)
        assert mirror.debs == [f"{archive}/pool/a_1.deb", f"{archive}/pool/b_1.deb"]
    assert len(Archive.asked) == 4  # nothing is kept unless a folder is given


def test_keeps_packages_but_never_indexes(archive: str, tmp_path: Path) -> None:
    with Mirror(cache=tmp_path / "debs") as mirror:
        for path in ("/pool/a_1.deb", "/pool/a_1.deb", "/dists/Packages.xz", "/dists/Packages.xz"):
            assert get(mirror, archive + path) == (200, BODY)
        assert mirror.hits == 1
    assert Archive.asked == ["/pool/a_1.deb", "/dists/Packages.xz", "/dists/Packages.xz"]
    assert len(list((tmp_path / "debs").iterdir())) == 1


def test_not_modified_is_passed_on(archive: str) -> None:
    with Mirror() as mirror:
        status, body = get(mirror, archive + "/dists/InRelease", **{"If-Modified-Since": "now"})
    assert (status, body) == (304, b"")


def test_cut_leaves_half_and_nothing_in_the_cache(archive: str, tmp_path: Path) -> None:
    with Mirror(cache=tmp_path) as mirror:
        mirror.fail_from(2)
        assert get(mirror, archive + "/a.deb")[0] == 200
        for _ in range(2):  # a retry fails as well
            with pytest.raises(http.client.IncompleteRead):
                get(mirror, archive + "/b.deb")
        assert len(list(tmp_path.iterdir())) == 1
        mirror.heal()
        assert get(mirror, archive + "/b.deb") == (200, BODY)


def test_503_and_a_new_count(archive: str) -> None:
    with Mirror() as mirror:
        assert get(mirror, archive + "/a.deb")[0] == 200
        mirror.fail_from(1, "503")
        assert get(mirror, archive + "/a.deb")[0] == 503
        assert get(mirror, archive + "/dists/InRelease")[0] == 200


def test_an_archive_that_is_down_closes_the_connection(archive: str) -> None:
    with Mirror() as mirror, pytest.raises((http.client.HTTPException, OSError)):
        get(mirror, "http://127.0.0.1:1/a.deb")


def test_only_absolute_http(archive: str) -> None:
    with Mirror() as mirror:
        assert get(mirror, "/etc/passwd")[0] == 501


def test_stops_cleanly() -> None:
    with Mirror() as mirror:
        port = mirror.port
        assert mirror.apt_conf("10.88.0.1") == f'Acquire::http::Proxy "http://10.88.0.1:{port}";\n'
    with pytest.raises(OSError, match="refused"):
        http.client.HTTPConnection("127.0.0.1", port, timeout=2).request("GET", "http://x/")
