"""Distributions of simulated hosts. Debian is Debian; any other is a Debian userland that stands in for it.

Its package manager is real (apt, or Debian's rpm with dnf or zypper), and its repositories use the real names and
version forms. Kernels have the distribution's names and Debian's content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from gpuprov.catalog.distributions import Distribution as Row
from gpuprov.catalog.distributions import Family, find_distribution
from gpuprov.catalog.packages import list_origins
from gpuprov.core.errors import GpuprovError

Repository = Literal["distribution", "nvidia"]
BOOKWORM, TRIXIE = "bookworm", "trixie"


@dataclass(frozen=True)
class Distribution:
    """One distribution. `suite`: the Debian release of its programs; `tag`: the end of its package versions
    (`ubuntu0.24.04.1`, `el9`); `kernel`: the name of its kernel, and `kernel_package` the package with it. `platform`:
    PLATFORM_ID of the dnf family. `base_source`: the source name of its own packages, and `driver_source` that of a
    driver, if it has its own archive of one."""

    key: str
    suite: str = BOOKWORM
    name: str = "Debian GNU/Linux"
    id: str = "debian"
    like: str = ""
    version_id: str = ""
    version: str = ""
    codename: str = ""
    tag: str = ""
    kernel: str = ""
    kernel_package: str = "kernel"
    platform: str = ""
    base_source: str = "gpuprov-sim"
    driver_source: str = ""
    release_package: str = ""
    release_files: dict[str, str] = field(default_factory=dict)

    @property
    def stands_in(self) -> bool:
        """True if the userland is Debian's, standing in for another distribution's."""
        return self.id != "debian"

    @cached_property
    def row(self) -> Row:
        """Return its row in the catalogue. Raises GpuprovError if there is none."""
        if entry := find_distribution(self.id, self.version_id):
            return entry
        raise GpuprovError(
            f"{self.key}: gpuprov/catalog/data/distributions.yaml has no row of {self.id} {self.version_id}"
        )

    @property
    def catalogue(self) -> str:
        """Return its key in the catalogue; RHEL's for distributions derived from it."""
        return self.row.key

    @property
    def family(self) -> Family:
        """Return the family whose package manager it has."""
        return self.row.family

    @property
    def modular(self) -> bool:
        """True if NVIDIA's repository for it has module streams."""
        return self.row.modular

    @property
    def major(self) -> str:
        """Return the major version: `9` of 9.6; `24.04` for Ubuntu."""
        return self.version_id if self.family == "debian" else self.version_id.partition(".")[0]

    @property
    def rpms(self) -> bool:
        """True if its packages are rpms."""
        return self.family != "debian"

    @property
    def base(self) -> str:
        """Return the base image of its containers; distributions share them."""
        if self.rpms:
            return f"{'el' if self.family == 'redhat' else 'suse'}-{self.suite}"
        return {BOOKWORM: "debian12", TRIXIE: "debian13"}[self.suite]

    @property
    def headers(self) -> str:
        """Return the path of its kernel's headers."""
        kernels = self.family == "redhat" and self.id != "azurelinux"
        return f"/usr/src/kernels/{self.kernel}" if kernels else f"/usr/src/linux-headers-{self.kernel}"

    @property
    def default_repositories(self) -> tuple[Repository, ...]:
        """Return the default repositories of a host: the source of its driver."""
        if not self.rpms or self.driver_source:
            return ("distribution",)
        return ("nvidia",) if list_origins(self.catalogue) else ()

    @property
    def full_name(self) -> str:
        """Return PRETTY_NAME: `Ubuntu 24.04 LTS`."""
        return f"{self.name} {self.version}".strip()


def _ubuntu(version_id: str, version: str, codename: str, kernel: str, suite: str = BOOKWORM) -> Distribution:
    lsb = (
        f"DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE={version_id}\nDISTRIB_CODENAME={codename}\n"
        f'DISTRIB_DESCRIPTION="Ubuntu {version_id} LTS"\n'
    )
    key = f"ubuntu{version_id.replace('.', '')}"
    return Distribution(
        key,
        suite=suite,
        name="Ubuntu",
        id="ubuntu",
        like="debian",
        version_id=version_id,
        version=version,
        codename=codename,
        tag=f"ubuntu0.{version_id}.1",
        kernel=kernel,
        release_files={"/etc/lsb-release": lsb},
    )


KERNELS = {
    "8": "4.18.0-553.el8_10.x86_64",
    "9": "5.14.0-570.12.1.el9_6.x86_64",
    "10": "6.12.0-55.9.1.el10_0.x86_64",
}


