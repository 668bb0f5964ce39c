"""kernel: what the host must be able to have before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.kernel.desired import FILES, OLD, PROGRAM
from gpuprov.capabilities.kernel.desired import make as make_values
from gpuprov.facts.probes.base import Output
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import Row, facts, good, judge
from tests.capabilities.kernel_host import frequency
from tests.rows import run_each

make: Callable[..., Any] = make_values


BOOT, KNOWN, SIZES, OFFERED = (
    f"kernel.{name}" for name in ("bootloader", "sysctl_known", "hugepage_sizes", "governor_offered")
)
LINE, PAGES, FAST = (
    Kernel(command_line={"iommu": "pt"}),
    Kernel(hugepages={"2M": 64}),
    Kernel(cpu_governor="performance"),
)
NO_GRUB = {"bootloader": "there|/boot/grub2\nabsent|/usr/sbin/grubby\n"}
METAL, GUEST, PODMAN = {"machine": "kind|none\n"}, {"machine": "kind|kvm\n"}, {"container": "podman\n"}


def values(text: str) -> dict[str, str]:
    return {"sysctl": text}


ROWS = [
    Row("no command line", BOOT, None, NO_GRUB, "n/a"),
    Row("GRUB", BOOT, LINE, {}, "pass", "GRUB"),
    Row("no grubby", BOOT, LINE, NO_GRUB, "fail", "no /usr/sbin/grubby", "set it in the bootloader by hand"),
    Row("in a container", BOOT, LINE, {**NO_GRUB, **PODMAN}, "fail", "a container has no command line of its own"),
    Row("no sysctl", KNOWN, None, {}, "n/a"),
    Row("known", KNOWN, Kernel(sysctl={"vm.swappiness": 1}), values("vm.swappiness = 60\n"), "pass",
        "1 sysctl can be set"),
    Row("unknown", KNOWN, Kernel(sysctl={"vm.nothing": 1}), values("vm.swappiness = 60\n"), "fail", "no vm.nothing",
        "correct the name"),
    Row("of a module that is still to come", KNOWN, Kernel(sysctl={"net.nothing": 1}, modules_load=("to_come",)),
        values("vm.swappiness = 60\n"), "pass"),
    Row("of a module that is there already", KNOWN, Kernel(sysctl={"net.nothing": 1}, modules_load=("nvidia",)),
        values("vm.swappiness = 60\n"), "fail", "no net.nothing"),
    Row("of a module that a container cannot load", KNOWN,
        Kernel(sysctl={"net.nothing": 1}, modules_load=("to_come",)), {**values("vm.swappiness = 60\n"), **PODMAN},
        "fail", "no net.nothing"),
    Row("fixed, and right", KNOWN, Kernel(sysctl={"kernel.ostype": "Linux"}), values("kernel.ostype = Linux\n"),
        "pass"),
    Row("fixed, and wrong", KNOWN, Kernel(sysctl={"kernel.ostype": "Plan9"}), values("kernel.ostype = Linux\n"),
        "fail", "kernel.ostype cannot be set, not even by root", "a kernel that has it writable"),
    Row("the machine's", KNOWN, Kernel(sysctl={"kernel.ostype": "Plan9"}),
        {**values("kernel.ostype = Linux\n"), **PODMAN}, "fail", "a container sees the settings of its machine",
        "set it on the machine below"),
    Row("no hugepages", SIZES, None, {}, "n/a"),
    Row("pages of 2M", SIZES, PAGES, {}, "pass"),
    Row("no such pages", SIZES, Kernel(hugepages={"1G": 1}), {"hugepages": "2048 0\n"}, "fail",
        "no pages of 1G; there are: 2048 KiB"),
    Row("another default", SIZES, PAGES, {"default_hugepage": "1048576\n"}, "fail", "which is 1048576 KiB here",
        "default_hugepagesz"),
    Row("any governor", OFFERED, None, {}, "n/a"),
    Row("offered", OFFERED, FAST, METAL, "pass", "performance in 2 policies"),
    Row("bare metal without", OFFERED, FAST, {**METAL, "cpu_frequency": frequency()}, "fail", "no frequency driver",
        "cpu_governor: keep"),
    Row("a guest without", OFFERED, FAST, {**GUEST, "cpu_frequency": frequency()}, "skip", "cannot set CPU frequencies"),
    Row("another's governors", OFFERED, Kernel(cpu_governor="ondemand"), METAL, "fail",
        "the driver has performance, powersave"),
    Row("in a container, governors", OFFERED, FAST, PODMAN, "skip", "the frequency is the machine's"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: row.name)
def test_preflight(row: Row) -> None:
    judge(row)


EVERYTHING = Kernel(
    command_line={"iommu": "pt", "nosmt": ""},
    blacklist=("nouveau",),
    module_options={"nvidia": {"NVreg_EnableStreamMemOPs": True, "NVreg_RegistryDwords": "a=1"}},
    modules_load=("ib-umad",),
    sysctl={"vm.swappiness": 1},
    limits={"memlock": "unlimited", "stack": 8192, "nofile": 65536},
    hugepages={"2M": 64},
    cpu_governor="performance",
)


def desired(kernel: Kernel, **changed: Output | str) -> dict[str, Any]:
    """Return the role's values, and what its tasks are handed."""
    values = make(Context(HostSpec(name="gpu1"), kernel, facts(**{**good(), **METAL, **changed})))
    return {**values, **values["tasks"]["running_kernel"], **values["tasks"]["boot"]}


