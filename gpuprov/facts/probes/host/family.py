"""The families of distributions, for dispatch in scripts, and their commands, for messages."""

from typing import Literal, Protocol, get_args

import msgspec

from gpuprov.host_code.family import IDS, derive_family

Family = Literal["debian", "redhat", "suse"]

FAMILIES: tuple[Family, ...] = get_args(Family)
# Names of the families in messages.
NAMES: dict[str, str] = {"debian": "Debian", "redhat": "Red Hat", "suse": "SUSE"}


class Release(Protocol):
    """The fields of /etc/os-release that determine the family: ID, and ID_LIKE as words."""

    @property
    def id(self) -> str: ...
    @property
    def like(self) -> tuple[str, ...]: ...


def family(release: Release) -> Family | None:
    """Return the family of a distribution; None if it belongs to none."""
    named = derive_family(release.id, *release.like)
    return next((candidate for candidate in FAMILIES if candidate == named), None)


def _build_cases() -> str:
    names = {kind: "|".join(name for name, of_family in IDS.items() if of_family == kind) for kind in FAMILIES}
    return " ".join(f"{names[kind]}) echo {kind}; break ;;" for kind in names)


# Shell: sets `family` to debian, redhat, suse or nothing. Installed programs do not matter.
FAMILY = (
    "family=$(ID=; ID_LIKE=; . /etc/os-release 2>/dev/null; "
    f'for i in $ID $ID_LIKE; do case "$i" in {_build_cases()} esac; done)\n'
)


def by_family(debian: str, redhat: str, suse: str) -> str:
    """Return a script that runs the part for the host's family, and nothing on a host of another family."""
    parts = {"debian": debian, "redhat": redhat, "suse": suse}
    cases = "\n".join(f"{kind})\n{script}\n;;" for kind, script in parts.items())
    return f'{FAMILY}case "$family" in\n{cases}\nesac'


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """The commands of a family, without their operands. `start_kernel` and `make_initramfs` have a placeholder for the
    kernel, `start_entry` one for its GRUB entry; it is empty if the family has no such command."""

    hold: str
    unhold: str
    held: str
    install: str
    reinstall: str
    remove: str
    purge: str
    repair: str
    clean: str
    fetch: str
    old_kernels: str
    owner: str
    start_kernel: str
    make_initramfs: str
    start_entry: str = ""


WORDS: dict[Family, Words] = {
    "debian": Words(
        hold="apt-mark hold",
        unhold="apt-mark unhold",
        held="apt-mark showhold",
        install="apt-get install",
        reinstall="apt-get install --reinstall",
        remove="apt-get remove",
        purge="apt-get purge",
        repair="read in /var/lib/dpkg/info what the scripts of the packages that dpkg --audit names do and ask, then "
        "dpkg --configure -a; apt-get -f install",
        clean="apt-get clean",
        fetch="apt-get update",
        old_kernels="apt-get autoremove --purge",
        owner="dpkg -S",
        start_kernel="grub-reboot, with the entry of {} in /boot/grub/grub.cfg",
        start_entry="grub-reboot {}",
        make_initramfs="update-initramfs -c -k {}",
    ),
    "redhat": Words(
        hold="dnf versionlock add",
        unhold="dnf versionlock delete",
        held="dnf versionlock list",
        install="dnf install",
        reinstall="dnf reinstall",
        remove="dnf remove",
        purge="dnf remove",
        repair="rpm --verifydb, and rpm --rebuilddb where that complains; dnf check; then dnf remove --duplicates, "
        "which runs the scripts of what it removes (rpm -q --scripts)",
        clean="dnf clean packages",
        fetch="dnf makecache",
        old_kernels="dnf remove --oldinstallonly",
        owner="rpm -qf",
        start_kernel="grubby --set-default /boot/vmlinuz-{}",
        make_initramfs="dracut --force /boot/initramfs-{0}.img {0}",
    ),
    "suse": Words(
        hold="zypper addlock",
        unhold="zypper removelock",
        held="zypper locks",
        install="zypper install",
        reinstall="zypper install --force",
        remove="zypper remove",
        purge="zypper remove",
        repair="rpm --verifydb, and rpm --rebuilddb where that complains; zypper verify",
        clean="zypper clean",
        fetch="zypper refresh",
        old_kernels="zypper purge-kernels",
        owner="rpm -qf",
        start_kernel="grub2-once, with the entry of {} in grub2-once --list",
        make_initramfs="dracut --force /boot/initrd-{0} {0}",
    ),
}


# Programs that not every family has, with the families that have them.
TOOLS: dict[Family, tuple[str, ...]] = {
    "debian": (
        "dpkg",
        "dpkg-query",
        "apt-get",
        "apt-cache",
        "apt-mark",
        "apt-config",
        "lsinitramfs",
        "update-initramfs",
    ),
    "redhat": ("rpm", "dnf", "grubby", "lsinitrd", "dracut"),
    "suse": ("rpm", "zypper", "lsinitrd", "dracut"),
}


def words(release: Release) -> Words:
    """Return the commands of the host's family; Debian's if the family is unknown."""
    return WORDS[family(release) or "debian"]