def _el(id_: str, name: str, version_id: str, codename: str) -> Distribution:
    major = version_id.partition(".")[0]
    release = f"{name} release {version_id} ({codename})\n"
    own = {"rocky": "/etc/rocky-release", "almalinux": "/etc/almalinux-release"}.get(id_)
    files = {"/etc/redhat-release": release, "/etc/system-release": release} | ({own: release} if own else {})
    return Distribution(
        f"{id_}{major}",
        name=name,
        id=id_,
        like="fedora" if id_ == "rhel" else "rhel centos fedora",
        version_id=version_id,
        version=f"{version_id} ({codename})",
        tag=f"el{major}",
        kernel=KERNELS[major],
        release_files=files,
        platform=f"el{major}",
    )


def _amazon() -> Distribution:
    """Return a host with the default image of kernel 6.12, and AWS's own driver repository."""
    release = "Amazon Linux release 2023 (Amazon Linux)\n"
    return Distribution(
        "amazon2023",
        name="Amazon Linux",
        id="amzn",
        like="fedora",
        version_id="2023",
        version="2023",
        tag="amzn2023",
        kernel="6.12.73-95.123.amzn2023.x86_64",
        kernel_package="kernel6.12",
        platform="al2023",
        base_source="amazonlinux",
        driver_source="amazonlinux-nvidia",
        release_package="system-release",
        release_files={"/etc/system-release": release, "/etc/amazon-linux-release": release},
    )


def _azure() -> Distribution:
    """Return Azure Linux: its kernel release has no architecture, and its headers are where Debian's are."""
    lsb = 'DISTRIB_ID="azurelinux"\nDISTRIB_RELEASE="3.0"\nDISTRIB_DESCRIPTION="Microsoft Azure Linux 3.0"\n'
    return Distribution(
        "azurelinux3",
        name="Microsoft Azure Linux",
        id="azurelinux",
        version_id="3.0",
        version="3.0",
        tag="azl3",
        kernel="6.6.138.1-1.azl3",
        base_source="azurelinux-official-base",
        release_files={"/etc/azurelinux-release": "Azure Linux 3.0\n", "/etc/lsb-release": lsb},
    )


def _alibaba() -> Distribution:
    """Return Alibaba Cloud Linux: NVIDIA's runfile is its only known driver, as its repository has none."""
    release = "Alibaba Cloud Linux release 3 (OpenAnolis Edition)\n"
    return Distribution(
        "alinux3",
        name="Alibaba Cloud Linux",
        id="alinux",
        like="rhel fedora centos anolis",
        version_id="3",
        version="3 (OpenAnolis Edition)",
        tag="al8",
        kernel="5.10.134-19.2.al8.x86_64",
        platform="al8",
        base_source="alinux3-os",
        release_files={"/etc/redhat-release": release, "/etc/alinux-release": release},
    )


def _suse(key: str, name: str, id_: str, like: str, version: tuple[str, str], kernel: str) -> Distribution:
    return Distribution(
        key,
        name=name,
        id=id_,
        like=like,
        version_id=version[0],
        version=version[1],
        tag=f"{kernel.partition('-')[2].partition('.')[0]}.1.1",
        kernel=kernel,
    )


TABLE: tuple[Distribution, ...] = (
    Distribution("debian12", version_id="12", codename=BOOKWORM),
    Distribution("debian13", suite=TRIXIE, version_id="13", codename=TRIXIE),
    _ubuntu("22.04", "22.04.5 LTS (Jammy Jellyfish)", "jammy", "5.15.0-140-generic"),
    _ubuntu("24.04", "24.04.2 LTS (Noble Numbat)", "noble", "6.8.0-60-generic"),
    _ubuntu("26.04", "26.04 LTS (Resolute Raccoon)", "resolute", "7.0.0-29-generic", TRIXIE),
    _el("rocky", "Rocky Linux", "8.10", "Green Obsidian"),
    _el("rocky", "Rocky Linux", "9.6", "Blue Onyx"),
    _el("rocky", "Rocky Linux", "10.0", "Red Quartz"),
    _el("rhel", "Red Hat Enterprise Linux", "9.6", "Plow"),
    _el("almalinux", "AlmaLinux", "9.6", "Sage Margay"),
    _suse("sles15", "SLES", "sles", "suse", ("15.7", "15-SP7"), "6.4.0-150700.53.40-default"),
    _suse("leap15", "openSUSE Leap", "opensuse-leap", "suse opensuse", ("15.6", "15.6"), "6.4.0-150600.23.38-default"),
    _amazon(),
    _azure(),
    _alibaba(),
)
DISTRIBUTIONS: dict[str, Distribution] = {entry.key: entry for entry in TABLE}
# Distributions that simulated hosts run for real; machines run only these.
REAL: tuple[str, ...] = tuple(entry.key for entry in TABLE if not entry.stands_in)


def find(key: str) -> Distribution:
    """Return the distribution with this key. Raises GpuprovError with the allowed keys."""
    if key not in DISTRIBUTIONS:
        raise GpuprovError(f'distribution is "{key}"', fix=f"allowed: {', '.join(DISTRIBUTIONS)}")
    return DISTRIBUTIONS[key]
