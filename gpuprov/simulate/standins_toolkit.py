"""The NVIDIA Container Toolkit in the repository of a simulated host: NVIDIA's own programs, built from their Go module.

NVIDIA's packages cannot be had where only a Go module proxy can be reached. `nvidia-ctk`, `nvidia-container-runtime` and the
hooks are the real ones, with NVIDIA's own units and udev rules; the packages around them, and libnvidia-container (C, of the
legacy mode only), are stand-ins.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from gpuprov.simulate import golang, image, tools
from gpuprov.simulate.debs import standin_deb
from gpuprov.simulate.parts.base import File, text

WHAT = "NVIDIA's container toolkit"
MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
PROGRAMS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-cdi-hook", "nvidia-container-runtime-hook")
VERSIONS = ("1.17.8", "1.20.1")
"""The last line without nvidia-cdi-refresh, drop-in files and jit-cdi, and the newest with them."""
HOOK = "nvidia-container-runtime-hook"  # the one program that is not in the -base package
# The linker flags of NVIDIA's Makefile: symbols of the NVML are looked up when they are called.
FLAGS = "-s -w -extldflags=-Wl,-z,lazy -X {module}/internal/info.version={version}"
UNITS = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
PLACES = {
    "nvidia-cdi-refresh.service": "/lib/systemd/system/nvidia-cdi-refresh.service",
    "nvidia-cdi-refresh.path": "/lib/systemd/system/nvidia-cdi-refresh.path",
    "nvidia-cdi-refresh.env": ENVIRONMENT,
    "10-container-engines.conf": "/lib/systemd/system/nvidia-cdi-refresh.service.d/10-container-engines.conf",
    "99-nvidia-cdi-refresh.rules": "/lib/udev/rules.d/99-nvidia-cdi-refresh.rules",
}
"""Where NVIDIA's package has the files of the module's folder `deployments`."""
SIMULATED = """\
# Of a gpuprov simulated host: a container has no modules.dep for the kernel of its machine, which the unit looks for.
[Service]
ExecCondition=
ExecCondition=/bin/sh -c 'systemd-detect-virt -qc || grep -qE "/(nvidia|nvidia-current)[.]ko" /lib/modules/%v/modules.dep'
"""
CLI = (
    "#!/bin/sh\necho 'nvidia-container-cli: a gpuprov stand-in; the legacy mode has no GPU to mount here' >&2\nexit 1\n"
)
POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
/usr/bin/nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
udevadm control --reload-rules > /dev/null 2>&1 || true
"""
POSTINST_UNITS = f"""\
systemctl enable --quiet {UNITS}
if [ -d /run/systemd/system ]; then systemctl daemon-reload; systemctl restart {UNITS} || true; fi
"""
PRERM = f"""\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now {UNITS} || true; fi
"""


def packages(pool: Path) -> list[tuple[str, str]]:
    """The four packages in each version, in the folder `pool`: file name and what it is."""
    made = []
    for version in VERSIONS:
        built = programs(version)
        made += [standin_deb(pool, name, f"{version}-1", **given) for name, given in _contents(version, built).items()]  # type: ignore[arg-type]
    return [(file.name, "stand-in") for file in made]


def key() -> str:
    """What decides the packages' content."""
    return hashlib.sha256(Path(__file__).read_bytes() + " ".join(VERSIONS).encode()).hexdigest()[:16]


def programs(version: str) -> Path:
    """A folder with NVIDIA's programs of this version and the module's folder `deployments`; kept in the cache."""
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
        for found in sources.rglob(name):
            shutil.copyfile(found, folder / name)


def _contents(version: str, built: Path) -> dict[str, dict[str, object]]:
    """The arguments of `standin_deb` by package name."""
    exact = f"{version}-1"
    base = {f"/usr/bin/{name}": File(built / name, 0o755) for name in PROGRAMS if name != HOOK}
    deployed = {place: File(built / name) for name, place in PLACES.items() if (built / name).exists()}
    scripts = {"postinst": POSTINST}
    if deployed:
        base |= deployed
        base["/lib/systemd/system/nvidia-cdi-refresh.service.d/50-gpuprov-sim.conf"] = text(SIMULATED)
        base["/DEBIAN/conffiles"] = text(f"{ENVIRONMENT}\n")
        scripts = {"postinst": POSTINST + POSTINST_UNITS, "prerm": PRERM}
    real = f"NVIDIA's own programs, built from {MODULE} {version}"
    return {
        "nvidia-container-toolkit-base": {
            "description": f"NVIDIA Container Toolkit Base: {real}", "files": base, "scripts": scripts,
        },
        "nvidia-container-toolkit": {
            "description": f"NVIDIA Container toolkit: {real}", "files": {f"/usr/bin/{HOOK}": File(built / HOOK, 0o755)},
            "depends": f"nvidia-container-toolkit-base (= {exact}), libnvidia-container-tools (= {exact})",
        },
        "libnvidia-container-tools": {
            "description": "NVIDIA container runtime library (command-line tools): its program only says what it is",
            "files": {"/usr/bin/nvidia-container-cli": text(CLI, 0o755)},
            "depends": f"libnvidia-container1 (>= {exact})",
        },
        "libnvidia-container1": {"description": "NVIDIA container runtime library: an empty package"},
    }  # fmt: skip
