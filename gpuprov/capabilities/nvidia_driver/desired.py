"""Desired state of the role: a package source, one transaction, holds, modules for each kernel, a reloaded driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpuprov.capabilities.base import Context, Desired
from gpuprov.capabilities.nvidia_driver import decision as deciding
from gpuprov.capabilities.nvidia_driver import steps, transaction
from gpuprov.capabilities.nvidia_driver.fragment import Decision, NvidiaDriver, package_names, served
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.driver import nvidia, runfile
from gpuprov.probe.driver.driver_packages import ARCHIVES, KERNELS_HELD
from gpuprov.probe.host import house, pci, system
from gpuprov.probe.kernel.signing import CERTIFICATE_FILE, KEY_FILE, SETTINGS_FILE, SITE_KEY
from gpuprov.probe.software.prebuilt import PREBUILT
from gpuprov.resources.packages import Packages, packages_of
from gpuprov.shared import certificates

Ctx = Context[NvidiaDriver]
PLACE = "/var/cache/gpuprov"
"""The directory of a .run file on a host until it is installed."""
HINT = (
    "remove what stands in the way, or release it where it is held; of headers of a kernel that no repository has any more, remove "
    "that kernel; else name another version"
)
SETTINGS = f"""# Managed by gpuprov: change the inventory, then apply again.
# The site's key, that DKMS signs every module with.
mok_signing_key={KEY_FILE}
mok_certificate={CERTIFICATE_FILE}
"""


def make(ctx: Ctx) -> dict[str, Any]:
    """Return the role's values. `later`: what waits for a package source, `repository` and `components`: that source. `leaving`:
    sources that are ignored, and removed. `sources`, `asserting`, `installing`: the steps of the role that this host needs. Then the
    decision, its transaction, its holds, and whether the loaded driver must be unloaded."""
    decision = deciding.decided(ctx)
    waits = deciding.waits_for(ctx, decision)
    if decision.problem and not waits:
        raise ProbeFailed(f"nvidia_driver.version {ctx.fragment.version}: {decision.problem}", decision.hint)
    told = f"driver {ctx.fragment.version} is resolved when apply has {waits}"
    problem = f"nvidia_driver.version {ctx.fragment.version}: {decision.problem}. Fix: {decision.hint}"
    of_packages = ctx.fragment.source != "runfile"
    repository = deciding.repository(ctx) if of_packages else {}
    components = deciding.components(ctx, ctx.facts.get(ARCHIVES)) if of_packages else {}
    first = [name for name, comes in (("repository", repository), ("components", components)) if comes]
    return {
        "later": {"told": told, "problem": problem} if waits else {},
        "sources": [*first, "judge"] if first or waits else [],
        "repository": repository,
        "components": components,
        "leaving": deciding.leaving(ctx.fragment, ctx.facts),
        **(_undecided() if waits else _decided(ctx, decision)),
    }


def _undecided() -> dict[str, Any]:
    nothing: dict[str, Any] = {
        key: [] for key in ("install", "remove", "before", "asserting", "elsewhere", "installing")
    }
    return {
        "of": "",
        "version": "",
        "flavour": "",
        "packages": {},
        "reason": "",
        "loads": False,
        "stages": steps.stages([]),
        **nothing,
    }


def _decided(ctx: Ctx, decision: Decision) -> dict[str, Any]:
    driver, facts = ctx.fragment, ctx.facts
    names, moves, mine = package_names(driver, facts), transaction.transaction(ctx, decision), decision.packages
    module, kernels, reasons = next(iter(mine), ""), deciding.kernels(ctx), deciding.reload_reasons(ctx, decision)
    signs = bool(driver.signing.key_file) and not served(ctx.host, driver)
    return {
        "asserting": (asserted := steps.asserting(ctx, moves)),
        "elsewhere": [one for one in asserted if one != "transaction"],
        "installing": (taken := steps.installing(ctx, decision, moves)),
        "stages": steps.stages(taken),
        "of": decision.version,
        "version": decision.version,
        "flavour": decision.flavour,
        "packages": mine,
        "module": module,
        "module_file": names.modules.get(decision.flavour, "nvidia"),
        "installed": transaction.installed(ctx).get(module, ""),
        "kernels": [one.release for one in kernels],
        "spare": _without_headers(deciding.spare(ctx)),
        "before": list(moves.before),
        "install": list(moves.install),
        "remove": list(moves.remove),
        "pin": {"version": decision.version, "patterns": list(names.pin)} if names.pin and mine else {},
        "stream": names.streams.get(decision.flavour, "").replace("{branch}", decision.branch) if mine else "",
        "builds": moves.builds,
        "built_from": [f"{name}={mine[name]}" for name in moves.source_packages],
        "source_packages": list(moves.source_packages),
        "stand_in": [f"{name}={mine[name]}" for name in moves.source_packages if name in moves.remove],
        **steps.holding(ctx, moves, module),
        "linked_from": [name for name in mine if name.startswith(("linux-modules-nvidia-", "kmod-nvidia-"))],
        "try_install": [*moves.before, *moves.install],
        "try_remove": list(moves.remove),
        "hint": HINT,
        "moves": bool(moves.install or moves.remove),
        "prebuilt": transaction.prebuilt(facts),
        "prebuilt_sums": _sums(facts),
        "reload": bool(reasons),
        "reason": _reason(ctx, decision) if reasons else "",
        "loads": bool(pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))) and not facts.get(system.CONTAINER),
        "signing": {
            "folder": KEY_FILE.rpartition("/")[0],
            "serial": certificates.of_file(driver.signing.certificate_file).get("serial", "") if signs else "",
            "key_file": KEY_FILE,
            "certificate_file": CERTIFICATE_FILE,
            "settings": {SETTINGS_FILE: SETTINGS} if signs else {},
            "left": list(facts.get(SITE_KEY)),
        },
        "runfile": _runfile(ctx, decision, [one.release for one in kernels]),
    }


def packages(values: Mapping[str, Any]) -> Iterable[Packages]:
    """Yield the one transaction, including build tools; nothing if the driver is decided later, or another host's modules are
    installed."""
    if "prebuilt" not in values["asserting"] and "try_install" in values:
        trial = {"install": values["try_install"], "remove": values["try_remove"]}
        yield packages_of(values, is_driver=True, **trial)


def _without_headers(spare: list[str]) -> str:
    """Return the message about old kernels that nothing is built for; empty if there are none."""
    said = f"no headers are offered for {', '.join(spare)}, which neither runs nor is started next: it gets no driver"
    way = "remove that kernel, or install its headers from the distribution's archive of old packages"
    return f"{said}. Fix: {way}" if spare else ""


def _sums(facts: Facts) -> str:
    """Return the checksums of the build host's installed modules, if they are as it packed them."""
    whole = [one for one in facts.get(PREBUILT) if one.sums == one.recorded and all(one.files.values())]
    return whole[0].sums if len(whole) == 1 else ""


