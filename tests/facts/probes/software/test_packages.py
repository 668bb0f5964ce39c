"""Packages of both families: installed, held, whole; what their repositories offer; and why a lock may hold nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.gpus import dcgm, mps
from gpuprov.facts.probes.host import family, system
from gpuprov.facts.probes.software import packages, rpm
from gpuprov.facts.probes.software.packages import Package
from gpuprov.facts.probes.software.rpm import Nevra
from tests.facts.probes import captured
from tests.rows import run_each

ROCKY = captured("packages", "rocky9").text
LOCKS = "\n".join(line for line in ROCKY.splitlines() if not line.startswith("rpm|")) + "\n"


def test_packages_of_a_debian_driver() -> None:
    found = packages.parse_packages(captured("packages", "driver_installed"))
    assert found["nvidia-kernel-dkms"] == Package(
        "nvidia-kernel-dkms", "535.261.03-1", "nvidia-graphics-drivers", True, True
    )
    assert not found["libcuda1"].held
    assert "libcuda1-any" not in found, "dpkg knows the name, but it is not installed"
    assert all(package.source for package in found.values())


@run_each(
    ("abbreviation", "installed", "whole"),
    [
        ("ii ", 1, 1),
        ("hi ", 1, 1),
        ("iF ", 1, 0),
        ("iU ", 1, 0),
        ("iHR", 1, 0),
        ("iiR", 1, 0),
        ("rc ", 0, 0),
        ("un ", 0, 0),
    ],
)
def test_states_of_a_package(abbreviation: str, installed: int, whole: int) -> None:
    found = packages.parse_packages(Output(f"{abbreviation}|nvidia-smi|535.261.03-1|nvidia-graphics-drivers\n"))
    assert len(found) == installed
    assert [package.whole for package in found.values()] == [bool(whole)] * installed


def rows(*lines: str) -> dict[str, Package]:
    return packages.parse_packages(Output("native|amd64\n" + "".join(f"{line}\n" for line in lines)))


@run_each(
    ("native", "other", "held", "whole"),
    [
        ("hi ", "hi ", True, True),
        ("hi ", "ii ", False, True),
        ("ii ", "hi ", False, True),
        ("hF ", "hi ", True, False),
        ("hi ", "hF ", True, False),
    ],
)
def test_one_package_of_two_architectures(native: str, other: str, held: bool, whole: bool) -> None:
    lines = (f"{native}|libcuda1|535.261.03-1|source|amd64", f"{other}|libcuda1|535.216.03-1|source|i386")
    for order in (lines, lines[::-1]):
        found = rows(*order)["libcuda1"]
        assert (found.version, found.held, found.whole) == ("535.261.03-1", held, whole)
        assert found.each == (("libcuda1", native[0] == "h"), ("libcuda1:i386", other[0] == "h"))
        beside = rows(*order)["libcuda1:i386"]
        assert (beside.name, beside.version, beside.source) == ("libcuda1:i386", "535.216.03-1", "source")


def test_one_version_in_two_architectures_is_one_package() -> None:
    lines = ("hi |libcuda1|1-1|source|amd64", "hi |libcuda1|1-1|source|i386")
    assert [set(rows(*order)) for order in (lines, lines[::-1])] == [{"libcuda1"}, {"libcuda1"}]


def test_a_package_of_another_architecture_alone() -> None:
    assert rows("hi |libcuda1|1-1|source|i386")["libcuda1"].each == (("libcuda1:i386", True),)
    assert [rows(f"hi |libcuda1|1-1|source|{own}")["libcuda1"].each for own in ("amd64", "all")] == [(), ()]


def test_lines_that_are_no_packages_are_left_out() -> None:
    assert packages.parse_packages(Output("dpkg-query: warning\n|||\na|b\n\n")) == {}


@run_each(
    ("output", "complaint"),
    [
        (Output(""), ""),
        (captured("package_audit", "half_configured"), "The following packages are only half configured"),
        (Output("", 2, "dpkg: error: parsing file '/var/lib/dpkg/status' near line 7"), "dpkg: error: parsing file"),
        (Output("", 1, "error: can't create transaction lock on /var/lib/rpm/.rpm.lock"), ""),
        (Output("", 1, "error: rpmdb: damaged header #12 retrieved"), "error: rpmdb: damaged header"),
    ],
)
def test_audit(output: Output, complaint: str) -> None:
    found = packages.parse_audit(output)
    assert found.startswith(complaint)
    assert bool(found) == bool(complaint)


@run_each(("said", "busy"), [("metadata already locked by 7071", True), ("Error: cache is empty", False)])
def test_an_index_that_another_dnf_holds_is_not_an_empty_one(said: str, busy: bool) -> None:
    index = packages.parse_index(Output("", 1, f"{said}\n"))
    assert (index.complaint, index.busy) == (said, busy)


def test_index() -> None:
    index: dict[str, list[str]] = Facts({"package_index": captured("package_index", "bookworm")}).get(packages.INDEX)
    assert index["nvidia-smi"] == ["535.309.01-0+deb12u1", "535.261.03-1", "535.216.03-2~bpo12+1"]
    assert index["nvidia-open-kernel-dkms"] == ["535.261.03-1"]


def test_packages_of_an_rpm_host() -> None:
    found = packages.parse_packages(captured("packages", "rocky9"))
    assert found["nvidia-driver"] == Package("nvidia-driver", "3:580.95.05-1.el9", "nvidia-driver", True, True)
    assert found["kernel-devel"].version == "5.14.0-570.12.1.el9_6", "the newest of those that stand beside each other"
    assert found["kernel-devel-5.14.0-503.11.1.el9_5.x86_64"].version == "5.14.0-503.11.1.el9_5"
    assert found["kernel-devel"].whole
    assert [name for name, package in found.items() if package.held] == [
        *("nvidia-driver", "kmod-nvidia-open-dkms", "nvidia-driver-libs")
    ]


def test_two_versions_of_one_package_are_not_whole() -> None:
    cut_off = "rpm|nvidia-driver-libs|3|580.105.08|1.el9|x86_64|nvidia-driver-580.105.08-1.el9.src.rpm\n"
    found = packages.parse_packages(Output(cut_off + ROCKY))["nvidia-driver-libs"]
    assert (found.version, found.whole, found.held) == ("3:580.105.08-1.el9", False, False)
    both = cut_off.replace("x86_64|", "i686|").replace("580.105.08", "580.95.05") + ROCKY
    found = packages.parse_packages(Output(both))["nvidia-driver-libs"]
    assert (found.whole, found.held) == (True, True), "two architectures of one version"


@run_each("locked", ["580.95.05", "580.105.08"])
def test_a_lock_of_one_version_does_not_hold_the_other(locked: str) -> None:
    row = "rpm|nvidia-driver-libs|3|{}|1.el9|{}|nvidia-driver-{}-1.el9.src.rpm\n"
    both = "".join(row.format(v, arch, v) for v, arch in (("580.95.05", "i686"), ("580.105.08", "x86_64")))
    locks = re.sub(r"(?m)^lock\|nvidia-driver-libs.*\n", "", LOCKS) + f"lock|nvidia-driver-libs-3:{locked}-1.el9.*\n"
    found = packages.parse_packages(Output(both + locks))["nvidia-driver-libs"]
    assert (found.version, found.held) == ("3:580.105.08-1.el9", False)
    assert sorted(found.each) == [("nvidia-driver-libs", False), ("nvidia-driver-libs", True)]


@run_each(
    ("name", "beside"),
    [
        ("kernel", True),
        ("kernel-core", True),
        ("kernel-uki-virt", True),
        ("kernel-uki-virt-addons", True),
        ("kernel-ml", True),
        ("kernel-ml-core", True),
        ("kernel-lt", True),
        ("kernel-lt-devel", True),
        ("kernel-lt-modules-extra", True),
        ("kernel-headers", False),
        ("kernel-ml-headers", False),
        ("kernel-lt-tools-libs", False),
        ("kernel-tools", False),
    ],
)
def test_kernels_of_two_versions_are_no_cut_off_transaction(name: str, beside: bool) -> None:
    lines = "".join(f"rpm|{name}|0|6.{n}|1.el9|x86_64|{name}-6.{n}-1.el9.src.rpm\n" for n in (1, 2))
    assert packages.parse_packages(Output(lines))[name].whole is beside
    ours = (
        f"rpm() {{ printf '{name}|x86_64\\n{name}|x86_64\\n'; }}\n"
        + (packages.AUDIT.script.split("redhat)\n")[-1].partition("\n;;")[0])
    )
    told = subprocess.run(["sh", "-c", ours], capture_output=True, text=True, check=True).stdout
    assert ("installed in two versions" in told) is not beside


SWITCHES = [
    ("plugin|", "", "not installed"),
    ("dnf|[main]", "dnf|[main]\ndnf|plugins=0", "plugins in /etc/dnf/dnf.conf"),
    ("conf|enabled = 1", "conf|enabled = False", "enabled in /etc/dnf/plugins/versionlock.conf"),
    ("conf|locklist", "conf|#locklist", "has no list"),
    ("list|", "nothing|", "cannot be read"),
]


@run_each(("line", "instead", "why"), SWITCHES)
def test_a_lock_without_a_working_plugin_holds_nothing(line: str, instead: str, why: str) -> None:
    """dnf-automatic 4.14 moved a locked package on a host whose plugin was off, and left it alone where it was on."""
    changed = re.sub(f"(?m)^{re.escape(line)}.*$" if not instead else re.escape(line), instead, ROCKY, count=1)
    assert changed != ROCKY
    assert not any(package.held for package in packages.parse_packages(Output(changed)).values())
    locks = changed[changed.index("dnf|") :]
    assert why in packages.parse_locking(Output(f"redhat|\n{locks}"))


def test_where_holding_works_there_is_nothing_to_say() -> None:
    assert packages.parse_locking(Output(f"redhat|\n{LOCKS}")) == ""
    assert packages.parse_locking(Output("")) == "", "Debian: apt's own default"


@run_each(("value", "moved"), [("true", True), ("1", True), ("false", False), ("", False)])
def test_apt_that_is_told_to_move_held_packages(value: str, moved: bool) -> None:
    assert ("allow-change-held-packages" in packages.parse_locking(Output(f"apt|{value}\n"))) is moved


INSTALLED = Nevra("nvidia-driver", "3", "580.95.05", "1.el9", "x86_64")
EXACT = "nvidia-driver-3:580.95.05-1.el9.*"


@run_each(
    ("locks", "held"),
    [
        ([], False),
        ([EXACT], True),
        (["# a comment", "", "nvidia-driver-580.95.05-1.el9"], True),
        (["nvidia-*-3:580.95.05-1.el9.x86_64"], True),
        ([EXACT, "!nvidia-driver-3:580.105*"], True),
        (["nvidia-driver"], False),
        (["nvidia-driver.x86_64"], False),
        (["*nvidia*"], False),
        (["nvidia-driver-3:580.*"], False),
        (["nvidia-driver-3:580.65.06-1.el9.*"], False),
        ([EXACT, "nvidia-driver-3:580.105.08-1.el9.*"], False),
        (["nvidia-driver-4:580.95.05-1.el9.*"], False),
        (["nvidia-driver-libs-3:580.95.05-1.el9.*"], False),
        (["!nvidia-driver-3:580.95.05-1.el9.*"], False),
    ],
)
def test_locks(locks: list[str], held: bool) -> None:
    assert rpm.is_held(locks, INSTALLED) is held


KERNEL_ROWS = "".join(f"rpm|kernel-core|0|5.14.0|{n}.el9|x86_64|kernel-5.14.0-{n}.el9.src.rpm\n" for n in (503, 570))


@run_each(
    ("locked", "held"),
    [
        (("5.14.0-503.el9.*", "5.14.0-570.el9.*"), True),
        (("5.14.0-427.el9.*", "5.14.0-503.el9.*", "5.14.0-570.el9.*"), True),
        (("5.14.0-503.el9.*",), True),
        (("5.14.0-570.el9.*", "5.14.0-611.el9.*"), False),
        (("5.14.0-*",), False),
        ((), False),
    ],
)
def test_kernels_that_stand_beside_each_other_are_held_by_a_lock_of_each(locked: tuple[str, ...], held: bool) -> None:
    """dnf leaves what the locks of one name mean together, and no newer one:
    https://github.com/rpm-software-management/dnf5/issues/2368"""
    others = "".join(line for line in LOCKS.splitlines(keepends=True) if not line.startswith("lock|"))
    locks = "".join(f"lock|kernel-core-0:{one}\n" for one in locked)
    found = packages.parse_packages(Output(KERNEL_ROWS + others + locks))
    assert {name: package.held for name, package in found.items()} == {
        "kernel-core": held,
        "kernel-core-5.14.0-570.el9.x86_64": held,
        "kernel-core-5.14.0-503.el9.x86_64": held,
    }


