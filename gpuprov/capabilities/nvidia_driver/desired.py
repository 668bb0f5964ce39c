"""Desired state of the role: a package source, one transaction, holds, modules for each kernel, a reloaded driver."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuprov.capabilities.base import Context, Desired
from gpuprov.capabilities.nvidia_driver import decision as deciding
from gpuprov.capabilities.nvidia_driver import installer, transaction
from gpuprov.capabilities.nvidia_driver.fragment import Decision, NvidiaDriver, package_names
from gpuprov.capabilities.nvidia_driver.handed import hand, hand_nothing, signs
from gpuprov.capabilities.nvidia_driver.transaction import holding
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver import nvidia, runfile
from gpuprov.facts.probes.driver.driver_packages import ARCHIVES, KERNELS_HELD
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.kernel.signing import CERTIFICATE_FILE, KEY_FILE, SETTINGS_FILE, SITE_KEY
from gpuprov.facts.probes.software.prebuilt import PREBUILT
from gpuprov.host_code.json_members import Json
from gpuprov.resources.packages import Packages, packages_of

Ctx = Context[NvidiaDriver]
FIX = (
    "remove what stands in the way, or release it where it is held; of headers of a kernel that no repository has "
    "any more, remove that kernel; else name another version"
)
SETTINGS = f"""# Managed by gpuprov: change the inventory, then apply again.
# The site's key, that DKMS signs every module with.
mok_signing_key={KEY_FILE}
mok_certificate={CERTIFICATE_FILE}
"""


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `later`: what waits for a package source, `repository` and `components`: that source.
    `leaving`: sources that are ignored, and `leave`: their removal. Then the decision, its transaction, its holds, and
    what each task gets."""
    decision = deciding.decided(ctx)
    waits = deciding.waits_for(ctx, decision)
    if decision.problem and not waits:
        raise ProbeFailed(f"nvidia_driver.version {ctx.fragment.version}: {decision.problem}", decision.fix)
    message = f"driver {ctx.fragment.version} is resolved when apply has {waits}"
    problem = f"nvidia_driver.version {ctx.fragment.version}: {decision.problem}. Fix: {decision.fix}"
    of_packages = ctx.fragment.source != "runfile"
    components = deciding.components(ctx, ctx.facts.get(ARCHIVES)) if of_packages else {}
    values: dict[str, Any] = {
        "later": {"told": message, "problem": problem} if waits else {},
        "repository": deciding.repository(ctx) if of_packages else {},
        "components": components,
        "leaving": deciding.leaving(ctx.fragment, ctx.facts),
    }
    values |= _make_undecided() if waits else _make_decided(ctx, decision, values["leaving"])
    values["tasks"] |= {"components": {"sources": components}} if components else {}
    return values


def _make_undecided() -> dict[str, Json]:
    words = dict.fromkeys(("of", "version", "flavour"), "")
    lists: dict[str, Json] = {name: [] for name in ("install", "remove")}
    parts: dict[str, Json] = {name: {} for name in ("packages", "signing", "runfile", "record", "forget")}
    return {**words, **lists, **parts, "leave": {"repository": {}}, "tasks": hand_nothing()}


def _make_decided(ctx: Ctx, decision: Decision, leaving: list[str]) -> dict[str, Json]:
    driver = ctx.fragment
    names, moves, own_packages = (
        package_names(driver, ctx.facts),
        transaction.transaction(ctx, decision),
        decision.packages,
    )
    module = next(iter(own_packages), "")
    gone = {"name": deciding.SOURCE, "of": "nvidia_driver.source distribution", "url": ""}
    values = {
        "of": decision.version,
        "version": decision.version,
        "flavour": decision.flavour,
        "packages": own_packages,
        "module": module,
        "kernels": [kernel.release for kernel in deciding.kernels(ctx)],
        "install": list(moves.install),
        "remove": list(moves.remove),
        "pin": {"version": decision.version, "patterns": list(names.pin)} if names.pin and own_packages else {},
        "stream": names.streams.get(decision.flavour, "").replace("{branch}", decision.branch) if own_packages else "",
        "fix": FIX,
        "builds": moves.builds,
        **holding(ctx, moves, module),
        "leave": {"repository": gone if leaving else {}},
        "leaving": leaving,
        "signing": {"files": {SETTINGS_FILE: SETTINGS}} if signs(ctx) else {},
        "runfile": {"files": installer.record(driver)} if driver.source == "runfile" else {},
    }
    return {**values, "tasks": hand(ctx, decision, moves, values)}


def packages(values: Mapping[str, Any]) -> Iterable[Packages]:
    """Yield the one transaction, including build tools; nothing if the driver is decided later, or another host's
    modules are installed."""
    if "judged" not in values["tasks"] and values["version"]:
        yield packages_of({**values, **values["tasks"].get("try", {})}, is_driver=True)


DESIRED = Desired(
    (
        *(*deciding.TRANSACTION, ARCHIVES, KERNELS_HELD, PREBUILT, SITE_KEY, runfile.RUNFILE),
        *(nvidia.DRIVER, nvidia.PARAMETERS, system.CONTAINER, house.SECURE_BOOT),
    ),
    make,
    packages=packages,
)
