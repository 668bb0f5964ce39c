"""A file that a spec names by its checksum, through its module: fetched from a server, or brought along."""

from __future__ import annotations

import hashlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import here
from tests.documents import read_yaml
from tests.host_code.modules import on_host, step

CONTENT = b"an installer" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
Ask = Callable[..., dict[str, Any]]


class Server(http.server.BaseHTTPRequestHandler):
    """Has /file, and nothing else; /cut ends before it has sent all."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if self.path in ("/slow", "/slow-headers"):
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"X-A: " if "-" in self.path else b"\r\n"))
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.1)
        self.send_response(200 if self.path in ("/file", "/cut") else 404)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.path in ("/file", "/cut"):
            self.wfile.write(CONTENT if self.path == "/file" else CONTENT[:100])

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as one:
        one.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        yield one
        one.shutdown()


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], server: Any, monkeypatch: pytest.MonkeyPatch) -> Ask:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    def asked(page: str = "file", **more: Any) -> dict[str, Any]:
        url = f"http://127.0.0.1:{server.server_port}/{page}"
        given = {"of": "rdma.efa", "url": url, "path": str(tmp_path / "in/it.tar.gz"), "sha256": DIGEST, **more}
        return step(capsys, "fetch", **given)

    return asked


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_it_is_fetched_once(tmp_path: Path, server: Any, ask: Ask) -> None:
    assert ask(check=True)["changed"] is True
    assert (server.asked, left(tmp_path)) == ([], []), "check mode fetches nothing"
    assert ask()["changed"] is True
    assert (tmp_path / "in/it.tar.gz").read_bytes() == CONTENT
    assert (tmp_path / "in/it.tar.gz").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "in").stat().st_mode & 0o777 == 0o700
    assert ask()["changed"] is ask(check=True)["changed"] is False
    assert server.asked == ["/file"]
    assert left(tmp_path) == ["it.tar.gz"]


@pytest.mark.install
@pytest.mark.parametrize("page", ["slow", "slow-headers"])
def test_one_that_comes_too_slowly_is_given_up(
    tmp_path: Path, ask: Ask, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte in time, and the whole of it never."""
    monkeypatch.setattr(on_host("fetched"), "PATIENCE", 1)
    began = time.monotonic()
    assert "it did not come within 1 s" in ask(page)["msg"]
    assert time.monotonic() - began < 4
    assert left(tmp_path) == []


def test_one_that_others_may_read(tmp_path: Path, ask: Ask) -> None:
    ask(public=True, sha256=DIGEST.upper())
    assert (tmp_path / "in/it.tar.gz").stat().st_mode & 0o777 == 0o644


def test_another_file_is_refused_and_not_kept(tmp_path: Path, ask: Ask) -> None:
    told = ask(sha256="0" * 64, fix="the one of AWS")["msg"]
    assert told.endswith(
        f"/file: its SHA-256 is {DIGEST}, and the spec says {'0' * 64}; nothing was changed. Fix: the one of AWS"
    )
    assert told.startswith("rdma.efa: http://127.0.0.1")
    assert left(tmp_path) == []


