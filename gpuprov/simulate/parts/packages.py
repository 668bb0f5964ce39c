"""Where a simulated host gets its driver from: a package repository that the host itself serves."""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate import repository_signing
from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import PROGRAMS, File, Part, text
from gpuprov.simulate.repository import SUITE, repository

ASSETS = Path(__file__).with_name("packages_files")
PLACE = "/usr/share/gpuprov-sim/repository"
KEYRING = "/usr/share/keyrings/gpuprov-sim.gpg"
UNIT = "gpuprov-sim-repository.service"
URL = "http://127.0.0.1:8099"
SOURCE = f"""\
# Of a gpuprov simulated host: Debian's own driver packages, and stand-ins for those that touch a GPU.
Types: deb
URIs: {URL}/debian
Suites: {SUITE}
Components: main
Signed-By: {KEYRING}
"""
RPM_SOURCE = f"""\
# Of a gpuprov simulated host: stand-ins for NVIDIA's packages, for tools of the rpm family.
[gpuprov-sim]
name=gpuprov simulation: stand-ins
baseurl={URL}/rpm
gpgcheck=1
repo_gpgcheck=1
gpgkey=file://{PLACE}/{repository_signing.ARMOURED}
"""
PRELOAD = """\
# Of a gpuprov simulated host: the stand-in libnvidia-cfg.so.1 answers for the driver, which a container does not have.
[Service]
Environment=LD_PRELOAD=libnvidia-cfg.so.1
"""
PRELOAD_FILE = "/etc/systemd/system/nvidia-persistenced.service.d/gpuprov-sim.conf"
# The same versions in Debian's contrib and non-free would be packages for real GPUs.
STRIP = r"""
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
  case $file in *gpuprov-sim.sources) continue ;; esac
  [ ! -f "$file" ] || sed -i -E -e ':again' \
    -e '/^(deb|deb-src|Components:)/ { s/ (contrib|non-free-firmware|non-free)( |$)/\2/; t again }' "$file"
done
"""


def part(name: str, description: Description) -> Part:
    """The server of the repository and the apt source; Debian's contrib and non-free leave the host's sources."""
    folder = repository(description)
    preload = {PRELOAD_FILE: text(PRELOAD)} if description.kind == "container" else {}
    return Part(
        files={
            **preload,
            f"{PROGRAMS}/serve-repository": File((ASSETS / "serve-repository").read_bytes(), 0o755),
            f"{PROGRAMS}/fetch-lists": File((ASSETS / "fetch-lists").read_bytes(), 0o755),
            f"{PROGRAMS}/sources/gpuprov-sim.sources": text(SOURCE),
            f"/etc/systemd/system/{UNIT}": File((ASSETS / UNIT).read_bytes()),
            "/etc/apt/sources.list.d/gpuprov-sim.sources": text(SOURCE),
            "/etc/apt/apt.conf.d/90gpuprov-sim": text('Acquire::http::Proxy::127.0.0.1 "DIRECT";\n'),
            KEYRING: File((folder / repository_signing.KEYRING).read_bytes()),
            f"{PROGRAMS}/gpuprov-sim.repo": text(RPM_SOURCE),
        },
        script=STRIP,
        units=(UNIT,),
    )


def volumes(description: Description) -> tuple[tuple[Path, str], ...]:
    """Folders of this machine that the host shows read-only: the repository, about 25 MB."""
    return ((repository(description), PLACE),)
