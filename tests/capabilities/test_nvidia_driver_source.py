"""nvidia_driver on every distribution: its source, its repository, the CUDA that it runs, and the family's words."""

from __future__ import annotations

import msgspec
import pytest

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.host_code import sources
from gpuprov.rules import resolve
from gpuprov.spec.model import GpuSpec, HostSpec
from gpuprov.spec.repository import Repository
from tests.capabilities.asking import H100, PODMAN, Row, ask, facts, judge, packages
from tests.rows import run_each

UBUNTU = 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n'
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\nPRETTY_NAME="Rocky Linux 9.5 (Blue Onyx)"\n'
RHEL10 = 'ID="rhel"\nVERSION_ID="10.0"\nPRETTY_NAME="Red Hat Enterprise Linux 10.0"\n'
LEAP = 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\nVERSION_ID="15.6"\nPRETTY_NAME="openSUSE Leap 15.6"\n'
AMAZON = 'ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"\nPRETTY_NAME="Amazon Linux 2023"\n'
U570, U580 = "570.195.03-0ubuntu0.24.04.1", "580.95.05-0ubuntu0.24.04.2"
N570, R580 = "570.195.03-0ubuntu1", "3:580.95.05-1.el9"
MIRROR = Repository(url="https://mirror.example/cuda", key_url="https://mirror.example/key.asc", fingerprint="A" * 40)


def names(os_id: str, version: str, package: str, source: str = "auto", flavour: str = "open") -> list[str]:
    found = find_packages(os_id, version, source)
    assert found
    return list(resolve.fitting(found.sets[flavour], package))


def dpkg(version: str, source: str = "auto", state: str = "hi ", **others: str) -> str:
    """dpkg-query's lines of an Ubuntu host with the whole set, and others (underscores for dashes) in versions of their
    own."""
    branch = resolve.upstream(version).partition(".")[0]
    of = f"nvidia-graphics-drivers-{branch}" + ("-server" if source == "auto" else "")
    lines = [f"{state}|{name}|{version}|{of}\n" for name in names("ubuntu", "24.04", version, source)]
    return "".join(lines) + "".join(f"ii |{n.replace('_', '-')}|{v}|{of}\n" for n, v in others.items())


def rpm(full: str, *more: str, locked: bool = True, flavour: str = "open") -> str:
    """rpm's and the lock list's lines of a Rocky host with the whole set."""
    epoch, _, rest = full.partition(":")
    version, _, release = rest.partition("-")
    mine = names("rocky", "9.5", full, flavour=flavour)
    rows = [f"rpm|{n}|{epoch}|{version}|{release}|x86_64|{n}-{rest}.src.rpm" for n in [*mine, *more]]
    plugin = "plugin|/usr/lib/python3.9/site-packages/dnf-plugins/versionlock.py\nconf|[main]\nconf|enabled = 1\n"
    locks = "".join(f"lock|{name}-{full}.*\n" for name in mine) if locked else ""
    return "\n".join(rows) + f"\n{plugin}conf|locklist = /l\nlist|/l\n{locks}"


def madison(*versions: str, source: str = "auto") -> str:
    wanted = [(n, v) for v in versions for n in names("ubuntu", "24.04", v, source)]
    return "".join(f" {n} | {v} | http://mirror.example/ubuntu noble/restricted amd64 Packages\n" for n, v in wanted)


def repoquery(*versions: str, flavour: str = "open") -> str:
    lines = []
    for full in versions:
        epoch, _, rest = full.partition(":")
        version, _, release = rest.partition("-")
        lines += [f"rpm|{n}|{epoch}|{version}|{release}|x86_64" for n in names("rocky", "9.5", full, flavour=flavour)]
    return "\n".join(lines) + "\n"


