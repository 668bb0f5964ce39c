"""Local NVMe disks of a host and what is on them, told as the probe `scratch` prints it. Models and serial numbers are
those of `nvme list` and `lsblk` on instances of AWS, Azure and Google Cloud."""

from __future__ import annotations

AWS, EBS = "Amazon EC2 NVMe Instance Storage", "Amazon Elastic Block Store"
ARRAY = "407b8d22-4e9f-ed01-aa23-10cbf9554f3b"
"""As wipefs prints it; mdadm groups the same digits by eight."""
FILESYSTEM = "f2d38cba-37da-411d-b7ba-9a6696c58174"
SECTORS = 7_501_476_528
ROOT = (
    f"disk|nvme0n1|419430400|pcie|{EBS}|vol0546d3c3b0af0bf6d\npart|nvme0n1|nvme0n1p1\nmount|nvme0n1|/\nsignature|"
    "nvme0n1|,,gpt\n"
)
MEMBER = f"{ARRAY},gpu1:gpuprov-scratch,linux_raid_member"


def disk(name: str, *more: str, model: str = AWS, transport: str = "pcie", serial: str = "AWS24BBF51AF55097008") -> str:
    """A disk with these further lines `KIND|REST`, which get its name."""
    rows = [f"{kind}|{name}|{rest}" for kind, _, rest in (line.partition("|") for line in more)]
    return "\n".join([f"disk|{name}|{SECTORS}|{transport}|{model}|{serial}", *rows, ""])


def said(*disks: str, own: str = "", more: str = "") -> str:
    """What the probe prints of these disks beside the root disk. own: the record."""
    return ROOT + "".join(disks) + "tool|mdadm\ntool|mkfs.xfs\ntool|mkfs.ext4\n" + own + more + "read|\n"


def members(*names: str, more: tuple[str, ...] = ("holder|md127|",)) -> list[str]:
    return [disk(name, f"signature|{MEMBER}", *more) for name in names]


def array(filesystem: str = FILESYSTEM, *more: str, kind: str = "xfs") -> str:
    rows = [f"array|md127|{2 * SECTORS}", *([f"signature|md127|{filesystem},,{kind}"] if filesystem else []), *more, ""]
    return "\n".join(rows)


OWN = f"own|array|{ARRAY}\nown|disks|2\nown|filesystem|{FILESYSTEM}\n"
MOUNTED = "mount|md127|/scratch\nat|md127|xfs|1777\n"
BLANK = said(disk("nvme1n1"), disk("nvme2n1"))
PROBES = {"scratch": said(*members("nvme1n1", "nvme2n1"), own=OWN, more=array() + MOUNTED)}
