"""nvidia_driver, as it is: packages, holds, modules, user space, parameters; each failing branch and the field's known
bugs."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import GOOD, NEWER, OPEN, PODMAN, VERSION, Row, facts, judge, packages
from tests.facts.probes import captured
from tests.rows import run_each

EXACT = NvidiaDriver(version="535.261.03")
OPEN_WANTED = NvidiaDriver(kernel_modules="open")
PROFILING = NvidiaDriver(module_parameters={"NVreg_RestrictProfilingToAdminUsers": False})
OPEN_LOADED = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.261.03  Release Build  (dvs)  Thu Oct 10\n"


def built(*versions: str, headers: bool = True) -> str:
    """Installed kernels, oldest first, each with its NVIDIA module."""
    return "".join(f"6.1.0-{44 + n}-amd64|1|{int(headers)}|{version}|1\n" for n, version in enumerate(versions))


def without(name: str) -> str:
    return "".join(line for line in packages().splitlines(keepends=True) if f"|{name}|" not in line)


PACKAGES, FLAVOUR, HELD = "nvidia_driver.packages", "nvidia_driver.flavour", "nvidia_driver.held"
HEADERS, BUILT, AUTO = "nvidia_driver.headers", "nvidia_driver.modules_built", "nvidia_driver.autobuild"
META = (
    "ii |linux-image-cloud-amd64|6.1.174-1|linux-signed-amd64\nii "
    "|linux-image-6.1.0-47-amd64|6.1.174-1|linux-signed-amd64\n"
)
HALF = {"packages": packages(libcuda1=("hi ", NEWER), nvidia_driver=("hi ", VERSION))}
ROWS = [
    Row("the set is whole", PACKAGES, None, {}, "pass", "535.261.03, 12 packages"),
    Row("the exact version", PACKAGES, EXACT, {}, "pass", "535.261.03"),
    Row("nothing is installed", PACKAGES, None, {"packages": ""}, "fail", "not installed: nvidia-kernel-dkms",
        "gpuprov apply"),
    Row("one package is missing", PACKAGES, None, {"packages": without("libcuda1")}, "fail", "not installed: libcuda1"),
    Row("the 32-bit library stayed behind", PACKAGES, None,
        {"packages": f"native|amd64\nhi |libcuda1|{NEWER}|nvidia-graphics-drivers|i386\n{packages()}"}, "fail",
        "libcuda1=535.261.03 libcuda1:i386=535.309.01"),
    Row("the metapackage is pinned, and user space moved on", PACKAGES, None, HALF, "fail",
        "mixed versions: firmware-nvidia-gsp=535.261.03 libcuda1=535.309.01", "gpuprov plan"),
    Row("a package outside the set, of the same source, has another version", PACKAGES, None,
        {"packages": packages(libnvidia_encode1=("ii ", NEWER))}, "fail", "libnvidia-encode1=535.309.01"),
    Row("half configured after a failed DKMS build", PACKAGES, OPEN_WANTED,
        {"packages": packages(OPEN, nvidia_open_kernel_dkms=("iF ", VERSION))}, "fail",
        "incomplete: nvidia-open-kernel-dkms", "dpkg --configure -a"),
    Row("another branch is wanted", PACKAGES, NvidiaDriver(version="550"), {}, "fail", "535.261.03", "gpuprov apply"),
    Row("another version is wanted", PACKAGES, NvidiaDriver(version="535.309.01"), {}, "fail", "535.261.03"),
    Row("only configuration files are left", PACKAGES, None, {"packages": packages(state="rc ")}, "fail",
        "not installed"),
    Row("proprietary, installed and loaded", FLAVOUR, None, {}, "pass", "proprietary"),
    Row("nothing loaded yet", FLAVOUR, None, {"loaded_driver": ""}, "pass", "proprietary"),
    Row("the wrong flavour is loaded", FLAVOUR, None, {"loaded_driver": OPEN_LOADED}, "fail", "loaded: open",
        "reload it or reboot", reboot="the other flavour is loaded"),
    Row("a container shows its machine's module", FLAVOUR, None, {**PODMAN, "loaded_driver": OPEN_LOADED}, "pass"),
    Row("the wrong flavour is installed", FLAVOUR, OPEN_WANTED, {}, "fail", "proprietary", "one transaction"),
    Row("both flavours are installed", FLAVOUR, None, {"packages": packages(nvidia_open_kernel_dkms=("ii ", VERSION))},
        "fail", "proprietary and open"),
    Row("no modules are installed", FLAVOUR, None, {"packages": ""}, "fail", "none installed"),
    Row("held as a set", HELD, None, {}, "pass", "12 packages held"),
    Row("one package is not held", HELD, None, {"packages": packages(libcuda1=("ii ", VERSION))}, "fail",
        "not held: libcuda1", "apt-mark hold libcuda1", change="hold libcuda1: not held -> held"),
    Row("not held, as asked", HELD, NvidiaDriver(hold=False), {"packages": packages(state="ii ")}, "pass", "not held"),
    Row("held, against the spec", HELD, NvidiaDriver(hold=False), {}, "fail", "held: firmware-nvidia-gsp",
        "apt-mark unhold"),
    Row("nothing to hold", HELD, None, {"packages": ""}, "fail", "no package of the driver is installed"),
    Row("headers for each kernel", HEADERS, None, {"kernels": built("535.261.03", "535.261.03")}, "pass",
        "6.1.0-45-amd64"),
    Row("a kernel without headers", HEADERS, None,
        {"kernels": captured("kernels", "three").text.replace("6.1.0-44-amd64|1|0||1", "6.1.0-44-amd64|1|0||1||1")},
        "fail", "none for 6.1.0-44-amd64", "gpuprov apply",
        change="package linux-headers-6.1.0-44-amd64:  -> installed"),
    Row("an old kernel whose headers are gone from the archive", HEADERS, None,
        {"kernels": captured("kernels", "three")}, "pass",
        "left out, without headers and neither running nor next: 6.1.0-44-amd64"),
    Row("nor are its modules asked for", BUILT, None,
        {"kernels": "6.1.0-44-amd64|1|0||1||\n6.1.0-47-amd64|1|1|535.261.03|1|6.1.0-47-amd64|1\n"}, "pass",
        "535.261.03 for 6.1.0-47-amd64; left out, without headers and neither running nor next: 6.1.0-44-amd64"),
    Row("the newest kernel is never left out", BUILT, None,
        {"kernels": "6.1.0-47-amd64|1|1|535.261.03|1||1\n6.1.0-48-amd64|1|0||1||\n"}, "fail", "6.1.0-48-amd64: none"),
    Row("nor is the running one", BUILT, None,
        {"kernels": "6.1.0-44-amd64|1|0||1||1\n6.1.0-47-amd64|1|1|535.261.03|1||\n"}, "fail", "6.1.0-44-amd64: none"),
    Row(
        "built for the kernel that ran, as NVIDIA's rpm once did",
        BUILT,
        None,
        {
            "kernels": "6.12.10-200.fc41.x86_64|1|1|535.261.03|1|6.12.10-200.fc41.x86_64|1\n"
            "6.12.15-200.fc41.x86_64|1|1|535.261.03|1|6.12.10-200.fc41.x86_64|\n"
        },
        "fail",
        "6.12.15-200.fc41.x86_64: 535.261.03 is for 6.12.10-200.fc41.x86_64",
        "boots without a driver",
    ),
    Row("the next kernel will come without headers", HEADERS, None, {"packages": packages() + META}, "fail",
        "the next kernel comes without: linux-headers-cloud-amd64 not installed", "gpuprov apply",
        change="package linux-headers-cloud-amd64:  -> installed"),
    Row("headers come with the next kernel", HEADERS, None,
        {"packages": packages() + META + META.replace("image", "headers")}, "pass"),
    Row("what brings the generic kernel", HEADERS, None,
        {"packages": packages() + META.replace("cloud-amd64", "extra-virtual")}, "fail",
        "the next kernel comes without: linux-headers-generic not installed"),
    Row("an image of one kernel is not a metapackage", HEADERS, None,
        {"packages": packages() + META.replace("cloud-amd64", "unsigned-6.8.0-45-generic")}, "pass"),
    Row("a container has headers only", HEADERS, None, {"kernels": captured("kernels", "driver_installed")}, "pass"),
    Row("no kernel at all", HEADERS, None, {"kernels": ""}, "fail", "no kernel and no kernel headers"),
    Row("modules for each kernel", BUILT, None, {"kernels": built("535.261.03", "535.261.03")}, "pass",
        "6.1.0-44-amd64 6.1"),
    Row("the newest kernel came without a DKMS build", BUILT, None, {"kernels": built("535.261.03", "")}, "fail",
        "6.1.0-45-amd64: none", "dkms status"),
    Row("modules of the version before", BUILT, None, {"kernels": built("535.216.03")}, "fail",
        "6.1.0-44-amd64: 535.216.03"),
    Row("no module package", BUILT, None, {"packages": ""}, "fail", "no kernel module package"),
    Row("no kernel to build for", BUILT, None, {"kernels": ""}, "fail", "no kernel found"),
    Row("DKMS builds by itself", AUTO, None, {}, "pass"),
    Row("the driver's own settings switch it off", AUTO, None,
        {"dkms_no_autoinstall": "conf|/etc/dkms/nvidia.conf|no\nhook|on|/etc/kernel/postinst.d/dkms\n"}, "fail",
        "/etc/dkms/nvidia.conf has AUTOINSTALL=no", 'AUTOINSTALL="yes" in /etc/dkms/nvidia.conf'),
    Row("no hook runs", AUTO, None,
        {"dkms_no_autoinstall": "hook|mode|/etc/kernel/postinst.d/dkms\nhook|mask|"
                                "/etc/kernel/install.d/40-dkms.install\n"},
        "fail", "/etc/kernel/postinst.d/dkms is not executable; /etc/kernel/install.d/40-dkms.install masks that of "
                "dkms",
        "chmod +x /etc/kernel/postinst.d/dkms; rm /etc/kernel/install.d/40-dkms.install"),
    Row("one hook runs", AUTO, None,
        {"dkms_no_autoinstall": "hook|mode|/etc/kernel/postinst.d/dkms\nhook|on|/etc/kernel/header_postinst.d/dkms\n"},
        "pass"),
    Row("it is built at the boot", AUTO, None,
        {"dkms_no_autoinstall": "hook|mode|/etc/kernel/postinst.d/dkms\nservice\n"},
        "pass"),
    Row("no-autoinstall was left behind", AUTO, None, {"dkms_no_autoinstall": "1\n"}, "fail", "no-autoinstall",
        "rm /etc/dkms"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_nvidia_driver(row: Row) -> None:
    judge(row)


def exported(text: str, options: str = "") -> object:
    given: dict[str, Output | str] = {key: GOOD[key] for key in ("os_release", "nvidia_functions")}
    told: Facts = facts(**given, packages=text, modprobe_config=options, runfile="")
    return nvidia_driver.CAPABILITY.export(told)


def test_export() -> None:
    assert exported("") is None
    assert exported(packages(), "options nvidia-current NVreg_EnableMSI=1\n") == NvidiaDriver(
        version="535.261.03", kernel_modules="proprietary", module_parameters={"NVreg_EnableMSI": "1"}
    )
    loose = NvidiaDriver(version="535.261.03", kernel_modules="open", hold=False)
    assert exported(packages(OPEN, state="ii ")) == loose
    ignored = "options nvidia-current-open NVreg_EnableGpuFirmware=0\n"
    assert exported(packages(OPEN, state="ii "), ignored) == loose, "a spec with it would be refused"


def test_parameters_are_contributed_under_every_name_of_the_module() -> None:
    kernel = nvidia_driver.contribute(HostSpec(name="gpu1"), PROFILING)
    assert kernel
    assert set(kernel.module_options) == {"nvidia", "nvidia-current", "nvidia-current-open"}
    assert nvidia_driver.contribute(HostSpec(name="gpu1"), NvidiaDriver()) is None
