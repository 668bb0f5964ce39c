"""Whether a package may be copied to hosts in a bundle: by where its archive files it, or by its owner's licence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from gpuprov.errors import GpuprovError


class Licence(msgspec.Struct, frozen=True, kw_only=True):
    """A class of licences. `accept`: whether somebody has to say that the site may copy it."""

    key: str
    told: str
    source: str
    accept: bool = False
    names: str = ""


FREE = Licence(
    key="free",
    told="free software: the archive takes nothing else into this section",
    source="https://www.debian.org/social_contract#guidelines",
)
DRIVER = Licence(
    key="nvidia-driver",
    told="may be deployed on infrastructure that you own or lease, and handed on unmodified together with its licence",
    source="https://www.nvidia.com/en-us/drivers/nvidia-license/linux/",
    names=r"(lib)?nvidia-(?!container).*|libcuda1|libcuda1-.*|libnvcuvid1|libnvoptix1|nvlsm|xserver-xorg-video-nvidia.*|firmware-nvidia-.*|kmod-nvidia-.*",
)
SDK = Licence(
    key="nvidia-sdk",
    told="its EULA lets you install and use copies, and hand on only what its Attachment A lists; not the toolkit as such",
    source="https://docs.nvidia.com/cuda/eula/index.html",
    accept=True,
    names=r"cuda-.*|lib(cublas|cudart|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nccl|npp|nvinfer|nvjitlink|nvjpeg|nvrtc).*"
    r"|datacenter-gpu-manager.*|nsight-.*|gds-tools.*|nvidia-(cuda-(dev|gdb|toolkit)|gds|profiler|visual-profiler).*",
)
UNKNOWN = Licence(
    key="unknown",
    told="its archive files it as not free, and gpuprov knows no licence of it: read /usr/share/doc/PACKAGE/copyright",
    source="https://www.debian.org/doc/debian-policy/ch-archive.html#the-non-free-archive-area",
    accept=True,
)
ALL = (FREE, SDK, DRIVER, UNKNOWN)
NOT_FREE = ("non-free", "non-free-firmware", "restricted", "multiverse")


def licence(name: str, section: str) -> Licence:
    """The class of a package. `section` as in its index: `non-free/kernel`."""
    known = next((one for one in (SDK, DRIVER) if re.fullmatch(one.names, name)), None)
    area = section.partition("/")[0] if "/" in section else "main"
    if area in NOT_FREE:
        return known or UNKNOWN
    # NVIDIA's own repositories have no areas: their packages stand in sections as Debian's main does.
    return known or FREE


def judge(packages: Iterable[tuple[str, str]], accepted: Collection[str]) -> list[str]:
    """Names of the classes in use that are no free software. Raises GpuprovError for what nobody has accepted."""
    found: dict[str, list[str]] = {}
    for name, section in packages:
        found.setdefault(licence(name, section).key, []).append(name)
    for one in ALL:
        if one.accept and one.key in found and one.key not in accepted:
            names = sorted(set(found[one.key]))
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise GpuprovError(
                f"{shown}: {one.told} ({one.source})",
                f"where your contract with the owner allows the copy, say so with --accept-licence {one.key}; "
                "else leave the capability out of the spec; nothing was written",
            )
    return [one.key for one in ALL if one.key in found and one is not FREE]
