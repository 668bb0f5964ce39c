"""Free space that an apply needs, by file system."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpuprov.capabilities.base import Capability, Check, Context, Outcome, check, fail, ok
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import words
from gpuprov.spec import overrides

# Free MiB in /tmp that DKMS, package scripts and initramfs tools need.
TEMPORARY = 16


def list_rooms(capabilities: Sequence[Capability]) -> dict[str, overrides.Room]:
    """Return the free space that each capability needs, if it needs any."""
    return {capability.name: capability.room for capability in capabilities if capability.room}


def space(capabilities: Sequence[Capability]) -> Check:
    """Return the check of free space, which knows the needs of the capabilities."""
    usual = list_rooms(capabilities)
    installing = {capability.name for capability in capabilities if capability.packages}

    @check("host.space", system.SPACE, system.OS_RELEASE, moment="preflight")
    def judge_space(ctx: Context[Any]) -> Outcome:
        """/boot has room for a rebuilt initramfs, /tmp for the work files of DKMS and package scripts if the spec has
        packages, and /boot and /var for what the site says that a capability needs (host_free_space)."""
        return _judge_space(ctx, usual, installing)

    return judge_space


def _judge_space(ctx: Context[Any], usual: Mapping[str, overrides.Room], installing: Collection[str]) -> Outcome:
    known = ctx.facts.get(system.SPACE)
    family = words(ctx.facts.get(system.OS_RELEASE))
    installs = any(name in installing for name in ctx.host.capabilities)
    if installs and (free := known.get("/tmp", TEMPORARY)) < TEMPORARY:
        fix = (
            "du -xhd1 /tmp, and remove what is not needed: without room there package scripts and module builds "
            "fail half-way"
        )
        return fail(f"{TEMPORARY} MiB free in /tmp", f"{free} MiB", fix)
    for name, room in overrides.free_space(ctx.host.site, usual).items():
        free = known.get(room.path, 0)
        if name == "nvidia_driver" or name not in ctx.host.capabilities or free >= room.mib:
            continue  # nvidia_driver.space asks, where there is something to install
        boot = f"remove old kernels: {family.old_kernels}"
        fix = boot if room.path == "/boot" else f"free space: {family.clean}; journalctl --vacuum-size=200M"
        return fail(f"{room.mib} MiB free in {room.path} for {name}", f"{free} MiB", fix)
    return ok(", ".join(f"{known.get(folder, 0)} MiB free in {folder}" for folder in overrides.FOLDERS))
