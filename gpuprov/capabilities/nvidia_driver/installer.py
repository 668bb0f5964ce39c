"""Arguments of the tasks that run NVIDIA's installer, a .run file."""

import json

from gpuprov.capabilities.nvidia_driver.decision import Ctx
from gpuprov.capabilities.nvidia_driver.fragment import Decision, NvidiaDriver
from gpuprov.facts.probes.driver import runfile
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.kernel.signing import CERTIFICATE_FILE, KEY_FILE
from gpuprov.host_code.json_members import Json

# The directory of a .run file on a host until it is installed.
PLACE = "/var/cache/gpuprov"


def locate(driver: NvidiaDriver) -> str:
    """Return the path of the file on the host."""
    return f"{PLACE}/NVIDIA-Linux-{driver.version}-{driver.runfile.sha256.lower()[:12]}.run"


def fetch(driver: NvidiaDriver) -> dict[str, Json]:
    """Return what brings the file to the host."""
    given = driver.runfile
    source = {"url": given.url, "file": given.file, "sha256": given.sha256}
    return {"of": "nvidia_driver.runfile", **source, "path": locate(driver)}


def judge(driver: NvidiaDriver) -> dict[str, Json]:
    """Return what checks the file."""
    return {"path": locate(driver), "of": driver.runfile.url or driver.runfile.file, "version": driver.version}


def install(ctx: Ctx, decision: Decision, kernels: list[str]) -> dict[str, Json]:
    """Return what runs the installer."""
    options = _list_options(ctx, decision, kernels)
    driver = ctx.fragment
    return {"path": locate(driver), "version": driver.version, "flavour": decision.flavour, "options": options}


def record(driver: NvidiaDriver) -> dict[str, str]:
    """Return the file in which the installed .run file is recorded, with its text."""
    given = driver.runfile
    named = {"url": given.url, "file": given.file, "sha256": given.sha256.lower(), "version": driver.version}
    return {runfile.OURS: json.dumps(named) + "\n"}


def _list_options(ctx: Ctx, decision: Decision, kernels: list[str]) -> list[str]:
    """Return options of the installer, by the first version that has them."""
    # https://github.com/NVIDIA/nvidia-installer/blob/main/option_table.h
    running, branch = ctx.facts.get(system.PLATFORM).kernel, int(decision.branch)
    kernel = running if running in kernels else next(reversed(kernels), "")
    options = ["--silent", "--dkms", "--no-x-check", "--no-nouveau-check", f"--kernel-name={kernel}"]
    if branch >= 555:
        options.append(f"--kernel-module-type={decision.flavour}")
    elif decision.flavour == "open":
        options.append("--kernel-module-build-directory=kernel-open")
    options += ["--allow-installation-with-running-driver"] * (branch >= 545)
    options += ["--skip-module-load"] * (branch >= 550)
    # It loads its modules for a trial: without a signature the kernel refuses them.
    if (
        branch < 550
        and ctx.fragment.signing.key_file
        and ctx.facts.get(house.SECURE_BOOT)
        and not ctx.facts.get(system.CONTAINER)
    ):
        options += [f"--module-signing-secret-key={KEY_FILE}", f"--module-signing-public-key={CERTIFICATE_FILE}"]
    return options
