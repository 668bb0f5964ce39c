"""Checks of cGPU: whether the host supports its settings, and has them."""

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.cgpu.fragment import Cgpu, rows
from gpuprov.capabilities.compared import Group, compared
from gpuprov.catalog import cgpu as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus.cgpu import CGPU
from gpuprov.host_code.at_boot import cgpu as onhost
from gpuprov.host_code.at_boot.cgpu import Difference
from gpuprov.resources import Setting

Ctx = Context[Cgpu]
FIELDS = ("policy", "max_inst", "prio_ratio", "gpus")
READ = f"head -v {catalogue.ROOT}/[0-9]*/*"


@check(
    "cgpu.module",
    CGPU,
    fields=FIELDS,
    moment="preflight",
    evidence=f"cat {catalogue.ROOT}/version; ls -R {catalogue.ROOT}",
)
def module(ctx: Ctx) -> Outcome:
    """cGPU's kernel module is loaded, and has a folder for each GPU and a file for each setting that the spec asks
    for."""
    state = ctx.facts.get(CGPU)
    expected = f"{catalogue.ROOT} with a folder for each GPU"
    if not state.version and state.installed:
        return fail(
            expected,
            f"cGPU is not loaded, although {state.installed[0]} is installed",
            f"modprobe {state.installed[0]}",
        )
    if not state.version:
        return fail(expected, f"no {catalogue.ROOT}/version: cGPU is not installed", catalogue.INSTALLER)
    if not state.gpus:
        return fail(expected, f"cGPU {state.version} has no GPU", "load the NVIDIA driver, then cGPU's module anew")
    indices = {gpu.index for gpu in state.gpus}
    count = (ctx.host.gpu.count if ctx.host.gpu else None) or 0
    if len(indices) < count:
        message = f"cGPU {state.version} has {len(indices)} of {counted(count, 'GPU')}: {_format_words(indices)}"
        return fail(expected, message, "load cGPU's module anew when the driver has all GPUs")
    strange = [index for index in ctx.fragment.gpus if int(index) not in indices]
    if strange:
        message = f"no {', '.join(f'{catalogue.ROOT}/{index}' for index in strange)}; GPUs: {_format_words(indices)}"
        return fail(f"GPUs {', '.join(ctx.fragment.gpus)} of cgpu.gpus", message, "correct cgpu.gpus")
    lacking = sorted(
        {
            key
            for gpu in state.gpus
            for key in onhost.parse_settings(rows(ctx.fragment), gpu.index)
            if key not in gpu.settings
        }
    )
    if lacking:
        message = f"cGPU {state.version} has no {', '.join(lacking)}"
        return fail(
            f"{', '.join(lacking)} of each GPU", message, f"a newer cGPU, or take {', '.join(lacking)} out of the spec"
        )
    return ok(f"cGPU {state.version}, GPUs {_format_words(indices)}")


@check(
    "cgpu.alone",
    CGPU,
    moment="preflight",
    evidence="nvidia-smi --query-gpu=mig.mode.current --format=csv; pgrep -fa nvidia-cuda-mps",
)
def alone(ctx: Ctx) -> Outcome:
    """No GPU is in MIG mode, and no MPS daemon runs, unless the spec ends that: a GPU can be shared in only one way."""
    state = ctx.facts.get(CGPU)
    leaves = ctx.applies("mig") and getattr(ctx.host.capabilities.get("mig"), "mode", "") == "disabled"
    cut = () if leaves else state.mig
    scope = getattr(ctx.host.capabilities.get("mps"), "scope", "")
    ends = state.mps_ours and ctx.applies("mps") and scope == "none"
    served = state.mps and not ends
    conflicts = [f"MIG mode is on: {' '.join(cut)}"] * bool(cut) + ["an MPS daemon runs"] * served
    if conflicts:
        way = ["nvidia-smi -mig 0"] * bool(cut) + [
            "mps: {scope: none} in the spec" if state.mps_ours else "stop the MPS daemon, and whatever starts it"
        ] * served
        return fail("cGPU alone, without MIG and MPS", "; ".join(conflicts), f"{'; '.join(way)}; or cgpu: false")
    if not state.version:
        return skip("cGPU is not loaded: see cgpu.module")
    return ok("neither MIG nor MPS beside cGPU")


