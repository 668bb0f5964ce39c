"""Checks that the guest can be licensed: the licence covers its GPU, the guest driver is installed and fits, the token
is valid."""

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.driver import find_current_version
from gpuprov.capabilities.vgpu_guest import token
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest, needs_vgpu
from gpuprov.catalog import drivers
from gpuprov.catalog import vgpu as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus.vgpu import GRIDD
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.virtualization import FUNCTIONS

Ctx = Context[VgpuGuest]


@check(
    "vgpu_guest.gpu",
    *(FUNCTIONS, pci.NVIDIA_FUNCTIONS),
    fields=("feature_type",),
    moment="preflight",
    evidence="lspci -vvv -d 10de: | grep -A1 'Vendor Specific'; nvidia-smi -q | grep 'Virtualization Mode'",
)
def gpu(ctx: Ctx) -> Outcome:
    """The GPUs are those that the licence covers: vGPUs for feature_type vgpu, whole GPUs for vws and vcs."""
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return fail("a GPU to license", "no NVIDIA GPU on the PCI bus", "give the VM a vGPU, or take vgpu_guest out")
    functions = ctx.facts.get(FUNCTIONS)
    shared = [function.address for function in functions if function.kind == "vgpu"]
    whole = [function.address for function in functions if function.kind == "physical"]
    unread = [function.address for function in functions if function.kind == "unknown"]
    if unread:
        message = f"configuration space not readable: {' '.join(unread)}"
        return fail("GPUs that say whether they are vGPUs", message, "let gpuprov become root on the host")
    if ctx.fragment.licensing == "provider":
        return ok(
            f"{counted(len(shared), 'vGPU')} and {counted(len(whole), 'whole GPU')}: the provider licenses either"
        )
    if needs_vgpu(ctx.fragment) and whole:
        fix = (
            "bare metal and passed-through GPUs need no vGPU licence: take vgpu_guest out, or feature_type: vws "
            "or vcs for one"
        )
        return fail("vGPUs, for feature_type vgpu", f"no vGPU: {' '.join(whole)}", fix)
    if not needs_vgpu(ctx.fragment) and shared:
        fix = "feature_type: vgpu, by which the driver takes the licence of the vGPU's type"
        return fail(f"whole GPUs, for feature_type {ctx.fragment.feature_type}", f"vGPU: {' '.join(shared)}", fix)
    return ok(
        f"{counted(len(shared or whole), 'vGPU' if shared else 'whole GPU')}, feature_type {ctx.fragment.feature_type}"
    )


@check("vgpu_guest.driver", GRIDD, moment="preflight", evidence=f"ls -l {catalogue.PROGRAM}")
def driver(ctx: Ctx) -> Outcome:
    """NVIDIA's vGPU guest driver, which brings nvidia-gridd and its unit, is installed."""
    gridd = ctx.facts.get(GRIDD)
    if gridd.installed and gridd.load == "not-found":
        # https://github.com/Azure/aks-gpu/pull/90: some installers of the driver bring the program without a unit
        message = f"{catalogue.UNIT} does not exist, although {catalogue.PROGRAM} does"
        fix = (
            "install the guest driver's packages instead of its .run, which brings the unit only where it finds systemd"
        )
        return fail(catalogue.UNIT, message, fix)
    if gridd.installed:
        return ok(catalogue.PROGRAM)
    return fail(catalogue.PROGRAM, f"{catalogue.PROGRAM} is missing: no vGPU guest driver", catalogue.PORTAL)


@check(
    "vgpu_guest.branch",
    *(nvidia.LIBRARIES, nvidia.DRIVER, FUNCTIONS),
    fields=("licensing",),
    moment="preflight",
    evidence="nvidia-smi --query-gpu=driver_version --format=csv; nvidia-smi -q | grep 'Host Driver'",
)
def branch(ctx: Ctx) -> Outcome:
    """The installed driver is of a branch that vGPU releases have, that is compatible with the hypervisor's vGPU
    manager, and that supports the licensing that the spec asks for."""
    version = find_current_version(ctx.facts)
    if not version:
        return skip("no driver is installed: see vgpu_guest.driver")
    guest = drivers.derive_branch(version)
    known = [release.branch for release in catalogue.read_vgpu_file().releases]
    if guest not in known and int(guest) < max(int(number) for number in known):
        near = min(known, key=lambda number: abs(int(number) - int(guest)))
        fix = f'the nearest is "{near}" (vGPU {catalogue.release_of(near)}): {catalogue.PORTAL}'
        return fail(f"a guest driver of branch {', '.join(known)}", f"driver {version}: no vGPU release has it", fix)
    for fact in ctx.facts.get(FUNCTIONS):
        if fact.kind == "vgpu" and fact.host_branch and not catalogue.is_compatible(guest, fact.host_branch):
            actual = f"guest driver {version}, vGPU manager {fact.host_driver or fact.host_branch} ({fact.address})"
            fix = f"the guest driver of branch {fact.host_branch}, or another vGPU manager on the hypervisor"
            return fail("a guest driver of the vGPU manager's branch, or of the one before it", actual, fix)
    last = catalogue.read_vgpu_file().legacy_server_last.branch
    if ctx.fragment.licensing == "server" and int(guest) > int(last):
        actual = f"driver {version}: guest drivers after branch {last} know no legacy licence server"
        return fail(
            f"branch {last} or older, for licensing server", actual, "licensing: token, of NVIDIA's License System"
        )
    release = catalogue.release_of(guest)
    return ok(f"driver {version}, {f'vGPU {release}' if release else 'newer than the vGPU releases that are known'}")


@check(
    "vgpu_guest.token",
    *(GRIDD, system.CLOCK),
    fields=("token_file", "token_directory", "licensing"),
    moment="preflight",
    evidence=f"sha256sum {catalogue.TOKEN_DIRECTORY}/*.tok",
)
def usable(ctx: Ctx) -> Outcome:
    """There is a client configuration token, on the controller or already on the host, and it has not expired."""
    block = ctx.fragment
    if block.licensing != "token":
        return not_asked(f"licensing is {block.licensing}: no token is needed")
    now = ctx.facts.get(system.CLOCK)
    if block.token_file:
        own_token = token.read(block.token_file)
        if own_token.problem:
            return fail(
                block.token_file,
                own_token.problem,
                "make one in NVIDIA's licensing portal, or correct vgpu_guest.token_file",
            )
        if 0 < own_token.expires <= now:
            fix = "make a new client configuration token in NVIDIA's licensing portal"
            return fail(
                "a token that has not expired", f"{block.token_file} expired {token.day(own_token.expires)}", fix
            )
        return ok(
            f"{block.token_file}, sha256 {own_token.sha256[:12]}"
            if own_token.sha256
            else f"{block.token_file}, in Ansible's vault"
        )
    tokens = [token for token in ctx.facts.get(GRIDD).tokens if token.path.startswith(f"{block.token_directory}/")]
    if not tokens:
        fix = f"vgpu_guest.token_file: PATH of a {catalogue.TOKEN_NAME} on the controller"
        return fail(f"a token in {block.token_directory}", "no token there, and no token_file", fix)
    good = [entry for entry in tokens if not 0 < entry.expires <= now]
    if not good:
        message = f"expired: {' '.join(f'{entry.path} ({token.day(entry.expires)})' for entry in tokens)}"
        return fail(
            "a token that has not expired",
            message,
            "make a new client configuration token in NVIDIA's licensing portal",
        )
    return ok(f"{' '.join(entry.path for entry in good)}")


CHECKS = (gpu, driver, branch, usable)
