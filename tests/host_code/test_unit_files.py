"""Units as systemd has loaded them, and what drop-ins of others do to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.unit_files import (
    Loaded,
    derive_unit,
    explain_unread,
    find_shadows,
    list_overridden,
    list_settings,
    parse_show,
)
from tests.host_code.modules import on_host, ran
from tests.rows import run_each

UNIT = "[Unit]\nDescription=x\n[Service]\nExecStart=/usr/bin/python3 -B -m mig boot\nEnvironment=A=1\n"


@run_each(("wanted_by", "state"), [("multi-user.target", "enabled"), ("", "disabled")])
def test_an_init_script_starts_at_a_boot_where_a_target_wants_its_unit(wanted_by: str, state: str) -> None:
    """systemctl shows its unit as generated in either case; is-enabled asks the links in /etc/rc?.d, and so does the
    generator."""
    shown = f"Id=nv_peer_mem.service\nLoadState=loaded\nUnitFileState=generated\nWantedBy={wanted_by}\n"
    assert parse_show(shown)["nv_peer_mem.service"].file == state


def test_the_settings_of_a_text() -> None:
    assert list_settings(
        "# [Unit]\n[Service]\nExecStart=/bin/sh -c 'a=b \\\n  User=x'\n; Nice=1\nExecStart =\n[Install]\nWantedBy=a\n"
    ) == ["Service.ExecStart", "Install.WantedBy"]


@run_each(
    ("drop_in", "whole", "told"),
    [
        ("[Service]\nExecStart=\nExecStart=/bin/true\n", True, ["Service.ExecStart"]),
        ("[Unit]\nConditionPathExists=/nowhere\n", True, ["Unit.ConditionPathExists"]),
        ("[Service]\nEnvironment=PYTHONPATH=/tmp\n", True, ["Service.Environment"]),
        ("[Service]\nUser=nobody\nRootDirectory=/srv\n", True, ["Service.User", "Service.RootDirectory"]),
        ("[Service]\nMemoryMax=1G\nCPUQuota=50%\n[Unit]\nOnFailure=mail@%n.service\nAfter=site.target\n", True, []),
        ("[Service]\nMemoryDenyWriteExecute=yes\n", True, ["Service.MemoryDenyWriteExecute"]),
        ("[Service]\nUser=nobody\n", False, []),
        ("[Service]\nExecStart=\n", False, ["Service.ExecStart"]),
        ("[Unit]\nExecStart=/bin/true\n", False, []),
        ("", True, []),
    ],
)
def test_what_a_drop_in_changes(drop_in: str, whole: bool, told: list[str]) -> None:
    assert list_overridden(UNIT, drop_in, whole=whole) == told


def test_of_a_drop_in_only_later_ones_count() -> None:
    ours, before, after = (
        f"/etc/systemd/system/a.service.d/{name}.conf" for name in ("50-gpuprov", "40-site", "60-site")
    )
    unit = Loaded("loaded", "/usr/lib/systemd/system/a.service", (before, ours, after))
    text = "[Service]\nExecStart=\nExecStart=/usr/bin/a\n"
    texts = dict.fromkeys((before, after), "[Service]\nExecStart=\nExecStart=/bin/true\n")
    assert find_shadows(ours, text, unit, texts, [ours]) == {after: ["Service.ExecStart"]}
    assert find_shadows(ours, text, unit, texts, [ours, after]) == {}
    first = unit._replace(drop_ins=(before, after))
    assert find_shadows(ours, text, first, texts, [ours]) == {after: ["Service.ExecStart"]}, "before ours is there"
    elsewhere = "/usr/lib/systemd/system/a.service.d/10-package.conf"
    unit = unit._replace(drop_ins=(elsewhere, ours))
    assert find_shadows(ours, text, unit, {elsewhere: texts[after]}, [ours]) == {}


def test_drop_ins_add_to_each_others_dependencies() -> None:
    ours = "[Unit]\nBefore=a.service\nAfter=b.service\nConditionPathExists=/x\n"
    assert list_overridden(ours, "[Unit]\nBefore=c.service\nAfter=\n", whole=False) == []
    assert list_overridden(ours, "[Unit]\nConditionPathExists=/y\n", whole=False) == ["Unit.ConditionPathExists"]
    assert list_overridden(ours, "[Unit]\nBefore=c.service\n", whole=True) == ["Unit.Before"]


@run_each(
    ("path", "unit"),
    [
        ("/etc/systemd/system/gpuprov-mig.service", "gpuprov-mig.service"),
        ("/etc/systemd/system/gpuprov-mps@.service", "gpuprov-mps@gpuprov.service"),
        ("/etc/systemd/system/a.service.d/50.conf", "a.service"),
        ("/etc/systemd/system.conf.d/90-gpuprov.conf", ""),
        ("/etc/gpuprov/roce.conf", ""),
    ],
)
def test_the_unit_of_a_file(path: str, unit: str) -> None:
    assert derive_unit(path) == unit


def test_how_systemd_has_a_unit() -> None:
    shown = (
        "Id=a.service\nLoadState=loaded\nFragmentPath=/etc/systemd/system/a.service\n"
        "DropInPaths=/x.conf /y.conf\nNeedDaemonReload=yes\n"
    )
    found = parse_show(
        f"{shown}\nId=b.service\nLoadState=not-found\nFragmentPath=\nDropInPaths=\nNeedDaemonReload=no\n"
    )
    assert found["a.service"] == Loaded("loaded", "/etc/systemd/system/a.service", ("/x.conf", "/y.conf"), True)
    assert explain_unread("/etc/systemd/system/a.service", found["a.service"]) == "not read by systemd since it changed"
    assert explain_unread("/etc/systemd/system/b.service", found["b.service"]) == "not read by systemd since it changed"
    assert explain_unread("/etc/systemd/system/b.service.d/50.conf", found["b.service"]) == ""


def test_a_drop_in_of_all_services_stays_for_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To rename a site's service.d/10-all.conf would change every service of the host."""
    systemd = on_host("systemd")
    unit, shared = tmp_path / "gpuprov-a.service", tmp_path / "service.d/10-all.conf"
    of_prefix = tmp_path / "gpuprov-.service.d/20-x.conf"
    mask, other = tmp_path / "gpuprov-a.service.d/10-all.conf", tmp_path / "gpuprov-a.service.d/20-x.conf"
    for path in (shared, of_prefix):
        path.parent.mkdir()
        path.write_text("[Service]\nExecStart=\nExecStart=/bin/true\n")

    def systemctl(*words: str) -> tuple[int, str, str]:
        drop_ins = f"{mask if mask.is_symlink() else shared} {other if other.is_symlink() else of_prefix}"
        shown = f"Id=gpuprov-a.service\nLoadState=loaded\nFragmentPath={unit}\nDropInPaths={drop_ins}\nNeedDaemonReload=no\n"
        return 0, shown if words[0] == "show" else "", ""

    monkeypatch.setattr(systemd, "FILES", f"{tmp_path}/")
    monkeypatch.setattr(systemd, "systemctl", systemctl)
    given: dict[str, Any] = {"units": {str(unit): UNIT}}
    assert ran(capsys, "gpuprov_files", **given)["changed"]
    assert shared.read_text() == of_prefix.read_text() == "[Service]\nExecStart=\nExecStart=/bin/true\n"
    assert [path.readlink() for path in (mask, other)] == [Path("/dev/null")] * 2
    assert not ran(capsys, "gpuprov_files", **given)["changed"]


