"""Checks that the guest is licensed as requested, and will be after a reboot."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import list_changes
from gpuprov.capabilities.vgpu_guest import token
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest, needs_vgpu
from gpuprov.catalog import vgpu as catalogue
from gpuprov.facts.probes.gpus.vgpu import GRIDD, LICENCES, Gridd
from gpuprov.facts.probes.host import system
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
    """The token is on the host, owned by root and with the mode that the spec asks for; if the spec names a token_file,
    that file is the only token."""
    block = ctx.fragment
    if block.licensing != "token":
        return not_asked(f"licensing is {block.licensing}: no token is needed")
    tokens = [token for token in ctx.facts.get(GRIDD).tokens if token.path.startswith(f"{block.token_directory}/")]
    file_name = block.token_file.rpartition("/")[2]
    place = f"{block.token_directory}/{file_name or catalogue.TOKEN_NAME}"
    expected = f"{place}, root's, mode {block.token_mode}"
    matching = [entry for entry in tokens if not file_name or entry.path == place]
    if not matching:
        fix = APPLY if file_name else "vgpu_guest.token_file: PATH"
        return fail(expected, "no such token", fix, changes=list_changes([Difference(place, "", "installed")]))
    if file_name:
        theirs = token.read(block.token_file)
        if theirs.problem:
            return fail(expected, theirs.problem, "correct vgpu_guest.token_file")
        if theirs.sha256 and theirs.sha256 != matching[0].sha256:
            before, after = matching[0].sha256[:12], theirs.sha256[:12]
            message = f"sha256 {before}, the controller's is {after}"
            return fail(expected, message, APPLY, changes=list_changes([Difference(place, before, after)]))
        others = [entry.path for entry in tokens if entry.path != place]
        if others:
            changes = list_changes(Difference(path, "", "removed") for path in others)
            return fail(expected, f"other tokens beside it: {' '.join(others)}", APPLY, changes=changes)
    wrong = [entry for entry in matching if (entry.mode, entry.owner) != (block.token_mode, "root")]
    if wrong:
        message = ", ".join(f"{entry.path} is {entry.owner}'s, mode {entry.mode}" for entry in wrong)
        changes = list_changes(
            Difference(entry.path, f"mode {entry.mode}", f"mode {block.token_mode}") for entry in wrong
        )
        return fail(expected, message, f"{APPLY}, or chown root and chmod {block.token_mode}", changes=changes)
    return ok(f"{' '.join(entry.path for entry in matching)}: root's, mode {block.token_mode}", expected)


def find_complaint(gridd: Gridd) -> str:
    """Return the last complaint of nvidia-gridd; empty if there is none."""
    words = ("fail", "error", "invalid", "unable", "not set", "unlicensed", "expired")
    lines = [line for line in gridd.log if any(word in line.lower() for word in words)]
    return lines[-1].strip() if lines else ""


def quote_complaint(gridd: Gridd) -> str:
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
        f"{gpu.bus} {gpu.mode}" for gpu in licences.gpus if needs_vgpu(ctx.fragment) and gpu.mode not in ("VGPU", "")
    ]
    if foreign:
        return fail("Virtualization Mode VGPU", ", ".join(foreign), "see vgpu_guest.gpu")
    without = [gpu.bus for gpu in licences.gpus if not gpu.status]
    if without:
        message = (
            f"no licensed product: {' '.join(without)}; the driver is not NVIDIA's vGPU guest driver, or "
            "gridd never asked"
        )
        return fail(expected, message + quote_complaint(gridd), f"{catalogue.PORTAL}; {JOURNAL}")
    bad = [gpu for gpu in licences.gpus if not gpu.status.startswith("Licensed")]
    if bad:
        message = ", ".join(f"{gpu.bus} {gpu.status}" for gpu in bad)
        return fail(expected, message + quote_complaint(gridd), f"{meaning(bad[0].status)}; {JOURNAL}")
    now = ctx.facts.get(system.CLOCK)
    late = [gpu for gpu in licences.gpus if 0 < gpu.expires <= now]
    if late:
        message = ", ".join(f"{gpu.bus} {gpu.status}" for gpu in late)
        return fail(
            expected, f"expired: {message}{quote_complaint(gridd)}", f"can the host reach its licence server? {JOURNAL}"
        )
    return ok(", ".join(f"{gpu.bus} {gpu.product}: {gpu.status}" for gpu in licences.gpus), expected)


def meaning(status: str) -> str:
    """Return the meaning of an unlicensed state for the guest."""
    if "Unrestricted" in status:
        return "the grace period runs: full speed until it ends, then the vGPU is slowed down"
    return "the vGPU is slowed down until it has its licence: can the host reach its licence server, are licences left?"


CHECKS = (token_installed, licensed)
