"""The container images of simulated hosts: Debian with systemd, sshd, Python and everything a driver build needs.

Hosts of the dnf and zypper families have their own images, with rpm, dnf or zypper, and dracut; Ubuntu's start from
Debian's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuprov.host_code.caches import get_cache_folder
from gpuprov.simulate import engine, sources, tools
from gpuprov.simulate.distributions import Distribution, find

COMPONENTS = "main contrib non-free non-free-firmware"
USER = "gpuadmin"  # may become root with sudo, as on a real fleet; root itself has the same key
PACKAGES: tuple[str, ...] = (
    *("systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "iproute2", "pciutils", "ca-certificates"),
    *("openssh-server", "sudo", "python3", "python3-apt"),
    *("initramfs-tools", "zstd"),
    *("build-essential", "dkms", "linux-headers-amd64"),  # what a DKMS build of the NVIDIA driver needs
)
# Debian 12's headers come without a kernel image. With the configuration of the kernel whose headers are there,
# mkinitramfs works all the same: a small, real /boot/initrd.img that update-initramfs rebuilds and lsinitramfs reads.
# Debian 13's headers bring the kernel image along: there the initramfs is a whole one.
INITRAMFS = (
    "for kernel in $(ls /lib/modules); do "
    'cp "/usr/src/linux-headers-$kernel/.config" "/boot/config-$kernel"; '
    'touch "/lib/modules/$kernel/modules.order" "/lib/modules/$kernel/modules.builtin" '
    '"/lib/modules/$kernel/modules.builtin.modinfo"; '
    'depmod "$kernel"; update-initramfs -c -k "$kernel"; done'
)
# Debian's rpm keeps its database in the home folder of whoever calls it; an initramfs is made as fast as it can be.
DNF = r"""
mkdir -p /etc/rpm /usr/libexec /usr/src/kernels /etc/yum.repos.d /etc/dracut.conf.d /boot/loader/entries
printf '%%_dbpath /var/lib/rpm\n' > /etc/rpm/macros
rm -f /etc/dnf/aliases.d/zypper.conf
printf '[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\nskip_if_unavailable=False\n' \
  > /etc/dnf/dnf.conf
ln -s /usr/bin/python3 /usr/libexec/platform-python
printf '/usr/lib64\n' > /etc/ld.so.conf.d/lib64.conf
printf 'do_strip=no\ncompress=cat\nomit_dracutmodules+=" crypt dm nvdimm lunmask resume lvm mdraid "\n' \
  > /etc/dracut.conf.d/gpuprov-sim.conf
rm -f /boot/initrd.img-*
rpm --initdb
"""
# Debian's zypper reads the same files, and its rpm is found by libzypp where rpm's macros say.
ZYPPER = r"""
mkdir -p /etc/rpm /usr/src/kernels /etc/zypp/repos.d /etc/dracut.conf.d /boot/grub2
printf '%%_dbpath /var/lib/rpm\n' > /etc/rpm/macros
printf '[main]\nsolver.onlyRequires = true\nmultiversion = provides:multiversion(kernel)\n' > /etc/zypp/zypp.conf
printf '/usr/lib64\n' > /etc/ld.so.conf.d/lib64.conf
printf 'do_strip=no\ncompress=cat\nomit_dracutmodules+=" crypt dm nvdimm lunmask resume lvm mdraid "\n' \
  > /etc/dracut.conf.d/gpuprov-sim.conf
