"""Everything that touches silicon, simulated: PCI functions, NVIDIA's kernel modules, /proc/driver/nvidia and the
device files.

In a machine our kernel module puts the functions on the PCI bus and the real kernel does the rest. A container has no
kernel of its own: there a program overlays sysfs, /proc and /dev with the same content at boot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from gpuprov.catalog.drivers import Version
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import PROGRAMS, File, Part
from gpuprov.simulate.parts.silicon_files import tree

FOLDER = Path(__file__).parent / "silicon_files"
UNIT = "gpuprov-sim-silicon.service"
# Unit that shows RDMA modules once a modules-load list names them, and OFED's files once its sources are installed.
REFRESH = "gpuprov-sim-bus.path"
# The name under which QEMU must hand the table of devices to a machine: `-fw_cfg name=opt/gpuprov.devices,file=...`.
FW_CFG = "opt/gpuprov.devices"
Flavour = Literal["proprietary", "open"]
# DKMS package names, as in Debian's nvidia-kernel-dkms and nvidia-open-kernel-dkms.
DKMS_NAMES: dict[Flavour, str] = {"proprietary": "nvidia-current", "open": "nvidia-current-open"}
MODULE_SOURCE = "/usr/src/gpuprov-sim-pci-1"
KNOWN_TO_DKMS = "[ -e /var/lib/dkms/gpuprov-sim-pci/1 ] || dkms add gpuprov-sim-pci/1 >/dev/null"
MODULES = ("nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm", "nvidia-peermem")


def part(name: str, description: Description) -> Part:
    """Return the PCI functions and the driver's state, for either kind of host; nothing for a host without GPUs."""
    if description.gpu is None:
        return Part()
    files = {f"/etc/systemd/system/{UNIT}": File(FOLDER / UNIT)}
    if description.kind == "container":
        files[f"{PROGRAMS}/silicon"] = File(FOLDER / "silicon_container.py", 0o755)
        files[f"{PROGRAMS}/parameters.txt"] = File(FOLDER / "nvidia" / "parameters.txt")
        files[f"{PROGRAMS}/bus"] = File(FOLDER / "bus_container.py", 0o755)
        files[f"{PROGRAMS}/bus-show"] = File(FOLDER / "bus_show_container.py", 0o755)
        files[f"{PROGRAMS}/sysfs.json"] = File(tree.make_file(name, description))
        if description.hcas or description.nvswitch == 4:
            files |= {
                f"/etc/systemd/system/{unit}": File(FOLDER / unit) for unit in (REFRESH, "gpuprov-sim-bus.service")
            }
            return Part(files=files, units=(UNIT, REFRESH))
        return Part(files=files, units=(UNIT,))
    # Known to DKMS, so that a kernel which comes later has the functions, too.
    return Part(files=files | boot_files(), script=KNOWN_TO_DKMS, units=(UNIT,))


def boot_files() -> dict[str, File]:
    """Return files that a machine's disk must hold when its initramfs is made, so that the functions exist before udev
    runs."""
    machine = FOLDER / "machine"
    files = {
        f"{PROGRAMS}/silicon": File(machine / "silicon.sh", 0o755),
        "/etc/initramfs-tools/hooks/gpuprov-sim": File(machine / "initramfs-hook.sh", 0o755),
        "/etc/initramfs-tools/scripts/init-top/gpuprov-sim": File(machine / "initramfs-script.sh", 0o755),
        "/etc/udev/rules.d/70-gpuprov-sim.rules": File(machine / "gpuprov-sim.rules"),
    }
    return files | {f"{MODULE_SOURCE}/{name}": File(content) for name, content in module_sources().items()}


def module_sources() -> dict[str, bytes]:
    """Return gpuprov_sim_pci as a DKMS source tree, by file name."""
    return {file.name: file.read_bytes() for file in sorted((FOLDER / "pci").iterdir()) if file.is_file()}


def rpm_dkms_name(version: str, flavour: Flavour) -> str:
    """Return the DKMS name of the modules in NVIDIA's rpm: one for both flavours since 570.148.08, as far as is
    known."""
    # https://github.com/awslabs/amazon-eks-ami/pull/2370 (570.172.08) and 2284 (570.133.20)
    return "nvidia-open" if flavour == "open" and Version.parse(version) < Version.parse("570.148.08") else "nvidia"


def rpm_source(version: str, flavour: Flavour) -> dict[str, bytes]:
    """Return `dkms_source` of NVIDIA's rpm: its dkms.conf has the name nvidia whatever the folder, and the open build
    needs g++."""
    # https://github.com/NVIDIA/open-gpu-kernel-modules/pull/567 and issue 805
    sources = dkms_source(version, flavour, "nvidia")
    if flavour == "open":
        sources["dp_auxretry.cpp"] = (
            b"/* NVIDIA's open modules have C++ in them; this stands for it. */\nint gpuprov_stand_in;\n"
        )
        compile_it = b"sh -c 'g++ -fsyntax-only dp_auxretry.cpp' && env NV_VERBOSE=1 make"
        sources["dkms.conf"] = sources["dkms.conf"].replace(b"env NV_VERBOSE=1 make", compile_it)
    return sources