@run_each(
    ("older", "newer"),
    [
        ("580.65.06", "580.105.08"),
        ("580.95.05", "580.95.5.1"),
        ("1.0~rc1", "1.0"),
        ("1.0", "1.0^git1"),
        ("1.0^git1", "1.0.1"),
        ("1.el9", "1.el9_5"),
        ("570.124.06", "580.1"),
        ("1.0a", "1.0.1"),
    ],
)
def test_order_of_rpm_versions(older: str, newer: str) -> None:
    """As `rpmdev-vercmp` and dnf have it: https://rpm-software-management.github.io/rpm/manual/dependencies.html"""
    assert (rpm.compare(older, newer), rpm.compare(newer, older), rpm.compare(older, older)) == (-1, 1, 0)
    assert rpm.compare("580.95.05", "580.95.5") == 0


def test_index_of_an_rpm_host() -> None:
    index = packages.parse_index(captured("package_index", "rocky9"))
    assert index["nvidia-driver"] == [
        *("3:580.105.08-1.el9", "3:580.95.05-1.el9", "3:580.65.06-1.el9", "3:570.124.06-1.el9")
    ]
    assert index["nvidia-fabricmanager"][0] == "580.105.08-1"
    assert not index.complaint


def test_an_empty_index_says_why() -> None:
    cold = Output("", 1, "Error: Cache-only enabled but no cache for 'cuda-rhel9-x86_64'\n")
    assert "no cache for 'cuda-rhel9-x86_64'" in packages.parse_index(cold).complaint
    assert "name no package" in packages.parse_index(Output("")).complaint
    alone = packages.parse_index(
        Output(" dkms | 3.0.10-8 | http://deb.debian.org/debian bookworm/main amd64 Packages\n")
    )
    assert (alone["dkms"], "name no package" in alone.complaint) == (["3.0.10-8"], True), "main alone has no driver"


