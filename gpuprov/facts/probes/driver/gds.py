"""GPUDirect Storage on a host: packages, module, configuration, and what NVIDIA's own gdscheck says of it."""

import re
from typing import Any

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.family import by_family
from gpuprov.facts.probes.software import rpm, zypper
from gpuprov.facts.probes.software.packages import PACKAGE_LISTS, build_packages_script, parse_index, parse_packages

# gdscheck's word for reading through the CPU.
COMPAT = "compat"


def toolkit(host: Any, own: Any) -> str:
    """Return the CUDA release of a spec with this block `gds` (`12.8`): its own, else the default or the newest of
    `cuda_toolkit`; empty if none is named."""
    cuda = host.capabilities.get("cuda_toolkit")
    if named := own.toolkit or getattr(cuda, "default", ""):
        return str(named)
    minors = [tuple(map(int, version.split(".")[:2])) for version in getattr(cuda, "versions", ())]
    return ".".join(map(str, max(minors))) if minors else ""


class Gds(msgspec.Struct, frozen=True, kw_only=True):
    """`link`: where /etc/cufile.json leads, itself for a file, empty if there is none. `module`: the version of the
    loaded nvidia-fs, `on_disk` that of the running kernel's. `licence`: of the running kernel's NVIDIA module.
    `p2pdma`: the kernel has PCI P2PDMA; None if it hides its symbols. `multipath`: nvme_core's parameter. `kernel`: its
    release. `ubuntu`: it is Ubuntu's. `tree`: the version of nvidia-fs that DKMS knows."""

    link: str = ""
    module: str = ""
    on_disk: str = ""
    licence: str = ""
    p2pdma: bool | None = None
    multipath: str = ""
    kernel: str = ""
    ubuntu: bool = False
    tree: str = ""

    @property
    def is_open(self) -> bool | None:
        """True for open kernel modules; None without any."""
        return self.licence.startswith("Dual MIT") if self.licence else None


def parse(output: Output) -> Gds:
    single = {kind: rows[-1].strip() for kind, rows in output.rows().items()}
    p2pdma = {"yes": True, "no": False}.get(single.pop("p2pdma", ""))
    names = ("link", "module", "on_disk", "licence", "multipath", "kernel", "tree")
    known = {name: single.get(name, "") for name in names}
    return Gds(**known, p2pdma=p2pdma, ubuntu=single.get("id") == "ubuntu")


class CheckedGpu(msgspec.Struct, frozen=True):
    """A GPU as gdscheck lists it."""

    name: str
    supported: bool
    iommu: str = ""


class GdsCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The output of gdscheck -p. `installed`: there is such a program. `modes`: by file system, as gdscheck names it,
    how cuFile reaches it (`supported`, `nvfs`, `p2pdma`, `dmabuf`, `compat`), nothing for Unsupported. `settings` of
    cuFile. `warnings`: its own, and switches with ACS. `verified`: the platform verification succeeded. `last`: the
    last line that it printed."""

    installed: bool = False
    release: str = ""
    module: str = ""
    modes: dict[str, tuple[str, ...]] = {}
    settings: dict[str, str] = {}
    gpus: tuple[CheckedGpu, ...] = ()
    warnings: tuple[str, ...] = ()
    iommu: str = ""
    verified: bool = False
    last: str = ""

    def direct(self, row: str) -> tuple[str, ...]:
        """Return the modes of a file system other than reading through the CPU."""
        return tuple(mode for mode in self.modes.get(row, ()) if mode != COMPAT)


#  GPU index 0 NVIDIA L40S bar:1 bar size (MiB):65536 supports GDS, IOMMU State: Disabled
_GPU = re.compile(r"GPU index \d+ (.+?) bar:.*?(?:IOMMU State: (.+))?\Z")


# `gdscheck -p` of GDS 1.16 (the troubleshooting guide of GPUDirect Storage; 1.11 to 1.15 pad the names):
#     GDS release version: 1.16.0.49
#     nvidia_fs version: 2.27 nvidia_fs minimum version: 2.12
#     DRIVER CONFIGURATION:
#     =====================
#     NVMe : nvfs, compat
#     --Mellanox PeerDirect : Disabled
#     CUFILE CONFIGURATION:
#     =====================
#     properties.use_compat_mode : true
def parse_check(output: Output) -> GdsCheck:
    rows = output.rows()
    lines = [line.strip() for line in rows.get("said", [])]
    modes: dict[str, tuple[str, ...]] = {}
    settings: dict[str, str] = {}
    gpus: list[CheckedGpu] = []
    warnings: list[str] = []
    single: dict[str, str] = {}
    section = ""
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":"))
        if match := _GPU.match(line):
            gpus.append(CheckedGpu(match[1], "supports GDS" in line, match[2] or ""))
        elif line.startswith(("WARN", "Found ACS", "ERROR")):
            warnings.append(line)
        elif colon and not value and line.isupper():
            section = name
        elif section == "DRIVER CONFIGURATION" and colon and not line.startswith("--"):
            words = () if value.casefold() == "unsupported" else value.casefold().split(",")
            modes[name] = tuple(word.strip() for word in words)
        elif section == "CUFILE CONFIGURATION" and colon:
            settings[name] = value
        elif colon:
            single.setdefault(name, value)
    return GdsCheck(
        installed="none" not in rows,
        release=single.get("GDS release version", ""),
        module=single.get("nvidia_fs version", "").split(" ")[0],
        modes=modes,
        settings=settings,
        gpus=tuple(gpus),
        warnings=tuple(warnings),
        iommu=single.get("IOMMU", ""),
        verified="Platform verification succeeded" in lines,
        last=next((line for line in reversed(lines) if line), ""),
    )


# Installed packages of GPUDirect Storage, by name.
PACKAGES = Probe(
    "gds_packages",
    build_packages_script(
        "'nvidia-fs*' 'gds-tools-*' 'libcufile-[0-9]*'", "nvidia-fs.*|gds-tools-.*|libcufile-[0-9].*"
    ),
    parse_packages,
    "dpkg -l 'nvidia-fs*' 'gds-tools-*' 'libcufile-*'; rpm -qa 'nvidia-fs*' 'gds-tools-*' 'libcufile-*'",
    blank=PACKAGE_LISTS,
)
PATTERNS = ("nvidia-fs-dkms", "gds-tools-*", "libcufile-*")
# Offered versions, from the lists that the host has fetched.
INDEX = Probe(
    "gds_index",
    by_family(
        "apt-cache pkgnames | grep -xE 'nvidia-fs-dkms|(gds-tools|libcufile)-[0-9-]+' | xargs -r apt-cache madison "
        "2>/dev/null; true",
        rpm.search(*PATTERNS, streams=True),
        zypper.search(*PATTERNS),
    ),
    parse_index,
    "apt-cache madison nvidia-fs-dkms gds-tools-12-8 libcufile-12-8; dnf -C repoquery --showduplicates "
    "'gds-tools-*' nvidia-fs-dkms",
)
GDS = Probe(
    "gds",
    r"""echo "kernel|$(uname -r)"
