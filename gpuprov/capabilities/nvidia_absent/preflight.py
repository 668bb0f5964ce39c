"""Checks that NVIDIA's software can be removed, made before anything is changed."""

from gpuprov.capabilities.base import Outcome, check, fail, ok, skip
from gpuprov.capabilities.driver import judge_holders
from gpuprov.capabilities.nvidia_absent.host import Ctx, has_runfile, list_loaded
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.driver.runfile import RUNFILE
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel import modules


@check("nvidia_absent.removable", RUNFILE, moment="preflight", evidence=RUNFILE.evidence)
def removable(ctx: Ctx) -> Outcome:
    """A driver of NVIDIA's .run file still has its uninstaller."""
    current = ctx.facts.get(RUNFILE)
    if current.unreadable or not has_runfile(ctx.facts):
        return ok("no runfile installation")
    if not current.programs:
        version = current.version
        hint = f"sh NVIDIA-Linux-$(uname -m)-{version}.run --uninstall, with the file that it was installed from"
        return fail("its uninstaller", f"driver {version} of a runfile, whose nvidia-uninstall is gone", hint)
    return ok(current.programs[0])


@check(
    "nvidia_absent.clients",
    *(nvidia.CLIENTS, modules.LOADED, system.CONTAINER),
    moment="preflight",
    evidence=nvidia.CLIENTS.evidence,
)
def clients(ctx: Ctx) -> Outcome:
    """No user's process holds a GPU whose driver is removed; services are stopped."""
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: the loaded driver is the machine's, not this host's")
    if not list_loaded(ctx.facts):
        return ok("no driver is loaded")
    return judge_holders(ctx, ())


CHECKS = (removable, clients)
