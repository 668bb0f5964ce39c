"""What the next boot would load in place of the driver's modules, and parameters of the modules that a GPU decides
on."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.nvidia_driver.gsp import KEY as GSP
from gpuprov.capabilities.nvidia_driver.loading import in_initramfs
from gpuprov.spec.kernel import Kernel, Scalar
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import GOOD, H100, OPEN, Row, ask, facts, good, initrd, judge, packages
from tests.facts.probes import REAL
from tests.rows import run_each

INITRAMFS, AWAY = "nvidia_driver.initramfs", "nvidia_driver.kept_away"
IDS = "options vfio-pci ids=10DE:2330,10de:22a3"
KERNEL = "6.1.0-47-amd64"
MODULE = f"usr/lib/modules/{KERNEL}/updates/dkms/nvidia-current.ko"


def modprobe(*lines: str) -> dict[str, str]:
    return {"modprobe_config": "".join(f"{line}\n" for line in ("blacklist nouveau", *lines))}


def entries(*words: str, kernel: str = KERNEL) -> dict[str, str]:
    return {"boot_entries": "".join(f"\tlinux\t/boot/vmlinuz-{kernel} root=/dev/vda1 ro {one}\n" for one in words)}


def both(other: str) -> dict[str, str]:
    return entries("quiet", other)


ROWS = [
    Row("modules of now", INITRAMFS, None, {}, "pass", "no older NVIDIA module in 1 image"),
    Row("modules of before", INITRAMFS, None, {"initramfs": initrd(MODULE, "older")}, "fail",
        f"inside: /boot/initrd.img-{KERNEL}",
        "update-initramfs -u -k all"),
    Row("the kernel's own nvidiafb", INITRAMFS, None, {"initramfs": initrd(f"{KERNEL}/kernel/nvidiafb.ko", "older")},
        "pass"),
    Row("an image that cannot be read", INITRAMFS, None, {"initramfs": initrd(status=1)}, "skip", "not readable"),
    Row("nothing keeps it away", AWAY, None, {}, "pass", "nothing keeps it away"),
    Row("a command that loads nothing", AWAY, None, modprobe("install nvidia /bin/false"), "fail",
        "install nvidia /bin/false (modprobe.d)", "grep -rn install /etc/modprobe.d"),
    Row("the same of nvidia-uvm", AWAY, None, modprobe("install nvidia-uvm /usr/bin/true # cis"), "fail",
        "install nvidia_uvm"),
    Row("Debian's own commands", AWAY, None, modprobe("install nvidia modprobe -i nvidia-current $CMDLINE_OPTS",
        "install nvidia-drm modprobe nvidia-modeset ; modprobe -i nvidia-current-drm $CMDLINE_OPTS",
        "install floppy /bin/true", "softdep nvidia post: nvidia-uvm"), "pass", "nothing keeps it away"),
    Row("a blacklist", AWAY, None, modprobe("blacklist nvidia"), "pass",
        "by name loads it, as nvidia-modprobe does: nvidia"),
    Row("a blacklist in the entries", AWAY, None, entries("modprobe.blacklist=nvidia,nvidia_uvm"), "pass",
        "nvidia nvidia_uvm"),
    Row("the kernel's own", AWAY, None, entries("module_blacklist=nouveau,nvidia"), "fail",
        "module_blacklist=nouveau,nvidia (boot entries)", "update-grub"),
    Row("nouveau's alone", AWAY, None, entries("module_blacklist=nouveau"), "pass"),
    Row("in what gpuprov keeps", AWAY, None, both("gpuprov.kept module_blacklist=nvidia"), "pass"),
    Row("in a rescue entry", AWAY, None, both("single module_blacklist=nvidia"), "pass"),
    Row("in all but a rescue entry", AWAY, None, entries("module_blacklist=nvidia", "recovery"), "fail",
        "module_blacklist=nvidia"),
    Row("in all but what gpuprov keeps", AWAY, None, entries("module_blacklist=nvidia", "gpuprov.kept"), "fail",
        "nvidia (boot"),
    Row("in one of two", AWAY, None, both("module_blacklist=nvidia"), "pass"),
    Row("in another kernel's", AWAY, None, entries("module_blacklist=nvidia", kernel="6.0"), "pass"),
    Row("vfio-pci, which is not loaded early", AWAY, None, modprobe(IDS), "pass", "nothing loads vfio-pci early"),
    Row("vfio-pci by modules-load.d", AWAY, None, {**modprobe(IDS), "modules_load": "vfio-pci\n"}, "fail",
        "vfio-pci ids=10DE:2330,10de:22a3 (modprobe.d), which takes 0000:19:00.0", "grep -rn vfio /etc/modprobe.d"),
    Row("vfio-pci by a softdep", AWAY, None, modprobe(IDS, "softdep nvidia pre: vfio-pci"), "fail",
        "takes 0000:19:00.0"),
    Row("vfio-pci in an initramfs", AWAY, None, {**modprobe(IDS), "initramfs": initrd("a/vfio-pci.ko.zst")}, "fail",
        "takes"),
    Row("vfio-pci in the kernel", AWAY, None, {**entries("vfio-pci.ids=10de:2330"), "built_in_modules": "vfio-pci\n"},
        "fail",
        "vfio-pci ids=10de:2330 (boot entries), which takes 0000:19:00.0", "take vfio-pci.ids out"),
    Row("another GPU's", AWAY, None, {**modprobe("options vfio-pci ids=10de:1db6"), "modules_load": "vfio-pci\n"},
        "pass"),
    Row("a GPU that is vfio-pci's already", AWAY, None,
        {**modprobe(IDS), "modules_load": "vfio-pci\n", "nvidia_functions": H100.replace(" nvidia", " vfio-pci")},
        "pass"),
    Row("no image", INITRAMFS, None, {"initramfs": ""}, "skip", "no initramfs in /boot"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_loading(row: Row) -> None:
    judge(row)


def test_apply_makes_images_only_where_something_goes_into_them() -> None:
    told = facts(**{**good(), "initramfs": initrd(MODULE, "older")})
    for blocks, changes in (({}, 0), ({"kernel": Kernel(blacklist=("nouveau",))}, 1)):
        host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(), **blocks})
        assert len(in_initramfs.run(Context(host, NvidiaDriver(), told)).changes) == changes


A100, B200, V100 = "A100-SXM4-80GB", "B200", "V100-SXM2-32GB"


def refused(gpu: str, value: Scalar = 0, **fields: str) -> bool:
    driver = NvidiaDriver(module_parameters={GSP: value}, **fields)  # type: ignore[arg-type]
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu) if gpu else None, capabilities={"nvidia_driver": driver})
    return any(GSP in one.message and one.severity == "error" for one in nvidia_driver.rules(host, driver))


@run_each(
    ("gpu", "fields", "wrong"),
    [
        (A100, {"version": "580"}, True),
        (A100, {"version": "580", "kernel_modules": "open"}, True),
        (A100, {"version": "580", "kernel_modules": "proprietary"}, False),
        (A100, {"version": "550"}, False),
        (A100, {}, False),
        (B200, {}, True),
        (V100, {"version": "580"}, False),
        ("", {"version": "580"}, False),
        ("", {"version": "580", "kernel_modules": "open"}, True),
    ],
)
def test_where_the_modules_will_be_open(gpu: str, fields: dict[str, str], wrong: bool) -> None:
    assert refused(gpu, **fields) is wrong


@run_each(("value", "off"), [(0, True), ("0x10", True), (False, True), (1, False), (18, False), ("2", False)])
def test_the_bits_that_switch_it_off(value: Scalar, off: bool) -> None:
    assert refused(B200, value) is off


@run_each(("flavour", "status"), [("open", "fail"), ("proprietary", "pass")])
def test_what_open_modules_show_is_not_in_force(flavour: str, status: str) -> None:
    """https://github.com/NVIDIA/open-gpu-kernel-modules/issues/820"""
    module = {"open": "nvidia_current_open", "proprietary": "nvidia_current"}[flavour]
    driver = NvidiaDriver(kernel_modules=flavour, module_parameters={GSP: 0})  # type: ignore[arg-type]
    there = {"packages": packages(OPEN)} if flavour == "open" else {}
    found = ask(
        "nvidia_driver.module_parameters",
        driver,
        modprobe_config=f"options {module} {GSP}=0\n",
        driver_parameters="EnableGpuFirmware: 0\n",
        **there,
    )
    assert found.status == status
    if status == "fail":
        assert found.found == f"{GSP} has no effect: open kernel modules always run with GSP firmware"


