"""Alibaba's installer and its driver's builds through their module, where stand-ins answer for the host."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.erdma import find_registered
from gpuprov.simulate.standins import erdma as standins_erdma
from tests import here
from tests.host_code.modules import on_host, step

Ask = Callable[..., dict[str, Any]]
INSTALLER = 'echo "$PWD $* $ERDMA_FORCE_MAD_ENABLE $DEBIAN_FRONTEND" > "$SEEN"'
KERNEL = "6.1.0-47-amd64"
MAD = {"ERDMA_FORCE_MAD_ENABLE": "1"}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    erdma = on_host("erdma")
    for name, place in (("RECORD", "state/record"), ("UNPACKED", "cache/unpacked"), ("DKMS", "dkms/erdma")):
        monkeypatch.setattr(erdma, name, str(tmp_path / place))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "bin").mkdir()
    return tmp_path


def archive(
    place: Path, *more: tarfile.TarInfo, text: str = INSTALLER, name: str = "erdma_installer/install.sh"
) -> str:
    """Made at a.tar.gz; its SHA-256."""
    with tarfile.open(place / "a.tar.gz", "w:gz") as packed:
        entry = tarfile.TarInfo(name)
        entry.size = len(text)
        packed.addfile(entry, io.BytesIO(text.encode()))
        for one in more:
            packed.addfile(one)
    return hashlib.sha256((place / "a.tar.gz").read_bytes()).hexdigest()


@pytest.fixture
def install(host: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(sha256: str, **more: Any) -> dict[str, Any]:
        given = {
            "archive": str(host / "a.tar.gz"),
            "sha256": sha256,
            "named": "the installer",
            "environment": MAD,
            **more,
        }
        return step(capsys, "erdma", state="installed", **given)

    return asked


def test_the_installer_runs_and_is_recorded(host: Path, install: Ask) -> None:
    sha256 = archive(host)
    assert (
        install(sha256, check=True, kernels=[KERNEL])["msg"] == f"would run install.sh of the installer, for {KERNEL}"
    )
    assert not (host / "seen").exists()
    assert install(sha256)["changed"] is True
    assert (host / "seen").read_text() == f"{host}/cache/unpacked/erdma_installer --batch 1 noninteractive\n"
    assert (host / "state/record").read_text() == f"{sha256} compat\n"
    assert not (host / "cache/unpacked").exists()
    assert not (host / "a.tar.gz").exists()
    install(archive(host, name="install.sh"), mode="iwarp")
    assert (host / "state/record").read_text().endswith(" iwarp\n")


def test_the_stand_in_of_the_simulated_hosts_is_one(host: Path) -> None:
    file, _ = standins_erdma.write(host)
    (host / "cache").mkdir()
    assert on_host("erdma").unpack_installer(str(file)) == f"{host}/cache/unpacked/erdma_installer/install.sh"
    assert b"stand-in" in (host / "cache/unpacked/erdma_installer/install.sh").read_bytes()


def test_another_archive_is_not_unpacked(host: Path, install: Ask) -> None:
    sha256 = archive(host)
    told = install("0" * 64)["msg"]
    assert f"a.tar.gz has SHA-256 {sha256}, and the spec says {'0' * 64}; nothing was run" in told
    assert not (host / "seen").exists()
    assert not (host / "cache").exists()


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ((entry("../outside"),), "holds ../outside, which is not unpacked"),
        ((entry("/etc/outside"),), "holds /etc/outside, which is not unpacked"),
        ((entry("x/device", tarfile.CHRTYPE),), "holds x/device, which is not unpacked"),
        ((entry("x", tarfile.LNKTYPE, "/etc/passwd"),), "holds x, which is not unpacked"),
        ((entry("x", tarfile.SYMTYPE, "../../etc"),), "holds a link out of it: x"),
        # Each link by itself stays inside; what goes through one does not.
        (
            (entry("a/b/up", tarfile.SYMTYPE, "../.."), entry("a/b/up/evil")),
            "holds a/b/up/evil, which lies behind a link",
        ),
    ],
)
def test_an_archive_that_reaches_out_of_its_folder(
    host: Path, install: Ask, bad: tuple[tarfile.TarInfo, ...], why: str
) -> None:
    assert why in install(archive(host, *bad))["msg"]
    assert not (host / "seen").exists()
    assert not (host / "outside").exists()


def test_an_archive_that_is_too_large(host: Path, install: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_host("archives"), "MOST_ENTRIES", 1)
    assert "holds more than 16 GiB or 1 entries" in install(archive(host, entry("x")))["msg"]
    monkeypatch.setattr(on_host("archives"), "MOST_BYTES", 10)
    assert "holds more than" in install(archive(host))["msg"]


def test_links_inside_and_owners_are_taken_as_roots(host: Path, install: Ask) -> None:
    link, hard, suid = (
        entry("erdma_installer/l", tarfile.SYMTYPE, "../erdma_installer/install.sh"),
        entry("h"),
        entry("s"),
    )
    hard.type, hard.linkname = tarfile.LNKTYPE, "erdma_installer/install.sh"
    suid.mode, suid.uid = 0o6777, 4711
    sha256 = archive(
        host, link, hard, suid, text='stat -c "%a %u" ../s > "$SEEN"; test ../h -ef install.sh && test l -ef install.sh'
    )
    assert install(sha256)["changed"] is True
    assert (host / "seen").read_text().split()[0] == "755"
    assert (host / "seen").read_text().split()[1] != "4711"


def test_what_is_no_installer(host: Path, install: Ask) -> None:
    assert "has no install.sh. Fix: " in install(archive(host, name="deep/er/install.sh"))["msg"]
    (host / "a.tar.gz").write_bytes(b"<html>not found")
    assert "cannot be unpacked" in install(hashlib.sha256(b"<html>not found").hexdigest())["msg"]


def test_an_installer_that_fails_stays_to_be_looked_at(host: Path, install: Ask) -> None:
    sha256 = archive(host, text="echo 'Error: cmake is not installed'; echo bye >&2; exit 3")
    told = install(sha256)["msg"]
    assert told.startswith("Alibaba's installer of eRDMA failed: Error: cmake is not installed. Fix: bash ")
    assert (host / "cache/unpacked/erdma_installer/install.sh").exists()
    assert not (host / "state").exists()
    assert "failed: status 4" in install(archive(host, text="exit 4"))["msg"]


def test_the_newest_version_that_dkms_knows() -> None:
    assert (
        find_registered("erdma/1.0.2, 6.1.0, x86_64: installed\nerdma/1.0.10: added\nnvidia/580.1: added\n") == "1.0.10"
    )
    assert find_registered("erdma, 0.2.37, 5.10, x86_64: installed\n") == "0.2.37"
    assert find_registered("") == ""


# DKMS of Debian 12: it refuses to build what it has built, and forgets the source of what is built for no kernel any
# more.
DKMS = """
echo "$*" >> {0}/calls
tree={0}/dkms/erdma/1.0.2; built=$tree/6.1.0-47-amd64/x86_64/module/erdma.ko
case $1 in
  status) echo 'erdma/1.0.2, 6.1.0-47-amd64, x86_64: installed' ;;
  remove) rm -rf {0}/installed $tree ;;
  add) mkdir -p $tree/source ;;
  install)
    [ ! -e $built ] || exec cp $built {0}/installed
    {1}
    mkdir -p $tree/build; echo 'cma.c:7: error: no MAD' >$tree/build/make.log; echo 'Error! Bad return status'
      exit 10 ;;
