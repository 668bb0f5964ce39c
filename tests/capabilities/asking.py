"""A host that is right in everything, told as the text its probes print; and a way to ask one check about a changed
one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Check, Context, Outcome
from gpuprov.explain import all_checks
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.spec.model import Fragment, HostSpec
from tests.capabilities import (
    absent_host,
    acceptance_host,
    cgpu_host,
    contents_host,
    cuda_host,
    dcgm_host,
    erdma_host,
    gds_host,
    gpu_settings_host,
    gpudirect_host,
    health_host,
    hpc_host,
    imex_host,
    kernel_host,
    kubernetes_host,
    mig_host,
    mps_host,
    ofed_host,
    passthrough_host,
    pcie_host,
    rdma_host,
    readings_host,
    roce_host,
    scratch_host,
    slurm_host,
    toolkit_host,
    topology_host,
    vgpu_host,
)
from tests.facts.probes import captured

CHECKS = {check.id: check for check in all_checks()}
VERSION = "535.261.03-1"
NEWER = "535.309.01-0+deb12u1"
USER_SPACE = (
    "firmware-nvidia-gsp nvidia-alternative nvidia-legacy-check nvidia-smi libnvidia-ml1 libcuda1 "
    "libnvidia-ptxjitcompiler1 libnvidia-pkcs11-openssl3 libnvidia-cfg1 nvidia-cuda-mps"
).split()
PROPRIETARY = ["nvidia-kernel-dkms", "nvidia-kernel-support", *USER_SPACE]
OPEN = ["nvidia-open-kernel-dkms", "nvidia-open-kernel-support", *USER_SPACE]
H100 = "0000:19:00.0 0x10de 0x2330 0x10de 0x16c1 0x030200 nvidia\n"
GIVEN = "0000:5d:00.0 0x10de 0x2330 0x10de 0x16c1 0x030200 vfio-pci\n"
"""A GPU that a virtual machine has."""
NVSWITCH = "0000:07:00.0 0x10de 0x22a3 0x10de 0x1796 0x068000 \n"
B200 = "0000:19:00.0 0x10de 0x2901 0x10de 0x1999 0x030200 \n"
NO_GPU = {"nvidia_functions": ""}
PODMAN = {"container": "podman\n"}
PERSISTENCED = "ii |nvidia-persistenced|535.171.04-1~deb12u1|nvidia-persistenced\n"
FABRIC_MANAGER = "hi |nvidia-fabricmanager-535|535.261.03-1|fabricmanager\n"


def packages(
    names: list[str] = PROPRIETARY, version: str = VERSION, state: str = "hi ", **others: tuple[str, str]
) -> str:
    """dpkg-query's lines for a driver set; `others` (underscores for dashes) have a state and a version of their
    own."""
    states = dict.fromkeys(names, (state, version))
    states |= {name.replace("_", "-"): given for name, given in others.items()}
    lines = [f"{s}|{name}|{v}|nvidia-graphics-drivers\n" for name, (s, v) in states.items()]
    return "".join(lines) + PERSISTENCED + FABRIC_MANAGER + toolkit_host.packages()


def units(
    daemon: tuple[str, str] = ("active", "enabled"),
    legacy: tuple[str, str] = ("inactive", ""),
    fabric: tuple[str, str] = ("inactive", ""),
) -> str:
    """`systemctl show` of the two units of persistence and of Fabric Manager's: (active, file) of each."""
    rows = (
        ("nvidia-persistenced.service", *daemon),
        ("gpuprov-persistence.service", *legacy),
        ("nvidia-fabricmanager.service", *fabric),
    )
    return "\n".join(
        f"Id={name}\nLoadState={'loaded' if file else 'not-found'}\nActiveState={active}\nUnitFileState={file}\n"
        for name, active, file in rows
    )


FM = "/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg"
BOOTED, STARTED = 1_999_900_000, 1_999_950_000