COHERENT = "NVreg_CoherentGPUMemoryMode"


def problems(driver: NvidiaDriver, gpu: str = "GB200", *, kubernetes: bool = True) -> list[tuple[str, str]]:
    others: dict[str, Fragment] = {"nvidia_driver": driver} | ({"kubernetes": Kubernetes()} if kubernetes else {})
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu), capabilities=others)
    return [(one.severity, one.message) for one in nvidia_driver.rules(host, driver) if COHERENT in one.message]


def test_superchips_under_kubernetes() -> None:
    for gpu in ("GB200", "GB300", "GH200-96GB"):
        ((severity, message),) = problems(NvidiaDriver(version="580"), gpu)
        assert severity == "warning"
        assert f"{gpu} under Kubernetes: without {COHERENT}=driver" in message
        assert len(problems(NvidiaDriver(), gpu)) == 1
    said = NvidiaDriver(version="580", module_parameters={COHERENT: "driver"})
    assert problems(said) == []
    assert problems(NvidiaDriver(version="580"), kubernetes=False) == []
    assert problems(NvidiaDriver(version="580"), "H100-SXM5-80GB") == []
    assert problems(NvidiaDriver(version="570")) == []


def test_what_the_driver_does_not_know() -> None:
    ((severity, message),) = problems(NvidiaDriver(version="570", module_parameters={COHERENT: "driver"}))
    assert (severity, "from branch 580 on, and the branch is 570" in message) == ("error", True)
    ((severity, message),) = problems(NvidiaDriver(version="580", module_parameters={COHERENT: "Driver"}))
    assert (severity, message) == ("error", f'nvidia_driver.module_parameters.{COHERENT} is "Driver"')


def test_the_loaded_driver_has_it() -> None:
    """The parameters are those of a real driver of branch 580, which was loaded without it."""
    asked = NvidiaDriver(module_parameters={COHERENT: "driver"})
    (file,) = (REAL / "params-580").glob("*.txt")
    text = file.read_text(encoding="utf-8")
    config = f"{GOOD['modprobe_config']}options nvidia {COHERENT}=driver\noptions nvidia_current {COHERENT}=driver\n"
    late = ask("nvidia_driver.module_parameters", asked, modprobe_config=config, driver_parameters=text)
    assert (late.status, bool(late.reboot)) == ("fail", True)
    took = text.replace('CoherentGPUMemoryMode: ""', 'CoherentGPUMemoryMode: "driver"')
    assert (
        ask("nvidia_driver.module_parameters", asked, modprobe_config=config, driver_parameters=took).status == "pass"
    )