esac
"""


@pytest.fixture
def build(host: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    here.program(host / "bin", "depmod", f"echo depmod $1 >> {host}/calls\n")
    here.program(host / "bin", "dkms", DKMS.format(host, ""))

    def asked(*kernels: str, **more: Any) -> dict[str, Any]:
        return step(capsys, "erdma", state="built", kernels=list(kernels), environment=MAD, **more)

    return asked


def old(host: Path) -> Path:
    """What DKMS has built, and installed."""
    module = host / f"dkms/erdma/1.0.2/{KERNEL}/x86_64/module/erdma.ko"
    module.parent.mkdir(parents=True)
    module.write_text("without MAD")
    (host / "installed").write_text("without MAD")
    return module


def test_a_driver_that_cannot_be_built_anew_stays(host: Path, build: Ask) -> None:
    """Without it, the next boot has no eRDMA at all."""
    module = old(host)
    told = build(KERNEL)["msg"]
    assert f"could not be built for kernel {KERNEL}: Error! Bad return status | cma.c:7: error: no MAD" in told
    assert "the driver that was there is back. Fix: remove that kernel" in told
    assert (host / "installed").read_text() == module.read_text() == "without MAD"


def test_it_is_built_anew(host: Path, build: Ask) -> None:
    old(host)
    here.program(
        host / "bin", "dkms", DKMS.format(host, f'echo "MAD $ERDMA_FORCE_MAD_ENABLE" > {host}/installed; exit 0')
    )
    assert build(KERNEL, check=True)["msg"] == f"would build the eRDMA driver, for {KERNEL}"
    assert not (host / "calls").exists()
    assert build(KERNEL)["changed"] is True
    assert (host / "installed").read_text() == "MAD 1\n"
    of = "-m erdma -v 1.0.2"
    assert (host / "calls").read_text().splitlines() == [
        "status", f"remove {of} -k {KERNEL}", f"add {of}", f"install --force {of} -k {KERNEL}", f"depmod {KERNEL}",
    ]  # fmt: skip
    assert build()["changed"] is False


def test_dkms_that_knows_no_driver(host: Path, build: Ask) -> None:
    here.program(host / "bin", "dkms", "exit 0\n")
    assert "dkms status does not know erdma" in build(KERNEL)["msg"]
