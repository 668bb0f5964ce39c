"""Arguments of the tasks of the role."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuprov.capabilities.nvidia_driver import decision as deciding
from gpuprov.capabilities.nvidia_driver import installer
from gpuprov.capabilities.nvidia_driver.decision import Ctx
from gpuprov.capabilities.nvidia_driver.fragment import Decision, package_names, served
from gpuprov.capabilities.nvidia_driver.tasks import TASKS
from gpuprov.capabilities.nvidia_driver.transaction import (
    Transaction,
    forgets_kernels,
    holds_kernels,
    installed,
    prebuilt,
)
from gpuprov.capabilities.steps import Need, Step, hand_steps, select_values
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.kernel.signing import CERTIFICATE_FILE, KEY_FILE, SITE_KEY
from gpuprov.facts.probes.software.prebuilt import PREBUILT
from gpuprov.host_code.json_members import Json
from gpuprov.rules import certificates

Steps = Iterator[Step]
HERE = "nvidia_driver"
MOVED = ("of", "remove", "pin", "stream")
BEFORE = frozenset(("folder", "old_key", "tools", "aside", "stop"))
# Tasks before the driver is installed, and after it.
AFTER = frozenset(("pack", "brought", "unload"))


def hand(ctx: Ctx, decision: Decision, moves: Transaction, values: Mapping[str, Any]) -> dict[str, Json]:
    """Return the arguments of the tasks that are needed. values: those of the role."""
    steps = (
        *_make_judging_steps(ctx, decision, moves, values),
        *_make_key_steps(ctx),
        *_make_install_steps(ctx, decision, moves, values),
        *_make_builder_steps(ctx, decision, moves, values),
        *_make_loading_steps(ctx, decision, moves),
    )
    given = {**hand_nothing(), **hand_steps(steps, TASKS)}
    parts: dict[str, Json] = {"before": {}} if BEFORE & given.keys() else {}
    after = AFTER & given.keys() or values["forget"] or values["leaving"]
    return {**given, **parts, **({"after": {}} if after else {})}


def hand_nothing() -> dict[str, Json]:
    """Return the arguments for a host whose driver is decided later."""
    return {"reason": {"capability": HERE, "reason": ""}, "driver_loaded": {"wanted": False}}


def signs(ctx: Ctx) -> bool:
    """Return whether the host signs its modules with the site's key."""
    return bool(ctx.fragment.signing.key_file) and not served(ctx.host, ctx.fragment)


def _make_judging_steps(ctx: Ctx, decision: Decision, moves: Transaction, values: Mapping[str, Any]) -> Steps:
    needed = served(ctx.host, ctx.fragment) or moves.before or moves.install or moves.remove
    trial = {"install": [*moves.before, *moves.install], "remove": list(moves.remove)}
    spare = _describe_headerless_kernels(deciding.spare(ctx))
    yield Step("spare", {"msg": spare}, spare)
    yield Step("try", {**select_values(values, "of", "pin", "stream", "fix"), **trial}, needed)
    if deciding.installs_runfile(ctx, decision):
        yield Step("fetch", installer.fetch(ctx.fragment))
        yield Step("runfile", installer.judge(ctx.fragment))
        frees: dict[Need, str] = {"gpus-free": "unload_first"} if deciding.reload_reasons(ctx, decision) else {}
        yield Step("installer", installer.install(ctx, decision, values["kernels"]), needs=frees)
    yield Step("installed", {"path": installer.locate(ctx.fragment)}, ctx.fragment.source == "runfile")


def _make_key_steps(ctx: Ctx) -> Steps:
    given, left = ctx.fragment.signing, ctx.facts.get(SITE_KEY)
    key = {"src": given.key_file, "dest": KEY_FILE, "mode": "0600"}
    certificate = {"src": given.certificate_file, "dest": CERTIFICATE_FILE, "mode": "0644"}
    yield Step("folder", {"path": KEY_FILE.rpartition("/")[0]}, signs(ctx))
    yield Step("key", [key, certificate], signs(ctx))
    yield Step("old_key", [{"path": path} for path in left], left and not signs(ctx))


def _make_install_steps(ctx: Ctx, decision: Decision, moves: Transaction, values: Mapping[str, Json]) -> Steps:
    driver, elsewhere = ctx.fragment, served(ctx.host, ctx.fragment)
    of_runfile, moving = driver.source == "runfile", moves.install or moves.remove
    kernels = holds_kernels(ctx) and moving
    tools = {"install": list(moves.before), **select_values(values, "of", "pin")}
    made = [f"{name}={decision.packages[name]}" for name in moves.source_packages]
    aside = {"built_from": made, "without": values["leaving"], **select_values(values, "version", "flavour", "kernels")}
    yield Step("tools", tools, moves.before and not elsewhere)
    yield Step("aside", aside, moves.builds)
    yield Step("packages", {}, forgets_kernels(ctx) if of_runfile else not elsewhere)
    yield Step("new_kernels", {}, kernels)
    yield Step("hold_new_kernels", {}, kernels)
    yield Step("modules", _describe_modules(ctx, decision, values), not elsewhere)


