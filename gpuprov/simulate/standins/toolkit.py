"""The NVIDIA Container Toolkit in the repository of a simulated host: NVIDIA's own programs, built from their Go
module.

NVIDIA's packages are not available where only a Go module proxy can be reached. `nvidia-ctk`,
`nvidia-container-runtime` and the hooks are the real ones, with NVIDIA's own units and udev rules; the packages around
them, and libnvidia-container (C, for the legacy mode only), are stand-ins.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from gpuprov.simulate import golang, image, tools
from gpuprov.simulate.parts.base import File, text
from gpuprov.simulate.standins.extra import Form
from gpuprov.simulate.standins.model import Standin

WHAT = "NVIDIA's container toolkit"
MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-cdi-hook", "nvidia-container-runtime-hook")
# The last line without nvidia-cdi-refresh, drop-in files and jit-cdi, and the newest with them.
VERSIONS = ("1.17.8", "1.20.1")
HOOK = "nvidia-container-runtime-hook"  # the one program that is not in the -base package
# The linker flags of NVIDIA's Makefile: symbols of the NVML are looked up when they are called.
FLAGS = "-s -w -extldflags=-Wl,-z,lazy -X {module}/internal/info.version={version}"
UNITS = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
# Paths in NVIDIA's package for files of the module's folder `deployments`.
PLACES = {
    "nvidia-cdi-refresh.service": "/lib/systemd/system/nvidia-cdi-refresh.service",
    "nvidia-cdi-refresh.path": "/lib/systemd/system/nvidia-cdi-refresh.path",
    "nvidia-cdi-refresh.env": ENVIRONMENT,
    "10-container-engines.conf": "/lib/systemd/system/nvidia-cdi-refresh.service.d/10-container-engines.conf",
    "99-nvidia-cdi-refresh.rules": "/lib/udev/rules.d/99-nvidia-cdi-refresh.rules",
}
SIMULATED = """\
# Of a gpuprov simulated host: a container has no modules.dep for the kernel of its machine, which the unit looks for.
[Service]
ExecCondition=
ExecCondition=/bin/sh -c 'systemd-detect-virt -qc || grep -qE "/(nvidia|nvidia-current)[.]ko" /lib/modules/%v/modules.dep'
"""
CLI = (
    "#!/bin/sh\necho 'nvidia-container-cli: a gpuprov stand-in; the legacy mode has no GPU to mount here' >&2\nexit 1\n"
)
CONFIGURE = """\
/usr/bin/nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
udevadm control --reload-rules > /dev/null 2>&1 || true
"""
UNITS_ON = f"""\
systemctl enable --quiet {UNITS}
if [ -d /run/systemd/system ]; then systemctl daemon-reload; systemctl restart {UNITS} || true; fi
"""
UNITS_OFF = f"if [ -d /run/systemd/system ]; then systemctl disable --now {UNITS} || true; fi\n"


def packages(form: Form) -> list[Standin]:
    """Return the four packages in each version."""
    return [package for version in VERSIONS for package in _packages(form, version, programs(version))]


def key() -> str:
    """Return a hash of everything that determines the packages' content."""
    return hashlib.sha256(Path(__file__).read_bytes() + " ".join(VERSIONS).encode()).hexdigest()[:16]


def programs(version: str) -> Path:
    """Return a folder with NVIDIA's programs of this version and the module's folder `deployments`; cached."""
    made = (
        image.cache_dir() / f"container-toolkit-{version}-{hashlib.sha256((FLAGS + MODULE).encode()).hexdigest()[:12]}"
    )
    with image.alone(made.with_name(f"{made.name}.lock")):
        if not made.is_dir():
            tools.say(f"building NVIDIA's container toolkit {version} from its Go module (1 minute)")
            with tempfile.TemporaryDirectory(prefix=".toolkit-", dir=image.cache_dir()) as temporary:
                folder = Path(temporary) / "toolkit"
                _build(folder, version)
                os.replace(folder, made)
    return made


def _build(folder: Path, version: str) -> None:
    environment = {**os.environ, **golang.ENVIRONMENT, "GOBIN": str(folder)}
    flags = FLAGS.format(module=MODULE, version=version)
    targets = [f"{MODULE}/cmd/{program}@v{version}" for program in PROGRAMS]
    tools.run([golang.go(WHAT), "install", "-ldflags", flags, *targets], environment=environment)
    sources = golang.sources(WHAT, MODULE, version) / "deployments"
    for name in PLACES:
        for file in sources.rglob(name):
            shutil.copyfile(file, folder / name)


def _packages(form: Form, version: str, built: Path) -> list[Standin]:
    exact = f"{version}-1"
    base = {f"/usr/bin/{name}": File(built / name, 0o755) for name in PROGRAMS if name != HOOK}
    deployed = {place: File(built / name) for name, place in PLACES.items() if (built / name).exists()}
    if deployed:
        base |= deployed | {"/lib/systemd/system/nvidia-cdi-refresh.service.d/05-gpuprov-sim.conf": text(SIMULATED)}
    real = f"NVIDIA's own programs, built from {MODULE} {version}"

    def needs(name: str, how: str = "=") -> str:
        return f"{name} ({how} {exact})" if form == "deb" else f"{name} {how} {exact}"

    if form == "rpm":
        base = {re.sub("^/lib/", "/usr/lib/", path): file for path, file in base.items()}
    elif deployed:
        base["/DEBIAN/conffiles"] = text(f"{ENVIRONMENT}\n")
    return [
        Standin(
            "nvidia-container-toolkit-base",
            exact,
            f"NVIDIA Container Toolkit Base: {real}",
            files=base,
            scripts=_scripts(form, units=bool(deployed)),
        ),
        Standin(
            "nvidia-container-toolkit",
            exact,
            f"NVIDIA Container toolkit: {real}",
            files={f"/usr/bin/{HOOK}": File(built / HOOK, 0o755)},
            requires=(needs("nvidia-container-toolkit-base"), needs("libnvidia-container-tools")),
        ),
        Standin(
            "libnvidia-container-tools",
            exact,
            "NVIDIA container runtime library (command-line tools): its program only says what it is",
            files={"/usr/bin/nvidia-container-cli": text(CLI, 0o755)},
            requires=(needs("libnvidia-container1", ">="),),
        ),
        Standin("libnvidia-container1", exact, "NVIDIA container runtime library: an empty package"),
    ]


def _scripts(form: Form, *, units: bool) -> dict[str, str]:
    """Return scripts that run after the package is installed, and before it is removed."""
    begin, end = CONFIGURE + (UNITS_ON if units else ""), UNITS_OFF if units else ""
    if form == "rpm":
        return {"post": begin} | ({"preun": f'[ "$1" = 0 ] || exit 0\n{end}'} if end else {})
    shebang = "#!/bin/sh\nset -e\n"
    made = {"postinst": f'{shebang}[ "$1" = configure ] || exit 0\n{begin}'}
    return made | ({"prerm": f'{shebang}[ "$1" = remove ] || exit 0\n{end}'} if end else {})
