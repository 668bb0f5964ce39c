"""Checks that the guest is licensed as requested, and will be after a reboot."""

from __future__ import annotations

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import list_changes
from gpuprov.capabilities.vgpu_guest import token
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest, needs_vgpu
from gpuprov.catalog import vgpu as catalogue
from gpuprov.probe.gpus.vgpu import GRIDD, LICENCES, Gridd
from gpuprov.probe.host import system
from gpuprov.resources import Difference

Ctx = Context[VgpuGuest]
JOURNAL = f"journalctl -u {catalogue.UNIT} -n 30"


@check(
    "vgpu_guest.token_installed",
    GRIDD,
    fields=("token_file", "token_directory", "token_mode"),
    moment="next-boot",
    evidence=f"stat -c '%a %U %n' {catalogue.TOKEN_DIRECTORY}/*.tok; sha256sum {catalogue.TOKEN_DIRECTORY}/*.tok",
)
def token_installed(ctx: Ctx) -> Outcome:
    """The token is on the host, owned by root and with the mode that the spec asks for; if the spec names a token_file, that file is
    the only token."""
    block = ctx.fragment
    if block.licensing != "token":
        return not_asked(f"licensing is {block.licensing}: no token is needed")
    found = [one for one in ctx.facts.get(GRIDD).tokens if one.path.startswith(f"{block.token_directory}/")]
    wanted = block.token_file.rpartition("/")[2]
    place = f"{block.token_directory}/{wanted or catalogue.TOKEN_NAME}"
    expected = f"{place}, root's, mode {block.token_mode}"
    mine = [one for one in found if not wanted or one.path == place]
    if not mine:
        hint = APPLY if wanted else "vgpu_guest.token_file: PATH"
        return fail(expected, "no such token", hint, changes=list_changes([Difference(place, "", "installed")]))
    if wanted:
        theirs = token.read(block.token_file)
        if theirs.problem:
            return fail(expected, theirs.problem, "correct vgpu_guest.token_file")
        if theirs.sha256 and theirs.sha256 != mine[0].sha256:
            before, after = mine[0].sha256[:12], theirs.sha256[:12]
            told = f"sha256 {before}, the controller's is {after}"
            return fail(expected, told, APPLY, changes=list_changes([Difference(place, before, after)]))
        others = [one.path for one in found if one.path != place]
        if others:
            changes = list_changes(Difference(path, "", "removed") for path in others)
            return fail(expected, f"other tokens beside it: {' '.join(others)}", APPLY, changes=changes)
    wrong = [one for one in mine if (one.mode, one.owner) != (block.token_mode, "root")]
    if wrong:
        told = ", ".join(f"{one.path} is {one.owner}'s, mode {one.mode}" for one in wrong)
        changes = list_changes(Difference(one.path, f"mode {one.mode}", f"mode {block.token_mode}") for one in wrong)
        return fail(expected, told, f"{APPLY}, or chown root and chmod {block.token_mode}", changes=changes)
    return ok(f"{' '.join(one.path for one in mine)}: root's, mode {block.token_mode}", expected)


def find_complaint(gridd: Gridd) -> str:
    """Return the last complaint of nvidia-gridd; empty if there is none."""
    words = ("fail", "error", "invalid", "unable", "not set", "unlicensed", "expired")
    lines = [line for line in gridd.log if any(word in line.lower() for word in words)]
    return lines[-1].strip() if lines else ""


def said(gridd: Gridd) -> str:
    """Return that complaint as a suffix of a message."""
    complaint = find_complaint(gridd)
    return f'; nvidia-gridd: "{complaint[:160]}"' if complaint else ""


@check(
    "vgpu_guest.licensed",
    *(LICENCES, GRIDD, system.CLOCK, system.CONTAINER),
    fields=("licensing", "feature_type"),
    evidence="nvidia-smi -q | grep -A2 'Licensed Product'",
)
def licensed(ctx: Ctx) -> Outcome:
    """Each GPU has its licence, and the licence has not expired: without one a vGPU is slowed down, soon or at once."""
    licences, gridd = ctx.facts.get(LICENCES), ctx.facts.get(GRIDD)
    expected = "License Status: Licensed, on every GPU"
    if licences.complaint and (container := ctx.facts.get(system.CONTAINER)):
        return skip(f"{container} container without a loaded driver of its machine's: {licences.complaint}")
    if licences.complaint:
        return fail(expected, licences.complaint, "see nvidia_driver.loaded")
    foreign = [
        f"{one.bus} {one.mode}" for one in licences.gpus if needs_vgpu(ctx.fragment) and one.mode not in ("VGPU", "")
    ]
    if foreign:
        return fail("Virtualization Mode VGPU", ", ".join(foreign), "see vgpu_guest.gpu")
    without = [one.bus for one in licences.gpus if not one.status]
    if without:
        told = f"no licensed product: {' '.join(without)}; the driver is not NVIDIA's vGPU guest driver, or gridd never asked"
        return fail(expected, told + said(gridd), f"{catalogue.PORTAL}; {JOURNAL}")
    bad = [one for one in licences.gpus if not one.status.startswith("Licensed")]
    if bad:
        told = ", ".join(f"{one.bus} {one.status}" for one in bad)
        return fail(expected, told + said(gridd), f"{meaning(bad[0].status)}; {JOURNAL}")
    now = ctx.facts.get(system.CLOCK)
    late = [one for one in licences.gpus if 0 < one.expires <= now]
    if late:
        told = ", ".join(f"{one.bus} {one.status}" for one in late)
        return fail(expected, f"expired: {told}{said(gridd)}", f"can the host reach its licence server? {JOURNAL}")
    return ok(", ".join(f"{one.bus} {one.product}: {one.status}" for one in licences.gpus), expected)


def meaning(status: str) -> str:
    """Return the meaning of an unlicensed state for the guest."""
    if "Unrestricted" in status:
        return "the grace period runs: full speed until it ends, then the vGPU is slowed down"
    return "the vGPU is slowed down until it has its licence: can the host reach its licence server, are licences left?"


CHECKS = (token_installed, licensed)
