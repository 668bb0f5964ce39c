"""`nvidia_driver`: one version, resolved first, installed as a set, built for every kernel, held, proven."""

from __future__ import annotations

from collections.abc import Iterable

from gpuprov import resolve
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.nvidia_driver import now, preflight
from gpuprov.capabilities.nvidia_driver.fragment import BASE_PROBES, NvidiaDriver, package_names
from gpuprov.catalog import driver_data, drivers, gpus
from gpuprov.probe import dpkg, modules
from gpuprov.probe.base import Facts
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem

HERE = "nvidia_driver"
MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
NEUTRAL_BRANCH = "580"
"""Judges a flavour where the spec names no branch: 580 has both flavours and knows every GPU of the catalogue."""


def rules(host: HostSpec, driver: NvidiaDriver) -> Iterable[Problem]:
    branch = "" if driver.version == "any" else drivers.branch_of(driver.version)
    known = [b.branch for b in drivers.branches()]
    if branch and branch not in known:
        near = min(known, key=lambda b: abs(int(b) - int(branch)))
        message = f'nvidia_driver.version is "{driver.version}": there is no branch {branch}'
        yield Problem(
            path=(HERE, "version"), message=message, hint=f'the nearest is "{near}"; all: gpuprov catalog drivers'
        )
    elif branch and (life := drivers.end_of_life(branch)).ended:
        hint = "gpuprov catalog drivers lists the branches that are supported"
        yield Problem(path=(HERE, "version"), message=life.text, hint=hint, severity="warning")
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    if gpu is None and branch in known and (lacking := without_flavour(branch, driver.kernel_modules)):
        yield Problem(
            path=(HERE, "kernel_modules"),
            message=f"nvidia_driver.kernel_modules: {lacking}",
            hint="gpuprov catalog drivers",
        )
    if gpu and (not branch or branch in known):
        asked = branch or NEUTRAL_BRANCH
        modules_wanted = driver.kernel_modules
        flavour = drivers.kernel_modules_for(gpu, asked).flavour if modules_wanted == "auto" else modules_wanted
        refusal = drivers.refusal(gpu, asked, flavour)
        if refusal:
            field = "version" if modules_wanted == "auto" or "is not" in refusal.partition(";")[0] else "kernel_modules"
            yield Problem(
                path=(HERE, field), message=f"nvidia_driver.{field}: {refusal}", hint=f"gpuprov catalog gpus {gpu.key}"
            )
    for name in driver.module_parameters:
        if not name.startswith("NVreg_"):
            message = f'nvidia_driver.module_parameters: the nvidia module has no parameter "{name}"'
            hint = f'its parameters begin with NVreg_ ("NVreg_{name}"); for another module: kernel.module_options'
            yield Problem(path=(HERE, "module_parameters", name), message=message, hint=hint)


def without_flavour(branch: str, modules_wanted: str) -> str:
    """Why no GPU can run with these modules on the branch; empty when some can."""
    facts = driver_data.drivers_file().modules
    first, last = int(facts.open_first_branch.branch), int(facts.open_only_since.branch)
    if modules_wanted == "open" and int(branch) < first:
        return f"branch {branch} has no open kernel modules: {first} is the first"
    if modules_wanted == "proprietary" and int(branch) >= last:
        return f"branch {branch} has no proprietary kernel modules: open only since {last}"
    return ""


def contribute(_host: HostSpec, driver: NvidiaDriver) -> Kernel | None:
    """Parameters under every name that the module has on some distribution; a name that a host does not have is without effect."""
    if not driver.module_parameters:
        return None
    return Kernel(module_options={name: dict(driver.module_parameters) for name in MODULE_NAMES})


def export(facts: Facts) -> Fragment | None:
    names = package_names(facts)
    found = facts.get(dpkg.PACKAGES)
    flavours = (("proprietary", names.proprietary), ("open", names.open))
    for flavour, needed in flavours:
        if needed[0] in found:
            options = facts.get(modules.MODPROBE).options.get(modules.underscored(names.modules[flavour]), {})
            return NvidiaDriver(
                version=resolve.upstream(found[needed[0]].version),
                kernel_modules="open" if flavour == "open" else "proprietary",
                module_parameters={k: v for k, v in options.items() if k.startswith("NVreg_")},
                hold=found[needed[0]].held,
            )
    return None


CAPABILITY = Capability(
    name=HERE,
    summary="the NVIDIA driver: one version for kernel modules and user space, built for every kernel, held as a set",
    fragment=NvidiaDriver,
    checks=now.CHECKS + preflight.CHECKS,
    rules=rules,
    contribute=contribute,
    export=export,
    export_probes=(*BASE_PROBES, modules.MODPROBE),
)
