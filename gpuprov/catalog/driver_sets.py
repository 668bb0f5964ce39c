"""The driver's packages by distribution and source, as rules that the resolver and the roles take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import msgspec

from gpuprov import resolve
from gpuprov.catalog.driver_data import Distribution, PackageSet, drivers_file
from gpuprov.catalog.drivers import branches
from gpuprov.catalog.gpus import Flavour, gpus
from gpuprov.catalog.packages import distributions, find_distribution

Source = Literal["distribution", "nvidia", "mirror"]
"""Where a driver comes from: the distribution's own archive, NVIDIA's repository, or the site's mirror of the latter."""
SOURCES: tuple[Source, ...] = ("distribution", "nvidia", "mirror")

MANAGED = ("debian12", "debian13", "ubuntu2204", "ubuntu2404", "ubuntu2604", "rhel8", "rhel9", "rhel10")
"""Distributions whose driver gpuprov installs."""

OWN = {"debian": "debian", "ubuntu": "ubuntu"}
"""The distribution's own archive that has a driver, by ID."""

PARTS = ("kernel-modules", "kernel-common", "firmware", "user-space", "mps", "persistence")
"""Parts that must share one version; the kernel modules first. What has a version line of its own is no part of the set."""

NO_LIMIT = 9999
FLAVOURS: tuple[Flavour, ...] = ("proprietary", "open")

GPU_SERVICES = [
    "nvidia-persistenced.service",
    "nvidia-gridd.service",
    "nvidia-dcgm-exporter.service",
    "dcgm-exporter.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "nvidia-fabricmanager.service",
]
"""Services that hold GPUs, may be stopped for a driver change, and are started again afterwards. Fabric Manager's guide wants
DCGM and itself stopped before a reset; nvidia-persistenced keeps the module in use. An exporter is part of DCGM's unit: it comes
before it, so that it is noted as running."""

# What tells a driver of one archive from another's on the same host. `versions`: of its packages, where two archives have the
# same names (NVIDIA's revisions are -0ubuntu1 and -1ubuntu1, Ubuntu's end in the release). `sources`: the source packages,
# whatever else of which is installed moves along. `conflicts`: packages that bring another driver, unless they are of
# `sources`. `pin`: names of which none may come in another version.
_METAPACKAGES = (r"cuda(-runtime|-demo-suite)?(-\d+-\d+)?", r"cuda-drivers.*", r"nvidia-open(-\d+)?")
_BRANCHED = (
    r"nvidia-(dkms|driver|kernel-common|kernel-source|utils|compute-utils|headless|headless-no-dkms|firmware)(-\d+)?(-open)?(-[\d.]+)?",
    r"libnvidia-(cfg1|common|compute|decode|encode|extra|fbc1|gl|gpucomp)(-\d+)?",
    r"xserver-xorg-video-nvidia(-\d+)?",
)
_PREBUILT = (r"linux-(modules|objects)-nvidia-\d.*",)
_APT = ("nvidia-*", "libnvidia-*", "xserver-xorg-video-nvidia*", "cuda-drivers*", "libxnvctrl*")
_TRAITS: dict[tuple[str, str], dict[str, Any]] = {
    ("debian", "debian"): {
        "sources": ("nvidia-graphics-drivers", "nvidia-open-gpu-kernel-modules"),
        # NVIDIA's own repository: the metapackages that drag a driver in (not cuda-toolkit and its kind, which bring none), and
        # the driver's other names; Debian's legacy and tesla branches: other names for the same files.
        "conflicts": (
            *_METAPACKAGES,
            r"nvidia-driver-(pinning|open|cuda|\d+).*",
            r"nvidia-kernel-open-.*",
            r"nvidia-(tesla|legacy-\d).*",
            r"libnvidia-compute.*",
        ),
    },
    ("debian", "nvidia"): {
        "sources": ("nvidia-(graphics-drivers|driver|settings|xconfig|persistenced|modprobe).*",),
        "conflicts": (r"nvidia-open-kernel-.*", r"nvidia-(tesla|legacy-\d).*", r"libnvidia-compute.*"),
        "pin": (*_APT, "libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1", "firmware-nvidia-gsp"),
    },
    ("ubuntu", "ubuntu"): {
        "sources": (r"nvidia-graphics-drivers-\d+-server",),
        "conflicts": (
            *_METAPACKAGES,
            *_BRANCHED,
            *_PREBUILT,
            r"nvidia-driver-(pinning|open).*",
            r"nvidia-kernel-open-.*",
        ),
        "pin": ("nvidia-*-server*", "libnvidia-*-server", "xserver-xorg-video-nvidia-*-server"),
    },
    ("ubuntu", "nvidia"): {
        "versions": r"[\d.]+-[01]ubuntu1",
        "sources": (r"nvidia-(graphics-drivers(-\d+)?|driver|settings|xconfig|persistenced|modprobe)", "libxnvctrl.*"),
        "conflicts": (r".*nvidia.*-\d+-server(-open)?(-[\d.]+)?", *_PREBUILT),
        "pin": _APT,
    },
    # Other builders' names: RPM Fusion (akmod-, xorg-x11-drv-), ELRepo (nvidia-x11-drv), negativo17 (dkms-nvidia); and NVIDIA's
    # precompiled kmod-nvidia-VERSION-KERNEL.
    ("rhel", "nvidia"): {
        "sources": (
            r"nvidia-(driver|kmod|kmod-common|open|persistenced|modprobe|settings|xconfig|libXNVCtrl).*",
            r"(kmod|dkms)-nvidia.*|xorg-x11-nvidia|cuda-drivers|libnvidia-(ml|cfg|fbc|gpucomp)",
        ),
        "conflicts": (
            r"(akmod|xorg-x11-drv)-nvidia.*|nvidia-x11-drv.*|dkms-nvidia",
            r"kmod-nvidia(-\d.*|-open-\d.*)?",
        ),
        "pin": (
            *("nvidia-driver*", "nvidia-kmod-common", "nvidia-persistenced", "nvidia-modprobe", "nvidia-settings"),
            *("nvidia-xconfig", "nvidia-libXNVCtrl*", "nvidia-open", "cuda-drivers*", "kmod-nvidia-*-dkms"),
            *("libnvidia-ml", "libnvidia-cfg", "libnvidia-fbc", "libnvidia-gpucomp", "xorg-x11-nvidia"),
        ),
    },
}


