"""Why a host waits for a reboot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.host_code.modules import on_host, ran, step

Keep = Callable[..., dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(on_host("reasons"), "FOLDER", str(tmp_path / "reasons"))
    return tmp_path / "reasons"


@pytest.fixture
def keep(folder: Path, capsys: pytest.CaptureFixture[str]) -> Keep:
    return lambda **asked: step(capsys, "reason", **asked)


def test_a_reason_is_kept_until_it_is_taken_back(folder: Path, keep: Keep) -> None:
    first = keep(capability="kernel", reason=" without\n iommu=pt ")
    assert (first["changed"], first["reasons"]) == (True, ["kernel: without iommu=pt"])
    assert (folder / "kernel").read_text() == "without iommu=pt\n"
    assert keep(capability="kernel", reason="without iommu=pt")["changed"] is False
    second = keep(capability="nouveau", reason="in use")
    assert second["reasons"] == ["kernel: without iommu=pt", "nouveau: in use"]
    assert keep(capability="kernel")["reasons"] == ["nouveau: in use"]
    assert keep(capability="kernel")["changed"] is False


def test_check_mode_says_what_it_would_note(folder: Path, keep: Keep) -> None:
    found = keep(capability="kernel", reason="old", check=True)
    assert found["changed"]
    assert found["diff"] == {"before": "", "after": "old\n", "after_header": f"{folder}/kernel"}
    assert found["reasons"] == []
    assert not folder.exists()


def test_without_a_capability_it_only_reads(folder: Path, keep: Keep) -> None:
    assert keep() == {**keep(), "changed": False, "reasons": []}
    folder.mkdir()
    (folder / "kernel").write_text("one\ntwo\n")
    (folder / ".kernel-new").write_text("half")
    (folder / "folder").mkdir()
    assert keep()["reasons"] == ["kernel: one"]


@pytest.mark.parametrize("name", ["../lock/owner.json", "a b", ".hidden"])
def test_a_capability_is_no_path(folder: Path, keep: Keep, name: str) -> None:
    refused = keep(capability=name, reason="why")
    assert refused["failed"]
    assert "letters, digits and underscores" in refused["msg"]
    assert not folder.exists()


def test_what_stands_in_the_way_is_said(folder: Path, keep: Keep) -> None:
    folder.write_text("")
    assert "Not a directory" in keep(capability="kernel", reason="why")["msg"]


def test_that_it_may_not_be_rebooted_is_said_where_it_has_to_be(folder: Path, keep: Keep) -> None:
    assert "msg" not in keep(permitted=False)
    keep(capability="kernel", reason="without iommu=pt")
    assert "msg" not in keep()
    told = keep(permitted=False)
    assert told["msg"].startswith('reboot required: kernel: without iommu=pt. gpuprov.reboot is "never"')
    assert told["reasons"] == ["kernel: without iommu=pt"]


def test_files_and_modules_note_why_they_need_a_reboot(
    folder: Path, keep: Keep, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reason alone is no change: plan shows what changes a host."""
    noted = ran(capsys, "gpuprov_files", reboot={"kernel": "without iommu=pt"})
    assert (noted["changed"], keep()["reasons"]) == (False, ["kernel: without iommu=pt"])
    ran(capsys, "gpuprov_files", reboot={"kernel": ""}, check=True)
    assert keep()["reasons"] == ["kernel: without iommu=pt"]
    ran(capsys, "gpuprov_files", reboot={"kernel": ""})
    assert keep()["reasons"] == []

    kernel = on_host("running_kernel")
    monkeypatch.setattr(kernel, "list_loaded", lambda names: names)
    monkeypatch.setattr(kernel, "unload", lambda name, *, dry: name == "nova_core")
    modules = ["nouveau", "nova_core"]
    assert step(capsys, "unload", modules=modules)["busy"] == ["nouveau"]
    assert keep()["reasons"] == []
    assert step(capsys, "unload", modules=modules, capability="nouveau")["changed"] is True
    assert keep()["reasons"] == ["nouveau: nouveau is in use and leaves only with a reboot"]
    step(capsys, "unload", modules=["nova_core"], capability="nouveau")
    assert keep()["reasons"] == []
