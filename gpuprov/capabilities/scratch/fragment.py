"""The `scratch` block, and the configuration of its unit on the host."""

from typing import Annotated, Literal

from gpuprov.catalog import scratch as catalogue
from gpuprov.host_code.at_boot.scratch import Config, parse_config
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

Engine = Literal[
    "containerd", "crio", "docker", "k3s", "k3s-agent", "kubelet", "podman", "rke2-agent", "rke2-server", "slurmd"
]
Pattern = Annotated[
    str,
    describe(
        "a pattern of names in /dev/disk/by-id (nvme-SAMSUNG_MZQL23T8*)",
        pattern=r"^[*?]{0,2}[A-Za-z0-9][A-Za-z0-9*?._:+-]*$",
    ),
]


class Scratch(Fragment, frozen=True):
    """One scratch file system on the local NVMe disks, RAID 0 of several, made anew at boot when they came back empty.

    A unit mounts it before docker, containerd, CRI-O, kubelet and slurmd start. A disk that holds anything is never
    written to.
    """

    mount: Annotated[
        str,
        describe("the absolute path where it is mounted", pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$", max_length=200),
    ] = "/scratch"
    disks: Annotated[
        tuple[Pattern, ...],
        describe(
            "patterns of names in /dev/disk/by-id; none: the local disks of AWS, Azure and Google Cloud, by their model"
        ),
    ] = ()
    count: Annotated[
        int, describe("how many disks there must be, now and at each boot; 0: as many as there are", ge=0, le=64)
    ] = 0
    filesystem: Annotated[Literal["xfs", "ext4"], describe("what the disks are formatted with")] = "xfs"
    mode: Annotated[
        str, describe('the mode of its topmost folder, in octal and in quotes: "1777"', pattern=r"^[0-7]{3,4}$")
    ] = "1777"
    required_by: Annotated[
        tuple[Engine, ...],
        describe("services that must not start without it, which would write to the root disk instead"),
    ] = ()


def lines(block: Scratch) -> tuple[str, ...]:
    """Return the configuration of the boot unit: `KEY VALUE`."""
    values = {key: str(getattr(block, key)) for key in ("mount", "filesystem", "mode", "count")}
    return (
        *(f"{key} {value}" for key, value in values.items()),
        *(f"disk {pattern}" for pattern in block.disks),
        *(f"local {model}" for model in catalogue.list_models(local=True) if not block.disks),
        *(f"remote {model}" for model in catalogue.list_models(local=False)),
    )


def parse_block(block: Scratch) -> Config:
    """Return what the unit's program reads of this configuration."""
    return parse_config([line.split() for line in lines(block)])
