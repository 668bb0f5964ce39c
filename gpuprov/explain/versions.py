"""Versions, generations and package names: answers about words that are neither a symptom nor part of a spec."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpuprov.catalog import cuda, drivers
from gpuprov.catalog.chips import VENDOR, find_chips, find_generation
from gpuprov.catalog.gpus import ARCHITECTURES, NEEDS, Gpu, list_gpus
from gpuprov.core.errors import GpuprovError

# 570, 570.133.20, r570, `nvidia driver 570`, 535.309.01-0ubuntu0.24.04.2
_DRIVER = re.compile(r"(?:nvidia[ -]?)?(?:driver |branch |r)?([0-9]{3})(\.[0-9.]+)?(?:[-+~][\w.+~-]*)?")
# nvidia-driver-535-server, libnvidia-compute-550-server, xserver-xorg-video-nvidia-535
_PACKAGE = re.compile(r"(?:lib|kmod-|cuda-drivers|xserver-xorg-video-)?[\w-]*nvidia[a-z0-9-]*-([0-9]{3})(?:-[a-z-]+)?")
# cuda-drivers-fabricmanager-450
_OWN_PACKAGE = re.compile(r"cuda-(?:drivers(?:-fabricmanager)?)-([0-9]{3})")
_CUDA = re.compile(r"(?:cuda[ -]?)?([0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]{1,2})?)")
_CAPABILITY = re.compile(r"(?:sm_|compute_|compute capability )([0-9]{1,2})\.?([0-9])")
MOST_MODELS = 6


class About(NamedTuple):
    """One answer: its kind, its name, and titled lines about it."""

    kind: str
    name: str
    lines: tuple[tuple[str, str], ...]


def explain_version(text: str) -> Iterator[About]:
    """Yield what the catalogue knows of a driver's branch or version, a driver's package, a CUDA version, a generation
    of GPUs or a compute capability; nothing for other words."""
    plain = " ".join(text.casefold().split())
    package = _PACKAGE.fullmatch(plain) or _OWN_PACKAGE.fullmatch(plain)
    if package:
        yield from _explain_branch(package[1], f"a package of driver branch {package[1]}, which nvidia_driver installs")
    elif driver := _DRIVER.fullmatch(plain):
        yield from _explain_branch(driver[1])
    elif toolkit := _CUDA.fullmatch(plain):
        yield from _explain_cuda(toolkit[1])
    elif chip := _CAPABILITY.fullmatch(plain):
        yield from _explain_models(f"compute capability {chip[1]}.{chip[2]}", f"{chip[1]}.{chip[2]}", "")
    else:
        generation = next((name for name in ARCHITECTURES if name.casefold() == plain), "")
        yield from _explain_models(generation, "", plain) if generation else _explain_chips(plain)


def _explain_branch(branch: str, package: str = "") -> Iterator[About]:
    entry = drivers.find_branch(branch)
    if entry is None:
        return
    lines = [("is", package)] if package else []
    lines += [("runs", f"CUDA {entry.cuda} and older")] if entry.cuda else []
    lines += [
        ("support", drivers.end_of_life(branch).text),
        ("write", f'nvidia_driver: {{version: "{branch}"}}'),
        ("see", "gpuprov catalog drivers"),
    ]
    yield About("driver branch", branch, tuple(lines))


def _explain_cuda(version: str) -> Iterator[About]:
    try:
        support = cuda.check_support("1", version)
    except GpuprovError:
        return
    if not cuda.find_toolkit(version):
        return
    short = ".".join(version.split(".")[:2])
    lines = (
        ("needs", support.reason),
        ("write", f'cuda_toolkit: {{versions: ["{version}"]}} for the toolkit'),
        ("or", f'nvidia_driver: {{cuda: "{short}"}} for a driver that runs it'),
        ("see", "gpuprov catalog cuda"),
    )
    yield About("CUDA version", version, lines)


def _explain_chips(name: str) -> Iterator[About]:
    """Yield what drives the GPUs of a chip, or of a generation of which the catalogue has no model."""
    if not (chips := find_chips(name)):
        return
    generation = find_generation(chips[0].arch)
    since = f", from branch {generation.first_branch} on" if generation.first_branch else ""
    last = f", branch {generation.last_branch} is the last" if generation.last_branch else ""
    ids = (f"{chip.chip}: {VENDOR}:{chip.first} to {chip.last}" for chip in chips)
    models = ", ".join(gpu.key for gpu in list_gpus() if gpu.chip == chips[0].chip)
    lines = (
        ("chips", "; ".join(ids)),
        ("driver", f"{NEEDS[generation.flavour]}{since}{last}"),
        *([("GPUs", models)] if models else []),
        *([] if generation.confidence == "confirmed" else [("certainty", generation.confidence)]),
        ("see", "gpuprov catalog gpus"),
    )
    is_chip = chips[0].chip.casefold() == name
    yield About("chip" if is_chip else "generation of GPUs", chips[0].chip if is_chip else chips[0].arch, lines)


def _explain_models(name: str, capability: str, generation: str) -> Iterator[About]:
    def is_meant(gpu: Gpu) -> bool:
        return gpu.compute_capability == capability if capability else gpu.arch.casefold() == generation

    models = [gpu for gpu in list_gpus() if is_meant(gpu)]
    if not models:
        return
    more = f" and {len(models) - MOST_MODELS} more" if len(models) > MOST_MODELS else ""
    capabilities = sorted({gpu.compute_capability for gpu in models})
    lines = (
        ("GPUs", ", ".join(gpu.key for gpu in models[:MOST_MODELS]) + more),
        *([] if capability else [("compute", f"capability {', '.join(capabilities)}")]),
        ("see", "gpuprov catalog gpus"),
    )
    yield About("generation of GPUs" if not capability else "GPUs", name, lines)