def dkms_source(version: str, flavour: Flavour, package: str = "") -> dict[str, bytes]:
    """Return the stand-in modules as a DKMS source tree, the content of /usr/src/<name>-<version> in Debian's package
    of the flavour.

    `version` is the driver's, `535.309.01`. `package` is their DKMS name elsewhere; the modules themselves have
    NVIDIA's names there. The build fails while the fault dkms-fails is on.
    """
    sources = {
        file.name: file.read_bytes()
        for file in sorted((FOLDER / "nvidia").iterdir())
        if file.suffix in {".c", ".h"} or file.name in {"Kbuild", "Makefile"}
    }
    sources["stand-in.h"] = _header(version, flavour).encode()
    sources["parameter-table.h"] = _parameters(version).encode()
    sources["dkms.conf"] = _dkms_conf(version, flavour, package).encode()
    return dict(sorted(sources.items()))


def other_version(version: str) -> str:
    """Return the version that the fault version-mismatch shows without a parameter."""
    head, _, last = version.rpartition(".")
    return f"{head}.{'98' if last == '99' else '99'}"


def _header(version: str, flavour: Flavour) -> str:
    is_open = flavour == "open"
    # nvidia-frontend was given up in branch 545: then each device has its own name in /proc/devices.
    frontend = int(version.partition(".")[0]) < 545
    line = (
        "NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (gpuprov-stand-in)  Thu Jan  1 00:00:00 UTC 1970"
        if is_open
        else "NVIDIA UNIX x86_64 Kernel Module  %s  Thu Jan  1 00:00:00 UTC 1970"
    )
    macros = {
        "NV_VERSION_STRING": version,
        "NV_OTHER_VERSION": other_version(version),
        "NV_VERSION_LINE": line,
        "NV_LICENSE": "Dual MIT/GPL" if is_open else "NVIDIA",
        "NV_DRM_LICENSE": "Dual MIT/GPL" if is_open else "MIT",
        "NV_CHRDEV_NAME": "nvidia-frontend" if frontend else "nvidia",
        "NV_CONTROL_NAME": "nvidia-frontend" if frontend else "nvidiactl",
    }
    return (
        "/* Which NVIDIA driver this stand-in stands for; made by gpuprov. */\n"
        "#ifdef GPUPROV_SIM_DKMS_FAILS\n#error the fault dkms-fails of the simulation is switched on\n#endif\n"
        + "".join(f'#define {name} "{value}"\n' for name, value in macros.items())
    )


def _parameters(version: str) -> str:
    branch = int(version.partition(".")[0])
    tables: dict[str, list[str]] = {"NUMBERS": [], "TEXTS": []}
    for line in (FOLDER / "nvidia" / "parameters.txt").read_text(encoding="utf-8").splitlines():
        name, default, since = (line.split() + ["0"])[:3] if not line.startswith("#") else ("", "", "0")
        if name and int(since) <= branch:
            taken = "RestrictProfilingToAdminUsers" if name == "RmProfilingAdminOnly" else name
            tables["TEXTS" if default == '""' else "NUMBERS"].append(f"X({taken}, {name}, {default})")
    return "".join(f"#define {table}(X) \\\n\t" + " \\\n\t".join(rows) + "\n" for table, rows in tables.items())


def _dkms_conf(version: str, flavour: Flavour, package: str) -> str:
    name = package or DKMS_NAMES[flavour]
    place = "/extra" if package else "/updates/dkms"  # Debian's and Ubuntu's dkms has /updates/dkms in any case
    modules = {module: module if package else f"{name}{module.removeprefix('nvidia')}" for module in MODULES}
    lines = [
        f"# Stand-in for NVIDIA's kernel modules {version} ({flavour}), made by gpuprov: drives no hardware.",
        f'PACKAGE_NAME="{name}"',
        f'PACKAGE_VERSION="{version}"',
        "AUTOINSTALL=yes",
        # dkms adds KERNELRELEASE=... to a command that begins with make.
        'MAKE[0]="env NV_VERBOSE=1 make ${parallel_jobs+-j$parallel_jobs} modules KERNEL_UNAME=${kernelver}"',
        'CLEAN="true"',
    ]
    for index, (module, installed) in enumerate(modules.items()):
        lines += [
            f'BUILT_MODULE_NAME[{index}]="{module}"',
            f'DEST_MODULE_NAME[{index}]="{installed}"',
            f'DEST_MODULE_LOCATION[{index}]="{place}"',
        ]
    return "\n".join(lines) + "\n"