def _reason(ctx: Ctx, decision: Decision) -> str:
    now = deciding.loaded(ctx)
    flavour = "open" if now.open else "proprietary"
    if (now.version, flavour) == (decision.version, decision.flavour):
        return "the loaded driver runs with other module parameters, and is in use"
    return f"the loaded driver is {now.version} ({flavour}) and in use, installed is {decision.version} ({decision.flavour})"


def _runfile(ctx: Ctx, decision: Decision, kernels: list[str]) -> dict[str, Any]:
    """Return `options` of NVIDIA's installer (https://github.com/NVIDIA/nvidia-installer/blob/main/option_table.h), by the first
    version that has them; `place`: the path on the host of its file, which comes from `of`."""
    driver = ctx.fragment
    if driver.source != "runfile":
        return {}
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
        and driver.signing.key_file
        and ctx.facts.get(house.SECURE_BOOT)
        and not ctx.facts.get(system.CONTAINER)
    ):
        options += [f"--module-signing-secret-key={KEY_FILE}", f"--module-signing-public-key={CERTIFICATE_FILE}"]
    sha256 = driver.runfile.sha256.lower()
    named = {"url": driver.runfile.url, "file": driver.runfile.file}
    record = json.dumps({**named, "sha256": sha256, "version": driver.version})
    return {
        "of": driver.runfile.url or driver.runfile.file,
        "wanted": deciding.installs_runfile(ctx, decision),
        "options": options,
        "place": f"{PLACE}/NVIDIA-Linux-{driver.version}-{sha256[:12]}.run",
        "record": {runfile.OURS: record + "\n"},
    }


DESIRED = Desired(
    (
        *(*deciding.TRANSACTION, ARCHIVES, KERNELS_HELD, PREBUILT, SITE_KEY, runfile.RUNFILE),
        *(nvidia.DRIVER, nvidia.PARAMETERS, system.CONTAINER, house.SECURE_BOOT),
    ),
    make,
    packages=packages,
)
