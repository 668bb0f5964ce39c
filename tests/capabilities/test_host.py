"""host: which GPUs, a pending reboot, and what must hold before anything is changed."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.host import House, rules
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.core.errors import GpuprovError
from gpuprov.explain import all_checks
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.fleet.specs import judge as judge_fleet
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import GpuSpec, HostSpec, RawHost
from tests.capabilities.asking import B200, CHECKS, H100, NO_GPU, PODMAN, Row, ask, facts, good, judge
from tests.facts.probes import captured
from tests.rows import run_each


def gpu(model: str, count: int | None = None) -> House:
    return House(gpu=GpuSpec(model=model, count=count))


TWO = {"nvidia_functions": captured("nvidia_functions", "hgx_h100")}
UNKNOWN = {"nvidia_functions": "0000:01:00.0 0x10de 0xffff 0x10de 0x0000 0x030000 \n"}
HALF = captured("package_audit", "half_configured")
CLEANUP = HALF.text + " nvidia-installer-cleanup cleanup after driver installation with the nvidia-ins\n"
RECEIPT = '{"applied_at": "2025-01-02T03:04:05Z", "gpuprov_version": "0.1.0", "capabilities": {}}'
SID = 'ID=debian\nPRETTY_NAME="Debian GNU/Linux forky/sid"\n'
FOCAL = 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="20.04"\nPRETTY_NAME="Ubuntu 20.04.6 LTS"\n'
CENTOS = (
    'NAME="CentOS Linux"\nVERSION="7 (Core)"\nID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="7"\n'
    'PRETTY_NAME="CentOS Linux 7 (Core)"\nCPE_NAME="cpe:/o:centos:centos:7"\n'
)
ARCH = 'ID=arch\nPRETTY_NAME="Arch Linux"\n'

SAYS = "login"
SHIM = (
    f"{SAYS} named /opt/shims/python3\n{SAYS} failed /opt/shims/python3: pyenv: python3: command not found\t "
    "(exit status 127)\n"
)
OLD = f"{SAYS} named /opt/old/python\n{SAYS} python 3.6 /opt/old/python\n"
BROKEN = (
    f"{SAYS} failed /usr/bin/python3: Could not find platform independent libraries <prefix>\tTraceback (most "
    "recent call last):\tModuleNotFoundError: No module named 'encodings'\t (exit status 1)\n"
)


def answer(more: str = "", *, user: str = "0", python: str = "3.11 /usr/bin/python3") -> str:
    """What a host answers of its login."""
    said = f"{SAYS} system Linux\n{SAYS} user {user}\n{SAYS} path /usr/bin:/bin\n{SAYS} umask 0022\n{more}"
    return said + (f"{SAYS} python {python}\n" if python else "")


GOES_BACK = House(on_failure="rollback")


def boots(counted: str = "", *, lvm: bool = False, watchdog: str = "0", **state: object) -> dict[str, str]:
    """What GRUB counts, and what is written down of it."""
    said = f"container=1\nmenu=0\nenvironment=0\nlayers={'lvm' * lvm}\nsystem=ext2\ncounted={counted}\n"
    return {"first_boot": f"{said}state={json.dumps(state) if state else ''}\nwatchdog={watchdog}\n"}


SYSTEMD_BOOT = (
    "container=1\nloader=systemd-boot\ninfo=systemd-boot 255.4-1ubuntu8\nprogram=0\nwritable=0\nline=0\n"
    "list title: x (default)\nlist id: x.conf\nlist source: /boot//loader/entries/x.conf (on the EFI System "
    "Partition)\n"
)
BEFORE: dict[str, Any] = {
    "run": "a1b2",
    "kernel": "6.1.0-47-amd64",
    "tried": "6.1.0-48-amd64",
    "off": True,
    "words": ["quiet"],
}
ENTRY = "linux /vmlinuz-1 quiet"
BASE, HIDES = "nvidia-container-toolkit-base", "/usr/local/bin/nvidia-ctk"
PROFILE, PLAIN, UNITS = (f"env|/etc/{file}|" for file in ("profile.d/x.sh", "environment", "systemd/system.conf"))
HIDES_ALL = "CUDA programs do not see all 2 GPUs"
ENVIRONMENTS = [
    (f"{PROFILE}CUDA_VISIBLE_DEVICES=0", "fail", HIDES_ALL, "take CUDA_VISIBLE_DEVICES out of /etc/profile.d/x.sh"),
    (f'{PROFILE}CUDA_VISIBLE_DEVICES=""', "fail", HIDES_ALL),
    (f"{PROFILE}CUDA_VISIBLE_DEVICES=0,1", "pass"),
    (f"{PROFILE}CUDA_VISIBLE_DEVICES=-1", "fail", HIDES_ALL),
    (f"{PLAIN}CUDA_VISIBLE_DEVICES=NoDevFiles", "fail", HIDES_ALL),
    (f'{PLAIN}NVIDIA_VISIBLE_DEVICES="void"', "fail", "as Enroot's, do not see all 2 GPUs"),
    (f"{PLAIN}NVIDIA_VISIBLE_DEVICES=all", "pass"),
    (f"{PLAIN}CUDA_MPS_PIPE_DIRECTORY=/tmp/x", "fail", "clients of the MPS daemon there, if one runs"),
    ("env|/etc/security/pam_env.conf|CUDA_VISIBLE_DEVICES=0", "fail", HIDES_ALL),
    (f'{UNITS}CUDA_VISIBLE_DEVICES=1', "fail", HIDES_ALL),
    ("env|systemctl set-environment|CUDA_VISIBLE_DEVICES=", "fail", HIDES_ALL, "out of systemctl set-environment"),
    ("env|/etc/ld.so.preload|LD_PRELOAD=/opt/libcuda.so.1 ", "fail", "/opt/libcuda.so.1 comes before the library"),
    ("env|/etc/ld.so.preload|LD_PRELOAD=/opt/x.so \nmissing|/opt/x.so", "fail", "/opt/x.so is not there"),
    (f"{PLAIN}LD_PRELOAD=/usr/lib/libjemalloc.so.2", "pass"),
    (f"{PROFILE}LD_LIBRARY_PATH=/opt/old:$LD_LIBRARY_PATH\nlibrary|/opt/old|/opt/old/libcuda.so.470.82.01", "fail",
     "/opt/old/libcuda.so.470.82.01 comes before that of driver 535.261.03"),
    (f"{PROFILE}LD_LIBRARY_PATH=/opt/compat\nlibrary|/opt/compat|/opt/compat/libcuda.so.580.82.07", "pass"),
    (f"{PROFILE}LD_LIBRARY_PATH=/opt/cuda/lib64", "pass"),
]  # fmt: skip
ROWS = [
    Row("boots are not counted", "host.first_boot", House(), boots(lvm=True), "n/a"),
    Row("a boot that hangs is nobody's", "host.first_boot", GOES_BACK, boots(), "pass", "no watchdog resets a host"),
    Row("a watchdog", "host.first_boot", GOES_BACK, boots(watchdog="1min"), "pass", "watchdog resets a host"),
    Row("systemd-boot", "host.first_boot", GOES_BACK, {"first_boot": SYSTEMD_BOOT}, "pass",
        "is undone by systemd-boot; "),
    Row("GRUB cannot write", "host.first_boot", GOES_BACK, boots(lvm=True), "pass", "/boot, which is on lvm"),
    Row("a kernel did not come up", "host.first_boot", None, boots("back", **BEFORE), "fail",
        "before run a1b2: 6.1.0-48-amd64 did not come up, without the NVIDIA driver", "gpuprov rollback"),
    Row("it came up without its driver", "host.first_boot", None, boots("back", **BEFORE, found="no nvidia-smi"),
        "fail", "no nvidia-smi"),
    Row("rolled back", "host.first_boot", GOES_BACK, boots("back", **BEFORE, settled=True), "pass",
        "it stays so until a newer kernel than 6.1.0-47-amd64 is gone"),
    Row("a damaged record", "host.first_boot", None, {"first_boot": "container=1\ncounted=back\nstate={\n"}, "fail",
        "its record cannot be read"),
    Row("systemd", "host.systemd", None, {"login": answer("login init systemd\n")}, "pass"),
    Row("another init", "host.systemd", None, {"login": answer("login init runit\n")}, "fail",
        "runit is the first process"),
    Row("an answer that does not say it", "host.systemd", None, {"login": answer()}, "skip", "unknown"),
    Row("the GPU by its key", "host.gpu", gpu("H100-SXM5-80GB", 1), {}, "pass", "1 x H100-SXM5-80GB"),
    Row("the GPUs by their PCI id, switches aside", "host.gpu", gpu("10de:2330", 2), TWO, "pass", "2 x H100-SXM5-80GB"),
    Row("any number of them", "host.gpu", gpu("h100-sxm5-80gb"), TWO, "pass", "2 x H100-SXM5-80GB"),
    Row("no GPU named in the spec", "host.gpu", None, TWO, "pass", "2 x H100"),
    Row("one GPU is missing", "host.gpu", gpu("H100-SXM5-80GB", 8), TWO, "fail", "2 x H100-SXM5-80GB", "dmesg"),
    Row("another model", "host.gpu", gpu("A100-SXM4-80GB", 1), {}, "fail", "1 x H100-SXM5-80GB", "correct gpu.model"),
    Row("two models", "host.gpu", gpu("H100-SXM5-80GB"), {"nvidia_functions": H100 + B200}, "fail",
        "1 x H100-SXM5-80GB, 1 x B200"),
    Row("a GPU that the catalogue does not know", "host.gpu", gpu("H100-SXM5-80GB"), UNKNOWN, "fail", "1 x 10de:ffff"),
    Row("no GPU", "host.gpu", gpu("H100-SXM5-80GB"), NO_GPU, "fail", "no NVIDIA GPU on the PCI bus"),
    Row("no GPU, and nothing asked that needs one", "host.gpu", None, NO_GPU, "skip", "nothing that needs one"),
    Row("a container without a GPU", "host.gpu", gpu("H100-SXM5-80GB", 8), {**NO_GPU, **PODMAN}, "skip",
        "podman container"),
    Row("no reboot pending", "host.reboot_pending", None, {}, "pass"),
    Row("a reboot pending", "host.reboot_pending", None, {"reboot_reasons": "kernel|started without iommu=pt\n"},
        "fail", "kernel: started without iommu=pt", "--reboot", reboot="kernel: started"),
    Row("Debian 12", "host.supported", None, {}, "pass", "bookworm"),
    Row("no Linux", "host.supported", None, {"platform": "FreeBSD 14.1-RELEASE amd64\n"}, "fail", "FreeBSD",
        "remove the host"),
    Row("another distribution", "host.supported", None, {"os_release": ARCH}, "fail", "Arch Linux", "not supported"),
    Row("a release that is read alone", "host.supported", None, {"os_release": FOCAL}, "fail",
        "reads but does not change",
        "health, topology, export, show and explain read it, and verify judges it"),
    Row("a release without packages", "host.supported", None, {"os_release": CENTOS}, "fail", "CentOS Linux 7 (Core)",
        "not supported; health, topology, export, show and explain read it"),
    Row("Debian without a release", "host.supported", None, {"os_release": SID}, "fail", "forky/sid"),
    Row("root", "host.root", None, {}, "pass", "root"),
    Row("no root", "host.root", None, {"login": answer(user="1000")}, "fail", "user id 1000", "ansible_become"),
    Row("no root, and nothing can be said of writing", "host.writable", None, {"login": answer(user="1000")}, "skip",
        "host.root"),
    Row("all can be written", "host.writable", None, {}, "pass"),
    Row("a file system with an error", "host.writable", None,
        {"login": answer(f"{SAYS} readonly /etc\n{SAYS} readonly /usr\n")}, "fail", "read-only: /etc, /usr",
        "remount,rw"),
    Row("the distribution's Python", "host.python", None, {}, "pass", "/usr/bin/python3 starts"),
    Row("no Python", "host.python", None, {"python": answer(python="")}, "fail", "no Python",
        "install python3 on the host"),
    Row("a Python that is broken", "host.python", None, {"python": answer(BROKEN, python="")}, "fail",
        "no Python starts: /usr/bin/python3: ModuleNotFoundError: No module named 'encodings' (exit status 1)",
        "reinstall python3 on the host"),
    Row("a Python that is too old", "host.python", None, {"python": answer(python="3.6 /usr/libexec/platform-python")},
        "fail", "/usr/libexec/platform-python is Python 3.6", "dnf install python3.12"),
    Row("the inventory's Python does not start", "host.python", None, {"python": answer(SHIM)}, "fail",
        "does not start: /opt/shims/python3: pyenv: python3: command not found (exit status 127)",
        "ansible_python_interpreter: /usr/bin/python3"),
    Row("the inventory's Python is too old", "host.python", None, {"python": answer(OLD)}, "fail",
        "/opt/old/python is Python 3.6", "ansible_python_interpreter: /usr/bin/python3"),
    Row("programs as packages brought them", "host.programs", None, {}, "pass", "24 programs and units"),
    Row("no package with programs", "host.programs", None, {"programs": "count|0\n"}, "n/a"),
    Row("a program replaced", "host.programs", None, {"programs": f"count|24\nchanged|{BASE}|usr/bin/nvidia-ctk\n"},
        "fail", "/usr/bin/nvidia-ctk: not as its package brought it", f"apt-get install --reinstall {BASE}"),
    Row("a program hidden", "host.programs", None, {"programs": f"count|24\nshadow|{HIDES}|/usr/bin/nvidia-ctk\n"},
        "fail", f"{HIDES} comes before /usr/bin/nvidia-ctk, and is another program", f"take away {HIDES}"),
    *(Row(f"an environment: {line}", "host.environment", None, {**TWO, "environment": f"read|\n{line}\n"}, status,
          *words)
      for line, status, *words in ENVIRONMENTS),
    Row("root alone writes", "host.root_only", None, {}, "pass"),
    Row("everybody writes units", "host.root_only", None, {"others_write": "read|\nopen|d|777|0|/etc/systemd/system\n"},
        "fail",
        "/etc/systemd/system: mode 777", "chmod o-w /etc/systemd/system"),
    Row("somebody's folder", "host.root_only", None, {"others_write": "read|\nopen|d|755|1000|/etc/modprobe.d\n"},
        "fail",
        "/etc/modprobe.d: mode 755, of uid 1000", "chown root: /etc/modprobe.d"),
    Row("a boot goes to the services", "host.boot_target", None, {"boot_target": "multi-user.target\n"}, "pass"),
    Row("a boot entry masks a unit", "host.boot_target", None,
        {"boot_entries": f"{ENTRY} systemd.mask=nvidia-dcgm.service\n"},
        "fail", "systemd.mask=nvidia-dcgm.service (boot entries)"),
    Row("every entry is a rescue shell", "host.boot_target", None,
        {"boot_entries": f"{ENTRY} systemd.unit=rescue.target\n"}, "fail",
        "systemd.unit=rescue.target (boot entries)", "take systemd.unit=rescue.target out of the boot entries"),
    Row("an entry for repairs", "host.boot_target", None, {"boot_entries": f"{ENTRY}\n{ENTRY} recovery single\n"},
        "pass"),
    Row("a site's own target", "host.boot_target", None, {"boot_target": "gpu-node.target\n"}, "pass",
        "gpu-node.target"),
    Row("a boot ends in a rescue shell", "host.boot_target", None, {"boot_target": "rescue.target\n"}, "fail",
        "rescue.target", "systemctl set-default multi-user.target"),
    Row("no boot sets sysctls", "host.boot_target", None,
        {"boot_target": "multi-user.target\nmasked|systemd-sysctl.service\n"},
        "fail", "masked: systemd-sysctl.service", "systemctl unmask systemd-sysctl.service"),
    Row("a container leaves that to its machine", "host.boot_target", None,
        {"boot_target": "multi-user.target\nmasked|systemd-sysctl.service\n", **PODMAN}, "pass"),
    Row("no word of systemd's", "host.boot_target", None, {"boot_target": ""}, "skip", "does not report"),
    Row("a clock that agrees", "host.clock", None, {}, "pass"),
    Row("a clock ahead", "host.clock", None, {"clock": f"{int(time.time()) + 4000}\n"}, "fail", "s ahead",
        "timedatectl"),
    Row("a clock behind", "host.clock", None, {"clock": "0\n"}, "fail", "s behind", "timedatectl"),
    Row("a board with NVSwitches, driverless", "host.fabric", None, {}, "pass",
        "a Fabric Manager that gpuprov does not"),
    Row("no NVSwitch", "host.fabric", None, {"nvidia_functions": H100}, "n/a", "no NVSwitch"),
    Row("packages whole", "host.packages", None, {}, "pass", "whole"),
    Row("packages half configured", "host.packages", None, {"package_audit": HALF}, "fail", "nvidia-open-kernel-dkms",
        "dpkg --configure -a"),
    Row("half configured by our own apply", "host.packages", None, {"package_audit": HALF, "apply_marker": "1\n"},
        "pass", "was interrupted"),
    Row("a question that no run may answer, whoever left it", "host.packages", None,
        {"package_audit": CLEANUP, "apply_marker": "1\n"}, "fail",
        "asks whether to uninstall the driver of NVIDIA's runfile", "apt-get purge nvidia-installer-cleanup"),
    Row("a broken package database", "host.packages", None,
        {"package_audit": Output("", 2, "dpkg: error: parsing file '/var/lib/dkpg/status' near line 7")}, "fail",
        "dpkg: error: parsing file", "dpkg --configure"),
    Row("space in /boot", "host.space", None, {}, "pass", "500 MiB"),
    Row("a full /tmp, and no packages", "host.space", None, {"space": "512000 /boot\n10485760 /var\n64 /tmp\n"},
        "pass", "500 MiB"),
    Row("never applied", "host.receipt", None, {}, "pass", "never applied"),
    Row("applied before", "host.receipt", None, {"receipt": RECEIPT}, "pass", "last apply 2025-01-02"),
    Row("a damaged receipt", "host.receipt", None, {"receipt": RECEIPT[:40]}, "pass", "damaged"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_host(row: Row) -> None:
    judge(row)


FULL = {"space": "51200 /boot\n2097152 /var\n"}
LATE = {"clock": "400 s behind"}
ROOM: dict[str, object] = {"path": "/var", "mib": 4000}


@run_each(
    ("check_id", "texts", "site", "status", "told"),
    [
        ("host.space", FULL, {}, "fail", "100 MiB free in /boot for kernel"),
        ("host.space", FULL, {"host_free_space": {"kernel": {"path": "/boot", "mib": 40}}}, "pass", ""),
        ("host.space", FULL, {"host_free_space": {"kernel": ROOM}}, "fail", "4000 MiB free in /var for kernel"),
        ("host.space", FULL, {"host_free_space": {"mps": ROOM}}, "pass", ""),
        ("host.space", FULL, {"host_free_space": {}}, "pass", ""),
        ("host.space", {"space": "512000 /boot\n10485760 /var\n64 /tmp\n"}, {}, "fail", "16 MiB free in /tmp"),
        ("nvidia_driver.space", FULL, {}, "fail", "3000 MiB free in /var"),
        ("nvidia_driver.space", FULL, {"host_free_space": {"nvidia_driver": {"path": "/var", "mib": 2000}}}, "pass",
            ""),
        ("nvidia_driver.space", FULL, {"host_free_space": {"nvidia_driver": ROOM}}, "fail", "4000 MiB free in /var"),
        ("host.clock", LATE, {}, "fail", "within 300 s"),
        ("host.clock", LATE, {"host_max_clock_skew": 600}, "pass", "within 600 s"),
        ("host.clock", LATE, {"host_max_clock_skew": "600"}, "pass", "within 600 s"),
        ("host.clock", LATE, {"host_max_clock_skew": 60}, "fail", "within 60 s"),
    ],
)  # fmt: skip
def test_what_the_site_set_is_what_is_asked(
    check_id: str, texts: dict[str, str], site: dict[str, object], status: str, told: str
) -> None:
    """Reproduced: with 600 s allowed and a skew of 400 s the host was blocked; host_free_space changed nothing at
    all."""
    spec = HostSpec(name="gpu1", capabilities={"kernel": Kernel(), "nvidia_driver": NvidiaDriver()}, site=site)
    check = CHECKS[check_id]
    known = {**good(), "kernels": "6.1.0-47-amd64|1|1||1\n", **texts}
    known |= {"clock": f"{int(time.time()) - 400}\n"} if texts is LATE else {}
    found = {name: text for name, text in known.items() if name in {probe.name for probe in check.probes}}
    fragment = spec.capabilities.get(check.capability, House())
    outcome = check.run(Context(spec, fragment, facts(**found)))
    assert outcome.status == status, outcome
    assert told in outcome.expected, outcome


@run_each(
    ("site", "told"),
    [
        ({"host_max_clock_skew": "five minutes"},
            'host_max_clock_skew is "five minutes"; allowed: seconds, a whole number'),
        ({"host_max_clock_skew": True}, 'host_max_clock_skew is "True"; allowed: seconds'),
        ({"host_max_clock_skew": -1}, 'host_max_clock_skew is "-1"'),
        ({"host_package_lock_timeout": "5m"}, 'host_package_lock_timeout is "5m"; allowed: seconds, a whole number'),
        ({"host_package_lists_max_age": 1.5}, 'host_package_lists_max_age is "1.5"; allowed: seconds'),
        ({"nvidia_driver_manage_repository": "maybe"},
            'nvidia_driver_manage_repository is "maybe"; allowed: true, false'),
        ({"host_gpu_services": {"gdm": True}}, "allowed: a list of units"),
        ({"host_gpu_services": ["gdm.service", 1]}, "allowed: a list of units"),
        ({"host_reboot_timeout": "never"}, 'host_reboot_timeout is "never"; allowed: seconds'),
        ({"cgpu_module_timeout": ""}, 'cgpu_module_timeout is ""; allowed: seconds'),
        ({"host_free_space": 100}, 'host_free_space is "100": Expected `object`, got `int`'),
        ({"host_free_space": {"kernel": {"path": "/boot"}}}, "missing required field `mib`"),
        ({"host_free_space": {"kernle": ROOM}}, 'host_free_space has "kernle"; allowed: kernel, '),
        ({"host_free_space": {"kernel": {"path": "/srv", "mib": 1}}},
            'host_free_space.kernel.path is "/srv"; allowed: /boot, /var'),
    ],
)  # fmt: skip
def test_what_a_site_cannot_set_is_an_error_of_the_inventory(site: dict[str, object], told: str) -> None:
    raw = RawHost(name="gpu1", values={"nouveau": {}}, connection=site)
    with pytest.raises(GpuprovError) as caught:
        judge_fleet([raw])
    assert told in str(caught.value)


EVERY = pytest.mark.parametrize("capability", sorted({check.capability for check in all_checks()}))


@EVERY
def test_every_check_finds_the_good_host_good(capability: str) -> None:
    skipped = {"nvidia_driver.space", *(f"nvidia_driver.machine_{what}" for what in ("vgpu", "hypervisor", "reset"))}
    skipped |= {f"kubernetes.{what}" for what in ("allocatable", "labels", "kubelet", "runtime")}  # it is in no cluster
    skipped |= {"acceptance.result"}  # it was never accepted
    failing = {"mig.mode", "kubernetes.files"}  # its GPU is whole, and nothing was rendered
    # Its kernel modules are proprietary, beside which nvidia-fs does not load.
    failing |= {f"gds.{what}" for what in ("supported", "packages", "module", "direct")}
    failing |= {f"hpc.{what}" for what in ("packages", "held", "mpi", "ucx")}  # it has no Open MPI
    left = ("packages", "loaded", "modules", "libraries", "units", "initramfs")
    failing |= {f"nvidia_absent.{what}" for what in left}  # it has a driver
    wrong = {}
    for check in (one for one in all_checks() if one.capability == capability):
        outcome = ask(check.id)
        expected = {"skip"} if check.id in skipped else {"fail"} if check.id in failing else {"pass", "n/a"}
        if outcome.status not in expected or outcome.reboot:
            wrong[check.id] = outcome
    assert wrong == {}


@EVERY
def test_every_check_can_fail_or_says_why_not(capability: str) -> None:
    """A host of which nothing could be read is never called good: each check fails, skips with a reason, or is an
    error."""
    harmless = {
        "host.fabric",  # without NVSwitches there is nothing to want; host.gpu says that no GPU was seen
        "host.package_sources",  # none at all is nothing to mistrust
        "dcgm.leftovers",
        "dcgm.exporter",
        "dcgm.together",  # looks at the block alone
        "nvidia_driver.cuda",
        "nvidia_driver.repository",
        "container_toolkit.leftovers",
        "container_toolkit.rootless",
        "container_toolkit.rootless_users",
        "host.reboot_pending",
        "host.receipt",
        "nvidia_driver.autobuild",
        "nvidia_driver.module_parameters",
        "nvidia_driver.leftovers",
        "nvidia_driver.secure_boot",
        "nvidia_driver.signed",  # nothing asked; with a key it fails (test_nvidia_driver_signed)
        "nvidia_driver.signing_tool",
        "nvidia_driver.built_once",  # nothing asked; with a build host it fails
        "nvidia_driver.build_family",
        "nvidia_driver.runfile",  # nothing asked; with a runfile they fail
        "nvidia_driver.runfile_alone",
        # no other manager, no devices, no clients, nothing asked: their own tests plant each
        *("mig.cdi", "mig.manager", "mps.clients", "mps.units", "mps.shm", "mps.features"),
        *("kubernetes.one_manager", "kubernetes.replicas", "kubernetes.kubectl"),
        # no other stack, no stale file, no service, no message: their own tests plant each
        *("rdma.ofed_alone", "rdma.memlock_boot", "rdma.nccl_stale", "rdma.nccl_parts", "rdma.interfaces", "rdma.port"),
        *("gpudirect_rdma.log", "gpudirect_rdma.topology_check"),
        # none is there: their own tests plant each
        *("nvidia_absent.modules", "nvidia_absent.removable", "nvidia_absent.runfile"),
    }
    good_anyway = {}
    for check in (one for one in all_checks() if one.capability == capability):
        empty: dict[str, Output | str] = {probe.name: Output("", 1) for probe in check.probes}
        with suppress(ProbeFailed):
            outcome = ask(check.id, None, **empty)
            asked = any(getattr(BY_NAME[capability].fragment(), field) for field in check.fields)
            judged = check.id not in harmless and (asked or capability != "kernel")
            if judged and outcome.status not in ("fail", "skip", "n/a"):
                good_anyway[check.id] = outcome
    assert good_anyway == {}


@run_each(
    ("model", "count", "most"),
    [("H100-SXM5-80GB", 9, 8), ("H100-SXM5-80GB", 8, 0), ("GB300", 8, 4), ("A100-SXM4-40GB", 16, 0), ("L40S", 10, 0)],
)
def test_more_gpus_than_a_board_has_are_a_warning(model: str, count: int, most: int) -> None:
    spec = GpuSpec(model=model, count=count)
    (problem, *_) = [*rules(HostSpec(name="gpu1", gpu=spec), House(gpu=spec), ()), None]
    assert (problem is None) == (most == 0), problem
    assert problem is None or f"no host with more than {most} {model} is known" in problem.message