def _describe_modules(ctx: Ctx, decision: Decision, values: Mapping[str, Any]) -> dict[str, Json]:
    """Return what puts modules in place: linked from packages, or built by DKMS."""
    common = select_values(values, "version", "kernels")
    if ctx.fragment.source != "runfile" and ctx.fragment.build != "dkms":
        linked = ("linux-modules-nvidia-", "kmod-nvidia-")
        return {
            **common,
            "state": "precompiled",
            "packages": [name for name in values["packages"] if name.startswith(linked)],
        }
    file = ctx.fragment.signing.certificate_file
    signing = {
        "serial": certificates.of_file(file).get("serial", "") if signs(ctx) else "",
        "key_file": KEY_FILE,
        "certificate_file": CERTIFICATE_FILE,
    }
    common |= {"flavour": values["flavour"], **signing}
    if ctx.fragment.source == "runfile":
        return {**common, "state": "runfile"}
    return {**common, "state": "dkms", "package": values["module"], "module": _name_module(ctx, decision)}


def _make_builder_steps(ctx: Ctx, decision: Decision, moves: Transaction, values: Mapping[str, Any]) -> Steps:
    builder, elsewhere = ctx.fragment.build_host, served(ctx.host, ctx.fragment)
    packages = decision.packages
    driver = {
        **select_values(values, "module", "packages", "flavour", "kernels", "install", "remove"),
        "module_file": _name_module(ctx, decision),
        "installed": installed(ctx).get(values["module"], ""),
        "before": list(moves.before),
        "source_packages": list(moves.source_packages),
        "stand_in": [f"{name}={packages[name]}" for name in moves.source_packages if name in moves.remove],
        "moves": bool(moves.install or moves.remove),
        "prebuilt": prebuilt(ctx.facts),
        "prebuilt_sums": _find_checksums(ctx.facts),
        "reload": bool(deciding.reload_reasons(ctx, decision)),
    }
    fix = f"gpuprov apply --full --limit {builder}, which packs the modules again"
    given = {"driver": driver, "builder": builder}
    yield Step("pack", given, builder == ctx.host.name)
    yield Step("judged", given, elsewhere)
    yield Step("brought", given, elsewhere)
    yield Step("copy", {"of": f"nvidia_driver.build_host {builder}", "fix": fix}, elsewhere)
    yield Step("from_build_host", select_values(values, *MOVED), elsewhere)


def _name_module(ctx: Ctx, decision: Decision) -> str:
    """Return the name of the module's file, without its suffix."""
    return package_names(ctx.fragment, ctx.facts).modules.get(decision.flavour, "nvidia")


def _make_loading_steps(ctx: Ctx, decision: Decision, moves: Transaction) -> Steps:
    elsewhere, reasons = served(ctx.host, ctx.fragment), deciding.reload_reasons(ctx, decision)
    under_installer = deciding.installs_runfile(ctx, decision)
    reason = _explain_reload(ctx, decision) if reasons else ""
    on_bus = bool(pci.served(ctx.facts.get(pci.NVIDIA_FUNCTIONS))) and not ctx.facts.get(system.CONTAINER)
    yield Step("stop", {}, reasons and (moves.install or moves.remove) and not elsewhere)
    yield Step("unload", {}, reasons and not under_installer)
    yield Step("reason", {"capability": HERE, "reason": reason})
    yield Step("driver_loaded", {"wanted": on_bus})


def _explain_reload(ctx: Ctx, decision: Decision) -> str:
    now = deciding.loaded(ctx)
    flavour = "open" if now.open else "proprietary"
    if (now.version, flavour) == (decision.version, decision.flavour):
        return "the loaded driver runs with other module parameters, and is in use"
    return (
        f"the loaded driver is {now.version} ({flavour}) and in use, installed is {decision.version} "
        f"({decision.flavour})"
    )


def _describe_headerless_kernels(spare: list[str]) -> str:
    """Return the message about old kernels that nothing is built for; empty if there are none."""
    message = (
        f"no headers are offered for {', '.join(spare)}, which neither runs nor is started next: it gets no driver"
    )
    way = "remove that kernel, or install its headers from the distribution's archive of old packages"
    return f"{message}. Fix: {way}" if spare else ""


def _find_checksums(facts: Facts) -> str:
    """Return the checksums of the build host's installed modules, if they are as it packed them."""
    whole = [packed for packed in facts.get(PREBUILT) if packed.sums == packed.recorded and all(packed.files.values())]
    return whole[0].sums if len(whole) == 1 else ""