ON_UBUNTU = {"os_release": UBUNTU, "packages": dpkg(U570)}
ON_NVIDIAS = {"os_release": UBUNTU, "packages": dpkg(N570, "nvidia")}
ON_ROCKY = {"os_release": ROCKY, "packages": rpm(R580)}
OPEN, B570 = NvidiaDriver(kernel_modules="open"), NvidiaDriver(version="570", kernel_modules="open")
SITE = "http://m.example/nvidia/ubuntu2404"
NVIDIAS = NvidiaDriver(source="nvidia", kernel_modules="open")
FROM_MIRROR = NvidiaDriver(source="mirror", repository=MIRROR)
DKMS = "rpm|dkms|0|3.2.0|1.el9|noarch\n"
_WRITTEN = sources.format_text(msgspec.to_builtins(MIRROR) | {"name": "nvidia"}, "redhat")
ADDED = (
    "@file /etc/yum.repos.d/gpuprov-nvidia.repo\n" + "".join(f" {line}\n" for line in _WRITTEN.splitlines()) + "@end\n"
)
PACKAGES, FLAVOUR, HELD, SOURCE = (f"nvidia_driver.{name}" for name in ("packages", "flavour", "held", "source"))
RESOLVABLE, LEFTOVERS, CUDA = (f"nvidia_driver.{name}" for name in ("resolvable", "leftovers", "cuda"))
OFFERED, REPOSITORY = "nvidia_driver.source_offered", "nvidia_driver.repository"
LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Thu Oct 10 00:00:00 UTC 2025\n"
ROWS = [
    Row("Ubuntu: the set is whole", PACKAGES, B570, ON_UBUNTU, "pass", "570.195.03, 8 packages"),
    Row("EL: the set is whole", PACKAGES, NvidiaDriver(version="580.95.05"), ON_ROCKY, "pass", "580.95.05, 8 packages"),
    Row("Ubuntu: firmware of the version before is left", PACKAGES, B570,
        {**ON_UBUNTU, "packages": dpkg(U570,
                                       nvidia_firmware_570_server_570_172_08="570.172.08-0ubuntu0.24.04.1").replace(
            "server-570-172-08", "server-570.172.08")},
        "fail", "nvidia-firmware-570-server-570.172.08=570.172.08"),
    Row("Ubuntu: a library of another branch is left", PACKAGES, B570,
        {**ON_UBUNTU, "packages": dpkg(U570, libnvidia_compute_580_server=U580)}, "fail",
        "libnvidia-compute-580-server=580.95.05"),
    Row("EL: a package is missing", PACKAGES, OPEN,
        {**ON_ROCKY, "packages": "".join(line for line in rpm(R580).splitlines(keepends=True) if "|nvidia-modprobe|" not in line)},
        "fail", "not installed: nvidia-modprobe"),
    Row("Ubuntu: nothing is installed", PACKAGES, B570, {"os_release": UBUNTU, "packages": ""}, "fail",
        "nvidia-dkms-570-server-open"),
    Row("EL: half installed", PACKAGES, OPEN, {**ON_ROCKY, "packages": rpm(R580) + rpm(R580.replace("95", "99"))},
        "fail",
        "incomplete", "rpm --rebuilddb"),
    Row("EL: the flavour", FLAVOUR, OPEN, {**ON_ROCKY, "loaded_driver": ""}, "pass", "open"),
    Row("EL: locked as a set", HELD, OPEN, ON_ROCKY, "pass", "8 packages held"),
    Row("EL: nothing is locked", HELD, OPEN, {**ON_ROCKY, "packages": rpm(R580, locked=False)}, "fail",
        "not held: kmod-nvidia",
        "dnf versionlock add kmod-nvidia-open-dkms", change="hold libnvidia-ml: not held -> held"),
    Row("apt may change held packages", HELD, None, {"package_locking": "apt|true\n"}, "fail",
        "allow-change-held-packages"),
    Row("Debian: from Debian's archive", SOURCE, None, {}, "pass", "distribution: 12 packages"),
    Row("Ubuntu: from Ubuntu's archive", SOURCE, B570, ON_UBUNTU, "pass", "distribution: 8 packages"),
    Row("Ubuntu: from NVIDIA's repository", SOURCE, NVIDIAS, ON_NVIDIAS, "pass", "nvidia: 8 packages"),
    Row("Ubuntu: NVIDIA's is wanted, Ubuntu's is there", SOURCE, NVIDIAS, ON_UBUNTU, "fail",
        "no driver package of that source"),
    Row("Ubuntu: Ubuntu's own driver under NVIDIA's names", SOURCE, NVIDIAS,
        {**ON_UBUNTU, "packages": dpkg("570.195.03-0ubuntu0.24.04.3", "nvidia")}, "fail", "of another source"),
    Row("Ubuntu: both archives at once", SOURCE, B570,
        {**ON_UBUNTU, "packages": dpkg(U570) + f"ii |libnvidia-compute-580|{N570}|nvidia-graphics-drivers-580\n"},
        "fail",
        "libnvidia-compute-580", "apt-get purge libnvidia-compute-580"),
    Row("EL: RPM Fusion's beside NVIDIA's", SOURCE, OPEN, {**ON_ROCKY, "packages": rpm(R580, "akmod-nvidia")}, "fail",
        "akmod-nvidia", "dnf remove akmod-nvidia"),
    Row("no driver at all", SOURCE, None, {"packages": ""}, "fail", "no driver package of that source"),
    Row("Ubuntu: both archives, before anything is changed: the other's set leaves in the transaction", LEFTOVERS, B570,
        {**ON_UBUNTU, "packages": dpkg(U570) + f"ii |nvidia-dkms-580-open|{N570}|nvidia-graphics-drivers-580\n"},
        "pass"),
    Row("Ubuntu: both archives: the plan says that the other's set leaves", RESOLVABLE, B570,
        {**ON_UBUNTU, "packages": dpkg(U570) + f"ii |nvidia-dkms-580-open|{N570}|nvidia-graphics-drivers-580\n",
         "package_index": madison(U570)}, "pass", "570", change=f"package nvidia-dkms-580-open: {N570} -> removed"),
    Row("Ubuntu: another archive's packages that are no part of its set", LEFTOVERS, B570,
        {**ON_UBUNTU, "packages": dpkg(U570) + f"ii |nvidia-driver-580-open|{N570}|nvidia-graphics-drivers-580\n"},
        "fail",
        "nvidia-driver-580-open", "apt-get purge nvidia-driver-580-open"),
    Row("Ubuntu: precompiled modules of another driver", LEFTOVERS, B570,
        {**ON_UBUNTU, "packages": dpkg(U570) + "ii |linux-modules-nvidia-570-generic|6.8.0-51.52|"
                                               "linux-restricted-modules\n"},
        "fail", "linux-modules-nvidia-570-generic"),
    Row("Ubuntu: precompiled modules of this one leave in the transaction", LEFTOVERS, B570,
        {**ON_UBUNTU, "packages": dpkg(U570) + "ii |linux-modules-nvidia-570-server-generic|6.8.0-51.52|"
                                               "linux-restricted-modules\n"},
        "pass"),
    Row("EL: another builder's", LEFTOVERS, OPEN, {"os_release": ROCKY,
                                                   "packages": rpm(R580, "xorg-x11-drv-nvidia-cuda")}, "fail",
        "xorg-x11-drv-nvidia-cuda", "dnf remove"),
    Row("EL: nothing interferes", LEFTOVERS, OPEN, ON_ROCKY, "pass"),
    Row("NVIDIA's repository on Ubuntu, metapackages are its own", LEFTOVERS, NVIDIAS,
        {**ON_NVIDIAS, "packages": dpkg(N570, "nvidia", nvidia_open_570=N570, cuda_drivers_570=N570)}, "pass"),
    Row("Ubuntu: a change of branch", RESOLVABLE, NvidiaDriver(version="580"),
        {**ON_UBUNTU, "package_index": madison(U570, U580)}, "pass", "580.95.05 (open",
        change=f"package nvidia-dkms-570-server-open: {U570} -> removed"),
    Row("Ubuntu: what is installed is kept", RESOLVABLE, NvidiaDriver(),
        {**ON_UBUNTU, "package_index": madison(U570, U580)}, "pass",
        "570.195.03 (open"),
    Row("EL: a fresh host", RESOLVABLE, NvidiaDriver(),
        {"os_release": ROCKY, "packages": "", "package_index": repoquery(R580)}, "pass",
        "580.95.05 (open", change=f"package kmod-nvidia-open-dkms:  -> {R580}"),
    Row("EL: no repository yet", RESOLVABLE, NvidiaDriver(), {"os_release": ROCKY, "packages": "", "package_index": ""},
        "skip",
        "resolved when apply has added https://developer.download.nvidia.com/"),
    Row("a mirror that is still to come", RESOLVABLE, FROM_MIRROR,
        {"os_release": ROCKY, "packages": "", "package_index": DKMS}, "skip",
        "resolved when apply has added https://mirror.example/cuda",
        change="package driver any:  -> resolved when apply has added https://mirror.example/cuda"),
    Row("a mirror that lacks it", RESOLVABLE, FROM_MIRROR,
        {"os_release": ROCKY, "packages": "", "package_index": DKMS, "repositories": ADDED}, "fail",
        "none of"),
    Row("CUDA moves the branch", RESOLVABLE, NvidiaDriver(cuda="13.0"),
        {**ON_UBUNTU, "package_index": madison(U570, U580)}, "pass",
        "580.95.05"),
    Row("no driver for that CUDA", RESOLVABLE, NvidiaDriver(cuda="13.0"), {**ON_UBUNTU, "package_index": madison(U570)},
        "fail",
        "no driver 580.65.06 or newer", "570.195.03"),
    Row("no CUDA asked for", CUDA, None, {}, "n/a", "not in the spec"),
    Row("the driver runs it", CUDA, NvidiaDriver(cuda="12.8"), {}, "pass", "all features of 12.8 need"),
    Row("the driver is too old", CUDA, NvidiaDriver(cuda="13.0"), {}, "fail",
        "535.261.03 is installed: CUDA 13.x runs from"),
    Row("the loaded one is too old", CUDA, NvidiaDriver(cuda="13.0"),
        {**ON_ROCKY, "loaded_driver": LOADED.format("570.195.03")}, "fail",
        "the loaded driver 570.195.03", reboot="570.195.03"),
    Row("a container shows its machine's", CUDA, NvidiaDriver(cuda="13.0"), {**ON_ROCKY, **PODMAN}, "pass",
        "580.95.05"),
    Row("no driver, no CUDA", CUDA, NvidiaDriver(cuda="12.8"), {"packages": ""}, "fail", "no driver package"),
    Row("Debian's own", OFFERED, None, {}, "pass", "own archive"),
    Row("NVIDIA's for Rocky", OFFERED, None, {"os_release": ROCKY}, "pass", "repos/rhel9/x86_64"),
    Row("NVIDIA's for Ubuntu on Arm", OFFERED, NVIDIAS, {"os_release": UBUNTU, "platform": "Linux 6.8.0 aarch64\n"},
        "pass", "sbsa"),
    Row("NVIDIA's for Debian on Arm", OFFERED, NVIDIAS, {"platform": "Linux 6.1.0 aarch64\n"}, "pass",
        "repos/debian12/sbsa"),
    Row("NVIDIA's for Amazon Linux on Graviton", OFFERED, NVIDIAS,
        {"os_release": AMAZON, "platform": "Linux 6.12.0 aarch64\n"}, "pass", "repos/amzn2023/sbsa"),
    Row("NVIDIA has none for Leap on Arm", OFFERED, NVIDIAS, {"os_release": LEAP, "platform": "Linux 6.4.0 aarch64\n"},
        "fail",
        "NVIDIA has none", "mirror"),
    Row("EL has no driver of its own", OFFERED, NvidiaDriver(source="distribution"), {"os_release": ROCKY}, "fail",
        "has no such source", "EL has no driver in its own repositories"),
    Row("a mirror", OFFERED, FROM_MIRROR, {"os_release": ROCKY}, "pass", "mirror.example"),
    Row("a key that nobody vouches for", OFFERED, None, {"os_release": RHEL10, "package_index": ""}, "fail",
        "gpuprov knows none",
        "fingerprint"),
    Row("a key that nobody vouches for, but the host has the packages from a source of its own", OFFERED, None,
        {"os_release": RHEL10, "package_index": repoquery("580.95.05-1.el10")}, "pass", "repos/rhel10/x86_64"),
    Row("not a distribution that is managed", OFFERED, None, {"os_release": "ID=arch\nPRETTY_NAME=Arch\n"}, "fail",
        "Arch"),
    Row("the distribution's archive needs no repository", REPOSITORY, None, {}, "n/a", "own package sources"),
    Row("no source is NVIDIA's by its name", REPOSITORY, NVIDIAS, {"os_release": UBUNTU}, "skip",
        "no source of the host"),
    Row("the host's own sources have NVIDIA's packages", REPOSITORY, NVIDIAS,
        {"os_release": UBUNTU, "repositories": f"@arch amd64\n@file /etc/apt/sources.list\n deb {SITE} /\n@end\n"},
        "pass",
        f"provided by the host's own sources: {SITE}"),
    Row("the mirror is not there", REPOSITORY, FROM_MIRROR, {}, "fail", "is not there"),
]  # fmt: skip


