"""NVIDIA's dnf repository as stand-ins: names, epoch, relations, scriptlets and module streams of the real one.

https://github.com/NVIDIA/yum-packaging-nvidia-driver and yum-packaging-nvidia-kmod-open-dkms (their spec files).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from gpuprov.catalog.drivers import Version, derive_branch
from gpuprov.catalog.packages import list_package_sets
from gpuprov.simulate.distributions import Distribution
from gpuprov.simulate.parts import fabric, silicon
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.repository.standins import Flavour
from gpuprov.simulate.standins import driver as pieces
from gpuprov.simulate.standins import precompiled as standins_precompiled
from gpuprov.simulate.standins import switch_libraries
from gpuprov.simulate.standins.catalogue import names, part_names, whole
from gpuprov.simulate.standins.driver import RPM
from gpuprov.simulate.standins.model import Standin

# NVIDIA's driver packages for dnf carry this epoch.
EPOCH = 3
# Source package of all of them. The real packages have several (nvidia-driver, nvidia-kmod-common, ...), all with the
# driver's version.
SOURCE = "nvidia-driver"
MODULES: dict[str, Flavour] = {"kmod-nvidia-open-dkms": "open", "kmod-nvidia-latest-dkms": "proprietary"}
LDCONFIG = {"post": "/sbin/ldconfig\n", "postun": "/sbin/ldconfig\n"}
UNIT = "nvidia-persistenced.service"
FABRIC = "nvidia-fabricmanager.service"
# The kernel's command line gets the words that keep nouveau out, as with the real package.
GRUBBY = (
    "grubby --update-kernel=ALL --args='rd.driver.blacklist=nouveau modprobe.blacklist=nouveau' >/dev/null 2>&1 || :\n"
)
# DKMS keeps what the new package of one transaction has added from the old one's scriptlet, where both have one name.
SAFE = " --rpm_safe_upgrade"
OMIT = 'omit_drivers+=" nvidia nvidia-drm nvidia-modeset nvidia-uvm "\n'


def packages(distribution: Distribution, version: str) -> list[Standin]:
    """Return the packages of one driver version."""
    release = f"{version}-1.{distribution.tag}"
    upstream, full = f"= {EPOCH}:{version}", f"= {EPOCH}:{release}"

    make = partial(Standin, version=release, epoch=EPOCH, source=SOURCE)
    base = libraries(distribution, make, version)
    nvml, cfg = base[0].name, base[-1].name  # of newer branches: one
    made = [
        *base,
        make("nvidia-driver", summary="NVIDIA's proprietary display driver",
            requires=(f"nvidia-driver-libs {upstream}", f"nvidia-kmod-common {upstream}")),
        make("nvidia-driver-libs", summary="Libraries for nvidia-driver"),
        make("nvidia-driver-cuda", summary="CUDA integration for nvidia-driver",
            files=pieces.programs("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
            requires=(f"nvidia-driver-cuda-libs {upstream}", f"nvidia-kmod-common {upstream}",
                      f"nvidia-persistenced {upstream}")),
        make("nvidia-driver-cuda-libs", summary="Libraries for nvidia-driver-cuda", scripts=LDCONFIG,
            files=pieces.libraries(version, RPM, "libcuda", "libnvidia-ptxjitcompiler"),
            requires=tuple(dict.fromkeys((f"{nvml} {full}", f"{cfg} {full}")))),
        *([make("libnvidia-gpucomp", summary="NVIDIA library for shader compilation")] if len(base) > 1 else []),
        make("libnvidia-fbc", summary="NVIDIA OpenGL-based Framebuffer Capture libraries",
            requires=(f"nvidia-driver-cuda-libs {upstream}",)),
        make("nvidia-kmod-common", summary="Common files for the NVIDIA kernel modules",
             provides=("nvidia-kmod-common-any",),
            files={**pieces.firmware(version), "/usr/lib/modprobe.d/nvidia.conf": text(pieces.MODPROBE),
                   "/usr/lib/dracut/dracut.conf.d/99-nvidia.conf": text(OMIT)},
            requires=(f"nvidia-kmod {upstream}",), scripts={"post": GRUBBY}),
        make("nvidia-persistenced", summary="A daemon to maintain persistent software state in the NVIDIA driver",
            files=pieces.persistence(RPM, on=True), requires=(f"{cfg} {upstream}",),
            scripts={"post": pieces.ACCOUNT + pieces.RELOAD,
                     "preun": f'if [ "$1" = 0 ]; then systemctl --quiet disable --now {UNIT} || :; fi\n',
                     "postun": pieces.RELOAD}),
        make("nvidia-modprobe", summary="NVIDIA kernel module loader", files=pieces.programs("nvidia-modprobe")),
        *(_kernel(make, version, name, flavour, upstream) for name, flavour in MODULES.items()),
        make("nvidia-open", summary="NVIDIA open driver metapackage",
            requires=(f"kmod-nvidia-open-dkms {upstream}", f"nvidia-driver {upstream}",
                      f"nvidia-driver-cuda {upstream}",
                      f"nvidia-modprobe {upstream}")),
        make("cuda-drivers", summary="NVIDIA driver metapackage",
            requires=(f"kmod-nvidia-latest-dkms {upstream}", f"nvidia-driver {upstream}",
                      f"nvidia-driver-cuda {upstream}",
                      f"nvidia-modprobe {upstream}")),
    ]  # fmt: skip
    return [*whole(distribution, "nvidia", version, made, make), *_fabric(distribution, version)]


def libraries(distribution: Distribution, standin: partial[Standin], version: str) -> list[Standin]:
    """Return the packages with libnvidia-ml and libnvidia-cfg: one each, or one for both if the catalogue says so."""
    full = f"= {EPOCH}:{standin.keywords['version']}"
    nvml, configuration = pieces.management_library(version, RPM), pieces.configuration(version, RPM)
    old = f"< {EPOCH}:{standin.keywords['version']}"
    if "libnvidia-ml" not in names(distribution, "nvidia", version):
        both = {**nvml, **configuration}
        gone = tuple(f"{name} {old}" for name in ("libnvidia-ml", "libnvidia-cfg", "libnvidia-gpucomp"))
        return [
            standin(
                "nvidia-driver-common",
                summary="Common libraries of the driver",
                files=both,
                scripts=LDCONFIG,
                replaces=gone,
            )
        ]
    return [
        standin("libnvidia-ml", summary="NVIDIA Management Library (NVML)", scripts=LDCONFIG, files=nvml,
            provides=(f"cuda-nvml {full}", f"nvidia-driver-NVML {full}"), replaces=(f"nvidia-driver-NVML {old}",)),
        standin("libnvidia-cfg", summary="NVIDIA Config public interface (nvcfg)", scripts=LDCONFIG,
                files=configuration),
    ]  # fmt: skip


def _kernel(standin: partial[Standin], version: str, name: str, flavour: Flavour, upstream: str) -> Standin:
    package = silicon.rpm_dkms_name(version, flavour)
    tree = f"/usr/src/{package}-{version}"
    compiler = ("gcc-c++",) if flavour == "open" else ()
    return standin(
        name, summary=f"NVIDIA kernel modules ({flavour}), built by DKMS",
        files={f"{tree}/{path}": File(content) for path, content in silicon.rpm_source(version, flavour).items()},
        requires=("dkms", *compiler, f"nvidia-kmod-common {upstream}"), provides=(f"nvidia-kmod {upstream}",),
        conflicts=tuple(other for other in MODULES if other != name),
        scripts={"post": pieces.build(version, package, SAFE, otherwise=":"),
                 "preun": pieces.forget(version, package, SAFE)},
    )  # fmt: skip


def _fabric(distribution: Distribution, version: str) -> list[Standin]:
    files = {
        path.replace("/lib/systemd", "/usr/lib/systemd"): f for path, f in fabric.fabric_manager_files(version).items()
    }
    made = []
    for name in part_names(distribution, "fabric-manager", version):
        made.append(
            Standin(
                name, f"{version}-1", f"Fabric Manager for NVSwitch based systems {version}", files=files,
                requires=("python3",), provides=("nvidia-fabricmanager-any",), conflicts=("nvidia-fabricmanager-any",),
                scripts={"post": pieces.RELOAD, "postun": pieces.RELOAD,
                         "preun": f'if [ "$1" = 0 ]; then systemctl --quiet disable --now {FABRIC} || :; fi\n'},
            )
        )  # fmt: skip
    imex = {path.replace("/lib/systemd", "/usr/lib/systemd"): file for path, file in fabric.imex_files(version).items()}
    made += [
        Standin(name, f"{version}-1", f"NVIDIA IMEX service {version}", files=imex, requires=("python3",),
                scripts={"post": pieces.RELOAD, "postun": pieces.RELOAD})
        for name in part_names(distribution, "imex", version)
    ]  # fmt: skip
    made += switch_libraries.rpms(distribution, version)
    hollow = part_names(distribution, "fabric-manager-dev", version)
    return made + [Standin(name, f"{version}-1", f"{name} {version}: an empty package") for name in hollow]


def precompiled(distribution: Distribution, versions: Iterable[str]) -> list[Standin]:
    """Return precompiled modules for the distribution's kernel, if the repository has any."""
    return [
        standins_precompiled.nvidia(distribution, version, EPOCH)
        for version in versions
        if list_package_sets(distribution.catalogue, "prebuilt-modules", version, origin="nvidia")
    ]