echo "id|$(ID=; . /etc/os-release 2>/dev/null; echo "$ID")"
[ ! -e /etc/cufile.json ] || echo "link|$(readlink -f /etc/cufile.json)"
[ ! -d /sys/module/nvidia_fs ] || {
  v=$(cat /sys/module/nvidia_fs/version 2>/dev/null ||
    sed -n 's/.*version: *//p' /proc/driver/nvidia-fs/version 2>/dev/null)
  echo "module|${v:-loaded}"
}
for d in /var/lib/dkms/nvidia-fs/*/source; do [ -e "$d" ] && d=${d%/source} && echo "tree|${d##*/}"; done
f=$(modinfo -n nvidia_fs 2>/dev/null) && { v=$(modinfo -F version "$f" 2>/dev/null); echo "on_disk|${v:-built}"; }
for m in nvidia nvidia-current nvidia-current-open; do
  l=$(modinfo -F license "$m" 2>/dev/null) && [ -n "$l" ] && { echo "licence|$l"; break; }
done
[ ! -r /proc/kallsyms ] || case $(grep -c -m 1 -E 'p2pdma_pgmap_ops|pci_p2pdma_add_resource' /proc/kallsyms) in
0) [ "$(grep -c . /proc/kallsyms)" = 0 ] || echo 'p2pdma|no' ;;
1) echo 'p2pdma|yes' ;;
esac
m=$(cat /sys/module/nvme_core/parameters/multipath 2>/dev/null) && echo "multipath|$m"
true""",
    parse,
    "ls -l /etc/cufile.json; modinfo nvidia_fs; grep p2pdma /proc/kallsyms; cat "
    "/sys/module/nvme_core/parameters/multipath",
    speaks=True,
)
# What gdscheck of the spec's release prints: the module, the file systems, cuFile's settings, the GPUs, IOMMU and ACS.
CHECK = Probe(
    "gds_check",
    r"""for d in /usr/local/cuda${toolkit:+-$toolkit}/gds/tools /usr/local/cuda-${toolkit:-*}/gds/tools; do
  t=$d/gdscheck; [ -x "$t" ] || t=$d/gdscheck.py
  [ ! -x "$t" ] || break
done
[ -x "$t" ] || { echo 'none|'; exit 0; }
cd /
# cuFile would write its log into the current folder.
CUFILE_LOGFILE_PATH=/dev/null timeout -k 5 60 "$t" -p 2>&1 </dev/null | head -c 65536 | sed 's/^/said|/'
true""",
    parse_check,
    "/usr/local/cuda/gds/tools/gdscheck -p",
    asks=lambda host: {"toolkit": toolkit(host, host.capabilities["gds"])},
    blank=r"said\||none\|",
)
