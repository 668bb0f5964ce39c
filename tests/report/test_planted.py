"""Files and pipes that another user made beforehand, under a name that a report was known to get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import files
from gpuprov.report.files import check_writable, write_atomic


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_another_users_file_lends_no_mode_and_their_pipe_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    report, pipe = tmp_path / "report.html", tmp_path / "pipe"
    report.touch()
    report.chmod(0o666)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(report, "a folder of one's own")
    assert report.stat().st_mode & 0o777 == 0o666
    write_atomic(pipe, "told")
    assert os.read(reader, 99) == b"told"
    tmp_path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(files, "ROOT", 12346)
    monkeypatch.delenv("SUDO_UID", raising=False)
    write_atomic(report, "ours")
    assert report.read_text() == "ours"
    assert not report.stat().st_mode & 0o002
    with pytest.raises(GpuprovError, match="pipe is another user's, and no file"):
        write_atomic(pipe, "secret")
    with pytest.raises(GpuprovError, match="pipe is another user's, and no file"):
        check_writable(pipe)
    assert os.read(reader, 99) == b""
    os.close(reader)
