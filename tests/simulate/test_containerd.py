"""containerd of a simulated host: a release that the description names, built with a Go that is new enough."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import engines_built, golang, tools
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts import containerd
from tests.rows import run_each


def test_the_release_that_is_described_runs_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert containerd.part("gpu1", Description()).files == {}
    monkeypatch.setattr(engines_built, "containerd", lambda version: Path(f"/cache/{version}"))
    part = containerd.part("gpu1", Description(containerd="2.1.4"))
    assert (part.files["/usr/bin/containerd"].content, part.files["/usr/bin/containerd"].mode) == (
        Path("/cache/2.1.4"),
        0o755,
    )
    assert part.units == ("containerd.service",)
    assert not any(path.startswith("/etc") for path in part.files), "a release comes without a file of its own"


@run_each("text", ["2.1", "latest", "3.0.0", "v2.1.4", "2.1.4; true"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"containerd": text}, Description)


def test_a_go_that_is_missing_or_too_old_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("shutil.which", lambda *_arguments, **_options: None)
    with pytest.raises(GpuprovError, match="go is not installed, which containerd is built with"):
        golang.go("containerd")
    (tmp_path / "go").touch()
    monkeypatch.setattr(tools, "run", lambda *_arguments, **_options: "go version go1.19.8 linux/amd64\n")
    with pytest.raises(GpuprovError, match=r"is go1\.19; containerd needs Go 1\.21"):
        golang.go("containerd")
    monkeypatch.setattr(tools, "run", lambda *_arguments, **_options: "go version go1.26.6 linux/amd64\n")
    assert golang.go("containerd") == str(tmp_path / "go")