@check(
    "cgpu.driver",
    CGPU,
    nvidia.DRIVER,
    moment="preflight",
    evidence=f"cat {catalogue.ROOT}/version /proc/driver/nvidia/version",
)
def driver(ctx: Ctx) -> Outcome:
    """This cGPU works with the loaded or requested driver, by Alibaba's table."""
    state = ctx.facts.get(CGPU)
    if not state.version:
        return skip("cGPU is not loaded: see cgpu.module")
    requested = asked_driver(ctx.host.capabilities.get("nvidia_driver"))
    versions = dict.fromkeys(release for release in (requested, ctx.facts.get(nvidia.DRIVER).version) if release)
    wrong = [why for version in versions if (why := catalogue.explain_unfit(state.version, version))]
    if wrong:
        return fail(
            f"a driver that cGPU {state.version} works with", wrong[0], "another driver, or a newer cGPU from Alibaba"
        )
    documented = "" if catalogue.find_drivers(state.version) else ", a version that Alibaba's table does not have"
    return ok(f"cGPU {state.version}{documented}; driver {', '.join(versions) or 'not loaded'}")


def asked_driver(block: object) -> str:
    """Return the branch or version that a spec asks for: `570`; empty if it gives no number."""
    version = str(getattr(block, "version", ""))
    return version if is_whole(version.replace(".", "")) else ""


def differences(ctx: Ctx) -> list[Difference]:
    """Return each GPU's differences from the spec."""
    return list(onhost.list_differences(ctx.facts.get(CGPU).gpus, rows(ctx.fragment)))


@compared("cgpu.settings", CGPU, fields=FIELDS, evidence=READ)
def settings(ctx: Ctx) -> Group | Outcome:
    """Each GPU has the settings that the spec asks for, read back from /proc/cgpu_km."""
    state = ctx.facts.get(CGPU)
    if not state.version or not state.gpus:
        return fail("cGPU's settings of each GPU", "cGPU is not loaded", "see cgpu.module")
    desired = [
        (gpu, node, value)
        for gpu in state.gpus
        for node, value in onhost.parse_settings(rows(ctx.fragment), gpu.index).items()
    ]
    wrong = {(difference.gpu.index, difference.node): difference.actual for difference in differences(ctx)}
    expected = "; ".join(dict.fromkeys(_format_settings(ctx.fragment, gpu.index) for gpu in state.gpus))
    return Group(
        tuple(
            Setting(
                kind=node,
                device=str(gpu.index),
                key=node,
                value=value,
                name=f"{catalogue.ROOT}/{gpu.index}/{node}",
                words=f"GPU {gpu.index} {node} is {{before}}",
            )
            for gpu, node, value in desired
        ),
        {(str(gpu.index), node): wrong.get((gpu.index, node), value) for gpu, node, value in desired},
        expected=expected,
        right=f"{expected}, on {counted(len(state.gpus), 'GPU')}",
        fix=f"systemctl restart {catalogue.UNIT} ({APPLY} does)",
    )


@check("cgpu.version", CGPU, evidence=f"cat {catalogue.ROOT}/version")
def version(ctx: Ctx) -> Outcome:
    """This cGPU is not one that is known to lock up the kernel."""
    state = ctx.facts.get(CGPU)
    if not state.version:
        return fail("cGPU's version", "cGPU is not loaded", "see cgpu.module")
    if catalogue.is_known_to_deadlock(state.version):
        last = catalogue.read_cgpu_file().deadlock.last
        return fail(
            f"cGPU newer than {last}",
            f"cGPU {state.version} can lock up the kernel, as all up to {last}",
            "a newer cGPU from Alibaba",
        )
    return ok(f"cGPU {state.version}")


def _format_settings(block: Cgpu, index: int) -> str:
    return " ".join(f"{key}={value}" for key, value in onhost.parse_settings(rows(block), index).items())


def _format_words(indices: set[int]) -> str:
    return " ".join(str(index) for index in sorted(indices))


CHECKS = (settings, version, module, alone, driver)
