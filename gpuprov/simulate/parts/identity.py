"""Identity of a host that stands in for another distribution, and the initial content of its package database.

gpuprov and Ansible both read facts from /etc/os-release and the release files; these are the distribution's. The
kernel's headers get the distribution's names. /etc/gpuprov-sim/README and the message of the day say that the userland
is Debian's.
"""

from __future__ import annotations

from gpuprov.simulate.description import Description
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts.base import CONFIGURATION, File, Part, text
from gpuprov.simulate.parts.packages import PLACE, RPM_KEYS

README = """\
This is a host that gpuprov simulates. It says that it is {name}; its programs are Debian's ({suite}).
Real: the package manager ({manager}), the names, versions and relations of the packages it can install, systemd, DKMS.
Not {id}'s: every program, the kernel ({kernel} is Debian's under that name), other packages than stand-ins.
"""
# The kernel's headers under the distribution's name: DKMS builds for them, and modules say that they are for that
# kernel.
KERNEL = """\
if [ ! -d /lib/modules/{kernel} ]; then
  debian=$(ls /lib/modules | head -n 1)
  cp -a /usr/src/linux-headers-$debian /usr/src/linux-headers-{kernel}
  [ -e {headers} ] || ln -s ../linux-headers-{kernel} {headers}
  sed -i "s/$debian/{kernel}/" {headers}/include/generated/utsrelease.h {headers}/include/config/kernel.release
  mv /lib/modules/$debian /lib/modules/{kernel}
  ln -sfn {headers} /lib/modules/{kernel}/build
  rm -f /lib/modules/{kernel}/source
  mv /boot/config-$debian /boot/config-{kernel}
  for image in initrd.img-$debian:initrd.img-{kernel} initramfs-$debian.img:{initramfs}; do
    [ ! -e /boot/${{image%%:*}} ] || mv /boot/${{image%%:*}} /boot/${{image#*:}}
  done
  [ ! -e /var/lib/initramfs-tools/$debian ] || mv /var/lib/initramfs-tools/$debian /var/lib/initramfs-tools/{kernel}
  echo 'a stand-in: no kernel boots here' > /boot/vmlinuz-{kernel}
  depmod {kernel}
fi
"""
DEBS = (
    f"dpkg-query -W linux-headers-{{kernel}} >/dev/null 2>&1 || dpkg -i {PLACE}/ubuntu/pool/linux-headers-*.deb "
    ">/dev/null\n"
)
# A minimal EL has no C++ compiler; Debian's came with the image. DKMS brings gcc alone.
RPMS = f"""\
rm -f /etc/debian_version
rpm --import {RPM_KEYS}/RPM-GPG-KEY-*
rpm -q gcc-c++ >/dev/null || rm -f /usr/bin/g++
rpm -q kernel-core >/dev/null || rpm --force-debian --upgrade --justdb --noscripts --quiet {PLACE}/el/installed/*.rpm
dnf --quiet --assumeyes makecache >/dev/null
"""
ZYPPER = f"""\
rm -f /etc/debian_version
rpm --import {RPM_KEYS}/RPM-GPG-KEY-*
rpm -q gcc-c++ >/dev/null || rm -f /usr/bin/g++
rpm -q kernel-default >/dev/null ||
  rpm --force-debian --upgrade --justdb --noscripts --quiet {PLACE}/suse/installed/*.rpm
zypper --quiet --non-interactive refresh >/dev/null
"""
MANAGERS = {"debian": "dpkg and apt", "redhat": "rpm and dnf", "suse": "rpm and zypper"}


def part(_name: str, description: Description) -> Part:
    """Return the release files and the kernel's names; nothing for a host that runs its real distribution."""
    known = description.known
    if not known.stands_in:
        return Part()
    readme = README.format(
        name=known.full_name,
        suite=known.suite,
        id=known.id,
        kernel=known.kernel,
        manager=MANAGERS[known.family],
    )
    files: dict[str, File] = {
        "/usr/lib/os-release": text(os_release(known)),
        f"{CONFIGURATION}/README": text(readme),
        "/etc/motd": text(readme),
        **{path: text(content) for path, content in known.release_files.items()},
    }
    if known.family == "redhat":
        files["/etc/dnf/plugins/local.conf"] = text("[main]\nenabled = false\n")  # only Debian's package has it on
    elif known.family == "debian":
        files["/etc/debian_version"] = text({"bookworm": "bookworm/sid\n", "trixie": "trixie/sid\n"}[known.suite])
    initramfs = f"initrd-{known.kernel}" if known.family == "suse" else f"initramfs-{known.kernel}.img"
    kernel = KERNEL.format(kernel=known.kernel, headers=known.headers, initramfs=initramfs)
    of_family = {"debian": DEBS.format(kernel=known.kernel), "redhat": RPMS, "suse": ZYPPER}
    return Part(files=files, script=kernel + of_family[known.family])


def os_release(known: Distribution) -> str:
    """Return the content of /etc/os-release."""
    rows = {
        "PRETTY_NAME": f'"{known.full_name}"',
        "NAME": f'"{known.name}"',
        "VERSION_ID": f'"{known.version_id}"',
        "VERSION": f'"{known.version}"',
        "VERSION_CODENAME": known.codename,
        "UBUNTU_CODENAME": known.codename if known.id == "ubuntu" else "",
        "ID": known.id if known.family == "debian" else f'"{known.id}"',
        "ID_LIKE": known.like if known.family == "debian" or not known.like else f'"{known.like}"',
        "PLATFORM_ID": f'"platform:{known.platform}"' if known.platform else "",
    }
    return "".join(f"{key}={value}\n" for key, value in rows.items() if value)
