"""Faults that can be switched on by name on a simulated host; each names the check that must detect it."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from gpuprov.catalog.mig import find_class
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate.description import Description
from gpuprov.simulate.faults import health, rdma, settings, sharing
from gpuprov.simulate.faults.base import SILICON, Fault
from gpuprov.simulate.parts.base import FAULTS as FOLDER
from gpuprov.simulate.standins import hpcx

PLUGIN = f"/opt/hpcx/{hpcx.PLUGIN}"
# ldconfig would link a copy beside it to the name again.
AWAY = "/opt/hpcx/plugin.away"
INTERRUPTED = "gpuprov-sim-interrupted"


TABLE: tuple[Fault, ...] = (
    Fault(
        "gpu-lost",
        "a GPU has fallen off the bus: NVML answers 'GPU is lost' for it (parameter: its index)",
        "nvidia_driver.user_space",
        plant=SILICON,
        heal=SILICON,
        parameter="0",
    ),
    Fault(
        "version-mismatch",
        "the loaded kernel module is of another version than the user space",
        "nvidia_driver.user_space",
        plant=SILICON,
        heal=SILICON,
    ),
    Fault(
        "nouveau-bound",
        "nouveau has taken the GPUs",
        "nouveau.running",
        plant=SILICON,
        heal=SILICON,
        kinds=("machine",),
    ),
    Fault(
        "fabric-manager-dead",
        "the fabric manager's process is gone, while the fabric state still says Completed",
        "fabric_manager.active",
        plant="systemctl kill --signal KILL nvidia-fabricmanager 2>&1 || true",
        heal="systemctl restart nvidia-fabricmanager",
    ),
    Fault(
        "cgpu-forgets",
        "cGPU's module was loaded anew and every GPU has its start values",
        "cgpu.settings",
        plant="/usr/lib/gpuprov-sim/cgpu",
        heal="systemctl restart gpuprov-cgpu 2>&1 || true",
        kinds=("container",),
    ),
    Fault(
        "gds-through-cpu",
        "no storage driver is registered with nvidia-fs: gdscheck lists every file system as Unsupported",
        "gds.direct",
    ),
    Fault(
        "gds-compat-mode",
        "somebody lets cuFile read through the CPU again",
        "gds.files",
        plant='sed -i \'s/\\("allow_compat_mode"[^a-z]*\\)false/\\1true/\' "$(readlink -f /etc/cufile.json)"',
        heal='sed -i \'s/\\("allow_compat_mode"[^a-z]*\\)true/\\1false/\' "$(readlink -f /etc/cufile.json)"',
    ),
    Fault(
        "hpc-plugin-missing",
        "NCCL's SHARP plugin is gone from HPC-X's folder",
        "hpc.plugin",
        plant=f"mv {PLUGIN} {AWAY}; ldconfig",
        heal=f"if [ -e {AWAY} ]; then mv {AWAY} {PLUGIN}; ldconfig; fi",
    ),
    Fault(
        "hpc-other-cuda",
        "NCCL's SHARP plugin is of an HPC-X that was built for another CUDA",
        "hpc.plugin",
        plant=f"cp {PLUGIN} {AWAY}; cp /opt/hpcx/{hpcx.OTHER_CUDA} {PLUGIN}",
        heal=f"if [ -e {AWAY} ]; then mv {AWAY} {PLUGIN}; fi",
    ),
    Fault("hpc-ucx-foreign", "ucx_info loads another UCX's libraries than those of its Open MPI", "hpc.ucx"),
    Fault(
        "gpu-client",
        "a user's process holds a GPU",
        "nvidia_driver.clients",
        plant="systemd-run --quiet --unit gpuprov-sim-client --slice user.slice sh -c 'exec 3</dev/nvidia0; exec "
        "sleep infinity'",
        heal="systemctl stop gpuprov-sim-client 2>&1 || true",
        moment="plan",
        kinds=("machine",),
    ),
    Fault(
        "mig-instance-gone",
        "the MIG instances are gone, as after a reset of the GPUs",
        "mig.instances",
        plant=sharing.NO_INSTANCES,
        heal=sharing.MIG_AGAIN,
    ),
    Fault(
        "mig-instance-foreign",
        "somebody made other MIG instances: one for each whole GPU",
        "mig.instances",
        plant=sharing.OTHER_INSTANCES,
        heal=sharing.MIG_AGAIN,
    ),
    Fault(
        "mig-mode-off",
        "MIG mode is off, as after the module was loaded anew under a Hopper GPU",
        "mig.mode",
        plant=sharing.MODE_OFF,
        heal=sharing.MIG_AGAIN,
    ),
    Fault(
        "mig-instance-client",
        "a user's process is on the first MIG device",
        "mig.clients",
        plant=sharing.mig_client(),
        heal=sharing.NO_CLIENT,
        moment="plan",
        kinds=("container",),
    ),
    Fault(
        "mig-client-stays",
        "a user's process is on the first MIG device, and ignores SIGTERM",
        "mig.clients",
        plant=sharing.mig_client("trap '' TERM; "),
        heal=sharing.NO_CLIENT,
        moment="plan",
        kinds=("container",),
    ),
    Fault(
        "mps-daemon-killed",
        "the MPS daemons are killed, and stay away",
        "mps.daemons",
        plant=sharing.MPS_STOP,
        heal=sharing.MPS_AGAIN,
    ),
    Fault(
        "mps-limit-changed",
        "somebody told the MPS daemons another share of threads (parameter: percent)",
        "mps.limits",
        plant=sharing.MPS_LIMIT,
        heal=sharing.MPS_AGAIN,
        parameter="33",
    ),
    Fault(
        "exclusive-mode-lost",
        "the GPUs are in compute mode DEFAULT, as after the module was loaded anew",
        "mps.compute_mode",
        plant="nvidia-smi -c DEFAULT >/dev/null",
        heal="nvidia-smi -c EXCLUSIVE_PROCESS >/dev/null",
    ),
    Fault(
        "gpu-settings-forgotten",
        "the GPUs have their own power limits and clocks again, as after the driver let go of them",
        "gpu_settings.power_limit",
        plant=settings.FORGET,
        heal=settings.AGAIN,
    ),
    Fault(
        "gpu-power-limit-changed",
        "somebody set another power limit by hand (parameter: watts)",
        "gpu_settings.power_limit",
        plant="nvidia-smi -pl $1 >/dev/null",
        heal=settings.AGAIN,
        parameter="200",
    ),
    Fault(
        "gpu-ecc-pending",
        "somebody switched ECC off, which waits for the next boot",
        "gpu_settings.ecc_boot",
        plant="nvidia-smi -e 0 >/dev/null",
        heal="nvidia-smi -e 1 >/dev/null",
    ),
    Fault(
        "gpu-settings-unit-disabled",
        "the unit that sets the GPUs at boot is disabled",
        "gpu_settings.enabled",
        plant="systemctl disable gpuprov-gpu-settings 2>/dev/null",
        heal="systemctl enable gpuprov-gpu-settings 2>/dev/null",
    ),
    Fault(
        "confidential-computing",
        "whoever hosts the machine gave its GPUs out in another confidential-computing mode (parameter: on, devtools)",
        "gpu_settings.confidential_computing",
        parameter="on",
    ),
    Fault(
        "mirror-fails",
        "the package mirror cuts the connection at the n-th package (parameter: n; n corrupt: handed out with "
        "another byte)",
        "could not be downloaded, nothing was changed",
        parameter="1",
        moment="apply",
    ),
    Fault(
        "boot-full",
        "/boot has no room for a rebuilt initramfs",
        "host.space",
        moment="plan",
        plant="free=$(df -Pm /boot | awk 'END {print $4}')\n"
        'if [ "$(stat -c %m /boot)" != /boot ]; then\n'
        "  used=$(du -sm /boot | cut -f1); rm -rf /boot.gpuprov-sim; cp -a /boot /boot.gpuprov-sim\n"
        "  mount -t tmpfs -o mode=755,size=$((used + 24))m gpuprov-sim-boot /boot; cp -a /boot.gpuprov-sim/. /boot/\n"
        'elif [ "$free" -gt 10 ]; then fallocate -l $((free - 10))M /boot/gpuprov-sim-fill; fi',
        heal="if findmnt -n -o SOURCE /boot | grep -q gpuprov-sim-boot; then umount -l /boot; fi; rm -rf "
        "/boot.gpuprov-sim\nrm -f /boot/gpuprov-sim-fill",
    ),
    Fault(
        "dkms-fails",
        "the kernel modules do not compile; those that were built are gone",
        "nvidia_driver.modules_built",
        plant="dkms status | sed -n 's#^\\(nvidia[^/]*\\)/\\([^,]*\\),.*#\\1/\\2#p' | sort -u "
        '| while read -r module; do dkms unbuild "$module" --all </dev/null; done >/dev/null 2>&1',
        heal='for kernel in $(ls /lib/modules); do dkms autoinstall -k "$kernel" </dev/null; done >/dev/null 2>&1',
    ),
    Fault(
        "dpkg-interrupted",
        "dpkg was interrupted: a package is unpacked and not configured",
        "host.packages",
        moment="plan",
        plant=f"d=$(mktemp -d); mkdir $d/DEBIAN\n"
        f"printf 'Package: {INTERRUPTED}\\nVersion: 1\\nArchitecture: all\\nMaintainer: gpuprov\\n"
        f"Description: a stand-in that gpuprov leaves unconfigured\\n' > $d/DEBIAN/control\n"
        f"dpkg-deb --build $d $d.deb >/dev/null; dpkg --unpack $d.deb >/dev/null; rm -r $d $d.deb",
        heal=f"dpkg --configure -a >/dev/null; dpkg --purge {INTERRUPTED} >/dev/null 2>&1 || true",
    ),
    *rdma.TABLE,
    *health.TABLE,
)
FAULTS = {fault.name: fault for fault in TABLE}


def find(name: str) -> Fault:
    """Return the fault of this name. Raises GpuprovError with the allowed names."""
    if name not in FAULTS:
        near = get_close_matches(name, FAULTS, 1)
        fix = f'did you mean "{near[0]}"?' if near else ""
        raise GpuprovError(f'fault is "{name}"; allowed: {", ".join(FAULTS)}', fix=fix)
    return FAULTS[name]


def check(description: Description) -> None:
    """Raise unless every fault of the description exists for its kind of host."""
    for item in description.faults:
        name, _, parameter = item.partition("=")
        fault = find(name)
        if description.kind not in fault.kinds:
            raise GpuprovError(
                f'fault "{fault.name}" needs a {" or ".join(fault.kinds)}, the host is a {description.kind}'
            )
        if fault.name.startswith("mig-") and description.gpu and find_class(description.gpu.known) is None:
            raise GpuprovError(f'fault "{fault.name}" needs GPUs with MIG, {description.gpu.model} has none')
        if fault.name == "cgpu-forgets" and not description.cgpu:
            raise GpuprovError(f'fault "{fault.name}" needs a host with cGPU', fix="describe it: cgpu: true")
        rdma.check(fault.name, parameter or fault.parameter, description)
        if not description.gpu and fault.name not in ("boot-full", "dpkg-interrupted"):
            raise GpuprovError(
                f'fault "{fault.name}" needs a host with simulated GPUs', fix="describe them: gpu: {model: ...}"
            )


def plant(host: str, item: str, run: Callable[[str, str], str]) -> Fault:
    """Switch a fault on: `NAME` or `NAME=PARAMETER`. If that fails, it is off."""
    name, _, parameter = item.partition("=")
    fault = find(name)
    value = parameter or fault.parameter
    switch = f"mkdir -p {FOLDER}; printf '%s\\n' '{_safe(value)}' > {FOLDER}/{name}\nset -- '{_safe(value)}'\n"
    try:
        run(host, f"{switch}{fault.plant}\n")
    except GpuprovError:
        run(host, f"rm -f {FOLDER}/{name}")
        raise
    return fault


def heal(host: str, name: str, run: Callable[[str, str], str]) -> Fault:
    """Switch a fault off."""
    fault = find(name)
    run(host, f"rm -f {FOLDER}/{name}\n{fault.heal}\n")
    return fault


def _safe(parameter: str) -> str:
    if not all(character.isalnum() or character in " .:-_" for character in parameter):
        raise GpuprovError(f'fault parameter is "{parameter}"; allowed: letters, digits, spaces and .:-_')
    return parameter
