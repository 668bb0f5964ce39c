"""nouveau and nova_core: out of modprobe, the initramfs and the running kernel."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import nouveau
from gpuprov.capabilities.nouveau import Nouveau
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import H100, Row, facts, initrd, judge
from tests.facts.probes import captured
from tests.rows import run_each

ONLY = Nouveau(modules=("nouveau",))
DASHED = Nouveau(modules=("nova-core",))
BOUND = captured("nvidia_functions", "nouveau_bound")
LOADED = captured("loaded_modules", "nouveau")
UNUSED = "nova_core 65536 0 - Live 0x0000000000000000\n"
NOUVEAU_KO = "usr/lib/modules/6.1.0-47-amd64/kernel/drivers/gpu/drm/nouveau/nouveau.ko"
NOVA_KO = "usr/lib/modules/6.12.1/kernel/drivers/gpu/nova-core/nova-core.ko.zst"
BOTH = initrd(NOUVEAU_KO, fresh=False, release="6.1.0-44-amd64") + initrd()

CONFIGURED, RUNNING, INITRAMFS = "nouveau.configured", "nouveau.running", "nouveau.initramfs"
ROWS = [
    Row("blacklisted", CONFIGURED, None, {}, "pass", "nouveau nova_core"),
    Row("dashes are underscores", CONFIGURED, DASHED, {}, "pass", "nova_core"),
    Row("one is not blacklisted", CONFIGURED, None,
        {"modprobe_config": captured("modprobe_config", "driver_installed")}, "fail", "not blacklisted: nova_core",
        "gpuprov apply", change="file /etc/modprobe.d/gpuprov.conf:  -> blacklist nova_core"),
    Row("the spec asks for one only", CONFIGURED, ONLY, {"modprobe_config": "blacklist nouveau\n"}, "pass"),
    Row("modprobe cannot be read", CONFIGURED, None, {"modprobe_config": ""}, "fail", "nouveau nova_core"),
    Row("not loaded", RUNNING, None, {}, "pass", "not loaded: nouveau nova_core"),
    Row("nouveau is loaded and in use", RUNNING, None, {"loaded_modules": LOADED, "nvidia_functions": BOUND}, "fail",
        "loaded: nouveau nova_core; bound: 0000:01:00.0 (nouveau)", "gpuprov apply",
        reboot="leaves only with a reboot", change="module nouveau: loaded -> unloaded"),
    Row("nova_core is loaded and not in use", RUNNING, None, {"loaded_modules": UNUSED}, "fail", "loaded: nova_core"),
    Row("bound, though the list of modules is empty", RUNNING, None, {"loaded_modules": "", "nvidia_functions": BOUND},
        "fail", "bound: 0000:01:00.0 (nouveau)", reboot="an in-tree driver is in use"),
    Row("nova_core is built into the kernel: its driver has another name than its module", RUNNING, None,
        {"nvidia_functions": H100.replace("nvidia", "NovaCore")}, "fail", "bound: 0000:19:00.0 (NovaCore)",
        reboot="an in-tree driver is in use"),
    Row("NovaCore, but the spec does not care", RUNNING, ONLY,
        {"nvidia_functions": H100.replace("nvidia", "NovaCore")}, "pass"),
    Row("loaded, but the spec does not care", RUNNING, ONLY, {"loaded_modules": UNUSED}, "pass"),
    Row("a container shows its machine's modules", RUNNING, None, {"container": "podman", "loaded_modules": LOADED},
        "skip"),
    Row("the initramfs is clean", INITRAMFS, None, {}, "pass", "1 image"),
    Row("nouveau inside, and the blacklist with it", INITRAMFS, None, {"initramfs": initrd(NOUVEAU_KO)}, "pass"),
    Row("no blacklist, and nouveau not inside", INITRAMFS, None, {"initramfs": initrd(fresh=False)}, "pass"),
    Row("nouveau inside the image of an older kernel", INITRAMFS, None, {"initramfs": BOTH}, "fail",
        "/boot/initrd.img-6.1.0-44-amd64 (nouveau)", "update-initramfs -u -k all",
        change="initramfs /boot/initrd.img-6.1.0-44-amd64:  -> rebuilt"),
    Row("nova_core inside, compressed", INITRAMFS, None, {"initramfs": initrd(NOVA_KO, fresh=False)}, "fail",
        "(nova_core)"),
    Row("an image that cannot be read", INITRAMFS, None, {"initramfs": initrd(status=1)}, "fail", "not readable",
        "run as root"),
    Row("no initramfs at all", INITRAMFS, None, {"initramfs": ""}, "skip", "no initramfs"),
    Row("a cloud kernel without nouveau", INITRAMFS, None, {"initramfs": initrd()}, "pass"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_nouveau(row: Row) -> None:
    judge(row)


def test_what_it_asks_of_the_kernel() -> None:
    assert nouveau.contribute(HostSpec(name="gpu1"), Nouveau()) == Kernel(
        blacklist=("nouveau", "nova_core"), module_options={"nouveau": {"modeset": 0}}
    )
    assert nouveau.contribute(HostSpec(name="gpu1"), DASHED).module_options == {}


OFF = "options nouveau modeset=0\n"


@run_each(
    ("text", "images", "fragment"),
    [
        ("blacklist nouveau\nblacklist nova_core\n" + OFF, initrd(), Nouveau()),
        ("blacklist nouveau\n" + OFF, "", ONLY),
        ("blacklist nova_core\n", initrd(), Nouveau(modules=("nova_core",))),
        ("blacklist nouveau\n", initrd(), None),
        ("blacklist nouveau\n" + OFF, initrd(fresh=False), None),
        ("blacklist radeon\n", initrd(), None),
    ],
)
def test_export(text: str, images: str, fragment: Nouveau | None) -> None:
    assert nouveau.export(facts(modprobe_config=text, initramfs=images)) == fragment
