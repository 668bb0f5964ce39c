"""kernel: modprobe.d, modules-load.d, sysctl, limits, command line, boot entries, initramfs."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import kernel
from gpuprov.spec.kernel import Kernel
from tests.capabilities.asking import BARE, PODMAN, Row, ask, facts, initrd, judge
from tests.facts.probes import captured
from tests.rows import run_each

NOTHING = Kernel()
OUT = Kernel(blacklist=("nouveau", "nova-core"))
OPTIONS = Kernel(module_options={"ib-core": {"send_queue_size": 128, "netns_mode": False}})
LOAD = Kernel(modules_load=("nvidia-uvm", "ib_core"))
SWAP = Kernel(sysctl={"vm.swappiness": 60, "net.ipv4.tcp_rmem": "4096 131072  33554432"})
LOCK = Kernel(limits={"memlock": "unlimited"})
LOCK_KIB = Kernel(limits={"memlock": 8192, "nofile": 524288})
WORDS = Kernel(command_line={"iommu": "pt", "quiet": ""})
IB = "options ib_core send_queue_size=128\noptions ib_core netns_mode=0\n"
FILE = "vm.swappiness=60\nnet.ipv4.tcp_rmem = 4096 131072 33554432\n"


def at_boot(text: str, path: str = "/etc/sysctl.d/90-gpuprov.conf") -> str:
    """What a boot sets, by this file."""
    return f"file|{path}\n" + "".join(f"line|{line}\n" for line in text.splitlines())


BOTH = "nvidia-uvm\nib_core\n"
SERVICES = captured("default_limits", "debian12")

BLACKLIST, MODULE_OPTIONS, MODULES_LOAD = "kernel.blacklist", "kernel.module_options", "kernel.modules_load"
SYSCTL, LIMITS, LINE = "kernel.sysctl", "kernel.limits", "kernel.command_line"
ENTRIES, INITRAMFS, BUILT = "kernel.boot_entries", "kernel.initramfs", "kernel.modules_built"
WEKA = Kernel(modules_built=("wekafsio", "gdr-drv"))
OLD, NEW = "6.1.0-47-amd64", "6.1.0-48-amd64"


def built(**kernels: str) -> dict[str, str]:
    """Two installed kernels of which the newer boots next; by module, for NEW, what its file says of the kernel it is
    for."""
    files = {
        name: "" if kernel == "none" else f"/lib/modules/{NEW}/updates/{name}.ko" for name, kernel in kernels.items()
    }
    rows = [f"{NEW}|{name}|{file}|{kernels[name] if file else ''}" for name, file in files.items()]
    both = "".join(f"{release}|1|1|535.261.03|1\n" for release in (OLD, NEW))
    return {"kernels": both, "modules_built": "\n".join(rows) + "\n"}


ROWS = [
    Row("no blacklist asked", BLACKLIST, NOTHING, {}, "n/a", "not in the spec"),
    Row("blacklisted, by either spelling", BLACKLIST, OUT, {}, "pass", "nouveau nova_core"),
    Row("one is missing", BLACKLIST, OUT, {"modprobe_config": "blacklist nouveau\n"}, "fail",
        "not blacklisted: nova_core", "/etc/modprobe.d/gpuprov.conf",
        change="file /etc/modprobe.d/gpuprov.conf:  -> blacklist nova_core"),
    Row("no options asked", MODULE_OPTIONS, NOTHING, {}, "n/a", "not in the spec"),
    Row("options, booleans as 0 and 1", MODULE_OPTIONS, OPTIONS, {"modprobe_config": IB}, "pass", "netns_mode=0"),
    Row("an option is missing", MODULE_OPTIONS, OPTIONS, {}, "fail", "ib-core: send_queue_size=missing",
        "gpuprov apply"),
    Row("another file sets the option later", MODULE_OPTIONS, OPTIONS,
        {"modprobe_config": f"{IB}options ib_core send_queue_size=64\nin /etc/modprobe.d/gpuprov.conf:options ib_core "
         "send_queue_size=128\nin /etc/modprobe.d/zz.conf:options  ib-core send_queue_size=64\n"}, "fail",
        "ib-core: send_queue_size=64", "take send_queue_size of ib-core out of /etc/modprobe.d/zz.conf"),
    Row("no module is asked for", BUILT, NOTHING, {}, "n/a", "not in the spec"),
    Row("built", BUILT, WEKA, built(wekafsio=NEW, gdr_drv=NEW), "pass",
        f"wekafsio gdr_drv for {NEW}, which boots next"),
    Row("not there", BUILT, WEKA, built(wekafsio="none", gdr_drv=NEW), "fail", f"{NEW}: no wekafsio", f"-k {NEW}"),
    Row("not read", BUILT, WEKA, built(wekafsio=NEW), "fail", f"{NEW}: no gdr_drv"),
    Row("of another kernel", BUILT, WEKA, built(wekafsio=OLD, gdr_drv=NEW), "fail", f"wekafsio is built for {OLD}"),
    Row("linked by weak-updates", BUILT, Kernel(modules_built=("lustre",)),
        {**built(), "modules_built": f"{NEW}|lustre|/lib/modules/{NEW}/weak-updates/lustre.ko|{OLD}\n"}, "pass",
        f"lustre for {NEW}"),
    Row("part of the kernel", BUILT, Kernel(modules_built=("fuse",)),
        {**built(), "modules_built": f"{NEW}|fuse|(builtin)|\n"}, "pass", f"fuse for {NEW}"),
    Row("a container", BUILT, WEKA, {**PODMAN, "kernels": ""}, "n/a", "a podman container's is the machine's"),
    Row("no modules asked", MODULES_LOAD, NOTHING, {}, "n/a", "not in the spec"),
    Row("configured and loaded", MODULES_LOAD, LOAD, {"modules_load": BOTH}, "pass", "nvidia_uvm ib_core"),
    Row("not configured", MODULES_LOAD, LOAD, {}, "fail", "not in modules-load.d: ib_core",
        change="file /etc/modules-load.d/gpuprov.conf:  -> nvidia_uvm ib_core"),
    Row("not loaded", MODULES_LOAD, LOAD, {"modules_load": BOTH, "loaded_modules": ""}, "fail", "not loaded: nvid",
        "modprobe nvidia_uvm"),
    Row("blacklisted, which no boot loads", MODULES_LOAD, LOAD,
        {"modules_load": BOTH, "modprobe_config": "blacklist ib_core\n"},
        "fail", "ib_core is blacklisted (modprobe.d), so that no boot loads it", "grep -rnE"),
    Row("with a command in its place", MODULES_LOAD, LOAD,
        {"modules_load": BOTH, "modprobe_config": "install nvidia-uvm /bin/false\n"}, "fail",
        "install nvidia_uvm /bin/false"),
    Row("with a command that loads it", MODULES_LOAD, LOAD,
        {"modules_load": BOTH, "modprobe_config": "install nvidia_uvm /sbin/modprobe -i nvidia_uvm\n"}, "pass"),
    Row("part of the kernel itself", MODULES_LOAD, LOAD,
        {"modules_load": BOTH, "loaded_modules": "", "built_in_modules": "nvidia-uvm\nib_core\n"}, "pass"),
    Row("a container loads nothing", MODULES_LOAD, LOAD, {"modules_load": BOTH, "loaded_modules": "", **PODMAN},
        "pass"),
    Row("a kernel without an initramfs", INITRAMFS, OUT,
        {"kernels": "6.1.0-47-amd64|1|1||1\n6.1.0-50-amd64|1|1||1\n", "initramfs": initrd()}, "fail",
        "none for 6.1.0-50-amd64", "update-initramfs -c -k 6.1.0-50-amd64",
        change="initramfs /boot/initrd.img-6.1.0-50-amd64:  -> made"),
    Row("no sysctl asked", SYSCTL, NOTHING, {"sysctl": BARE["sysctl"]}, "n/a", "not in the spec"),
    Row("set now and kept", SYSCTL, SWAP, {"sysctl_at_boot": at_boot(FILE)}, "pass", "vm.swappiness=60"),
    Row("which a later file sets otherwise at a boot", SYSCTL, SWAP,
        {"sysctl_at_boot": at_boot(FILE) + "file|/etc/sysctl.d/99-site.conf\nline|-vm/swappiness=10\n"}, "fail",
        "right now, but not kept: vm.swappiness=10 (/etc/sysctl.d/99-site.conf)",
        "take vm.swappiness out of /etc/sysctl.d/99-site.conf"),
    Row("which a file before it sets otherwise", SYSCTL, SWAP,
        {"sysctl_at_boot": "file|/usr/lib/sysctl.d/10-a.conf\nline|vm.swappiness=10\n" + at_boot(FILE)}, "pass"),
    Row("another value now", SYSCTL, Kernel(sysctl={"vm.swappiness": 10}), {}, "fail", "vm.swappiness=60",
        "gpuprov apply"),
    Row("a name the kernel does not have", SYSCTL, Kernel(sysctl={"vm.swapiness": 1}), {}, "fail",
        "vm.swapiness=missing"),
    Row("right now, but not kept", SYSCTL, SWAP, {}, "fail", "right now, but not kept: net.ipv4.tcp_rmem=missing"),
    Row("no limits asked", LIMITS, NOTHING, {"login_limits": ""}, "n/a", "not in the spec"),
    Row("unlimited for both", LIMITS, LOCK, {}, "pass", "memlock=unlimited"),
    Row("services have the default", LIMITS, LOCK, {"default_limits": SERVICES}, "fail", "service memlock=8192",
        "restarted"),
    Row("logins have the default", LIMITS, LOCK, {"login_limits": ""}, "fail", "login memlock=missing"),
    Row("KiB for logins are bytes for services", LIMITS, LOCK_KIB,
        {"login_limits": "* - memlock 8192\n* - nofile 524288\n",
        "default_limits": "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=524288\n"}, "pass", "memlock=8192"),
    Row("a soft limit below the hard one", LIMITS, Kernel(limits={"nofile": 524288}),
        {"login_limits": "* - nofile 524288\n* soft nofile 1024\n", "default_limits": SERVICES}, "fail",
        "login nofile=1024:524288; service nofile=1024:524288"),
    Row("root and a group have lines of their own, which go first", LIMITS, LOCK,
        {"login_limits": "file|/etc/security/limits.d/99-site.conf\n* - memlock unlimited\nroot soft memlock "
                         "64\n@gpu - memlock 64\n"},
        "fail", "login of root has memlock 64:unset (/etc/security/limits.d/99-site.conf); login of @gpu has "
                "memlock 64",
        "take memlock of @gpu out of /etc/security/limits.d/99-site.conf"),
    Row("a later file of the site", LIMITS, LOCK,
        {"login_limits": "file|/etc/security/limits.d/99-site.conf\n* - memlock 64\n"}, "fail", "login memlock=64",
        "take memlock of * out of /etc/security/limits.d/99-site.conf"),
    Row("a single user of a service is shown", LIMITS, LOCK,
        {"login_limits": "* - memlock unlimited\nmysql - memlock 64\n"},
        "pass", "memlock=unlimited; but mysql has memlock 64"),
    Row("a group with more", LIMITS, LOCK_KIB,
        {"login_limits": "* - memlock 8192\n* - nofile 524288\n@gpu - memlock unlimited\n",
         "default_limits": "DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=524288\n"}, "pass", "memlock=8192"),
    Row("bytes that happen to have the wanted number", LIMITS, Kernel(limits={"memlock": 8191}),
        {"login_limits": "* - memlock 8191\n", "default_limits": "DefaultLimitMEMLOCK=8191\n"}, "fail",
        "service memlock=8191 bytes"),
    Row("systemd does not answer", LIMITS, LOCK, {"default_limits": ""}, "fail", "service memlock=missing"),
    Row("no parameters asked", LINE, NOTHING, {}, "n/a", "not in the spec"),
    Row("started with them", LINE, WORDS, {}, "pass", "iommu=pt quiet"),
    Row("started without them", LINE, WORDS, {"command_line": "ro quiet iommu=on\n"}, "fail", "iommu=on",
        "then a reboot", reboot="the kernel command line should hold iommu=pt quiet"),
    Row("a container has none", LINE, WORDS, PODMAN, "skip", "no kernel command line"),
    Row("a container of which none is asked", LINE, NOTHING, PODMAN, "n/a"),
    Row("no entries asked", ENTRIES, NOTHING, {}, "n/a", "not in the spec"),
    Row("every entry carries them", ENTRIES, WORDS, {}, "pass", "in 1 boot entry"),
    Row("an older kernel's entry lacks one; rescue entries do not count", ENTRIES, WORDS,
        {"boot_entries": captured("boot_entries", "grub")}, "fail", "iommu=missing", "update-grub",
        change="file /etc/default/grub.d/90-gpuprov.cfg:  -> iommu=pt quiet"),
    Row("the next update-grub would drop it", ENTRIES, WORDS,
        {"boot_entries": "\tlinux\t/boot/vmlinuz-6.1.0-47-amd64 ro quiet iommu=pt\n"
         "later /etc/default/grub GRUB_CMDLINE_LINUX_DEFAULT='quiet'\n"
         'later /etc/default/grub.d/90-gpuprov.cfg GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"\n'
         'later /etc/default/grub.d/99-site.cfg GRUB_CMDLINE_LINUX=""\n'}, "fail",
        "the next kernel's entry would lack iommu=pt: /etc/default/grub.d/99-site.cfg",
        'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX'),
    Row("a file after gpuprov's adds to it", ENTRIES, WORDS,
        {"boot_entries": "\tlinux\t/boot/vmlinuz-6.1.0-47-amd64 ro quiet iommu=pt\n"
         'later /etc/default/grub.d/90-gpuprov.cfg GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt quiet"\n'
         'later /etc/default/grub.d/99-site.cfg GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX} splash" # a word\n'}, "pass"),
    Row("what only a shell can tell", ENTRIES, WORDS,
        {"boot_entries": "\tlinux\t/boot/vmlinuz-6.1.0-47-amd64 ro quiet iommu=pt\n"
         'later /etc/default/grub GRUB_CMDLINE_LINUX="$(site words)"\n'}, "pass"),
    Row("entries of the next kernel are made from another file", ENTRIES, WORDS,
        {"boot_entries": "linux /vmlinuz-5.14.0 ro quiet iommu=pt\nlater /etc/kernel/cmdline ro quiet iommu=on \n"},
        "fail",
        "would lack iommu=pt: /etc/kernel/cmdline", "gpuprov apply adds it to /etc/kernel/cmdline"),
    Row("no grub", ENTRIES, WORDS, {"boot_entries": ""}, "fail", "no grub entries found", "only grub"),
    Row("a container boots nothing", ENTRIES, WORDS, {**PODMAN, "boot_entries": ""}, "skip", "no bootloader"),
    Row("nothing to carry in the initramfs", INITRAMFS, NOTHING, {"initramfs": initrd(fresh=False)}, "n/a",
        "not in the spec"),
    Row("every image holds the configuration", INITRAMFS, OUT, {}, "pass", "gpuprov.conf in 1 image"),
    Row("an image older than the configuration", INITRAMFS, OUT,
        {"initramfs": initrd() + initrd(fresh=False, release="6.1.0-44-amd64")}, "fail",
        "stale: /boot/initrd.img-6.1.0-44-amd64", "update-initramfs -u -k all",
        change="initramfs /boot/initrd.img-6.1.0-44-amd64:  -> rebuilt"),
    Row("an image that cannot be read", INITRAMFS, OUT, {"initramfs": initrd(status=1)}, "fail", "not readable",
        "run as root"),
    Row("no initramfs at all", INITRAMFS, OUT, {"initramfs": ""}, "skip", "no initramfs"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_kernel(row: Row) -> None:
    judge(row)


@run_each(
    ("later", "fix"), [("", "gpuprov apply writes "), ("in /etc/modprobe.d/zz.conf:options nvidia a=0\n", "take a of ")]
)
def test_apply_is_no_fix_for_what_a_later_file_decides(later: str, fix: str) -> None:
    config = f"options nvidia a=0\nin /etc/modprobe.d/gpuprov.conf:options nvidia a=1\n{later}"
    wanted = Kernel(module_options={"nvidia": {"a": 1}})
    assert ask("kernel.module_options", wanted, modprobe_config=config).fix.startswith(fix)


UNLIMITED = "DefaultLimitMEMLOCK=infinity\nDefaultLimitMEMLOCKSoft=infinity\n"


@run_each(
    ("sysctl", "login", "fragment"),
    [
        ("", "", None),
        ("vm.swappiness = 1\n", "", Kernel(sysctl={"vm.swappiness": 1})),
        ("", "* - memlock unlimited\n", Kernel(limits={"memlock": "unlimited"})),
        ("", "* - memlock 4096\n", None),
    ],
)
def test_export(sysctl: str, login: str, fragment: Kernel | None) -> None:
    """Limits are exported where logins and services agree."""
    found = facts(
        sysctl_files=sysctl, login_limits=login, default_limits=UNLIMITED, cpu_frequency=BARE["cpu_frequency"]
    )
    assert kernel.export(found) == fragment