def test_what_was_there_stays_where_another_comes(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/it.tar.gz").write_text("of the spec before")
    assert "msg" in ask(sha256="0" * 64)
    assert (tmp_path / "in/it.tar.gz").read_text() == "of the spec before"
    assert ask()["changed"] is True


@pytest.mark.parametrize(
    ("page", "more", "why"),
    [
        ("nothing", {}, "404"),
        ("file", {"most": 2000}, "larger than 0 MiB"),
        ("file", {"url": "http://127.0.0.1:1/x"}, "refused"),
        ("file", {"url": "nowhere"}, "nowhere"),
    ],
)
def test_what_does_not_come(tmp_path: Path, ask: Ask, page: str, more: dict[str, Any], why: str) -> None:
    told = ask(page, unreachable="the proxy", **more)["msg"]
    assert "could not be fetched: " in told
    assert why in told
    assert told.endswith("nothing was changed. Fix: the proxy")
    assert left(tmp_path) == []


def test_an_answer_that_is_cut_off(tmp_path: Path, ask: Ask) -> None:
    assert "nothing was changed" in ask("cut")["msg"]
    assert left(tmp_path) == []


def test_a_file_of_the_controller_is_asked_for_where_it_is_missing(tmp_path: Path, ask: Ask) -> None:
    beside = tmp_path / "beside"
    beside.write_bytes(CONTENT)
    given = {"url": "", "file": "installer.tar.gz"}
    assert ask(**given)["missing"] is True
    assert ask(**given, came=str(beside))["changed"] is True
    assert ask(**given)["missing"] is False
    (tmp_path / "in/it.tar.gz").unlink()
    beside.write_bytes(b"another")
    assert "installer.tar.gz: its SHA-256 is" in ask(**given, came=str(beside))["msg"]
    assert "one of url and file names it" in ask(url="")["msg"]


@pytest.mark.install
@pytest.mark.parametrize("check", [False, True])
def test_a_file_beside_the_inventory_is_measured_before_a_host_gets_it(tmp_path: Path, check: bool) -> None:
    """Through Ansible, with its action."""
    (tmp_path / "beside.tar.gz").write_bytes(CONTENT)
    asked = {"of": "rdma.erdma", "file": "beside.tar.gz", "path": str(tmp_path / "in/it.tar.gz"), "sha256": DIGEST}
    other = {**asked, "sha256": "0" * 64, "fix": "the one of Alibaba"}
    tasks = [
        {"name": "Bring it", "gpuprov_step": {"name": "fetch", "arguments": asked}},
        {"name": "Bring it again", "gpuprov_step": {"name": "fetch", "arguments": asked}},
        {"name": "Bring another", "gpuprov_step": {"name": "fetch", "arguments": other}, "ignore_errors": True},
        {"name": "Bring none", "gpuprov_step": {"name": "fetch", "arguments": {**asked, "file": "none.tar.gz"}}},
    ]
    done = here.play(tmp_path, {"tasks": tasks}, check=check)
    said = " ".join(done.stdout.split())
    assert (
        f"its SHA-256 is {DIGEST}, and the spec says {'0' * 64}; nothing was changed. Fix: the one of Alibaba" in said
    ), done
    assert "none.tar.gz cannot be read" in said
    assert said.count("changed: [gpu1]") == (2 if check else 1), "check mode brings nothing"
    assert left(tmp_path / "in") == ([] if check else ["it.tar.gz"])
    assert check or (tmp_path / "in/it.tar.gz").read_bytes() == CONTENT


def fetches() -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(file.relative_to(here.ROLES)), task)
        for file in sorted(here.ROLES.glob("*/tasks/**/*.yml"))
        for task in read_yaml(file) or ()
        if task.get("gpuprov_step", {}).get("name") == "fetch"
    ]


@pytest.mark.install
@pytest.mark.parametrize("check", [False, True])
def test_what_a_role_fetches_for_later_is_no_change_of_the_host(tmp_path: Path, check: bool) -> None:
    """A run that only prepares reports no change for it; a plan says that it would come."""
    (tmp_path / "it.tar.gz").write_bytes(CONTENT)
    fetched = fetches()
    assert len(fetched) > 3
    tasks = []
    for number, (of, task) in enumerate(fetched):
        given = {"of": of, "file": "it.tar.gz", "path": str(tmp_path / f"in/{number}"), "sha256": DIGEST}
        kept = {key: value for key, value in task.items() if key in ("name", "register", "changed_when")}
        tasks.append({**kept, "gpuprov_step": {"name": "fetch", "arguments": given}})
    done = here.play(tmp_path, {"tasks": tasks}, check=check)
    assert done.returncode == 0, done.stdout
    assert len(left(tmp_path / "in")) == (0 if check else len(fetched))
    shown = sum(task.get("changed_when") is not False for _, task in fetched)
    assert done.stdout.count("changed: [gpu1]") == (shown if check else 0), done.stdout