def test_what_a_whole_block_comes_to() -> None:
    made = desired(EVERYTHING)
    files = made["files"]
    assert isinstance(files, dict)
    assert isinstance(made["units"], dict)
    bodies = {path: text.partition("\n")[2] for path, text in files.items()}
    assert bodies["/etc/modprobe.d/gpuprov.conf"] == (
        "blacklist nouveau\noptions nvidia NVreg_EnableStreamMemOPs=1\noptions nvidia NVreg_RegistryDwords=a=1\n"
    )
    assert bodies["/etc/modules-load.d/gpuprov.conf"] == "ib-umad\n"
    assert bodies["/etc/sysctl.d/90-gpuprov.conf"] == "vm.swappiness = 1\n"
    assert "* - memlock unlimited\nroot - memlock unlimited\n" in bodies["/etc/security/limits.d/90-gpuprov.conf"]
    assert (
        "DefaultLimitMEMLOCK=infinity\nDefaultLimitSTACK=8192K\nDefaultLimitNOFILE=65536\n"
        in bodies["/etc/systemd/system.conf.d/90-gpuprov.conf"]
    )
    assert bodies["/etc/default/grub.d/90-gpuprov.cfg"] == 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt nosmt"\n'
    assert (
        "Environment=PYTHONPATH=/usr/local/lib/gpuprov\nExecStart=@PYTHON@ -B -m kernel.governor set performance\n"
        in made["units"]["/etc/systemd/system/gpuprov-cpu-governor.service"]
    )
    assert made["absent"] == ["/etc/dracut.conf.d/90-gpuprov.conf", "/usr/local/lib/gpuprov/kernel/governor.sh"]
    assert made["limits"] == {
        "DefaultLimitMEMLOCK": "infinity",
        "DefaultLimitSTACK": "8388608",
        "DefaultLimitNOFILE": "65536",
    }
    assert (made["entries"], made["command_line"]) == ("update-grub", ["iommu=pt", "nosmt"])
    assert made["modules"] == ["ib_umad"]
    assert made["reboot"] == "the running kernel was started without nosmt"


def test_nothing_is_left_of_what_is_not_asked_for() -> None:
    made = desired(Kernel())
    assert (made["files"], made["absent"]) == ({}, [*FILES, *PROGRAM, OLD])
    assert (made["program"], made["reboot"], made["hugepages"]) == ({}, "", 0)


def test_on_el_the_entries_are_grubbys_and_dracut_is_told() -> None:
    made = desired(
        EVERYTHING, dracut="dracut\n", os_release='ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'
    )
    assert "/etc/default/grub.d/90-gpuprov.cfg" in made["absent"]
    assert "/etc/dracut.conf.d/90-gpuprov.conf" in made["files"]
    assert made["entries"] == "grub2"


def test_a_container_keeps_what_is_its_machines() -> None:
    made = desired(EVERYTHING, container="podman\n")
    assert (made["modules"], made["hugepages"], made["program"], made["reboot"]) == ([], 0, {}, "")


def test_a_kernel_that_was_started_so_needs_no_reboot() -> None:
    assert desired(EVERYTHING, command_line="root=/dev/vda ro iommu=pt nosmt\n")["reboot"] == ""