def daemon(
    version: str = "535.261.03",
    *commands: str,
    settings: Mapping[str, object] | None = None,
    log: str = "Connected to 1 node.",
    state: str = "S",
    errors: Sequence[str] = (),
) -> str:
    """What the Fabric Manager probe prints: live processes of the unit, its program, its configuration, its log."""
    stat = f"{state} 1 {'0 ' * 17}{(STARTED - BOOTED) * 100} 0"
    lines = ["looked|"]
    lines += [f"process|{700 + n}|{stat}|{command} " for n, command in enumerate(commands or (FM,)) if command]
    lines += [f"version|Fabric Manager version is : {version}"] if version else []
    values = {"FABRIC_MODE": 0, "LOG_LEVEL": 4} if settings is None else settings
    lines += ["config|"] * bool(values) + [f"setting|{key}={value}" for key, value in values.items()]
    lines += [f"log|{log}"] if log else []
    return "\n".join([*lines, *(f"error|{line}" for line in errors)]) + "\n"


def fabric_state(*buses: str, state: str = "Completed", status: str = "Success") -> str:
    """The lines of `nvidia-smi -q` that are kept of each GPU."""
    return "".join(
        f"GPU 0000{bus.upper()}\n    Fabric\n        State                : {state}\n        Status               : "
        f"{status}\n"
        for bus in buses
    )


def initrd(*lines: str, fresh: bool = True, status: int = 0, release: str = "6.1.0-47-amd64") -> str:
    """One image: the modules in it, and whether it holds gpuprov's configuration."""
    return "\n".join([f"image /boot/initrd.img-{release} {int(fresh)} {status}", *lines]) + "\n"


BARE: dict[str, Output | str] = {
    "readings": readings_host.NEVER,
    "cpu_frequency": "LoadState|not-found\nActiveState|inactive\nUnitFileState|\n",
    "efa": "product|\nkernel|6.1.0-47-amd64|1||\ncore|\n",
    "erdma": "tcp|2024\nephemeral|32768 60999\nreserved|\ncore|\n",
    "fabric_manager": "looked|\n",
    "gpudirect": "running|6.1.0-47-amd64\n",
    "mps": "gpu|sh: 3: nvidia-smi: not found\nshm|24106\n",
    "nccl": "netdev|eth0\n",
    "ofed": "running|6.1.0-47-amd64\n",
    "roce": "tool|dcb\nfilter|nft\n",
    "sysctl": "abi.vsyscall32 = 1\n",
}
"""What probes that always print something print where nothing is that they look for."""