@dataclass(frozen=True)
class Stream:
    """One module stream of nvidia-driver, of one flavour; `versions`: its driver versions. Without `kernel` its modules
    are precompiled."""

    name: str
    kernel: str
    versions: tuple[str, ...]


def streams(versions: Iterable[str]) -> list[Stream]:
    """Return the streams of a repository with these driver versions."""
    ordered = sorted(versions, key=Version.parse)
    branches = {
        derive_branch(version): [v for v in ordered if derive_branch(v) == derive_branch(version)]
        for version in ordered
    }
    made = []
    for branch, of_branch in branches.items():
        made.append(Stream(f"{branch}-open", "kmod-nvidia-open-dkms", tuple(of_branch)))
        made.append(Stream(f"{branch}-dkms", "kmod-nvidia-latest-dkms", tuple(of_branch)))
        made.append(Stream(branch, "", tuple(of_branch)))
    made.append(Stream("open-dkms", "kmod-nvidia-open-dkms", tuple(ordered)))
    made.append(Stream("latest-dkms", "kmod-nvidia-latest-dkms", tuple(ordered)))
    return made


def modulemd(distribution: Distribution, versions: Iterable[str]) -> str:
    """Return modules.yaml."""
    # https://github.com/fedora-modularity/libmodulemd/tree/main/yaml_specs
    documents = [_document(distribution, stream) for stream in streams(versions)]
    documents.append(
        "---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: nvidia-driver\n  stream: latest-dkms\n  "
        "profiles:\n" + "".join(f"    {stream.name}: [default]\n" for stream in streams(versions)) + "...\n"
    )
    return "".join(documents)