@pytest.mark.install
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_nvidia_driver_of_a_source(row: Row) -> None:
    judge(row)


def test_preflight_says_the_version_that_the_host_will_have() -> None:
    assert ask(RESOLVABLE, NvidiaDriver(version="535.309.01"), packages="").version == "535.309.01"
    assert ask(RESOLVABLE).version == "535.261.03"


def test_a_source_that_is_not_there_is_an_error_of_the_other_checks() -> None:
    with pytest.raises(ProbeFailed, match="EL has no driver in its own repositories"):
        ask(PACKAGES, NvidiaDriver(source="distribution"), os_release=ROCKY)


@run_each(
    ("driver", "path", "message", "fix"),
    [
        (NvidiaDriver(cuda="12.7"), "cuda", 'is "12.7": there is no such CUDA', 'the nearest is "12.6'),
        (NvidiaDriver(cuda="13.0", version="570"), "cuda",
         "runs from driver 580.65.06 on, and nvidia_driver.version is 570", '"580"'),
        (NvidiaDriver(cuda="13.0", version="570.195.03"), "cuda", "nvidia_driver.version is 570.195.03", "older CUDA"),
        (NvidiaDriver(source="mirror"), "source", "is mirror, and there is no repository", "key_file"),
        (NvidiaDriver(repository=MIRROR), "repository", "is not used by source auto", "source: mirror"),
        (NvidiaDriver(source="distribution", repository=MIRROR), "repository", "not used by source distribution",
         "mirror"),
        (NvidiaDriver(source="mirror", repository=Repository(url="https://m.example/x")), "repository", "no key",
         "key_file"),
    ],
)  # fmt: skip
def test_what_is_refused_offline(driver: NvidiaDriver, path: str, message: str, fix: str) -> None:
    problems = [p for p in nvidia_driver.rules(HostSpec(name="gpu1"), driver) if p.severity == "error"]
    (problem,) = problems
    assert problem.path[:2] == ("nvidia_driver", path)
    assert message in problem.message
    assert fix in problem.fix


