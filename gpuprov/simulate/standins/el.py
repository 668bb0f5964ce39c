"""Packages of a dnf host beside the driver: stand-ins in its rpm database for programs that are Debian's.

The distribution's repository, which stands for BaseOS, AppStream and EPEL in one, has them as well.
"""

from __future__ import annotations

from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts.base import text
from gpuprov.simulate.standins import rpm_kernels
from gpuprov.simulate.standins.model import Standin

# Programs that rpm packages may require: Debian's do the work.
USERLAND = {
    "bash": ("5.1.8-9", ("/bin/sh", "/usr/bin/sh", "/bin/bash", "/usr/bin/bash")),
    "glibc": ("2.34-168", ("/sbin/ldconfig", "/usr/sbin/ldconfig", "glibc(x86-64)")),
    "systemd": ("252-51", ("systemd-units",)),
    "python3": ("3.9.21-2", ("/usr/bin/python3", "/usr/libexec/platform-python", "platform-python")),
    "kmod": ("28-10", ()),
    "dracut": ("057-88.git20250311", ()),
    "grubby": ("8.40-63", ()),
    "openssl": ("3.2.2-6", ()),
    "gcc": ("11.5.0-5", ()),
    "make": ("4.3-8", ()),
    "shadow-utils": ("4.9-12", ()),
    "dnf": ("4.14.0-25", ("dnf-command(module)",)),
    "python3-dnf": ("4.14.0-25", ()),
    "python3-dnf-plugins-core": ("4.3.0-20", ()),
}
# Offered by the repository but not installed: their programs are Debian's and present anyway, if Debian's image has
# them.
OFFERED = {
    "dkms": ("3.0.13-1", "Dynamic Kernel Module Support", ("gcc", "make")),
    "elfutils-libelf-devel": ("0.192-6", "Development support for libelf", ()),
    "infiniband-diags": ("54.0-1", "InfiniBand diagnostic tools", ()),
    "libibumad": ("54.0-1", "OpenFabrics umad library", ()),
}
COMPILER = '#!/bin/sh\nexec gcc -x c "$@"\n'
AUTOMATIC = """\
[Unit]
Description=dnf automatic {what}

[Service]
Type=oneshot
ExecStart=/usr/bin/dnf-automatic /etc/dnf/automatic.conf --timer{flags}
"""
TIMER = (
    "[Unit]\nDescription=dnf automatic {what} timer\n\n[Timer]\nOnCalendar=*-*-* "
    "6:00\n\n[Install]\nWantedBy=timers.target\n"
)
PROGRAM = (
    "#!/usr/bin/python3\nimport sys\n\nimport dnf.automatic.main\n\nsys.exit(dnf.automatic.main.main(sys.argv[1:]))\n"
)


def installed(distribution: Distribution) -> list[Standin]:
    """Return the initial content of the rpm database."""
    tag, major = distribution.tag, distribution.major
    name = distribution.release_package or (
        "redhat-release" if distribution.id == "rhel" else f"{distribution.id}-release"
    )
    release = Standin(
        name,
        f"{distribution.version_id}-1.{tag}",
        f"{distribution.name} release files",
        provides=(
            f"system-release = {distribution.version_id}",
            f"system-release({major}) = {distribution.version_id}",
            f"base-module(platform:{distribution.platform or tag})",
            f"redhat-release = {distribution.version_id}" if name != "redhat-release" else "system-release(releasever)",
        ),
    )
    rows = [
        Standin(program, f"{version}.{tag}", f"{program}: the host's is Debian's", provides=provides)
        for program, (version, provides) in USERLAND.items()
    ]
    return [release, *rows, *rpm_kernels.installed(distribution)]


def offered(distribution: Distribution) -> list[Standin]:
    """Return further packages of the distribution's repository."""
    tag = distribution.tag
    rows = [
        Standin(name, f"{version}.{tag}", f"{summary}: the host's is Debian's", requires=requires)
        for name, (version, summary, requires) in OFFERED.items()
    ]
    rows += rpm_kernels.offered(distribution)
    rows.append(
        Standin(
            "gcc-c++",
            f"11.5.0-5.{tag}",
            "C++ support for GCC: as much as the stand-ins' source needs",
            files={"/usr/bin/g++": text(COMPILER, 0o755)},
            requires=("gcc",),
        )
    )
    rows.append(
        Standin(
            "python3-dnf-plugin-versionlock",
            f"4.3.0-20.{tag}",
            "Version Lock Plugin for DNF: the host's is Debian's",
            requires=("python3-dnf-plugins-core",),
            provides=("dnf-command(versionlock)",),
        )
    )
    files = {"/usr/bin/dnf-automatic": text(PROGRAM, 0o755)}
    for unit, what, flags in (
        ("dnf-automatic", "", ""),
        ("dnf-automatic-install", "install updates", " --installupdates"),
    ):
        files[f"/usr/lib/systemd/system/{unit}.service"] = text(AUTOMATIC.format(what=what, flags=flags))
        files[f"/usr/lib/systemd/system/{unit}.timer"] = text(TIMER.format(what=what))
    rows.append(
        Standin("dnf-automatic", f"4.14.0-25.{tag}", "Automated upgrades: the program is dnf's own", files=files)
    )
    return rows