RDMA_MODULES = ("ib_uverbs", "rdma_ucm", "ib_umad", "mlx5_ib")
GOOD: dict[str, Output | str] = {
    "os_release": captured("os_release", "debian12"),
    "platform": "Linux 6.1.0-47-amd64 x86_64\n",
    "login": "login system Linux\nlogin user 0\nlogin path /usr/sbin:/usr/bin\nlogin umask 0022\nlogin init systemd\n",
    "python": "login python 3.11 /usr/bin/python3\n",
    "container": "none\n",
    "unit_reads": "@reads\n",
    "space": "512000 /boot\n10485760 /var\n",
    "nvidia_functions": H100 + NVSWITCH,
    "fabric_bridges": "",
    "fabric_kernel": "module|mlx5_core\nmodule|mlx5_ib\nmodule|ib_umad\n",
    "fabric_manager": daemon("535.261.03"),
    "fabric_packages": FABRIC_MANAGER,
    "fabric_state": fabric_state("0000:19:00.0"),
    "fabric_subnet_index": "",
    "packages": packages(),
    "package_audit": "",
    "driver_makers": "own|amd64\n",
    "driver_building": "there|dkms\nthere|gcc-c++\nthere|gcc\nthere|make\n",
    "debian_archives": "",
    "kernels_held": "",
    "modules_built": "",
    "next_boot": "",
    "site_key": "",
    "package_locking": "",
    "repositories": "@arch amd64\n@end\n",
    "package_index": captured("package_index", "bookworm").text + toolkit_host.index(),
    "dkms_no_autoinstall": "",
    "receipt": "",
    "reboot_reasons": "",
    "secure_boot": captured("secure_boot", "off"),
    "runfile_leftovers": "",
    "dkms_key_enrolled": "",
    "enrolled_certificates": "",
    "module_signing": "",
    "mok_state": "looked|1\nefi|1\nvariables|rw\ntool|1\n",
    "prebuilt_modules": "",
    "precompiled_modules": "",
    "runfile": "",
    "apply_marker": "",
    "drained": "",
    "first_boot": "container=1\nmenu=0\nenvironment=0\nlayers=\nsystem=ext2\ncounted=\nstate=\nwatchdog=0\n",
    "initramfs": initrd("usr/lib/modules/6.1.0-47-amd64/updates/dkms/nvidia-current.ko"),
    "loaded_modules": captured("loaded_modules", "driver_in_use").text
    + "".join(f"{name} 16384 0 - Live 0x0000000000000000\n" for name in RDMA_MODULES),
    "built_in_modules": "configfs\n",
    "modprobe_config": "blacklist nouveau\nblacklist nova_core\noptions nouveau modeset=0\n",
    "dkms_failed_builds": "",
    "kernels": "6.1.0-47-amd64|1|1|535.261.03|1\n",
    "loaded_driver": captured("loaded_driver", "proprietary"),
    "driver_parameters": captured("driver_parameters", "535"),
    "driver_libraries": captured("driver_libraries", "driver_installed"),
    "nvidia_smi": "00000000:19:00.0, NVIDIA H100 80GB HBM3, GPU-3c1f6d5e, 535.261.03, Enabled\n",
    "gpu_clients": "looked\n",
    "units": units(fabric=("active", "enabled")),
    "limit_sources": "file|/etc/systemd/system.conf.d/90-gpuprov.conf\nline|DefaultLimitMEMLOCK=infinity\npam|"
    "yes\nread|\n",
    "boot_target": "graphical.target\n",
    "programs": "count|24\n",
    "others_write": "read|\n",
    "environment": "read|\n",
    "rivals": "read|\n",
    "device_files": "file|666|root:root|/dev/nvidia0\nfile|666|root:root|/dev/nvidiactl\n",
    "default_limits": "DefaultLimitMEMLOCK=infinity\nDefaultLimitMEMLOCKSoft=infinity\n",
    "command_line": captured("command_line", "grub"),
    "boot_entries": "\tlinux\t/boot/vmlinuz-6.1.0-47-amd64 root=UUID=5f6c ro quiet iommu=pt\n",
    "sysctl": captured("sysctl", "debian12"),
    "sysctl_files": "vm.swappiness = 60\n",
    "sysctl_at_boot": "file|/etc/sysctl.d/90-gpuprov.conf\nline|vm.swappiness = 60\n",
    "modules_load": "\n".join(["nvidia-uvm", *RDMA_MODULES]) + "\n",
    "login_limits": "* - memlock unlimited\n",
    **absent_host.PROBES,
    **toolkit_host.PROBES,
    **cuda_host.PROBES,
    **dcgm_host.PROBES,
    **imex_host.PROBES,
    **kernel_host.PROBES,
    **kubernetes_host.PROBES,
    **mps_host.PROBES,
    **cgpu_host.PROBES,
    **acceptance_host.PROBES,
    **mig_host.PROBES,
    **gpudirect_host.PROBES,
    **gds_host.PROBES,
    **hpc_host.PROBES,
    **pcie_host.PROBES,
    **ofed_host.PROBES,
    **passthrough_host.PROBES,
    **rdma_host.PROBES,
    **roce_host.PROBES,
    **scratch_host.PROBES,
    **vgpu_host.PROBES,
    "nccl": erdma_host.nccl(("NCCL_IB_HCA==ibp59s0,ibp94s0",)),
    "efa": BARE["efa"],
    "erdma": BARE["erdma"],
    "erdma_build": "native|amd64\n",
    "erdma_images": "",
    "nccl_topology": "",
    "persistenced": "unit|[Unit]\nunit|[Service]\nunit|ExecStart=/usr/bin/nvidia-persistenced\nunit|"
    "[Install]\npackage|ii \ngpus|1\n",
    **topology_host.PROBES,
    **gpu_settings_host.PROBES,
    **health_host.PROBES,
    **slurm_host.PROBES,
    "readings": readings_host.told(),
    "limits_drop_ins": "",
}


