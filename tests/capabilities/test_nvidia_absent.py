"""nvidia_absent: what is left of NVIDIA's software by name, what contradicts it, and what the role removes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.nvidia_absent.desired import DESIRED, make
from gpuprov.capabilities.nvidia_absent.fragment import NvidiaAbsent
from gpuprov.capabilities.nvidia_absent.tasks import TASKS
from gpuprov.catalog.software import is_software
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.driver.leftovers import BLACKLISTS
from gpuprov.host_code.driver.loaded import STACK
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities import absent_host as ah
from tests.capabilities import contexts
from tests.capabilities.asking import PODMAN, Row, good, initrd, judge
from tests.facts.probes import captured
from tests.rows import run_each

BLOCK = NvidiaAbsent()
PROCESS = "4711|python3|user.slice\nlooked\n"
SERVICE = "900|nvidia-persiste|nvidia-persistenced.service\nlooked\n"
RECORD = "record|1.0-5809505 (580.95.05)\n"
RUNFILE = f"program|/usr/bin/nvidia-uninstall\n{RECORD}"
BARE: dict[str, Output | str] = {
    "nvidia_software": ah.software(),
    "nvidia_units": ah.units(),
    "nouveau_blacklists": ah.blacklists(),
    "loaded_modules": "ext4 16384 1 - Live 0x0\n",
    "kernels": "6.1.0-47-amd64|1|1||1\n",
    "nvidia_libraries": "looked\n",
    "initramfs": initrd(),
    "gpu_clients": "looked\n",
}
"""A host without NVIDIA's software."""
I386 = {"nvidia_software": ah.software(libcuda1__i386="535.261.03-1")}
MACHINE = {"os_release": "ID=arch\nPRETTY_NAME=Arch\n"}


def only(check: str, **texts: Output | str) -> dict[str, Output | str]:
    """The host without the software, as far as a check reads it, with these texts."""
    read = {probe.name for each in BY_NAME["nvidia_absent"].checks if each.id == check for probe in each.probes}
    return {name: text for name, text in {**BARE, **texts}.items() if name in read}


def of(check: str) -> str:
    return f"nvidia_absent.{check}"