@run_each(
    "driver", [FROM_MIRROR, NVIDIAS, NvidiaDriver(cuda="12.8", version="570"), NvidiaDriver(cuda="12.8", version="525")]
)
def test_what_is_not_refused_offline(driver: NvidiaDriver) -> None:
    assert not [p for p in nvidia_driver.rules(HostSpec(name="gpu1"), driver) if p.severity == "error"]


@run_each(
    ("driver", "told"),
    [
        (NvidiaDriver(version="535", cuda="12.8"), "all features of CUDA 12.8 from driver 570.26 on"),
        (NvidiaDriver(version="535.261.03", cuda="12.4"), "by minor-version compatibility"),
        (NvidiaDriver(version="570", cuda="12.8"), ""),
        (NvidiaDriver(version="580", cuda="12.8"), ""),
        (NvidiaDriver(cuda="12.8"), ""),
    ],
)
def test_a_cuda_that_runs_by_compatibility_is_a_warning(driver: NvidiaDriver, told: str) -> None:
    found = [p for p in nvidia_driver.rules(HostSpec(name="gpu1"), driver) if p.path[-1] == "cuda"]
    assert [p.severity for p in found] == ["warning"] * bool(told)
    assert all(told in p.message and "a newer branch" in p.fix for p in found)


@run_each("version", ["580", "any"])
def test_no_branch_is_offered_that_the_gpu_cannot_run(version: str) -> None:
    host = HostSpec(name="gpu1", gpu=GpuSpec(model="V100-SXM2", count=8))
    [found] = nvidia_driver.rules(host, NvidiaDriver(version=version, cuda="13.2"))
    assert (found.severity, found.fix) == (
        "warning",
        "an older CUDA: branch 580 is the last for V100-SXM2 (gpuprov catalog cuda)",
    )


