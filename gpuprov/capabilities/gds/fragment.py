"""The `gds` block."""

import json
from typing import Annotated, Literal

import msgspec

from gpuprov.catalog import gds as catalogue
from gpuprov.facts.probes.driver.gds import toolkit
from gpuprov.host_code.json_members import Json
from gpuprov.spec.model import Fragment, HostSpec

SettingName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$",
        description="names joined by dots, as gdscheck -p prints them (properties.max_direct_io_size_kb)",
    ),
]
COMPAT_MODE = "properties.allow_compat_mode"


class Gds(Fragment, frozen=True):
    """GPUDirect Storage: libcufile, gdscheck and its tools of one CUDA release, nvidia-fs or PCI P2PDMA, settings of
    /etc/cufile.json.

    No package of a driver is installed, moved or removed with them.
    """

    toolkit: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^([0-9]{1,2}\.[0-9]{1,2})?$",
            description='a CUDA release as "12.8", or nothing. Its libcufile and gds-tools are installed; empty: '
            "the default of "
            "cuda_toolkit, or the newest of its versions, else the installed one, or the newest that the driver runs",
        ),
    ] = ""
    path: Annotated[
        Literal["nvidia-fs", "p2pdma"],
        msgspec.Meta(
            description="nvidia-fs is NVIDIA's module, built by DKMS beside open kernel modules, for all file "
            "systems; p2pdma is the kernel's own, for NVMe alone, from CUDA 12.8, driver 565 and Linux 6.2 on, "
            "without a module of its own"
        ),
    ] = "nvidia-fs"
    file_systems: Annotated[
        tuple[catalogue.FileSystem, ...],
        msgspec.Meta(description="those that GPU memory must be reached from directly, as gdscheck reports it"),
    ] = ()
    compat_mode: Annotated[
        Literal["keep", "allow", "deny"],
        msgspec.Meta(
            description="whether cuFile may read through the CPU where the direct path does not work, of which it "
            "says nothing; deny makes that an error of the program; keep leaves it as it is"
        ),
    ] = "keep"
    cufile: Annotated[
        dict[SettingName, bool | int | str | tuple[str, ...]],
        msgspec.Meta(description="further settings of /etc/cufile.json by name; all others stay as they are"),
    ] = {}


def is_of_ofed(host: HostSpec, block: Gds) -> bool:
    """True if nvidia-fs is built beside DOCA-OFED's modules, which replace the kernel's ib_core."""
    return block.path == "nvidia-fs" and getattr(host.capabilities.get("rdma"), "own_stack", "") == "doca-ofed"


def settings(host: HostSpec, block: Gds) -> dict[str, str]:
    """Return the settings of cufile.json that the block asks for, each in JSON."""
    values: dict[str, Json] = dict(block.cufile)
    if block.path == "p2pdma":
        values |= catalogue.p2pdma_settings(toolkit(host, block))
    if block.compat_mode != "keep":
        values[COMPAT_MODE] = block.compat_mode == "allow"
    return {name: json.dumps(value) for name, value in values.items()}


def packages(block: Gds, release: str) -> tuple[str, ...]:
    """Return the packages that the block asks for, of a CUDA release; the first ones have one version."""
    return (*catalogue.user_packages(release), *(catalogue.module_packages() if block.path == "nvidia-fs" else ()))