class DriverPackages(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of one distribution and source.

    `proprietary` and `open`: rules `{name, min, max}` of what must share one version, kernel modules first (see
    `gpuprov.resolve`). `extra`: names with a version line of their own. `ask`: every name that an index is asked for.
    `others`: rules of the set that another source has for this distribution, under names that this one's has not; `mark` is on
    those that no other archive has.
    `sources` and `conflicts`: patterns of source packages that the set is built from, and of packages that bring another driver.
    `modules`: the kernel module's name on disk by flavour, as modprobe and modinfo want it. `streams`: dnf's module stream by
    flavour. `pin`: globs of names that may come in the set's version only. `headers` (`{kernel}` is a kernel's release) and
    `dkms`: what a module build needs.
    """

    proprietary: tuple[dict[str, Any], ...]
    open: tuple[dict[str, Any], ...]
    others: tuple[dict[str, Any], ...]
    extra: tuple[str, ...]
    ask: tuple[str, ...]
    sources: tuple[str, ...]
    conflicts: tuple[str, ...]
    modules: dict[str, str]
    streams: dict[str, str]
    pin: tuple[str, ...]
    headers: tuple[str, ...]
    dkms: tuple[str, ...]

    @property
    def sets(self) -> dict[str, tuple[dict[str, Any], ...]]:
        """The rules by flavour."""
        return {"proprietary": self.proprietary, "open": self.open}

    def foreign(self, name: str, source_package: str) -> bool:
        """Whether a package of this name and source package brings another driver, or is of another source's set alone."""
        marked = [rule for rule in self.others if rule.get("mark")]
        theirs = any(re.fullmatch(p, name) for p in self.conflicts) and not self.of_source(source_package)
        return theirs or bool(resolve.other_names(marked, {name: ""}))

    def of_source(self, source_package: str) -> bool:
        """Whether a package of this source package belongs to the driver."""
        return any(re.fullmatch(pattern, source_package) for pattern in self.sources)


def default_source(distribution: Distribution) -> Source:
    """What `auto` means: the distribution's own archive where it has a driver, else NVIDIA's repository."""
    return "distribution" if distribution.id in OWN else "nvidia"


def sources(distribution: Distribution) -> tuple[Source, ...]:
    """Where the driver can come from on a distribution."""
    return SOURCES if distribution.id in OWN else SOURCES[1:]


@cache
def driver_packages(os_id: str, version_id: str, source: str = "auto") -> DriverPackages | None:
    """The packages for a distribution as /etc/os-release has it; None where gpuprov does not manage its driver, or has none of
    that source."""
    distribution = find_distribution(os_id, version_id)
    if distribution is None or distribution.key not in MANAGED:
        return None
    chosen = default_source(distribution) if source == "auto" else next((s for s in SOURCES if s == source), None)
    return _packages(distribution, chosen) if chosen and chosen in sources(distribution) else None


def _origin(distribution: Distribution, source: Source) -> str:
    return OWN[distribution.id] if source == "distribution" else "nvidia"


