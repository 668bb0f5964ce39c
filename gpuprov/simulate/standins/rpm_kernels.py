"""Kernel packages of a host of the dnf family: one kernel, whose headers are Debian's under its name."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.standins.model import Standin


@dataclass(frozen=True)
class Kernel:
    """`installed` and `offered` are suffixes of the kernel's package name in those of its parts."""

    installed: tuple[str, ...]
    offered: tuple[str, ...] = ()
    epoch: int = 0


EL = ("", "-core", "-modules", "-modules-core", "-devel", "-headers")
KERNELS = {
    # https://docs.aws.amazon.com/linux/al2023/release-notes/relnotes-2023.10.20260302.html
    "azurelinux": Kernel(("", "-devel", "-headers"), ("-drivers-gpu",)),
    "alinux": Kernel(("", "-core", "-modules", "-devel", "-headers")),
    "amzn": Kernel(("", "-devel", "-headers"), ("-modules-extra", "-modules-extra-common"), epoch=1),
}


def installed(distribution: Distribution) -> list[Standin]:
    """Return the initially installed packages."""
    known = KERNELS.get(distribution.id)
    if known:
        return [_build_standin(distribution, part, known.epoch) for part in known.installed]
    made = [_build_standin(distribution, part) for part in EL]
    if distribution.major != "8":
        version = _version(distribution)
        made.append(
            _build_standin(
                distribution, "-devel-matched", requires=tuple(f"kernel{p} = {version}" for p in ("-devel", "-core"))
            )
        )
    return made


def offered(distribution: Distribution) -> list[Standin]:
    """Return further packages of the distribution's repository."""
    known = KERNELS.get(distribution.id)
    return [_build_standin(distribution, part, known.epoch) for part in known.offered] if known else []


def _build_standin(distribution: Distribution, part: str, epoch: int = 0, requires: tuple[str, ...] = ()) -> Standin:
    name = f"{distribution.kernel_package}{part}"
    provides = (f"{name}-uname-r = {distribution.kernel}",) if part in ("-core", "-devel", "-modules") else ()
    return Standin(
        name,
        _version(distribution),
        f"{name}: Debian's kernel under this name",
        provides=provides,
        requires=requires,
        epoch=epoch,
    )


def _version(distribution: Distribution) -> str:
    return distribution.kernel.removesuffix(".x86_64")