@run_each(
    ("os_release", "text", "expected"),
    [
        (UBUNTU, dpkg(U570), NvidiaDriver(version="570.195.03", kernel_modules="open")),
        (UBUNTU, dpkg(N570, "nvidia"), NvidiaDriver(version="570.195.03", kernel_modules="open", source="nvidia")),
        (ROCKY, rpm(R580), NvidiaDriver(version="580.95.05", kernel_modules="open")),
        (ROCKY, rpm(R580, locked=False), NvidiaDriver(version="580.95.05", kernel_modules="open", hold=False)),
        (UBUNTU, packages(), None),
    ],
)
def test_export_tells_the_source(os_release: str, text: str, expected: NvidiaDriver | None) -> None:
    told = facts(os_release=os_release, nvidia_functions=H100, packages=text, modprobe_config="", runfile="")
    assert nvidia_driver.CAPABILITY.export(told) == expected


BESIDE = (
    ("nvidia-driver-assistant", "0.22.95.05"),
    ("nvidia-driver-local-repo-rhel9-580.95.05", "1.0"),
    ("nvidia-driver-local-repo-debian12-580.95.05", "1.0"),
    ("nvidia-driver-pinning-580", "580"),
    (
        "nvidia-driver-selinux",
        "0.1",
    ),  # of an EL 9 with 615.71.09; nvidia-kmod-common wants it beside selinux-policy-targeted
)


