"""Hosts of other distributions than Debian that are right in everything, told as the text their probes print."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.verify.evaluate import Result
from tests.capabilities.asking import H100, NVSWITCH, daemon, fabric_state, units
from tests.capabilities.test_nvidia_driver_source import ROCKY, UBUNTU, dpkg, madison, repoquery, rpm
from tests.historic.listed import caught

VERSION, OLD, NEW = "580.95.05", "570.195.03", "580.105.08"
EL, EL_OLD, EL_NEW = (f"3:{version}-1.el9" for version in (VERSION, OLD, NEW))
UBUNTUS, UBUNTUS_OLD = f"{VERSION}-0ubuntu0.24.04.2", f"{OLD}-0ubuntu0.24.04.1"
UBUNTUS_NEW = f"{NEW}-0ubuntu0.24.04.1"
EL_KERNEL, UBUNTUS_KERNEL = "5.14.0-570.12.1.el9_6.x86_64", "6.8.0-60-generic"
PLUGIN = "".join(line for line in rpm(EL).splitlines(keepends=True) if line.split("|")[0] in ("plugin", "conf", "list"))


def el_fabric(version: str = VERSION, name: str = "nvidia-fabricmanager", *, locked: bool = True) -> str:
    """rpm's line of Fabric Manager, and its lock."""
    lock = f"lock|{name}-0:{version}-1.*\n" if locked else ""
    return f"rpm|{name}|0|{version}|1|x86_64|{name}-{version}-1.src.rpm\n{lock}"


def ubuntus_fabric(full: str = UBUNTUS, state: str = "hi ") -> str:
    """dpkg-query's line of it."""
    name = f"nvidia-fabricmanager-{full.partition('.')[0]}"
    return f"{state}|{name}|{full}|{name.replace('nvidia-', '')}\n"


RUNNING: dict[str, Output | str] = {
    "nvidia_functions": H100 + NVSWITCH,
    "units": units(fabric=("active", "enabled")),
    "fabric_bridges": "",
    "fabric_manager": daemon(VERSION),
    "fabric_state": fabric_state("0000:19:00.0"),
    "loaded_driver": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build  (dvs)  "
    "Thu Oct 10\n",
    "driver_libraries": f"/usr/lib/libcuda.so.{VERSION}\n/usr/lib/libnvidia-ml.so.{VERSION}\n",
    "nvidia_smi": f"00000000:19:00.0, NVIDIA H100 80GB HBM3, GPU-3c1f6d5e, {VERSION}, Enabled\n",
}
NVIDIAS_SOURCE = """@file /etc/yum.repos.d/cuda-rhel9.repo
 [cuda-rhel9-x86_64]
 baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64
 enabled=1
 gpgcheck=1
 gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-NVIDIA
@machine x86_64
@end
"""
OFFERED = "".join(f"rpm|nvidia-fabricmanager|0|{version}|1|x86_64\n" for version in (NEW, VERSION))
HOSTS: dict[str, dict[str, Output | str]] = {
    "EL": RUNNING
    | {
        "os_release": ROCKY,
        "repositories": NVIDIAS_SOURCE,
        "packages": rpm(EL) + el_fabric(),
        "fabric_packages": PLUGIN + el_fabric(),
        "package_index": repoquery(EL_NEW, EL, EL_OLD) + OFFERED + f"rpm|nvidia-fabric-manager|0|{OLD}|1|x86_64\n",
        "kernels": f"{EL_KERNEL}|1|1|{VERSION}|1\n",
        "initramfs": f"image /boot/initramfs-{EL_KERNEL}.img 1 0 dracut\n",
    },
    "Ubuntu": RUNNING
    | {
        "os_release": UBUNTU,
        "packages": dpkg(UBUNTUS) + ubuntus_fabric(),
        "fabric_packages": ubuntus_fabric(),
        "package_index": madison(UBUNTUS_NEW, UBUNTUS, UBUNTUS_OLD)
        + "".join(
            f" nvidia-fabricmanager-{full[:3]} | {full} | http://mirror.example/ubuntu noble/multiverse amd64 "
            "Packages\n"
            for full in (UBUNTUS_NEW, UBUNTUS, UBUNTUS_OLD)
        ),
        "kernels": f"{UBUNTUS_KERNEL}|1|1|{VERSION}|1\n",
        "initramfs": f"image /boot/initrd.img-{UBUNTUS_KERNEL} 1 0\n",
    },
}
FAMILIES = tuple(HOSTS)


def caught_on(
    on: str,
    identifier: str,
    *checks: str,
    along: Collection[str] = (),
    driver: NvidiaDriver | None = None,
    **planted: Any,
) -> dict[str, Result]:
    """`caught` on a host of this distribution with an NVSwitch, whose spec asks for fabric_manager."""
    return caught(identifier, *checks, along=along, driver=driver, base=HOSTS[on], on=on, **planted)
