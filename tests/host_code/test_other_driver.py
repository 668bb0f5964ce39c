"""Packages of another driver than the host's: refused by what the package manager would do, whoever asks for them.

The rows of Debian are what apt-get -s of Debian 12.15 printed on 2026-11-28, with contrib and non-free, in the words
that all managers have; those of NVIDIA's and Ubuntu's archives are made up by what their packages are known to depend
on.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuprov.catalog.drivers.any import group_patterns_by_family
from gpuprov.host_code import family
from gpuprov.host_code.packages import actions, other_driver
from gpuprov.host_code.packages.model import Done, Known, Refused, Transaction, Trial
from gpuprov.host_code.packages.other_driver import AnotherDriver
from tests.rows import run_each

# apt-get -s install nvidia-persistenced, on a host without a package of a driver.
NINE = """\
Inst update-glx 1.2.2
Inst glx-alternative-mesa 1.2.2
Inst nvidia-installer-cleanup 20220217+3~deb12u1
Inst glx-diversions 1.2.2
Inst glx-alternative-nvidia 1.2.2
Inst nvidia-legacy-check 535.261.03-1
Inst nvidia-alternative 535.261.03-1
Inst libnvidia-cfg1 535.261.03-1
Inst nvidia-persistenced 535.171.04-1~deb12u1
"""
LIBCUDA = """\
Inst nvidia-installer-cleanup 20220217+3~deb12u1
Inst glx-alternative-nvidia 1.2.2
Inst nvidia-legacy-check 535.261.03-1
Inst nvidia-support 20220217+3~deb12u1
Inst nvidia-alternative 535.261.03-1
Inst libnvidia-ptxjitcompiler1 535.261.03-1
Inst libnvidia-pkcs11-openssl3 535.261.03-1
Inst libcuda1 535.261.03-1
"""
# apt-get -s install nvidia-cuda-mps, on a host whose driver is Debian's 535.216.03-1.
MPS_MOVES = """\
Inst nvidia-smi 535.261.03-1
Inst libnvidia-ml1 535.261.03-1
Inst nvidia-kernel-support 535.261.03-1
Inst libcuda1 535.261.03-1
Inst libnvidia-pkcs11-openssl3 535.261.03-1
Inst libnvidia-cfg1 535.261.03-1
Inst nvidia-alternative 535.261.03-1
Inst libnvidia-ptxjitcompiler1 535.261.03-1
Inst firmware-nvidia-gsp 535.261.03-1
Inst nvidia-kernel-dkms 535.261.03-1
Inst nvidia-legacy-check 535.261.03-1
Inst nvidia-cuda-mps 535.261.03-1
"""
DEBIANS = """\
ii |nvidia-kernel-dkms|535.216.03-1|nvidia-graphics-drivers|amd64|Debian
ii |libcuda1|535.216.03-1|nvidia-graphics-drivers|amd64|Debian
ii |libnvidia-cfg1|535.216.03-1|nvidia-graphics-drivers|amd64|Debian
ii |nvidia-modprobe|535.161.07-1~deb12u1|nvidia-modprobe|amd64|Debian
ii |nvidia-installer-cleanup|20220217+3~deb12u1|nvidia-support|amd64|Debian
ii |libc6|2.36-9|glibc|amd64|Debian
"""
UBUNTUS = "ii |nvidia-dkms-580-server|580.95.05-0ubuntu0.24.04.2|nvidia-graphics-drivers-580-server|amd64|Ubuntu\n"
NVIDIAS_RPM = "ii|kmod-nvidia-open-dkms|3:580.95.05-1.el9|kmod-nvidia-open-dkms|noarch|NVIDIA\n"
# gdrcopy's module and library, DCGM, the container toolkit, a CUDA toolkit, Fabric Manager and its library, a client of
# X that Open MPI's hwloc takes along.
BESIDE = """\
Inst gdrdrv-dkms 2.5-1
Inst libgdrapi 2.5-1
Inst datacenter-gpu-manager-4-core 1:4.5.2-1
Inst datacenter-gpu-manager-4-cuda12 1:4.5.2-1
Inst libnvidia-container1 1.18.0-1
Inst libnvidia-container-tools 1.18.0-1
Inst nvidia-container-toolkit-base 1.18.0-1
Inst nvidia-container-toolkit 1.18.0-1
Inst cuda-toolkit-12-8 12.8.1-1
Inst cuda-nvcc-12-8 12.8.93-1
Inst nvidia-fabricmanager-580 580.95.05-1
Inst libnvidia-nscq-580 580.95.05-1
Inst libxnvctrl0 525.125.06-1
Inst libhwloc-plugins 2.9.0-1
"""
RUNFILE, MOUNTED = "a runfile's", "a container's"
Rows = tuple[str, ...]


@dataclass
class Host:
    """A package manager that would do this."""

    rows: str
    installed: str = ""
    together: str | None = None
    problem: str = ""
    name: str = "apt"
    done: list[str] = field(default_factory=list)

    def read(self, _names: Any, related: str = "") -> Known:
        return Known([line.split("|") for line in self.installed.splitlines()], {}, {}, [])

    def attempt(self, wanted: Transaction) -> Trial:
        both = " and driver " in wanted.of
        return Trial(
            (self.together if both and self.together is not None else self.rows).splitlines(),
            self.problem if both else "",
        )

    def download(self, _wanted: Transaction) -> str:
        self.done.append("download")
        return ""

    def commit(self, _wanted: Transaction) -> Done:
        self.done.append("commit")
        return Done()


def asked(*install: str, coming: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A task of any role."""
    told = {"names": group_patterns_by_family(), "coming": coming or {}}
    lists = dict.fromkeys(("remove", "may_remove", "hold", "release"), ())
    return {
        **lists, "of": "what it needs", "install": install, "pin": {}, "refuse": {}, "stream": "", "fix": "correct it",
        "driver": told, "instead": "", **more,
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a runfile's programs would be, and a driver's files."""
    monkeypatch.setattr(
        other_driver, "PROGRAMS", (str(tmp_path / "nvidia-uninstall"), str(tmp_path / "nvidia-installer"))
    )
    monkeypatch.setattr(other_driver, "RECORD", str(tmp_path / "log"))
    monkeypatch.setattr(other_driver, "FILES", (str(tmp_path / "libcuda.so.*"),))
    monkeypatch.setattr(platform, "release", lambda: "0-no-such-kernel")
    monkeypatch.setattr(family, "read_family", lambda: "debian")
    return tmp_path


def prepared(place: Path, driver: str) -> None:
    if driver == RUNFILE:
        (place / "nvidia-uninstall").touch()
    if driver == MOUNTED:
        (place / "libcuda.so.1").touch()


def coming(version: str, *install: str, runfile: bool = False) -> dict[str, Any]:
    """The driver that this run brings, as the judge says it."""
    return {"version": version, "runfile": runfile, "install": install, "remove": (), "pin": {}, "stream": ""}


@dataclass
class Row:
    """`installed`: packages, or what other driver the host has. `said`: words of the refusal; none: it is done."""

    name: str
    rows: str
    installed: str
    said: Rows = ()
    family: str = "debian"
    not_said: Rows = ()


OF_RUNFILE = (
    "of NVIDIA's runfile",
    "and nothing was changed or downloaded: with what it needs apt would install packages of another, ",
)
TABLE = [
    Row(
        "persistence on a runfile's driver",
        NINE,
        RUNFILE,
        (
            *OF_RUNFILE,
            "nvidia-installer-cleanup",
            "libnvidia-cfg1",
            "nvidia-persistenced",
            "asks whether to uninstall the host's, by default yes",
            "nvidia_driver in the spec",
        ),
    ),
    Row(
        "MPS on a runfile's driver, which has these files",
        "Inst nvidia-cuda-mps 535.261.03-1",
        RUNFILE,
        OF_RUNFILE,
        not_said=("asks whether",),
    ),
    Row(
        "gdrcopy's tests, which are linked with libcuda",
        f"Inst gdrcopy-tests 2.5-1\n{LIBCUDA}",
        RUNFILE,
        (*OF_RUNFILE, "libcuda1"),
    ),
    Row("what may stand beside a runfile's driver", BESIDE, RUNFILE),
    Row(
        "the metapackage cuda, which brings a driver",
        "Inst cuda-drivers 580.95.05-1\nInst cuda 13.0.2-1\nInst libcuda1 580.95.05-1",
        RUNFILE,
        (*OF_RUNFILE, "cuda-drivers"),
    ),
    Row("a foreign architecture counts", "Inst libcuda1:i386 535.261.03-1", RUNFILE, ("libcuda1",)),
    Row(
        "a driver that is mounted in",
        LIBCUDA,
        MOUNTED,
        ("of no package", "libcuda.so.1", "whoever brings that driver"),
        not_said=("asks whether",),
    ),
    Row("no driver at all", NINE, ""),
    Row("the daemon beside Debian's driver", "Inst nvidia-persistenced 535.171.04-1~deb12u1", DEBIANS),
    Row(
        "MPS that would move Debian's driver",
        MPS_MOVES,
        DEBIANS,
        (
            "of packages (nvidia-kernel-dkms 535.216.03)",
            "nvidia-kernel-dkms",
            "name the driver that they are of in nvidia_driver",
        ),
    ),
    Row("a library of the same version", "Inst libnvidia-encode1 535.216.03-1", DEBIANS),
    Row(
        "the other flavour of the same version",
        "Inst nvidia-open-kernel-dkms 535.216.03-1",
        DEBIANS,
        ("nvidia-open-kernel-dkms",),
    ),
    Row("a package of NVIDIA's beside Debian's driver", "Inst libcuda1 580.95.05-1", DEBIANS, ("libcuda1",)),
    Row(
        "Debian's alternatives beside Debian's driver",
        "Inst glx-alternative-nvidia 1.2.2\nInst nvidia-support 20220217+3~deb12u1",
        DEBIANS,
    ),
    Row(
        "another branch of Ubuntu's",
        "Inst libnvidia-compute-535 535.274.02-0ubuntu0.24.04.2",
        UBUNTUS,
        ("libnvidia-compute-535",),
    ),
    Row(
        "NVIDIA's rpms of another version",
        "Inst nvidia-driver-cuda-libs 3:595.45.04-1.el9",
        NVIDIAS_RPM,
        ("nvidia-driver-cuda-libs",),
        "redhat",
    ),
    Row(
        "NVIDIA's rpms of the same version", "Inst nvidia-driver-cuda-libs 3:580.95.05-1.el9", NVIDIAS_RPM, (), "redhat"
    ),
    Row(
        "an rpm on a runfile's driver", "Inst nvidia-driver-cuda-libs 3:580.95.05-1.el9", RUNFILE, OF_RUNFILE, "redhat"
    ),
    Row("SUSE's on a runfile's driver", "Inst nvidia-compute-G06 580.95.05-1", RUNFILE, OF_RUNFILE, "suse"),
]


@pytest.mark.install
@pytest.mark.parametrize("action", ["try", "judge", "settle"])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_who(place: Path, monkeypatch: pytest.MonkeyPatch, row: Row, action: str) -> None:
    monkeypatch.setattr(family, "read_family", lambda: row.family)
    prepared(place, row.installed)
    host = Host(row.rows, "" if row.installed in (RUNFILE, MOUNTED) else row.installed)
    task = asked("what-it-needs")
    if not row.said:
        actions.ACTIONS[action](host, task, False)  # type: ignore[arg-type]
        assert host.done == {"try": ["download"], "judge": [], "settle": ["commit"]}[action]
        return
    with pytest.raises(AnotherDriver) as refused:
        actions.ACTIONS[action](host, task, False)  # type: ignore[arg-type]
    for words in row.said:
        assert words in str(refused.value)
    for words in row.not_said:
        assert words not in str(refused.value)
    assert host.done == []


def test_the_names_stand_before_the_version_that_they_share(place: Path) -> None:
    prepared(place, RUNFILE)
    with pytest.raises(AnotherDriver) as refused:
        actions.prepare_transaction(Host(NINE), asked("x"), True)  # type: ignore[arg-type]
    assert (
        "of another, glx-alternative-nvidia (1.2.2), libnvidia-cfg1 nvidia-alternative nvidia-legacy-check "
        "(535.261.03-1), "
        "nvidia-installer-cleanup (20220217+3~deb12u1), nvidia-persistenced (535.171.04-1~deb12u1); "
        "nvidia-installer-cleanup asks"
    ) in str(refused.value)


def test_what_does_without_them_comes_first_in_the_way_out(place: Path) -> None:
    prepared(place, RUNFILE)
    with pytest.raises(
        AnotherDriver, match=r"Fix: persistence: \{mode: legacy\}; or leave out what needs them; or have a driver"
    ):
        actions.prepare_transaction(Host(NINE), asked("x", instead="persistence: {mode: legacy}"), True)  # type: ignore[arg-type]


def test_the_drivers_own_packages_are_not_anothers(place: Path) -> None:
    """Its role has checks of its own, and leaves the option empty."""
    assert actions.prepare_transaction(Host(MPS_MOVES, DEBIANS), {**asked("x"), "driver": {}}, True)["trial"]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nvidia-uninstall", "nvidia-installer", "log"])
def test_each_trace_of_a_runfile_tells_it(place: Path, name: str) -> None:
    (place / name).touch()
    with pytest.raises(AnotherDriver, match=f"of NVIDIA's runfile .*{name}"):
        actions.prepare_transaction(Host("Inst libcuda1 580.95.05-1", DEBIANS), asked("x"), True)  # type: ignore[arg-type]


def test_a_file_that_a_package_owns_is_no_foreign_driver(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(place, MOUNTED)
    monkeypatch.setitem(other_driver.OWNERS, "debian", ("printf", "libcuda1:amd64: %s\n"))
    assert actions.prepare_transaction(Host(LIBCUDA), asked("x"), True)["trial"]  # type: ignore[arg-type]
    monkeypatch.setitem(other_driver.OWNERS, "debian", ("printf", "nvidia-linux-grid-580: %s\n"))
    with pytest.raises(AnotherDriver, match=r"driver is of the package nvidia-linux-grid-580 \("):
        actions.prepare_transaction(Host(LIBCUDA), asked("x"), True)  # type: ignore[arg-type]


def test_a_spec_that_brings_a_runfile_keeps_packages_away_before_it_is_there(place: Path) -> None:
    task = asked("x", coming=coming("580.95.05", runfile=True))
    with pytest.raises(AnotherDriver, match=r"to be 580\.95\.05 of a runfile \(nvidia_driver\)"):
        actions.prepare_transaction(Host(LIBCUDA), task, True)  # type: ignore[arg-type]


def test_what_comes_along_is_judged_together_with_the_driver_that_comes(place: Path) -> None:
    """By itself the daemon takes the newest library along; with the driver's own set, the set's."""
    task = asked(
        "nvidia-persistenced",
        coming=coming("535.216.03", "nvidia-kernel-dkms=535.216.03-1", "libnvidia-cfg1=535.216.03-1"),
    )
    together = (
        "Inst nvidia-kernel-dkms 535.216.03-1\nInst libnvidia-cfg1 535.216.03-1\nInst nvidia-persistenced "
        "535.171.04-1~deb12u1"
    )
    assert actions.prepare_transaction(Host(NINE, together=together), task, True)["trial"]  # type: ignore[arg-type]
    second = f"{together}\nInst libcuda1 535.261.03-1"
    with pytest.raises(AnotherDriver, match=r"to be 535\.216\.03 of packages .*another, libcuda1 \(535\.261\.03-1\)\."):
        actions.prepare_transaction(Host(NINE, together=second), task, True)  # type: ignore[arg-type]
    with pytest.raises(
        Refused, match=r"cannot install what it needs and driver 535\.216\.03: they conflict\. Fix: correct it"
    ):
        actions.prepare_transaction(Host(NINE, together="", problem="they conflict"), task, True)  # type: ignore[arg-type]


def test_a_driver_that_is_in_place_is_what_the_second_half_of_apply_is_judged_by(place: Path) -> None:
    installed = DEBIANS.replace("535.216.03", "535.261.03")
    task = asked("x", coming=coming("535.261.03", "nvidia-kernel-dkms=535.261.03-1"))
    host = Host("Inst nvidia-persistenced 535.171.04-1~deb12u1\nInst libcuda1 535.261.03-1", installed)
    assert actions.settle(host, task, False)["changed"]  # type: ignore[arg-type]


@run_each(
    ("text", "version"),
    [("535.261.03-1", "535.261.03"), ("3:580.95.05-1.el9", "580.95.05"), ("580.95.05_k6.4.0_1-1", "580.95.05"),
     ("1.2.2", ""), ("20220217+3~deb12u1", ""), ("12.8.1-1", ""), ("1:4.5.2-1", "")],
)  # fmt: skip
def test_versions(text: str, version: str) -> None:
    assert other_driver.derive_version(text) == version
