"""DOCA-OFED's package source and openibd through their modules, where stand-ins answer for the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import here
from tests.host_code.modules import on_host, step

Ask = Callable[..., dict[str, Any]]
UNLOAD = ["nvidia_peermem", "ib_srp"]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its programs write down what they are asked."""
    for name, kind in (("APT", "apt"), ("DNF", "dnf")):
        monkeypatch.setattr(on_host("steps.doca_host"), name, str(tmp_path / kind))
        (tmp_path / kind).mkdir()
    monkeypatch.setattr(on_host("running_kernel"), "MODULES", str(tmp_path / "modules"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "bin").mkdir()
    programs(
        tmp_path, dpkg_deb="echo doca-host", rpm='[ "$1" != -qp ] || echo doca-host', journalctl="echo its last words"
    )
    programs(tmp_path, **dict.fromkeys(("dpkg", "apt_get", "dnf", "modprobe", "systemctl"), "true"))
    return tmp_path


def programs(place: Path, **bodies: str) -> None:
    for name, body in bodies.items():
        here.program(place / "bin", name.replace("_", "-"), f'echo "$(basename "$0") $*" >> {place}/calls\n{body}\n')


def calls(place: Path, *names: str) -> list[str]:
    file = place / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if line.split()[0] in names and "daemon-reload" not in line]


def source(place: Path, kind: str, text: str = "deb file:/usr/share/doca-host-3.2.1/repo ./") -> None:
    (place / kind / ("doca.list" if kind == "apt" else "doca.repo")).write_text(text)


@pytest.fixture
def add(host: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(end: str = "deb", **more: Any) -> dict[str, Any]:
        given = {"package": str(host / f"aa.{end}"), "named": "https://example.org/doca.deb", **more}
        return step(capsys, "doca_host", **given)

    return asked


def test_the_package_source_of_a_deb(host: Path, add: Ask) -> None:
    source(host, "apt")
    (host / "apt/other.list").write_text("deb http://deb.debian.org/debian bookworm main")
    assert add(check=True)["msg"] == "would add the package source of https://example.org/doca.deb"
    assert calls(host, "dpkg", "dpkg-deb", "apt-get") == []
    assert add()["changed"] is True
    installed, *updates = calls(host, "dpkg", "apt-get")
    assert installed == f"dpkg -i {host}/aa.deb"
    assert len(updates) == 1
    assert f"Dir::Etc::sourcelist={host}/apt/doca.list" in updates[0]
    assert (host / "aa.deb.done").read_text() == "https://example.org/doca.deb\n"
    assert add(package="")["changed"] is False


def test_the_package_source_of_an_rpm(host: Path, add: Ask) -> None:
    source(host, "dnf")
    assert add("rpm")["changed"] is True
    (fetched,) = calls(host, "dnf")
    assert fetched.endswith("--disablerepo=* --enablerepo=doca* makecache --refresh")
    assert (host / "aa.rpm.done").exists()


@pytest.mark.parametrize(
    ("end", "bodies", "there", "said"),
    [
        ("deb", {"dpkg_deb": "exit 2"}, True, "it is not a Debian package"),
        ("deb", {"dpkg_deb": "echo hello"}, True, "it is hello, not doca-host"),
        ("deb", {"dpkg": "echo dpkg: error: locked; exit 2"}, True, "dpkg -i: dpkg: error: locked"),
        ("deb", {}, False, "it brought no package source for apt"),
        ("deb", {"apt_get": "echo no route >&2; exit 100"}, True, "apt-get update of "),
        ("rpm", {"rpm": "exit 1"}, True, "it is not an rpm package"),
        ("rpm", {"rpm": "echo hello"}, True, "it is hello, not doca-host"),
        ("rpm", {"rpm": "[ $1 = -qp ] && echo doca-host || { echo conflict; exit 1; }"}, True, "rpm -U: conflict"),
        ("rpm", {}, False, "it brought no package source for dnf"),
        ("rpm", {"dnf": "echo no route >&2; exit 1"}, True, "dnf makecache: no route"),
    ],
)
def test_package_sources_that_cannot_be_added(
    host: Path, add: Ask, end: str, bodies: dict[str, str], there: bool, said: str
) -> None:
    programs(host, **bodies)
    if there:
        source(host, "apt")
        source(host, "dnf")
    told = add(end)["msg"]
    assert told.startswith(f"rdma.ofed: https://example.org/doca.deb: {said}"), told
    assert ". Fix: " in told
    assert not (host / f"aa.{end}.done").exists()
    if "not doca-host" in said:
        assert not any(" -i " in one or " -U " in one for one in calls(host, "dpkg", "rpm")), "nothing of it has run"


@pytest.fixture
def bring(host: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    for name in UNLOAD:
        (host / "modules" / name).mkdir(parents=True)

    def asked(**more: Any) -> dict[str, Any]:
        return step(capsys, "openibd", unit="openibd.service", unload=[*UNLOAD, "nvme_rdma"], **more)

    return asked


def test_what_holds_ib_core_leaves_before_openibd_is_restarted(host: Path, bring: Ask) -> None:
    assert bring(replace=["ib_core"], check=True)["msg"] == "would restart openibd.service, for ib_core"
    assert calls(host, "modprobe", "systemctl") == []
    assert bring(replace=["ib_core", "mlx5_core"], start=True)["changed"] is True
    assert calls(host, "modprobe", "systemctl") == [
        "modprobe -r nvidia_peermem", "modprobe -r ib_srp", "systemctl restart -- openibd.service",
    ]  # fmt: skip


def test_where_nothing_is_to_be_replaced_it_is_only_started(host: Path, bring: Ask) -> None:
    assert bring()["changed"] is False
    assert bring(start=True, check=True)["msg"] == "would start openibd.service"
    assert calls(host, "modprobe", "systemctl") == []
    assert bring(start=True)["changed"] is True
    assert calls(host, "modprobe", "systemctl") == ["systemctl start -- openibd.service"]


def test_a_module_that_does_not_leave_keeps_openibd_as_it_is(host: Path, bring: Ask) -> None:
    programs(host, modprobe="echo Module is in use >&2; exit 1")
    told = bring(replace=["ib_core"])["msg"]
    assert told.startswith("nvidia_peermem cannot be unloaded, and openibd was not restarted: Module is in use. Fix: ")
    assert calls(host, "systemctl") == []


def test_a_start_that_fails_is_told_in_the_journals_words(host: Path, bring: Ask) -> None:
    programs(host, systemctl='[ "$1" != restart ]')
    assert bring(replace=["ib_core"])["msg"].startswith(
        "openibd.service failed: its last words. Fix: journalctl -u openibd"
    )


def test_what_is_still_wrong_after_its_start_is_a_failure(host: Path, bring: Ask) -> None:
    assert bring(left="ib_core is still not OFED's. Fix: reboot")["msg"] == "ib_core is still not OFED's. Fix: reboot"
    assert bring(left="ib_core is still not OFED's", check=True)["changed"] is False
    assert calls(host, "modprobe", "systemctl") == []