RELEASES = [
    ("ID=debian\n", "debian"),
    ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
    ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "debian"),
    ('ID="rhel"\nID_LIKE="fedora"\n', "redhat"),
    ('ID="almalinux"\nID_LIKE="rhel centos fedora"\n', "redhat"),
    ('ID="ol"\nID_LIKE="fedora"\n', "redhat"),
    ('ID="amzn"\nID_LIKE="fedora"\n', "redhat"),
    ('ID="openEuler"\n', "redhat"),
    ('ID="anolis"\nID_LIKE="rhel fedora centos"\n', "redhat"),
    ('ID="alinux"\nID_LIKE="rhel fedora centos anolis"\n', "redhat"),
    ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "suse"),
    ('ID="sles"\nID_LIKE="suse"\n', "suse"),
    ('ID="arch"\n', None),
    ("", None),
]


@run_each(("text", "kind"), RELEASES)
def test_the_family_is_told_alike_in_shell_and_python(text: str, kind: str | None, tmp_path: Path) -> None:
    assert family.family(system.parse_os_release(Output(text))) == kind
    (tmp_path / "os-release").write_text(text, encoding="utf-8")
    script = family.by_family("echo debian", "echo redhat", "echo suse").replace(
        "/etc/os-release", f"{tmp_path}/os-release"
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout.strip() or None) == kind


