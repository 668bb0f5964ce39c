"""The running kernel: modules, sysctls, services' limits, hugepages; on folders that look like /proc/sys and
/sys/module."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.host_code import running_kernel as kernel
from gpuprov.host_code.failed import Failed


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("proc/net", "proc/vm", "modules/ib_umad", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/net/rmem").write_text("4096\t131072\t6291456\n")
    (tmp_path / "proc/net/a.b").write_text("1\n")
    (tmp_path / "proc/vm/nr_hugepages").write_text("3\n")
    (tmp_path / "proc/vm/compact_memory").write_text("")
    monkeypatch.setattr(kernel, "PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(kernel, "MODULES", str(tmp_path / "modules"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return tmp_path


def program(host: Path, name: str, text: str) -> None:
    (host / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (host / "bin" / name).chmod(0o755)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("net.rmem", "4096 131072  6291456", {}),
        ("net.rmem", "4096", {"net.rmem": "4096 131072 6291456"}),
        ("net.a/b", "1", {}),
        ("net.none", "1", {"net.none": "unreadable (No such file or directory)"}),
    ],
)
def test_sysctls_that_differ(host: Path, name: str, value: str, found: dict[str, str]) -> None:
    assert host
    assert kernel.list_differing({name: value}) == found


def test_a_sysctl_that_cannot_be_set_says_so(host: Path) -> None:
    program(host, "sysctl", "echo 'sysctl: permission denied on key \"net.x\"' >&2; exit 255")
    with pytest.raises(Failed, match=r'a sysctl cannot be set: sysctl: permission denied on key "net\.x"'):
        kernel.set_sysctls()


def test_modules_that_are_missing(host: Path) -> None:
    assert kernel.list_absent(["ib-umad", "ib_umad", "nvidia_peermem"]) == ["nvidia_peermem"]
    program(host, "modprobe", 'echo "modprobe: FATAL: Module $1 not found" >&2; exit 1')
    with pytest.raises(
        Failed, match="nvidia_peermem cannot be loaded: modprobe: FATAL: Module nvidia_peermem not found"
    ):
        kernel.load("nvidia_peermem")


def test_modules_leave_where_nothing_uses_them(host: Path) -> None:
    for name, users in (("nouveau", 2), ("nova_core", 0)):
        (host / "modules" / name).mkdir()
        (host / "modules" / name / "refcnt").write_text(f"{users}\n")
    program(host, "modprobe", f'[ "$2" = nouveau ] && exit 1; rm -r {host}/modules/$2')
    assert kernel.list_loaded(["nouveau", "nova-core", "nova_drm"]) == ["nouveau", "nova_core"]
    assert [kernel.unload(name, dry=True) for name in ("nouveau", "nova_core")] == [False, True]
    assert (host / "modules/nova_core").exists(), "asking changes nothing"
    assert [kernel.unload(name) for name in ("nouveau", "nova_core")] == [False, True]
    assert kernel.list_loaded(["nouveau", "nova_core"]) == ["nouveau"]


def test_limits_of_services(host: Path) -> None:
    program(host, "systemctl", "echo DefaultLimitNOFILE=1024; echo DefaultLimitMEMLOCK=infinity")
    wanted = {"DefaultLimitNOFILE": "65536", "DefaultLimitMEMLOCK": "infinity"}
    assert kernel.list_differing_limits(wanted) == {"DefaultLimitNOFILE": "1024"}
    assert kernel.list_differing_limits({}) == {}


def test_memory_is_put_together_for_hugepages(host: Path) -> None:
    assert kernel.count_hugepages() == 3
    assert kernel.enlarge_hugepages(8) == 8
    assert (host / "proc/vm/compact_memory").read_text() == "1\n"
