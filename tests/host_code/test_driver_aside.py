"""Modules built aside: what DKMS is asked, what is refused before anything is replaced, what is left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.driver import actions, aside, dkms
from gpuprov.host_code.driver.dkms import Failed
from gpuprov.host_code.packages import apt_database
from tests import here
from tests.facts.probes import REAL, published

KERNEL = "6.8.0-999-gpuprov"
DKMS = """
echo "$KERNEL_UNAME|$*" >> {root}/calls
case $1 in
build)
  while [ $# -gt 0 ]; do case $1 in -m) m=$2 ;; -v) v=$2 ;; -k) k=$2 ;; --dkmstree) t=$2 ;; esac; shift; done
  [ -z "$FAILS" ] || {{ mkdir -p $t/$m/$v/build; cp "$FAILS" $t/$m/$v/build/make.log; exit 1; }}
  mkdir -p $t/$m/$v/$k/x86_64/module; echo "${{MAGIC:-$k}}" > $t/$m/$v/$k/x86_64/module/nvidia.ko.xz ;;
mktarball) [ -z "$UNPACKED" ] || exit 1; for last in "$@"; do :; done; touch "$last" ;;
esac
"""
NO_COMPILER = REAL / "dkms-no-gxx-el9" / "dkms-make-log.txt"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SHARED", "PACKS", "WORK", "TREE", "SOURCES"):
        monkeypatch.setattr(aside, name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    here.program(tmp_path, "dkms", DKMS.format(root=tmp_path))
    here.program(tmp_path, "modinfo", 'echo "$(cat "$3") SMP mod_unload modversions"\n')
    here.program(tmp_path, "rpm2archive", f"tar -cz -C {tmp_path}/rpm .\n")
    here.program(tmp_path, "dpkg-deb", f'cp -r {tmp_path}/rpm/. "$3"\n')
    (tmp_path / "package").touch()
    return tmp_path


def build(root: Path, folder: str, version: str, family: str = "redhat") -> tuple[str, list[str]]:
    """Where the pack is, of a package that has this folder, whose dkms.conf says nvidia; and what DKMS was asked."""
    source = root / "rpm/usr/src" / folder
    source.mkdir(parents=True, exist_ok=True)
    (source / "dkms.conf").write_text(f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{version}"\n')
    (root / "calls").unlink(missing_ok=True)
    return aside.build(family, [str(root / "package")], [KERNEL]), (root / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("folder", "version"), [("nvidia-open-570.133.20", "570.133.20"), ("nvidia-570.172.08", "570.172.08")]
)
def test_dkms_knows_modules_by_their_folder(root: Path, folder: str, version: str) -> None:
    """Up to 570.133.20 NVIDIA's rpm registers nvidia-open, though its dkms.conf says nvidia; from 570.148.08 on
    nvidia."""
    pack, calls = build(root, folder, version)
    name = folder[: -len(version) - 1]
    assert pack == f"{root}/packs/{folder}.dkms.tar.gz"
    assert os.path.exists(pack)
    assert all(f"-m {name} -v {version}" in call for call in calls), calls
    assert f"{KERNEL}|build" in calls[1], "the source that asks uname -r is told which kernel is meant"
    assert not (root / "work").exists()
    assert aside.read_pack(pack) == (name, version)


def test_on_debian_the_pack_lies_where_the_postinst_looks(root: Path) -> None:
    pack, _ = build(root, "nvidia-current-535.261.03", "535.261.03", "debian")
    assert pack == f"{root}/shared/nvidia-current-dkms/nvidia-current-535.261.03.dkms.tar.gz"
    aside.take_away("debian", pack)
    assert not (root / "shared/nvidia-current-dkms").exists()


def test_modules_of_another_kernel_are_refused_before_anything_is_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGIC", "6.12.10-200.fc41.x86_64")
    with pytest.raises(Failed, match=f"kernel {KERNEL}: DKMS built modules of kernel 6.12.10-200.fc41.x86_64 for it"):
        build(root, "nvidia-570.86.15", "570.86.15")


def test_a_pack_is_whole_on_disk_before_it_has_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(aside, "flush_to_disk", lambda path: flushed.append((path, sorted(os.listdir(root / "packs")))))
    pack, _ = build(root, "nvidia-570.86.15", "570.86.15")
    name = os.path.basename(pack)
    plain = name[: -len(".gz")]
    assert flushed == [(f"{root}/packs/{plain}", [plain]), (f"{root}/packs", [name])]


def packs(root: Path) -> dict[str, Path]:
    """As a loss of power may leave them, and one that is whole."""
    folder = root / "shared/nvidia-current-dkms"
    folder.mkdir(parents=True)
    (root / "nvidia-current.ko").write_bytes(os.urandom(30000))
    found = {
        name: folder / f"nvidia-current-{name}{aside.ENDING}"
        for name in ("1.whole", "2.empty", "3.zeros", "4.cut", "5.between")
    }
    for pack in found.values():
        subprocess.run(["tar", "-cf", pack, "-C", root, "nvidia-current.ko"], check=True)
    found["2.empty"].write_bytes(b"")
    found["3.zeros"].write_bytes(bytes(20480))
    os.truncate(found["4.cut"], 4096)
    os.truncate(
        found["5.between"], 512 + 30208
    )  # the file is whole, and what tar lists; the end of the archive is not there
    return found


def test_packs_that_were_cut_off_are_taken_away_before_a_package_is_repaired(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-kernel-dkms.postinst loads what lies there, and fails if it cannot: no apply could repair such a host."""
    found = packs(root)
    here.program(root, "dpkg-query", "exit 1\n")
    here.program(root, "apt-get", "exit 0\n")
    broken = [str(pack) for name, pack in found.items() if name != "1.whole"]
    refuses = "\n".join(f"[ ! -e {pack} ] || {{ echo 'not a tar archive' >&2; exit 1; }}" for pack in broken)
    here.program(
        root,
        "dpkg",
        f"case $1 in --audit) [ -e {root}/done ] || echo half ;; *)\n{refuses}\ntouch {root}/done ;; esac\n",
    )
    (root / "marker").touch()
    monkeypatch.setattr(apt_database, "MARKER", str(root / "marker"))
    assert apt_database.repair_database([], check=True) == ["repair half"]
    assert all(pack.exists() for pack in found.values())
    assert apt_database.repair_database([], check=False) == ["repair half"]
    assert (root / "done").exists()
    assert [name for name, pack in found.items() if pack.exists()] == ["1.whole"]