CLEAN = (
    "packages",
    "runfile",
    "loaded",
    "modules",
    "libraries",
    "units",
    "initramfs",
    "nouveau",
    "removable",
    "clients",
)
ROWS = [
    *(Row(f"clean: {name}", of(name), None, only(of(name)), "pass") for name in CLEAN),
    Row("packages, without X's client", of("packages"), None, {}, "fail",
        "libcuda1=535.261.03-1 nvidia-smi=535.261.03-1",
        "gpuprov apply", change="package nvidia-smi: 535.261.03-1 -> "),
    Row("a package of another architecture", of("packages"), None, I386, "fail", "libcuda1:i386=535.261.03-1"),
    Row("a package known by its source alone", of("packages"), None,
        {"nvidia_software": ah.software(nvidia_detect="535.261.03-1")},
        "fail", "nvidia-detect=535.261.03-1"),
    Row("a family without names", of("packages"), None, {**MACHINE, "nvidia_software": ""}, "error"),
    Row("a runfile's driver", of("runfile"), None, {"runfile": RUNFILE}, "fail",
        "driver 580.95.05: /usr/bin/nvidia-uninstall",
        change="package NVIDIA's runfile: 580.95.05 -> "),
    Row("a runfile's programs alone", of("runfile"), None, {"runfile": "program|/usr/bin/nvidia-installer\n"}, "fail",
        "of unknown version"),
    Row("a record that may not be read", of("runfile"), None, {"runfile": "unreadable|\n"}, "fail", "may not be read"),
    Row("its uninstaller is there", of("removable"), None, {"runfile": RUNFILE}, "pass", "/usr/bin/nvidia-uninstall"),
    Row("its uninstaller is gone", of("removable"), None, {"runfile": RECORD}, "fail", "driver 580.95.05",
        "580.95.05.run --uninstall"),
    Row("loaded", of("loaded"), None, {}, "fail", "nvidia", "gpuprov apply",
        change="module nvidia: loaded -> unloaded"),
    Row("loaded, and in use", of("loaded"), None,
        {"reboot_reasons": "nvidia_absent|nvidia is in use and leaves only with a reboot\n"}, "fail", "nvidia",
        reboot="leaves only with a reboot"),
    *(Row(f"{name} loaded", of("loaded"), None, {"loaded_modules": f"{name} 16384 0 - Live 0x0\n"}, "fail", name,
          change=f"module {name}: loaded -> unloaded") for name in ("nvidia_fs", "nvidia_vgpu_vfio")),
    Row("a machine's modules", of("loaded"), None, PODMAN, "skip"),
    Row("a module on disk", of("modules"), None, {}, "fail", "535.261.03 for 6.1.0-47-amd64", "gpuprov apply",
        change="module nvidia for 6.1.0-47-amd64: 535.261.03 -> removed"),
    Row("a module of no package", of("modules"), None, {"nvidia_software": ah.software()}, "fail", "535.261.03",
        "dpkg -S $(modinfo -k 6.1.0-47-amd64 -n nvidia)"),
    Row("libraries", of("libraries"), None, {}, "fail", ah.LIBRARY, "gpuprov apply"),
    Row("a library of no package", of("libraries"), None, {"nvidia_software": ah.software()}, "fail", ah.LIBRARY,
        f"no package that gpuprov knows brought it: dpkg -S {ah.LIBRARY}"),
    Row("ldconfig is missing", of("libraries"), None, {"nvidia_libraries": Output("", 127)}, "error"),
    Row("a unit", of("units"), None, {}, "fail", "nvidia-persistenced.service (active)", "gpuprov apply",
        change="service nvidia-persistenced.service: active -> removed"),
    Row("a unit of no package", of("units"), None,
        {"nvidia_software": ah.software(), "nvidia_units": ah.units(nvidia_imex="inactive")}, "fail",
        "nvidia-imex.service (inactive)", "dpkg -S"),
    Row("the vGPU manager", of("units"), None, {"nvidia_units": ah.units(nvidia_vgpu_mgr="active")}, "fail",
        "nvidia-vgpu-mgr.service (active)"),
    Row("a unit of gpuprov's that no receipt knows", of("units"), None,
        {"nvidia_software": ah.software(), "nvidia_units": ah.units(gpuprov_mig="active")}, "fail",
        "gpuprov-mig.service (active)", "--value gpuprov-mig.service"),
    Row("units that dpkg left masked", of("units"), None,
        {"nvidia_units": ah.units(nvidia_imex="inactive").replace("loaded", "masked")}, "pass"),
    Row("systemd does not answer", of("units"), None, {"nvidia_units": ""}, "error"),
    Row("in an initramfs", of("initramfs"), None, {}, "fail", "/boot/initrd.img-6.1.0-47-amd64", "gpuprov apply",
        change="initramfs /boot/initrd.img-6.1.0-47-amd64:  -> rebuilt"),
    Row("nvidiafb is the kernel's own", of("initramfs"), None, {"initramfs": initrd("usr/lib/modules/x/nvidiafb.ko")},
        "pass"),
    Row("an image that cannot be read", of("initramfs"), None, {"initramfs": initrd(status=1)}, "fail", "not readable"),
    Row("no initramfs", of("initramfs"), None, {"initramfs": ""}, "skip"),
    Row("nouveau comes back", of("nouveau"), None, {}, "pass", "nouveau: may take the GPUs at the next boot",
        change=f"module nouveau: kept out by {ah.OURS}, {ah.OWNED} -> may take the GPUs at the next boot"),
    Row("the site keeps nouveau out", of("nouveau"), None,
        {"nouveau_blacklists": ah.blacklists(("/etc/modprobe.d/site.conf", ""))},
        "pass", "kept out by /etc/modprobe.d/site.conf"),
    Row("dpkg leaves what is in /etc", of("nouveau"), None,
        {"nouveau_blacklists": ah.blacklists(("/etc/modprobe.d/x.conf", "nvidia-smi"))}, "pass",
        "kept out by /etc/modprobe.d/x.conf"),
    Row("a package's in /lib goes", of("nouveau"), None,
        {"nouveau_blacklists": ah.blacklists(("/lib/modprobe.d/x.conf", "nvidia-smi"))}, "pass",
        "may take the GPUs"),
    Row("the command line does", of("nouveau"), None, {"nouveau_blacklists": ah.blacklists(("/proc/cmdline", ""))},
        "pass",
        "kept out by /proc/cmdline"),
    Row("a job holds a GPU", of("clients"), None, {"gpu_clients": PROCESS}, "fail", "python3 pid 4711", "--drain"),
    Row("a service holds a GPU", of("clients"), None, {"gpu_clients": SERVICE}, "pass", "1 service",
        change="client nvidia-persiste (nvidia-persistenced.service 900):  -> stopped"),
    Row("a machine's driver", of("clients"), None, PODMAN, "skip"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_nvidia_absent(row: Row) -> None:
    if row.status != "error":
        judge(row)
        return
    with pytest.raises(ProbeFailed):
        judge(row)


def test_nouveaus_own_block_keeps_it_out() -> None:
    host = contexts.spec(nvidia_absent=BLOCK, nouveau=BY_NAME["nouveau"].fragment())
    (check,) = [each for each in BY_NAME["nvidia_absent"].checks if each.id == of("nouveau")]
    outcome = check.run(Context(host, BLOCK, contexts.declared(check.probes, {})))
    assert outcome.found == f"nouveau: kept out by {ah.OURS}"


def test_places_that_keep_nouveau_out(tmp_path: Path) -> None:
    """The probe's own script, on a folder in place of the host's."""
    folder = tmp_path / "modprobe.d"
    folder.mkdir()
    (folder / "site.conf").write_text("# blacklist nothing\n blacklist  nouveau\n")
    (folder / "other.conf").write_text("#blacklist nouveau\nblacklist nouveau_x\n")
    (folder / "link.conf").symlink_to(folder / "site.conf")
    (tmp_path / "cmdline").write_text("ro quiet modprobe.blacklist=radeon,nouveau\n")
    script = BLACKLISTS.script.replace("/etc/modprobe.d", str(folder)).replace("/proc/cmdline", f"{tmp_path}/cmdline")
    done = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
    entries = [entry for entry in BLACKLISTS.parse(Output(done.stdout)) if entry.place.startswith(str(tmp_path))]
    assert [(entry.place.removeprefix(f"{tmp_path}/"), entry.owner, entry.linked) for entry in entries] == [
        ("modprobe.d/link.conf", "", True),
        ("modprobe.d/site.conf", "", False),
        ("cmdline", "", False),
    ]


def made(**texts: Output | str) -> dict[str, Any]:
    host = HostSpec(name="gpu1", capabilities={"nvidia_absent": BLOCK})
    return make(Context(host, BLOCK, contexts.declared(DESIRED.probes, texts)))


def bare() -> dict[str, Output | str]:
    read = {probe.name for probe in DESIRED.probes}
    return {name: text for name, text in BARE.items() if name in read}


def test_what_the_role_removes() -> None:
    values = made(kernels_held="linux-image-amd64\n")
    assert values["remove"] == ["libcuda1", "nvidia-smi"]
    assert values["release"] == ["libcuda1", "nvidia-smi", "linux-image-amd64"], (
        "held ones, and kernels held for modules"
    )
    (packages,) = DESIRED.packages(values)
    assert (packages.remove, packages.is_driver) == (("libcuda1", "nvidia-smi"), False)
    assert "glx-diversions" in packages.may_remove
    (pattern,) = packages.refuse["patterns"]
    assert re.fullmatch(pattern, "libnvidia-tesla-cuda1"), "another that its dependents take would come instead"
    assert {"/etc/apt/sources.list.d/gpuprov-nvidia.sources", "/var/lib/gpuprov/runfile.json"} < {*values["absent"]}
    tasks = values["tasks"]
    assert {"stop", "unload_first", "unload", "forget", "images", "start"} == tasks.keys()
    assert tasks["unload"] == {"modules": [*STACK]}
    assert tasks["images"] == {"images": ["/boot/initrd.img-6.1.0-47-amd64"]}
    assert "nvidia-persistenced.service" in tasks["start"]["leave"]


def test_a_second_run_has_nothing_to_do() -> None:
    values = made(**bare())
    assert (values["remove"], values["release"]) == ([], [])
    assert values["tasks"].keys() == {"unload", "forget", "start"}, "none of which changes anything"


@run_each(
    ("texts", "tasks"),
    [
        ({"runfile": RUNFILE}, {"uninstall"}),
        ({"runfile": RECORD}, set()),
        ({"loaded_modules": captured("loaded_modules", "driver_in_use")}, {"stop", "unload_first"}),
        ({"loaded_modules": captured("loaded_modules", "driver_in_use"), **PODMAN}, set()),
    ],
    ids=["runfile", "runfile without an uninstaller", "loaded", "container"],
)
def test_steps_are_needed_where_something_is_there(texts: dict[str, Output | str], tasks: set[str]) -> None:
    values = made(**{**bare(), **texts})
    assert values["tasks"].keys() - {"unload", "forget", "start"} == tasks
    assert not tasks or "uninstall" not in tasks or values["tasks"]["uninstall"]["path"] == "/usr/bin/nvidia-uninstall"


def test_the_kernels_part_is_taken_back() -> None:
    assert BY_NAME["nvidia_absent"].contribute(HostSpec(name="gpu1"), BLOCK) == Kernel()
    assert "nvidia_absent" in BY_NAME["kernel"].follows
    assert TASKS.keys() == {"assert", "install", "configure", "service"}


@run_each(
    ("family", "names"),
    [
        ("debian", "libcuda1 nvidia-kernel-dkms glx-alternative-nvidia nvidia-dkms-580-server-open "
         "cuda-toolkit-12-8 libcublas-12-8 libcudnn9-cuda-12 libnccl2 nvidia-container-toolkit libnvidia-container1 "
         "datacenter-gpu-manager-4-core nvidia-fabricmanager-535 libnvidia-nscq-535 nvlsm nvidia-imex gdrdrv-dkms "
         "nvidia-fs-dkms nvidia-fs nvidia-gds nvidia-gds-12-8 nvidia-vgpu-ubuntu-570 nvidia-driver-assistant "
         "linux-signatures-nvidia-6.8.0-31 linux-modules-nvidia-580-server-6.8.0-31-generic nvidia-cuda-toolkit"),
        ("redhat", "nvidia-driver-cuda kmod-nvidia-open-dkms nvidia-fabric-manager gdrcopy akmod-nvidia libnvidia-ml "
         "nvidia-fs nvidia-gds NVIDIA-vGPU-rhel nvidia-driver-assistant"),
        ("suse", "nvidia-open-driver-G06-signed-cuda-kmp-default nvidia-compute-utils-G06 nvidia-gds "
                 "nvidia-driver-assistant"),
    ],
)  # fmt: skip
def test_packages_of_nvidias_software(family: str, names: str) -> None:
    assert [name for name in names.split() if not is_software(name, family)] == []


@run_each("family", ["debian", "redhat", "suse"])
def test_packages_of_others(family: str) -> None:
    names = (
        "dkms gcc make glx-diversions libxnvctrl0 nvidia-libXNVCtrl xserver-xorg-video-nouveau nvtop doca-ofed "
        "kernel-devel"
    )
    assert [name for name in names.split() if is_software(name, family)] == []


def test_the_good_host_is_told_whole() -> None:
    assert ah.PROBES.keys() <= good().keys()