@cache
def _packages(distribution: Distribution, source: Source) -> DriverPackages:
    """The set of a source, and what the others' sets are called."""
    mine = _set(distribution, _origin(distribution, source))
    known = {rule["name"] for rules in mine.sets.values() for rule in rules} | {*mine.extra}
    beside = {_origin(distribution, other) for other in sources(distribution)} - {_origin(distribution, source)}
    theirs = {
        rule["name"]: rule | ({"mark": True} if _marks(rule["name"], mine.conflicts) else {})
        for origin in sorted(beside)
        for rules in _set(distribution, origin).sets.values()
        for rule in rules
        if rule["name"] not in known and not rule.get("companion")
    }
    return msgspec.structs.replace(mine, others=tuple(theirs.values()))


def _marks(name: str, conflicts: tuple[str, ...]) -> bool:
    """Whether packages under a rule's name tell another source's driver."""
    return any(re.fullmatch(p, name.replace("{branch}", "580").replace("{version}", "580.95.05")) for p in conflicts)


def _set(distribution: Distribution, origin: str) -> DriverPackages:
    traits = _TRAITS[(distribution.id, origin)]
    like = str(traits.get("versions", ""))

    def entries(part: str, flavour: Flavour | None = None) -> list[PackageSet]:
        return [
            entry
            for entry in drivers_file().package_sets
            if entry.part == part
            and distribution.key in entry.distributions
            and entry.origin in (origin, "distribution")
            and flavour in (None, entry.flavour or flavour)
        ]

    def rules(flavour: Flavour) -> tuple[dict[str, Any], ...]:
        main = [
            _rule(e, name, like) for part in PARTS for e in _of_driver(entries(part, flavour)) for name in e.packages
        ]
        more = [_rule(e, name, like, companion=True) for e in entries("companions", flavour) for name in e.packages]
        return (*main, *more)

    def names(part: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for entry in entries(part) for name in entry.packages))

    modules = {f: entries(PARTS[0], f)[0] for f in FLAVOURS}
    sets = {flavour: rules(flavour) for flavour in FLAVOURS}
    return DriverPackages(
        proprietary=sets["proprietary"],
        open=sets["open"],
        others=(),
        extra=names("modprobe"),
        ask=tuple(dict.fromkeys((*_asked((*sets["proprietary"], *sets["open"])), *names("modprobe")))),
        sources=traits["sources"],
        conflicts=traits["conflicts"],
        modules={flavour: entry.module_name or "nvidia" for flavour, entry in modules.items()},
        streams={flavour: entry.module_stream for flavour, entry in modules.items() if entry.module_stream},
        pin=traits.get("pin", ()),
        headers=names("kernel-headers"),
        dkms=names("dkms"),
    )


def _of_driver(found: Iterable[PackageSet]) -> list[PackageSet]:
    return [entry for entry in found if entry.version == "driver"]


def _rule(entry: PackageSet, name: str, like: str, *, companion: bool = False) -> dict[str, Any]:
    """A name that holds the branch ends with the newest one that the catalogue knows: a newer one has no name to ask for."""
    newest = max(int(branch.branch) for branch in branches())
    most = int(entry.max_branch or (newest if "{branch}" in name else NO_LIMIT))
    rule = {"name": name, "min": int(entry.min_branch or 0), "max": most}
    return rule | ({"like": like} if like else {}) | ({"companion": True} if companion else {})


def _asked(rules: Iterable[dict[str, Any]]) -> list[str]:
    """Every name of the rules that can be known beforehand."""
    known = [int(branch.branch) for branch in branches()]
    found: dict[str, None] = {}
    for rule in rules:
        if "{version}" in rule["name"]:
            continue
        numbers = known if "{branch}" in rule["name"] else [0]
        fits = [n for n in numbers if n == 0 or rule["min"] <= n <= rule["max"]]
        found |= {rule["name"].replace("{branch}", str(number)): None for number in fits}
    return list(found)


def managed() -> tuple[Distribution, ...]:
    """The distributions whose driver gpuprov installs."""
    return tuple(entry for entry in distributions() if entry.key in MANAGED)


def supported_distributions() -> tuple[str, ...]:
    """`debian 12` and its like, for messages and preflight."""
    return tuple(f"{entry.id} {entry.version_id}" for entry in managed())


def all_driver_packages() -> dict[str, dict[str, Any]]:
    """`driver_packages` by platform (the catalogue's key of a distribution) and source, for the roles."""
    return {
        entry.key: {source: msgspec.to_builtins(_packages(entry, source)) for source in sources(entry)}
        for entry in managed()
    }


def installed_driver(os_id: str, version_id: str, installed: dict[str, str]) -> str:
    """The package version of the installed kernel modules, of whatever source; empty if there are none."""
    found = [names for source in SOURCES if (names := driver_packages(os_id, version_id, source))]
    kernels = [name for names in found for name in resolve.kernel_package(names.sets, installed).values()]
    return installed[kernels[0]] if kernels else ""


@cache
def kernel_module_table() -> dict[str, str]:
    """What each GPU's PCI id (`10de:2330`) needs: `open-required`, `proprietary-required` or `either`."""
    return {entry.id: gpu.kernel_modules.flavour for gpu in gpus() for entry in gpu.pci_ids}
