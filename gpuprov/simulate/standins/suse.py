"""Packages of a zypper host beside the driver: stand-ins in its rpm database for programs that are Debian's.

The distribution's repository, which stands for SLES's modules, or Leap's oss and update, in one, has them as well.
"""

from __future__ import annotations

from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts.base import text
from gpuprov.simulate.standins.el import COMPILER
from gpuprov.simulate.standins.model import Standin

# Programs that rpm packages may require: Debian's do the work.
USERLAND = {
    "bash": ("4.4-150400.27.3.2", ("/bin/sh", "/usr/bin/sh", "/bin/bash", "/usr/bin/bash")),
    "glibc": ("2.38-150600.14.32.1", ("/sbin/ldconfig", "/usr/sbin/ldconfig", "glibc(x86-64)")),
    "systemd": ("254.24-150600.4.28.1", ("systemd-units",)),
    "python311": ("3.11.12-150600.3.27.1", ("/usr/bin/python3", "python3")),
    "kmod": ("29-150600.13.3", ()),
    "dracut": ("059+suse.567.gadd3169d-150600.3.20.2", ()),
    "perl-Bootloader": ("1.8.2-150600.3.3.1", ()),
    "openssl": ("3.1.4-150600.2.1", ()),
    "gcc": ("7-3.9.1", ()),
    "make": ("4.2.1-7.3.2", ()),
    "shadow": ("4.8.1-150600.17.12.1", ("shadow-utils",)),
    "zypper": ("1.14.89-150600.10.31.1", ()),
    "mokutil": ("0.5.0-150400.3.3.1", ()),
}
# Offered by the repository but not installed: their programs are Debian's and present anyway, if Debian's image has
# them.
OFFERED = {
    "libibumad3": ("49.1-150600.2.3", "OpenFabrics InfiniBand user-space management datagram library"),
    "infiniband-diags": ("49.1-150600.2.3", "InfiniBand diagnostic tools"),
}


def installed(distribution: Distribution) -> list[Standin]:
    """Return the initial content of the rpm database."""
    name = "sles-release" if distribution.id == "sles" else "Leap-release"
    release = Standin(
        name,
        f"{distribution.version_id}-{distribution.tag}",
        f"{distribution.name} release files",
        provides=(f"distribution-release = {distribution.version_id}",),
    )
    rows = [
        Standin(program, version, f"{program}: the host's is Debian's", provides=provides)
        for program, (version, provides) in USERLAND.items()
    ]
    return [release, *rows, *kernels(distribution)]


def offered(distribution: Distribution) -> list[Standin]:
    """Return further packages of the distribution's repository."""
    rows = [
        Standin(name, version, f"{summary}: the host's is Debian's") for name, (version, summary) in OFFERED.items()
    ]
    compiler = Standin(
        "gcc-c++",
        "7-3.9.1",
        "C++ support for GCC: as much as the stand-ins' source needs",
        files={"/usr/bin/g++": text(COMPILER, 0o755)},
        requires=("gcc",),
    )
    return [*rows, compiler, *(kernel for kernel in kernels(distribution) if kernel.name != "kernel-default")]


def kernels(distribution: Distribution) -> list[Standin]:
    """Return the packages of the single kernel: its headers are Debian's under its name. SUSE's rebuild number is not
    in a kernel's release."""
    release = distribution.kernel.removesuffix("-default")
    return [
        Standin(
            name,
            f"{release}.1",
            f"{name}: Debian's kernel under this name",
            provides=(f"{name} = {release}", "multiversion(kernel)"),
        )
        for name in ("kernel-default", "kernel-default-devel", "kernel-devel", "kernel-macros")
    ]