def test_words_for_fixes() -> None:
    rocky = system.parse_os_release(Output("ID=rocky\n"))
    assert family.words(rocky).hold == "dnf versionlock add"
    assert family.words(rocky).reinstall == "dnf reinstall"
    assert family.words(system.parse_os_release(Output("ID=debian\n"))).hold == "apt-mark hold"


@run_each(("index", "streams"), [(packages.INDEX, True), (mps.INDEX, False), (dcgm.INDEX, False)])
def test_dnf_is_asked_for_streams_that_are_not_enabled_where_one_of_them_can_be(index: Any, streams: bool) -> None:
    assert "repoquery" in index.script
    assert ("--disable-modular-filtering" in index.script) == streams, "dnf would find nothing to install"


KERNELS = """
    kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra kernel-64k kernel-64k-core kernel-64k-modules
    kernel-64k-modules-core kernel-rt kernel-rt-core kernel-rt-64k-core kernel-rt-debug-modules-extra kernel-debug-core kernel-uki-virt
    kernel-64k-debug-uki-virt kernel-uki-virt-addons kernel-uek kernel-uek-core kernel-uek-modules-extra-netfilter kernel-uek64k-core
    kernel-uek64k-modules-core kernel-hwe kernel6.12 kernel6.12-modules-extra kernel-ml-core kernel-lt-modules
"""


def test_packages_that_bring_a_kernel() -> None:
    for name in KERNELS.split():
        assert re.fullmatch(packages.BOOTING, name), name
        assert re.fullmatch(packages.INSTALL_ONLY, name), name
    for name in ("linux-image-amd64", "linux-image-6.8.0-1014-nvidia-64k", "linux-image-generic"):
        assert re.fullmatch(packages.BOOTING, name), name
    for name in ("kernel-devel", "kernel-64k-devel", "kernel-rt-devel-matched", "kernel-headers", "kernel-tools"):
        assert not re.fullmatch(packages.BOOTING, name), name