def test_what_cannot_be_packed_or_unpacked_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNPACKED", "1")
    with pytest.raises(Failed):
        build(root, "nvidia-570.86.15", "570.86.15")
    assert os.listdir(root / "packs") == []
    here.program(root, "rpm2archive", "echo 'not an rpm' >&2; exit 1\n")
    with pytest.raises(Failed, match="package cannot be unpacked") as failed:
        build(root, "nvidia-570.86.15", "570.86.15")
    assert "not an rpm" in failed.value.lines[0]
    assert not (root / "work").exists()


def test_a_package_without_a_source_is_told(root: Path) -> None:
    (root / "rpm").mkdir()
    with pytest.raises(Failed) as failed:
        aside.build("redhat", [str(root / "package")], [KERNEL])
    assert failed.value.lines == [f"{root}/package: no dkms.conf"]


def test_the_pack_is_put_into_dkms_only_where_it_has_not_the_version(root: Path) -> None:
    pack, _ = build(root, "nvidia-570.86.15", "570.86.15")
    (root / "calls").unlink()
    aside.put_into_tree(pack)
    assert (root / "calls").read_text() == f"|ldtarball --archive {pack}\n"
    (root / "tree/nvidia/570.86.15").mkdir(parents=True)
    aside.put_into_tree(pack)
    assert (root / "calls").read_text().count("ldtarball") == 1, "its modules are the other flavour's"


class Manager:
    def __init__(self, root: Path) -> None:
        self.root = root

    def files(self, _packages: list[str]) -> list[str]:
        return [str(self.root / "package")]


def refusal(root: Path, monkeypatch: pytest.MonkeyPatch, family: str, log: Path) -> str:
    monkeypatch.setenv("FAILS", str(log))
    monkeypatch.setattr("gpuprov.host_code.packages.choice.choose_manager", lambda _settings: Manager(root))
    source = root / "rpm/usr/src/nvidia-570.124.06"
    source.mkdir(parents=True, exist_ok=True)
    (source / "dkms.conf").write_text('PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="570.124.06"\n')
    asked: dict[str, Any] = {"version": "570.124.06", "flavour": "open", "kernels": [KERNEL], "built_from": ["x"]}
    with pytest.raises(Failed) as failed:
        actions.build_aside(family, {**asked, "lock_timeout": 1, "without": []}, check=False)
    return str(failed.value)


@pytest.mark.parametrize(("family", "package"), [("redhat", "gcc-c++"), ("debian", "g++")])
def test_a_missing_compiler_is_told_by_its_package(
    root: Path, monkeypatch: pytest.MonkeyPatch, family: str, package: str
) -> None:
    assert "g++: command not found" in published("dkms-no-gxx-el9", "dkms-make-log").text
    said = refusal(root, monkeypatch, family, NO_COMPILER)
    begins = "the kernel modules of 570.124.06 (open) could not be built; the driver that was there is untouched. "
    assert said.startswith(f"{begins}kernel {KERNEL}: | ")
    assert said.endswith(f"Fix: install {package}, and apply again")
    assert not (root / "work").exists()


def test_a_build_that_fails_is_told_by_its_errors(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = root / "log"
    log.write_text("make: entering\n" + "nv.c:1: error: no such member\n" + "x\n" * 30)
    said = refusal(root, monkeypatch, "redhat", log)
    assert "| nv.c:1: error: no such member. Fix: another version (gpuprov catalog drivers)" in said
    log.write_text("".join(f"line {n}\n" for n in range(30)))
    assert "line 21" not in (said := refusal(root, monkeypatch, "redhat", log))
    assert "line 22 | line 23" in said, "without an error, its end"


def test_a_signal_ends_the_build_and_tidies_up(root: Path) -> None:
    here.program(root, "dkms", "kill -TERM $PPID; sleep 1\n")
    with pytest.raises(SystemExit):
        build(root, "nvidia-570.86.15", "570.86.15")
    assert not (root / "work").exists()


def test_check_mode_builds_nothing(root: Path) -> None:
    assert actions.build_aside("debian", {}, check=True) == {"changed": False, "pack": ""}
    assert not (root / "work").exists()
    assert dkms.find_complaints(str(root / "none")) == []
