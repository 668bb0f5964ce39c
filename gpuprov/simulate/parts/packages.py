"""Driver sources of a simulated host: package repositories that the host itself serves."""

from __future__ import annotations

from pathlib import Path

from gpuprov.simulate.description import Description
from gpuprov.simulate.parts.base import PROGRAMS, File, Part, text
from gpuprov.simulate.repository import index, signing
from gpuprov.simulate.repository.build import repository
from gpuprov.simulate.repository.others import DRIVER, nvidia_place
from gpuprov.simulate.standins import nvidia_apt

ASSETS = Path(__file__).with_name("packages_files")
PLACE = "/usr/share/gpuprov-sim/repository"
KEYRING = "/usr/share/keyrings/gpuprov-sim.gpg"
UNIT = "gpuprov-sim-repository.service"
URL = "http://127.0.0.1:8099"
NVIDIA_KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
RPM_KEYS = "/etc/pki/rpm-gpg"
REPOSITORIES = {"redhat": "/etc/yum.repos.d", "suse": "/etc/zypp/repos.d"}
FOLDERS = {"redhat": "el", "suse": "suse"}
DEBIAN = f"""\
# Of a gpuprov simulated host: Debian's own driver packages, and stand-ins for those that touch a GPU.
Types: deb
URIs: {URL}/debian
Suites: {index.OWN.suite}
Components: main
Signed-By: {KEYRING}
"""
UBUNTU = f"""\
# Of a gpuprov simulated host: stand-ins for Ubuntu's packages.
Types: deb
URIs: {URL}/ubuntu
Suites: {{codename}}
Components: restricted
Signed-By: {KEYRING}
"""
NVIDIA = f"""\
# Of a gpuprov simulated host: stand-ins for NVIDIA's packages.
Types: deb
URIs: {URL}/{{place}}/
Suites: /
Signed-By: {NVIDIA_KEYRING}
"""
EL = f"""\
# Of a gpuprov simulated host: stand-ins for what the distribution's own repositories have (EL: with EPEL).
[{{name}}]
name=gpuprov simulation: {{what}}
baseurl={URL}/{{place}}
enabled=1
gpgcheck=1
repo_gpgcheck=1
gpgkey=file://{RPM_KEYS}/RPM-GPG-KEY-gpuprov-sim
"""
NVIDIA_EL = f"""\
# Of a gpuprov simulated host: stand-ins for NVIDIA's packages.
[cuda-{{catalogue}}-x86_64]
name=cuda-{{catalogue}}-x86_64
baseurl={URL}/{{place}}
enabled=1
gpgcheck=1
repo_gpgcheck=1
gpgkey=file://{RPM_KEYS}/RPM-GPG-KEY-nvidia
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
    """Return the repository server and the host's sources; removes Debian's contrib and non-free from its existing
    sources."""
    folder = repository(description)
    preload = {PRELOAD_FILE: text(PRELOAD)} if description.kind == "container" else {}
    dnf = description.known.rpms
    return Part(
        files={
            **preload,
            **(_dnf(description, folder) if dnf else _apt(description, folder)),
            f"{PROGRAMS}/serve-repository": File((ASSETS / "serve-repository").read_bytes(), 0o755),
            f"{PROGRAMS}/fetch-lists": File(
                (ASSETS / ("fetch-lists-dnf" if dnf else "fetch-lists")).read_bytes(), 0o755
            ),
            f"/etc/systemd/system/{UNIT}": File((ASSETS / UNIT).read_bytes()),
        },
        script="" if dnf else STRIP,
        units=(UNIT,),
    )


def _apt(description: Description, folder: Path) -> dict[str, File]:
    known = description.known
    sources = {}
    if known.stands_in:
        sources["ubuntu.sources"] = UBUNTU.format(codename=known.codename)
    elif "distribution" in description.configured:
        sources["gpuprov-sim.sources"] = DEBIAN
    files = {KEYRING: File((folder / signing.KEYRING).read_bytes())}
    if "nvidia" in description.configured:
        sources["cuda.sources"] = NVIDIA.format(place=nvidia_place(known))
        files[NVIDIA_KEYRING] = File((folder / f"{signing.VENDOR}.gpg").read_bytes())
        files[nvidia_apt.PREFERENCES] = text(nvidia_apt.PIN)
    for name, content in sources.items():
        files |= {f"{PROGRAMS}/sources/{name}": text(content), f"/etc/apt/sources.list.d/{name}": text(content)}
    return {**files, "/etc/apt/apt.conf.d/90gpuprov-sim": text('Acquire::http::Proxy::127.0.0.1 "DIRECT";\n')}


def _dnf(description: Description, folder: Path) -> dict[str, File]:
    known = description.known
    files = {
        f"{REPOSITORIES[known.family]}/{known.base_source}.repo": text(
            EL.format(name=known.base_source, what="the distribution's packages", place=FOLDERS[known.family])
        ),
        f"{RPM_KEYS}/RPM-GPG-KEY-gpuprov-sim": File((folder / signing.ARMOURED).read_bytes()),
    }
    if known.driver_source and "distribution" in description.configured:
        source = EL.format(name=known.driver_source, what="its own archive of NVIDIA's packages", place=DRIVER)
        files[f"/etc/yum.repos.d/{known.driver_source}.repo"] = text(source)
    if "nvidia" in description.configured:
        source = NVIDIA_EL.format(catalogue=known.catalogue, place=nvidia_place(known))
        files[f"{REPOSITORIES[known.family]}/cuda-{known.catalogue}.repo"] = text(source)
        files[f"{RPM_KEYS}/RPM-GPG-KEY-nvidia"] = File((folder / f"{signing.VENDOR}.asc").read_bytes())
    return files


def volumes(description: Description) -> tuple[tuple[Path, str], ...]:
    """Return folders of this machine to mount read-only in the host: the repositories, about 25 MB."""
    return ((repository(description), PLACE),)
