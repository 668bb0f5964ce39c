"""The fabric manager of a simulated host: a stand-in daemon in packages with the real one's names and paths."""

from __future__ import annotations

from pathlib import Path

from gpuprov.catalog.packages import list_package_names, list_package_sets
from gpuprov.simulate.debs import standin_deb
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import File, Part
from gpuprov.simulate.standins import switch_libraries

ASSETS = Path(__file__).with_name("fabric_files")
NVLSM = "2025.10.14-1"
RELOAD = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n"
STOP = (
    '#!/bin/sh\nset -e\nif [ "$1" = remove ] && [ -d /run/systemd/system ]; then\n'
    "\tsystemctl disable --now nvidia-fabricmanager.service\nfi\n"
)


def part(name: str, description: Description) -> Part:
    """Return nothing: the fabric manager comes from the host's repository, as a package."""
    return Part()


def fabric_manager_files(version: str) -> dict[str, File]:
    """Return the contents of the package of this version, by path."""
    places = {
        "nv-fabricmanager": ("/usr/bin/nv-fabricmanager", 0o755),
        "nvidia-fabricmanager-start.sh": ("/usr/bin/nvidia-fabricmanager-start.sh", 0o755),
        "nvidia-fabricmanager.service": ("/lib/systemd/system/nvidia-fabricmanager.service", 0o644),
        "fabricmanager.cfg": ("/usr/share/nvidia/nvswitch/fabricmanager.cfg", 0o644),
    }
    contents = {name: (ASSETS / name).read_bytes().replace(b"@VERSION@", version.encode()) for name in places}
    return {path: File(contents[name], mode) for name, (path, mode) in places.items()}


def imex_files(version: str) -> dict[str, File]:
    """Return the contents of nvidia-imex of this version, by path; program and control program are one file that acts
    by its name."""
    program = (ASSETS / "nvidia-imex").read_bytes().replace(b"@VERSION@", version.encode())
    return {
        "/usr/bin/nvidia-imex": File(program, 0o755),
        "/usr/bin/nvidia-imex-ctl": File(program, 0o755),
        "/lib/systemd/system/nvidia-imex.service": File((ASSETS / "nvidia-imex.service").read_bytes(), 0o644),
        "/etc/nvidia-imex/config.cfg": File((ASSETS / "imex.cfg").read_bytes(), 0o644),
    }


def packages(target: Path, distribution: str, version: str) -> list[Path]:
    """Build, as stand-ins in the folder `target`, the packages of this driver version that only NVIDIA's own repository
    has."""
    made = []
    for name in _names(distribution, "fabric-manager", version):
        made.append(
            standin_deb(
                target, name, f"{version}-1", description=f"Fabric Manager for NVSwitch based systems {version}",
                files=fabric_manager_files(version), depends="python3, python3-minimal",
                scripts={"postinst": RELOAD, "prerm": STOP, "postrm": RELOAD},
                fields={"Provides": f"nvidia-fabricmanager-any (= {version})", "Conflicts": "nvidia-fabricmanager-any",
                        "Replaces": "nvidia-fabricmanager-any"},
            )
        )  # fmt: skip
    for name in _names(distribution, "imex", version):
        stop = {"prerm": STOP.replace("nvidia-fabricmanager", "nvidia-imex")}
        made.append(
            standin_deb(target, name, f"{version}-1", description=f"NVIDIA IMEX service {version}",
                        files=imex_files(version),
                        depends="python3", scripts={"postinst": RELOAD, "postrm": RELOAD, **stop})
        )  # fmt: skip
    for kind, summary in switch_libraries.SUMMARIES.items():
        files = switch_libraries.files(kind, version, "/usr/lib/x86_64-linux-gnu")
        made += [
            standin_deb(target, name, f"{version}-1", description=f"{summary} {version}", files=files,
                        scripts=switch_libraries.DEB_SCRIPTS)
            for name in _names(distribution, kind, version)
        ]  # fmt: skip
    return made


def subnet_manager_files() -> dict[str, File]:
    """Return the contents of nvlsm, by path."""
    # It only has to be there: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    program = (
        b"#!/bin/sh\n# A stand-in of gpuprov's simulated hosts: it lives, and manages nothing.\nwhile :; do "
        b"sleep 3600; done\n"
    )
    return {"/opt/nvidia/nvlsm/sbin/nvlsm": File(program, 0o755)}


def subnet_manager(target: Path) -> Path:
    """Build the NVLink subnet manager, which has a version line of its own."""
    return standin_deb(target, "nvlsm", NVLSM, description="NVIDIA NVLink subnet manager", files=subnet_manager_files())


def _names(distribution: str, part_name: str, version: str) -> list[str]:
    sets = list_package_sets(distribution, part_name, version, origin="nvidia")
    return [name for entry in sets for name in list_package_names(entry, version)]