def test_what_nvidia_has_beside_the_driver_is_no_part_of_it() -> None:
    """As Amazon's own repository has it: https://docs.aws.amazon.com/linux/al2023/release-notes/"""
    for who in (("rocky", "9.5"), ("amzn", "2023"), ("debian", "12"), ("ubuntu", "24.04")):
        names_of = find_packages(*who, "nvidia")
        assert names_of
        assert [name for name, _ in BESIDE if names_of.of_source(name)] == []
        source = "nvidia-graphics-drivers" if who[0] in ("debian", "ubuntu") else "nvidia-driver"
        assert [names_of.of_source(source, one) for one in ("3:580.95.05-1.el9", "580.95.05-1", "", "0.1-2.el9")] == [
            *(True, True, True, False)
        ]
    theirs = [one for one in BESIDE if "debian" not in one[0] and "pinning" not in one[0]]
    theirs += [("nvidia-driver-more", "0.1")]
    more = "".join(f"rpm|{name}|0|{v}|1|noarch|{name.replace('-more', '')}-{v}-1.src.rpm\n" for name, v in theirs)
    there = {"os_release": ROCKY, "packages": rpm(R580) + more}
    for name in ("packages", "held"):
        assert ask(f"nvidia_driver.{name}", None, **there).status == "pass"
    makers = "".join(f"row|{n}|0:{v}-1|{n.replace('-more', '')}-{v}-1.src.rpm|noarch|NVIDIA\n" for n, v in theirs)
    more_there = {**there, "package_index": repoquery(R580), "driver_makers": f"own|x86_64\n{makers}"}
    assert ask("nvidia_driver.resolvable", None, **more_there).status == "pass"
