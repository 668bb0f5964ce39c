"""Precompiled kernel modules as stand-ins: Ubuntu's linux-modules-nvidia-... and NVIDIA's kmod-nvidia-VERSION-KERNEL.

Names, version forms and relations are the real ones (https://github.com/NVIDIA/cloud-native-docs
gpu-operator/precompiled-drivers.rst, https://github.com/NVIDIA/yum-packaging-precompiled-kmod); the objects hold a
module's description and no code.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path

from gpuprov.catalog.drivers import Version, derive_branch
from gpuprov.simulate import tools
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.parts.silicon import MODULES
from gpuprov.simulate.repository.standins import Flavour
from gpuprov.simulate.standins.model import Standin

FLAVOURS: tuple[tuple[Flavour, str], ...] = (("proprietary", ""), ("open", "-open"))
LICENSES: dict[Flavour, str] = {"proprietary": "NVIDIA", "open": "Dual MIT/GPL"}
SOURCE = """\
#define INFO(name, text) static const char name[] __attribute__((section(".modinfo"), used, aligned(1))) = text
INFO(version, "version={version}");
INFO(license, "license={license}");
INFO(description, "description=a gpuprov stand-in: it drives no hardware, and has no code");
"""
LINK = """\
#!/bin/sh
set -e
for object in {place}/bits/*.o; do module=${{object##*/}}; cp "$object" "{place}/${{module%.o}}.ko"; done
depmod -a {kernel}
"""
UNLINK = "#!/bin/sh\nset -e\nrm -f {place}/*.ko\ndepmod -a {kernel} || :\n"
# Release of NVIDIA's packages, before the kernel's own tag.
RELEASE = "3"


@cache
def module(version: str, flavour: Flavour) -> bytes:
    """Return an object that modinfo reads as a module of this version and flavour."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        source, target = Path(temporary) / "module.c", Path(temporary) / "module.o"
        source.write_text(SOURCE.format(version=version, license=LICENSES[flavour]), encoding="utf-8")
        tools.run(["gcc", "-c", "-o", str(target), str(source)])
        return target.read_bytes()


def ubuntu(distribution: Distribution, versions: Iterable[str]) -> list[Standin]:
    """Return linux-restricted-modules for the distribution's kernel: for each branch one package version for each
    driver."""
    kernel = distribution.kernel
    base, build, kind = kernel.split("-", 2)
    plain = f"{base}-{build}.{build}"
    make = partial(Standin, source="linux-restricted-modules")
    made = [
        Standin(f"linux-image-{kernel}", plain, "Signed kernel image: the host's is Debian's", source="linux-signed"),
        Standin(
            f"linux-image-{kind}",
            plain,
            "Generic Linux kernel image",
            requires=(f"linux-image-{kernel}",),
            source="linux-meta",
        ),
    ]
    seen: dict[str, int] = {}
    for version in sorted(versions, key=Version.parse):
        branch = derive_branch(version)
        spin = seen.setdefault(branch, 0)
        seen[branch] += 1
        full = f"{plain}+{spin}" if spin else plain
        made.append(
            make(
                f"linux-signatures-nvidia-{kernel}",
                full,
                f"Linux kernel signatures for nvidia modules for version {kernel}",
            )
        )
        for flavour, end in FLAVOURS:
            made += _modules(kernel, version, full, flavour, end)
    unique = {(package.name, package.version): package for package in made}
    return list(unique.values())


def _modules(kernel: str, version: str, full: str, flavour: Flavour, end: str) -> Iterator[Standin]:
    """Yield the modules of one driver and flavour. full: the packages' version; end: of their names."""
    branch, kind, exact = derive_branch(version), kernel.split("-", 2)[2], f"(= {full})"
    name = f"{branch}-server{end}"
    place = f"/lib/modules/{kernel}/kernel/nvidia-{branch}srv{end}"
    common = f"nvidia-kernel-common-{branch}-server"
    make = partial(Standin, version=full, source="linux-restricted-modules")
    yield make(
        f"linux-objects-nvidia-{name}-{kernel}",
        summary=f"Linux kernel nvidia modules for version {kernel} (objects)",
        files={f"{place}/bits/{each}.o": File(module(version, flavour)) for each in MODULES},
    )
    yield make(
        f"linux-modules-nvidia-{name}-{kernel}",
        summary=f"Linux kernel nvidia modules for version {kernel}",
        requires=(
            f"linux-image-{kernel} | linux-image-unsigned-{kernel}",
            f"linux-signatures-nvidia-{kernel} {exact}",
            f"linux-objects-nvidia-{name}-{kernel} {exact}",
            f"{common} (<= {version}-1)",
            f"{common} (>= {version})",
        ),
        scripts={
            "postinst": LINK.format(place=place, kernel=kernel),
            "prerm": UNLINK.format(place=place, kernel=kernel),
        },
    )
    yield make(
        f"linux-modules-nvidia-{name}-{kind}",
        summary=f"Extra drivers for nvidia-{name} for the {kind} flavour",
        requires=(f"linux-modules-nvidia-{name}-{kernel} {exact}",),
    )


def nvidia(distribution: Distribution, version: str, epoch: int) -> Standin:
    """Return NVIDIA's package of proprietary modules for the distribution's kernel."""
    kernel = distribution.kernel
    match = re.fullmatch(r"(.+)\.(el\d[^.]*)\.x86_64", kernel)
    bare, tag = (match[1], match[2]) if match else (kernel, distribution.tag)
    objects = f"/usr/lib64/nvidia/x86_64/{version}/{bare}.{tag}"
    place = f"/lib/modules/{kernel}/extra/drivers/video/nvidia"
    link = (
        f'mkdir -p {place}\nfor o in {objects}/*.o; do m=${{o##*/}}; cp "$o" "{place}/${{m%.o}}.ko"; '
        f"done\ndepmod -a {kernel}\n"
    )
    return Standin(
        f"kmod-nvidia-{version}-{bare}",
        f"{version}-{RELEASE}.{tag}",
        f"NVIDIA kernel modules for {kernel}",
        epoch=epoch,
        files={f"{objects}/{name}.o": File(module(version, "proprietary")) for name in MODULES},
        requires=(f"kernel = {bare}.{tag}",),
        provides=(f"nvidia-kmod = {epoch}:{version}", f"kernel-modules = {kernel}"),
        conflicts=("kmod-nvidia-latest-dkms",),
        scripts={"post": link, "preun": f'[ "$1" != 0 ] || rm -rf {place}\n', "postun": f"depmod -a {kernel} || :\n"},
    )
