"""Archives by their SHA-256: from a real server of this machine, or brought by something else."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.onhost.modules import ran

TEXT = b"an archive\n"
SUM = hashlib.sha256(TEXT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served/source.tar").write_bytes(TEXT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served"))) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()


def asked(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"path": str(tmp_path / "nccl.archive"), "sha256": SUM, "field": "acceptance.nccl.source", **more}


def test_it_is_fetched_once(tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = asked(tmp_path, url=f"{server}/source.tar")
    assert ran(capsys, "gpuprov_archive", check=True, **given)["fetched"] is False
    assert not (tmp_path / "nccl.archive").exists(), "check mode"
    assert ran(capsys, "gpuprov_archive", **given)["fetched"] is True
    assert (tmp_path / "nccl.archive").read_bytes() == TEXT
    assert (tmp_path / "nccl.archive").stat().st_mode & 0o777 == 0o600
    assert ran(capsys, "gpuprov_archive", **given)["fetched"] is False


@pytest.mark.parametrize(
    ("sha256", "name", "why"),
    [("0" * 64, "source.tar", f"it has {SUM}"), (SUM, "gone.tar", "HTTP Error 404")],
)
def test_another_is_refused(
    tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str], sha256: str, name: str, why: str
) -> None:
    (tmp_path / "nccl.archive").write_text("of before")
    said = ran(capsys, "gpuprov_archive", **{**asked(tmp_path, url=f"{server}/{name}"), "sha256": sha256})
    assert said["failed"] is True
    assert said["msg"].startswith(
        f"acceptance.nccl.source: {server}/{name} has not the sha256 {sha256}, or cannot be fetched: {why}"
    )
    assert said["msg"].endswith("Fix: look at what is there, and correct source")
    assert (tmp_path / "nccl.archive").read_text() == "of before", "nothing half fetched"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nccl.archive", "served"]


def test_what_ansible_copied_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = asked(tmp_path, origin="/srv/nccl.tar")
    assert "/srv/nccl.tar has not the sha256" in ran(capsys, "gpuprov_archive", **given)["msg"]
    assert "no such file" in ran(capsys, "gpuprov_archive", **given)["msg"]
    (tmp_path / "nccl.archive").write_text("another")
    assert "it has " in ran(capsys, "gpuprov_archive", **given)["msg"]
    (tmp_path / "nccl.archive").write_bytes(TEXT)
    assert "failed" not in ran(capsys, "gpuprov_archive", **given)