def test_a_drop_in_of_others_is_set_aside_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = on_host("systemd")
    said: list[tuple[str, ...]] = []
    unit, other = tmp_path / "gpuprov-a.service", tmp_path / "gpuprov-a.service.d/override.conf"
    other.parent.mkdir()
    other.write_text("[Service]\nExecStart=\nExecStart=/bin/true\n")

    def systemctl(*words: str) -> tuple[int, str, str]:
        said.append(words)
        drop_ins = str(other) if other.exists() else ""
        late = "no" if ("daemon-reload",) in said else "yes"
        shown = f"Id=gpuprov-a.service\nLoadState=loaded\nFragmentPath={unit}\nDropInPaths={drop_ins}\nNeedDaemonReload={late}\n"
        return 0, shown if words[0] == "show" else "", ""

    monkeypatch.setattr(systemd, "FILES", f"{tmp_path}/")
    monkeypatch.setattr(systemd, "systemctl", systemctl)
    given: dict[str, Any] = {"units": {str(unit): UNIT}}
    done = ran(capsys, "gpuprov_files", **given, check=True)
    assert (done["changed"], other.exists()) == (True, True)
    done = ran(capsys, "gpuprov_files", **given)
    assert done["changed"]
    assert not other.exists()
    assert (other.parent / "override.conf.set-aside").read_text().endswith("ExecStart=/bin/true\n")
    assert ("daemon-reload",) in said
    assert not ran(capsys, "gpuprov_files", **given)["changed"]
    said.clear()  # as if somebody had touched it since
    assert ran(capsys, "gpuprov_files", **given)["changed"]
    assert said.count(("daemon-reload",)) == 1


def test_a_drop_in_of_a_package_stays_and_is_masked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = on_host("systemd")
    etc, package = tmp_path / "etc", tmp_path / "lib/a.service.d/90-package.conf"
    ours, mask = etc / "a.service.d/50-gpuprov.conf", etc / "a.service.d/90-package.conf"
    for file, text in ((ours, UNIT), (package, "[Service]\nExecStart=\nExecStart=/bin/true\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o644)

    def systemctl(*words: str) -> tuple[int, str, str]:
        drop_ins = f"{ours} {mask if mask.is_symlink() else package}"
        shown = f"Id=a.service\nLoadState=loaded\nFragmentPath=/lib/a.service\nDropInPaths={drop_ins}\nNeedDaemonReload=no\n"
        return 0, shown if words[0] == "show" else "", ""

    monkeypatch.setattr(systemd, "FILES", f"{etc}/")
    monkeypatch.setattr(systemd, "systemctl", systemctl)
    given: dict[str, Any] = {"files": {str(ours): UNIT}}
    assert ran(capsys, "gpuprov_files", **given, check=True)["changed"]
    assert not mask.is_symlink()
    assert ran(capsys, "gpuprov_files", **given)["changed"]
    assert (mask.readlink(), package.read_text()[:9]) == (Path("/dev/null"), "[Service]")
    assert not ran(capsys, "gpuprov_files", **given)["changed"]


def test_what_lies_beside_programs_goes_and_their_folder_is_roots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_host("files"), "ABOVE", str(tmp_path))
    folder = tmp_path / "mig"
    (folder / "__pycache__").mkdir(parents=True)
    folder.chmod(0o777)
    for name in ("json.py", "__pycache__/act.pyc"):
        (folder / name).write_text("x")
    (folder / "link.py").symlink_to("/etc/passwd")
    done = ran(capsys, "gpuprov_files", role_files={str(folder / "act.py"): "a\n"})
    assert done["changed"]
    assert sorted(path.name for path in folder.rglob("*") if not path.is_dir()) == ["act.py"]
    assert folder.stat().st_mode & 0o7777 == 0o755
    assert Path("/etc/passwd").exists()
    assert not ran(capsys, "gpuprov_files", role_files={str(folder / "act.py"): "a\n"})["changed"]