def older(unit: str, *paths: str) -> str:
    """What is printed of a unit that has run since before these were written."""
    return "\n".join(
        ["@reads", f"start|{unit}|{STARTED}", *(f"changed|{unit}|{STARTED + 1}|ab|{path}" for path in paths), ""]
    )


def facts(**texts: Output | str) -> Facts:
    """Facts of exactly these probes; a check that reads another fails."""
    outputs = {name: text if isinstance(text, Output) else Output(text) for name, text in texts.items()}
    return Facts(outputs)


def good() -> dict[str, Output | str]:
    """The good host, its clock right now. gpuprov has written nothing there."""
    return {**GOOD, "clock": f"{int(time.time())}\n", "contents": contents_host.nothing()}


def ask(check_id: str, fragment: Fragment | None = None, **changed: Output | str) -> Outcome:
    """What the check says of the good host with these probes changed. It is given the probes it declares, and no
    other."""
    check = CHECKS[check_id]
    declared = {probe.name for probe in check.probes}
    assert set(changed) <= declared, f"{check_id} does not declare {set(changed) - declared}"
    texts = {name: text for name, text in {**good(), **changed}.items() if name in declared}
    capability = BY_NAME[check.capability]
    return check.run(with_own_files(check, capability.fragment() if fragment is None else fragment, texts))


def with_own_files(
    check: Check, fragment: Fragment, texts: Mapping[str, Output | str], host: HostSpec | None = None
) -> Context[Any]:
    """The host of these facts, which has gpuprov's own files as they are written, unless the facts say otherwise."""
    ctx = Context(host or HostSpec(name="gpu1"), fragment, facts(**texts))
    said = texts.get("contents")
    if said != contents_host.nothing() and not isinstance(said, contents_host.Also):
        return ctx
    own = contents_host.own(contents_host.resources(BY_NAME[check.capability], ctx))
    more = said if isinstance(said, contents_host.Also) else ""
    lines = [line for line in own.splitlines() if not (line.startswith("none|") and f"|0|0|{line[5:]}\n" in more)]
    return Context(ctx.host, fragment, facts(**{**texts, "contents": "\n".join([*lines, more, ""])}))


class Row(NamedTuple):
    """One question: the check, what is asked for, what is changed on the good host, and the answer."""

    name: str
    check: str
    fragment: Fragment | None
    changed: Mapping[str, Output | str]
    status: str
    found: str = ""
    fix: str = ""
    reboot: str = ""
    change: str = ""


def judge(row: Row) -> None:
    """The answer is the row's, and a failure says what was wanted, what is, and what to do."""
    outcome = ask(row.check, row.fragment, **row.changed)
    expect(outcome, row.status, row.found, row.fix, row.change)
    assert row.reboot in outcome.reboot, outcome
    assert bool(row.reboot) == bool(outcome.reboot), outcome


def expect(outcome: Outcome, status: str, found: str, fix: str = "", change: str = "") -> None:
    """The answer has this status and these words, and a failure says what was wanted, and what to do."""
    assert outcome.status == status, outcome
    assert found in outcome.found, outcome
    assert fix in outcome.fix, outcome
    assert outcome.found, "an answer without words"
    if change:
        assert change in [f"{c.kind} {c.name}: {c.before} -> {c.after}" for c in outcome.changes], outcome.changes
    if outcome.status == "fail":
        assert outcome.expected, "a failure that does not say what was wanted"
        assert outcome.fix, "a failure without a way out"