def _document(distribution: Distribution, stream: Stream) -> str:
    others = {name for name in MODULES if name != stream.kernel} | {"cuda-drivers", "nvidia-open"}
    built = [] if stream.kernel else precompiled(distribution, stream.versions)
    meta = {"open": "nvidia-open", "proprietary": "cuda-drivers"}.get(MODULES.get(stream.kernel, ""), "")
    offered = [*(p for version in stream.versions for p in packages(distribution, version)), *built]
    artifacts = [f"{p.name}-{p.epoch}:{p.version}.x86_64" for p in offered if p.name == meta or p.name not in others]
    managers = part_names(distribution, "fabric-manager", stream.versions[-1])
    kernels = [stream.kernel, meta] if stream.kernel else [package.name for package in built[-1:]]
    common = [*kernels, "nvidia-driver", "nvidia-driver-cuda", "nvidia-driver-libs", "nvidia-driver-cuda-libs",
              "nvidia-modprobe", "nvidia-persistenced", "libnvidia-ml", "libnvidia-cfg"]  # fmt: skip
    profiles = {
        "default": common,
        "ks": [name for name in common if name not in kernels[:1]],
        "fm": [*common, *managers],
    }
    number = "".join(f"{int(part):03d}" for part in stream.versions[-1].split("."))
    lines = [
        *("---", "document: modulemd", "version: 2", "data:", "  name: nvidia-driver", f'  stream: "{stream.name}"'),
        *(f"  version: {number}", '  context: "00000000"', "  arch: x86_64"),
        *(f"  summary: Nvidia driver for {stream.name} branch", "  description: >-", "    A gpuprov stand-in."),
        *(
            "  license:",
            "    module: [MIT]",
            "  dependencies:",
            f"  - requires:\n      platform: [{distribution.platform}]",
        ),
        "  profiles:",
    ]
    for name, rpms in profiles.items():
        lines += [f"    {name}:", "      rpms:", *(f"      - {rpm}" for rpm in rpms)]
    lines += ["  artifacts:", "    rpms:", *(f"    - {artifact}" for artifact in artifacts), "...", ""]
    return "\n".join(lines)