rm -f /boot/initrd.img-*
rpm --initdb
"""
DRACUT = (
    "for kernel in $(ls /lib/modules); do "
    'cp "/usr/src/linux-headers-$kernel/.config" "/boot/config-$kernel"; '
    'touch "/lib/modules/$kernel/modules.order" "/lib/modules/$kernel/modules.builtin" '
    '"/lib/modules/$kernel/modules.builtin.modinfo"; '
    'depmod "$kernel"; dracut --quiet --force "/boot/initramfs-$kernel.img" "$kernel"; done'
)
DNF_PACKAGES = ("rpm", "dnf", "python3-dnf", "dnf-plugins-core", "gnupg", "dracut")
ZYPPER_PACKAGES = ("rpm", "zypper", "gnupg", "dracut")
ACCOUNT = (
    f"useradd --create-home --shell /bin/bash {USER} && echo '{USER} ALL=(ALL) NOPASSWD: ALL' "
    f"> /etc/sudoers.d/{USER} && chmod 0440 /etc/sudoers.d/{USER}"
)
HOOKS = (INITRAMFS, ACCOUNT)


@dataclass(frozen=True)
class Recipe:
    """Everything that determines an image's content."""

    distribution: str
    mirrors: sources.Mirrors

    @property
    def known(self) -> Distribution:
        """Return the distribution that it presents."""
        return find(self.distribution)

    @property
    def suite(self) -> str:
        """Return Debian's code name."""
        return self.known.suite

    @property
    def packages(self) -> tuple[str, ...]:
        """Return packages to install beside the essential ones."""
        if self.known.family == "debian":
            return PACKAGES
        more = DNF_PACKAGES if self.known.family == "redhat" else ZYPPER_PACKAGES
        return (*(name for name in PACKAGES if name not in {"initramfs-tools", "python3-apt"}), *more)

    @property
    def hooks(self) -> tuple[str, ...]:
        """Return shell scripts that finish the root file system."""
        return (
            HOOKS
            if self.known.family == "debian"
            else (DNF if self.known.family == "redhat" else ZYPPER, DRACUT, ACCOUNT)
        )

    def lines(self) -> list[str]:
        """Return the apt sources inside."""
        here, security = self.mirrors.debian, self.mirrors.security
        return [
            f"deb {here} {self.suite} {COMPONENTS}",
            f"deb {here} {self.suite}-updates {COMPONENTS}",
            f"deb {security} {self.suite}-security {COMPONENTS}",
        ]

    @property
    def key(self) -> str:
        """Return a hash of the recipe: a changed recipe is another image."""
        parts = [self.suite, *self.lines(), *self.packages, *self.hooks]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def tag(self) -> str:
        """Return the image's name in podman."""
        return f"localhost/gpuprov-sim-{self.known.base}:{self.key}"

    def command(self, target: Path) -> list[str]:
        """Return the mmdebstrap call that writes the root file system."""
        hooks = [f'--customize-hook=chroot "$1" sh -ec {shlex.quote(hook)}' for hook in self.hooks]
        return [
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=tar"),
            *('--aptopt=Acquire::Languages "none"', "--skip=cleanup/apt/lists", f"--include={','.join(self.packages)}"),
            *(*hooks, self.suite, str(target), *self.lines()),
        ]


def cache_dir() -> Path:
    """Return the folder of root file systems, keys and downloads; outside any repository."""
    folder = Path(get_cache_folder(os.environ)) / "gpuprov"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def build(distribution: str = "debian12", *, rebuild: bool = False) -> str:
    """Return the name of a ready image, cached or built now."""
    recipe = Recipe(distribution, sources.read())
    tarball = cache_dir() / f"rootfs-{recipe.suite}-{recipe.key}.tar"
    tools.require()
    with alone(tarball.with_suffix(".lock")):
        if rebuild:
            tarball.unlink(missing_ok=True)
        if not rebuild and recipe.tag in _tags():
            return recipe.tag
        if not tarball.exists():
            _bootstrap(recipe, tarball)
        tools.say(f"importing {recipe.tag} (about 15 s)")
        tools.run(engine.command("import", str(tarball), recipe.tag))
    return recipe.tag


def _bootstrap(recipe: Recipe, tarball: Path) -> None:
    tools.say(f"building a Debian {recipe.suite} root file system with mmdebstrap (about 2 minutes)")
    partial = tarball.with_name(f".{tarball.name}.{os.getpid()}")
    try:
        tools.run(recipe.command(partial), timeout=1800)
        os.replace(partial, tarball)
    finally:
        partial.unlink(missing_ok=True)


def _tags() -> list[str]:
    return engine.engine("images", "--format", "{{.Repository}}:{{.Tag}}").split()


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold a lock file, so that two runs do not build the same thing at once."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
